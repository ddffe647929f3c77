"""Progress of many runs: a table by settings in a terminal, drawn anew as runs end, and a line for each elsewhere."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table

from gossamer.cli.live import Terminal, clock, line
from gossamer.cli.pages import moving
from gossamer.cli.printing import say

if TYPE_CHECKING:
    from gossamer.studies.study import Study

_BESIDE = 5  # lines of the display that are no settings
DONE, FAILED, AT_WORK, WAITING = "done", "failed", "at work", "waiting"
STATES = (DONE, FAILED, AT_WORK, WAITING)


def counts(study: Study, at_once: int) -> dict[str, Counter[str]]:
    """Counts of the runs of each setting by their state: runs are begun in order, so many at a time."""
    free, found = at_once, dict[str, Counter[str]]()
    for one in study.runs:
        if one.folder in study.done:
            state = FAILED if one.folder in study.errors else DONE
        else:
            state, free = (AT_WORK if free > 0 else WAITING), free - 1
        found.setdefault(one.setting, Counter())[state] += 1
    return found


def chosen(settings: Mapping[str, Counter[str]], most: int) -> list[str]:
    """Settings to show of more than there is room for: at work first, then with failures, then the others."""
    if len(settings) <= most:
        return [*settings]
    ranked = sorted(settings, key=lambda name: (not settings[name][AT_WORK], not settings[name][FAILED]))
    first = {*ranked[: max(0, most - 1)]}
    return [name for name in settings if name in first]


@dataclass
class StudyTable:
    """The table, whose figures are those of the study.

    Attributes
    ----------
    study : Study
        Study under way.
    at_once : int
        Runs that are made at a time.
    console : Console
        The terminal.
    """

    study: Study
    at_once: int
    console: Console

    def __post_init__(self) -> None:
        self._last, self._began, self._before = "", time.perf_counter(), -1

    def told(self, text: str) -> None:
        """Keep the last line that was said."""
        self._last = text

    def drawn(self) -> RenderableType:
        """Return what is shown: settings with their runs by state, all of them, and the last that was said."""
        settings = counts(self.study, self.at_once)
        if self._before < 0:
            self._before = len(self.study.done)
        table = Table(box=None, pad_edge=False, header_style="")
        table.add_column("setting", no_wrap=True, overflow="ellipsis")
        for state in STATES:
            table.add_column(state, justify="right", no_wrap=True)
        names = chosen(settings, max(1, self.console.height - _BESIDE))
        left_out = [found for name, found in settings.items() if name not in names]
        rows = [(name, settings[name]) for name in names]
        if left_out:
            rows.append((f"{len(left_out):,} more settings", sum(left_out, Counter())))
        if len(settings) > 1:
            rows.append(("all", sum(settings.values(), Counter())))
        for name, found in rows:
            table.add_row(line(name), *(f"{found[state]:,}" if found[state] else "-" for state in STATES))
        return Group(table, line(self._last), line(self._left()))

    def _left(self) -> str:
        """Time that the rest takes at the speed so far."""
        made, missing = len(self.study.done) - self._before, len(self.study.runs) - len(self.study.done)
        seconds = time.perf_counter() - self._began
        return f"{clock(seconds * missing / made)} left" if made > 0 and missing else ""


@contextmanager
def shown(study: Study, at_once: int) -> Iterator[Callable[[str], None]]:
    """Show how a study goes; the block is given the function that is told of it, line by line."""
    if not moving():
        yield say
        return
    found = StudyTable(study, at_once, Terminal(stderr=True, highlight=False))
    with Live(
        console=found.console,
        get_renderable=found.drawn,
        auto_refresh=False,
        transient=True,
        redirect_stdout=sys.stdout.isatty(),
    ) as live:

        def tell(text: str) -> None:
            found.told(text)
            live.refresh()

        yield tell
