"""Listening to a run as an attacker would, who scores canaries by the gradients that their nodes release."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from gossamer.arrays import FloatArray
from gossamer.attacks.canaries import Canaries, gradient_scores
from gossamer.data.split import Split
from gossamer.experiment.prepared import Prepared
from gossamer.privacy.tasks import Gradient, Round
from gossamer.protocol.effects import Compute
from gossamer.protocol.events import Completed
from gossamer.protocol.trace import Step
from gossamer.vectors import Coordinates

_BACKGROUND = 256
"""Examples in no slot whose mean gradient is taken off what a node released."""


@dataclass
class Listener:
    """Scores canaries by the gradients that their nodes release, as a run goes on.

    It learns nothing of the coins: it sees models, clips, released vectors and examples that are in no slot. The mean
    gradient of some of the latter is taken off what was released, since it hides the canaries.
    """

    prepared: Prepared
    canaries: Canaries
    pending: dict[tuple[str, int], Gradient | Round] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.scores = np.zeros(len(self.canaries))
        shards = zip(self.prepared.names, self.prepared.shards, strict=True)
        places = {name: np.flatnonzero(np.isin(self.canaries.rows, shard)) for name, shard in shards}
        self.places = {name: found for name, found in places.items() if len(found)}
        self.own = {name: rows_of(self.canaries.examples, found) for name, found in self.places.items()}
        self.others = {name: self._others(shard) for name, shard in zip(self.prepared.names, self.prepared.shards)}

    def _others(self, shard: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Some rows of a shard that are no slots."""
        rows = np.setdiff1d(shard, self.canaries.rows)
        return rows[np.linspace(0, len(rows) - 1, min(_BACKGROUND, len(rows))).astype(np.int64)]

    def _background(self, node: str, model: FloatArray, clip: float, where: Coordinates) -> FloatArray | float:
        """Estimate the part of a mean gradient of ``node`` that is of examples in no slot, on coordinates ``where``."""
        rows, objective = self.others[node], self.prepared.objective
        if not len(rows):
            return 0.0
        shard = self.prepared.shard_sizes[node]
        mean: FloatArray = objective.clipped_gradients(model[None], self.prepared.dataset.train, [rows], clip).sums[0]
        return mean[where.slice] * where.step * (1 - len(self.places[node]) / shard) / len(rows)

    def __call__(self, step: Step) -> None:
        if step.node not in self.places:
            return
        event = step.event
        if isinstance(event, Completed) and (step.node, event.id) in self.pending:
            task = self.pending.pop((step.node, event.id))
            self.scores[self.places[step.node]] += self._heard(step.node, task, np.asarray(event.released.values))
        for effect in step.effects:
            if isinstance(effect, Compute):
                asked: Any = effect.task
                self.pending[step.node, asked.id] = asked

    def _heard(self, node: str, task: Gradient | Round, released: FloatArray) -> npt.NDArray[np.float64]:
        """Scores of the canaries of ``node`` by one release, [canaries]."""
        where, scale = task.where, task.query.unit / task.steps
        # Models that were swapped in later are near the one that a round starts from.
        model, clip, objective = np.asarray(task.model.values), task.query.mechanism.clip, self.prepared.objective
        mean = released[: where.count(objective.size)] * scale - self._background(node, model, clip, where)
        return gradient_scores(objective, model, mean, self.own[node], clip, where)


def rows_of(split: Split, rows: npt.NDArray[np.int64]) -> Split:
    """Some examples of a split."""
    features: Any = split.features
    return Split(features[rows], split.targets[rows])
