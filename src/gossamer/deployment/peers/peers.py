"""All that a node has to do with its peers beside the run itself: secrets, who is there, and who is not to be heard.

`Peers` holds a sealed channel to every member of the run, made when it is first needed. It does no I/O and reads no
clock; whoever runs the node passes the time in, publishes what is returned, and calls `Peers.wake` when
`Peers.deadline` has come. A frame that cannot be sealed yet, for want of a session, is lost, as it might be on the way:
the node's session transmits it again.

**What is dropped** is every datagram of a stranger, of another run, of a wrong shape or size, not authentic, come
before, or whose content is no frame. It changes nothing, is counted by sender and reason, and is named in the log at
growing intervals.

**Who is put in quarantine.** A datagram's sender is whatever its topic says, and that is as true as the broker's access
list is strict: whoever gets past it can publish as anybody. So what does not authenticate says nothing about the peer
it names, and if it counted against the peer, any such attacker could silence any honest node. It never does:

- Junk is dropped as cheaply as it can be told. What costs time before it is known to be authentic are handshakes, and
  of those a peer's name is allowed a few a second; a flood of them can delay a new session by as much as it outnumbers
  the peer's hellos, while a session that there is goes on. A forged frame costs one pass over its bytes, as receiving
  it did.
- What is inside a valid seal was made by the holder of the peer's key, once: content that is no frame, and what the
  node itself refuses (`Peers.rejected`). These are *offences*. A peer that goes on offending is put in quarantine,
  where its datagrams are dropped before any cryptography, for periods that double. To the run it is a peer that has
  fallen silent. It comes back on probation, because a fault may have been mended; with its key stolen, or in bad
  faith, it soon spends its days in quarantine.
- What is late, repeated, or of a session that has ended happens between honest nodes, which crash and restart over
  links that repeat and delay. It is counted, and that is all. Of two nodes with one identity the newer counts as
  long as it is heard, so a copy that ends leaves its place to the node whose copy it was; their owner has to part them.

**Who is there.** A peer counts as heard when something of its opens, which cannot be an old recording. Each contact, a
peer that was named as one or with whom anything was exchanged, is sent a heartbeat at fixed intervals, with the reason
once the node has finished, and whether it knows that the peer has; at once when either is news. It is sent hellos, at
growing intervals, as long as there is no session or the peer is silent. Only the node's own steady clock is used: that
clocks differ does not matter.
"""

from __future__ import annotations

import math
import os
import struct
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from gossamer.deployment.channel.secure_channel import Reason, RefusedDatagram, SecureChannel
from gossamer.deployment.peers.digest import Digest
from gossamer.deployment.peers.standing import HELLO_EVERY, REHEARSES, Peer, SparseLog, printable
from gossamer.deployment.peers.standing import PeerSettings as PeerSettings
from gossamer.deployment.peers.standing import PeerState as PeerState
from gossamer.errors import CallerError, MalformedMessage, PeerError, SpecError
from gossamer.keys.identity import Identity
from gossamer.keys.invitations import Member
from gossamer.keys.orders import Order, Orders
from gossamer.protocol import encoding
from gossamer.protocol.messages import (
    HEADER,
    ChunkFrame,
    Frame,
    MessageFrame,
    decode_frame,
    encode_frame,
    without_header,
)
from gossamer.protocol.session import LinkCounters
from gossamer.protocol.witnesses import MOST_LINKS, Note, Witnesses
from gossamer.version import __version__

# Payload of a sealed datagram: a frame of the session, a word from party to party, or a probe.
#
# The first byte says which; it may say that a note about receipts comes first (`protocol.witnesses`), which rides on
# whatever is sent anyhow. A frame is for the node's session (`protocol.messages`). A *word* is for whoever looks after
# the peers: it is neither stored nor acknowledged nor repeated, and nothing of the run depends on it. There are four,
# the heartbeat, the counters of the messages between the two, an order of the organiser, and the answer to a *probe*:
# as many zeros as a message of the run is long, which show whether such a message gets through before anything is
# charged. To those who watch the federation a node says its digest in the place of a heartbeat.

