"""``gossamer verify``: what follows from receipts, by a second implementation that shares no code with the first."""

from __future__ import annotations

import argparse

DESCRIPTION = (
    "Check receipts, and what a guarantee promises, without data and without the library's own accounting: exit code 0 "
    "if all that is promised follows, 1 if something does not, 2 if a file cannot be read. The code is one file, "
    "gossamer/verify/gossamer_verify.py, which runs by itself."
)


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments to its parser."""
    command.add_argument("place", metavar="RESULTS", help="a results folder, or a file with receipts")
    command.add_argument("guarantee", metavar="GUARANTEE", nargs="?", help="a guarantee.json (default: the folder's)")
    command.add_argument("--json", action="store_true", help="what was found, as JSON")
    command.set_defaults(command=verify_command)


def verify_command(options: argparse.Namespace) -> int:
    """Print what follows."""
    from gossamer.verify.gossamer_verify import main

    places = [options.place, *([options.guarantee] if options.guarantee else [])]
    return main([*places, *(["--json"] if options.json else [])])
