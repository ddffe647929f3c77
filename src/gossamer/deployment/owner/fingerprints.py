"""Keyed hashes of examples, for noticing on the owner's own machine that data changed. They are never sent.

What is hashed are the examples as their files have them, before a spec scales features or makes classes of labels: an
owner's data are the same whatever a run makes of them. Numbers count by value, so that a file that was compressed,
or written from dense to sparse, is what it was; the order of columns counts.
"""

from __future__ import annotations

import codecs
import csv
import hashlib
import io
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import scipy.sparse as sp

from gossamer.data.array_files import read_libsvm
from gossamer.data.datasets import read_files
from gossamer.data.examples import Labelled
from gossamer.data.files import MOST_DATA, archive, infer_format, opened, read_bytes
from gossamer.data.picture_files import SUFFIXES
from gossamer.data.settings import DatasetSettings, Format
from gossamer.data.table_files import parquet_table
from gossamer.errors import DataError
from gossamer.files import read_file
from gossamer.runtimes.storage.contents import Content

KEY_BYTES = 32
_LATIN = "gossamer.latin-1"  # name of a handler of bytes that are not UTF-8
_HASH_BYTES = 16  # 2^64 examples before two of them are likely to share one


def content_of(examples: Iterable[bytes], key: bytes) -> Content:
    """The keyed hashes of examples.

    Parameters
    ----------
    examples : iterable of bytes
        One each.
    key : bytes
        [32], secret: who has it can test whether an example of a known value is there.
    """
    hashes = [hashlib.blake2b(row, digest_size=_HASH_BYTES, key=key, person=b"example").digest() for row in examples]
    return hashed(hashes, key)


def hashed(hashes: Sequence[bytes], key: bytes) -> Content:
    """The content of examples with these hashes, in their order."""
    return Content(hashlib.blake2b(b"".join(hashes), digest_size=32, key=key, person=b"data set").digest(), hashes)


def examples_at(path: Path) -> Iterator[bytes]:
    """The examples of a file or a folder, those to test on too.

    Raises
    ------
    DataError
        If it is missing, malformed or empty.
    """
    if not path.exists():
        raise DataError(f"there is no file or folder {path}; correct its path")
    found = _rows(path)
    if (first := next(found, None)) is None:
        raise DataError(f"{path}: expected examples, found none")
    return chain([first], found)


def _rows(path: Path) -> Iterator[bytes]:
    if path.is_dir() and infer_format(path) not in ("idx", "datasets"):
        files = sorted(file for file in path.rglob("*") if file.is_file())
        return chain.from_iterable(_rows_in_folder(file) for file in files)
    try:
        form = infer_format(path)
    except DataError:  # a spec may know what the file's name does not say
        return (line.strip() for line in read_bytes(path).splitlines() if line.strip())
    return _ROWS[form](path)


def _rows_in_folder(file: Path) -> Iterator[bytes]:
    if file.suffix.lower() in SUFFIXES:
        return iter([_picture(PurePosixPath(file.as_posix()), read_file(file, MOST_DATA))])
    return _rows(file)


def _picture(name: PurePosixPath, content: bytes) -> bytes:
    """With its class, which is the folder it lies in."""
    return name.parent.name.encode() + b"\0" + content


def _pictures(path: Path) -> Iterator[bytes]:
    try:
        with archive(path, read_file(path, MOST_DATA)) as members:
            for name in sorted(members.namelist()):
                if PurePosixPath(name).suffix.lower() in SUFFIXES:
                    yield _picture(PurePosixPath(name), members.read(name))
    except (OSError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: expected a folder or a zip of pictures ({error})") from error


def _csv(path: Path) -> Iterator[bytes]:
    """Rows below the header, if there is one; which column is the target, and what separates cells, a spec says."""
    with opened(path) as file, io.TextIOWrapper(file, "utf-8-sig", _LATIN, newline="") as text:
        rows = (row for row in csv.reader(text) if row)
        try:
            first = next(rows, [])
            for row in rows if _are_names(first) else chain([first], rows):
                yield "\0".join(map(_cell, row)).encode()
        except csv.Error as error:
            raise DataError(f"{path}: expected rows with commas ({error})") from error


def _as_latin(error: UnicodeError) -> tuple[str, int]:
    """Letters for bytes that are not UTF-8, so that a table has the same rows once it is saved in UTF-8."""
    assert isinstance(error, UnicodeDecodeError)
    return error.object[error.start : error.end].decode("latin-1"), error.end


codecs.register_error(_LATIN, _as_latin)


def _are_names(row: list[str]) -> bool:
    """Whether a first row is no example: examples that are read without a header have some number."""
    return all(_number(text) is None for text in row) or row == [str(number) for number in range(len(row))]


def _number(text: str) -> float | None:
    try:
        return float(text) + 0.0
    except ValueError:
        return None


def _parquet(path: Path) -> Iterator[bytes]:
    for block in parquet_table(path).blocks:
        columns = (cells.tolist() if isinstance(cells, np.ndarray) else map(_cell, cells) for cells in block.cells)
        for row in zip(*columns):
            yield "\0".join(cell if isinstance(cell, str) else repr(cell + 0.0) for cell in row).encode()


def _cell(text: object) -> str:
    number = _number(str(text))
    return str(text).strip() if number is None else repr(number)


def _read(form: Format, path: Path) -> Iterator[bytes]:
    both = read_files(form, path, None, DatasetSettings(name="an owner's", path=path))
    return chain.from_iterable(_of_examples(examples) for examples in both if examples is not None)


def _libsvm(path: Path) -> Iterator[bytes]:
    """Rows of a file that counts from 1, or from 0 where that is an index: an owner's policy does not say which."""
    try:
        examples = read_libsvm(path)
    except DataError:
        examples = read_libsvm(path, first=0)
    return _of_examples(examples)


def _of_examples(examples: Labelled) -> Iterator[bytes]:
    return examples_of(examples.features, examples.labels)


def examples_of(features: Any, labels: Any) -> Iterator[bytes]:
    """Positions and values of the features that are not zero, then the label."""
    rows = _sparse(sp.csr_array(features if sp.issparse(features) else np.reshape(features, (len(labels), -1))))
    for (columns, values), label in zip(rows, labels.tolist(), strict=True):
        written = str(label if isinstance(label, str) else float(label)).encode()
        yield b"".join((columns.astype("<i8").tobytes(), b"|", values.astype("<f4").tobytes(), b"|", written))


def _sparse(features: Any) -> Iterator[tuple[Any, Any]]:
    tidy = features.copy()
    tidy.sum_duplicates()  # which sorts each row's columns as well
    tidy.eliminate_zeros()
    for start, stop in zip(tidy.indptr, tidy.indptr[1:]):
        yield tidy.indices[start:stop], tidy.data[start:stop]


_ROWS: dict[Format, Callable[[Path], Iterator[bytes]]] = {
    "csv": _csv,
    **dict.fromkeys(("parquet", "datasets"), _parquet),
    "images": _pictures,
    "libsvm": _libsvm,
    **{form: partial(_read, form) for form in ("npz", "idx", "cifar10")},
}
