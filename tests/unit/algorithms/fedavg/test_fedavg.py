"""FedAvg: rounds against a loop done by hand, who is in them, what clients are charged, and what is proved of it."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant
from tests.reference import client_specs

from gossamer.algorithms.clients.nodes import SERVER, Fetch, Halt, Leave, Newest, Push
from gossamer.algorithms.context import Context
from gossamer.algorithms.fedavg import box as fedavg
from gossamer.algorithms.fedavg.box import Settings, public_cohorts
from gossamer.algorithms.plan import Plan
from gossamer.cli import main
from gossamer.errors import PeerError, SpecError
from gossamer.experiment.runs.running import run
from gossamer.experiment.specs.spec_file import parse_spec
from gossamer.privacy.mechanisms import Gaussian, NoNoise, Poisson
from gossamer.privacy.tasks import Cohort, CuratedSum, Query
from gossamer.protocol.effects import Compute, Effect, Finish, Send, SetTimer
from gossamer.protocol.encoding import decode, encode
from gossamer.protocol.events import Answered, Completed, Elapsed, PeerDown, Received, Refused, Resumed, Started
from gossamer.protocol.messages import Message
from gossamer.protocol.node import Node, restore_state, state_of
from gossamer.sides.plan import WHOLE, ClientUpdate, Curator
from gossamer.topology.graphs import Graph
from gossamer.vectors import Confined, Public, Released

SIZE = 3
SPEC: dict[str, Any] = {
    "dataset": "digits",
    "algorithm": {"name": "fedavg", "nodes": 6, "rounds": 4, "local_steps": 2},
    "privacy": {"clip": 0.5, "noise_multiplier": 8.0},
}
TRUSTED = {"noise_by": "server", "trusted": "server"}
SECRET = {**TRUSTED, "cohorts": "secret", "clients_per_round": 3}


def spec(**changes: Any) -> dict[str, Any]:
    """The spec with other sections, or other keys in them."""
    return client_specs.changed(SPEC, **changes)


def planned(**changes: Any) -> Plan:
    return client_specs.planned(spec(**changes))


def context(nodes: int, law: Any = None) -> Context:
    names = tuple(f"node-{i}" for i in range(nodes))
    return Context(
        seed=0,
        names=names,
        graph=Graph(nodes, np.empty((0, 2), int)),
        initial=Public(np.array([1.0, -1.0, 2.0])),
        queries={name: Query(Poisson(0.5), law or NoNoise(), 4.0) for name in names},
        shard_sizes=dict.fromkeys(names, 8),
    )


def server(nodes: int = 3, law: Any = None, **settings: Any) -> Node:
    found = fedavg.build(Settings(nodes=nodes, **settings), context(nodes, law))[SERVER]
    return found


def told(node: Node, sender: str, message: Message) -> list[Effect]:
    return node.handle(Received(sender, message), 0.0)


def update(*values: float) -> Released:
    return Released(np.array(values, float))


def given(effects: list[Effect]) -> list[str]:
    """Who gets a model to train from."""
    return [effect.to for effect in effects if isinstance(effect, Send) and isinstance(effect.message, Newest)]


def test_a_round_waits_for_all_and_takes_their_mean() -> None:
    """Line 4 and 5, with eta_g 0.5; the next round begins for those who wait."""
    node = server(learning_rate=0.5)
    assert node.handle(Started(), 0.0) == [SetTimer(30.0, "round")]  # to see who is there
    for name in ("node-0", "node-1", "node-2"):
        assert given(told(node, name, Fetch(1))) == [name]
    assert told(node, "node-1", Push(2, 0, update(3, 0, 0))) == []
    assert told(node, "node-0", Push(2, 0, update(0, 3, 0))) == []
    effects = told(node, "node-2", Push(2, 0, update(0, 0, 6)))
    assert given(effects) == ["node-0", "node-1", "node-2"]
    np.testing.assert_allclose(node.state.x.values, [1.5, -0.5, 3.0])
    assert node.state.t == 1


def test_whoever_comes_late_is_not_taken_and_joins_its_next_round() -> None:
    node = server(timeout=5.0)
    node.handle(Started(), 0.0)
    for name in ("node-0", "node-1", "node-2"):
        told(node, name, Fetch(1))
    told(node, "node-0", Push(2, 0, update(3, 0, 0)))
    assert given(node.handle(Elapsed("round"), 5.0)) == ["node-0"]  # the others are still at it
    np.testing.assert_allclose(node.state.x.values, [4.0, -1.0, 2.0])  # the mean of those who have answered
    assert given(told(node, "node-1", Push(2, 0, update(9, 9, 9)))) == ["node-1"]
    np.testing.assert_allclose(node.state.x.values, [4.0, -1.0, 2.0])
    assert told(node, "node-1", Push(3, 1, update(0, 0, 0))) == []
    assert told(node, "node-1", Push(4, 1, update(9, 9, 9))) == []  # one update a round counts
    assert node.state.updates["node-1"] == update(0, 0, 0)


def test_whoever_was_late_is_waited_for_in_each_round_or_until_it_is_heard_of_again() -> None:
    rounds = {}
    for late in (None, "awaited", "skipped"):
        node = server(timeout=5.0, late=late, rounds=9)
        node.handle(Started(), 0.0)
        for name in ("node-0", "node-1", "node-2"):
            told(node, name, Fetch(1))
        told(node, "node-0", Push(2, 0, update(0, 0, 0)))
        told(node, "node-1", Push(2, 0, update(0, 0, 0)))
        node.handle(Elapsed("round"), 5.0)  # without node-2
        assert node.state.t == 1
        told(node, "node-0", Push(3, 1, update(0, 0, 0)))
        told(node, "node-1", Push(3, 1, update(0, 0, 0)))
        rounds[late] = node.state.t
    assert rounds == {None: 1, "awaited": 1, "skipped": 2}
    assert given(told(node, "node-2", Push(2, 0, update(9, 9, 9)))) == []  # it is back, and would hold up this round
    told(node, "node-0", Push(4, 2, update(0, 0, 0)))
    assert given(told(node, "node-1", Push(4, 2, update(0, 0, 0)))) == ["node-0", "node-1", "node-2"]
    told(node, "node-0", Push(5, 3, update(0, 0, 0)))
    told(node, "node-1", Push(5, 3, update(0, 0, 0)))
    assert node.state.t == 3, "it is waited for again"
    told(node, "node-2", Push(3, 3, update(0, 0, 0)))
    assert node.state.t == 4
    np.testing.assert_array_equal(node.state.x.values, [1.0, -1.0, 2.0])


def test_where_all_were_late_a_round_waits_for_the_first_that_answers() -> None:
    """A server that nobody reaches goes through rounds by its timeout, and not as fast as it can."""
    node = server(timeout=5.0, late="skipped", rounds=9)
    node.handle(Started(), 0.0)
    for second in (5.0, 10.0):
        node.handle(Elapsed("round"), second)
    assert node.state.t == 2
    assert given(told(node, "node-1", Fetch(1))) == ["node-1"]
    assert node.state.t == 2
    told(node, "node-1", Push(2, 2, update(3, 0, 0)))
    assert node.state.t == 3
    np.testing.assert_allclose(node.state.x.values, [4.0, -1.0, 2.0])


@pytest.mark.parametrize("end", ["lost", "left"])
def test_a_late_client_that_is_the_last_there_is_asked(end: str) -> None:
    """Lost in the first round, it is back in the second, and is not asked while others are at work: until they end."""
    node = server()
    node.handle(Started(), 0.0)
    for name in ("node-0", "node-1", "node-2"):
        told(node, name, Fetch(1))
    node.handle(PeerDown("node-2", "silent"), 1.0)
    for name in ("node-0", "node-1"):
        told(node, name, Push(2, 0, update(0, 0, 0)))
    assert node.state.t == 1
    assert given(told(node, "node-2", Push(2, 0, update(9, 9, 9)))) == []
    ends = [PeerDown(name, "silent") if end == "lost" else Received(name, Leave()) for name in ("node-0", "node-1")]
    assert [given(node.handle(event, 2.0)) for event in ends] == [[], ["node-2"]]
    told(node, "node-2", Push(3, 1, update(0, 3, 0)))
    assert node.state.t == 2


def test_a_client_that_was_lost_while_it_waited_for_a_model_is_late_until_it_is_back() -> None:
    """It has answered, and its session says once that it is lost: the next round does not wait for it."""
    node = server()
    node.handle(Started(), 0.0)
    for name in ("node-0", "node-1", "node-2"):
        told(node, name, Fetch(1))
    told(node, "node-0", Push(2, 0, update(0, 0, 0)))
    node.handle(PeerDown("node-0", "silent"), 1.0)
    for request, version in ((2, 0), (3, 1)):
        for name in ("node-1", "node-2"):
            told(node, name, Push(request, version, update(0, 0, 0)))
    assert node.state.t == 2
    assert given(told(node, "node-0", Push(3, 1, update(9, 9, 9)))) == []  # it is back, and joins later
    for name in ("node-1", "node-2"):
        told(node, name, Push(4, 2, update(0, 0, 0)))
    assert node.state.t == 3
    assert node.awaited == {"node-0", "node-1", "node-2"}


def test_who_was_late_is_remembered_over_a_restart() -> None:
    node = server(timeout=5.0, late="skipped")
    node.handle(Started(), 0.0)
    told(node, "node-0", Fetch(1))
    told(node, "node-0", Push(2, 0, update(0, 0, 0)))
    node.handle(Elapsed("round"), 5.0)
    back = server(timeout=5.0, late="skipped")
    restore_state(back, decode(encode(state_of(node))))
    assert back.state == node.state
    assert back.state.late == {"node-1": False, "node-2": False}


def test_nobody_waits_for_clients_that_left() -> None:
    node = server(rounds=2)
    node.handle(Started(), 0.0)
    for name in ("node-0", "node-1", "node-2"):
        told(node, name, Fetch(1))
    told(node, "node-0", Push(2, 0, update(2, 0, 0)))
    told(node, "node-1", Leave())
    assert given(told(node, "node-2", Leave())) == ["node-0"]
    np.testing.assert_allclose(node.state.x.values, [3.0, -1.0, 2.0])
    effects = told(node, "node-0", Leave())
    assert Finish("all clients left") in effects
    assert [e.message for e in effects if isinstance(e, Send)] == [Halt(1, node.state.x)] * 3


def test_public_cohorts_are_drawn_evenly_and_anew_in_each_round() -> None:
    """2 of 6 in 3,000 rounds: each client in 1,000 on average, of standard deviation 26; five of them is 6e-7 each."""
    names, settings = tuple("abcdef"), Settings(nodes=6, clients_per_round=2)
    draw = public_cohorts(settings, 1, names)
    drawn = [draw(round) for round in range(3000)]
    assert all(len(set(cohort)) == 2 for cohort in drawn)
    counts = Counter(name for cohort in drawn for name in cohort)
    assert all(abs(counts[name] - 1000) < 130 for name in names)
    assert drawn[:20] == [public_cohorts(settings, 1, names)(round) for round in range(20)]
    assert drawn[:20] != [public_cohorts(settings, 2, names)(round) for round in range(20)]
    assert public_cohorts(Settings(nodes=6), 1, names)(0) == names


def test_only_the_cohort_is_given_the_model() -> None:
    node = server(nodes=6, clients_per_round=2)
    node.handle(Started(), 0.0)
    asked = [name for i in range(6) for name in given(told(node, f"node-{i}", Fetch(1)))]
    assert tuple(asked) == node.public(0)  # type: ignore[attr-defined]
    effects = [effect for name in asked for effect in told(node, name, Push(2, 0, update(0, 0, 0)))]
    assert tuple(given(effects)) == node.public(1)  # type: ignore[attr-defined]


def trusted(nodes: int = 3, **settings: Any) -> Node:
    return server(nodes, Gaussian(0.5, 2.0), noise_by="server", trusted="server", **settings)


def test_a_trusted_server_hands_all_updates_to_its_data_side() -> None:
    node = trusted(learning_rate=2.0)
    node.handle(Started(), 0.0)
    vectors = {name: Confined(np.full(SIZE, 0.1 * i)) for i, name in enumerate(("node-0", "node-1", "node-2"))}
    effects: list[Effect] = []
    for name, vector in vectors.items():
        told(node, name, Fetch(1))
        effects = told(node, name, Push(2, 0, vector))
    query = Query(WHOLE, Gaussian(0.5, 2.0), 3.0)
    assert effects[1:] == [Compute(CuratedSum(1, context(3).initial, tuple(vectors.items()), query))]
    done = node.handle(Completed(1, update(1, 2, 3), 0), 0.0)
    assert given(done) == ["node-0", "node-1", "node-2"]
    np.testing.assert_allclose(node.state.x.values, [3.0, 3.0, 8.0])


def test_secret_cohorts_are_asked_of_the_data_side_and_named_in_the_sum() -> None:
    node = trusted(clients_per_round=1, cohorts="secret")
    query = Query(Poisson(1 / 3), Gaussian(0.5, 2.0), 1.0)
    assert node.handle(Started(), 0.0) == [Compute(Cohort(1, context(3).initial, 3, query))]
    for name in ("node-0", "node-1", "node-2"):
        assert told(node, name, Fetch(1)) == []
    assert given(node.handle(Answered(1, Confined(np.array([0.0, 1.0, 0.0]))), 0.0)) == ["node-1"]
    vector = Confined(np.ones(SIZE))
    effects = told(node, "node-1", Push(2, 0, vector))
    assert effects == [Compute(CuratedSum(2, context(3).initial, (("node-1", vector),), query, 1))]
    again = node.handle(Completed(2, update(1, 0, 0), 0), 0.0)
    assert again == [Compute(Cohort(3, node.state.x, 3, query))]


def test_that_nobody_was_drawn_is_not_to_be_seen() -> None:
    """The sum of nobody is asked for as well: it has noise like any other."""
    node = trusted(clients_per_round=1, cohorts="secret")
    node.handle(Started(), 0.0)
    (asked,) = node.handle(Answered(1, Confined(np.zeros(3))), 0.0)
    assert isinstance(asked, Compute)
    assert asked.task == CuratedSum(2, context(3).initial, (), node.query, 1)  # type: ignore[attr-defined]


def test_a_server_that_comes_back_has_a_new_cohort_drawn() -> None:
    """The data side forgets its cohorts: the round begins again, with another charge."""
    node = trusted(clients_per_round=1, cohorts="secret")
    node.handle(Started(), 0.0)
    node.handle(Answered(1, Confined(np.array([0.0, 1.0, 0.0]))), 0.0)
    (asked,) = node.handle(Resumed(3.0), 9.0)
    assert isinstance(asked, Compute)
    assert isinstance(asked.task, Cohort)
    assert asked.task.id == 2
    assert node.handle(Answered(1, Confined(np.ones(3))), 0.0) == []  # of the question before


def test_a_server_ends_when_its_clients_are_covered_no_more() -> None:
    node = trusted(clients_per_round=1, cohorts="secret")
    node.handle(Started(), 0.0)
    effects = node.handle(Refused(1, 3), 0.0)
    assert Finish("budget") in effects


@pytest.mark.parametrize(
    ("sender", "message", "said"),
    [
        ("node-7", Fetch(1), "may send server no"),
        ("node-0", Push(1, 1, update(0, 0, 0)), "version 1, expected 0 to 0"),
        ("node-0", Push(1, 0, Confined(np.zeros(SIZE))), "is Confined, expected Released"),
    ],
)
def test_the_server_refuses_what_no_client_of_its_own_sends(sender: str, message: Message, said: str) -> None:
    with pytest.raises(PeerError, match=said):
        told(server(), sender, message)


def test_a_trusted_server_takes_no_update_that_was_released_already() -> None:
    with pytest.raises(PeerError, match="is Released, expected Confined"):
        told(trusted(), "node-0", Push(1, 0, update(0, 0, 0)))


def accounted(rate: float, rounds: int, multiplier: float, relation: NeighboringRelation) -> float:
    other = PLDAccountant(relation)
    other.compose(SelfComposedDpEvent(PoissonSampledDpEvent(rate, GaussianDpEvent(multiplier)), rounds))
    return float(other.get_epsilon(1e-5))


@pytest.mark.parametrize("algorithm", [{}, TRUSTED])
def test_public_cohorts_cost_what_the_client_takes_part_in(algorithm: dict[str, Any]) -> None:
    """Not amplified: as many Gaussian releases as the busiest client is in, which everybody can count."""
    plan = planned(algorithm={**algorithm, "clients_per_round": 2, "rounds": 9})
    draw = client_specs.cohorts(spec(algorithm={**algorithm, "clients_per_round": 2, "rounds": 9}))
    counts = Counter(name for round in range(9) for name in draw(round))
    most = max(counts.values())
    assert 3 <= most < 9
    expected = accounted(1.0, most, 4.0, NeighboringRelation.ADD_OR_REMOVE_ONE)  # 2 C apart under noise of 8 C
    assert plan.guarantee.epsilon == pytest.approx(expected, rel=0.01)
    assert "secret coins" not in str(plan.guarantee)
    if not algorithm:
        assert {name: plan.releases[name] for name in plan.mechanisms} == {n: counts[n] for n in plan.mechanisms}


@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one"])
def test_secret_cohorts_are_amplified_as_dp_accounting_says(relation: str) -> None:
    plan = planned(algorithm=SECRET, privacy={"neighboring_relation": relation, "noise_multiplier": 3.0})
    expected = accounted(0.5, 4, 3.0, NeighboringRelation[relation.upper()])
    assert plan.guarantee.epsilon == pytest.approx(expected, rel=0.01)
    assert "nor anyone who sees whom it talks to" in plan.guarantee.observer
    assert math.isinf(plan.guarantees["curator"].epsilon)
    assert {name: plan.releases[name] for name in plan.mechanisms} == dict.fromkeys(plan.mechanisms, 4)


def test_the_plan_of_a_trusted_server() -> None:
    plan = planned(algorithm=SECRET)
    curator = plan.side(SERVER)
    assert isinstance(curator, Curator)
    assert (curator.cohort, curator.owners, curator.bound) == (6, tuple(plan.mechanisms), 0.5)
    (kind,) = curator.kinds
    assert (kind.sampling, curator.kinds[kind]) == (Poisson(0.5), 4)
    raw = plan.side("node-0")
    assert isinstance(raw, ClientUpdate)
    assert (raw.noise, raw.bound, raw.scope, raw.behind) == (None, 0.5, {SERVER, "node-0"}, curator)


@pytest.mark.parametrize("algorithm", [{}, TRUSTED, SECRET, {"clients_per_round": 2}])
def test_a_run_makes_its_rounds_and_charges_for_them(algorithm: dict[str, Any], tmp_path: Path) -> None:
    result = run(parse_spec(spec(algorithm=algorithm)), tmp_path / "out")
    assert result.summary["finished"][SERVER] == "rounds"
    assert result.summary["fedavg"]["steps"] == 4
    lines = [json.loads(line) for line in (tmp_path / "out" / "ledger.jsonl").read_text().splitlines()]
    charged = {line["node"]: line["releases"] for line in lines}
    assert {line["protects"] for line in lines} == {"client"}
    rate = 0.5 if "cohorts" in algorithm else 1.0
    assert {line["probability"] for line in lines} == {rate}
    if algorithm.get("clients_per_round") == 2:
        assert sum(charged.values()) == 8
    else:
        assert charged == {f"node-{i}": 4 for i in range(6)}
    assert result.metrics[-1]["epsilon_so_far"] == pytest.approx(result.guarantee.epsilon)


@pytest.mark.parametrize("algorithm", [TRUSTED, SECRET, {**TRUSTED, "clients_per_round": 2}])
def test_every_sum_of_a_short_run_is_looked_at(algorithm: dict[str, Any]) -> None:
    """Sums are what is counted, so that a run of 4 has looks after each, and may end by its accuracy."""
    assert planned(algorithm=algorithm).updates == 4
    found = run(parse_spec(spec(algorithm=algorithm)))
    assert {row["updates"] for row in found.metrics} == {0, 1, 2, 3, 4}
    stopped = run(parse_spec(spec(algorithm=algorithm, stop={"accuracy": 1e-9})))
    assert stopped.summary["fedavg"]["steps"] < 4


def test_without_noise_it_learns() -> None:
    """Ten epochs in all, of digits at six clients: plain softmax regression reaches more than 0.9."""
    bare = spec(
        algorithm={"rounds": 10, "local_steps": None, "local_epochs": 1, "local_learning_rate": 0.5},
        privacy={"mechanism": "none", "noise_multiplier": None, "clip": None},
    )
    for more in ({}, TRUSTED, SECRET):
        found = run(parse_spec({**bare, "algorithm": {**bare["algorithm"], **more}}))
        assert found.metrics[-1]["test_accuracy"] > 0.9
        assert math.isinf(found.guarantee.epsilon)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"algorithm": {"noise_by": "server"}}, "say trusted: server, or take noise_by: client"),
        ({"algorithm": {"trusted": "server"}}, "algorithm.trusted: nobody is shown anything"),
        ({"algorithm": {"cohorts": "secret", "clients_per_round": 3}}, "secret coins are those of a server"),
        ({"algorithm": {"clients_per_round": 7}}, "at most the 6 clients that there are, found 7"),
        ({"algorithm": {"updates_per_node": 3}}, "leave it out, and say rounds"),
        ({"algorithm": {"late": "skipped"}}, "without a timeout nobody is late; leave it out, or say timeout"),
        ({"algorithm": TRUSTED, "privacy": {"noise_multiplier": [1, 2, 3, 4, 5, 6]}}, "a server adds one noise"),
        (
            {"privacy": {"neighboring_relation": "add_or_remove_one"}},
            "clients whose data are replaced where they add noise themselves, found add_or_remove_one; leave it out, "
            "or take noise_by: server",
        ),
        (
            {"algorithm": {**SECRET, "clients_per_round": None}},
            "secret hides who of the clients was drawn, and all 6 are in each round; say fewer with clients_per_round",
        ),
        ({"algorithm": {**SECRET, "clients_per_round": 6}}, "or take cohorts: public"),
        (
            {"privacy": {"sampling": "poisson"}},
            "fedavg shuffles each client's examples, and takes them in turn, found poisson; leave it out",
        ),
        ({"privacy": {"sampling": "fixed_size"}}, "takes them in turn, found fixed_size; leave it out"),
    ],
)
def test_what_a_spec_may_not_say(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        planned(**changes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"algorithm": {**SECRET, "timeout": 5.0}}, "who is too late in a round depends on who was drawn before"),
        ({"faults": {"absences": [{"node": 1, "start": 2, "end": 9}]}}, "all clients there whenever they are drawn"),
        ({"links": {"partitions": [{"group": [1], "start": 2}]}}, "all clients there whenever they are drawn"),
        ({"stop": {"epochs": 1}}, "shows how often they were drawn"),
        ({"stop": {"virtual_seconds": 9}}, "a run that ends by the clock shows how long its rounds took"),
        ({"stop": {"accuracy": 0.9}, "evaluation": {"every_seconds": 1}}, "a run that ends by the clock"),
    ],
)
def test_nothing_that_depends_on_secret_coins_ends_a_run_or_cuts_clients_off(
    changes: dict[str, Any], said: str
) -> None:
    """How long a round takes depends on who is in it. Without noise there is nothing to be kept."""
    with pytest.raises(SpecError, match=said):
        planned(**{"algorithm": SECRET, **changes})
    bare = {"mechanism": "none", "noise_multiplier": None, "clip": None}
    assert math.isinf(planned(**{"algorithm": SECRET, **changes}, privacy=bare).guarantee.epsilon)


@pytest.mark.parametrize("stop", [{"updates": 3}, {"accuracy": 0.99}])
def test_secret_cohorts_may_end_by_what_is_released(stop: dict[str, Any]) -> None:
    """By the number of sums, or the accuracy of the released model after some number of them."""
    assert math.isfinite(planned(algorithm=SECRET, stop=stop).guarantee.epsilon)


def test_no_federation_is_founded_on_secret_cohorts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The broker sees whom the server asks, so what is proved against all others would not hold."""
    written = tmp_path / "spec.yaml"
    written.write_text(json.dumps(spec(algorithm=SECRET)))
    assert main(["up", str(written), "--out", str(tmp_path / "up")]) == 2
    error = capsys.readouterr().err
    said = "algorithm.cohorts: secret is for simulations: the broker, and whoever sees its traffic, see whom"
    assert error.startswith(f"gossamer: error: {written}: {said}")
    assert "leave cohorts out, which takes more noise or fewer releases, or simulate it (gossamer run)" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "up").exists()


