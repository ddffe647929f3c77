"""Every algorithm keeps the contract."""

from __future__ import annotations

from typing import Any, ClassVar

from gossamer.algorithms.allreduce import box as allreduce
from gossamer.algorithms.edge_cloud import box as edge_cloud
from gossamer.algorithms.fedasync import box as fedasync
from gossamer.algorithms.fedavg import box as fedavg
from gossamer.algorithms.fedbuff import box as fedbuff
from gossamer.algorithms.gossip import box as gossip
from gossamer.algorithms.graph_federated import box as graph_federated
from gossamer.algorithms.increasing import box as increasing
from gossamer.algorithms.mapa import box as mapa
from gossamer.algorithms.push_sum import box as push_sum
from gossamer.algorithms.synchronous_gossip import box as synchronous_gossip
from gossamer.privacy.clipping import Clipping, QuantileClip, StageClip
from gossamer.runtimes.world import World
from gossamer.testing.contracts import WORLDS, AlgorithmContract, FixedAnswers
from gossamer.vectors import Confined


class TestGossip(AlgorithmContract):
    settings = gossip.Settings(nodes=5, topology="ring")


class TestGossipOnACompleteGraph(AlgorithmContract):
    settings = gossip.Settings(nodes=4, topology="complete")


class TestGossipByTheUpdatesOfAll(AlgorithmContract):
    settings = gossip.Settings(
        nodes=4,
        topology="complete",
        learning_rate={"schedule": "cosine", "initial": 0.5, "total": 3, "clock": "global"},
    )


class TestBipartiteGossip(AlgorithmContract):
    settings = gossip.Settings(nodes=6, topology="ring", exchange="bipartite")


class TestGossipOfWholeGradients(AlgorithmContract):
    settings = gossip.Settings(nodes=5, privacy_unit="client")


class TestGossipThatClips(AlgorithmContract):
    settings = gossip.Settings(nodes=5, aggregation={"name": "centred_clipping", "radius": 0.5})


class TestGossipInEightBits(AlgorithmContract):
    settings = gossip.Settings(nodes=5, compression=8)


class TestGossipOfFewNumbers(AlgorithmContract):
    settings = gossip.Settings(
        nodes=4,
        topology="complete",
        compression={"share": 0.3},
        aggregation={"name": "centred_clipping", "radius": 0.5},
    )


class TestFedBuffOfFewNumbers(AlgorithmContract):
    settings = fedbuff.Settings(nodes=4, buffer=3, compression={"bits": 4, "share": 0.3})


class TestFedAvgInEightBits(AlgorithmContract):
    settings = fedavg.Settings(nodes=5, rounds=7, timeout=60.0, compression=8)


class TestFedBuffOfMedians(AlgorithmContract):
    settings = fedbuff.Settings(nodes=4, buffer=3, aggregation="median")


class TestFedAvgOfTrimmedMeans(AlgorithmContract):
    settings = fedavg.Settings(nodes=5, rounds=7, timeout=60.0, aggregation="trimmed_mean")


class TestAllreduce(AlgorithmContract):
    settings = allreduce.Settings(nodes=5, timeout=30.0)


class TestAllreduceOfOne(AlgorithmContract):
    settings = allreduce.Settings(nodes=1)


class TestGossipWithMomentum(AlgorithmContract):
    settings = gossip.Settings(nodes=4, optimizer="momentum")


class TestAllreduceWithAdam(AlgorithmContract):
    settings = allreduce.Settings(nodes=3, timeout=30.0, optimizer="adam")


class TestAudpWithAdam(AlgorithmContract):
    settings = edge_cloud.Settings(nodes=4, optimizer="adam")


class TestFedBuffWithMomentum(AlgorithmContract):
    settings = fedbuff.Settings(nodes=4, buffer=3, server_optimizer={"name": "momentum", "nesterov": True})


