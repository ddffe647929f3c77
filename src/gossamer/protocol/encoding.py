"""Values as bytes: the one encoding of messages, node states and traces.

Every value is a one-byte tag and its content; numbers are little-endian.

| tag | value | content |
|---|---|---|
| `N` `T` `F` | None, True, False | - |
| `i` | int | i64 |
| `f` | float | f64 |
| `s` `b` | str (UTF-8), bytes | u32 length, bytes |
| `l` `t` | list, tuple | u32 count, values |
| `d` | dict | u32 count, key and value in turn |
| `a` | ndarray | u8 dtype code, u8 dimensions, u64 each, raw bytes |
| `P` `R` `M` | Public, Released, Masked | an `a` value without its tag, one-dimensional |
| `o` | a registered dataclass | u8 length, ASCII name, u32 count, its fields' values in order |

Nothing is executed on decoding and no type outside the registry can be named. Sizes are checked against the
bytes at hand before anything is allocated.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

import numpy as np

from gossamer.errors import MalformedMessage
from gossamer.vectors import Masked, Public, Released, Vector

_DTYPES = [np.dtype(code) for code in ("<f4", "<f8", "<i4", "<i8", "<u4", "<u8", "|u1")]
_DTYPE_CODES = {dtype: code for code, dtype in enumerate(_DTYPES)}
_LABELS: dict[bytes, type[Vector]] = {b"P": Public, b"R": Released, b"M": Masked}
_LABEL_TAGS = {label: tag for tag, label in _LABELS.items()}
_MAX_DEPTH = 32
_U32, _I64, _F64 = struct.Struct("<I"), struct.Struct("<q"), struct.Struct("<d")

_NAMES: dict[type, str] = {}
_TYPES: dict[str, type] = {}
T = TypeVar("T", bound=type)


def register(name: str) -> Callable[[T], T]:
    """Class decorator: let instances of a dataclass be encoded under ``name`` (ASCII, never reused)."""

    def add(cls: T) -> T:
        if not is_dataclass(cls) or name in _TYPES:
            raise TypeError(f"{name!r}: expected a dataclass under a name not taken yet, found {cls!r}")
        _TYPES[name], _NAMES[cls] = cls, name
        return cls

    return add


def name_of(cls: type) -> str:
    """The name a registered type is encoded under."""
    return _NAMES[cls]


def encode(value: Any) -> bytes:
    """``value`` as bytes.

    Raises
    ------
    TypeError
        If a type is not in the table above: a bug of the caller, never of a peer.
    """
    out = bytearray()
    _write(out, value)
    return bytes(out)


def _write(out: bytearray, value: Any) -> None:
    writer = _WRITERS.get(type(value))
    if writer is not None:
        writer(out, value)
    elif type(value) in _NAMES:
        name = _NAMES[type(value)].encode()
        contents = fields(value)
        out += b"o" + bytes([len(name)]) + name + _U32.pack(len(contents))
        for field in contents:
            _write(out, getattr(value, field.name))
    else:
        raise TypeError(f"no encoding for {type(value).__name__}; register it or send something plainer")


def _write_sequence(tag: bytes) -> Callable[[bytearray, Any], None]:
    def write(out: bytearray, value: Any) -> None:
        out += tag + _U32.pack(len(value))
        for item in value:
            _write(out, item)

    return write


def _write_dict(out: bytearray, value: dict[Any, Any]) -> None:
    out += b"d" + _U32.pack(len(value))
    for key, item in value.items():
        _write(out, key)
        _write(out, item)


def _write_int(out: bytearray, value: int) -> None:
    if not -(1 << 63) <= value < 1 << 63:
        raise TypeError(f"integers travel as 64 bits, found {value}")
    out += b"i" + _I64.pack(value)


def _write_array(out: bytearray, array: np.ndarray[Any, Any]) -> None:
    little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    code = _DTYPE_CODES.get(little.dtype)
    if code is None:
        raise TypeError(f"no encoding for arrays of {array.dtype}")
    out += bytes([code, array.ndim]) + struct.pack(f"<{array.ndim}Q", *array.shape) + little.tobytes()


def _tagged(tag: bytes, content: Callable[[bytearray, Any], None]) -> Callable[[bytearray, Any], None]:
    def write(out: bytearray, value: Any) -> None:
        out += tag
        content(out, value)

    return write


def _write_bytes(out: bytearray, value: bytes) -> None:
    out += _U32.pack(len(value)) + value


_WRITERS: dict[type, Callable[[bytearray, Any], None]] = {
    type(None): lambda out, _: out.extend(b"N"),
    bool: lambda out, value: out.extend(b"T" if value else b"F"),
    int: _write_int,
    float: lambda out, value: out.extend(b"f" + _F64.pack(value)),
    str: _tagged(b"s", lambda out, value: _write_bytes(out, value.encode())),
    bytes: _tagged(b"b", _write_bytes),
    list: _write_sequence(b"l"),
    tuple: _write_sequence(b"t"),
    dict: _write_dict,
    np.ndarray: _tagged(b"a", _write_array),
    **{label: _tagged(tag, lambda out, v: _write_array(out, v.values)) for label, tag in _LABEL_TAGS.items()},
}


def decode(data: bytes | memoryview) -> Any:
    """The value that `encode` made ``data`` from.

    Raises
    ------
    MalformedMessage
        If ``data`` is anything else, however it was made.
    """
    reader = _Reader(memoryview(data))
    value = reader.value(0)
    if reader.rest:
        raise MalformedMessage(f"expected the end of the value, found {len(reader.rest)} more bytes")
    return value


class _Reader:
    def __init__(self, data: memoryview) -> None:
        self.rest = data

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
        reader = _READERS.get(tag)
        if reader is None:
            raise MalformedMessage(f"unknown tag {tag!r}")
        return reader(self, depth + 1)

    def text(self, length: int) -> str:
        try:
            return str(self.take(length), "utf-8")
        except UnicodeDecodeError as error:
            raise MalformedMessage("expected UTF-8 text") from error

    def array(self) -> np.ndarray[Any, Any]:
        code, dimensions = self.take(2)
        if code >= len(_DTYPES) or dimensions > 8:
            raise MalformedMessage(f"unknown array header: dtype {code}, {dimensions} dimensions")
        shape = struct.unpack(f"<{dimensions}Q", self.take(8 * dimensions))
        entries = 1
        for length in shape:
            entries *= length
        raw = self.take(entries * _DTYPES[code].itemsize)
        try:
            return np.frombuffer(raw, _DTYPES[code]).reshape(shape).copy()
        except ValueError as error:  # a zero beside a length no array can have
            raise MalformedMessage(f"no array has shape {shape}") from error

    def vector(self, label: type[Vector]) -> Vector:
        array = self.array()
        if array.ndim != 1:
            raise MalformedMessage(f"expected a flat vector, found {array.ndim} dimensions")
        return label(array)

    def mapping(self, depth: int) -> dict[Any, Any]:
        pairs = [(self.value(depth), self.value(depth)) for _ in range(self.count())]
        try:
            return dict(pairs)
        except TypeError as error:
            raise MalformedMessage("expected hashable keys") from error

    def instance(self, depth: int) -> Any:
        name = self.text(self.take(1)[0])
        cls = _TYPES.get(name)
        if cls is None:
            raise MalformedMessage(f"unknown type {name!r}")
        values = [self.value(depth) for _ in range(self.count())]
        if len(values) != len(fields(cls)):
            raise MalformedMessage(f"{name} has {len(fields(cls))} fields, found {len(values)}")
        try:
            return cls(*values)
        except (TypeError, ValueError) as error:
            raise MalformedMessage(f"{name}: {error}") from error


_READERS: dict[bytes, Callable[[_Reader, int], Any]] = {
    b"N": lambda reader, depth: None,
    b"T": lambda reader, depth: True,
    b"F": lambda reader, depth: False,
    b"i": lambda reader, depth: reader.number(_I64),
    b"f": lambda reader, depth: reader.number(_F64),
    b"s": lambda reader, depth: reader.text(reader.number(_U32)),
    b"b": lambda reader, depth: bytes(reader.take(reader.number(_U32))),
    b"l": lambda reader, depth: [reader.value(depth) for _ in range(reader.count())],
    b"t": lambda reader, depth: tuple(reader.value(depth) for _ in range(reader.count())),
    b"d": lambda reader, depth: reader.mapping(depth),
    b"a": lambda reader, depth: reader.array(),
    b"P": lambda reader, depth: reader.vector(Public),
    b"R": lambda reader, depth: reader.vector(Released),
    b"M": lambda reader, depth: reader.vector(Masked),
    b"o": lambda reader, depth: reader.instance(depth),
}
