"""D-PSGD and Muffliato: against a loop over matrices in plain numpy, and with neighbours that fall silent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.reference.gossip_loop import averaged, loop, metropolis_weights, second_order_weight

import gossamer as gs
from gossamer.algorithms.context import Context
from gossamer.algorithms.lock_step import Enough
from gossamer.algorithms.nodes import Probe
from gossamer.algorithms.synchronous_gossip import box
from gossamer.algorithms.synchronous_gossip.box import Iterate, Settings, SynchronousNode, momentum, rows
from gossamer.errors import PeerError, SpecError
from gossamer.experiment.preparation.planning import plan_run
from gossamer.experiment.preparation.prepare import prepare
from gossamer.experiment.specs.spec_file import parse_spec
from gossamer.privacy.mechanisms import NoNoise, Poisson
from gossamer.privacy.tasks import Gradient, Query
from gossamer.protocol.effects import Compute, Effect, Finish, Send, SetTimer
from gossamer.protocol.events import Completed, Elapsed, PeerDown, PeerUp, Received, Refused, Resumed, Started
from gossamer.protocol.messages import Message
from gossamer.protocol.node import Node
from gossamer.randomness import stream
from gossamer.runtimes.simulator import Simulator
from gossamer.runtimes.speeds import SpeedSettings
from gossamer.runtimes.world import FaultSettings, LinkSettings, World
from gossamer.testing.contracts import FixedAnswers
from gossamer.topology.kinds import Complete, LineTopology, Ring, Star
from gossamer.topology.mixing import metropolis
from gossamer.topology.topologies import build_graph
from gossamer.vectors import Public, Released

SIZE, ETA = 7, 0.25
QUERY = Query(Poisson(0.5), NoNoise(), 4.0)
UNEVEN = World(SpeedSettings(name="lognormal"), LinkSettings(latency=0.3, bandwidth=300.0))
START = stream(3).standard_normal(SIZE)


def context(settings: Settings, rounds: int | dict[str, int] | None = 5) -> Context:
    names = tuple(f"node-{i}" for i in range(settings.nodes))
    return Context(
        seed=0,
        names=names,
        graph=build_graph(settings.topology, settings.nodes, stream(2), names),
        initial=Public(START),
        queries=dict.fromkeys(names, QUERY),
        shard_sizes=dict.fromkeys(names, 8),
        quotas=dict.fromkeys(names, rounds) if isinstance(rounds, int) else rounds,
    )


def settings(**given: Any) -> Settings:
    return Settings(learning_rate=ETA, **given)


def simulated(
    given: Settings, world: World | None = None, rounds: Any = 5, computer: FixedAnswers | None = None
) -> Simulator:
    """A whole run."""
    simulator = Simulator(box.build(given, context(given, rounds)), computer or FixedAnswers(), world or UNEVEN)
    events = 0
    while simulator.next_time is not None and not simulator.settled:
        simulator.step()
        events += 1
        assert events < 50_000, "the run does not end"
    return simulator


def models(simulator: Simulator) -> np.ndarray:
    return np.array([node.state.w.values for node in simulator.nodes.values()])


def fixed_gradients(nodes: int, rounds: int) -> np.ndarray:
    """Answers [rounds, nodes, size] of `FixedAnswers`."""
    answers, task = FixedAnswers(), Gradient(1, Public(START), QUERY)
    return np.array([[answers.admit(f"node-{i}", task).values for i in range(nodes)] for _ in range(rounds)])


# Against the formula

GIVEN = [
    settings(nodes=5),
    settings(nodes=4, topology="star"),
    settings(nodes=6, topology="complete"),
    settings(name="muffliato", nodes=6),
    settings(name="muffliato", nodes=5, topology="line", gossip_steps=4),
    settings(name="muffliato", nodes=5, topology="line", gossip_steps=3, acceleration="none"),
]


@pytest.mark.parametrize("given", GIVEN, ids=lambda given: f"{given.name}-{given.topology.name}-{given.acceleration}")
def test_a_run_is_the_loop_over_matrices(given: Settings) -> None:
    """X <- P(W) (X - eta G), to rounding, whoever is slow."""
    w = metropolis_weights(context(given).graph)
    gradients = fixed_gradients(given.nodes, 5)
    gamma = second_order_weight(w) if given.acceleration == "chebyshev" else 1.0
    start = np.tile(START, (given.nodes, 1))
    expected = loop(start, w, lambda x, number: gradients[number], ETA, 5, given.gossip_steps, gamma)
    np.testing.assert_allclose(models(simulated(given)), expected, rtol=1e-12, atol=1e-12)


def softmax_gradients(features: list[np.ndarray], targets: list[np.ndarray], classes: int) -> Any:
    """Mean gradients of softmax regression at each node's examples, of models [weight in C order, bias]."""

    def gradients(x: np.ndarray, number: int) -> np.ndarray:
        found = []
        for model, a, y in zip(x, features, targets, strict=True):
            weight, bias = model[:-classes].reshape(classes, -1), model[-classes:]
            scores = a @ weight.T + bias
            shares = np.exp(scores - scores.max(axis=1, keepdims=True))
            shares /= shares.sum(axis=1, keepdims=True)
            shares[np.arange(len(y)), y.astype(int)] -= 1
            found.append(np.concatenate([(shares.T @ a).ravel(), shares.sum(axis=0)]) / len(y))
        return np.array(found)

    return gradients


