"""Rows to predict for, from files and from memory, read by the declaration that the model was trained by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from gossamer.data.array_files import read_arrays
from gossamer.data.compression import read_bytes
from gossamer.data.declaration import Declaration, in_words
from gossamer.data.examples import Features, Labels, as_float32, require_finite, with_entries
from gossamer.data.formats import infer_format, read_files
from gossamer.data.settings import TABLES, DatasetSettings, Format
from gossamer.data.table import NamedRows, table_of
from gossamer.data.table_files import table_file
from gossamer.errors import DataError, counted


@dataclass(frozen=True, eq=False)
class Read:
    """Rows as the model gets them.

    Attributes
    ----------
    features : ndarray [n, ...] or csr_array [n, features]
        Scaled.
    targets : ndarray [n], optional
        Class numbers or real numbers, where they were asked for.
    outside : mapping of str to int
        Number of rows of each column that were outside of its range.
    """

    features: Features
    targets: Labels | None = None
    outside: Mapping[str, int] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Number of rows."""
        return int(self.features.shape[0])


def read(data: Declaration, rows: Any, targets: Any = None, *, labelled: bool = False) -> Read:
    """Read rows for a model.

    Parameters
    ----------
    data : Declaration
        Declaration of the model's training data.
    rows : path, sequence of mapping, data frame, or array [n, ...]
        A file; rows by the names of columns; or cells or numbers in the order in which the columns are declared. Of
        data without columns: numbers as they are in files, before they are scaled.
    targets : array [n], optional
        Labels or real targets, where the rows do not have them.
    labelled : bool
        Whether the rows have to say their target, and it is read.

    Raises
    ------
    DataError
        If the rows do not fit the model.
    """
    if labelled and targets is not None:
        found, labels = read(data, rows), _labels(targets)
        if len(labels) != found.count:
            raise DataError(f"expected a target for each of {counted(found.count, 'row')}, found {len(labels)}")
        return replace(found, targets=data.targets(labels))
    if isinstance(rows, str | Path):
        return _of_file(data, Path(rows), labelled)
    if not isinstance(rows, Sequence) and hasattr(rows, "__array__") and not hasattr(rows, "to_dict"):
        rows = np.asarray(rows)  # a tensor, or another library's array
    if sp.issparse(rows) and data.declared:
        rows = rows.toarray()
    numbers = sp.issparse(rows) or (isinstance(rows, np.ndarray) and rows.dtype.kind in "biuf" and not data.declared)
    if numbers or not data.tabular:
        return _of_numbers(data, rows, labelled)
    return _of_table(data, _table(data, rows, labelled), labelled)


def _labels(targets: Any) -> Labels:
    array = np.asarray(targets).reshape(-1)
    return array.astype(np.str_) if array.dtype.kind in "OU" else array.astype(np.float64)


def _of_table(data: Declaration, table: NamedRows, labelled: bool) -> Read:
    found, source = data.read(table, labelled=labelled), table.source or "the rows"
    targets = data.targets(found.labels, source, found.places) if labelled else None
    return Read(data.prepare(found.features, source), targets, found.outside)


def _table(data: Declaration, rows: Any, labelled: bool) -> NamedRows:
    """The rows as a table; those without names have the declared columns, and then the target if that is wanted."""
    if hasattr(rows, "to_dict") and hasattr(rows, "columns"):  # pandas' frames, and others like them
        rows = rows.to_dict("records")
    if not isinstance(rows, Sequence | np.ndarray):
        raise DataError(
            f"expected a file, rows by the names of columns, or a list of rows, found {type(rows).__name__}; give one"
        )
    if len(rows) == 0:
        raise DataError("expected rows, found none; give one at least")
    named = [row for row in rows if isinstance(row, Mapping)]
    if len(named) == len(rows):
        return table_of(named)
    names = [*(data.columns or {}), *([str(data.target)] if labelled else [])]
    wrong = next((number for number, row in enumerate(rows, 1) if not _has(row, len(names))), None)
    if wrong is not None:
        raise DataError(
            f"row {wrong}: expected a mapping of columns to cells, or {len(names)} cells in the order "
            f"{', '.join(names)[:300]}; found {_shown(rows[wrong - 1])}"
        )
    return table_of([dict(zip(names, row)) for row in rows])


