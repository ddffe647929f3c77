"""FedBuff whose server adds the noise: its sums against a loop by hand, who is in them, and what that costs clients."""

from __future__ import annotations

import json
import math
import warnings
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from dp_accounting import GaussianDpEvent, NeighboringRelation, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant
from tests.reference import client_specs

from gossamer.algorithms.clients.nodes import SERVER, Fetch, Halt, Leave, Newest, Push
from gossamer.algorithms.clients.planning import most_sums
from gossamer.algorithms.context import Context
from gossamer.algorithms.fedbuff import box as fedbuff
from gossamer.algorithms.fedbuff.box import Settings
from gossamer.algorithms.plan import Plan
from gossamer.errors import PeerError, RunWarning, SpecError
from gossamer.experiment.preparation.planning import plan_run
from gossamer.experiment.preparation.prepare import prepare
from gossamer.experiment.runs.running import run
from gossamer.experiment.specs.spec_file import parse_spec, write_spec
from gossamer.privacy.mechanisms import Gaussian, Poisson
from gossamer.privacy.tasks import CuratedSum, Query
from gossamer.protocol.effects import Compute, Effect, Finish, Send
from gossamer.protocol.encoding import decode, encode
from gossamer.protocol.events import Completed, Elapsed, Received, Refused, Resumed, Started, Stop
from gossamer.protocol.messages import Message
from gossamer.protocol.node import Node, state_of
from gossamer.protocol.trace import TraceStep
from gossamer.runtimes.simulator import Simulator
from gossamer.runtimes.speeds import SpeedSettings
from gossamer.runtimes.world import World
from gossamer.sides.machine import Due
from gossamer.sides.plan import WHOLE, ClientUpdate, Curator
from gossamer.sides.servers import CuratorRule, checked
from gossamer.testing.contracts import FixedAnswers
from gossamer.topology.graphs import Graph
from gossamer.vectors import Confined, Public, Released

pytestmark = pytest.mark.filterwarnings("ignore:fedbuff. with noise_by:gossamer.errors.RunWarning")

SIZE = 3
TRUSTED = {"noise_by": "server", "trusted": "server"}
SPEC: dict[str, Any] = {
    "dataset": "digits",
    "algorithm": {"name": "fedbuff", "nodes": 4, "buffer": 3, "local_steps": 2, "updates_per_node": 5, **TRUSTED},
    "privacy": {"clip": 0.5, "noise_multiplier": 8.0},
    "speeds": {"name": "lognormal"},
}
LAW = Gaussian(0.5, 2.0)


def spec(**changes: Any) -> dict[str, Any]:
    """The spec with other sections, or other keys in them."""
    return client_specs.changed(SPEC, **changes)


def planned(**changes: Any) -> Plan:
    return client_specs.planned(spec(**changes))


def context(nodes: int, **more: Any) -> Context:
    names = tuple(f"node-{i}" for i in range(nodes))
    return Context(
        seed=0,
        names=names,
        graph=Graph(nodes, np.empty((0, 2), int)),
        initial=Public(np.array([1.0, -1.0, 2.0])),
        queries={name: Query(Poisson(0.5), LAW, 4.0) for name in names},
        shard_sizes=dict.fromkeys(names, 8),
        **more,
    )


def server(nodes: int = 3, *, context_of: dict[str, Any] | None = None, **settings: Any) -> Node:
    built = fedbuff.build(Settings(nodes=nodes, **TRUSTED, **settings), context(nodes, **(context_of or {})))
    built[SERVER].handle(Started(), 0.0)
    return built[SERVER]


def told(node: Node, number: int, message: Message) -> list[Effect]:
    return node.handle(Received(f"node-{number}", message), 0.0)


def raw(value: float) -> Confined:
    return Confined(np.full(SIZE, float(value)))


def summed(effects: list[Effect]) -> dict[str, float]:
    """Whose updates are in the sum that is asked for, and the first number of each."""
    (task,) = (effect.task for effect in effects if isinstance(effect, Compute))
    assert isinstance(task, CuratedSum)
    assert task.cohort is None
    return {name: float(update.values[0]) for name, update in task.updates}


def released(task: int, value: float = 1.0) -> Completed:
    return Completed(task, Released(np.full(SIZE, value)), 1)


