"""``gossamer attack``: inversion, membership inference and audits."""

from __future__ import annotations

from gossamer.cli.commands import CommandParser, Listed, add_commands

DESCRIPTION = "Attack what a run releases, and audit its guarantee from below."

ATTACKS = {
    "inversion": Listed("audit.inversion", "recover examples from the gradients that a spec's node would release"),
    "membership": Listed("audit.membership", "tell training from test examples by their loss at a run's model"),
    "audit": Listed(
        "audit.canaries", "run a spec with canaries included by coin flips, and bound its epsilon from below"
    ),
}


def add_arguments(command: CommandParser) -> None:
    """Add a command for each attack to its parser."""
    add_commands(command, "attacks", "ATTACK", ATTACKS)
