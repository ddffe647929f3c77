"""Files of arrays: IDX, LIBSVM and NumPy's archives. None is read before it is known to be as large as its file says.

References
----------
Y. LeCun, C. Cortes, C. J. C. Burges, "The MNIST database of handwritten digits", section "File formats".
C.-C. Chang, C.-J. Lin, "LIBSVM: a library for support vector machines", ACM TIST 2011; the format is described in the
package's README.
"""

from __future__ import annotations

import io
import math
import re
from array import array
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from gossamer.arrays import Floats, IntArray
from gossamer.data.examples import Labelled, Labels, Pair, Places, as_float32, require_finite, with_entries
from gossamer.data.files import TEST, TRAIN, archive, read_bytes, variant
from gossamer.errors import DataError, failing_as

_MOST_DIMENSIONS = 8
_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_idx(path: Path) -> npt.NDArray[np.generic]:
    """The array of one IDX file, plain or compressed, in the machine's byte order.

    Raises
    ------
    DataError
        If the magic number is unknown or the length does not match the dimensions.
    """
    content = read_bytes(path)
    magic = content[:4]
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in _TYPES or magic[3] > _MOST_DIMENSIONS:
        raise DataError(
            f"{path}: expected an IDX file (two zero bytes, a type, the number of dimensions), "
            f"found {magic.hex(' ') or 'an empty file'}"
        )
    dtype, header = np.dtype(_TYPES[magic[2]]), 4 + 4 * magic[3]
    shape = tuple(np.frombuffer(content[4:header].ljust(4 * magic[3], b"\0"), ">u4").tolist())
    expected = header + math.prod(shape) * dtype.itemsize
    if len(content) != expected:
        raise DataError(f"{path}: expected {expected} bytes for shape {shape}, found {len(content)}")
    array = np.frombuffer(content, dtype, offset=header).reshape(shape)
    return array.astype(dtype.newbyteorder("="))


def read_idx_folder(folder: Path) -> Pair:
    """The four MNIST files of ``folder`` (any data set in their form), images as [n, 1, height, width].

    Pixels stay in 0..255. The t10k files may both be absent.

    Raises
    ------
    DataError
        If a file is missing or the files do not fit together.
    """
    found = {name: variant(folder, name) for name in TRAIN + TEST}
    required = TRAIN + (TEST if any(found[name] for name in TEST) else ())
    missing = [name for name in required if found[name] is None]
    if missing:
        raise DataError(f"expected IDX files in the folder {folder}, missing: {', '.join(missing)} (or .gz)")
    splits = [
        _read_split(images, labels)
        for images, labels in ([found[name] for name in names] for names in (TRAIN, TEST))
        if images and labels
    ]
    return splits[0], splits[1] if len(splits) == 2 else None


def _read_split(images: Path, labels: Path) -> Labelled:
    pixels, numbers = read_idx(images), read_idx(labels)
    if pixels.dtype != np.uint8 or pixels.ndim != 3:
        raise DataError(
            f"{images}: expected unsigned bytes [n, height, width], found {pixels.dtype} {list(pixels.shape)}"
        )
    if numbers.ndim != 1 or len(numbers) != len(pixels):
        raise DataError(f"{labels}: expected {len(pixels)} labels, found an array {list(numbers.shape)}")
    return Labelled(pixels[:, np.newaxis].astype(np.float32), numbers.astype(np.float64))


# LIBSVM text: an example a line, ``label index:value index:value ...``; ``#`` begins a comment, as in SVMlight's files.

# Underscores would pass float() and int(); nine digits keep an index within int32.
_NUMBER = rb"[-+]?(?:\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|(?i:nan|inf(?:inity)?))"
_PAIR = re.compile(rb"[0-9]{1,9}:" + _NUMBER)
_LINE = re.compile(rb"\s*" + _NUMBER + rb"(?:\s+[0-9]{1,9}:" + _NUMBER + rb")*\s*")


def read_libsvm(path: Path, features: int | None = None, first: int | None = None) -> Labelled:
    """Read a LIBSVM file, plain or compressed.

    Parameters
    ----------
    path : Path
        The file. Blank lines are skipped.
    features : int, optional
        Number of columns; by default as many as the largest index in the file says.
    first : int, optional
        Index of the first column, 1 or 0; by default 1.

    Returns
    -------
    Labelled
        With CSR features and labels as written, both as numbers.

    Raises
    ------
    DataError
        For a malformed line, an index that is repeated, out of order, below ``first`` or beyond ``features``, and a
        value that is not finite; it names the file and the line.
    """
    labels, indices, values, ends, lines = _parse(path)
    indptr = np.array([0, *ends], np.int32)
    start = 1 if first is None else first
    _check_indices(path, indices, indptr, lines, features, start)
    indices = indices + (1 - start)
    width = features if features is not None else int(indices.max(initial=1))
    rows = sp.csr_array((as_float32(values), (indices - 1).astype(np.int32), indptr), shape=(len(labels), width))
    require_finite(rows, lambda row, column: f"{path}, line {lines[row]}, index {column + start}")
    _check_labels(path, labels, lines)
    rows.eliminate_zeros()
    return Labelled(rows, labels, places=Places(str(path), np.array(lines, np.int64)))


