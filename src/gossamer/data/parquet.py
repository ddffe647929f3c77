"""Parquet files as tables. They need pyarrow, which is optional."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gossamer.data.cells import Cells
from gossamer.data.table import BLOCK, Block, NamedRows
from gossamer.errors import DataError
from gossamer.extras import install_line


def parquet_table(path: Path) -> NamedRows:
    """A Parquet file as a table; its rows are read as they are asked for.

    Raises
    ------
    DataError
        If it is no such file, its columns have not different names, or pyarrow is not installed.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise DataError(
            f"{path}: Parquet files are read with pyarrow, which is not installed; save the table as CSV, or install "
            f"it: {install_line('parquet')}"
        ) from None
    if not path.is_file():
        raise DataError(f"cannot read {path}: expected a regular file; correct its path")
    try:
        file = pq.ParquetFile(path)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path}: expected a Parquet file ({_first_line(error)})") from error
    names = tuple(map(str, file.schema_arrow.names))
    if len(set(names)) < len(names):
        raise DataError(f"{path}: expected columns of different names, found {', '.join(names)}")
    return NamedRows(str(path), names, _blocks(path, file, pa), unit="row")


def _blocks(path: Path, file: Any, pa: Any) -> Iterator[Block]:
    start = 1
    try:
        for batch in file.iter_batches(BLOCK):
            cells = [_cells(path, name, column, pa) for name, column in zip(batch.schema.names, batch.columns)]
            yield Block(range(start, start + len(batch)), cells)
            start += len(batch)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path} is damaged ({_first_line(error)}); get the file again") from error


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
