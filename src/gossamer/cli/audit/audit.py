"""``gossamer audit``: checks of what a guarantee rests on."""

from __future__ import annotations

from gossamer.cli.commands import CommandParser, Listed, add_commands

DESCRIPTION = "Check what a guarantee rests on, by running a spec on data sets that it says nobody can tell apart."

AUDITS = {
    "leak": Listed("audit.leak", "run pairs of neighbouring data sets with equal coins, and look for what differs"),
}


def add_arguments(command: CommandParser) -> None:
    """Add a command for each audit to its parser."""
    add_commands(command, "audits", "AUDIT", AUDITS)
