"""Link of a session to one peer: which messages are where, how long to wait for it, and what each side has.

Times that a peer takes are learnt as TCP learns them. After a first time R: mean = R, deviation = R/2. After each
further one:

    deviation <- 3/4 deviation + 1/4 |mean - R|,    mean <- 7/8 mean + 1/8 R;

and whoever waits for an answer waits for mean + 4 deviation, within bounds that the caller has.

References
----------
Paxson, Allman, Chu and Sargent, "Computing TCP's retransmission timer", RFC 6298, section 2; Jacobson and Karels,
"Congestion avoidance and control", SIGCOMM 1988. That what was sent twice tells no time: Karn and Partridge, "Improving
round-trip time estimates in reliable transport protocols", SIGCOMM 1987.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gossamer.errors import counted
from gossamer.protocol.chunks import Incoming, Outgoing, cut
from gossamer.protocol.encoding import register, size_of
from gossamer.protocol.frames import Acknowledge, ChunkFrame, MessageFrame, ProgressFrame
from gossamer.protocol.messages import Message, message_pieces

WINDOW = 32
"""Most messages under way to one peer, and so most that a receiver keeps out of order; the same at both ends."""

ALPHA, BETA, K = 1 / 8, 1 / 4, 4
"""The constants of RFC 6298."""
PATIENCE = 2
"""How many such waits a peer may be silent before it is given up."""
MOST_SILENCE = 10
"""How many times the silence that its settings have a peer may be silent in any case."""


@register("session.round_trips")
@dataclass(frozen=True, slots=True)
class RoundTrips:
    """Mean and deviation of a peer's times, in seconds; both None before the first."""

    mean: float | None = None
    deviation: float | None = None

    def after(self, seconds: float) -> RoundTrips:
        """The same after one more time."""
        if self.mean is None or self.deviation is None:
            return RoundTrips(seconds, seconds / 2)
        deviation = (1 - BETA) * self.deviation + BETA * abs(self.mean - seconds)
        return RoundTrips((1 - ALPHA) * self.mean + ALPHA * seconds, deviation)

    def wait(self, least: float, most: float) -> float:
        """Seconds to wait for an answer, within bounds; ``least`` before the first."""
        if self.mean is None or self.deviation is None:
            return least
        return min(max(self.mean + K * self.deviation, least), most)


