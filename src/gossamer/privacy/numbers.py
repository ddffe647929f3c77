"""Numbers that callers gave: of any library, but no truth values, texts or arrays."""

from __future__ import annotations

import math
import operator
from numbers import Real
from typing import Any


def real_number(value: Any) -> float:
    """``value`` as a number; what is none becomes nan, which is in no range."""
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
