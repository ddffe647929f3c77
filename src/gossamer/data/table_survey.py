"""Looking at a table on its owner's own machine: how its file is written, and what its columns look like.

What is found is for the eyes of whoever holds the rows. A spec is public, so nothing of it goes there but how a file is
written, its columns' names, and how many rows and owners there are, which every guarantee takes to be public.
"""

from __future__ import annotations

import codecs
import csv
import re
import shlex
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gossamer.data.columns import CsvSettings
from gossamer.data.files import infer_format, opened
from gossamer.data.settings import TABLES
from gossamer.data.table import Cells, NamedRows, having_target, is_missing, is_number, texts_of
from gossamer.data.table_files import SEP, WrongHeader, table_file
from gossamer.errors import DataError

_SEPARATORS = (",", ";", "\t", "|")
_SAMPLE = 1 << 16
_LINES = 50
_PIECE = 1 << 20
_MOST_TEXTS = 1000
"""Different texts of a column that are counted, unless it says whose rows are."""
_MOST_CODES, _MOST_CODE = 12, 20
"""Most different codes of a column, and the largest."""
_FEWEST, _MANY, _MOST_ROWS = 8, 20, 20
"""Fewest different texts, those that tell by themselves, and most rows of one on average, of what may name persons."""
_DATE = re.compile(r"(19|20)\d\d[-/.]?(0[1-9]|1[0-2])[-/.]?(0[1-9]|[12]\d|3[01])([ T].*)?")
_CODE, _LONG = re.compile(r"0\d+|\d+[eE]\d+"), re.compile(r"\d{7,}")
_TRUTHS = frozenset(("true", "false", "yes", "no", "t", "f", "y", "n", "0", "1"))


@dataclass
class LookedAt:
    """A column, as it was found.

    Attributes
    ----------
    texts : counter of str
        Number of times that each text is there; where there are many, of some of them alone.
    many : bool
        Whether there are more different ones.
    marks : counter of str
        Number of times that each mark that usually says nothing is there.
    words : counter of str
        The texts that are no numbers.
    """

    texts: Counter[str] = field(default_factory=Counter)
    many: bool = False
    marks: Counter[str] = field(default_factory=Counter)
    words: Counter[str] = field(default_factory=Counter)

    @property
    def numbers(self) -> bool:
        """Whether every cell that is not empty is a number."""
        return not self.words

    @property
    def empty(self) -> int:
        """Number of cells that say nothing."""
        return self.marks.total()

    @property
    def truths(self) -> bool:
        """Whether all cells could say true or false."""
        return 0 < len(self.texts) <= 2 and not self.many and all(text.lower() in _TRUTHS for text in self.texts)

    @property
    def whole(self) -> bool:
        """Whether all cells that are not empty are whole numbers."""
        return all(text.removeprefix("-").isdigit() for text in self.texts)

    @property
    def coded(self) -> bool:
        """Whether the numbers are few, small and whole, as those are that stand for something else."""
        few = self.whole and 0 < len(self.texts) <= _MOST_CODES
        return few and all(abs(int(text)) <= _MOST_CODE for text in self.texts)

    @property
    def odd(self) -> str:
        """Kind of what its cells may be by how they are written: ``codes``, ``dates`` or ``names``; mostly nothing."""
        if self.texts and all(map(_DATE.fullmatch, self.texts)):
            return "dates"
        alike = len({*map(len, self.texts)}) == 1 and all(map(_LONG.fullmatch, self.texts))
        return "codes" if any(map(_CODE.fullmatch, self.texts)) else "names" * alike

    @property
    def differs(self) -> bool:
        """Whether every row has another whole number, as the numbers of rows are."""
        return self.whole and len(self.texts) >= _FEWEST and max(self.texts.values()) == 1

    @property
    def repeats(self) -> bool:
        """Whether some cells repeat, but not often, as the names of persons do who have several rows."""
        several = max(self.texts.values(), default=0) > 1
        return (
            several and len(self.texts) >= _FEWEST and (self.texts.total() <= _MOST_ROWS * len(self.texts) or self.many)
        )

    @property
    def mostly_repeats(self) -> bool:
        """Whether so do most of many of them."""
        return self.repeats and 2 * sum(count > 1 for count in self.texts.values()) >= len(self.texts) >= _MANY

    def read(self, marks: Sequence[str] = (), known: Sequence[str] = ()) -> LookedAt:
        """This column where ``marks`` say nothing, too, and ``known`` texts something."""
        texts, words, gone = self.texts.copy(), self.words.copy(), self.marks.copy()
        for text in [text for text in (texts | words) if is_missing(text, marks)]:
            gone[text] += max(texts.pop(text, 0), words.pop(text, 0))
        for text in [text for text in gone if text in known and text not in marks]:
            texts[text] = words[text] = gone.pop(text)
        return replace(self, texts=texts, words=words, marks=gone)


@dataclass(frozen=True)
class Looked:
    """A table, as it was found.

    Attributes
    ----------
    path : Path
        The file.
    csv : CsvSettings or None
        Dialect of the file, where that is not as usual.
    rows : int
        Number of rows.
    columns : dict of str to LookedAt
        Columns by name, in order.
    """

    path: Path
    csv: CsvSettings | None
    rows: int
    columns: dict[str, LookedAt]


