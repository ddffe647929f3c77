"""Hosts whose sessions learn how long to wait: from their beginning, or never."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from gossamer.faults.hosts import MemoryJournal
from gossamer.protocol.effects import Send
from gossamer.protocol.encoding import encode
from gossamer.protocol.events import PeerDown, Started
from gossamer.protocol.messages import Acknowledge, Message, message
from gossamer.protocol.node import Effects, Node, on
from gossamer.protocol.session import SessionSettings
from gossamer.runtimes.host import Arrived, Begin, Host

FIXED = SessionSettings(retry_after=1.0, longest_retry=8.0, silence=30.0)
LEARNS = replace(FIXED, learns=True)


@message("test.learning_host.note")
@dataclass(frozen=True)
class Note(Message):
    number: int


@dataclass
class State:
    downs: int = 0


class Sender(Node):
    """Sends a note to b, and counts how often it was told that b is down."""

    @on(Started)
    def start(self, event: Started, now: float) -> Effects:
        yield Send("b", Note(1))

    @on(PeerDown)
    def down(self, event: PeerDown, now: float) -> Effects:
        self.state.downs += 1
        yield from ()


def host(settings: SessionSettings, journal: MemoryJournal) -> Host:
    return Host(Sender("a", State()), settings, journal)


@pytest.mark.parametrize("snapshot", [False, True])
def test_a_new_host_learns_and_is_the_same_from_its_journal(snapshot: bool) -> None:
    journal = MemoryJournal()
    live = host(LEARNS, journal)
    assert live.opening(0.0) == Begin()
    live.start(0.0)
    if snapshot:
        live.checkpoint()
    live.take(Arrived("b", Acknowledge(1)), 0.5)
    live.checkpoint()
    again = host(LEARNS, journal)
    assert encode(again.state()) == encode(live.state())
