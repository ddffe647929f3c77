"""``gossamer attack audit``: a run with canaries."""

from __future__ import annotations

import argparse
from typing import Any

from gossamer.cli.options import FileName, add_reproducible, add_spec, read_experiment, settings_of
from gossamer.cli.pages import progress
from gossamer.cli.printing import epsilon, print_json, say, table
from gossamer.experiment.specs.folder_names import default_folder

DESCRIPTION = (
    "Run a spec once with canaries, each included by a fair coin, and guess the coins from what was released: a lower "
    "bound of epsilon beside the proved upper one."
)


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments to its parser."""
    add_spec(command)
    add_reproducible(command)
    command.add_argument(
        "--canaries", type=int, metavar="M", help="how many coins are flipped (default: one for each example)"
    )
    command.add_argument(
        "--guesses", type=int, metavar="R", help="about how many of them to guess (default: what bounds epsilon best)"
    )
    command.add_argument(
        "--canary",
        choices=["auto", "random", "mislabelled"],
        default="auto",
        help="what canaries are (default: random directions, and mislabelled examples where features are sparse)",
    )
    command.add_argument(
        "--score",
        choices=["gradient", "loss"],
        default="gradient",
        help="guess from all released gradients, or from the run's model alone (default: gradient)",
    )
    command.add_argument("--confidence", type=float, metavar="P", help="of the bound (default: 0.95)")
    command.add_argument(
        "--out",
        action=FileName,
        help="folder for the results (default: runs/<spec>-audit-seed<seed>,<what --set says>)",
    )
    command.add_argument("--overwrite", action="store_true", help="replace the results of an earlier audit in --out")
    command.set_defaults(command=audit_command)


def audit_command(options: argparse.Namespace) -> int:
    """Run with canaries, and say what is measured and what is proved."""
    from gossamer.experiment.audits.auditing import audit_run

    experiment = read_experiment(options)
    shown = progress()
    try:
        result = audit_run(
            experiment,
            options.out or default_folder(options.spec, "audit", experiment.seed, settings_of(options)),
            canaries=options.canaries,
            guesses=options.guesses,
            kind=options.canary,
            score=options.score,
            overwrite=options.overwrite,
            progress=shown,
            **({} if options.confidence is None else {"confidence": options.confidence}),
        )
    finally:
        shown.close()
    audit = result.summary["privacy"]["audits"]["one_run"]
    if options.json:
        print_json(result.summary)
    else:
        print(_audit_report(audit))
        print(f"Results: {result.folder}")
    if audit["refuted"]:
        say("gossamer: so many right guesses contradict what is proved: the guarantee of such a run does not hold")
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
