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
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from gossamer.attacks.leak import Vector, in_units, rounding
from gossamer.privacy.mechanisms import Mechanism, NeighboringRelation
from gossamer.privacy.tasks import Gradient, Query, Round
from gossamer.sides.answers import Answer
from gossamer.sides.home import Home
from gossamer.sides.ledger import Ledger
from gossamer.sides.machine import Rule, Side, Ticket
from gossamer.sides.plan import WHOLE, ClientUpdate, Curator, MaskedMember, Samples, SidePlan, Stream
from gossamer.vectors import Confined, Masked, Released

REPLACED = NeighboringRelation.REPLACE_ONE


class Leak(Exception):
    """Something outside of data sides that tells two neighbouring data sets apart; ``str`` says what, in a line."""


class Terms(NamedTuple):
    """Terms of a noisy answer.

    Attributes
    ----------
    query : Query
        Clip and noise, and what is done after it.
    most : float
        The sensitivity for a clip of 1; infinite where none is declared.
    examples : int
        In the sum, at most.
    """

    query: Query
    most: float
    examples: int


def terms_of(plan: SidePlan, ticket: Ticket, raw: Any, relation: NeighboringRelation) -> Terms | None:
    """Terms of what is released on a ``ticket``; None where its noise is no matter of one release alone.

    A whole client's data are replaced, whatever the relation: as far apart as two neighbours of a client without data.
    """
    task: Any = ticket.task
    match plan:
        case Samples():
            rule: Any = ticket.side.rule
            law, proved = task.query.mechanism, not isinstance(task, Round) or task.update != "sequential"
            examples = raw.examples if isinstance(task, Gradient) else len(rule.shard.rows)
            return Terms(task.query, _for_a_clip_of_one(law, relation) if proved else math.inf, examples)
        case Curator():
            return Terms(task.query, _for_a_clip_of_one(task.query.mechanism, REPLACED), len(task.updates))
        case ClientUpdate(noise=Mechanism() as law):
            return Terms(Query(WHOLE, law, 1.0), _for_a_clip_of_one(law, REPLACED), 1)
    return None


def _for_a_clip_of_one(law: Mechanism, relation: NeighboringRelation) -> float:
    return law.sensitivity(relation) / law.clip if math.isfinite(law.clip) else math.inf


class Noise(NamedTuple):
    """What two draws of a release's noise differ by, in units, with the law."""

    side: str
    number: int
    difference: Vector
    law: Mechanism
    unit_roundoff: float


