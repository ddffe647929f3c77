"""Servers and agents of federated units, event by event."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gossamer.algorithms.graph_federated import box as graph_federated
from gossamer.algorithms.graph_federated.neighbours import Average, Combine, Leaving, Reach, Weights
from gossamer.algorithms.graph_federated.nodes import AgentNode, Assignment, Contribution, Declined, Over, ServerNode
from gossamer.algorithms.graph_federated.settings import Sampling, Settings, combination, drawn, units_of
from gossamer.algorithms.nodes import Probe
from gossamer.errors import PeerError, TopologyError
from gossamer.privacy.tasks import LocalQuery
from gossamer.protocol.effects import Compute, Finish, Record, Reject, Release, Send, SetTimer
from gossamer.protocol.events import (
    Answered,
    Completed,
    Elapsed,
    PeerDown,
    PeerUp,
    Received,
    Resumed,
    Started,
)
from gossamer.topology.graphs import Graph
from gossamer.vectors import Confined, Public, Released

AGENTS = ("a", "b")


UNBOUNDED = Reach(math.inf, math.inf)


def server(*, reach: Reach = UNBOUNDED, dtype: str = "float32", **changed: Any) -> ServerNode:
    """A server with agents a and b, and neighbours left and right of weight 1/4 each."""
    settings = Settings.model_validate({"units": 3, "agents": 2, "rounds": 3, **changed}).decided(private=True)
    weights = Weights(0.5, {"left": 0.25, "right": 0.25})
    initial = Public(np.zeros(2, dtype))
    return ServerNode(initial, weights, Sampling(1, "middle", AGENTS, 2), settings, reach)


def sent(effects: list[Any], kind: type) -> dict[str, Any]:
    """The messages of a kind, by receiver."""
    return {e.to: e.message for e in effects if isinstance(e, Send) and isinstance(e.message, kind)}


def releases(effects: list[Any]) -> list[Release]:
    """The records that a server asks for."""
    return [e.task for e in effects if isinstance(e, Compute) and isinstance(e.task, Release)]


def update(*values: float) -> Confined:
    return Confined(np.array(values, np.float32))


def released(*values: float) -> Released:
    return Released(np.array(values, np.float32))


def through_a_round(node: ServerNode, noise: float = 0.0) -> list[Any]:
    """Both agents contribute (0.5, 0), the record has ``noise``, and the neighbours send zeros."""
    number = node.state.round
    for agent in AGENTS:
        effects = node.handle(Received(agent, Contribution(number, update(0.5, 0.0))), 0.0)
    (asked,) = releases(effects)
    node.handle(Completed(asked.id, Released(asked.vector.values + noise), 1), 0.0)
    for neighbour in ("left", "right"):
        effects = node.handle(Received(neighbour, Combine(number, released(0.0, 0.0))), 0.0)
    return effects


def test_a_round_event_by_event() -> None:
    node = server(gradient_at="hidden")
    effects = node.handle(Started(), 0.0)
    assert set(sent(effects, Assignment)) == set(AGENTS)
    assert node.handle(Received("a", Contribution(0, update(0.5, 0.0))), 1.0) == []
    effects = node.handle(Received("b", Contribution(0, update(0.0, 0.25))), 1.0)
    assert effects == [Compute(Release(0, Confined(np.array([0.25, 0.125]))))]
    effects = node.handle(Completed(0, Released(np.array([1.25, 0.125])), 1), 1.0)  # noise (1, 0)
    assert sent(effects, Combine) == dict.fromkeys(("left", "right"), Combine(0, released(1.25, 0.125)))
    assert node.handle(Received("left", Combine(0, released(4.0, 0.0))), 2.0) == []
    effects = node.handle(Received("right", Combine(0, released(0.0, 8.0))), 2.0)
    # psi - (1 - 1/2) M + (left + right)/4
    expected = np.array([0.25, 0.125]) - 0.5 * np.array([1.25, 0.125]) + np.array([1.0, 2.0])
    start = sent(effects, Assignment)["a"].model
    assert type(start) is Confined
    np.testing.assert_allclose(start.values, expected, rtol=1e-6)
    np.testing.assert_allclose(node.state.v.values, [0.625 + 1.0, 0.0625 + 2.0], rtol=1e-12)


def test_agents_start_from_what_follows_from_messages() -> None:
    node = server()
    node.handle(Started(), 0.0)
    start = sent(through_a_round(node, noise=1.0), Assignment)["a"].model
    assert type(start) is Released
    np.testing.assert_allclose(start.values, [0.5 * 1.5, 0.5], rtol=1e-6)


@pytest.mark.parametrize("huge", [4e9, 9e11])
def test_no_neighbour_can_have_the_noise_rounded_away(huge: float) -> None:
    """What is noised is what the unit's own updates add up to, to the last digit, whatever comes in."""
    node = server(gradient_at="hidden", synchronous=False)
    node.handle(Started(), 0.0)
    node.handle(Received("left", Combine(0, released(huge, -huge))), 0.0)
    for number in range(3):
        for agent in AGENTS:
            effects = node.handle(Received(agent, Contribution(number, update(0.5, 0.25))), 0.0)
        (asked,) = releases(effects)
        np.testing.assert_array_equal(asked.vector.values, (number + 1) * np.array([0.5, 0.25]))
        node.handle(Completed(asked.id, Released(asked.vector.values + 1.0), 1), 0.0)
        if node.state.finished:
            break


