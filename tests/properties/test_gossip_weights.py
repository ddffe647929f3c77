"""Gossip's realised mixing matrices are doubly stochastic, entry by entry, whatever the links and the nodes do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.reference.gossip_weights import WeighedRun
from tests.sampling import examples

from gossamer.runtimes.speeds import SpeedSettings
from gossamer.runtimes.world import FaultSettings, LinkSettings, World

pytestmark = pytest.mark.filterwarnings("ignore::gossamer.topology.graphs.DroppedEdges")

ROUNDING = 1e-12
FEW = settings(deadline=None, max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow])
MANY = settings(FEW, max_examples=examples(500))
TOPOLOGIES = ["ring", "line", "star", "complete", "exponential", {"name": "small_world", "k": 2, "p": 0.5}]
SPEEDS = [
    {"name": "constant"},
    {"name": "constant", "stagger": 0.0},
    {"name": "constant", "scenario": {"name": "one_slow", "factor": 10}},
    {"name": "constant", "scenario": {"name": "one_slow", "factor": 0.1, "node": 0}},
    {"name": "lognormal", "spread": 1.5},
    {"name": "cyclic"},
]
LATENCIES = [0.0, 0.01, 0.3, 1.0, 2.0, 5.0]


def check_models(weights: Any, nodes: int) -> None:
    """Rows of a model's weights: none is negative, and those of initial models sum to 1."""
    assert weights.min() >= -ROUNDING
    np.testing.assert_allclose(weights[:, :nodes].sum(axis=1), 1.0, rtol=0, atol=ROUNDING)


def check_holdings(run: WeighedRun, nodes: int) -> None:
    """Entries in [0, 1], rows and columns that sum to 1: of updates, columns of those that were applied."""
    held = run.holdings
    assert -ROUNDING <= held.min() <= held.max() <= 1 + ROUNDING
    np.testing.assert_allclose(held[:, :nodes].sum(axis=1), 1.0, rtol=0, atol=ROUNDING)
    columns = held.sum(axis=0)
    applied = sum(node.state.updates for node in run.nodes.values())
    np.testing.assert_allclose(np.sort(columns)[::-1][: nodes + applied], 1.0, rtol=0, atol=ROUNDING)
    assert np.count_nonzero(columns) == nodes + applied


@pytest.mark.parametrize("topology", ["star", "ring", "complete"])
@pytest.mark.parametrize("latency", [0.01, 1.0, 2.0])
def test_no_model_has_a_negative_share_in_another(topology: str, latency: float) -> None:
    """Nor more than all of it. A node that was asked while it asked came to -0.5, on a star with latency 2."""
    world = World(SpeedSettings(), LinkSettings(latency=latency), seed=1)
    for weights in WeighedRun(world, topology, nodes=6, updates=12):
        assert -ROUNDING <= weights.min() <= weights.max() <= 1 + ROUNDING


RELIABLE = (
    st.sampled_from(TOPOLOGIES),
    st.sampled_from(LATENCIES),
    st.sampled_from(SPEEDS),
    st.integers(3, 7),
    st.sampled_from(["any", "any", "bipartite"]),
    st.integers(0, 1 << 16),
)
LOSSY = (
    st.sampled_from(TOPOLOGIES),
    st.sampled_from(LATENCIES),
    st.sampled_from(SPEEDS),
    st.integers(3, 6),
    st.sampled_from([0.0, 0.2, 0.6]),
    st.sampled_from([0.0, 3.0]),
    st.sampled_from([1.5, 4.0, 30.0]),
    st.booleans(),
    st.integers(0, 1 << 16),
)


def check_reliable(topology: Any, latency: float, speeds: dict[str, Any], nodes: int, exchange: str, seed: int) -> None:
    """On links that lose nothing, where a node has one exchange open at most, models too have no entry above 1."""
    world = World(SpeedSettings.model_validate(speeds), LinkSettings(latency=latency), seed=seed)
    run = WeighedRun(world, topology, nodes, 6, exchange)
    for weights in run:
        check_models(weights, nodes)
        check_holdings(run, nodes)
        assert weights.max() <= 1 + ROUNDING


def check_lossy(
    topology: Any,
    latency: float,
    speeds: dict[str, Any],
    nodes: int,
    loss: float,
    jitter: float,
    silence: float,
    leaves: bool,
    seed: int,
) -> None:
    """Offers time out, so that several are open; and a node leaves and comes back, and another goes for good."""
    links = LinkSettings(latency=latency, jitter=jitter, loss=loss, retry_after=1.0, silence=silence)
    absences = [{"node": 0, "start": 2.0, "end": 9.0}, {"node": 1, "start": 4.0}] if leaves else []
    faults = FaultSettings.model_validate({"absences": absences})
    run = WeighedRun(World(SpeedSettings.model_validate(speeds), links, faults, seed=seed), topology, nodes, 5)
    for _, weights in zip(range(3000), run):
        check_models(weights, nodes)
        check_holdings(run, nodes)
        assert weights[:, :nodes].max() <= 1 + ROUNDING


test_matrices_are_doubly_stochastic = FEW(given(*RELIABLE)(check_reliable))
test_matrices_are_doubly_stochastic_where_answers_are_lost = FEW(given(*LOSSY)(check_lossy))
test_many_matrices_are_doubly_stochastic = pytest.mark.slow(MANY(given(*RELIABLE)(check_reliable)))
test_many_matrices_are_doubly_stochastic_where_answers_are_lost = pytest.mark.slow(MANY(given(*LOSSY)(check_lossy)))
