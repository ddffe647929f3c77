"""CSV and Parquet files, and folders of `datasets`, as tables: read from end to end, a block of rows at a time."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Collection, Iterator
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gossamer.data.column_hints import is_value
from gossamer.data.columns import CsvSettings
from gossamer.data.files import SAVED, SAVED_SPLITS, opened, read_bytes
from gossamer.data.picture_files import picture
from gossamer.data.table import BLOCK, ONE_SHAPE, SHAPED, Block, Cells, NamedRows, in_blocks, of_dialect
from gossamer.errors import DataError, failing_as
from gossamer.extras import require


def table_file(
    path: Path, form: str, dialect: CsvSettings | None = None, *, least: int = 2, trained: bool = False
) -> NamedRows:
    """A file of ``form`` csv, parquet or datasets as a table; see `csv_table` and `parquet_table`."""
    return csv_table(path, dialect, least=least, trained=trained) if form == "csv" else parquet_table(path)


def parquet_table(path: Path) -> NamedRows:
    """A Parquet file, or a folder that Hugging Face's `datasets` saved, as a table.

    Its rows are read as they are asked for. It needs pyarrow, which is optional, and not `datasets`.

    Raises
    ------
    DataError
        If it is no such file or folder, or one of several splits, its columns have not different names, or pyarrow is
        not installed.
    """
    kind = "a folder that datasets saved" if path.is_dir() else "a Parquet file"
    who = f"{path}: save the table as CSV; {kind} needs"
    pa, pq = (require(name, who, "parquet", DataError) for name in ("pyarrow", "pyarrow.parquet"))
    if not path.is_file() and not path.is_dir():
        raise DataError(f"cannot read {path}: expected a regular file; correct its path")
    try:
        schema, batches = _saved(path, pa) if path.is_dir() else _of_file(pq.ParquetFile(path))
    except (OSError, pa.ArrowException, json.JSONDecodeError, LookupError, TypeError, RecursionError) as error:
        raise DataError(f"{path}: expected {kind} ({_first_line(error)})") from error
    names = tuple(map(str, schema.names))
    if len(set(names)) < len(names):
        raise DataError(f"{path}: expected columns of different names, found {', '.join(names)}")
    # A type of its own, which `datasets` registers where it is loaded, is kept as a list.
    nested = [each.name for each in schema if pa.types.is_nested(getattr(each.type, "storage_type", each.type))]
    arrays = {name: partial(_numbers, path, name) for name in nested}
    return NamedRows(str(path), names, _blocks(path, batches, pa, arrays), unit="row", arrays=arrays)


def _of_file(file: Any) -> tuple[Any, Iterator[Any]]:
    return file.schema_arrow, file.iter_batches(16 * BLOCK)


def _saved(path: Path, pa: Any) -> tuple[Any, Iterator[Any]]:
    """Columns, and rows, of a folder of one split."""
    if (path / SAVED_SPLITS).is_file():
        splits = json.loads(read_bytes(path / SAVED_SPLITS))["splits"]
        path = path / splits[0]
        if len(splits) > 1:
            raise DataError(
                f"{path.parent}: expected one split, found {', '.join(splits)}; give the folder of one, such as path: "
                f"{path}, and perhaps that of another as test_path"
            )
    state = json.loads(read_bytes(path / SAVED))
    opened = [pa.ipc.open_stream(pa.memory_map(str(path / each["filename"]))) for each in state["_data_files"]]
    if state.get("_indices_data_files"):  # of old versions, which kept rows that were left out
        raise DataError(f"{path}: expected all rows of its files, found a choice of them; save flatten_indices() of it")
    if any(each.schema.names != opened[0].schema.names for each in opened):
        raise DataError(f"{path}: expected files with the same columns in the same order; save it again")
    return opened[0].schema, chain.from_iterable(opened)


def _blocks(path: Path, batches: Iterator[Any], pa: Any, arrays: Collection[str]) -> Iterator[Block]:
    start = 1
    try:
        for batch in batches:
            columns = zip(batch.schema.names, batch.columns)
            cells = [one.to_pylist() if name in arrays else _cells(path, name, one, pa) for name, one in columns]
            yield Block(range(start, start + len(batch)), cells)
            start += len(batch)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path} is damaged ({_first_line(error)}); get the file again") from error


def _numbers(path: Path, name: str, cells: Any) -> npt.NDArray[np.float32]:
    """Arrays of one shape, or pictures as [channels, rows, columns]."""
    if all(isinstance(cell, dict) and cell.get("bytes") for cell in cells):
        cells = [picture(path, f"one of {name!r}", cell["bytes"]) for cell in cells]
    with failing_as(DataError, f"{path}, column {name!r}: {ONE_SHAPE} (", SHAPED, (TypeError, ValueError)):
        return np.asarray(cells, np.float32)


def _cells(path: Path, name: str, column: Any, pa: Any) -> Cells:
    """Numbers with NaN for what is empty, or texts."""
    kind = column.type
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind) or (pa.types.is_integer(kind) and _are_small(column)):
        return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), np.float64)
    try:
        texts = column.cast(pa.string())
    except pa.ArrowException:
        raise DataError(
            f"{path}, column {name!r}: expected numbers or texts, found {kind}; leave the column out"
        ) from None
    return ["" if text is None else text for text in texts.to_pylist()]


def _are_small(column: Any) -> bool:
    """Whether whole numbers are the same as float64; identifiers may not be."""
    values = column.fill_null(0).to_numpy(zero_copy_only=False)
    return not len(values) or max(abs(int(values.min())), abs(int(values.max()))) <= 2**53


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


_USUAL = (";", "\t", "|", ",", " ")
"""Signs that often stand between cells."""
SEP = re.compile(r'"?sep=(.)"?\s*', re.IGNORECASE)
"""The line by which Excel says what separates cells."""


class WrongHeader(DataError):
    """A first row that may be names or not, with what is odd about it apart from what to do.

    Attributes
    ----------
    problem : str
        Sentence on what was expected where, and found.
    """

    def __init__(self, message: str, problem: str) -> None:
        super().__init__(message)
        self.problem = problem

    @classmethod
    def of(cls, path: Path, found: str, told: str = "") -> WrongHeader:
        """One of a file in whose first row was ``found`` what is hardly a name; ``told`` if a model reads it."""
        problem = f"{path}: expected the columns' names in the first row, found {found}"
        remedy = "say dataset.csv: {header: false} if it is an example, and {header: true} if these are names"
        return cls(f"{problem}; {'save it with their names' if told else remedy}", problem)


def csv_table(path: Path, settings: CsvSettings | None = None, *, least: int = 2, trained: bool = False) -> NamedRows:
    """A CSV file as a table; its rows are read as they are asked for.

    Parameters
    ----------
    path : Path
        The file.
    settings : CsvSettings, optional
        Dialect of the file; by default with commas, in UTF-8, below a row of names.
    least : int
        Fewest columns: a feature and a target, or 1 where no target is needed.
    trained : bool
        Whether a model reads it, so that errors name no key of a spec.

    Raises
    ------
    DataError
        If it cannot be read, or its first row cannot be names; and, as rows are asked for, if it is damaged, or one has
        another number of cells. Errors name the file and the line.
    """
    dialect = settings or CsvSettings()
    told = of_dialect(dialect) if trained else ""
    rows = _rows(path, dialect, told)
    line, first = next(rows, (1, []))
    if dialect.header is False:
        names = tuple(str(number) for number in range(len(first)))
        _check_names(path, names, dialect, least, told)
        rest: Iterator[tuple[int, list[str]]] = chain([(line, first)], rows)
    else:
        while len(first) > 1 and not first[-1].strip():  # separators at the end, as spreadsheets write
            first = first[:-1]
        names = tuple(name.strip() for name in first)
        _check_names(path, names, dialect, least, told)
        rest = rows
    blocks = in_blocks(_even(path, rest, len(names), dialect, told), len(names))
    return NamedRows(str(path), names, blocks, csv=dialect, numbered=dialect.header is False)


def _even(
    path: Path, rows: Iterator[tuple[int, list[str]]], columns: int, dialect: CsvSettings, told: str
) -> Iterator[tuple[int, list[str]]]:
    """Rows with as many cells as there are columns, without those that are all empty but for a model's."""
    for line, row in rows:
        cells = row[1:] if dialect.row_names else row
        while len(cells) > columns and not cells[-1].strip():
            cells = cells[:-1]
        if len(cells) != columns:
            remedy = told or "correct the line, or put double quotes around a cell with a separator in it"
            if len(cells) == columns + 1 and dialect.header is not False and not told:
                remedy += "; where rows begin with a cell that has no name, say dataset.csv: {row_names: true}"
            raise DataError(f"{path}, line {line}: expected {columns} columns, found {len(cells)}; {remedy}")
        if told or any(map(str.strip, cells)):
            yield line, cells


