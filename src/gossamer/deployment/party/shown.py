"""Parties as reports show them, from what their nodes leave in their state folders."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gossamer.deployment.party.health import problems
from gossamer.deployment.party.state_folder import StateFolder
from gossamer.report.live_page import written
from gossamer.report.parties import STATUS, PartyRecord, is_party, read_party

if TYPE_CHECKING:
    from gossamer.report.page import Page


def read_state(folder: Path) -> PartyRecord:
    """Return the party of a state folder, and what is wrong with its node now.

    Raises
    ------
    CallerError
        If no node has run there, or what it left cannot be read.
    """
    status = StateFolder(folder).status()
    return read_party(folder, status, [problem.text for problem in problems(status, time.time())])


@dataclass(frozen=True)
class LiveParties:
    """Parties of one owner whose nodes run, as a live page shows them.

    Attributes
    ----------
    place : Path
        The state folder, or a folder in which several are; it need not be there yet.
    below : str
        Their places in that one, as a pattern of names; empty if it is the only one.
    """

    place: Path
    below: str = ""
    nothing: str = "No node has begun here yet."

    def folders(self) -> list[Path]:
        """State folders of those that have begun, by name, and by number where names have one."""
        places = self.place.glob(self.below) if self.below else [self.place]
        found = [folder for folder in places if is_party(folder)]
        return sorted(found, key=lambda folder: [part.zfill(9) for part in re.split(r"(\d+)", str(folder))])

    def mark(self) -> str:
        """When each last said how it is."""
        return " ".join(str(written(folder / STATUS)) for folder in self.folders())

    def page(self) -> Page:
        """Report of those that have begun."""
        # Drawing takes a second to import, and it is done only once somebody looks.
        from gossamer.report.page import page_of_parties

        return page_of_parties([read_state(folder) for folder in self.folders()])
