"""NumPy's archives of arrays, none of which is read before it is known to be as large as its file says."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from gossamer.data.compression import archive, read_bytes
from gossamer.data.examples import Labelled, Labels, Pair, as_float32, require_finite, with_entries
from gossamer.errors import DataError


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


def _from_arrays(path: Path, arrays: Mapping[str, npt.NDArray[np.generic]], prefix: str) -> Labelled:
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
    return Labelled(
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


_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def read_arrays(path: Path, content: bytes) -> dict[str, npt.NDArray[np.generic]]:
    """Return the arrays of an NPZ archive, by name; nothing in it is unpickled.

    Raises
    ------
    DataError
        If it is no such archive, is damaged, or has an array that is larger than what there is of it.
    """
    try:
        with archive(path, content) as members:
            return {
                member.filename.removesuffix(".npy"): _array(members, member)
                for member in members.infolist()
                if not member.is_dir()
            }
    except DataError:
        raise
    # numpy reads a damaged header as code, which raises whatever it likes; what is encrypted is a RuntimeError
    except Exception as error:
        raise DataError(f"{path}: expected an NPZ archive of plain arrays ({error})") from None


def _array(members: zipfile.ZipFile, member: zipfile.ZipInfo) -> npt.NDArray[np.generic]:
    with members.open(member) as file:
        _check_size(file, member)
    with members.open(member) as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def _check_size(file: IO[bytes], member: zipfile.ZipInfo) -> None:
    """Refuse an array whose header says more than follows it: memory would be taken for all of it."""
    version = np.lib.format.read_magic(file)
    if version not in _HEADERS:
        raise ValueError(f"{member.filename} is of a version of NPY that is not known")
    shape, _, kind = _HEADERS[version](file)
    size = math.prod(shape) * kind.itemsize
    if not kind.hasobject and size > member.file_size:
        raise ValueError(f"{member.filename} has the shape {shape}, and fewer numbers")
