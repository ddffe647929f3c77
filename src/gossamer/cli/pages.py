"""Pages of folders, as commands show them: of runs, or of deployed parties."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gossamer.cli.printing import say
from gossamer.errors import CallerError

if TYPE_CHECKING:
    from gossamer.report.page import Page
    from gossamer.report.parties import PartyRecord


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
