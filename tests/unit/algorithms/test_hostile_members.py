"""Members of a run who send what no honest one does: nobody is stopped by it, and nothing of it is kept."""

from __future__ import annotations

import contextlib
import heapq
import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gossamer.algorithms.allreduce import box as allreduce
from gossamer.algorithms.allreduce.member import Alive, Average, Chunk, Enough, Join, Roster, Welcome
from gossamer.algorithms.clients.nodes import Leave
from gossamer.algorithms.context import Context
from gossamer.algorithms.gossip import box as gossip
from gossamer.algorithms.graph_federated import box as graph_federated
from gossamer.algorithms.graph_federated.nodes import Assignment, Contribution
from gossamer.algorithms.increasing import box as increasing
from gossamer.algorithms.increasing.server import GlobalModel, Halt, RoundUpdate
from gossamer.algorithms.nodes import Probe
from gossamer.errors import PeerError
from gossamer.privacy.mechanisms import NoNoise, Poisson
from gossamer.privacy.tasks import Query
from gossamer.protocol.effects import Send
from gossamer.protocol.encoding import encode
from gossamer.protocol.events import Completed, Elapsed, Received, Started
from gossamer.protocol.messages import MOST_COUNT, Acknowledge, Frame, Message, MessageFrame, ProgressFrame
from gossamer.protocol.messages import ChunkFrame as FrameChunk
from gossamer.protocol.node import Node, state_of
from gossamer.protocol.session import WINDOW, Output, Session, SessionSettings, Transmit
from gossamer.topology.graphs import Graph
from gossamer.vectors import Confined, Public, Released

SIZE = 8
W = Released(np.ones(SIZE))
TOO_MANY = MOST_COUNT + 1


def context(nodes: int = 4, edges: Any = ((0, 1), (1, 2), (2, 3), (0, 3))) -> Context:
    names = tuple(f"node-{i}" for i in range(nodes))
    return Context(
        seed=0,
        names=names,
        graph=Graph(nodes, np.array(edges)),
        initial=Public(np.zeros(SIZE)),
        queries=dict.fromkeys(names, Query(Poisson(0.5), NoNoise(), 4.0)),
        shard_sizes=dict.fromkeys(names, 8),
        quotas=dict.fromkeys(names, 100),
    )


def refused(node: Node, sender: str, message: Message, match: str) -> None:
    before = encode(state_of(node))
    with pytest.raises(PeerError, match=match):
        node.handle(Received(sender, message), 1.0)
    assert encode(state_of(node)) == before


# Gossip


def gossiping() -> Node:
    node = gossip.build(gossip.Settings(nodes=4, topology="ring"), context())["node-0"]
    node.handle(Started(), 0.0)
    return node


@pytest.mark.parametrize("exchange", [0, 1, -1, 2**63 - 1])
def test_an_answer_to_nothing(exchange: int) -> None:
    node = gossiping()
    (asked,) = node.state.open
    other = {"node-1": "node-3", "node-3": "node-1"}[asked]
    refused(node, other, gossip.Answer(exchange, W), f"answers exchange {exchange}, which is not open")


def test_only_neighbours_exchange_models() -> None:
    node = gossiping()
    for sender in ("node-2", "node-0", "stranger"):
        refused(node, sender, gossip.Offer(1, W), f"{sender} may send node-0 no Offer")
    assert [effect.to for effect in node.handle(Received("node-1", gossip.Offer(1, W)), 1.0)] == ["node-1"]


def test_in_bipartite_exchange_only_one_side_asks() -> None:
    nodes = gossip.build(gossip.Settings(nodes=4, topology="ring", exchange="bipartite"), context())
    askers = {name for name, node in nodes.items() if node.asks}
    assert len(askers) == 2
    for name, node in nodes.items():
        for sender in nodes:
            if name not in askers and sender in askers:
                node.handle(Received(sender, gossip.Offer(1, W)), 1.0)
            else:
                refused(node, sender, gossip.Offer(1, W), "no Offer")


# The ring


def member(number: int = 1) -> Node:
    """One of three, which waits for the first chunk of its predecessor."""
    node = allreduce.build(allreduce.Settings(nodes=3, timeout=5.0), context(3, ((0, 1), (1, 2), (0, 2))))[
        f"node-{number}"
    ]
    node.handle(Started(), 0.0)
    node.handle(Completed(1, Released(np.ones(SIZE)), 1), 0.0)
    return node


PART = Released(np.zeros(2))
THREE = Public(np.array([0, 1, 2], np.uint32))


@pytest.mark.parametrize(
    "message",
    [
        Chunk(0, TOO_MANY, 0, PART),
        Chunk(-1, 2**63 - 1, 0, PART),
        Alive(-1),
        Alive(2**63 - 1),
        Roster(0, TOO_MANY, THREE),
        Roster(TOO_MANY, 1, THREE),
        Average(0, 2**63 - 1, THREE, W),
        Average(-1, 1, THREE, W),
        Welcome(2**63 - 1, 1, THREE, W),
        Welcome(1, -1, THREE, W),
    ],
    ids=lambda message: f"{type(message).__name__} {message.round}",
)
def test_rounds_and_attempts_that_nobody_has_counted_to(message: Message) -> None:
    """From some of them one could not count on in 64 bits."""
    refused(member(), "node-0", message, "expected 0 to")


