"""A discrete-event simulator: the nodes that would be deployed, on a virtual clock.

Events happen in order of virtual time, ties in order of scheduling, so a run depends on its inputs and nothing
else. The clock starts at an offset drawn from the seed, so that nobody takes it for another clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from heapq import heappop

from gossamer.algorithms.context import InFlight, Staleness
from gossamer.errors import PeerError, SpecError
from gossamer.protocol.effects import Finish, Record, Reject, Send
from gossamer.protocol.events import Elapsed, Event, Resumed, Started, Stop
from gossamer.protocol.node import Node
from gossamer.protocol.snapshots import Kept
from gossamer.protocol.trace import TraceStep
from gossamer.runtimes.activity import Activity
from gossamer.runtimes.computations import Computations, Counters
from gossamer.runtimes.hostile import lying
from gossamer.runtimes.links import Post
from gossamer.runtimes.loop import Timers, VirtualLoop, interpreter, patience
from gossamer.runtimes.speeds import Speeds
from gossamer.runtimes.world import Absences, World, clock_start
from gossamer.sides.machine import Computer


class Simulator(VirtualLoop):
    """Runs nodes on a virtual clock, one event a `step`.

    Parameters
    ----------
    nodes : mapping of str to Node
        Nodes by name, in the order of their numbers.
    computer : Computer
        The data sides.
    world : World
        Speeds, links, faults.
    watch : callable, optional
        Called with every `TraceStep`; what writes a trace.
    record : callable, optional
        Called with (virtual seconds, node, name, value) for every entry of a node's private log: its `Record` effects,
        and how many gradients were not finite.
    count : callable, optional
        Number of updates the servers, by name, have made, where a computation is not one.
    staleness : callable, ``"computing"`` or None
        Way in which the staleness of updates is measured.
    """

    changing = (
        *VirtualLoop.changing,
        *("finished", "gone", "activity", "_working", "_begun", "_down", "_settling", "_idle", "_enough_at"),
        *("_timers", "_absences", "_computations", "_post", "nodes", "computer"),
    )
    acts = ("_begin", "_leave", "_come_back")

    def __init__(
        self,
        nodes: Mapping[str, Node],
        computer: Computer,
        world: World,
        *,
        watch: Callable[[TraceStep], None] | None = None,
        record: Callable[[float, str, str, float], None] | None = None,
        count: Callable[[Mapping[str, Node]], int] | None = None,
        staleness: Staleness = None,
    ) -> None:
        super().__init__(clock_start(world.seed))
        self.nodes = dict(nodes)
        self.workers = tuple(name for name in nodes if name not in world.servers)
        self.computer = computer
        self.world = world
        self.counters = Counters()
        self.finished: dict[str, str] = {}
        self.gone: set[str] = set()  # nodes that crashed, and will not come back
        self.activity = Activity(self.nodes, self.start, staleness)
        names = tuple(nodes)
        self._numbers = {name: number for number, name in enumerate(self.workers)}
        self._working = set(self.workers)  # who may compute again
        speeds = Speeds(world.speeds, len(self.workers), world.seed)
        does = self._schedule, self._happen
        told, counts = world.told, count is None
        self._computations = Computations(
            computer, speeds, self._numbers, world.width, self.counters, *does, self.record, self.activity, told, counts
        )
        self._watch, self._record, self._count = watch, record, count
        self._servers = {name: self.nodes[name] for name in world.servers}
        self._timers = Timers(self._schedule, self._ring)
        self._begun: set[str] = set()
        self._down: dict[str, float] = {}
        self._settling: float | None = None
        self._idle = 0  # events since the last update
        self._enough_at: float | None = None
        self._absences = Absences(names, self.workers, world)
        lossy = world.faults.away or not world.links.reliable
        self._post = Post(names, world.links, lossy, world.seed, self.start, *does, world.units, self.activity)
        self._does = interpreter(self._post, self._computations, self, self._timers)
        hostile = world.faults.hostile
        self._liars = frozenset() if hostile is None else frozenset(names[number] for number in hostile.nodes)
        if hostile is not None:
            self._does[Send] = lying(self._does[Send], hostile, self._liars, world.units, world.seed)
        for name in world.servers:
            self._schedule(self.start, self._begin, name, None)
        for name, start in zip(self.workers, speeds.starts, strict=True):
            self._schedule(self.start + float(start), self._begin, name, None)
        self._schedule_absences(self._absences.first())

    # What an observer may ask

    @property
    def goes_on(self) -> bool:
        """Whether anything is left to happen that somebody waits for."""
        return bool(self._heap or self._at_once) and (bool(self._working) or not self.settled)

    @property
    def present(self) -> dict[str, Node]:
        """The nodes that are there, or will come back, and do not lie; all of them if none is."""
        lost = self.gone | self._liars
        return {name: node for name, node in self.nodes.items() if name not in lost} or self.nodes

    @property
    def messages(self) -> int:
        """Messages transmitted so far; with sessions, frames, retransmissions and acknowledgements included."""
        return self._post.messages

    @property
    def bytes(self) -> int:
        """Bytes transmitted so far."""
        return self._post.bytes

    @property
    def in_flight(self) -> list[InFlight]:
        """Messages that were sent and have not been received."""
        return self._post.in_flight([*self._heap, *self._at_once])

    @property
    def settled(self) -> bool:
        """Whether nobody that is up will compute again or waits for its data side, and what was sent has come, or never
        will."""
        if self._working or any(self._computations.pending(name) for name in self._servers.keys() - self.finished):
            return False
        if self._settling is None:
            self._settling = self.now
        return not self._post.under_way or self.now - self._settling > self.grace

    @property
    def grace(self) -> float:
        """Seconds in which word of the run's end gets to all that can be reached: two silences for each server that it
        may have to pass."""
        return 2 * self.world.links.silence * max(1, len(self.world.servers))

    @property
    def is_told(self) -> bool:
        """Whether all that can be told of the end have had the time to hear of it; asked once there are updates enough.

        A server that halts the run has the time to tell everybody.
        """
        if self._enough_at is None:
            self._enough_at = self.elapsed
        return self.elapsed >= self._enough_at + (self.grace if self._count is not None else 0.0)

    @property
    def stalled(self) -> bool:
        """Whether things go on and on without an update."""
        return self._idle > patience(len(self.nodes))

    def advance(self, *, updates: int | None = None, seconds: float | None = None, one: bool = False) -> None:
        """Let some events happen, but not beyond an update; one where somebody looks at times, or waits for the end."""
        made = self.counters.updates
        singly = one or seconds is not None or (updates is not None and made >= updates)
        happened = self.proceed(1 if singly else min(100, patience(len(self.nodes)) + 1 - self._idle))
        self._idle = 0 if self.counters.updates != made else self._idle + happened

    def proceed(self, most: int) -> int:
        """Let the next events happen, up to ``most`` of them and to the next update or call of the data sides, which
        may take long; how many did."""
        heap, at_once, working, counters, happened = self._heap, self._at_once, self._working, self.counters, 0
        before, calls = counters.updates, counters.calls
        while (
            (happened < most and counters.updates == before and counters.calls == calls)
            and (heap or at_once)
            and (working or not self.settled)
        ):
            # Not by way of `step`: nothing else happens as often.
            first = at_once and (not heap or at_once[0] < heap[0])
            self.now, _, action, name, what = at_once.popleft() if first else heappop(heap)
            action(name, what, self.now)
            happened += 1
        return happened

    def stop(self, reason: str) -> None:
        """Tell every node that the run ends here."""
        for name in self.nodes:
            if name not in self._down:
                self._happen(name, Stop(reason))

    def close(self) -> None:
        """Let nothing happen any more; what it was is still there to ask for.

        Its parts are handed what it does, a circle in which a run with its examples would stay in memory until Python
        looks for such.
        """
        self._heap.clear()
        self._at_once.clear()
        self._does.clear()
        for part in (self._timers, self._post, self._computations):
            part.close()

    def before_snapshot(self) -> None:
        if not isinstance(self.computer, Kept):
            raise SpecError(f"the state of {type(self.computer).__name__} cannot be kept; run without checkpoints")
        super().before_snapshot()

    # Events

    def _begin(self, name: str, _: None, now: float) -> None:
        if name not in self._down:
            self._begun.add(name)
            self._happen(name, Started())

    def _happen(self, name: str, event: Event) -> None:
        """A node sees an event, and its effects are carried out."""
        self.counters.events += 1
        now, does = self.now, self._does
        try:
            effects = self.nodes[name].handle(event, now)
        except PeerError:
            self.counters.rejected += 1
            return
        if self._watch is not None:
            self._watch(TraceStep(now, name, event, effects))
        for effect in effects:
            does[type(effect)](name, effect, now)
        if self._count is not None and name in self._servers:
            self.counters.updates = self._count(self._servers)

    def _ring(self, name: str, timer: str, now: float) -> None:
        self._happen(name, Elapsed(timer))

    # Records, the end

    def record(self, name: str, effect: Record, now: float) -> None:
        if self._record is not None:
            self._record(self.elapsed, name, effect.name, effect.value)

    def reject(self, name: str, effect: Reject, now: float) -> None:
        self.counters.rejected += 1

    def finish(self, name: str, effect: Finish, now: float) -> None:
        self.finished[name] = effect.reason
        self._working.discard(name)

    # Absences

    def _schedule_absences(self, absences: Iterator[tuple[str, float, float | None]]) -> None:
        for name, start, end in absences:
            self._schedule(self.start + start, self._leave, name, end)
            if end is not None:
                self._schedule(self.start + end, self._come_back, name, None)

    def _leave(self, name: str, end: float | None, now: float) -> None:
        """The node keeps its state and loses its computations and timers; what they were charged stays charged."""
        self._down[name] = now
        self.activity.leaves(name, now)
        self._post.leave(name)
        if end is None:
            self.gone.add(name)
            self._working.discard(name)
        self._computations.lose(name)
        self._timers.lose(name)

    def _come_back(self, name: str, _: None, now: float) -> None:
        downtime = now - self._down.pop(name)
        self.activity.came_back(name, now)
        self._post.come_back(name, now)
        if name in self._begun:
            self._happen(name, Resumed(downtime))
        else:
            self._begin(name, None, now)
        self._schedule_absences(self._absences.next(name))
