"""A turn of a host: all its inputs are durable by one commit before anything comes of them, or nothing does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from gossamer.algorithms.gossip import box as gossip
from gossamer.algorithms.graph_federated.nodes import AgentState
from gossamer.faults.hosts import MemoryJournal
from gossamer.faults.schedules import SETTINGS
from gossamer.protocol.effects import Reject, Request, Send, SetTimer
from gossamer.protocol.encoding import Buffer, encode
from gossamer.protocol.events import Elapsed, Started
from gossamer.protocol.messages import Acknowledge, Message, message
from gossamer.protocol.node import Effects, Node, on
from gossamer.protocol.session import SessionSettings, Transmit
from gossamer.protocol.trace import TraceStep
from gossamer.runtimes.host import Arrived, Begin, Host, HostBroken, HostState, Wake
from gossamer.testing.contracts import AlgorithmContract
from gossamer.vectors import Confined, Public


class Gossip(AlgorithmContract):
    settings = gossip.Settings(nodes=3, topology="ring")


def host(journal: Any, **options: Any) -> Host:
    return Host(Gossip().nodes()["node-0"], SETTINGS, journal, **options)


NEVER_SENT = Arrived("node-1", Acknowledge(7))


class Recording(MemoryJournal):
    """Notes what is asked of it, and how much was staged at each commit."""

    def commit(self) -> None:
        self.__dict__.setdefault("commits", []).append(len(self.staged))
        super().commit()


class Full(MemoryJournal):
    """A disk that takes no more than what ``takes`` names."""

    takes: Sequence[str] = ()

    def append(self, entry: Sequence[Buffer]) -> None:
        self._take("append")
        super().append(entry)

    def snapshot(self, state: Sequence[Buffer]) -> None:
        self._take("snapshot")
        super().snapshot(state)

    def commit(self) -> None:
        self._take("commit")
        super().commit()

    def _take(self, what: str) -> None:
        if what not in self.takes:
            raise OSError("disk full")


def test_a_turn_is_one_commit_of_all_its_inputs() -> None:
    journal = Recording()
    outcomes = host(journal).turn([(Begin(), 0.0), (NEVER_SENT, 0.5), (Wake(), 1.0)])
    assert journal.__dict__["commits"] == [3]
    assert isinstance(outcomes[0], Request)  # the update that a node begins with
    assert [type(outcome) for outcome in outcomes].count(Reject) == 1
    assert len(journal.load()[1]) == 3
    assert not journal.staged


def test_what_a_node_rejects_is_an_offence_though_its_state_has_moved() -> None:
    """Unlike after a `PeerError`; a host from the journal has moved too."""

    class Strict(Node):
        @on(Started)
        def start(self, event: Started, now: float) -> Effects:
            self.state.round += 1
            yield Reject("node-1", "too long")

    def strict(journal: Any) -> Host:
        return Host(Strict("node-0", AgentState(Public(np.zeros(1)))), SETTINGS, journal)

    journal = MemoryJournal()
    assert strict(journal).start(0.0) == [Reject("node-1", "too long")]
    assert strict(journal).node.state.round == 0


def test_turns_of_one_input_or_of_many_give_the_same_host() -> None:
    inputs = [(Begin(), 0.0), (NEVER_SENT, 0.5), (Wake(), 1.0)]
    one, many = host(MemoryJournal(), every=2), host(MemoryJournal(), every=2)
    outcomes = [outcome for what, now in inputs for outcome in one.take(what, now)]
    assert encode(many.turn(inputs)[0]) == encode(outcomes[0])
    assert encode(one.state()) == encode(many.state())
    one.journal.commit()  # nothing came of the last input
    assert one.journal.load() == many.journal.load()
    assert one.journal.load()[0] is not None


def test_a_turn_of_nothing_costs_no_commit() -> None:
    journal = Recording()
    assert host(journal).turn([]) == []
    assert "commits" not in journal.__dict__


@pytest.mark.parametrize("takes", [(), ("append",), ("append", "snapshot")])
def test_what_cannot_be_stored_has_not_happened(takes: Sequence[str]) -> None:
    journal, steps = Full(), list[TraceStep]()
    journal.takes = takes
    broken = host(journal, every=2, watch=steps.append)
    for _ in range(2):
        with pytest.raises(HostBroken):
            broken.turn([(Begin(), 0.0), (Wake(), 1.0)])
    assert broken.broken
    assert steps == []
    journal.crash()
    assert not host(journal).begun


def test_an_input_that_nobody_foresaw_breaks_the_host_and_is_not_stored() -> None:
    journal = MemoryJournal()
    broken = host(journal)
    with pytest.raises(AttributeError):
        broken.turn([(Begin(), 0.0), (Arrived("node-1", None), 0.5)])  # type: ignore[arg-type]
    with pytest.raises(HostBroken):
        broken.turn([(Wake(), 100.0)])
    journal.crash()
    assert journal.load() == (None, ())


@pytest.mark.parametrize("keep", [0, 1, 2, 3])
def test_a_crash_before_the_commit_keeps_a_prefix(keep: int) -> None:
    """Of an input, a snapshot and another input."""
    journal = MemoryJournal()
    for stage, data in ((journal.append, b"1"), (journal.snapshot, b"after 1"), (journal.append, b"2")):
        stage([data])
    journal.crash(keep)
    assert journal.load() == [(None, ()), (None, (b"1",)), (b"after 1", ()), (b"after 1", (b"2",))][keep]


@message("test.host.raw")
@dataclass(frozen=True)
class _Raw(Message):
    values: Confined


@dataclass
class _Empty:
    pass


class _Talkative(Node):
    """Sends what is confined as soon as it starts."""

    @on(Started)
    def start(self, event: Started, now: float) -> Effects:
        yield Send("b", _Raw(Confined(np.ones(2))))


@pytest.mark.parametrize("unit", [{"a"}, {"a", "b"}])
def test_what_is_confined_does_not_leave_the_unit(unit: set[str]) -> None:
    host = Host(_Talkative("a", _Empty()), SETTINGS, MemoryJournal(), may_hear=lambda to: to in unit)
    if "b" in unit:
        assert [type(outcome) for outcome in host.start(0.0)] == [Transmit]
    else:
        with pytest.raises(TypeError, match="confined"):
            host.start(0.0)


@message("test.word")
class Word(Message):
    model: Public


class Talker(Node):
    """Sends a word to each of three peers every second."""

    @on(Started)
    def start(self, event: Started, now: float) -> Effects:
        yield SetTimer(1.0, "next")

    @on(Elapsed)
    def talk(self, event: Elapsed, now: float) -> Effects:
        for number in range(3):
            yield Send(f"node-{number + 1}", Word(self.state.w))
        yield SetTimer(1.0, "next")


def test_a_state_of_thousands_of_messages_that_nobody_takes_is_not_looked_at_with_every_input(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It grows with the journal, so no snapshot of it is worth it; looking each time would cost the square of it."""
    looks, state = [0], Host.state

    def looked(of: Host) -> HostState:
        looks[0] += 1
        return state(of)

    monkeypatch.setattr(Host, "state", looked)
    patient = SessionSettings(retry_after=1e6, longest_retry=1e7, silence=1e9)
    talks = Host(Talker("node-0", AgentState(Public(np.zeros(128)))), patient, MemoryJournal(), every=64)
    talks.start(0.0)
    for now in range(1, 501):
        talks.take(Wake(), float(now))
        talks.rest()
    assert sum(len(link.outbox) for link in talks.session.links.values()) == 1500
    assert looks[0] < 50
