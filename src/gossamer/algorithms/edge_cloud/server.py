"""The cloud server of edge-cloud learning: it applies gradients first-in first-out, answers at once, and holds no data.

What it does at update t (learning rate, clip) is its *course*; `edge_cloud` and `mapa` differ in nothing else. It waits
for nobody, unless it keeps a bound on the staleness, and then not for edges that are known to be away.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from gossamer.algorithms.context import Context
from gossamer.algorithms.edge_cloud.messages import SERVER, Halt, Leave, Newest, Pull, Push
from gossamer.algorithms.ending import EndingNode
from gossamer.algorithms.optimizer import Memory, Optimizer
from gossamer.algorithms.optimizer import step as optimized
from gossamer.algorithms.staleness import StalenessSettings
from gossamer.algorithms.worker import Probe
from gossamer.errors import PeerError
from gossamer.privacy.clipping import Clipping, QuantileClip
from gossamer.protocol.effects import CancelTimer, Finish, Record, Send, SetTimer
from gossamer.protocol.events import Elapsed, PeerDown, PeerUp, Resumed, Started, Stop
from gossamer.protocol.messages import check_model
from gossamer.protocol.node import Effects, on
from gossamer.vectors import Blank, Model, Public, Released


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
        Of the stage; None where something else decides it.
    values : mapping of str to float
        What the stage follows from, to be recorded when it begins.
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


@dataclass
class ServerState:
    """State of the server.

    ``working`` has the version that each edge computes at; ``held`` has gradients that came and wait to be applied, and
    ``queue`` requests that wait for a model, both in order of arrival. Those of edges that are ``away`` wait on.
    ``memory`` is the optimizer's.
    """

    x: Model
    log_clip: Model
    t: int = 0
    stage: int = -1
    working: dict[str, int] = field(default_factory=dict)
    held: dict[str, tuple[int, int, Released]] = field(default_factory=dict)
    queue: dict[str, int] = field(default_factory=dict)
    left: set[str] = field(default_factory=set)
    away: set[str] = field(default_factory=set)
    staleness_sum: int = 0
    staleness_most: int = 0
    dropped: int = 0
    probing: bool = False
    ends: float | None = None
    finished: str = ""
    memory: Memory | None = None


class ServerNode(EndingNode):
    """The cloud server: the model x_t, and who works at which version of it."""

    state: ServerState

    def __init__(
        self, context: Context, course: Course, staleness: StalenessSettings, optimizer: Optimizer = None
    ) -> None:
        self.clipping: Clipping = context.clipping
        super().__init__(SERVER, ServerState(context.initial, self.clipping.initial(context.initial)))
        self.edges = frozenset(context.names)
        self.course, self.staleness, self.optimizer = course, staleness, optimizer
        self.last, self.deadline = context.updates, context.deadline
        counted = isinstance(self.clipping.policy, QuantileClip)
        self.answer = Public(Blank(context.initial.size + counted, context.initial.values.dtype))

    @on(Started)
    def start(self, event: Started, now: float) -> Effects:
        yield from self.set_deadline(now)
        yield from self.enter()

    @on(Pull)
    def pulled(self, sender: str, pull: Pull, now: float) -> Effects:
        s = self.state
        self.only_from_edges(sender)
        s.left.discard(sender)
        s.working.pop(sender, None)  # the edge came back, and what it was computing is lost
        s.queue[sender] = pull.request
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
            if s.finished:
                yield Send(edge, Halt(s.t, s.x))
            elif most is None or len(s.working) + len(s.held) < most:
                s.working[edge] = s.t
                yield Send(edge, Newest(request, s.t, s.stage, s.log_clip, s.x))
            else:
                return
            del s.queue[edge]

    @on(Push)
    def pushed(self, sender: str, push: Push, now: float) -> Effects:
        s = self.state
        self.only_from_edges(sender)
        check_model(push.gradient, self.answer)
        if not 0 <= push.version <= s.t:
            raise PeerError(f"{sender} pushes a gradient at version {push.version}, expected 0 to {s.t}")
        if s.finished:
            return  # it has been told
        s.working.pop(sender, None)
        s.held[sender] = (push.request, push.version, push.gradient)
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
        s.staleness_sum += stale
        s.staleness_most = max(s.staleness_most, stale)
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
        s = self.state
        self.only_from_edges(sender)
        s.left.add(sender)
        s.queue.pop(sender, None)
        yield from self.forget(sender)
        if s.left >= self.edges:
            yield from self.halt("all edges left")

    @on(PeerDown)
    def peer_down(self, event: PeerDown, now: float) -> Effects:
        """Nobody waits for it. If it waits for a model itself, it gets one when it is back."""
        self.state.away.add(event.peer)
        yield from self.forget(event.peer)

    @on(PeerUp)
    def peer_up(self, event: PeerUp, now: float) -> Effects:
        self.state.away.discard(event.peer)
        yield from self.go_on()

    def only_from_edges(self, sender: str) -> None:
        """Refuse what a stranger sends."""
        if sender not in self.edges:
            raise PeerError(f"{sender} is no edge of this server")

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
        """Timers are gone."""
        self.state.probing = False
        yield from self.reset_deadline(now)
        yield from self.watch()

    @on(Stop)
    def stop(self, event: Stop, now: float) -> Effects:
        yield from self.halt(event.reason)

    def halt(self, reason: str) -> Effects:
        """End the run: every edge gets the last model."""
        s = self.state
        if s.finished:
            return
        s.finished = reason
        for edge in sorted(self.edges):
            yield Send(edge, Halt(s.t, s.x))
        yield Finish(reason)