def test_the_servers_model_is_what_a_loop_over_buffers_gives() -> None:
    """Sums of the first K clients, each once, in the order in which updates came; weights of the steps between.

    Some clients are so much faster than others that updates of theirs wait for later sums.
    """
    settings = Settings(nodes=4, buffer=3, learning_rate=0.7, **TRUSTED)
    known, steps = context(4, quotas=dict.fromkeys((f"node-{i}" for i in range(4)), 9)), list[TraceStep]()
    nodes, speeds = fedbuff.build(settings, known), SpeedSettings(name="lognormal")
    world = World(speeds, servers=(SERVER,), seed=4, units=fedbuff.ALGORITHM.cast(settings, known.names).trust)
    simulator = Simulator(nodes, FixedAnswers(), world, watch=steps.append)
    while simulator.next_time is not None and not simulator.settled:
        simulator.step()

    x, t, held, asked, late = known.initial.values, 0, list[tuple[str, int, Any]](), 0, 0
    for step in steps:
        if step.node != SERVER:
            continue
        if isinstance(step.event, Received) and isinstance(step.event.message, Push):
            held.append((step.event.sender, step.event.message.version, step.event.message.update.values))
        if isinstance(step.event, Completed):
            x, t = x + 0.7 * step.event.released.values, t + 1
        for effect in step.effects:
            if isinstance(effect, Compute):
                buffer: list[tuple[str, int, Any]] = []
                for one in held:
                    if len(buffer) < 3 and one[0] not in [other[0] for other in buffer]:
                        buffer.append(one)
                late += buffer != held[:3]
                held = [one for one in held if not any(one is other for other in buffer)]
                asked += 1
                assert isinstance(effect.task, CuratedSum)
                assert effect.task.owners == tuple(client for client, _, _ in buffer)
                assert effect.task.query == Query(WHOLE, LAW, 3.0)
                for (_, update), (_, version, values) in zip(effect.task.updates, buffer, strict=True):
                    assert isinstance(update, Confined)
                    np.testing.assert_allclose(update.values, values / math.sqrt(1 + t - version), rtol=1e-12)
    state = simulator.nodes[SERVER].state
    np.testing.assert_allclose(state.x.values, x, rtol=1e-12)
    assert t == asked == state.taken > 9
    assert late > 1  # or nothing of a client ever waited for the next buffer
    report = fedbuff.report(simulator.nodes)
    assert (report["steps"], report["updates_taken"]) == (asked, 3 * asked)
    assert report["staleness_max"] > 1
    assert state.held == []
    assert set(simulator.finished) == set(nodes)


def test_a_client_is_in_a_buffer_once_and_does_not_wait() -> None:
    node = server(buffer=2)
    assert told(node, 0, Push(1, 0, raw(1))) == [Send("node-0", Newest(1, 0, context(3).initial))]
    assert told(node, 0, Push(2, 0, raw(2))) == [Send("node-0", Newest(2, 0, context(3).initial))]
    effects = told(node, 1, Push(1, 0, raw(3)))
    assert summed(effects) == {"node-0": 1.0, "node-1": 3.0}
    (answer,) = node.handle(released(1), 0.0)  # the one that filled it up has the model of the step
    assert answer == Send("node-1", Newest(1, 1, node.state.x))
    np.testing.assert_allclose(node.state.x.values, [2.0, 0.0, 3.0])
    assert summed(told(node, 2, Push(1, 1, raw(4)))) == {"node-0": pytest.approx(2 / math.sqrt(2)), "node-2": 4.0}


def test_what_comes_while_a_sum_is_computed_is_for_the_next() -> None:
    node = server(nodes=4, buffer=2)
    told(node, 0, Push(1, 0, raw(1)))
    assert len(told(node, 1, Push(1, 0, raw(2)))) == 1
    assert told(node, 2, Push(1, 0, raw(3))) == []
    assert told(node, 0, Push(2, 0, raw(4))) == []
    assert told(node, 3, Fetch(1)) == []
    effects = node.handle(released(1), 0.0)
    assert summed(effects) == {"node-2": pytest.approx(3 / math.sqrt(2)), "node-0": pytest.approx(4 / math.sqrt(2))}
    assert len(effects) == 1
    assert node.handle(released(1, 9.0), 0.0) == []  # once is enough
    effects = node.handle(released(2), 0.0)
    requests = {e.to: e.message.request for e in effects if isinstance(e, Send) and isinstance(e.message, Newest)}
    assert requests == {"node-0": 2, "node-1": 1, "node-2": 1, "node-3": 1}
    np.testing.assert_allclose(node.state.x.values, [3.0, 1.0, 4.0])


