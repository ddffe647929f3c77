"""Exactly-once delivery in order, over links that lose, duplicate, delay and reorder frames.

A `Session` does this for one node and all its peers. It does no I/O and reads no clock: the runtime passes the
time in, carries out the outputs in order, and calls `Session.wake` when `Session.deadline` has come.

For each ordered pair of nodes:

- Messages are numbered from 1 and stay in the sender's outbox until they are acknowledged. At most `WINDOW`
  numbers, counted from the oldest unacknowledged one, are under way at a time.
- Every data frame is answered at once: up to which number all have arrived, and which later ones have. The
  receiver keeps those until the gap closes. What it has seen before is answered again, since that answer may have
  been lost.
- What is not acknowledged within ``retry_after`` is transmitted again. Each retry doubles the wait, up
  to ``longest_retry``; any frame from the peer ends the growth. A session that ``learns`` waits as long as the peer's
  own times say (`Link`).
- A peer that acknowledges nothing new for ``silence`` while something is under way is reported down. From then
  on only the oldest message is retried. The next new acknowledgement reports the peer up and the rest follows.
  Nothing is dropped in between, so a healed partition delivers everything exactly once. If messages of it arrive and
  again no acknowledgement for ``silence``, it is reported down once more: who took them may wait for it again.
- A message too long for one frame of ``largest_frame`` bytes travels in chunks (`frames`), one such message at a
  time. Their progress counts as acknowledgements do. A session that ``learns`` has no more of them under way than get
  there within ``retry_after``, besides the time of the way itself, so that what is small and comes behind them does
  not wait for minutes on a slow line.

Hearing a peer is not enough to call it up: across a link that works in one direction only, it is heard and yet
cannot be reached.

A node that sends to a peer that is down makes its outbox grow. One that crashes must come back with the session state
of its last *promise*, or its peers will refuse it: a number that it put on a link for the first time, or one that it
took in and acknowledged. What happened to it since then may be lost; it is asked for, and comes, again.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from gossamer.errors import PeerError, SpecError, counted
from gossamer.protocol import messages
from gossamer.protocol.encoding import register, size_of
from gossamer.protocol.events import PeerDown, PeerUp, Received
from gossamer.protocol.snapshots import Kept

# Link of a session to one peer: which messages are where, how long to wait for it, and what each side has.
#
# Times that a peer takes are learnt as TCP learns them. After a first time R: mean = R, deviation = R/2. After each
# further one:
#
#     deviation <- 3/4 deviation + 1/4 |mean - R|,    mean <- 7/8 mean + 1/8 R;
#
# and whoever waits for an answer waits for mean + 4 deviation, within bounds that the caller has.
#
# References
# ----------
# Paxson, Allman, Chu and Sargent, "Computing TCP's retransmission timer", RFC 6298, section 2; Jacobson and Karels,
# "Congestion avoidance and control", SIGCOMM 1988. That what was sent twice tells no time: Karn and Partridge,
# "Improving round-trip time estimates in reliable transport protocols", SIGCOMM 1987.

WINDOW = 32
"""Most messages under way to one peer, and so most that a receiver keeps out of order; the same at both ends."""

ALPHA, BETA, K = 1 / 8, 1 / 4, 4
"""The constants of RFC 6298."""
PATIENCE = 2
"""How many such waits a peer may be silent before it is given up."""
FIRST_CHUNKS = 2
"""Most chunks under way to a peer whose pace is not known yet."""
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
    spoke_at : float or None
        Time when the first message of the peer was delivered since it was reported down, if it is down.
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
    window : int
        Most chunks under way.
    timed : tuple of (int, float, int) or None
        The chunk whose way is timed, when it left, and how many were under way with it: 0 if it may have left twice,
        which tells no time.
    paced : tuple of (int, float)
        How many were under way with the last that was timed, and the seconds that it took.
    trip : float
        Seconds that the way there and back takes in any case, as far as they are known.
    """

    wait: float
    quiet_since: float = 0.0
    due: float | None = None
    down: bool = False
    queued: int = 0
    transmitted: int = 0
    acknowledged: int = 0
    outbox: dict[int, messages.Message] = field(default_factory=dict)
    under_way: dict[int, float] = field(default_factory=dict)
    delivered: int = 0
    early: dict[int, messages.Message] = field(default_factory=dict)
    outgoing: messages.Outgoing | None = None
    incoming: messages.Incoming | None = None
    unanswered: int = 0
    trips: RoundTrips = RoundTrips()
    answers: RoundTrips = RoundTrips()
    first: dict[int, float] = field(default_factory=dict)
    window: int = messages.CHUNK_WINDOW
    timed: tuple[int, float, int] | None = None
    paced: tuple[int, float] = 0, 0.0
    trip: float = 0.0
    spoke_at: float | None = None

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
        return retry if self.silent_since is None else min(retry, self.silent_since + silence)

    @property
    def silent_since(self) -> float | None:
        """Time from which a silence counts that is still to be reported."""
        return self.spoke_at if self.down else self.quiet_since

    def _retried(self) -> Iterable[tuple[int, float]]:
        return [next(iter(self.under_way.items()))] if self.down else self.under_way.items()

    def settle(self, frame: messages.MessageFrame | messages.ChunkFrame | messages.Acknowledge) -> bool:
        """Take note of what ``frame`` acknowledges; whether any of it is news."""
        upto, early = frame.acknowledged, frame.early if isinstance(frame, messages.Acknowledge) else 0
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

    def settle_progress(self, progress: messages.ProgressFrame, now: float, patience: float | None) -> bool:
        """Take note of which chunks have arrived; whether any of it is news.

        Where a window of them takes longer than ``patience``, the next one is half as long, and else twice. The time of
        the way there and back does not count: what two windows took tells it from the time of each chunk on the line.
        """
        outgoing = self.outgoing
        if outgoing is None or (outgoing.number, outgoing.chunks) != (progress.number, progress.chunks):
            return False  # of a message that is complete, or that this node had cut in another way
        news = outgoing.settle(progress)
        if news:
            self.under_way[outgoing.number] = now
            self.unanswered = 0
        if self.timed is not None and outgoing.arrived >= self.timed[0]:
            _, left, many = self.timed
            self.timed = None
            if many and patience is not None:
                self._pace(many, now - left, patience)
        return news

    def _pace(self, many: int, took: float, patience: float) -> None:
        """So ``many`` chunks under way took so long."""
        earlier, before = self.paced
        if many != earlier:
            self.trip = min(max((many * before - earlier * took) / (many - earlier), 0.0), took)
        quick = took - self.trip <= patience
        self.window = min(max(2 * many, self.window), messages.CHUNK_WINDOW) if quick else max(many // 2, 1)
        self.paced, self.trips = (many, took), self.trips.after(took)

    def data(self, number: int) -> messages.MessageFrame:
        """The frame that carries message ``number``."""
        return messages.MessageFrame(number, self.acknowledged, self.delivered, self.outbox[number])

    def chunk(self, chunk: int) -> messages.ChunkFrame:
        """The frame that carries chunk ``chunk`` of the message that leaves in chunks."""
        assert self.outgoing is not None
        number, chunks = self.outgoing.number, self.outgoing.chunks
        pieces = messages.message_pieces(self.outbox[number])
        content = messages.cut(pieces, chunk, chunks)
        return messages.ChunkFrame(number, self.acknowledged, self.delivered, chunk, chunks, size_of(pieces), content)

    def fresh_chunks(self, now: float) -> list[int]:
        """Chunks to put on the link now."""
        found = [] if self.outgoing is None else self.outgoing.fresh(self.window)
        if self.outgoing is not None and found and self.timed is None:
            self.timed = found[-1], now, found[-1] - self.outgoing.arrived
        return found

    def accept(self, data: messages.MessageFrame) -> list[messages.Message]:
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

    def acknowledgement(self) -> messages.Acknowledge:
        """Acknowledge what has arrived from the peer."""
        return messages.Acknowledge(self.delivered, sum(1 << (number - self.delivered - 1) for number in self.early))

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

    def learn(self, before: dict[int, float], in_chunks: int | None, now: float, silence: float) -> None:
        """Learn from what has arrived of ``before``, the messages that were under way, of which one is in chunks.

        What took more than twice the time after which a peer is given up tells of an outage, not of its pace.
        """
        most = 2 * self.silence(silence)
        for number, sent in before.items():
            if self.under_way.get(number) == sent:
                continue  # nothing new of it
            first = self.first.pop(number, sent)
            if now - first <= most:
                self.answers = self.answers.after(now - first)
            if first == sent and number != in_chunks:
                self.trips = self.trips.after(now - sent)
        for number, sent in self.under_way.items():
            self.first.setdefault(number, sent)


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


@dataclass(frozen=True)
class SessionSettings:
    """Times after which to retry, and to give up.

    Attributes
    ----------
    retry_after : float
        Seconds without an acknowledgement before a message is transmitted again. Longer than a round trip of the
        largest message, or, where chunks are used, of `frames.CHUNK_WINDOW` of them; or else everything travels twice.
    longest_retry : float
        Most seconds between two transmissions of the oldest message.
    silence : float
        Seconds without a new acknowledgement, while something is unacknowledged, before a peer is reported
        down; ``math.inf`` for never.
    largest_frame : int, optional
        Most bytes of an encoded frame that carries a message; a longer one travels in chunks. None for no limit.
        Peers may have another.
    largest_message : int
        Most bytes of an encoded message; no peer may have less. A peer can make a node keep one of its messages of
        this size while its chunks arrive.
    learns : bool
        Whether waiting follows each peer's own times (`Link`): then ``retry_after`` and ``silence`` are the
        least that is waited, and a wait that grew stays long until a message has arrived that was transmitted once.
    """

    retry_after: float
    longest_retry: float
    silence: float
    largest_frame: int | None = None
    largest_message: int = 1 << 30
    learns: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.retry_after <= self.longest_retry < math.inf:
            raise SpecError(
                f"a session needs 0 < retry_after <= longest_retry, both finite, "
                f"found retry_after {self.retry_after!r} and longest_retry {self.longest_retry!r}"
            )
        if self.largest_frame is not None and self.largest_frame < messages.smallest_frame(self.largest_message):
            raise SpecError(
                f"a session that cuts messages of up to {self.largest_message} bytes needs a largest_frame of "
                f"{messages.smallest_frame(self.largest_message)} or more, found {self.largest_frame}"
            )


@dataclass(frozen=True, slots=True)
class Transmit:
    """Put ``frame`` on the link to the node named ``to``."""

    to: str
    frame: messages.Frame


Output = Transmit | Received | PeerDown | PeerUp
"""A frame for a link, or an event for the node: a message arrives this one time."""
T = TypeVar("T")


def latest_answers(outputs: Sequence[T]) -> list[T]:
    """``outputs`` without the answers that a later one to the same peer makes superfluous: each says all that is here.

    The others stay in their order. What is not an answer, or no output of a session at all, stays.
    """
    kept: list[T] = []
    said: set[tuple[str, int]] = set()  # to whom, and of which message's chunks; 0 for all that was acknowledged
    for output in reversed(outputs):
        if isinstance(output, Transmit) and isinstance(output.frame, messages.Acknowledge | messages.ProgressFrame):
            key = output.to, output.frame.number if isinstance(output.frame, messages.ProgressFrame) else 0
            if key in said:
                continue
            said.add(key)
        kept.append(output)
    return kept[::-1]


class Session(Kept):
    """Reliable links from one node to all its peers.

    Parameters
    ----------
    name : str
        The node's name.
    settings : SessionSettings
        Times to retry, and to report a peer down.

    Attributes
    ----------
    links : dict of str to Link
        All that changes, by peer, as data that `encoding` takes; to be looked at at once.
    promises : int
        Number of promises that its outputs have made so far; not part of its state.
    """

    changing = ("links",)

    def __init__(self, name: str, settings: SessionSettings) -> None:
        self.name = name
        self.settings = settings
        self.promises = 0
        self.links: dict[str, Link] = {}
        # (when, peer), with an entry for the due time of every link; others are left over and mean nothing.
        self._alarms: list[tuple[float, str]] = []

    def send(self, to: str, message: messages.Message, now: float) -> list[Output]:
        """Queue ``message`` for the node named ``to``.

        Raises
        ------
        TypeError
            If ``message`` is no registered message or holds a value of another type than declared.
        SpecError
            If it is longer than ``largest_message``.
        """
        messages.check(message)
        if (size := messages.encoded_size(message)) > self.settings.largest_message:
            raise SpecError(
                f"{self.name}: expected a message of at most {self.settings.largest_message} bytes, found {size}; "
                f"raise largest_message at every node"
            )
        link = self.links[to] = self._link(to)
        if not link.outbox:
            link.quiet_since = now
        link.queued += 1
        link.outbox[link.queued] = message
        return self._transmit(to, link, self._fresh(link), now)

    def receive(self, sender: str, frame: messages.Frame, now: float) -> list[Output]:
        """Take a frame that arrived from ``sender``.

        Raises
        ------
        PeerError
            If no such frame can come from a peer that keeps the protocol. Nothing has changed, but that chunks which
            make up no message are gone.
        """
        link = self._link(sender)
        self._check(sender, link, frame)
        answer: messages.Frame | None = None
        if isinstance(frame, messages.ChunkFrame):
            frame, answer = self._take(sender, link, frame, now)
        self.links[sender] = link
        outputs: list[Output] = []
        if self._settle(link, frame, now):
            link.quiet_since = now
            if link.down:
                link.down, link.spoke_at = False, None
                outputs.append(PeerUp(sender))
        if isinstance(frame, messages.MessageFrame):
            self.promises += frame.number > link.delivered and frame.number not in link.early
            taken = [Received(sender, message) for message in link.accept(frame)]
            outputs += taken
            if taken and link.down and link.spoke_at is None:
                link.spoke_at = now
            answer = link.acknowledgement()
        if answer is not None:
            outputs.append(Transmit(sender, answer))
        outputs += [Transmit(sender, link.chunk(chunk)) for chunk in link.fresh_chunks(now)]
        return outputs + self._transmit(sender, link, [*link.overdue(now), *self._fresh(link)], now)

    def wake(self, now: float) -> list[Output]:
        """Do what the passing of time demands: retry, and report who has been silent for too long."""
        outputs: list[Output] = []
        while (due := self.deadline()) is not None and due <= now:
            peer = heapq.heappop(self._alarms)[1]
            outputs += self._retry(peer, self.links[peer], now)
        return outputs

    def deadline(self) -> float | None:
        """The time at which `wake` is wanted next, on the node's clock; None while nothing is unacknowledged."""
        while self._alarms:
            when, peer = self._alarms[0]
            if self.links[peer].due == when:
                return when
            heapq.heappop(self._alarms)
        return None

    @classmethod
    def restore(cls, name: str, settings: SessionSettings, links: dict[str, Link]) -> Session:
        """The session whose `links` these were, and are again. The clock goes on from where it was, or from later."""
        session = cls(name, settings)
        session.links = links
        session.after_restore()
        return session

    def after_restore(self) -> None:
        self._alarms = [(link.due, peer) for peer, link in self.links.items() if link.due is not None]
        heapq.heapify(self._alarms)

    def _link(self, peer: str) -> Link:
        window = FIRST_CHUNKS if self.settings.learns else messages.CHUNK_WINDOW
        return self.links.get(peer) or Link(self.settings.retry_after, window=window)

    def _settle(
        self,
        link: Link,
        frame: messages.MessageFrame | messages.ChunkFrame | messages.Acknowledge | messages.ProgressFrame,
        now: float,
    ) -> bool:
        """Take note of what ``frame`` acknowledges, and of when to retry from now on; whether any of it is news."""
        settings, before = self.settings, dict(link.under_way) if self.settings.learns else {}
        patience = settings.retry_after if settings.learns else None
        in_chunks, trips = None if link.outgoing is None else link.outgoing.number, link.trips
        news = (
            link.settle_progress(frame, now, patience)
            if isinstance(frame, messages.ProgressFrame)
            else link.settle(frame)
        )
        if settings.learns:
            link.learn(before, in_chunks, now, settings.silence)
        if not settings.learns or link.trips is not trips:
            link.wait = link.trips.wait(settings.retry_after, settings.longest_retry)
        return news

    def _check(self, sender: str, link: Link, frame: messages.Frame) -> None:
        if isinstance(frame, messages.ProgressFrame):
            messages.check_progress(frame)
            return
        if isinstance(frame, messages.ChunkFrame):
            messages.check_chunk(frame, self.settings.largest_message)
        early = frame.early if isinstance(frame, messages.Acknowledge) else 0
        highest = frame.acknowledged + early.bit_length()
        if frame.acknowledged < 0 or early < 0 or highest > link.transmitted:
            raise PeerError(
                f"{sender} acknowledges number {highest} of {self.name}, which transmitted {link.transmitted}; "
                f"has one of them lost its session's state?"
            )
        if isinstance(frame, messages.Acknowledge):
            return
        # What travels in chunks waits until all before it have arrived.
        last = link.delivered + (1 if isinstance(frame, messages.ChunkFrame) else WINDOW)
        if not 0 <= frame.settled <= link.delivered or not frame.settled < frame.number <= last:
            raise PeerError(
                f"{self.name} has all up to number {link.delivered} of {sender} and expects none after "
                f"{last}, found number {frame.number} with all up to {frame.settled} settled; "
                f"has one of them lost its session's state?"
            )

    def _take(
        self, sender: str, link: Link, chunk: messages.ChunkFrame, now: float
    ) -> tuple[messages.MessageFrame | messages.ChunkFrame, messages.Frame]:
        """Take a ``chunk``: return it, or the message if it was the last that was missing, and the answer."""
        if chunk.number <= link.delivered:
            return chunk, link.acknowledgement()
        # A peer that came back may cut its message in another way: what there was is of no more use.
        incoming = (
            link.incoming if link.incoming is not None and link.incoming.has(chunk) else messages.Incoming.begun(chunk)
        )
        incoming.touched, link.incoming = now, incoming
        self._drop_stale(now)
        if not incoming.accept(chunk):
            return chunk, incoming.progress()
        link.incoming = None
        message = messages.decode_message(incoming.buffer.data, self.settings.largest_message, own=True)
        return messages.MessageFrame(chunk.number, chunk.settled, chunk.acknowledged, message), link.acknowledgement()

    def _drop_stale(self, now: float) -> None:
        """Drop what has stopped arriving. It costs only that its chunks must come again."""
        for link in self.links.values():
            if link.incoming is not None and link.incoming.touched + self.settings.silence <= now:
                link.incoming = None

    def _chunks(self, link: Link, number: int) -> int:
        """Count the chunks that message ``number`` has to be cut into: 0 if it fits into a frame."""
        largest, size = self.settings.largest_frame, messages.frame_size(link.data(number))
        return (
            0
            if largest is None or size <= largest
            else -(-messages.encoded_size(link.outbox[number]) // (largest - messages.CHUNK_OVERHEAD))
        )

    def _fresh(self, link: Link) -> Iterator[int]:
        """Numbers that may be transmitted for the first time; a message in chunks waits for all before it."""
        for number in link.fresh():
            if number > link.acknowledged + 1 and self._chunks(link, number):
                return
            yield number

    def _frames(self, link: Link, number: int, now: float) -> list[messages.Frame]:
        chunks = self._chunks(link, number)
        if chunks == 0:
            return [link.data(number)]
        if number > link.acknowledged + 1:
            return []
        outgoing, begun = link.outgoing, True
        if outgoing is None or (outgoing.number, outgoing.chunks) != (number, chunks):
            outgoing, begun = messages.Outgoing(number, chunks), False
            link.timed = None
        else:
            link.timed = max(outgoing.transmitted, link.timed[0] if link.timed else 0), now, 0
        link.outgoing = outgoing
        # What was begun is asked for, and a peer that is down gets one chunk, not a window of them.
        return [link.chunk(chunk) for chunk in (outgoing.ask() if begun or link.down else link.fresh_chunks(now))]

    def _retry(self, peer: str, link: Link, now: float) -> list[Output]:
        outputs: list[Output] = []
        settings = self.settings
        silence = link.silence(settings.silence)
        if link.silent_since is not None and link.silent_since + silence <= now:
            link.down, link.spoke_at, link.wait = True, None, settings.longest_retry
            outputs.append(PeerDown(peer, f"no acknowledgement for {silence:g} s"))
        overdue = link.overdue(now)
        if overdue:
            link.wait = min(2 * link.wait, settings.longest_retry)
        return outputs + self._transmit(peer, link, overdue, now)

    def _transmit(self, peer: str, link: Link, numbers: Iterable[int], now: float) -> list[Output]:
        """Put messages on the link and set the link's alarm."""
        outputs: list[Output] = []
        for number in numbers:
            link.under_way[number] = now
            if self.settings.learns:
                link.first.setdefault(number, now)
            self.promises += number > link.transmitted
            link.transmitted = max(link.transmitted, number)
            outputs += [Transmit(peer, frame) for frame in self._frames(link, number, now)]
        due = link.next_due(link.silence(self.settings.silence))
        if due != link.due:
            link.due = due
            if due is not None:
                heapq.heappush(self._alarms, (due, peer))
        return outputs
