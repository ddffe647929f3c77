"""Dates in cells of a table: how they are read, and what of them is a feature."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any, Literal

import numpy as np

from gossamer.arrays import Floats, IntArray

Part = Literal["days", "month", "weekday"]

NAMES: Mapping[str, tuple[str, ...]] = {
    "month": (
        *("January", "February", "March", "April", "May", "June"),
        *("July", "August", "September", "October", "November", "December"),
    ),
    "weekday": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
}
"""Categories of the parts of a date that are categories."""

_START = datetime(1970, 1, 1)
_TRIED = date(1931, 2, 13)
"""A date that no format gives back which leaves out the day, the month, or the century."""


def as_date(value: Any) -> date | None:
    """The date that YAML read, or an ISO 8601 text says, if it is one."""
    if isinstance(value, date):
        return value.date() if isinstance(value, datetime) else value
    try:
        return datetime.fromisoformat(value).date() if isinstance(value, str) else None
    except ValueError:
        return None


def in_days(given: Mapping[str, Any]) -> dict[str, Any]:
    """A declaration of a column with days in place of the dates in it; days are counted from ``since``.

    Raises
    ------
    ValueError
        If they are to be counted from another column, so that a range of dates says nothing.
    """
    found = dict(given)
    ends = found.get("range")
    dates = [as_date(end) for end in ends] if isinstance(ends, list | tuple) else []
    if dates and None not in dates:
        found.setdefault("kind", "date")
        found["since"] = since = found.get("since") or dates[0]
        if as_date(since) is None:
            raise ValueError(f"days are counted from the column {since}, so give a range of days, such as [0, 365]")
    start = as_date(found.get("since"))
    if start is None:
        return found
    found["since"] = start.isoformat()
    if dates and None not in dates:
        found["range"] = [(end - start).days for end in dates if end is not None]
    if (filling := as_date(found.get("missing"))) is not None:
        found["missing"] = (filling - start).days
    return found


def days_of(date_: str) -> float:
    """Days of an ISO 8601 date from 1970 on."""
    return _days(datetime.fromisoformat(date_))


def _days(time: datetime) -> float:
    # The hour is the clock's where it was written, so that no zone moves a date to another day.
    return (time.replace(tzinfo=None) - _START).total_seconds() / 86400


def read_dates(texts: Sequence[str], form: str | None) -> Floats:
    """Days [n] from 1970 on, with the time as a part of a day; NaN where a text is none.

    Parameters
    ----------
    texts : sequence of str
        Cells.
    form : str, optional
        Format of the dates as Python's ``strptime`` has it; by default ISO 8601.
    """
    known: dict[str, float] = {}
    for text in set(texts):
        try:
            known[text] = _days(datetime.fromisoformat(text) if form is None else datetime.strptime(text, form))
        except ValueError:
            known[text] = math.nan
    return np.array([known[text] for text in texts], np.float64)


def shown(form: str | None) -> str:
    """An example of a date as it is to be written."""
    return date(2024, 1, 31).strftime(form or "%Y-%m-%d")


def check_format(form: str) -> str:
    """Return the format, refused unless a date that is written by it is read as the same one."""
    try:
        same = datetime.strptime(_TRIED.strftime(form), form).date() == _TRIED
    except ValueError:
        same = False
    if not same:
        raise ValueError(
            f"format must say a year of four digits, a month and a day, such as '%d.%m.%Y', found {form!r}"
        )
    return form


def part_of(days: Floats, part: str) -> IntArray:
    """Number of the month, or of the weekday, of days [n] from 1970 on."""
    whole = np.floor(days).astype(np.int64)
    if part == "weekday":
        return (whole + 3) % 7  # 1970 began on a Thursday
    return whole.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64) % 12
