"""The encoding byte by byte, and what it refuses."""

from __future__ import annotations

import itertools
import struct
import tracemalloc
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from gossamer.errors import MalformedMessage
from gossamer.protocol.encoding import decode, encode, encode_pieces, name_of, register
from gossamer.vectors import Blank, Masked, Public, Released


@register("test.encoding.pair")
@dataclass(frozen=True)
class Pair:
    left: Any
    right: Any


@register("test.encoding.positive")
@dataclass(frozen=True)
class Positive:
    value: float

    def __post_init__(self) -> None:
        if not self.value > 0:
            raise ValueError(f"expected a positive value, found {self.value}")


@register("test.encoding.fragile")
@dataclass(frozen=True)
class Fragile:
    """Its constructor fails in another way for each type of argument."""

    value: Any

    def __post_init__(self) -> None:
        if self.value is None:
            self.value.missing  # noqa: B018  AttributeError
        1 // self.value  # ZeroDivisionError, TypeError


# Written by hand from the table in encoding's docstring.
GOLDEN: list[tuple[Any, str]] = [
    (None, "4e"),
    (True, "54"),
    (False, "46"),
    (1, "69 0100000000000000"),
    (-2, "69 feffffffffffffff"),
    (2**63 - 1, "69 ffffffffffffff7f"),
    (-(2**63), "69 0000000000000080"),
    (1.0, "66 000000000000f03f"),
    (-0.0, "66 0000000000000080"),
    ("", "73 00000000"),
    ("aé", "73 03000000 61 c3a9"),
    (b"\x00\xff", "62 02000000 00ff"),
    ([], "6c 00000000"),
    ([None, [True]], "6c 02000000 4e 6c 01000000 54"),
    ((1,), "74 01000000 69 0100000000000000"),
    ({"a": None, 1: False}, "64 02000000 73 01000000 61 4e 69 0100000000000000 46"),
    (np.array([1.0], np.float32), "61 00 01 0100000000000000 0000803f"),
    (np.array([1.0], np.float64), "61 01 01 0100000000000000 000000000000f03f"),
    (np.array([-1], np.int32), "61 02 01 0100000000000000 ffffffff"),
    (np.array([-1], np.int64), "61 03 01 0100000000000000 ffffffffffffffff"),
    (np.array([2], np.uint32), "61 04 01 0100000000000000 02000000"),
    (np.array([2], np.uint64), "61 05 01 0100000000000000 0200000000000000"),
    (np.array([3, 4], np.uint8), "61 06 01 0200000000000000 03 04"),
    (np.array(5, np.uint8), "61 06 00 05"),
    (np.array([[1, 2, 3]], np.uint8), "61 06 02 0100000000000000 0300000000000000 010203"),
    (np.zeros((0, 2), np.uint8), "61 06 02 0000000000000000 0200000000000000"),
    (Public(np.array([1.0], np.float32)), "50 00 01 0100000000000000 0000803f"),
    (Released(np.array([1.0], np.float32)), "52 00 01 0100000000000000 0000803f"),
    (Masked(np.array([1], np.uint64)), "4d 05 01 0100000000000000 0100000000000000"),
    (Pair(None, True), "6f 12" + b"test.encoding.pair".hex() + "02000000 4e 54"),
]


def same(left: Any, right: Any) -> bool:
    if isinstance(left, np.ndarray):
        return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()
    return type(left) is type(right) and bool(left == right)


@pytest.mark.parametrize(("value", "golden"), GOLDEN, ids=[golden for _, golden in GOLDEN])
def test_golden_bytes(value: Any, golden: str) -> None:
    assert encode(value) == bytes.fromhex(golden)
    assert same(decode(bytes.fromhex(golden)), value)


def test_layout_in_memory_does_not_matter() -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    for other in (np.asfortranarray(array), array.astype(">f4"), np.repeat(array, 2, axis=1)[:, ::2]):
        assert encode(other) == encode(array)


def test_pieces_are_views_of_the_arrays_and_make_up_the_encoding() -> None:
    array, vector = np.arange(6, dtype=np.int32).reshape(2, 3), Released(np.ones(1000))
    pieces = encode_pieces([array, "text", vector])
    assert b"".join(pieces) == encode([array, "text", vector])
    views = [np.frombuffer(piece, np.uint8) for piece in pieces if isinstance(piece, memoryview)]
    assert [view.nbytes for view in views] == [24, 8000]
    assert np.shares_memory(views[0], array)
    assert np.shares_memory(views[1], vector.values)