@pytest.mark.parametrize("algorithm", [{"name": "d_psgd"}, {"name": "muffliato", "gossip_steps": 3}])
def test_without_noise_digits_are_learnt_as_by_the_loop(algorithm: dict[str, Any]) -> None:
    """Whole shards in each batch, nothing clipped: the mean of models is the loop's, to the rounding of float32."""
    spec = parse_spec(
        {
            "dataset": "digits",
            "objective": "softmax",
            "partition": {"name": "sizes", "sizes": [100] * 4},
            "algorithm": {**algorithm, "nodes": 4, "batch_size": 100, "learning_rate": 0.5, "updates_per_node": 10},
            "privacy": "none",
            "evaluation": "off",
        }
    )
    prepared = prepare(spec)
    train = prepared.dataset.train
    w = metropolis_weights(prepared.graph)
    features = [np.asarray(train.features[shard], np.float64).reshape(100, -1) for shard in prepared.shards]
    gradients = softmax_gradients(features, [train.targets[shard] for shard in prepared.shards], 10)
    start = np.tile(np.asarray(prepared.initial.values, np.float64), (4, 1))
    gamma, steps = (second_order_weight(w), 3) if algorithm["name"] == "muffliato" else (1.0, 1)
    expected = loop(start, w, gradients, 0.5, 10, steps, gamma).mean(axis=0)
    found = gs.run(spec).model.vector
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6)
    assert np.abs(expected).max() > 0.05  # or nothing was learnt


@pytest.mark.parametrize("topology", [Ring(), LineTopology(), Star(), Complete()])
def test_rows_are_those_of_the_matrix(topology: Any) -> None:
    names = tuple("abcdefg")
    graph = build_graph(topology, len(names), stream(1), names)
    found = rows(graph, names, accelerated=True)
    matrix = metropolis(graph).toarray()
    for i, name in enumerate(names):
        own = 1 - sum(found[name].weights.values())
        row = [own if other == name else found[name].weights.get(other, 0.0) for other in names]
        np.testing.assert_allclose(row, matrix[i], atol=1e-15)
        assert found[name].momentum == pytest.approx(second_order_weight(matrix), rel=1e-12)


@pytest.mark.parametrize("topology", [Ring(), LineTopology()])
def test_acceleration_brings_models_together_faster(topology: Any) -> None:
    """And leaves their mean where it is."""
    w = metropolis_weights(build_graph(topology, 16, stream(1), tuple(map(str, range(16)))))
    x = stream(5).standard_normal((16, 50))
    plain, fast = (averaged(x, w, 20, gamma) for gamma in (1.0, second_order_weight(w)))
    np.testing.assert_allclose(fast.mean(axis=0), x.mean(axis=0), atol=1e-12)
    assert 4 * np.std(fast, axis=0).max() < np.std(plain, axis=0).max()


def test_the_recursion_of_a_graph_without_a_gap_or_with_the_whole() -> None:
    assert momentum(0.0) == 2.0
    assert momentum(1.0) == pytest.approx(2 / (1 + np.sqrt(3) / 2))


# Neighbours that fall silent


