"""Large messages in chunks: cut on one side, put together on the other, with bounded memory on both.

A message whose frame would be longer than a link should carry travels as `ChunkFrame`s. It takes its turn: it leaves
when every message before it has been acknowledged, so there is one at a time for each ordered pair of nodes, and the
receiver takes the chunks of its next message and of no other.

- At most `CHUNK_WINDOW` chunks, counted from the first that is not known to have arrived, are under way. The receiver
  answers each with what it has (`ProgressFrame`), and the last that was missing with the session's acknowledgement.
- The size is declared in every chunk and checked against a limit before anything is kept. All chunks but the last
  are equally long, so they cannot overlap. The receiver keeps one buffer of that size and two integers per sender.
  Memory of the buffer is used only as chunks arrive.
- There is no clock here: a retry of the message, which is the session's business, asks the receiver with a single
  chunk what it has, and its answer brings the missing ones.

What is here of a message is part of the session's state. A receiver may nevertheless drop it at any time, or come back
without it, and says so when it is next asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gossamer.errors import PeerError
from gossamer.protocol.encoding import Buffer, register, size_of
from gossamer.protocol.frames import CHUNK_OVERHEAD, ChunkFrame, ProgressFrame

CHUNK_WINDOW = 32
"""Most chunks of a message under way; the same at both ends."""

MOST_CHUNKS = 1 << 20
"""Most chunks of one message."""


def smallest_frame(largest_message: int) -> int:
    """Bytes of the shortest frames that carry a message of ``largest_message`` bytes in `MOST_CHUNKS` chunks."""
    return CHUNK_OVERHEAD + -(-largest_message // MOST_CHUNKS)


def chunk_length(size: int, chunks: int) -> int:
    """Bytes in each of the ``chunks`` chunks of a message of ``size`` bytes, but for the last, which has the rest."""
    return -(-size // chunks)


@register("session.outgoing")
@dataclass(slots=True)
class Outgoing:
    """A message on its way out.

    Attributes
    ----------
    number, chunks : int
        Number of the message, and of the chunks that it is cut into.
    arrived, early : int
        Chunks that the receiver has, as in `ProgressFrame`.
    transmitted : int
        Highest chunk put on the link since the last answer to `ask`.
    asked : bool
        Whether what the receiver has is unknown until it answers.
    """

    number: int
    chunks: int
    arrived: int = 0
    early: int = 0
    transmitted: int = 0
    asked: bool = False

    def fresh(self) -> list[int]:
        """Chunks to put on the link now."""
        if self.asked:
            return []
        first, last = max(self.transmitted, self.arrived) + 1, min(self.arrived + CHUNK_WINDOW, self.chunks)
        self.transmitted = max(self.transmitted, last)
        return [chunk for chunk in range(first, last + 1) if not self.early >> (chunk - self.arrived - 1) & 1]

    def ask(self) -> list[int]:
        """A chunk whose answer says what the receiver has; until then, nothing of that is taken as known."""
        missing = min(self.arrived + 1, self.chunks)
        self.arrived = self.early = self.transmitted = 0
        self.asked = True
        return [missing]

    def settle(self, progress: ProgressFrame) -> bool:
        """Take note of what the receiver has; whether it is news. Answers may come late and out of order."""
        known = (self.arrived, self.early)
        if progress.arrived > self.arrived:
            self.arrived, self.early = progress.arrived, progress.early
        elif progress.arrived == self.arrived:
            self.early |= progress.early
        news, self.asked = self.asked or known != (self.arrived, self.early), False
        return news


@register("session.incoming")
@dataclass(slots=True)
class Incoming:
    """A message on its way in.

    Attributes
    ----------
    number, chunks : int
        The same as in the first of its chunks.
    buffer : array of uint8, shape (size,)
        The encoding, with zeros where nothing has arrived.
    touched : float
        Time when its latest chunk came, in seconds on the node's clock.
    arrived, early : int
        Chunks that are here, as in `ProgressFrame`.
    """

    number: int
    chunks: int
    buffer: np.ndarray[Any, np.dtype[np.uint8]]
    touched: float = 0.0
    arrived: int = 0
    early: int = 0

    @classmethod
    def begun(cls, chunk: ChunkFrame) -> Incoming:
        """The message that ``chunk`` is of, with nothing of it here. Its zeros take no memory until written over."""
        return cls(chunk.number, chunk.chunks, np.zeros(chunk.size, np.uint8))

    def has(self, chunk: ChunkFrame) -> bool:
        """Whether ``chunk`` is of this message, cut in the same way."""
        return (self.number, self.chunks, self.buffer.size) == (chunk.number, chunk.chunks, chunk.size)

    def accept(self, chunk: ChunkFrame) -> bool:
        """Take in a chunk, unless it is here already or beyond the window; whether the message is complete."""
        ahead = chunk.chunk - self.arrived - 1
        if 0 <= ahead < CHUNK_WINDOW and not self.early >> ahead & 1:
            start = (chunk.chunk - 1) * chunk_length(chunk.size, self.chunks)
            self.buffer[start : start + len(chunk.content)] = np.frombuffer(chunk.content, np.uint8)
            self.early |= 1 << ahead
            while self.early & 1:
                self.arrived, self.early = self.arrived + 1, self.early >> 1
        return self.arrived == self.chunks

    def progress(self) -> ProgressFrame:
        """The part that is here."""
        return ProgressFrame(self.number, self.chunks, self.arrived, self.early)


def cut(pieces: Sequence[Buffer], chunk: int, chunks: int) -> Buffer:
    """The content of chunk ``chunk`` of ``chunks`` of what ``pieces`` make up: a view, unless it is of several."""
    length = chunk_length(size_of(pieces), chunks)
    start, end = (chunk - 1) * length, chunk * length
    found: list[Buffer] = []
    for piece in pieces:
        found.append(memoryview(piece)[max(start, 0) : max(end, 0)])
        start, end = start - len(piece), end - len(piece)
    found = [part for part in found if part]
    return found[0] if len(found) == 1 else b"".join(found)


def check_chunk(chunk: ChunkFrame, largest_message: int) -> None:
    """Refuse what no peer sends that keeps the protocol, before anything is kept.

    Raises
    ------
    PeerError
        With the reason.
    """
    if not 0 < chunk.size <= largest_message:
        raise PeerError(f"expected a message of at most {largest_message} bytes, found one of {chunk.size}")
    if not 1 <= chunk.chunk <= chunk.chunks <= min(chunk.size, MOST_CHUNKS):
        raise PeerError(f"expected a chunk of at most {MOST_CHUNKS}, found {chunk.chunk} of {chunk.chunks}")
    length = chunk_length(chunk.size, chunk.chunks)
    expected = min(length, chunk.size - (chunk.chunk - 1) * length)
    if len(chunk.content) != expected or (chunk.chunks - 1) * length >= chunk.size:
        raise PeerError(
            f"expected {chunk.chunks} chunks of {chunk.size} bytes to have {length} bytes each, but for the last; "
            f"found {len(chunk.content)} bytes in chunk {chunk.chunk}"
        )


def check_progress(progress: ProgressFrame) -> None:
    """Refuse what no peer answers that keeps the protocol.

    Raises
    ------
    PeerError
        With the reason.
    """
    highest = progress.arrived + progress.early.bit_length()
    if progress.arrived < 0 or not 0 <= progress.early < 1 << CHUNK_WINDOW or highest > progress.chunks:
        raise PeerError(f"expected one of {progress.chunks} chunks of message {progress.number}, found {highest}")
