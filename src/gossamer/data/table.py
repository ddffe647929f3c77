"""Rows of a table, wherever they come from, read as a declaration says: to train on and to predict for, by one code.

Rows come in blocks, so that a table of any length needs little more memory than its features.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from gossamer.arrays import BoolArray, Floats, IntArray
from gossamer.data.column_hints import Codes, check_undeclared, warn_of_marks
from gossamer.data.columns import Column, Columns, CsvSettings, feature_names, with_marks
from gossamer.data.dates import NAMES, part_of, read_dates, shown
from gossamer.data.examples import Labelled, Labels, Places, as_float32
from gossamer.errors import DataError, RunWarning, counted, did_you_mean, failing_as

Cells = Sequence[str] | Floats
"""Of one column: texts, or numbers of which NaN is an empty cell."""

ONE_SHAPE = "expected arrays, or pictures with their bytes, of one shape in all rows"
SHAPED = "); pad, cut or resize them, or leave the column out"

MISSING = frozenset(("", "na", "n/a", "nan", "null", "none", "?", ".", "-", "#n/a", "#na", "<na>"))
"""Cells, in small letters, that say nothing."""

_TRUTHS = {
    **dict.fromkeys(("true", "yes", "t", "y", "1", "1.0"), 1),
    **dict.fromkeys(("false", "no", "f", "n", "0", "0.0"), 0),
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


def numbers(cells: Cells, column: Column, decimal: str = ".") -> Floats:
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
    for mark in filter(is_number, column.missing_marks or ()):
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
        raise CellError(row, "the cell is empty, and nothing says what it is read as", empty=True)
    return column.missing


def outside(values: Floats, column: Column) -> int:
    """Number of values outside of the range of their column."""
    if column.range is None:
        return 0
    low, high = column.range
    return int(((values < low) | (values > high)).sum())


def codes(cells: Cells, column: Column) -> IntArray:
    """Number of the category that each cell has, [n], or 1 and 0 for what says true and false.

    Raises
    ------
    CellError
        For the first cell that has none of them.
    """
    if column.categories is None:
        form: Callable[[str], str] = str.lower
        known, expected = _TRUTHS, "true or false (or yes, no, 1, 0)"
    else:
        form, known = str, {text: number for number, text in enumerate(column.categories)}
        shown = column.categories[:_MOST]
        expected = f"one of {', '.join(shown)}{', ...' if column.categories[_MOST:] else ''}"
    texts = texts_of(cells)
    found: list[Any] = [known.get(form(text)) for text in texts]
    for row, text in enumerate(texts):
        if found[row] is not None:
            continue
        if is_missing(text, column.missing_marks or ()):
            filling = _filling(row, column)
            found[row] = int(filling) if column.categories is None else known[str(filling)]
        elif (whole := _whole(text)) in known:
            found[row] = known[whole]
        else:
            raise CellError(row, f"expected {expected}, found {text[:_LONGEST]!r}")
    return np.array(found, np.int64)


def empty_cells(cells: Cells, marks: Sequence[str], known: Sequence[str]) -> BoolArray:
    """Whether each cell [n] says nothing, which the ``known`` texts do not, whatever they are."""
    return np.array([text not in known and is_missing(text, marks) for text in texts_of(cells)], np.bool_)


def dates(cells: Cells, column: Column) -> Floats:
    """Dates as days from 1970 on, [n]; NaN where a cell is empty.

    Raises
    ------
    CellError
        For the first cell that says something else.
    """
    found, texts = read_dates(texts_of(cells), column.format), texts_of(cells)
    for row in np.flatnonzero(np.isnan(found)).tolist():
        if not is_missing(texts[row], column.missing_marks or ()):
            raise CellError(row, f"expected a date such as {shown(column.format)}, found {texts[row][:_LONGEST]!r}")
    return found


def texts_of(cells: Cells) -> list[str]:
    """Cells as texts; numbers as they are written mostly, and nothing where one is empty."""
    if isinstance(cells, np.ndarray):
        return ["" if cell != cell else _as_text(cell) for cell in cells.tolist()]
    return [cell.strip() for cell in cells]


def _whole(text: str) -> str:
    """A text as it is, but for whole numbers that are written as 1.0, as programs do where a cell is empty."""
    return _as_text(float(text)) if is_number(text) else text


def is_number(text: str, decimal: str = ".") -> bool:
    """Whether a cell says a number."""
    try:
        return as_number(text, decimal) is not None
    except ValueError:
        return False


def _as_text(number: float) -> str:
    return str(int(number)) if number.is_integer() else str(number)


def of_cell(name: str, column: Column, *, empty: bool, declared: bool, trained: bool) -> str:
    """Say what to do about a cell of a column.

    Parameters
    ----------
    name : str
        The column's.
    column : Column
        Column as it was declared, or a number.
    empty : bool
        Whether the cell says nothing.
    declared : bool
        Whether a spec declares the columns.
    trained : bool
        Whether a model reads the rows, so that no declaration can be changed.
    """
    act = "fill it in" if empty else "correct it"
    if trained:
        return f"{act}, or leave the row out"
    if not declared:
        return "declare what its cells are under dataset.columns, or name the column under 'ignore'"
    if empty:
        filling = {"category": (column.categories or ("",))[0], "boolean": "false"}
        value = filling.get(column.kind, f"{column.shift_and_unit[0]:g}")
        return f"{act}, or say in dataset.columns.{name} what it is read as, such as missing: {value}"
    if column.kind == "category":
        return f"{act}, or add it to dataset.columns.{name}"
    if column.kind == "boolean":
        return f"{act}, or declare its texts: dataset.columns.{name}: [A, B]"
    if column.kind == "date":
        return f"{act}, or say how its dates are written in dataset.columns.{name}, such as format: '%d.%m.%Y'"
    return f"{act}, or leave {name} out of dataset.columns"


def of_letters(name: str, names: Sequence[str], csv: CsvSettings, *, trained: bool) -> str:
    """The end of an error about an absent column that is there if the file is in UTF-8; otherwise nothing."""
    try:
        seen = {text.encode().decode(csv.encoding) for text in (name, f"\ufeff{name}")} - {name}
    except UnicodeError:
        return ""
    if csv.in_utf8 or not seen & set(names):
        return ""
    return (
        f": the file is in UTF-8, and {of_dialect(csv)}"
        if trained
        else (f": the file is in UTF-8, and is read as {csv.encoding}; say dataset.csv: {{encoding: utf-8}}")
    )


def of_dialect(csv: CsvSettings) -> str:
    """Say how files for a model are written."""
    sign = {",": "commas", "\t": "tabs"}.get(csv.separator, repr(csv.separator))
    comma = " and a decimal comma" if csv.decimal == "," else ""
    return f"this model reads files with {sign} between cells{comma}, in {csv.encoding}; save it so"


BLOCK = 512  # of more, the rows' texts leave the processor's cache, and Python's collector walks over them
"""Rows that are read at a time."""


class WrongCell(DataError):
    """A cell that its column does not allow, with what is wrong apart from what to do.

    Attributes
    ----------
    problem : str
        Sentence on what was expected where, and found.
    column : str
        The column's name.
    """

    def __init__(self, message: str, problem: str = "", column: str = "") -> None:
        super().__init__(message)
        self.problem, self.column = problem, column


@dataclass(frozen=True)
class Block:
    """Some rows.

    Attributes
    ----------
    places : sequence of int
        The line, or the number, of each row.
    cells : sequence of Cells
        Cells of each column.
    """

    places: Sequence[int]
    cells: Sequence[Cells]


@dataclass(frozen=True)
class NamedRows:
    """Rows with named columns.

    Attributes
    ----------
    source : str
        Source of the rows, for errors: a path, or nothing.
    names : tuple of str
        The columns.
    blocks : iterator of Block
        The rows, once.
    unit : str
        Unit that places count: ``line`` or ``row``.
    csv : CsvSettings
        Dialect of texts.
    numbered : bool
        Whether the names are mere positions.
    arrays : mapping of str to callable
        Columns whose cells are pictures or arrays, and functions of cells that give their numbers, [rows, ...].
    """

    source: str
    names: tuple[str, ...]
    blocks: Iterator[Block]
    unit: str = "line"
    csv: CsvSettings = field(default_factory=CsvSettings)
    numbered: bool = False
    arrays: Mapping[str, Callable[[Cells], npt.NDArray[np.float32]]] = field(default_factory=dict)

    @property
    def decimal(self) -> str:
        """Sign before the decimals of numbers in texts."""
        return self.csv.decimal

    def at(self, place: int | None = None, column: str | None = None) -> str:
        """Place of something, for an error."""
        parts = [self.source or "the rows"] if place is None else [part for part in (self.source,) if part]
        parts += [] if place is None else [f"{self.unit} {place}"]
        return ", ".join([*parts, *([] if column is None else [f"column {column!r}"])])


def having_target(block: Block, target: int, marks: Sequence[str], known: Sequence[str]) -> Block:
    """Those rows of a block in whose column ``target`` stands something."""
    empty = empty_cells(block.cells[target], marks, known)
    if not empty.any():
        return block
    kept = np.flatnonzero(~empty).tolist()
    some = (cells[kept] if isinstance(cells, np.ndarray) else [cells[row] for row in kept] for cells in block.cells)
    return Block([block.places[row] for row in kept], list(some))


def in_blocks(rows: Iterable[tuple[int, Sequence[str]]], columns: int) -> Iterator[Block]:
    """Rows, each with its place, of so many columns, in blocks."""
    rest = iter(rows)
    while some := list(islice(rest, BLOCK)):
        yield Block([place for place, _ in some], list(zip(*(row for _, row in some))) or [()] * columns)


def table_of(rows: Sequence[Mapping[str, Any]]) -> NamedRows:
    """A table of rows from memory, each a mapping of columns to numbers, texts, truth values or None.

    Raises
    ------
    DataError
        If the rows have not the same columns.
    """
    names = tuple(rows[0]) if rows else ()
    for number, row in enumerate(rows, 1):
        if row.keys() != set(names):
            other = sorted(map(str, row.keys() ^ set(names)))[0]
            raise DataError(f"row {number}: expected the columns of the first row, found a difference in {other!r}")
    texts = ((number, [_written(row[name]) for name in names]) for number, row in enumerate(rows, 1))
    return NamedRows("", tuple(map(str, names)), in_blocks(texts, len(names)), unit="row")


def _written(value: Any) -> str:
    return "" if value is None else str(value)


@dataclass(frozen=True)
class Wanted:
    """Columns of a table that are read, and how.

    Attributes
    ----------
    columns : mapping of str to Column, optional
        Features; by default every column that is nothing else, as a number.
    target : str or int, optional
        The target's column, by name or by position (-1 is the last); by default there is none.
    owner, person : str, optional
        The columns that say whose an example is.
    ignore : sequence of str
        Columns that are no features.
    declared : bool
        Whether somebody said what the columns are, so that errors can name the key.
    scaled : bool
        Whether numbers are scaled by the constants of their columns.
    names : bool
        Whether labels are names, even where all of them look like numbers.
    real : bool
        Whether targets have to be numbers.
    trained : bool
        Whether a model reads the rows, so that errors name no key of a spec, and values outside of their column's range
        are counted.
    marks : sequence of str
        Texts that say nothing in cells of any column, beside what usually does.
    classes : sequence of str, optional
        The labels, where they were declared: one may be called like what usually says nothing.
    target_range : Column
        Column that says what real targets can be.
    drop_unlabelled : bool
        Whether rows whose target is empty are left out.
    beside : sequence of str
        Further columns whose cells are wanted as they are, empty ones too.
    """

    columns: Columns | None = None
    target: str | int | None = None
    owner: str | None = None
    person: str | None = None
    ignore: Sequence[str] = ()
    declared: bool = False
    scaled: bool = True
    names: bool = False
    real: bool = False
    trained: bool = False
    marks: Sequence[str] = ()
    classes: Sequence[str] = ()
    target_range: Column = field(default_factory=Column)
    drop_unlabelled: bool = False
    beside: Sequence[str] = ()


def read_rows(table: NamedRows, wanted: Wanted) -> Labelled:
    """The rows of a table.

    Raises
    ------
    DataError
        For a column that is not there, or a cell that its column does not allow; it names source, place and column.
    """
    target = _target(table, wanted)
    columns = with_marks(_columns(table, wanted, target), wanted.marks)
    whose = (("target", target), ("owner", wanted.owner), ("person", wanted.person))
    features: list[npt.NDArray[np.float32]] = []
    texts: dict[str, list[Labels]] = {what: [] for what, name in whose if name is not None}
    counts = dict.fromkeys(columns, 0)
    reader = _RowReader(table, columns, {name: table.names.index(name) for name in columns}, wanted, counts)
    places: list[IntArray] = []
    beside: dict[str, list[str]] = {name: [] for name in wanted.beside}
    left_out = 0
    for given in table.blocks:
        block = given
        if wanted.drop_unlabelled and target is not None:
            block = having_target(given, table.names.index(target), wanted.marks, wanted.classes)
        left_out += len(given.places) - len(block.places)
        if not block.places:
            continue
        places.append(np.asarray(block.places, np.int64))
        features.append(reader.features(block))
        for what, name in whose:
            if name is not None:
                real = wanted.real and what == "target"
                texts[what].append(
                    _reals(table, block, name, wanted) if real else _texts(table, block, what, name, wanted)
                )
        for name, cells in beside.items():
            cells += texts_of(block.cells[table.names.index(name)])
    if not features:
        below = " below the header" if table.unit == "line" and not table.numbered else ""
        raise DataError(f"{table.at()}: expected rows{below}, found none")
    if left_out:
        said = counted(left_out, "row without a target is", "rows without a target are", form=",")
        warnings.warn(f"{table.at()}: {said} left out", RunWarning, stacklevel=4)
    whole = {what: np.concatenate(parts) for what, parts in texts.items()}
    with failing_as(DataError, f"{table.at()}: {ONE_SHAPE} (", SHAPED, ValueError):
        rows = np.concatenate(features)
    made = {} if table.arrays.keys() & columns.keys() else columns
    if not wanted.trained:
        if wanted.columns is None:
            check_undeclared(table.at, tuple(made), rows)
        if wanted.real and target is not None:
            reader.coded[target] = Codes.of(whole["target"])
        warn_of_marks(table.at, {**columns, str(target): wanted.target_range}, target, reader.coded)
    labels = _labels(whole["target"], table, wanted) if "target" in whole else np.zeros(0)
    names, where = (feature_names(made), tuple(made)), Places(table.source, np.concatenate(places), table.unit)
    outside = {name: count for name, count in counts.items() if count}
    more = {name: np.array(found, np.str_) for name, found in beside.items()}
    return Labelled(rows, labels, whole.get("owner"), whole.get("person"), *names, target, where, outside, more)


def _target(table: NamedRows, wanted: Wanted) -> str | None:
    names, target = table.names, wanted.target
    if isinstance(target, int):
        if -len(names) <= target < len(names):
            return names[target]
        raise DataError(f"{table.at()}: no column {target}; it has {len(names)}, numbered from 0")
    if target is not None and target not in names:
        raise _absent(table, target, wanted)
    return target


def _absent(table: NamedRows, name: str, wanted: Wanted) -> DataError:
    shown = ", ".join(table.names)
    near = did_you_mean(name, table.names) if len(shown) > 500 else ""
    letters = of_letters(name, table.names, table.csv, trained=wanted.trained)
    return DataError(f"{table.at()}: no column {name!r}; its columns are {shown[:500]}{letters or near}")


def _columns(table: NamedRows, wanted: Wanted, target: str | None) -> Columns:
    names, whose = table.names, (wanted.owner, wanted.person)
    apart = [*filter(None, (target, *whose)), *wanted.ignore]
    columns = wanted.columns or {}
    others = [column.other for column in columns.values() if column.other is not None]
    absent = [name for name in [*apart, *columns, *others, *wanted.beside] if name not in names]
    if absent:
        raise _absent(table, absent[0], wanted)
    chosen = [name for name in names if name not in apart] if wanted.columns is None else list(wanted.columns)
    taken = {"owner": whose[:1], "person": whose[1:], "ignore": wanted.ignore, "features": chosen}
    for key, other in taken.items():
        if target is not None and target in other:
            raise DataError(
                f"{table.at()}: {key} names {target!r}, which is the target's column; name another column, or another "
                f"target (its columns are {', '.join(names)})"
            )
    if wanted.person in chosen:
        raise DataError(
            f"{table.at()}: features names {wanted.person!r}, which says whose an example is and is no feature; leave "
            "it out"
        )
    odd = [name for name in (target, *whose, *chosen) if name in table.arrays]
    if odd and (len(chosen) > 1 or odd != chosen or wanted.columns):
        raise DataError(
            f"{table.at(None, odd[0])}: expected numbers or texts, found arrays, which may only be all the features; "
            "name every other column but the target under dataset.ignore, and none as a feature, or leave this one out"
        )
    if not chosen:
        raise DataError(
            f"{table.at()}: expected a feature in a column of its own, found none beside {', '.join(apart)}"
        )
    return dict.fromkeys(chosen, Column()) if wanted.columns is None else wanted.columns


@dataclass(frozen=True)
class _RowReader:
    table: NamedRows
    columns: Columns
    positions: Mapping[str, int]
    wanted: Wanted
    counts: dict[str, int]
    coded: dict[str, Codes] = field(default_factory=dict)

    def features(self, block: Block) -> npt.NDArray[np.float32]:
        """The features of a block's rows, [rows, features], or [rows, ...] of arrays."""
        for name in self.columns.keys() & self.table.arrays.keys():
            return self.table.arrays[name](block.cells[self.positions[name]])
        rows = np.zeros((len(block.places), len(feature_names(self.columns))), np.float32)
        start = 0
        for name, column in self.columns.items():
            width = len(column.names(name))
            try:
                self._fill(rows[:, start : start + width], block, name, column)
            except CellError as error:
                problem = f"{self.table.at(block.places[error.row], name)}: {error}"
                told = {"declared": self.wanted.declared, "trained": self.wanted.trained}
                remedy = of_cell(name, column, empty=error.empty, **told)
                raise WrongCell(f"{problem}; {remedy}", problem, name) from None
            start += width
        return rows

    def _fill(self, rows: npt.NDArray[np.float32], block: Block, name: str, column: Column) -> None:
        cells = block.cells[self.positions[name]]
        if column.was_empty:
            rows[:, -1] = empty_cells(cells, column.missing_marks or (), column.categories or ())
        if column.categories is not None:
            rows[np.arange(len(rows)), codes(cells, column)] = 1
        elif column.kind == "boolean":
            rows[:, 0] = codes(cells, column)
        elif column.kind == "date":
            self._fill_dates(rows, dates(cells, column), block, name, column)
        else:
            values = numbers(cells, column, self.table.decimal)
            if not self.wanted.trained:
                self.coded.setdefault(name, Codes()).add(values)
            rows[:, 0] = self._scaled(values, name, column)

    def _scaled(self, values: Floats, name: str, column: Column) -> npt.NDArray[np.float32]:
        if self.wanted.trained:
            self.counts[name] += outside(values, column)
        found = as_float32(column.applied(values) if self.wanted.scaled else values)
        if (wrong := ~np.isfinite(found)).any():
            row = int(wrong.argmax())
            raise CellError(row, f"expected a finite number that fits float32, found {values[row]}")
        return found

    def _fill_dates(self, rows: npt.NDArray[np.float32], days: Floats, block: Block, name: str, column: Column) -> None:
        """Fill in the parts of a column's dates, which are ``days`` [n] from 1970 on."""
        since: Any = column.start
        if column.other is not None:
            try:
                other = block.cells[self.table.names.index(column.other)]
                since = dates(other, self.columns.get(column.other, column))
            except CellError as error:
                raise CellError(error.row, f"{error} in the column {column.other!r} that its days count from") from None
        values = days - since if column.is_number else days
        if column.is_number:
            plain = column.model_copy(update={"missing_marks": None})  # a mark is no number of days
            rows[:, 0] = self._scaled(numbers(values, plain), name, column)
        if column.was_empty:
            rows[:, -1] = np.isnan(values)
        said, place = np.flatnonzero(np.isfinite(days)), int(column.is_number)
        for part in filter(NAMES.get, column.of_dates):
            rows[said, place + part_of(days[said], part)] = 1
            place += len(NAMES[part])


