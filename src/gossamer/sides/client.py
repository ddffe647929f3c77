"""A client's own updates, as they leave it: raw inside its trust scope, or clipped and noised.

Of raw updates: which of its rows each takes, and all of a call computed together.
A kind of question has a line in `WORK`: how its rows are drawn, from coins of the side's own, and what computes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from gossamer.arrays import FloatArray, IndexArray
from gossamer.data.examples import Split
from gossamer.errors import SpecError
from gossamer.objectives.objective import LocalUpdates, Minibatches, Objective, Training
from gossamer.privacy.tasks import ClippedUpdate, LocalQuery, LocalUpdate, Query, TrainingQuery
from gossamer.sides.home import Home, Numbers, numbers_in, saturated
from gossamer.sides.ledger import Receipt
from gossamer.sides.machine import Due, Rule, SideAnswer
from gossamer.sides.plan import WHOLE, ClientUpdate
from gossamer.sides.samples import ShardRows
from gossamer.sides.sums import NOTHING_PROVIDED, Inputs, Provided, Rounding, Ticket
from gossamer.vectors import Confined, Released


class RawUpdate(NamedTuple):
    """Raw: the update [size], and how many gradients were not finite."""

    update: FloatArray
    not_finite: int


def drawn_anew(query: LocalQuery, rows: IndexArray, generator: np.random.Generator) -> IndexArray:
    """Rows [steps, batch] of each step, drawn with replacement."""
    return rows[generator.integers(len(rows), size=(query.steps, query.batch))]


def shuffled(query: TrainingQuery, rows: IndexArray, generator: np.random.Generator) -> Minibatches:
    """Rows in shuffled passes, cut into mini-batches; of the last pass as many as the steps take."""
    count, lengths, drawn = len(rows), *_lengths(len(rows), query.batch, query.steps)
    order = np.concatenate([generator.permutation(count) for _ in range(-(-drawn // count))])
    return Minibatches(rows[order[:drawn]], lengths)


@lru_cache(maxsize=256)
def _lengths(count: int, batch: int, steps: int) -> tuple[IndexArray, int]:
    """Examples in each of so many ``steps`` through ``count``, in passes, and in all of them."""
    found = np.resize(np.minimum(count - np.arange(0, count, batch), batch), steps)
    found.setflags(write=False)
    return found, int(found.sum())


def _local_steps(objective: Objective, data: Split, tasks: Sequence[Any], rows: Sequence[Any]) -> LocalUpdates:
    rates = np.array([task.query.rate for task in tasks])
    clips = np.array([task.query.clip for task in tasks])
    return objective.local_updates(_models(tasks), data, rows, rates, clips)


def _trainings(objective: Objective, data: Split, tasks: Sequence[Any], rows: Sequence[Any]) -> LocalUpdates:
    asked = [
        Training(batches, task.query.rate, task.query.momentum, task.query.proximal)
        for task, batches in zip(tasks, rows, strict=True)
    ]
    return objective.local_training(_models(tasks), data, asked)


def _models(tasks: Sequence[Any]) -> FloatArray:
    return np.stack([task.model.values for task in tasks])


class Work(NamedTuple):
    """Drawing and computing for one kind of question.

    Attributes
    ----------
    draw : callable
        (query, rows of the shard, generator) -> the rows that its steps take.
    compute : callable
        (objective, data, tasks, those rows of each) -> updates of all of them.
    """

    draw: Callable[[Any, IndexArray, np.random.Generator], Any]
    compute: Callable[[Objective, Split, Sequence[Any], Sequence[Any]], LocalUpdates]


WORK: Mapping[type, Work] = {LocalQuery: Work(drawn_anew, _local_steps), TrainingQuery: Work(shuffled, _trainings)}


def check_query(name: str, query: Any) -> None:
    """Refuse a question of a kind that no client answers.

    Raises
    ------
    SpecError
        If it is one.
    """
    if type(query) not in WORK:
        kinds = " or ".join(kind.__name__ for kind in WORK)
        raise SpecError(f"{name} makes updates by {kinds}, found {type(query).__name__}")


class Updates:
    """Local updates of all clients of a call, computed together."""

    def __init__(self, objective: Objective, data: Split) -> None:
        self.objective, self._data = objective, data

    def compute(self, asked: Sequence[Inputs]) -> list[RawUpdate]:
        """One update for each."""
        places: dict[type, list[int]] = {}
        for place, item in enumerate(asked):
            places.setdefault(type(item.ticket.task.query), []).append(place)
        found: dict[int, RawUpdate] = {}
        for kind, those in places.items():
            tasks, rows = [asked[place].ticket.task for place in those], [asked[place].drawn for place in those]
            made = WORK[kind].compute(self.objective, self._data, tasks, rows)
            updates = map(RawUpdate, made.updates, made.not_finite.tolist())
            found.update(zip(those, updates, strict=True))
        return [found[place] for place in range(len(asked))]

    def inputs(self, ticket: Ticket, shard: ShardRows, sampling: Numbers) -> Inputs:
        """Draw the rows of the training split for each local step, the same again for the same number."""
        query = ticket.task.query
        return Inputs(ticket, WORK[type(query)].draw(query, shard.rows, sampling.at(ticket.number)), self.compute)


SLACK = 2.0**-20
"""By how much of its bound an update may be longer: rounding to float32 makes it that."""


class UpdateRule(Rule):
    """Updates of one client. The round's number keys the coins of a raw one: asked again, it is the same update."""

    def __init__(self, name: str, plan: ClientUpdate, shard: ShardRows, updates: Updates, home: Home) -> None:
        shard.check_whole()
        self.name, self.plan, self.shard, self.updates = name, plan, shard, updates
        self._sampling, self._once = numbers_in(home, name, "sampling"), home.seed(name) is None

    def due(self, task: Any, charged: int) -> Due:
        self.check(task)
        if self.plan.counted is None:
            return Due(None)
        return Due(Receipt(self.plan.counted, clip=self.plan.bound), self._once)

    def check(self, task: Any) -> None:
        """Refuse what is not this client's to answer."""
        if not isinstance(task, LocalUpdate):
            raise SpecError(f"{self.name} makes local updates, found {type(task).__name__}")
        if isinstance(task, ClippedUpdate) is not self.plan.follows:
            clip = "the clip of each question" if self.plan.follows else "the clip that was planned"
            raise SpecError(f"{self.name} clips updates to {clip}, found {type(task).__name__}")
        check_query(self.name, task.query)
        if self.plan.query not in (None, task.query):
            raise SpecError(f"{self.name} makes updates by {self.plan.query}, found {task.query}")

    def clip(self, task: Any) -> float:
        """The most length of an update: the planned one, or the question's."""
        bound: float = task.bound if self.plan.follows else self.plan.bound
        return bound

    def number(self, task: LocalUpdate, charged: int) -> int:
        return task.id

    def draw(self, ticket: Ticket) -> Inputs:
        return self.updates.inputs(ticket, self.shard, self._sampling)

    def release(self, ticket: Ticket, raw: RawUpdate) -> SideAnswer:
        update = clipped(raw.update, self.clip(ticket.task)).astype(raw.update.dtype, copy=False)
        return SideAnswer(Confined(update), raw.not_finite)


