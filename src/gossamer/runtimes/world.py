"""The world that the nodes of a simulation live in: speeds, links, faults and absences, and when its clock starts."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, islice, pairwise
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat

from gossamer.errors import DataError, SpecError, counted
from gossamer.files import read_rows
from gossamer.protocol.snapshots import Kept
from gossamer.randomness import stream
from gossamer.runtimes.hostile import HostileSettings
from gossamer.runtimes.speeds import Speeds, SpeedSettings
from gossamer.section import Section, bare

# Clients that come and go: when each node with data is away, by a trace of when it is there, or by day and night.
#
# Whatever says who is there, it hides nobody: who takes part is for all to see, and nothing is amplified by it.

Span = tuple[float, float]
"""From, until; virtual seconds, infinite for ever."""


class DayAndNight(Section):
    """Each client is there for the same part of every day, and each has a morning of its own.

    Attributes
    ----------
    day : float
        Virtual seconds.
    there : float
        Share of the day that a client is there.
    spread : float
        Share of the day over which mornings are spread, drawn from the public seed; with 0 all come and go together.
    """

    name: Literal["day_and_night"] = "day_and_night"
    day: PositiveFloat = 86_400.0
    there: float = Field(default=0.5, gt=0, lt=1)
    spread: float = Field(default=1.0, ge=0, le=1)

    def away(self, nodes: int, seed: int) -> list[Iterator[Span]]:
        """Return when each node is away, in order and for ever."""
        mornings = self.spread * self.day * stream(seed, "availability").random(nodes)
        return [self._nights(float(morning)) for morning in mornings]

    def _nights(self, morning: float) -> Iterator[Span]:
        for number in count():
            end = morning + number * self.day
            start = max(0.0, end - (1 - self.there) * self.day)
            if end > start:
                yield start, end


class Trace(Section):
    """Clients are there when a file says so.

    Attributes
    ----------
    path : Path
        Lines ``node,from,to`` (node a number from 0; virtual seconds): the node is there from ``from`` until ``to``,
        or for ever if ``to`` is empty. Every node with data has a line.
    every : float, optional
        Seconds after which the trace begins again; without it a node is gone for good after its last line.
    """

    name: Literal["trace"] = "trace"
    path: Path
    every: PositiveFloat | None = None

    def away(self, nodes: int, seed: int) -> list[Iterator[Span]]:
        """Return when each node is away, in order.

        Raises
        ------
        DataError
            If the file is missing, a line is malformed, or a node has none or is there twice at once.
        """
        return [_gaps(spans, self.every) for spans in read_trace(self.path, nodes, self.every)]


def _gaps(spans: list[Span], every: float | None) -> Iterator[Span]:
    """Gaps between ``spans``, which begin again after so many seconds."""
    gone = 0.0
    whole = spans[0][0] == 0 and all(before == after for (_, before), (after, _) in pairwise(spans))
    if every is not None and whole and spans[-1][1] == every:
        return  # is never away, however often that is said
    for start in [0.0] if every is None else map(every.__mul__, count()):
        for came, left in spans:
            if start + came > gone:
                yield gone, start + came
            gone = start + left
    if gone < math.inf:
        yield gone, math.inf


def read_trace(path: Path, nodes: int, every: float | None = None) -> list[list[Span]]:
    """Times at which each node is there, in order, from a file of ``node,from,to`` lines.

    Raises
    ------
    DataError
        If the file is missing, a line is malformed, or a node has none or is there twice at once.
    """
    spans: list[list[Span]] = [[] for _ in range(nodes)]
    last = math.inf if every is None else every
    for number, line in read_rows(path, "the trace", "faults.availability.path"):
        try:
            node, came, left = (part.strip() for part in line.split(","))
            place, start, end = int(node), float(came), float(left or last)
            if not 0 <= place < nodes or not 0 <= start < end <= last:  # also what is not a number
                raise ValueError
            spans[place].append((start, end))
        except ValueError:
            within = "" if every is None else f", and up to {every:g}"
            heading = number == 1 and not any(character.isdecimal() for character in line)
            remedy = "put # before a heading" if heading else "correct the line"
            raise DataError(
                f"{path}, line {number}: expected node,from,to with a node from 0 to {nodes - 1} and from < "
                f"to{within}, found {line!r}; {remedy}"
            ) from None
    for node_number, found in enumerate(spans):
        found.sort()
        if not found:
            raise DataError(f"{path}: node {node_number} has no line; say when it is there")
        for (_, before), (after, _) in pairwise(found):
            if after < before:
                raise DataError(f"{path}: node {node_number} is there twice at second {after:g}; join these lines")
    return spans


Availability = Annotated[Annotated[DayAndNight | Trace, Field(discriminator="name")], bare("name")]


class _Interval(Section):
    start: NonNegativeFloat
    end: PositiveFloat | None = None

    def _problems(self) -> Iterator[str]:
        if self.end is not None and self.end <= self.start:
            yield f"end must come after start, found start {self.start:g} and end {self.end:g}"


class Partition(_Interval):
    """From ``start`` to ``end`` (virtual seconds; no end is for ever) nothing passes between ``group`` and the rest.

    ``group`` holds node numbers.
    """

    group: tuple[NonNegativeInt, ...]


class LinkException(Section):
    """Links that are unlike the others: all of a node, or those in both directions between two.

    Attributes
    ----------
    node : int
        A number: all links to and from this node.
    edge : list of int
        Two numbers: the links between these nodes, one in each direction. Give this or ``node``.
    latency : float
        Seconds in the place of ``links.latency``.
    bandwidth : float
        Bytes per virtual second that pass over each of these links, where messages queue once they have left the
        node.
    """

    node: NonNegativeInt | None = None
    edge: tuple[NonNegativeInt, NonNegativeInt] | None = None
    latency: NonNegativeFloat | None = None
    bandwidth: PositiveFloat | None = None

    def _problems(self) -> Iterator[str]:
        if (self.node is None) == (self.edge is None):
            found = "neither" if self.node is None else "both"
            yield f"an exception is of one node or one edge, found {found}; give one of them"
        if self.edge is not None and self.edge[0] == self.edge[1]:
            yield f"an edge joins two nodes, found node {self.edge[0]} twice"
        if self.latency is None and self.bandwidth is None:
            yield "an exception has a latency or a bandwidth of its own, found neither"

    @property
    def numbers(self) -> tuple[int, ...]:
        """The nodes that it names."""
        return (self.node,) if self.node is not None else self.edge or ()

    def covers(self, sender: int, to: int) -> bool:
        """Whether the link from ``sender`` to ``to`` is one of these."""
        return self.node in (sender, to) if self.edge is None else {sender, to} == set(self.edge)


class LinkSettings(Section):
    """The section ``links``.

    Attributes
    ----------
    latency : float
        Virtual seconds from sending to receiving.
    bandwidth : float, optional
        Bytes per virtual second that a node can send; its messages queue. None is unlimited.
    jitter : float
        Most virtual seconds added to the latency, uniformly; reorders messages.
    loss, duplicate : float
        Probability that a frame is lost, or comes twice.
    partitions : list of Partition
        Times when the network is cut.
    retry_after : float
        Virtual seconds after which an unacknowledged message is sent again (only on links that can lose).
    silence : float
        Virtual seconds without an answer after which a peer counts as down.
    exceptions : list of LinkException, optional
        Links with a latency or a bandwidth of their own. Where several say one of these of a link, the last one
        counts.
    """

    latency: NonNegativeFloat = 0.01
    bandwidth: PositiveFloat | None = None
    jitter: NonNegativeFloat = 0.0
    loss: float = Field(default=0.0, ge=0, lt=1)
    duplicate: float = Field(default=0.0, ge=0, lt=1)
    partitions: tuple[Partition, ...] = ()
    retry_after: float = Field(default=1.0, ge=1e-3)
    silence: float = Field(default=30.0, ge=1e-3)
    exceptions: tuple[LinkException, ...] | None = None

    @property
    def reliable(self) -> bool:
        """Whether every message arrives exactly once and in order without further ado."""
        return not (self.jitter or self.loss or self.duplicate or self.partitions)


class Absence(_Interval):
    """``node`` (a number) is gone from ``start`` until ``end`` (virtual seconds); for ever if there is no end."""

    node: NonNegativeInt


class FaultSettings(Section):
    """The section ``faults``: nodes that crash, nodes that leave and come back with their state, and nodes that lie.

    Attributes
    ----------
    absences : sequence of mappings
        Times at which nodes are away, one by one.
    availability : str or mapping, optional
        Times when nodes with data are there: by day and night, or by a trace. In the place of absences.
    hostile : mapping, optional
        Nodes that lie in what they send: ``nodes`` (numbers), their ``attack`` and its ``factor``.
    """

    absences: tuple[Absence, ...] = ()
    availability: Availability | None = None
    hostile: HostileSettings | None = None

    @property
    def away(self) -> bool:
        """Whether anybody is away at times."""
        return bool(self.absences) or self.availability is not None

    def _problems(self) -> Iterator[str]:
        if self.absences and self.availability is not None:
            yield (
                "availability says when nodes are away, and so "
                f"{counted(len(self.absences), 'absence does', 'absences do')}; say one of them"
            )
        ordered = sorted(self.absences, key=lambda absence: (absence.node, absence.start))
        for first, second in pairwise(ordered):
            if first.node == second.node and (first.end is None or second.start < first.end):
                yield f"node {first.node} is away twice at virtual second {second.start:g}"


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

    changing = ("_taken",)

    def __init__(self, names: Sequence[str], workers: Sequence[str], world: World) -> None:
        self._said = [(names[absence.node], absence.start, absence.end) for absence in world.faults.absences]
        self._workers, self._world = workers, world
        self._taken: dict[str, int] = {}
        self.after_restore()

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

    def after_restore(self) -> None:
        self._spans: dict[str, Iterator[Span]] = {}
        if (availability := self._world.faults.availability) is not None:
            found = availability.away(len(self._workers), self._world.seed)
            self._spans = dict(zip(self._workers, found, strict=True))
        for name, taken in self._taken.items():
            deque(islice(self._spans[name], taken), maxlen=0)


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
    named += [("faults.hostile.nodes", number) for number in (faults.hostile.nodes if faults.hostile else ())]
    links = links or LinkSettings()
    named += [("links.partitions", number) for cut in links.partitions for number in cut.group]
    named += [("links.exceptions", number) for one in links.exceptions or () for number in one.numbers]
    for key, number in named:
        if number >= nodes + servers:
            raise SpecError(f"{key}: a node is a number below {nodes + servers}, found {number}")
