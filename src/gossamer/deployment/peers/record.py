"""One peer: when it is looked after, what is known of it, and what is to be done about it next."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from gossamer.deployment.channel.secure_channel import SecureChannel
from gossamer.deployment.peers.standing import Limits, Standing
from gossamer.errors import SpecError
from gossamer.keys.membership import Member
from gossamer.protocol.link import Counters

StateName = Literal["never heard", "up", "silent", "gone", "quarantined"]


@dataclass(frozen=True)
class PeerSettings:
    """Times at which peers are looked after, and what is tolerated.

    Attributes
    ----------
    heartbeat : float
        Seconds between two heartbeats to a contact.
    silence, gone_after : float
        Seconds without anything of a peer after which it is called silent, and gone.
    hello_every, longest_hello : float
        Least seconds between two hellos to a peer, and most while there is no answer.
    largest : int
        Most bytes of an encoded frame; the same at all nodes.
    limits : Limits
        What is put up with from each peer.
    """

    heartbeat: float = 15.0
    silence: float = 45.0
    gone_after: float = 600.0
    hello_every: float = 3.0
    longest_hello: float = 60.0
    largest: int = 4 << 20
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if not 0 < self.heartbeat < self.silence < self.gone_after:
            raise SpecError(
                f"peers need 0 < heartbeat < silence < gone_after, "
                f"found {self.heartbeat!r}, {self.silence!r} and {self.gone_after!r}"
            )
        if not 0 < self.hello_every <= self.longest_hello < math.inf:
            raise SpecError(
                f"peers need 0 < hello_every <= longest_hello, found {self.hello_every!r} and {self.longest_hello!r}"
            )
        if self.largest < 1:
            raise SpecError(f"peers need a largest frame of 1 byte or more, found {self.largest!r}")


@dataclass(frozen=True)
class PeerState:
    """Knowledge of a peer.

    Attributes
    ----------
    state : str
        What it is called.
    seconds : float
        Since it was heard, or if it never was, since this node began; in quarantine, until it ends.
    contact : bool
        Whether heartbeats are exchanged with it.
    finished : str
        Why its node makes no more updates, as it said last; empty while it does.
    dropped : mapping of str to int
        Of its datagrams and messages, by reason.
    age : float
        Seconds since its process began, as it said last.
    knows : bool
        Whether it has heard that this node has finished, as it said last.
    receipts : str
        Why its receipts are not believed, and nothing of it is taken; empty while they are.
    version : str
        Version of the software that it runs, as it said last; empty until it has.
    passed : bool
        Whether it has answered a probe of this process.
    owes : float, optional
        Seconds since a probe that it has not answered; None while it owes no answer.
    """

    state: StateName
    seconds: float
    contact: bool
    finished: str
    dropped: Mapping[str, int]
    age: float = 0.0
    knows: bool = False
    receipts: str = ""
    passed: bool = False
    owes: float | None = None
    version: str = ""

    def __str__(self) -> str:
        about = {"silent": f" for {self.seconds:.0f} s", "quarantined": f", {self.seconds:.0f} s left"}
        finished = f", finished ({self.finished})" if self.finished else ""
        return self.state + about.get(self.state, "") + finished


@dataclass
class Peer:
    """Record of a node about another member. Times are in seconds on the node's clock.

    Attributes
    ----------
    member : Member
        Its name and key.
    settings : PeerSettings
        Of all peers.
    began : float
        When this node began.
    standing : Standing
        How it has behaved.
    wait : float
        Until the next hello.
    contact : bool
        Whether heartbeats are exchanged with it.
    channel : SecureChannel or None
        Once it was needed.
    heard, session_at : float or None, float
        When something of it opened last, and when its session began.
    said_hello, hello_at, heartbeat_at : float
        When hello was said last, may be said again, and the next heartbeat is due.
    told : bool
        Whether it may be told that this node has finished.
    finished, age, knows, version : str, float, bool, str
        What its last heartbeat said.
    counters : Counters or None
        What it has said of the messages between the two.
    passed : bool
        Whether it has answered a probe.
    probed_at, probe_at : float or None, float
        When the first probe was sent that it has not answered, and when the next may be.
    probe_came : int or None
        Number of bytes of a probe of its own that is still to be answered.
    said, said_at : str, float
        Its state as the log has it, and since when.
    """

    member: Member
    settings: PeerSettings
    began: float
    standing: Standing
    wait: float
    contact: bool = False
    channel: SecureChannel | None = None
    heard: float | None = None
    session_at: float = -math.inf
    said_hello: float = -math.inf
    hello_at: float = -math.inf
    heartbeat_at: float = -math.inf
    told: bool = False
    finished: str = ""
    age: float = 0.0
    knows: bool = False
    version: str = ""
    counters: Counters | None = None
    passed: bool = False
    probed_at: float | None = None
    probe_at: float = -math.inf
    probe_came: int | None = None
    said: str = "never heard"
    said_at: float = -math.inf

    @classmethod
    def of(cls, member: Member, settings: PeerSettings, now: float) -> Peer:
        """One that nothing is known of."""
        return cls(member, settings, now, Standing(settings.limits), settings.hello_every)

    @property
    def name(self) -> str:
        return self.member.name

    @property
    def has_session(self) -> bool:
        return self.channel is not None and self.channel.session is not None

    def hear(self, now: float) -> None:
        """Something came that only the peer can have sent, and now."""
        self.contact, self.heard = True, now
        self.wait, self.hello_at = self.settings.hello_every, -math.inf

    def wants_hello(self, now: float) -> bool:
        """Whether there is no session, or perhaps one that the peer has lost."""
        return not self.has_session or self.heard is None or now >= self.heard + self.settings.silence

    def due(self) -> float:
        """Return the time at which there is something to be done about it, if it is a contact."""
        hello_at = self.hello_at
        if self.has_session and self.heard is not None:
            hello_at = max(hello_at, self.heard + self.settings.silence)
        due = min(hello_at, self.heartbeat_at) if self.has_session else hello_at
        return max(due, self.standing.until)

    def called(self, now: float) -> StateName:
        """Name its state."""
        if self.standing.quarantined(now):
            return "quarantined"
        if self.heard is None:
            return "never heard"
        if now < self.heard + self.settings.silence:
            return "up"
        return "silent" if now < self.heard + self.settings.gone_after else "gone"

    def state(self, now: float) -> PeerState:
        """Return what is known of it."""
        seconds = now - (self.began if self.heard is None else self.heard)
        if self.standing.quarantined(now):
            seconds = self.standing.until - now
        return PeerState(
            self.called(now),
            seconds,
            self.contact,
            self.finished,
            dict(self.standing.dropped),
            self.age,
            self.knows,
            self.standing.disbelieved,
            self.passed,
            None if self.probed_at is None else now - self.probed_at,
            self.version,
        )
