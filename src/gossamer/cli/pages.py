"""Pages of folders, of runs or of deployed parties, and displays, as commands show them."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gossamer.cli.options import port
from gossamer.cli.printing import PlainProgress, say
from gossamer.errors import CallerError

if TYPE_CHECKING:
    from gossamer.report.page import Page
    from gossamer.report.parties import PartyRecord
    from gossamer.report.serving import Door


def progress(*, lines: bool = False) -> PlainProgress:
    """Return a display in a terminal that can move its cursor, and plain lines elsewhere, or where ``lines`` asks."""
    if lines or not moving():
        return PlainProgress()
    from gossamer.cli.live import Display

    return Display()


def moving() -> bool:
    """Whether stderr is a terminal that can move its cursor."""
    return sys.stderr.isatty() and os.environ.get("TERM", "dumb") not in ("", "dumb", "unknown")


def add_live(command: argparse.ArgumentParser, what: str) -> None:
    """Add the options of a page that is served: ``what`` they do."""
    command.add_argument("--live", action="store_true", help=what)
    command.add_argument("--live-port", type=port, metavar="PORT", help="the same at PORT, not at a port that is free")


@contextmanager
def door_for(options: argparse.Namespace) -> Iterator[Door | None]:
    """Door at which a page is served, if one is asked for; opened before all else, since a port may be in use."""
    if not options.live and options.live_port is None:
        yield None
        return
    from gossamer.report.serving import Door

    door = Door.opened(options.live_port or 0)
    with door.socket:
        yield door


def tell(address: str) -> None:
    """Say where the page is, to whoever sees this terminal."""
    say(f"the report while it goes on, for you alone: {address}")


@contextmanager
def live(door: Door | None, folders: Sequence[Path], tell: Callable[[str], object] = tell) -> Iterator[None]:
    """Serve the report of what writes to ``folders`` from now on, if there is a door for it, and ``tell`` where."""
    if door is None:
        yield
        return
    from gossamer.report.serving import Shown, served_beside

    with served_beside(Shown(folders, page_of, time.time_ns()), door) as address:
        tell(address)
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
