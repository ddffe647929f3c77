"""The world that the nodes of a simulation live in: speeds, links, faults and absences, and when its clock starts."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from gossamer.errors import SpecError
from gossamer.protocol.snapshots import Kept
from gossamer.randomness import stream
from gossamer.runtimes.availability import Span
from gossamer.runtimes.links import FaultSettings, LinkSettings
from gossamer.runtimes.speeds import Speeds, SpeedSettings

# Absences of nodes in a simulation: spans of which a spec says some, and of which days bring one after the other.


class Absences(Kept):
    """Spans in which nodes are away: (node, when it leaves, when it is back or None), in seconds after the start.

    Parameters
    ----------
    names, workers : sequence of str
        All nodes, and those that hold data, in the order of their numbers.
    world : World
        World with the faults and the seed.
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


@dataclass(frozen=True)
class World:
    """World that the nodes live in; the same settings and seed give the same schedule.

    Attributes
    ----------
    speeds, links, faults
        Sections of a spec.
    seed : int
        Seed of the clock's offset, speeds and links.
    width : int
        Most computations gathered into one call; 1 computes each on its own.
    servers : tuple of str
        Nodes that hold no data: they are there from the start, and have no speed.
    units : mapping of str to str
        The unit of each node that is in one, such as a server and its agents.
    told : bool
        Whether nodes are told, before each answer of a data side, how many updates all of them have made.
    """

    speeds: SpeedSettings = field(default_factory=SpeedSettings)
    links: LinkSettings = field(default_factory=LinkSettings)
    faults: FaultSettings = field(default_factory=FaultSettings)
    seed: int = 0
    width: int = 1024
    servers: tuple[str, ...] = ()
    units: Mapping[str, str] = field(default_factory=dict)
    told: bool = False


def clock_start(seed: int) -> float:
    """Seconds on the clock at which a run starts."""
    return float(stream(seed, "clock").integers(1 << 14, 1 << 15))


def check_world(
    speeds: SpeedSettings,
    faults: FaultSettings,
    nodes: int,
    seed: int,
    links: LinkSettings | None = None,
    *,
    servers: int = 0,
) -> None:
    """Raise unless a simulation of so many nodes with data, and servers after them, can be built from these sections.

    Raises
    ------
    CallerError
        If update times or a trace are missing, or a node that does not exist is named.
    """
    Speeds(speeds, nodes, seed)
    if faults.availability is not None:
        faults.availability.away(nodes, seed)
    named = [("faults.absences", absence.node) for absence in faults.absences]
    links = links or LinkSettings()
    named += [("links.partitions", number) for cut in links.partitions for number in cut.group]
    named += [("links.exceptions", number) for one in links.exceptions or () for number in one.numbers]
    for key, number in named:
        if number >= nodes + servers:
            raise SpecError(f"{key}: a node is a number below {nodes + servers}, found {number}")
