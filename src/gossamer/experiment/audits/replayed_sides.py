"""Data sides of a run that is held against another one with equal coins: they answer what that one's have answered.

The first run *records* its answers. In the second one, on a neighbouring data set, each data side computes its own
answer with the same coins, so the two differ by what the data do alone; holds the distance against the sensitivity that
its plan declares; and then hands over the answer of the first. So all that follows from releases is the same, and
whatever is not has come around them.

| answer | of the second run |
|---|---|
| `Released` | at most its sensitivity away, in units of its noise; replaced |
| `Masked` | the same masks, so modulo 2^bits at most its sensitivity away; replaced |
| `Public` | the same bytes |
| `Confined` | handed over as it is, inside its trust scope: what leaves that is an answer of another data side |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from gossamer.attacks.leak import NoiseScale, Vector, repeated, rounding, silent, to_units
from gossamer.privacy.mechanisms import Mechanism, NeighboringRelation
from gossamer.sides.home import Home
from gossamer.sides.ledger import Ledger
from gossamer.sides.machine import Answer, Rule, Side
from gossamer.sides.plan import Apart, SidePlan
from gossamer.sides.sums import Ticket
from gossamer.vectors import Confined, Masked, Released


class Leak(Exception):
    """Something outside of data sides that tells two neighbouring data sets apart; ``str`` says what, in a line."""


class NoiseDifference(NamedTuple):
    """Difference of two draws of a release's noise, with its law: in units of that, if it is no matter of others."""

    side: str
    number: int
    difference: Vector
    law: Mechanism | None
    unit_roundoff: float


@dataclass
class Recording:
    """Answers of a run's data sides, in order, by side.

    Attributes
    ----------
    plans : mapping of str to SidePlan
        Plans of all sides.
    relation : NeighboringRelation
        Relation of data sets that are neighbours, of examples.
    shards : mapping of str to int
        Number of examples of each party.
    answers : dict of str to list of Answer
        Answers by side.
    seconds : callable
        Virtual seconds by now.
    """

    plans: Mapping[str, SidePlan]
    relation: NeighboringRelation
    shards: Mapping[str, int]
    answers: dict[str, list[Answer]] = field(default_factory=dict)
    seconds: Callable[[], float] = lambda: 0.0

    def record(self, name: str, rule: Rule, ledger: Ledger | None, home: Home) -> Side:
        """A data side whose answers are kept."""
        return _RecordedSide(name, rule, ledger, home, self)


class _RecordedSide(Side):
    __slots__ = ("_kept",)

    def __init__(self, name: str, rule: Rule, ledger: Ledger | None, home: Home, recording: Recording) -> None:
        super().__init__(name, rule, ledger, home)
        self._kept = recording.answers.setdefault(name, [])

    def release(self, ticket: Ticket, raw: Any) -> Answer:
        found = super().release(ticket, raw)
        self._kept.append(found)
        return found


@dataclass
class Replay:
    """Answers of a recording, handed over again.

    Attributes
    ----------
    recording : Recording
        Recording whose answers are handed over.
    compare : callable
        (this replay, ticket, answer of the first run, own answer) -> nothing; raises `Leak`.
    noises : list of NoiseDifference
        Findings, where noise is drawn anew.
    compared, differing, largest
        Number of releases held against the first run's, number of them that differ, and the furthest that one was away,
        in sensitivities.
    """

    recording: Recording
    compare: Callable[[Replay, Ticket, Answer, Answer], None]
    noises: list[NoiseDifference] = field(default_factory=list)
    given: dict[str, int] = field(default_factory=dict)
    moved: dict[str, float] = field(default_factory=dict)
    compared: int = 0
    differing: int = 0
    largest: float = 0.0

    def machine(self, name: str, rule: Rule, ledger: Ledger | None, home: Home) -> Side:
        """A data side that answers as the recorded one."""
        return _ReplayedSide(name, rule, ledger, home, self)

    def answer(self, ticket: Ticket, own: Answer) -> Answer:
        """The answer of the first run, held against this run's ``own``."""
        name, kept = ticket.side.name, self.recording.answers.get(ticket.side.name, [])
        place = self.given[name] = self.given.get(name, 0) + 1
        if place > len(kept):
            raise Leak(f"{self.where(name)}: answered {place} questions, expected {len(kept)}")
        first = kept[place - 1]
        one, other = first.released, own.released
        if type(one) is not type(other) or one.values.dtype != other.values.dtype or one.size != other.size:
            raise Leak(f"{self.where(name)}: answer {place} is {other!r}, expected {one!r}")
        if isinstance(one, Confined):
            return own
        self.compare(self, ticket, first, own)
        return own._replace(released=one)

    def apart(self, ticket: Ticket) -> Apart | None:
        """Distance that an answer may have from the first run's."""
        recording, name = self.recording, ticket.side.name
        return recording.plans[name].apart(ticket.task, recording.relation, recording.shards.get(name, 0))

    def where(self, name: str) -> str:
        """Words for the place of what a side does now."""
        return f"{name} at virtual second {self.recording.seconds():g}"