@register("session.link")
@dataclass(slots=True)
class Link:
    """State of a session with one peer. Times are in seconds on the node's clock.

    Attributes
    ----------
    wait : float
        Seconds from a transmission to the next.
    quiet_since : float
        Time since when nothing new was acknowledged, if anything is unacknowledged.
    due : float or None
        Time to look at this link again.
    down : bool
        Whether the peer was reported down.
    queued, transmitted, acknowledged : int
        Highest number given to a message, put on the link, and acknowledged with all before it.
    outbox : dict of int to Message
        Messages, by number, that are not known to have arrived.
    under_way : dict of int to float
        Time when each of the outbox's transmitted messages was last transmitted; in the order of numbers.
    delivered : int
        All messages of the peer up to this number were delivered.
    early : dict of int to Message
        Messages of the peer that wait for one before them.
    outgoing : Outgoing or None
        The message that leaves in chunks.
    incoming : Incoming or None
        The message that arrives in chunks.
    unanswered : int
        Number of messages of the peer were delivered while something is under way to it and it acknowledged nothing
        new.
    trips : RoundTrips
        Times of what was transmitted once: they tell when to transmit again.
    answers : RoundTrips
        Times from the first transmission, so with all that was lost between: they tell when to give the peer up.
    first : dict of int to float
        Time when each message under way was transmitted first, or when some of it was last known to have arrived; where
        times are learnt.
    """

    wait: float
    quiet_since: float = 0.0
    due: float | None = None
    down: bool = False
    queued: int = 0
    transmitted: int = 0
    acknowledged: int = 0
    outbox: dict[int, Message] = field(default_factory=dict)
    under_way: dict[int, float] = field(default_factory=dict)
    delivered: int = 0
    early: dict[int, Message] = field(default_factory=dict)
    outgoing: Outgoing | None = None
    incoming: Incoming | None = None
    unanswered: int = 0
    trips: RoundTrips = RoundTrips()
    answers: RoundTrips = RoundTrips()
    first: dict[int, float] = field(default_factory=dict)

    def fresh(self) -> range:
        """Numbers that may be transmitted for the first time."""
        last = self.transmitted if self.down else min(self.queued, self.acknowledged + WINDOW)
        return range(self.transmitted + 1, last + 1)

    def overdue(self, now: float) -> list[int]:
        """Numbers that have waited long enough to be transmitted again."""
        return [number for number, at in self._retried() if at + self.wait <= now]

    def next_due(self, silence: float) -> float | None:
        """Return the time at which something becomes overdue or the peer has been silent for too long."""
        if not self.under_way:
            return None
        retry = min(at for _, at in self._retried()) + self.wait
        return retry if self.down else min(retry, self.quiet_since + silence)

    def _retried(self) -> Iterable[tuple[int, float]]:
        return [next(iter(self.under_way.items()))] if self.down else self.under_way.items()

    def settle(self, frame: MessageFrame | ChunkFrame | Acknowledge) -> bool:
        """Take note of what ``frame`` acknowledges; whether any of it is news."""
        upto, early = frame.acknowledged, frame.early if isinstance(frame, Acknowledge) else 0
        arrived = [number for number in self.under_way if number <= upto or early >> (number - upto - 1) & 1]
        for number in arrived:
            del self.under_way[number], self.outbox[number]
        while self.acknowledged < self.transmitted and self.acknowledged + 1 not in self.under_way:
            self.acknowledged += 1
        if self.outgoing is not None and self.outgoing.number not in self.outbox:
            self.outgoing = None
        if arrived:
            self.unanswered = 0
        return bool(arrived)

    def settle_progress(self, progress: ProgressFrame, now: float) -> bool:
        """Take note of which chunks have arrived; whether any of it is news."""
        outgoing = self.outgoing
        if outgoing is None or (outgoing.number, outgoing.chunks) != (progress.number, progress.chunks):
            return False  # of a message that is complete, or that this node had cut in another way
        news = outgoing.settle(progress)
        if news:
            self.under_way[outgoing.number] = now
            self.unanswered = 0
        return news

    def data(self, number: int) -> MessageFrame:
        """The frame that carries message ``number``."""
        return MessageFrame(number, self.acknowledged, self.delivered, self.outbox[number])

    def chunk(self, chunk: int) -> ChunkFrame:
        """The frame that carries chunk ``chunk`` of the message that leaves in chunks."""
        assert self.outgoing is not None
        number, chunks = self.outgoing.number, self.outgoing.chunks
        pieces = message_pieces(self.outbox[number])
        content = cut(pieces, chunk, chunks)
        return ChunkFrame(number, self.acknowledged, self.delivered, chunk, chunks, size_of(pieces), content)

    def accept(self, data: MessageFrame) -> list[Message]:
        """Take in a message of the peer; all that can now be delivered.

        Each of its messages may have a node send one, which is kept until it is acknowledged. So a peer that sends on
        and on without acknowledging anything is not heard until it does; its messages are as good as lost. Between
        two nodes that keep the protocol this ends: what came before is still acknowledged by either.
        """
        if data.number > self.delivered and self.unanswered < WINDOW:
            self.early[data.number] = data.message
        ready = []
        while self.delivered + 1 in self.early:
            self.delivered += 1
            ready.append(self.early.pop(self.delivered))
            self.unanswered = self.unanswered + 1 if self.under_way else 0
        if self.incoming is not None and self.incoming.number <= self.delivered:
            self.incoming = None  # it came in one frame after all
        return ready

    def acknowledgement(self) -> Acknowledge:
        """Acknowledge what has arrived from the peer."""
        return Acknowledge(self.delivered, sum(1 << (number - self.delivered - 1) for number in self.early))

    # How long to wait

    @property
    def owed_since(self) -> float | None:
        """Time since which the peer has acknowledged nothing of what is under way to it; None where nothing is."""
        return self.quiet_since if self.under_way else None

    def is_unreached(self, least: float, now: float) -> bool:
        """Whether the peer has owed an acknowledgement for longer than ``least`` seconds, or its own times."""
        return self.owed_since is not None and now - self.owed_since > self.silence(least)

    def silence(self, least: float) -> float:
        """Seconds without news after which the peer is given up; ``least`` of its settings, or more if it is slow."""
        return max(least, PATIENCE * self.answers.wait(0.0, MOST_SILENCE * least / PATIENCE))

    def learn(self, before: dict[int, float], now: float, silence: float) -> bool:
        """Learn from what has arrived of ``before``, the messages that were under way; whether of a retry's time.

        What took more than twice the time after which a peer is given up tells of an outage, not of its pace.
        """
        told, most = False, 2 * self.silence(silence)
        for number, sent in before.items():
            if self.under_way.get(number) == sent:
                continue  # nothing new of it
            first = self.first.pop(number, sent)
            if now - first <= most:
                self.answers = self.answers.after(now - first)
            if first == sent:
                self.trips, told = self.trips.after(now - sent), True
        for number, sent in self.under_way.items():
            self.first.setdefault(number, sent)
        return told


