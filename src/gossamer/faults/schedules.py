"""Faults in a run of hosts, as data that follows from a seed and can be shortened item by item."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from gossamer.protocol.messages import ChunkFrame, Frame, MessageFrame, frame_size
from gossamer.protocol.session import SessionSettings
from gossamer.randomness import stream

DELAY = 0.1
"""Seconds that every frame takes to which nothing happens."""


@dataclass(frozen=True)
class NetworkPartition:
    """From ``start`` until ``end`` (seconds), no frame gets from ``group`` to the others or back."""

    start: float
    end: float
    group: frozenset[str]

    def __str__(self) -> str:
        return f"from {self.start:g} s to {self.end:g} s: {', '.join(sorted(self.group))} cut off from the others"

    def cuts(self, sender: str, to: str, now: float) -> bool:
        """Whether a frame put on the link at ``now`` is lost."""
        return self.start <= now < self.end and (sender in self.group) != (to in self.group)


@dataclass(frozen=True)
class Sieve:
    """From ``start`` until ``end`` (seconds), a broker passes some frames and loses others.

    Attributes
    ----------
    start, end : float
        Seconds of its start and end; without an end, infinite.
    loses : {"messages", "acknowledgements"} or int
        Frames that it loses; a number of bytes for all that are longer.
    sender : str, optional
        Sender of the frames; by default everybody.
    """

    start: float
    end: float
    loses: str | int
    sender: str | None = None

    def __str__(self) -> str:
        what = self.loses if isinstance(self.loses, str) else f"frames of more than {self.loses} bytes"
        return f"from {self.start:g} s to {self.end:g} s: {what} of {self.sender or 'everybody'} lost, all else arrives"

    def stops(self, sender: str, frame: Frame, now: float) -> bool:
        """Whether a frame put on the link at ``now`` is lost."""
        if not self.start <= now < self.end or self.sender not in (None, sender):
            return False
        if isinstance(self.loses, int):
            return frame_size(frame) > self.loses
        return isinstance(frame, MessageFrame | ChunkFrame) == (self.loses == "messages")


SETTINGS = SessionSettings(retry_after=1.0, longest_retry=2.0, silence=5.0)
"""Of sessions in these runs: a retry interval is at most 2 s."""

FRAMES, EVENTS = 120, 150
"""Among so many first frames, and so many first events, there are faults."""

_FEW, _LATE = 3, 8


@dataclass(frozen=True)
class Crash:
    """A process is killed while it deals with the ``event``-th event of the run.

    Attributes
    ----------
    event : int
        Number of the event, from 1.
    instant : int
        Number of the things that others can see, or that last, that it still does: an input staged, a commit, a charge,
        a draw of noise, a frame put on the link. If there are fewer, it is killed after the last.
    kept : int
        Number of the inputs that are staged and not committed that have reached the disk.
    away : float
        Seconds until it is started again; infinite for never.
    """

    event: int
    instant: int = 0
    kept: int = 0
    away: float = 1.0

    def __str__(self) -> str:
        back = "for ever" if math.isinf(self.away) else f"for {self.away:g} s"
        return f"event {self.event}: killed after {self.instant} steps, {self.kept} staged inputs kept, away {back}"


@dataclass(frozen=True)
class Fate:
    """Fate of the ``frame``-th frame of the run, from 0: its copies arrive after ``delays``, in seconds."""

    frame: int
    delays: tuple[float, ...] = ()

    def __str__(self) -> str:
        copies = " and ".join(f"{delay:g} s" for delay in self.delays)
        return f"frame {self.frame}: {'takes ' + copies if self.delays else 'lost'}"


@dataclass(frozen=True)
class OldCopy:
    """A process is started on an old copy of a party's disk, beside the party itself.

    Attributes
    ----------
    party : str
        Party whose disk it is.
    copied, at : float
        Times when the copy was made, and when it is started: for a second all that is sent to and by the party is lost.
    """

    party: str
    copied: float
    at: float

    def __str__(self) -> str:
        return f"{self.at:g} s: a copy of {self.party} as it was at {self.copied:g} s answers"


Fault = Fate | Crash | NetworkPartition | Sieve | OldCopy
_Fault = TypeVar("_Fault", bound=Fault)


@dataclass(frozen=True)
class FaultSchedule:
    """All that goes wrong in a run.

    Attributes
    ----------
    faults : tuple of Fate, Crash, NetworkPartition, Sieve or OldCopy
        Faults that happen.
    variant : int
        Number of the run of a trial that it happens to.
    busy : float
        Seconds that hosts need to store a turn; what comes meanwhile goes into the next one.
    every : int
        Inputs between snapshots.
    chunks : bool
        Whether messages are too long for one frame.
    skew : float
        Seconds from the clock of each host to that of the next, which is ahead; who is started again is as much behind.
    """

    faults: tuple[Fault, ...] = ()
    variant: int = 0
    busy: float = 0.0
    every: int = 8
    chunks: bool = False
    skew: float = 0.0

    @cached_property
    def _delays(self) -> dict[int, tuple[float, ...]]:
        return {fault.frame: fault.delays for fault in self.of(Fate)}

    @cached_property
    def _cuts(self) -> tuple[NetworkPartition, ...]:
        return self.of(NetworkPartition)

    def delays(self, index: int, sender: str, to: str, now: float) -> tuple[float, ...]:
        """Seconds from ``now``, when frame ``index`` is put on the link, until each of its copies arrives."""
        if any(partition.cuts(sender, to, now) for partition in self._cuts):
            return ()
        return self._delays.get(index, (DELAY,))

    def of(self, kind: type[_Fault]) -> tuple[_Fault, ...]:
        """Faults of one kind."""
        return tuple(fault for fault in self.faults if isinstance(fault, kind))

    @classmethod
    def seeded(cls, seed: int, variants: Sequence[Sequence[str]] = ((),)) -> FaultSchedule:
        """Loss, repetition, delay and reordering of frames, partitions, sieves, crashes and old copies.

        Parameters
        ----------
        seed : int
            The same gives the same.
        variants : sequence of sequence of str
            Names of the nodes of each run that it may happen to.
        """
        generator = stream(seed, "fault schedule")
        variant = int(generator.integers(len(variants)))
        faults: list[Fault] = [*_fates(generator)]
        faults += _partitions(generator, variants[variant])
        faults += _crashes(generator)
        ways = ([0.0, 0.0, 0.15], [3, 16, 256], [False, False, False, True], [0.0, 0.0, 1.5])
        busy, every, chunks, skew = (generator.choice(among).item() for among in ways)
        faults += _sieves(generator, variants[variant])
        faults += _copies(generator, variants[variant])
        return cls(tuple(faults), variant, busy, every, chunks, skew)


def _fates(generator: np.random.Generator) -> list[Fate]:
    lost, late, repeated = np.cumsum(generator.choice([0.0, 0.05, 0.2], 3)).tolist()
    kinds, delays = generator.random(FRAMES), generator.uniform(0, 3, (FRAMES, 2)).round(2).tolist()
    found = []
    for frame in np.flatnonzero(kinds < repeated).tolist():
        kind = kinds[frame]
        found.append(Fate(frame, () if kind < lost else tuple(delays[frame][: 1 if kind < late else 2])))
    return found


def _partitions(generator: np.random.Generator, names: Sequence[str]) -> list[NetworkPartition]:
    """None, or one of any group, a single node or all but one among them."""
    if len(names) < 2 or generator.random() > 0.3:
        return []
    start, lasts = generator.uniform(0, 8), generator.uniform(1, 20)
    group = generator.permutation(len(names))[: generator.integers(1, len(names))]
    apart = frozenset(names[number] for number in group.tolist())
    return [NetworkPartition(round(float(start), 2), round(float(start + lasts), 2), apart)]


def _sieves(generator: np.random.Generator, names: Sequence[str]) -> list[Sieve]:
    """None, or one: heard but not reached, acknowledgements lost, or large frames lost; now and then for ever."""
    if not names or generator.random() > 0.3:
        return []
    start, lasts = generator.uniform(0, 8), generator.choice([generator.uniform(1, 30), math.inf], p=[0.8, 0.2])
    kinds: tuple[str | int, ...] = ("messages", "acknowledgements", 120)
    loses = kinds[int(generator.integers(len(kinds)))]
    sender = (None, *names)[int(generator.integers(len(names) + 1))]
    return [Sieve(round(float(start), 2), round(float(start + lasts), 2), loses, sender)]


def _copies(generator: np.random.Generator, names: Sequence[str]) -> list[OldCopy]:
    if not names or generator.random() > 0.2:
        return []
    copied, later = generator.uniform(0, 8, 2).round(2).tolist()
    return [OldCopy(names[int(generator.integers(len(names)))], copied, copied + later)]


def _crashes(generator: np.random.Generator) -> list[Crash]:
    found = {}
    for event, instant, kept, away in zip(
        generator.integers(1, EVENTS, 4).tolist(),
        generator.geometric(0.35, 4).tolist(),
        generator.integers(0, 3, 4).tolist(),
        generator.choice([0.01, 2.0, 10.0, 30.0, math.inf], 4, p=[0.3, 0.3, 0.2, 0.1, 0.1]).tolist(),
        strict=True,
    ):
        found[event] = Crash(event, instant - 1, kept, away)
    return sorted(list(found.values())[: int(generator.integers(0, 5))], key=lambda crash: crash.event)


def shortened(schedule: FaultSchedule, fails: Any, variants: int = 1) -> FaultSchedule:
    """A schedule that still fails, of which nothing can be left out.

    Parameters
    ----------
    schedule : FaultSchedule
        One that fails.
    fails : callable
        Whether a schedule does.
    variants : int
        Number of runs that it might happen to.
    """
    for simpler in ({"busy": 0.0}, {"every": 256}, {"chunks": False}, {"skew": 0.0}):
        candidate = replace(schedule, **simpler)
        schedule = candidate if fails(candidate) else schedule
    found = replace(schedule, faults=fewest(schedule.faults, lambda faults: fails(replace(schedule, faults=faults))))
    # What is left may only be there so that a crash comes at the right moment.
    return found if len(found.faults) <= _FEW else next(filter(fails, _alone(found, variants)), found)


def _alone(schedule: FaultSchedule, variants: int) -> Iterator[FaultSchedule]:
    """Each of its crashes, and nothing else, at each event of each run; and killed late, with nothing staged kept."""
    kinds = [kind for crash in schedule.of(Crash) for kind in (crash, replace(crash, instant=_LATE, kept=0))]
    for variant, event, crash in itertools.product(range(variants), range(1, EVENTS), kinds):
        yield replace(schedule, faults=(replace(crash, event=event),), variant=variant)


def fewest(items: Sequence[Any], fails: Any) -> tuple[Any, ...]:
    """Delta debugging: as few of ``items`` as still fail, leaving out halves, quarters, ... and single ones."""
    kept, size = tuple(items), max(len(items), 1)
    while kept:
        start, left_out = 0, False
        while start < len(kept):
            fewer = kept[:start] + kept[start + size :]
            if fails(fewer):
                kept, left_out = fewer, True
            else:
                start += size
        if size == 1 and not left_out:
            break
        size = max(1, size // 2)
    return kept
