"""Conditions that hold after every event of a run of hosts, whatever is lost, repeated, delayed, killed or torn.

| check | says |
|---|---|
| `Delivery` | every message arrives once, in order; nothing acknowledged is lost, nothing arrives that was not stored |
| `Answers` | what a data side released is applied once at most, and updates are no more than that |
| `Conserved` | what the algorithm calls invariant changes by the nodes' own updates alone |
| `Company` | a party of which nobody has acknowledged anything for `ALONE` seconds is charged nothing |
| `Liveness` | some time after the last fault every node that is there, with a peer, has gone on or has finished |

Each is called after an event, with the steps that became durable in it, and gives what does not hold. That of ledgers
and noise is in `WatchedSides`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gossamer.algorithms.context import InFlight
from gossamer.faults.hosts import Killed, LinkedHosts
from gossamer.protocol.effects import Send
from gossamer.protocol.events import Answered, Completed, Received, Refused
from gossamer.protocol.messages import Message
from gossamer.protocol.session import Link
from gossamer.protocol.trace import TraceStep
from gossamer.randomness import derive
from gossamer.sides.home import DRAWING, Simulated
from gossamer.sides.ledger import Ledger
from gossamer.sides.machine import SideAnswer
from gossamer.sides.plan import SidePlan
from gossamer.sides.pool import Pool
from gossamer.vectors import Confined, Masked, Public, Released

# Data sides whose processes are killed: the ledger is durable, noise is fresh in every life, and both are watched.
#
# In these runs every example is zero. So a gradient is zero, and what is released is its noise: two releases that share
# noise are seen.

# The home of data sides whose processes are killed: durable ledgers, other numbers in every life, and a reaper.


class Laboratory(Simulated):
    """A simulated world whose processes end and come back.

    Parameters
    ----------
    ledgers : callable
        (name, plan) -> the ledger of a party as it is on its disk.
    reaper : callable
        Told before something lasts, or is seen; it may raise `reaper.Killed`.
    """

    def __init__(self, ledgers: Callable[[str, SidePlan], Ledger], reaper: Callable[[str], None]) -> None:
        super().__init__(0)
        self._ledgers, self._reaper = ledgers, reaper
        self._lives: dict[str, int] = defaultdict(int)

    def seed(self, owner: str, purpose: str = "") -> int:
        """Seed of the owner's life: what one process drew, the next one does not."""
        life = self._lives[owner]
        return derive(life, "life", owner) if life else 0

    def ledger(self, name: str, plan: SidePlan) -> Ledger:
        return self._ledgers(name, plan)

    def crashpoint(self, what: str) -> None:
        self._reaper(what)

    def restarted(self, name: str) -> None:
        """Begin another life of ``name``."""
        self._lives[name] += 1


def renew(pool: Pool, name: str) -> None:
    """Start the process of ``name`` again: with other numbers, where they are a laboratory's."""
    if isinstance(pool.home, Laboratory):
        pool.home.restarted(name)
    pool.renew(name)


SIZE = 4
"""Of models. Two draws of so many numbers point the same way with a probability of about 1e-20."""


