"""FedAsync: the server's model against a loop done by hand, weights, what clients are charged, and what is refused."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from tests.reference import client_specs

from gossamer.algorithms.clients import parts
from gossamer.algorithms.clients.nodes import SERVER, Fetch, Leave, Newest, Push
from gossamer.algorithms.context import Context
from gossamer.algorithms.fedasync import box as fedasync
from gossamer.algorithms.fedasync.box import Settings
from gossamer.algorithms.plan import Plan
from gossamer.cli import main
from gossamer.errors import BudgetUnreachable, PeerError, SpecError
from gossamer.experiment.runs.running import run
from gossamer.experiment.specs.spec_file import parse_spec
from gossamer.privacy.mechanisms import Gaussian, NoNoise, Poisson
from gossamer.privacy.tasks import Query, TrainingQuery
from gossamer.protocol.effects import Compute, Effect, Send
from gossamer.protocol.events import Completed, Event, Received, Resumed, Started
from gossamer.protocol.messages import Message
from gossamer.protocol.node import Node
from gossamer.protocol.trace import TraceStep
from gossamer.runtimes.simulator import Simulator
from gossamer.runtimes.speeds import SpeedSettings
from gossamer.runtimes.world import World
from gossamer.sides.plan import WHOLE, ClientUpdate, counts_of
from gossamer.testing.contracts import FixedAnswers
from gossamer.topology.graphs import Graph
from gossamer.vectors import LARGEST_VALUE, Confined, Public, Released

START = np.array([1.0, -1.0, 2.0])
SPEC: dict[str, Any] = {
    "dataset": "digits",
    "algorithm": {"name": "fedasync", "nodes": 4, "local_steps": 2, "updates_per_node": 5},
    "privacy": {"clip": 0.5, "noise_multiplier": 8.0},
}
BARE = {"mechanism": "none", "noise_multiplier": None, "clip": None}


def spec(**changes: Any) -> dict[str, Any]:
    """The spec with other sections, or other keys in them."""
    return client_specs.changed(SPEC, **changes)


def context(nodes: int, **changes: Any) -> Context:
    names = tuple(f"node-{i}" for i in range(nodes))
    base = Context(
        seed=0,
        names=names,
        graph=Graph(nodes, np.empty((0, 2), int)),
        initial=Public(START.copy()),
        queries={name: Query(Poisson(0.5), NoNoise(), 4.0) for name in names},
        shard_sizes=dict.fromkeys(names, 8),
        quotas=dict.fromkeys(names, 7),
    )
    return replace(base, **changes)


class Kept(FixedAnswers):
    """Data sides that remember what they were asked, and what they answered."""

    def __init__(self) -> None:
        super().__init__()
        self.answered: dict[tuple[str, int], tuple[Any, Any]] = {}

    def admit(self, node: str, task: Any) -> Any:
        answer = super().admit(node, task)
        self.answered[node, task.id] = task.model.values, answer.values
        return answer


def simulated(settings: Settings, known: Context) -> tuple[Simulator, list[TraceStep], Kept]:
    """A whole run, with clients of very different speeds."""
    steps: list[TraceStep] = []
    sides = Kept()
    world = World(SpeedSettings(name="lognormal"), servers=(SERVER,))
    simulator = Simulator(fedasync.build(settings, known), sides, world, watch=steps.append)
    while simulator.next_time is not None and not simulator.settled:
        simulator.step()
    return simulator, steps, sides


def pushes(steps: list[TraceStep]) -> list[tuple[str, Push]]:
    """What came to the server, in order."""
    events = [step.event for step in steps if step.node == SERVER]
    return [(e.sender, e.message) for e in events if isinstance(e, Received) and isinstance(e.message, Push)]


def told(node: Node, sender: str, message: Message) -> list[Effect]:
    return node.handle(Received(sender, message), 0.0)


def planned(**changes: Any) -> Plan:
    return client_specs.planned(spec(**changes))


def test_the_servers_model_is_what_a_loop_gives() -> None:
    """Algorithm 1 of the paper, in the order in which models came, with all versions of the server's model at hand."""
    simulator, steps, sides = simulated(Settings(nodes=5, mixing=0.7), context(5))
    came = pushes(steps)
    assert len(came) == 35
    versions, ages, tasks = [START], [], dict.fromkeys(simulator.nodes, 0)
    for t, (client, push) in enumerate(came):
        tasks[client] += 1
        asked, update = sides.answered[client, tasks[client]]
        np.testing.assert_allclose(asked, versions[push.version], rtol=1e-12)
        ages.append(t - push.version)
        mixing = 0.7 / math.sqrt(1 + ages[-1])
        versions.append((1 - mixing) * versions[-1] + mixing * (versions[push.version] + update))
    server = simulator.nodes[SERVER]
    np.testing.assert_allclose(server.state.x.values, versions[-1], rtol=1e-12)
    assert type(server.state.x) is Released
    assert fedasync.report(simulator.nodes) == {
        "steps": 35,
        "staleness_mean": sum(ages) / 35,
        "staleness_max": max(ages),
    }
    assert max(ages) > 4  # or the weights were hardly seen
    assert all(fedasync.ALGORITHM.model_of(node) == server.state.x for node in simulator.nodes.values())


