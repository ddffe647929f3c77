"""The one interpreter of what nodes ask for, and the loop of virtual time in which it happens.

A node's effects are carried out by four small things, wherever it lives: a *network* takes what it sends, a *clock* its
timers, a *home* what it asks of its data side, a *log* what it notes. `interpreter` says which of them takes what.

| world | network | clock | home | log |
|---|---|---|---|---|
| simulator, shards | `links.Post` | `Timers` | `computations.Computations` | the simulator |
| host, which first stores its inputs | its session | its own | noted, for when all is durable | noted, too |
| then, among faults | links that fail | - | `HeldBack`, before the computations | the laboratory |
| then, deployed | peers on a broker | - | `HeldBack`, before the data side's thread | the node's folder |

Events happen in order of virtual time, ties in order of scheduling, so a run depends on its inputs and nothing else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from heapq import heappop, heappush
from types import MethodType
from typing import Any, ClassVar, Protocol

from gossamer.protocol.effects import (
    CancelTimer,
    Compute,
    Finish,
    Interrupt,
    Record,
    Reject,
    Request,
    Send,
    SetTimer,
    Update,
)
from gossamer.protocol.session import Transmit
from gossamer.protocol.snapshots import Kept

CarryOut = Callable[[str, Any, float], None]
"""Does what a node asks for: (node, what, now)."""


class NodeNetwork(Protocol):
    """Takes what nodes send; of one that keeps a session, its frames."""

    def send(self, name: str, what: Any, now: float) -> None: ...


class NodeClock(Protocol):
    """Keeps the timers of nodes."""

    def set_timer(self, name: str, effect: SetTimer, now: float) -> None: ...
    def cancel_timer(self, name: str, effect: CancelTimer, now: float) -> None: ...


class DataSides(Protocol):
    """Home of what nodes ask their data sides."""

    def compute(self, name: str, effect: Compute, now: float) -> None: ...
    def update(self, name: str, effect: Update, now: float) -> None: ...
    def interrupt(self, name: str, effect: Interrupt, now: float) -> None: ...


class Log(Protocol):
    """Takes note of what nodes say of themselves and of others."""

    def record(self, name: str, effect: Record, now: float) -> None: ...
    def reject(self, name: str, effect: Reject, now: float) -> None: ...
    def finish(self, name: str, effect: Finish, now: float) -> None: ...


def requests(home: DataSides) -> dict[type, CarryOut]:
    """Return what carries out the requests to a data side, by kind."""
    return {Compute: home.compute, Update: home.update, Interrupt: home.interrupt}


def interpreter(
    network: NodeNetwork, home: DataSides, log: Log, clock: NodeClock | None = None
) -> dict[type, CarryOut]:
    """Return what carries out each kind of effect, and of outcome of a host; without a clock, of a host alone."""
    timers: dict[type, CarryOut] = {} if clock is None else {SetTimer: clock.set_timer, CancelTimer: clock.cancel_timer}
    sent = {Send: network.send, Transmit: network.send}
    return {**sent, **requests(home), **timers, Record: log.record, Reject: log.reject, Finish: log.finish}


def carry_out(does: Mapping[type, CarryOut], name: str, effects: Iterable[Any], now: float) -> None:
    """Carry out what a node asks for, in order."""
    for effect in effects:
        does[type(effect)](name, effect, now)


class HeldBack:
    """A home that is asked nothing while its node reaches nobody: that is asked later, in order.

    Parameters
    ----------
    holds : callable
        Whether the node, by name, reaches nobody at a time.
    ask : callable
        Takes a request to the data side.
    """

    def __init__(self, holds: Callable[[str, float], bool], ask: CarryOut) -> None:
        self._holds, self._ask = holds, ask
        self._held: dict[str, list[Request]] = {}

    def take(self, name: str, request: Request, now: float) -> None:
        if name in self._held or self._holds(name, now):
            self._held.setdefault(name, []).append(request)
        else:
            self._ask(name, request, now)

    compute = update = interrupt = take

    def look(self, name: str, now: float) -> None:
        """Ask what a node's data side was not asked, if it may be now."""
        if name in self._held and not self._holds(name, now):
            for request in self._held.pop(name):
                self._ask(name, request, now)

    def lose(self, name: str) -> None:
        """Forget what was held back of a node."""
        self._held.pop(name, None)


Action = Callable[[str, Any, float], None]
"""What happens at some time: (node, what, now)."""


