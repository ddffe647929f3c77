"""``gossamer attack membership``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from gossamer.cli.options import FileName, made_folder
from gossamer.cli.printing import print_json, say, table, wrapped
from gossamer.errors import DataError, counted

if TYPE_CHECKING:
    from gossamer.experiment.audits.auditing import MembershipAudit

DESCRIPTION = "Compare the losses of training and test examples at a run's model; needs the run's data."


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments to its parser."""
    command.add_argument("results", action=FileName, metavar="RESULTS", help="the results folder of a run")
    command.add_argument("--out", action=FileName, help="folder for the figure (default: RESULTS)")
    command.add_argument("--json", action="store_true", help="print one JSON document on stdout")
    command.set_defaults(command=membership_command)


def membership_command(options: argparse.Namespace) -> int:
    """Say how well losses tell members from others, and write it beside the guarantee."""
    from gossamer.experiment.audits.auditing import audit_membership

    found = audit_membership(options.results)
    figure = _draw_losses(found, made_folder(options.out or options.results) / "membership.png")
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
    from gossamer.report.attack_figures import write_histograms

    try:
        write_histograms(path, {"training examples": found.members, "test examples": found.non_members}, "loss")
    except DataError as error:
        say(f"no figure: {error}")
        return None
    return path