def _parse(path: Path) -> tuple[Floats, IntArray, array[float], list[int], list[int]]:
    """Labels [n], indices [entries] from 1, values [entries], where each row ends [n], line numbers [n]."""
    labels, indices, values = array("d"), array("q"), array("d")
    ends: list[int] = []
    lines: list[int] = []
    for number, line in enumerate(io.BytesIO(read_bytes(path)), 1):
        line = line.partition(b"#")[0]
        if not _LINE.fullmatch(line):
            if not line.strip():
                continue
            label, *pairs = line.split()
            culprit = next((pair for pair in pairs if not _PAIR.fullmatch(pair)), label)
            raise DataError(
                f"{path}, line {number}: expected 'label index:value index:value ...' in numbers, "
                f"found {culprit[:40].decode(errors='replace')!r}"
            )
        tokens = line.replace(b":", b" ").split()
        labels.append(float(tokens[0]))
        values.extend(map(float, tokens[2::2]))
        indices.extend(map(int, tokens[1::2]))
        ends.append(len(indices))
        lines.append(number)
    if not lines:
        raise DataError(f"{path}: expected lines of 'label index:value ...', found none")
    return np.array(labels), np.array(indices, np.int64), values, ends, lines


def _check_indices(
    path: Path, indices: IntArray, indptr: npt.NDArray[np.int32], lines: list[int], features: int | None, first: int
) -> None:
    follows = np.ones(len(indices), bool)
    follows[indptr[:-1][np.diff(indptr) > 0]] = False
    rising = np.diff(indices, prepend=0) > 0
    largest = np.iinfo(np.int64).max if features is None else features - 1 + first
    wrong = (follows & ~rising) | (indices < first) | (indices > largest)
    if not wrong.any():
        return
    entry = int(np.argmax(wrong))
    row = int(np.searchsorted(indptr, entry, side="right")) - 1
    limits = f"from {first}" if features is None else f"from {first} to {largest}"
    before = f" after {indices[entry - 1]}" if follows[entry] else ""
    raise DataError(
        f"{path}, line {lines[row]}: expected indices {limits}, each larger than the one before, "
        f"found {indices[entry]}{before}"
        + ("; where features are counted from 0, say dataset.first_index: 0" if indices[entry] == 0 else "")
    )


def _check_labels(path: Path, labels: Floats, lines: list[int]) -> None:
    finite = np.isfinite(labels)
    if not finite.all():
        row = int(np.argmin(finite))
        raise DataError(f"{path}, line {lines[row]}: expected a finite label, found {labels[row]}")


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
    whose, about = (None if who is None else who.astype(np.str_) for who in (owners, persons))
    return Labelled(converted, kept, whose, about)


_CSR = ("data", "indices", "indptr", "shape")


def _sparse(path: Path, arrays: Mapping[str, npt.NDArray[np.generic]], name: str) -> sp.csr_array | None:
    """The CSR array whose parts are in the archive; None where they are not."""
    parts = [arrays.get(f"{name}_{part}") for part in _CSR]
    data, indices, indptr, shape = parts
    if data is None or indices is None or indptr is None or shape is None:
        return None
    what = f"{path}: {name}_data, _indices, _indptr and _shape are no CSR array ("
    with failing_as(DataError, what, ")", (ValueError, TypeError)):
        found = sp.csr_array((data, indices, indptr), shape=tuple(shape.tolist()))
        found.check_format(full_check=True)
    if not found.has_canonical_format:
        raise DataError(f"{path}: expected rising indices in each row of {name}")
    return found


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
                name.removesuffix(".npy"): np.lib.format.read_array(members.open(name), allow_pickle=False)
                for name in members.namelist()
                if not name.endswith("/")
            }
    except DataError:
        raise
    # numpy reads a damaged header as code, which raises whatever it likes; what is encrypted is a RuntimeError
    except Exception as error:
        raise DataError(f"{path}: expected an NPZ archive of plain arrays ({error})") from None