def test_a_record_of_noise_for_each_neighbour_with_random_noise() -> None:
    node = server(noise="random")
    node.handle(Started(), 0.0)
    node.handle(Received("a", Contribution(0, update(0.5, 0.0))), 0.0)
    effects = node.handle(Received("b", Contribution(0, update(0.5, 0.0))), 0.0)
    assert [e.id for e in releases(effects)] == [0]
    effects = node.handle(Completed(0, Released(np.array([1.0, 0.0])), 1), 0.0)
    assert set(sent(effects, Combine)) == {"left"}
    assert [e.id for e in releases(effects)] == [1]
    effects = node.handle(Completed(1, Released(np.array([3.0, 0.0])), 1), 0.0)
    assert set(sent(effects, Combine)) == {"right"}
    np.testing.assert_allclose(node.state.m.values, [2.0, 0.0])
    for neighbour in ("left", "right"):
        effects = node.handle(Received(neighbour, Combine(0, released(0.0, 0.0))), 0.0)
    np.testing.assert_allclose(node.w.values, [0.25, 0.0])  # a_pp psi, without noise


def test_noise_on_the_own_term_is_drawn_last_and_sent_to_nobody() -> None:
    """w_p = a_pp (psi_p + g_pp) + sum a_pm M_m, equation (8); of the raw sum nothing is left over."""
    node = server(noise="random_own_term")
    for number, start in ((0, 0.0), (1, 0.5 * (0.5 + 6.0) + 1.0)):
        if number == 0:
            node.handle(Started(), 0.0)
        node.handle(Received("a", Contribution(number, update(0.5, 0.0))), 0.0)
        effects = node.handle(Received("b", Contribution(number, update(0.5, 0.0))), 0.0)
        for link, noise in enumerate((1.0, 3.0, 6.0)):
            (asked,) = releases(effects)
            assert asked == Release(3 * number + link, Confined(np.array([0.5, 0.0])))
            effects = node.handle(Completed(asked.id, Released(asked.vector.values + np.array([noise, 0.0])), 1), 0.0)
            messages = sent(effects, Combine)
            to = ("left", "right")[link : link + 1]
            assert messages == {name: Combine(number, released(start + 0.5 + noise, 0.0)) for name in to}
        np.testing.assert_allclose(node.state.m.values, [start + 0.5 + 2.0, 0.0])  # the mean of what was sent
        for neighbour in ("left", "right"):
            effects = node.handle(Received(neighbour, Combine(number, released(2.0, 0.0))), 0.0)
        assert type(node.w) is Confined
        np.testing.assert_allclose(node.w.values, [0.5 * (start + 0.5 + 6.0) + 1.0, 0.0])


