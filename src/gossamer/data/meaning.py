"""What columns and cells may mean: row numbers, names of persons, marks for "not measured".

Nothing here decides; who reads a table asks, refuses or warns by it, and each of these says how to answer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from gossamer.data.columns import Column

_UNNAMED = re.compile(r"|Unnamed: \d+(_level_\d+)?|__index_level_\d+__|\.\.\.\d+")
"""Names that programs give to a column that has none; mostly it has row numbers."""
_SOMEBODY = re.compile(
    r"(.*[\W_]|.*[a-z](?=[A-Z]))?(id|ids|uid|guid|uuid|mrn|ssn|nhs|pid|index|row|rowid|rownames?|record|name|surname|"
    r"email|phone|subject|subj|patient|person|participant|respondent|individual|member|customer|client|user|student|"
    r"pupil|child|animal|case|household)(s|[\W_]*(id|ids|no|nr|num|number|code|name|key)|ID|Id|No)?",
    re.IGNORECASE,
)
_VALUE = re.compile(
    r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([ T].*)?|\d{1,2}:\d{2}(:\d{2})?|\d+(\.\d+)?%|[$€£]\d.*|[<>]=?\d.*"
)
_FEWEST = 20
"""Rows below which a column that counts them may do so by chance."""
_CODES = frozenset(sign * int(digit * size) for digit in "789" for size in range(1, 6) for sign in (1, -1)) - {7, 8}
_NEVER = _CODES - {-9, -8, -7, 9, 77, 88, -77, -88}
"""Codes that hardly any range of values that nobody declared has apart from all others."""


def is_unnamed(name: str) -> bool:
    """Whether a column has no name of its own, such as pandas' ``Unnamed: 0``, or Parquet's ``__index_level_0__``."""
    return _UNNAMED.fullmatch(name) is not None


def names_somebody(name: str) -> bool:
    """Whether a column is called as those are that say which row or which person this is, such as ``patient_id``."""
    return _SOMEBODY.fullmatch(name) is not None


def is_value(text: str) -> bool:
    """Whether a text is hardly the name of a column: a number, a date, an amount."""
    try:
        return bool(float(text.replace(",", ".")) + 1)
    except ValueError:
        return _VALUE.fullmatch(text) is not None


def counts_rows(values: npt.NDArray[np.floating]) -> bool:
    """Whether values [n] are 0, 1, 2, ... or so from another number on, as row numbers are."""
    return len(values) >= _FEWEST and bool((np.diff(values) == 1).all())


@dataclass
class Codes:
    """Numbers of a column that often mean "not measured", such as -9, 99 and 999, beside its other ones.

    Attributes
    ----------
    counts : counter of float
        How often each of them stands there.
    low, high : float
        The least and the most of all other numbers.
    """

    counts: Counter[float] = field(default_factory=Counter)
    low: float = np.inf
    high: float = -np.inf

    @classmethod
    def of(cls, values: npt.NDArray[np.floating]) -> Codes:
        """Those of the values [n] of all rows."""
        found = cls()
        found.add(values)
        return found

    def add(self, values: npt.NDArray[np.floating]) -> None:
        """Count the values [n] of some rows."""
        coded = np.isin(values, [-1, *_CODES])
        self.counts.update(values[coded].tolist())
        if not coded.all():
            others = values[~coded]
            self.low, self.high = min(self.low, float(others.min())), max(self.high, float(others.max()))

    def found(self, column: Column) -> str | None:
        """The one that stands there most, more than once, and beyond all that the column can say otherwise."""
        if column.kind != "number" or column.missing_marks is not None:
            return None
        low, high = (max(self.low, 0.0), self.high) if column.range is None else column.range
        usual = self.low >= low, self.high <= high
        known = {-1.0, *_CODES} if column.range is not None else _NEVER | {-9}
        beyond = {
            code: count
            for code, count in self.counts.items()
            if count > 1 and code in known and ((code < low and usual[0]) or (code > high and usual[1]))
        }
        return f"{max(beyond, key=lambda code: beyond[code]):g}" if beyond else None


def doubts(names: Sequence[str], features: npt.NDArray[np.float32]) -> list[tuple[str, str]]:
    """Columns of numbers [n, columns] that nobody declared and that may be none, with what is odd about each."""
    found = []
    for place, name in enumerate(names):
        if is_unnamed(name):
            found.append((name, "has no name, as row numbers have none that programs write"))
        elif counts_rows(features[:, place]):
            found.append((name, "counts the rows"))
    return found