FRAME, WORD, NOTED, PROBE = 0, 1, 2, 3
LONGEST_REASON = 80
"""Most characters of the reason that a heartbeat gives."""
LARGEST_NOTE = 3 + 32 * MOST_LINKS + 256
"""Most bytes by which a note makes a payload longer."""
_LARGEST_WORD = 4096
_LENGTH = struct.Struct("<H")


@encoding.register("peer.heartbeat")
@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The sender is there.

    Attributes
    ----------
    seconds : float
        Seconds since its process began.
    finished : str
        Reason why its node makes no more updates; empty while it does.
    knows : bool
        Whether it has heard that the node of the party this is for makes no more either.
    version : str
        Version of the software that it runs.
    """

    seconds: float
    finished: str = ""
    knows: bool = False
    version: str = ""

    def __post_init__(self) -> None:
        texts = all(type(text) is str and len(text) <= LONGEST_REASON for text in (self.finished, self.version))
        timed = type(self.seconds) is float and 0 <= self.seconds < math.inf
        if not (texts and timed and type(self.knows) is bool):
            raise ValueError(f"expected seconds of 0 or more, texts of {LONGEST_REASON} letters, true or false")


@encoding.register("peer.passed")
@dataclass(frozen=True, slots=True)
class Passed:
    """A probe has come.

    Attributes
    ----------
    size : int
        Number of bytes that it had.
    """

    size: int

    def __post_init__(self) -> None:
        if type(self.size) is not int or self.size < 0:
            raise ValueError(f"expected a number of bytes, 0 or more, found {self.size!r}")


@dataclass(frozen=True, slots=True)
class PeerProbe:
    """So many zeros, for which the peer has no other use than to say that they came."""

    size: int


Word = Heartbeat | LinkCounters | Passed | Digest | Order
Content = Frame | Word | PeerProbe


def noted(content: bytes, note: Note | None) -> bytes:
    """Put a note before what is sealed, if there is one."""
    if note is None:
        return content
    first = HEADER + encoding.encode(note)
    return b"".join((bytes([NOTED]), _LENGTH.pack(len(first)), first, content))


def encode_content(content: Content) -> bytes:
    """Encode what is sealed, without a note."""
    if isinstance(content, PeerProbe):
        return bytes([PROBE]) + bytes(content.size)
    if isinstance(content, Word):
        return bytes([WORD]) + HEADER + encoding.encode(content)
    return bytes([FRAME]) + encode_frame(content)


def decode_content(sealed: bytes, largest: int) -> tuple[Content, Note | None]:
    """Decode what was sealed, of at most ``largest`` bytes without its note, and the note.

    Raises
    ------
    MalformedMessage
        With the reason.
    """
    note = None
    if sealed[:1] == bytes([NOTED]):
        end = 1 + _LENGTH.size
        end += int.from_bytes(sealed[1:end], "little")
        note = encoding.decode(without_header(memoryview(sealed)[1 + _LENGTH.size : end], LARGEST_NOTE), most_values=7)
        if not isinstance(note, Note):
            raise MalformedMessage(f"expected a note about receipts, found {type(note).__name__}")
        sealed = sealed[end:]
    kind, rest = sealed[:1], memoryview(sealed)[1:]
    if kind == bytes([FRAME]):
        return decode_frame(rest, largest), note
    if kind == bytes([PROBE]) and len(rest) <= largest:
        return PeerProbe(len(rest)), note
    if kind != bytes([WORD]):
        raise MalformedMessage(f"expected a frame (0), a word (1) or a probe (3), found kind {kind.hex() or 'nothing'}")
    word = encoding.decode(without_header(rest, _LARGEST_WORD), most_values=5)
    if not isinstance(word, Word):
        raise MalformedMessage(f"expected a word, found {type(word).__name__}")
    return word, note


Outgoing = list[tuple[str, bytes]]
"""Datagrams, each with whom it is for."""

STRANGER, QUARANTINED = "stranger", "quarantined"
MALFORMED, REJECTED, REMOVED = "malformed content", "rejected by the node", "removed"
NO_ORDER = "not the organiser's order"
"""Reasons for dropping, beside those of `gossamer.deployment.channel.secure_channel.Reason`."""

RENEW_AFTER = 3600.0
"""Seconds after which a session is renewed, so that a node's memory has the keys of no more than that."""
PROBE_EVERY = 5.0
"""Least seconds between two probes of a peer."""
_KEEP_EVERY = 5.0  # most seconds for which countersignatures are not on disk, which costs only links
_STATES_EVERY = 60.0  # least seconds between two lines about the state of a peer