def node_of(given: Settings, name: str = "node-1", rounds: int | None = 5) -> SynchronousNode:
    """A node of a line of three, which knows of two neighbours, and computes."""
    found = box.build(given, context(given, rounds))[name]
    assert isinstance(found, SynchronousNode)
    found.handle(Started(), 0.0)
    return found


def step(node: Node, gradient: float = 1.0) -> list[Effect]:
    return node.handle(Completed(node.state.task, Released(np.full(SIZE, gradient)), 1), 1.0)


def sent(effects: list[Effect]) -> list[tuple[str, Message]]:
    return [(effect.to, effect.message) for effect in effects if isinstance(effect, Send)]


def said(sender: str, message: Message) -> Received:
    return Received(sender, message)


THREE = settings(nodes=3, topology="line")


def test_the_weight_of_who_is_down_is_the_nodes_own() -> None:
    node = node_of(THREE)
    own = START - ETA
    assert sent(step(node)) == [(name, Iterate(0, Released(own))) for name in ("node-0", "node-2")]
    other = np.arange(SIZE) * 1.0
    assert node.handle(said("node-0", Iterate(0, Released(other))), 2.0) == []
    effects = node.handle(PeerDown("node-2", "silent"), 3.0)
    assert any(isinstance(effect, Compute) for effect in effects)
    np.testing.assert_allclose(node.state.w.values, 2 / 3 * own + 1 / 3 * other, rtol=1e-14)
    assert [name for name, _ in sent(step(node))] == ["node-0"]


def test_who_comes_back_is_told_the_newest_and_waited_for() -> None:
    node = node_of(THREE)
    step(node)
    node.handle(PeerDown("node-2", "silent"), 3.0)
    node.handle(said("node-0", Iterate(0, Released(START))), 3.0)
    step(node)
    ((to, message),) = sent(node.handle(PeerUp("node-2"), 4.0))
    assert (to, message) == ("node-2", Iterate(1, node.state.w))
    node.handle(said("node-0", Iterate(1, Released(START))), 5.0)
    assert node.state.step == 1
    node.handle(said("node-2", Iterate(0, Released(START))), 5.0)  # of a step that was made without it
    assert node.state.step == 1
    node.handle(said("node-2", Iterate(1, Released(START))), 6.0)
    assert node.state.step == 2


def test_who_lags_behind_takes_what_the_others_have_by_now() -> None:
    node = node_of(THREE)
    ahead = np.ones(SIZE)
    for number, value in ((0, 0.0), (1, 5.0), (4, 1.0)):
        node.handle(said("node-0", Iterate(number, Released(value * ahead))), 1.0)
        node.handle(said("node-2", Iterate(number, Released(value * ahead))), 1.0)
    assert {**node.state.heard_of} == {"node-0": 0, "node-2": 0}
    assert {**node.state.ahead_of} == {"node-0": 4, "node-2": 4}  # those of step 1 are older
    for number in range(1, 5):
        before = node.state.w.values
        step(node, 0.0)
        assert node.state.step == number
        heard = ahead * (0.0 if number == 1 else 1.0)
        np.testing.assert_allclose(node.state.w.values, before / 3 + 2 / 3 * heard, rtol=1e-12)


def test_what_is_said_twice_counts_once() -> None:
    node = node_of(THREE)
    step(node)
    for value in (1.0, 2.0):
        node.handle(said("node-0", Iterate(0, Released(np.full(SIZE, value)))), 1.0)
    assert node.state.heard["node-0"] == Released(np.ones(SIZE))
    assert not node.state.ahead


def test_nobody_is_waited_for_who_has_said_enough() -> None:
    node = node_of(THREE, rounds=None)
    step(node)
    node.handle(said("node-0", Enough()), 2.0)
    assert node.state.step == 0
    node.handle(said("node-2", Enough()), 2.0)
    assert node.state.step == 1
    assert sent(step(node)) == []


def test_silent_neighbours_are_asked_whether_they_are_there_and_ever_more_seldom() -> None:
    node = node_of(settings(nodes=3, topology="line", patience=2.0))
    assert SetTimer(2.0, "patience") in step(node)
    node.handle(said("node-0", Iterate(0, Released(START))), 1.0)
    assert node.handle(Elapsed("patience"), 3.0) == [Send("node-2", Probe()), SetTimer(4.0, "patience")]
    assert node.handle(Elapsed("patience"), 7.0) == [Send("node-2", Probe()), SetTimer(8.0, "patience")]


