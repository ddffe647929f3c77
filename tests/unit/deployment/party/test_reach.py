"""Reach: a peer that is heard and acknowledges nothing is not reached, and a node that reaches nobody is alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from gossamer.deployment.party.health import problems
from gossamer.deployment.party.reach import PeerReach
from gossamer.deployment.peers.peers import PeerState
from gossamer.deployment.peers.standing import REHEARSES
from gossamer.keys.orders import PAUSED
from gossamer.protocol.messages import Incoming
from gossamer.protocol.session import Link, RoundTrips


@dataclass
class Peers:
    """Peers in the states that a test gives them."""

    states_: dict[str, PeerState] = field(default_factory=dict)
    probed: list[str] = field(default_factory=list)

    def states(self, now: float) -> dict[str, PeerState]:
        return self.states_

    def probe(self, name: str, size: int, now: float) -> list[tuple[str, bytes]]:
        self.probed.append(name)
        return [(name, bytes(size))]


def up(**more: Any) -> PeerState:
    return PeerState("up", 0.0, True, "", {}, **more)


def owing(since: float) -> Link:
    return Link(1.0, quiet_since=since, under_way={1: since})


class Node:
    """A reach, and what is said of it."""

    def __init__(self, limit: float = 30.0, why: str = "is not allowed", **states: PeerState) -> None:
        self.peers: Any = Peers(states)
        self.reconnected: list[float] = []
        self.now = 0.0
        self.reach = PeerReach(
            self.peers,
            100,
            limit,
            lambda name: why if why == PAUSED else f"{name} {why}",
            lambda why: self.reconnected.append(self.now),
            0.0,
        )

    @property
    def said(self) -> list[str]:
        """What somebody should look at."""
        peers = {name: {"state": peer.state, "seconds": peer.seconds} for name, peer in self.peers.states_.items()}
        status = {"state": "running", "process": 1, "connected": True, "peers": peers}
        found = problems({**status, **self.reach.described(self.now)}, 0.0)
        return [one.text for one in found if one.kind == "reach"]

    def go(self, links: dict[str, Link], until: float) -> None:
        """A look each second."""
        while self.now < until:
            self.reach.look(links, self.now)
            self.now += 1.0


def test_who_acknowledges_is_reached() -> None:
    node = Node(b=up())
    for second in range(100):
        node.now = float(second)
        node.reach.look({"b": owing(second - 1.0)}, node.now)
    assert not node.reach.is_alone(100.0)
    assert node.said == []
    assert node.reconnected == []


def test_who_gets_what_waits_on_a_slow_line_owes_nothing() -> None:
    """Of two peers the second is sent a model after the first had it, minutes later."""
    node, waits = Node(b=up(), c=up()), dict[str, float | None](c=4.0)
    node.reach.waits = waits.get
    links = {"b": owing(0.0), "c": owing(0.0)}
    for second in range(200):
        node.now = float(second)
        links["b"] = owing(second - 4.0)
        node.reach.look(links, node.now)
    assert node.said == []
    assert node.reconnected == []
    waits["c"] = None  # it is with the broker, so it is owed from now on
    links["b"] = owing(200.0)
    node.now = 200.0
    node.go(links, 210.0)
    assert node.said == []
    node.go(links, 211.0)
    assert "c is heard, and has acknowledged nothing for 16 s: c is not allowed" in node.said
    node.go(links, 230.0)
    assert len(node.reconnected) == 1


def test_what_is_sent_again_in_the_moment_of_a_look_excuses_no_peer() -> None:
    """The broker refuses it, and says so a little later: each eighth second it is on the line for less than a look."""
    node = Node(b=up())
    node.reach.waits = lambda name: 0.0 if node.now % 8 == 0 else None
    node.go({"b": owing(0.0)}, 17.0)
    assert node.said == ["b is heard, and has acknowledged nothing for 17 s: b is not allowed"]
    node.go({"b": owing(0.0)}, 32.0)
    assert node.reconnected == [13.0]
    assert node.reach.is_alone(32.0)


def test_who_rehearses_and_acknowledges_probes_is_reached_though_another_is_off() -> None:
    node = Node(b=replace(up(), finished=REHEARSES), c=PeerState("never heard", 0.0, True, "", {}))
    while node.now < 60.0:
        node.peers.states_["c"] = PeerState("never heard", node.now, True, "", {})
        node.go({}, node.now + 1.0)
    assert node.reconnected == []
    assert not node.reach.is_alone(60.0)
    node.peers.states_["b"] = replace(up(owes=60.0), finished=REHEARSES)  # nor does it acknowledge any
    node.reach.look({}, node.now)
    assert node.reach.is_alone(60.0)


def test_acknowledgements_wait_behind_what_a_peer_sends_in_chunks_for_minutes_and_no_longer() -> None:
    node, link = Node(b=up()), owing(0.0)
    for second in range(330):
        node.now = float(second)
        if second % 10 == 0:
            link.incoming = Incoming(1, 99, np.zeros(9, np.uint8), touched=node.now)
        node.reach.look({"b": link}, node.now)
        assert (node.reconnected == []) == (second <= 312)
        assert bool(node.said) == (second > 315)


def test_a_line_that_gets_on_no_further_is_told_as_what_is_not_acknowledged() -> None:
    node = Node(b=up())
    node.reach.waits = lambda name: node.now - 50.0 if node.now > 50.0 else 0.0
    node.go({"b": owing(0.0)}, 65.0)
    assert node.said == []
    node.go({"b": owing(0.0)}, 66.0)
    assert node.said == ["b is heard, and has acknowledged nothing for 16 s: b is not allowed"]
    node.go({"b": owing(0.0)}, 85.0)
    assert node.reconnected == [63.0]


def test_a_node_that_nobody_acknowledges_says_so_connects_anew_and_charges_nothing() -> None:
    node = Node(b=up())
    node.go({"b": owing(0.0)}, 16.0)
    assert node.said == ["b is heard, and has acknowledged nothing for 16 s: b is not allowed"]
    node.go({"b": owing(0.0)}, 60.0)
    assert node.reconnected == [13.0, 44.0]
    assert node.said == [
        "no peer has acknowledged anything for 60 s: b (b is not allowed); it charges nothing more until one does"
    ]
    assert not node.reach.holds(30.0)
    assert node.reach.holds(31.0)
    said = node.reach.described(60.0)
    assert (said["alone"], said["holds"]) == (60.0, True)
    node.reach.look({"b": Link(1.0)}, 61.0)
    assert not node.reach.holds(61.0)
    assert node.said == []


def test_peers_that_wait_as_the_organiser_asked_are_no_alarm() -> None:
    """Nobody would take an update, so none is made; and that nobody acknowledges anything is as it should be."""
    node = Node(why=PAUSED, b=up())
    node.go({"b": owing(0.0)}, 60.0)
    said = node.reach.described(60.0)
    assert (said["alone"], said["holds"]) == (None, True)
    assert said["unacknowledged"] == {"b": {"seconds": 60.0, "why": PAUSED}}


def test_one_who_is_reached_is_enough() -> None:
    node = Node(b=up(), c=up())
    node.go({"b": owing(0.0), "c": Link(1.0)}, 60.0)
    assert not node.reach.is_alone(60.0)
    assert set(node.peers.probed) == {"c"}, "of whom it is not known"
    assert node.reconnected == []


def test_who_has_finished_and_takes_what_it_is_sent_is_reached() -> None:
    """It waits for this node, which would wait for ever for one that left before it could hear that."""
    for state, alone in (("up", False), ("gone", True)):
        node = Node(b=PeerState("gone", 60.0, True, "", {}), c=PeerState(state, 1.0, True, "quota", {}))
        node.go({"b": owing(0.0), "c": Link(1.0)}, 60.0)
        assert node.reach.holds(60.0) == alone


def test_nobody_is_alone_for_want_of_a_try() -> None:
    """One does not answer, and nothing was ever sent to the other: a probe says whether it is reached."""
    node = Node(b=up(), c=up(owes=40.0))
    node.go({"b": owing(0.0)}, 41.0)
    assert node.reach.is_alone(41.0)
    node.peers.states_["c"] = up(passed=True)
    node.go({"b": owing(0.0)}, 43.0)
    assert not node.reach.is_alone(43.0)


def test_who_was_never_heard_is_not_reached() -> None:
    node = Node(b=PeerState("never heard", 40.0, True, "", {}))
    node.go({}, 41.0)
    assert node.reach.holds(41.0)


@pytest.mark.parametrize("state", ["silent", "gone"])
def test_who_has_finished_and_left_is_not_missed(state: Any) -> None:
    node = Node(b=PeerState(state, 400.0, True, "quota", {}))
    node.go({"b": owing(0.0)}, 60.0)
    assert not node.reach.is_alone(60.0)
    assert node.reach.ended({"b": owing(0.0)}, 60.0) == ""


def test_who_has_finished_and_has_all_that_it_was_sent_may_leave_with_a_probe_unanswered() -> None:
    node = Node(b=PeerState("up", 1.0, True, "quota", {}, owes=20.0), c=PeerState("gone", 400.0, True, "quota", {}))
    assert node.reach.ended({"b": Link(1.0)}, 60.0) == ""


def test_who_comes_late_owes_nothing_for_the_time_before() -> None:
    """What was sent to it waited for a minute, until it was started; from then on it has as long as any other."""
    node = Node(b=PeerState("never heard", 0.0, True, "", {}))
    node.go({"b": owing(0.0)}, 60.0)
    node.peers.states_ = {"b": up()}
    node.go({"b": owing(0.0)}, 62.0)
    assert node.reach.owed == {"b": 59.0}
    node.go({"b": owing(0.0)}, 90.0)
    assert node.reach.owed == {"b": 59.0}


def test_who_has_finished_and_takes_nothing_was_not_reached() -> None:
    node = Node(b=PeerState("up", 1.0, True, "quota", {}))
    assert "ends alone" in node.reach.ended({"b": owing(0.0)}, 60.0)


def test_a_server_whose_clients_have_all_but_one_done_their_part_was_not_alone() -> None:
    """Who has left had all that it was sent; or it took nothing, and the server trained alone."""
    gone, done = PeerState("gone", 60.0, True, "", {}), PeerState("gone", 50.0, True, "halt", {})
    for sent, alone in ((Link(1.0), False), (owing(0.0), True)):
        node, links = Node(b=gone, c=done), {"b": owing(0.0), "c": sent}
        node.go(links, 60.0)
        assert bool(node.reach.ended(links, 60.0)) == alone


def test_a_peer_that_is_known_to_be_slow_has_longer() -> None:
    slow = Link(1.0, under_way={1: 0.0}, answers=RoundTrips(40.0, 0.0))
    node = Node(b=up())
    node.go({"b": slow}, 79.0)
    assert not node.reach.is_alone(79.0)
    node.go({"b": slow}, 82.0)
    assert node.reach.is_alone(82.0)


def test_a_spec_may_have_it_go_on_alone_and_it_says_so() -> None:
    node = Node(math.inf, b=up())
    node.go({"b": owing(0.0)}, 100.0)
    assert not node.reach.holds(100.0)
    assert node.reach.is_alone(100.0)
    assert "ends alone: for 100 s nobody has acknowledged anything: b (b is not allowed)" in node.reach.ended(
        {"b": owing(0.0)}, 100.0
    )
    assert node.said == [
        "no peer has acknowledged anything for 100 s: b (b is not allowed); it goes on, and spends its budget alone"
    ]


def test_a_node_that_hears_nobody_either_says_at_once_that_it_is_alone_and_when_it_charges_nothing_more() -> None:
    """As after the reload of another run's access list: the reason is told, though nobody is heard."""
    node = Node(100.0, b=PeerState("silent", 99.0, True, "", {}))
    node.go({"b": owing(0.0)}, 40.0)
    why = "no peer has acknowledged anything for %d s: b (b is not allowed); "
    assert node.said == [why % 40 + "it goes on, and spends its budget alone"]
    node.go({"b": owing(0.0)}, 120.0)
    assert node.said == [why % 120 + "it charges nothing more until one does"]


def test_who_comes_back_after_its_part_and_hears_nobody_did_not_train_alone() -> None:
    node = Node(b=PeerState("never heard", 60.0, True, "", {}))
    assert node.reach.ended({"b": Link(1.0, acknowledged=3)}, 60.0) == ""
    assert node.reach.ended({}, 60.0) == ""