class Peers:
    """One node's dealings with all other members of its run.

    Parameters
    ----------
    identity : Identity
        Identity of this node.
    run : str
        The run's random name.
    me : str
        This node's name.
    members : sequence of Member
        Members of the run; this node may be among them.
    settings : PeerSettings
        Times at which peers are looked after, and how long frames may be.
    now : float
        Seconds on the node's clock, which never goes back.
    contacts : iterable of str
        Peers to keep in touch with from the start.
    counters : callable, optional
        Counters of the messages between this node and a peer, for that peer.
    witnesses : Witnesses, optional
        Witnesses of this node's receipts and of its peers'.
    digest : callable, optional
        Digest of this node, for peers that watch it: they are told that instead of heartbeats, and nothing any longer
        once they are gone.
    orders : Orders, optional
        The organiser's orders: peers are told all that are known, with each heartbeat, and what they tell is taken.
    log : callable
        Takes a line about peers.
    warn : callable, optional
        Takes one about what was dropped, and who is in quarantine; by default ``log`` does.
    entropy : callable
        Gives so many random bytes, for tests; never another than the default where anything is at stake.

    Attributes
    ----------
    strangers : Counter of str
        Datagrams whose sender is no member, by reason.
    """

    def __init__(
        self,
        identity: Identity,
        run: str,
        me: str,
        members: Sequence[Member],
        settings: PeerSettings,
        now: float,
        *,
        contacts: Iterable[str] = (),
        counters: Callable[[str], LinkCounters] | None = None,
        witnesses: Witnesses | None = None,
        digest: Callable[[], Digest] | None = None,
        orders: Orders | None = None,
        log: Callable[[str], None] = lambda line: None,
        warn: Callable[[str], None] | None = None,
        entropy: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.run, self.me, self.settings = run, me, settings
        self.strangers: Counter[str] = Counter()
        self._identity, self._entropy, self._began = identity, entropy, now
        self._counters, self._witnesses, self._kept_at = counters, witnesses, now
        self._say, self._warn, self._log, self._news = log, warn or log, SparseLog(warn or log), SparseLog(log)
        self._finished, self._digest, self._orders = "", digest, orders
        self._peers = {member.name: Peer(member, settings, now) for member in members if member.name != me}
        for name in contacts:
            self._peer(name).contact = True

    # The run's frames

    def seal(self, to: str, frame: Frame, now: float) -> Outgoing:
        """Datagrams that carry ``frame`` to the peer named ``to``, which is a contact from now on.

        Raises
        ------
        SpecError
            If no such peer is a member.
        CallerError
            If the frame is longer than ``largest``.
        """
        peer = self._peer(to)
        if self._removed(peer):
            return []
        peer.contact = True
        if peer.standing.quarantined(now):
            return []
        if not peer.has_session:
            return self._hello(peer, now) if now >= peer.hello_at else []
        content, most = encode_content(frame), self.settings.largest + 1
        if len(content) > most:
            raise CallerError(f"expected at most {most} bytes to seal, found {len(content)}; cut it in chunks")
        note = self._note(to, claims=isinstance(frame, MessageFrame | ChunkFrame))
        return _addressed(to, self._channel(peer).seal(noted(content, note)))

    def probe(self, name: str, size: int, now: float) -> Outgoing:
        """A datagram as long as a message of ``size`` bytes, which the peer answers if it gets there.

        None while there is no session, or where one was sent within `PROBE_EVERY`.
        """
        peer = self._peer(name)
        if not peer.has_session or peer.standing.quarantined(now) or now < peer.probe_at:
            return []
        peer.probe_at = now + max(PROBE_EVERY, self.settings.longest_hello / 12)
        peer.probed_at = now if peer.probed_at is None else peer.probed_at
        return _addressed(name, self._channel(peer).seal(encode_content(PeerProbe(min(size, self.settings.largest)))))

    def open(self, sender: str, datagram: bytes, now: float) -> tuple[list[tuple[str, Frame]], Outgoing]:
        """Open a datagram: what it holds for the node, with whom it is from; and what to publish at once.

        Parameters
        ----------
        sender : str
            Party who published it, as far as the broker says.
        datagram : bytes
            Anything at all.
        now : float
            Seconds on the node's clock.
        """
        if (peer := self._peers.get(sender)) is None:
            self.strangers[STRANGER] += 1
            self._log(("", STRANGER), f"dropped from a stranger, who calls itself {sender[:64]!r}", now)
            return [], []
        standing = peer.standing
        if standing.quarantined(now):
            standing.dropped[QUARANTINED] += 1
            return [], []
        if self._removed(peer):
            self._drop(peer, REMOVED, "the organiser has removed it from this run", now)
        channel = self._channel(peer)
        before = channel.session
        try:
            # A copy that took a node's place and ended leaves it to the node again. Of those who watch with one key the
            # broker has one at a time, as where an order is given beside a table that stays on: who calls last counts.
            alive = self._digest is None and peer.called(now) == "up"
            opened = channel.open(datagram, lambda: standing.admits_handshake(now), alive=alive)
        except RefusedDatagram as refusal:
            unknown = refusal.reason is Reason.UNKNOWN_SESSION
            replaced = self._digest is not None and (unknown or refusal.reason is Reason.OLD_SESSION)
            if not (peer.removed or replaced):
                self._drop(peer, refusal.reason.value, str(refusal), now)
            return [], self._hello(peer, now) if unknown else []
        if peer.removed:  # nothing of it is taken, and it is told why under a session that it has now
            told = channel.session != before or (opened.plaintexts and now >= peer.heartbeat_at)
            return [], _addressed(sender, opened.answers) + (self._heartbeat(peer, now) if told else [])
        if opened.plaintexts or channel.session != before:
            peer.hear(now)
        if channel.session != before:
            peer.session_at = now
        if (self._counters or self._digest) and channel.session != before:
            peer.heartbeat_at = -math.inf  # who comes back has to hear at once what it may have forgotten
        frames = [frame for sealed in opened.plaintexts for frame in self._take(peer, sealed, now)]
        return frames, _addressed(sender, opened.answers)

    def rejected(self, sender: str, reason: str, now: float) -> None:
        """The node refused a frame or a message of ``sender``, which was sealed by it: an offence."""
        if (peer := self._peers.get(sender)) is not None:
            self._offence(peer, REJECTED, reason, now)

    def keep(self, now: float) -> None:
        """Have what was seen of receipts on disk: before any frame that was opened is taken."""
        witnesses = self._witnesses
        if witnesses is not None and (witnesses.urgent or (witnesses.changed and now > self._kept_at + _KEEP_EVERY)):
            witnesses.keep()
            self._kept_at = now

    # Looking after peers

    def wake(self, now: float) -> Outgoing:
        """Datagrams that the passing of time demands: hellos and heartbeats."""
        outgoing: Outgoing = []
        for peer in self._peers.values():
            if self._removed(peer) or not peer.contact:
                continue
            self._tell_state(peer, now)
            alone = peer.called(now) == "gone" or (peer.heard is None and now > self._began + self.settings.gone_after)
            if self._digest is not None and alone:
                peer.contact = False  # until it says hello again
                continue
            if peer.standing.quarantined(now):
                continue
            if peer.has_session and now >= peer.heartbeat_at:
                outgoing += self._heartbeat(peer, now)
            renewed = max(RENEW_AFTER, self.settings.longest_hello)
            if (peer.wants_hello(now) or now >= peer.session_at + renewed) and now >= peer.hello_at:
                outgoing += self._hello(peer, now)
        return outgoing

    def deadline(self) -> float | None:
        """The time at which `wake` is wanted next; None while there are no contacts."""
        return min((peer.due() for peer in self._peers.values() if peer.contact), default=None)

    def hasten(self) -> None:
        """Have the next heartbeats, or digests, leave at once."""
        for peer in self._peers.values():
            peer.heartbeat_at = -math.inf

    def finished(self, reason: str, but: Collection[str] = ()) -> None:
        """The node makes no more updates; contacts are told with every heartbeat from now on, the next one at once.

        Those in ``but`` are told another time, or that it has not finished yet: who hears it may leave, and that would
        be too early for what they are still to be sent.
        """
        self._finished = printable(reason, LONGEST_REASON)
        for peer in self._peers.values():
            peer.told = peer.name not in but
            if peer.told:
                peer.heartbeat_at = -math.inf

    def states(self, now: float) -> dict[str, PeerState]:
        """Return what is known of each peer, by name."""
        return {name: peer.state(now) for name, peer in self._peers.items()}

    def counters(self) -> dict[str, LinkCounters]:
        """Counters that peers have told of the messages between them and this node, by name."""
        return {name: peer.counters for name, peer in self._peers.items() if peer.counters is not None}

    def forgotten(self) -> list[str]:
        """Lines on receipts of this node that peers have countersigned, and that it has not."""
        return [] if self._witnesses is None else self._witnesses.forgotten()

    # Channels

    def _peer(self, name: str) -> Peer:
        if name not in self._peers:
            raise SpecError(f"{self.me}: expected one of the peers {', '.join(self._peers)}, found {name!r}")
        return self._peers[name]

    def _channel(self, peer: Peer) -> SecureChannel:
        if peer.channel is None:
            largest = self.settings.largest + 1 + LARGEST_NOTE  # with the byte that says what is inside
            ends = self._identity, peer.member.key, self.run, self.me, peer.name
            peer.channel = SecureChannel(*ends, largest=largest, entropy=self._entropy)
        return peer.channel

    def _hello(self, peer: Peer, now: float) -> Outgoing:
        """A hello, unless there was one just now: whoever asks for many gets few."""
        if now < peer.said_hello + HELLO_EVERY:
            return []
        peer.said_hello, peer.hello_at = now, now + peer.wait
        peer.wait = min(2 * peer.wait, self.settings.longest_hello)
        return _addressed(peer.name, self._channel(peer).hello())

    def _heartbeat(self, peer: Peer, now: float) -> Outgoing:
        peer.heartbeat_at = now + self.settings.heartbeat
        words: list[Word] = [] if self._counters is None or peer.removed else [self._counters(peer.name)]
        if self._digest is not None:
            words.append(self._digest())
        elif not peer.removed:
            age = max(0.0, now - self._began)
            words.append(Heartbeat(age, self._finished if peer.told else "", bool(peer.finished), __version__))
        if self._digest is None and self._orders is not None:
            words += self._orders.known.values()
        if peer.probe_came is not None:
            words.append(Passed(peer.probe_came))
            peer.probe_came = None
        outgoing: Outgoing = []
        for word in words:
            note = self._note(peer.name, tells=True) if isinstance(word, LinkCounters) else None
            outgoing += _addressed(peer.name, self._channel(peer).seal(noted(encode_content(word), note)))
        return outgoing

    def _note(self, to: str, *, claims: bool = False, tells: bool = False) -> Note | None:
        return None if self._witnesses is None else self._witnesses.note(to, claims=claims, tells=tells)

    # What comes

    def _removed(self, peer: Peer) -> bool:
        """Whether the organiser has removed it: then it is no contact any longer, and told that if it is heard."""
        if not peer.removed and self._orders is not None and self._orders.removes(peer.name):
            peer.removed, peer.contact, peer.heartbeat_at = True, False, -math.inf
        return peer.removed

    def _take(self, peer: Peer, sealed: bytes, now: float) -> list[tuple[str, Frame]]:
        """Take what the peer sealed: a frame for the node, or a word, which is taken note of here."""
        try:
            content, note = decode_content(sealed, self.settings.largest)
        except PeerError as error:
            self._offence(peer, MALFORMED, str(error), now)
            return []
        if note is not None and not self._believes(peer, note, isinstance(content, LinkCounters), now):
            return []
        match content:
            case LinkCounters():
                peer.counters = content
            case PeerProbe(size):
                peer.probe_came, peer.heartbeat_at = size, -math.inf  # which has the answer, at once
            case Digest():
                peer.digest, peer.digest_at = content, now
            case Order():
                if self._orders is not None and (why := self._orders.take(content)):
                    self._offence(peer, NO_ORDER, f"sent {why}", now)
            case Passed():
                peer.passed, peer.probed_at = True, None
            case Heartbeat(_, finished, knows, version):
                if bool(finished) != bool(peer.finished) or (peer.told and not knows):
                    peer.heartbeat_at = -math.inf  # it waits to hear that this is known, or does not know yet
                if finished and printable(finished) != peer.finished:
                    told = finished if finished == REHEARSES else f"makes no more updates: {finished}"
                    self._news((peer.name, "finished"), f"{peer.name} {told}", now)
                peer.finished, peer.knows, peer.version = printable(finished), knows, printable(version)
            case _:
                if isinstance(content, MessageFrame | ChunkFrame):
                    peer.standing.believe()
                return [(peer.name, content)]
        return []

    def _believes(self, peer: Peer, note: Note, told: bool, now: float) -> bool:
        """Whether what came with a note may be taken."""
        found = None if self._witnesses is None else self._witnesses.take(peer.name, note, told=told)
        if found is None:
            return True
        if found.drops:
            peer.standing.disbelieve(found.line, now, offence=found.offence)
        if found.offence:
            self._offence(peer, found.reason, found.line, now)
        elif found.drops:
            self._drop(peer, found.reason, found.line, now)
        else:
            self._log((peer.name, found.reason), found.line, now)
        return not found.drops

    def _offence(self, peer: Peer, reason: str, line: str, now: float) -> None:
        self._drop(peer, reason, line, now)
        if (seconds := peer.standing.offend(now)) is not None:
            self._log((peer.name, QUARANTINED), f"{peer.name} is in quarantine for {seconds:.0f} s: {line}", now)

    def _drop(self, peer: Peer, reason: str, line: str, now: float) -> None:
        peer.standing.dropped[reason] += 1
        self._log((peer.name, reason), f"dropped from {peer.name}, {reason}: {line}", now)

    # Who is there

    def _tell_state(self, peer: Peer, now: float) -> None:
        """Say in the log that a peer is in another state than was said, at most once in a while."""
        if now < peer.said_at + _STATES_EVERY:
            return
        if peer.called(now) != peer.said:
            peer.said, peer.said_at = peer.called(now), now
            self._say(f"{peer.name}: {peer.state(now)}")


def _addressed(to: str, datagrams: Iterable[bytes]) -> Outgoing:
    return [(to, datagram) for datagram in datagrams]
