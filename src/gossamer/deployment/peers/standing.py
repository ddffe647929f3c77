"""One peer: when it is looked after, what is known of it, how it behaves, and what is to be done about it next."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from gossamer.deployment.channel.secure_channel import SecureChannel
from gossamer.deployment.peers.digest import Digest
from gossamer.errors import SpecError
from gossamer.keys.invitations import Member
from gossamer.protocol.session import LinkCounters

# Behaviour of a peer: what of it was dropped, whether it is in quarantine, and how much time it may still cost.
#
# Whether its receipts are believed is noted too: what contradicts those that were seen is an offence, and what is only
# late is doubted once nothing else has come for a while. Three counters with a limit, and no more for any peer,
# whatever it sends:
#
# - **offences**, what only the peer itself can have done. So many of them are a quarantine, each twice as long as the
#   one before. One offence is forgiven every so often; a peer without any begins anew.
# - **handshakes**, which cost time before anything is known to be authentic: a bucket of so many, refilled steadily.
# - **lines in the log**: the first of each kind at once, and then at growing intervals, with the number left out.

_LONGEST_LINE = 300
_FIRST_SILENCE = 60.0
_LONGEST_SILENCE = 86_400.0
_LATE = 30.0  # most seconds for which all that comes may be late by the network's fault


QUARANTINE_AFTER = 20
"""Offences that lead to quarantine."""
FORGIVE_AFTER = 60.0
"""Seconds after which an offence is forgiven."""
QUARANTINE_FOR, LONGEST_QUARANTINE = 60.0, 86_400.0
"""Seconds of the first quarantine, and of the longest."""
HANDSHAKES, HANDSHAKES_PER_SECOND = 20, 5.0
"""Most handshakes at once, and in the long run."""
HELLO_EVERY, LONGEST_HELLO = 3.0, 60.0
"""Least seconds between two hellos to a peer, and most while there is no answer."""


@dataclass
class Standing:
    """One peer's record. Times are in seconds on the node's clock.

    Attributes
    ----------
    dropped : Counter of str
        Datagrams and messages, by reason.
    until : float
        End of the newest quarantine.
    disbelieved : str
        Reason why nothing of it is taken, by its receipts; empty while they are believed.
    """

    dropped: Counter[str] = field(default_factory=Counter)
    until: float = -math.inf
    disbelieved: str = ""
    _late_since: float = math.inf
    _offences: float = 0.0
    _forgiven_at: float = -math.inf
    _quarantines: int = 0
    _handshakes: float = 0.0  # used up
    _refilled_at: float = -math.inf

    def quarantined(self, now: float) -> bool:
        """Whether nothing of the peer is looked at."""
        return now < self.until

    def offend(self, now: float) -> float | None:
        """Take note of an offence; the seconds of quarantine, if one begins."""
        if self.quarantined(now):
            return None  # of a datagram that was opened before
        self._offences = max(0.0, self._offences - max(0.0, now - self._forgiven_at) / FORGIVE_AFTER)
        if self._offences == 0:
            self._quarantines = 0
        self._offences, self._forgiven_at = self._offences + 1, now
        if self._offences < QUARANTINE_AFTER:
            return None
        seconds = min(QUARANTINE_FOR * 2.0 ** min(self._quarantines, 60), LONGEST_QUARANTINE)
        self._quarantines += 1
        # It comes back on probation: the next offence is the last.
        self.until = self._forgiven_at = now + seconds
        self._offences = QUARANTINE_AFTER - 1.0
        return seconds

    def disbelieve(self, why: str, now: float, *, offence: bool) -> None:
        """Something was dropped for its receipts, and nothing was taken since then."""
        self._late_since = min(self._late_since, now)
        if offence or now >= self._late_since + _LATE:
            self.disbelieved = why

    def believe(self) -> None:
        """Something that may hold a release was taken."""
        self.disbelieved, self._late_since = "", math.inf

    def admits_handshake(self, now: float) -> bool:
        """Whether there is time for one more; it counts, if so."""
        refilled = max(0.0, now - self._refilled_at) * HANDSHAKES_PER_SECOND
        self._handshakes, self._refilled_at = max(0.0, self._handshakes - refilled), now
        if self._handshakes + 1 > HANDSHAKES:
            return False
        self._handshakes += 1
        return True


class SparseLog:
    """A log that nobody can fill: lines about one topic come at growing intervals.

    Parameters
    ----------
    say : callable
        Takes a line.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self._topics: dict[tuple[str, str], tuple[float, float, int]] = {}  # silence, until when, and lines left out

    def __call__(self, topic: tuple[str, str], line: str, now: float) -> None:
        """Say ``line``, unless there was one about ``topic`` not long ago. Topics must be limited in number."""
        silence, until, left_out = self._topics.get(topic, (_FIRST_SILENCE / 2, -math.inf, 0))
        if now < until:
            self._topics[topic] = silence, until, left_out + 1
            return
        since = f" ({left_out} more since the last such line)" if left_out else ""
        wait = min(2 * silence, _LONGEST_SILENCE)
        self._topics[topic] = wait, now + wait, 0
        self.say(printable(line) + since)


def printable(text: str, most: int = _LONGEST_LINE) -> str:
    """``text`` on one line of at most ``most`` characters, whatever a peer has put into it."""
    cut = text if len(text) <= most else text[: most - 3] + "..."
    return "".join(letter if letter.isprintable() else "?" for letter in cut)


