"""Meeting of neighbours: who is waited for, and whether they know more than the store."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.reference.scripted_transport import Clock, Transport

from gossamer.deployment.party import reach
from gossamer.deployment.party.reach import Gathering, PeerReach
from gossamer.deployment.party.state_folder import StateFolder
from gossamer.deployment.party.store import OlderStore, check_memory
from gossamer.deployment.peers.peers import LinkCounters, PeerState
from gossamer.keys import orders
from gossamer.protocol.session import Link, counters_of, forgotten
from gossamer.protocol.transports import Datagram

NEW = LinkCounters(0, 0, 0)


@dataclass
class Peers:
    """Peers of whom a datagram tells what they know."""

    names: tuple[str, ...] = ("b", "c")
    said: dict[str, LinkCounters] = field(default_factory=dict)
    deaf: set[str] = field(default_factory=set)
    probed: list[tuple[str, int]] = field(default_factory=list)
    told: str = ""
    rehearses: bool = False
    removed: set[str] = field(default_factory=set)

    def finished(self, reason: str) -> None:
        self.told = reason

    def probe(self, name: str, size: int, now: float) -> list[tuple[str, bytes]]:
        self.probed.append((name, size))
        return []

    def wake(self, now: float) -> list[tuple[str, bytes]]:
        return [(name, b"hello") for name in self.names]

    def open(self, sender: str, datagram: bytes, now: float) -> tuple[list[Any], list[tuple[str, bytes]]]:
        self.said[sender] = NEW
        return ["a frame"], [(sender, b"answer")]

    def counters(self) -> dict[str, LinkCounters]:
        return self.said

    def states(self, now: float) -> dict[str, PeerState]:
        def state(name: str) -> PeerState:
            if name in self.removed:
                return PeerState("removed", now - 100.0, False, "", {})
            heard = name in self.said
            passed = heard and name not in self.deaf
            owes = now - 100.0 if heard and not passed else None
            said = "only rehearses" if self.rehearses else ""
            return PeerState("up" if heard else "never heard", now - 100.0, True, said, {}, passed=passed, owes=owes)

        return {name: state(name) for name in self.names}


@pytest.fixture
def gathering(tmp_path: Path) -> Iterator[Any]:
    clock, folder = Clock(), StateFolder(tmp_path)
    folder.take()
    folder.kept = True
    peers: Any = Peers()
    reached = PeerReach(peers, 5000, 30.0, lambda name: "", lambda why: None, clock())
    yield Gathering(peers, Transport(clock), folder, clock, reached)
    folder.give_back()


def test_it_goes_ahead_without_those_who_do_not_come(gathering: Any) -> None:
    gathering.transport.inbox.append(Datagram("b", b"counters"))
    gathering.gather(["b", "c"], patience=5.0)
    assert gathering.clock() == pytest.approx(105.0)
    log = (gathering.folder.path / "node.log").read_text()
    assert "goes ahead without c: within 5 s c not heard" in log
    assert ("c", 5000) in gathering.peers.probed


def test_it_does_not_go_ahead_alone(gathering: Any) -> None:
    """Nobody comes for an hour, and then one does: until then nothing is charged."""

    def look(now: float) -> None:
        if now >= 3700 and not gathering.peers.said:
            gathering.transport.inbox.append(Datagram("b", b"counters"))

    gathering.look = look
    gathering.gather(["b", "c"], patience=5.0)
    assert gathering.clock() == pytest.approx(3700, abs=2)
    log = (gathering.folder.path / "node.log").read_text()
    assert log.count("has reached nobody, charges nothing, and waits: within 5 s b, c not heard") == 1


def test_who_is_heard_and_takes_nothing_is_not_reached(gathering: Any) -> None:
    gathering.peers.deaf = {"b"}
    gathering.transport.inbox.append(Datagram("b", b"counters"))
    gathering.look = lambda now: gathering.stop("stopped") if now >= 150.0 else None
    gathering.gather(["b"], patience=5.0)
    assert gathering.stopping == "stopped"
    log = (gathering.folder.path / "node.log").read_text()
    assert "charges nothing, and waits: within 5 s b takes nothing: does the broker" in log
    assert "pass messages of 5000 bytes" in log
    assert gathering.reach.described(150.0)["alone"] == pytest.approx(50.0, abs=2)


def test_a_rehearsal_begins_nothing_and_says_what_is_lacking(gathering: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer that was not heard, one that takes nothing, a small disk, and little memory: each in its words."""
    gathering.peers.deaf = {"b"}
    gathering.transport.inbox.append(Datagram("b", b"counters"))
    gathering.look = lambda now: gathering.stop("stopped") if now >= 150.0 else None
    gathering.rehearse(["b", "c"])
    assert gathering.peers.told == "only rehearses"
    monkeypatch.setattr(reach, "available", lambda: 999.0)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=2001))
    found = gathering.lacking(["b", "c"], 100)
    assert found["peers"].startswith(
        "b takes nothing: does the broker, and all on the way to it, pass messages of 5000"
    )
    assert found["peers"].endswith("; c is not heard")
    assert (found["disk"], found["memory"]) == ("", "it has less memory than 10 models take")
    assert gathering.lacking([], 101)["disk"] == "its disk has less room than 20 models take"
    gathering.peers.removed = {"c"}
    assert "c" not in gathering.lacking(["c"], 100)["peers"]


