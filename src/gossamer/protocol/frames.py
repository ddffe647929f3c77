"""Frames: what a session puts on a link to carry messages over it.

On the wire a frame is the same header as a message's and one ``o`` value of `encoding`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from gossamer.errors import MalformedMessage
from gossamer.protocol import encoding
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
