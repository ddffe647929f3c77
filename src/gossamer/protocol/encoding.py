"""Values as bytes: the one encoding of messages, node states and traces.

Every value is a one-byte tag and its content; numbers are little-endian.

| tag | value | content |
|---|---|---|
| `N` `T` `F` | None, True, False | - |
| `i` | int | i64 |
| `f` | float | f64 |
| `s` `b` | str (UTF-8; of an enumeration, its value), bytes or a view of some | u32 length, bytes |
| `l` `t` | list, tuple | u32 count, values |
| `d` | dict | u32 count, key and value in turn |
| `a` | ndarray | u8 dtype code, u8 dimensions (at most 8), u64 each, raw bytes in C order |
| `P` `R` `M` `C` | Public, Released, Masked, Confined | an `a` value without its tag, one-dimensional |
| `o` | a registered dataclass | u8 length, ASCII name, u32 count, its fields' values in order |

The dtype codes 0 to 6 are f4, f8, i4, i8, u4, u8 and u1. Values nest at most 32 deep, and no two encodings mean
the same value.

On decoding nothing runs but the constructors of registered types, and no type outside the registry can be named.
Sizes are checked against the bytes at hand before anything is allocated.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from enum import StrEnum
from itertools import chain
from typing import Any, TypeVar, dataclass_transform

import numpy as np

from gossamer.errors import MalformedMessage
from gossamer.protocol import registries
from gossamer.vectors import Confined, Masked, Public, Released, Vector

_DTYPES = [np.dtype(code) for code in ("<f4", "<f8", "<i4", "<i8", "<u4", "<u8", "|u1")]
_DTYPE_CODES = {dtype: code for code, dtype in enumerate(_DTYPES)}
_LABELS: dict[bytes, type[Vector]] = {b"P": Public, b"R": Released, b"M": Masked, b"C": Confined}
_LABEL_TAGS = {label: tag for tag, label in _LABELS.items()}
_MAX_DEPTH = 32
_MAX_DIMENSIONS = 8
_U32, _I64, _F64 = struct.Struct("<I"), struct.Struct("<q"), struct.Struct("<d")

_NAMES: dict[type, str] = {}
_TYPES: dict[str, type] = {}
_FIELDS: dict[type, tuple[str, ...]] = {}
T = TypeVar("T", bound=type)


def register(name: str) -> Callable[[T], T]:
    """Class decorator: let instances of a dataclass be encoded under ``name``.

    Raises
    ------
    TypeError
        If ``name`` is not 1 to 255 ASCII characters or is taken (names are never reused), or if ``cls`` is no
        dataclass whose fields are all arguments by position.
    """

    def add(cls: T) -> T:
        if not (name.isascii() and 0 < len(name) < 256) or name in _TYPES or cls in _NAMES:
            raise TypeError(f"{name!r}: expected a new name of 1 to 255 ASCII characters for a class without one")
        if "__dataclass_fields__" not in vars(cls) or any(f.kw_only or not f.init for f in fields(cls)):
            raise TypeError(f"{name!r}: expected a dataclass with positional fields only, found {cls!r}")
        _TYPES[name], _NAMES[cls], _FIELDS[cls] = cls, name, tuple(f.name for f in fields(cls))
        return cls

    return add


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(name: str) -> Callable[[T], T]:
    """Class decorator: make a frozen dataclass of what is none yet, and `register` it.

    Raises
    ------
    TypeError
        As for `register`.
    """
    return lambda cls: register(name)(as_frozen(cls))


def as_frozen(cls: T) -> T:
    """``cls`` as a frozen dataclass; what is a dataclass already stays as it is."""
    return cls if "__dataclass_fields__" in vars(cls) else dataclass(frozen=True)(cls)  # type: ignore[return-value]


@dataclass_transform(frozen_default=True)
def value(name: str) -> Callable[[T], T]:
    """Class decorator: `register` a dataclass with slots, whose instances do not change.

    Types hold it to that, and nothing else does: to make a frozen one takes three times as long, and a run makes some
    at each of its steps.

    Raises
    ------
    TypeError
        As for `register`.
    """
    return lambda cls: register(name)(dataclass(slots=True)(cls))  # type: ignore[return-value]


def name_of(cls: type) -> str:
    """The name a registered type is encoded under."""
    return _NAMES[cls]


Buffer = bytes | memoryview


def encode(value: Any) -> bytes:
    """``value`` as bytes.

    Raises
    ------
    TypeError
        If a type is not in the table above or values nest too deep: a bug of the caller, never of a peer.
    """
    return b"".join(encode_pieces(value))


def encode_pieces(value: Any) -> list[Buffer]:
    """`encode`'s bytes in pieces, for who joins or cuts them. Arrays are not copied: theirs are views of their memory.

    Raises
    ------
    TypeError
        As `encode`.
    """
    out: list[Buffer] = []
    _write(out, (value,), 0)
    return out


def size_of(pieces: Iterable[Buffer]) -> int:
    """Count the bytes that ``pieces`` make up."""
    return sum(map(len, pieces))


def _write(out: list[Buffer], values: Iterable[Any], depth: int) -> None:
    for value in values:
        if depth > _MAX_DEPTH:
            raise TypeError(f"expected at most {_MAX_DEPTH} nested values")
        kind = type(value)
        if (leaf := _LEAVES.get(kind)) is not None:
            out.append(leaf(value))
        elif (writer := _WRITERS.get(kind)) is not None:
            writer(out, value, depth + 1)
        elif isinstance(value, StrEnum):
            out.append(_text(value.value))
        elif kind in _NAMES:
            name, contents = _NAMES[kind].encode(), _FIELDS[kind]
            out.append(b"o" + bytes([len(name)]) + name + _U32.pack(len(contents)))
            _write(out, [getattr(value, field) for field in contents], depth + 1)
        else:
            raise TypeError(f"no encoding for {kind.__name__}; register it or send something plainer")


_Writer = Callable[[list[Buffer], Any, int], None]


def _write_sequence(tag: bytes) -> _Writer:
    def write(out: list[Buffer], value: Any, depth: int) -> None:
        out.append(tag + _U32.pack(len(value)))
        _write(out, value, depth)

    return write


def _write_dict(out: list[Buffer], value: dict[Any, Any], depth: int) -> None:
    out.append(b"d" + _U32.pack(len(value)))
    _write(out, chain.from_iterable(value.items()), depth)


def _write_bytes(out: list[Buffer], value: Buffer, _: int) -> None:
    out += b"b" + _U32.pack(memoryview(value).nbytes), value


def _write_array(tag: bytes, values: Callable[[Any], Any]) -> _Writer:
    def write(out: list[Buffer], value: Any, _: int) -> None:
        array = values(value)
        if not isinstance(array, np.ndarray):
            raise TypeError("a blank vector has no values to encode")
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        code = _DTYPE_CODES.get(little.dtype)
        if code is None or array.ndim > _MAX_DIMENSIONS:
            raise TypeError(f"no encoding for arrays of {array.dtype} with {array.ndim} dimensions")
        out.append(tag + bytes([code, array.ndim]) + struct.pack(f"<{array.ndim}Q", *array.shape))
        out.append(np.ascontiguousarray(little).reshape(-1).view(np.uint8).data)

    return write


def _int(value: int) -> bytes:
    if not -(1 << 63) <= value < 1 << 63:
        raise TypeError(f"integers travel as 64 bits, found {value}")
    return b"i" + _I64.pack(value)


def _text(value: str) -> bytes:
    encoded = value.encode()
    return b"s" + _U32.pack(len(encoded)) + encoded


# Nearly all values are of these; apart, since they need no depth.
_LEAVES: dict[type, Callable[[Any], bytes]] = {
    type(None): lambda _: b"N",
    bool: lambda value: b"T" if value else b"F",
    int: _int,
    float: lambda value: b"f" + _F64.pack(value),
    str: _text,
}
_WRITERS: dict[type, _Writer] = {
    bytes: _write_bytes,
    memoryview: _write_bytes,
    list: _write_sequence(b"l"),
    tuple: _write_sequence(b"t"),
    dict: _write_dict,
    np.ndarray: _write_array(b"a", lambda array: array),
    **{label: _write_array(tag, lambda vector: vector.values) for label, tag in _LABEL_TAGS.items()},
}


def decode(data: bytes | memoryview, most_values: int | None = None, *, own: bool = False, views: bool = False) -> Any:
    """The value that `encode` made ``data`` from.

    Parameters
    ----------
    data : bytes
        Anything at all.
    most_values : int, optional
        Most values accepted, nested ones included. A few bytes can encode a value that takes a hundred in memory,
        so a limit on bytes alone would let a peer fill ours.
    own : bool
        Whether ``data`` can be written to, and nobody else does so from now on. A vector that takes up most of it then
        stays where it is, without a copy; what is left of ``data`` means nothing.
    views : bool
        Whether nobody changes ``data`` from now on. Bytes in it are then views of it, and no copies.

    Raises
    ------
    MalformedMessage
        If ``data`` is anything else, however it was made.
    """
    reader = _Reader(memoryview(data), most_values, own, views)
    value = reader.value(0)
    if reader.rest:
        raise MalformedMessage(f"expected the end of the value, found {len(reader.rest)} more bytes")
    return value


class _Reader:
    def __init__(self, data: memoryview, most_values: int | None, own: bool, views: bool) -> None:
        self.data = self.rest = data
        self.own, self.views = own, views
        self.most_values = len(data) if most_values is None else most_values
        self.values_left = self.most_values

    def take(self, count: int) -> memoryview:
        if count > len(self.rest):
            raise MalformedMessage(f"expected {count} more bytes, found {len(self.rest)}")
        taken, self.rest = self.rest[:count], self.rest[count:]
        return taken

    def number(self, layout: struct.Struct) -> Any:
        return layout.unpack(self.take(layout.size))[0]

    def count(self) -> int:
        """A number of values, each of which takes at least one byte."""
        count = int(self.number(_U32))
        if count > len(self.rest):
            raise MalformedMessage(f"expected {count} values, found only {len(self.rest)} bytes")
        return count

    def value(self, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise MalformedMessage(f"expected at most {_MAX_DEPTH} nested values")
        tag = bytes(self.take(1))
        self.values_left -= 1
        if self.values_left < 0:
            raise MalformedMessage(f"expected at most {self.most_values} values")
        reader = _READERS.get(tag)
        if reader is None:
            raise MalformedMessage(f"unknown tag {tag!r}")
        return reader(self, depth + 1)

    def text(self, length: int) -> str:
        try:
            return str(self.take(length), "utf-8")
        except UnicodeDecodeError as error:
            raise MalformedMessage("expected UTF-8 text") from error

    def bytes(self) -> Buffer:
        taken = self.take(self.number(_U32))
        return taken if self.views else bytes(taken)

    def array(self) -> np.ndarray[Any, Any]:
        code, dimensions = self.take(2)
        if code >= len(_DTYPES) or dimensions > _MAX_DIMENSIONS:
            raise MalformedMessage(f"unknown array header: dtype {code}, {dimensions} dimensions")
        shape = struct.unpack(f"<{dimensions}Q", self.take(8 * dimensions))
        raw = self.take(math.prod(shape) * _DTYPES[code].itemsize)
        try:
            if self.own and dimensions == 1 and 2 * len(raw) > len(self.data):
                return np.frombuffer(self._aligned(len(raw), _DTYPES[code].itemsize), _DTYPES[code])
            return np.frombuffer(raw, _DTYPES[code]).reshape(shape).copy()
        except (ValueError, OverflowError) as error:  # a zero beside a length no array can have
            raise MalformedMessage(f"no array has shape {shape}") from error

    def _aligned(self, length: int, multiple: int) -> memoryview:
        """The last so many bytes that were taken, at an address that is a multiple; over their header, if they must."""
        start = len(self.data) - len(self.rest) - length
        address = np.frombuffer(self.data, np.uint8).__array_interface__["data"][0]
        place = start - (address + start) % multiple
        self.data[place : place + length] = self.data[start : start + length]
        return self.data[place : place + length].toreadonly()

    def vector(self, label: type[Vector]) -> Vector:
        array = self.array()
        if array.ndim != 1:
            raise MalformedMessage(f"expected a flat vector, found {array.ndim} dimensions")
        return label(array)

    def mapping(self, depth: int) -> dict[Any, Any]:
        count = self.count()
        try:
            mapping = {self.value(depth): self.value(depth) for _ in range(count)}
        except TypeError as error:
            raise MalformedMessage("expected hashable keys") from error
        if len(mapping) < count:
            raise MalformedMessage("expected every key once")
        return mapping

    def instance(self, depth: int) -> Any:
        name = self.text(self.take(1)[0])
        count = self.count()
        return made(name, count, (self.value(depth) for _ in range(count)))


def made(name: str, count: int, values: Iterable[Any]) -> Any:
    """The object that is encoded under ``name``, from its fields' ``values`` in order; none is read if not so many.

    Raises
    ------
    MalformedMessage
        If there is no such type, or it refuses them.
    """
    if name not in _TYPES:
        registries.import_all()
    cls = _TYPES.get(name)
    if cls is None:
        raise MalformedMessage(f"unknown type {name!r}")
    if count != (expected := len(_FIELDS[cls])):
        raise MalformedMessage(f"{name} has {expected} fields, found {count}")
    found = list(values)
    try:
        return cls(*found)
    except _CONSTRUCTOR_ERRORS as error:
        raise MalformedMessage(f"{name}: {error}") from error


# What a constructor may say of values of types it never expected.
_CONSTRUCTOR_ERRORS = (TypeError, ValueError, ArithmeticError, AttributeError, LookupError)
_READERS: dict[bytes, Callable[[_Reader, int], Any]] = {
    b"N": lambda reader, depth: None,
    b"T": lambda reader, depth: True,
    b"F": lambda reader, depth: False,
    b"i": lambda reader, depth: reader.number(_I64),
    b"f": lambda reader, depth: reader.number(_F64),
    b"s": lambda reader, depth: reader.text(reader.number(_U32)),
    b"b": lambda reader, depth: reader.bytes(),
    b"l": lambda reader, depth: [reader.value(depth) for _ in range(reader.count())],
    b"t": lambda reader, depth: tuple(reader.value(depth) for _ in range(reader.count())),
    b"d": lambda reader, depth: reader.mapping(depth),
    b"a": lambda reader, depth: reader.array(),
    b"P": lambda reader, depth: reader.vector(Public),
    b"R": lambda reader, depth: reader.vector(Released),
    b"M": lambda reader, depth: reader.vector(Masked),
    b"C": lambda reader, depth: reader.vector(Confined),
    b"o": lambda reader, depth: reader.instance(depth),
}
