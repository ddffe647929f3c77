"""LIBSVM text: one example a line, ``label index:value index:value ...``, indices from 1 (or 0) and rising.

``#`` begins a comment, as in SVMlight's files.

References
----------
C.-C. Chang, C.-J. Lin, "LIBSVM: a library for support vector machines", ACM TIST 2011; the format is
described in the package's README.
"""

from __future__ import annotations

import io
import re
from array import array
from pathlib import Path

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from gossamer.data.compression import read_bytes
from gossamer.data.examples import Labelled, Places, as_float32, require_finite
from gossamer.errors import DataError

# Possessive quantifiers: a malformed line is refused in one pass. Underscores would pass float() and int();
# nine digits keep an index within int32.
_PAIR = rb"[0-9]{1,9}+:[^\s:_]++"
_LINE = re.compile(rb"\s*+[^\s:_]++(?:\s++" + _PAIR + rb")*+\s*+")
_TOKEN = re.compile(_PAIR)


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


def _parse(
    path: Path,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64], array[float], list[int], list[int]]:
    """Labels [n], indices [entries] from 1, values [entries], where each row ends [n], line numbers [n]."""
    labels, indices, values = array("d"), array("q"), array("d")
    ends: list[int] = []
    lines: list[int] = []
    for number, line in enumerate(io.BytesIO(read_bytes(path)), 1):
        line = line.partition(b"#")[0]
        if not _LINE.fullmatch(line):
            if not line.strip():
                continue
            raise _malformed(path, number, line)
        tokens = line.replace(b":", b" ").split()
        if len(tokens) % 2 == 0:  # the pattern lets an empty value through in Python 3.11.2, whose ++ gives back
            raise _malformed(path, number, line)
        try:
            labels.append(float(tokens[0]))
            values.extend(map(float, tokens[2::2]))
        except ValueError:
            raise _malformed(path, number, line) from None
        indices.extend(map(int, tokens[1::2]))
        ends.append(len(indices))
        lines.append(number)
    if not lines:
        raise DataError(f"{path}: expected lines of 'label index:value ...', found none")
    return np.array(labels), np.array(indices, np.int64), values, ends, lines


def _check_indices(
    path: Path,
    indices: npt.NDArray[np.int64],
    indptr: npt.NDArray[np.int32],
    lines: list[int],
    features: int | None,
    first: int,
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


def _check_labels(path: Path, labels: npt.NDArray[np.float64], lines: list[int]) -> None:
    finite = np.isfinite(labels)
    if not finite.all():
        row = int(np.argmin(finite))
        raise DataError(f"{path}, line {lines[row]}: expected a finite label, found {labels[row]}")


def _malformed(path: Path, number: int, line: bytes) -> DataError:
    label, *pairs = line.split()
    culprit = next((pair for pair in pairs if not _is_pair(pair)), label)
    return DataError(
        f"{path}, line {number}: expected 'label index:value index:value ...' in numbers, "
        f"found {culprit[:40].decode(errors='replace')!r}"
    )


def _is_pair(token: bytes) -> bool:
    if not _TOKEN.fullmatch(token):
        return False
    try:
        float(token.split(b":")[1])
    except ValueError:
        return False
    return True
