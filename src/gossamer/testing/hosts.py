"""Hosts joined by faulty links, in virtual time, with crashes at any instant and restarts from the journal.

    hosts = LinkedHosts(nodes, computer, faults=Faults.seeded(7), crashes=[Crash(event=30, carried=1, away=2.0)])
    hosts.run()
    assert hosts["a"].node.state...

A crash happens between two events, or in the middle of one: after its input was stored, and before all that came of it
was carried out (``carried`` outcomes were). Nothing here sleeps or draws a random number while it runs.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gossamer.algorithms.algorithm import InFlight
from gossamer.errors import BudgetSpent
from gossamer.privacy.data_side import Computer
from gossamer.protocol.effects import Compute, Interrupt, Release, Update
from gossamer.protocol.encoding import Buffer
from gossamer.protocol.events import Answered, Completed, Refused
from gossamer.protocol.frames import decode_frame, encode_frame
from gossamer.protocol.node import Node
from gossamer.protocol.session import SessionSettings, Transmit
from gossamer.protocol.trace import Step
from gossamer.runtimes.host import Answer, Ended, Host, Note, Outcome, Rejected, Task
from gossamer.testing.network import Faults
from gossamer.vectors import Released

SETTINGS = SessionSettings(retry_after=1.0, longest_retry=8.0, silence=20.0)


@dataclass
class MemoryJournal:
    """A journal that outlives its host: what was committed is there, and of what was staged what `crash` keeps."""

    base: bytes | None = None
    entries: list[bytes] = field(default_factory=list)
    staged: list[tuple[bool, bytes]] = field(default_factory=list)  # whether it is a snapshot, and what

    def append(self, entry: Sequence[Buffer]) -> None:
        self.staged.append((False, b"".join(entry)))

    def snapshot(self, state: Sequence[Buffer]) -> None:
        self.staged.append((True, b"".join(state)))

    def commit(self) -> None:
        self.crash(len(self.staged))

    def crash(self, keep: int = 0) -> None:
        """End here: of what was staged, the first ``keep`` had reached the disk."""
        for snapshot, data in self.staged[:keep]:
            if snapshot:
                self.base, self.entries = data, []
            else:
                self.entries.append(data)
        self.staged = []

    def load(self) -> tuple[bytes | None, tuple[bytes, ...]]:
        return self.base, tuple(self.entries)

    def copy(self) -> MemoryJournal:
        """One that goes its own way."""
        return MemoryJournal(self.base, self.entries.copy())


@dataclass(frozen=True)
class Crash:
    """At the ``event``-th input of the run only ``carried`` of its outcomes are carried out.

    The host is then away for ``away`` seconds, and comes back from its journal.
    """

    event: int
    carried: int = 0
    away: float = 1.0


class LinkedHosts:
    """Hosts of one run.

    Parameters
    ----------
    build : callable
        Gives fresh nodes by name, as an algorithm builds them.
    computer : Computer
        The data sides.
    seconds : float
        That a task takes.
    faults : Faults
        Of the links.
    crashes : sequence of Crash
        When hosts fail.
    settings : SessionSettings
        Of all sessions.
    every : int
        Inputs between snapshots.
    watch : callable, optional
        Called with every step of every node.
    kind : type of Host
        Another one has a bug that tests are to find.
    """

    def __init__(
        self,
        build: Callable[[], Mapping[str, Node]],
        computer: Computer,
        *,
        seconds: float = 1.0,
        faults: Faults | None = None,
        crashes: Sequence[Crash] = (),
        settings: SessionSettings = SETTINGS,
        every: int = 7,
        watch: Callable[[Step], None] | None = None,
        kind: type[Host] = Host,
    ) -> None:
        self.watch, self.kind = watch, kind
        self.build, self.computer, self.seconds, self.every = build, computer, seconds, every
        self.faults, self.settings = faults or Faults(), settings
        self.crashes = {crash.event: crash for crash in crashes}
        self.journals = {name: MemoryJournal() for name in build()}
        self.hosts = {name: self._host(name) for name in self.journals}
        self.rejected: list[Rejected] = []
        self.now, self.events, self.frames = 0.0, 0, 0
        self.away: set[str] = set()
        self.changed: set[str] = set()  # whose inputs the last event was
        self._lives = dict.fromkeys(self.hosts, 0)
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._scheduled = 0
        for number, name in enumerate(self.hosts):
            self._input_at(0.1 * number, name, lambda host: host.start(self.now))

    def __getitem__(self, name: str) -> Host:
        return self.hosts[name]

    @property
    def finished(self) -> dict[str, str]:
        """Why nodes make no more updates."""
        return {name: host.finished for name, host in self.hosts.items() if host.finished}

    @property
    def nodes(self) -> dict[str, Node]:
        """The nodes as they are; of a host that is away, as its journal has it."""
        return {name: (self.recovered(name) if name in self.away else host).node for name, host in self.hosts.items()}

    @property
    def in_flight(self) -> list[InFlight]:
        """Messages that a host is bound to send and its peer has not seen, whatever is on the links."""
        hosts = {name: self.recovered(name) if name in self.away else host for name, host in self.hosts.items()}
        states = {name: host.session.state() for name, host in hosts.items()}
        found = []
        for sender, links in states.items():
            for to, link in links.items():
                back = states[to].get(sender)
                seen, early = (0, {}) if back is None else (back.delivered, back.early)
                # What came too early waits at its receiver, and is no longer the sender's.
                waiting = {**early, **{number: item for number, item in link.outbox.items() if number > seen}}
                found += [InFlight(sender, to, waiting[number]) for number in sorted(waiting)]
        return found

    def recovered(self, name: str) -> Host:
        """A host from the journal of ``name``, which nobody watches."""
        return self.kind(self.build()[name], self.settings, self.journals[name].copy(), every=self.every)

    def _host(self, name: str) -> Host:
        return self.kind(self.build()[name], self.settings, self.journals[name], every=self.every, watch=self.watch)

    def _at(self, when: float, do: Callable[[], None]) -> None:
        self._scheduled += 1
        heapq.heappush(self._heap, (when, self._scheduled, do))

    def _input_at(self, when: float, name: str, do: Callable[[Host], list[Outcome]], life: int | None = None) -> None:
        """An input of a host; it is lost if the host is away then, or does not live the ``life`` it was meant for."""
        self._at(when, lambda: self._input(name, do, life))

    @property
    def busy(self) -> bool:
        """Whether anything is left to happen."""
        return bool(self._heap)

    @property
    def over(self) -> bool:
        """Whether every node has finished and nothing is unacknowledged."""
        done = set(self.finished) == set(self.hosts) and not self.away
        return done and not any(link.outbox for host in self.hosts.values() for link in host.session.state().values())

    def run(self, most: int = 20_000, look: Callable[[], None] | None = None) -> None:
        """Let events happen until the run is over.

        Raises
        ------
        AssertionError
            If it is not over after ``most`` events, or nothing is left to happen.
        """
        while not self.over:
            assert self._heap, f"nothing is left to happen at {self.now}, finished: {self.finished}"
            assert self.events < most, f"not over after {most} events, finished: {self.finished}"
            self.step()
            if look is not None:
                look()

    def step(self) -> None:
        """Let the next event happen."""
        self.now, _, do = heapq.heappop(self._heap)
        self.changed.clear()
        do()

    def _input(self, name: str, do: Callable[[Host], list[Outcome]], life: int | None) -> None:
        if name in self.away or (life is not None and life != self._lives[name]):
            return
        self.events += 1
        self.changed.add(name)
        crash = self.crashes.get(self.events)
        outcomes = do(self.hosts[name])
        for outcome in outcomes if crash is None else outcomes[: crash.carried]:
            self._carry_out(name, outcome)
        if crash is not None:
            self.away.add(name)
            self._lives[name] += 1
            self._at(self.now + crash.away, lambda: self._restart(name))
        elif (due := self.hosts[name].deadline()) is not None:
            self._input_at(max(due, self.now), name, lambda host: host.wake(self.now), self._lives[name])

    def _restart(self, name: str) -> None:
        self.away.discard(name)
        self.hosts[name] = self._host(name)
        self._input(name, lambda host: host.start(self.now), None)

    def _carry_out(self, name: str, outcome: Outcome) -> None:
        match outcome:
            case Transmit(to, frame):
                data, index = encode_frame(frame), self.frames
                self.frames += 1
                for delay in self.faults.delays(index, name, to, self.now):
                    self._input_at(self.now + delay, to, lambda host: host.arrived(name, decode_frame(data), self.now))
            case Task(Compute(task)):
                self._ask(name, task, task.id, self.seconds)
            case Task(Release() as effect):
                self._ask(name, effect, effect.id, 0.0)
            case Task(Update() | Interrupt()):
                raise NotImplementedError("rounds that change while they run")
            case Rejected():
                self.rejected.append(outcome)
            case Ended() | Note():
                pass

    def _ask(self, name: str, task: Any, number: int, seconds: float) -> None:
        """The data side charges at once and answers later, to the life that asked."""
        try:
            (answer,) = self.computer.compute([self.computer.admit(name, task)])
        except BudgetSpent:
            event: Answer = Refused(number, self.computer.releases(name))
        else:
            vector = answer.released
            event = Completed(number, vector, 1) if isinstance(vector, Released) else Answered(number, vector)
        self._input_at(self.now + seconds, name, lambda host: host.answered(event, self.now), self._lives[name])