def look(
    path: Path,
    whose: Collection[str] = (),
    csv: Mapping[str, Any] | None = None,
    form: str | None = None,
    labelled_by: tuple[str, Sequence[str], Sequence[str]] | None = None,
) -> Looked:
    """Look at every row of a CSV or Parquet file, once.

    Parameters
    ----------
    path : Path
        The file.
    whose : collection of str
        Columns whose texts are all counted, however many they are.
    csv : mapping, optional
        Dialect of a CSV file, as far as somebody said it; all else as it looks.
    form : str, optional
        ``csv`` or ``parquet``; by default what the file's name says.
    labelled_by : tuple, optional
        Column without which a row is not looked at, marks that say nothing in it, and texts that say something.

    Raises
    ------
    DataError
        If it is no such file, damaged, or has no rows; the error names it, and the line.
    """
    if form is None:
        with suppress(DataError):
            form = infer_format(path)
    dialect = sniffed(path, csv) if form == "csv" else None
    table = table_file(path, form, dialect) if form in TABLES else None
    if table is None or table.arrays:
        raise DataError(f"{path}: expected a CSV or Parquet file, found {_other(path, form)}")
    if labelled_by is not None:
        target, place = labelled_by, table.names.index(labelled_by[0])
        table = replace(table, blocks=(having_target(block, place, *target[1:]) for block in table.blocks))
    return _look(path, table, None if dialect == CsvSettings() else dialect, whose)


def _other(path: Path, form: str | None) -> str:
    """Words on a file that is no table, and on what is to be done with it."""
    found = "a folder" if path.is_dir() else f"a name that ends in {path.suffix or 'nothing'}"
    if path.suffix.lower() in (".yaml", ".yml"):
        return f"{found}, as specs do; if it is one, say gossamer check {shlex.quote(str(path))}"
    if form is not None:
        return (
            f"{found} (format {form}), whose features have no names to declare: write its spec by hand, beginning with "
            f"dataset: {{name: NAME, path: {path}}} (docs/how-to/data.md)"
        )
    return f"{found}; save the table as one of them, or say --set dataset.format=csv if it is one under another name"


def _look(path: Path, table: NamedRows, csv: CsvSettings | None, whose: Collection[str]) -> Looked:
    columns = {name: LookedAt() for name in table.names}
    rows = 0
    for block in table.blocks:
        for name, cells in zip(table.names, block.cells, strict=True):
            _add(columns[name], cells, table.decimal, bounded=name not in whose)
        rows += len(block.places)
    if not rows:
        raise DataError(f"{path}: expected rows{'' if table.numbered else ' below the header'}, found none")
    odd = [name for name, column in columns.items() if name and column.texts[name]]
    if odd and not table.numbered and table.csv.header is None:
        raise WrongHeader.of(path, f"{odd[0]!r}, which stands in the rows of that column, too")
    return Looked(path, csv, rows, columns)


def _add(column: LookedAt, cells: Cells, decimal: str, *, bounded: bool) -> None:
    texts = texts_of(cells)
    for written, count in Counter(texts).items():
        whole = written.removesuffix(".0")  # as programs write whole numbers where a cell of their column is empty
        text = whole if whole.removeprefix("-").isdigit() else written
        if is_missing(text):
            column.marks[text] += count
            continue
        if text in column.texts or not bounded or len(column.texts) < _MOST_TEXTS:
            column.texts[text] += count
        else:
            column.many = True
        if not is_number(text, decimal) and (text in column.words or len(column.words) < _MOST_TEXTS):
            column.words[text] += count


def sniffed(path: Path, given: Mapping[str, Any] | None = None) -> CsvSettings:
    """Find how a CSV file is written, as far as it is not ``given``: by its beginning, letters by all of it.

    Raises
    ------
    DataError
        If it is empty, or no text.
    """
    said = dict(given or {})
    encoding = said.get("encoding") or _encoding(path)
    with opened(path) as file:
        sample = file.read(_SAMPLE)
    lines = sample.decode(encoding, errors="ignore").splitlines()
    lines = lines[: len(lines) - (len(sample) == _SAMPLE)] or lines  # the last one may be cut
    lines = [line for line in lines if line.strip()][:_LINES]
    if lines and (named := SEP.fullmatch(lines[0].strip("\ufeff"))):
        said, lines = {"separator": named[1]} | said, lines[1:]
    if not lines:
        raise DataError(f"{path}: expected a table with a header and rows, found an empty file; choose another file")
    separator = said.get("separator") or _separator(lines)
    rows = _cut(lines, separator)
    decimal = "," if separator != "," and _has_decimal_commas(rows) else "."
    found: dict[str, object] = {"separator": separator, "decimal": decimal}
    found |= {"encoding": encoding} if encoding != "utf-8" else {}
    found |= {"row_names": True} if _have_names(rows) else {}
    return CsvSettings.model_validate(found | said)


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


def _cut(lines: Sequence[str], sign: str) -> list[list[str]]:
    return list(csv.reader(lines, delimiter=sign, skipinitialspace=sign == " "))


def _have_names(rows: Sequence[Sequence[str]]) -> bool:
    """Whether each row has one cell more than the header, and begins with one of its own: R's names of rows."""
    longer = all(len(row) == len(rows[0]) + 1 for row in rows[1:])
    first = {row[0] for row in rows[1:]}
    return longer and len(first) == len(rows) - 1 > 0 and any(row[-1].strip() for row in rows[1:])


def _separator(lines: Sequence[str]) -> str:
    """The sign that cuts all lines into equally many cells, the most of them; a space where no other does."""
    for signs in (_SEPARATORS, (" ",)):
        for short in (0, 1):  # R's headers have a name less
            best, most = "", 1
            for sign in signs:
                header, *rows = map(len, _cut(lines, sign))
                if {header + short} >= set(rows) and header > most - short:
                    best, most = sign, header + short
            if best:
                return best
    return ","


def _has_decimal_commas(rows: Sequence[Sequence[str]]) -> bool:
    cells = [cell.strip() for row in rows[1:] for cell in row]
    commas = sum("," in cell and is_number(cell, ",") for cell in cells)
    points = sum("." in cell and is_number(cell, ".") for cell in cells)
    return commas > points
