"""Raw updates of clients: which of its rows each takes, and all of a call computed together.

A kind of question has a line in `WORK`: how its rows are drawn, from coins of the side's own, and what computes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from gossamer.arrays import FloatArray, IndexArray
from gossamer.data.examples import Split
from gossamer.errors import SpecError
from gossamer.objectives.asked import LocalUpdates, Minibatches, Training
from gossamer.objectives.objective import Objective
from gossamer.privacy.unit_tasks import LocalQuery, TrainingQuery
from gossamer.sides.machine import Ticket
from gossamer.sides.number_source import Numbers
from gossamer.sides.samples import Shard


class Steps(NamedTuple):
    """A ticket with the rows that its local steps take: [steps, batch], or mini-batches of different lengths."""

    ticket: Ticket
    rows: Any


class Update(NamedTuple):
    """Raw: the update [size], and how many gradients were not finite."""

    update: FloatArray
    not_finite: int


def drawn_anew(query: LocalQuery, rows: IndexArray, generator: np.random.Generator) -> IndexArray:
    """Rows [steps, batch] of each step, drawn with replacement."""
    return rows[generator.integers(len(rows), size=(query.steps, query.batch))]


def shuffled(query: TrainingQuery, rows: IndexArray, generator: np.random.Generator) -> Minibatches:
    """Rows in shuffled passes, cut into mini-batches; of the last pass as many as the steps take."""
    starts = np.arange(0, len(rows), query.batch)
    lengths = np.resize(np.minimum(len(rows) - starts, query.batch), query.steps)
    passes = -(-query.steps // len(starts))
    order = np.concatenate([generator.permutation(len(rows)) for _ in range(passes)])
    return Minibatches(rows[order[: lengths.sum()]], lengths)


def _local_steps(objective: Objective, data: Split, tasks: Sequence[Any], rows: Sequence[Any]) -> LocalUpdates:
    rates = np.array([task.query.rate for task in tasks])
    clips = np.array([task.query.clip for task in tasks])
    return objective.local_updates(_models(tasks), data, rows, rates, clips)


def _trainings(objective: Objective, data: Split, tasks: Sequence[Any], rows: Sequence[Any]) -> LocalUpdates:
    asked = [
        Training(batches, task.query.rate, task.query.momentum, task.query.proximal)
        for task, batches in zip(tasks, rows, strict=True)
    ]
    return objective.local_training(_models(tasks), data, asked)


def _models(tasks: Sequence[Any]) -> FloatArray:
    return np.stack([task.model.values for task in tasks])


class Work(NamedTuple):
    """Drawing and computing for one kind of question.

    Attributes
    ----------
    draw : callable
        (query, rows of the shard, generator) -> the rows that its steps take.
    compute : callable
        (objective, data, tasks, those rows of each) -> updates of all of them.
    """

    draw: Callable[[Any, IndexArray, np.random.Generator], Any]
    compute: Callable[[Objective, Split, Sequence[Any], Sequence[Any]], LocalUpdates]


WORK: Mapping[type, Work] = {LocalQuery: Work(drawn_anew, _local_steps), TrainingQuery: Work(shuffled, _trainings)}


def check_query(name: str, query: Any) -> None:
    """Refuse a question of a kind that no client answers.

    Raises
    ------
    SpecError
        If it is one.
    """
    if type(query) not in WORK:
        kinds = " or ".join(kind.__name__ for kind in WORK)
        raise SpecError(f"{name} makes updates by {kinds}, found {type(query).__name__}")


def steps_of(ticket: Ticket, shard: Shard, sampling: Numbers) -> Steps:
    """The rows of the training split for each local step, the same again for the same number."""
    query = ticket.task.query
    return Steps(ticket, WORK[type(query)].draw(query, shard.rows, sampling.at(ticket.number)))


class Updates:
    """Local updates of all clients of a call, computed together."""

    def __init__(self, objective: Objective, data: Split) -> None:
        self.objective, self._data = objective, data

    def compute(self, asked: Sequence[Steps]) -> list[Update]:
        """One update for each."""
        places: dict[type, list[int]] = {}
        for place, item in enumerate(asked):
            places.setdefault(type(item.ticket.task.query), []).append(place)
        found: dict[int, Update] = {}
        for kind, those in places.items():
            tasks, rows = [asked[place].ticket.task for place in those], [asked[place].rows for place in those]
            made = WORK[kind].compute(self.objective, self._data, tasks, rows)
            updates = map(Update, made.updates, made.not_finite.tolist())
            found.update(zip(those, updates, strict=True))
        return [found[place] for place in range(len(asked))]
