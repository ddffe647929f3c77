"""Counts of what each node of a simulation did: it computed, sent, was away; and how stale its updates were."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gossamer.algorithms.context import Staleness
from gossamer.arrays import IndexArray
from gossamer.protocol.messages import Message
from gossamer.protocol.node import Node
from gossamer.protocol.snapshots import Kept

NumberArray = npt.NDArray[Any]

# A timeline of some nodes that never grows: spans that began close to each other become one when there are too many.
#
# A span is kept with its start and its seconds. Once there are more than `SPANS`, those of one node and kind that began
# in the same *step* of time are one: it starts where the first of them did and has the seconds of all, so that no
# second is lost or counted twice, and no span reaches beyond the last that it was made of. Steps double until there are
# few enough.

NODES, SPANS = 50, 2_000
"""Most nodes of a timeline, and most spans."""
COMPUTING, AWAY, SENDING = "computing", "away", "sending"
"""Kinds of spans: what is none of them is waiting. Sending takes no seconds: it is a moment."""
_FINEST = 2.0**-20  # seconds: spans that begin closer to each other than this are one from the start


class Timeline(Kept):
    """Spans of some nodes of a run.

    Parameters
    ----------
    names : sequence of str
        All nodes; of more than `NODES` as many are chosen, evenly in their order, the first and the last among them.

    Attributes
    ----------
    step : float
        Seconds within which spans that begin are one.
    places : mapping of str to int
        Place of each chosen node among them.
    """

    changing = ("step", "_spans")

    def __init__(self, names: Sequence[str]) -> None:
        chosen = np.unique(np.linspace(0, len(names) - 1, min(NODES, len(names))).round().astype(np.int64))
        self.places = {names[number]: place for place, number in enumerate(chosen.tolist())}
        self.step = _FINEST
        self._spans: dict[tuple[int, str, int], list[float]] = {}

    def add(self, place: int, kind: str, start: float, seconds: float = 0.0) -> None:
        """Add what the node at a place did, from ``start`` on."""
        key = place, kind, int(start / self.step)
        span = self._spans.get(key)
        if span is not None:
            if start < span[0]:
                span[0] = start
            span[1] += seconds
            span[2] += 1
            return
        self._spans[key] = [start, seconds, 1]
        while len(self._spans) > SPANS:
            self._coarser()

    def _coarser(self) -> None:
        spans, self._spans = self._spans, {}
        self.step *= 2
        for (number, kind, place), span in spans.items():
            kept = self._spans.setdefault((number, kind, place // 2), span)
            if kept is not span:
                kept[0] = min(kept[0], span[0])
                kept[1] += span[1]
                kept[2] += span[2]

    def as_dict(self) -> dict[str, Any]:
        """Return the timeline as plain data, ordered by node, kind and time."""
        return {
            "nodes": [*self.places],
            "merged_within": self.step if self.step > _FINEST else 0.0,
            "spans": [
                [number, kind, round(start, 9), round(seconds, 9), int(count)]
                for (number, kind, _), (start, seconds, count) in sorted(self._spans.items())
            ],
        }


_COUNTED = 64  # most counts of a histogram


class Histogram(Kept):
    """Counts of whole numbers of at least 0, in bins of one width, which doubles when there are too many."""

    changing = ("width", "most", "counts")

    def __init__(self) -> None:
        self.width = 1
        self.most = 0
        self.counts: list[int] = []

    def add(self, value: int) -> None:
        """Count a value."""
        if value > self.most:
            self.most = value
        place = value // self.width
        if place < len(self.counts):  # as nearly always
            self.counts[place] += 1
            return
        while value >= _COUNTED * self.width:
            pairs = [*self.counts, 0] if len(self.counts) % 2 else self.counts
            self.counts = [sum(pair) for pair in zip(pairs[::2], pairs[1::2], strict=True)]
            self.width *= 2
        place = value // self.width
        self.counts.extend([0] * (place + 1 - len(self.counts)))
        self.counts[place] += 1

    def add_all(self, values: IndexArray) -> None:
        """Count many values, as `add` counts each."""
        if len(values):
            most = int(values.argmax())
            self.add(int(values[most]))  # the bins are wide enough from now on
            found = np.bincount(np.delete(values, most) // self.width, minlength=len(self.counts))
            self.counts = [one + more for one, more in zip(self.counts, found.tolist(), strict=True)]


@dataclass(slots=True)
class Counts(Kept):
    """Counts of one node so far.

    Attributes
    ----------
    place : int or None
        Place in the timeline, where it is drawn.
    messages, bytes, updates, computing, away
        The same as in `figures`.
    since, most : float
        Start of the computation under way, or a negative number, and the most seconds that it takes.
    before : int
        Updates of the run before it.
    ages, aged : int
        Sum of the staleness of its updates, and how many there were.
    left : float
        Time when it went away, or a negative number.
    """

    changing = (
        *("messages", "bytes", "updates", "computing", "away"),
        *("since", "most", "before", "ages", "aged", "left"),
    )
    place: int | None
    messages: int = 0
    bytes: int = 0
    updates: int = 0
    computing: float = 0.0
    away: float = 0.0
    since: float = -1.0
    most: float = 0.0
    before: int = 0
    ages: int = 0
    aged: int = 0
    left: float = -1.0


def figures(
    whole: Sequence[NumberArray], computing: NumberArray, away: NumberArray, elapsed: float
) -> dict[str, NumberArray]:
    """Figures of nodes, by name, up to some moment.

    Parameters
    ----------
    whole : sequence of ndarray [nodes]
        Computations that took time and were completed, messages and bytes that were transmitted, and the sum of the
        staleness of updates and how many these were.
    computing, away : ndarray [nodes]
        Virtual seconds; a node that computes and waits for a model meanwhile is idle.
    elapsed : float
        Virtual seconds since the start.

    Returns
    -------
    dict of str to ndarray [nodes]
        ``staleness``, the mean, is no number where none was measured.
    """
    updates, messages, count, ages, aged = whole
    return {
        "updates": updates,
        "messages": messages,
        "bytes": count,
        "computing_seconds": computing.round(9),
        "away_seconds": away.round(9),
        "idle_seconds": np.maximum(elapsed - computing - away, 0.0).round(9),
        "staleness": np.divide(ages, aged, out=np.full(len(aged), np.nan), where=aged > 0).round(9),
    }


class Activity(Kept):
    """Activity of all nodes of one run, in a few numbers for each.

    Parameters
    ----------
    nodes : mapping of str to Node
        Nodes by name.
    start : float
        Seconds on the clock at which the run starts; spans are counted from there.
    staleness : callable, ``"computing"`` or None
        Way in which staleness is measured.

    Attributes
    ----------
    counts : dict of str to Counts
        Counts of each node.
    by_message : bool
        Whether messages say how stale they are.
    ages : Histogram
        Staleness of updates.
    timeline : Timeline
        Timeline of some nodes.
    """

    changing = ("ages", "timeline", "counts")

    def __init__(self, nodes: Mapping[str, Node], start: float, staleness: Staleness = None) -> None:
        self._nodes, self._start = nodes, start
        self._age = staleness if callable(staleness) else None
        self._by_computing = staleness == "computing"
        self.by_message = self._age is not None
        self.ages, self.timeline = Histogram(), Timeline(tuple(nodes))
        self.counts = {name: Counts(self.timeline.places.get(name)) for name in nodes}

    # What the simulator tells; that a message is sent, or an update begun, it writes into `Counts` itself

    def draw_sent(self, place: int, now: float) -> None:
        """A node that is drawn transmits a message."""
        self.timeline.add(place, SENDING, now - self._start)

    def arrived(self, sender: str, to: str, message: Message) -> None:
        """A message is about to be received; told only where messages say how stale they are."""
        if self._age is not None and (age := self._age(self._nodes[to], message)) is not None:
            counts = self.counts[sender]
            counts.ages += age
            counts.aged += 1
            self.ages.add(age)

    def ended(self, name: str, now: float, updates: int, seconds: float) -> None:
        """A node has computed for so many ``seconds``."""
        counts = self.counts[name]
        counts.updates += 1
        counts.computing += seconds
        since, counts.since = counts.since, -1.0
        if counts.place is not None:
            if since < 0:
                since = now - seconds
            self.timeline.add(counts.place, COMPUTING, since - self._start, seconds)
        if self._by_computing:
            age = updates - counts.before
            counts.ages += age
            counts.aged += 1
            self.ages.add(age)

    def leaves(self, name: str, now: float) -> None:
        """A node goes away, and loses what it was computing."""
        self._cut(name, now)
        self.counts[name].left = now

    def came_back(self, name: str, now: float) -> None:
        """A node is back."""
        counts = self.counts[name]
        left, counts.left = counts.left, -1.0
        counts.away += now - left
        if counts.place is not None:
            self.timeline.add(counts.place, AWAY, left - self._start, now - left)

    def _cut(self, name: str, now: float) -> None:
        counts = self.counts[name]
        since, counts.since = counts.since, -1.0
        if since >= 0:
            seconds = min(now - since, counts.most)
            counts.computing += seconds
            if counts.place is not None:
                self.timeline.add(counts.place, COMPUTING, since - self._start, seconds)

    # What an observer may ask

    def close(self, now: float) -> None:
        """Count what goes on at the end of the run, up to ``now``."""
        for name, counts in self.counts.items():
            self._cut(name, now)
            if counts.left >= 0:
                self.came_back(name, max(now, counts.left))

    def table(self, elapsed: float) -> dict[str, NumberArray]:
        """Return the counts of all nodes by their names in `figures`, ``elapsed`` virtual seconds after the start."""
        rows = [
            (one.updates, one.messages, one.bytes, one.ages, one.aged, one.computing, one.away)
            for one in self.counts.values()
        ]
        *whole, computing, away = np.array(rows, np.float64).reshape(-1, 7).T
        return figures([column.astype(np.int64) for column in whole], computing, away, elapsed)

    def computed_stale(self) -> tuple[float, int] | None:
        """Return the mean and the largest staleness; None unless computations are what it is measured by."""
        aged = sum(counts.aged for counts in self.counts.values()) if self._by_computing else 0
        if not aged:
            return None
        return round(sum(counts.ages for counts in self.counts.values()) / aged, 9), self.ages.most

    def staleness(self) -> dict[str, Any]:
        """Return how often updates were how stale, as plain data; empty where it was not measured."""
        if not self.ages.counts:
            return {}
        measured = "computing" if self._by_computing else "arrival"
        return {"measured": measured, "width": self.ages.width, "counts": self.ages.counts}