class TestGossipWithAMovingClip(AlgorithmContract):
    settings = gossip.Settings(nodes=3, topology="ring")
    clipping = Clipping(QuantileClip())


class TestAllreduceWithAMovingClip(AlgorithmContract):
    settings = allreduce.Settings(nodes=3, timeout=30.0)
    clipping = Clipping(QuantileClip())


class TestDPsgd(AlgorithmContract):
    settings = synchronous_gossip.Settings(nodes=5)


class TestDPsgdOfOne(AlgorithmContract):
    settings = synchronous_gossip.Settings(nodes=1)


class TestDPsgdWithAMovingClip(AlgorithmContract):
    settings = synchronous_gossip.Settings(nodes=4, topology="complete", optimizer="momentum")
    clipping = Clipping(QuantileClip())


class TestMuffliato(AlgorithmContract):
    settings = synchronous_gossip.Settings(name="muffliato", nodes=4)


class TestMuffliatoWithoutAcceleration(AlgorithmContract):
    settings = synchronous_gossip.Settings(name="muffliato", nodes=3, gossip_steps=2, acceleration="none")


class TestAudp(AlgorithmContract):
    settings = edge_cloud.Settings(nodes=5)


class TestAudpWithAMovingClip(AlgorithmContract):
    settings = edge_cloud.Settings(nodes=4)
    clipping = Clipping(QuantileClip())


class TestAudpThatDropsStaleGradients(AlgorithmContract):
    settings = edge_cloud.Settings(nodes=4, staleness={"bound": 1, "on_stale": "drop"})


class TestAudpThatWaits(AlgorithmContract):
    settings = edge_cloud.Settings(nodes=5, staleness={"bound": 2, "on_stale": "wait"})


class TestCentralised(AlgorithmContract):
    settings = edge_cloud.Settings(name="csgd")


class TestMapa(AlgorithmContract):
    settings = mapa.Settings(nodes=4, gradient_sd=1.0, smoothness=1.0, loss_gap=0.5)
    clipping = Clipping(StageClip())


class TestMapaOfWholeEdges(AlgorithmContract):
    settings = mapa.Settings(nodes=4, privacy_unit="client", gradient_sd=1.0, smoothness=1.0, loss_gap=1e-3)
    clipping = Clipping(StageClip())


class TestAudpOfWholeEdges(AlgorithmContract):
    settings = edge_cloud.Settings(nodes=5, privacy_unit="client")


class TestIncreasing(AlgorithmContract):
    settings = increasing.Settings(nodes=4, sizes={"name": "power", "a": 4, "b": 8})


class TestIncreasingBelowAggregators(AlgorithmContract):
    settings = increasing.Settings(
        nodes=5, sizes={"name": "power", "a": 4, "b": 8}, aggregators=[1, 3], delay={"rule": "rounds", "d": 2}
    )


class TestIncreasingInParts(AlgorithmContract):
    settings = increasing.Settings(
        nodes=3,
        sizes={"name": "power", "a": 2, "b": 8},
        delay={"rule": "tau", "tau": {"name": "power", "constant": 12, "factor": 0.9, "exponent": 1}},
        parts=3,
    )


class TestFedBuff(AlgorithmContract):
    settings = fedbuff.Settings(nodes=5, buffer=4)


class TestFedAsync(AlgorithmContract):
    settings = fedasync.Settings(nodes=5)


class _NoisySteps(AlgorithmContract):
    """Each update is of two steps."""

    def test_everyone_finishes_with_its_quota(self, world: World) -> None:
        simulator, _, asked = self.plain(world)
        assert set(simulator.finished) == set(simulator.nodes)
        assert set(asked.values()) == {2 * self.quota}


class TestFedBuffOfNoisySteps(_NoisySteps):
    settings = fedbuff.Settings(nodes=5, buffer=4, privacy_unit="example", local_steps=2, local_momentum=0.5)


class TestFedAsyncOfNoisySteps(_NoisySteps):
    settings = fedasync.Settings(nodes=5, privacy_unit="example", local_steps=2, proximal=0.1)


