"""Effects of links on messages in a simulation: delay, loss, duplication, reordering, partitions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Self

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    model_validator,
)

from gossamer.errors import counted
from gossamer.protocol.snapshots import Kept
from gossamer.randomness import Stream
from gossamer.runtimes.availability import Availability
from gossamer.section import Section


class _Interval(Section):
    start: NonNegativeFloat
    end: PositiveFloat | None = None

    @model_validator(mode="after")
    def _ends_after_it_starts(self) -> Self:
        if self.end is not None and self.end <= self.start:
            raise ValueError(f"end must come after start, found start {self.start:g} and end {self.end:g}")
        return self


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

    @model_validator(mode="after")
    def _says_whose_and_what(self) -> Self:
        if (self.node is None) == (self.edge is None):
            found = "neither" if self.node is None else "both"
            raise ValueError(f"an exception is of one node or one edge, found {found}; give one of them")
        if self.edge is not None and self.edge[0] == self.edge[1]:
            raise ValueError(f"an edge joins two nodes, found node {self.edge[0]} twice")
        if self.latency is None and self.bandwidth is None:
            raise ValueError("an exception has a latency or a bandwidth of its own, found neither")
        return self

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


@dataclass(slots=True)
class _Way:
    """The link from one node to another."""

    latency: float
    bandwidth: float | None
    free: float

    @classmethod
    def of(cls, settings: LinkSettings, sender: int, to: int, start: float) -> _Way:
        found = cls(settings.latency, None, start)
        for one in settings.exceptions or ():
            if one.covers(sender, to):
                found.latency = found.latency if one.latency is None else one.latency
                found.bandwidth = found.bandwidth if one.bandwidth is None else one.bandwidth
        return found

    def passed(self, left: float, size: int) -> float:
        """Return when a frame that has left the node is on its way: after those before it on this link."""
        if self.bandwidth is None:
            return left
        self.free = max(left, self.free) + size / self.bandwidth
        return self.free


@dataclass(slots=True)
class Links(Kept):
    """The links of one run; ``transmit`` says when each copy of a frame arrives.

    All draws depend on the seed and the number of the frame only.
    """

    changing = ("frames", "uplink_free")
    settings: LinkSettings
    draws: Stream
    uplink_free: dict[str, float]
    numbers: dict[str, int]
    start: float
    reliable: bool
    frames: int = 0
    ways: dict[tuple[str, str], _Way] = field(default_factory=dict)

    @classmethod
    def new(cls, settings: LinkSettings, names: tuple[str, ...], seed: int, start: float) -> Links:
        """Idle links between the nodes ``names``, at time ``start``."""
        numbers = {name: number for number, name in enumerate(names)}
        return cls(settings, Stream(seed, "links"), dict.fromkeys(names, start), numbers, start, settings.reliable)

    def transmit(self, sender: str, to: str, size: int, now: float) -> tuple[float, ...]:
        """Arrival times of the copies of a frame of ``size`` bytes; none if it is lost."""
        settings = self.settings
        left = now
        if settings.bandwidth is not None:
            left = max(now, self.uplink_free[sender]) + size / settings.bandwidth
            self.uplink_free[sender] = left
        latency = settings.latency
        if settings.exceptions is not None:
            way = self._way(sender, to)
            left, latency = way.passed(left, size), way.latency
        if self.reliable:
            return (left + latency,)
        return self._unreliable(sender, to, left, latency, now)

    def snapshot(self) -> dict[str, Any]:
        return {**Kept.snapshot(self), "free": {ends: way.free for ends, way in self.ways.items()}}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        Kept.restore(self, snapshot)  # a class with slots is made anew, which super() does not know
        for (sender, to), seconds in snapshot["free"].items():
            self._way(sender, to).free = seconds

    def _way(self, sender: str, to: str) -> _Way:
        found = self.ways.get((sender, to))
        if found is None:
            found = _Way.of(self.settings, self.numbers[sender], self.numbers[to], self.start)
            self.ways[sender, to] = found
        return found

    def _unreliable(self, sender: str, to: str, left: float, latency: float, now: float) -> tuple[float, ...]:
        settings = self.settings
        self.frames += 1
        lost, twice, jitter, more_jitter = self.draws.at(self.frames).random(4)
        if lost < settings.loss or self._cut(sender, to, now):
            return ()
        jitters = (jitter, more_jitter) if twice < settings.duplicate else (jitter,)
        return tuple(left + latency + settings.jitter * float(draw) for draw in jitters)

    def _cut(self, sender: str, to: str, now: float) -> bool:
        ends = {self.numbers[sender], self.numbers[to]}
        return any(
            cut.start <= now - self.start < (math.inf if cut.end is None else cut.end)
            and len(ends & set(cut.group)) == 1
            for cut in self.settings.partitions
        )


class Absence(_Interval):
    """``node`` (a number) is gone from ``start`` until ``end`` (virtual seconds); for ever if there is no end."""

    node: NonNegativeInt


class FaultSettings(Section):
    """The section ``faults``: nodes that crash, and nodes that leave and come back with their state.

    Attributes
    ----------
    absences : sequence of mappings
        Times at which nodes are away, one by one.
    availability : str or mapping, optional
        Times when nodes with data are there: by day and night, or by a trace. In the place of absences.
    """

    absences: tuple[Absence, ...] = ()
    availability: Availability | None = None

    @property
    def away(self) -> bool:
        """Whether anybody is away at times."""
        return bool(self.absences) or self.availability is not None

    @model_validator(mode="after")
    def _absences_are_said_once(self) -> Self:
        if self.absences and self.availability is not None:
            raise ValueError(
                "availability says when nodes are away, and so "
                f"{counted(len(self.absences), 'absence does', 'absences do')}; say one of them"
            )
        return self

    @model_validator(mode="after")
    def _one_absence_at_a_time(self) -> Self:
        ordered = sorted(self.absences, key=lambda absence: (absence.node, absence.start))
        for first, second in pairwise(ordered):
            if first.node == second.node and (first.end is None or second.start < first.end):
                raise ValueError(f"node {first.node} is away twice at virtual second {second.start:g}")
        return self
