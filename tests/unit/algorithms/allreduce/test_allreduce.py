"""All-reduce: against the mean done by hand, and with members that fall silent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gossamer as gs
from gossamer.algorithms.allreduce import box as allreduce
from gossamer.algorithms.allreduce.box import AllreduceNode, Settings
from gossamer.algorithms.allreduce.member import Alive, Join, Probe, Roster, Welcome, cut
from gossamer.algorithms.context import Context
from gossamer.experiment.specs.spec_file import parse_spec
from gossamer.privacy.mechanisms import NoNoise, Poisson
from gossamer.privacy.tasks import Gradient, Query
from gossamer.protocol.effects import Send, SetTimer
from gossamer.protocol.events import Completed, Elapsed, PeerDown, Received, Started, Stop
from gossamer.protocol.trace import TraceStep
from gossamer.runtimes.simulator import Simulator
from gossamer.runtimes.speeds import SpeedSettings
from gossamer.runtimes.world import FaultSettings, LinkSettings, World
from gossamer.testing.contracts import FixedAnswers
from gossamer.topology.graphs import Graph
from gossamer.vectors import Public, Released

SIZE = 7


def run(
    nodes: int, rounds: int, world: World | None = None, timeout: float | None = None
) -> tuple[Simulator, list[TraceStep], list[tuple[str, float]]]:
    names = tuple(f"node-{i}" for i in range(nodes))
    context = Context(
        seed=0,
        names=names,
        graph=Graph(nodes, np.empty((0, 2), int)),
        initial=Public(np.zeros(SIZE)),
        queries=dict.fromkeys(names, Query(Poisson(0.5), NoNoise(), 4.0)),
        shard_sizes=dict.fromkeys(names, 8),
        quotas=dict.fromkeys(names, rounds),
    )
    steps: list[TraceStep] = []
    records: list[tuple[str, float]] = []

    def record(seconds: float, node: str, name: str, value: float) -> None:
        records.append((name, value))

    built = allreduce.build(Settings(nodes=nodes, learning_rate=0.5, timeout=timeout), context)
    simulator = Simulator(built, FixedAnswers(), world or World(), watch=steps.append, record=record)
    while simulator.next_time is not None and not simulator.settled:
        simulator.step()
        assert len(steps) < 50_000, "the run does not end"
    return simulator, steps, records


@given(members=st.integers(1, 9), size=st.integers(1, 20), seed=st.integers(0, 99))
def test_the_ring_averages(members: int, size: int, seed: int) -> None:
    """Passing chunks by hand gives every member the mean, to rounding, and the same bits."""
    vectors = np.random.default_rng(seed).standard_normal((members, size))
    ring = [cut(Released(vectors[p].copy()), p, members) for p in range(members)]
    for _ in range(2 * (members - 1)):
        outgoing = [reduction.outgoing for reduction in ring]
        ring = [reduction.take(outgoing[p - 1]) for p, reduction in enumerate(ring)]
    assert all(reduction.done for reduction in ring)
    np.testing.assert_allclose(ring[0].average.values, vectors.mean(axis=0), rtol=1e-12, atol=1e-12)
    assert all(reduction.average == ring[0].average for reduction in ring)


def test_every_round_is_the_mean_of_the_noisy_steps() -> None:
    """Equal to w <- w - eta mean_k g~_k on one machine, and the same at every node."""
    simulator, _, _ = run(5, 4)
    answers, w = FixedAnswers(), np.zeros(SIZE)
    task = Gradient(1, Public(np.zeros(SIZE)), Query(Poisson(0.5), NoNoise(), 4.0))
    for _ in range(4):
        w = w - 0.5 * np.mean([answers.admit(name, task).values for name in simulator.nodes], axis=0)
    models = [allreduce.model_of(node) for node in simulator.nodes.values()]
    np.testing.assert_allclose(models[0].values, w, rtol=1e-12)
    assert all(model == models[0] for model in models)


@pytest.mark.parametrize("nodes", [1, 2, 3, 8])
def test_each_node_sends_2_k_minus_1_messages_a_round(nodes: int) -> None:
    _, steps, _ = run(nodes, 3)
    for number in range(nodes):
        mine = [e for s in steps if s.node == f"node-{number}" for e in s.effects if isinstance(e, Send)]
        assert len(mine) == 3 * 2 * (nodes - 1)


def test_everyone_waits_for_the_slowest() -> None:
    speeds = SpeedSettings.model_validate({"scenario": {"name": "one_slow", "factor": 10}})
    simulator, _, _ = run(4, 3, World(speeds))
    # A start within 1 s, three computations of 10 s, and after each at most 6 hops of 0.01 s.
    assert 30 < simulator.elapsed <= 31 + 3 * 6 * 0.01


def test_a_silent_member_is_left_out_and_comes_back() -> None:
    """With a timeout of 2 s and a member that takes 10 s, rounds go on without it, and it catches up."""
    speeds = SpeedSettings.model_validate({"scenario": {"name": "one_slow", "factor": 10}})
    simulator, _, records = run(4, 6, World(speeds), timeout=2.0)
    assert ("left_out", 1.0) in records
    assert simulator.elapsed < 60
    assert set(simulator.finished) == set(simulator.nodes)
    models = [allreduce.model_of(node) for node in simulator.nodes.values()]
    assert all(model == models[0] for model in models)


@pytest.mark.parametrize("crashed", [0, 1, 4])
def test_a_member_that_dies_does_not_stop_the_others(crashed: int) -> None:
    """Whoever it is, also the one who would announce the roster (number 0)."""
    faults = FaultSettings.model_validate({"absences": [{"node": crashed, "start": 3.5}]})
    world = World(SpeedSettings(), LinkSettings(silence=5.0), faults)
    simulator, _, records = run(5, 8, world, timeout=2.0)
    alive = set(simulator.nodes) - {f"node-{crashed}"}
    assert alive <= set(simulator.finished)
    assert ("left_out", 1.0) in records
    models = [allreduce.model_of(simulator.nodes[name]) for name in sorted(alive)]
    assert all(model == models[0] for model in models)


def test_without_a_timeout_a_dead_member_is_noticed_by_its_silence() -> None:
    faults = FaultSettings.model_validate({"absences": [{"node": 2, "start": 3.5}]})
    simulator, _, _ = run(4, 6, World(SpeedSettings(), LinkSettings(silence=5.0), faults))
    assert {"node-0", "node-1", "node-3"} <= set(simulator.finished)


def test_a_member_that_was_away_for_a_while_ends_with_the_others() -> None:
    faults = FaultSettings.model_validate({"absences": [{"node": 1, "start": 3.5, "end": 14.0}]})
    world = World(SpeedSettings(), LinkSettings(silence=4.0), faults)
    simulator, _, _ = run(4, 12, world, timeout=2.0)
    assert set(simulator.finished) == set(simulator.nodes)


# Members one by one


def member(number: int, **settings: Any) -> AllreduceNode:
    """One of three, which has its vector for round 0."""
    names = tuple(f"node-{i}" for i in range(3))
    context = Context(
        seed=0,
        names=names,
        graph=Graph(3, np.empty((0, 2), int)),
        initial=Public(np.zeros(SIZE)),
        queries=dict.fromkeys(names, Query(Poisson(0.5), NoNoise(), 4.0)),
        shard_sizes=dict.fromkeys(names, 8),
        quotas=dict.fromkeys(names, 4),
    )
    node = allreduce.build(Settings(nodes=3, **settings), context)[f"node-{number}"]
    assert isinstance(node, AllreduceNode)
    node.handle(Started(), 0.0)
    node.handle(Completed(1, Released(np.ones(SIZE)), 1), 1.0)
    return node


def numbers(*members: int) -> Public:
    return Public(np.array(members, np.uint32))


def test_without_a_timeout_the_member_before_is_asked_whether_it_is_there() -> None:
    """Nobody else may have anything to send to it, and so notice that it is gone. Each time after twice as long."""
    node = member(1, patience=5.0)
    assert node.handle(Elapsed("probe"), 6.0) == [Send("node-0", Probe()), SetTimer(10.0, "probe")]
    assert node.handle(Elapsed("probe"), 16.0) == [Send("node-0", Probe()), SetTimer(20.0, "probe")]
    effects = node.handle(PeerDown("node-0", "silent"), 20.0)
    assert Send("node-2", Alive(0)) in effects


def test_with_a_timeout_nobody_is_probed() -> None:
    node = member(1, timeout=2.0)
    effects = node.handle(Elapsed("chunk"), 3.0)
    assert {type(effect.message) for effect in effects if isinstance(effect, Send)} == {Alive}


@pytest.mark.parametrize("sign", [Alive(1), Probe()])
def test_who_takes_itself_for_a_member_is_told_that_it_is_none(sign: Alive | Probe) -> None:
    """It had the outcome of the round already when the roster came that leaves it out, and went on alone."""
    node = member(0)
    roster = Roster(0, 1, numbers(0, 2))
    node.handle(Received("node-2", roster), 2.0)
    assert node.handle(Received("node-1", sign), 3.0) == [Send("node-1", roster)]
    assert node.handle(Received("node-2", Probe()), 3.0) == []


def test_when_all_rounds_are_made_any_member_tells_the_outcome() -> None:
    """The first one may be gone."""
    node = member(2)
    node.handle(Received("node-0", Roster(0, 1, numbers(0, 2))), 2.0)
    assert node.handle(Received("node-1", Join()), 3.0) == []
    node.handle(Stop("deadline"), 4.0)
    (effect,) = node.handle(Received("node-1", Join()), 5.0)
    assert effect == Send("node-1", Welcome(0, 1, numbers(0, 1, 2), node.state.w))


def test_who_was_left_out_and_is_counted_for_a_member_comes_back_at_once() -> None:
    """Members that catch up take the roster of those ahead, who may not have left it out."""
    node = member(2)
    assert node.handle(Received("node-1", Join()), 3.0) == [
        Send("node-1", Welcome(0, 0, numbers(0, 1, 2), node.state.w))
    ]


def test_who_waits_for_members_that_have_made_their_last_update_ends() -> None:
    """Quotas differ by one where shards do. The run ends soon after, and is not probed for ever."""
    algorithm = {"name": "allreduce", "nodes": 4, "patience": 5.0}
    summary = gs.run(parse_spec({"algorithm": algorithm, "stop": {"epochs": 12}, "privacy": "none"})).summary
    assert summary["status"] == "finished"
    assert set(summary["finished"].values()) == {"quota", "others have finished"}
    assert summary["virtual_seconds"] < 200
