"""Looking at a table on its owner's own machine: how its file is written, and what its columns look like.

What is found is for the eyes of whoever holds the rows. A spec is public, so nothing of it goes there but how a file is
written, its columns' names, and how many rows and owners there are, which every guarantee takes to be public.
"""

from __future__ import annotations

import codecs
import csv
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gossamer.data.cells import Cells, as_number, is_missing
from gossamer.data.compression import opened
from gossamer.data.csv_files import csv_table
from gossamer.data.dialect import CsvSettings
from gossamer.data.formats import infer_format
from gossamer.data.settings import TABLES
from gossamer.data.table import Table
from gossamer.errors import DataError

_SEPARATORS = (",", ";", "\t", "|")
_SAMPLE = 1 << 16
_LINES = 50
_PIECE = 1 << 20
_MOST_TEXTS = 1000
"""Different texts of a column that are counted, unless it says whose rows are."""
_TRUTHS = frozenset(("true", "false", "yes", "no", "t", "f", "y", "n", "0", "1"))


@dataclass
class LookedAt:
    """A column, as it was found.

    Attributes
    ----------
    numbers : bool
        Whether every cell that is not empty is a number.
    empty : int
        How many cells say nothing.
    texts : counter of str
        How often each text is there; no more than some where there are many.
    many : bool
        Whether there are more different ones.
    """

    numbers: bool = True
    empty: int = 0
    texts: Counter[str] = field(default_factory=Counter)
    many: bool = False

    @property
    def truths(self) -> bool:
        """Whether all cells could say true or false."""
        return 0 < len(self.texts) <= 2 and not self.many and all(text.lower() in _TRUTHS for text in self.texts)


@dataclass(frozen=True)
class Looked:
    """A table, as it was found.

    Attributes
    ----------
    path : Path
        The file.
    csv : CsvSettings or None
        How it is written, where that is not as usual.
    rows : int
        How many there are.
    columns : dict of str to LookedAt
        By name, in order.
    """

    path: Path
    csv: CsvSettings | None
    rows: int
    columns: dict[str, LookedAt]


def look(path: Path, owner: str | None = None, csv: CsvSettings | None = None) -> Looked:
    """Look at every row of a CSV or Parquet file, once.

    Parameters
    ----------
    path : Path
        The file.
    owner : str, optional
        The column whose texts are all counted, however many they are.
    csv : CsvSettings, optional
        How a CSV file is written; by default what it looks like.

    Raises
    ------
    DataError
        If it is no such file, damaged, or has no rows; the error names it, and the line.
    """
    form = infer_format(path) if not path.is_dir() else None
    if form not in TABLES:
        raise DataError(f"{path}: expected a CSV or Parquet file, found {_other(path)}; save the table as one of them")
    if form == "parquet":
        from gossamer.data.parquet import parquet_table

        return _look(path, parquet_table(path), None, owner)
    dialect = csv or sniffed(path)
    return _look(path, csv_table(path, dialect), None if dialect == CsvSettings() else dialect, owner)


def _other(path: Path) -> str:
    return "a folder" if path.is_dir() else f"a name that ends in {path.suffix or 'nothing'}"


def _look(path: Path, table: Table, csv: CsvSettings | None, owner: str | None) -> Looked:
    columns = {name: LookedAt() for name in table.names}
    rows = 0
    for block in table.blocks:
        rows += len(block.places)
        for name, cells in zip(table.names, block.cells, strict=True):
            _add(columns[name], cells, table.decimal, bounded=name != owner)
    if not rows:
        raise DataError(f"{path}: expected rows{'' if table.numbered else ' below the header'}, found none")
    return Looked(path, csv, rows, columns)


def _add(column: LookedAt, cells: Cells, decimal: str, *, bounded: bool) -> None:
    texts = _as_texts(cells) if isinstance(cells, np.ndarray) else [cell.strip() for cell in cells]
    for text, count in Counter(texts).items():
        if is_missing(text):
            column.empty += count
            continue
        if column.numbers:
            column.numbers = _is_number(text, decimal)
        if text in column.texts or not bounded or len(column.texts) < _MOST_TEXTS:
            column.texts[text] += count
        else:
            column.many = True


def _as_texts(cells: npt.NDArray[np.float64]) -> list[str]:
    return ["" if cell != cell else str(int(cell)) if cell.is_integer() else str(cell) for cell in cells.tolist()]


def _is_number(text: str, decimal: str) -> bool:
    try:
        as_number(text, decimal)
    except ValueError:
        return False
    return True


def sniffed(path: Path) -> CsvSettings:
    """Find how a CSV file is written, as its beginning looks; letters by all of it.

    Raises
    ------
    DataError
        If it is empty, or no text.
    """
    encoding = _encoding(path)
    with opened(path) as file:
        sample = file.read(_SAMPLE)
    text = sample.decode(encoding, errors="ignore")
    lines = text.splitlines()
    lines = lines[: len(lines) - (len(sample) == _SAMPLE)] or lines  # the last one may be cut
    lines = [line for line in lines if line.strip()][:_LINES]
    if not lines:
        raise DataError(f"{path}: expected a table with a header and rows, found an empty file; choose another file")
    separator = _separator(lines)
    rows = list(csv.reader(lines, delimiter=separator))
    decimal = "," if separator != "," and _has_decimal_commas(rows) else "."
    numbers = all(_is_number(cell.strip(), decimal) for cell in rows[0])
    positions = [cell.strip() for cell in rows[0]] == [str(number) for number in range(len(rows[0]))]
    found: dict[str, object] = {"separator": separator, "decimal": decimal}
    found |= {"encoding": encoding} if encoding != "utf-8" else {}
    found |= {"header": False} if numbers and not positions else {}
    return CsvSettings.model_validate(found)


def _encoding(path: Path) -> str:
    """UTF-8 where all of it is, else Latin-1, where every byte is a letter; refused where it is no text at all."""
    decoder, encoding = codecs.getincrementaldecoder("utf-8")(), "utf-8"
    with opened(path) as file:
        while piece := file.read(_PIECE):
            if b"\0" in piece:
                raise DataError(
                    f"{path}: expected a CSV file, found bytes that are no text; save the table as CSV, or as Parquet "
                    "with a name that ends in .parquet"
                )
            try:
                decoder.decode(piece)
            except UnicodeDecodeError:
                encoding = "latin-1"
    return encoding


def _separator(lines: Sequence[str]) -> str:
    """The sign that cuts all lines into equally many cells, the most of them."""
    best, most = ",", 1
    for sign in _SEPARATORS:
        widths = {len(row) for row in csv.reader(lines, delimiter=sign)}
        if len(widths) == 1 and (width := widths.pop()) > most:
            best, most = sign, width
    return best


def _has_decimal_commas(rows: Sequence[Sequence[str]]) -> bool:
    cells = [cell.strip() for row in rows[1:] for cell in row]
    commas = sum("," in cell and _is_number(cell, ",") for cell in cells)
    points = sum("." in cell and _is_number(cell, ".") for cell in cells)
    return commas > points
