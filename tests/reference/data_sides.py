"""The simulated data sides that `gossamer.sides` was measured against: references for its bytes, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from tests.reference.ledgers import Ledger

from gossamer.arrays import IndexArray
from gossamer.data.examples import Split
from gossamer.errors import SpecError
from gossamer.objectives.objective import Objective
from gossamer.privacy.tasks import Gradient, Round
from gossamer.randomness import Stream
from gossamer.sides.home import sampled
from gossamer.sides.machine import SideAnswer
from gossamer.sides.sums import DrawnTurns, RoundSum, amended, post_processed, rates_of, round_sum
from gossamer.vectors import Released


@dataclass(frozen=True, slots=True)
class Admitted:
    """A task whose release is charged, under the number that its randomness is keyed by."""

    side: DataSide
    task: Gradient
    number: int


@dataclass(frozen=True, slots=True)
class AdmittedRound:
    """A round whose release is charged, as it is or as it became since."""

    side: DataSide
    task: Round
    number: int

    def amended(self, task: Round) -> AdmittedRound:
        """What it is now that the round has become ``task``.

        Raises
        ------
        SpecError
            If ``task`` is another round than the one that was admitted.
        """
        return replace(self, task=amended(self.task, task))


class DataSide:
    """The data side of one simulated node.

    Parameters
    ----------
    ledger : Ledger
        Of the data's owner.
    shard : ndarray [examples] of int64
        Rows of the training split that belong to this node.
    seed : int
        Of reproducible sampling and noise; good for simulation only.
    """

    __slots__ = ("_noise", "_open", "_sampling", "ledger", "shard")

    def __init__(self, ledger: Ledger, shard: IndexArray, seed: int) -> None:
        self.ledger = ledger
        self.shard = shard
        self._sampling = Stream(seed, ledger.owner, "sampling")
        self._noise = Stream(seed, ledger.owner, "noise")
        self._open: set[int] = set()  # rounds that are admitted and not answered

    def admit(self, task: Gradient | Round) -> Admitted | AdmittedRound:
        """Charge ``task``.

        Raises
        ------
        BudgetSpent
            If the ledger does not cover it.
        SpecError
            If the step sizes of a round are not what its kind allows; nothing is charged.
        """
        if isinstance(task, Round):
            rates_of(task)
        self.ledger.charge(task.release)
        # Our own count, not the node's id: no node can make two releases share their noise.
        number = self.ledger.releases
        if isinstance(task, Gradient):
            return Admitted(self, task, number)
        self._open.add(number)
        return AdmittedRound(self, task, number)

    def batch(self, admitted: Admitted) -> IndexArray:
        """Rows of the training split, [batch]."""
        sampling = admitted.task.query.sampling
        # Samples have tests of their own (`tests/unit/test_philox.py`); here they are only those of the same number.
        rows: IndexArray = self.shard[sampled(self._sampling, admitted.number, sampling, len(self.shard))]
        return rows

    def release(self, admitted: Admitted, gradients: Sums, l2: float) -> SideAnswer:
        """Noise on the clipped sum, then the mean, then the regulariser's gradient; and the noisy count, if asked."""
        task, total = admitted.task, gradients.total
        query, size = task.query, total.size
        law, count_sd = query.mechanism.divided(query.count_share)
        generator = self._noise.at(admitted.number)
        answer = np.empty(task.answer_size, total.dtype)
        answer[:size] = law.noise(generator, size, total.dtype)
        answer[:size] += total
        if query.count_share:
            answer[size] = gradients.unclipped - gradients.examples / 2 + count_sd * generator.standard_normal()
        if not law.private:
            np.nan_to_num(answer, copy=False)  # without a clip a sum can overflow: it saturates
        return SideAnswer(Released(post_processed(answer, task, l2)), gradients.zeroed)

    def turns(self, admitted: AdmittedRound) -> DrawnTurns:
        """The examples of a round, drawn once.

        Raises
        ------
        SpecError
            If the round was answered before: a second answer, at other models, would have the same noise.
        """
        if admitted.number not in self._open:
            raise SpecError(f"a round is answered once, found round {admitted.task.id} of {self.ledger.owner} again")
        self._open.remove(admitted.number)
        sampling, generator = admitted.task.query.sampling, self._sampling.at(admitted.number)
        drawn = sampling.draw(generator, len(self.shard))
        return DrawnTurns(self.shard[drawn], sampling.slots(generator, len(drawn), admitted.task.steps))

    def release_round(self, admitted: AdmittedRound, found: RoundSum) -> SideAnswer:
        """Noise on every coordinate of the sum, then what is public."""
        law, generator = admitted.task.query.mechanism, self._noise.at(admitted.number)
        answer = law.noise(generator, admitted.task.answer_size, found.total.dtype)
        answer += found.total
        answer += found.public
        np.nan_to_num(answer, copy=False)  # what nothing bounds can overflow: it saturates
        return SideAnswer(Released(answer), found.zeroed)