def test_decoded_arrays_own_their_values() -> None:
    data = bytearray(encode([np.ones(2), Released(np.ones(2))]))
    array, vector = decode(data)
    data[:] = bytes(len(data))
    assert array.tolist() == vector.values.tolist() == [1.0, 1.0]
    assert array.flags.writeable
    assert not vector.values.flags.writeable


@pytest.mark.parametrize("offset", [0, 1, 4])
def test_a_vector_may_stay_in_a_buffer_of_its_own(offset: int) -> None:
    """Wherever it begins, it lies where the processor wants it, and nobody can write to it."""
    for before, dtype in itertools.product(range(9), [np.float32, np.float64, np.uint8]):
        value = ("x" * before, Released(np.arange(1000).astype(dtype)), Released(np.ones(3)), 7)
        buffer = np.frombuffer(bytes(offset) + encode(value), np.uint8).copy()
        found = decode(buffer.data[offset:], own=True)
        assert found == value
        large, small = found[1].values, found[2].values
        assert large.flags.aligned
        assert not large.flags.writeable
        assert np.shares_memory(large, buffer)
        assert not np.shares_memory(small, buffer)
        with pytest.raises(ValueError, match="WRITEABLE"):
            large.setflags(write=True)


def test_only_what_takes_up_most_of_a_buffer_stays_in_it() -> None:
    """A small vector would keep all of it in memory, and an array that is no vector may be written to."""
    for value, stays in (
        ((Released(np.ones(50)), Released(np.ones(49))), [False, False]),
        ((Released(np.ones(100)), Released(np.ones(49))), [True, False]),
        ((np.ones((10, 10)), 1), [False]),
    ):
        buffer = np.frombuffer(encode(value), np.uint8).copy()
        arrays = [getattr(item, "values", item) for item in decode(buffer.data, own=True)]
        assert [np.shares_memory(array, buffer) for array in arrays if isinstance(array, np.ndarray)] == stays


@pytest.mark.parametrize(
    "value",
    [
        np.float64(1.0),
        np.int64(1),
        np.bool_(True),
        1j,
        {1},
        object,
        OrderedDict(),
        bytearray(b"a"),
        2**63,
        -(2**63) - 1,
        np.array([True]),
        np.array([1.0], np.float16),
        np.array([1j]),
        np.array(["a"]),
        np.array([None]),
        np.zeros((1,) * 9, np.uint8),
        Released(Blank(3)),
    ],
    ids=repr,
)
def test_refuses_to_encode(value: Any) -> None:
    for nested in (value, [value], {"key": value}, Pair(1, value)):
        with pytest.raises(TypeError):
            encode(nested)


def nest(depth: int) -> Any:
    value: Any = None
    for _ in range(depth):
        value = [value]
    return value


def test_what_encodes_also_decodes_however_deep() -> None:
    assert decode(encode(nest(32))) == nest(32)
    with pytest.raises(TypeError, match="32"):
        encode(nest(33))
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(TypeError, match="32"):
        encode(loop)
    with pytest.raises(MalformedMessage, match="32"):
        decode(b"l\x01\x00\x00\x00" * 100_000 + b"N")


U32, U64 = struct.Struct("<I").pack, struct.Struct("<Q").pack
HUGE = 1 << 60


def array_header(code: int, *shape: int) -> bytes:
    return b"a" + bytes([code, len(shape)]) + b"".join(map(U64, shape))


