"""Members of a run who send what no honest one does: nobody is stopped by it, and nothing of it is kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gossamer.algorithms import allreduce, gossip, graph_federated
from gossamer.algorithms.algorithm import Context
from gossamer.algorithms.graph_messages import Assignment, Contribution
from gossamer.algorithms.ring_messages import Alive, Average, Chunk, Join, Roster, Welcome
from gossamer.errors import PeerError
from gossamer.privacy.mechanisms import NoNoise
from gossamer.privacy.sampling import Poisson
from gossamer.privacy.tasks import Query
from gossamer.protocol.effects import Send
from gossamer.protocol.encoding import encode
from gossamer.protocol.events import Completed, Elapsed, Received, Started
from gossamer.protocol.messages import MOST_COUNT, Message
from gossamer.protocol.node import Node, state_of
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
        refused(node, sender, gossip.Offer(1, W), f"{sender} is no neighbour of node-0 that asks it")
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
                refused(node, sender, gossip.Offer(1, W), "no neighbour")


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
    for message in (Chunk(0, 0, 0, PART), Alive(0), Roster(0, 1, THREE), Average(0, 0, THREE, W), Join()):
        refused(member(), "stranger", message, "stranger is no member of this ring")


def test_early_chunks_of_one_member_are_limited_and_leave_room_for_the_others() -> None:
    """Two of them send all they can think of; the third one's chunks arrive."""
    node = member(2)
    refusals, largest = 0, 0
    for attempt in range(1, 200):
        for sender in ("node-0", "node-2"):
            for step, part in ((0, W), (1, W), (2, PART)):
                try:
                    node.handle(Received(sender, Chunk(1, attempt, step, part)), 1.0)
                except PeerError as error:
                    refusals += "more chunks than a reduction has" in str(error)
                largest = max(largest, len(encode(state_of(node))))
    assert refusals > 1000
    assert largest < 2 * 10 * 8 * SIZE * 2 + 3000
    before = node.state.reduction.step
    node.handle(Received("node-1", Chunk(0, 0, 0, Released(np.zeros(3)))), 1.0)
    assert node.state.reduction.step == before + 1


def test_chunks_of_attempts_that_were_given_up_are_forgotten() -> None:
    node = member(0)
    node.handle(Received("node-2", Chunk(0, 0, 1, PART)), 1.0)
    assert len(node.state.early) == 1
    node.handle(Received("node-1", Roster(0, 1, THREE)), 1.0)
    assert not node.state.early


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