@pytest.mark.parametrize("message", [Iterate(0, Released(START)), Probe(), Enough()])
def test_only_neighbours_are_heard(message: Message) -> None:
    node = node_of(THREE, "node-0")
    with pytest.raises(PeerError, match="node-2 may send node-0 no "):
        node.handle(said("node-2", message), 1.0)


def test_who_was_away_while_it_computed_computes_again_and_who_waited_goes_on_waiting() -> None:
    node = node_of(THREE)
    (asked,) = node.handle(Resumed(3.0), 3.0)
    assert isinstance(asked, Compute)
    assert asked.task.id == 2
    assert node.handle(Completed(1, Released(START), 1), 3.0) == []
    step(node)
    assert node.handle(Resumed(3.0), 9.0) == [SetTimer(60.0, "patience")]


def test_a_node_without_budget_goes_on_averaging() -> None:
    node = node_of(THREE)
    effects = node.handle(Refused(1, 0), 1.0)
    assert Finish("budget") in effects
    assert sent(effects) == [(name, Iterate(0, Public(START))) for name in ("node-0", "node-2")]
    assert not any(isinstance(effect, Compute) for effect in effects)


def test_a_node_without_budget_and_rounds_makes_no_more() -> None:
    effects = node_of(THREE, rounds=None).handle(Refused(1, 0), 1.0)
    assert sent(effects) == [("node-0", Enough()), ("node-2", Enough())]
    assert effects[-1] == Finish("budget")


def test_all_others_finish_when_one_is_gone_for_good() -> None:
    faults = FaultSettings.model_validate({"absences": [{"node": 2, "start": 2.5}]})
    simulator = simulated(settings(nodes=5), World(SpeedSettings(), LinkSettings(silence=4.0), faults))
    assert {name: reason for name, reason in simulator.finished.items() if name != "node-2"} == dict.fromkeys(
        ("node-0", "node-1", "node-3", "node-4"), "quota"
    )


def test_who_comes_back_makes_all_its_rounds() -> None:
    faults = FaultSettings.model_validate({"absences": [{"node": 2, "start": 2.5, "end": 40.0}]})
    computer = FixedAnswers()
    given = settings(name="muffliato", nodes=5, gossip_steps=2)
    simulator = simulated(given, World(SpeedSettings(), LinkSettings(silence=4.0), faults), 8, computer)
    assert set(simulator.finished.values()) == {"quota"}
    assert computer.asked["node-2"] in (8, 9)  # what was under way was lost
    assert all(computer.asked[f"node-{i}"] == 8 for i in (0, 1, 3, 4))


def test_nodes_with_fewer_rounds_leave_the_others_to_theirs() -> None:
    quotas = {"node-0": 2, "node-1": 6, "node-2": 4, "node-3": 6}
    computer = FixedAnswers()
    simulator = simulated(settings(nodes=4), rounds=quotas, computer=computer)
    assert computer.asked == quotas
    assert set(simulator.finished.values()) == {"quota"}


# Specs

SPEC: dict[str, Any] = {
    "dataset": "digits",
    "algorithm": {"name": "muffliato", "nodes": 3, "updates_per_node": 5, "learning_rate": 0.5},
    "budget": {"epsilon": 5, "delta": 1e-4},
}


def test_noise_and_epsilon_of_a_node_are_those_of_gossip() -> None:
    """The same shards, samples, updates and accountant: averaging is post-processing, however often."""
    gossip = {**SPEC, "algorithm": {**SPEC["algorithm"], "name": "gossip"}}
    found, other = (plan_run(prepare(parse_spec(spec))) for spec in (SPEC, gossip))
    assert found.epsilons == other.epsilons
    assert found.mechanisms == other.mechanisms
    assert found.guarantee.observer == other.guarantee.observer


def test_muffliato_averages_five_times_unless_told_otherwise() -> None:
    found = parse_spec(SPEC).algorithm
    assert (found.gossip_steps, found.acceleration) == (5, "chebyshev")
    assert Settings().gossip_steps == 1


@pytest.mark.parametrize("wrong", [{"gossip_steps": 2}, {"acceleration": "chebyshev"}])
def test_d_psgd_averages_once(wrong: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="d_psgd averages once a round"):
        parse_spec({**SPEC, "algorithm": {**SPEC["algorithm"], "name": "d_psgd", **wrong}})