def test_weights_are_those_of_the_paper() -> None:
    """Section 5.2: for 0, 1, 4, 5 and 8 steps."""
    expected = {
        "constant": [1, 1, 1, 1, 1],
        "polynomial": [1, 1 / math.sqrt(2), 1 / math.sqrt(5), 1 / math.sqrt(6), 1 / 3],
        "hinge": [1, 1, 1, 1 / 11, 1 / 41],
    }
    for name, weights in expected.items():
        rule = Settings.model_validate({"staleness_weight": name}).staleness_weight
        assert [rule.of(stale) for stale in (0, 1, 4, 5, 8)] == pytest.approx(weights, rel=1e-12), name
    hinge = Settings.model_validate({"staleness_weight": {"name": "hinge", "a": 2, "b": 1}}).staleness_weight
    assert [hinge.of(stale) for stale in (1, 2, 4)] == pytest.approx([1, 1 / 3, 1 / 7])


@pytest.mark.parametrize("rule", [{"name": "hinge", "a": 1e6, "b": 0}, {"name": "polynomial", "a": 10}, "constant"])
def test_no_weight_leaves_its_range(rule: Any) -> None:
    """As many steps as 1e6 clients can make with a quota of 1e7 are the most that a model can be late."""
    found = Settings.model_validate({"staleness_weight": rule}).staleness_weight
    for stale in (0, 1, 10**13):
        assert 0 < found.of(stale) <= 1


def test_a_model_is_mixed_in_by_its_age() -> None:
    server = fedasync.build(
        Settings(nodes=2, mixing=0.5, staleness_weight={"name": "polynomial", "a": 1}),  # type: ignore[arg-type]
        context(2),
    )[SERVER]
    server.handle(Started(), 0.0)
    assert told(server, "node-0", Fetch(1)) == [Send("node-0", Newest(1, 0, context(2).initial))]
    model = Released(np.array([3.0, 3.0, 3.0]))
    (answer,) = told(server, "node-0", Push(2, 0, model))
    assert answer == Send("node-0", Newest(2, 1, server.state.x))
    np.testing.assert_allclose(server.state.x.values, [2.0, 1.0, 2.5])
    told(server, "node-1", Push(2, 0, model))  # by a step too late: half of a half
    np.testing.assert_allclose(server.state.x.values, [2.25, 1.5, 2.625])


