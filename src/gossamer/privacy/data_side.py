"""A node's data side: the shard, the sampler, the ledger and the noise. Nothing else in a run sees data.

A task is first *admitted*: the ledger is asked and charged. Only then is a batch drawn, the clipped sum computed and
noise added, and only then is there a `Released` vector. Many admitted tasks can be computed in one call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from gossamer.data.split import Split
from gossamer.objectives.objective import Objective
from gossamer.privacy.ledger import Ledger
from gossamer.privacy.releases import ReleaseKind
from gossamer.privacy.tasks import Gradient
from gossamer.randomness import Stream
from gossamer.vectors import Blank, Released

IndexArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Admitted:
    """A task whose release is charged, under the number that its randomness is keyed by."""

    side: DataSide
    task: Gradient
    number: int


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

    __slots__ = ("_noise", "_sampling", "ledger", "shard")

    def __init__(self, ledger: Ledger, shard: IndexArray, seed: int) -> None:
        self.ledger = ledger
        self.shard = shard
        self._sampling = Stream(seed, ledger.owner, "sampling")
        self._noise = Stream(seed, ledger.owner, "noise")

    def admit(self, task: Gradient) -> Admitted:
        """Charge ``task``.

        Raises
        ------
        BudgetSpent
            If the ledger does not cover it.
        """
        self.ledger.charge(task.query.release(task.model.size))
        # Our own count, not the node's id: no node can make two releases share their noise.
        return Admitted(self, task, self.ledger.releases)

    def batch(self, admitted: Admitted) -> IndexArray:
        """Rows of the training split, [batch]."""
        sampling = admitted.task.query.sampling
        rows: IndexArray = self.shard[sampling.draw(self._sampling.at(admitted.number), len(self.shard))]
        return rows

    def release(self, admitted: Admitted, total: npt.NDArray[np.floating], l2: float) -> Released:
        """Noise on the clipped sum ``total`` [size], then the mean, then the regulariser's gradient."""
        task = admitted.task
        mechanism = task.query.mechanism
        mean = mechanism.noise(self._noise.at(admitted.number), total.size, total.dtype)
        mean += total
        if not mechanism.private:
            np.nan_to_num(mean, copy=False)  # without a clip a sum can overflow: it saturates
        mean /= task.query.normaliser
        if l2:
            mean += l2 * task.model.values  # the model is public or released, so this is post-processing
        return Released(mean)


class Computer(Protocol):
    """Where a runtime has its tasks computed."""

    def admit(self, node: str, task: Any) -> Any:
        """Charge a task and give it a ticket, or raise `BudgetSpent`."""
        ...

    def compute(self, tickets: Sequence[Any]) -> list[Released]:
        """The answers to ``tickets``, in order."""
        ...

    def releases(self, node: str) -> int:
        """How many releases ``node`` has been charged."""
        ...


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

    def admit(self, node: str, task: Gradient) -> Admitted:
        return self.sides[node].admit(task)

    def compute(self, tickets: Sequence[Admitted]) -> list[Released]:
        answers: dict[int, Released] = {}
        for clip in {ticket.task.query.mechanism.clip: None for ticket in tickets}:
            group = [i for i, ticket in enumerate(tickets) if ticket.task.query.mechanism.clip == clip]
            answers |= zip(group, self._compute([tickets[i] for i in group], clip), strict=True)
        return [answers[i] for i in range(len(tickets))]

    def _compute(self, work: Sequence[Admitted], clip: float) -> list[Released]:
        """The answers to tasks of one clip."""
        if len(self._models) < len(work):
            self._models = np.empty((len(work), self.objective.size), self.objective.dtype)
        models = self._models[: len(work)]
        np.stack([item.task.model.values for item in work], out=models)
        batches = [item.side.batch(item) for item in work]
        sums = self.objective.clipped_gradients(models, self.data, batches, clip).sums
        return [item.side.release(item, total, self.objective.l2) for item, total in zip(work, sums, strict=True)]

    def releases(self, node: str) -> int:
        return self.sides[node].ledger.releases


class NullDataSides:
    """Admits everything, counts it, and answers with blanks: for computing the schedule alone.

    Attributes
    ----------
    counts : dict of str to dict of ReleaseKind to int
        What each node asked for.
    """

    def __init__(self) -> None:
        self.counts: dict[str, dict[ReleaseKind, int]] = {}

    def admit(self, node: str, task: Gradient) -> Gradient:
        kinds = self.counts.setdefault(node, {})
        kind = task.query.release(task.model.size)
        kinds[kind] = kinds.get(kind, 0) + 1
        return task

    def compute(self, tickets: Sequence[Gradient]) -> list[Released]:
        return [Released(Blank(task.model.size, task.model.values.dtype)) for task in tickets]

    def releases(self, node: str) -> int:
        return sum(self.counts.get(node, {}).values())
