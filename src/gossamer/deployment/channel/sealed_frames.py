"""Layout of sealed datagrams: no keys here, and no secrets.

Three kinds, each ``GSS``, a byte of version and a byte of kind, then fields of fixed length (docs/wire-format.md):

| kind | fields |
|---|---|
| 1 hello | channel 8, instance 16, ephemeral 32, signature 64 |
| 2 confirm | channel 8, instance 16, ephemeral 32, answered 32, sealed signature 80 |
| 3 frame | session 8, counter u64 little-endian, ciphertext, tag 16 |
"""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass
from typing import Any

from gossamer.keys.errors import Reason, RefusedDatagram

VERSION = 2
WORDS = b"GSS"
TAG_BYTES = 16
_PREFIX = len(WORDS) + 2
_HELLO, _CONFIRM, _FRAME = 1, 2, 3


@dataclass(frozen=True, slots=True)
class Hello:
    """``instance`` of the sender would like a session, with ``ephemeral`` as its half of the agreement."""

    channel: bytes
    instance: bytes
    ephemeral: bytes
    signature: bytes


@dataclass(frozen=True, slots=True)
class Confirm:
    """The sender knows the receiver's half (``answered``), and shows that it has the keys that follow."""

    channel: bytes
    instance: bytes
    ephemeral: bytes
    answered: bytes
    sealed: bytes


@dataclass(frozen=True, slots=True)
class Frame:
    """Ciphertext that was sealed under ``counter`` of ``session``; ``header`` is authenticated with it."""

    session: bytes
    counter: int
    ciphertext: memoryview
    header: bytes


_LAYOUTS: dict[type[Any], tuple[int, struct.Struct]] = {
    Hello: (_HELLO, struct.Struct("8s16s32s64s")),
    Confirm: (_CONFIRM, struct.Struct("8s16s32s32s80s")),
}
_FIXED = {kind: (cls, layout) for cls, (kind, layout) in _LAYOUTS.items()}
_FRAME_HEADER = struct.Struct(f"<{_PREFIX}s8sQ")
OVERHEAD = _FRAME_HEADER.size + TAG_BYTES
"""By how many bytes a frame is longer than what was sealed."""


def _prefix(kind: int) -> bytes:
    return WORDS + bytes([VERSION, kind])


def pack(handshake: Hello | Confirm) -> bytes:
    """A hello or a confirm as bytes."""
    kind, layout = _LAYOUTS[type(handshake)]
    return _prefix(kind) + layout.pack(*astuple(handshake))


def frame_header(session: bytes, counter: int) -> bytes:
    """Return the bytes before the ciphertext of a frame."""
    return _FRAME_HEADER.pack(_prefix(_FRAME), session, counter)


def parse(datagram: bytes, largest: int) -> Hello | Confirm | Frame:
    """The fields of a datagram; nothing in them is authentic yet.

    Parameters
    ----------
    datagram : bytes
        Anything at all.
    largest : int
        Most bytes that a frame may hold after opening.

    Raises
    ------
    RefusedDatagram
        With reason ``SIZE``, ``FORM`` or ``VERSION``.
    """
    if len(datagram) > max(largest + OVERHEAD, 256):
        raise RefusedDatagram(
            Reason.SIZE, f"expected at most {largest + OVERHEAD} bytes, found {len(datagram)}; dropped"
        )
    if datagram[: len(WORDS)] != WORDS or len(datagram) < _PREFIX:
        raise RefusedDatagram(Reason.FORM, "expected a sealed datagram, found other bytes; dropped")
    version, kind = datagram[3], datagram[4]
    if version != VERSION:
        raise RefusedDatagram(
            Reason.VERSION, f"expected version {VERSION} of sealed datagrams, found {version}; update the older node"
        )
    if kind == _FRAME and OVERHEAD <= len(datagram) <= largest + OVERHEAD:
        header = datagram[: _FRAME_HEADER.size]
        _, session, counter = _FRAME_HEADER.unpack(header)
        return Frame(session, counter, memoryview(datagram)[_FRAME_HEADER.size :], header)
    if kind not in _FIXED or len(datagram) != _PREFIX + _FIXED[kind][1].size:
        raise RefusedDatagram(
            Reason.FORM, f"expected a sealed datagram of kind 1 to 3 and its length, found {kind} and {len(datagram)}"
        )
    cls, layout = _FIXED[kind]
    handshake: Hello | Confirm = cls(*layout.unpack_from(datagram, _PREFIX))
    return handshake
