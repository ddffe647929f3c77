"""Counts of what each node of a simulation did: it computed, sent, was away; and how stale its updates were."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sized
from typing import Any, Literal, NamedTuple

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
    task: int
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


def _zeros(kind: Literal["q", "d"], nodes: Sized) -> Any:
    """A number for each node, in eight bytes."""
    return array(kind, bytes(8 * len(nodes)))


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
        self._numbers = {name: number for number, name in enumerate(nodes)}
        self._updates, self._messages, self._bytes, self._ages, self._aged = (_zeros("q", nodes) for _ in range(5))
        self._computing, self._away = _zeros("d", nodes), _zeros("d", nodes)
        self._under_way: dict[str, _UnderWay] = {}
        self._left: dict[str, float] = {}
        self.ages, self.timeline = Histogram(), Timeline(tuple(nodes))

    # What the simulator tells

    def sent(self, name: str, size: int, now: float) -> None:
        """A node transmits ``size`` bytes."""
        number = self._numbers[name]
        self._messages[number] += 1
        self._bytes[number] += size
        if name in self.timeline.places:
            self.timeline.add(name, SENDING, now - self._start)

    def arrived(self, sender: str, to: str, message: Message) -> None:
        """A message is about to be received."""
        if self._age is not None and (age := self._age(self._nodes[to], message)) is not None:
            self._aged_by(self._numbers[sender], age)

    def begun(self, name: str, task: int, now: float, most: float, updates: int) -> None:
        """A node begins a computation of at most ``most`` seconds, after so many updates of the run."""
        self._under_way[name] = _UnderWay(task, now, most, updates)

    def ended(self, name: str, task: int, now: float, updates: int, seconds: float) -> None:
        """A computation is completed that took so many ``seconds``; none at all is no update."""
        begun = self._under_way.get(name)
        known = begun is not None and begun.task == task  # otherwise the node computed something else beside it
        if begun is not None and known:
            del self._under_way[name]
            if self._staleness == "computing":
                self._aged_by(self._numbers[name], updates - begun.updates)
        if known or seconds:
            self._updates[self._numbers[name]] += 1
            self._computed(name, begun.since if begun is not None and known else now - seconds, seconds)

    def left(self, name: str, now: float) -> None:
        """A node goes away, and loses what it was computing."""
        self._cut(name, now)
        self._left[name] = now

    def came_back(self, name: str, now: float) -> None:
        """A node is back."""
        left = self._left.pop(name)
        self._away[self._numbers[name]] += now - left
        self.timeline.add(name, AWAY, left - self._start, now - left)

    def _cut(self, name: str, now: float) -> None:
        begun = self._under_way.pop(name, None)
        if begun is not None:
            self._computed(name, begun.since, min(now - begun.since, begun.most))

    def _computed(self, name: str, since: float, seconds: float) -> None:
        self._computing[self._numbers[name]] += seconds
        if name in self.timeline.places:
            self.timeline.add(name, COMPUTING, since - self._start, seconds)

    def _aged_by(self, number: int, age: int) -> None:
        self._ages[number] += age
        self._aged[number] += 1
        self.ages.add(age)

    # What an observer may ask

    def close(self, now: float) -> None:
        """Count what goes on at the end of the run, up to ``now``."""
        for name in list(self._under_way):
            self._cut(name, now)
        for name in list(self._left):
            self.came_back(name, max(now, self._left[name]))

    def of(self, name: str, elapsed: float) -> Done:
        """Return the counts of a node, ``elapsed`` virtual seconds after the start."""
        number = self._numbers[name]
        computing, away, aged = self._computing[number], self._away[number], self._aged[number]
        return Done(
            self._updates[number],
            self._messages[number],
            self._bytes[number],
            round(computing, 9),
            round(away, 9),
            round(max(elapsed - computing - away, 0.0), 9),
            round(self._ages[number] / aged, 9) if aged else None,
        )

    def staleness(self) -> dict[str, Any]:
        """Return how often updates were how stale, as plain data; empty where it was not measured."""
        if not self.ages.counts:
            return {}
        measured = "computing" if self._staleness == "computing" else "arrival"
        return {"measured": measured, "width": self.ages.width, "counts": self.ages.counts}
