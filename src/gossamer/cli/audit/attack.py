"""``gossamer attack``: inversion, membership inference and audits."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from gossamer.cli.plan_output import epsilon
from gossamer.cli.printing import Bar, print_json, say, table, wrapped
from gossamer.cli.spec_options import add_reproducible, add_spec, read_experiment
from gossamer.errors import CallerError, DataError, counted
from gossamer.experiment.attacking import Inversion, invert
from gossamer.experiment.auditing import MembershipAudit, audit_membership, audit_run
from gossamer.experiment.prepare import prepare
from gossamer.experiment.results import to_json
from gossamer.files import make_own_folder, write_own
from gossamer.privacy.attacks.audit import REPORTED


def add_commands(commands: Any) -> None:
    """Add ``attack`` and its three commands to the parser."""
    attack = commands.add_parser(
        "attack",
        help="attack what a run releases, and audit its guarantee",
        description="Attack what a run releases, and audit its guarantee from below.",
    )
    attacks = attack.add_subparsers(title="attacks", metavar="ATTACK", required=True)
    _add_inversion(attacks)
    _add_membership(attacks)
    _add_audit(attacks)


def _folder(path: Path) -> Path:
    try:
        make_own_folder(path)
    except OSError as error:
        raise CallerError(f"--out {path}: cannot make this folder ({error.strerror}); choose another") from None
    return path


# Inversion


def _add_inversion(attacks: Any) -> None:
    command = attacks.add_parser(
        "inversion",
        help="recover examples from the gradients that a spec's node would release",
        description="Recover the first examples of the first node's shard from the gradients it would release.",
    )
    add_spec(command)
    command.add_argument("--examples", type=int, default=8, metavar="N", help="how many batches to attack (default: 8)")
    command.add_argument("--batch-size", type=int, default=1, metavar="B", help="examples in a batch (default: 1)")
    command.add_argument(
        "--epsilon",
        type=float,
        nargs="+",
        default=[],
        metavar="E",
        help="also compare noise of the L2 Laplace mechanism with this epsilon for one release",
    )
    command.add_argument(
        "--method", choices=["auto", "linear", "matching"], default="auto", help="how (default: by the first layer)"
    )
    command.add_argument("--out", type=Path, help="folder for the figure (default: runs/<spec>-inversion)")
    command.set_defaults(command=inversion_command)


def inversion_command(options: argparse.Namespace) -> int:
    """Recover examples, draw them, and say how like the originals they are."""
    if not all(1e-9 <= epsilon <= 1e12 for epsilon in options.epsilon):
        raise CallerError(f"--epsilon lies between 1e-9 and 10^12, found {options.epsilon}")
    prepared = prepare(read_experiment(options))
    found = invert(
        prepared,
        examples=options.examples,
        batch_size=options.batch_size,
        epsilons=options.epsilon,
        method=options.method,
    )
    out = _folder(options.out or Path("runs") / f"{options.spec.stem}-inversion")
    figure = _draw(found, out / "inversion.png")
    document = {**found.as_dict(), "figure": None if figure is None else str(figure)}
    write_own(out / "inversion.json", to_json(document, indent=2) + "\n")
    if options.json:
        print_json(document)
        return 0
    rows = [
        (level["level"], "-" if level["ssim"] is None else f"{level['ssim']:.3f}", f"{level['cosine']:.3f}")
        for level in document["levels"]
    ]
    print(
        f"{found.method} inversion of {counted(len(found.originals), 'batch', 'batches')} of {found.batch_size} at "
        f"{found.node}, initial model\n\n{table([('noise', 'mean SSIM', 'mean cosine'), *rows])}\n"
    )
    print(f"Figure: {figure}" if figure else "Examples are no pictures, so there is no SSIM and no figure.")
    return 0


def _draw(found: Inversion, path: Path) -> Path | None:
    from gossamer.report.grids import stretched, write_grid

    if found.originals.ndim != 4 or found.originals.shape[1] not in (1, 3):
        return None
    shown = "original" if found.batch_size == 1 else "most alike"
    originals = [stretched(picture, found.low, found.high) for picture in found.originals]
    recovered = [(level.name, [stretched(picture) for picture in level.recovered]) for level in found.levels]
    write_grid(path, [(shown, originals), *recovered])
    return path


# Membership inference


def _add_membership(attacks: Any) -> None:
    command = attacks.add_parser(
        "membership",
        help="tell training from test examples by their loss at a run's model",
        description="Compare the losses of training and test examples at a run's model; needs the run's data.",
    )
    command.add_argument("results", type=Path, metavar="RESULTS", help="the results folder of a run")
    command.add_argument("--out", type=Path, help="folder for the figure (default: RESULTS)")
    command.add_argument("--json", action="store_true", help="print one JSON document on stdout")
    command.set_defaults(command=membership_command)


def membership_command(options: argparse.Namespace) -> int:
    """Say how well losses tell members from others, and write it beside the guarantee."""
    found = audit_membership(options.results)
    figure = _draw_losses(found, _folder(options.out or options.results) / "membership.png")
    if options.json:
        print_json({**found.audit, "figure": None if figure is None else str(figure)})
        return 0
    audit = found.audit
    rows = [
        ("AUC (chance: 0.5)", _figure(audit["auc"])),
        ("advantage (chance: 0)", _figure(audit["advantage"])),
        ("true positive rate at 1 % false positives", _figure(audit["tpr_at_fpr_0.01"])),
        ("true positive rate at 0.1 % false positives", _figure(audit["tpr_at_fpr_0.001"])),
        ("lower bound of epsilon", _figure(audit["epsilon_lower_bound"])),
    ]
    print(
        f"{counted(audit['members'], 'member')} and {counted(audit['non_members'], 'other')} at the run's "
        f"model\n\n{table(rows)}\n"
    )
    print(wrapped(f"On the bound: {audit['how']}"))
    print(f"Figure: {figure}" if figure else "")
    return 0


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _draw_losses(found: MembershipAudit, path: Path) -> Path | None:
    from gossamer.report.histograms import write_histograms

    try:
        write_histograms(path, {"training examples": found.members, "test examples": found.non_members}, "loss")
    except DataError as error:
        say(f"no figure: {error}")
        return None
    return path


# Audits of runs


def _add_audit(attacks: Any) -> None:
    command = attacks.add_parser(
        "audit",
        help="run a spec with canaries included by coin flips, and bound its epsilon from below",
        description="Run a spec once with canaries, each included by a fair coin, and guess the coins from what was "
        "released: a lower bound of epsilon beside the proved upper one.",
    )
    add_spec(command)
    add_reproducible(command)
    command.add_argument("--canaries", type=int, required=True, metavar="M", help="how many coins are flipped")
    command.add_argument("--guesses", type=int, required=True, metavar="R", help="about how many of them to guess")
    command.add_argument(
        "--canary",
        choices=["auto", "random", "mislabelled"],
        default="auto",
        help="what canaries are (default: random signs, and mislabelled examples where features are sparse)",
    )
    command.add_argument(
        "--score",
        choices=["gradient", "loss"],
        default="gradient",
        help="guess from all released gradients, or from the run's model alone (default: gradient)",
    )
    command.add_argument("--confidence", type=float, default=REPORTED, metavar="P", help="of the bound (default: 0.95)")
    command.add_argument("--out", type=Path, help="folder for the results (default: runs/<spec>-audit-seed<seed>)")
    command.add_argument("--overwrite", action="store_true", help="replace the results of an earlier run in --out")
    command.set_defaults(command=audit_command)


def audit_command(options: argparse.Namespace) -> int:
    """Run with canaries, and say what is measured and what is proved."""
    experiment = read_experiment(options)
    bar = Bar()
    try:
        result = audit_run(
            experiment,
            options.out or Path("runs") / f"{options.spec.stem}-audit-seed{experiment.seed}",
            canaries=options.canaries,
            guesses=options.guesses,
            kind=options.canary,
            score=options.score,
            confidence=options.confidence,
            overwrite=options.overwrite,
            progress=bar,
        )
    finally:
        bar.close()
    audit = result.summary["privacy"]["audits"]["one_run"]
    if options.json:
        print_json(result.summary)
    else:
        print(_audit_report(audit))
        print(f"Results: {result.folder}")
    if audit["refuted"]:
        say("gossamer: the lower bound is above what is proved: the guarantee of such a run does not hold")
        return 1
    return 0


def _audit_report(audit: dict[str, Any]) -> str:
    reproducible = "would_be_epsilon" in audit
    rows = [
        ("measured: epsilon is at least", f"{audit['epsilon_lower_bound']:.4g}", f"confidence {audit['confidence']:g}"),
        ("proved: epsilon is at most", epsilon(audit["proved_epsilon"]), "reproducible noise" * reproducible),
    ]
    if reproducible:
        rows.append(("with a noise secret: at most", epsilon(audit["would_be_epsilon"]), ""))
    return (
        f"\n{audit['correct']} of {audit['guesses']} guesses are right, about {audit['canaries']} canaries "
        f"({audit['canary']}, scored by {audit['score']})\n\n{table(rows)}\n\n"
        f"at delta {audit['delta']:g}, {audit['neighboring_relation']}\n"
    )
