"""Absences of nodes in a simulation: spans of which a spec says some, and of which days bring one after the other."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from gossamer.runtimes.availability import Span
from gossamer.runtimes.world import World


class Absences:
    """Spans in which nodes are away: (node, when it leaves, when it is back or None), in seconds after the start.

    Parameters
    ----------
    names, workers : sequence of str
        All nodes, and those that hold data, in the order of their numbers.
    world : World
        With the faults and the seed.
    """

    def __init__(self, names: Sequence[str], workers: Sequence[str], world: World) -> None:
        self._said = [(names[absence.node], absence.start, absence.end) for absence in world.faults.absences]
        self._spans: dict[str, Iterator[Span]] = {}
        self._taken: dict[str, int] = {}
        if world.faults.availability is not None:
            found = world.faults.availability.away(len(workers), world.seed)
            self._spans = dict(zip(workers, found, strict=True))

    def first(self) -> Iterator[tuple[str, float, float | None]]:
        """Yield those that the spec says, and the first of each node that goes by days."""
        yield from self._said
        for name in self._spans:
            yield from self.next(name)

    def next(self, name: str) -> Iterator[tuple[str, float, float | None]]:
        """Yield the next one of a node, if it goes by days and there is one: days go on for ever."""
        if name not in self._spans:
            return
        self._taken[name] = self._taken.get(name, 0) + 1
        start, end = next(self._spans[name], (math.inf, math.inf))
        if start < math.inf:
            yield name, start, end if end < math.inf else None

    def snapshot(self) -> dict[str, int]:
        """Return how many of each node were taken."""
        return self._taken.copy()

    def restore(self, snapshot: Mapping[str, int]) -> None:
        """Be as the absences were whose `snapshot` this is."""
        for name, taken in snapshot.items():
            deque(islice(self._spans[name], taken - self._taken.get(name, 0)), maxlen=0)
        self._taken = dict(snapshot)
