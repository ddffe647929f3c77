"""``gossamer plan NAME``: an algorithm's own command, its options and its answer as data.

The options are the fields of a dataclass, each annotated with an `Option`; what is printed is an `Answer`. How options
are read, and how an answer is laid out, is the command's business (`gossamer.cli.runs.plan`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Generic, Protocol, TypeVar

from pydantic import BaseModel

from gossamer.errors import CallerError

MOST_WHOLE = 10**15
"""The largest whole number that an option takes which has no bound of its own."""


@dataclass(frozen=True)
class Bounds:
    """Numbers that an option takes.

    Attributes
    ----------
    gt, ge, lt, le : float, optional
        Numbers that an option is above, at least, below and at most. All are finite.
    whole : bool
        Whether they are whole numbers.
    words : str, optional
        Words for what is expected, in an error; by default, those that follow from the bounds.
    """

    gt: float | None = None
    ge: float | None = None
    lt: float | None = None
    le: float | None = None
    whole: bool = False
    words: str | None = None

    @classmethod
    def of(cls, settings: type[BaseModel], name: str) -> Bounds:
        """Return the bounds of a number among an algorithm's settings."""
        field = settings.model_fields[name]
        found = {
            bound: getattr(one, bound)
            for one in _constraints(field.annotation, field.metadata)
            for bound in ("gt", "ge", "lt", "le")
            if getattr(one, bound, None) is not None
        }
        whole = int in _parts(field.annotation)
        if whole and "gt" in found:
            found["ge"] = found.pop("gt") + 1
        return cls(**found, whole=whole)

    def hold(self, value: float) -> bool:
        """Whether a number is inside."""
        return (
            -math.inf < value < math.inf
            and (self.gt is None or value > self.gt)
            and (self.ge is None or value >= self.ge)
            and (self.lt is None or value < self.lt)
            and (self.le is None or value <= self.le)
            and not self._too_large(value)
        )

    def _too_large(self, value: float) -> bool:
        return self.whole and self.le is None and value > MOST_WHOLE

    def refusal(self, value: float) -> str:
        """Return what was expected in the place of a number that is not inside, and what was found."""
        most = f" and <= {_figure(MOST_WHOLE)}" * self._too_large(value)
        return f"{self}{most}, found {_shown(value)}"

    def __str__(self) -> str:
        if self.words is not None:
            return self.words
        if self.whole:
            return f"a whole number {_range(self.ge, self.le)}"
        if self.gt is not None and (self.lt is not None or self.le is not None):
            right = f"{_figure(self.lt)})" if self.lt is not None else f"{_figure(self.le)}]"
            return f"inside ({_figure(self.gt)}, {right}"
        if self.gt is not None:
            return f"a finite number > {_figure(self.gt)}"
        if self.lt is not None:
            return f"from {_figure(self.ge)} to below {_figure(self.lt)}"
        return f"a number {_range(self.ge, self.le)}"


def _parts(annotation: Any) -> tuple[Any, ...]:
    """The members of a union, without what annotates them."""
    members = getattr(annotation, "__args__", ())
    return tuple(part for one in members for part in _parts(one)) if members else (annotation,)


def _constraints(annotation: Any, metadata: Sequence[Any]) -> list[Any]:
    """Return what bounds a field, or a member of its union."""
    own = [*metadata, *getattr(annotation, "__metadata__", ())]
    return own + [one for member in getattr(annotation, "__args__", ()) for one in _constraints(member, ())]


def _range(least: float | None, most: float | None) -> str:
    return f">= {_figure(least)}" if most is None else f"from {_figure(least)} to {_figure(most)}"


def _figure(number: float | None) -> str:
    """A bound as people write it, such as 10^6."""
    assert number is not None
    if number >= 10**6 and number == 10 ** (power := round(math.log10(number))):
        return f"10^{power}"
    return str(number) if isinstance(number, int) else f"{number:g}"


def _shown(value: float) -> str:
    try:
        return f"{value:g}"
    except OverflowError:
        return f"a number of {len(str(abs(value)))} digits"


POSITIVE = Bounds(gt=0)
COUNT = Bounds(ge=1, whole=True)
SHARE = Bounds(gt=0, lt=1)
DELTA = Bounds(ge=1e-200, lt=1)


@dataclass(frozen=True)
class Option:
    """An option of a command, which annotates a field that has its name and type.

    Attributes
    ----------
    help : str
        Line that says what it is.
    metavar : str, optional
        Word that stands for its value.
    bounds : Bounds or str, optional
        Bounds of a number; a text is the name of the algorithm's setting that has the same bounds.
    also : tuple of str
        Other flags of it.
    asked : str, optional
        Words that ask for it where it is needed and missing; by default, its flag.
    """

    help: str
    metavar: str | None = None
    bounds: Bounds | str | None = None
    also: tuple[str, ...] = ()
    asked: str | None = None


AcceptWeak = Annotated[bool, Option("take a delta above 0.01, which says little")]
"""The option of a command with a ``delta``, which is checked by it."""


@dataclass(frozen=True)
class Table:
    """Columns aligned to the left; the first row is the header."""

    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Line:
    """A line that is not broken, whatever the width."""

    text: str


@dataclass(frozen=True)
class Answer:
    """Answer of a command.

    Attributes
    ----------
    document : mapping
        The answer as plain data, for ``--json``.
    text : sequence of str, Table or Line
        The answer for people; a text is broken at the terminal's width, and an empty one is an empty line.
    remarks : sequence of str
        Warnings, a line each.
    flat : bool
        Whether the JSON has a line for each key, as where there are long lists.
    """

    document: Mapping[str, Any]
    text: Sequence[str | Table | Line]
    remarks: Sequence[str] = ()
    flat: bool = False


class IsOptions(Protocol):
    """A dataclass of options."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


Options = TypeVar("Options", bound=IsOptions)
Doing = Callable[[str], AbstractContextManager[Callable[[str], None]]]
"""(what takes long) -> a block in which it is said from time to time, and a function that takes what is done now."""


@dataclass(frozen=True)
class Command(Generic[Options]):
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
    needed : callable, optional
        given values by field -> the fields that have to be given, and a flag that makes them so, or an empty text; by
        default, those without a default.
    """

    options: type[Options]
    answer: Callable[[Options, Doing], Answer]
    help: str
    description: str
    needed: Callable[[Mapping[str, Any]], tuple[Sequence[str], str]] | None = None


def flag_of(name: str) -> str:
    """Return the flag of a field, such as ``--batch-size``."""
    return f"--{name.replace('_', '-')}"


def refuse(options: IsOptions, names: Sequence[str], why: str) -> None:
    """Raise CallerError where one of the named options is given, which have no meaning beside others."""
    if found := [flag_of(name) for name in names if getattr(options, name) is not None]:
        raise CallerError(f"{', '.join(found)}: {why}")
