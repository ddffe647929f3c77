"""A client: it fetches the newest model, trains on its own data, and pushes the update, clipped and noised as a whole.

Its data side clips and noises; nothing that is raw ever comes to the node.
"""

from __future__ import annotations

from dataclasses import dataclass

from gossamer.algorithms.context import Context
from gossamer.algorithms.fedbuff.messages import SERVER, Fetch, Halt, Leave, Newest, Push
from gossamer.privacy.unit_tasks import LocalUpdate, TrainingQuery
from gossamer.protocol.effects import Compute, Finish, Record, Send
from gossamer.protocol.encoding import register
from gossamer.protocol.events import Completed, PeerDown, Refused, Resumed, Started, Stop
from gossamer.protocol.messages import check_model, check_sender
from gossamer.protocol.node import Effects, Node, on
from gossamer.vectors import Model, Released


@register("task.noised_update")
@dataclass(frozen=True)
class NoisedUpdate(LocalUpdate):
    """A local training's update that the data side clips and noises as a whole: a release for everybody."""

    label = Released  # type: ignore[assignment]


@dataclass
class ClientState:
    """State of a client: the model that it has, of which version, and what it waits for."""

    w: Model
    version: int = 0
    request: int = 0
    task: int = 0
    updates: int = 0
    finished: str = ""


class ClientNode(Node):
    """A client, with data of its own."""

    state: ClientState

    def __init__(self, name: str, context: Context, query: TrainingQuery) -> None:
        super().__init__(name, ClientState(context.initial))
        self.query = query
        self.quota = context.quotas[name] if context.quotas is not None else None

    @on(Started, Resumed)
    def fetch(self, event: Started | Resumed, now: float) -> Effects:
        """Line 1. After an absence what was being computed is lost, and it stays charged."""
        s = self.state
        if not s.finished:
            s.request += 1
            yield Send(SERVER, Fetch(s.request))

    @on(Newest)
    def compute(self, sender: str, newest: Newest, now: float) -> Effects:
        """Lines 2 to 4, at the data side."""
        s = self.state
        check_sender(sender, SERVER)
        check_model(newest.model, s.w)
        if newest.request != s.request:
            return  # an answer to what was asked before a crash
        s.w, s.version = newest.model, newest.version
        if not s.finished:
            s.task += 1
            yield Compute(NoisedUpdate(s.task, s.w, self.query))

    @on(Completed)
    def push(self, done: Completed, now: float) -> Effects:
        """Line 5."""
        s = self.state
        if done.id != s.task or s.finished:
            return
        s.updates += 1
        s.request += 1
        yield Send(SERVER, Push(s.request, s.version, done.released.within()))
        if self.quota is not None and s.updates >= self.quota:
            yield from self.leave("quota")

    @on(Halt)
    def halt(self, sender: str, halt: Halt, now: float) -> Effects:
        s = self.state
        check_sender(sender, SERVER)
        check_model(halt.model, s.w)
        if halt.version >= s.version:
            s.w, s.version = halt.model, halt.version
        yield from self.finish("halt")

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
            yield Send(SERVER, Leave())
            yield from self.finish(reason)

    def finish(self, reason: str) -> Effects:
        if not self.state.finished:
            self.state.finished = reason
            yield Finish(reason)
