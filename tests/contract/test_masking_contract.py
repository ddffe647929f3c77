"""Units whose agents mask their updates keep the contract of all algorithms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.contract.test_algorithms_contract import _Units, units
from tests.reference.masked_sides import MaskedAnswers, client_sides, masked_sides

from gossamer.algorithms.clients.planning import MaskedRounds
from gossamer.algorithms.context import Context
from gossamer.algorithms.fedavg import box as fedavg
from gossamer.algorithms.fedbuff import box as fedbuff
from gossamer.privacy.mechanisms import NoNoise
from gossamer.protocol.node import Node
from gossamer.protocol.trace import TraceStep
from gossamer.runtimes.simulator import Simulator
from gossamer.runtimes.world import World
from gossamer.sides.pool import BlankSides
from gossamer.testing.contracts import SIZE, WORLDS, AlgorithmContract, FixedAnswers

CLIP = 100.0


@pytest.mark.some(2)
class _MaskedUnits(_Units):
    agent_noise = 0.0

    def context(self, **options: Any) -> Context:
        """With a clip, which masks need."""
        found = super().context(**options)
        queries = {name: replace(query, mechanism=NoNoise(CLIP)) for name, query in found.queries.items()}
        return replace(found, queries=queries, agent_noise=self.agent_noise)

    def run(
        self,
        world: World,
        *,
        nodes: dict[str, Node] | None = None,
        computer: Any = None,
        look: Callable[[Simulator], None] | None = None,
        watch: Callable[[TraceStep], None] = lambda step: None,
    ) -> tuple[Simulator, list[TraceStep]]:
        computer = computer or FixedAnswers()
        if not isinstance(computer, BlankSides):
            sides = masked_sides(self.settings, self.names, self.context().seed, SIZE, CLIP, self.agent_noise)
            computer = MaskedAnswers(computer, sides)
        return super().run(world, nodes=nodes, computer=computer, look=look, watch=watch)

    def test_invariants_change_only_by_a_nodes_own_update(self, world: World) -> None:
        simulator = self.plain(world).simulator
        assert self.algorithm.figures.invariants(simulator.nodes, simulator.in_flight) == {}


class TestMasked(_MaskedUnits):
    settings = units(agents=(3, 2, 4), masking="secure", timeout=200.0)


class TestMaskedWithNoiseOfAgents(_MaskedUnits):
    settings = units(agents=(3, 3, 3), masking={"name": "secure", "bits": 64}, timeout=200.0)
    agent_noise = 0.5


class TestMaskedSomeSampled(_MaskedUnits):
    settings = units("none", agents=(3, 3, 5), agents_sampled=3, masking="secure", timeout=200.0)

    def test_everyone_finishes_with_its_quota(self, world: World) -> None:
        """Agents are asked in some rounds only."""
        simulator, _, asked = self.plain(world)
        assert set(simulator.finished) == set(simulator.nodes)
        assert {asked[name] for name in self.servers} == {self.quota}

    def test_a_node_whose_budget_is_spent_goes_on_answering(self) -> None:
        """Servers spend theirs in their fourth round."""
        computer = FixedAnswers(most=3)
        simulator, _ = self.run(WORLDS["uneven"], computer=computer)
        assert {simulator.finished[name] for name in self.names} == {"budget"}
        assert {computer.asked[name] for name in self.servers} == {3}
        assert not simulator.in_flight


class _MaskedClients(AlgorithmContract):
    def rounds(self) -> MaskedRounds:
        """Who masks with whom."""
        raise NotImplementedError

    def context(self, **options: Any) -> Context:
        """With a clip, which masks need."""
        found = super().context(**options)
        queries = {name: replace(query, mechanism=NoNoise(CLIP)) for name, query in found.queries.items()}
        return replace(found, queries=queries)

    def run(
        self,
        world: World,
        *,
        nodes: dict[str, Node] | None = None,
        computer: Any = None,
        look: Callable[[Simulator], None] | None = None,
        watch: Callable[[TraceStep], None] = lambda step: None,
    ) -> tuple[Simulator, list[TraceStep]]:
        computer = computer or FixedAnswers()
        if not isinstance(computer, BlankSides):
            computer = MaskedAnswers(computer, client_sides(self.settings, self.context(), self.rounds(), CLIP))
        return super().run(world, nodes=nodes, computer=computer, look=look, watch=watch)

    def test_invariants_change_only_by_a_nodes_own_update(self, world: World) -> None:
        simulator = self.plain(world).simulator
        assert self.algorithm.figures.invariants(simulator.nodes, simulator.in_flight) == {}


class TestMaskedFedAvg(_MaskedClients):
    settings = fedavg.Settings(nodes=5, rounds=7, timeout=60.0, masking="secure")

    def rounds(self) -> MaskedRounds:
        context = self.context()
        return fedavg.masked_rounds(self.settings, context)


class TestMaskedFedBuff(_MaskedClients):
    settings = fedbuff.Settings(nodes=5, buffer=5, timeout=60.0, masking="secure")

    def rounds(self) -> MaskedRounds:
        context = self.context()
        return fedbuff.masked_rounds(self.settings, context, context.quotas, context.updates)
