"""Deployed parties in virtual time, whom an organiser gives orders while frames are lost and processes are killed.

    python -m tests.reference.ordered_parties 0:2000 [order ...]

tries so many seeds of each order. What runs is `run_party` as it is deployed, with its meeting of neighbours, turns,
sealed channels, orders on disk and what it does about them. Only its doors to the world are others: the clock, the
network, the papers, the journal, and the thread of the data side. Each process is a thread, of which one runs at a time
and hands over wherever it would wait; so nothing here depends on how threads are scheduled, and a seed is a seed.

Frames are lost, late and doubled, parties are cut off from each other, and processes are killed between any two things
that last or that others see, among them an order on disk, and come back. Of `faults.checks` those hold that do not
depend on what a broker lets pass, and beside them what `Orders` is for:

- what a removed party says is taken by nobody who has said that he knows of it, not after a kill either, though the
  party may run a program of its own that takes no order;
- nothing is charged or taken while a party is paused, or charged once it knows of its end, not after a kill either,
  nor the plan of a run that it has not begun;
- there is a charge for each draw of noise, and no more charges than draws and kills;
- each party ends, unless somebody for whom it waits never comes back, or all have left before it could hear so.
"""

from __future__ import annotations

import math
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from heapq import heappop, heappush
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.reference.linked_peers import identity, member

from gossamer.deployment.party import party as deployed
from gossamer.deployment.party.reach import PeerReach
from gossamer.deployment.peers.peers import Peers
from gossamer.experiment.specs.spec_file import parse_spec
from gossamer.faults.checks import Answers, Conserved, Delivery, WatchedSides
from gossamer.faults.hosts import Killed, MemoryJournal, Reaper, fresh
from gossamer.faults.schedules import FRAMES, SETTINGS, Crash, FaultSchedule
from gossamer.faults.trials import Disk, Ledgers, SmallRun, laboratory, small_runs
from gossamer.keys import orders as kept_orders
from gossamer.keys.orders import PAUSE, REMOVE, REMOVED, RESUME, STOP, STOPPED, Order, Orders
from gossamer.protocol.encoding import decode
from gossamer.protocol.events import Completed, Received
from gossamer.protocol.messages import may_hear
from gossamer.protocol.transports import Datagram
from gossamer.randomness import stream
from gossamer.runtimes.host import Host
from gossamer.sides.machine import Side

BEGAN, FAULTS, LONGEST = 1000.0, 60.0, 900.0
"""Seconds on the clock at the beginning; how long after that there are new faults; and until when all have ended."""
SPREAD = 4
"""Turns of processes to one event of a schedule: they wake once a second, whatever happens."""
TASK, SLOW = 2.0, 4.0
"""Seconds that a task takes, and how many times longer at the first party."""
SEEN = {
    STOP: (STOPPED, "killed"),
    "remove": (REMOVED, "dropped of who was removed", "killed"),
    PAUSE: ("waits", "killed while it waits", "killed"),
    "second run": ("finished", "killed"),
}
"""Kinds of seeds, and what there has to be among many of each."""
KINDS = tuple(SEEN)
ORGANISER = identity("organiser")


class Ended(BaseException):
    """The laboratory is closed."""


@dataclass
class Options:
    """Options of a party, as far as it looks at them here."""

    lab: Laboratory
    name: str
    number: int  # of the run
    wait: float = 5.0
    gone_after: float = 40.0
    rehearse: bool = False
    quiet: bool = True
    believe_store: bool = False
    key: None = None

    @property
    def part(self) -> Part:
        return self.lab.parts[self.number]

    @property
    def state(self) -> Path:
        return self.part.folder / self.name

    folder = file = state


