"""Hosts that crash at any instant, behind links that lose, repeat and reorder: runs end, and nothing is done twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gossamer.algorithms import allreduce, edge_cloud, gossip, graph_federated
from gossamer.protocol.encoding import encode
from gossamer.protocol.events import Completed
from gossamer.protocol.node import Node
from gossamer.testing.contracts import AlgorithmContract, FixedAnswers
from gossamer.testing.hosts import Crash, LinkedHosts
from gossamer.testing.network import Faults


class Gossip(AlgorithmContract):
    settings = gossip.Settings(nodes=4, topology="ring")
    quota = 4


class Allreduce(AlgorithmContract):
    settings = allreduce.Settings(nodes=4, timeout=30.0)
    quota = 4


class EdgeCloud(AlgorithmContract):
    settings = edge_cloud.Settings(nodes=4)
    quota = 4


class Units(AlgorithmContract):
    settings = graph_federated.Settings(units=3, agents=2, rounds=4, patience=5.0).decided(private=True)
    quota = 4


def fresh(contract: AlgorithmContract) -> Callable[[], Mapping[str, Node]]:
    return lambda: contract.nodes()


@st.composite
def faults(draw: Any) -> Faults:
    return Faults.seeded(
        draw(st.integers(0, 10_000)),
        frames=draw(st.integers(0, 200)),
        loss=draw(st.sampled_from([0.0, 0.3])),
        duplicate=draw(st.sampled_from([0.0, 0.2])),
        longest_delay=draw(st.sampled_from([0.1, 3.0])),
    )


CRASHES = st.lists(
    st.builds(Crash, st.integers(1, 150), st.integers(0, 4), st.sampled_from([0.01, 1.0, 30.0])), max_size=6
)


@given(links=faults(), crashes=CRASHES, every=st.sampled_from([1, 3, 1000]))
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_gossip_conserves_its_models(links: Faults, crashes: list[Crash], every: int) -> None:
    """Models and halves in flight change by the nodes' own updates alone: 1e-12 of the models, after every event."""
    contract, steps = Gossip(), []
    hosts = LinkedHosts(fresh(contract), FixedAnswers(), faults=links, crashes=crashes, every=every, watch=steps.append)

    def seen() -> tuple[dict[str, np.ndarray], np.ndarray]:
        nodes = hosts.nodes
        (total,) = contract.algorithm.invariants(nodes, hosts.in_flight).values()
        return {name: contract.algorithm.model_of(node).values for name, node in nodes.items()}, np.asarray(total)

    models, total = seen()

    def look() -> None:
        nonlocal models, total
        updated = {step.node for step in steps if isinstance(step.event, Completed)}
        steps.clear()
        now, after = seen()
        own = sum((now[name] - models[name] for name in updated), start=np.zeros_like(total))
        np.testing.assert_allclose(after, total + own, rtol=0, atol=1e-12 * (1 + np.abs(after).max()))
        models, total = now, after

    hosts.run(look=look)
    assert set(hosts.finished) == set(hosts.hosts)
    assert not hosts.rejected


@pytest.mark.parametrize("contract", [Gossip(), Allreduce(), EdgeCloud(), Units()], ids=lambda c: type(c).__name__)
@given(links=faults(), crashes=CRASHES)
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
def test_runs_end_and_nobody_is_charged_beyond_lost_work(
    contract: AlgorithmContract, links: Faults, crashes: list[Crash]
) -> None:
    """A crash loses at most one open task of its host, which is asked for and charged again."""
    computer = FixedAnswers()
    hosts = LinkedHosts(fresh(contract), computer, faults=links, crashes=crashes)
    hosts.run()
    assert set(hosts.finished) == set(hosts.hosts)
    assert not hosts.rejected
    asked = {name: count for name, count in computer.asked.items() if name in contract.names}
    assert max(asked.values()) <= contract.quota + len(crashes)


def test_a_host_from_its_journal_is_the_host() -> None:
    contract = Gossip()
    hosts = LinkedHosts(fresh(contract), FixedAnswers(), every=5)
    same: list[bool] = []

    def look() -> None:
        for name, host in hosts.hosts.items():
            same.append(encode(hosts.recovered(name).state()) == encode(host.state()))

    hosts.run(look=look)
    assert all(same)
    assert len(same) > 100
