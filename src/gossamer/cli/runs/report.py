"""``gossamer report``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gossamer.cli.option_values import FileName
from gossamer.errors import CallerError

if TYPE_CHECKING:
    from gossamer.report.page import Page

DESCRIPTION = (
    "Write a page that shows what runs did, or how a party's node is, in one file that needs no network, into the "
    "first folder."
)


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments to its parser."""
    command.add_argument(
        "results",
        nargs="+",
        type=Path,
        metavar="DIR",
        help="results folders of runs, or a state folder of a deployed party",
    )
    command.add_argument("--out", action=FileName, metavar="FOLDER", help="where to (default: the first folder)")
    command.add_argument(
        "--public",
        action="store_true",
        help="leave out what no guarantee covers, such as scores on test examples",
    )
    command.add_argument(
        "--figures",
        action="store_true",
        help="also write each figure as SVG, PNG and CSV into report-figures beside the page",
    )
    command.set_defaults(command=report_command)


def report_command(options: argparse.Namespace) -> int:
    """Write the report, and say where it is."""
    from gossamer.report.page import write_figures, write_page

    page, folder = _page(options.results, options.public), options.out or options.results[0]
    print(write_page(page, folder))
    if options.figures:
        print(write_figures(page, folder))
    return 0


def _page(folders: Sequence[Path], public: bool) -> Page:
    from gossamer.deployment.party.shown import read_state
    from gossamer.report.page import page_of_parties, page_of_runs
    from gossamer.report.parties import is_party
    from gossamer.report.records import read_records

    parties = [folder for folder in folders if is_party(folder)]
    if not parties:
        return page_of_runs(read_records(folders), public=public)
    if len(parties) < len(folders):
        other = next(folder for folder in folders if folder not in parties)
        raise CallerError(
            f"{parties[0]} is the state folder of a deployed party and {other} is not; give folders of one kind"
        )
    return page_of_parties([read_state(folder) for folder in folders], public=public)
