"""Conditions that hold after every event of a run of hosts, whatever is lost, repeated, delayed, killed or torn.

| check | says |
|---|---|
| `Delivery` | every message arrives once, in order; nothing acknowledged is lost, nothing arrives that was not stored |
| `Answers` | what a data side released is applied once at most, and updates are no more than that |
| `Conserved` | what the algorithm calls invariant changes by the nodes' own updates alone |
| `Company` | a party of which nobody has acknowledged anything for `ALONE` seconds is charged nothing |
| `Liveness` | some time after the last fault every node that is there, with a peer, has gone on or has finished |

Each is called after an event, with the steps that became durable in it, and gives what does not hold. That of ledgers
and noise is in `faults.sides`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from gossamer.algorithms.context import InFlight
from gossamer.faults.hosts import LinkedHosts
from gossamer.protocol.effects import Send
from gossamer.protocol.events import Answered, Completed, Received, Refused
from gossamer.protocol.link import Link
from gossamer.protocol.messages import Message
from gossamer.protocol.trace import Step

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

    def __call__(self, steps: Sequence[Step]) -> str | None:
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

    def __call__(self, steps: Sequence[Step]) -> str | None:
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

    def __call__(self, steps: Sequence[Step]) -> str | None:
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

    def __call__(self, steps: Sequence[Step]) -> str | None:
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

    def __call__(self, steps: Sequence[Step]) -> str | None:
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