def test_attempts_can_still_be_counted_after_the_highest_that_is_accepted() -> None:
    node = member(0)
    node.handle(Received("node-1", Roster(0, MOST_COUNT, THREE)), 1.0)
    assert node.state.attempt == MOST_COUNT
    node.handle(Elapsed("chunk"), 6.0)
    effects = node.handle(Elapsed("census"), 11.0)
    assert MOST_COUNT + 1 in {effect.message.attempt for effect in effects if isinstance(effect, Send)}
    assert all(encode(effect) for effect in effects)


def test_a_list_of_more_members_than_there_are() -> None:
    many = Public(np.zeros(1_000_000, np.uint32))
    refused(member(), "node-0", Roster(0, 1, many), "names 1000000 members of 3")


def test_someone_outside_the_ring() -> None:
    first = Chunk(0, 0, 0, PART), Alive(0), Roster(0, 1, THREE), Average(0, 0, THREE, W)
    for message in (*first, Join(), Welcome(1, 0, THREE, W), Enough(), Probe()):
        refused(member(), "stranger", message, f"stranger may send node-1 no {type(message).__name__}")


def test_early_chunks_of_one_member_are_limited_and_leave_room_for_the_others() -> None:
    """Two of them send all they can think of; the third one's chunks arrive."""
    node = member(2)
    refusals = 0
    for attempt in range(1, 200):
        for sender in ("node-0", "node-2"):
            for step, part in ((0, W), (1, W), (2, PART)):
                try:
                    node.handle(Received(sender, Chunk(1, attempt, step, part)), 1.0)
                except PeerError as error:
                    refusals += "more chunks than a reduction has" in str(error)
    assert refusals > 1000
    for number in (0, 2):
        kept = [part.size for (*_, sender), part in node.state.early.items() if sender == number]
        assert 8 * SIZE - SIZE < sum(kept) <= 8 * SIZE
    before = node.state.reduction.step
    node.handle(Received("node-1", Chunk(0, 0, 0, Released(np.zeros(3)))), 1.0)
    assert node.state.reduction.step == before + 1


def test_early_chunks_without_entries_are_limited_in_number() -> None:
    node = member(2)
    for attempt in range(1, 8 * 3 + 1):
        node.handle(Received("node-0", Chunk(1, attempt, 0, Released(np.zeros(0)))), 1.0)
    refused(node, "node-0", Chunk(1, 99, 0, Released(np.zeros(0))), "more chunks than a reduction has")


def test_chunks_of_attempts_that_were_given_up_are_forgotten() -> None:
    node = member(0)
    node.handle(Received("node-2", Chunk(0, 0, 1, PART)), 1.0)
    assert len(node.state.early) == 1
    node.handle(Received("node-1", Roster(0, 1, THREE)), 1.0)
    assert not node.state.early


# Rounds of growing size


def gathering(name: str) -> Node:
    settings = increasing.Settings(nodes=3, sizes={"name": "power", "a": 4, "b": 8}, aggregators=[1])
    nodes = increasing.build(settings, context(3, ((0, 1), (1, 2), (0, 2))))
    nodes[name].handle(Started(), 0.0)
    return nodes[name]


@pytest.mark.parametrize("k", [-1, 10**9, MOST_COUNT, 2**63 - 1])
def test_an_aggregator_is_told_of_more_rounds_than_there_can_be(k: int) -> None:
    refused(gathering("aggregator-1-0"), "server", GlobalModel(k, 0, 0, W), f"says that {k} rounds are complete")
    refused(gathering("aggregator-1-0"), "server", Halt(k, W), f"says that {k} rounds are complete")


def test_rounds_that_are_given_up_take_no_time() -> None:
    """A client that comes back after a million rounds, of which one integer tells only the last few."""
    node = gathering("aggregator-1-0")
    node.state.k = 10**15  # as far as any check goes
    node.handle(Received("node-0", RoundUpdate(0, 10**15 + 61, 1, W)), 1.0)
    assert (node.state.held["node-0"], node.state.ahead["node-0"]) == (10**15 + 62, 0)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_held_is_that_of_a_set(seed: int) -> None:
    """Rounds marked in any order, some with all that was left out before, some twice."""
    generator = np.random.default_rng(seed)
    node, held = gathering("aggregator-1-0"), set[int]()
    for _ in range(60):
        lowest = min(set(range(1000)) - held)
        i = lowest + int(generator.integers(0, 62))
        first = int(generator.integers(max(0, i - 5), i + 1))
        node.mark("node-0", first, i)
        held |= set(range(first, i + 1))
        lowest = min(set(range(1000)) - held)
        assert node.state.held["node-0"] == lowest
        assert {j for j in range(1000) if node.holds("node-0", j)} == held
        assert node.state.ahead["node-0"] < 1 << 62


