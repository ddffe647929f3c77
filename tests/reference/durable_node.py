"""A small node whose whole life can be written down: what tests of stores let live, die and come back."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from gossamer.protocol.effects import Compute, Finish, Send, SetTimer
from gossamer.protocol.encoding import register
from gossamer.protocol.events import Elapsed, PeerDown, Refused, Resumed, Started, Stop
from gossamer.protocol.messages import Message, message
from gossamer.protocol.node import Effects, Node, on
from gossamer.vectors import Model, Public


@message("test.durable.note")
@dataclass(frozen=True)
class Note(Message):
    """The ``number``-th note of its sender to this receiver."""

    number: int
    model: Model


@register("test.durable.task")
@dataclass(frozen=True)
class Task:
    id: int
    model: Model


@dataclass
class State:
    w: Model
    sent: dict[str, int] = field(default_factory=dict)
    heard: dict[str, tuple[int, ...]] = field(default_factory=dict)
    down: set[str] = field(default_factory=set)
    beats: int = 0


class Writer(Node):
    """Sends a numbered note to the peer whose name it is stopped with, and keeps those that it gets."""

    state: State

    def __init__(self, name: str, size: int = 3) -> None:
        super().__init__(name, State(Public(np.zeros(size))))

    @on(Started, Resumed)
    def begin(self, event: Started | Resumed, now: float) -> Effects:
        yield SetTimer(5.0, "beat")
        yield Compute(Task(1, self.state.w))

    @on(Elapsed)
    def elapsed(self, event: Elapsed, now: float) -> Effects:
        self.state.beats += 1
        yield SetTimer(5.0, event.timer)

    @on(Refused)
    def refused(self, event: Refused, now: float) -> Effects:
        yield Finish("budget")

    @on(PeerDown)
    def peer_down(self, event: PeerDown, now: float) -> Effects:
        self.state.down.add(event.peer)
        yield from ()

    @on(Stop)
    def write(self, event: Stop, now: float) -> Effects:
        s, peer = self.state, event.reason
        s.sent[peer] = s.sent.get(peer, 0) + 1
        s.w = s.w * 0.5 + Public(np.full(s.w.size, now))
        yield Send(peer, Note(s.sent[peer], s.w))

    @on(Note)
    def hear(self, sender: str, note: Note, now: float) -> Effects:
        s = self.state
        s.heard[sender] = (*s.heard.get(sender, ()), note.number)
        s.w = (s.w + note.model) / 2
        yield from ()
