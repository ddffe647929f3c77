"""The data side of one deployed party: its shard, its ledger, and randomness that nobody can repeat.

It does what `data_side` does, with other numbers. Samples and noise come from the operating system
(`secret_generator`), fresh at every call. Nothing random is kept, so there is nothing to store, or to share with
another release. Gaussian noise is drawn on a grid (`grid_query`), with room for the rounding of the sum
(`sum_rounding`); other laws are drawn in floating point, and the guarantee says so.

A task is charged before anything is drawn for it, and durably where the ledger is durable. A crash after that leaves
the charge. Each charge is answered once: a second answer would have noise of its own, and be a second release.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count

import numpy as np

from gossamer.data.split import Split
from gossamer.errors import SpecError
from gossamer.objectives.objective import FloatArray, IndexArray, Objective
from gossamer.privacy.data_side import Answer, post_processed
from gossamer.privacy.grid_query import GridQuery
from gossamer.privacy.ledger import AnyLedger
from gossamer.privacy.mechanisms import Gaussian
from gossamer.privacy.round_answers import RoundSum, Turns, amended, rates_of, round_sum
from gossamer.privacy.secret_generator import secret_generator
from gossamer.privacy.secret_randomness import SecretRandomness
from gossamer.privacy.sum_rounding import Rounding
from gossamer.privacy.tasks import Gradient, Query, Round
from gossamer.vectors import Released


@dataclass(frozen=True, slots=True)
class Ticket:
    """A task whose release is charged.

    Attributes
    ----------
    number : int
        Of the charge, in this process.
    task : Gradient or Round
        As it is by now.
    rounding : Rounding
        What is provided for in its sum.
    grid : GridQuery or None
        Its noise; None for laws that are drawn in floating point, and for none.
    """

    number: int
    task: Gradient | Round
    rounding: Rounding
    grid: GridQuery | None


class DeployedSide:
    """The data side of one party, a `data_side.Computer`.

    Parameters
    ----------
    ledger : AnyLedger
        Of the party's data; durable where that is promised.
    shard : ndarray [examples] of int64
        Rows of ``data`` that belong to it. How many is public.
    objective : Objective
        Common to all parties.
    data : Split
        Its training examples.
    planned : iterable of Query
        What it will be asked, to find out at once whether the noise can be drawn.

    Raises
    ------
    SpecError
        If the noise of a planned query is out of the range of the grid.
    """

    def __init__(
        self,
        ledger: AnyLedger,
        shard: IndexArray,
        objective: Objective,
        data: Split,
        planned: Iterable[Query] = (),
    ) -> None:
        self.ledger, self.shard, self.objective, self.data = ledger, shard, objective, data
        self._random, self._generator = SecretRandomness(), secret_generator()
        self._numbers, self._open = count(), set[int]()
        for query in planned:
            self._grid(query, objective.size, self._rounding(query), any_clip=True)

    # Before anything is drawn

    def admit(self, node: str, task: Gradient | Round) -> Ticket:
        """Charge ``task``.

        Raises
        ------
        BudgetSpent
            If the ledger does not cover it.
        SpecError
            If its noise cannot be drawn, or the step sizes of a round are not what its kind allows; nothing is charged.
        """
        if isinstance(task, Round):
            rates_of(task)
        rounding = self._rounding(task.query, task)
        size = task.model.size if isinstance(task, Gradient) else task.answer_size
        ticket = Ticket(next(self._numbers), task, rounding, self._grid(task.query, size, rounding))
        self.ledger.charge(task.release)
        self._open.add(ticket.number)
        return ticket

    def amended(self, ticket: Ticket, task: Round) -> Ticket:
        """What was admitted, now that the round has become ``task``.

        Raises
        ------
        SpecError
            If ``task`` is another round than the one that was admitted.
        """
        assert isinstance(ticket.task, Round)
        return replace(ticket, task=amended(ticket.task, task))

    def releases(self, node: str) -> int:
        return self.ledger.releases

    def _rounding(self, query: Query, task: Gradient | Round | None = None) -> Rounding:
        if isinstance(task, Round) and task.update == "clipped_sum":
            return Rounding.of_clipped_sum(self.objective)
        return Rounding.of(self.objective, query.sampling, len(self.shard))

    def _grid(self, query: Query, size: int, rounding: Rounding, *, any_clip: bool = False) -> GridQuery | None:
        if not isinstance(query.mechanism, Gaussian):
            return None
        return GridQuery.of(query.mechanism, size, rounding, query.count_share, any_clip=any_clip)

    # The release

    def compute(self, tickets: Sequence[Ticket]) -> list[Answer]:
        """The answers to ``tickets``, in order.

        Raises
        ------
        SpecError
            If one was answered before.
        """
        return [self._answer(ticket) for ticket in tickets]

    def _answer(self, ticket: Ticket) -> Answer:
        if ticket.number not in self._open:
            raise SpecError(
                f"a charge is answered once, found task {ticket.task.id} of {self.ledger.owner} again: the second "
                "answer would be another release"
            )
        self._open.remove(ticket.number)
        return self._round(ticket) if isinstance(ticket.task, Round) else self._gradient(ticket)

    def _gradient(self, ticket: Ticket) -> Answer:
        task = ticket.task
        assert isinstance(task, Gradient)
        rows: IndexArray = self.shard[task.query.sampling.draw(self._generator, len(self.shard))]
        total, zeroed, unclipped = self._clipped_sum(ticket, rows, self.data)
        noisy = self._noisy(ticket, total, unclipped - len(rows) / 2)
        answer = post_processed(noisy, task, self.objective.l2)
        return Answer(Released(_saturated(answer, self.objective.dtype)), zeroed)

    def _clipped_sum(self, ticket: Ticket, rows: IndexArray, data: Split) -> tuple[FloatArray, int, int]:
        """Raw: the sum of clipped gradients, how many counted as zero, and how many were not clipped."""
        models, clip = ticket.task.model.values[None], ticket.task.query.mechanism.clip
        private = ticket.task.query.mechanism.private
        pieces = [rows[piece] for piece in ticket.rounding.pieces(len(rows))] if private else [rows]
        total, counts = np.zeros(self.objective.size), np.zeros(2, np.int64)
        for piece in pieces:
            found = self.objective.clipped_gradients(models, data, [piece], clip)
            total = found.sums[0] if len(pieces) == 1 else total + found.sums[0]
            counts += found.zeroed[0], found.unclipped[0]
        return total, int(counts[0]), int(counts[1])

    def _round(self, ticket: Ticket) -> Answer:
        task = ticket.task
        assert isinstance(task, Round)
        sampling = task.query.sampling
        drawn = sampling.draw(self._generator, len(self.shard))
        turns = Turns(self.shard[drawn], sampling.slots(self._generator, len(drawn), task.steps))
        found = self._round_sum(ticket, task, turns, self.data)
        answer = self._noisy(ticket, found.total, 0.0)
        answer += found.public
        return Answer(Released(_saturated(answer, self.objective.dtype)), found.zeroed)

    def _round_sum(self, ticket: Ticket, task: Round, turns: Turns, data: Split) -> RoundSum:
        """The sum of the round; of a ``batch``, whose examples do not depend on each other, in pieces."""
        # Only examples whose turn came: were there pieces for others too, time would tell how many were drawn.
        reached = turns.slots < task.until
        turns = Turns(turns.rows[reached], turns.slots[reached])
        if not task.query.mechanism.private or task.update != "batch" or len(turns.rows) <= ticket.rounding.piece:
            return round_sum(task, turns, self.objective, data)
        parts = [
            round_sum(task, Turns(turns.rows[piece], turns.slots[piece]), self.objective, data)
            for piece in ticket.rounding.pieces(len(turns.rows))
        ]
        total = np.stack([part.total for part in parts]).sum(axis=0, dtype=np.float64)
        return RoundSum(total, sum(part.zeroed for part in parts), parts[0].public)

    def _noisy(self, ticket: Ticket, total: FloatArray, centred: float) -> FloatArray:
        """The sum with its noise, and the count after it, if it is asked for."""
        query = ticket.task.query
        if ticket.grid is not None:
            return ticket.grid.release(total, centred, self._random.words)
        answer = query.mechanism.noise(self._generator, total.size, total.dtype)
        answer += total
        np.nan_to_num(answer, copy=False)  # without a clip a sum can overflow: it saturates
        # A count goes with Gaussian noise or none, and here there is none.
        return np.append(answer, answer.dtype.type(centred)) if query.count_share else answer


def _saturated(answer: FloatArray, dtype: np.dtype[np.floating]) -> FloatArray:
    """The answer in the objective's type; what is out of its range saturates."""
    with np.errstate(over="ignore"):
        found = answer.astype(dtype)
    return np.nan_to_num(found, copy=False)