def _has(row: Any, cells: int) -> bool:
    return isinstance(row, Sequence | np.ndarray) and not isinstance(row, str) and len(row) == cells


def _shown(row: Any) -> str:
    return f"{len(row)} cells" if isinstance(row, Sequence | np.ndarray) else type(row).__name__


def _of_numbers(data: Declaration, rows: Any, labelled: bool, source: str = "") -> Read:
    if labelled:
        raise DataError("an evaluation needs the rows' targets: give them as targets, or give a file")
    features: Features
    where = f"{source}: " if source else ""
    if sp.issparse(rows):
        matrix = sp.csr_array(rows)
        features = with_entries(matrix, as_float32(matrix.data))
    else:
        try:
            features = as_float32(np.asarray(rows, np.float64))
        except (ValueError, TypeError):
            raise DataError(
                f"{where}expected rows of {_size(data)}, found cells that are no numbers, or rows of several lengths"
            ) from None
    if features.ndim < 2 or features.shape[0] == 0:
        raise DataError(f"{where}expected rows [n, ...] of {_size(data)}, found an array {list(features.shape)}")
    before = f"{source}, " if source else ""
    require_finite(features, lambda row, column: f"{before}row {row + 1}, feature {column + 1}")
    return Read(data.prepare(features, source or "the rows"))


def _size(data: Declaration) -> str:
    return f"numbers {list(data.shape)}"


def _of_file(data: Declaration, path: Path, labelled: bool) -> Read:
    try:
        there = path.exists()
    except OSError as error:
        raise DataError(f"cannot read {str(path)[:80]}: {error.strerror}; correct the path") from None
    if not there:
        raise DataError(f"there is no file {path} with rows; correct the path")
    form = _format(data, path)
    if data.tabular:
        table = table_file(path, form, data.csv, least=2 if labelled else 1, trained=True)
        return _of_table(data, table, labelled)
    return _of_arrays(data, path, form, labelled)


def _format(data: Declaration, path: Path) -> Format:
    """Return how a file is read: as its name says, or where that says nothing as the model's own files were.

    Raises
    ------
    DataError
        If rows of such files do not fit the model.
    """
    known = not data.tabular or (bool(path.suffix) and not path.is_dir())  # a table may have any name
    form: Format | None
    try:
        form = infer_format(path) if known else "csv"
    except DataError:
        form = data.format or ("csv" if data.tabular else None)
    if form is None:
        raise DataError(f"{path}: {_wanted(data)}, found a name that ends in {path.suffix}; rename it so")
    if (form in TABLES) != data.tabular:
        found = "a table" if form in TABLES else f"{form}, which has no columns with names"
        raise DataError(f"{path}: {_wanted(data)}, found {found}; save the rows so")
    return form


def _wanted(data: Declaration) -> str:
    if data.columns is not None:
        return f"this model reads tables (CSV, Parquet) with the columns {', '.join(data.columns)[:300]}"
    return f"this model reads rows of {in_words(data.shape)} without names (NPZ, LIBSVM, IDX or pictures)"


def _of_arrays(data: Declaration, path: Path, form: Format, labelled: bool) -> Read:
    """Examples of a file that has no columns: those to train on, and those to test on where there are some."""
    if form == "npz" and not labelled:
        arrays = read_arrays(path, read_bytes(path))
        if "features" in arrays and "targets" not in arrays:
            return _of_numbers(data, arrays["features"], labelled, str(path))
    settings = DatasetSettings(name="rows", format=form, features=data.shape, layout=data.layout)
    if form == "libsvm":
        settings = settings.model_copy(update={"first_index": data.first_index})
    parts = [part for part in read_files(form, path, None, settings) if part is not None]
    features = [data.prepare(part.features, str(path)) for part in parts]
    joined: Features = sp.csr_array(sp.vstack(features)) if data.layout == "sparse" else np.concatenate(features)
    labels = np.concatenate([part.labels for part in parts])
    places = parts[0].places if len(parts) == 1 else None
    return Read(joined, data.targets(labels, str(path), places) if labelled else None)
