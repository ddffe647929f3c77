"""Hosts that are killed at any instant, behind links that lose, repeat and reorder: nothing is lost or done twice."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.reference.run_of_hosts import run as run_of_hosts
from tests.sampling import examples

from gossamer.algorithms.allreduce import box as allreduce
from gossamer.algorithms.edge_cloud import box as edge_cloud
from gossamer.algorithms.gossip import box as gossip
from gossamer.algorithms.graph_federated import box as graph_federated
from gossamer.faults.checks import Conserved, Delivery
from gossamer.faults.hosts import LinkedHosts, fresh
from gossamer.faults.schedules import Crash, Fate, FaultSchedule
from gossamer.protocol.encoding import encode
from gossamer.testing.contracts import AlgorithmContract, FixedAnswers


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


def units(contract: AlgorithmContract) -> dict[str, str]:
    return dict(contract.cast.trust)


FATES = st.lists(
    st.builds(Fate, st.integers(0, 200), st.lists(st.floats(0, 3), max_size=2).map(tuple)),
    max_size=60,
    unique_by=lambda fate: fate.frame,
)
CRASHES = st.lists(
    st.builds(
        Crash,
        st.integers(1, 150),
        st.integers(0, 6),
        st.integers(0, 3),
        st.sampled_from([0.01, 1.0, 30.0]),
    ),
    max_size=6,
    unique_by=lambda crash: crash.event,
)
SCHEDULES = st.builds(
    lambda fates, crashes, busy, every, skew: FaultSchedule((*fates, *crashes), 0, busy, every, skew=skew),
    FATES,
    CRASHES,
    st.sampled_from([0.0, 0.3]),
    st.sampled_from([1, 3, 1000]),
    st.sampled_from([0.0, 2.0]),
)


@given(schedule=SCHEDULES)
@settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))
def test_gossip_conserves_its_models(schedule: FaultSchedule) -> None:
    """Models and halves in flight change by the nodes' own updates alone, after every event."""
    contract, steps = Gossip(), []
    hosts = LinkedHosts(contract.nodes(), FixedAnswers(), schedule, watch=steps.append)
    checks = [Conserved(hosts, contract.algorithm), Delivery(hosts)]

    def look() -> None:
        assert [check(steps) for check in checks] == [None, None]
        steps.clear()

    run_of_hosts(hosts, look=look)
    assert set(hosts.finished) == set(hosts.hosts)
    assert not hosts.rejected


@pytest.mark.parametrize("contract", [Gossip(), Allreduce(), EdgeCloud(), Units()], ids=lambda c: type(c).__name__)
@given(schedule=SCHEDULES)
@settings(max_examples=examples(15), deadline=None, suppress_health_check=list(HealthCheck))
def test_runs_end_and_nobody_is_charged_beyond_lost_work(contract: AlgorithmContract, schedule: FaultSchedule) -> None:
    """A crash loses at most one open task of its host, which is asked for and charged again."""
    computer: Any = FixedAnswers()
    hosts = LinkedHosts(contract.nodes(), computer, schedule, units=units(contract))
    run_of_hosts(hosts)
    assert set(hosts.finished) == set(hosts.hosts)
    assert not hosts.rejected
    asked = {name: count for name, count in computer.asked.items() if name in contract.names}
    assert max(asked.values()) <= contract.quota + len(schedule.of(Crash))


def test_a_host_from_its_journal_is_the_host() -> None:
    """Looked at after every event; `LinkedHosts` looks at every crash."""
    contract = Gossip()
    hosts = LinkedHosts(contract.nodes(), FixedAnswers(), FaultSchedule(every=5))
    same: list[bool] = []

    def look() -> None:
        for name in hosts.changed:
            journal = hosts.journals[name].copy()
            if not hosts.journals[name].staged:
                back = type(hosts[name])(fresh(hosts.prototypes[name]), hosts.settings, journal, every=5)
                same.append(encode(back.state()) == encode(hosts[name].state()))

    run_of_hosts(hosts, look=look)
    assert all(same)
    assert len(same) > 50
