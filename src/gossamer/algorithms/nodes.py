"""Nodes that several algorithms have: those that end once, that follow a schedule, and that work for one server.

A worker pulls the model, has its data side compute at it, and pushes the answer. It joins by pulling, at any time, and
may leave or die at any time. What is computed is its algorithm's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from gossamer.algorithms.context import Context, updates_per_epoch
from gossamer.algorithms.optimizer import EpochRate
from gossamer.protocol.effects import Finish, Record, Send, SetTimer
from gossamer.protocol.events import Completed, Counted, PeerDown, Refused, Resumed, Started, Stop
from gossamer.protocol.messages import Message, check_model, check_sender, message
from gossamer.protocol.node import Effects, Node, on
from gossamer.vectors import Confined, Model, Released


class EndingNode(Node):
    """A node whose state says why it has ``finished``, and of one with a ``deadline`` when it ``ends``."""

    deadline: float | None = None
    """Seconds from the start to the end, on the node's clock."""

    def set_deadline(self, now: float) -> Effects:
        """Have the timer ``deadline`` ring, from the start on."""
        if self.deadline is not None:
            self.state.ends = now + self.deadline
            yield SetTimer(self.deadline, "deadline")

    def reset_deadline(self, now: float) -> Effects:
        """Set the timer again after an absence, when all timers are gone."""
        if self.state.ends is not None and not self.state.finished:
            yield SetTimer(max(self.state.ends - now, 0.0), "deadline")

    def finish(self, reason: str) -> Effects:
        """No more updates."""
        if not self.state.finished:
            self.state.finished = reason
            yield Finish(reason)


class ScheduledNode(EndingNode):
    """A node whose state counts its own ``updates`` and, once it was told, those of all nodes (``counted``)."""

    def follow(self, rate: EpochRate, context: Context) -> None:
        """Take a schedule."""
        self._rate, self._epoch = rate, updates_per_epoch(context, self.name, by_all=rate.by_all)

    @property
    def rate(self) -> float:
        """The learning rate of the next update."""
        s = self.state
        updates = (s.counted or 0) if self._rate.by_all else s.updates
        return self._rate.at(updates / self._epoch)

    @on(Counted)
    def count(self, event: Counted, now: float) -> Effects:
        """Remember how many updates came before the one that is about to be made."""
        self.state.counted = event.updates
        yield from ()


def goes_by_all(settings: Any) -> bool:
    """Whether the learning rate of some settings goes by the updates of all nodes."""
    rate: EpochRate = settings.learning_rate
    return rate.by_all


@dataclass
class WorkerState:
    """State of a worker: the model that it has, of which version, and what it waits for."""

    w: Model
    version: int = 0
    request: int = 0
    task: int = 0
    updates: int = 0
    finished: str = ""


@message("worker.probe")
@dataclass(frozen=True)
class Probe(Message):
    """Others wait for the receiver. It need not answer: that it was received shows that it is there."""


class Words(NamedTuple):
    """Messages of an algorithm to its server.

    Attributes
    ----------
    pull : callable
        Message of a request, which asks for the newest model.
    push : callable
        Message of a request, a version and what was computed at it: hands that in, and asks for the newest model too.
    leave : callable
        Says that there will be no more.
    """

    pull: Callable[[int], Message]
    push: Callable[[int, int, Any], Message]
    leave: Callable[[], Message]


class Newer(Protocol):
    """A model of a ``version``, as a server sends it."""

    @property
    def version(self) -> int: ...
    @property
    def model(self) -> Model: ...


class WorkerNode(EndingNode):
    """A node with data of its own, and a server that it talks to."""

    state: WorkerState

    def __init__(self, name: str, context: Context, server: str, words: Words) -> None:
        super().__init__(name, WorkerState(context.initial))
        self.server, self.words = server, words
        self.quota = context.quotas[name] if context.quotas is not None else None

    @on(Started, Resumed)
    def pull(self, event: Started | Resumed, now: float) -> Effects:
        """After an absence what was being computed is lost, and it stays charged."""
        if not self.state.finished:
            self.state.request += 1
            yield Send(self.server, self.words.pull(self.state.request))

    def takes(self, request: int, newest: Newer) -> bool:
        """Take the newest model, unless it was asked for before a crash; whether a task is to be computed at it."""
        s = self.state
        if request != s.request:
            return False
        s.w, s.version = newest.model, newest.version
        if s.finished:
            return False
        s.task += 1
        return True

    @on(Completed)
    def push(self, done: Completed, now: float) -> Effects:
        yield from self.pushed(done.id, done.released)

    def pushed(self, task: int, answer: Released | Confined) -> Effects:
        """Hand in the answer to the newest task."""
        s = self.state
        if task != s.task or s.finished:
            return
        s.updates += 1
        s.request += 1
        yield Send(self.server, self.words.push(s.request, s.version, answer.within()))
        if self.quota is not None and s.updates >= self.quota:
            yield from self.leave("quota")

    def halted(self, sender: str, last: Newer) -> Effects:
        """The server says that the run is over."""
        s = self.state
        check_sender(sender, self.server)
        check_model(last.model, s.w)
        if last.version >= s.version:
            s.w, s.version = last.model, last.version
        yield from self.finish("halt")

    @on(Probe)
    def probed(self, sender: str, probe: Probe, now: float) -> Effects:
        check_sender(sender, self.server)
        yield from ()

    @on(Refused)
    def refused(self, event: Refused, now: float) -> Effects:
        yield from self.leave("budget")

    @on(Stop)
    def stop(self, event: Stop, now: float) -> Effects:
        yield from self.leave(event.reason)

    @on(PeerDown)
    def peer_down(self, event: PeerDown, now: float) -> Effects:
        """Nothing to be done but say so: what was sent to the server is sent again once it is back."""
        yield Record("server_lost", 1.0)

    def leave(self, reason: str) -> Effects:
        if not self.state.finished:
            yield Send(self.server, self.words.leave())
            yield from self.finish(reason)


def model_of(node: Node) -> Model:
    """The model this node would deploy: the server's, or the newest that the worker has."""
    model: Model = node.state.w if isinstance(node, WorkerNode) else node.state.x
    return model


def output(nodes: Mapping[str, Node]) -> Model:
    """The server's model, or where it is gone the newest that a worker has."""
    servers = [node for node in nodes.values() if not isinstance(node, WorkerNode)]
    return model_of(servers[0] if servers else max(nodes.values(), key=lambda node: int(node.state.version)))