def test_the_sum_is_divided_by_all_that_were_sampled() -> None:
    node = server()
    node.handle(Started(), 0.0)
    node.handle(Received("a", Contribution(0, update(0.5, 0.0))), 0.0)
    assert node.handle(PeerDown("b", "gone"), 0.0) == [Compute(Release(0, Confined(np.array([0.25, 0.0]))))]
    assert node.state.unanswered == 1


def test_a_round_without_any_agent_is_noised_and_sent_too() -> None:
    node = server()
    node.handle(Started(), 0.0)
    node.handle(PeerDown("a", "gone"), 0.0)
    (asked,) = releases(node.handle(Received("b", Declined()), 0.0))
    assert not asked.vector.values.any()


def test_a_round_without_any_agent_counts_once_it_is_over() -> None:
    """Until then as many are made as before: who watches sees no round taken back, and counts those in a row."""
    node = server()
    node.handle(Started(), 0.0)
    through_a_round(node)
    found = [node.rounds_made]
    for agent in AGENTS:
        effects = node.handle(PeerDown(agent, "gone"), 0.0)
    found.append(node.rounds_made)  # it waits for its noise, and then for its neighbours
    (asked,) = releases(effects)
    node.handle(Completed(asked.id, asked.vector, 1), 0.0)
    found.append(node.rounds_made)
    for neighbour in ("left", "right"):
        node.handle(Received(neighbour, Combine(1, released(0.0, 0.0))), 0.0)
    assert found == [(1, 0, 3)] * 3
    assert node.rounds_made == (1, 1, 3)


@pytest.mark.parametrize("at", ["the start of a round", "its middle"])
def test_where_all_agents_are_away_a_round_waits_for_who_comes_back(at: str) -> None:
    """A broker that is restarted parts a server from all its agents: that must not cost it all its rounds."""
    node = server(timeout=5.0)
    if at == "the start of a round":
        for agent in AGENTS:
            node.handle(PeerDown(agent, "silent"), 0.0)
        assert not sent(node.handle(Started(), 0.0), Assignment)
    else:
        node.handle(Started(), 0.0)
        for agent in AGENTS:
            assert node.handle(PeerDown(agent, "silent"), 1.0) == []
    assert (node.state.phase, node.state.waiting) == ("gathering", set())
    for agent in AGENTS:
        assert sent(node.handle(PeerUp(agent), 2.0), Assignment) == {agent: Assignment(0, node.state.start)}
    node.handle(Received("a", Contribution(0, update(0.5, 0.0))), 3.0)
    effects = node.handle(Received("b", Contribution(0, update(0.5, 0.0))), 3.0)
    assert releases(effects) == [Release(0, Confined(np.array([0.5, 0.0])))]
    assert node.state.unanswered == 0


def test_where_nobody_comes_back_a_round_ends_by_its_timeout_and_without_one_at_once() -> None:
    node = server(timeout=5.0)
    node.handle(Started(), 0.0)
    for agent in AGENTS:
        node.handle(PeerDown(agent, "gone"), 0.0)
    effects = node.handle(Elapsed("agents"), 5.0)
    assert [e.id for e in releases(effects)] == [0]
    assert not node.state.own.values.any()
    node = server()
    node.handle(Started(), 0.0)
    node.handle(PeerDown("a", "gone"), 0.0)
    assert [e.id for e in releases(node.handle(PeerDown("b", "gone"), 0.0))] == [0]


def test_late_agents_are_given_up_after_the_timeout() -> None:
    node = server(timeout=5.0)
    effects = node.handle(Started(), 0.0)
    assert SetTimer(5.0, "agents") in effects
    effects = node.handle(Elapsed("agents"), 5.0)
    assert releases(effects)
    assert node.handle(Received("a", Contribution(0, update(1.0, 0.0))), 6.0) == []  # too late
    assert not node.state.own.values.any()


