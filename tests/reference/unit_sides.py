"""The simulated data sides of units that `gossamer.sides` was measured against: references for its bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tests.reference.agent_sides import AdmittedUpdate, AgentSide
from tests.reference.ledgers import UnitLedger

from gossamer.arrays import FloatArray
from gossamer.data.examples import Split
from gossamer.errors import SpecError
from gossamer.objectives.objective import Objective
from gossamer.privacy.streams.correlated_noise import NoiseState, NoiseStream
from gossamer.protocol.effects import Release
from gossamer.randomness import Stream
from gossamer.sides.machine import SideAnswer
from gossamer.vectors import Released


@dataclass(frozen=True, slots=True)
class AdmittedRelease:
    """A record that is charged, or was before."""

    side: UnitSide
    effect: Release

    def answer(self) -> SideAnswer:
        """The state with its noise."""
        return self.side.release(self.effect)


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

    def release(self, effect: Release) -> SideAnswer:
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
            return SideAnswer(released)
        values: FloatArray = effect.vector.values
        noised = values.astype(np.float64)
        if self._stream is not None:
            noise, self._state = self._stream.draw(self._state, self._noise.at(effect.id))
            noised += noise
        with np.errstate(over="ignore"):
            answer = noised.astype(values.dtype)
        released = Released(np.nan_to_num(answer, copy=False))  # a value out of range saturates
        self._last = (effect.id, effect.vector, released)
        return SideAnswer(released)


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
        raise SpecError(f"this data side runs no rounds, found {type(task).__name__}")

    def compute(self, tickets: Sequence[Any]) -> list[SideAnswer]:
        updates = [ticket for ticket in tickets if isinstance(ticket, AdmittedUpdate)]
        computed = iter(self._updates(updates) if updates else ())
        return [next(computed) if isinstance(item, AdmittedUpdate) else item.answer() for item in tickets]

    def _updates(self, tickets: Sequence[AdmittedUpdate]) -> list[SideAnswer]:
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