class WatchedSides:
    """Data sides that may be killed, and what does not hold of them: it is in ``problems``.

    Parameters
    ----------
    pool : Pool
        Pool of all parties, whose home has them killed.
    charged : callable
        Function for the number of releases of a party that the ledger on disk has; None if it has none.
    private : bool
        Whether there is noise.
    """

    def __init__(self, pool: Pool, charged: Callable[[str], int | None], private: bool) -> None:
        self.pool, self.charged, self.private = pool, charged, private
        self.problems: list[str] = []
        self.drawn: dict[str, set[int]] = defaultdict(set)  # releases of each, in all its lives
        self._unchecked: set[str] = set()  # of whom something was drawn since the last look at the ledger
        self.noise: dict[bytes, tuple[str, Any]] = {}  # what was drawn for what
        self._tasks: dict[int, tuple[str, Any, Any]] = {}  # by the identity of its ticket, which is kept alive here

    def admit(self, node: str, task: Any) -> Any:
        ticket = self.pool.admit(node, task)
        self._tasks[id(ticket)] = node, task, ticket
        return ticket

    def amended(self, ticket: Any, task: Any) -> Any:
        node, _, _ = self._tasks.pop(id(ticket))
        amended = self.pool.amended(ticket, task)
        self._tasks[id(amended)] = node, task, amended
        return amended

    def compute(self, tickets: Sequence[Any]) -> list[SideAnswer]:
        asked = [self._tasks.pop(id(ticket))[:2] for ticket in tickets]
        try:
            answers = self.pool.compute(tickets)
        except Killed as killed:
            for node, task in asked if str(killed) != DRAWING else ():  # it may have been drawn
                if task.label is not Public:  # of keys and shares of a masked sum, nothing is
                    self._count(node, task)
            raise
        for (node, task), answer in zip(asked, answers, strict=True):
            self._look(node, task, answer.released)
        return answers

    def releases(self, node: str) -> int:
        return self.pool.releases(node)

    def restart(self, name: str) -> None:
        """The process of ``name`` is started again, and remembers nothing."""
        renew(self.pool, name)

    def _look(self, node: str, task: Any, answer: Any) -> None:
        """Note what noise was drawn for, if any was, and for what before; or that raw data were handed over."""
        if isinstance(answer, Confined) and self.charged(node) is not None:
            self._count(node, task)
        if not isinstance(answer, Masked) and not (isinstance(answer, Released) and self.private):
            return
        noise = answer.values - task.base
        what = (node, task)
        before = self.noise.setdefault(_known_by(noise), what)
        if before is not what and not (task.kept and before == what):
            self.problems.append(f"{node}: two releases share their noise, the second is of task {task.id}")
        self._count(node, task)

    def _count(self, node: str, task: Any) -> None:
        """Noise was drawn for a task. One whose answer was never stored is drawn anew, under the same charge."""
        if self.private:
            self.drawn[node].add(task.id if task.kept else len(self.drawn[node]))
            self._unchecked.add(node)

    def __call__(self, steps: Sequence[TraceStep]) -> str | None:
        """Find releases that share noise, and a ledger on disk that lacks one whose noise was drawn."""
        for node in self._unchecked:
            charged, drawn = self.charged(node), len(self.drawn[node])
            if charged is not None and charged < drawn:
                return f"the ledger of {node} has {charged} releases, and noise was drawn for {drawn}"
        self._unchecked.clear()
        return self.problems[0] if self.problems else None


def _known_by(noise: Any) -> bytes:
    """Key of a draw: the same whatever the draw is multiplied by, but for rounding."""
    length = float(np.linalg.norm(noise[:SIZE])) if noise.dtype.kind == "f" and noise.size >= SIZE else 0.0
    if not length:
        return bytes(noise.tobytes())
    known: bytes = (noise[:SIZE] / length).round(7).tobytes()  # a clip count may follow
    return known


ALONE = 6.0
"""Seconds without any acknowledgement after which nodes charge nothing."""
INTERVALS = 20
"""Retry intervals without a fault in which nodes make progress."""

_NO_LINK = Link(1.0)


class Delivery:
    """Exactly-once delivery, over crashes: of what both ends have stored."""

    def __init__(self, hosts: LinkedHosts) -> None:
        self.hosts = hosts
        self.sent: dict[tuple[str, str], list[Message]] = defaultdict(list)
        self.received: dict[tuple[str, str], int] = defaultdict(int)

    def __call__(self, steps: Sequence[TraceStep]) -> str | None:
        for step in steps:
            event = step.event
            if isinstance(event, Received) and (problem := self._receive(step.node, event.sender, event.message)):
                return problem
            for effect in step.effects:
                if isinstance(effect, Send):
                    self.sent[step.node, effect.to].append(effect.message)
        for name in self.hosts.changed:
            for peer, link in self.hosts.links(name).items():
                back = self.hosts.links(peer).get(name, _NO_LINK)
                if problem := _disagreement(name, link, peer, back) or _disagreement(peer, back, name, link):
                    return problem
        for name, links in self.hosts.believed:
            for peer in self.hosts.hosts.keys() - {name, *self.hosts.away}:
                link, back = links.get(peer, _NO_LINK), self.hosts.links(peer).get(name, _NO_LINK)
                if problem := _disagreement(name, link, peer, back) or _disagreement(peer, back, name, link):
                    return f"nobody knows more than an old copy of {name}, and {problem}"
        return None

    def _receive(self, to: str, sender: str, message: Message) -> str | None:
        number = self.received[sender, to]
        self.received[sender, to] += 1
        sent = self.sent[sender, to]
        if number >= len(sent):
            return f"{to} takes {type(message).__name__} of {sender}, which sent only {len(sent)} messages"
        if sent[number] is not message and sent[number] != message:
            return f"{to} takes another message {number + 1} of {sender} than it sent, a {type(message).__name__}"
        return None