def _check_names(path: Path, names: tuple[str, ...], dialect: CsvSettings, least: int, told: str) -> None:
    """Refuse a first row that cannot be names; ``told`` is what to do about the dialect, if no spec says it."""
    sign = {",": "commas", "\t": "tabs"}.get(dialect.separator, repr(dialect.separator))
    other = _other_sign(names, dialect, told)
    few = len(names) < least or bool(other)
    if few or len(set(names)) < len(names):
        what = "two or more columns" if dialect.header is False else "a header of two or more different names"
        found = f"{list(names)}{other}" if names else "an empty file; correct the path"
        raise DataError(f"{path}: expected {what} with {sign}, found {found}")
    odd = tuple(filter(is_value, names))
    # Programs write 0, 1, 2, ... for columns that have no names.
    if dialect.header is None and odd != tuple(map(str, range(len(odd)))):
        raise WrongHeader.of(path, "numbers alone" if len(odd) == len(names) else f"{odd[0]!r}, hardly a name", told)


def _other_sign(names: tuple[str, ...], dialect: CsvSettings, told: str) -> str:
    """The end of an error about a single column that looks like several with another sign between them."""
    signs = [sign for sign in _USUAL if sign != dialect.separator and any(sign in name for name in names)]
    if len(names) > 1 or not signs:
        return ""
    if told:
        return f"; {told}"
    return f"; for another separator say dataset.csv: {{separator: {'tab' if signs[0] == chr(9) else repr(signs[0])}}}"


