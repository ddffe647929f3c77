"""Sessions, and nodes on top of them, joined by faulty links in virtual time.

Nothing here sleeps, or draws a random number while it runs.

    nodes = LinkedNodes([Gossiper("a"), Gossiper("b")], faults=seeded_faults(7))
    nodes.start()
    nodes.run(until=60.0)
    assert nodes["a"].state.model == ...
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gossamer.faults.schedules import DELAY, NetworkPartition
from gossamer.protocol.effects import CancelTimer, Effect, Send, SetTimer
from gossamer.protocol.events import Elapsed, Event, Started
from gossamer.protocol.messages import Frame, Message, decode_frame, encode_frame
from gossamer.protocol.node import Node
from gossamer.protocol.session import Output, Session, SessionSettings, Transmit
from gossamer.protocol.trace import TraceStep
from gossamer.randomness import stream


@dataclass(frozen=True)
class Faults:
    """Fates of the frames of a run, in the order in which they are transmitted.

    Attributes
    ----------
    fates : tuple of tuples of float
        Entry i lists the delays, in seconds, after which the copies of frame i arrive: none for a loss, two for
        a duplicate. Different delays reorder frames.
    partitions : tuple of NetworkPartition
        Partitions that say who cannot reach whom, and when.
    delay : float
        Seconds that every frame after the last of ``fates`` takes.
    """

    fates: tuple[tuple[float, ...], ...] = ()
    partitions: tuple[NetworkPartition, ...] = ()
    delay: float = DELAY

    def delays(self, index: int, sender: str, to: str, now: float) -> tuple[float, ...]:
        """Seconds from ``now``, when frame ``index`` is put on the link, until each of its copies arrives."""
        if any(partition.cuts(sender, to, now) for partition in self.partitions):
            return ()
        return self.fates[index] if index < len(self.fates) else (self.delay,)


NO_FAULTS = Faults()


def seeded_faults(
    seed: int,
    *,
    frames: int = 1000,
    loss: float = 0.2,
    duplicate: float = 0.1,
    longest_delay: float = 2.0,
) -> Faults:
    """A schedule for ``frames`` frames: each is lost or duplicated with these probabilities.

    Delays are uniform up to ``longest_delay`` seconds.
    """
    generator = stream(seed, "faults")
    copies = generator.choice([0, 1, 2], frames, p=[loss, 1 - loss - duplicate, duplicate])
    return Faults(tuple(tuple(generator.uniform(0, longest_delay, count).tolist()) for count in copies))


@dataclass(frozen=True)
class Transmission:
    """A frame was put on the link at ``at`` (seconds); its copies arrive after ``delays``."""

    at: float
    sender: str
    to: str
    frame: Frame
    delays: tuple[float, ...]


class Network:
    """Sessions joined by faulty links, in virtual time.

    Parameters
    ----------
    names : iterable of str
        One session each.
    settings : SessionSettings
        Of all sessions.
    faults : Faults
        What becomes of their frames, which travel encoded.
    on_event : callable, optional
        Called with a name and what its session delivers or reports.

    Attributes
    ----------
    now : float
        Virtual time, in seconds.
    sessions : dict of str to Session
        May be replaced between runs, as by a restart.
    events : list of (float, str, Event)
        When, at which name, and what: all that was delivered and reported.
    transmissions : list of Transmission
        Everything that was put on a link.
    """

    def __init__(
        self,
        names: Iterable[str],
        settings: SessionSettings,
        faults: Faults = NO_FAULTS,
        on_event: Callable[[str, Event], None] | None = None,
    ) -> None:
        self.now = 0.0
        self.sessions = {name: Session(name, settings) for name in names}
        self.faults = faults
        self.events: list[tuple[float, str, Event]] = []
        self.transmissions: list[Transmission] = []
        self._on_event = on_event
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._queued = 0
        self._cancelled: set[int] = set()

    def send(self, sender: str, to: str, message: Message) -> None:
        """Send ``message`` now."""
        self._carry_out(sender, self.sessions[sender].send(to, message, self.now))

    def call(self, after: float, action: Callable[[], None]) -> int:
        """Call ``action`` in ``after`` seconds; the number returned is for `cancel`."""
        self._queued += 1
        heapq.heappush(self._queue, (self.now + after, self._queued, action))
        return self._queued

    def cancel(self, number: int) -> None:
        """Forget a `call` that has not been made yet."""
        self._cancelled.add(number)

    def run(self, until: float = math.inf) -> None:
        """Let time pass until ``until`` (seconds), or until nothing is left to happen."""
        while (at := self._next()) <= until and at < math.inf:
            self.now = at
            if self._queue and self._queue[0][0] == self.now:
                heapq.heappop(self._queue)[2]()
            else:
                for name, session in self.sessions.items():
                    self._carry_out(name, session.wake(self.now))
        if until < math.inf:
            self.now = until

    def _next(self) -> float:
        while self._queue and self._queue[0][1] in self._cancelled:
            self._cancelled.remove(heapq.heappop(self._queue)[1])
        deadlines = [deadline for session in self.sessions.values() if (deadline := session.deadline()) is not None]
        return min([*deadlines, *(at for at, _, _ in self._queue[:1])], default=math.inf)

    def _carry_out(self, name: str, outputs: list[Output]) -> None:
        for output in outputs:
            match output:
                case Transmit(to, frame):
                    self._carry(name, to, frame)
                case event:
                    self._happen(name, event)

    def _happen(self, name: str, event: Event) -> None:
        self.events.append((self.now, name, event))
        if self._on_event is not None:
            self._on_event(name, event)

    def _carry(self, sender: str, to: str, frame: Frame) -> None:
        delays = self.faults.delays(len(self.transmissions), sender, to, self.now)
        self.transmissions.append(Transmission(self.now, sender, to, frame, delays))
        data = encode_frame(frame)
        for delay in delays:
            self.call(delay, lambda: self._arrive(sender, to, data))

    def _arrive(self, sender: str, to: str, data: bytes) -> None:
        self._carry_out(to, self.sessions[to].receive(sender, decode_frame(data), self.now))


SETTINGS = SessionSettings(retry_after=1.0, longest_retry=8.0, silence=20.0)
"""Fit for links whose delays are below a second."""


class LinkedNodes:
    """Nodes that talk over faulty links, in virtual time.

    Parameters
    ----------
    nodes : iterable of Node
        With different names.
    faults : Faults
        What becomes of the frames between them.
    settings : SessionSettings
        Of their sessions.
    answer : callable, optional
        Called with a node's name and each effect that is no message and no timer, such as `Compute`; the event
        it returns, if any, happens to the node next.

    Attributes
    ----------
    network : Network
        What joins the nodes.
    trace : list of TraceStep
        All events and effects so far.
    """

    def __init__(
        self,
        nodes: Iterable[Node],
        faults: Faults = NO_FAULTS,
        settings: SessionSettings = SETTINGS,
        answer: Callable[[str, Effect], Event | None] | None = None,
    ) -> None:
        self._nodes = {node.name: node for node in nodes}
        self.network = Network(self._nodes, settings, faults, self.handle)
        self.trace: list[TraceStep] = []
        self._answer = answer
        self._timers: dict[tuple[str, str], int] = {}

    def __getitem__(self, name: str) -> Node:
        return self._nodes[name]

    def start(self) -> None:
        """Let all nodes start now."""
        for name in self._nodes:
            self.handle(name, Started())

    def run(self, until: float = math.inf) -> None:
        """Let time pass until ``until`` (seconds), or until nothing is left to happen."""
        self.network.run(until)

    def handle(self, name: str, event: Event) -> None:
        """Let ``event`` happen to a node now, and carry out what it asks for."""
        effects = self._nodes[name].handle(event, self.network.now)
        self.trace.append(TraceStep(self.network.now, name, event, effects))
        for effect in effects:
            self._carry_out(name, effect)

    def _carry_out(self, name: str, effect: Effect) -> None:
        match effect:
            case Send(to, message):
                self.network.send(name, to, message)
            case SetTimer(after, timer):
                self._set_timer(name, timer, after)
            case CancelTimer(timer):
                self._cancel_timer(name, timer)
            case _ if self._answer is not None and (event := self._answer(name, effect)) is not None:
                answer = event
                self.network.call(0.0, lambda: self.handle(name, answer))

    def _set_timer(self, name: str, timer: str, after: float) -> None:
        def elapse() -> None:
            del self._timers[name, timer]
            self.handle(name, Elapsed(timer))

        self._cancel_timer(name, timer)
        self._timers[name, timer] = self.network.call(after, elapse)

    def _cancel_timer(self, name: str, timer: str) -> None:
        if (name, timer) in self._timers:
            self.network.cancel(self._timers.pop((name, timer)))
