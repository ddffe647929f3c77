"""Typed messages, which alone may travel between nodes, and the frames that carry them over a link.

A message is a frozen dataclass whose fields are protocol integers and labelled vectors; one that carries a `Confined`
vector may not leave its unit. A float, a string or a bare array is refused when the class is *defined*, and a value of
another type when a message is sent or decoded, so a loss, a norm or a raw gradient has no way onto the wire.

On the wire a message, and a frame too, is ``b"GSM"``, one byte of version, and one ``o`` value of `encoding`.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np

from gossamer.errors import MalformedMessage, PeerError
from gossamer.protocol import encoding
from gossamer.protocol.encoding import Buffer, register, size_of
from gossamer.vectors import LARGEST_VALUE, Confined, Masked, Public, Released, Vector

MAGIC = b"GSM"
VERSION = 2
HEADER = MAGIC + bytes([VERSION])
MOST_FIELDS = 64
MOST_COUNT = 1 << 53
"""Most that anything counts up to in a run: integers travel as 64 bits, and counting on must not leave these."""
_ALLOWED = {int, Public, Released, Masked, Confined}
_NAME_OVERHEAD = 6  # tag, length of the name, number of fields
_INT_SIZE = 9  # tag, eight bytes
_VECTOR_OVERHEAD = 11  # tag, dtype, dimensions, one length


class Message:
    """Base of all messages; subclasses are made with `message`."""

    __slots__ = ()


M = TypeVar("M", bound=type[Message])
_SCHEMAS: dict[type[Message], tuple[tuple[str, frozenset[type]], ...]] = {}
_SIZES: dict[type[Message], int] = {}
"""Bytes of a message without its fields."""


@typing.dataclass_transform(frozen_default=True)
def message(name: str) -> Callable[[M], M]:
    """Class decorator: register a frozen dataclass, or what becomes one by this, as a message under ``name``.

    Raises
    ------
    TypeError
        If a field is declared as anything but ``int``, ``Public``, ``Released``, ``Masked``, ``Confined`` or a union of
        these, or if ``name`` is taken.
    """

    def add(cls: M) -> M:
        cls = encoding.as_frozen(cls)
        hints = typing.get_type_hints(cls)
        schema = tuple((field.name, _members(hints[field.name])) for field in fields(cls))  # type: ignore[arg-type]
        for field, members in schema:
            if not members <= _ALLOWED:
                raise TypeError(
                    f"{cls.__name__}.{field}: a message carries int, Public, Released, Masked or Confined, "
                    f"found {hints[field]!r}"
                )
        if len(schema) > MOST_FIELDS:
            raise TypeError(f"{cls.__name__}: a message has at most {MOST_FIELDS} fields, found {len(schema)}")
        registered = encoding.register(name)(cls)
        _SCHEMAS[cls], _SIZES[cls] = schema, len(HEADER) + _NAME_OVERHEAD + len(name)
        return registered

    return add


def _members(hint: Any) -> frozenset[type]:
    origin = typing.get_origin(hint)
    return frozenset(typing.get_args(hint)) if origin in (typing.Union, types.UnionType) else frozenset({hint})


def measured(candidate: Any) -> tuple[int, bool]:
    """Length of a message in bytes when it is encoded, and whether it carries raw data of a unit.

    Raises
    ------
    TypeError
        Unless ``candidate`` is a registered message whose values have the declared types.
    """
    schema = _SCHEMAS.get(type(candidate))
    if schema is None:
        raise TypeError(f"{type(candidate).__name__} is not a registered message")
    size, confined = _SIZES[type(candidate)], False
    for name, members in schema:
        value = getattr(candidate, name)
        kind = type(value)
        if kind not in members:
            raise TypeError(
                f"{type(candidate).__name__}.{name} must be {' or '.join(sorted(m.__name__ for m in members))}, "
                f"found {kind.__name__}"
            )
        if kind is int:
            size += _INT_SIZE
        else:
            size += _VECTOR_OVERHEAD + value.values.nbytes
            confined = confined or kind is Confined
    return size, confined


def check(candidate: Any) -> None:
    """Raise TypeError unless ``candidate`` is a registered message whose values have the declared types."""
    measured(candidate)


def is_confined(outgoing: Message) -> bool:
    """Whether a message carries raw data of a unit, which the runtime must not let out."""
    return measured(outgoing)[1]


def encoded_size(outgoing: Message) -> int:
    """Length in bytes of ``encode_message(outgoing)``, without encoding it."""
    return measured(outgoing)[0]


def encode_message(outgoing: Message) -> bytes:
    """Check and encode a message."""
    return b"".join(message_pieces(outgoing))


def message_pieces(outgoing: Message) -> list[encoding.Buffer]:
    """`encode_message`'s bytes in pieces; those of vectors are views of their memory."""
    check(outgoing)
    return [HEADER, *encoding.encode_pieces(outgoing)]


