"""``gossamer plan NAME``: an algorithm's own command, its options and its answer as data.

The options are the fields of a dataclass, each annotated with an `Option`; what is printed is an `Answer`. How options
are read, and how an answer is laid out, is the command's business (`gossamer.cli.runs.plan`).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_type_hints

from gossamer.errors import CallerError, SpecError, real_number, whole_number

MOST_WHOLE = 10**15
"""The largest whole number that an option takes which has no bound of its own."""

_SIGNS = (">", operator.gt), (">=", operator.ge), ("<", operator.lt), ("<=", operator.le)


@dataclass(frozen=True)
class Option:
    """An option of a command, which annotates a field that has its name and type.

    Attributes
    ----------
    help : str
        Line that says what it is.
    metavar : str, optional
        Word that stands for its value.
    gt, ge, lt, le : float, optional
        Numbers that it is above, at least, below and at most. All are finite.
    asked : str, optional
        Words that ask for it where it is needed and missing; by default, its flag.
    """

    help: str
    metavar: str | None = None
    gt: float | None = None
    ge: float | None = None
    lt: float | None = None
    le: float | None = None
    asked: str | None = None

    def refusal(self, value: Any, whole: bool) -> str | None:
        """Return what is expected in the place of a value that is no number within the bounds; None of one that is."""
        found = whole_number(value) if whole else real_number(value)
        number = math.nan if found is None else found
        most = MOST_WHOLE if whole and self.le is None else self.le
        bounds = [(sign, bound) for sign, bound in zip(_SIGNS, (self.gt, self.ge, self.lt, most)) if bound is not None]
        if -math.inf < number < math.inf and all(inside(number, bound) for (_, inside), bound in bounds):
            return None
        said = " and ".join(f"{sign} {bound:g}" for (sign, _), bound in bounds)
        return f"a {'whole' if whole else 'finite'} number {said}, found {value!r:.30}"


def refused(kind: type, values: Mapping[str, Any]) -> tuple[str, str] | None:
    """The first of ``values`` by name that a type's options do not take, and what is expected; defaults are taken."""
    for name, hint in get_type_hints(kind, include_extras=True).items():
        for option in getattr(hint, "__metadata__", ()):
            kinds, value = get_args(hint.__origin__) or (hint.__origin__,), values[name]
            number = isinstance(option, Option) and not {int, float}.isdisjoint(kinds)
            if number and value is not getattr(kind, name, kind) and (expected := option.refusal(value, int in kinds)):
                return name, expected
    return None


@dataclass(frozen=True)
class Bounded:
    """Base of values whose numbers are options of a command: they are within its bounds, whoever makes them.

    Raises
    ------
    SpecError
        If one is neither that nor the default.
    """

    def __post_init__(self) -> None:
        if (found := refused(type(self), vars(self))) is not None:
            raise SpecError(f"{found[0]} must be {found[1]}")


AcceptWeak = Annotated[bool, Option("take a delta above 0.01, which says little")]
"""The option of a command with a ``delta``, which is checked by it."""


Rows = Sequence[Sequence[str]]
"""Columns that are aligned to the left, and not broken whatever the width; the first row is the header."""


@dataclass(frozen=True)
class Answer:
    """Answer of a command.

    Attributes
    ----------
    document : mapping
        The answer as plain data, for ``--json``.
    text : sequence of str or Rows
        The answer for people; a text is broken at the terminal's width, and an empty one is an empty line.
    remarks : sequence of str
        Warnings, a line each.
    """

    document: Mapping[str, Any]
    text: Sequence[str | Rows]
    remarks: Sequence[str] = ()


Doing = Callable[[str], AbstractContextManager[Callable[[str], None]]]
"""(what takes long) -> a block in which it is said from time to time, and a function that takes what is done now."""


@dataclass(frozen=True)
class Command:
    """Definition of ``gossamer plan NAME``.

    Attributes
    ----------
    options : type
        A frozen dataclass, each field annotated with an `Option`. A field without a default has to be given.
    answer : callable
        (options, doing) -> the answer.
    help : str
        Line about it among the plans.
    description : str
        Text that says what it does.
    """

    options: type[Any]
    answer: Callable[[Any, Doing], Answer]
    help: str
    description: str


def flag_of(name: str) -> str:
    """Return the flag of a field, such as ``--batch-size``."""
    return f"--{name.replace('_', '-')}"


def refuse(options: Any, names: Sequence[str], why: str) -> None:
    """Raise CallerError where one of the named options is given, which have no meaning beside others."""
    if found := [flag_of(name) for name in names if getattr(options, name) is not None]:
        raise CallerError(f"{', '.join(found)}: {why}")
