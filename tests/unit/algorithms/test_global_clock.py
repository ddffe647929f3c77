"""Schedules by the updates of all nodes (``clock: global``), against counts of the steps of a run and by hand."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import gossamer as gs
from gossamer.algorithms.allreduce.box import AllreduceNode
from gossamer.algorithms.allreduce.box import Settings as AllreduceSettings
from gossamer.algorithms.context import Context
from gossamer.algorithms.edge_cloud import box as edge_cloud
from gossamer.algorithms.gossip import box as gossip
from gossamer.deployment.founding.federation_spec import federation_spec
from gossamer.errors import SpecError
from gossamer.experiment.preparation.planning import plan_run
from gossamer.experiment.preparation.prepare import nodes_of, prepare
from gossamer.experiment.specs.spec_file import read_text, write_spec
from gossamer.faults.trials import small_runs
from gossamer.privacy.mechanisms import NoNoise, Poisson
from gossamer.privacy.tasks import Query
from gossamer.protocol.encoding import encode
from gossamer.protocol.events import Completed, Counted, Started
from gossamer.protocol.node import state_of
from gossamer.protocol.trace import TraceStep
from gossamer.runtimes.simulator import Simulator
from gossamer.testing.contracts import FixedAnswers
from gossamer.topology.graphs import Graph
from gossamer.vectors import Public, Released

RATE = {"schedule": "step", "initial": 0.5, "factor": 0.1, "epochs": [1]}
SLOW = {"name": "constant", "scenario": {"name": "one_slow", "factor": 8}}


def context(*sizes: int, batch: float = 4.0) -> Context:
    names = tuple(f"node-{i}" for i in range(len(sizes)))
    return Context(
        seed=0,
        names=names,
        graph=Graph(len(sizes), np.array([(0, 1)] if sizes[1:] else np.empty((0, 2), int))),
        initial=Public(np.zeros(2)),
        queries=dict.fromkeys(names, Query(Poisson(0.5), NoNoise(), batch)),
        shard_sizes=dict(zip(names, sizes)),
    )


def spec(name: str = "gossip", clock: str | None = "global", **more: Any) -> gs.Experiment:
    rate = RATE if clock is None else {**RATE, "clock": clock}
    return gs.parse_spec(
        {
            "dataset": "digits",
            "algorithm": {"name": name, "nodes": 4, "batch_size": 200, "learning_rate": rate},
            "privacy": {"noise_multiplier": 1.0},
            "speeds": SLOW,
            "stop": {"updates": 40},
            "evaluation": "off",
            **more,
        }
    )


def simulated(experiment: gs.Experiment) -> tuple[list[tuple[TraceStep, float]], Any]:
    """The steps of a run, each with the learning rate of its node just before the next update."""
    prepared = prepare(experiment)
    nodes = nodes_of(prepared, plan_run(prepared))
    steps: list[tuple[TraceStep, float]] = []
    simulator = Simulator(
        nodes,
        FixedAnswers(),
        prepared.world,
        watch=lambda step: steps.append((step, nodes[step.node].rate)),  # type: ignore[attr-defined]
    )
    while simulator.counters.updates < 40:
        simulator.step()
    return steps, prepared


@pytest.mark.parametrize("name", ["gossip", "local"])
def test_a_slow_node_decays_with_the_others(name: str) -> None:
    """All examples are covered once after `per_epoch` updates of whomever; the slow node never covers its own."""
    steps, prepared = simulated(spec(name))
    per_epoch = len(prepared.dataset.train.targets) / 200
    updates, rates = Counter[str](), []
    slow = []
    for (step, rate), following in zip(steps, [step for step, _ in steps[1:]] + [None]):
        if isinstance(step.event, Counted):
            made = sum(updates.values())
            assert step.event.updates == made
            assert isinstance(following, TraceStep)
            assert isinstance(following.event, Completed)
            assert following.node == step.node
            assert rate == pytest.approx(0.5 if made / per_epoch < 1 else 0.05)
            rates.append(rate)
            slow += [rate] if step.node == "node-3" else []
        if isinstance(step.event, Completed):
            updates[step.node] += 1
    assert len(rates) == sum(updates.values()) == 40
    assert updates["node-3"] < per_epoch / 4  # less than an epoch of its own
    assert len(slow) == updates["node-3"] > 0
    assert slow[-1] == pytest.approx(0.05)


def test_by_its_own_clock_it_does_not() -> None:
    for clock in (None, "own"):
        steps, _ = simulated(spec(clock=clock))
        assert not any(isinstance(step.event, Counted) for step, _ in steps)
        assert [rate for step, rate in steps if step.node == "node-3"][-1] == 0.5
        assert [rate for step, rate in steps if step.node == "node-0"][-1] == pytest.approx(0.05)


def test_neither_noise_nor_accounting_change() -> None:
    plans = [plan_run(prepare(spec(clock=clock))) for clock in (None, "global")]
    assert plans[0].noise == plans[1].noise
    assert plans[0].epsilons == plans[1].epsilons
    assert plans[0].guarantee.as_dict() == plans[1].guarantee.as_dict()


def test_a_spec_without_the_key_is_written_without_it() -> None:
    assert "clock" not in write_spec(spec(clock=None))
    assert "clock: global" in write_spec(spec())
    assert read_text(write_spec(spec())) == spec()


def test_a_node_goes_by_what_it_is_told() -> None:
    """8 and 40 examples in batches of 4 are 12 updates; its own epoch, of 2, has nothing to do with it."""
    settings = gossip.Settings(nodes=2, topology="complete", learning_rate={**RATE, "clock": "global"})
    node = gossip.build(settings, context(8, 40))["node-0"]
    node.handle(Started(), 0.0)
    before = encode(state_of(node))
    for task, (told, moved) in enumerate([(0, 0.5), (11, 1.0), (12, 1.05), (13, 1.1)], 1):
        assert node.handle(Counted(told), 1.0) == []
        node.handle(Completed(task, Released(np.array([-1.0, 1.0])), 1), 1.0)
        np.testing.assert_allclose(node.state.w.values, [moved, -moved], rtol=1e-12)
    assert before != encode(state_of(node))


def test_a_round_of_allreduce_is_an_update_of_every_member() -> None:
    """8 and 40 examples in batches of 4 are 12 updates, so 6 rounds of two; of their own they have 2 and 10."""

    def rates(clock: str, name: str) -> list[float]:
        settings = AllreduceSettings(nodes=2, learning_rate={**RATE, "clock": clock})
        node = AllreduceNode(name, context(8, 40), settings)
        return [node.schedule.at(i / node.epoch) for i in (1, 2, 5, 6, 9, 10)]

    early, late = 0.5, pytest.approx(0.05)
    assert rates("global", "node-0") == rates("global", "node-1") == [early] * 3 + [late] * 3
    assert rates("own", "node-0") == [early] + [late] * 5
    assert rates("own", "node-1") == [early] * 5 + [late]


def test_a_server_goes_by_all_edges_anyway() -> None:
    """8 and 40 examples in batches of 4 are 12 updates, whether that is said or not."""
    for clock in ({}, {"clock": "global"}):
        settings = edge_cloud.Settings(nodes=2, batch_size=4, learning_rate={**RATE, **clock})
        course = edge_cloud.build(settings, context(8, 40))[edge_cloud.SERVER].course
        assert [course(t).learning_rate for t in (11, 12)] == [0.5, pytest.approx(0.05)]
    with pytest.raises(SpecError, match=r"counts the updates of all edges, which is global, found own; leave it out"):
        spec("audp", clock="own")


@pytest.mark.parametrize("name", ["gossip", "local"])
def test_nodes_that_nobody_tells_are_refused(name: str) -> None:
    with pytest.raises(SpecError, match=rf"clock: global is for simulations, and deployed nodes of {name}") as refused:
        federation_spec(write_spec(spec(name, stop={"epochs": 1}, speeds=None)), 4)
    assert "\n" not in str(refused.value)
    with pytest.raises(SpecError, match="nodes that faults happen to are not told"):
        small_runs(spec(name))


def test_those_that_count_for_themselves_are_deployed() -> None:
    for name in ("allreduce", "audp"):
        assert "clock: global" in federation_spec(
            write_spec(spec(name, stop={"epochs": 1}, speeds=None, dataset=_declared())), 4
        )


def _declared() -> dict[str, Any]:
    return {"name": "digits", "labels": list(range(10)), "features": [1, 8, 8]}