# What each side has, which tells a party that its store is older than what it did
#
# A party that is given back an old copy of its store, or that has lost it, cannot tell: the copy is whole. Its peers
# can. So each tells the other, as soon as there is a channel, how much it has sent, received and had acknowledged, and
# a party compares that with its store before it draws or charges anything. A peer's counters never run ahead of a store
# that is the newest: whatever a node puts on a link, or acknowledges, is durable before.


@register("peer.counters")
@dataclass(frozen=True, slots=True)
class LinkCounters:
    """Numbers of the messages between the sender and the party this is for, as the sender has them.

    Attributes
    ----------
    sent : int
        The highest number that it has put on the link.
    acknowledged : int
        Up to which number it knows that all of its messages have arrived.
    received : int
        The highest number of the other's messages that it has.
    early : int
        Bits of its messages after ``acknowledged`` that it knows to have arrived: the lowest bit is the next
        one.
    """

    sent: int
    acknowledged: int
    received: int
    early: int = 0

    def __post_init__(self) -> None:
        for value in (self.sent, self.acknowledged, self.received, self.early):
            if type(value) is not int or value < 0:
                raise ValueError(f"expected a number of messages, 0 or more, found {value!r}")


def counters_of(link: Link | None) -> LinkCounters:
    """Counters of a link, for the party at its other end."""
    if link is None:
        return LinkCounters(0, 0, 0)
    after = range(link.acknowledged + 1, link.transmitted + 1)
    early = sum(1 << (number - after.start) for number in after if number not in link.outbox)
    return LinkCounters(link.transmitted, link.acknowledged, max(link.early, default=link.delivered), early)


def forgotten(links: Mapping[str, Link], said: Mapping[str, LinkCounters]) -> dict[str, str]:
    """Return in words, by peer, the messages that peers know of and the store does not.

    Parameters
    ----------
    links : mapping of str to Link
        Links of the store.
    said : mapping of str to LinkCounters
        Counters of each peer that has told them.
    """
    found = {}
    for name, theirs in said.items():
        link = links.get(name)
        sent, received = theirs.received - counters_of(link).sent, _not_taken(theirs, link)
        parts = [f"has {counted(sent, 'message')} more of it"] * (sent > 0)
        parts += [f"knows that it took {counted(received, 'message')} more"] * (received > 0)
        if parts:
            found[name] = " and ".join(parts)
    return found


def _not_taken(theirs: LinkCounters, link: Link | None) -> int:
    """Number of messages that a peer knows to have arrived, and that the store does not have."""
    delivered, early = (0, frozenset[int]()) if link is None else (link.delivered, link.early.keys())
    upto = max(0, theirs.acknowledged - delivered) - sum(number <= theirs.acknowledged for number in early)
    bits = (theirs.acknowledged + 1 + bit for bit in range(theirs.early.bit_length()) if theirs.early >> bit & 1)
    return max(0, upto) + sum(number > delivered and number not in early for number in bits)