BOMBS = {
    "array": array_header(1, HUGE),
    "vector": b"R" + array_header(1, HUGE)[1:],
    "array_overflowing_64_bits": array_header(1, 1 << 32, 1 << 32),
    "array_of_two_dimensions": array_header(0, 1 << 30, 1 << 30) + bytes(64),
    "array_nine_dimensions": array_header(6, *[1] * 9) + b"\x00",
    "list": b"l" + U32(0xFFFFFFFF),
    "tuple": b"t" + U32(0xFFFFFFFF) + b"N" * 10,
    "dict": b"d" + U32(0xFFFFFFFF),
    "text": b"s" + U32(0xFFFFFFFF),
    "bytes": b"b" + U32(0xFFFFFFFF),
    "fields": b"o\x12test.encoding.pair" + U32(0xFFFFFFFF),
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_allocates_nothing_for_a_bomb(bomb: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(MalformedMessage):
            decode(bomb)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("tag", [b"l", b"t", b"d", b"o\x12test.encoding.pair"])
def test_more_values_than_bytes_are_refused_before_any_is_read(tag: bytes) -> None:
    with pytest.raises(MalformedMessage, match="expected 3 values, found only 2 bytes"):
        decode(tag + U32(3) + b"xx")


def test_field_count_is_checked_before_the_fields_are_read() -> None:
    count = 100_000
    data = b"o\x12test.encoding.pair" + U32(count) + b"l\x00\x00\x00\x00" * count
    tracemalloc.start()
    try:
        with pytest.raises(MalformedMessage, match="2 fields"):
            decode(data)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_number_of_values_can_be_limited() -> None:
    assert decode(encode([1, [2]]), most_values=4) == [1, [2]]
    with pytest.raises(MalformedMessage, match="at most 3 values"):
        decode(encode([1, [2]]), most_values=3)


MALFORMED = {
    "nothing": b"",
    "unknown tag": b"x",
    "pickle": b"\x80\x04N.",
    "one byte too many": encode(1) + b"\x00",
    "cut number": encode(1)[:-1],
    "cut text": encode("abc")[:-1],
    "no UTF-8": b"s" + U32(1) + b"\xff",
    "surrogate": b"s" + U32(3) + b"\xed\xa0\x80",
    "unhashable key": b"d" + U32(1) + b"l" + U32(0) + b"N",
    "unhashable vector as key": b"d" + U32(1) + encode(Public(np.ones(1))) + b"N",
    "key twice": b"d" + U32(2) + encode("a") + b"N" + encode("a") + b"T",
    "unknown dtype": b"a\x07\x00",
    "vector of two dimensions": b"R" + encode(np.ones((2, 2)))[1:],
    "vector of no dimensions": b"R" + encode(np.array(1.0))[1:],
    "shape no array has": array_header(6, 0, HUGE, HUGE),
    "length beyond 63 bits": array_header(6, 0, 1 << 63),
    "unknown type": b"o\x03abc" + U32(0),
    "empty name": b"o\x00" + U32(0),
    "type name no UTF-8": b"o\x01\xff" + U32(0),
    "a field too few": b"o\x12test.encoding.pair" + U32(1) + b"N",
    "a field too many": b"o\x12test.encoding.pair" + U32(3) + b"NNN",
    "refused by its constructor": b"o\x16test.encoding.positive" + U32(1) + encode(-1.0),
    "of a type its constructor cannot use": b"o\x16test.encoding.positive" + U32(1) + encode("one"),
    "division by zero in a constructor": b"o\x15test.encoding.fragile" + U32(1) + encode(0),
    "missing attribute in a constructor": b"o\x15test.encoding.fragile" + U32(1) + encode(None),
}


def test_refuses_to_decode() -> None:
    for data in MALFORMED.values():
        with pytest.raises(MalformedMessage):
            decode(data)


def test_registration() -> None:
    @dataclass
    class Fresh:
        value: int = 0

    class Undecorated(Fresh):
        pass

    @dataclass
    class Derived:
        value: int = field(init=False, default=0)

    @dataclass(kw_only=True)
    class ByKeyword:
        value: int

    assert name_of(Pair) == "test.encoding.pair"
    refused: list[tuple[str, type]] = [
        ("test.encoding.pair", Fresh),  # the name is taken
        ("test.encoding.pair2", Pair),  # the class has a name
        ("", Fresh),
        ("é", Fresh),
        ("x" * 256, Fresh),
        ("test.encoding.int", int),
        ("test.encoding.undecorated", Undecorated),  # its fields would be its parent's
        ("test.encoding.derived", Derived),  # decoding could not set them
        ("test.encoding.keyword", ByKeyword),
    ]
    for name, cls in refused:
        with pytest.raises(TypeError):
            register(name)(cls)
    assert name_of(register("test.encoding." + "x" * 241)(Fresh)).endswith("x")
    assert decode(encode(Fresh(3))) == Fresh(3)