class _ReplayedSide(Side):
    __slots__ = ("_replay",)

    def __init__(self, name: str, rule: Rule, ledger: Ledger | None, home: Home, replay: Replay) -> None:
        super().__init__(name, rule, ledger, home)
        self._replay = replay

    def release(self, ticket: Ticket, raw: Any) -> Answer:
        return self._replay.answer(ticket, super().release(ticket, raw))


def same_coins(replay: Replay, ticket: Ticket, first: Answer, own: Answer) -> None:
    """Hold an answer with the same coins, of neighbouring data, against the sensitivity that is declared.

    Raises
    ------
    Leak
        If it is further away.
    """
    name, apart = ticket.side.name, replay.apart(ticket)
    one, other = np.asarray(first.released.values), np.asarray(own.released.values)
    if apart is None or not isinstance(first.released, Released | Masked):
        if one.tobytes() != other.tobytes():
            raise Leak(f"{replay.where(name)}: an answer that depends on no data has other bytes")
        return
    most = apart.most + (replay.moved.get(name, 0.0) if apart.adds else 0.0)
    if isinstance(first.released, Masked):
        distance, rounded = _steps(one, other), 0.0
    else:
        a, b = _measured(one, apart), _measured(other, apart)
        longest = 1.0 if apart.query is not None else most
        distance, rounded = float(np.linalg.norm(a - b)), rounding(a, b, apart.examples, _unit_roundoff(one), longest)
    replay.moved[name] = distance
    replay.compared += 1
    replay.differing += distance != 0
    if most == math.inf:
        return
    replay.largest = max(replay.largest, distance / most)
    if not distance <= most + rounded < math.inf:
        raise Leak(
            f"{replay.where(name)}: release {replay.given[name]} ({type(ticket.task).__name__}) is "
            f"{distance / most:.4g} times its declared sensitivity away"
        )


def _unit_roundoff(values: Any) -> float:
    return float(np.finfo(values.dtype).eps) / 2


def _steps(one: Any, other: Any) -> float:
    """Steps between two vectors with the same mask and noise, modulo 2^bits."""
    signed = (other - one).view(np.dtype(f"i{one.dtype.itemsize}"))
    return float(np.linalg.norm(signed.astype(np.float64)))


def _measured(answer: Any, apart: Apart) -> Vector:
    """An answer in the numbers in which its sensitivity is declared."""
    query = apart.query
    if query is None:
        return np.asarray(answer, np.float64)
    clip = query.mechanism.clip
    return to_units(answer, query, clip if math.isfinite(clip) else 1.0)


def other_noise(replay: Replay, ticket: Ticket, first: Answer, own: Answer) -> None:
    """Note what the noise of a release is, by an answer of the same data with other noise."""
    apart = replay.apart(ticket)
    if apart is None or not apart.noisy or not isinstance(first.released, Released):
        return
    one, other = np.asarray(first.released.values), np.asarray(own.released.values)
    difference = _measured(other, apart) - _measured(one, apart)
    law = None if apart.query is None else apart.query.mechanism
    name = ticket.side.name
    replay.noises.append(NoiseDifference(name, replay.given[name], difference, law, _unit_roundoff(one)))


def check_noise(noises: Sequence[NoiseDifference], scale: NoiseScale) -> None:
    """Look for noise that is missing, or comes twice, or is of another standard deviation than is charged.

    Parameters
    ----------
    noises : sequence of NoiseDifference
        Differences of noise, of one run.
    scale : NoiseScale
        Knowledge of standard deviations from other runs, to which these are added.

    Raises
    ------
    Leak
        If there is such.
    """
    by_size: dict[int, list[NoiseDifference]] = {}
    for one in noises:
        if not one.difference.any():
            raise Leak(f"{one.side}: release {one.number} has no noise")
        by_size.setdefault(len(one.difference), []).append(one)
        if one.law is not None and (normal := one.law.normal) is not None:
            scale.add(one.difference, normal.noise_multiplier)
    for same in by_size.values():
        differences = [one.difference for one in same]
        if len(same) > 1 and (place := silent(differences)) is not None:
            raise Leak(f"{same[0].side}: number {place} of {len(differences[0])} in a release has no noise")
        if (two := repeated(differences, same[0].unit_roundoff)) is not None:
            one, other = (same[place] for place in two)
            raise Leak(f"release {one.number} of {one.side} and {other.number} of {other.side} have the same noise")
    if (found := scale.wrong) is not None:
        raise Leak(f"the standard deviation of noise is {found:.3g} times the one that is charged")


def nothing(replay: Replay, ticket: Ticket, first: Answer, own: Answer) -> None:
    """Hold an answer to be the very same: of the same data, with the same coins.

    Raises
    ------
    Leak
        If it is not.
    """
    if first.released != own.released:
        one, other = np.asarray(first.released.values), np.asarray(own.released.values)
        most = float(np.abs(other.astype(np.float64) - one).max(initial=0))
        raise Leak(f"{replay.where(ticket.side.name)}: the same coins give another answer, by up to {most:.3g}")
