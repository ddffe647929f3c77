"""Sums that are computed on as many examples for every release, however many were sampled.

After those of the sample come examples that nobody has, up to a public number (`sampling`), and what comes of them
is dropped. So neither the time that an answer takes, nor how soon the machine does something else meanwhile, such as
acknowledging a message, tells how many were sampled. The gradient of each example is computed in the same way whatever
its numbers are (`Objective.steady`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from gossamer.arrays import IndexArray
from gossamer.data.examples import Split
from gossamer.objectives.objective import Objective
from gossamer.privacy.sampling import provided_for
from gossamer.privacy.tasks import Gradient, Round, Swap
from gossamer.sides.home import Home, numbers_in
from gossamer.sides.machine import Answer, post_processed
from gossamer.sides.pool import Pool
from gossamer.sides.sums import InPieces, RoundSum, Ticket, Total, Turns


class Filled(InPieces):
    """Each sum alone, in pieces, and on no fewer examples than a public number.

    Parameters
    ----------
    objective : Objective
        Objective of the run.
    data : Split
        The party's training examples.
    count : int
        Number of examples of its shard: public.
    """

    def __init__(self, objective: Objective, data: Split, count: int) -> None:
        super().__init__(objective.steady(), data)
        self._count, self._nobody = count, nobody_like(data)

    def provided_for(self, ticket: Ticket) -> int:
        """Number of examples that the answer to ``ticket`` is computed on, unless more are sampled."""
        task = ticket.task
        until, steps = (task.until, task.steps) if isinstance(task, Round) else (1, 1)
        return provided_for(task.query.sampling, self._count, until, steps)

    def gradient(self, ticket: Ticket, rows: IndexArray, data: Split) -> Total:
        found = super().gradient(ticket, rows, data)
        self.fill(ticket, self.provided_for(ticket) - len(rows))
        return found

    def round(self, ticket: Ticket, turns: Turns, data: Split) -> RoundSum:
        found = super().round(ticket, turns, data)
        self.fill(ticket, self.provided_for(ticket) - int(np.count_nonzero(turns.slots < ticket.task.until)))
        return found

    def of_nobody(self, ticket: Ticket, count: int) -> Any:
        """The sum over no examples, and as long as over ``count``; what comes of these is dropped."""
        nothing = np.empty(0, np.int64)
        if isinstance(ticket.task, Gradient):
            total = super().gradient(ticket, nothing, self.data).total
        else:
            total = super().round(ticket, Turns(nothing, nothing), self.data).total
        self.fill(ticket, count)
        return total

    def fill(self, ticket: Ticket, count: int) -> None:
        """Compute on ``count`` examples more, if that is any."""
        if count <= 0:
            return
        first = np.zeros(count, np.int64)
        if isinstance(ticket.task, Round):
            # Each at another step: examples that share neither model nor step size are computed one by one.
            slots = np.arange(count) % max(ticket.task.until, 1)
            super().round(ticket, Turns(first, slots), self._nobody)
        else:
            super().gradient(ticket, first, self._nobody)


class TimedPool:
    """A pool of one party whose answers take equally long, so that they can have a deadline.

    Parameters
    ----------
    pool : Pool
        The data sides.
    sums : Filled
        Sums that they compute with.
    home : Home
        World that they live in.
    """

    def __init__(self, pool: Pool, sums: Filled, home: Home) -> None:
        self.pool, self._sums, self._home = pool, sums, home

    def admit(self, node: str, task: Any) -> Ticket:
        """Charge as `Pool.admit` does."""
        return self.pool.admit(node, task)

    def amended(self, ticket: Ticket, task: Any) -> Ticket:
        """Amend as `Pool.amended` does."""
        return self.pool.amended(ticket, task)

    def compute(self, tickets: Sequence[Ticket]) -> list[Answer]:
        """Compute as `Pool.compute` does."""
        return self.pool.compute(tickets)

    def releases(self, node: str) -> int:
        """Number of releases, as `Pool.releases` has it."""
        return self.pool.releases(node)

    def provided_for(self, ticket: Ticket) -> int:
        """Number of examples that an answer is computed on, unless more are sampled: a public number."""
        return self._sums.provided_for(ticket)

    def rehearse(self, ticket: Ticket, count: int) -> None:
        """Do all that an answer takes, on ``count`` examples that nobody has, and drop it.

        Nothing is charged and nothing of the shard is used.
        """
        ticket = ticket._replace(task=with_most_models(ticket.task))
        task, total = ticket.task, self._sums.of_nobody(ticket, count)
        numbers = numbers_in(self._home, ticket.side.name, "noise")
        answer = self._home.noise.noisy(total, 0.0, task.query, ticket.provided, numbers, ticket.number)
        if isinstance(task, Gradient):
            post_processed(answer, task, self._sums.objective.l2)


def with_most_models(task: Any) -> Any:
    """``task`` with as many models as its deadline provides for, from steps that lie as far apart as they can."""
    if not isinstance(task, Round):
        return task
    count = task.models_provided_for
    return replace(task, swaps=tuple(Swap(number * task.steps // count, task.model) for number in range(count)))


def nobody_like(data: Split) -> Split:
    """One made-up example of the form of ``data``: as many features, none of them zero, and the first target."""
    shape = (1, *data.features.shape[1:])
    features = np.random.default_rng(0).normal(size=shape).astype(data.features.dtype)
    targets = np.zeros(1, data.targets.dtype)
    return Split(sp.csr_array(features) if data.sparse else features, targets)
