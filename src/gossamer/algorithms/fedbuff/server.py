"""The server of FedBuff: it adds updates up in a buffer, takes a step whenever that is full, and waits for nobody."""

from __future__ import annotations

from dataclasses import dataclass, field

from gossamer.algorithms.context import Context
from gossamer.algorithms.ending import EndingNode
from gossamer.algorithms.fedbuff.messages import SERVER, Fetch, Halt, Leave, Newest, Push
from gossamer.algorithms.fedbuff.settings import Settings
from gossamer.algorithms.optimizer import Memory, step
from gossamer.errors import PeerError
from gossamer.protocol.effects import Finish, Send
from gossamer.protocol.events import Elapsed, Resumed, Started, Stop
from gossamer.protocol.messages import check_model
from gossamer.protocol.node import NEWER, Effects, on
from gossamer.vectors import Model


@dataclass
class ServerState:
    """State of the server.

    Attributes
    ----------
    x : Public or Released
        The model, after ``t`` steps.
    total : Public or Released
        The weighted sum of the ``held`` updates in the buffer.
    taken : int
        Updates that came into the buffer so far.
    left : set of str
        Clients that make no more.
    staleness_sum, staleness_most : int
        Of the updates taken.
    ends : float or None
        The deadline, on the server's clock.
    finished : str
        Why.
    memory : Memory or None
        The optimizer's.
    """

    x: Model
    total: Model
    t: int = 0
    held: int = 0
    taken: int = 0
    left: set[str] = field(default_factory=set)
    staleness_sum: int = 0
    staleness_most: int = 0
    ends: float | None = None
    finished: str = ""
    memory: Memory | None = field(default=None, metadata=NEWER)


class ServerNode(EndingNode):
    """The server: the model, and a buffer of updates. It holds no data."""

    state: ServerState

    def __init__(self, context: Context, settings: Settings) -> None:
        self.empty: Model = 0.0 * context.initial
        super().__init__(SERVER, ServerState(context.initial, self.empty))
        self.settings, self.clients = settings, frozenset(context.names)
        self.last, self.deadline = context.updates, context.deadline

    @on(Started)
    def start(self, event: Started, now: float) -> Effects:
        yield from self.set_deadline(now)

    @on(Resumed)
    def resume(self, event: Resumed, now: float) -> Effects:
        """Timers are gone."""
        yield from self.reset_deadline(now)

    @on(Fetch)
    def fetched(self, sender: str, fetch: Fetch, now: float) -> Effects:
        self.only_from_clients(sender)
        self.state.left.discard(sender)
        yield self.answer(sender, fetch.request)

    def answer(self, client: str, request: int) -> Send:
        """The newest model of this moment; once the run is over, the last one."""
        s = self.state
        return Send(client, Halt(s.t, s.x) if s.finished else Newest(request, s.t, s.x))

    @on(Push)
    def pushed(self, sender: str, push: Push, now: float) -> Effects:
        """Lines 1 to 5."""
        s = self.state
        self.only_from_clients(sender)
        check_model(push.update, s.x)
        if not 0 <= push.version <= s.t:
            raise PeerError(f"{sender} pushes an update of version {push.version}, expected 0 to {s.t}")
        if s.finished:
            return  # it has been told
        stale = s.t - push.version
        s.total = (s.total + (1 + stale) ** -self.settings.staleness_exponent * push.update).within()
        s.held += 1
        s.taken += 1
        s.staleness_sum += stale
        s.staleness_most = max(s.staleness_most, stale)
        if s.held == self.settings.buffer:
            self.step()
        if s.taken == self.last:
            yield from self.halt("updates")
        else:
            yield self.answer(sender, push.request)

    def step(self) -> None:
        """x = x + eta_g total / K, or the optimizer's move for it."""
        s, rate, buffer = self.state, self.settings.learning_rate, self.settings.buffer
        if self.settings.server_optimizer is None:
            s.x = (s.x + rate / buffer * s.total).within()
        else:
            s.memory, move = step(self.settings.server_optimizer, s.memory, s.total / buffer)
            s.x = (s.x + rate * move).within()
        s.total, s.held = self.empty, 0
        s.t += 1

    @on(Leave)
    def leaves(self, sender: str, leave: Leave, now: float) -> Effects:
        s = self.state
        self.only_from_clients(sender)
        s.left.add(sender)
        if s.left >= self.clients:
            yield from self.halt("all clients left")

    def only_from_clients(self, sender: str) -> None:
        """Refuse what a stranger sends."""
        if sender not in self.clients:
            raise PeerError(f"{sender} is no client of this server")

    @on(Elapsed)
    def elapsed(self, event: Elapsed, now: float) -> Effects:
        yield from self.halt("deadline")

    @on(Stop)
    def stop(self, event: Stop, now: float) -> Effects:
        yield from self.halt(event.reason)

    def halt(self, reason: str) -> Effects:
        """End the run: what is left in the buffer is applied, and every client gets the last model."""
        s = self.state
        if s.finished:
            return
        if s.held:
            self.step()
        s.finished = reason
        for client in sorted(self.clients):
            yield Send(client, Halt(s.t, s.x))
        yield Finish(reason)
