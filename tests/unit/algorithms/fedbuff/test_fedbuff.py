"""FedBuff: the server's steps against a loop done by hand, what each client is charged, and what is proved of it."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.reference import client_specs

from gossamer.algorithms.clients import parts
from gossamer.algorithms.clients.nodes import SERVER, Fetch, Halt, Leave, Newest, Push
from gossamer.algorithms.clients.planning import RUN_ASSUMPTIONS
from gossamer.algorithms.context import Context
from gossamer.algorithms.fedbuff import box as fedbuff
from gossamer.algorithms.fedbuff.box import Settings
from gossamer.algorithms.plan import Plan
from gossamer.errors import BudgetUnreachable, PeerError, SpecError
from gossamer.experiment.audits.canary_audit import audit_run
from gossamer.experiment.preparation.planning import problem_of
from gossamer.experiment.preparation.prepare import prepare
from gossamer.experiment.runs.running import run
from gossamer.experiment.specs.spec_file import parse_spec
from gossamer.privacy.mechanisms import Gaussian, NoNoise, Poisson
from gossamer.privacy.tasks import Query, TrainingQuery
from gossamer.protocol.effects import Compute, Effect, Send
from gossamer.protocol.events import Completed, Received, Started
from gossamer.protocol.messages import Message
from gossamer.protocol.node import Node
from gossamer.protocol.trace import TraceStep
from gossamer.runtimes.simulator import Simulator
from gossamer.runtimes.speeds import SpeedSettings
from gossamer.runtimes.world import World
from gossamer.sides.plan import WHOLE, ClientUpdate, counts_of
from gossamer.testing.contracts import FixedAnswers
from gossamer.topology.graphs import Graph
from gossamer.vectors import Public, Released

SIZE = 3
SPEC: dict[str, Any] = {
    "dataset": "digits",
    "algorithm": {"name": "fedbuff", "nodes": 4, "buffer": 3, "local_steps": 2, "updates_per_node": 5},
    "privacy": {"clip": 0.5, "noise_multiplier": 8.0},
}


def spec(**changes: Any) -> dict[str, Any]:
    """The spec with other sections, or other keys in them."""
    return client_specs.changed(SPEC, **changes)


def context(nodes: int, **changes: Any) -> Context:
    names = tuple(f"node-{i}" for i in range(nodes))
    base = Context(
        seed=0,
        names=names,
        graph=Graph(nodes, np.empty((0, 2), int)),
        initial=Public(np.array([1.0, -1.0, 2.0])),
        queries={name: Query(Poisson(0.5), NoNoise(), 4.0) for name in names},
        shard_sizes=dict.fromkeys(names, 8),
        quotas=dict.fromkeys(names, 7),
    )
    return replace(base, **changes)


def simulated(
    settings: Settings, known: Context, speeds: SpeedSettings | None = None
) -> tuple[Simulator, list[TraceStep]]:
    """A whole run, if nothing is said with clients of very different speeds."""
    steps: list[TraceStep] = []
    world = World(speeds or SpeedSettings(name="lognormal"), servers=(SERVER,))
    simulator = Simulator(fedbuff.build(settings, known), FixedAnswers(), world, watch=steps.append)
    while simulator.next_time is not None and not simulator.settled:
        simulator.step()
    return simulator, steps


def told(node: Node, sender: str, message: Message) -> list[Effect]:
    return node.handle(Received(sender, message), 0.0)


def planned(**changes: Any) -> Plan:
    return client_specs.planned(spec(**changes))


def test_the_servers_model_is_what_a_loop_over_buffers_gives() -> None:
    """Algorithm 1 of the paper, in the order in which updates came; what is left at the end is applied over K."""
    settings = Settings(nodes=5, buffer=4, learning_rate=0.7)
    simulator, steps = simulated(settings, context(5))
    pushes = [
        step.event.message
        for step in steps
        if step.node == SERVER and isinstance(step.event, Received) and isinstance(step.event.message, Push)
    ]
    assert len(pushes) == 35
    x, t, ages = np.array([1.0, -1.0, 2.0]), 0, []
    for start in range(0, 35, 4):
        mean = np.zeros(SIZE)
        for push in pushes[start : start + 4]:
            ages.append(t - push.version)
            mean += push.update.values / math.sqrt(1 + t - push.version) / 4
        x, t = x + 0.7 * mean, t + 1
    server = simulator.nodes[SERVER]
    np.testing.assert_allclose(server.state.x.values, x, rtol=1e-12)
    assert fedbuff.report(simulator.nodes) == {
        "steps": 9,
        "updates_taken": 35,
        "staleness_mean": sum(ages) / 35,
        "staleness_max": max(ages),
    }
    assert max(ages) > 1  # or the weights were never seen
    assert all(fedbuff.ALGORITHM.model_of(node) == server.state.x for node in simulator.nodes.values())


def test_nobody_waits_for_a_full_buffer() -> None:
    server = fedbuff.build(Settings(nodes=2, buffer=2), context(2))[SERVER]
    server.handle(Started(), 0.0)
    initial, update = context(2).initial, Released(np.ones(SIZE))
    assert told(server, "node-0", Fetch(1)) == [Send("node-0", Newest(1, 0, initial))]
    assert told(server, "node-0", Push(2, 0, update)) == [Send("node-0", Newest(2, 0, initial))]
    (answer,) = told(server, "node-0", Push(3, 0, update))  # the same client again
    assert answer == Send("node-0", Newest(3, 1, server.state.x))
    np.testing.assert_allclose(server.state.x.values, initial.values + 1)


@pytest.mark.parametrize(
    ("sender", "message", "said"),
    [
        ("node-7", Fetch(1), "may send server no"),
        ("node-7", Leave(), "may send server no"),
        ("node-7", Push(1, 0, Released(np.ones(SIZE))), "may send server no"),
        ("node-0", Push(1, 1, Released(np.ones(SIZE))), "version 1, expected 0 to 0"),
        ("node-0", Push(1, -1, Released(np.ones(SIZE))), "version -1"),
    ],
)
def test_the_server_refuses_strangers_and_models_of_the_future(sender: str, message: Message, said: str) -> None:
    server = fedbuff.build(Settings(nodes=2), context(2))[SERVER]
    with pytest.raises(PeerError, match=said):
        told(server, sender, message)


def test_a_client_takes_models_of_its_server_alone() -> None:
    client = fedbuff.build(Settings(nodes=2), context(2))["node-0"]
    for message in (Newest(0, 3, context(2).initial), Halt(3, context(2).initial)):
        with pytest.raises(PeerError, match="node-1 may send node-0 no"):
            told(client, "node-1", message)


def test_a_server_ends_the_run_after_so_many_updates() -> None:
    simulator, _ = simulated(Settings(nodes=3, buffer=4), context(3, updates=6))
    assert simulator.finished == {"node-0": "halt", "node-1": "halt", "node-2": "halt", SERVER: "updates"}
    assert parts.count(simulator.nodes) == 6


def test_epsilon_is_that_of_a_gaussian_of_all_updates() -> None:
    """n updates that move by 2 C under noise of z C are one Gaussian, mu = 2 sqrt(n)/z, whose delta is known."""
    plan = planned()
    mu, normal = 2 * math.sqrt(5) / 8.0, NormalDist()
    found, delta = plan.guarantee.epsilon, plan.guarantee.delta

    def exact(epsilon: float) -> float:
        return normal.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * normal.cdf(-mu / 2 - epsilon / mu)

    assert exact(found) <= delta < exact(found * 0.995)
    assert plan.guarantee.unit == "client with all of its data"
    assert plan.epsilons == dict.fromkeys(plan.mechanisms, found)
    assert set(RUN_ASSUMPTIONS) < set(plan.guarantee.assumptions)


def test_a_plan_is_of_noised_updates_of_whole_clients() -> None:
    plan = planned(privacy={"noise_multiplier": [8.0, 9.0, 10.0, 11.0]})
    for number, (name, side) in enumerate(plan.sides.items()):
        law = Gaussian(0.5, 8.0 + number)
        assert side == ClientUpdate(TrainingQuery(2, 16, 0.1), 0.5, law, 5, 650)
        assert counts_of(plan.side(name)) == counts_of(side)
        assert plan.releases[name] == 5
        assert plan.mechanisms[name] == law
        assert [kind.sampling for kind in counts_of(side) or ()] == [WHOLE]
    assert sorted(plan.epsilons.values(), reverse=True) == list(plan.epsilons.values())
    assert plan.guarantee.epsilon == plan.epsilons["node-0"]


def test_a_budget_is_met_by_all_updates_together() -> None:
    plan = planned(privacy={"noise_multiplier": None}, budget={"epsilon": 3.0, "delta": 1e-6})
    assert 2.95 < plan.guarantee.epsilon <= 3.0
    with pytest.raises(BudgetUnreachable, match="for the 5 releases of node-0"):
        planned(budget={"epsilon": 0.5, "delta": 1e-6})


def test_nothing_is_promised_without_noise_or_with_one_that_all_know() -> None:
    bare = planned(privacy={"mechanism": "none", "noise_multiplier": None})
    assert math.isinf(bare.guarantee.epsilon)
    assert bare.spent([]) is None
    known = planned(privacy={"noise_secret": "reproducible"})
    assert math.isinf(known.guarantee.epsilon)
    assert set(known.epsilons.values()) == {math.inf}
    assert known.would_be == planned().epsilons


def test_the_ledger_says_what_each_client_was_charged(tmp_path: Path) -> None:
    result = run(parse_spec(spec()), tmp_path / "out")
    lines = [json.loads(line) for line in (tmp_path / "out" / "ledger.jsonl").read_text().splitlines()]
    assert [(line["node"], line["protects"], line["releases"]) for line in lines] == [
        (f"node-{number}", "client", 5) for number in range(4)
    ]
    assert {(line["mechanism"], line["noise_multiplier"], line["probability"]) for line in lines} == {
        ("Gaussian", 8.0, 1.0)
    }
    assert result.summary["fedbuff"]["updates_taken"] == 20
    assert result.metrics[-1]["epsilon_so_far"] == pytest.approx(result.guarantee.epsilon)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"privacy": {"sampling": "fixed_size"}}, "privacy.sampling"),
        ({"privacy": {"neighboring_relation": "add_or_remove_one"}}, "protects clients whose data are replaced"),
        ({"privacy": {"standard_deviation": 1.0, "noise_multiplier": None}}, "privacy.standard_deviation"),
        ({"privacy": {"mechanism": "l2_laplace", "noise_multiplier": None, "epsilon": 1.0}}, "knows gaussian and none"),
        ({"budget": {"epsilon": 50, "delta": 1e-6, "rows_per_person": 2}}, "budget.rows_per_person"),
        ({"algorithm": {"updates_per_node": None}, "stop": {"virtual_seconds": 0.01}}, "no client makes an update"),
    ],
)
def test_what_a_spec_may_not_say(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        planned(**changes)


def test_persons_at_several_clients_are_refused() -> None:
    problem = problem_of(prepare(parse_spec(spec())))
    persons: Any = SimpleNamespace(together=False)
    with pytest.raises(SpecError, match="persons have examples at several clients"):
        fedbuff.plan(replace(problem, holdings=persons))


def test_epochs_are_of_all_examples_of_local_steps() -> None:
    """2 epochs of 449 or 450 examples with 2 x 16 an update; 20 epochs where nothing is said."""
    plan = planned(algorithm={"updates_per_node": None}, stop={"epochs": 2})
    sizes = client_specs.problem(spec()).shard_sizes
    assert plan.quotas == {name: -(-2 * size // 32) for name, size in sizes.items()}
    assert planned(algorithm={"updates_per_node": None}).quotas == {n: -(-20 * s // 32) for n, s in sizes.items()}


def test_local_epochs_are_passes_over_each_clients_own_examples() -> None:
    """Two passes over n examples in batches of 100 are 2 ceil(n / 100) steps, on 2 n examples."""
    algorithm = {"local_steps": None, "local_epochs": 2, "batch_size": 100, "local_momentum": 0.9}
    problem = client_specs.problem(spec(algorithm=algorithm))
    sizes = problem.shard_sizes
    for name, side in planned(algorithm=algorithm).sides.items():
        assert side.query == TrainingQuery(2 * math.ceil(sizes[name] / 100), 100, 0.1, 0.9)
        assert problem.workload.of(name, 0) == 2 * sizes[name]


def test_so_many_steps_take_examples_in_turn() -> None:
    """250 examples in batches of 100 are epochs of 3 steps; 90 of them are one of 90."""
    for steps, expected in ((None, (250 + 200, 5 * 90)), (4, (250 + 100, 4 * 90)), (1, (100, 90))):
        settings = Settings(batch_size=100, local_steps=steps)
        found = fedbuff.ALGORITHM.workload(settings, {"a": 250, "b": 90}, 0)
        assert (found.of("a", 0), found.of("b", 0)) == expected
        assert found.updates_in(9.0) == {"a": -(-9 * 250 // expected[0]), "b": -(-9 * 90 // expected[1])}


def test_an_update_takes_time_in_proportion_to_its_steps() -> None:
    """One epoch of 8 and of 24 examples in batches of 4, at 10 seconds a step: 20 and 60 seconds."""
    settings = Settings(nodes=2, buffer=2, local_epochs=1, batch_size=4)
    known = context(2, shard_sizes={"node-0": 8, "node-1": 24}, quotas={"node-0": 1, "node-1": 1})
    _, steps = simulated(settings, known, SpeedSettings(seconds=10.0))
    seconds = {}
    for node in known.names:
        asked = next(at.now for at in steps if at.node == node and any(isinstance(e, Compute) for e in at.effects))
        done = next(at.now for at in steps if at.node == node and isinstance(at.event, Completed))
        seconds[node] = done - asked
    assert seconds == pytest.approx({"node-0": 20.0, "node-1": 60.0})


def test_steps_and_epochs_are_not_both_said() -> None:
    with pytest.raises(SpecError, match="local_steps or local_epochs, found 2 and 3; leave one out"):
        planned(algorithm={"local_epochs": 3})


def test_fast_clients_make_more_updates_where_no_quota_bounds_them() -> None:
    """One client has a tenth of the others' speed: each is charged what it will do in the run, and no more."""
    changes = {"algorithm": {"updates_per_node": None}, "stop": {"updates": 40}, "speeds": {"scenario": "one_slow"}}
    plan = planned(**changes)
    slow, *fast = sorted(plan.releases[name] for name in plan.mechanisms)
    assert plan.quotas is None
    assert slow < min(fast) / 3
    assert plan.updates >= 40
    result = run(parse_spec(spec(**changes)))
    assert result.summary["fedbuff"]["updates_taken"] == 40
    released = {name: node["releases"] for name, node in result.summary["privacy"]["nodes"].items()}
    assert released == {name: plan.releases[name] for name in plan.mechanisms}
    assert "budget" not in result.summary["finished"].values()


def test_what_an_absence_costs_is_planned_for() -> None:
    """A client that is away in the middle of an update makes it once more, and is charged twice."""
    absent = {"faults": {"absences": [{"node": 0, "start": 3.0, "end": 9.0}]}}
    plan = planned(**absent)
    assert [plan.releases[name] for name in plan.mechanisms] == [6, 5, 5, 5]
    result = run(parse_spec(spec(**absent)))
    assert set(result.summary["finished"].values()) == {"quota", "all clients left"}


def test_canaries_are_not_scored_by_gradients_that_nobody_releases() -> None:
    with pytest.raises(SpecError, match="score by loss"):
        audit_run(parse_spec(spec()), canaries=10, guesses=2)
