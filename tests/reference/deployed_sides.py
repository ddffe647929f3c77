"""The deployed data sides that `gossamer.sides` was measured against: references for its bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np

from gossamer.arrays import FloatArray, IndexArray
from gossamer.data.examples import Split
from gossamer.errors import BudgetSpent, SpecError
from gossamer.objectives.objective import Objective
from gossamer.privacy.exact.secret_randomness import FreshNumbers, SecretRandomness
from gossamer.privacy.mechanisms import Gaussian, provided_for
from gossamer.privacy.streams.correlated_noise import StreamRecord, StreamRecords
from gossamer.privacy.streams.graph_bounds import UpdateBound
from gossamer.privacy.streams.records import RecordNoise
from gossamer.privacy.tasks import Gradient, Query, Round
from gossamer.protocol.effects import Release
from gossamer.sides.machine import SideAnswer
from gossamer.sides.sums import (
    DrawnTurns,
    GridQuery,
    Rounding,
    RoundSum,
    amended,
    nobody_like,
    post_processed,
    rates_of,
    round_sum,
)
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
    """The data side of one party, a `sides.answers.Computer`.

    Parameters
    ----------
    ledger : Ledger
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
        ledger: Any,
        shard: IndexArray,
        objective: Objective,
        data: Split,
        planned: Iterable[Query] = (),
    ) -> None:
        self.ledger, self.shard, self.objective, self.data = ledger, shard, objective, data
        self._random, self._generator = SecretRandomness(), FreshNumbers().at(0)
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

    def compute(self, tickets: Sequence[Ticket]) -> list[SideAnswer]:
        """The answers to ``tickets``, in order.

        Raises
        ------
        SpecError
            If one was answered before.
        """
        return [self._answer(ticket) for ticket in tickets]

    def _answer(self, ticket: Ticket) -> SideAnswer:
        if ticket.number not in self._open:
            raise SpecError(
                f"a charge is answered once, found task {ticket.task.id} of {self.ledger.owner} again: the second "
                "answer would be another release"
            )
        self._open.remove(ticket.number)
        return self._round(ticket) if isinstance(ticket.task, Round) else self._gradient(ticket)

    def _gradient(self, ticket: Ticket) -> SideAnswer:
        task = ticket.task
        assert isinstance(task, Gradient)
        rows: IndexArray = self.shard[task.query.sampling.draw(self._generator, len(self.shard))]
        total, zeroed, unclipped = self._clipped_sum(ticket, rows, self.data)
        noisy = self._noisy(ticket, total, unclipped - len(rows) / 2)
        answer = post_processed(noisy, task, self.objective.l2)
        return SideAnswer(Released(_saturated(answer, self.objective.dtype)), zeroed)

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

    def _round(self, ticket: Ticket) -> SideAnswer:
        task = ticket.task
        assert isinstance(task, Round)
        sampling = task.query.sampling
        drawn = sampling.draw(self._generator, len(self.shard))
        turns = DrawnTurns(self.shard[drawn], sampling.slots(self._generator, len(drawn), task.steps))
        found = self._round_sum(ticket, task, turns, self.data)
        answer = self._noisy(ticket, found.total, 0.0)
        answer += found.public
        return SideAnswer(Released(_saturated(answer, self.objective.dtype)), found.zeroed)

    def _round_sum(self, ticket: Ticket, task: Round, turns: DrawnTurns, data: Split) -> RoundSum:
        """The sum of the round; of a ``batch``, whose examples do not depend on each other, in pieces."""
        # Only examples whose turn came: were there pieces for others too, time would tell how many were drawn.
        reached = turns.slots < task.until
        turns = DrawnTurns(turns.rows[reached], turns.slots[reached])
        if not task.query.mechanism.private or task.update != "batch" or len(turns.rows) <= ticket.rounding.piece:
            return round_sum(task, turns, self.objective, data)
        parts = [
            round_sum(task, DrawnTurns(turns.rows[piece], turns.slots[piece]), self.objective, data)
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


class FilledSide(DeployedSide):
    """The data side of one party whose answers all take equally long; see `DeployedSide`."""

    def __init__(self, ledger: Any, shard: IndexArray, objective: Objective, *rest: Any) -> None:
        super().__init__(ledger, shard, objective.steady(), *rest)
        self._nobody = nobody_like(self.data)

    def provided_for(self, ticket: Ticket) -> int:
        """On how many examples the answer to ``ticket`` is computed, unless more are sampled."""
        task = ticket.task
        until, steps = (task.until, task.steps) if isinstance(task, Round) else (1, 1)
        return provided_for(task.query.sampling, len(self.shard), until, steps)

    def rehearse(self, ticket: Ticket, count: int) -> None:
        """Do all that an answer takes, on ``count`` examples that nobody has.

        Nothing is charged and nothing of the shard is used; what comes of it is dropped.
        """
        task = ticket.task
        empty = DrawnTurns(self.shard[:0], self.shard[:0])
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

    def _round_sum(self, ticket: Ticket, task: Round, turns: DrawnTurns, data: Split) -> RoundSum:
        found = super()._round_sum(ticket, task, turns, data)
        self._fill(ticket, self.provided_for(ticket) - int(np.count_nonzero(turns.slots < task.until)))
        return found

    def _fill(self, ticket: Ticket, count: int) -> None:
        """Compute on ``count`` examples more, if that is any."""
        if count <= 0:
            return
        first = np.zeros(count, np.int64)
        if isinstance(ticket.task, Round):
            slots = np.arange(count) % max(ticket.task.until, 1)
            super()._round_sum(ticket, ticket.task, DrawnTurns(first, slots), self._nobody)
        else:
            super()._clipped_sum(ticket, first, self._nobody)


@dataclass(frozen=True, slots=True)
class AdmittedRecord:
    """A record that is charged, or was before."""

    effect: Release


class Forgetful:
    """Records of this process alone."""

    def kept(self) -> Sequence[StreamRecord]:
        return ()

    def keep(self, record: StreamRecord, most: int) -> None:
        pass


class DeployedUnitSide:
    """The data side of one unit's server, a `sides.answers.Computer`.

    Parameters
    ----------
    ledger : UnitLedger
        Of the unit, with its stream.
    size : int
        Coordinates of a record.
    bound : UpdateBound or None
        How far one change of the data moves a round's update; None where nothing is proved.
    longest : float
        The most L2 norm of a round's update, that of one change left aside.
    records : StreamRecords, optional
        Where the last records are kept. By default in this process alone: after a restart only independent noise goes
        on, and with any other the first release is refused.

    Raises
    ------
    SpecError
        If the noise is out of the range of the grid.
    """

    def __init__(
        self,
        ledger: Any,
        size: int,
        bound: UpdateBound | None,
        longest: float,
        records: StreamRecords | None = None,
    ) -> None:
        self.ledger, self._size = ledger, size
        noise = ledger.stream.noise
        moved, agents = (None, 1) if bound is None else (bound.moved, bound.agents_sampled)
        self._noise = None if noise is None else RecordNoise(noise, size, moved, agents, longest)
        self._needed = 0 if self._noise is None else self._noise.needed
        self._records: StreamRecords = Forgetful() if records is None else records
        self._past = list(self._records.kept()) if self._needed else []

    def admit(self, node: str, effect: Release) -> AdmittedRecord:
        """Charge the next record; the last one, asked for again, was charged before.

        Raises
        ------
        BudgetSpent
            If all records of the stream are spent, or those that the next one is made of are lost.
        SpecError
            If this is neither the next record nor the last.
        """
        charged = self.ledger.releases
        if effect.id not in (charged, charged - 1) or effect.id < 0:
            raise SpecError(f"{self.ledger.owner}: the next record is {charged}, found {effect.id}")
        if not self._answered(effect.id):
            self._before(effect.id)
        if effect.id == charged:
            self.ledger.charge()
        return AdmittedRecord(effect)

    def amended(self, ticket: Any, task: Any) -> Any:
        raise SpecError(f"servers of a unit run no rounds, found {type(task).__name__}")

    def compute(self, tickets: Sequence[AdmittedRecord]) -> list[SideAnswer]:
        return [self._release(ticket.effect) for ticket in tickets]

    def releases(self, node: str) -> int:
        return self.ledger.releases

    def _release(self, effect: Release) -> SideAnswer:
        """The state with the record's noise; with the very same bytes if it was answered before.

        Raises
        ------
        SpecError
            If the state is another than before: two states with the same noise give their difference away.
        """
        values = effect.vector.values
        state: FloatArray = values.astype(np.float64)
        if not self._answered(effect.id):
            before = self._before(effect.id)
            record = StreamRecord(effect.id, state, state if self._noise is None else self._noise.answer(state, before))
            if self._needed:
                self._records.keep(record, self._needed)
            self._past = [*before, record][-max(self._needed, 1) :]
        kept = self._past[-1]
        if kept.state.tobytes() != state.tobytes():
            raise SpecError(f"{self.ledger.owner}: record {effect.id} was another state's; its noise is used once")
        with np.errstate(over="ignore"):
            answer = kept.answer.astype(values.dtype)
        return SideAnswer(Released(np.nan_to_num(answer, copy=False)))  # a value out of range saturates

    def _answered(self, number: int) -> bool:
        """Whether a record has an answer, which is kept."""
        return bool(self._past) and self._past[-1].number == number

    def _before(self, number: int) -> list[StreamRecord]:
        """The records that one is made of.

        Raises
        ------
        BudgetSpent
            If they are lost.
        """
        wanted = list(range(max(number - self._needed, 0), number))
        found = [record for record in self._past if record.number in wanted]
        if [record.number for record in found] != wanted:
            raise BudgetSpent(
                f"{self.ledger.owner}: release refused: record {number} goes on from records before it, which ended "
                "with an earlier process; a new stream of noise is not in the plan"
            )
        return found
