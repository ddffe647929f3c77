"""Values as bytes for who wrote them, such as a checkpoint: what is in a value twice is written once.

Before the value stands a table of the vectors, the arrays and the registered objects in it, each once, and each after
those that it holds itself; in their place is the number that it has there. All of it is written by `encoding`, so
reading runs nothing but constructors of registered types. Many messages with one model take the memory of one, before
and after. Messages to others are never written so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from enum import StrEnum
from typing import Any, ClassVar

import numpy as np

from gossamer.errors import MalformedMessage
from gossamer.protocol.encoding import Buffer, decode, encode_pieces, made, name_of
from gossamer.vectors import Confined, Masked, Public, Released

_PLAIN = frozenset({type(None), bool, int, float, str, bytes})
_ARRAYS = frozenset({np.ndarray, Public, Released, Masked, Confined})
_PLACE = None
"""Key of the one entry of a dict that stands for an object of the table."""


def encode_snapshot(value: Any) -> list[Buffer]:
    """Return ``value`` as bytes, in pieces; arrays are not copied.

    Raises
    ------
    TypeError
        If a type in it has no encoding.
    """
    writer = _Writer()
    return encode_pieces((writer.plain(value), writer.table))


def decode_snapshot(data: bytes | memoryview) -> Any:
    """Return the value that `encode_snapshot` made ``data`` from.

    Raises
    ------
    MalformedMessage
        If ``data`` is anything else, however it was made.
    """
    found = decode(data)
    if not isinstance(found, tuple) or len(found) != 2 or not isinstance(found[1], list):
        raise MalformedMessage("expected a value and a table of what is in it")
    value, table = found
    objects: list[Any] = []
    for entry in table:
        if isinstance(entry, list):
            name, *values = entry or [None]
            if type(name) is not str:
                raise MalformedMessage(f"expected the name of a type, found {type(name).__name__}")
            objects.append(made(name, len(values), [_whole(one, objects) for one in values]))
        elif type(entry) in _ARRAYS:
            objects.append(entry)
        else:
            raise MalformedMessage(f"expected vectors and objects in the table, found {type(entry).__name__}")
    return _whole(value, objects)


class _Writer:
    """Plain data with numbers in the place of objects, and the table of these."""

    def __init__(self) -> None:
        self.table: list[Any] = []
        self._places: dict[int, tuple[int, Any]] = {}  # with the object, so that no other one gets its identity

    def plain(self, value: Any) -> Any:
        kind = type(value)
        if kind in _PLAIN or isinstance(value, StrEnum):
            return value
        if kind is tuple:
            return tuple([self.plain(one) for one in value])
        if kind is list:
            return [self.plain(one) for one in value]
        if kind is dict:
            if _PLACE in value:
                raise TypeError("None is no key of a dict in a snapshot")
            return {self.plain(key): self.plain(one) for key, one in value.items()}
        return {_PLACE: self._place(value, kind)}

    def _place(self, value: Any, kind: type) -> int:
        found = self._places.get(id(value))
        if found is None:
            self.table.append(value if kind in _ARRAYS else self._object(value, kind))
            found = self._places[id(value)] = len(self.table) - 1, value
        return found[0]

    def _object(self, value: Any, kind: type) -> list[Any]:
        try:
            name = name_of(kind)
        except KeyError:
            raise TypeError(f"no encoding for {kind.__name__}; register it or keep something plainer") from None
        return [name, *(self.plain(getattr(value, item.name)) for item in fields(kind))]


def _whole(value: Any, objects: list[Any]) -> Any:
    """Plain data with objects in the place of their numbers."""
    kind = type(value)
    if kind is tuple:
        return tuple([_whole(one, objects) for one in value])
    if kind is list:
        return [_whole(one, objects) for one in value]
    if kind is not dict:
        return value
    if _PLACE not in value:
        return {key: _whole(one, objects) for key, one in value.items()}
    place = value[_PLACE]
    if type(place) is not int or not 0 <= place < len(objects):
        raise MalformedMessage(f"expected the place of an object before it, found {str(place)[:40]}")
    return objects[place]


class Kept:
    """Base of what has state that is kept: the attributes that its class names, by name.

    Sets become lists, dicts and lists are copied, and what is `Kept` itself keeps its own.
    """

    changing: ClassVar[tuple[str, ...]]

    def snapshot(self) -> dict[str, Any]:
        """Return all that changes, as data that `encode_snapshot` takes."""
        return {name: _taken(getattr(self, name)) for name in self.changing}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Be as the object was whose `snapshot` this is."""
        for name in self.changing:
            now, then = getattr(self, name), snapshot[name]
            if isinstance(now, Kept):
                now.restore(then)
            else:
                setattr(self, name, set(then) if isinstance(now, set) else then)


def _taken(value: Any) -> Any:
    if isinstance(value, Kept):
        return value.snapshot()
    if isinstance(value, set):
        return sorted(value)
    return value.copy() if isinstance(value, dict | list) else value
