"""``gossamer report``."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gossamer.cli.option_values import FileName
from gossamer.cli.printing import say
from gossamer.errors import CallerError

if TYPE_CHECKING:
    from gossamer.report.page import Page
    from gossamer.report.parties import PartyRecord

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
    command.add_argument(
        "--live",
        action="store_true",
        help="write nothing: show the page to a browser on this machine, as the folders change, until interrupted",
    )
    command.set_defaults(command=report_command)


def report_command(options: argparse.Namespace) -> int:
    """Write the report, and say where it is."""
    from gossamer.report.page import write_figures, write_page

    page, folder = page_of(options.results, options.public), options.out or options.results[0]
    if options.live:
        _serve(options)
        return 0
    print(write_page(page, folder))
    if options.figures:
        print(write_figures(page, folder))
    return 0


def _serve(options: argparse.Namespace) -> None:
    from gossamer.report.serving import Door, Server, Shown

    door = Door.opened()
    say(f"the report, for you alone, until Ctrl-C: {door.address}")
    with Server(door, Shown(options.results, partial(page_of, public=options.public))) as server:
        try:
            server.serve_forever(0.1)
        except KeyboardInterrupt:
            say("the report is shown no more")


@contextmanager
def live(wanted: bool, folders: Sequence[Path]) -> Iterator[None]:
    """Serve the report of what writes to ``folders`` from now on, if that is wanted, and say where."""
    if not wanted:
        yield
        return
    from gossamer.report.beside import served_beside
    from gossamer.report.serving import Shown

    with served_beside(Shown(folders, page_of, time.time_ns())) as address:
        say(f"the report while it goes on, for you alone: {address}")
        yield


def page_of(folders: Sequence[Path], public: bool = False) -> Page:
    """Return the page of runs, or of deployed parties.

    Raises
    ------
    CallerError
        If a folder is neither, or there are some of both.
    """
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
    return page_of_parties([_party(folder) for folder in folders], public=public)


def _party(folder: Path) -> PartyRecord:
    from gossamer.deployment.party.health import problems
    from gossamer.deployment.party.state_folder import StateFolder
    from gossamer.report.parties import read_party

    status = StateFolder(folder).status()
    return read_party(folder, status, [problem.text for problem in problems(status, time.time())])
