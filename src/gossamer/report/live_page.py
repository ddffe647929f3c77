"""What a live page shows: something that goes on, of which a page can be drawn at any time from files."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from gossamer.report.page import Page

_CLOCKS = 20_000_000  # nanoseconds that a file system's clock may be behind


class LivePage(Protocol):
    """What is shown while it goes on; pickled, since another process draws it."""

    @property
    def nothing(self) -> str:
        """What is said as long as there is nothing to show."""

    def mark(self) -> str:
        """Text that changes when there is more to show; empty as long as there is nothing."""

    def page(self) -> Page:
        """Page of what there is now."""


@dataclass(frozen=True)
class LiveRun:
    """Run that writes to a results folder, evaluation by evaluation.

    Attributes
    ----------
    folder : Path
        Of its results, which need not be there yet.
    began : int
        Nanoseconds since 1970: what was there before is of an earlier run.
    """

    folder: Path
    began: int = field(default_factory=time.time_ns)
    nothing: str = "Nothing has been evaluated yet."

    def mark(self) -> str:
        """Mark of the last evaluation."""
        found = written(self.folder / "summary.json")
        return str(found) if found >= self.began - _CLOCKS else ""

    def page(self) -> Page:
        """Report of the run so far."""
        # Drawing takes a second to import, and it is done only once somebody looks.
        from gossamer.report.page import page_of_runs
        from gossamer.report.records import read_record

        return page_of_runs([read_record(self.folder)])


def written(file: Path) -> int:
    """When a file was last written, in nanoseconds since 1970; 0 if it is not there."""
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0
