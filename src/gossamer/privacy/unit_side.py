"""How an agent of a federated unit draws the batches of its local updates; what `masked_side` is built upon."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gossamer.objectives.objective import IndexArray
from gossamer.privacy.data_side import Answer
from gossamer.privacy.number_source import numbers_of
from gossamer.privacy.unit_tasks import LocalUpdate
from gossamer.vectors import Confined, FloatArray


@dataclass(frozen=True, slots=True)
class AdmittedUpdate:
    """A local update that will be computed with others."""

    side: AgentSide
    task: LocalUpdate


class AgentSide:
    """The data side of one agent.

    Parameters
    ----------
    name : str
        Of the agent.
    shard : ndarray [examples] of int64
        Rows of the training split that belong to it.
    seed : int or None
        Of reproducible sampling, good for simulation only; None samples by the operating system's randomness.
    """

    __slots__ = ("_sampling", "shard")

    def __init__(self, name: str, shard: IndexArray, seed: int | None) -> None:
        self.shard = shard
        self._sampling = numbers_of(seed, name, "sampling")

    def admit(self, task: Any) -> Any:
        """Nothing is charged here: updates do not leave the unit."""
        return AdmittedUpdate(self, task)

    def batches(self, task: LocalUpdate) -> IndexArray:
        """Rows of the training split for each step, [steps, batch]: by the round's own coins."""
        query = task.query
        drawn = self._sampling.at(task.id).integers(len(self.shard), size=(query.steps, query.batch))
        rows: IndexArray = self.shard[drawn]
        return rows

    def answer(self, task: LocalUpdate, update: FloatArray) -> Answer:
        """What the agent hands over."""
        return Answer(Confined(update))
