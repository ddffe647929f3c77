"""Gossip, event by event, against the paper's Algorithm 1 done by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gossamer.algorithms.context import Context, InFlight
from gossamer.algorithms.gossip import box as gossip
from gossamer.algorithms.gossip.box import Answer, Offer, Settings
from gossamer.algorithms.gossip.exchange import PATIENCE, WHOLE
from gossamer.errors import PeerError
from gossamer.privacy.mechanisms import NoNoise, Poisson
from gossamer.privacy.tasks import Gradient, Query
from gossamer.protocol.effects import Compute, Effect, Finish, Send, SetTimer
from gossamer.protocol.encoding import encode
from gossamer.protocol.events import Completed, Elapsed, PeerDown, PeerUp, Received, Refused, Resumed, Started
from gossamer.protocol.node import Node, state_of
from gossamer.topology.graphs import Graph
from gossamer.vectors import Public, Released

NAMES = ("a", "b", "c")


def context(**changes: Any) -> Context:
    values: dict[str, Any] = {
        "seed": 0,
        "names": NAMES,
        "graph": Graph(3, np.array([(0, 1), (0, 2), (1, 2)])),
        "initial": Public(np.zeros(2)),
        "queries": dict.fromkeys(NAMES, Query(Poisson(0.5), NoNoise(), 4.0)),
        "shard_sizes": dict.fromkeys(NAMES, 8),
        "quotas": dict.fromkeys(NAMES, 3),
    }
    return Context(**{**values, **changes})


def build(settings: Settings | None = None, **changes: Any) -> dict[str, Node]:
    return gossip.build(settings or Settings(nodes=3, topology="complete", learning_rate=0.5), context(**changes))


def vector(*values: float) -> Released:
    return Released(np.array(values))


def only(kind: type[Effect], effects: list[Effect]) -> Any:
    (found,) = [effect for effect in effects if type(effect) is kind]
    return found


def test_a_node_computes_and_asks_at_once() -> None:
    node = build()["a"]
    effects = node.handle(Started(), 0.0)
    task = only(Compute, effects).task
    assert task == Gradient(1, Public(np.zeros(2)), context().queries["a"])
    send = only(Send, effects)
    assert send.to in {"b", "c"}
    assert send.message == Offer(1, Public(np.zeros(2)))


def test_line_5_applies_the_gradient_to_the_model_averaged_meanwhile() -> None:
    """w = w' - eta g~, with w' moved by an exchange since g~ was started."""
    node = build()["a"]
    peer = only(Send, node.handle(Started(), 0.0)).to
    node.handle(Received(peer, Answer(1, vector(4.0, 8.0))), 0.5)  # w' = (2, 4)
    node.handle(Completed(1, vector(1.0, -2.0), 1), 1.0)
    np.testing.assert_array_equal(node.state.w.values, [2 - 0.5 * 1, 4 + 0.5 * 2])


def test_what_is_promised_is_exchanged_with_nobody_else() -> None:
    """By hand: half of the node is promised at (0, 0), and 3/8 of all are exchanged out of the other half."""
    node = build()["a"]
    peer = only(Send, node.handle(Started(), 0.0)).to
    reply = only(Send, node.handle(Received("b", Offer(7, vector(4.0, 8.0))), 0.5)).message
    assert reply == Answer(7, Public(np.zeros(2)), 3 * WHOLE // 8)
    np.testing.assert_array_equal(node.state.w.values, [1.5, 3.0])
    node.handle(Completed(1, vector(1.0, -2.0), 1), 1.0)
    np.testing.assert_array_equal(node.state.w.values, [1.0, 4.0])
    reply = only(Send, node.handle(Received("b", Offer(8, vector(2.0, 8.0))), 1.2)).message
    assert reply == Answer(8, vector(2.0, 8.0), 3 * WHOLE // 8)  # 1/2 (2, 8) + 1/2 (0, 0) is the model
    np.testing.assert_array_equal(node.state.w.values, [1.0, 4.0])
    node.handle(Received(peer, Answer(1, vector(8.0, 8.0), WHOLE // 4)), 1.5)
    np.testing.assert_array_equal(node.state.w.values, [3.0, 6.0])
    assert node.state.open == {}
    assert gossip.report({"a": node}) == {"exchanges": 1, "busy_answers": 2, "open_exchanges": 0}


def test_what_was_promised_to_a_silent_peer_is_set_apart() -> None:
    """Half of the node stays at (0, 0), which after `PATIENCE` updates is no part of the model any more."""
    node = build(quotas=None)["a"]
    peer = only(Send, node.handle(Started(), 0.0)).to
    node.handle(PeerDown(peer, "silent"), 0.5)
    for number in range(1, PATIENCE + 1):
        node.handle(Completed(number, vector(-2.0, 0.0), 1), float(number))
    np.testing.assert_array_equal(node.state.w.values, [PATIENCE, 0.0])
    (other,) = {"b", "c"} - {peer}
    before = gossip.invariants({"a": node}, [])["mass"]
    node.handle(Received(other, Answer(2, vector(0.0, 0.0), 1)), 20.0)  # nearly nothing is moved
    np.testing.assert_allclose(node.state.w.values, [2 * PATIENCE, 0.0], rtol=1e-8)
    np.testing.assert_allclose(gossip.invariants({"a": node}, [])["mass"], before, rtol=1e-8)
    node.handle(Completed(PATIENCE + 1, vector(-2.0, 0.0), 1), 21.0)
    np.testing.assert_allclose(node.state.w.values, [2 * PATIENCE + 1, 0.0], rtol=1e-8)
    np.testing.assert_array_equal(node.state.open[peer].kept.values, [1.0, 0.0])
    node.handle(Received(peer, Answer(1, vector(4.0, 4.0))), 23.0)
    # 1/2 (21, 0), and 1/2 (1, 0) that moves by all that was offered of it.
    np.testing.assert_allclose(node.state.w.values, [21 / 2 + 1 / 2 + 4 / 2, 4 / 2], rtol=1e-8)


def test_who_is_asked_often_promises_less() -> None:
    """Half of what is free if nobody asked during the last exchange, a third if one did, a quarter if two did."""
    node = build(quotas=None)["a"]
    shares = []
    for number, times in enumerate([0, 1, 2, 0], 1):
        effects = node.handle(Started() if number == 1 else Completed(number - 1, vector(0.0, 0.0), 1), float(number))
        send = only(Send, effects)
        shares.append(send.message.share)
        for _ in range(times):
            node.handle(Received("b", Offer(1, vector(1.0, 1.0))), number + 0.1)
        if number < 4:
            node.handle(Received(send.to, Answer(number, vector(1.0, 1.0), 1)), number + 0.2)
    assert shares == [WHOLE // 2, WHOLE // 2, WHOLE // 3, WHOLE // 4]


@pytest.mark.parametrize("share", [0, -1, WHOLE // 2 + 1, 2**63 - 1])
def test_a_share_that_was_not_promised_is_refused(share: int) -> None:
    node = build()["a"]
    peer = only(Send, node.handle(Started(), 0.0)).to
    before = encode(state_of(node))
    with pytest.raises(PeerError, match="expected a share from 1 to 536870912"):
        node.handle(Received("b", Offer(1, vector(1.0, 1.0), share)), 0.5)
    with pytest.raises(PeerError, match="expected a share from 1 to 536870912"):
        node.handle(Received(peer, Answer(1, vector(1.0, 1.0), share)), 0.5)
    assert encode(state_of(node)) == before


def test_no_more_is_moved_than_was_promised() -> None:
    """To an asker that promises a quarter, a quarter is answered, though all is free; and no more is taken of it."""
    asked = build()["b"]
    reply = only(Send, asked.handle(Received("a", Offer(1, vector(4.0, 8.0), WHOLE // 4)), 0.5)).message
    assert reply.share == WHOLE // 4
    np.testing.assert_array_equal(asked.state.w.values, [1.0, 2.0])
    asker = build()["a"]
    peer = only(Send, asker.handle(Started(), 0.0)).to
    other = ({"b", "c"} - {peer}).pop()
    asker.handle(PeerDown(peer, "silent"), 1.0)
    second = only(Send, asker.handle(Completed(1, vector(0.0, 0.0), 1), 2.0))
    assert (second.to, second.message.share) == (other, WHOLE // 4)
    with pytest.raises(PeerError, match="expected a share from 1 to 268435456"):
        asker.handle(Received(other, Answer(2, vector(1.0, 1.0), WHOLE // 2)), 3.0)


def test_both_move_half_of_the_difference_as_exchanged() -> None:
    """The asker has moved before the answer comes: it adds (answered - offered) / 2, not (answered - w) / 2."""
    nodes = build()
    asker, sends = nodes["a"], only(Send, nodes["a"].handle(Started(), 0.0))
    asked = nodes[sends.to]
    asked.state.w = vector(2.0, 6.0)
    asker.handle(Completed(1, vector(-20.0, 0.0), 1), 0.1)  # the asker is now at (10, 0)
    reply = only(Send, asked.handle(Received("a", sends.message), 0.2))
    assert reply.message == Answer(1, vector(2.0, 6.0))
    np.testing.assert_array_equal(asked.state.w.values, [1.0, 3.0])
    asker.handle(Received(sends.to, reply.message), 0.3)
    np.testing.assert_array_equal(asker.state.w.values, [10 + 1.0, 0 + 3.0])


def test_the_invariant_counts_a_half_on_its_way() -> None:
    nodes = build()
    send = only(Send, nodes["a"].handle(Started(), 0.0))
    nodes[send.to].state.w = vector(2.0, 6.0)
    reply = only(Send, nodes[send.to].handle(Received("a", send.message), 0.2))
    without = gossip.invariants(nodes, [])["mass"]
    complete = gossip.invariants(nodes, [InFlight(send.to, "a", reply.message)])["mass"]
    np.testing.assert_array_equal(without, [1.0, 3.0])
    np.testing.assert_array_equal(complete, [2.0, 6.0])


def test_at_most_one_exchange_is_open() -> None:
    node = build()["a"]
    node.handle(Started(), 0.0)
    effects = node.handle(Completed(1, vector(0.0, 0.0), 1), 1.0)
    assert [type(effect) for effect in effects] == [Compute]


def test_an_answer_that_was_not_asked_for_is_refused() -> None:
    node = build()["a"]
    peer = only(Send, node.handle(Started(), 0.0)).to
    other = ({"b", "c"} - {peer}).pop()
    for sender, exchange in [(other, 1), (peer, 2)]:
        with pytest.raises(PeerError, match="not open"):
            node.handle(Received(sender, Answer(exchange, vector(1.0, 1.0))), 0.5)
    node.handle(Received(peer, Answer(1, vector(1.0, 1.0))), 0.5)
    with pytest.raises(PeerError, match="not open"):  # and not twice
        node.handle(Received(peer, Answer(1, vector(1.0, 1.0))), 0.6)


def test_a_vanished_peer_is_not_waited_for_and_its_late_answer_still_counts() -> None:
    node = build()["a"]
    peer = only(Send, node.handle(Started(), 0.0)).to
    node.handle(PeerDown(peer, "silent"), 5.0)
    effects = node.handle(Completed(1, vector(0.0, 0.0), 1), 6.0)
    assert only(Send, effects).to == ({"b", "c"} - {peer}).pop()
    node.handle(PeerUp(peer), 7.0)
    node.handle(Received(peer, Answer(1, vector(2.0, 4.0))), 7.0)
    np.testing.assert_array_equal(node.state.w.values, [1.0, 2.0])


def test_a_node_that_is_done_answers_and_does_not_ask() -> None:
    node = build(quotas=dict.fromkeys(NAMES, 1))["a"]
    peer = only(Send, node.handle(Started(), 0.0)).to
    node.handle(Received(peer, Answer(1, vector(0.0, 0.0))), 0.5)
    assert node.handle(Completed(1, vector(0.0, 0.0), 1), 1.0) == [Finish("quota")]
    assert only(Send, node.handle(Received("b", Offer(1, vector(2.0, 2.0))), 2.0)).to == "b"
    np.testing.assert_array_equal(node.state.w.values, [1.0, 1.0])
    assert node.handle(Completed(2, vector(9.0, 9.0), 1), 3.0) == []


@pytest.mark.parametrize(("event", "reason"), [(Refused(1, 0), "budget"), (Elapsed("deadline"), "deadline")])
def test_what_ends_a_nodes_updates(event: Any, reason: str) -> None:
    node = build(deadline=30.0)["a"]
    assert only(SetTimer, node.handle(Started(), 0.0)) == SetTimer(30.0, "deadline")
    assert node.handle(event, 1.0) == [Finish(reason)]
    assert node.handle(event, 2.0) == []


def test_a_deadline_outlives_an_absence() -> None:
    node = build(deadline=30.0)["a"]
    node.handle(Started(), 100.0)
    assert only(SetTimer, node.handle(Resumed(9.0), 110.0)) == SetTimer(20.0, "deadline")
    assert only(SetTimer, node.handle(Resumed(90.0), 200.0)) == SetTimer(0.0, "deadline")


def test_a_node_that_was_away_computes_anew() -> None:
    node = build()["a"]
    node.handle(Started(), 0.0)
    assert only(Compute, node.handle(Resumed(9.0), 10.0)).task.id == 2
    assert node.handle(Completed(1, vector(1.0, 1.0), 1), 11.0) == []  # the lost computation's ghost


def test_only_senders_ask_in_the_bipartite_exchange() -> None:
    """An even ring is bipartite: every second node asks, and asks only receivers."""
    names = tuple("abcdef")
    settings = Settings(nodes=6, exchange="bipartite")
    ring = Graph(6, np.array([(i, (i + 1) % 6) for i in range(6)]))
    query = Query(Poisson(0.5), NoNoise(), 4.0)
    changes = {
        "names": names,
        "graph": ring,
        "queries": dict.fromkeys(names, query),
        "shard_sizes": dict.fromkeys(names, 8),
        "quotas": None,
    }
    nodes = build(settings, **changes)
    asks = {name: only(Send, e).to for name, node in nodes.items() if len(e := node.handle(Started(), 0.0)) == 2}
    assert set(asks) in ({"a", "c", "e"}, {"b", "d", "f"})
    assert not set(asks) & set(asks.values())


def test_learning_rate_follows_the_nodes_own_epochs() -> None:
    """Two updates cover a shard of 8 with batches of 4, so epoch 1 begins with the third update."""
    rate = {"schedule": "step", "initial": 1.0, "factor": 0.5, "epochs": [1]}
    node = build(Settings(nodes=3, topology="complete", learning_rate=rate))["a"]
    node.handle(Started(), 0.0)
    for number in (1, 2, 3):
        node.handle(Completed(number, vector(-1.0, 0.0), 1), float(number))
    assert node.state.w.values[0] == 1.0 + 1.0 + 0.5


def complete(count: int, dtype: str, **changes: Any) -> dict[str, Node]:
    """Nodes that may all ask each other, with a learning rate of 1."""
    names = tuple(f"n{i:02d}" for i in range(count))
    pairs = np.array([(i, j) for i in range(count) for j in range(i + 1, count)])
    asked = Query(Poisson(0.5), NoNoise(), 4.0)
    found = context(
        names=names,
        graph=Graph(count, pairs),
        initial=Public(np.zeros(50, dtype)),
        queries=dict.fromkeys(names, asked),
        shard_sizes=dict.fromkeys(names, 8),
        quotas=dict.fromkeys(names, 100),
        **changes,
    )
    return gossip.build(Settings(nodes=count, topology="complete", learning_rate=1.0), found)


@pytest.mark.parametrize("seed", range(3))
def test_what_is_offered_is_no_rounding_however_many_peers_are_silent(seed: int) -> None:
    """All models are the same and nobody updates: so are all offers, up to rounding over the least share of 1/2048.

    A share that halves with each silent peer would be 2^-30 at last, and what is offered wrong in the third digit.
    """
    node = complete(40, "float32")["n00"]
    model = Public(np.random.default_rng(seed).normal(size=50).astype(np.float32))
    node.state.w, found = model, []
    effects = node.handle(Started(), 0.0)
    node.handle(Received("n39", Offer(1, model)), 0.0)  # so that the next share is a third, which rounds
    for _ in range(35):
        for send in (effect for effect in effects if isinstance(effect, Send)):
            assert isinstance(send.message, Offer)
            found.append(send.message.model.values)
            node.handle(PeerDown(send.to, "silent"), 0.0)
        effects = node.handle(Completed(node.state.task, Released(np.zeros(50, np.float32)), 1), 0.0)
    assert len(found) > 8
    for offered in found:
        np.testing.assert_allclose(offered, model.values, rtol=0, atol=2048 * 2.0**-24 * np.abs(model.values).max())


def test_a_node_with_next_to_nothing_free_asks_nobody_and_answers() -> None:
    node = complete(40, "float32")["n00"]
    effects, asked = node.handle(Started(), 0.0), 0
    while sends := [effect for effect in effects if isinstance(effect, Send)]:
        asked += 1
        node.handle(PeerDown(sends[0].to, "silent"), 0.0)
        effects = node.handle(Completed(node.state.task, Released(np.zeros(50, np.float32)), 1), 0.0)
    assert asked == 11  # shares of 1/2, ..., 1/2048
    assert only(Compute, effects).task.id == 12
    answer = only(Send, node.handle(Received("n39", Offer(1, Public(np.ones(50, np.float32)))), 0.0)).message
    assert answer.share == WHOLE // 2048
    peer = next(iter(node.state.open))
    node.handle(PeerUp(peer), 0.0)
    promise = node.state.open[peer]
    node.handle(Received(peer, Answer(promise.exchange, promise.offered, promise.share)), 0.0)
    assert only(Send, node.handle(Completed(12, Released(np.zeros(50, np.float32)), 1), 0.0))


def test_an_update_may_count_more_than_once_in_its_own_model_and_in_what_is_held_never() -> None:
    """It comes back by the late answer of one peer, while another peer's answer, which takes some of it, is on its way.

    Coordinate 0 is the weight of that update; all others of the run add nothing to it.
    """
    nodes = complete(3, "float64")
    a, b, c = nodes.values()
    step = Released(-np.eye(50)[0])

    def held(*in_flight: InFlight) -> list[float]:
        return [
            float(gossip.invariants({name: node}, [item for item in in_flight if item.to == name])["mass"][0])
            for name, node in nodes.items()
        ]

    first = only(Send, a.handle(Started(), 0.0))
    a.handle(PeerDown(first.to, "silent"), 0.0)  # its offer is slow
    late, other = nodes[first.to], c if nodes[first.to] is b else b
    second = only(Send, a.handle(Completed(1, step, 1), 0.0))  # now the update is in a
    assert second.to == other.name
    taken = only(Send, other.handle(Received("n00", second.message), 0.0)).message  # its answer is slow, too
    flying = InFlight(other.name, "n00", taken)
    assert float(a.state.w.values[0]) == 1.0
    assert sum(held(flying)) == pytest.approx(1.0)
    # The other peer hands some of it on to the one that was slow, which now hears the first offer.
    shared = Offer(1, other.state.w, WHOLE // 2)
    handed = only(Send, late.handle(Received(other.name, shared), 0.0)).message
    back = only(Send, late.handle(Received("n00", first.message), 0.0)).message
    assert handed.share == WHOLE // 2
    a.handle(Received(late.name, back), 0.0)
    found = float(a.state.w.values[0])
    on_loan = taken.share / WHOLE * float(second.message.model.values[0])
    assert 1.0 < found <= 1.0 + on_loan
    assert 0.0 <= held(flying)[0] <= 1.0
    a.handle(Received(other.name, taken), 0.0)
    assert float(a.state.w.values[0]) <= 1.0
