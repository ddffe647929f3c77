"""Staleness and rho of a gossip run, as ``summary.json`` has them, against what follows by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

import gossamer as gs
from gossamer.experiment.preparation import prepare as preparing
from gossamer.experiment.preparation.planning import plan_run
from gossamer.experiment.preparation.prepare import nodes_of, prepare
from gossamer.protocol.effects import Compute
from gossamer.protocol.events import Completed
from gossamer.protocol.trace import TraceStep
from gossamer.runtimes.simulator import Simulator
from gossamer.testing.contracts import FixedAnswers


def spec(nodes: int = 4, topology: Any = "ring", name: str = "gossip", **more: Any) -> gs.Experiment:
    own = {"topology": topology} if name == "gossip" else {}
    algorithm = {"name": name, "nodes": nodes, "batch_size": 8, **own, **more.pop("algorithm", {})}
    content = {"dataset": "digits", "privacy": "none", "evaluation": "off", "stop": {"updates": 6 * nodes}, **more}
    return gs.parse_spec({**content, "algorithm": algorithm})


def figures(experiment: gs.Experiment) -> dict[str, Any]:
    found: dict[str, Any] = gs.run(experiment).summary[experiment.algorithm.name]
    return found


def on_a_ring(nodes: int) -> float:
    """Each edge is taken with probability 1/K, which takes (e_i - e_j)(e_i - e_j)'/2 off the identity, so E[A] is
    I - Laplacian/(2K); the least of the Laplacian's eigenvalues above 0 is 2 - 2 cos(2 pi/K)."""
    return 1 - (1 - math.cos(2 * math.pi / nodes)) / nodes


@pytest.mark.parametrize("nodes", [2, 3, 5])
def test_rho_on_a_complete_graph(nodes: int) -> None:
    """E[A] has 1/(K (K - 1)) beside the diagonal and 1 - 1/K on it: its eigenvalues but 1 are 1 - 1/(K - 1)."""
    assert figures(spec(nodes, "complete"))["rho"] == pytest.approx(1 - 1 / (nodes - 1), abs=1e-11)


@pytest.mark.parametrize("nodes", [3, 4, 7])
def test_rho_on_a_ring(nodes: int) -> None:
    assert figures(spec(nodes))["rho"] == pytest.approx(on_a_ring(nodes), abs=1e-11)


def test_rho_where_only_some_ask() -> None:
    """On an even ring every edge has one end that asks, so all are as likely as when both do. On a star of 4 each edge
    has 1/3, whether its centre asks alone or all do (1/4 + 1/12): the Laplacian's eigenvalues are 1 and 4."""
    senders = {"exchange": "bipartite"}
    assert figures(spec(6, algorithm=senders))["rho"] == pytest.approx(on_a_ring(6), abs=1e-11)
    for algorithm in (senders, {}):
        assert figures(spec(4, "star", algorithm=algorithm))["rho"] == pytest.approx(1 - 1 / 6, abs=1e-11)


@pytest.mark.filterwarnings("error")
def test_edges_that_are_left_out_do_not_mix() -> None:
    """Of an odd ring of 3 one edge is dropped. Node 0 asks either of the others: E[A] is I - Laplacian/4 of a line of
    three, whose Laplacian has the eigenvalues 1 and 3."""
    prepared = prepare(spec(3, algorithm={"exchange": "bipartite"}))
    assert prepared.rho == pytest.approx(3 / 4, abs=1e-11)


def test_one_node_alone() -> None:
    """There is nobody to wait for, and nobody to be apart from."""
    found = figures(spec(1, "complete"))
    assert (found["rho"], found["staleness_mean"], found["staleness_max"]) == (0, 0, 0)


@pytest.mark.parametrize("nodes", [2, 5])
def test_staleness_of_nodes_that_take_turns(nodes: int) -> None:
    """From its second update on, K - 1 others come between; of the first ones the i-th, from 0, has i before it."""
    found = figures(spec(nodes, speeds={"name": "cyclic"}, links={"latency": 0}))
    updates = 6 * nodes
    total = sum(range(nodes)) + (updates - nodes) * (nodes - 1)
    assert found["staleness_mean"] == pytest.approx(total / updates)
    assert found["staleness_max"] == nodes - 1


def test_staleness_beside_a_slow_node_is_that_of_its_steps() -> None:
    """The most is that of the slow node, far more than a histogram has bins for."""
    slow = {"name": "constant", "scenario": {"name": "one_slow", "factor": 40}}
    prepared = prepare(spec(4, speeds=slow, stop={"updates": 400}))
    nodes = nodes_of(prepared, plan_run(prepared))
    made, before, ages = 0, {}, []

    def count(step: TraceStep) -> None:
        nonlocal made
        if isinstance(step.event, Completed):
            ages.append(made - before[step.node])
            made += 1
        if any(isinstance(effect, Compute) for effect in step.effects):
            before[step.node] = made

    simulator = Simulator(
        nodes, FixedAnswers(), prepared.world, watch=count, staleness=prepared.algorithm.figures.staleness
    )
    while made < 400:
        simulator.step()
    found = simulator.activity.computed_stale()
    assert found == (pytest.approx(sum(ages) / len(ages)), max(ages))
    assert max(ages) > 100


def test_large_graphs_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = prepare(spec(4))
    monkeypatch.setattr(preparing, "_MOST_MIXED", 3)
    assert replace(prepared).rho is None
    assert "rho" not in figures(spec(4))


def test_others_have_neither() -> None:
    summary = gs.run(spec(3, name="allreduce")).summary
    assert "allreduce" not in summary
