"""``gossamer report``."""

from __future__ import annotations

import argparse
from pathlib import Path

from gossamer.cli.option_values import FileName

DESCRIPTION = "Write a page that shows what runs did, in one file that needs no network, into the first folder."


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments to its parser."""
    command.add_argument("results", nargs="+", type=Path, metavar="DIR", help="results folders of runs")
    command.add_argument("--out", action=FileName, metavar="FOLDER", help="where to (default: the first folder)")
    command.add_argument(
        "--public",
        action="store_true",
        help="leave out what no guarantee covers, such as scores on test examples",
    )
    command.set_defaults(command=report_command)


def report_command(options: argparse.Namespace) -> int:
    """Write the report, and say where it is."""
    from gossamer.report.page import write_report
    from gossamer.report.records import read_records

    records = read_records(options.results)
    print(write_report(records, options.out or options.results[0], public=options.public))
    return 0