@pytest.mark.parametrize("reach", [Reach(0.5, math.inf), Reach(math.inf, 0.5)])
@pytest.mark.parametrize("factor", [1.0, 1.5, 1e12])
def test_no_agent_moves_the_sum_by_more_than_mu_b(factor: float, reach: Reach) -> None:
    """Nor does the sum get longer than it can be."""
    node = server(reach=reach)
    node.handle(Started(), 0.0)
    node.handle(PeerDown("b", "gone"), 0.0)
    (asked,) = releases(node.handle(Received("a", Contribution(0, update(0.3 * factor, 0.4 * factor))), 0.0))
    np.testing.assert_allclose(asked.vector.values, [0.15, 0.2], rtol=1e-6)
    assert np.linalg.norm(asked.vector.values) <= 0.25 * (1 + 1e-12)


def test_an_agent_that_answers_twice_or_for_an_earlier_round_is_in_a_sum_once() -> None:
    """Otherwise its data would move the sum further than 2 mu B/L."""
    node = server()
    node.handle(Started(), 0.0)
    through_a_round(node)
    before = node.state.own.values
    for number in (1, 1, 0, 2):
        assert node.handle(Received("a", Contribution(number, update(0.5, 0.0))), 0.0) == []
    effects = node.handle(Received("b", Contribution(1, update(0.0, 0.25))), 0.0)
    (asked,) = releases(effects)
    np.testing.assert_allclose(asked.vector.values - before, [0.25, 0.125], rtol=1e-6)
    assert node.handle(Received("b", Contribution(1, update(9.0, 9.0))), 0.0) == []


def test_a_neighbour_that_is_away_counts_with_its_newest_model() -> None:
    node = server()
    node.handle(Started(), 0.0)
    through_a_round(node)
    for agent in AGENTS:
        effects = node.handle(Received(agent, Contribution(1, update(0.0, 0.0))), 0.0)
    node.handle(Completed(1, Released(np.array([0.5, 0.0])), 1), 0.0)
    node.handle(Received("left", Combine(1, released(4.0, 0.0))), 0.0)
    assert node.state.phase == "combining"
    effects = node.handle(PeerDown("right", "gone"), 0.0)
    assert sent(effects, Assignment)
    assert node.state.staleness_most == 1
    node.handle(PeerUp("right"), 0.0)
    assert node.state.away == set()


def test_a_neighbour_may_be_one_round_ahead() -> None:
    """Its model of this round is the one that counts."""
    node = server()
    node.handle(Started(), 0.0)
    node.handle(Received("left", Combine(0, released(4.0, 0.0))), 0.0)
    node.handle(Received("left", Combine(1, released(400.0, 0.0))), 0.0)
    node.handle(Received("right", Combine(0, released(0.0, 0.0))), 0.0)
    for agent in AGENTS:
        effects = node.handle(Received(agent, Contribution(0, update(0.0, 0.0))), 0.0)
    effects = node.handle(Completed(0, Released(np.zeros(2)), 1), 0.0)
    np.testing.assert_allclose(sent(effects, Assignment)["a"].model.values, [1.0, 0.0])


@pytest.mark.parametrize("round", [0, 1])
def test_rounds_of_a_neighbour_go_up(round: int) -> None:
    node = server()
    node.handle(Started(), 0.0)
    node.handle(Received("left", Combine(1, released(0.0, 0.0))), 0.0)
    with pytest.raises(PeerError, match="rounds go up"):
        node.handle(Received("left", Combine(round, released(0.0, 0.0))), 0.0)


def test_those_that_are_waited_for_are_asked_whether_they_are_there() -> None:
    node = server(patience=10.0)
    effects = node.handle(Started(), 0.0)
    assert SetTimer(10.0, "probe") in effects
    node.handle(Received("a", Contribution(0, update(0.0, 0.0))), 1.0)
    effects = node.handle(Elapsed("probe"), 10.0)
    assert effects == [Send("b", Probe()), SetTimer(20.0, "probe")]
    node.handle(Received("b", Contribution(0, update(0.0, 0.0))), 11.0)
    node.handle(Completed(0, Released(np.zeros(2)), 1), 11.0)
    node.handle(Received("left", Combine(0, released(0.0, 0.0))), 12.0)
    effects = node.handle(Elapsed("probe"), 30.0)
    assert effects == [Send("right", Probe()), SetTimer(40.0, "probe")]


