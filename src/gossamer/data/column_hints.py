"""Meanings that columns and cells may have: row numbers, names of persons, marks for "not measured".

Nothing here decides; who reads a table asks, refuses or warns by it, and each of these says how to answer.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from gossamer.arrays import FloatArray
from gossamer.data.columns import Column, Columns
from gossamer.errors import DataError, RunWarning

_UNNAMED = re.compile(r"|Unnamed: \d+(_level_\d+)?|__index_level_\d+__|\.\.\.\d+")
"""Names that programs give to a column that has none; mostly it has row numbers."""
_SOMEBODY = re.compile(
    r"(.*[\W_]|(?-i:.*[a-z](?=I[Dd]s?$)))?(ids?|uid|guid|uuid|mrn|ssn|pid|email)|(index|row|record|name|surname|phone|"
    r"subject|subj|patient|person|participant|respondent|individual|member|customer|client|user|student|pupil|child|"
    r"animal|case|sample|household)s?([\W_]*(ids?|no|nr|num|number|code|names?|key))?",
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
        return "_" not in text and float(text.replace(",", ".")) is not None
    except ValueError:
        return _VALUE.fullmatch(text) is not None


def counts_rows(values: FloatArray) -> bool:
    """Whether values [n] are 0, 1, 2, ... or so from another number on, as row numbers are."""
    return len(values) >= _FEWEST and bool((np.diff(values) == 1).all())


At = Callable[[int | None, str | None], str]
"""Place of a row and a column, for an error; None for all."""


class MarkWarning(RunWarning):
    """A number that often means "not measured", beyond all that its column can say.

    Attributes
    ----------
    column, mark : str
        Column, and number that stands in it.
    """

    def __init__(self, message: str, column: str, mark: str) -> None:
        super().__init__(message)
        self.column, self.mark = column, mark


@dataclass
class Codes:
    """Numbers of a column that often mean "not measured", such as -9, 99 and 999, beside its other ones.

    Attributes
    ----------
    counts : counter of float
        Number of times that each of them stands there.
    low, high : float
        The least and the most of all other numbers.
    """

    counts: Counter[float] = field(default_factory=Counter)
    low: float = np.inf
    high: float = -np.inf

    @classmethod
    def of(cls, values: FloatArray) -> Codes:
        """Those of the values [n] of all rows."""
        found = cls()
        found.add(values)
        return found

    def add(self, values: FloatArray) -> None:
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
        known = {-1.0, *_CODES} if column.range is not None else _NEVER | {-9}
        below = low if self.low >= low else 2 * self.low  # where others are beyond, too, it is farther out than they
        above = high if self.high <= high else 2 * self.high
        apart = {code for code, count in self.counts.items() if count > 1 and code in known}
        beyond = {code: self.counts[code] for code in apart if code < min(below, low) or code > max(above, high)}
        return f"{max(beyond, key=lambda code: beyond[code]):g}" if beyond else None


def doubts(names: Sequence[str], features: npt.NDArray[np.float32]) -> list[tuple[str, str]]:
    """Columns of numbers [n, columns] that nobody declared and that may be none, with what is odd about each."""
    found = []
    for place, name in enumerate(names):
        values = features[:, place]
        if is_unnamed(name):
            found.append((name, "has no name, as row numbers have none that programs write"))
        elif counts_rows(values):
            found.append((name, "counts the rows"))
        elif names_somebody(name) and (values == np.round(values)).all() and len(np.unique(values)) >= _FEWEST:
            found.append((name, "is called as numbers are that name a row or a person"))
    return found


def check_undeclared(at: At, names: Sequence[str], rows: npt.NDArray[np.float32]) -> None:
    """Refuse columns that nobody declared and that say which row this is, as far as one can see."""
    for name, what in doubts(names, rows):
        raise DataError(
            f"{at(None, name)}: it {what}, and nobody said that it is a feature; say dataset.ignore: "
            f"[{name!r}], or declare the features as dataset.columns"
        )


def warn_of_marks(at: At, columns: Columns, target: str | None, coded: Mapping[str, Codes]) -> None:
    """Warn of numbers that stand apart, as far as nobody said what they are."""
    for name, codes_ in coded.items():
        if (mark := codes_.found(columns[name])) is None:
            continue
        key = "dataset.target_range" if name == target else f"dataset.columns.{name}"
        remedy = "leave such rows out" if name == target else f"say missing_marks: [{mark}] and missing: in {key}"
        what = (
            f"{at(None, name)}: {mark} stands apart from all else there, as a mark for 'not measured' does, and "
            f"is taken for a number; {remedy} if it is one, or else a range in {key} that has it"
        )
        warnings.warn(MarkWarning(what, name, mark), stacklevel=4)