def _disagreement(sender: str, link: Link, to: str, back: Link) -> str | None:
    """Contradiction between what the sender's end of a link has stored and what the receiver's has."""
    if back.delivered > link.queued:
        return f"{to} has message {back.delivered} of {sender}, which has stored {link.queued}"
    if link.acknowledged > back.delivered:
        return f"{sender} takes message {link.acknowledged} for arrived, and {to} has stored {back.delivered}"
    for number in range(link.acknowledged + 1, link.transmitted + 1):
        if number not in link.outbox and number > back.delivered and number not in back.early:
            return f"{sender} takes message {number} for arrived, and {to} has not stored it"
    return None


class Answers:
    """Nothing that a data side released is applied twice, and no update is made of anything else."""

    def __init__(self, hosts: LinkedHosts, algorithm: Any, servers: Sequence[str], free: int, private: bool) -> None:
        self.hosts, self.servers, self.free, self.private = hosts, servers, free, private
        self.updates = algorithm.figures.count
        self.applied: dict[str, set[bytes]] = defaultdict(set)
        self.answers = 0

    def __call__(self, steps: Sequence[TraceStep]) -> str | None:
        for step in steps:
            event = step.event
            if not isinstance(event, Completed):
                continue
            self.answers += 1
            # Its noise makes an answer known again. Nodes ignore what they did not ask for, which then has no effects.
            if self.private and step.effects:
                content = event.released.values.tobytes()
                if content in self.applied[step.node]:
                    return f"{step.node} applies an answer twice"
                self.applied[step.node].add(content)
        if self.updates is None:
            return None
        if (updates := self.updates({name: self.hosts[name].node for name in self.servers})) > self.answers + self.free:
            return f"{updates} updates were made of {self.answers} answers"
        return None


class Conserved:
    """Models and what is in flight, such as halves of exchanges, change by the nodes' own updates alone."""

    def __init__(self, hosts: LinkedHosts, algorithm: Any) -> None:
        self.hosts, self.algorithm = hosts, algorithm
        self.totals = self._totals()
        self.models = self._models() if self.totals else {}

    def _models(self) -> dict[str, Any]:
        return {name: self.algorithm.model_of(node).values for name, node in self.hosts.nodes.items()}

    def _totals(self) -> dict[str, Any]:
        found: dict[str, Any] = self.algorithm.figures.invariants(self.hosts.nodes, in_flight(self.hosts))
        return found

    def __call__(self, steps: Sequence[TraceStep]) -> str | None:
        if not (self.totals and self.hosts.changed):
            return None
        updated = {step.node for step in steps if isinstance(step.event, Completed)}
        before, totals = self.models, self.totals
        self.models, self.totals = self._models(), self._totals()
        if updated and self.hosts.several:
            return None  # its own update, and what others sent, in one turn
        own = sum((self.models[name] - before[name] for name in updated), start=np.zeros(()))
        for name, value in self.totals.items():
            off = float(np.abs(value - totals[name] - own).max())
            if not off <= 1e-9 * (1 + float(np.abs(value).max())):
                return f"{name} changed by {off:.3g} without an update"
        return None


def in_flight(hosts: LinkedHosts) -> list[InFlight]:
    """Messages that a host is bound to send and its peer has not handed to its node, whatever is on the links."""
    found = []
    for sender in hosts.hosts:
        for to, link in hosts.links(sender).items():
            back = hosts.links(to).get(sender, _NO_LINK)
            if link.outbox or back.early:
                # What came too early waits at its receiver, and is no longer the sender's.
                waiting = {**back.early, **link.outbox}
                found += [InFlight(sender, to, waiting[n]) for n in sorted(waiting) if n > back.delivered]
    return found