def patience(nodes: int) -> int:
    """Most events without an update in a simulation of so many nodes that goes on."""
    return 100_000 + 1_000 * nodes


class VirtualLoop(Kept):
    """Lets things happen on a virtual clock, one a `step`.

    Parameters
    ----------
    start : float
        Seconds on the clock at which it begins.
    """

    changing: ClassVar[tuple[str, ...]] = ("now", "_scheduled", "_heap")
    engine = "simulator"
    """Name of the engine in a summary."""

    def __init__(self, start: float) -> None:
        self.start = self.now = start
        self._heap: list[tuple[Any, ...]] = []  # (time, order of scheduling, action, node, what)
        self._at_once: deque[tuple[Any, ...]] = deque()  # of these those that are due now: they need no sorting
        self._scheduled = 0

    @property
    def elapsed(self) -> float:
        """Virtual seconds since the start."""
        return round(self.now - self.start, 9)

    @property
    def next_time(self) -> float | None:
        """Virtual seconds since the start at which the next event happens; None if nothing is left to happen."""
        if self._at_once:
            return self.elapsed
        return round(self._heap[0][0] - self.start, 9) if self._heap else None

    def before_snapshot(self) -> None:
        self._heap += self._at_once
        self._heap.sort()  # a heap still, and the same one whenever snapshots were taken
        self._at_once.clear()

    def after_restore(self) -> None:
        heap: Any = self._heap
        self._heap = []  # of what is refused nothing stays
        self._at_once.clear()
        if type(heap) is not list:
            raise TypeError(f"expected a list of what is to happen, found {type(heap).__name__}")
        for _, _, action, _, _ in heap:
            if type(action) is not MethodType:
                raise TypeError(f"expected what happens, found {type(action).__name__}")
        self._heap = heap

    def step(self) -> None:
        """Let the next event happen."""
        heap, at_once = self._heap, self._at_once
        first = at_once and (not heap or at_once[0] < heap[0])
        self.now, _, action, name, what = at_once.popleft() if first else heappop(heap)
        action(name, what, self.now)

    def _schedule(self, time: float, action: Action, name: str, what: Any) -> None:
        self._scheduled = order = self._scheduled + 1
        if time == self.now:
            self._at_once.append((time, order, action, name, what))
        else:
            heappush(self._heap, (time, order, action, name, what))


class LoopPart(Kept):
    """Part of a loop: it has things happen at some time, and shows nodes events.

    Parameters
    ----------
    schedule : callable
        Has an action happen: (time, action, node, what).
    happen : callable
        Shows a node what has happened: (node, event).
    """

    def __init__(self, schedule: Callable[[float, Action, str, Any], None], happen: Callable[..., None]) -> None:
        self._schedule, self._happen = schedule, happen

    def close(self) -> None:
        """Let go of whom it shows events."""
        del self._schedule, self._happen


class Timers(LoopPart):
    """Moments at which something is due, by node and name: each comes once, unless it is lost or set anew before.

    Parameters
    ----------
    schedule : callable
        Has an action happen: (time, action, node, what).
    ring : callable
        Called when a moment has come: (node, name of the timer, now).
    """

    changing = ("_due",)
    acts = ("_ring",)

    def __init__(self, schedule: Callable[[float, Action, str, Any], None], ring: Action) -> None:
        super().__init__(schedule, ring)
        self._due: dict[tuple[str, str], float] = {}

    def set_timer(self, name: str, effect: SetTimer, now: float) -> None:
        self.set_for(name, effect.name, now + effect.after)

    def cancel_timer(self, name: str, effect: CancelTimer, now: float) -> None:
        self.cancel(name, effect.name)

    def set_for(self, name: str, timer: str, when: float) -> None:
        """Have a timer of a node ring at a time, and at no other."""
        self._due[name, timer] = when
        self._schedule(when, self._ring, name, timer)

    def due(self, name: str, timer: str) -> float | None:
        """Time at which a timer of a node rings, if it is set."""
        return self._due.get((name, timer))

    def cancel(self, name: str, timer: str) -> None:
        """Have a timer of a node ring no more."""
        self._due.pop((name, timer), None)

    def lose(self, name: str) -> None:
        """Forget the timers of a node."""
        self._due = {key: when for key, when in self._due.items() if key[0] != name}

    def _ring(self, name: str, timer: str, now: float) -> None:
        if self._due.get((name, timer)) == now:  # otherwise it was cancelled, or set anew
            del self._due[name, timer]
            self._happen(name, timer, now)