def test_a_client_pushes_the_model_that_it_ended_with() -> None:
    """After an absence it is the new model that the update is added to, and what was computed before is lost."""
    client = fedasync.build(Settings(nodes=2), context(2))["node-0"]

    def does(event: Event) -> list[Effect]:
        return client.handle(event, 0.0)

    assert does(Started()) == [Send(SERVER, Fetch(1))]
    (first,) = told(client, SERVER, Newest(1, 0, context(2).initial))
    assert does(Resumed(1.0)) == [Send(SERVER, Fetch(2))]
    newer = Released(np.array([10.0, 10.0, LARGEST_VALUE]))
    (second,) = told(client, SERVER, Newest(2, 3, newer))
    assert isinstance(first, Compute)
    assert isinstance(second, Compute)
    assert does(Completed(first.task.id, Released(np.ones(3)), 1)) == []
    (pushed,) = does(Completed(second.task.id, Released(np.array([1.0, 2.0, 3.0])), 1))
    assert pushed == Send(SERVER, Push(3, 3, Released(np.array([11.0, 12.0, LARGEST_VALUE]))))
    assert type(pushed.message.update) is Released


@pytest.mark.parametrize(
    ("sender", "message", "said"),
    [
        ("node-7", Fetch(1), "may send server no"),
        ("node-7", Leave(), "may send server no"),
        ("node-0", Push(1, 1, Released(np.ones(3))), "version 1, expected 0 to 0"),
        ("node-0", Push(1, -1, Released(np.ones(3))), "version -1"),
        ("node-0", Push(1, 0, Confined(np.ones(3))), "is Confined, expected Released"),
    ],
)
def test_the_server_refuses_strangers_models_of_the_future_and_what_is_raw(
    sender: str, message: Message, said: str
) -> None:
    server = fedasync.build(Settings(nodes=2), context(2))[SERVER]
    with pytest.raises(PeerError, match=said):
        told(server, sender, message)


def test_a_server_ends_the_run_after_so_many_updates() -> None:
    simulator, _, _ = simulated(Settings(nodes=3), context(3, updates=6))
    assert simulator.finished == {"node-0": "halt", "node-1": "halt", "node-2": "halt", SERVER: "updates"}
    assert parts.count(simulator.nodes) == 6


def test_epsilon_is_that_of_a_gaussian_of_all_updates() -> None:
    """n updates that move by 2 C under noise of z C are one Gaussian, mu = 2 sqrt(n)/z, whose delta is known."""
    normal = NormalDist()
    for changes in ({}, {"algorithm": {"updates_per_node": None}, "stop": {"updates": 18}}):
        plan = planned(**changes)
        found, delta = plan.guarantee.epsilon, plan.guarantee.delta
        mu = 2 * math.sqrt(max(plan.releases.values())) / 8.0
        exact = [
            normal.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * normal.cdf(-mu / 2 - epsilon / mu)
            for epsilon in (found, found * 0.995)
        ]
        assert exact[0] <= delta < exact[1]
        assert plan.guarantee.unit == "client with all of its data"


def test_a_plan_is_of_noised_updates_of_whole_clients_and_amplifies_none() -> None:
    plan = planned(privacy={"noise_multiplier": [8.0, 9.0, 10.0, 11.0]}, algorithm={"proximal": 0.1})
    for number, (name, side) in enumerate(plan.sides.items()):
        law = Gaussian(0.5, 8.0 + number)
        assert side == ClientUpdate(TrainingQuery(2, 16, 0.1, 0.0, 0.1), 0.5, law, 5, 650)
        assert [(kind.sampling, count) for kind, count in (counts_of(plan.side(name)) or {}).items()] == [(WHOLE, 5)]
    assert plan.guarantee.epsilon == plan.epsilons["node-0"] == max(plan.epsilons.values())


def test_a_budget_is_met_by_all_updates_together() -> None:
    plan = planned(privacy={"noise_multiplier": None}, budget={"epsilon": 3.0, "delta": 1e-6})
    assert 2.95 < plan.guarantee.epsilon <= 3.0
    with pytest.raises(BudgetUnreachable, match="for the 5 releases of node-0"):
        planned(budget={"epsilon": 0.5, "delta": 1e-6})


