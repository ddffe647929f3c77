"""Frames: what a session puts on a link to carry messages over it, and large messages in chunks.

On the wire a frame is the same header as a message's and one ``o`` value of `encoding`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from gossamer.errors import MalformedMessage, PeerError
from gossamer.protocol import encoding
from gossamer.protocol.encoding import Buffer, register, size_of
from gossamer.protocol.messages import HEADER, MOST_FIELDS, Message, check, encoded_size, without_header


@encoding.register("frame.data")
@dataclass(frozen=True, slots=True)
class MessageFrame:
    """Message ``number`` (from 1) of its sender to this receiver.

    The sender knows that its messages up to ``settled`` have arrived: a receiver that does not know it has lost its
    state. ``acknowledged`` is for the other direction: all up to this number have arrived.
    """

    number: int
    settled: int
    acknowledged: int
    message: Message


@encoding.register("frame.acknowledge")
@dataclass(frozen=True, slots=True)
class Acknowledge:
    """All up to number ``acknowledged`` have arrived, and acknowledged + 1 + i for each bit i of ``early``."""

    acknowledged: int
    early: int = 0


@encoding.register("frame.chunk")
@dataclass(frozen=True, slots=True)
class ChunkFrame:
    """Chunk ``chunk`` (from 1) of the ``chunks`` of message ``number``, whose encoding has ``size`` bytes in all.

    All chunks but the last have ceil(size / chunks) bytes. ``settled`` and ``acknowledged`` are as in `MessageFrame`.
    """

    number: int
    settled: int
    acknowledged: int
    chunk: int
    chunks: int
    size: int
    content: bytes | memoryview


@encoding.register("frame.progress")
@dataclass(frozen=True, slots=True)
class ProgressFrame:
    """Progress of message ``number``: of its ``chunks``, all up to ``arrived`` are here.

    So is arrived + 1 + i for each bit i of ``early``.
    """

    number: int
    chunks: int
    arrived: int
    early: int = 0


Frame = MessageFrame | Acknowledge | ChunkFrame | ProgressFrame

_INT_SIZE = 9  # tag, eight bytes
_BYTES_OVERHEAD = 5  # tag, length
_NO_INTEGERS = {"message", "content"}


def _overhead(cls: type[Frame]) -> int:
    """Bytes of header, tag, name, number of fields and the integers."""
    integers = sum(field.name not in _NO_INTEGERS for field in fields(cls))
    return len(HEADER) + 6 + len(encoding.name_of(cls)) + _INT_SIZE * integers


_OVERHEAD = {cls: _overhead(cls) for cls in (MessageFrame, Acknowledge, ChunkFrame, ProgressFrame)}
CHUNK_OVERHEAD = _OVERHEAD[ChunkFrame] + _BYTES_OVERHEAD
"""Bytes of an encoded `ChunkFrame` besides its content."""


def frame_size(frame: Frame) -> int:
    """Length in bytes of ``encode_frame(frame)``, without encoding it."""
    match frame:
        case MessageFrame():
            return _OVERHEAD[MessageFrame] + encoded_size(frame.message) - len(HEADER)
        case ChunkFrame():
            return CHUNK_OVERHEAD + len(frame.content)
        case _:
            return _OVERHEAD[type(frame)]


def check_frame(candidate: Any) -> None:
    """Raise TypeError unless ``candidate`` is a frame whose values have the declared types."""
    if not isinstance(candidate, Frame):
        raise TypeError(f"{type(candidate).__name__} is no frame")
    for field in fields(candidate):
        value = getattr(candidate, field.name)
        if field.name == "message":
            check(value)
        elif field.name == "content":
            if type(value) not in (bytes, memoryview):
                raise TypeError(f"{type(candidate).__name__}.content must be bytes, found {type(value).__name__}")
        elif type(value) is not int:
            raise TypeError(f"{type(candidate).__name__}.{field.name} must be int, found {type(value).__name__}")


def encode_frame(frame: Frame) -> bytes:
    """Check and encode a frame.

    Raises
    ------
    TypeError
        If a value has another type than declared.
    """
    check_frame(frame)
    return b"".join((HEADER, *encoding.encode_pieces(frame)))


def decode_frame(data: bytes | memoryview, limit: int = 1 << 30) -> Frame:
    """Decode and check a frame.

    Parameters
    ----------
    data : bytes
        Data from a peer; anything at all. A chunk's content is a view of it, so nobody may change it from now on.
    limit : int
        Most bytes accepted.

    Raises
    ------
    MalformedMessage
        With the reason; nothing has happened yet.
    """
    # A data frame, its three integers, its message and that message's fields; other frames have fewer.
    frame: Frame = encoding.decode(without_header(data, limit), most_values=5 + MOST_FIELDS, views=True)
    try:
        check_frame(frame)
    except TypeError as error:
        raise MalformedMessage(str(error)) from error
    return frame


# Large messages in chunks: cut on one side, put together on the other, with bounded memory on both.
#
# A message whose frame would be longer than a link should carry travels as `ChunkFrame`s. It takes its turn: it leaves
# when every message before it has been acknowledged, so there is one at a time for each ordered pair of nodes, and the
# receiver takes the chunks of its next message and of no other.
#
# - At most `CHUNK_WINDOW` chunks, counted from the first that is not known to have arrived, are under way. The receiver
#   answers each with what it has (`ProgressFrame`), and the last that was missing with the session's acknowledgement.
# - The size is declared in every chunk and checked against a limit before anything is kept. All chunks but the last
#   are equally long, so they cannot overlap. The receiver keeps one buffer of that size and two integers per sender.
#   Memory of the buffer is used only as chunks arrive.
# - There is no clock here: a retry of the message, which is the session's business, asks the receiver with a single
#   chunk what it has, and its answer brings the missing ones.
#
# What is here of a message is part of the session's state. A receiver may nevertheless drop it at any time, or come
# back without it, and says so when it is next asked.

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
