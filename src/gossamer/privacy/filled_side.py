"""A deployed data side that computes on as many examples for every release, however many were sampled.

After those of the sample it goes on with examples that nobody has, up to a public number (`release_times`), and drops
what comes of them. So neither the time that an answer takes, nor how soon the machine does something else meanwhile,
such as acknowledging a message, tells how many were sampled. The gradient of each example is computed in the same way
whatever its numbers are (`Objective.steady`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from gossamer.data.split import Split
from gossamer.objectives.objective import FloatArray, IndexArray, Objective
from gossamer.privacy.data_side import post_processed
from gossamer.privacy.deployed_side import DeployedSide, Ticket
from gossamer.privacy.ledger import AnyLedger
from gossamer.privacy.release_times import provided_for
from gossamer.privacy.round_answers import RoundSum, Turns
from gossamer.privacy.tasks import Gradient, Query, Round, Swap


class FilledSide(DeployedSide):
    """The data side of one party whose answers all take equally long; see `DeployedSide`."""

    def __init__(
        self,
        ledger: AnyLedger,
        shard: IndexArray,
        objective: Objective,
        data: Split,
        planned: Iterable[Query] = (),
    ) -> None:
        super().__init__(ledger, shard, objective.steady(), data, planned)
        self._nobody = nobody_like(data)

    def provided_for(self, ticket: Ticket) -> int:
        """On how many examples the answer to ``ticket`` is computed, unless more are sampled."""
        task = ticket.task
        until, steps = (task.until, task.steps) if isinstance(task, Round) else (1, 1)
        return provided_for(task.query.sampling, len(self.shard), until, steps)

    def rehearse(self, ticket: Ticket, count: int) -> None:
        """Do all that an answer takes, on ``count`` examples that nobody has.

        Nothing is charged and nothing of the shard is used; what comes of it is dropped.
        """
        ticket = replace(ticket, task=with_most_models(ticket.task))
        task = ticket.task
        empty = Turns(self.shard[:0], self.shard[:0])
        if isinstance(task, Gradient):
            total, _, _ = super()._clipped_sum(ticket, empty.rows, self.data)
        else:
            total = super()._round_sum(ticket, task, empty, self.data).total
        self._fill(ticket, count)
        answer = self._noisy(ticket, total, 0.0)
        if isinstance(task, Gradient):
            post_processed(answer, task, self.objective.l2)

    def _clipped_sum(self, ticket: Ticket, rows: IndexArray, data: Split) -> tuple[FloatArray, int, int]:
        found = super()._clipped_sum(ticket, rows, data)
        self._fill(ticket, self.provided_for(ticket) - len(rows))
        return found

    def _round_sum(self, ticket: Ticket, task: Round, turns: Turns, data: Split) -> RoundSum:
        found = super()._round_sum(ticket, task, turns, data)
        self._fill(ticket, self.provided_for(ticket) - int(np.count_nonzero(turns.slots < task.until)))
        return found

    def _fill(self, ticket: Ticket, count: int) -> None:
        """Compute on ``count`` examples more, if that is any."""
        if count <= 0:
            return
        first = np.zeros(count, np.int64)
        if isinstance(ticket.task, Round):
            # Each at another step: examples that share neither model nor step size are computed one by one.
            slots = np.arange(count) % max(ticket.task.until, 1)
            super()._round_sum(ticket, ticket.task, Turns(first, slots), self._nobody)
        else:
            super()._clipped_sum(ticket, first, self._nobody)


def models_provided_for(task: Any) -> int:
    """How many models a deadline provides for where ``task`` has so many: the next power of two."""
    return 1 << (len(task.swaps) - 1).bit_length() if isinstance(task, Round) else 1


def with_most_models(task: Any) -> Any:
    """``task`` with as many models as its deadline provides for, from steps that lie as far apart as they can."""
    if not isinstance(task, Round):
        return task
    count = models_provided_for(task)
    return replace(task, swaps=tuple(Swap(number * task.steps // count, task.model) for number in range(count)))


def nobody_like(data: Split) -> Split:
    """One made-up example of the form of ``data``: as many features, none of them zero, and the first target."""
    shape = (1, *data.features.shape[1:])
    features = np.random.default_rng(0).normal(size=shape).astype(data.features.dtype)
    targets = np.zeros(1, data.targets.dtype)
    return Split(sp.csr_array(features) if data.sparse else features, targets)