def test_the_ledger_says_what_each_client_was_charged(tmp_path: Path) -> None:
    """Fast clients make more updates than the slow one, and each is charged what it was planned to make."""
    changes = {"algorithm": {"updates_per_node": None}, "stop": {"updates": 40}, "speeds": {"scenario": "one_slow"}}
    plan = planned(**changes)
    slow, *fast = sorted(plan.releases.values())
    assert slow < min(fast) / 3
    result = run(parse_spec(spec(**changes)), tmp_path / "out")
    lines = [json.loads(line) for line in (tmp_path / "out" / "ledger.jsonl").read_text().splitlines()]
    assert {line["node"]: line["releases"] for line in lines} == plan.releases
    assert {(line["protects"], line["mechanism"], line["noise_multiplier"], line["probability"]) for line in lines} == {
        ("client", "Gaussian", 8.0, 1.0)
    }
    assert result.summary["fedasync"]["steps"] == 40
    assert "budget" not in result.summary["finished"].values()
    assert result.metrics[-1]["epsilon_so_far"] == pytest.approx(result.guarantee.epsilon)


def test_a_client_alone_is_fedbuff_with_a_buffer_of_one() -> None:
    """(1 - alpha) x + alpha (x + u) = x + alpha u, where nothing is stale; steps are of all examples."""
    same = {"nodes": 1, "local_steps": 3, "batch_size": 10_000, "updates_per_node": 6, "proximal": 0.5}
    mixed, moved = (
        run(parse_spec(spec(algorithm={**same, **algorithm}, privacy=BARE))).model
        for algorithm in ({"mixing": 0.25}, {"name": "fedbuff", "buffer": 1, "learning_rate": 0.25})
    )
    assert max(np.abs(values).max() for values in mixed.values()) > 0.01
    for name, values in mixed.items():
        np.testing.assert_allclose(values, moved[name], atol=1e-6)


def test_without_noise_it_learns() -> None:
    """Ten epochs in all, of digits at six clients: plain softmax regression reaches more than 0.9."""
    local = {"nodes": 6, "local_steps": None, "local_epochs": 1, "local_learning_rate": 0.5, "updates_per_node": 10}
    for weight in ("constant", "hinge", "polynomial"):
        changes = {"algorithm": {**local, "staleness_weight": weight}, "privacy": BARE}
        found = run(parse_spec(spec(**changes, speeds={"name": "lognormal"})))
        assert found.metrics[-1]["test_accuracy"] > 0.9
        assert math.isinf(found.guarantee.epsilon)


REFUSED = [
    ({"noise_by": "server", "trusted": "server"}, "so there is no sum for a server to add noise to"),
    ({"noise_by": "server"}, "so there is no sum for a server to add noise to"),
    ({"trusted": "server"}, "algorithm.trusted: nobody is shown anything"),
    ({"learning_rate": 0.5}, "algorithm.learning_rate: fedasync has mixing in its place, found 0.5; leave it out"),
    ({"server_optimizer": "adam"}, "algorithm.server_optimizer: the server of fedasync mixes models"),
    ({"mixing": 0}, "algorithm.mixing: input should be greater than 0, found 0"),
    ({"mixing": 1.5}, "algorithm.mixing: input should be less than or equal to 1, found 1.5"),
    ({"staleness_weight": {"name": "polynomial", "a": -1}}, "algorithm.staleness_weight.a: input should be greater"),
    ({"staleness_weight": {"name": "hinge", "a": -1}}, "algorithm.staleness_weight.a: input should be greater"),
    ({"staleness_weight": {"name": "hinge", "b": -1}}, "algorithm.staleness_weight.b: input should be greater"),
    ({"staleness_weight": "hindge"}, "algorithm.staleness_weight: unknown name 'hindge'; did you mean hinge"),
]


@pytest.mark.parametrize(("algorithm", "said"), REFUSED)
def test_what_a_spec_may_not_say(
    algorithm: dict[str, Any], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SpecError, match=said):
        planned(algorithm=algorithm)
    written = tmp_path / "spec.yaml"
    written.write_text(json.dumps(spec(algorithm=algorithm)))
    assert main(["check", str(written)]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
