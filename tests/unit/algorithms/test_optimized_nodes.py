"""Nodes with an optimizer: their models against torch's, what they store, and that privacy knows nothing of it."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from gossamer.algorithms.table import ALGORITHMS
from gossamer.errors import SpecError
from gossamer.experiment.preparation.planning import plan_run
from gossamer.experiment.preparation.prepare import prepare
from gossamer.experiment.preparation.secrets import secret_seed
from gossamer.experiment.specs.spec_file import parse_spec, read_text, write_spec
from gossamer.faults.hosts import MemoryJournal
from gossamer.faults.schedules import SETTINGS
from gossamer.protocol.effects import Compute, Send
from gossamer.protocol.encoding import encode
from gossamer.protocol.events import Completed, Received, Started
from gossamer.protocol.node import Node, state_of
from gossamer.runtimes.host import DataSideAnswer, Host
from gossamer.testing.contracts import AlgorithmContract
from gossamer.vectors import Public, Released

torch = pytest.importorskip("torch", reason="needs the extra torch")

MOMENTUM = {"name": "momentum", "momentum": 0.8}
KEYS = {
    "gossip": "optimizer",
    "allreduce": "optimizer",
    "d_psgd": "optimizer",
    "audp": "optimizer",
    "fedbuff": "server_optimizer",
}
"""The setting's name in each algorithm that has it."""
GRADIENTS = np.random.default_rng(2).normal(size=(12, 2))
START = np.array([1.0, -3.0])


def nodes(algorithm: str, optimizer: Any, **settings: Any) -> dict[str, Node]:
    """The nodes of a run without quotas, which starts at `START`."""
    chosen = ALGORITHMS[algorithm]
    made = chosen.Settings(**{"name": algorithm, "nodes": 1, KEYS[algorithm]: optimizer, **settings})

    class Built(AlgorithmContract):
        settings = made

    return chosen.build(made, replace(Built().context(), initial=Public(START.copy()), quotas=None))


def torch_model(make: Any, rate: float, gradients: Any = GRADIENTS) -> Any:
    parameter = torch.nn.Parameter(torch.from_numpy(START.copy()))
    optimizer = make([parameter], lr=rate)
    for gradient in gradients:
        parameter.grad = torch.from_numpy(np.array(gradient))
        optimizer.step()
    return parameter.detach().numpy()


OPTIMIZERS = [
    pytest.param(MOMENTUM, partial(torch.optim.SGD, momentum=0.8), id="momentum"),
    pytest.param("adam", torch.optim.Adam, id="adam"),
]


@pytest.mark.parametrize(("optimizer", "make"), OPTIMIZERS)
@pytest.mark.parametrize("algorithm", ["gossip", "allreduce", "d_psgd"])
def test_a_node_alone_moves_as_torch_does(algorithm: str, optimizer: Any, make: Any) -> None:
    (node,) = nodes(algorithm, optimizer, learning_rate=0.3).values()
    effects = node.handle(Started(), 0.0)
    for time, gradient in enumerate(GRADIENTS, 1):
        (task,) = [effect.task for effect in effects if isinstance(effect, Compute)]
        effects = node.handle(Completed(task.id, Released(gradient.copy()), 1), float(time))
    np.testing.assert_allclose(node.state.w.values, torch_model(make, 0.3), rtol=1e-12)
    assert type(node.state.w) is Released
    assert all(type(vector) is Released for vector in node.state.memory.averages)


@pytest.mark.parametrize(("optimizer", "make"), OPTIMIZERS)
def test_an_edge_server_moves_as_torch_does(optimizer: Any, make: Any) -> None:
    from gossamer.algorithms.clients.nodes import SERVER, Fetch, Push

    server = nodes("audp", optimizer, learning_rate=0.3)[SERVER]
    server.handle(Started(), 0.0)
    (edge,) = server.clients  # type: ignore[attr-defined]
    server.handle(Received(edge, Fetch(1)), 0.0)
    for version, gradient in enumerate(GRADIENTS):
        server.handle(Received(edge, Push(version + 2, version, Released(gradient.copy()))), 1.0)
    np.testing.assert_allclose(server.state.x.values, torch_model(make, 0.3), rtol=1e-12)