# The session


class _Answering:
    """A node's session that answers every offer."""

    def __init__(self, name: str) -> None:
        self.session = Session(name, SessionSettings(1.0, 8.0, 30.0))
        self.heard: list[int] = []

    def receive(self, sender: str, frame: Frame, now: float) -> list[Output]:
        outputs = self.session.receive(sender, frame, now)
        for output in list(outputs):
            if isinstance(output, Received) and isinstance(output.message, gossip.Offer):
                self.heard.append(output.message.exchange)
                outputs += self.session.send(sender, gossip.Answer(output.message.exchange, W), now)
        return outputs


def test_who_asks_and_asks_and_acknowledges_nothing_is_answered_so_many_times() -> None:
    """Or else the answers, which are kept until they are acknowledged, would fill the memory."""
    node = _Answering("b")
    for number in range(1, 1000):
        with contextlib.suppress(PeerError):
            node.receive("a", MessageFrame(number, 0, 0, gossip.Offer(number, W)), 0.1 * number)
    assert len(node.session.links["a"].outbox) <= 2 * WINDOW
    assert len(node.heard) <= 2 * WINDOW
    # Once it acknowledges, it is heard as before; another never noticed.
    (ack, *_) = node.receive("a", Acknowledge(5), 200.0)
    assert isinstance(ack, Transmit)
    next_number = node.session.links["a"].delivered + 1
    node.receive("a", MessageFrame(next_number, 0, 5, gossip.Offer(next_number, W)), 200.0)
    assert node.heard[-1] == next_number
    node.receive("c", MessageFrame(1, 0, 0, gossip.Offer(1, W)), 200.0)
    assert node.heard[-1] == 1


def test_who_takes_a_long_message_in_is_heard_meanwhile() -> None:
    """It acknowledges chunks, and sends more messages than there are chunks under way."""
    node = _Answering("b")
    node.session = Session("b", SessionSettings(1.0, 8.0, 30.0, largest_frame=300, largest_message=100_000))
    (*_, first) = node.session.send("a", gossip.Offer(0, Released(np.ones(4000))), 0.0)
    assert isinstance(first, Transmit)
    assert isinstance(first.frame, FrameChunk)
    for number in range(1, 100):
        node.receive("a", ProgressFrame(1, first.frame.chunks, number, 0), 0.01 * number)
        node.receive("a", MessageFrame(number, 0, 0, Leave()), 0.01 * number)
    assert node.session.links["a"].delivered == 99


@pytest.mark.parametrize("seed", range(5))
def test_two_that_flood_each_other_over_a_bad_link_are_both_heard_in_full(seed: int) -> None:
    """Each sends 300 messages at once and answers all that it gets; a third of the frames is lost, others overtake."""
    generator = np.random.default_rng(seed)
    nodes = {"a": _Answering("a"), "b": _Answering("b")}
    other, flying, tick = {"a": "b", "b": "a"}, [], itertools.count()

    def post(sender: str, outputs: list[Output], now: float) -> None:
        for output in outputs:
            if isinstance(output, Transmit) and generator.random() > 0.3:
                heapq.heappush(flying, (now + generator.exponential(0.3), next(tick), sender, output.frame))

    for name, node in nodes.items():
        for number in range(300):
            post(name, node.session.send(other[name], gossip.Offer(number, W), 0.0), 0.0)
    for _ in range(200_000):
        due = [(when, name) for name, node in nodes.items() if (when := node.session.deadline()) is not None]
        if not due and not flying:
            break
        if flying and (not due or flying[0][0] <= min(due)[0]):
            now, _, sender, frame = heapq.heappop(flying)
            post(other[sender], nodes[other[sender]].receive(sender, frame, now), now)
        else:
            now, name = min(due)
            post(name, nodes[name].session.wake(now), now)
    assert not due
    assert not flying
    for node in nodes.values():
        assert node.heard == list(range(300))
        (link,) = node.session.links.values()
        assert (link.queued, link.delivered, len(link.outbox)) == (600, 600, 0)


# Units


def unit() -> dict[str, Node]:
    settings = graph_federated.Settings(units=1, agents=2, rounds=3, noise="none").decided(private=False)
    return graph_federated.build(settings, replace(context(2, ((0, 1),)), graph=Graph(1, np.empty((0, 2), int))))


@pytest.mark.parametrize("number", [-1, TOO_MANY, 2**63 - 1, -(2**63)])
def test_assignments_for_rounds_that_there_cannot_be(number: int) -> None:
    """A task's number would leave 64 bits."""
    refused(unit()["node-0"], "server-0", Assignment(number, W), "expected 0 to")


def test_huge_updates_are_refused_and_leave_the_sum_alone() -> None:
    node = unit()["server-0"]
    node.handle(Started(), 0.0)
    refused(node, "node-0", Contribution(0, Confined(np.full(SIZE, 1e300))), r"at most 1e\+12, found 1e\+300")