@dataclass
class Recording:
    """Answers of a run's data sides, in order, by side; and how far those of other runs were from them.

    Attributes
    ----------
    plans : mapping of str to SidePlan
        Of all sides.
    relation : NeighboringRelation
        Which data sets are neighbours, of examples.
    answers : dict of str to list of Answer
        By side.
    seconds : callable
        Virtual seconds by now.
    """

    plans: Mapping[str, SidePlan]
    relation: NeighboringRelation
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
        Whose.
    compare : callable
        (this replay, ticket, raw answer, answer of the first run, own answer) -> nothing; raises `Leak`.
    noises : list of Noise
        What was found, where noise is drawn anew.
    compared, differing, largest
        How many releases were held against the first run's, how many of them differ, and how far away one was at most,
        in sensitivities.
    """

    recording: Recording
    compare: Callable[[Replay, Ticket, Any, Answer, Answer], None]
    noises: list[Noise] = field(default_factory=list)
    given: dict[str, int] = field(default_factory=dict)
    moved: dict[str, float] = field(default_factory=dict)
    compared: int = 0
    differing: int = 0
    largest: float = 0.0

    def machine(self, name: str, rule: Rule, ledger: Ledger | None, home: Home) -> Side:
        """A data side that answers as the recorded one."""
        return _ReplayedSide(name, rule, ledger, home, self)

    def answer(self, ticket: Ticket, raw: Any, own: Answer) -> Answer:
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
        self.compare(self, ticket, raw, first, own)
        return own._replace(released=one)

    def where(self, name: str) -> str:
        """Words for the place of what a side does now."""
        return f"{name} at virtual second {self.recording.seconds():g}"


class _ReplayedSide(Side):
    __slots__ = ("_replay",)

    def __init__(self, name: str, rule: Rule, ledger: Ledger | None, home: Home, replay: Replay) -> None:
        super().__init__(name, rule, ledger, home)
        self._replay = replay

    def release(self, ticket: Ticket, raw: Any) -> Answer:
        return self._replay.answer(ticket, raw, super().release(ticket, raw))


def same_coins(replay: Replay, ticket: Ticket, raw: Any, first: Answer, own: Answer) -> None:
    """Hold an answer with the same coins, of neighbouring data, against the sensitivity that is declared.

    Raises
    ------
    Leak
        If it is further away.
    """
    name, plan, recording = ticket.side.name, replay.recording.plans[ticket.side.name], replay.recording
    one, other = np.asarray(first.released.values), np.asarray(own.released.values)
    match plan:
        case MaskedMember() if isinstance(first.released, Masked):
            distance, most = _masked(one, other), 2 * plan.bound.reach / plan.bound.fixed.resolution
            allowed = most
        case Stream():
            distance, allowed, most = _record(replay, plan, name, one, other)
        case _ if isinstance(first.released, Released):
            terms = terms_of(plan, ticket, raw, recording.relation)
            assert terms is not None, f"{name} releases nothing that is known"
            clip = terms.query.mechanism.clip if math.isfinite(terms.query.mechanism.clip) else 1.0
            a, b = in_units(one, terms.query, clip), in_units(other, terms.query, clip)
            distance, most = float(np.linalg.norm(a - b)), terms.most
            allowed = most + rounding(a, b, terms.examples, _unit_roundoff(one))
        case _:
            if one.tobytes() != other.tobytes():
                raise Leak(f"{replay.where(name)}: an answer that depends on no data has other bytes")
            return
    replay.compared += 1
    replay.differing += distance != 0
    if most == math.inf:
        return
    replay.largest = max(replay.largest, distance / most)
    if not distance <= allowed < math.inf:
        raise Leak(
            f"{replay.where(name)}: release {replay.given[name]} ({type(ticket.task).__name__}) is "
            f"{distance / most:.4g} times its declared sensitivity away"
        )


def _unit_roundoff(values: Any) -> float:
    return float(np.finfo(values.dtype).eps) / 2


def _masked(one: Any, other: Any) -> float:
    """Steps between two vectors with the same mask and noise, modulo 2^bits."""
    signed = (other - one).view(np.dtype(f"i{one.dtype.itemsize}"))
    return float(np.linalg.norm(signed.astype(np.float64)))


def _record(replay: Replay, plan: Stream, name: str, one: Any, other: Any) -> tuple[float, float, float]:
    """How far a record of a stream has moved, how far it may have, and how far one change moves an update.

    A state is the last one, times a weight of at most 1, and one update more; and a change moves each update by D.
    """
    distance, before = float(np.linalg.norm(other.astype(np.float64) - one)), replay.moved.get(name, 0.0)
    replay.moved[name] = distance
    if plan.moved is None:
        return distance, math.inf, math.inf
    most = before + plan.moved
    length = float(np.linalg.norm(one)) + float(np.linalg.norm(other))
    return distance, most + _unit_roundoff(one) * (4 * length + 2 * (len(one) + 4) * most), most


def other_noise(replay: Replay, ticket: Ticket, raw: Any, first: Answer, own: Answer) -> None:
    """Note what the noise of a release is, by an answer of the same data with other noise."""
    name, plan = ticket.side.name, replay.recording.plans[ticket.side.name]
    if not isinstance(first.released, Released):
        return
    one, other = np.asarray(first.released.values), np.asarray(own.released.values)
    terms = terms_of(plan, ticket, raw, replay.recording.relation)
    if terms is not None:
        law = terms.query.mechanism
        difference = in_units(other, terms.query, law.clip) - in_units(one, terms.query, law.clip)
    elif isinstance(plan, Stream) and plan.law is not None:
        law, difference = Mechanism(1.0), other.astype(np.float64) - one
    else:
        return
    if law.private:
        number = replay.given[name]
        replay.noises.append(Noise(name, number, difference, law, _unit_roundoff(one)))


def nothing(replay: Replay, ticket: Ticket, raw: Any, first: Answer, own: Answer) -> None:
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