def test_released_models_that_grow_without_bound_end_the_rounds() -> None:
    node = server()
    node.handle(Started(), 0.0)
    through_a_round(node)
    for agent in AGENTS:
        effects = node.handle(Received(agent, Contribution(1, update(9e11, 0.0))), 0.0)
    (asked,) = releases(effects)
    effects = node.handle(Completed(1, Released(asked.vector.values + 2e11), 1), 0.0)
    assert {combine.model.values.max() for combine in sent(effects, Combine).values()} == {np.float32(1e12)}
    assert Record("last_stable_round", 1.0) in effects
    assert Finish("diverged") in effects
    assert set(sent(effects, Leaving)) == {"left", "right"}
    assert {over.reason for over in sent(effects, Over).values()} == {3}


def test_averaging_ends_in_the_mean_of_last_messages() -> None:
    """Three servers of weights 1/2, 1/4, 1/4; the neighbours' averages are given."""
    node = server(rounds=1, consensus=2)
    node.handle(Started(), 0.0)
    effects = through_a_round(node)
    assert set(sent(effects, Average)) == {"left", "right"}
    np.testing.assert_allclose(node.state.v.values, [0.5, 0.0])
    node.handle(Received("left", Average(0, released(1.0, 0.0))), 0.0)
    effects = node.handle(Received("right", Average(0, released(3.0, 4.0))), 0.0)
    np.testing.assert_allclose(sent(effects, Average)["left"].model.values, [1.25, 1.0])
    node.handle(Received("left", Leaving()), 0.0)  # counts with this server's own from now on
    effects = node.handle(Received("right", Average(1, released(0.0, 0.0))), 0.0)
    assert Finish("quota") in effects
    np.testing.assert_allclose(node.state.v.values, [0.75 * 1.25, 0.75])


def test_a_server_that_comes_back_asks_again() -> None:
    node = server(timeout=5.0)
    node.handle(Started(), 0.0)
    node.handle(Received("a", Contribution(0, update(0.5, 0.0))), 0.0)
    effects = node.handle(Resumed(9.0), 9.0)
    assert set(sent(effects, Assignment)) == {"b"}
    effects = node.handle(Received("b", Contribution(0, update(0.5, 0.0))), 10.0)
    (asked,) = releases(effects)
    effects = node.handle(Resumed(1.0), 12.0)
    assert releases(effects) == [asked]  # the same record for the same vector


@pytest.mark.parametrize(
    "event",
    [
        Received("stranger", Contribution(0, update(0.0, 0.0))),
        Received("left", Contribution(0, update(0.0, 0.0))),
        Received("a", Combine(0, released(0.0, 0.0))),
        Received("stranger", Combine(0, released(0.0, 0.0))),
        Received("stranger", Leaving()),
        Received("left", Declined()),
        Received("a", Average(0, released(0.0, 0.0))),
        Received("a", Contribution(0, update(0.0, 0.0, 0.0))),
        Received("a", Contribution(0, update(np.nan, 0.0))),
    ],
)
def test_what_does_not_belong_is_refused(event: Received) -> None:
    node = server()
    node.handle(Started(), 0.0)
    with pytest.raises(PeerError):
        node.handle(event, 0.0)


@pytest.mark.parametrize("model", [released(np.inf, 0.0), released(np.nan, 0.0), released(1.0), released(6.0, -8.0)])
def test_a_round_goes_on_without_a_model_that_is_refused(model: Released) -> None:
    """The sender's one before is that of this round; and nobody waits for another."""
    node = server(reach=replace(UNBOUNDED, message=9.9))
    node.handle(Started(), 0.0)
    for agent in AGENTS:
        node.handle(Received(agent, Contribution(0, update(4.0, 0.0))), 0.0)
    node.handle(Completed(0, Released(np.array([4.0, 0.0])), 1), 0.0)
    node.handle(Received("right", Combine(0, released(0.0, 8.0))), 2.0)
    offence, *effects = node.handle(Received("left", Combine(0, model)), 2.0)
    assert isinstance(offence, Reject)
    assert offence.sender == "left"
    start = sent(effects, Assignment)["a"].model
    np.testing.assert_allclose(start.values, [2.0, 2.0], rtol=1e-6)  # left has sent what it started with
    with pytest.raises(PeerError, match="rounds go up"):
        node.handle(Received("left", Combine(0, released(1.0, 1.0))), 2.0)