def decode_message(data: bytes | memoryview, limit: int = 1 << 30, *, own: bool = False) -> Message:
    """Decode and check a message.

    Parameters
    ----------
    data : bytes
        Data from a peer; anything at all.
    limit : int
        Most bytes accepted.
    own : bool
        The same as for `encoding.decode`.

    Raises
    ------
    MalformedMessage
        With the reason; nothing has happened yet.
    """
    incoming = encoding.decode(without_header(data, limit), most_values=1 + MOST_FIELDS, own=own)
    try:
        check(incoming)
    except TypeError as error:
        raise MalformedMessage(str(error)) from error
    return typing.cast(Message, incoming)


def without_header(data: bytes | memoryview, limit: int) -> memoryview:
    """Return what follows the magic and the version, after checking both and the size.

    Raises
    ------
    MalformedMessage
        If ``data`` is longer than ``limit`` bytes or starts otherwise.
    """
    if len(data) > limit:
        raise MalformedMessage(f"expected at most {limit} bytes, found {len(data)}")
    if data[: len(MAGIC)] != MAGIC or len(data) <= len(HEADER):
        raise MalformedMessage(f"expected a message that starts with {MAGIC!r}")
    if data[len(MAGIC)] != VERSION:
        raise MalformedMessage(f"expected wire version {VERSION}, found {data[len(MAGIC)]}; upgrade the older side")
    return memoryview(data)[len(HEADER) :]


def check_model(incoming: Vector, like: Vector, most: float = LARGEST_VALUE) -> None:
    """Refuse a peer's vector that cannot be combined with ours.

    Raises
    ------
    PeerError
        If the size or dtype differs, or a value is not finite, or above ``most`` in absolute value.
    """
    ours, theirs = like.values, incoming.values
    if theirs.size != ours.size or theirs.dtype != ours.dtype:
        raise PeerError(f"expected {ours.size} values of {ours.dtype}, found {theirs.size} of {theirs.dtype}")
    if not (incoming.bounded and most >= LARGEST_VALUE) and not incoming.is_within(most):
        found = theirs[~(np.abs(theirs.astype(np.float64)) <= most)][0]  # float32 would round the bound
        raise PeerError(f"expected finite values of at most {most:g}, found {found:g}")


def check_count(sender: str, what: str, number: int, most: int = MOST_COUNT) -> None:
    """Refuse a number that no count reaches, so that a receiver may go on counting from it.

    Raises
    ------
    PeerError
        If it is below 0 or above ``most``.
    """
    if not 0 <= number <= most:
        raise PeerError(f"{sender} sends {what} {number}, expected 0 to {most}")


# Trust scopes of a run: the nodes that others show what is raw, and who may come to hear what.
#
# A scope is called after its *head*, the node that its members show what is raw. They show it to nobody else, and only
# a head that is in the scope itself, such as the server of a federated unit, shows them what it has: one that is not,
# such as a server that adds the noise, hears each of them alone.


def may_hear(trust: Mapping[str, str], sender: str, to: str) -> bool:
    """Whether ``to`` may be sent what is raw of ``sender``.

    Parameters
    ----------
    trust : mapping of str to str
        The scope of each node that is in one.
    sender, to : str
        Nodes.
    """
    head = trust.get(sender)
    return head is not None and (to == head or (sender == head and trust.get(to) == head))


def confidants(trust: Mapping[str, str], name: str) -> frozenset[str]:
    """Nodes that may come to hear what is raw of ``name``, itself included: also by way of others."""
    found, head = {name}, trust.get(name)
    while head is not None and trust.get(head) != head and head not in found:
        found.add(head)
        head = trust.get(head)
    if head is not None and trust.get(head) == head:
        found |= {head, *(other for other, scope in trust.items() if scope == head)}
    return frozenset(found)


# Frames: what a session puts on a link to carry messages over it, large ones in chunks.


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

    def fresh(self, window: int = CHUNK_WINDOW) -> list[int]:
        """Chunks to put on the link now, where so many may be under way."""
        if self.asked:
            return []
        first, last = max(self.transmitted, self.arrived) + 1, min(self.arrived + window, self.chunks)
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
    counted = 1 <= chunk.chunk <= chunk.chunks <= min(chunk.size, MOST_CHUNKS)
    length = chunk_length(chunk.size, chunk.chunks) if counted else 0
    before = (chunk.chunk - 1) * length
    fits = (chunk.chunks - 1) * length < chunk.size and len(chunk.content) == min(length, chunk.size - before)
    if not (counted and fits and chunk.size <= largest_message):
        raise PeerError(
            f"expected chunks of one length, but for the last, of a message of at most {largest_message} bytes, found "
            f"{len(chunk.content)} bytes as chunk {chunk.chunk} of {chunk.chunks} of {chunk.size} bytes"
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