def _rows(path: Path, dialect: CsvSettings, told: str) -> Iterator[tuple[int, list[str]]]:
    """The rows that are not blank, each with the number of its (last) line."""
    encoding = "utf-8-sig" if dialect.in_utf8 else dialect.encoding
    with opened(path) as file, io.TextIOWrapper(file, encoding, newline="") as text:
        first = ("\n" if SEP.fullmatch(line.strip()) else line for line in islice(text, 1))
        reader = csv.reader(
            chain(first, text), strict=True, delimiter=dialect.separator, skipinitialspace=dialect.separator == " "
        )
        try:
            for row in reader:
                if row:
                    yield reader.line_num, row
        except UnicodeError as error:
            raise DataError(
                f"{path}{_undecoded(path, encoding)}: expected text in {dialect.encoding.upper()}, found bytes that "
                f"are not; {told or 'save it so, or say how it is written, such as dataset.csv: {encoding: latin-1}'}"
            ) from error
        except csv.Error as error:
            raise DataError(f"{path}, line {reader.line_num}: not a CSV row ({error})") from error


def _undecoded(path: Path, encoding: str) -> str:
    """The line of the first byte that is no letter, where that can be told."""
    with opened(path) as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode(encoding)
            except UnicodeError:
                return f", line {number}" if not encoding.lower().startswith(("utf-16", "utf-32", "utf16")) else ""
    return ""