def test_a_sum_that_is_lost_in_a_crash_is_not_asked_for_again() -> None:
    """It may be charged. Its updates are in no other sum, and who waited for it goes on from the model as it is."""
    node = server(buffer=2)
    told(node, 0, Push(1, 0, raw(1)))
    told(node, 0, Push(2, 0, raw(2)))
    told(node, 1, Push(1, 0, raw(3)))
    restored = decode(encode(state_of(node)))
    assert restored == state_of(node)  # raw updates too
    assert restored["held"] == [("node-0", 0, raw(2))]
    assert node.handle(Resumed(1.0), 9.0) == [Send("node-1", Newest(1, 0, context(3).initial))]
    assert node.handle(released(1), 9.0) == []
    assert node.state.t == 0
    assert summed(told(node, 1, Push(2, 0, raw(4)))) == {"node-0": 2.0, "node-1": 4.0}


def test_a_crash_after_the_last_word_of_all_clients_ends_the_run() -> None:
    node = server(nodes=2, buffer=2)
    for number in (0, 1):
        told(node, number, Push(1, 0, raw(1)))
        assert told(node, number, Leave()) == []  # while the sum is computed
    assert Finish("all clients left") in node.handle(Resumed(1.0), 0.0)


def test_all_leave_while_the_last_sum_is_computed() -> None:
    node = server(nodes=2, buffer=2)
    for number in (0, 1):
        told(node, number, Push(1, 0, raw(1)))
        told(node, number, Leave())
    effects = node.handle(released(1), 0.0)
    assert effects == [*(Send(f"node-{i}", Halt(1, node.state.x)) for i in (0, 1)), Finish("all clients left")]
    np.testing.assert_allclose(node.state.x.values, [2.0, 0.0, 3.0])


def test_a_run_ends_when_no_buffer_can_fill_up() -> None:
    """What a client has sent before it left still counts for one."""
    node = server(nodes=4, buffer=3)
    told(node, 0, Push(1, 0, raw(1)))
    for number in (0, 1):
        assert told(node, number, Leave()) == []
    told(node, 2, Push(1, 0, raw(1)))
    effects = told(node, 3, Leave())
    assert Finish("too few clients left") in effects
    assert sum(isinstance(effect, Send) for effect in effects) == 4
    assert node.state.held == []


@pytest.mark.parametrize(
    ("event", "reason"),
    [(Elapsed("deadline"), "deadline"), (Stop("stopped"), "stopped"), (Refused(1, 0), "budget")],
)
def test_a_run_that_is_ended_takes_nothing_more(event: Any, reason: str) -> None:
    node = server(buffer=2)
    for number in (0, 1, 0):
        told(node, number, Push(1, 0, raw(1)))
    assert Finish(reason) in node.handle(event, 0.0)
    assert node.handle(released(1), 0.0) == []
    assert told(node, 2, Push(1, 0, raw(1))) == []
    assert node.state.t == 0
    assert node.state.held == []
    assert told(node, 2, Fetch(2)) == [Send("node-2", Halt(0, node.state.x))]


def test_it_ends_after_so_many_sums() -> None:
    node = server(buffer=1, context_of={"updates": 2})
    told(node, 0, Push(1, 0, raw(1)))
    told(node, 1, Push(1, 0, raw(1)))
    told(node, 2, Push(1, 0, raw(1)))
    assert summed(node.handle(released(1), 0.0)) == {"node-1": pytest.approx(1 / math.sqrt(2))}
    assert Finish("updates") in node.handle(released(2), 0.0)


@pytest.mark.parametrize(
    ("sender", "message", "said"),
    [
        (7, Fetch(1), "may send server no"),
        (7, Leave(), "may send server no"),
        (0, Push(1, 1, raw(0)), "version 1, expected 0 to 0"),
        (0, Push(1, 0, Released(np.zeros(SIZE))), "is Released, expected Confined"),
    ],
)
def test_the_server_refuses_what_no_client_of_its_own_sends(sender: int, message: Message, said: str) -> None:
    with pytest.raises(PeerError, match=said):
        told(server(), sender, message)


