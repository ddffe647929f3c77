"""The nodes of edge-cloud learning: edges that compute noisy gradients, and a cloud server that applies them in order.

An edge joins by asking for the model, at any time, and may leave or die at any time. The clip comes with the model, and
an edge calibrates its noise to the clip it *uses*, so a server that lies about it harms the model, not the edge's
examples.

The server applies gradients first-in first-out, answers at once, and holds no data. What it does at update t (learning
rate, clip) is its *course*; `edge_cloud` and `mapa` differ in nothing else. It waits for nobody, unless it keeps a
bound on the staleness, and then not for edges that are known to be away.

Limits on how old a gradient may be when it is applied.

A gradient that was computed at version v of a model and is applied as update t (from 0) has staleness t - v: so many
updates of others came between.

A bound tau can be kept in two ways: gradients that are older are dropped, or updates *wait* for the oldest work under
way. Waiting must not end in a deadlock. With at most tau + 1 pieces of work under way at once, at versions
v_0 <= v_1 <= ..., all of them can still be applied in time, in this order, exactly if

    v_i >= t + i - tau        for every i.

Update t may be made with one of them if this holds of the others at t + 1. It always may with the oldest: then
v_{i+1} >= t + i + 1 - tau is what is left to hold, and it did before. And whoever is given version t + 1 then comes
last, as one of at most tau + 1.

There may be more when somebody comes back who was given up. Then not all can be applied in time: the oldest goes first,
and what gets too old meanwhile is dropped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from pydantic import Field, model_validator

from gossamer.algorithms.clients.client import TrainingNode
from gossamer.algorithms.clients.messages import SERVER, Leave, NewestAtClip, Push
from gossamer.algorithms.clients.server import ModelServer, ServerState
from gossamer.algorithms.context import Context
from gossamer.algorithms.nodes import Probe
from gossamer.algorithms.optimizer import Optimizer
from gossamer.algorithms.optimizer import step as optimized
from gossamer.privacy.clipping import QuantileClip
from gossamer.privacy.tasks import Gradient
from gossamer.protocol.effects import CancelTimer, Compute, Record, Send, SetTimer
from gossamer.protocol.events import Elapsed, PeerDown, PeerUp, Resumed, Started
from gossamer.protocol.messages import check_model, check_sender
from gossamer.protocol.node import Effects, on
from gossamer.section import Section
from gossamer.vectors import Blank, Model, Public, Released


class StalenessSettings(Section):
    """Treatment of stale gradients by a server.

    Attributes
    ----------
    bound : int, optional
        The most staleness of an applied gradient.
    on_stale : {"apply", "drop", "wait"}
        ``apply``: apply it all the same, and count it. ``drop``: do not apply it; its release stays charged.
        ``wait``: hold back other updates, and models, so that no gradient gets too old; those of edges that were lost
        and come back late are dropped.
    exponent : float
        a >= 0: the learning rate is divided by (staleness + 1)^a.
    patience : float
        Seconds after which edges that others wait for are asked whether they are alive.
    """

    bound: int | None = Field(default=None, ge=0)
    on_stale: Literal["apply", "drop", "wait"] = "apply"
    exponent: float = Field(default=0.0, ge=0, le=10)
    patience: float = Field(default=10.0, ge=1e-3)

    @model_validator(mode="after")
    def _bound_is_given(self) -> StalenessSettings:
        if self.on_stale != "apply" and self.bound is None:
            raise ValueError(f"on_stale: {self.on_stale} needs a bound; give staleness.bound")
        return self

    @property
    def enforced(self) -> int | None:
        """The bound, where it is more than a figure to compare with."""
        return self.bound if self.on_stale != "apply" else None

    @property
    def most_under_way(self) -> int | None:
        """Number of edges that may work at once; None is all."""
        return self.bound + 1 if self.on_stale == "wait" and self.bound is not None else None

    def may_apply(self, version: int, others: Iterable[int], update: int) -> bool:
        """Whether a gradient of ``version`` may be applied now, as ``update``, with ``others`` under way."""
        if self.bound is None or update - version > self.bound:
            return True  # what is too old is not waited for
        rest = [other for other in others if update - other <= self.bound]
        return feasible(rest, update + 1, self.bound) or version <= min(rest)


def feasible(versions: Collection[int], update: int, bound: int) -> bool:
    """Whether work at ``versions`` can all be applied, from ``update`` on, with a staleness of at most ``bound``."""
    return all(version >= update + i - bound for i, version in enumerate(sorted(versions)))


class EdgeNode(TrainingNode):
    """An edge server k, with data of its own."""

    def __init__(self, name: str, context: Context) -> None:
        super().__init__(name, context)
        self.query = context.queries[name]
        self.clipping = context.clipping
        self.log_clip = context.clipping.initial(context.initial)

    @on(NewestAtClip)
    def compute(self, sender: str, newest: NewestAtClip, now: float) -> Effects:
        """The gradient at the model of this moment, clipped at what is the clip now."""
        s = self.state
        check_sender(sender, SERVER)
        check_model(newest.model, s.w)
        check_model(newest.log_clip, self.log_clip)
        if self.takes(newest.request, newest):
            yield Compute(Gradient(s.task, s.w, self.clipping.query(self.query, newest.log_clip)))


@dataclass(frozen=True)
class Step:
    """Part of a course that holds for one update.

    Attributes
    ----------
    learning_rate : float
        eta_t, for the mean gradient.
    stage : int
        Number of the stage.
    clip : float or None
        Clip of the stage; None where something else decides it.
    values : mapping of str to float
        Values that the stage follows from, to be recorded when it begins.
    """

    learning_rate: float
    stage: int = 0
    clip: float | None = None
    values: Mapping[str, float] = field(default_factory=dict)


class Course(Protocol):
    """Course of a server from update to update; a pure function of public constants."""

    def at(self, update: int) -> Step:
        """Return what holds for ``update`` (from 0)."""
        ...


@dataclass(kw_only=True)
class CloudState(ServerState):
    """State of the server.

    ``working`` has the version that each edge computes at; ``held`` has gradients that came and wait to be applied, and
    ``queue`` requests that wait for a model, both in order of arrival. Those of edges that are ``away`` wait on.
    """

    log_clip: Model
    stage: int = -1
    working: dict[str, int] = field(default_factory=dict)
    held: dict[str, tuple[int, int, Any]] = field(default_factory=dict)
    queue: dict[str, int] = field(default_factory=dict)
    away: set[str] = field(default_factory=set)
    dropped: int = 0
    probing: bool = False


class ServerNode(ModelServer):
    """The cloud server: the model x_t, and who works at which version of it."""

    state: CloudState
    called, nobody = "edge", "all edges left"

    def __init__(
        self, context: Context, course: Course, staleness: StalenessSettings, optimizer: Optimizer = None
    ) -> None:
        clip = context.clipping.initial(context.initial)
        super().__init__(CloudState(x=context.initial, log_clip=clip), context)
        self.course, self.staleness, self.optimizer = course, staleness, optimizer
        counted = isinstance(self.clipping.policy, QuantileClip)
        self.expected = Public(Blank(context.initial.size + counted, context.initial.values.dtype))

    @on(Started)
    def start(self, event: Started, now: float) -> Effects:
        yield from super().start(event, now)
        yield from self.enter()

    def answer(self, edge: str, request: int) -> Effects:
        """Have an edge that comes, or comes back, wait for a model: what it was computing is lost."""
        s = self.state
        s.working.pop(edge, None)
        s.queue[edge] = request
        yield from self.go_on()

    def go_on(self) -> Effects:
        """Apply, first-in first-out, what may be applied, and answer who waits for a model."""
        yield from self.serve()
        while (edge := next(filter(self.due, self.state.held), None)) is not None and not self.state.finished:
            yield from self.take(edge)
            yield from self.serve()
        yield from self.watch()

    def serve(self) -> Effects:
        """Answer who waits for a model, as far as the bound on the staleness permits."""
        s = self.state
        most = self.staleness.most_under_way
        for edge, request in list(s.queue.items()):
            if edge in s.away:
                continue
            if not s.finished:
                if most is not None and len(s.working) + len(s.held) >= most:
                    return
                s.working[edge] = s.t
            yield from super().answer(edge, request)
            del s.queue[edge]

    @on(Push)
    def pushed(self, sender: str, push: Push, now: float) -> Effects:
        s = self.state
        self.checked(sender, push)
        if s.finished:
            return  # it has been told
        s.working.pop(sender, None)
        s.held[sender] = (push.request, push.version, push.update)
        yield from self.go_on()

    def take(self, edge: str) -> Effects:
        """Apply what ``edge`` pushed, or drop it; either way the edge is to get another model."""
        s = self.state
        request, version, gradient = s.held.pop(edge)
        bound, stale = self.staleness.enforced, s.t - version
        if bound is not None and stale > bound:
            s.dropped += 1
            yield Record("dropped_staleness", float(stale))
        else:
            yield from self.apply(gradient, stale)
        if edge not in s.working and edge not in s.queue and edge not in s.left:
            s.queue[edge] = request

    def due(self, edge: str) -> bool:
        s = self.state
        if self.staleness.on_stale != "wait":
            return True
        others = [*s.working.values(), *(version for other, (_, version, _) in s.held.items() if other != edge)]
        return self.staleness.may_apply(s.held[edge][1], others, s.t)

    def apply(self, gradient: Released, stale: int) -> Effects:
        """x_{t+1} = x_t - eta_t g~, with g~ a gradient at x_{t - stale}, or the optimizer's move."""
        s = self.state
        s.log_clip, step = self.clipping.moved(s.log_clip, gradient)
        s.memory, move = optimized(self.optimizer, s.memory, step)
        rate = self.course.at(s.t).learning_rate / (stale + 1) ** self.staleness.exponent
        s.x = (s.x - rate * move).within()
        s.t += 1
        s.note(stale)
        yield from self.enter()
        if s.t == self.last:
            yield from self.halt("updates")

    def enter(self) -> Effects:
        """Begin the stage of update t, if it is another one."""
        s = self.state
        step = self.course.at(s.t)
        if step.stage == s.stage:
            return
        s.stage = step.stage
        if step.clip is not None:
            s.log_clip = self.clipping.initial(s.x, step.clip)
        for name, value in step.values.items():
            yield Record(f"stage.{name}", value)

    @on(Leave)
    def leaves(self, sender: str, leave: Leave, now: float) -> Effects:
        self.check_member(sender)
        self.state.left.add(sender)
        self.state.queue.pop(sender, None)
        yield from self.forget(sender)
        yield from super().leaves(sender, leave, now)

    @on(PeerDown)
    def peer_down(self, event: PeerDown, now: float) -> Effects:
        """Nobody waits for it. If it waits for a model itself, it gets one when it is back."""
        self.state.away.add(event.peer)
        yield from self.forget(event.peer)

    @on(PeerUp)
    def peer_up(self, event: PeerUp, now: float) -> Effects:
        self.state.away.discard(event.peer)
        yield from self.go_on()

    def forget(self, edge: str) -> Effects:
        """Wait for ``edge`` no longer. What it pushed is still applied."""
        self.state.working.pop(edge, None)
        yield from self.go_on()

    def watch(self) -> Effects:
        """Find out after a while, where edges wait for others, whether those are alive."""
        s = self.state
        blocked = bool(s.held or s.queue.keys() - s.away) and not s.finished
        if blocked and not s.probing:
            yield SetTimer(self.staleness.patience, "probe")
        elif s.probing and not blocked:
            yield CancelTimer("probe")
        s.probing = blocked

    @on(Elapsed)
    def elapsed(self, event: Elapsed, now: float) -> Effects:
        if event.timer == "deadline":
            yield from self.halt("deadline")
            return
        self.state.probing = False
        for edge in sorted(self.state.working):
            yield Send(edge, Probe())
        yield from self.watch()

    @on(Resumed)
    def resume(self, event: Resumed, now: float) -> Effects:
        self.state.probing = False
        yield from super().resume(event, now)
        yield from self.watch()