def test_combinations_and_starts_are_shortened_to_what_is_honest() -> None:
    node = server(reach=replace(UNBOUNDED, model=5.0, start=4.0))
    node.handle(Started(), 0.0)
    for agent in AGENTS:
        node.handle(Received(agent, Contribution(0, update(0.0, 0.0))), 0.0)
    node.handle(Completed(0, Released(np.zeros(2)), 1), 0.0)
    node.handle(Received("left", Combine(0, released(24.0, 0.0))), 2.0)
    effects = node.handle(Received("right", Combine(0, released(0.0, 32.0))), 2.0)
    np.testing.assert_allclose(node.state.v.values, [3.0, 4.0], rtol=1e-12)  # of (6, 8)
    np.testing.assert_allclose(sent(effects, Assignment)["a"].model.values, [2.4, 3.2], rtol=1e-6)


def agent() -> AgentNode:
    return AgentNode("a", "middle", Public(np.zeros(2, np.float32)), LocalQuery(3, 2, 0.5, 1.0))


def test_an_agent_works_for_its_server_alone() -> None:
    node = agent()
    node.handle(Started(), 0.0)
    (compute,) = node.handle(Received("middle", Assignment(4, released(1.0, 2.0))), 0.0)
    assert isinstance(compute, Compute)
    assert compute.task.id == 4
    assert node.handle(Answered(3, update(9.0, 9.0)), 1.0) == []
    assert node.handle(Answered(4, update(0.1, 0.2)), 1.0) == [Send("middle", Contribution(4, update(0.1, 0.2)))]
    assert node.handle(Answered(4, update(0.1, 0.2)), 1.0) == []
    with pytest.raises(PeerError, match=" no Assignment"):
        node.handle(Received("left", Assignment(5, released(1.0, 2.0))), 1.0)
    with pytest.raises(PeerError):
        node.handle(Received("middle", Over(9, released(0.0, 0.0))), 1.0)
    assert node.handle(Received("middle", Over(2, released(0.0, 0.0))), 2.0) == [Finish("deadline")]
    assert node.handle(Received("middle", Assignment(6, released(0.0, 0.0))), 3.0) == [Send("middle", Declined())]


def test_an_agent_gives_up_a_round_for_a_newer_one_and_not_for_an_older_one() -> None:
    node = agent()
    node.handle(Started(), 0.0)
    node.handle(Received("middle", Assignment(4, released(1.0, 2.0))), 0.0)
    assert node.handle(Received("middle", Assignment(3, released(1.0, 2.0))), 0.0) == []
    (compute,) = node.handle(Received("middle", Assignment(5, released(1.0, 2.0))), 0.0)
    assert isinstance(compute, Compute)
    assert compute.task.id == 5
    assert node.handle(Resumed(1.0), 2.0) == [compute]


def test_numbers_of_steps_are_public_coins() -> None:
    assert drawn(7, 0, "local_steps", 3) == (7, 7, 7)
    many = drawn((2, 5), 0, "local_steps", 400)
    assert set(many) == {2, 3, 4, 5}
    assert many == drawn((2, 5), 0, "local_steps", 400) != drawn((2, 5), 1, "local_steps", 400)


def test_units_have_agents_in_a_row() -> None:
    settings = Settings.model_validate({"units": 3, "agents": [2, 1, 3]})
    names = tuple("abcdef")
    found = {unit.server: unit.agents for unit in units_of(settings, names)}
    assert found == {"server-0": ("a", "b"), "server-1": ("c",), "server-2": ("d", "e", "f")}


