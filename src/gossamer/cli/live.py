"""Progress of a run in the last lines of a terminal, drawn anew a few times a second.

There is no thread: a run that makes updates draws between two of them, and waits after each drawing for fifty times
what it took. So the display costs about a fiftieth of a run's time, however many nodes there are.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.constrain import Constrain
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from gossamer.cli.printing import PlainProgress, figure, moving, say, score
from gossamer.privacy.guarantees import rounded_up

if TYPE_CHECKING:
    from gossamer.experiment.results.observer import Row
    from gossamer.experiment.runs.trackers import Party, Watched
    from gossamer.studies.study import Study


MOST = 10
"""Nodes that are shown; of more, those that are behind and those that are ahead."""
_AHEAD = 3
_EVERY = 0.2  # seconds between two drawings, at least
_COST = 50.0
_BESIDE = 4  # lines of the display that are no nodes


class Terminal(Console):
    """Console that leaves the cursor where it is seen: a process that is killed could not bring it back."""

    def show_cursor(self, show: bool = True) -> bool:
        return False


class Display(PlainProgress):
    """Progress as a few lines that are drawn anew.

    Parameters
    ----------
    console : Console, optional
        The terminal; by default that of standard error.
    """

    def __init__(self, console: Console | None = None) -> None:
        super().__init__()
        self._console = console or Terminal(stderr=True, highlight=False)
        self._live: Live | None = None
        self._run: Watched | None = None
        self._row: Row | None = None
        self._staleness: float | None = None
        self._updates = 0
        self._started = self._next = 0.0

    def began(self, run: Watched) -> None:
        """Begin to draw."""
        self._run, self._started = run, time.perf_counter()
        self._live = _drawing(self._console, self.drawn)
        self._live.start()

    def updated(self, updates: int) -> None:
        """Draw, unless that was done a moment ago."""
        self._updates = updates
        if time.perf_counter() >= self._next:
            self._draw()

    def show(self, row: Row) -> None:
        """Keep the figures of an evaluation, and draw as after an update."""
        self._row = row
        if self._run is not None:
            self._staleness = self._run.staleness()
        self.updated(row["updates"])

    def close(self) -> None:
        """Take the display away: what there is to say of the end is in the report."""
        if self._live is not None:
            live, self._live = self._live, None
            live.stop()

    def _draw(self) -> None:
        if self._live is None:
            return
        began = time.perf_counter()
        self._live.refresh()
        now = time.perf_counter()
        self._next = now + max(_EVERY, _COST * (now - began))

    # Lines of the display

    def drawn(self) -> RenderableType:
        """Return what is shown: the whole run, figures, and nodes."""
        run = self._run
        if run is None:
            return Text()
        room = max(0, min(MOST, self._console.height - _BESIDE))
        lines = Group(self._whole(run), line(", ".join(self._figures())), *_nodes(chosen(run.parties(), room)))
        # The terminal itself writes ^C at the end of the last line, and a line that is full would become two by that.
        return Constrain(lines, max(1, self._console.width - len("^C") - 1))

    def _whole(self, run: Watched) -> RenderableType:
        share = run.share
        left = f", {clock(seconds)} left" if (seconds := self._left(share)) is not None else ""
        made = f"{self._updates:,} of {self.total:,} {self.words.made}s"
        return _row(line(f"{share:4.0%}{left}"), share, f"{made}, {run.simulator.elapsed:.1f} virtual s")

    def _left(self, share: float) -> float | None:
        """Seconds that the rest takes at the speed so far."""
        return (time.perf_counter() - self._started) * (1 - share) / share if 0 < share < 1 else None

    def _figures(self) -> list[str]:
        row, run = self._row, self._run
        if row is None or run is None:
            return []
        name = score(row)
        shown = f"mean_model_test_{name}" if self.words.shared else f"test_{name}"
        found = [f"{name} {figure(row, shown)}"]
        if name == "accuracy":
            found.append(f"worst {self.words.party} {figure(row, 'worst_node_test_accuracy')}")
        if row["epsilon_so_far"] is not None:
            planned = rounded_up(run.plan.guarantee.epsilon)
            found.append(f"epsilon spent {rounded_up(row['epsilon_so_far'])} of {planned}")
        if self._staleness is not None:
            found.append(f"staleness {self._staleness:.1f}")
        return found


def _drawing(console: Console, drawn: Callable[[], RenderableType]) -> Live:
    """Lines that are drawn anew when somebody says so, and taken away at the end."""
    return Live(
        console=console,
        get_renderable=drawn,
        auto_refresh=False,
        transient=True,
        vertical_overflow="crop",
        redirect_stdout=sys.stdout.isatty(),
    )


def chosen(parties: Sequence[Party], most: int) -> list[Party | int]:
    """Parties to show, and in the place of those left out their number.

    All, in order, if there are no more than ``most``; else those that are furthest behind, and some that are furthest
    ahead.
    """
    if len(parties) <= most:
        return list(parties)
    if most < 2:
        return []
    ordered = sorted(parties, key=lambda party: party.share)
    ahead = min(_AHEAD, (most - 1) // 2)
    behind = most - 1 - ahead
    return [*ordered[:behind], len(parties) - behind - ahead, *(ordered[-ahead:] if ahead else [])]


def _nodes(shown: Sequence[Party | int]) -> list[RenderableType]:
    return [
        line(f"{one:,} more between them")
        if isinstance(one, int)
        else _row(line(one.name), one.share, f"{one.made:,} of {one.planned:,}{one.ended and f', {one.ended}'}")
        for one in shown
    ]


def _row(name: Text, share: float, words: str) -> RenderableType:
    """A line with a bar in its middle, each part of which takes a fixed share of the width."""
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(ratio=3, no_wrap=True, overflow="ellipsis")
    table.add_column(ratio=3, no_wrap=True)
    table.add_column(ratio=7, no_wrap=True, overflow="ellipsis")
    table.add_row(name, ProgressBar(total=1.0, completed=share), line(words))
    return table


def line(text: str) -> Text:
    """A text on one line, in which nothing directs a terminal."""
    plain = "".join(letter if letter.isprintable() else "?" for letter in text)
    return Text(plain, no_wrap=True, overflow="ellipsis")


def clock(seconds: float) -> str:
    """Minutes and seconds, and hours where there are any."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


# Progress of many runs: a table by settings, drawn anew as runs end.

_BESIDE_SETTINGS = 5  # lines of the display that are no settings
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


def chosen_settings(settings: Mapping[str, Counter[str]], most: int) -> list[str]:
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
        names = chosen_settings(settings, max(1, self.console.height - _BESIDE_SETTINGS))
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
    with _drawing(found.console, found.drawn) as live:

        def tell(text: str) -> None:
            found.told(text)
            live.refresh()

        yield tell
