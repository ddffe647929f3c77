"""Hosts joined by faulty links, in virtual time, whose processes are killed at any instant and come back.

    hosts = LinkedHosts(nodes, computer, schedule=FaultSchedule((Crash(event=30, instant=1, away=2.0),)))
    while not hosts.over:
        hosts.step()
    assert hosts["a"].node.state...

A process does things that last, or that others see: it stages an input, commits, charges a release, draws noise, puts a
frame on a link. It may be killed between any two of them: see `Reaper`. Nothing here sleeps or draws a random number
while it runs.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from gossamer.faults.schedules import DELAY, SETTINGS, Crash, FaultSchedule, OldCopy, Sieve
from gossamer.protocol.effects import Finish, Record, Reject, Request
from gossamer.protocol.encoding import Buffer, decode, encode
from gossamer.protocol.events import Event
from gossamer.protocol.messages import MessageFrame, may_hear
from gossamer.protocol.node import Node
from gossamer.protocol.session import Link, SessionSettings, Transmit, counters_of, forgotten
from gossamer.protocol.trace import TraceStep
from gossamer.runtimes.activity import Activity
from gossamer.runtimes.computations import Computations, Counters
from gossamer.runtimes.host import Answer, Arrived, DataSideAnswer, Host, Input, Wake
from gossamer.runtimes.loop import Action, HeldBack, Timers, VirtualLoop, carry_out, interpreter, requests
from gossamer.runtimes.speeds import Speeds, SpeedSettings

# A journal in memory, for tests of crashes in virtual time.


@dataclass
class MemoryJournal:
    """A journal that outlives its host: what was committed is there, and of what was staged what `crash` keeps."""

    base: bytes | None = None
    entries: list[bytes] = field(default_factory=list)
    staged: list[tuple[bool, bytes]] = field(default_factory=list)  # whether it is a snapshot, and what
    reaper: Callable[[str], None] = lambda doing: None

    def append(self, entry: Sequence[Buffer]) -> None:
        self.reaper("staging an input")
        self.staged.append((False, b"".join(entry)))

    def snapshot(self, state: Sequence[Buffer]) -> None:
        self.reaper("staging a snapshot")
        self.staged.append((True, b"".join(state)))

    def commit(self) -> None:
        self.reaper("committing")
        self.crash(len(self.staged))

    def tidy(self) -> None:
        pass

    def crash(self, keep: int = 0) -> None:
        """End here: of what was staged, the first ``keep`` had reached the disk."""
        for snapshot, data in self.staged[:keep]:
            if snapshot:
                self.base, self.entries = data, []
            else:
                self.entries.append(data)
        self.staged = []

    def load(self) -> tuple[bytes | None, Sequence[bytes]]:
        return self.base, tuple(self.entries)

    def copy(self) -> MemoryJournal:
        """Copy what is durable, to go its own way."""
        return MemoryJournal(self.base, self.entries.copy())


# Killing of processes, at any instant between two things that last or that others see.


class Killed(BaseException):
    """The process ends here."""


class Reaper:
    """Kills the process at work, at the instant that its crash says.

    Whatever lasts or can be seen calls it first, and is not done if it raises.
    """

    def __init__(self) -> None:
        self.left: int | None = None  # things that are still done; None while nobody is to be killed

    def __call__(self, doing: str) -> None:
        """Something is about to be done."""
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise Killed(doing)


def fresh(node: Node) -> Node:
    """A node in the state of this one, which goes its own way; what does not change is shared."""
    twin = copy.copy(node)
    twin.state = copy.copy(node.state)
    vars(twin.state).update(node.kept())
    return twin


class LinkedHosts(VirtualLoop):
    """Hosts of one run.

    Parameters
    ----------
    nodes : mapping of str to Node
        Nodes as an algorithm builds them. They stay as they are: hosts have nodes like them.
    computer : Computer
        The data sides; with a method ``restart(name)`` if they notice that a process came back.
    schedule : FaultSchedule
        Schedule of what goes wrong.
    speeds : Speeds, optional
        Speeds that say how long tasks take; by default a second.
    settings : SessionSettings
        Settings of all sessions.
    units : mapping of str to str
        The unit of each node that is in one.
    watch : callable, optional
        Called with every step that is durable.
    reaper : Reaper, optional
        Reaper that the data sides know too.
    kind : type of Host
        Another one has a bug that tests are to find.
    tell : callable, optional
        Called with a line about each fault.
    contacts : mapping of str to sequence of str, optional
        Contacts that each node sends messages to.
    alone_after : float
        Seconds after which a node of which no contact has acknowledged anything asks its data side nothing more.
    """

    def __init__(
        self,
        nodes: Mapping[str, Node],
        computer: Any,
        schedule: FaultSchedule | None = None,
        *,
        speeds: Speeds | None = None,
        settings: SessionSettings = SETTINGS,
        units: Mapping[str, str] | None = None,
        watch: Callable[[TraceStep], None] | None = None,
        reaper: Reaper | None = None,
        kind: type[Host] = Host,
        tell: Callable[[str], object] = lambda line: None,
        contacts: Mapping[str, Sequence[str]] | None = None,
        alone_after: float = math.inf,
    ) -> None:
        super().__init__(0.0)
        self.schedule = schedule = schedule or FaultSchedule()
        self.prototypes, self.computer, self.settings = nodes, computer, settings
        self.units, self.watch, self.kind, self.tell = units or {}, watch, kind, tell
        self.reaper = reaper or Reaper()
        self.contacts, self.alone_after = contacts or {}, alone_after
        self.crashes = {crash.event: crash for crash in schedule.of(Crash)}
        self.journals = {name: MemoryJournal(reaper=self.reaper) for name in nodes}
        self.hosts = {name: self._host(name, self.journals[name]) for name in nodes}
        numbers = {name: number for number, name in enumerate(nodes)}
        speeds = speeds or Speeds(SpeedSettings(), len(nodes), 0)
        happens = self._schedule_task, self._answered, self.record
        self._computations = Computations(computer, speeds, numbers, 1, Counters(), *happens, Activity(nodes, 0.0))
        self._asks = requests(self._computations)
        self._home = HeldBack(self._is_alone, self._ask)
        self._does = interpreter(self, self._home, self)
        self._alarms = Timers(self._schedule, self._ring)
        self.rejected: list[Reject] = []
        self.asked: list[str] = []  # whose data side the last step asked
        self.believed: list[tuple[str, Mapping[str, Link]]] = []  # old copies of which no peer knew better, with links
        self._copied: dict[str, float] = {}  # until when its frames go to a copy
        self.events, self.frames = 0, 0
        self.last_fault = 0.0  # when
        self.away: set[str] = set()
        self.changed: set[str] = set()  # whose state the last step changed
        self.several = False  # whether that was by several inputs
        self._doomed: dict[str, Crash] = {}
        self._lives = dict.fromkeys(nodes, 0)
        self.ahead = {name: number * schedule.skew for name, number in numbers.items()}  # of clocks, in seconds
        self._inboxes: dict[str, list[tuple[Input, float]]] = {name: [] for name in nodes}
        self._busy = dict.fromkeys(nodes, 0.0)  # until when
        for copied in schedule.of(OldCopy):
            self._schedule(copied.copied, self._set_copy_aside, copied.party, copied)
        for number, name in enumerate(nodes):
            self._at(0.1 * number, name, self._open)

    def __getitem__(self, name: str) -> Host:
        return self.hosts[name]

    def _host(self, name: str, journal: MemoryJournal) -> Host:
        return self.kind(
            fresh(self.prototypes[name]),
            self.settings,
            journal,
            every=self.schedule.every,
            watch=self.watch,
            may_hear=partial(may_hear, self.units, name),
        )

    # What there is to look at

    @property
    def finished(self) -> dict[str, str]:
        """Reasons that nodes make no more updates."""
        return {name: host.finished for name, host in self.hosts.items() if host.finished}

    @property
    def nodes(self) -> dict[str, Node]:
        """The nodes as they are; of a host that is away, as its journal has it."""
        return {name: host.node for name, host in self.hosts.items()}

    @property
    def over(self) -> bool:
        """Whether every node that ever comes back has finished, and nothing is unacknowledged among them."""
        gone = self.gone
        there = [host for name, host in self.hosts.items() if name not in gone]
        return all(host.finished for host in there) and not any(
            link.outbox for host in there for peer, link in self.links(host.node.name).items() if peer not in gone
        )

    @property
    def gone(self) -> set[str]:
        """Hosts that never come back."""
        return {name for name in self.away if math.isinf(self._doomed[name].away)}

    def links(self, name: str) -> Mapping[str, Link]:
        """Links that the session of ``name`` keeps, by peer; not to be changed."""
        # Its state() is a copy, and this is looked at after every event.
        return self.hosts[name].session.links

    # What happens

    def step(self) -> None:
        self.changed.clear()
        self.asked.clear()
        self.believed.clear()
        self.several = False
        super().step()

    def _at(self, when: float, name: str, do: Action, what: Any = None, life: int | None = None) -> None:
        """An event at a process; nothing happens if it is away then, or does not live the ``life`` it was meant for."""
        self._schedule(when, self._event, name, (do, what, life))

    def _event(self, name: str, event: tuple[Action, Any, int | None], now: float) -> None:
        do, what, life = event
        if name not in self.away and life in (None, self._lives[name]):
            self._happen(name, do, what)

    def _happen(self, name: str, do: Action, what: Any) -> None:
        self.events += 1
        if (crash := self.crashes.get(self.events)) is not None:
            self._doomed[name] = crash
            self.last_fault = self.now
            self.reaper.left = crash.instant
        with self._may_die(name):
            do(name, what, self.now)
            if self._inboxes[name] and self.now >= self._busy[name]:
                self._turn(name)
            elif self._inboxes[name]:
                self._schedule(self._busy[name], self._late_turn, name, self._lives[name])
            elif name in self._doomed:
                raise Killed("waiting")

    def _late_turn(self, name: str, life: int, now: float) -> None:
        if name not in self.away and self._lives[name] == life and self._inboxes[name]:
            if (crash := self._doomed.get(name)) is not None:
                self.reaper.left = crash.instant
            with self._may_die(name):
                self._turn(name)

    @contextmanager
    def _may_die(self, name: str) -> Iterator[None]:
        """Do inside what a process does, which may be its last deed."""
        try:
            yield
        except Killed as killed:
            self._die(name, str(killed))
        finally:
            self.reaper.left = None

    def _clock(self, name: str) -> float:
        """Time on the clock of a host."""
        return self.now + self.ahead[name]

    def _open(self, name: str, _: None, now: float) -> None:
        self._take(name, self.hosts[name].opening(self._clock(name)), now)

    def _take(self, name: str, what: Input, now: float) -> None:
        self._inboxes[name].append((what, self._clock(name)))

    def _turn(self, name: str) -> None:
        host, inputs = self.hosts[name], self._inboxes[name]
        self._inboxes[name] = []
        self.changed.add(name)
        self.several |= len(inputs) > 1
        carry_out(self._does, name, host.turn(inputs), self.now)
        self._home.look(name, self.now)
        if name in self._doomed:
            raise Killed("waiting")
        self._busy[name] = self.now + self.schedule.busy
        self._set_alarm(name)

    def _set_alarm(self, name: str) -> None:
        life = str(self._lives[name])  # an alarm of an earlier one means nothing
        alarm = self._alarms.due(name, life)
        if (due := self._due(name)) < (math.inf if alarm is None else alarm):
            self._alarms.set_for(name, life, max(due, self.now))

    def _ring(self, name: str, _: str, now: float) -> None:
        """The alarm of a host, which may have been set for what is no longer due."""
        if self._due(name) <= now:
            self._happen(name, self._wake, self.hosts[name].deadline())
        else:
            self._set_alarm(name)

    def _wake(self, name: str, due: float, now: float) -> None:
        self._inboxes[name].append((Wake(), max(due, self._clock(name))))  # whatever rounding makes of it

    def _due(self, name: str) -> float:
        """Time at which a host wants to be woken."""
        due = self.hosts[name].deadline()
        return math.inf if due is None else due - self.ahead[name]

    # The interpreter's network and log, and what is before its home

    def send(self, name: str, what: Transmit, now: float) -> None:
        self.reaper("putting a frame on the link")
        self._transmit(name, what.to, Arrived(name, what.frame))

    def record(self, name: str, effect: Record, now: float) -> None:
        self.tell(f"{now:.2f} s: {name} notes {effect.name} {effect.value:g}")

    def reject(self, name: str, effect: Reject, now: float) -> None:
        self.rejected.append(effect)

    def finish(self, name: str, effect: Finish, now: float) -> None:
        """Its host has it."""

    def _is_alone(self, name: str, now: float) -> bool:
        """Whether no contact of a node acknowledges anything, and none is left to be tried."""
        links, contacts = self.links(name), self.contacts.get(name, ())
        return bool(contacts) and all(
            peer in links and links[peer].is_unreached(self.alone_after, self._clock(name)) for peer in contacts
        )

    def _ask(self, name: str, effect: Request, now: float) -> None:
        self.asked.append(name)
        self._asks[type(effect)](name, effect, now)

    def _schedule_task(self, when: float, action: Action, name: str, what: Any) -> None:
        self._at(when, name, action, what, self._lives[name])

    def _answered(self, name: str, event: Event) -> None:
        assert isinstance(event, Answer)
        self._take(name, DataSideAnswer(event), self.now)

    # What goes wrong on links

    def _set_copy_aside(self, name: str, copied: OldCopy, now: float) -> None:
        self._schedule(copied.at, self._answer, name, self.journals[name].copy())

    def _answer(self, name: str, journal: MemoryJournal, now: float) -> None:
        """An old copy is started: its peers tell it what they know, before it does anything."""
        links = self._host(name, journal).session.links
        said = {peer: counters_of(self.links(peer).get(name)) for peer in self.hosts if peer not in (name, *self.away)}
        lost = forgotten(links, said)
        if not lost:
            self.believed.append((name, links))
        self._copied[name] = self.last_fault = now + 1.0
        self.tell(f"{now:.2f} s: an old copy of {name} answers: {lost or 'nobody knows more than it does'}")

    def _transmit(self, name: str, to: str, arrived: Arrived) -> None:
        index, now = self.frames, self.now
        self.frames += 1
        delays = self.schedule.delays(index, name, to, now)
        copied = any(now < self._copied.get(end, -math.inf) for end in (name, to))  # of either end
        if copied or any(sieve.stops(name, arrived.frame, now) for sieve in self.schedule.of(Sieve)):
            delays = ()
        if delays != (DELAY,):
            self.last_fault = max(self.last_fault, now, *(now + delay for delay in delays))
            content = arrived.frame.message if isinstance(arrived.frame, MessageFrame) else arrived.frame
            fate = "arrives " + " and ".join(f"after {delay:g} s" for delay in delays) if delays else "lost"
            self.tell(f"{now:.2f} s: frame {index}, {name} to {to}, {type(content).__name__}: {fate}")
        for delay in delays:
            self._at(now + delay, to, self._take, arrived)

    # Killed, and back

    def _die(self, name: str, doing: str) -> None:
        """The process is gone. What it would come back as is what others see of it from now on."""
        crash, journal, live = self._doomed[name], self.journals[name], self.hosts[name]
        self.away.add(name)
        self._lives[name] += 1
        self._inboxes[name], self._busy[name] = [], 0.0
        self._alarms.lose(name)
        self._home.lose(name)
        self._computations.lose(name)
        self.changed.add(name)
        expected = self._as_stored(name, crash.kept) if journal.staged else live
        staged, kept = len(journal.staged), min(crash.kept, len(journal.staged))
        journal.crash(kept)
        self.hosts[name] = back = self._host(name, journal)
        if expected is not None:
            assert encode(back.state()) == encode(expected.state()), f"{name} comes back as another"
        torn = f", {kept} of {staged} staged entries reached the disk" if staged else ""
        ever = "for ever" if math.isinf(crash.away) else f"for {crash.away:g} s"
        self.tell(f"{self.now:.2f} s: event {self.events}, {name} killed before {doing}{torn}; away {ever}")
        if not math.isinf(crash.away):
            self._schedule(self.now + crash.away, self._restart, name, None)

    def _as_stored(self, name: str, kept: int) -> Host | None:
        """Return a host after a torn write: its last durable state, and the inputs that reached the disk."""
        journal = self.journals[name]
        inputs = [decode(data) for snapshot, data in journal.staged[:kept] if not snapshot]
        if not inputs:
            return None
        self.several = True
        self.reaper.left = None
        host = self._host(name, journal.copy())
        host.turn([(what, now) for now, what in inputs])
        return host

    def _restart(self, name: str, _: None, now: float) -> None:
        self.away.discard(name)
        del self._doomed[name]
        self.ahead[name] *= -1
        self.last_fault = now
        if hasattr(self.computer, "restart"):
            self.computer.restart(name)
        self._happen(name, self._open, None)
