"""Any value survives the round trip bit by bit, and no bytes do harm."""

from __future__ import annotations

import contextlib
import struct
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests.sampling import examples

from gossamer.errors import MalformedMessage
from gossamer.protocol.encoding import decode, encode, register
from gossamer.protocol.events import Elapsed, PeerDown
from gossamer.protocol.messages import Message, decode_message, encode_message, encoded_size, message
from gossamer.vectors import Masked, Public, Released, Vector


@register("test.roundtrip.triple")
@dataclass(frozen=True)
class Triple:
    first: Any
    second: Any
    third: Any


@message("test.roundtrip.offer")
@dataclass(frozen=True)
class Offer(Message):
    number: int
    model: Public | Released
    share: Masked


# A test must not depend on how busy a machine is.
MANY = settings(deadline=None, max_examples=examples(200), suppress_health_check=[HealthCheck.too_slow])
INTEGERS = st.integers(-(2**63), 2**63 - 1)
# Floats by their bits, so that every NaN occurs.
FLOATS = st.integers(0, 2**64 - 1).map(lambda bits: struct.unpack("<d", struct.pack("<Q", bits))[0])
DTYPES = st.sampled_from(["<f4", "<f8", "<i4", "<i8", "<u4", "<u8", "|u1"])


@st.composite
def arrays(draw: st.DrawFn, shapes: st.SearchStrategy[tuple[int, ...]]) -> np.ndarray:
    """Arrays whose bytes are arbitrary, so that every NaN occurs."""
    dtype, shape = np.dtype(draw(DTYPES)), draw(shapes)
    size = int(np.prod(shape)) * dtype.itemsize
    return np.frombuffer(draw(st.binary(min_size=size, max_size=size)), dtype).reshape(shape)


SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
LENGTHS = st.tuples(st.integers(0, 5))
FLAT = arrays(LENGTHS)
VECTORS = st.one_of(FLAT.map(Public), FLAT.map(Released), FLAT.map(Masked))
KEYS = st.one_of(st.none(), st.booleans(), INTEGERS, st.text(), st.binary(), st.tuples(INTEGERS, st.text()))
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    INTEGERS,
    FLOATS,
    st.text(),
    st.binary(),
    arrays(SHAPES),
    VECTORS,
    st.builds(Elapsed, st.text()),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(KEYS, inner, max_size=4),
        st.builds(Triple, inner, inner, inner),
    ),
    max_leaves=12,
)


def same(left: Any, right: Any) -> bool:
    """Equal in type and to the last bit."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        return struct.pack("<d", left) == struct.pack("<d", right)
    if isinstance(left, np.ndarray):
        return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()
    if isinstance(left, Vector):
        return same(left.values, right.values)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return same(list(left), list(right)) and same(list(left.values()), list(right.values()))
    if is_dataclass(left):
        return all(same(getattr(left, f.name), getattr(right, f.name)) for f in fields(left))
    return bool(left == right)


@MANY
@given(VALUES)
@example(Triple(float("nan"), -0.0, np.array([np.nan, -0.0], np.float32)))
def test_round_trip(value: Any) -> None:
    data = encode(value)
    back = decode(data)
    assert same(back, value)
    assert encode(back) == data


@MANY
@given(VALUES, st.data())
def test_every_cut_is_noticed(value: Any, data: st.DataObject) -> None:
    whole = encode(value)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    try:
        decode(cut)
    except MalformedMessage:
        return
    raise AssertionError(f"{cut!r} was accepted")


STARTS = (b"o\x0devent.elapsed", b"o\x0fevent.peer_down", b"o\x15test.roundtrip.triple")
TAGS = b"NTFifsbltdaPRMo"
# Bytes that look like an encoding get further into the decoder than noise does.
PIECES = st.one_of(
    st.sampled_from([bytes([tag]) for tag in TAGS]),
    st.integers(0, 4).map(lambda count: struct.pack("<I", count)),
    st.integers(0, 4).map(lambda count: struct.pack("<Q", count)),
    st.integers(0, 2**64 - 1).map(lambda count: struct.pack("<Q", count)),
    st.sampled_from([b"\x00\x01", b"\x06\x02", b"\x05\x00", b"\x08\x01", b"\x01\x09"]),
    st.sampled_from(STARTS),
    st.binary(max_size=4),
)
NOISE = st.one_of(st.binary(max_size=200), st.lists(PIECES, max_size=30).map(b"".join))


@MANY
@given(NOISE)
def test_noise_is_malformed_or_means_something(data: bytes) -> None:
    """Whatever is accepted is a value whose encoding is those very bytes: no two encodings mean the same."""
    try:
        value = decode(data)
    except MalformedMessage:
        return
    assert encode(value) == data


# Which bytes are overwritten with what.
CHANGES = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=4)


@MANY
@given(VALUES, CHANGES)
def test_mutated_bytes_are_malformed_or_mean_something(value: Any, changes: list[tuple[int, int]]) -> None:
    data = bytearray(encode(value))
    for place, byte in changes:
        data[place % len(data)] = byte
    with contextlib.suppress(MalformedMessage):
        assert encode(decode(data)) == bytes(data)


OFFERS = st.builds(Offer, INTEGERS, st.one_of(FLAT.map(Public), FLAT.map(Released)), FLAT.map(Masked))


@MANY
@given(OFFERS)
def test_messages_round_trip_and_know_their_size(offer: Offer) -> None:
    data = encode_message(offer)
    assert same(decode_message(data), offer)
    assert encoded_size(offer) == len(data)


@MANY
@given(
    OFFERS,
    CHANGES,
    st.integers(0, 3),
)
def test_mutated_messages_are_malformed_or_messages(offer: Offer, changes: list[tuple[int, int]], cut: int) -> None:
    data = bytearray(encode_message(offer))
    for place, byte in changes:
        data[place % len(data)] = byte
    mutated = bytes(data[: len(data) - cut])
    with contextlib.suppress(MalformedMessage):
        assert isinstance(decode_message(mutated), Offer)


@MANY
@given(st.one_of(NOISE, NOISE.map(lambda data: b"GSM\x01o" + data)))
def test_noise_is_no_message(data: bytes) -> None:
    with contextlib.suppress(MalformedMessage):
        assert isinstance(decode_message(data), Message)


def test_known_types_are_in_the_pieces() -> None:
    """Otherwise the fuzzing above would be blunt."""
    for value in (Elapsed(""), PeerDown("", ""), Triple(0, 0, 0)):
        assert encode(value).startswith(STARTS)