@pytest.mark.parametrize("exponent", [0.0, 1e-12, 1e-7, 0.5, 10.0])
def test_a_weighted_update_is_within_the_curators_bound(exponent: float) -> None:
    """An update that a client's data side clipped to C, in float32, counts as what it is, whatever its weight."""
    settings, generator = Settings(staleness_exponent=exponent), np.random.default_rng(3)
    for stale, scale in product((0, 1, 2, 10, 10**6), (1e-6, 1.0, 1e6)):
        vector = generator.standard_normal(1000)
        update = Confined((vector / np.linalg.norm(vector) * 0.7 * scale).astype(np.float32))
        weight = settings.weight(stale)
        assert 0 < weight <= 1
        weighted = weight * update
        assert weighted.values.dtype == np.float32
        assert checked(weighted.values, 0.7 * scale) is not None


def brute(updates: tuple[int, ...], buffer: int) -> int:
    """How many sums can be made at most: always of those who have most left."""
    left, sums = sorted(updates, reverse=True), 0
    while left[buffer - 1]:
        left = sorted([made - 1 for made in left[:buffer]] + left[buffer:], reverse=True)
        sums += 1
    return sums


def test_nobody_is_in_more_sums_than_others_can_fill() -> None:
    for updates in product(range(5), repeat=4):
        for buffer in (1, 2, 3, 4):
            expected = min(brute(updates, buffer), max(updates))
            assert most_sums(updates, buffer) == expected, (updates, buffer)


def accounted(releases: int, multiplier: float, relation: NeighboringRelation) -> float:
    other = PLDAccountant(relation)
    other.compose(SelfComposedDpEvent(GaussianDpEvent(multiplier), releases))
    return float(other.get_epsilon(1e-5))


@pytest.mark.parametrize(("relation", "moved"), [("add_or_remove_one", 1.0), ("replace_one", 2.0)])
def test_each_client_is_charged_for_its_own_participations(relation: str, moved: float) -> None:
    """Not amplified: as many Gaussian releases as the quota, of sums that a client moves by C, or by 2 C."""
    plan = planned(privacy={"neighboring_relation": relation})
    expected = accounted(5, 8.0 / moved, NeighboringRelation.ADD_OR_REMOVE_ONE)
    assert plan.guarantee.epsilon == pytest.approx(expected, rel=0.01)
    assert plan.guarantee.unit == "client with all of its data"
    assert "not the trusted server" in plan.guarantee.observer
    assert "coins" not in str(plan.guarantee)
    assert math.isinf(plan.guarantees["curator"].epsilon)
    assert {name: plan.releases[name] for name in plan.mechanisms} == dict.fromkeys(plan.mechanisms, 5)


def test_the_plan_of_a_trusted_server() -> None:
    plan = planned()
    curator = plan.side(SERVER)
    assert isinstance(curator, Curator)
    assert (curator.cohort, curator.owners, curator.bound, curator.draws) == (3, tuple(plan.mechanisms), 0.5, False)
    (kind,) = curator.kinds
    assert (kind.sampling, curator.kinds[kind]) == (WHOLE, 5)
    side = plan.side("node-0")
    assert isinstance(side, ClientUpdate)
    assert (side.noise, side.bound, side.scope, side.behind) == (
        None,
        0.5,
        {SERVER, "node-0"},
        curator,
    )


