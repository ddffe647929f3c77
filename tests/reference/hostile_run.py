"""Whole parties in virtual time, node, session, channels and all; one of them is hostile and a member."""

from __future__ import annotations

import contextlib
import heapq
import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tests.reference.hostile_inputs import Junk
from tests.reference.hostile_nodes import HostileMembers
from tests.reference.linked_peers import RUN, identity, member

from gossamer.deployment.peers.peers import Heartbeat, Peers, PeerSettings, encode_content
from gossamer.errors import PeerError
from gossamer.protocol.effects import Compute, Finish, Reject
from gossamer.protocol.encoding import Buffer
from gossamer.protocol.events import Answered, Completed
from gossamer.protocol.messages import Acknowledge, MessageFrame, encode_frame, may_hear
from gossamer.protocol.node import Node
from gossamer.protocol.session import Session, SessionSettings, Transmit
from gossamer.runtimes.host import Arrived, DataSideAnswer, Host, Input, Outcome, Wake
from gossamer.testing.contracts import FixedAnswers
from gossamer.vectors import Released

LATENCY, TASK = 0.05, 1.0
SESSION = SessionSettings(retry_after=1.0, longest_retry=8.0, silence=20.0, largest_message=10_000)
PEERS = PeerSettings(heartbeat=5.0, silence=15.0, gone_after=120.0, largest=20_000)


class _NoJournal:
    """For hosts that never crash."""

    def append(self, entry: Sequence[Buffer]) -> None: ...
    def snapshot(self, state: Sequence[Buffer]) -> None: ...
    def commit(self) -> None: ...
    def load(self) -> tuple[None, tuple[()]]:
        return None, ()


class Party:
    """An honest one."""

    def __init__(self, run: HostileRun, node: Node, peers: Peers) -> None:
        self.run, self.name, self.peers = run, node.name, peers
        trust = run.members.contract.cast.trust
        self.host = Host(node, SESSION, _NoJournal(), may_hear=partial(may_hear, trust, node.name))
        self.finished = ""

    def begin(self) -> None:
        self.carry_out(self.host.start(self.run.now))

    def arrive(self, sender: str, datagram: bytes) -> None:
        frames, answers = self.peers.open(sender, datagram, self.run.now)
        self.run.publish(self.name, answers)
        if frames:
            self.turn([Arrived(*item) for item in frames])

    def turn(self, inputs: list[Input]) -> None:
        self.carry_out(self.host.turn([(what, self.run.now) for what in inputs]))

    def wake(self) -> None:
        due = self.host.deadline()
        if due is not None and due <= self.run.now:
            self.turn([Wake()])
        self.run.publish(self.name, self.peers.wake(self.run.now))

    def deadline(self) -> float | None:
        due = [when for when in (self.host.deadline(), self.peers.deadline()) if when is not None]
        return min(due, default=None)

    def carry_out(self, outcomes: Sequence[Outcome]) -> None:
        now = self.run.now
        for outcome in outcomes:
            match outcome:
                case Transmit(to, frame):
                    self.run.publish(self.name, self.peers.seal(to, frame, now))
                case Compute():
                    self.run.after(TASK, lambda effect=outcome: self.turn([DataSideAnswer(self._answer(effect))]))
                case Reject(sender, reason):
                    self.peers.rejected(sender, reason, now)
                case Finish(reason):
                    self.finished = reason
                    self.peers.finished(reason)

    def _answer(self, effect: Any) -> Completed | Answered:
        task = effect.task
        vector: Any = FixedAnswers().admit(self.name, task)
        return Completed(task.id, vector, 1) if isinstance(vector, Released) else Answered(task.id, vector)


