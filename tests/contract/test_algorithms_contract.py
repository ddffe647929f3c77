"""Every algorithm keeps the contract."""

from __future__ import annotations

from gossamer.algorithms import allreduce, edge_cloud, gossip, increasing, mapa
from gossamer.privacy.clipping import Clipping, QuantileClip, StageClip
from gossamer.testing.contracts import AlgorithmContract


class TestGossip(AlgorithmContract):
    settings = gossip.Settings(nodes=5, topology="ring")


class TestGossipOnACompleteGraph(AlgorithmContract):
    settings = gossip.Settings(nodes=4, topology="complete")


class TestBipartiteGossip(AlgorithmContract):
    settings = gossip.Settings(nodes=6, topology="ring", exchange="bipartite")


class TestAllreduce(AlgorithmContract):
    settings = allreduce.Settings(nodes=5, timeout=30.0)


class TestAllreduceOfOne(AlgorithmContract):
    settings = allreduce.Settings(nodes=1)


class TestGossipWithAMovingClip(AlgorithmContract):
    settings = gossip.Settings(nodes=3, topology="ring")
    clipping = Clipping(QuantileClip())


class TestAllreduceWithAMovingClip(AlgorithmContract):
    settings = allreduce.Settings(nodes=3, timeout=30.0)
    clipping = Clipping(QuantileClip())


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