class NoisedRule(UpdateRule):
    """Updates that the client clips as a whole and noises itself, for everybody: each is a release."""

    def __init__(self, name: str, plan: ClientUpdate, shard: ShardRows, updates: Updates, home: Home) -> None:
        super().__init__(name, plan, shard, updates, home)
        assert plan.noise is not None, "a raw update has a rule of its own"
        self._home, self._planned = home, Query(WHOLE, plan.noise, 1.0)
        self._numbers = numbers_in(home, name, "noise")
        self._newest = self._due(self._planned, updates.objective.size, any_clip=plan.follows)

    def due(self, task: Any, charged: int) -> Due:
        self.check(task)
        query, size = self._query(task), task.answer_size
        if (query, size) != self._newest[:2]:  # nearly always it is as long as the one before
            self._newest = self._due(query, size)
        return self._newest[2]

    def _query(self, task: Any) -> Query:
        """Clip and noise of an update: those that are planned, or as much noise for the clip of the question."""
        if not self.plan.follows:
            return self._planned
        return replace(self._planned, mechanism=self._planned.mechanism.with_clip(task.bound))

    def _due(self, query: Query, size: int, *, any_clip: bool = False) -> tuple[Query, int, Due]:
        provided = self._provided(query, size, any_clip)
        return query, size, Due(Receipt(query.release(size), clip=query.mechanism.clip), self._once, provided)

    def number(self, task: LocalUpdate, charged: int) -> int:
        return charged

    def _provided(self, query: Query, size: int, any_clip: bool) -> Provided:
        if not query.mechanism.private:
            return NOTHING_PROVIDED
        of_sum = partial(Rounding.of_clipped_sum, self.updates.objective)
        return self._home.noise.provided(query, size, of_sum, any_clip=any_clip)

    def release(self, ticket: Ticket, raw: RawUpdate) -> SideAnswer:
        """The update, no longer than the bound, with noise that does not depend on it."""
        total = clipped(raw.update, self.clip(ticket.task)).astype(np.float64)
        answer = self._home.noise.noisy(
            total, 0.0, self._query(ticket.task), ticket.provided, self._numbers, ticket.number
        )
        return SideAnswer(Released(saturated(answer, raw.update.dtype)), raw.not_finite)


def clipped(update: FloatArray, bound: float) -> FloatArray:
    """``update`` [size], scaled in float64 to an L2 norm of at most ``bound``; all of it 0 where it is not finite.

    An infinite bound leaves it as it is.
    """
    if bound == np.inf:
        return update
    whole = update.astype(np.float64)
    norm = math.sqrt(np.vdot(whole, whole))
    if not math.isfinite(norm):
        return np.zeros_like(whole)
    return whole * (bound / norm) if norm > bound else whole