@pytest.mark.parametrize("more", [{}, {"timeout": 5.0}], ids=["", "timeout"])
def test_a_server_goes_through_rounds_without_anybody_by_the_thousand(more: dict[str, Any]) -> None:
    """5,000 rounds of one client of 2,000, all but one of whom leave: the rounds of the others end as they begin.

    The one that stays is the one whose first round is the latest, after more rounds than calls go deep.
    """
    node: Any = server(nodes=2000, clients_per_round=1, rounds=5000, **more)
    drawn = [node.public(t)[0] for t in range(5000)]
    stays = max(drawn, key=drawn.index)
    own = [t for t in range(5000) if drawn[t] == stays]
    assert own[0] > 1000
    node.handle(Started(), 0.0)
    for name in sorted(node.clients - {stays, drawn[0]}):
        told(node, name, Leave())
    assert node.state.t == 0
    effects = told(node, drawn[0], Leave())
    assert len(effects) == 2 * own[0]  # each round ends its timer, and the next one sets it
    for t in own:
        assert (node.state.t, node.state.cohort) == (t, (stays,))
        told(node, stays, Fetch(1))
        told(node, stays, Push(2, t, update(1, 0, 0)))
    assert (node.state.t, node.state.finished) == (5000, "rounds")
    np.testing.assert_allclose(node.state.x.values, [1.0 + len(own), -1.0, 2.0])
