"""A server of clients: it holds the model and no data, gives the model out, and ends the run for all."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field

from gossamer.algorithms.clients.messages import SERVER, Fetch, Halt, Leave, Newest, NewestAtClip, Push
from gossamer.algorithms.clients.settings import ClientSettings
from gossamer.algorithms.context import Context
from gossamer.algorithms.nodes import EndingNode, Probe
from gossamer.algorithms.optimizer import Memory, step
from gossamer.errors import PeerError
from gossamer.privacy.clipping import QuantileClip
from gossamer.privacy.sampling import Poisson
from gossamer.privacy.tasks import Query
from gossamer.protocol.effects import Finish, Send, SetTimer
from gossamer.protocol.events import Elapsed, Refused, Resumed, Started, Stop
from gossamer.protocol.messages import check_model
from gossamer.protocol.node import Effects, on
from gossamer.sides.plan import WHOLE
from gossamer.vectors import Confined, Model, Released

MOST_DOUBLINGS = 10
"""Of the patience, as long as nothing comes."""


@dataclass(kw_only=True)
class ServerState:
    """State of a server of clients.

    Attributes
    ----------
    x : Public or Released
        The model, after ``t`` steps.
    taken : int
        Updates taken so far; by a server that adds the noise, sums of them, as how many are in one may be secret.
    left : set of str
        Clients that make no more.
    ends : float or None
        The deadline, on the server's clock.
    finished : str
        Reason of the end; empty before.
    memory : Memory or None
        The optimizer's.
    log_clip : Public, Released or None
        Logarithm of the clip, [1], where it moves.
    empty : int
        Rounds that came to nothing.
    probes : int
        Number of times that those that are waited for now were asked whether they are there.
    staleness_sum, staleness_most : int
        Steps of the server that updates were behind, where these need not be of the newest model.
    """

    x: Model
    t: int = 0
    taken: int = 0
    left: set[str] = field(default_factory=set)
    ends: float | None = None
    finished: str = ""
    memory: Memory | None = None
    log_clip: Model | None = None
    empty: int = 0
    probes: int = 0
    staleness_sum: int = 0
    staleness_most: int = 0

    def note(self, stale: int) -> None:
        """Note how many steps an update is behind."""
        self.staleness_sum += stale
        self.staleness_most = max(self.staleness_most, stale)


class ModelServer(EndingNode):
    """Base of servers: a subclass says what becomes of the updates, with a handler of `Push`."""

    state: ServerState
    called, nobody = "client", "all clients left"
    """Word for one that it serves, and why a run ends without any."""
    shown: type[Released | Confined] = Released
    """Label of their updates."""

    def __init__(self, state: ServerState, context: Context) -> None:
        super().__init__(SERVER, state)
        self.clients, self.expected = frozenset(context.names), context.initial
        self.last, self.deadline = context.updates, context.deadline
        self.clipping = context.clipping

    @on(Started)
    def start(self, event: Started, now: float) -> Effects:
        yield from self.set_deadline(now)

    @on(Resumed)
    def resume(self, event: Resumed, now: float) -> Effects:
        """Timers are gone."""
        yield from self.reset_deadline(now)

    @on(Fetch)
    def fetched(self, sender: str, fetch: Fetch, now: float) -> Effects:
        self.check_member(sender)
        self.state.left.discard(sender)
        yield from self.answer(sender, fetch.request)

    def answer(self, client: str, request: int) -> Effects:
        """Give the newest model of this moment; once the run is over, the last one."""
        s = self.state
        yield Send(client, Halt(s.t, s.x) if s.finished else self.newest(request))

    def newest(self, request: int) -> Newest | NewestAtClip:
        """The newest model, with its clip where that moves."""
        s = self.state
        return Newest(request, s.t, s.x) if s.log_clip is None else NewestAtClip(request, s.t, s.log_clip, s.x)

    def checked(self, sender: str, push: Push) -> int:
        """Refuse an update that cannot be one; how many steps of the server it is old."""
        self.check_member(sender)
        check_model(push.update, self.expected)
        if not isinstance(push.update, self.shown):
            raise PeerError(
                f"{sender} pushes a vector that is {type(push.update).__name__}, expected {self.shown.__name__}"
            )
        if not 0 <= push.version <= self.state.t:
            raise PeerError(f"{sender} pushes an update of version {push.version}, expected 0 to {self.state.t}")
        return self.state.t - push.version

    @on(Leave)
    def leaves(self, sender: str, leave: Leave, now: float) -> Effects:
        s = self.state
        self.check_member(sender)
        s.left.add(sender)
        if s.left >= self.clients:
            yield from self.halt(self.nobody)

    def wait(self, timeout: float | None, patience: float, timer: str) -> Effects:
        """Have a timer ring when the timeout is over; without one, when it is time to see who is there."""
        doublings = min(self.state.probes, MOST_DOUBLINGS)
        yield SetTimer(patience * 2**doublings if timeout is None else timeout, timer)

    def probe(self) -> Effects:
        """Have the session find out who of those that are waited for is lost: it learns how long to give each."""
        self.state.probes += 1
        for client in sorted(self.awaited):
            yield Send(client, Probe())

    def check_member(self, sender: str) -> None:
        """Refuse what a stranger sends."""
        if sender not in self.clients:
            raise PeerError(f"{sender} is no {self.called} of this server")

    @on(Elapsed)
    def elapsed(self, event: Elapsed, now: float) -> Effects:
        yield from self.halt("deadline")

    @on(Stop)
    def stop(self, event: Stop, now: float) -> Effects:
        yield from self.halt(event.reason)

    def halt(self, reason: str) -> Effects:
        """End the run: every client gets the last model."""
        s = self.state
        if s.finished:
            return
        s.finished = reason
        for client in sorted(self.clients):
            yield Send(client, Halt(s.t, s.x))
        yield Finish(reason)


class ClientServer(ModelServer):
    """Base of servers of clients."""

    def __init__(self, state: ServerState, context: Context, settings: ClientSettings) -> None:
        super().__init__(state, context)
        self.settings, self.shown = settings, Confined if settings.curated else Released
        if isinstance(self.clipping.policy, QuantileClip):
            state.log_clip = self.clipping.initial(context.initial)

    @property
    def awaited(self) -> Set[str]:
        return frozenset() if self.state.finished else self.clients - self.state.left

    def at_clip(self, query: Query) -> Query:
        """``query`` at the clip in force."""
        return query if self.state.log_clip is None else self.clipping.query(query, self.state.log_clip)

    def move(self, mean: Released) -> None:
        """x = x + eta_g mean, or the optimizer's move for it; and the clip's, by the count that comes after a mean."""
        s = self.state
        if s.log_clip is not None and mean.size > s.x.size:  # nothing is counted where nobody answered
            s.log_clip, mean = self.clipping.moved(s.log_clip, mean)
        s.memory, direction = step(self.settings.server_optimizer, s.memory, mean)
        s.x = (s.x + self.settings.learning_rate * direction).within()
        s.t += 1

    @on(Refused)
    def refused(self, event: Refused, now: float) -> Effects:
        """The clients' lines cover no further sum."""
        yield from self.halt("budget")


class AtOnceServer(ClientServer):
    """Base of servers that take each update when it comes, and answer with the newest model: nobody waits."""

    @on(Push)
    def pushed(self, sender: str, push: Push, now: float) -> Effects:
        s = self.state
        stale = self.checked(sender, push)
        if s.finished:
            return  # it has been told
        s.note(stale)
        s.taken += 1
        self.take(push.update, stale)
        if s.taken == self.last:
            yield from self.halt("updates")
        else:
            yield from self.answer(sender, push.request)

    def take(self, update: Released | Confined, stale: int) -> None:
        """Have an update become part of the model."""
        raise NotImplementedError


def sum_query(context: Context, normaliser: float, sampling: Poisson = WHOLE) -> Query:
    """The question for a sum of updates; its ``normaliser`` is public, however many updates are in it."""
    some = next(iter(context.queries.values()))
    return Query(sampling, some.mechanism, float(normaliser))