class Company:
    """A party is charged nothing once all its peers have acknowledged nothing for long: told by what is in outboxes."""

    def __init__(self, hosts: LinkedHosts, workers: Sequence[str]) -> None:
        self.hosts, self.workers = hosts, workers
        self.waiting: dict[tuple[str, str], tuple[set[int], Any, float]] = {}  # what, of it arrived, since when

    def __call__(self, steps: Sequence[TraceStep]) -> str | None:
        hosts, now = self.hosts, self.hosts.now
        for name in hosts.changed:
            for peer, link in hosts.links(name).items():
                arrived = link.outgoing and (link.outgoing.number, link.outgoing.arrived, link.outgoing.early)
                before, had, since = self.waiting.get((name, peer), (set(), None, now))
                settled = not before or before - link.under_way.keys() or arrived != had
                self.waiting[name, peer] = set(link.under_way), arrived, now if settled else since
        for name in set(hosts.asked) & set(self.workers):
            quiet = [self._quiet(name, peer) for peer in hosts.contacts.get(name, ())]
            # A clock that was set back stands still for as long.
            if quiet and min(quiet) > ALONE + 1 + 2 * abs(hosts.ahead[name]):
                return f"{name} is charged though nobody has acknowledged anything for {min(quiet):.1f} s"
        return None

    def _quiet(self, name: str, peer: str) -> float:
        """Seconds for which a peer has acknowledged nothing of what is under way."""
        waiting, _, since = self.waiting.get((name, peer), (set(), None, 0.0))
        return self.hosts.now - since if waiting else 0.0


class Liveness:
    """Without faults for `INTERVALS` retry intervals, each node with a live peer updates and exchanges, or finishes.

    Nodes without data make no updates. They wait for those that never come back, as long as nobody who is there has
    more to do; and where all need one server, nothing is asked of anybody once that is gone.

    Parameters
    ----------
    hosts : LinkedHosts
        Hosts of the run.
    workers : sequence of str
        Nodes with data.
    hub : str or None
        Node that all need.
    waits : bool
        Whether all need everybody.
    """

    def __init__(self, hosts: LinkedHosts, workers: Sequence[str], hub: str | None, *, waits: bool = False) -> None:
        self.hosts, self.workers, self.hub, self.waits = hosts, frozenset(workers), hub, waits
        self.patience = INTERVALS * hosts.settings.longest_retry
        self.since = 0.0
        self.updated: set[str] = set()
        self.exchanged: set[str] = set()

    def __call__(self, steps: Sequence[TraceStep]) -> str | None:
        if self.hosts.last_fault > self.since:
            self._begin(self.hosts.last_fault)
        for step in steps:
            if isinstance(step.event, Received):
                self.exchanged.add(step.node)
            elif isinstance(step.event, Completed | Answered | Refused):
                self.updated.add(step.node)
        if self.hosts.now <= self.since + self.patience:
            return None
        problem = self.stuck(f"for {self.patience:g} s without a fault")
        self._begin(self.hosts.now)
        return problem

    def _begin(self, now: float) -> None:
        self.since = now
        self.updated.clear()
        self.exchanged.clear()

    def stuck(self, when: str) -> str | None:
        """Name a party that has made no progress since the last fault, or the last look."""
        hosts, gone = self.hosts, self.hosts.gone
        there = {
            name: live
            for name, host in hosts.hosts.items()
            if name not in hosts.away
            and not host.finished
            and (live := [peer for peer in hosts.links(name) if peer not in hosts.away])
        }
        if self.hub in gone or (gone and (self.waits or self.workers.isdisjoint(there))):
            return None
        for name, live in there.items():
            if name in self.workers and name not in self.updated:
                return f"{name} has made no update {when}"
            done = name in self.workers and all(hosts[peer].finished for peer in live)
            if name not in self.exchanged and not done:
                return f"{name} has heard of no peer {when}"
        return None
