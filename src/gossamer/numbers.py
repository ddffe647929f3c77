"""Numbers that callers gave: of any library, but no truth values, texts or arrays."""

from __future__ import annotations

import math
import operator
from decimal import ROUND_CEILING, Context
from numbers import Real
from typing import Any

from gossamer.errors import SpecError


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


def require_positive(**values: float) -> None:
    """Raise SpecError unless every value is finite and positive."""
    for name, value in values.items():
        if not 0 < real_number(value) < math.inf:
            raise SpecError(f"{name} must be a finite number > 0, found {value!r}")


def require_not_negative(**values: float) -> None:
    """Raise SpecError unless every value is finite, and 0 or more."""
    for name, value in values.items():
        if not 0 <= real_number(value) < math.inf:
            raise SpecError(f"{name} must be a finite number >= 0, found {value!r}")


def require_counts(**values: int) -> None:
    """Raise SpecError unless every value is a whole number, 1 or more."""
    for name, value in values.items():
        if not whole_number(value):
            raise SpecError(f"{name} must be a whole number > 0, found {value!r}")


def require_fraction(**values: float) -> None:
    """Raise SpecError unless every value lies strictly between 0 and 1."""
    for name, value in values.items():
        if not 0 < real_number(value) < 1:
            raise SpecError(f"{name} must lie between 0 and 1, found {value!r}")