def test_a_client_with_many_updates_is_in_no_more_sums_than_there_are() -> None:
    """Three clients of 2 updates each share 6 sums of two with one of 20. `stop.updates` are sums, too."""
    assert most_sums([20, 2, 2, 2], 2) == 6
    assert most_sums([20, 2, 2, 2], 3) == 3
    assert set(planned(stop={"updates": 2}).releases.values()) == {2}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"algorithm": {"buffer": 4}},
        {"algorithm": {"buffer": 1}},
        {"algorithm": {"updates_per_node": None}, "stop": {"updates": 9}},
        {"algorithm": {"updates_per_node": None}, "stop": {"virtual_seconds": 8}},
        {"faults": {"absences": [{"node": 0, "start": 1.5, "end": 4.0}]}},
        {"faults": {"absences": [{"node": 4, "start": 1.5, "end": 4.0}]}},
        {"faults": {"absences": [{"node": 2, "start": 1.5, "end": None}]}},
    ],
)
def test_a_run_charges_clients_for_the_sums_that_they_are_in(
    changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And for none besides: counted from what the server asks its data side for. The plan covers them all."""
    experiment = parse_spec(spec(**changes))
    plan = plan_run(prepare(experiment))
    admit, found = CuratorRule.due, Counter[str]()

    def due(self: CuratorRule, task: Any, charged: int) -> Due:
        found.update(task.owners)
        return admit(self, task, charged)

    monkeypatch.setattr(CuratorRule, "due", due)
    result = run(experiment, tmp_path / "out")
    sums = result.summary["fedbuff"]["steps"]
    lines = [json.loads(line) for line in (tmp_path / "out" / "ledger.jsonl").read_text().splitlines()]
    charged = {line["node"]: line["releases"] for line in lines}
    assert sums > 0
    assert charged == found
    assert sum(charged.values()) == sums * experiment.algorithm.buffer == result.summary["fedbuff"]["updates_taken"]
    assert max(charged.values()) <= max(plan.releases[name] for name in prepare(experiment).names)
    assert result.summary["finished"].get(SERVER) != "budget"
    if "epsilon_so_far" in result.metrics[-1]:
        assert result.metrics[-1]["epsilon_so_far"] <= result.guarantee.epsilon * (1 + 1e-9)


def test_without_noise_it_learns() -> None:
    """Updates of one epoch each, ten of each of four clients: plain softmax regression reaches more than 0.9."""
    changes = {
        "algorithm": {"updates_per_node": 10, "local_steps": None, "local_epochs": 1, "local_learning_rate": 0.5},
        "privacy": {"mechanism": "none", "noise_multiplier": None, "clip": None},
    }
    found = run(parse_spec(spec(**changes)))
    assert found.metrics[-1]["test_accuracy"] > 0.9
    assert math.isinf(found.guarantee.epsilon)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"algorithm": {"trusted": None}}, "say trusted: server, or take noise_by: client"),
        ({"algorithm": {"noise_by": "client"}}, "algorithm.trusted: nobody is shown anything"),
        ({"algorithm": {"buffer": 5}}, "algorithm.buffer: expected at most the 4 clients that there are, found 5"),
        ({"privacy": {"noise_multiplier": [1, 2, 3, 4]}}, "a server adds one noise"),
        (
            {"faults": {"absences": [{"node": 0, "start": 0}, {"node": 1, "start": 0}]}},
            "fewer than 3 clients make an update",
        ),
    ],
)
def test_what_a_spec_may_not_say(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        planned(**changes)


def test_a_run_says_why_it_made_fewer_sums_than_planned(recwarn: pytest.WarningsRecorder) -> None:
    """Quotas of 5 at 4 clients are enough for 6 sums of 3. Where two are slow, these are left alone before that.

    Equal clients make them all, and then nothing is said.
    """
    slow = {"name": "constant", "scenario": {"name": "some_slow", "share": 0.5, "factor": 100.0}}
    made: dict[str, Any] = {}
    for name, speeds in {"slow": slow, "even": {"name": "constant"}}.items():
        recwarn.clear()
        changes = {"algorithm": {"staleness_exponent": 0}, "stop": {}, "speeds": speeds}
        warnings.simplefilter("always")
        result = run(parse_spec(spec(**changes)))
        found = result.summary["fedbuff"]
        made[name] = found["steps"], found["clients_left_over"], [str(one.message) for one in recwarn]
        assert result.summary["finished"][SERVER] == "too few clients left"
    assert planned().updates == 6
    steps, able, said = made["slow"]
    assert steps < 6
    assert 0 < able < 3
    assert said == [
        f"fedbuff: with noise_by: server each client is in a sum once, and {steps} sums were made of the 6 that all "
        f"updates are enough for: only {able} clients had updates left, and a sum takes 3; a smaller "
        "buffer leaves fewer"
    ]
    assert (made["even"][0], made["even"][2]) == (6, [])


@pytest.mark.parametrize(
    ("algorithm", "privacy", "expected"),
    [
        ({}, {}, 0.0),
        ({}, {"mechanism": "none", "noise_multiplier": None}, 0.5),
        ({"noise_by": "client", "trusted": None}, {}, 0.5),
        ({"staleness_exponent": 0.5}, {}, 0.5),
    ],
)
def test_by_default_ages_count_where_they_make_noise_smaller_too(
    algorithm: dict[str, Any], privacy: dict[str, Any], expected: float
) -> None:
    """A written spec says which it was, and means the same when it is read again."""
    found = parse_spec(spec(algorithm=algorithm, privacy=privacy))
    assert found.algorithm.staleness_exponent == expected
    assert parse_spec(yaml.safe_load(write_spec(found))) == found


def test_updates_that_no_sum_can_take_are_not_kept() -> None:
    """A client that sends on and on fills no more of the server than its quota, or than there will be sums."""
    for more, most in (({"quotas": dict.fromkeys(("node-0", "node-1", "node-2"), 7)}, 7), ({"updates": 4}, 4)):
        node = server(buffer=2, context_of=more)
        for request in range(1, 60):
            effects = told(node, 0, Push(request, 0, raw(request)))
            assert [type(effect.message) for effect in effects if isinstance(effect, Send)] == [Newest]
        assert [float(update.values[0]) for _, _, update in node.state.held] == list(range(1, most + 1))


@pytest.mark.filterwarnings("error")
def test_weights_that_shrink_sums_and_not_their_noise_are_advised_against() -> None:
    said = "staleness_exponent 0.5 makes sums smaller and leaves their noise as it is; 0 hides as much"
    with pytest.warns(RunWarning, match=said):
        plan_run(prepare(parse_spec(spec(algorithm={"staleness_exponent": 0.5}))))
    for changes in (
        {},
        {"algorithm": {"staleness_exponent": 0}},
        {"algorithm": {"noise_by": "client", "trusted": None}},
        {"privacy": {"mechanism": "none", "noise_multiplier": None}},
    ):
        plan_run(prepare(parse_spec(spec(**changes))))


# The server's rate


def radius(rate: float, age: int) -> float:
    """Largest modulus of the roots of z^(age + 1) = z^age - rate: what x_t+1 = x_t - rate x_t-age grows by."""
    companion = np.diag(np.ones(age), -1)
    companion[0, 0] = 1.0
    companion[0, -1] -= rate
    return float(np.abs(np.linalg.eigvals(companion)).max())


@pytest.mark.parametrize(("clients", "buffer", "age"), [(6, 6, 0), (10, 5, 1), (11, 5, 2), (40, 10, 3), (100, 10, 9)])
def test_a_rate_is_steady_below_the_bound_and_no_longer_above(clients: int, buffer: int, age: int) -> None:
    steady = Settings(nodes=clients, buffer=buffer, **TRUSTED).steady
    assert radius(0.999 * steady, age) < 1
    assert radius(1.001 * steady, age) > 1


@pytest.mark.parametrize(
    ("changes", "rate"),
    [
        ({**TRUSTED}, 0.7),  # 10 clients and a buffer of 5: the bound is 1
        ({**TRUSTED, "nodes": 5}, 1.0),  # nobody is late
        ({**TRUSTED, "nodes": 400, "buffer": 100}, 0.31),  # 0.7 of 2 sin(pi/14) = 0.445
        ({**TRUSTED, "learning_rate": 1.0}, 1.0),
        ({**TRUSTED, "server_optimizer": "adam"}, 1.0),
        ({}, 1.0),
    ],
)
@pytest.mark.parametrize("privacy", ["none", {"noise_multiplier": 8.0}])
def test_a_trusted_server_takes_a_rate_that_is_steady(changes: dict[str, Any], rate: float, privacy: Any) -> None:
    spec = parse_spec({"dataset": "digits", "algorithm": {"name": "fedbuff", **changes}, "privacy": privacy})
    assert spec.algorithm.learning_rate == rate
    assert parse_spec(yaml.safe_load(write_spec(spec))).algorithm.learning_rate == rate


def test_a_rate_with_which_a_run_may_swing_is_told_before_it() -> None:
    spec = {"dataset": "digits", "privacy": {"noise_multiplier": 8.0}}
    loose = {"name": "fedbuff", "updates_per_node": 4, "learning_rate": 1.0, **TRUSTED}
    with pytest.warns(RunWarning, match="learning_rate 1 may swing wider and wider, .* below 1 it cannot"):
        plan_run(prepare(parse_spec({**spec, "algorithm": loose})))
    for steady in ({"learning_rate": 0.99}, {"buffer": 10}):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", "fedbuff: with noise_by")
            plan_run(prepare(parse_spec({**spec, "algorithm": {**loose, **steady}})))


def test_the_default_learns_where_the_rate_of_others_swings() -> None:
    """Half of the clients in a buffer, and local training that goes nearly all the way."""
    algorithm = {"name": "fedbuff", "local_steps": 50, "updates_per_node": 30, "staleness_exponent": 0, **TRUSTED}
    accuracy = {}
    for rate in (None, 1.0):
        given = {} if rate is None else {"learning_rate": rate}
        spec = {"dataset": "digits", "seed": 1, "algorithm": {**algorithm, **given}, "privacy": "none"}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RunWarning)
            accuracy[rate] = run(parse_spec(spec)).metrics[-1]["mean_model_test_accuracy"]
    assert accuracy[None] > 0.9
    assert accuracy[1.0] < 0.8
