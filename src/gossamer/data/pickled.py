"""Plain data out of a pickle, by reading its opcodes: nothing in it is imported, called or built.

A pickle is a program, and Python's own reader runs it. Here lists, dictionaries, numbers, texts and bytes are read as
what they are; of a call there remain its name, its arguments and its state, for the caller to judge.
"""

from __future__ import annotations

import pickletools
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(eq=False)
class Call:
    """A call that a pickle asks for, and that is not made.

    Attributes
    ----------
    name : str
        ``module name``.
    arguments, state : object
        What it would be called with, and given afterwards.
    """

    name: str
    arguments: Any = ()
    state: Any = None


class _Mark:
    """Beginning of what an opcode takes together."""


def plain(content: bytes) -> Any:
    """Return the object of a pickle, with a `Call` for each that is no plain data.

    Raises
    ------
    ValueError
        If it is damaged, or has opcodes that no plain data need.
    """
    reader = _Reader()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of escapes in damaged texts
            for opcode, argument, _ in pickletools.genops(content):
                if opcode.name == "STOP":
                    return reader.stack.pop()
                reader.take(opcode.name, argument)
    except (IndexError, KeyError, TypeError, AttributeError, UnicodeDecodeError, OverflowError) as error:
        raise ValueError(f"a damaged pickle ({type(error).__name__})") from None
    raise ValueError("a pickle without an end")


def matrix(found: Any) -> npt.NDArray[np.uint8]:
    """Return the array [rows, columns] of bytes that a pickle holds as NumPy writes it.

    Raises
    ------
    ValueError
        If it is something else.
    """
    try:
        _, shape, kind, by_columns, values = found.state
        rows, columns = shape
        described = (found.name.split()[-1], kind.name.split()[-1], kind.arguments[0])
        size = len(values)
    except (AttributeError, TypeError, ValueError, IndexError):
        raise ValueError("no array of bytes with rows and columns") from None
    if described not in (("_reconstruct", "dtype", "u1"), ("_reconstruct", "dtype", b"u1")) or by_columns:
        raise ValueError("an array that is not of unsigned bytes, row by row")
    if not isinstance(values, bytes) or type(rows) is not int or type(columns) is not int or rows * columns != size:
        raise ValueError(f"an array of {rows} x {columns} with {size} bytes")
    return np.frombuffer(values, np.uint8).reshape(rows, columns)


class _Reader:
    """The stack of a pickle, and what it remembers."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def take(self, name: str, argument: Any) -> None:
        """Follow one opcode."""
        if name in _VALUES:
            self.stack.append(_VALUES[name](argument))
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            self.stack.append(self._memo[argument])
        elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
            self._memo[argument] = self.stack[-1]
        elif name == "MEMOIZE":
            self._memo[len(self._memo)] = self.stack[-1]
        elif name in _STEPS:
            _STEPS[name](self)
        elif name not in ("PROTO", "FRAME"):
            raise ValueError(f"a pickle with {name}, which no plain data need")

    def marked(self) -> list[Any]:
        """Take what lies above the last mark."""
        items: list[Any] = []
        while not isinstance(top := self.stack.pop(), _Mark):
            items.append(top)
        return items[::-1]

    def popped(self, count: int) -> list[Any]:
        """Take the last ``count``, in the order in which they came."""
        return [self.stack.pop() for _ in range(count)][::-1]

    def append(self, items: list[Any]) -> None:
        """Append to the list below them."""
        if type(self.stack[-1]) is not list:
            raise ValueError("a pickle that appends to no list")
        self.stack[-1].extend(items)

    def set(self, items: list[Any]) -> None:
        """Set keys and values of the dictionary below them."""
        if not all(isinstance(key, str | bytes) for key in items[::2]):
            raise ValueError("a pickle with keys that are no texts")
        self.stack[-1].update(zip(items[::2], items[1::2], strict=True))

    def call(self) -> None:
        """Note a call; the one by which older Pythons wrote bytes is what it stands for."""
        name, arguments = self.popped(2)
        if name.name == "_codecs encode" and isinstance(arguments[0], str):
            self.stack.append(arguments[0].encode("latin-1"))
        else:
            self.stack.append(Call(name.name, arguments))

    def build(self) -> None:
        """Note the state of a call."""
        state = self.stack.pop()
        self.stack[-1].state = state


def _python_2(argument: str) -> bytes:
    return argument.encode("latin-1")


def _itself(argument: Any) -> Any:
    return argument


_VALUES: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "BINFLOAT", "FLOAT"), _itself),
    **dict.fromkeys(("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"), _itself),
    **dict.fromkeys(("BINBYTES", "SHORT_BINBYTES", "BINBYTES8"), _itself),
    **dict.fromkeys(("STRING", "BINSTRING", "SHORT_BINSTRING"), _python_2),
    "NONE": lambda argument: None,
    "NEWTRUE": lambda argument: True,
    "NEWFALSE": lambda argument: False,
    "EMPTY_LIST": lambda argument: [],
    "EMPTY_DICT": lambda argument: {},
    "EMPTY_TUPLE": lambda argument: (),
    "MARK": lambda argument: _Mark(),
    "GLOBAL": Call,
}
"""By opcode, what it puts on the stack."""

_STEPS: Mapping[str, Callable[[_Reader], None]] = {
    "STACK_GLOBAL": lambda reader: reader.stack.append(Call(" ".join(reader.popped(2)))),
    "TUPLE": lambda reader: reader.stack.append(tuple(reader.marked())),
    "TUPLE1": lambda reader: reader.stack.append(tuple(reader.popped(1))),
    "TUPLE2": lambda reader: reader.stack.append(tuple(reader.popped(2))),
    "TUPLE3": lambda reader: reader.stack.append(tuple(reader.popped(3))),
    "LIST": lambda reader: reader.stack.append(reader.marked()),
    "APPEND": lambda reader: reader.append(reader.popped(1)),
    "APPENDS": lambda reader: reader.append(reader.marked()),
    "SETITEM": lambda reader: reader.set(reader.popped(2)),
    "SETITEMS": lambda reader: reader.set(reader.marked()),
    "REDUCE": _Reader.call,
    "BUILD": _Reader.build,
}
"""By opcode, what it does with the stack."""
