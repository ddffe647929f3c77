"""Clients and their server, and their messages.

A client asks for a model, trains on its own data, and pushes the update, clipped as a whole. Its data side clips, and
adds noise where the client does that itself: then nothing that is raw ever comes to the node. Otherwise the update is
`Confined` to the client and its server.

The server holds the model and no data, gives the model out, and ends the run for all. What becomes of updates is each
algorithm's own: they are taken at once, or in rounds of cohorts that are waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Set
from dataclasses import dataclass, field, replace
from typing import Any

from gossamer.algorithms.clients.settings import PATIENCE, ClientSettings
from gossamer.algorithms.compression import Packing
from gossamer.algorithms.context import Context
from gossamer.algorithms.nodes import EndingNode, Words, WorkerNode, WorkerState
from gossamer.algorithms.optimizer import Memory, Momentum, step
from gossamer.errors import PeerError
from gossamer.privacy.clipping import QuantileClip
from gossamer.privacy.mechanisms import Poisson
from gossamer.privacy.tasks import ClippedUpdate, Gradient, LocalUpdate, Query, TrainingQuery
from gossamer.protocol.effects import Compute, Record, Send, SetTimer, Task
from gossamer.protocol.encoding import register
from gossamer.protocol.events import Answered, Completed, PeerDown, PeerUp, Resumed, Started
from gossamer.protocol.messages import Message, check_model, message
from gossamer.protocol.node import Effects, on
from gossamer.sides.plan import WHOLE
from gossamer.vectors import Confined, Model, Public, Released

SERVER = "server"


@message("client.fetch")
class Fetch(Message):
    """The sender is there, and wants a model, as its ``request``: the newest, or one to train from once it is drawn."""

    request: int


@message("client.newest")
class Newest(Message):
    """The model after ``version`` steps of the server."""

    request: int
    version: int
    model: Public | Released


@message("client.newest_at_clip")
class NewestAtClip(Message):
    """`Newest`, and the logarithm [1] of the clip to use for the update from this model."""

    request: int
    version: int
    log_clip: Public | Released
    model: Public | Released


@message("client.push")
class Push(Message):
    """The update of a local training from the model of ``version``; it asks for a model too.

    The update is `Released` where the client added noise itself, and `Confined` where its server is trusted with it.
    """

    request: int
    version: int
    update: Released | Confined


@message("client.leave")
class Leave(Message):
    """The sender makes no more updates."""


@message("client.halt")
class Halt(Message):
    """The run is over, and this is its model, after ``version`` steps of the server."""

    version: int
    model: Public | Released


@register("task.noised_update")
@dataclass(frozen=True, slots=True)
class NoisedUpdate(LocalUpdate):
    """A local training's update that the data side clips and noises as a whole: a release for everybody."""

    label = Released  # type: ignore[assignment]


@register("task.noised_update_at_clip")
@dataclass(frozen=True, slots=True)
class NoisedUpdateAtClip(ClippedUpdate):
    """A `NoisedUpdate` at the clip of this question, with as much less noise, or more."""

    label = Released  # type: ignore[assignment]


Pushed = Callable[[Any, Any], Any]
"""Function of the model that was given and the update: the vector that is pushed, of the update's label."""


def update_itself(given: Any, update: Any) -> Any:
    """The update."""
    return update


class TrainingNode(WorkerNode):
    """A client of any kind: what it pushes, and how it ends."""

    packing: Packing | None = None

    def __init__(self, name: str, context: Context, makes: Pushed = update_itself) -> None:
        super().__init__(name, context, SERVER, Words(Fetch, Push, Leave))
        self.makes = makes

    def pushed(self, task: int, answer: Released | Confined) -> Effects:
        """Hand in what is made of an update; everybody may know the model that it is of."""
        return super().pushed(task, self.makes(self.state.w, answer))

    def handed(self, answer: Any) -> Any:
        """The update, or as much as is sent of it and of what earlier ones lacked."""
        s, packing = self.state, self.packing
        if packing is None:
            return answer
        whole = answer if s.lacking is None else (answer + s.lacking).within()
        sent = packing.pack(whole, packing.places(whole))
        s.lacking = whole - packing.unpack(sent, 0.0 * whole)
        return sent

    @on(Halt, by="server")
    def halt(self, sender: str, halt: Halt, now: float) -> Effects:
        yield from self.halted(halt)


# A clip that follows a quantile of the norms of clients' updates, which a server that adds the noise has counted, goes
# with the model to the clients of a round, so all updates of one sum were clipped alike. The server's data side tells
# from the norm of each whether it was shorter than the clip, and counts these as one more coordinate of the sum: one
# release, charged as every other (`privacy.clipping`; Andrew et al., NeurIPS 2021, algorithm 1). Clients that add noise
# themselves, or mask, are not followed, and neither are updates that may be of an older clip.

