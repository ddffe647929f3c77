"""``gossamer attack`` and ``gossamer audit``: inversion, membership inference, canaries and leaks."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import Any

from gossamer.cli.commands import naming, read_experiment, same_options, settings_of
from gossamer.cli.logs import progress
from gossamer.cli.printing import answered, epsilon, patience, say, table, wrapped
from gossamer.errors import CallerError, counted
from gossamer.experiment.audits.canary_audit import audit_membership, audit_run
from gossamer.experiment.audits.inversion_audit import Inversion, invert
from gossamer.experiment.audits.leak_audit import LeakAudit, audit_leak
from gossamer.experiment.preparation.prepare import prepare
from gossamer.experiment.specs.folder_names import default_folder
from gossamer.files import make_own_folder, to_json, write_own
from gossamer.report.drawing import stretched, write_grid


def inversion_command(options: argparse.Namespace) -> int:
    """Recover examples, draw them, and say how like the originals they are."""

    if not all(1e-9 <= epsilon <= 1e12 for epsilon in options.epsilon):
        raise CallerError(f"--epsilon lies between 1e-9 and 10^12, found {options.epsilon}")
    experiment = read_experiment(options)
    with naming(options.spec):
        prepared = prepare(experiment)
    how = {"examples": options.examples, "batch_size": options.batch_size, "method": options.method}
    found = invert(prepared, epsilons=options.epsilon, **how)
    out = options.out or Path("runs") / f"{options.spec.stem}-inversion"
    make_own_folder(out)
    figure = _draw(found, out / "inversion.png")
    document = {**found.as_dict(), "figure": None if figure is None else str(figure)}
    write_own(out / "inversion.json", to_json(document, indent=2) + "\n")
    rows = [
        (level["level"], "-" if level["ssim"] is None else f"{level['ssim']:.3f}", f"{level['cosine']:.3f}")
        for level in document["levels"]
    ]
    text = (
        f"{found.method} inversion of {counted(len(found.originals), 'batch', 'batches')} of {found.batch_size} at "
        f"{found.node}, initial model\n\n{table([('noise', 'mean SSIM', 'mean cosine'), *rows])}\n\n"
    )
    text += f"Figure: {figure}" if figure else "Examples are no pictures, so there is no SSIM and no figure."
    return answered(options, document, text)


def _draw(found: Inversion, path: Path) -> Path | None:

    if found.originals.ndim != 4 or found.originals.shape[1] not in (1, 3):
        return None
    shown = "original" if found.batch_size == 1 else "most alike"
    originals = [stretched(picture, found.low, found.high) for picture in found.originals]
    recovered = [(level.name, [stretched(picture) for picture in level.recovered]) for level in found.levels]
    write_grid(path, [(shown, originals), *recovered])
    return path


def membership_command(options: argparse.Namespace) -> int:
    """Say how well losses tell members from others, and write it beside the guarantee."""

    audit = audit_membership(options.results)
    rows = [
        ("AUC (chance: 0.5)", _figure(audit["auc"])),
        ("advantage (chance: 0)", _figure(audit["advantage"])),
        ("true positive rate at 1 % false positives", _figure(audit["tpr_at_fpr_0.01"])),
        ("true positive rate at 0.1 % false positives", _figure(audit["tpr_at_fpr_0.001"])),
        ("lower bound of epsilon", _figure(audit["epsilon_lower_bound"])),
    ]
    who = f"{counted(audit['members'], 'member')} and {counted(audit['non_members'], 'other')} at the run's model"
    how = wrapped(f"On the bound: {audit['how']}")
    return answered(options, audit, f"{who}\n\n{table(rows)}\n\n{how}")


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def audit_command(options: argparse.Namespace) -> int:
    """Run with canaries, and say what is measured and what is proved."""

    experiment = read_experiment(options)
    shown = progress()
    try:
        out = options.out or default_folder(options.spec, "audit", experiment.seed, settings_of(options))
        same = ("canaries", "guesses", "score", "observer", "overwrite", "confidence")
        how = {"kind": options.canary, **{name: getattr(options, name) for name in same}}
        result = audit_run(experiment, out, progress=shown, **how)
    finally:
        shown.close()
    audit = result.summary["privacy"]["audits"]["one_run"]
    answered(options, result.summary, f"{_audit_report(audit)}\nResults: {result.folder}")
    if audit["refuted"]:
        say("gossamer: so many right guesses contradict what is proved: the guarantee of such a run does not hold")
    return int(audit["refuted"])


def _audit_report(audit: dict[str, Any]) -> str:
    reproducible = "would_be_epsilon" in audit
    rows = [
        ("measured: epsilon is at least", f"{audit['epsilon_lower_bound']:.4g}", f"confidence {audit['confidence']:g}"),
        ("proved: epsilon is at most", epsilon(audit["proved_epsilon"]), "reproducible noise" * reproducible),
    ]
    if reproducible:
        rows.append(("with a noise secret: at most", epsilon(audit["would_be_epsilon"]), ""))
    if "observer" in audit:
        rows.append((f"{audit['observer']}: at most", epsilon(audit["gradients_fixed_epsilon"]), "gradients_fixed"))
    return (
        f"\n{audit['correct']} of {audit['guesses']} guesses are right, about {audit['canaries']} canaries "
        f"({audit['canary']}, scored by {audit['score']})\n\n{table(rows)}\n\n"
        f"at delta {audit['delta']:g}, {audit['neighboring_relation']}\n"
    )


def leak_command(options: argparse.Namespace) -> int:
    """Run the pairs, and say what differs."""

    experiment = read_experiment(options)
    with naming(options.spec), patience("preparing the run") as now:
        found = audit_leak(
            prepare(experiment),
            pairs=options.pairs,
            updates=options.updates,
            progress=lambda done: now(f"running pairs, {done} of {options.pairs} are done"),
        )
    again = None if found.leak is None else _again(options, found)
    text = _report(found, noisy=experiment.privacy.mechanism != "none")
    text += "" if again is None else f"\nagain: {again}"
    return answered(options, found.as_dict() | {"again": again}, text, 0 if found.leak is None else 1)


def _report(found: LeakAudit, *, noisy: bool) -> str:
    rows = [
        ("pairs of neighbouring data sets", f"{found.pairs:,}"),
        ("releases compared", f"{found.releases:,}"),
        ("of these, with a row that differs", f"{found.differing_releases:,}"),
        ("largest distance, of the sensitivity", f"{found.largest_share_of_sensitivity:.4f}"),
        ("differences outside of data sides", "0" if found.leak is None else "1, and it ended there"),
    ]
    if found.leak is None:
        told = "noise told the two data sets of a pair apart."
        if not noisy:
            told = "releases told the two data sets of a pair apart, and they have no noise."
        unseen = (
            "" if found.differing_releases else "\nNo release was of a row that differs: raise --pairs or --updates."
        )
        return f"{table(rows)}\n\nNothing but {told}{unseen}"
    row = f" ({found.neighbours} in the place of a row)" if found.neighbours else ""
    return f"{table(rows)}\n\nLeak in pair {found.pairs}{row}: {found.leak}"


def _again(options: argparse.Namespace, found: LeakAudit) -> str:
    """Command that finds it again."""
    words = ["gossamer", "audit", "leak", str(options.spec), *same_options(options)]
    return shlex.join([*words, "--updates", str(options.updates), "--pairs", str(found.pairs)])
