"""Push-sum: against the paper's box in plain numpy, its sums in runs with faults, and graphs that it cannot use."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.sampling import examples

from gossamer.algorithms.context import Context
from gossamer.algorithms.lock_step import Enough
from gossamer.algorithms.push_sum import box
from gossamer.algorithms.push_sum.box import WHOLE, Settings, Share
from gossamer.cli.main import main
from gossamer.errors import PeerError
from gossamer.privacy.mechanisms import NoNoise, Poisson
from gossamer.privacy.tasks import Gradient, Query
from gossamer.protocol.events import PeerDown, PeerUp, Received, Started
from gossamer.randomness import stream
from gossamer.runtimes.simulator import Simulator
from gossamer.runtimes.speeds import SpeedSettings
from gossamer.runtimes.world import FaultSettings, LinkSettings, World
from gossamer.testing.contracts import FixedAnswers
from gossamer.topology.topologies import build_graph
from gossamer.vectors import Public, Released

ETA = 0.25
QUERY = Query(Poisson(0.5), NoNoise(), 4.0)
UNEVEN = World(SpeedSettings(name="lognormal"), LinkSettings(latency=0.3, bandwidth=300.0))
RING = "directed_ring"
GRAPHS: list[Any] = [
    RING,
    "one_peer_exponential",
    {"schedule": ["star", RING, "random_matchings"]},
    {"name": "random_matchings", "steps": 9},
    "line",
]


def context(given: Settings, start: np.ndarray, updates: int | None) -> Context:
    names = tuple(f"node-{i}" for i in range(given.nodes))
    return Context(
        seed=0,
        names=names,
        graph=build_graph(given.topology, given.nodes, stream(2), names, directed=True),
        initial=Public(start),
        queries=dict.fromkeys(names, QUERY),
        shard_sizes=dict.fromkeys(names, 8),
        quotas=None if updates is None else dict.fromkeys(names, updates),
    )


def paper(steps: Any, start: np.ndarray, gradients: np.ndarray) -> np.ndarray:
    """Algorithm 1 of SGP with matrices: x <- P (x - eta g), w <- P w, z = x / w; gradients [rounds, nodes, size]."""
    nodes = gradients.shape[1]
    x, w = np.tile(start, (nodes, 1)), np.ones((nodes, 1))
    for k, g in enumerate(gradients):
        sends = np.eye(nodes)
        for i, j in steps[k % len(steps)]:
            sends[j, i] = 1
        p = sends / sends.sum(axis=0)
        x, w = p @ (x - ETA * g), p @ w
    return x / w


@pytest.mark.parametrize("topology", GRAPHS, ids=str)
def test_a_run_is_the_papers_box(topology: Any) -> None:
    """To the rounding of weights, 2^-40 of one, in each of six steps; the gradients depend on no model."""
    chosen = Settings(nodes=5, topology=topology, learning_rate=ETA)
    start = stream(3).standard_normal(7)
    of = context(chosen, start, 6)
    simulator = Simulator(box.build(chosen, of), FixedAnswers(), UNEVEN)
    while simulator.next_time is not None and not simulator.settled:
        simulator.step()
    answers, task = FixedAnswers(), Gradient(1, Public(start), QUERY)
    gradients = np.array([[answers.admit(name, task).values for name in of.names] for _ in range(6)])
    found = np.array([node.state.w.values for node in simulator.nodes.values()])
    np.testing.assert_allclose(found, paper(of.graph.steps, start, gradients), rtol=0, atol=1e-9)


ANSWERS = 12
"""The most of a node."""


class Marks(FixedAnswers):
    """The n-th answer of a node is 1 at a place of its own, and 0 elsewhere; some are lost to absences."""

    def admit(self, node: str, task: Any) -> Any:
        number = self.asked[node] = self.releases(node) + 1
        values = np.zeros(task.answer_size)
        values[int(node.removeprefix("node-")) * ANSWERS + number - 1] = 1.0
        return Released(values)


def masses(simulator: Simulator) -> tuple[int, np.ndarray]:
    """Weight of all, and what there is of each update, in units of eta: of nodes, and of shares under way."""
    weight, mass = 0, np.zeros(1)
    states = [node.state for node in simulator.nodes.values()]
    parts = [(state.weight, state.w) for state in states]
    parts += [(one.weight, one.model) for state in states for one in state.held]
    parts += [(m.message.weight, m.message.model) for m in simulator.in_flight if isinstance(m.message, Share)]
    for own, model in parts:
        assert own >= 0
        weight, mass = weight + own, mass - own / WHOLE * model.values / ETA
    return weight, mass


@settings(deadline=None, max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow])
@given(
    topology=st.sampled_from(GRAPHS),
    nodes=st.integers(2, 6),
    loss=st.sampled_from([0.0, 0.2, 0.5]),
    leaves=st.booleans(),
    seed=st.integers(0, 1 << 16),
)
def test_columns_sum_to_one_whatever_is_lost(topology: Any, nodes: int, loss: float, leaves: bool, seed: int) -> None:
    """After each event: no weight is made or lost, and all of each update is somewhere, once."""
    chosen = Settings(nodes=nodes, topology=topology, learning_rate=ETA, patience=3.0)
    of = context(chosen, np.zeros(nodes * ANSWERS), 4)
    absences = [{"node": 0, "start": 2.0, "end": 9.0}, {"node": 1, "start": 4.0}] if leaves else []
    links = LinkSettings(latency=0.3, jitter=0.5, loss=loss, retry_after=1.0, silence=4.0)
    world = World(
        SpeedSettings(name="lognormal"), links, FaultSettings.model_validate({"absences": absences}), seed=seed
    )
    simulator = Simulator(box.build(chosen, of), Marks(), world)
    for _ in range(4000):
        if simulator.next_time is None or simulator.settled:
            break
        simulator.step()
        weight, mass = masses(simulator)
        assert weight == nodes * WHOLE
        assert np.abs(mass - np.round(mass)).max() < 1e-9
        assert set(np.round(mass).tolist()) <= {0.0, 1.0}
    else:
        raise AssertionError("the run does not end")


def node(topology: Any = RING) -> Any:
    chosen = Settings(nodes=3, topology=topology, learning_rate=ETA)
    found = box.build(chosen, context(chosen, np.zeros(2), 5))["node-1"]
    found.handle(Started(), 0.0)
    return found


def share(sender: str, step: int, weight: int) -> Received:
    return Received(sender, Share(step, weight, Released(np.ones(2))))


def test_who_is_away_is_sent_nothing_and_told_so_when_it_is_back() -> None:
    one = node()
    one.handle(PeerDown("node-2", "silent"), 1.0)
    assert list(one.send()) == []
    assert one.state.weight == WHOLE
    (told,) = one.handle(PeerUp("node-2"), 2.0)
    assert (told.to, told.message.weight, told.message.step) == ("node-2", 0, 0)


def test_what_comes_when_all_is_over_is_kept() -> None:
    one = node()
    one.handle(Received("node-0", Enough()), 1.0)
    list(one.end("quota"))
    one.handle(share("node-0", 0, WHOLE), 2.0)
    assert one.state.weight == 2 * WHOLE
    np.testing.assert_array_equal(one.state.w.values, [0.5, 0.5])


@pytest.mark.parametrize(("sender", "weight"), [("node-0", -1), ("node-0", 3 * WHOLE), ("node-7", 1)])
def test_more_weight_than_there_is_and_strangers_are_refused(sender: str, weight: int) -> None:
    with pytest.raises(PeerError, match=r"sends a weight|may send"):
        node().handle(share(sender, 0, weight), 1.0)


# Graphs that cannot be used


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        (
            "{name: push_sum, nodes: 4, topology: {name: arcs, path: arcs.txt}}",
            "over all its steps together; no way leads from node-3 to node-0 and back: add arcs to and from them",
        ),
        (
            "{name: push_sum, nodes: 4, topology: {name: arcs, path: no_circle.txt}}",
            "; no way leads from node-0, node-1, node-2 to node-3 and back: add arcs to and from",
        ),
        (
            "{name: push_sum, nodes: 5, topology: {name: arcs, path: two_circles.txt}}",
            "; no way leads from node-3, node-4 to node-0 and back: add arcs to and from",
        ),
        (
            "{name: push_sum, nodes: 4, topology: {schedule: [{name: edges, path: three.txt}]}}",
            "; no way leads from node-3 to node-0 and back: add",
        ),
        ("{name: push_sum, nodes: 4, topology: {schedule: [rng]}}", "Gossamer's own, found 'rng'; did you mean ring?"),
        ("{name: push_sum, nodes: 4, topology: {schedule: []}}", "schedule"),
        ("{name: d_psgd, nodes: 4, topology: one_peer_exponential}", "only push_sum can use"),
        ("{name: gossip, nodes: 4, topology: directed_ring}", "only push_sum can use"),
    ],
)
def test_other_graphs_are_one_line(
    algorithm: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "arcs.txt").write_text("0 1\n1 2\n2 0\n0 3\n", encoding="utf-8")
    (tmp_path / "no_circle.txt").write_text("0 1\n1 2\n2 3\n0 3\n", encoding="utf-8")
    (tmp_path / "two_circles.txt").write_text("0 1\n1 2\n2 0\n3 4\n4 3\n0 3\n", encoding="utf-8")
    (tmp_path / "three.txt").write_text("0 1\n1 2\n", encoding="utf-8")
    (tmp_path / "spec.yaml").write_text(f"dataset: digits\nalgorithm: {algorithm}\nprivacy: none\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr("warnings.showwarning", warnings.showwarning)
    assert main(["check", "spec.yaml"]) == 2
    said = capsys.readouterr()
    assert message in said.err
    assert len(said.err.strip().splitlines()) == 1
