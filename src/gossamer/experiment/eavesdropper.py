"""Listening to a run as an attacker would, who scores canaries by the gradients that their nodes release."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from gossamer.arrays import FloatArray
from gossamer.attacks.canaries import Canaries, Sum
from gossamer.data.examples import Split
from gossamer.experiment.prepared import Prepared
from gossamer.objectives.local_steps import clipped_on
from gossamer.privacy.tasks import Gradient, Round
from gossamer.protocol.effects import Compute
from gossamer.protocol.events import Completed
from gossamer.protocol.trace import Step

_BACKGROUND = 256
"""Examples in no slot whose gradients stand for those of all, of a node."""


@dataclass
class Listener:
    """Scores canaries by the sums of gradients that their nodes release, as a run goes on.

    A score is the logarithm of how much likelier all of them are with the canary than without it. It learns nothing of
    the coins: it sees models, clips, released vectors, what slots may hold, and examples that are in none.

    Attributes
    ----------
    prepared : Prepared
        The run, with the examples that slots have without their canaries.
    canaries : Canaries
        Of which it does not look at ``included``.
    blank : bool
        Whether slots without their canaries hold nothing.
    """

    prepared: Prepared
    canaries: Canaries
    blank: bool
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

    def __call__(self, step: Step) -> None:
        if step.node not in self.places:
            return
        event = step.event
        if isinstance(event, Completed) and (step.node, event.id) in self.pending:
            task = self.pending.pop((step.node, event.id))
            heard = self._heard(step.node, task, np.asarray(event.released.values))
            self.scores[self.places[step.node]] += heard.log_likelihood_ratios()
        for effect in step.effects:
            if isinstance(effect, Compute):
                asked: Any = effect.task
                self.pending[step.node, asked.id] = asked

    def _heard(self, node: str, task: Gradient | Round, released: FloatArray) -> Sum:
        """Release of ``node``, as a sum of gradients at the model that it asked for.

        Models that were swapped in later are near the one that a round starts from.
        """
        query, where, size = task.query, task.where, self.prepared.objective.size
        decay = where.step * self.prepared.objective.l2 * np.asarray(task.model.values)[where.slice]
        mean = released[: where.count(size)] / task.steps - decay
        data, places, others = self.prepared.dataset.train, self.places[node], self.others[node]
        inside = self._gradients(task, self.own[node], np.arange(len(places)))
        return Sum(
            seen=mean * (query.unit * query.normaliser * task.steps),
            inside=inside,
            outside=np.zeros_like(inside) if self.blank else self._gradients(task, data, self.canaries.rows[places]),
            others=self._gradients(task, data, others),
            each=(self.prepared.shard_sizes[node] - len(places)) / max(len(others), 1),
            rate=min(query.sampling.rate, 1.0),
        )

    def _gradients(self, task: Gradient | Round, data: Split, rows: npt.NDArray[np.int64]) -> FloatArray:
        """Clipped gradients of each of ``rows`` at the task's model, [rows, coordinates]."""
        objective = self.prepared.objective
        models = np.broadcast_to(np.asarray(task.model.values), (len(rows), objective.size))
        clip, wheres = task.query.mechanism.clip, [task.where] * len(rows)
        sums = clipped_on(objective, models, data, list(rows[:, None]), clip, wheres).sums
        return np.stack(sums) if sums else np.zeros((0, task.where.count(objective.size)), objective.dtype)


def rows_of(split: Split, rows: npt.NDArray[np.int64]) -> Split:
    """Some examples of a split."""
    features: Any = split.features
    return Split(features[rows], split.targets[rows])