class TestFedAvgOfNoisySteps(_NoisySteps):
    settings = fedavg.Settings(nodes=5, rounds=7, timeout=60.0, privacy_unit="example", local_steps=2)


class TestFedBuffOfATrustedServer(AlgorithmContract):
    """All clients are in every buffer: as many sums as updates of each."""

    settings = fedbuff.Settings(nodes=5, buffer=5, noise_by="server", trusted="server")

    def test_a_node_whose_budget_is_spent_goes_on_answering(self) -> None:
        """As elsewhere, but that a server ends the run when it can have no further sum."""
        computer = FixedAnswers(most=3)
        simulator, _ = self.run(WORLDS["uneven"], computer=computer)
        assert {simulator.finished[name] for name in simulator.workers} == {"budget", "halt"}
        assert simulator.finished["server"] == "too few clients left"
        assert computer.asked["server"] == 3
        assert not simulator.in_flight


class TestFedAvg(AlgorithmContract):
    settings = fedavg.Settings(nodes=5, rounds=7, timeout=60.0)


class TestFedAvgOfATrustedServer(AlgorithmContract):
    settings = fedavg.Settings(nodes=5, rounds=6, noise_by="server", trusted="server")


def units(noise: str = "homomorphic", **settings: Any) -> graph_federated.Settings:
    """Three units of 2, 1 and 3 agents, all of which take part in each of six rounds."""
    given = {"units": 3, "agents": (2, 1, 3), "rounds": 6, "noise": noise, **settings}
    return graph_federated.Settings.model_validate(given).decided(private=noise != "none")


class _Units(AlgorithmContract):
    """A round goes on without agents that seem to be away; servers make all of theirs."""

    records: ClassVar[int] = 1

    def test_everyone_finishes_with_its_quota(self, world: World) -> None:
        simulator, _, answers = self.plain(world)
        assert set(simulator.finished) == set(simulator.nodes)
        assert {answers[name] for name in self.servers} == {self.records * self.quota}
        asked = {answers[name] for name in self.names}
        assert max(asked) == self.quota
        assert asked == {self.quota} or not world.links.reliable


class TestGraphFederated(_Units):
    settings = units()


class TestGraphFederatedWithHiddenState(_Units):
    settings = units(gradient_at="hidden", timeout=30.0)
    label = Confined


class TestGraphFederatedWithRandomNoise(_Units):
    """A server asks for a record for each of its two neighbours."""

    settings = units("random", topology="complete")
    label = Confined
    records = 2

    def test_a_node_whose_budget_is_spent_goes_on_answering(self) -> None:
        """Servers spend theirs in their second round, so agents are asked twice."""
        computer = FixedAnswers(most=3)
        simulator, _ = self.run(WORLDS["uneven"], computer=computer)
        assert set(simulator.finished.values()) == {"budget"}
        assert {computer.asked[name] for name in self.servers} == {3}
        assert {computer.asked[name] for name in self.names} == {2}
        assert not simulator.in_flight


class TestGraphFederatedOutOfStep(_Units):
    settings = units(synchronous=False)


class TestGraphFederatedWithConsensus(_Units):
    settings = units("none", consensus=4)


class TestGraphFederatedOfMedians(_Units):
    settings = units(topology="complete", aggregation="median")


class TestGraphFederatedThatClips(_Units):
    settings = units(gradient_at="hidden", aggregation={"name": "centred_clipping", "radius": 0.5})
    label = Confined


class TestPushSum(AlgorithmContract):
    settings = push_sum.Settings(nodes=5)


class TestPushSumOnADirectedRing(AlgorithmContract):
    settings = push_sum.Settings(nodes=4, topology="directed_ring", optimizer="momentum")


class TestPushSumOnASchedule(AlgorithmContract):
    settings = push_sum.Settings(nodes=5, topology={"schedule": ["random_matchings", "star"]})