Asks = Callable[[int, Model, Any], Task]
"""Function of a task's number, the model that came, and the logarithm of the clip with it, if any: the task."""


class ClientNode(TrainingNode):
    """A client that has its data side work at each model that comes, and may show its server what comes of it.

    Parameters
    ----------
    name : str
        Name of the client.
    context : Context
        Context of the run.
    asks : callable
        Function that says what the data side is asked for.
    makes : callable
        Function that says what is pushed.
    follows : bool
        Whether a clip comes with each model.
    """

    def __init__(
        self, name: str, context: Context, asks: Asks, makes: Pushed = update_itself, *, follows: bool = False
    ) -> None:
        super().__init__(name, context, makes)
        self.asks = asks
        self.log_clip = context.clipping.initial(context.initial) if follows else None

    @on(Newest, NewestAtClip, by="server")
    def train(self, sender: str, newest: Newest | NewestAtClip, now: float) -> Effects:
        """Train from the model that came, at the data side."""
        if self.packing is not None:
            newest = replace(newest, model=self.packing.unpack(newest.model, self.state.w))
        check_model(newest.model, self.state.w)
        log_clip = newest.log_clip if isinstance(newest, NewestAtClip) else None
        if (log_clip is None) != (self.log_clip is None):
            raise PeerError(f"{self.name} expects no {type(newest).__name__}")
        if log_clip is not None and self.log_clip is not None:
            check_model(log_clip, self.log_clip)
        return self.from_model(log_clip) if self.takes(newest.request, newest) else []

    def from_model(self, log_clip: Model | None) -> Effects:
        """Begin with the model that came, at the clip that came with it."""
        return [Compute(self.asks(self.state.task, self.state.w, log_clip))]

    @on(Answered)
    def show(self, done: Answered, now: float) -> Effects:
        """Push an update without noise, which only the server may see."""
        if isinstance(done.vector, Confined):
            yield from self.pushed(done.id, done.vector)


# A client whose single examples are protected: each step of its local training is a noisy gradient of its data side.
#
# So nothing is raw, and nobody need be trusted: momentum, FedProx's term and the update are made here, of what was
# released. An absence costs the step that was under way, which stays charged; the training then goes on where it was,
# as the steps that are paid for would be lost with it.


@dataclass
class SteppingState(WorkerState):
    """State of a client, with the training under way.

    Attributes
    ----------
    local : Public, Released or None
        Model of the training under way, [size]; None between trainings.
    steps : int
        Steps made in it.
    memory : Memory or None
        Memory of the momentum.
    """

    local: Model | None = None
    steps: int = 0
    memory: Memory | None = None


class SteppingClient(ClientNode):
    """A client that trains in steps which are released one by one.

    Parameters
    ----------
    name : str
        Name of the client.
    context : Context
        Context of the run; its query says how each step samples and clips, and with what noise.
    training : TrainingQuery
        Steps, their size, momentum and FedProx's mu.
    makes : callable
        Function that says what is pushed.
    """

    state: SteppingState

    def __init__(self, name: str, context: Context, training: TrainingQuery, makes: Pushed = update_itself) -> None:
        query = context.queries[name]
        super().__init__(name, context, lambda task, model, log_clip: Gradient(task, model, query), makes)
        self.state, self.training = SteppingState(context.initial), training
        self.optimizer = Momentum(momentum=training.momentum) if training.momentum else None

    @on(Started, Resumed)
    def pull(self, event: Started | Resumed, now: float) -> Effects:
        """Ask for a model, or go on with the training that was under way."""
        if self.state.local is None or self.state.finished:
            yield from super().pull(event, now)
        else:
            self.state.task += 1
            yield from self.ask(self.state.local)

    def from_model(self, log_clip: Model | None) -> Effects:
        s = self.state
        s.local, s.steps, s.memory = s.w, 0, None
        yield from self.ask(s.local)

    def ask(self, model: Model) -> Effects:
        """Have the data side compute the next step's gradient."""
        yield Compute(self.asks(self.state.task, model, None))

    @on(Completed)
    def take_step(self, done: Completed, now: float) -> Effects:
        """v = m v + g~ + mu (w - x), w = w - eta v; after the last step w - x is the update."""
        s = self.state
        if done.id != s.task or s.finished or s.local is None:
            return
        direction: Model = done.released
        if self.training.proximal:
            direction = direction + self.training.proximal * (s.local - s.w)
        s.memory, move = step(self.optimizer, s.memory, direction)
        s.local, s.steps = (s.local - self.training.rate * move).within(), s.steps + 1
        if s.steps < self.training.steps:
            s.task += 1
            yield from self.ask(s.local)
        else:
            update, s.local, s.memory = s.local - s.w, None, None
            yield from self.pushed(s.task, update)


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

    def staleness(self, updates: int) -> dict[str, float]:
        """Mean and most of them, of so many updates, for a summary."""
        mean = self.staleness_sum / updates if updates else 0.0
        return {"staleness_mean": mean, "staleness_max": self.staleness_most}