REHEARSES = "only rehearses"
"""What a node tells its peers that begins nothing: none of them may begin with it."""
StateName = Literal["never heard", "up", "silent", "gone", "quarantined", "removed"]


@dataclass(frozen=True)
class PeerSettings:
    """Times at which peers are looked after, and how long frames may be.

    Attributes
    ----------
    heartbeat : float
        Seconds between two heartbeats to a contact.
    silence, gone_after : float
        Seconds without anything of a peer after which it is called silent, and gone.
    largest : int
        Most bytes of an encoded frame; the same at all nodes.
    longest_hello : float
        Most seconds between two hellos to a peer that does not answer.
    """

    heartbeat: float = 15.0
    silence: float = 45.0
    gone_after: float = 600.0
    largest: int = 4 << 20
    longest_hello: float = LONGEST_HELLO

    def __post_init__(self) -> None:
        if not 0 < self.heartbeat < self.silence < self.gone_after:
            raise SpecError(
                f"peers need 0 < heartbeat < silence < gone_after, "
                f"found {self.heartbeat!r}, {self.silence!r} and {self.gone_after!r}"
            )


@dataclass(frozen=True)
class PeerState:
    """Knowledge of a peer.

    Attributes
    ----------
    state : str
        Name of the state.
    seconds : float
        Seconds since it was heard, or if it never was, since this node began; in quarantine, until it ends.
    contact : bool
        Whether heartbeats are exchanged with it.
    finished : str
        Reason why its node makes no more updates, as it said last; empty while it does.
    dropped : mapping of str to int
        Dropped of its datagrams and messages, by reason.
    knows : bool
        Whether it has heard that this node has finished, as it said last.
    receipts : str
        Reason why its receipts are not believed, and nothing of it is taken; empty while they are.
    version : str
        Version of the software that it runs, as it said last; empty until it has.
    passed : bool
        Whether it has answered a probe of this process.
    owes : float, optional
        Seconds since a probe that it has not answered; None while it owes no answer.
    digest : Digest, optional
        Digest that it said last, if it tells this node any.
    digest_age : float
        Seconds since it said that; it may have been heard since then, as where a connection was made anew.
    """

    state: StateName
    seconds: float
    contact: bool
    finished: str
    dropped: Mapping[str, int]
    knows: bool = False
    receipts: str = ""
    passed: bool = False
    owes: float | None = None
    version: str = ""
    digest: Digest | None = None
    digest_age: float = 0.0

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
        The name and key.
    settings : PeerSettings
        Settings of all peers.
    began : float
        Time when this node began.
    standing : Standing
        Record of how it has behaved.
    wait : float
        Seconds until the next hello.
    contact : bool
        Whether heartbeats are exchanged with it.
    channel : SecureChannel or None
        Once it was needed.
    heard, session_at : float or None, float
        Time when something of it opened last, and when its session began.
    said_hello, hello_at, heartbeat_at : float
        Time when hello was said last, may be said again, and the next heartbeat is due.
    told : bool
        Whether it may be told that this node has finished.
    finished, knows, version : str, bool, str
        Content of its last heartbeat.
    counters : LinkCounters or None
        Numbers that it has said of the messages between the two.
    digest, digest_at : Digest or None, float
        Digest that it said last, and when.
    passed : bool
        Whether it has answered a probe.
    probed_at, probe_at : float or None, float
        Time when the first probe was sent that it has not answered, and when the next may be.
    probe_came : int or None
        Number of bytes of a probe of its own that is still to be answered.
    removed : bool
        Whether the organiser has removed it from the run.
    said, said_at : str, float
        The state as the log has it, and since when.
    """

    member: Member
    settings: PeerSettings
    began: float
    standing: Standing = field(default_factory=Standing)
    wait: float = HELLO_EVERY
    contact: bool = False
    channel: SecureChannel | None = None
    heard: float | None = None
    session_at: float = -math.inf
    said_hello: float = -math.inf
    hello_at: float = -math.inf
    heartbeat_at: float = -math.inf
    told: bool = False
    finished: str = ""
    knows: bool = False
    version: str = ""
    counters: LinkCounters | None = None
    digest: Digest | None = None
    digest_at: float = -math.inf
    passed: bool = False
    probed_at: float | None = None
    probe_at: float = -math.inf
    probe_came: int | None = None
    removed: bool = False
    said: str = "never heard"
    said_at: float = -math.inf

    @property
    def name(self) -> str:
        return self.member.name

    @property
    def has_session(self) -> bool:
        return self.channel is not None and self.channel.session is not None

    def hear(self, now: float) -> None:
        """Something came that only the peer can have sent, and now."""
        self.contact, self.heard = True, now
        self.wait, self.hello_at = HELLO_EVERY, -math.inf

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
        if self.removed:
            return "removed"
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
        same = {key: getattr(self, key) for key in ("contact", "finished", "knows", "passed", "version", "digest")}
        if self.finished == REHEARSES and self.called(now) != "up":  # that is over, and its part has not begun
            same |= {"finished": "", "passed": False}
        dropped, receipts = dict(self.standing.dropped), self.standing.disbelieved
        owes = None if self.probed_at is None else now - self.probed_at
        same |= {"dropped": dropped, "receipts": receipts, "owes": owes, "digest_age": now - self.digest_at}
        return PeerState(self.called(now), seconds, **same)
