"""Computation of clipped sums over samples: all of a call together, or each alone and in pieces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from gossamer.arrays import FloatArray, IndexArray
from gossamer.data.examples import Split
from gossamer.objectives.objective import Objective
from gossamer.privacy.tasks import Gradient, Round
from gossamer.sides.round_answers import RoundSum, Turns, round_sum
from gossamer.sides.sum_rounding import GridQuery, Rounding


@dataclass(frozen=True, slots=True)
class Provided:
    """Provisions for one release's sum and noise: public, and fixed before its charge.

    Attributes
    ----------
    rounding : Rounding or None
        Rounding of the sum; None where it is not covered.
    grid : GridQuery or None
        The noise; None for laws that are drawn in floating point, and for none.
    """

    rounding: Rounding | None = None
    grid: GridQuery | None = None


class Named(Protocol):
    """A data side, as far as it has a name."""

    @property
    def name(self) -> str:
        """Name of the party."""
        ...


class Charged(Protocol):
    """A task whose charge stands, such as a `machine.Ticket`."""

    @property
    def side(self) -> Named:
        """Side that charged it."""
        ...

    @property
    def number(self) -> int:
        """Number that its randomness is keyed by."""
        ...

    @property
    def task(self) -> Any:
        """Task as it is by now."""
        ...

    @property
    def provided(self) -> Provided:
        """Provisions for its sum and noise."""
        ...


class Total(NamedTuple):
    """Raw: what a batch gave. The clipped sum [size], and of how many ``examples`` which were zeroed or not clipped."""

    total: FloatArray
    zeroed: int
    unclipped: int
    examples: int


class Noisy(NamedTuple):
    """Sum of a batch with its noise already on it, and after it the noisy count, if one is asked for: [size] or one
    more.

    How many gradients in it were ``zeroed`` is raw.
    """

    answer: FloatArray
    zeroed: int


class Batch(NamedTuple):
    """A ticket of a gradient with the rows that were drawn for it."""

    ticket: Charged
    rows: IndexArray


class Run(NamedTuple):
    """A ticket of a round with the examples that were drawn for it."""

    ticket: Charged
    turns: Turns


class Sums(Protocol):
    """Computes what is raw, of any number of tickets."""

    @property
    def objective(self) -> Objective:
        """Common to all."""
        ...

    def gradients(self, asked: Sequence[Batch]) -> Sequence[Total | Noisy]:
        """The clipped sums of gradients; with noise only where a home draws it there."""
        ...

    def rounds(self, asked: Sequence[Run]) -> list[RoundSum]:
        """Compute the sums of rounds of local steps."""
        ...


class Together:
    """All gradients of a call in one, which is where a simulation's speed comes from."""

    def __init__(self, objective: Objective, data: Split) -> None:
        self.objective, self._data = objective, data
        self._models = np.empty((0, objective.size), objective.dtype)  # reused from call to call

    def gathered(self, asked: Sequence[Batch]) -> tuple[FloatArray, list[IndexArray], FloatArray]:
        """Models [width, size], which the next call overwrites, batches and clips [width]."""
        if len(self._models) < len(asked):
            self._models = np.empty((len(asked), self.objective.size), self.objective.dtype)
        models = self._models[: len(asked)]
        np.stack([item.ticket.task.model.values for item in asked], out=models)
        batches = [item.rows for item in asked]
        return models, batches, np.array([item.ticket.task.query.mechanism.clip for item in asked])

    def gradients(self, asked: Sequence[Batch]) -> Sequence[Total | Noisy]:
        models, batches, clips = self.gathered(asked)
        found = self.objective.clipped_gradients(models, self._data, batches, clips)
        sums = zip(found.sums, found.zeroed.tolist(), found.unclipped.tolist(), map(len, batches), strict=True)
        return [Total(*row) for row in sums]

    def rounds(self, asked: Sequence[Run]) -> list[RoundSum]:
        return [round_sum(item.ticket.task, item.turns, self.objective, self._data) for item in asked]


class InPieces:
    """Each sum alone, in pieces that are added in float64, so that its rounding is what was provided for."""

    def __init__(self, objective: Objective, data: Split) -> None:
        self.objective, self.data = objective, data

    def gradients(self, asked: Sequence[Batch]) -> list[Total]:
        return [self.gradient(item.ticket, item.rows, self.data) for item in asked]

    def rounds(self, asked: Sequence[Run]) -> list[RoundSum]:
        return [self.round(item.ticket, item.turns, self.data) for item in asked]

    def gradient(self, ticket: Charged, rows: IndexArray, data: Split) -> Total:
        """The sum over ``rows`` of ``data``."""
        task: Gradient = ticket.task
        models, clip = task.model.values[None], task.query.mechanism.clip
        pieces = (
            [rows[piece] for piece in _rounding(ticket).pieces(len(rows))] if task.query.mechanism.private else [rows]
        )
        total, counts = np.zeros(self.objective.size), np.zeros(2, np.int64)
        for piece in pieces:
            found = self.objective.clipped_gradients(models, data, [piece], clip)
            total = found.sums[0] if len(pieces) == 1 else total + found.sums[0]
            counts += found.zeroed[0], found.unclipped[0]
        return Total(total, int(counts[0]), int(counts[1]), len(rows))

    def round(self, ticket: Charged, turns: Turns, data: Split) -> RoundSum:
        """The sum of a round; of a ``batch``, whose examples do not depend on each other, in pieces."""
        task: Round = ticket.task
        # Only examples whose turn came: were there pieces for others too, time would tell how many were drawn.
        reached = turns.slots < task.until
        turns = Turns(turns.rows[reached], turns.slots[reached])
        rounding = _rounding(ticket)
        if not task.query.mechanism.private or task.update != "batch" or len(turns.rows) <= rounding.piece:
            return round_sum(task, turns, self.objective, data)
        parts = [
            round_sum(task, Turns(turns.rows[piece], turns.slots[piece]), self.objective, data)
            for piece in rounding.pieces(len(turns.rows))
        ]
        total = np.stack([part.total for part in parts]).sum(axis=0, dtype=np.float64)
        return RoundSum(total, sum(part.zeroed for part in parts), parts[0].public)


def _rounding(ticket: Charged) -> Rounding:
    rounding = ticket.provided.rounding
    assert rounding is not None, "pieces need a home that provides for their rounding"
    return rounding
