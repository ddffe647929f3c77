"""Counts of what each node of a simulation did: it computed, sent, was away; and how stale its updates were."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from gossamer.algorithms.context import Staleness
from gossamer.protocol.messages import Message
from gossamer.protocol.node import Node
from gossamer.runtimes.timeline import AWAY, COMPUTING, SENDING, Timeline

_COUNTED = 64  # most counts of a histogram


class Histogram:
    """Counts of whole numbers of at least 0, in bins of one width, which doubles when there are too many."""

    def __init__(self) -> None:
        self.width = 1
        self.counts: list[int] = []

    def add(self, value: int) -> None:
        """Count a value."""
        while value >= _COUNTED * self.width:
            pairs = [*self.counts, 0] if len(self.counts) % 2 else self.counts
            self.counts = [sum(pair) for pair in zip(pairs[::2], pairs[1::2], strict=True)]
            self.width *= 2
        place = value // self.width
        self.counts.extend([0] * (place + 1 - len(self.counts)))
        self.counts[place] += 1


class _UnderWay(NamedTuple):
    since: float
    most: float
    updates: int


class Done(NamedTuple):
    """Counts of one node up to some moment.

    Attributes
    ----------
    updates : int
        Computations that took time and were completed.
    messages, bytes : int
        Transmitted by it.
    computing_seconds, away_seconds, idle_seconds : float
        Virtual seconds; a node that computes and waits for a model meanwhile is idle.
    staleness : float or None
        Mean staleness of its updates; None where none was measured.
    """

    updates: int
    messages: int
    bytes: int
    computing_seconds: float
    away_seconds: float
    idle_seconds: float
    staleness: float | None


class Activity:
    """Activity of all nodes of one run, in a few numbers for each.

    Parameters
    ----------
    nodes : mapping of str to Node
        By name.
    start : float
        Seconds on the clock at which the run starts; spans are counted from there.
    staleness : callable, ``"computing"`` or None
        How staleness is measured.

    Attributes
    ----------
    ages : Histogram
        Staleness of updates.
    timeline : Timeline
        Of some nodes.
    """

    def __init__(self, nodes: Mapping[str, Node], start: float, staleness: Staleness = None) -> None:
        self._nodes, self._start, self._staleness = nodes, start, staleness
        self._age = staleness if callable(staleness) else None
        self._updates, self._messages, self._bytes, self._ages, self._aged = (dict.fromkeys(nodes, 0) for _ in range(5))
        self._computing, self._away = dict.fromkeys(nodes, 0.0), dict.fromkeys(nodes, 0.0)
        self._under_way: dict[str, dict[int, _UnderWay]] = {name: {} for name in nodes}
        self._left: dict[str, float] = {}
        self.ages, self.timeline = Histogram(), Timeline(tuple(nodes))

    # What the simulator tells

    def sent(self, name: str, size: int, now: float) -> None:
        """A node transmits ``size`` bytes."""
        self._messages[name] += 1
        self._bytes[name] += size
        self.timeline.add(name, SENDING, now - self._start)

    def arrived(self, sender: str, to: str, message: Message) -> None:
        """A message is about to be received."""
        if self._age is not None and (age := self._age(self._nodes[to], message)) is not None:
            self._aged_by(sender, age)

    def begun(self, name: str, task: int, now: float, most: float, updates: int) -> None:
        """A node begins a computation of at most ``most`` seconds, after so many updates of the run."""
        self._under_way[name][task] = _UnderWay(now, most, updates)

    def ended(self, name: str, task: int, updates: int, seconds: float) -> None:
        """The same computation is completed; it computed for so many seconds."""
        begun = self._under_way[name].pop(task, None)
        if begun is not None:
            self._updates[name] += 1
            self._computed(name, begun.since, seconds)
            if self._staleness == "computing":
                self._aged_by(name, updates - begun.updates)

    def left(self, name: str, now: float) -> None:
        """A node goes away, and loses what it was computing."""
        for begun in self._under_way[name].values():
            self._computed(name, begun.since, min(now - begun.since, begun.most))
        self._under_way[name] = {}
        self._left[name] = now

    def came_back(self, name: str, now: float) -> None:
        """A node is back."""
        left = self._left.pop(name)
        self._away[name] += now - left
        self.timeline.add(name, AWAY, left - self._start, now - left)

    def _computed(self, name: str, since: float, seconds: float) -> None:
        self._computing[name] += seconds
        self.timeline.add(name, COMPUTING, since - self._start, seconds)

    def _aged_by(self, name: str, age: int) -> None:
        self._ages[name] += age
        self._aged[name] += 1
        self.ages.add(age)

    # What an observer may ask

    def close(self, now: float) -> None:
        """Count what goes on at the end of the run, up to ``now``."""
        for name, tasks in self._under_way.items():
            for begun in tasks.values():
                self._computed(name, begun.since, min(now - begun.since, begun.most))
            tasks.clear()
        for name in list(self._left):
            self.came_back(name, max(now, self._left[name]))

    def of(self, name: str, elapsed: float) -> Done:
        """Return the counts of a node, ``elapsed`` virtual seconds after the start."""
        computing, away, aged = self._computing[name], self._away[name], self._aged[name]
        return Done(
            self._updates[name],
            self._messages[name],
            self._bytes[name],
            round(computing, 9),
            round(away, 9),
            round(max(elapsed - computing - away, 0.0), 9),
            round(self._ages[name] / aged, 9) if aged else None,
        )

    def staleness(self) -> dict[str, Any]:
        """Return how often updates were how stale, as plain data; empty where it was not measured."""
        if not self.ages.counts:
            return {}
        measured = "computing" if self._staleness == "computing" else "arrival"
        return {"measured": measured, "width": self.ages.width, "counts": self.ages.counts}
