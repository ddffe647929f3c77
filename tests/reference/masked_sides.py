"""Data sides of units whose agents mask: fixed pseudo-random updates, and the agents' real masks around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tests.reference.agent_sides import AdmittedStep, ChargingMaskedSide
from tests.reference.ledgers import AgentLedger

from gossamer.algorithms.clients.planning import MaskedRounds, masked_unit
from gossamer.algorithms.clients.settings import ClientSettings
from gossamer.algorithms.context import Context
from gossamer.algorithms.graph_federated.box import local_queries
from gossamer.algorithms.graph_federated.settings import Settings, units_of
from gossamer.privacy.mechanisms import NoNoise
from gossamer.privacy.tasks import LocalUpdate, MaskingStep
from gossamer.sides.machine import SideAnswer
from gossamer.sides.secure_unit import RoundTerms
from gossamer.vectors import LARGEST_VALUE, Sendable


def masked_sides(
    settings: Settings,
    names: tuple[str, ...],
    seed: int,
    size: int,
    clip: float,
    agent_noise: float = 0.0,
) -> dict[str, ChargingMaskedSide]:
    """The data sides of all agents, whose updates come from elsewhere; ``seed`` is that of the public coins."""
    queries = local_queries(settings, dict.fromkeys(names, 8), seed, dict.fromkeys(names, clip))
    terms = RoundTerms(b"", queries, settings.rounds, LARGEST_VALUE)
    found = {}
    for one in units_of(settings, names, seed):
        unit = settings.unit(one.server, one.sampled, size, clip, agent_noise)
        agents, members = one.agents, one.of
        for name in agents:
            ledger = None if unit.noise is None else AgentLedger(name, unit.noise, settings.rounds)
            found[name] = ChargingMaskedSide(name, np.arange(0), 9, unit, members, terms, ledger)
    return found


def client_sides(
    settings: ClientSettings, context: Context, rounds: MaskedRounds, clip: float
) -> dict[str, ChargingMaskedSide]:
    """The data sides of clients that mask without noise, in so many rounds."""
    assert settings.masking is not None
    unit = masked_unit(settings.masking, rounds.clients, NoNoise(clip), context.initial.size, "")
    queries = {name: settings.query(context.shard_sizes[name]) for name in context.names}
    terms = RoundTerms(b"", queries, rounds.count, LARGEST_VALUE)
    return {name: ChargingMaskedSide(name, np.arange(0), 9, unit, rounds.cohort, terms, None) for name in context.names}


class MaskedAnswers:
    """What ``computer`` answers, with the agents' updates hidden behind masks.

    Attributes
    ----------
    updates : dict of (str, int) to ndarray
        By agent and round, what was hidden.
    answers : dict of (str, int, int) to list of vectors
        By agent, round and step, all that was answered.
    """

    def __init__(self, computer: Any, sides: Mapping[str, ChargingMaskedSide]) -> None:
        self.computer, self.sides = computer, sides
        self.updates: dict[tuple[str, int], np.ndarray] = {}
        self.answers: dict[tuple[str, int, int], list[Sendable]] = {}

    def admit(self, node: str, task: Any) -> Any:
        if isinstance(task, MaskingStep):
            return node, task, self.sides[node].admit(task)
        return node, task, self.computer.admit(node, task)

    def amended(self, ticket: Any, task: Any) -> Any:
        raise AssertionError("no rounds here")

    def compute(self, tickets: Sequence[Any]) -> list[SideAnswer]:
        return [self._answer(*ticket) for ticket in tickets]

    def _answer(self, node: str, task: Any, ticket: Any) -> SideAnswer:
        if isinstance(ticket, AdmittedStep):
            answer = ticket.answer()
            self.answers.setdefault((node, task.round, task.step), []).append(answer.released)
            return answer
        (answer,) = self.computer.compute([ticket])
        if not isinstance(task, LocalUpdate):
            return answer
        self.updates.setdefault((node, task.id), answer.released.values)
        return self.sides[node].answer(task, answer.released.values)

    def releases(self, node: str) -> int:
        found: int = self.computer.releases(node)
        return found
