"""Typed messages: what may travel between nodes, and nothing else.

A message is a frozen dataclass whose fields are protocol integers and labelled vectors; one that carries a `Confined`
vector may not leave its unit. A float, a string or a
bare array is refused when the class is *defined*, and a value of another type when a message is sent or decoded,
so a loss, a norm or a raw gradient has no way onto the wire.

On the wire a message is ``b"GSM"``, one byte of version, and one ``o`` value of `encoding`.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, TypeVar

import numpy as np

from gossamer.errors import MalformedMessage, PeerError
from gossamer.protocol import encoding
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


@dataclass(frozen=True)
class Message:
    """Base of all messages; subclasses are made with `message`."""


M = TypeVar("M", bound=type[Message])
_SCHEMAS: dict[type[Message], tuple[tuple[str, frozenset[type]], ...]] = {}
_SIZES: dict[type[Message], int] = {}
"""Bytes of a message without its fields."""


def message(name: str) -> Callable[[M], M]:
    """Class decorator: register a frozen dataclass as a message under ``name``.

    Raises
    ------
    TypeError
        If a field is declared as anything but ``int``, ``Public``, ``Released``, ``Masked``, ``Confined`` or a union of
        these, or if ``name`` is taken.
    """

    def add(cls: M) -> M:
        hints = typing.get_type_hints(cls)
        schema = tuple((field.name, _members(hints[field.name])) for field in fields(cls))
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


class MessageMeasure(NamedTuple):
    """Length of a message in bytes when it is encoded, and whether it carries raw data of a unit."""

    size: int
    confined: bool


def measured(candidate: Any) -> MessageMeasure:
    """The measure of a message, without encoding it.

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
    return MessageMeasure(size, confined)


def check(candidate: Any) -> None:
    """Raise TypeError unless ``candidate`` is a registered message whose values have the declared types."""
    measured(candidate)


def is_confined(outgoing: Message) -> bool:
    """Whether a message carries raw data of a unit, which the runtime must not let out."""
    return measured(outgoing).confined


def encoded_size(outgoing: Message) -> int:
    """Length in bytes of ``encode_message(outgoing)``, without encoding it."""
    return measured(outgoing).size


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


def check_sender(sender: str, expected: str) -> None:
    """Refuse what another than ``expected`` sends.

    Raises
    ------
    PeerError
        If it does.
    """
    if sender != expected:
        raise PeerError(f"{sender} sends what only {expected} may send")


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
    if not incoming.is_within(most):
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