class ModelServer(EndingNode):
    """Base of servers: a subclass says what becomes of the updates that `came`."""

    state: ServerState
    nobody = "all clients left"
    """Why a run ends without any."""
    shown: type[Released | Confined] = Released
    """Label of their updates."""

    def __init__(self, state: ServerState, context: Context) -> None:
        super().__init__(SERVER, state)
        self.clients, self.expected = frozenset(context.names), context.initial
        self.last, self.deadline = context.updates, context.deadline
        self.clipping = context.clipping

    @on(Fetch, by="clients")
    def fetched(self, sender: str, fetch: Fetch, now: float) -> Effects:
        self.state.left.discard(sender)
        return self.answer(sender, fetch.request)

    def answer(self, client: str, request: int) -> Effects:
        """Give the last model once the run is over, and until then what this server has to `offer`."""
        s = self.state
        return [Send(client, Halt(s.t, s.x))] if s.finished else self.offer(client, request)

    def offer(self, client: str, request: int) -> Effects:
        """Give the newest model of this moment."""
        return [Send(client, self.newest(request))]

    def newest(self, request: int) -> Newest | NewestAtClip:
        """The newest model, with its clip where that moves."""
        s = self.state
        return Newest(request, s.t, s.x) if s.log_clip is None else NewestAtClip(request, s.t, s.log_clip, s.x)

    @on(Push, by="clients")
    def pushed(self, sender: str, push: Push, now: float) -> Effects:
        """Refuse an update that cannot be one, and have others taken in until the end, which all have been told."""
        check_model(push.update, self.expected)
        if not isinstance(push.update, self.shown):
            raise PeerError(
                f"{sender} pushes a vector that is {type(push.update).__name__}, expected {self.shown.__name__}"
            )
        if not 0 <= push.version <= self.state.t:
            raise PeerError(f"{sender} pushes an update of version {push.version}, expected 0 to {self.state.t}")
        return [] if self.state.finished else self.came(sender, push, self.state.t - push.version)

    def came(self, sender: str, push: Push, stale: int) -> Effects:
        """Take in an update that is so many steps of the server old."""
        raise NotImplementedError

    @on(Leave, by="clients")
    def leaves(self, sender: str, leave: Leave, now: float) -> Effects:
        s = self.state
        s.left.add(sender)
        if s.left >= self.clients:
            yield from self.end(self.nobody)

    def end(self, reason: str) -> Effects:
        """End the run: every client gets the last model."""
        s = self.state
        for client in () if s.finished else sorted(self.clients):
            yield Send(client, Halt(s.t, s.x))
        yield from self.finish(reason)


class ClientServer(ModelServer):
    """Base of servers of clients."""

    def __init__(self, state: ServerState, context: Context, settings: ClientSettings) -> None:
        super().__init__(state, context)
        self.settings, self.shown = settings, Confined if settings.curated else Released
        self.robust, self.packing = settings.aggregation, settings.compression
        if isinstance(self.clipping.policy, QuantileClip):
            state.log_clip = self.clipping.initial(context.initial)

    @property
    def awaited(self) -> Set[str]:
        return frozenset() if self.state.finished else self.clients - self.state.left

    def newest(self, request: int) -> Newest | NewestAtClip:
        found = super().newest(request)
        return found if self.packing is None else replace(found, model=self.packing.pack(found.model))

    def at_clip(self, query: Query) -> Query:
        """``query`` at the clip in force."""
        return query if self.state.log_clip is None else self.clipping.query(query, self.state.log_clip)

    def pushed(self, sender: str, push: Push, now: float) -> Effects:
        """Take in an update as its client has packed it; not finite, it counts as zero where there is a robust rule."""
        if self.packing is not None and isinstance(push.update, Released):
            update: Any = self.packing.unpack(push.update, 0.0 * self.expected)
            push = replace(push, update=update)
        if self.robust is not None and (odd := self.robust.odd(sender, push.update)):
            yield from odd
            push = replace(push, update=0.0 * push.update.within())
        yield from super().pushed(sender, push, now)

    def aggregated(self, updates: Collection[Any]) -> Any:
        """The robust rule's average of updates; None of too few."""
        zero, robust = 0.0 * self.expected, self.robust
        if robust is None or len(updates) < robust.least:
            return None
        return robust.of([robust.near(zero, update) for update in updates])

    def move(self, mean: Released) -> None:
        """x = x + eta_g mean, or the optimizer's move for it; and the clip's, by the count that comes after a mean."""
        s = self.state
        if s.log_clip is not None and mean.size > s.x.size:  # nothing is counted where nobody answered
            s.log_clip, mean = self.clipping.moved(s.log_clip, mean)
        s.memory, direction = step(self.settings.server_optimizer, s.memory, mean)
        s.x = (s.x + self.settings.learning_rate * direction).within()
        s.t += 1