class Seen(Host):
    """A host that others see change."""

    def __init__(self, part: Part, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._part = part

    def turn(self, inputs: Any) -> Any:
        self._part.changed.add(self.node.name)
        return super().turn(inputs)


class Part:
    """One run: its parties' journals and data sides, and what must hold of them; as checks of faults look at hosts."""

    def __init__(self, lab: Laboratory, number: int, run: SmallRun, file: Any) -> None:
        self.lab, self.run, self.name = lab, run, f"{number:032x}"
        self.folder = lab.folder / str(number)
        ledgers = Ledgers(file, run, lab.reaper)
        self.sides = WatchedSides(run.pool(laboratory(ledgers), Side), ledgers.charged, run.private)
        self.ledgers = ledgers
        self.journals = {name: MemoryJournal(reaper=lab.reaper) for name in run.names}
        self.settings = run.chunked if lab.schedule.chunks else SETTINGS
        self.stored: set[str] = set()
        self.hosts = {name: self.host(name, MemoryJournal()) for name in run.names}
        self.steps: list[Any] = []
        self.changed: set[str] = set()
        self.believed: list[Any] = []
        self.kills = Counter[str]()
        self.removals: dict[str, set[str]] = {name: set() for name in run.names}  # of which a party said that it knows
        self.over, self.ending, self.paused = set[str](), set[str](), set[str]()
        self.entered = set[str]()  # whose plan is in a ledger
        self.newest = dict.fromkeys(run.names, (0, ""))  # pause, or end of one, that a party said it knows
        self.several = True
        algorithm, names = run.prepared.algorithm, run.prepared.names
        self.checks = [
            self.sides,
            Delivery(self),  # type: ignore[arg-type]
            Answers(self, algorithm, run.names[len(names) :], run.averaged, run.private),  # type: ignore[arg-type]
            Conserved(self, algorithm),  # type: ignore[arg-type]
            self._of_orders,
        ]
        for name in run.names:
            (self.folder / name).mkdir(parents=True)

    def __getitem__(self, name: str) -> Host:
        return self.hosts[name]

    @property
    def away(self) -> set[str]:
        return self.lab.away

    @property
    def nodes(self) -> dict[str, Any]:
        return {name: host.node for name, host in self.hosts.items()}

    def links(self, name: str) -> Any:
        return self.hosts[name].session.links

    def host(self, name: str, journal: MemoryJournal, watch: Any = None) -> Host:
        hears = partial(may_hear, self.run.prepared.units, name)
        node = fresh(self.run.nodes[name])
        return Seen(self, node, self.settings, journal, every=self.lab.schedule.every, watch=watch, may_hear=hears)

    def enter(self, name: str) -> None:
        """A party's plan enters its ledger, as it does at each start, and is charged the first time."""
        process = self.lab.at_work
        self.lab.reaper("entering a plan")
        if name not in self.entered:
            process.computed = True
            known = process.orders.known
            if REMOVE + name in known or (STOP in known and self.lab.may_stop.get(name, True)):
                self.lab.problem = f"{name} has its plan charged, and knew before it began that its part is over"
            self.entered.add(name)
        self.lab.reaper("having entered a plan")

    def found(self) -> str | None:
        """What does not hold after a turn."""
        problem = next((found for check in self.checks if (found := check(self.steps))), None)
        self.steps.clear()
        self.changed.clear()
        return problem

    def _of_orders(self, steps: Sequence[Any]) -> str | None:
        """Find who does what orders forbid; of who was at work just now, also what is charged for nothing."""
        process = self.lab.at_work
        me = process.name
        for step in steps:
            if isinstance(step.event, Received) and step.event.sender in self.removals[step.node]:
                return f"{step.node} takes a message of {step.event.sender}, and has said that it knows of its removal"
        if process.part is not self:
            return None
        if me in self.over | self.ending and (
            process.computed or any(isinstance(step.event, Completed) for step in steps)
        ):
            return f"{me} goes on, and its part is over, or it has said that it knows of its end"
        if process.computed and self.run.private:
            charged, drawn, kills = self.ledgers.charged(me), len(self.sides.drawn[me]), self.kills[me]
            if charged is not None and charged > drawn + kills:
                return f"{me} has {charged} releases charged, for {drawn} draws of noise and {kills} kills"
        waited = me in self.paused
        if process.orders is not None and not process.dies:  # who died while it took an order has told nobody
            self.removals[me] |= set(process.orders.removed) - {me}
            if (STOP in process.orders.known and self.lab.may_stop.get(me)) or REMOVE + me in process.orders.known:
                self.ending.add(me)
            self.newest[me] = max(self.newest[me], process.orders.newest)
            asked = self.newest[me][1] == PAUSE and not self.hosts[me].finished
            waits = asked and self.lab.may_stop.get(me) is not False
            (self.paused.add if waits else self.paused.discard)(me)
        # What it has heard since, and was killed before it told anybody.
        goes_on = process.orders is not None and process.orders.newest > max(self.newest[me], (0, RESUME))
        goes_on = goes_on and process.orders.newest[1] == RESUME
        if waited and me in self.paused and not goes_on and (process.computed or steps):
            return f"{me} takes part, and has said that it is paused"
        self.lab.seen["waits"] += me in self.paused and not waited
        return None


def _baton() -> Any:
    """What one thread hands to another."""
    found = threading.Lock()
    found.acquire()
    return found


class Process:
    """One party's process, with all that it has of the world."""

    connected, anew, reason = True, False, ""

    def __init__(self, lab: Laboratory, name: str) -> None:
        self.lab, self.name = lab, name
        self.inbox: deque[Datagram] = deque()
        self.orders: Any = None
        self.peers: Any = None
        self.peerreach: Any = None
        self.worker: Worker | None = None
        self.part: Part | None = None
        self.counts: Counter[str] = Counter()
        self.over, self.closed, self.took = False, False, False
        self.computed = False  # or had its plan charged
        self._waits = self.ended = 0  # runs in which its part is over
        self.error: BaseException | None = None
        self._go = _baton()
        self.dies = ""
        threading.Thread(target=self._live, daemon=True).start()

    def _live(self) -> None:
        self._go.acquire()
        try:
            for number, part in enumerate(self.lab.parts):
                if number == len(self.lab.parts) - 1 or self.name not in part.over:  # as `gossamer node --run` does
                    self.orders, self.worker, self.part = None, None, part
                    deployed.run_party(Options(self.lab, self.name, number))  # type: ignore[arg-type]
                self.ended += 1
        except Killed as killed:
            self.dies = str(killed)
        except Ended:
            pass
        except BaseException as error:
            self.error = error
        self.over = True
        self.lab.turn_over.release()

    def turn(self) -> None:
        """Have it go on until it waits, or ends."""
        self._go.release()
        self.lab.turn_over.acquire()

    @property
    def is_dead(self) -> bool:
        """Whether it was killed, and all that still happens in its thread is what the language tidies up."""
        left = self.lab.reaper.left
        return self.closed or bool(self.dies) or (left is not None and left < 0)

    # Its transport

    def receive(self, patience: float) -> Datagram | None:
        if self.inbox:
            self.took = True
            return self.inbox.popleft()
        if patience == 0.0 and self.took:
            self.took = False
            return None
        self.took = False
        self._waits += 1
        self.lab.at(self.lab.now + patience + 1e-6, self.rings, self._waits)
        self.lab.turn_over.release()
        self._go.acquire()
        if self.closed:
            raise Ended
        if self.dies:
            raise Killed(self.dies)
        return self.inbox.popleft() if self.inbox else None

    def rings(self, wait: int | None) -> None:
        """The time is over for which it waits, or its data side is done."""
        if wait in (None, self._waits) and self.lab.processes.get(self.name) is self and not self.over:
            self.lab.has_turn(self)

    def send(self, to: str, payload: bytes) -> bool:
        self.lab.reaper("putting a datagram on the link")
        assert self.part is not None
        self.lab.transmit(self.part.name, self.name, to, payload)
        return True

    def wake(self) -> None:
        """It runs anyway."""

    def refusal(self, to: str) -> str:
        return ""

    def unconfirmed(self, seconds: float) -> str:
        return ""

    def waits(self, to: str) -> float | None:
        return None

    def reconnect(self, why: str) -> None:
        """It is as good as it was."""

    flush = reconnect

    def close(self) -> None:
        """Nothing is left of it."""


class Worker:
    """A data side's thread in virtual time: what it is at is charged and drawn when that is done."""

    def __init__(self, tasks: Any, wake: Callable[[], None]) -> None:
        self._tasks, self._process = tasks, wake.__self__  # type: ignore[attr-defined]
        self._process.worker, self._lab = self, self._process.lab
        self._asked: deque[Any] = deque()
        self._found: list[Any] = []
        self._due, self._stopped = math.inf, False

    @property
    def busy(self) -> bool:
        return math.isfinite(self._due)

    def ask(self, request: Any) -> None:
        if not self._stopped:
            self._asked.append(request)
            if not self.busy:
                self._begin()

    def _begin(self) -> None:
        self._due = math.inf
        if self._asked:
            self._due = self._lab.now + TASK * (SLOW if self._process.name == "node-0" else 1.0)
            self._lab.at(self._due, self._process.rings, None)

    def _compute(self) -> None:
        self._process.computed = True
        self._found += self._tasks.ask(self._asked.popleft())

    def done(self) -> list[Any]:
        if self._lab.now >= self._due:
            self._compute()
            self._begin()
        found, self._found = self._found, []
        return found

    def stop(self, patience: float = 0.0) -> None:
        if self.busy and not self._process.is_dead:
            self._compute()
        self._due = math.inf
        self._stopped = True
        self._process.worker = None


class Quiet:
    """Whatever a party tells its owner."""

    def __init__(self, *_: Any) -> None:
        """Of all alike."""

    def __getattr__(self, name: str) -> Callable[..., str]:
        return lambda *_, **__: ""


class Folder(Quiet):
    """A party's state folder."""

    leaving = False

    def __init__(self, path: Path, echo: bool = False) -> None:
        self.path, self.keeps, self.kept = path, set[str](), False


class Overview:
    """Who watches: the organiser, whose datagrams hold an order each."""

    def __init__(self, invited: Any, status: Any, now: float, say: Any, orders: Any) -> None:
        self.orders = orders

    def watches(self, name: str) -> bool:
        return name == "organiser"

    def open(self, sender: str, datagram: bytes, now: float) -> tuple[list[Any], list[Any]]:
        self.orders.take(order(*datagram.decode().split(" ", 1)))
        return [], []

    def wake(self, now: float) -> list[Any]:
        return []

    def ends(self, state: str, why: str, now: float) -> list[Any]:
        return []

    def deadline(self) -> float:
        return math.inf

    def is_heard(self, now: float) -> bool:
        return True


@cache
def order(run: str, what: str) -> Order:
    return Order.signed(ORGANISER, run, what)


class Laboratory:
    """One seed of an order.

    Parameters
    ----------
    seed : int
        Faults, orders, when they are given and who hears them at first all follow from it.
    kind : str
        One of `KINDS`.
    runs : sequence of SmallRun
        Of which the seed chooses one.
    folder : Path
        Empty.
    """

    def __init__(self, seed: int, kind: str, runs: Sequence[SmallRun], folder: Path, file: Any) -> None:
        self.kind, self.folder, self.now = kind, folder, BEGAN
        self.schedule = schedule = FaultSchedule.seeded(seed, [run.names for run in runs])
        run = runs[schedule.variant]
        self.names, self.workers = run.names, run.prepared.names
        self.reaper, self.turn_over = Reaper(), _baton()
        self.away = set[str]()
        self.processes: dict[str, Process] = {}
        self.problem: str | None = None
        self.turns, self.frames, self._scheduled = 0, 0, 0
        self._heap: list[tuple[float, int, Callable[..., None], Any]] = []
        self.crashes = {SPREAD * crash.event: crash for crash in schedule.of(Crash)}
        self.gone: set[str] = set()  # for ever
        generator = stream(seed, "orders")
        self.may_stop = {name: bool(generator.random() < 0.8) for name in self.workers}
        self.parts = [Part(self, number, run, file) for number in range(2 if kind == "second run" else 1)]
        self.at_work: Process
        self.seen = Counter[str]()
        self.told: list[str] = []
        self.deaf = ""  # whom no order reaches, as it runs a program of its own
        for number, name in enumerate(self.names):
            self.at(BEGAN + 0.3 * number, self._start, name)
        self._orders(generator)

    def _orders(self, generator: np.random.Generator) -> None:
        """Orders, and when the organiser's word of each gets to whom: some lose it, and some hear it late."""
        run, at = self.parts[-1].name, BEGAN + generator.uniform(0, 12)
        match self.kind:
            case "stop":
                self.told = [STOP]
            case "remove":
                name = self.workers[int(generator.integers(len(self.workers)))]
                self.told = [REMOVE + name]
                self.deaf = name if generator.random() < 0.5 else ""
            case "pause":
                pairs = [(f"{PAUSE} {number}", f"{RESUME} {number + 1}") for number in (1, 3)]
                self.told = [what for pair in pairs[: int(generator.integers(1, 3))] for what in pair]
        for what in self.told:
            for name in self.names:
                for again in (0.0, 2.0, 4.0):
                    if generator.random() < 0.35:
                        self.at(at + again + generator.uniform(0, 3), self.hears, (run, name, what))
            at += generator.uniform(1, 15)
        for name in self.names:  # and after all faults the organiser looks how they are
            self.at(BEGAN + FAULTS + 40, self.hears, (run, name, *self.told))

    def hears(self, said: tuple[str, ...]) -> None:
        run, name, *orders = said
        for what in orders:
            self._arrives((run, "organiser", name, f"{run} {what}".encode()))

    # What happens

    def at(self, when: float, action: Callable[..., None], what: Any) -> None:
        self._scheduled += 1
        heappush(self._heap, (when, self._scheduled, action, what))

    def transmit(self, run: str, sender: str, to: str, payload: bytes) -> None:
        faulty = self.now < BEGAN + FAULTS
        delays: tuple[float, ...] = (0.1,)
        if faulty:
            delays = self.schedule.delays(self.frames % (3 * FRAMES), sender, to, self.now - BEGAN)
        self.frames += 1
        for delay in delays:
            self.at(self.now + delay, self._arrives, (run, sender, to, payload))

    def _arrives(self, datagram: tuple[str, str, str, bytes]) -> None:
        run, sender, to, payload = datagram
        process = self.processes.get(to)
        if process is not None and not process.over and process.part is not None and process.part.name == run:
            process.inbox.append(Datagram(sender, payload))
            self.has_turn(process)

    def has_turn(self, process: Process) -> None:
        self.turns += 1
        self.at_work = process
        crash = self.crashes.get(self.turns)
        if crash is not None:
            self.reaper.left = crash.instant
        process.computed = False
        process.turn()
        if crash is not None and not process.over:
            self.reaper.left = None
            process.dies = "waiting"
            process.turn()
        self.reaper.left = None
        if process.error is not None:
            self.problem = f"{process.name} failed: {type(process.error).__name__}: {process.error}"
        elif process.dies and crash is not None:
            self._die(process, crash)
        for number, part in enumerate(self.parts):
            self.problem = self.problem or part.found()
            if process.ended > number and process.name not in part.over:
                part.over.add(process.name)
                why = part.hosts[process.name].finished
                self.seen[why if why in (STOPPED, REMOVED) else "finished"] += 1

    def _die(self, process: Process, crash: Crash) -> None:
        name, paused = process.name, any(process.name in part.paused for part in self.parts)
        self.seen["killed"] += 1
        self.seen["killed while it waits"] += paused
        self.reaper.left = None
        self.away.add(name)
        del self.processes[name]
        for part in self.parts:
            journal = part.journals[name]
            part.kills[name] += 1
            kept = [decode(data) for snapshot, data in journal.staged[: crash.kept] if not snapshot]
            if kept:  # inputs that reached the disk, though nothing came of them
                part.host(name, journal.copy(), part.steps.append).turn([(what, now) for now, what in kept])
            journal.crash(min(crash.kept, len(journal.staged)))
            part.hosts[name] = part.host(name, journal.copy())
        if math.isinf(crash.away):
            self.gone.add(name)
        else:
            self.at(self.now + crash.away, self._start, name)

    def _start(self, name: str) -> None:
        if name in self.away:
            self.away.discard(name)
            for part in self.parts:
                part.sides.restart(name)
        self.processes[name] = Process(self, name)
        self.has_turn(self.processes[name])

    # All of it

    def run(self, until: float = LONGEST) -> str | None:
        """Let it happen for so many seconds, or to its end; what does not hold, if something does not."""
        try:
            while self.problem is None and self._heap and not self._over:
                self.now, _, action, what = heappop(self._heap)
                if self.now > BEGAN + until:
                    self.problem = self._stuck() if until == LONGEST else None
                    break
                action(what)
        finally:
            for process in self.processes.values():
                states = {} if process.peers is None else process.peers.states(self.now)
                self.seen["dropped of who was removed"] += sum(one.dropped.get("removed", 0) for one in states.values())
                if not process.over:
                    process.closed = True
                    process.turn()
        said = f"{self.now - BEGAN:.1f} s, turn {self.turns}"
        return None if self.problem is None else f"{said}: {self.problem}"

    @property
    def _over(self) -> bool:
        return self.now > BEGAN + 5 and all(
            name in self.processes and self.processes[name].over
            for name in self.names
            if name not in {*self.gone, self.deaf}
        )

    def _stuck(self) -> str | None:
        """Who has not ended, and waits for nobody who has gone, nor alone for who left before he could hear that."""
        going = {name: one for name, one in self.processes.items() if not one.over and name != self.deaf}
        first = min((process.ended for process in going.values()), default=0)  # others wait for who is in that run yet
        alone = [
            name
            for name, process in going.items()
            if process.ended == first
            and not any(peer.state == "up" for peer in process.peers.states(self.now).values())
        ]
        return None if self.gone or alone else f"{', '.join(going)} would not end"


@contextmanager
def doors(lab: Callable[[], Laboratory]) -> Iterator[None]:
    """Have parties go through the laboratory's doors, and no others."""

    def invited(options: Options, plans: Callable[[], object] = int) -> Any:
        plans()
        part, name, prepared = options.part, options.name, options.part.run.prepared
        me = SimpleNamespace(name=name)
        data = name in prepared.names
        invitation = SimpleNamespace(
            run=part.name,
            me=me,
            members=[member(each) for each in part.run.names],
            broker="mqtt://laboratory:1883",
            organiser=ORGANISER.public_key,
            wheel_sha256=None,
        )
        agreed = SimpleNamespace(invitation=invitation, me=me, prepared=prepared, holds_data=data)
        policy = SimpleNamespace(organiser_may_stop=lab().may_stop[name]) if data else None
        return SimpleNamespace(agreed=agreed, identity=identity(name), policy=policy, part=part)

    def stored(options: Options, invited: Any, folder: Any, stack: ExitStack) -> Host:
        part, name = options.part, options.name
        part.stored.add(name)
        part.journals[name].crash()  # what the part before a pause has staged and not committed is not there
        host = part.hosts[name] = part.host(name, part.journals[name], part.steps.append)
        return host

    def write(path: Path, content: bytes, durable: bool) -> None:
        lab().reaper("writing an order")
        path.write_bytes(content)
        lab().reaper("having written an order")

    def kept(name: str, kind: Any) -> Callable[..., Any]:
        def made(*arguments: Any, **options: Any) -> Any:
            found = kind(*arguments, **options)
            setattr(process := lab().at_work, name, found)
            if process.name == lab().deaf and isinstance(found, Orders):
                found.take = lambda order: ""  # type: ignore[method-assign]
            return found

        return made

    def held(options: Options, *_: Any, begun: bool) -> Any:
        part, enter = options.part, partial(options.part.enter, options.name)
        return SimpleNamespace(computer=part.sides, agreed=None, close=str, charge=enter, open=str, receipts=None)

    instead: dict[str, Any] = {
        "threadpool_limits": nullcontext,
        "StateFolder": lambda state, echo: Folder(state),
        "accept": invited,
        "fitting": lambda options, invited, folder: invited,
        "installed_wheel": lambda: None,
        "Reporter": Quiet,
        **{kind.__name__: kept(kind.__name__.lower(), kind) for kind in (Orders, Peers, PeerReach)},
        "is_stored": lambda options, folder: options.name in options.part.stored,
        "stored_node": stored,
        "DataHeld": held,
        "connected": lambda options, *_: lab().at_work,
        "steady_clock": lambda: lambda: lab().now,
        "witnesses_of": lambda *_: None,
        "check_newer": lambda *_: None,
        "check_receipts": lambda *_: None,
        "Overview": Overview,
        "Worker": Worker,
        "InvitationWatch": lambda *_: SimpleNamespace(look=lambda now: False),
        "_stopped_by_signals": lambda end: nullcontext(),
        "write_results": lambda *_: {"privacy": {}},
        "LONGEST_HELLO": 4.0,
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in instead.items():
            patch.setattr(deployed, name, value)
        patch.setattr(kept_orders, "write_own", write)
        yield


@cache
def small(name: str) -> tuple[SmallRun, ...]:
    """Small runs of an algorithm from which a party can be removed."""
    runs = small_runs(parse_spec({"algorithm": {"name": name}, "privacy": {"clip": 1.0, "noise_multiplier": 1.0}}))[0]
    return tuple(run for run in runs if len(run.names) < 6)


@contextmanager
def laboratory_of(name: str, kind: str, seed: int) -> Iterator[Laboratory]:
    """The laboratory of a seed of an order to a run of an algorithm."""
    made: list[Laboratory] = []
    with tempfile.TemporaryDirectory() as folder, doors(lambda: made[0]):
        made.append(Laboratory(seed, kind, small(name), Path(folder), Disk()))
        yield made[0]


def problems(name: str, kind: str, seeds: Iterable[int]) -> tuple[dict[int, str], Counter[str]]:
    """What does not hold, by seed, and how often there was what seeds are for."""
    found: dict[int, str] = {}
    seen = Counter[str]()
    for seed in seeds:
        with laboratory_of(name, kind, seed) as there:
            if (problem := there.run()) is not None:
                found[seed] = problem
            seen += there.seen
    return found, seen


def main() -> int:
    """Try the seeds; 1 if one fails."""
    failed = 0
    seeds, kinds = range(*map(int, sys.argv[1].split(":"))), sys.argv[2:] or KINDS
    for name in ("gossip", "fedavg"):
        for kind in kinds:
            began = time.monotonic()
            found, seen = problems(name, kind, seeds)
            seconds = f"{time.monotonic() - began:.0f} s"
            failed |= bool(found)
            print(name, kind, seeds, seconds, dict(seen), len(found), *list(found.items())[:5], sep="  ", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