def test_each_round_samples_anew() -> None:
    """400 rounds of 3 of 6: each agent's count is within 5 standard deviations, false alarms below 1e-5."""
    sampling = Sampling(3, "middle", tuple("abcdef"), 3)
    rounds = [sampling.of(number) for number in range(400)]
    assert all(len(set(drawn_ones)) == 3 for drawn_ones in rounds)
    counts = [sum(name in drawn_ones for drawn_ones in rounds) for name in "abcdef"]
    assert all(abs(count - 200) < 5 * 10 for count in counts)
    assert rounds == [sampling.of(number) for number in range(400)]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"local_steps": [1, 10**23]}, "1000000"),
        ({"batch_size": 10**10}, "1000000"),
        ({"local_steps": 10**5, "batch_size": [1, 10**3]}, "expected at most 10,000,000"),
        ({"agents": 10**12}, "at most 1,000,000"),
        ({"local_steps": [3, 2]}, "least number first"),
        ({"agents_sampled": 3}, "more than the 2 agents of the smallest unit"),
        ({"agents": [2, 2]}, "a number for each of 3 units"),
        ({"noise": "random", "gradient_at": "released"}, "no released model"),
        ({"noise": "random_own_term", "gradient_at": "released"}, "no released model"),
        ({"noise": "random", "temporal": "random_walk"}, "for homomorphic"),
        ({"noise": "random", "consensus": 1}, "for homomorphic"),
        ({"temporal": "banded"}, "bands"),
        ({"bands": 3}, "bands"),
    ],
)
def test_settings_that_do_not_fit(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Settings.model_validate({"units": 3, "agents": 2, **changed})


def test_without_servers_the_model_is_one_that_an_agent_may_show() -> None:
    shown, hidden = agent(), AgentNode("b", "middle", Public(np.zeros(2, np.float32)), LocalQuery(3, 2, 0.5, 1.0))
    shown.handle(Received("middle", Assignment(1, released(1.0, 2.0))), 0.0)
    assert graph_federated.output({"a": shown, "b": hidden}) == released(1.0, 2.0)
    hidden.handle(Received("middle", Assignment(2, update(3.0, 4.0))), 0.0)
    assert graph_federated.output({"a": shown, "b": hidden}) == Public(np.zeros(2, np.float32))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (((0.5, 0.5), (0.4, 0.6)), r"symmetric, found 0\.5 in row 0, column 1 and 0\.4 in row 1, column 0"),
        (((1.0, 0.0), (0.0, 1.0)), "algorithm.combination: a mixing matrix connects all"),
        (((0.0, 1.0), (1.0, 0.0)), "above 0, as its noise is taken back there; found 0 for server 0"),
        (((1.5, -0.5), (-0.5, 1.5)), "algorithm.combination: a mixing matrix has finite entries >= 0"),
        (((0.5, 0.4), (0.4, 0.5)), "algorithm.combination: .* row"),
        (((1.0,),), "a matrix of 2 rows of 2 weights, found 1 rows of 1"),
        (((0.5, 0.5), (0.5,)), "found 2 rows of 1 or 2"),
    ],
)
def test_matrices_that_cannot_combine(rows: Any, message: str) -> None:
    settings = Settings(units=2, agents=1, combination=rows)
    with pytest.raises(TopologyError, match=message):
        combination(settings, Graph(2, np.array([[0, 1]])))


def test_divergence_is_named_with_its_remedy() -> None:
    """Without a bound the step size is to blame, with one the noise."""
    for reach, remedy in ((UNBOUNDED, "algorithm.step_size"), (Reach(1.0, 2.0), "the noise is too large")):
        node = server(reach=reach)
        node.handle(Started(), 0.0)
        through_a_round(node)
        for agent in AGENTS:
            node.handle(Received(agent, Contribution(1, update(0.0, 0.0))), 0.0)
        node.handle(Completed(1, Released(np.array([1e13, 0.0])), 1), 0.0)
        (remark,) = graph_federated.remarks({"middle": node})
        assert "round 1 was the last stable one" in remark
        assert remedy in remark
        assert graph_federated.report({"middle": node})["last_stable_round"] == 1
