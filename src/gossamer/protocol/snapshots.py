"""The state of a run as bytes, for checkpoints and shards: what changes is named by each class, and kept by one walk.

A class that changes is `Kept`: it names its attributes that change (`changing`). Those of them that are `Kept`, and the
values of a dict of such, are *parts* of the run: a run that is built from the same settings has the same ones, so they
are set back where they stand. All else is a value, and made anew: plain data, vectors, arrays, sets, and objects of
types that are registered with `encoding`, or with `kept_whole`.

What a value holds of a part, such as a data side or a method that is to be called later, is kept as a `Reference`: the
part's place in the walk, and the method's name, which has to be one of the part's `acts`.

Before the value stands a table of the vectors, the arrays and the objects in it, each once, and each after those that
it holds itself; in their place is the number that it has there. All of it is written by `encoding`, so reading runs
nothing but constructors of registered types. Many messages with one model take the memory of one, before and after.
Messages to others are never written so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from enum import StrEnum
from functools import cache
from types import MethodType
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from gossamer.errors import MalformedMessage
from gossamer.protocol.encoding import Buffer, decode, encode_pieces, made, name_of
from gossamer.vectors import Confined, Masked, Public, Released

_PLAIN = frozenset({type(None), bool, int, float, str, bytes})
_ARRAYS = frozenset({np.ndarray, Public, Released, Masked, Confined})
_PLACE = None
"""Key of the one entry of a dict that stands for an object of the table, by its number."""
_NAMES: dict[type, str] = {set: "set", frozenset: "frozenset"}
_MADE: dict[str, Callable[..., Any]] = {"set": lambda *values: set(values), "frozenset": lambda *of: frozenset(of)}
T = TypeVar("T", bound=type)


class Kept:
    """Base of what changes in a run."""

    __slots__ = ()
    changing: ClassVar[tuple[str, ...]] = ()
    """Names of all attributes that change."""
    acts: ClassVar[tuple[str, ...]] = ()
    """Names of the methods that stand in the state of others."""

    def before_snapshot(self) -> None:
        """Called before any of the state is read, and on the whole before its parts.

        Raises
        ------
        SpecError
            If it cannot be kept.
        """

    def after_restore(self) -> None:
        """Called once all that changes, its parts included, is what it was."""


def kept_whole(kind: T) -> T:
    """Class decorator: have a snapshot take instances of a dataclass or a named tuple, by their fields, and make them
    anew. They are never part of a message."""
    name = f"{kind.__module__}.{kind.__qualname__}"
    _NAMES[kind], _MADE[name] = name, kind
    return kind


@kept_whole
class Reference(NamedTuple):
    """A part that a value holds, as it is kept.

    Attributes
    ----------
    part : int
        Place of the part in the walk over all of them.
    act : str or None
        Name of its method that is held; None for the part itself.
    """

    part: int
    act: str | None = None

    def found(self, parts: list[Kept]) -> Any:
        """Return what is held.

        Raises
        ------
        MalformedMessage
            If there is no such part, or method.
        """
        if type(self.part) is not int or not 0 <= self.part < len(parts):
            raise MalformedMessage(f"expected a part of 0 to {len(parts) - 1}, found {str(self.part)[:40]}")
        part = parts[self.part]
        if self.act is not None and self.act not in part.acts:
            raise MalformedMessage(f"expected a method of {type(part).__name__}, found {str(self.act)[:40]}")
        return part if self.act is None else getattr(part, self.act)


def encode_snapshot(value: Any) -> list[Buffer]:
    """Return a `Kept`, a dict of such, or any other value as bytes, in pieces; arrays are not copied.

    Raises
    ------
    TypeError
        If a type in it has no encoding.
    SpecError
        If a part cannot be kept.
    """
    writer = _Writer({id(part): number for number, part in enumerate(_walked(value, before=True))})
    return encode_pieces((writer.own(value), writer.table))


def decode_snapshot(data: bytes | memoryview, root: Any = None) -> Any:
    """Return the state that `encode_snapshot` made ``data`` from, for `restore`.

    Parameters
    ----------
    data : bytes
        What was encoded.
    root : Kept or dict of Kept, optional
        The run that is to be set back, whose parts are those that values hold; they stay `Reference` without one.

    Raises
    ------
    MalformedMessage
        If ``data`` is anything else, however it was made.
    """
    found = decode(data)
    if not isinstance(found, tuple) or len(found) != 2 or not isinstance(found[1], list):
        raise MalformedMessage("expected a value and a table of what is in it")
    value, table = found
    parts = None if root is None else _walked(root)
    objects: list[Any] = []
    for entry in table:
        if isinstance(entry, list):
            name, *values = entry or [None]
            if type(name) is not str:
                raise MalformedMessage(f"expected the name of a type, found {type(name).__name__}")
            one = _made(name, [_whole(one, objects) for one in values])
            objects.append(one.found(parts) if type(one) is Reference and parts is not None else one)
        elif type(entry) in _ARRAYS:
            objects.append(entry)
        else:
            raise MalformedMessage(f"expected vectors and objects in the table, found {type(entry).__name__}")
    return _whole(value, objects)


def restore(now: Any, then: Any) -> Any:
    """Set a `Kept`, or a dict of such, back to the state ``then``; return it, or ``then`` if it is a value."""
    if isinstance(now, Kept):
        kind: type = type(now)
        held = _held(kind)
        for name in now.changing:
            setattr(now, name, restore(getattr(now, name), then[name]) if name in held else then[name])
        now.after_restore()
        return now
    if not _has_parts(now):
        return then
    for name, part in now.items():
        restore(part, then[name])
    return now


def _has_parts(value: Any) -> bool:
    return type(value) is dict and bool(value) and isinstance(next(iter(value.values())), Kept)


def _walked(value: Any, before: bool = False) -> list[Kept]:
    """Return all parts of a run, in an order that follows from how it is built."""
    found: list[Kept] = []
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Kept):
            if before:
                value.before_snapshot()
            found.append(value)
            kind: type = type(value)
            waiting += [getattr(value, name) for name in _held(kind)]
        elif _has_parts(value):
            waiting += value.values()
    return found


@cache
def _held(kind: Any) -> tuple[str, ...]:
    """Names of what changes in objects of a ``kind`` and may be a part: what a property computes is none."""
    return tuple(name for name in kind.changing if not isinstance(getattr(kind, name, None), property))


def _made(name: str, values: list[Any]) -> Any:
    if name not in _MADE:
        return made(name, len(values), values)
    try:
        return _MADE[name](*values)
    except Exception as error:
        raise MalformedMessage(f"{name}: {str(error)[:200]}") from None


class _Writer:
    """Plain data with numbers in the place of objects, and the table of these."""

    def __init__(self, parts: Mapping[int, int]) -> None:
        self.table: list[Any] = []
        self._parts = parts
        self._places: dict[int, tuple[int, Any]] = {}  # with the object, so that no other one gets its identity
        self._references: dict[Reference, Reference] = {}

    def own(self, value: Any) -> Any:
        """Return the state of a part, or of a dict of parts; of any other value what is `plain`."""
        if isinstance(value, Kept):
            return {name: self.own(getattr(value, name)) for name in value.changing}
        if _has_parts(value):
            return {name: self.own(part) for name, part in value.items()}
        return self.plain(value)

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
        if kind is MethodType or isinstance(value, Kept):
            value, kind = self._reference(value), Reference
        return {_PLACE: self._place(value, kind)}

    def _reference(self, value: Any) -> Reference:
        part: Any
        act: str | None
        part, act = (value.__self__, value.__name__) if type(value) is MethodType else (value, None)
        if id(part) not in self._parts or (act is not None and act not in part.acts):
            raise TypeError(
                f"expected a part of the run, found {type(part).__name__}{'' if act is None else f'.{act}'}"
            )
        found = Reference(self._parts[id(part)], act)
        return self._references.setdefault(found, found)

    def _place(self, value: Any, kind: type) -> int:
        found = self._places.get(id(value))
        if found is None:
            self.table.append(value if kind in _ARRAYS else self._object(value, kind))
            found = self._places[id(value)] = len(self.table) - 1, value
        return found[0]

    def _object(self, value: Any, kind: type) -> list[Any]:
        if kind in (set, frozenset):
            return [_NAMES[kind], *map(self.plain, sorted(value))]
        try:
            name = _NAMES.get(kind) or name_of(kind)
        except KeyError:
            raise TypeError(f"no encoding for {kind.__name__}; register it or keep something plainer") from None
        values = value if isinstance(value, tuple) else [getattr(value, item.name) for item in fields(kind)]
        return [name, *map(self.plain, values)]


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