def test_it_does_not_begin_with_who_only_rehearses(gathering: Any) -> None:
    gathering.peers.rehearses = True
    gathering.transport.inbox.append(Datagram("b", b"counters"))
    gathering.look = lambda now: gathering.stop("stopped") if now >= 150.0 else None
    gathering.gather(["b"], patience=5.0)
    assert gathering.stopping == "stopped"
    log = (gathering.folder.path / "node.log").read_text()
    assert "within 5 s b takes nothing: it only rehearses; start it without --rehearse" in log


def test_a_spec_may_have_it_go_ahead_alone(gathering: Any) -> None:
    gathering.reach.limit = float("inf")
    gathering.gather(["b", "c"], patience=5.0)
    assert gathering.clock() == pytest.approx(105.0)
    assert "goes ahead without b, c" in (gathering.folder.path / "node.log").read_text()


def test_it_does_not_wait_when_all_have_said_what_they_know(gathering: Any) -> None:
    gathering.transport.inbox += [Datagram("b", b"counters"), Datagram("c", b"counters")]
    gathering.gather(["b", "c"], patience=5.0)
    assert gathering.clock() == 100.0
    assert ("b", b"answer") in gathering.transport.sent


def test_nobody_is_waited_for_where_there_is_nobody(gathering: Any) -> None:
    gathering.gather([], patience=5.0)
    assert gathering.transport.sent == []


def test_whoever_looks_can_end_it(gathering: Any) -> None:
    gathering.look = lambda now: gathering.stop("stopped") if now >= 101.0 else None
    gathering.gather(["b"], patience=60.0)
    assert gathering.clock() == pytest.approx(101.0)
    assert gathering.stopping == "stopped"


# What peers know


def link(transmitted: int, acknowledged: int, delivered: int, early: tuple[int, ...] = ()) -> Link:
    return Link(1.0, queued=transmitted, transmitted=transmitted, acknowledged=acknowledged, delivered=delivered,
                early=dict.fromkeys(early), outbox=dict.fromkeys(range(acknowledged + 1, transmitted + 1)))  # type: ignore[arg-type]  # fmt: skip


@pytest.mark.parametrize(
    ("own", "theirs", "words"),
    [
        (None, NEW, ""),
        (None, LinkCounters(7, 0, 0), ""),  # what they sent may be on its way, or lost
        (link(5, 3, 4), LinkCounters(9, 4, 5), ""),
        (link(5, 3, 4), LinkCounters(9, 4, 3), ""),
        (link(5, 3, 4, early=(6,)), LinkCounters(9, 4, 5), ""),
        (link(5, 3, 4), LinkCounters(4, 4, 6), "has 1 message more of it"),
        (link(5, 3, 4), LinkCounters(9, 6, 5), "knows that it took 2 messages more"),
        (None, LinkCounters(0, 0, 2), "has 2 messages more of it"),
        (link(5, 3, 4), LinkCounters(9, 4, 5, early=0b10), "knows that it took 1 message more"),  # the sixth
        (link(5, 3, 4, early=(6,)), LinkCounters(9, 4, 5, early=0b10), ""),
        (link(5, 3, 3, early=(6,)), LinkCounters(9, 5, 5), "knows that it took 2 messages more"),
        (link(5, 3, 4), LinkCounters(9, 5, 8), "has 3 messages more of it and knows that it took 1 message more"),
    ],
)
def test_what_a_store_has_forgotten(own: Link | None, theirs: LinkCounters, words: str) -> None:
    links = {} if own is None else {"b": own}
    assert forgotten(links, {"b": theirs}) == ({"b": words} if words else {})


def test_two_ends_of_a_link_agree() -> None:
    """Whatever is under way: what either end says is never more than what the other has done."""
    ours, theirs = link(5, 3, 4), link(6, 4, 5)
    assert forgotten({"b": ours}, {"b": counters_of(theirs)}) == {}
    assert forgotten({"a": theirs}, {"a": counters_of(ours)}) == {}


def test_an_older_store_is_explained(gathering: Any, tmp_path: Path) -> None:
    gathering.peers.said = {"b": LinkCounters(9, 4, 6), "c": NEW}
    check_memory({"b": link(6, 3, 4)}, gathering.peers, tmp_path)
    with pytest.raises(OlderStore, match="not the newest state of the node: b has 1 message more of it than") as error:
        check_memory({"b": link(5, 3, 4)}, gathering.peers, tmp_path)
    for words in ("nothing was charged", "--store", "backup", str(tmp_path)):
        assert words in str(error.value)
    assert error.value.exit_code == 2


def test_nobody_owes_anything_of_the_time_of_a_pause(gathering: Any) -> None:
    """What was under way when it began is not acknowledged by peers that wait as well."""
    gathering.pauses = lambda: orders.PAUSED if gathering.clock() < 3700.0 else ""
    gathering.transport.inbox += [Datagram("b", b"counters"), Datagram("c", b"counters")]
    gathering.gather(["b", "c"], patience=5.0, recalls=True)
    assert gathering.clock() == pytest.approx(3700, abs=1)
    links = {name: Link(5.0, quiet_since=90.0, transmitted=1, under_way={1: 90.0}) for name in ("b", "c")}
    gathering.reach.look(links, now := gathering.clock())
    assert gathering.reach.described(now) == {"alone": None, "holds": False, "unacknowledged": {}}
    log = (gathering.folder.path / "node.log").read_text()
    assert "takes no part for now" in log


def test_an_owner_who_stops_a_node_that_is_about_to_wait_stops_it(gathering: Any) -> None:
    gathering.stop(orders.PAUSED)
    gathering.stop("stopped")
    gathering.stop(orders.PAUSED)
    assert gathering.stopping == "stopped"
