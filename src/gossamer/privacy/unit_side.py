"""The data sides of a federated unit: each agent's, and the one that noises what the unit lets out.

An agent computes its update and hands it to its server, which may see it or (`Masked`) a sum of several. What goes to
other units is the server's raw state with noise of one *stream*, opened on the unit's ledger for all rounds before the
first: a record is charged, then drawn, and drawn once. The ledger keeps a line for each agent of the unit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gossamer.data.split import Split
from gossamer.errors import SpecError
from gossamer.objectives.objective import IndexArray, Objective
from gossamer.privacy.data_side import Answer
from gossamer.privacy.noise_streams import NoiseState, NoiseStream
from gossamer.privacy.number_source import numbers_of
from gossamer.privacy.unit_ledger import UnitLedger
from gossamer.privacy.unit_tasks import LocalUpdate
from gossamer.protocol.effects import Release
from gossamer.randomness import Stream
from gossamer.vectors import Confined, FloatArray, Released


@dataclass(frozen=True, slots=True)
class AdmittedUpdate:
    """A local update that will be computed with others."""

    side: AgentSide
    task: LocalUpdate


@dataclass(frozen=True, slots=True)
class AdmittedRelease:
    """A record that is charged, or was before."""

    side: UnitSide
    effect: Release

    def answer(self) -> Answer:
        """The state with its noise."""
        return self.side.release(self.effect)


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


class UnitSide:
    """The data side of one simulated server: the unit's ledger and its stream of noise.

    Parameters
    ----------
    ledger : UnitLedger
        Of the unit, with its stream.
    size : int
        Coordinates of a record.
    seed : int
        Of reproducible noise; good for simulation only.
    """

    def __init__(self, ledger: UnitLedger, size: int, seed: int) -> None:
        self.ledger = ledger
        self._stream = None if ledger.stream.noise is None else NoiseStream(ledger.stream.noise, size)
        self._state = NoiseState()
        self._noise = Stream(seed, ledger.owner, "noise")
        self._last: tuple[int, Any, Released] | None = None

    def admit(self, effect: Release) -> AdmittedRelease:
        """Charge the next record; the last one, asked for again, was charged before.

        Raises
        ------
        BudgetSpent
            If all records of the stream are spent.
        SpecError
            If this is neither the next record nor the last.
        """
        charged = self.ledger.releases
        if effect.id == charged:
            self.ledger.charge()
        elif effect.id != charged - 1 or effect.id < 0:
            raise SpecError(f"{self.ledger.owner}: the next record is {charged}, found {effect.id}")
        return AdmittedRelease(self, effect)

    def release(self, effect: Release) -> Answer:
        """The state with the record's noise; with the very same bytes if it was answered before.

        Raises
        ------
        SpecError
            If the state is another than before: two states with the same noise give their difference away.
        """
        if self._last is not None and effect.id == self._last[0]:
            _, before, released = self._last
            if before != effect.vector:
                raise SpecError(f"{self.ledger.owner}: record {effect.id} was another state's; its noise is used once")
            return Answer(released)
        values: FloatArray = effect.vector.values
        noised = values.astype(np.float64)
        if self._stream is not None:
            noise, self._state = self._stream.draw(self._state, self._noise.at(effect.id))
            noised += noise
        with np.errstate(over="ignore"):
            answer = noised.astype(values.dtype)
        released = Released(np.nan_to_num(answer, copy=False))  # a value out of range saturates
        self._last = (effect.id, effect.vector, released)
        return Answer(released)


class UnitSides:
    """The data sides of all simulated agents and servers; agents compute together.

    Parameters
    ----------
    agents : mapping of str to AgentSide
        By agent.
    units : mapping of str to UnitSide
        By server.
    server_of : mapping of str to str
        The server of each agent.
    objective : Objective
        Common to all.
    data : Split
        The training split that all shards are rows of.
    """

    def __init__(
        self,
        agents: Mapping[str, AgentSide],
        units: Mapping[str, UnitSide],
        server_of: Mapping[str, str],
        objective: Objective,
        data: Split,
    ) -> None:
        self.agents, self.units, self.server_of = agents, units, server_of
        self.objective, self.data = objective, data

    def admit(self, node: str, task: Any) -> Any:
        side: AgentSide | UnitSide = self.units[node] if node in self.units else self.agents[node]
        return side.admit(task)

    def amended(self, ticket: Any, task: Any) -> Any:
        raise SpecError(f"agents of a unit run no rounds, found {type(task).__name__}")

    def compute(self, tickets: Sequence[Any]) -> list[Answer]:
        updates = [ticket for ticket in tickets if isinstance(ticket, AdmittedUpdate)]
        computed = iter(self._updates(updates) if updates else ())
        return [next(computed) if isinstance(item, AdmittedUpdate) else item.answer() for item in tickets]

    def _updates(self, tickets: Sequence[AdmittedUpdate]) -> list[Answer]:
        tasks = [ticket.task for ticket in tickets]
        found = self.objective.local_updates(
            np.stack([task.model.values for task in tasks]),
            self.data,
            [ticket.side.batches(ticket.task) for ticket in tickets],
            np.array([task.query.rate for task in tasks]),
            np.array([task.query.clip for task in tasks]),
        )
        answers = [ticket.side.answer(ticket.task, row) for ticket, row in zip(tickets, found.updates, strict=True)]
        bad = found.not_finite.tolist()
        return [answer._replace(not_finite=count) if count else answer for answer, count in zip(answers, bad)]

    def releases(self, node: str) -> int:
        return self.units[self.server_of.get(node, node)].ledger.releases
