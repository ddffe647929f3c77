"""The exception tree, ordered by whose fault it was.

    GossamerError
    ├── CallerError (also ValueError)   the caller's mistake: a spec, a file, an argument
    │   ├── SpecError                   an unknown key, a wrong type, a contradiction
    │   ├── DataError                   a missing file, a malformed line, a value out of range
    │   ├── TopologyError               a graph or mixing matrix that cannot carry the algorithm
    │   ├── ModelError                  a module that cannot be trained privately
    │   ├── AccountingError             a combination no accountant here is proved for
    │   └── BudgetUnreachable           no noise within reason meets the budget
    ├── PeerError                       a peer sent what the protocol does not allow
    │   └── MalformedMessage            bytes that do not decode to a known message
    ├── TooFewAgents                    too few are left for a masked sum
    └── BudgetSpent                     the ledger refuses a release

Every message says what was expected, what was found, and what to do. A failed ``assert`` in this library
is a bug of ours, never one of these. What checks callers' numbers stands at the end.
"""

from __future__ import annotations

import difflib
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import ROUND_CEILING, Context
from numbers import Real
from typing import Any

ENDED_SHORT = 4
"""Exit code of a run, or of a party's part in one, that is over and did not come to the end of its plan."""


def did_you_mean(found: str, options: Iterable[str]) -> str:
    """The end of an error message about an unknown name: the nearest of ``options``, or all of them."""
    names = sorted(options)
    close = difflib.get_close_matches(found, names, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; expected one of {', '.join(names)}" if names else ""


def counted(number: int, one: str, many: str | None = None, *, form: str = "") -> str:
    """``1 round``, ``2 rounds``: a number, in the given format, with its noun, whose plural has an s unless given."""
    return f"{number:{form}} {one if number == 1 else many or one + 's'}"


def listed(said: Sequence[str], most: int = 5, between: str = ", ") -> str:
    """``said`` after each other, of many the first few and how many more there are."""
    more = f" and {len(said) - most:,} more" if len(said) > most else ""
    return f"{between.join(said[:most])}{more}"


def shortened(found: object, most: int = 60) -> str:
    """Text of what was found, as Python writes it, and no more of it than a line can take."""
    text = repr(found)
    return text if len(text) <= most else f"{text[:most]}..."


class GossamerError(Exception):
    """Base of every error this library raises on purpose."""

    exit_code = 1


class CallerError(GossamerError, ValueError):
    """The caller asked for something that cannot be done; the message says what can."""

    exit_code = 2


class SpecError(CallerError):
    """An experiment's spec has an unknown key, a wrong type or a contradiction."""


class DataError(CallerError):
    """Data is missing, malformed, not finite, or too small for what is asked of it."""


class TopologyError(CallerError):
    """A graph or mixing matrix does not satisfy what the algorithm needs."""


class ModelError(CallerError):
    """A module cannot be trained with per-example gradients."""


class AccountingError(CallerError):
    """A mechanism, sampling scheme and neighbouring relation that no accountant here is proved for."""


class BudgetUnreachable(CallerError):
    """No noise multiplier within reason meets the privacy budget."""


class PeerError(GossamerError):
    """A peer broke the protocol. Nothing of ours changes because of it."""


class MalformedMessage(PeerError):
    """Bytes from the network are not an encoding of a known message."""


class TooFewAgents(GossamerError):
    """Fewer agents are left than a masked sum needs; nothing is unmasked."""


class BudgetSpent(GossamerError):
    """The ledger refuses a release that its plan or budget does not cover."""

    exit_code = 3


class RunWarning(UserWarning):
    """A run is possible, but is unlikely to be what was meant."""


@contextmanager
def failing_as(
    kind: type[GossamerError], before: str, after: str = "", of: type[Exception] | tuple[type[Exception], ...] = OSError
) -> Iterator[None]:
    """Have errors, by default of the system, such as a file's, be of a ``kind``: what they say is between the words."""
    try:
        yield
    except of as error:
        raise kind(f"{before}{getattr(error, 'strerror', None) or error}{after}") from None


@contextmanager
def beginning(words: str, kind: type[GossamerError]) -> Iterator[None]:
    """Have errors of a ``kind`` begin with ``words``, such as the file that they are about."""
    try:
        yield
    except kind as error:
        raise type(error)(f"{words}: {error}") from error.__cause__


# Numbers that callers gave: of any library, but no truth values, texts or arrays.


def real_number(value: Any) -> float:
    """``value`` as a number; what is none becomes nan, which is in no range."""
    if type(value) is float:
        return value  # most are, and asking for a Real takes ten times as long
    if isinstance(value, bool) or not isinstance(value, Real):
        return math.nan
    try:
        return float(value)
    except OverflowError:  # an integer beyond all floats
        return math.nan


def whole_number(value: Any) -> int | None:
    """``value`` as an integer, if it is a whole number, 0 or more, and no truth value."""
    try:
        number = operator.index(value)
    except TypeError:
        return None
    return None if isinstance(value, bool) or number < 0 else number


def round_up(bound: float, digits: int) -> float:
    """The least number of so many significant digits that is not below ``bound``."""
    # From the shortest decimal that is this float: the float 0.1 is a little more than 0.1.
    return float(Context(prec=digits, rounding=ROUND_CEILING).create_decimal(repr(float(bound))))


def _require(values: Mapping[str, Any], fits: Callable[[Any], bool], expected: str) -> None:
    for name, value in values.items():
        if not fits(value):
            raise SpecError(f"{name} must {expected}, found {value!r}")


def require_positive(**values: float) -> None:
    """Raise SpecError unless every value is finite and positive."""
    _require(values, lambda value: 0 < real_number(value) < math.inf, "be a finite number > 0")


def require_not_negative(**values: float) -> None:
    """Raise SpecError unless every value is finite, and 0 or more."""
    _require(values, lambda value: 0 <= real_number(value) < math.inf, "be a finite number >= 0")


def require_counts(**values: int) -> None:
    """Raise SpecError unless every value is a whole number, 1 or more."""
    _require(values, lambda value: bool(whole_number(value)), "be a whole number > 0")


def require_whole(**values: int) -> None:
    """Raise SpecError unless every value is a whole number, 0 or more."""
    _require(values, lambda value: whole_number(value) is not None, "be a whole number >= 0")


def require_fraction(**values: float) -> None:
    """Raise SpecError unless every value lies strictly between 0 and 1."""
    _require(values, lambda value: 0 < real_number(value) < 1, "lie between 0 and 1")
