"""Link of a session to one peer: which messages are where."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from gossamer.protocol.chunks import Incoming, Outgoing, cut
from gossamer.protocol.encoding import register, size_of
from gossamer.protocol.frames import Acknowledge, Chunk, Data, Progress
from gossamer.protocol.messages import Message, message_pieces

WINDOW = 32
"""Most messages under way to one peer, and so most that a receiver keeps out of order; the same at both ends."""


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
        When to look at this link again.
    down : bool
        Whether the peer was reported down.
    queued, transmitted, acknowledged : int
        Highest number given to a message, put on the link, and acknowledged with all before it.
    outbox : dict of int to Message
        By number, what is not known to have arrived.
    under_way : dict of int to float
        When each of the outbox's transmitted messages was last transmitted; in the order of numbers.
    delivered : int
        All messages of the peer up to this number were delivered.
    early : dict of int to Message
        Messages of the peer that wait for one before them.
    outgoing : Outgoing or None
        The message that leaves in chunks.
    incoming : Incoming or None
        The message that arrives in chunks.
    unanswered : int
        How many messages of the peer were delivered while something is under way to it and it acknowledged nothing new.
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

    def copy(self) -> Link:
        """A link whose changes leave this one as it is."""
        return replace(
            self,
            outbox=self.outbox.copy(),
            under_way=self.under_way.copy(),
            early=self.early.copy(),
            outgoing=self.outgoing and replace(self.outgoing),
            incoming=self.incoming and self.incoming.copy(),
        )

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

    def settle(self, frame: Data | Chunk | Acknowledge) -> bool:
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

    def settle_progress(self, progress: Progress, now: float) -> bool:
        """Take note of which chunks have arrived; whether any of it is news."""
        outgoing = self.outgoing
        if outgoing is None or (outgoing.number, outgoing.chunks) != (progress.number, progress.chunks):
            return False  # of a message that is complete, or that this node had cut in another way
        news = outgoing.settle(progress)
        if news:
            self.under_way[outgoing.number] = now
            self.unanswered = 0
        return news

    def data(self, number: int) -> Data:
        """The frame that carries message ``number``."""
        return Data(number, self.acknowledged, self.delivered, self.outbox[number])

    def chunk(self, chunk: int) -> Chunk:
        """The frame that carries chunk ``chunk`` of the message that leaves in chunks."""
        assert self.outgoing is not None
        number, chunks = self.outgoing.number, self.outgoing.chunks
        pieces = message_pieces(self.outbox[number])
        content = cut(pieces, chunk, chunks)
        return Chunk(number, self.acknowledged, self.delivered, chunk, chunks, size_of(pieces), content)

    def accept(self, data: Data) -> list[Message]:
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
