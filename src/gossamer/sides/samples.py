"""Noisy sums over samples of a party's own examples, as they leave it: of gradients, and of rounds of local steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from gossamer.arrays import IndexArray
from gossamer.errors import SpecError
from gossamer.privacy.mechanisms import PairedGaussian
from gossamer.privacy.tasks import Gradient, Query, Round
from gossamer.sides.home import FloatNoise, Home, numbers_in, sampled
from gossamer.sides.ledger import Receipt
from gossamer.sides.machine import Due, Rule, SideAnswer
from gossamer.sides.plan import Samples
from gossamer.sides.sums import (
    DrawnTurns,
    Inputs,
    Noisy,
    Provided,
    Rounding,
    RoundSum,
    Sums,
    Ticket,
    Total,
    amended,
    post_processed,
    rates_of,
)
from gossamer.sides.window import GradientTerms, GradientWindow
from gossamer.vectors import Released


@dataclass(frozen=True, eq=False)
class ShardRows:
    """Rows of a party's examples.

    Attributes
    ----------
    rows : ndarray [examples] of int64
        Rows of the training split. Their number is public.
    blank : ndarray of int64
        Rows among them that hold nothing, as the slots of an audit whose coin says out: they count in the shard's size
        and are sampled, and have no gradient.
    """

    rows: IndexArray
    blank: IndexArray = field(default_factory=lambda: np.empty(0, np.int64))

    @classmethod
    def of(cls, rows: IndexArray, blank: IndexArray | None = None) -> Self:
        """A shard; of ``blank``, of any party's rows, those are blank that are in it."""
        return cls(rows) if blank is None else cls(rows, np.intersect1d(rows, blank))

    def check_whole(self) -> None:
        """Refuse blank rows."""
        if self.blank.size:
            raise SpecError("local updates are made on all examples of a shard, and none of its slots can be blank")