class AtOnceServer(ClientServer):
    """Base of servers that take each update when it comes, and answer with the newest model: nobody waits."""

    def came(self, sender: str, push: Push, stale: int) -> Effects:
        self.state.note(stale)
        self.state.taken += 1
        self.take(sender, push.update, stale)
        return self.end("updates") if self.state.taken == self.last else self.answer(sender, push.request)

    def take(self, client: str, update: Released | Confined, stale: int) -> None:
        """Have an update become part of the model."""
        raise NotImplementedError


@dataclass(kw_only=True)
class CohortState(ServerState):
    """State of a server that waits for the clients of a round.

    Attributes
    ----------
    late : dict of str to bool, or None
        Clients that a round ended without, or that are lost where there is no timeout, and whether they were heard of
        since; None where rounds wait for these too.
    """

    late: dict[str, bool] | None = None


@dataclass(frozen=True)
class Waiting:
    """Time that a server gives the clients of a round.

    Attributes
    ----------
    timeout : float or None
        Seconds after which it goes on without those who have not answered.
    patience : float or None
        Seconds without a timeout after which they are asked whether they are there; by default `PATIENCE`.
    skips : bool
        Whether later rounds do not wait for clients that were late and not heard of since.
    asks : bool
        Whether clients are waited for until the session has lost them.
    """

    timeout: float | None
    patience: float | None
    skips: bool
    asks: bool


class CohortServer(ClientServer):
    """Base of servers that wait for the clients of a round; a subclass says who is waited for, and what ends one.

    It says what happens when the `time_is_up`, how to `hear` of a client that is there, to `close_if_whole` what nobody
    is waited for any more, and to `ask_joining` once too few others than the late are left.
    """

    state: CohortState
    timer = "round"
    """Name of the timer."""

    def __init__(self, state: CohortState, context: Context, settings: ClientSettings, waiting: Waiting) -> None:
        super().__init__(state, context, settings)
        self.waiting, self.asks, self.patience = waiting, waiting.asks, waiting.patience or PATIENCE
        state.late = {} if waiting.skips or self.asks else None

    def set_timers(self) -> Effects:
        """Set the timer of a round that begins to wait, if it has one."""
        self.state.probes = 0
        if self.asks or self.waiting.timeout is not None:
            yield from self.wait()

    def wait(self) -> Effects:
        """Have a timer ring when the timeout is over; without one, when it is time to see who is there."""
        timeout = self.waiting.timeout
        yield self.wait_for(self.timer) if timeout is None else SetTimer(timeout, self.timer)

    def rang(self: Any, timer: str) -> Effects:
        """Go on without the late; or have the session find out who of the awaited is lost, by how long each takes."""
        s = self.state
        if self.asks and not s.finished:
            yield from self.sound_out(sorted(self.awaited))
            yield from self.wait()
        elif not s.finished:
            yield from self.time_is_up()

    def forget_heard(self) -> None:
        """Wait again, from this round on, for late clients that were heard of."""
        if self.state.late is not None:
            self.state.late = {client: False for client, heard in self.state.late.items() if not heard}

    @on(PeerDown)
    def peer_down(self: Any, event: PeerDown, now: float) -> Effects:
        """Wait no longer for a client that the session has lost, unless a timeout decides."""
        s = self.state
        if self.asks and s.late is not None and not s.finished:
            s.late[event.peer] = False  # also where it waits for a model: that it asked for before it was lost
            yield from self.lost_client(event.peer)
            yield from self.close_if_whole()
            yield from self.ask_joining()

    def lost_client(self, client: str) -> Effects:
        """Note that the session has lost a client."""
        yield Record("client_lost", 1.0)

    @on(PeerUp)
    def peer_up(self: Any, event: PeerUp, now: float) -> Effects:
        self.hear(event.peer)
        yield from self.close_if_whole()


def sum_query(context: Context, normaliser: float, sampling: Poisson = WHOLE) -> Query:
    """The question for a sum of updates; its ``normaliser`` is public, however many updates are in it."""
    some = next(iter(context.queries.values()))
    return Query(sampling, some.mechanism, float(normaliser))