@pytest.mark.parametrize(("optimizer", "make"), OPTIMIZERS)
def test_fedbuffs_server_moves_by_its_buffers_mean_as_torch_does(optimizer: Any, make: Any) -> None:
    from gossamer.algorithms.clients.nodes import SERVER, Push

    server = nodes("fedbuff", optimizer, learning_rate=0.3, buffer=3)[SERVER]
    server.handle(Started(), 0.0)
    (client,) = server.clients  # type: ignore[attr-defined]
    sums, total, steps = [], np.zeros(2), 0
    for number, update in enumerate(GRADIENTS, 1):
        old = max(steps - number % 2, 0)
        total += update / math.sqrt(1 + steps - old)
        server.handle(Received(client, Push(number, old, Released(update.copy()))), 1.0)
        if number % 3 == 0:
            sums.append(-total / 3)  # torch goes down, and an update points where the loss falls
            total, steps = np.zeros(2), steps + 1
    np.testing.assert_allclose(server.state.x.values, torch_model(make, 0.3, sums), rtol=1e-12)


def test_in_a_ring_the_mean_of_heavy_balls_is_the_heavy_ball_of_the_mean() -> None:
    """Each member has its own, and none is sent. All are linear, so their mean is that of all gradients."""
    from gossamer.runtimes.simulator import Simulator
    from gossamer.runtimes.world import World
    from gossamer.testing.contracts import FixedAnswers

    given: list[Any] = []

    class Watched(FixedAnswers):
        def compute(self, tickets: Any) -> Any:
            answers = super().compute(tickets)
            given.extend(answer.released.values for answer in answers)
            return answers

    members = nodes("allreduce", MOMENTUM, nodes=3, learning_rate=0.3)
    for node in members.values():
        node.quota = 5  # type: ignore[attr-defined]
    simulator = Simulator(members, Watched(), World())
    while simulator.next_time is not None and not simulator.settled:
        simulator.step()
    assert len(given) == 15
    means = [np.mean(given[3 * number : 3 * number + 3], axis=0) for number in range(5)]
    found = torch_model(partial(torch.optim.SGD, momentum=0.8), 0.3, means)
    for node in members.values():
        np.testing.assert_allclose(node.state.w.values, found, rtol=1e-12)
    first, second, _ = (node.state.memory.averages[0] for node in members.values())
    assert first != second


def test_gossip_exchanges_the_model_and_keeps_the_memory() -> None:
    members = nodes("gossip", MOMENTUM, nodes=2, topology="complete")
    (name, node), (other, peer) = members.items()
    sent = [effect for effect in node.handle(Started(), 0.0) if isinstance(effect, Send)]
    peer.handle(Started(), 0.0)
    node.handle(Completed(1, Released(np.ones(2)), 1), 1.0)
    before = node.state.memory
    (answer,) = peer.handle(Received(name, sent[0].message), 1.0)
    node.handle(Received(other, answer.message), 2.0)  # type: ignore[attr-defined]
    assert node.state.memory is before
    assert peer.state.memory is None


# Stores


def played(host: Host, gradients: Any, time: float) -> None:
    for gradient in gradients:
        time += 1.0
        task = host.node.state.task
        host.take(DataSideAnswer(Completed(task, Released(gradient.copy()), 1)), time)