def _reals(table: NamedRows, block: Block, name: str, wanted: Wanted) -> Floats:
    """Targets of a regression."""
    column = Column(missing_marks=tuple(wanted.marks))
    try:
        return numbers(block.cells[table.names.index(name)], column, table.decimal)
    except CellError as error:
        place = table.at(block.places[error.row], name)
        how = f"; leave such rows out{_UNLABELLED}" if error.empty and not wanted.trained else ""
        raise DataError(f"{place}: {error}; a regression needs a number as the target of each row{how}") from None


_UNLABELLED = " (dataset.drop_unlabelled: true)"


def _texts(table: NamedRows, block: Block, what: str, name: str, wanted: Wanted) -> npt.NDArray[np.str_]:
    cells = block.cells[table.names.index(name)]
    texts = texts_of(cells)
    known = wanted.classes if what == "target" else ()
    empty = next((text for text in set(texts) if text not in known and is_missing(text, wanted.marks)), None)
    if empty is not None:
        place, found = table.at(block.places[texts.index(empty)], name), f" ({empty!r} says nothing)" if empty else ""
        how = _UNLABELLED if what == "target" and not wanted.trained else ""
        act = "say dataset.labels if it is one" if what == "target" and empty else "fill it in"
        raise DataError(f"{place}: the {what} is empty{found}; {act}, or leave such rows out{how}")
    return np.array(texts, np.str_)


def _labels(found: Labels, table: NamedRows, wanted: Wanted) -> Labels:
    """Labels as numbers if all of them are, and nobody said that they are names."""
    if wanted.names or wanted.real:
        return found
    texts = found.tolist()
    try:
        said = {text: as_number(text, table.decimal) for text in {*texts}}
        return np.array([said[text] for text in texts], np.float64)
    except ValueError:
        return found
