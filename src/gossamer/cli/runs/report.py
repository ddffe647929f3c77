"""``gossamer report``."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gossamer.cli.commands import FileName
from gossamer.cli.logs import add_live, door_for, page_of
from gossamer.cli.printing import say

if TYPE_CHECKING:
    from gossamer.report.serving import Door


def report_options(command: argparse.ArgumentParser) -> None:
    """Write a page that shows what runs did, or how a party's node is.

    It is one file that needs no network, in the first folder.
    """
    add = command.add_argument
    add(
        "results",
        nargs="+",
        type=Path,
        metavar="DIR",
        help="results folders of runs, or a state folder of a deployed party",
    )
    add("--out", action=FileName, metavar="FOLDER", help="where to (default: the first folder)")
    add("--public", action="store_true", help="leave out what no guarantee covers, such as scores on test examples")
    add(
        "--figures",
        action="store_true",
        help="also write each figure as SVG, PNG and CSV into report-figures beside the page",
    )
    add_live(
        command, "write nothing: show the page to a browser on this machine, as the folders change, until interrupted"
    )
    command.set_defaults(command=report_command)


def report_command(options: argparse.Namespace) -> int:
    """Write the report, and say where it is."""
    from gossamer.files import held
    from gossamer.report.page import write_figures, write_page

    with door_for(options) as door:
        if door is not None:
            page_of(options.results, options.public)  # what cannot be shown is refused before anything is served
            _serve(door, options)
            return 0
    folder = options.out or options.results[0]
    with held(folder):
        page = page_of(options.results, options.public)
        print(write_page(page, folder))
        if options.figures:
            print(write_figures(page, folder))
    return 0


def _serve(door: Door, options: argparse.Namespace) -> None:
    from gossamer.report.serving import Server, ShownFolders

    say(f"the report, for you alone, until Ctrl-C: {door.address}")
    with Server(door, ShownFolders(options.results, partial(page_of, public=options.public))) as server:
        try:
            server.serve_forever(0.1)
        except KeyboardInterrupt:
            say("the report is shown no more")
