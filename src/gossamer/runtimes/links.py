"""Effects of links on messages in a simulation: delay, loss, duplication, reordering, partitions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Self

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    model_validator,
)

from gossamer.errors import counted
from gossamer.randomness import Stream
from gossamer.runtimes.availability import Availability
from gossamer.section import NEWER, Section


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
        When the network is cut.
    retry_after : float
        Virtual seconds after which an unacknowledged message is sent again (only on links that can lose).
    silence : float
        Virtual seconds without an answer after which a peer counts as down.
    """

    latency: NonNegativeFloat = 0.01
    bandwidth: PositiveFloat | None = None
    jitter: NonNegativeFloat = 0.0
    loss: float = Field(default=0.0, ge=0, lt=1)
    duplicate: float = Field(default=0.0, ge=0, lt=1)
    partitions: tuple[Partition, ...] = ()
    retry_after: float = Field(default=1.0, ge=1e-3)
    silence: float = Field(default=30.0, ge=1e-3)

    @property
    def reliable(self) -> bool:
        """Whether every message arrives exactly once and in order without further ado."""
        return not (self.jitter or self.loss or self.duplicate or self.partitions)


@dataclass(slots=True)
class Links:
    """The links of one run; ``transmit`` says when each copy of a frame arrives.

    All draws depend on the seed and the number of the frame only.
    """

    settings: LinkSettings
    draws: Stream
    uplink_free: dict[str, float]
    numbers: dict[str, int]
    start: float
    reliable: bool
    frames: int = 0

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
        if self.reliable:
            return (left + settings.latency,)
        return self._unreliable(sender, to, left, now)

    def _unreliable(self, sender: str, to: str, left: float, now: float) -> tuple[float, ...]:
        settings = self.settings
        self.frames += 1
        lost, twice, jitter, more_jitter = self.draws.at(self.frames).random(4)
        if lost < settings.loss or self._cut(sender, to, now):
            return ()
        jitters = (jitter, more_jitter) if twice < settings.duplicate else (jitter,)
        return tuple(left + settings.latency + settings.jitter * float(draw) for draw in jitters)

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
        When nodes with data are there: by day and night, or by a trace. In the place of absences.
    """

    absences: tuple[Absence, ...] = ()
    availability: Annotated[Availability | None, NEWER] = None

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