class Sums(NamedTuple):
    """Raw: what a batch gave. The clipped sum [size], and of how many ``examples`` which were zeroed or not clipped."""

    total: npt.NDArray[np.floating]
    zeroed: int
    unclipped: int
    examples: int


class DataSides:
    """The data sides of all simulated nodes, which compute together.

    Parameters
    ----------
    sides : dict of str to DataSide
        By node.
    objective : Objective
        Common to all.
    data : Split
        The training split that all shards are rows of.
    """

    def __init__(self, sides: dict[str, DataSide], objective: Objective, data: Split) -> None:
        self.sides = sides
        self.objective = objective
        self.data = data
        self._models = np.empty((0, objective.size), objective.dtype)  # reused from call to call

    def admit(self, node: str, task: Gradient | Round) -> Admitted | AdmittedRound:
        return self.sides[node].admit(task)

    def amended(self, ticket: AdmittedRound, task: Round) -> AdmittedRound:
        return ticket.amended(task)

    def compute(self, tickets: Sequence[Admitted | AdmittedRound]) -> list[SideAnswer]:
        gradients = [ticket for ticket in tickets if isinstance(ticket, Admitted)]
        answers = iter(self._gradients(gradients) if gradients else ())
        return [next(answers) if isinstance(ticket, Admitted) else self._round(ticket) for ticket in tickets]

    def _round(self, ticket: AdmittedRound) -> SideAnswer:
        found = round_sum(ticket.task, ticket.side.turns(ticket), self.objective, self.data)
        return ticket.side.release_round(ticket, found)

    def _gradients(self, tickets: Sequence[Admitted]) -> list[SideAnswer]:
        if len(self._models) < len(tickets):
            self._models = np.empty((len(tickets), self.objective.size), self.objective.dtype)
        models = self._models[: len(tickets)]
        np.stack([item.task.model.values for item in tickets], out=models)
        batches = [item.side.batch(item) for item in tickets]
        clips = np.array([item.task.query.mechanism.clip for item in tickets])
        found = self.objective.clipped_gradients(models, self.data, batches, clips)
        sums = zip(found.sums, found.zeroed.tolist(), found.unclipped.tolist(), map(len, batches), strict=True)
        return [item.side.release(item, Sums(*row), self.objective.l2) for item, row in zip(tickets, sums, strict=True)]

    def releases(self, node: str) -> int:
        return self.sides[node].ledger.releases


class BlankingSide(DataSide):
    """A data side some of whose slots are blank: they count in the shard's size and are sampled, and hold nothing.

    Parameters
    ----------
    blank : ndarray of int64
        Rows of the training split.
    ledger, shard, seed
        As for `DataSide`.
    """

    __slots__ = ("_blank",)

    def __init__(self, blank: IndexArray, ledger: Ledger, shard: IndexArray, seed: int) -> None:
        super().__init__(ledger, shard, seed)
        self._blank = blank

    def batch(self, admitted: Admitted) -> IndexArray:
        rows = super().batch(admitted)
        return rows[~np.isin(rows, self._blank)]

    def turns(self, admitted: AdmittedRound) -> DrawnTurns:
        rows, slots = super().turns(admitted)
        held = ~np.isin(rows, self._blank)
        return DrawnTurns(rows[held], slots[held])
