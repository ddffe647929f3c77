"""Tables: CSV with a header row, and NumPy's NPZ."""

from __future__ import annotations

import csv
import io
import zipfile
import zlib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gossamer.data.examples import Examples, Labels, Pair, as_float32, read_bytes, require_finite
from gossamer.errors import DataError


@dataclass(frozen=True)
class _Columns:
    """Positions in a CSV row."""

    names: list[str]
    target: int
    owner: int | None
    features: list[int]


def read_csv(path: Path, target: str | int = -1, owner: str | None = None, ignore: Sequence[str] = ()) -> Examples:
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

    Returns
    -------
    Examples
        Features [n, features]; labels as numbers if all of them are, else as text.

    Raises
    ------
    DataError
        For a column that is not there, a row of another length, or a feature that is not a finite number;
        it names the file, the line and the column.
    """
    rows = _rows(path)
    _, header = next(rows, (1, []))
    return _read_rows(path, rows, _columns(path, header, target, owner, ignore))


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


def _columns(path: Path, header: list[str], target: str | int, owner: str | None, ignore: Sequence[str]) -> _Columns:
    names = [name.strip() for name in header]
    if len(names) < 2 or len(set(names)) < len(names):
        raise DataError(f"{path}: expected a header of two or more different names with commas, found {names}")
    if isinstance(target, int) and not -len(names) <= target < len(names):
        raise DataError(f"{path}: no column {target}; it has {len(names)}, numbered from 0")
    target_name = names[target] if isinstance(target, int) else target
    apart = [target_name, *([owner] if owner else []), *ignore]
    absent = [name for name in apart if name not in names]
    if absent:
        raise DataError(f"{path}: no column {absent[0]!r}; its columns are {', '.join(names)}")
    features = [position for position, name in enumerate(names) if name not in apart]
    if not features or target_name in apart[1:]:
        raise DataError(f"{path}: expected a target and features in columns of their own, found {names}")
    return _Columns(names, names.index(target_name), names.index(owner) if owner else None, features)


def _read_rows(path: Path, rows: Iterator[tuple[int, list[str]]], columns: _Columns) -> Examples:
    values = array("d")
    labels: list[str] = []
    owners: list[str] = []
    lines: list[int] = []
    for line, row in rows:
        if len(row) != len(columns.names):
            raise DataError(f"{path}, line {line}: expected {len(columns.names)} columns, found {len(row)}")
        try:
            values.extend([float(row[position]) for position in columns.features])
        except ValueError:
            raise _not_a_number(path, line, row, columns) from None
        labels.append(row[columns.target].strip())
        owners.append(row[columns.owner].strip() if columns.owner is not None else "")
        lines.append(line)
    if not lines:
        raise DataError(f"{path}: expected rows below the header, found none")
    features = as_float32(values).reshape(len(lines), -1)
    names = [columns.names[position] for position in columns.features]
    require_finite(features, lambda row, column: f"{path}, line {lines[row]}, column {names[column]!r}")
    owned = columns.owner is not None
    for what, cells in (("target", labels), ("owner", owners if owned else [])):
        if "" in cells:
            raise DataError(f"{path}, line {lines[cells.index('')]}: the {what} is empty")
    return Examples(features, _as_labels(labels), np.array(owners) if owned else None)


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


def _as_labels(texts: list[str]) -> Labels:
    if all(map(_is_number, texts)):
        return np.array(texts, np.float64)
    return np.array(texts, np.str_)


def read_npz(path: Path) -> Pair:
    """Read an NPZ archive.

    Its arrays are ``train_features`` [n, ...], ``train_targets`` [n], ``test_features``, ``test_targets``; or
    ``features`` and ``targets`` where the test examples are not apart. ``train_owners`` (or ``owners``) [n]
    says whose each example is. Nothing in it is unpickled.

    Raises
    ------
    DataError
        If the file is no such archive, or its arrays are missing, not numeric or of different lengths.
    """
    content = io.BytesIO(read_bytes(path))
    try:
        with np.load(content, allow_pickle=False) as archive:
            arrays: dict[str, npt.NDArray[np.generic]] = dict(archive)
    except (OSError, ValueError, TypeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path}: expected an NPZ archive of plain arrays ({error})") from error
    prefix = "train_" if "train_features" in arrays else ""
    train = _from_arrays(path, arrays, prefix)
    return train, _from_arrays(path, arrays, "test_") if "test_features" in arrays else None


def _from_arrays(path: Path, arrays: Mapping[str, npt.NDArray[np.generic]], prefix: str) -> Examples:
    names = [prefix + "features", prefix + "targets"]
    if not all(name in arrays for name in names):
        raise DataError(
            f"{path}: expected arrays train_features and train_targets (and test_...), or features and "
            f"targets, found {', '.join(arrays) or 'none'}"
        )
    features, labels, owners = arrays[names[0]], arrays[names[1]], arrays.get(prefix + "owners")
    for name, values, kinds in ((names[0], features, "biuf"), (names[1], labels, "biufU")):
        if values.dtype.kind not in kinds:
            raise DataError(f"{path}: expected numbers in {name}, found {values.dtype}")
    if features.ndim < 2 or any(
        column.shape != features.shape[:1] for column in (labels, owners) if column is not None
    ):
        raise DataError(
            f"{path}: expected {names[0]} [n, ...] and {names[1]} [n], "
            f"found {list(features.shape)} and {list(labels.shape)}"
        )
    converted = as_float32(features)
    require_finite(converted, lambda row, column: f"{path}, {names[0]}, row {row + 1}, column {column + 1}")
    kept: Labels = labels.astype(np.str_) if labels.dtype.kind == "U" else labels.astype(np.float64)
    return Examples(converted, kept, None if owners is None else owners.astype(np.str_))
