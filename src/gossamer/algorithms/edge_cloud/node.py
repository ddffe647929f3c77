"""An edge server: it pulls the model, computes one noisy gradient at it, pushes that and gets the newest model for it.

It joins by pulling, at any time, and may leave or die at any time. The clip comes with the model. An edge calibrates
its noise to the clip it *uses*, so a server that lies about it harms the model, not the edge's examples.
"""

from __future__ import annotations

from dataclasses import dataclass

from gossamer.algorithms.context import Context
from gossamer.algorithms.edge_cloud.messages import SERVER, Halt, Leave, Newest, Probe, Pull, Push
from gossamer.privacy.tasks import Gradient
from gossamer.protocol.effects import Compute, Finish, Record, Send
from gossamer.protocol.events import Completed, PeerDown, Refused, Resumed, Started, Stop
from gossamer.protocol.messages import check_model, check_sender
from gossamer.protocol.node import Effects, Node, on
from gossamer.vectors import Model


@dataclass
class EdgeState:
    """State of an edge: the model it has, of which version, and what it waits for."""

    w: Model
    version: int = 0
    request: int = 0
    task: int = 0
    updates: int = 0
    finished: str = ""


class EdgeNode(Node):
    """An edge server k, with data of its own."""

    state: EdgeState

    def __init__(self, name: str, context: Context) -> None:
        super().__init__(name, EdgeState(context.initial))
        self.query = context.queries[name]
        self.clipping = context.clipping
        self.log_clip = context.clipping.initial(context.initial)
        self.quota = context.quotas[name] if context.quotas is not None else None

    @on(Started, Resumed)
    def pull(self, event: Started | Resumed, now: float) -> Effects:
        s = self.state
        if not s.finished:
            s.request += 1
            yield Send(SERVER, Pull(s.request))

    @on(Newest)
    def compute(self, sender: str, newest: Newest, now: float) -> Effects:
        """The gradient at the model of this moment, clipped at what is the clip now."""
        s = self.state
        check_sender(sender, SERVER)
        check_model(newest.model, s.w)
        check_model(newest.log_clip, self.log_clip)
        if newest.request != s.request:
            return  # an answer to what was asked before a crash
        s.w, s.version = newest.model, newest.version
        if not s.finished:
            s.task += 1
            yield Compute(Gradient(s.task, s.w, self.clipping.query(self.query, newest.log_clip)))

    @on(Completed)
    def push(self, done: Completed, now: float) -> Effects:
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

    @on(Probe)
    def probed(self, sender: str, probe: Probe, now: float) -> Effects:
        check_sender(sender, SERVER)
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
            yield Send(SERVER, Leave())
            yield from self.finish(reason)

    def finish(self, reason: str) -> Effects:
        if not self.state.finished:
            self.state.finished = reason
            yield Finish(reason)
