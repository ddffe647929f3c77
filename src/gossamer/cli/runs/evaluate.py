"""``gossamer evaluate``."""

from __future__ import annotations

import argparse

from gossamer.cli.options import FileName
from gossamer.cli.printing import print_json
from gossamer.cli.runs.predict import add_model

DESCRIPTION = "Test the model that a run left behind on rows that have their targets."


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments to its parser."""
    add_model(command)
    command.add_argument("data", action=FileName, metavar="DATA", help="rows with their targets, such as a CSV file")
    command.add_argument("--json", action="store_true", help="print one JSON document on stdout")
    command.set_defaults(command=evaluate_command)


def evaluate_command(options: argparse.Namespace) -> int:
    """Print the figures."""
    from gossamer.trained.model import load_model

    found = load_model(options.results).evaluate(options.data)
    if options.json:
        print_json(found)
    else:
        print(
            ", ".join(
                f"{name} {value:,}" if name == "rows" else f"{name.replace('_', ' ')} {_figure(value)}"
                for name, value in found.items()
            )
        )
    return 0


def _figure(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"
