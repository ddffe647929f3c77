"""From the cells of a column to features: numbers scaled, categories and truth values as zeros and ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gossamer.data.columns import Column

Cells = Sequence[str] | npt.NDArray[np.float64]
"""Of one column: texts, or numbers of which NaN is an empty cell."""

MISSING = frozenset(("", "na", "n/a", "nan", "null", "none", "?", ".", "-", "#n/a", "#na", "<na>"))
"""Cells, in small letters, that say nothing."""

_TRUTHS = {
    **dict.fromkeys(("true", "yes", "t", "y", "1", "1.0"), 1.0),
    **dict.fromkeys(("false", "no", "f", "n", "0", "0.0"), 0.0),
}
_LONGEST = 40
_MOST = 20


class CellError(ValueError):
    """A cell that its column does not allow.

    Attributes
    ----------
    row : int
        Number of the row, from 0.
    empty : bool
        Whether it says nothing.
    """

    def __init__(self, row: int, problem: str, *, empty: bool = False) -> None:
        super().__init__(problem)
        self.row, self.empty = row, empty


def _empty(row: int) -> CellError:
    return CellError(row, "the cell is empty, and nothing says what it is read as", empty=True)


def is_missing(cell: str, marks: Sequence[str] = ()) -> bool:
    """Whether a cell says nothing: in a usual way, or by one of the ``marks`` that were declared."""
    text = cell.strip()
    return text.lower() in MISSING or (bool(marks) and not {text, _whole(text)}.isdisjoint(marks))


def as_number(cell: str, decimal: str = ".") -> float:
    """The number that a cell says.

    Raises
    ------
    ValueError
        If it says none.
    """
    if "_" in cell or (decimal == "," and "." in cell):  # Python's own numbers; of thousands, perhaps
        raise ValueError(cell)
    if decimal == ",":
        cell = cell.replace(",", ".")
    return float(cell)


def numbers(cells: Cells, column: Column, decimal: str = ".") -> npt.NDArray[np.float64]:
    """Cells of a column of numbers, [n], as they are: neither clipped nor scaled.

    Raises
    ------
    CellError
        For the first one that is no finite number, or empty where the column does not say what that is read as.
    """
    if isinstance(cells, np.ndarray):
        values = cells
    else:
        try:
            plain = decimal == "." and "_" not in "".join(cells)
            found = map(float, cells) if plain else (as_number(cell, decimal) for cell in cells)
            values = np.fromiter(found, np.float64, len(cells))
        except ValueError:
            values = np.array([_number(row, cell, column, decimal) for row, cell in enumerate(cells)], np.float64)
    for mark in filter(_is_number, column.missing_marks or ()):
        values = np.where(values == float(mark), np.nan, values)
    if (empty := np.isnan(values)).any():
        missing = _filling(int(empty.argmax()), column)
        values = np.where(empty, float(missing), values)
    if (wrong := ~np.isfinite(values)).any():
        row = int(wrong.argmax())
        raise CellError(row, f"expected a finite number that fits float32, found {values[row]}")
    return values


def _number(row: int, cell: str, column: Column, decimal: str) -> float:
    if is_missing(cell, column.missing_marks or ()):
        return float(_filling(row, column))
    try:
        return as_number({"True": "1", "False": "0"}.get(cell.strip(), cell), decimal)
    except ValueError:
        kind = "a number" if decimal == "." else "a number with a decimal comma"
        raise CellError(row, f"expected {kind}, found {cell[:_LONGEST]!r}") from None


def _filling(row: int, column: Column) -> Any:
    if column.missing is None:
        raise _empty(row)
    return column.missing


def outside(values: npt.NDArray[np.float64], column: Column) -> int:
    """Number of values outside of the range of their column."""
    if column.range is None:
        return 0
    low, high = column.range
    return int(((values < low) | (values > high)).sum())


def scaled(values: npt.NDArray[np.float64], column: Column) -> npt.NDArray[np.float64]:
    """Values by the constants of their column."""
    shift, unit = column.shift_and_unit
    if column.range is not None:
        low, high = column.range
        values = values.clip(low, high)
    return (values - shift) / unit


def truths(cells: Cells, column: Column) -> npt.NDArray[np.float64]:
    """Cells of a column of truth values, [n], as 0 and 1.

    Raises
    ------
    CellError
        For the first cell that says something else.
    """
    filling = None if column.missing is None else float(column.missing)
    return np.array(_looked_up(cells, _TRUTHS, filling, _no_truth, column, str.lower), np.float64)


def codes(cells: Cells, column: Column) -> npt.NDArray[np.int64]:
    """Number of the category that each cell has, [n].

    Raises
    ------
    CellError
        For the first cell that has none of them.
    """
    categories = column.categories or ()
    known = {text: number for number, text in enumerate(categories)}
    filling = None if column.missing is None else known[str(column.missing)]

    def no_category(cell: str) -> str:
        shown = ", ".join(categories[:_MOST]) + (", ..." if len(categories) > _MOST else "")
        return f"expected one of {shown}, found {cell[:_LONGEST]!r}"

    return np.array(_looked_up(cells, known, filling, no_category, column), np.int64)


def _no_truth(cell: str) -> str:
    return f"expected true or false (or yes, no, 1, 0), found {cell[:_LONGEST]!r}"


def _looked_up(
    cells: Cells,
    known: dict[str, Any],
    filling: Any,
    problem: Callable[[str], str],
    column: Column,
    form: Callable[[str], str] = str,
) -> list[Any]:
    """Find what each cell is in ``known``, after ``form``; ``filling`` for empty ones, and a ``problem`` for others."""
    texts = [_as_text(cell) for cell in cells.tolist()] if isinstance(cells, np.ndarray) else cells
    found: list[Any] = [known.get(form(text.strip())) for text in texts]
    for row, value in enumerate(found):
        if value is None:
            found[row] = _unknown(row, texts[row].strip(), known, filling, problem, column)
    return found


def _unknown(
    row: int, text: str, known: dict[str, Any], filling: Any, problem: Callable[[str], str], column: Column
) -> Any:
    if is_missing(text, column.missing_marks or ()):
        if filling is None:
            raise _empty(row)
        return filling
    if (whole := _whole(text)) not in known:
        raise CellError(row, problem(text))
    return known[whole]


def _whole(text: str) -> str:
    """A text as it is, but for whole numbers that are written as 1.0, as programs do where a cell is empty."""
    return _as_text(float(text)) if _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        return as_number(text) is not None
    except ValueError:
        return False


def _as_text(number: float) -> str:
    if math.isnan(number):
        return ""
    return str(int(number)) if number.is_integer() else str(number)