class SampleRule(Rule):
    """Noisy sums over samples of one party's examples."""

    def __init__(
        self, name: str, plan: Samples, shard: ShardRows, sums: Sums, home: Home, window: GradientWindow | None = None
    ) -> None:
        self._name, self.shard, self.sums, self.home, self.objective = name, shard, sums, home, sums.objective
        self._once = home.seed(name) is None
        self._noise, self._sampling = numbers_in(home, name, "noise"), numbers_in(home, name, "sampling")
        if plan.partners and self._once:
            raise SpecError(f"draws that {name} shares with others are for simulations; take independent noise")
        self._shared = [
            (one, numbers_in(home, " and ".join(sorted((name, one.name))), "shared noise")) for one in plan.partners
        ]
        self._window, self._place, self._size = window, None, self.objective.size
        if window is not None and type(home.noise) is FloatNoise and not self._once and not shard.blank.size:
            self._place = window.enter(name, shard.rows, self._sampling, self._noise)
        self._newest: tuple[Query | None, GradientTerms | None, Due] = None, None, Due(None)
        for query in plan.queries():
            home.noise.provided(query, self.objective.size, lambda query=query: self._rounding(query), any_clip=True)  # type: ignore[misc]

    def due(self, task: Any, charged: int) -> Due:
        if self._terms(task) is not None:
            return self._newest[2]
        return self._due(task)

    def _terms(self, task: Any) -> GradientTerms | None:
        """Numbers of a gradient that a window answers; None of what is answered alone."""
        if self._place is None or type(task) is not Gradient or task.model.values.size != self._size:
            return None
        if task.query is not self._newest[0]:  # nearly always it is the query of the gradient before
            self._newest = task.query, GradientTerms.of(task.query, self._place), self._due(task)
        return self._newest[1]

    def _due(self, task: Any) -> Due:
        if not isinstance(task, Gradient | Round):
            raise SpecError(f"{self._name} releases sums over its examples, found {type(task).__name__}")
        once = self._once
        if isinstance(task, Round):
            rates_of(task)
            once = True  # newer models may be swapped into it, so that a second answer could be another one
        return Due(Receipt(task.release, clip=task.query.mechanism.clip), once, self.provided(task))

    def provided(self, task: Gradient | Round) -> Provided:
        """Return what the noise of ``task`` is drawn with."""
        size = task.model.size if isinstance(task, Gradient) else task.answer_size
        return self.home.noise.provided(task.query, size, lambda: self._rounding(task.query, task))

    def amended(self, task: Any, became: Any) -> Round:
        if not isinstance(task, Round):
            raise SpecError(f"only rounds are amended, found {type(task).__name__}")
        return amended(task, became)

    def draw(self, ticket: Ticket) -> Inputs:
        """The examples of a release; of a round, with the step at which each takes its turn."""
        if self._window is not None and (terms := self._terms(ticket.task)) is not None:
            return Inputs(ticket, terms, self._window.answers)
        rows, sampling = self.shard.rows, ticket.task.query.sampling
        if isinstance(ticket.task, Gradient):
            drawn = rows[sampled(self._sampling, ticket.number, sampling, len(rows))]
            return Inputs(ticket, drawn[self._held(drawn)], self.sums.gradients)
        generator = self._sampling.at(ticket.number)
        drawn = sampling.draw(generator, len(rows))
        slots = sampling.slots(generator, len(drawn), ticket.task.steps)
        rows = rows[drawn]
        held = self._held(rows)
        return Inputs(ticket, DrawnTurns(rows[held], slots[held]), self.sums.rounds)

    def _held(self, rows: IndexArray) -> Any:
        """Index of those of ``rows`` that hold something."""
        return ~np.isin(rows, self.shard.blank) if self.shard.blank.size else slice(None)

    def release(self, ticket: Ticket, raw: Any) -> SideAnswer:
        return self._round(ticket, raw) if isinstance(ticket.task, Round) else self._gradient(ticket, raw)

    def _gradient(self, ticket: Ticket, raw: Total | Noisy) -> SideAnswer:
        """Noise on the clipped sum, then the mean, then the regulariser's gradient; and the noisy count, if asked."""
        task: Gradient = ticket.task
        if isinstance(raw, Noisy):
            answer = raw.answer
        else:
            answer = self.noisy(ticket, raw.total, raw.unclipped - raw.examples / 2)
        if not task.query.mechanism.private:
            np.nan_to_num(answer, copy=False)  # without a clip a sum can overflow: it saturates
        answer = post_processed(answer, task, self.objective.l2)
        return SideAnswer(Released(self.home.noise.finished(answer, self.objective.dtype)), raw.zeroed)

    def _round(self, ticket: Ticket, raw: RoundSum) -> SideAnswer:
        """Noise on every coordinate of the sum, then what is public."""
        answer = self.noisy(ticket, raw.total, 0.0)
        answer += raw.public
        np.nan_to_num(answer, copy=False)  # what nothing bounds can overflow: it saturates
        return SideAnswer(Released(self.home.noise.finished(answer, self.objective.dtype)), raw.zeroed)

    def noisy(self, ticket: Ticket, total: Any, centred: float) -> Any:
        """A sum with its noise, and the noisy count after it, if there is one."""
        query, law = ticket.task.query, ticket.task.query.mechanism
        found = self.home.noise.noisy(total, centred, query, ticket.provided, self._noise, ticket.number)
        # A release has the number of the neighbour's that shares the draw; one before the run shares none.
        for one, numbers in self._shared if isinstance(law, PairedGaussian) else ():
            if share := one.share(ticket.number) * (1 if self._name < one.name else -1):
                found += share * law.part(law.shared).noise(numbers.at(ticket.number), total.size, total.dtype)
        return found

    def _rounding(self, query: Query, task: Gradient | Round | None = None) -> Rounding:
        if isinstance(task, Round) and task.update == "clipped_sum":
            return Rounding.of_clipped_sum(self.objective)
        return Rounding.of(self.objective, query.sampling, len(self.shard.rows))