class Hostile:
    """A member with a true identity and a working session, which sends whatever it can think of."""

    def __init__(self, run: HostileRun, name: str, peers: Peers, members: HostileMembers, seed: int) -> None:
        self.run, self.name, self.peers, self.members, self.junk = run, name, peers, members, Junk(seed)
        self.session = Session(name, SESSION)
        self.finished = ""

    def begin(self) -> None:
        self.run.after(0.1, self.attack)

    def attack(self) -> None:
        """Ten times a second, something to everybody: messages in order, frames out of order, bytes, words."""
        now, junk, random = self.run.now, self.junk, self.junk.random
        for to in self.run.parties:
            if to == self.name:
                continue
            like = random.choice(self.members.genuine)
            message = junk.message(type(like), like) if random.random() < 0.7 else like
            match random.randrange(4):
                case 0 | 1:
                    self.transmit(self.session.send(to, message, now))
                case 2:
                    frame = MessageFrame(junk.integer(), junk.integer(), junk.integer(), message)
                    self.transmit([Transmit(to, frame), Transmit(to, Acknowledge(junk.integer(), junk.integer()))])
                case 3:
                    data = random.choice([encode_frame(Acknowledge(0)), encode_content(Heartbeat(1.0))])
                    channel = self.peers._channel(self.peers._peer(to))
                    self.run.publish(self.name, [(to, datagram) for datagram in channel.seal(junk.mutated(data))])
        self.run.after(0.1, self.attack)

    def transmit(self, outputs: Sequence[Any]) -> None:
        for output in outputs:
            if isinstance(output, Transmit):
                self.run.publish(self.name, self.peers.seal(output.to, output.frame, self.run.now))

    def arrive(self, sender: str, datagram: bytes) -> None:
        frames, answers = self.peers.open(sender, datagram, self.run.now)
        self.run.publish(self.name, answers)
        for _, frame in frames:
            with contextlib.suppress(PeerError):  # of what it sent beside its session
                self.transmit(self.session.receive(sender, frame, self.run.now))

    def wake(self) -> None:
        self.transmit(self.session.wake(self.run.now))
        self.run.publish(self.name, self.peers.wake(self.run.now))

    def deadline(self) -> float | None:
        due = [when for when in (self.session.deadline(), self.peers.deadline()) if when is not None]
        return min(due, default=None)


class HostileRun:
    """All members of a run of one of `hostile_nodes.SETTINGS`, ``hostile`` among them."""

    def __init__(self, chosen: str, hostile: str, seed: int) -> None:
        self.members = HostileMembers(chosen, seed)
        self.now, self.hostile = 0.0, hostile
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._tick = itertools.count()
        nodes = self.members.contract.nodes()
        known = [member(name) for name in nodes]
        self.lines: list[str] = []
        self.parties: dict[str, Party | Hostile] = {}
        for name, node in nodes.items():
            peers = Peers(identity(name), RUN, name, known, PEERS, 0.0, log=self.lines.append)
            self.parties[name] = (
                Hostile(self, name, peers, self.members, seed) if name == hostile else Party(self, node, peers)
            )
        for party in self.parties.values():
            self.after(0.0, party.begin)

    @property
    def honest(self) -> dict[str, Party]:
        return {name: party for name, party in self.parties.items() if isinstance(party, Party)}

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (self.now + seconds, next(self._tick), action))

    def publish(self, sender: str, datagrams: Sequence[tuple[str, bytes]]) -> None:
        for to, datagram in datagrams:
            self.after(LATENCY, lambda to=to, datagram=datagram: self.parties[to].arrive(sender, datagram))

    def run(self, names: Sequence[str], longest: float) -> None:
        """Until all of ``names`` have finished, or for so many seconds."""
        while self.now < longest and not all(self.parties[name].finished for name in names):
            due = {name: when for name, party in self.parties.items() if (when := party.deadline()) is not None}
            first = min(due, key=lambda name: due[name], default="")
            if self._heap and (not first or self._heap[0][0] <= due[first]):
                self.now, _, action = heapq.heappop(self._heap)
                action()
            else:
                self.now = max(self.now, due[first])
                self.parties[first].wake()