@pytest.mark.parametrize("optimizer", [MOMENTUM, "adam"])
@pytest.mark.parametrize("snapshot", [False, True])
@pytest.mark.parametrize("algorithm", ["gossip", "allreduce"])
def test_a_node_that_is_killed_goes_on_with_its_memory(algorithm: str, snapshot: bool, optimizer: Any) -> None:
    def fresh(journal: MemoryJournal) -> Host:
        (node,) = nodes(algorithm, optimizer).values()
        return Host(node, SETTINGS, journal)

    whole, journal = fresh(MemoryJournal()), MemoryJournal()
    halves = fresh(journal)
    for host in (whole, halves):
        host.start(0.0)
        played(host, GRADIENTS[:6], 0.0)
    if snapshot:
        halves.checkpoint()
    again = fresh(journal.copy())
    assert encode(state_of(again.node)) == encode(state_of(whole.node))
    for host in (whole, again):
        played(host, GRADIENTS[6:], 6.0)
    assert encode(state_of(again.node)) == encode(state_of(whole.node))
    assert again.node.state.memory.steps == 12


# Specs and privacy

PRIVATE: dict[str, dict[str, Any]] = {
    "gossip": {"algorithm": {"name": "gossip", "nodes": 4, "updates_per_node": 20}, "budget": {"epsilon": 4}},
    "allreduce": {"algorithm": {"name": "allreduce", "nodes": 4, "updates_per_node": 20}, "budget": {"epsilon": 4}},
    "audp": {
        "algorithm": {"name": "audp", "nodes": 4, "updates_per_node": 20},
        "privacy": {"noise_multiplier": 1.5},
    },
    "fedbuff": {
        "algorithm": {"name": "fedbuff", "nodes": 4, "updates_per_node": 5, "buffer": 2, "local_steps": 2},
        "budget": {"epsilon": 6},
    },
}


def with_optimizer(algorithm: str, optimizer: Any) -> dict[str, Any]:
    spec = PRIVATE[algorithm]
    return {**spec, "algorithm": {**spec["algorithm"], KEYS[algorithm]: optimizer}}


@pytest.mark.filterwarnings("ignore::gossamer.errors.RunWarning")
@pytest.mark.parametrize("optimizer", [MOMENTUM, "adam"])
@pytest.mark.parametrize("algorithm", PRIVATE)
def test_an_optimizer_costs_no_privacy(algorithm: str, optimizer: Any) -> None:
    without, having = (
        plan_run(prepare(parse_spec(spec))) for spec in (PRIVATE[algorithm], with_optimizer(algorithm, optimizer))
    )
    assert having.mechanisms == without.mechanisms
    assert list(having.noise) == list(without.noise)
    assert having.epsilons == without.epsilons
    assert all(0 < epsilon < math.inf for epsilon in having.epsilons.values())
    assert {name: str(found) for name, found in having.guarantees.items()} == {
        name: str(found) for name, found in without.guarantees.items()
    }


@pytest.mark.parametrize("algorithm", PRIVATE)
def test_sgd_by_name_is_the_same_run_and_another_optimizer_is_another(algorithm: str) -> None:
    silent, named = parse_spec(PRIVATE[algorithm]), parse_spec(with_optimizer(algorithm, "sgd"))
    assert write_spec(named) == write_spec(silent)
    assert KEYS[algorithm] not in silent.model_dump(mode="json")["algorithm"]
    other = parse_spec(with_optimizer(algorithm, MOMENTUM))
    assert read_text(write_spec(other)) == other
    seeds = {secret_seed(prepare(spec), []) for spec in (silent, named, other)}
    assert len(seeds) == 2


@pytest.mark.parametrize(
    ("algorithm", "said"),
    [
        ({"name": "gossip", "optimizer": "adamw"}, r"algorithm\.optimizer"),
        ({"name": "gossip", "optimizer": {"name": "momentum", "momentum": 1}}, r"algorithm\.optimizer.*less than 1"),
        ({"name": "gossip", "optimizer": {"name": "adam", "momentum": 0.9}}, r"algorithm\.optimizer.*momentum"),
        ({"name": "mapa", "optimizer": "adam"}, "mapa's stages follow from plain steps, so it has no optimizer"),
        ({"name": "fedbuff", "optimizer": "adam"}, r"algorithm\.optimizer"),
    ],
)
def test_what_does_not_fit_is_one_line(algorithm: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said) as raised:
        parse_spec({"algorithm": algorithm, "privacy": "none"})
    assert "\n" not in str(raised.value)
