"""Tables: CSV with a header row, and NumPy's NPZ."""

from __future__ import annotations

import csv
import io
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from gossamer.data.examples import Examples, Labels, Pair, as_float32, read_bytes, require_finite
from gossamer.data.features import with_entries
from gossamer.data.npz import read_arrays
from gossamer.errors import DataError


@dataclass(frozen=True)
class _Columns:
    """Positions in a CSV row."""

    names: list[str]
    target: int
    owner: int | None
    person: int | None
    features: list[int]


def read_csv(
    path: Path,
    target: str | int = -1,
    owner: str | None = None,
    ignore: Sequence[str] = (),
    columns: Sequence[str] | None = None,
    *,
    person: str | None = None,
    names: bool = False,
) -> Examples:
    """Read a CSV file with a header row, plain or compressed; every other column is a numeric feature.

    Parameters
    ----------
    path : Path
        The file, in UTF-8, separated by commas.
    target : str or int
        The target's column: its name, or its position from 0 (-1 is the last).
    owner : str, optional
        The column that says whose example it is.
    ignore : sequence of str
        Columns that are no features, such as identifiers.
    columns : sequence of str, optional
        The columns that are features, in this order; all others are left out.
    person : str, optional
        The column that says which person an example is about.
    names : bool
        Whether labels are names, even where all that the file has look like numbers.

    Returns
    -------
    Examples
        Features [n, features]; labels as numbers if all of them are and ``names`` does not say otherwise, else
        as text.

    Raises
    ------
    DataError
        For a column that is not there, a row of another length, or a feature that is not a finite number;
        it names the file, the line and the column.
    """
    rows = _rows(path)
    _, header = next(rows, (1, []))
    found = _read_rows(path, rows, _columns(path, header, target, (owner, person), ignore, columns))
    if names or not all(map(_is_number, found.labels)):
        return found
    return replace(found, labels=np.array(found.labels.tolist(), np.float64))


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The rows that are not blank, each with the number of its (last) line."""
    try:
        text = read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: expected text in UTF-8, found byte {error.start} is not") from error
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for row in reader:
            if row:
                yield reader.line_num, row
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num}: not a CSV row ({error})") from error


def _columns(
    path: Path,
    header: list[str],
    target: str | int,
    whose: tuple[str | None, str | None],
    ignore: Sequence[str],
    columns: Sequence[str] | None,
) -> _Columns:
    names = [name.strip() for name in header]
    if len(names) < 2 or len(set(names)) < len(names):
        raise DataError(f"{path}: expected a header of two or more different names with commas, found {names}")
    if isinstance(target, int) and not -len(names) <= target < len(names):
        raise DataError(f"{path}: no column {target}; it has {len(names)}, numbered from 0")
    target_name = names[target] if isinstance(target, int) else target
    apart = [target_name, *filter(None, whose), *ignore]
    absent = [name for name in [*apart, *(columns or [])] if name not in names]
    if absent:
        raise DataError(f"{path}: no column {absent[0]!r}; its columns are {', '.join(names)}")
    chosen = [name for name in names if name not in apart] if columns is None else columns
    taken = {"owner": whose[:1], "person": whose[1:], "ignore": ignore, "features": chosen}
    for key, other in taken.items():
        if target_name in other:
            raise DataError(
                f"{path}: {key} names {target_name!r}, which is the target's column; name another column, or another "
                f"target (its columns are {', '.join(names)})"
            )
    if whose[1] in chosen:
        raise DataError(
            f"{path}: features names {whose[1]!r}, which says whose an example is and is no feature; leave it out"
        )
    if not chosen:
        raise DataError(f"{path}: expected a feature in a column of its own, found none beside {', '.join(apart)}")
    owner, person = (names.index(name) if name else None for name in whose)
    return _Columns(names, names.index(target_name), owner, person, list(map(names.index, chosen)))


def _read_rows(path: Path, rows: Iterator[tuple[int, list[str]]], columns: _Columns) -> Examples:
    values = array("d")
    labels: list[str] = []
    owners: list[str] = []
    persons: list[str] = []
    lines: list[int] = []
    for line, row in rows:
        if len(row) != len(columns.names):
            raise DataError(f"{path}, line {line}: expected {len(columns.names)} columns, found {len(row)}")
        try:
            values.extend([float(row[position]) for position in columns.features])
        except ValueError:
            raise _not_a_number(path, line, row, columns) from None
        labels.append(row[columns.target].strip())
        for whose, position in ((owners, columns.owner), (persons, columns.person)):
            if position is not None:
                whose.append(row[position].strip())
        lines.append(line)
    if not lines:
        raise DataError(f"{path}: expected rows below the header, found none")
    features = as_float32(values).reshape(len(lines), -1)
    names = [columns.names[position] for position in columns.features]
    require_finite(features, lambda row, column: f"{path}, line {lines[row]}, column {names[column]!r}")
    for what, cells in (("target", labels), ("owner", owners), ("person", persons)):
        if "" in cells:
            raise DataError(f"{path}, line {lines[cells.index('')]}: the {what} is empty")
    return Examples(
        features,
        np.array(labels),
        np.array(owners) if columns.owner is not None else None,
        np.array(persons) if columns.person is not None else None,
    )


def _not_a_number(path: Path, line: int, row: list[str], columns: _Columns) -> DataError:
    position = next(position for position in columns.features if not _is_number(row[position]))
    return DataError(
        f"{path}, line {line}, column {columns.names[position]!r}: expected a number, found "
        f"{row[position][:40]!r}; write categories as numbers, or name the column under 'ignore'"
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def read_npz(path: Path) -> Pair:
    """Read an NPZ archive.

    Its arrays are ``train_features`` [n, ...], ``train_targets`` [n], ``test_features``, ``test_targets``; or
    ``features`` and ``targets`` where the test examples are not apart. ``train_owners`` (or ``owners``) [n]
    says whose each example is, ``train_persons`` (or ``persons``) [n] which person it is about. CSR features
    [n, features] are three arrays and a shape in place of one array: ``features_data``, ``features_indices``,
    ``features_indptr`` and ``features_shape``, each with its prefix.
    Nothing in it is unpickled.

    Raises
    ------
    DataError
        If the file is no such archive, or its arrays are missing, not numeric or of different lengths.
    """
    arrays = read_arrays(path, read_bytes(path))
    prefixes = {name.partition("features")[0] for name in arrays if "features" in name}
    train = _from_arrays(path, arrays, "train_" if "train_" in prefixes else "")
    return train, _from_arrays(path, arrays, "test_") if "test_" in prefixes else None


def _from_arrays(path: Path, arrays: Mapping[str, npt.NDArray[np.generic]], prefix: str) -> Examples:
    names = [prefix + "features", prefix + "targets"]
    features = arrays.get(names[0], _sparse(path, arrays, names[0]))
    labels, owners, persons = (arrays.get(prefix + name) for name in ("targets", "owners", "persons"))
    if features is None or labels is None:
        raise DataError(
            f"{path}: expected arrays train_features and train_targets (and test_...), or features and "
            f"targets, found {', '.join(arrays) or 'none'}"
        )
    for name, values, kinds in ((names[0], features, "biuf"), (names[1], labels, "biufU")):
        if values.dtype.kind not in kinds:
            raise DataError(f"{path}: expected numbers in {name}, found {values.dtype}")
    if features.ndim < 2 or any(
        column.shape != features.shape[:1] for column in (labels, owners, persons) if column is not None
    ):
        raise DataError(
            f"{path}: expected {names[0]} [n, ...] and {names[1]} [n], "
            f"found {list(features.shape)} and {list(labels.shape)}"
        )
    converted = (
        with_entries(features, as_float32(features.data))
        if isinstance(features, sp.csr_array)
        else as_float32(features)
    )
    require_finite(converted, lambda row, column: f"{path}, {names[0]}, row {row + 1}, column {column + 1}")
    kept: Labels = labels.astype(np.str_) if labels.dtype.kind == "U" else labels.astype(np.float64)
    return Examples(
        converted,
        kept,
        None if owners is None else owners.astype(np.str_),
        None if persons is None else persons.astype(np.str_),
    )


_CSR = ("data", "indices", "indptr", "shape")


def _sparse(path: Path, arrays: Mapping[str, npt.NDArray[np.generic]], name: str) -> sp.csr_array | None:
    """The CSR array whose parts are in the archive; None where they are not."""
    parts = [arrays.get(f"{name}_{part}") for part in _CSR]
    data, indices, indptr, shape = parts
    if data is None or indices is None or indptr is None or shape is None:
        return None
    try:
        found = sp.csr_array((data, indices, indptr), shape=tuple(shape.tolist()))
        found.check_format(full_check=True)
    except (ValueError, TypeError) as error:
        raise DataError(f"{path}: {name}_data, _indices, _indptr and _shape are no CSR array ({error})") from error
    if not found.has_canonical_format:
        raise DataError(f"{path}: expected rising indices in each row of {name}")
    return found
