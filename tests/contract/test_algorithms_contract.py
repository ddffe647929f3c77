"""Every algorithm keeps the contract."""

from __future__ import annotations

from gossamer.algorithms import allreduce, gossip
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
