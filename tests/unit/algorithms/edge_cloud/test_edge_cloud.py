"""Edge-cloud learning: the server's sums against a loop done by hand, staleness and its bounds, joining and leaving."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sampling import examples

from gossamer.algorithms.clients.nodes import SERVER, Fetch, Halt, Leave, NewestAtClip, Push
from gossamer.algorithms.context import Context
from gossamer.algorithms.edge_cloud import box as edge_cloud
from gossamer.algorithms.edge_cloud.box import AgarwalDuchiRate, Settings, StalenessSettings, feasible
from gossamer.algorithms.mapa import box as mapa
from gossamer.errors import PeerError
from gossamer.privacy.clipping import Clipping, StageClip
from gossamer.privacy.mechanisms import Gaussian, L2Laplace, Mechanism, NeighboringRelation, NoNoise, Poisson
from gossamer.privacy.tasks import Gradient, Query
from gossamer.protocol.effects import Compute, Record, Send
from gossamer.protocol.events import PeerDown, PeerUp, Received, Started
from gossamer.protocol.trace import TraceStep
from gossamer.runtimes.simulator import Simulator
from gossamer.runtimes.speeds import SpeedSettings
from gossamer.runtimes.world import FaultSettings, LinkSettings, World
from gossamer.sides.machine import SideAnswer
from gossamer.testing.contracts import FixedAnswers
from gossamer.topology.graphs import Graph
from gossamer.vectors import Public, Released

SIZE = 3
TARGET = np.array([1.0, -2.0, 3.0])
ADD = NeighboringRelation.ADD_OR_REMOVE_ONE


class Quadratic:
    """Data sides of f(x) = |x - TARGET|^2 / 2 at every edge."""

    def __init__(self) -> None:
        self.tasks: list[Gradient] = []

    def admit(self, node: str, task: Gradient) -> Gradient:
        self.tasks.append(task)
        return task

    def compute(self, tickets: Sequence[Gradient]) -> list[SideAnswer]:
        return [SideAnswer(Released(ticket.model.values - TARGET)) for ticket in tickets]

    def releases(self, node: str) -> int:
        return len(self.tasks)


def context(nodes: int, mechanisms: Sequence[Mechanism] = (NoNoise(),), **changes: Any) -> Context:
    names = tuple(f"node-{i}" for i in range(nodes))
    laws = [mechanisms[i % len(mechanisms)] for i in range(nodes)]
    base = Context(
        seed=0,
        names=names,
        graph=Graph(nodes, np.empty((0, 2), int)),
        initial=Public(np.zeros(SIZE)),
        queries={name: Query(Poisson(0.5), law, 4.0) for name, law in zip(names, laws)},
        shard_sizes=dict.fromkeys(names, 8),
    )
    return replace(base, **changes)


def run(
    chosen: Any, known: Context, world: World | None = None, computer: Any = None
) -> tuple[Simulator, list[TraceStep], list[tuple[str, str, float]]]:
    steps: list[TraceStep] = []
    records: list[tuple[str, str, float]] = []
    algorithm = mapa if chosen.name == "mapa" else edge_cloud
    simulator = Simulator(
        algorithm.build(chosen, known),
        computer or Quadratic(),
        replace(world or World(), servers=(SERVER,)),
        watch=steps.append,
        record=lambda _, node, name, value: records.append((node, name, value)),
        count=edge_cloud.count,
    )
    while simulator.next_time is not None and not simulator.settled:
        simulator.step()
        assert len(steps) < 100_000, "the run does not end"
    return simulator, steps, records


def cyclic(nodes: int) -> World:
    """All take a second and start evenly spaced; nothing is lost to latency."""
    times = SpeedSettings(name="cyclic")
    return World(times, LinkSettings(latency=0.0))


@pytest.mark.parametrize("nodes", [1, 2, 5])
def test_with_cyclic_delays_the_model_is_that_of_the_loop(nodes: int) -> None:
    """x_{t+1} = x_t - eta (x_{t-tau} - TARGET), tau = min(t, K - 1): the edges finish in turn, each with a model that
    it got K - 1 updates ago, the first ones with x_0."""
    simulator, _, _ = run(Settings(nodes=nodes, learning_rate=0.1), context(nodes, updates=40), cyclic(nodes))
    models = [np.zeros(SIZE)]
    for t in range(40):
        models.append(models[t] - 0.1 * (models[max(t - (nodes - 1), 0)] - TARGET))
    np.testing.assert_allclose(edge_cloud.output(simulator.nodes).values, models[-1], rtol=1e-12)
    found = edge_cloud.report(simulator.nodes)
    assert found["staleness_max"] == nodes - 1
    assert found["staleness_mean"] == pytest.approx(np.mean([min(t, nodes - 1) for t in range(40)]))
    assert found["updates_applied"] == 40


def test_after_t_updates_everybody_has_the_servers_model() -> None:
    simulator, _, _ = run(Settings(nodes=4), context(4, updates=17), World(SpeedSettings(name="lognormal")))
    assert edge_cloud.count(simulator.nodes) == 17
    assert simulator.finished == {SERVER: "updates"} | {f"node-{i}": "halt" for i in range(4)}
    assert len({edge_cloud.ALGORITHM.model_of(node).values.tobytes() for node in simulator.nodes.values()}) == 1


def test_the_learning_rate_follows_the_epochs_of_all_edges() -> None:
    """8 updates of 4 examples are an epoch of 4 edges with 8 examples each: 8 steps of 0.5 and 4 of 0.05."""
    rate = {"schedule": "step", "initial": 0.5, "factor": 0.1, "epochs": [1]}
    computer = FixedAnswers()
    chosen = Settings(nodes=4, batch_size=4, learning_rate=rate)
    simulator, steps, _ = run(chosen, context(4, updates=12), cyclic(4), computer)
    pushed = [s.event.message.update.values for s in steps if s.node == SERVER and _is(s, Push)]
    expected = -sum((0.5 if t < 8 else 0.05) * gradient for t, gradient in enumerate(pushed[:12]))
    np.testing.assert_allclose(edge_cloud.output(simulator.nodes).values, expected, rtol=1e-12)


def _is(step: TraceStep, kind: type) -> bool:
    return isinstance(step.event, Received) and isinstance(step.event.message, kind)


def test_stale_gradients_take_smaller_steps() -> None:
    """With exponent 1 the first updates of three edges in turn are eta, eta/2 and eta/3 times their gradients."""
    chosen = Settings(nodes=3, learning_rate=0.6, staleness={"exponent": 1})
    simulator, steps, _ = run(chosen, context(3, updates=3), cyclic(3), FixedAnswers())
    pushed = [s.event.message.update.values for s in steps if s.node == SERVER and _is(s, Push)]
    expected = -(0.6 * pushed[0] + 0.3 * pushed[1] + 0.2 * pushed[2])
    np.testing.assert_allclose(edge_cloud.output(simulator.nodes).values, expected, rtol=1e-12)


def test_agarwal_and_duchis_step() -> None:
    """By hand: L (tau + 1)^2 = 2 * 9 = 18; Delta_b = 9/4 + 4; sqrt(6.25 * 4) / 0.5 = 10; so 1/28."""
    rate = AgarwalDuchiRate(smoothness=2, gradient_sd=3, radius=0.5)
    assert rate.at_update(3, nodes=3, batch_size=4, noise=4.0) == pytest.approx(1 / 28)
    fresh = rate.model_copy(update={"staleness": 0})
    assert fresh.at_update(3, nodes=3, batch_size=4, noise=4.0) == pytest.approx(1 / 12)
    published = rate.model_copy(update={"lag": "linear"})  # 2 L (tau + 1) = 12
    assert published.at_update(3, nodes=3, batch_size=4, noise=4.0) == pytest.approx(1 / 22)


def test_the_schedule_uses_the_smallest_budget() -> None:
    """E|n|^2 on the mean: d (z C)^2 / B^2 = 3 * 36 / 16 for z = 3; and for the L2-Laplace law d (d+1) (C/eps)^2 / B^2 =
    12 * 16 / 16 for eps = 1/2."""
    laws = [Gaussian(2.0, 1.0), Gaussian(2.0, 3.0)]
    assert edge_cloud.noise_on_mean(context(2, laws)) == pytest.approx(6.75)
    assert edge_cloud.noise_on_mean(context(2, laws), clip=1.0) == pytest.approx(6.75 / 4)
    laws = [L2Laplace(2.0, 0.5, ADD), L2Laplace(2.0, 1.0, ADD)]
    assert edge_cloud.noise_on_mean(context(2, laws)) == pytest.approx(12.0)


# Staleness


@given(st.lists(st.integers(0, 12), max_size=5), st.integers(0, 12), st.integers(0, 6))
def test_feasible_means_that_some_order_keeps_the_bound(versions: list[int], update: int, bound: int) -> None:
    """Oldest first is the best order, so it is enough to try that one."""
    versions = [min(version, update) for version in versions]
    in_time = all(update + i - version <= bound for i, version in enumerate(sorted(versions)))
    assert feasible(versions, update, bound) == in_time


SPEEDS = SpeedSettings(name="lognormal", spread=1.2)


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(1, 9), st.integers(0, 5), st.integers(0, 10_000), st.sampled_from(["wait", "drop"]))
def test_a_bound_on_the_staleness_is_kept_and_nobody_is_stuck(nodes: int, bound: int, seed: int, how: str) -> None:
    """Very uneven edges; every one makes its quota. Who waits drops nothing."""
    chosen = Settings(nodes=nodes, staleness={"bound": bound, "on_stale": how})
    known = context(nodes, quotas={f"node-{i}": 5 for i in range(nodes)})
    simulator, _, records = run(chosen, known, World(SPEEDS, seed=seed))
    found = edge_cloud.report(simulator.nodes)
    assert found["staleness_max"] <= bound
    assert found["updates_applied"] + found["updates_dropped"] == 5 * nodes
    assert found["updates_dropped"] == sum(name == "dropped_staleness" for _, name, _ in records)
    if how == "wait":
        assert found["updates_dropped"] == 0


@given(st.lists(st.integers(0, 12), min_size=1, max_size=6), st.integers(0, 12), st.integers(0, 6))
def test_some_update_may_always_be_made_whoever_came_back_late(versions: list[int], update: int, bound: int) -> None:
    """Of pieces of work that were all handed in, at any versions and however many, one may be applied."""
    versions = [min(version, update) for version in versions]
    waiting = StalenessSettings(bound=bound, on_stale="wait")
    others = [versions[:i] + versions[i + 1 :] for i in range(len(versions))]
    assert any(waiting.may_apply(version, rest, update) for version, rest in zip(versions, others))


def test_without_a_bound_uneven_edges_are_stale() -> None:
    """What the bounds above are for: the same edges exceed them freely."""
    known = context(9, quotas={f"node-{i}": 5 for i in range(9)})
    simulator, _, _ = run(Settings(nodes=9, staleness={"bound": 2}), known, World(SPEEDS))
    found = edge_cloud.report(simulator.nodes)
    assert found["staleness_max"] > 8
    assert found["updates_dropped"] == 0


# Joining, leaving, dying


@pytest.mark.parametrize("how", ["apply", "wait"])
def test_an_edge_that_dies_stops_nobody(how: str) -> None:
    """Not even where the others wait for it: once it has been silent for long enough, they go on."""
    faults = FaultSettings.model_validate({"absences": [{"node": 1, "start": 2.5}]})
    chosen = Settings(nodes=4, staleness={"bound": 3, "on_stale": how})
    quotas = {f"node-{i}": 30 for i in range(4)}
    links = LinkSettings(latency=0.1, silence=5.0)
    simulator, _, _ = run(chosen, context(4, quotas=quotas), World(SpeedSettings(), links, faults))
    assert set(simulator.finished) >= {"node-0", "node-2", "node-3"}
    assert edge_cloud.count(simulator.nodes) >= 90


def test_an_edge_may_come_late_and_come_back() -> None:
    """One is away from the start to second 20, one from second 3 to 30: both make their quotas in the end."""
    absences = [{"node": 0, "start": 0.0, "end": 20.0}, {"node": 1, "start": 3.0, "end": 30.0}]
    faults = FaultSettings.model_validate({"absences": absences})
    quotas = {f"node-{i}": 12 for i in range(3)}
    simulator, _, _ = run(Settings(nodes=3), context(3, quotas=quotas), World(SpeedSettings(), LinkSettings(), faults))
    assert {simulator.finished[f"node-{i}"] for i in range(3)} == {"quota"}
    assert edge_cloud.count(simulator.nodes) == 36


def test_a_server_that_was_away_goes_on_where_it_was() -> None:
    """Node number K is the server. What is pushed meanwhile is applied when it is back."""
    faults = FaultSettings.model_validate({"absences": [{"node": 3, "start": 3.0, "end": 40.0}]})
    quotas = {f"node-{i}": 12 for i in range(3)}
    links = LinkSettings(latency=0.1, silence=4.0)
    simulator, _, records = run(Settings(nodes=3), context(3, quotas=quotas), World(SpeedSettings(), links, faults))
    assert edge_cloud.count(simulator.nodes) == 36
    assert {node for node, name, _ in records if name == "server_lost"} == {"node-0", "node-1", "node-2"}


def test_who_waits_for_a_model_gets_it_when_it_is_back_and_holds_up_nobody_meanwhile() -> None:
    """With a bound of 0 one edge works at a time. One that waits is taken for lost, because the server was."""
    chosen = Settings(nodes=2, staleness={"bound": 0, "on_stale": "wait"})
    server, ones = edge_cloud.build(chosen, context(2))[SERVER], Released(np.ones(SIZE))

    def answered(event: Any, now: float) -> list[str]:
        return [e.to for e in server.handle(event, now) if isinstance(e, Send) and isinstance(e.message, NewestAtClip)]

    server.handle(Started(), 0.0)
    assert answered(Received("node-0", Fetch(1)), 0.0) == ["node-0"]
    assert answered(Received("node-1", Fetch(1)), 0.0) == []
    assert answered(PeerDown("node-1", "silent"), 1.0) == []
    assert answered(Received("node-0", Push(2, 0, ones)), 2.0) == ["node-0"]
    assert answered(PeerUp("node-1"), 3.0) == []
    assert answered(Received("node-0", Push(3, 1, ones)), 4.0) == ["node-1"]


def test_who_pulls_after_the_end_is_told_so() -> None:
    nodes = edge_cloud.build(Settings(nodes=2), context(2, updates=1))
    server = nodes[SERVER]
    server.handle(Started(), 0.0)
    server.handle(Received("node-0", Fetch(1)), 0.0)
    server.handle(Received("node-0", Push(2, 0, Released(np.ones(SIZE)))), 0.0)
    (effect,) = server.handle(Received("node-1", Fetch(1)), 1.0)
    assert effect == Send("node-1", Halt(1, server.state.x))


@pytest.mark.parametrize(
    "push",
    [
        Push(1, 1, Released(np.ones(SIZE))),
        Push(1, -1, Released(np.ones(SIZE))),
        Push(1, 0, Released(np.ones(SIZE + 1))),
        Push(1, 0, Released(np.full(SIZE, np.inf))),
        Push(1, 0, Released(np.ones(SIZE, np.float32))),
    ],
    ids=["from the future", "negative", "too long", "infinite", "another dtype"],
)
def test_a_push_that_cannot_be_is_refused(push: Push) -> None:
    server = edge_cloud.build(Settings(nodes=2), context(2))[SERVER]
    server.handle(Started(), 0.0)
    with pytest.raises(PeerError):
        server.handle(Received("node-0", push), 0.0)
    assert server.state.t == 0


def test_only_the_server_is_obeyed_and_only_edges_are_served() -> None:
    nodes = edge_cloud.build(Settings(nodes=2), context(2))
    for node in nodes.values():
        node.handle(Started(), 0.0)
    clip, model = Public(np.zeros(1)), Public(np.ones(SIZE))
    for message in (NewestAtClip(1, 5, clip, model), Halt(9, model)):
        with pytest.raises(PeerError, match="node-1 may send node-0 no "):
            nodes["node-0"].handle(Received("node-1", message), 1.0)
    for wish in (Fetch(1), Push(1, 0, Released(np.ones(SIZE))), Leave()):
        with pytest.raises(PeerError, match="stranger may send server no "):
            nodes[SERVER].handle(Received("stranger", wish), 1.0)


def test_an_edge_that_came_back_ignores_answers_to_what_it_asked_before() -> None:
    edge = edge_cloud.build(Settings(nodes=2), context(2))["node-0"]
    edge.handle(Started(), 0.0)
    clip, model = Public(np.zeros(1)), Public(np.ones(SIZE))
    assert edge.handle(Received(SERVER, NewestAtClip(0, 5, clip, model)), 1.0) == []
    (effect,) = edge.handle(Received(SERVER, NewestAtClip(1, 5, clip, model)), 1.0)
    assert isinstance(effect, Compute)


def test_an_edge_says_when_it_leaves() -> None:
    _, steps, _ = run(Settings(nodes=2), context(2, quotas={"node-0": 1, "node-1": 2}))
    left = [step.event.sender for step in steps if _is(step, Leave)]
    assert left == ["node-0", "node-1"]


# MAPA

STAGED = mapa.Settings(nodes=2, gradient_sd=1.0, smoothness=1.0, loss_gap=1.0, batch_size=4, reduction=0.5)


def test_edges_clip_at_the_bound_of_the_servers_stage() -> None:
    """And the server's steps are the stage's, with one gradient at most of the stage before."""
    law = Gaussian(1.0, 0.5)
    known = context(2, [law], updates=400, clipping=Clipping(StageClip(initial=8.0)))
    computer = Quadratic()
    simulator, _, records = run(STAGED, known, cyclic(2), computer)
    stages = mapa.report(simulator.nodes)["stages"]
    assert len(stages) > 2
    assert [stage["clip"] for stage in stages] == [8.0 / 2**i for i in range(len(stages))]
    used = [task.query.mechanism for task in computer.tasks]
    assert all(mechanism == replace(law, clip=mechanism.clip) for mechanism in used)  # the noise follows the clip
    changes = np.flatnonzero(np.diff([mechanism.clip for mechanism in used]))
    first = stages[0]["updates"]
    assert abs(int(changes[0]) - first) <= 2
    recorded = [value for node, name, value in records if name == "stage.clip"]
    assert recorded == pytest.approx([stage["clip"] for stage in stages])
    assert {name for _, name, _ in records} >= {
        f"stage.{name}" for name in ("sensitivity", "noise_second_moment", "penalty", "learning_rate", "updates")
    }


def test_the_first_clip_is_theorem_3s() -> None:
    """G = s / sqrt(1 - sqrt(1 - kappa)): at s = 1, kappa = 0.19 it is 1/sqrt(0.1)."""
    chosen = STAGED.model_copy(update={"kappa": 0.19})
    known = context(2, clipping=Clipping(StageClip()))
    assert mapa.schedule_of(chosen, known).at(0)[1].clip == pytest.approx(1 / math.sqrt(0.1))


def test_a_run_that_ends_inside_a_stage_is_warned_of() -> None:
    known = context(2, [Gaussian(1.0, 0.5)], clipping=Clipping(StageClip(initial=8.0)))
    lengths = [stage.updates for stage in mapa.schedule_of(STAGED, known).lengths(400)]
    (line,) = mapa.advice(STAGED, known, lengths[0] - 1)
    assert "fewer than the first stage has" in line
    assert str(lengths[0]) in line
    assert mapa.advice(STAGED, known, lengths[0]) == []
    (line,) = mapa.advice(STAGED, known, lengths[0] + 1)
    assert f"inside stage 2, after 1 of its {lengths[1]} updates" in line


def test_staleness_settings_need_a_bound_to_enforce() -> None:
    assert StalenessSettings(bound=3).enforced is None
    assert StalenessSettings(bound=3, on_stale="drop").enforced == 3
    with pytest.raises(ValueError, match="needs a bound"):
        StalenessSettings(on_stale="drop")


def test_the_private_log_knows_of_gradients_that_are_not_finite() -> None:
    """The data side counts them, the release goes out as always, and only the node's own log says so."""

    class Broken(Quadratic):
        def compute(self, tickets: Sequence[Gradient]) -> list[SideAnswer]:
            return [SideAnswer(answer.released, not_finite=2) for answer in super().compute(tickets)]

    _, steps, records = run(Settings(nodes=1), context(1, updates=2), computer=Broken())
    assert [entry for entry in records if entry[1] == "gradients_not_finite"] == [
        ("node-0", "gradients_not_finite", 2.0)
    ] * 2
    assert not any(isinstance(effect, Record) for step in steps for effect in step.effects)
