"""Parties' ends of their channels, and what a broker carries between them, for tests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gossamer.deployment.peers.peers import Peers, PeerSettings
from gossamer.keys.identity import Identity
from gossamer.keys.invitations import Member
from gossamer.protocol.messages import Frame

RUN = "0" * 31 + "7"
SETTINGS = PeerSettings(heartbeat=10.0, silence=30.0, gone_after=300.0, largest=2000)


def identity(name: str) -> Identity:
    """The same for the same name."""
    return Identity.of_seed(name.encode().ljust(32, b"."))


def member(name: str) -> Member:
    return Member(name, "worker", identity(name).public_key)


class Linked:
    """Peers by name, whose clocks differ by ``ahead``; datagrams arrive at once, unless `deliver` is overridden."""

    def __init__(self, *names: str, settings: PeerSettings = SETTINGS, ahead: dict[str, float] | None = None) -> None:
        self.members = [member(name) for name in names]
        self.settings, self.now, self.ahead = settings, 0.0, ahead or {}
        self.lines: dict[str, list[str]] = {name: [] for name in names}
        self.arrived: dict[str, list[tuple[str, Frame]]] = {name: [] for name in names}
        self.carried: list[tuple[str, str, bytes]] = []
        self.away: set[str] = set()
        self.peers: dict[str, Peers] = {}
        for name in names:
            self.start(name)

    def clock(self, name: str) -> float:
        return self.now + self.ahead.get(name, 0.0)

    def start(self, name: str, **options: Any) -> Peers:
        """A new process of the party ``name``."""
        options = {"run": RUN, "identity": identity(name), **options}
        self.peers[name] = Peers(
            options.pop("identity"),
            options.pop("run"),
            name,
            self.members,
            self.settings,
            self.clock(name),
            log=self.lines[name].append,
            **options,
        )
        return self.peers[name]

    def send(self, sender: str, to: str, frame: Frame) -> None:
        self.carry(sender, self.peers[sender].seal(to, frame, self.clock(sender)))

    def carry(self, sender: str, datagrams: Iterable[tuple[str, bytes]]) -> None:
        """Deliver datagrams, what is answered to them, and so on."""
        for to, datagram in datagrams:
            self.carried.append((sender, to, datagram))
            if not {to, sender} & self.away:
                self.deliver(sender, to, datagram)

    def deliver(self, sender: str, to: str, datagram: bytes) -> None:
        frames, answers = self.peers[to].open(sender, datagram, self.clock(to))
        self.arrived[to] += frames
        self.carry(to, answers)

    def wait(self, seconds: float) -> None:
        """Let time pass; everybody wakes when it is due, and not otherwise."""
        until, turns = self.now + seconds, 0
        while True:
            turns += 1
            assert turns < 1000 + 10 * seconds, "somebody is woken for nothing"
            due = {name: when for name, peers in self.peers.items() if (when := peers.deadline()) is not None}
            first = min((max(when - self.ahead.get(name, 0.0), self.now) for name, when in due.items()), default=until)
            if first > until:
                break
            self.now = first
            for name, peers in self.peers.items():
                if name in due and due[name] <= self.clock(name):
                    self.carry(name, peers.wake(self.clock(name)))
        self.now = until

    def state(self, of: str, at: str) -> str:
        return str(self.peers[at].states(self.clock(at))[of])

    def dropped(self, of: str, at: str) -> dict[str, int]:
        return dict(self.peers[at].states(self.clock(at))[of].dropped)
