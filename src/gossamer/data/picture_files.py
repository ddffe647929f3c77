"""Pictures: a folder or a zip of them, and CIFAR-10 as it is published.

Pictures lie as ``train/<class>/<name>.jpg`` and, if there are, ``test/<class>/<name>.jpg``. CIFAR-10 is six batches in
one of two forms, in an archive or unpacked. A binary batch has records of 3,073 bytes: the class, then the red, green
and blue plane of a picture, row by row. A Python batch is a pickle of ``data``, the same planes as an array
[pictures, 3,072], and ``labels``.

References
----------
A. Krizhevsky, "The CIFAR-10 dataset", https://www.cs.toronto.edu/~kriz/cifar.html, section "Dataset layout".
"""

from __future__ import annotations

import io
import pickle
import pickletools
import tarfile
import warnings
import zipfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gossamer.arrays import IntArray
from gossamer.data.examples import Labelled, Pair
from gossamer.data.files import BINARY, MOST_DATA, NAMES, PYTHON, archive, read_bytes, variant
from gossamer.errors import DataError, failing_as
from gossamer.extras import require
from gossamer.files import read_file

_SHAPE = (3, 32, 32)
_PIXELS = 3 * 32 * 32


class _Batch(NamedTuple):
    """Pictures [n, 3072] and their classes [n]."""

    pixels: npt.NDArray[np.uint8]
    classes: IntArray


def read_cifar10(path: Path) -> Pair:
    """Read an archive (``.tar``, also compressed), or a folder, of all six batches in one of their forms.

    Returns
    -------
    pair of Labelled
        Features [n, 3, 32, 32], pixels in 0..255; labels are the names of the classes. Batches are in their order.

    Raises
    ------
    DataError
        If batches are missing, or one is no batch. Nothing that a pickle asks for is called.
    """
    entries = _folder(path) if path.is_dir() else _archive(path)
    for names, read in ((PYTHON, _pickled), (BINARY, _records)):
        if missing := [name for name in names if name not in entries]:
            if len(missing) == len(names):
                continue
            raise DataError(f"{path}: expected all batches of CIFAR-10, missing: {', '.join(missing)}")
        batches = [_checked(path, name, read, entries[name]()) for name in names]
        return _examples(batches[:-1]), _examples(batches[-1:])
    raise DataError(f"{path}: expected the batches of CIFAR-10 ({PYTHON[0]} or {BINARY[0]}, ...), found none of them")


def _folder(path: Path) -> Mapping[str, Callable[[], bytes]]:
    found = {name: variant(path, name) for name in PYTHON + BINARY}
    return {name: partial(read_bytes, place) for name, place in found.items() if place is not None}


def _archive(path: Path) -> Mapping[str, Callable[[], bytes]]:
    content = read_bytes(path)
    # What is in a damaged header is used as it is.
    odd = tarfile.TarError, ValueError, OverflowError, EOFError, OSError
    refusing = failing_as(DataError, f"{path}: expected a tar archive of CIFAR-10 (", "); get the file again", odd)
    with refusing, tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
        members = [member for member in archive.getmembers() if member.isreg() and not member.issparse()]
    return {
        PurePosixPath(member.name).name: partial(_part, content, member.offset_data, member.size) for member in members
    }


def _part(content: bytes, start: int, size: int) -> bytes:
    return content[start : start + size]


def _checked(path: Path, name: str, read: Callable[[bytes], _Batch], content: bytes) -> _Batch:
    with failing_as(DataError, f"{path}: {name}: expected a batch of CIFAR-10 (", "); get the file again", ValueError):
        batch = read(content)
    if batch.classes.size == 0 or batch.classes.min() < 0 or batch.classes.max() >= len(NAMES):
        raise DataError(f"{path}: {name}: expected pictures of classes 0..{len(NAMES) - 1}, found {_found(batch)}")
    return batch


def _found(batch: _Batch) -> str:
    return f"classes {batch.classes.min()}..{batch.classes.max()}" if batch.classes.size else "none"


def _records(content: bytes) -> _Batch:
    if len(content) % (1 + _PIXELS):
        raise ValueError(f"{len(content)} bytes, which are no records of {1 + _PIXELS}")
    rows = np.frombuffer(content, np.uint8).reshape(-1, 1 + _PIXELS)
    return _Batch(rows[:, 1:], rows[:, 0].astype(np.int64))


class _Noted:
    """A call that a pickle of NumPy's asks for, noted with the state that it would be given, and not made."""

    state: Any = ()

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Unpickler(pickle.Unpickler):
    """Reads plain data; whatever else a pickle names is refused before it is called."""

    def find_class(self, module: str, name: str) -> Any:
        if module.partition(".")[0] == "numpy" and name in ("_reconstruct", "ndarray", "dtype"):
            return _Noted
        if (module, name) == ("_codecs", "encode"):  # by which Python 3 writes bytes for Python 2
            return str.encode
        raise ValueError(f"a pickle of {module} {name}")


def unpickled(content: bytes) -> Any:
    """Return plain data of a pickle; nothing that it asks for is called, and no more memory taken than it has bytes.

    Raises
    ------
    ValueError
        If it is damaged, or is of anything but plain data and arrays of NumPy.
    """
    try:
        for opcode, argument, _ in pickletools.genops(content):
            if "BYTEARRAY" in opcode.name or ("PUT" in opcode.name and (argument or 0) > len(content)):
                raise ValueError(f"a pickle with {opcode.name}, which no plain data need")
        return _Unpickler(io.BytesIO(content), encoding="bytes").load()
    except ValueError:
        raise
    except Exception as error:  # what is in a damaged pickle is used as it is
        raise ValueError(f"a damaged pickle ({type(error).__name__})") from None


def matrix(found: Any) -> npt.NDArray[np.uint8]:
    """Return the array [rows, columns] of bytes that an unpickled object stands for.

    Raises
    ------
    ValueError
        If it is something else.
    """
    try:
        _, (rows, columns), kind, by_columns, values = found.state
        described, size = kind.arguments[0], len(values)
    except (AttributeError, TypeError, ValueError, IndexError):
        raise ValueError("no array of bytes with rows and columns") from None
    if described not in ("u1", b"u1") or by_columns:
        raise ValueError("an array that is not of unsigned bytes, row by row")
    if not isinstance(values, bytes) or type(rows) is not int or type(columns) is not int or rows * columns != size:
        raise ValueError(f"an array of {rows} x {columns} with {size} bytes")
    return np.frombuffer(values, np.uint8).reshape(rows, columns)


def _pickled(content: bytes) -> _Batch:
    found = unpickled(content)
    if not isinstance(found, dict):
        raise ValueError(f"a pickle of {type(found).__name__}")
    by_name = {key.decode("latin-1") if isinstance(key, bytes) else key: value for key, value in found.items()}
    if lacking := [name for name in ("data", "labels") if name not in by_name]:
        raise ValueError(f"a pickle without {' and '.join(lacking)}")
    pixels, labels = matrix(by_name["data"]), by_name["labels"]
    if pixels.shape[1] != _PIXELS or not isinstance(labels, list) or len(labels) != len(pixels):
        raise ValueError(f"an array {list(pixels.shape)}, not of {_PIXELS} pixels with a label each")
    if not all(type(label) is int and 0 <= label < len(NAMES) for label in labels):
        raise ValueError(f"labels that are no numbers from 0 to {len(NAMES) - 1}")
    return _Batch(pixels, np.array(labels, np.int64))


def _examples(batches: list[_Batch]) -> Labelled:
    pixels = np.concatenate([batch.pixels for batch in batches]).astype(np.float32)
    classes = np.concatenate([batch.classes for batch in batches])
    return Labelled(pixels.reshape(-1, *_SHAPE), np.array(NAMES)[classes])


SUFFIXES = (".jpg", ".jpeg", ".png")

MOST_PIXELS = 25_000_000
"""Of one picture; a few bytes may stand for any number of them."""

_Entry = tuple[PurePosixPath, Callable[[], bytes]]


def read_images(path: Path) -> Pair:
    """Read pictures of one size, the class being the folder they lie in.

    Parameters
    ----------
    path : Path
        A folder, or a zip, which is read without unpacking it.

    Returns
    -------
    pair of Labelled
        Features [n, channels, height, width], pixels in 0..255; grey pictures have one channel, all others
        three (RGB). Labels are the folders' names. Pictures are in order of their names.

    Raises
    ------
    DataError
        If Pillow is not installed, there are no pictures for training, one cannot be read, or sizes differ.
    """
    image_module = require("PIL.Image", "data of pictures need", "images", DataError)
    if path.is_dir():
        files: list[_Entry] = [
            (PurePosixPath(file.relative_to(path)), partial(read_file, file, MOST_DATA)) for file in path.glob("*/*/*")
        ]
        return _read_both(path, files, image_module)
    damaged = f"{path}: expected a folder or a zip of pictures (", ")", (OSError, zipfile.BadZipFile)
    with failing_as(DataError, *damaged), archive(path, read_file(path, MOST_DATA)) as members:
        entries: list[_Entry] = [(PurePosixPath(name), partial(members.read, name)) for name in members.namelist()]
        return _read_both(path, entries, image_module)


def _read_both(path: Path, entries: list[_Entry], image_module: Any) -> Pair:
    splits: dict[str, list[_Entry]] = {"train": [], "test": []}
    for name, read in sorted(entries, key=lambda entry: entry[0]):
        if len(name.parts) == 3 and name.parts[0] in splits and name.suffix.lower() in SUFFIXES:
            splits[name.parts[0]].append((name, read))
    if not splits["train"]:
        raise DataError(f"{path}: expected pictures as train/<class>/<name>.jpg or .png, found none")
    train = _read_split(path, splits["train"], image_module)
    return train, _read_split(path, splits["test"], image_module) if splits["test"] else None


def _read_split(path: Path, entries: list[_Entry], image_module: Any) -> Labelled:
    first = _pixels(path, entries[0], image_module, "")
    mode = "L" if first.ndim == 2 else "RGB"
    pixels = np.empty((len(entries), *first.shape), np.float32)
    for row, entry in enumerate(entries):
        picture = _pixels(path, entry, image_module, mode)
        if picture.shape != first.shape:
            raise DataError(
                f"{path}: expected pictures of one size, found {entry[0]} of {_size(picture)} "
                f"and {entries[0][0]} of {_size(first)}"
            )
        pixels[row] = picture
    channels_first = pixels[:, np.newaxis] if first.ndim == 2 else pixels.transpose(0, 3, 1, 2)
    labels = np.array([name.parts[1] for name, _ in entries])
    return Labelled(np.ascontiguousarray(channels_first), labels)


def picture(path: Path, name: str, content: bytes) -> npt.NDArray[np.uint8]:
    """One picture [channels, height, width] of what would be in a file of this name, refused as in `read_images`."""
    image_module = require("PIL.Image", "data of pictures need", "images", DataError)
    pixels = _pixels(path, (PurePosixPath(name), lambda: content), image_module, "")
    return np.atleast_3d(pixels).transpose(2, 0, 1)


def _pixels(path: Path, entry: _Entry, image_module: Any, mode: str) -> npt.NDArray[np.uint8]:
    """One picture [height, width] or [height, width, 3]; an empty ``mode`` lets the picture choose."""
    name, read = entry
    odd = OSError, SyntaxError, zipfile.BadZipFile, image_module.DecompressionBombError
    with failing_as(DataError, f"{path}: {name} is not a picture that can be read (", ")", odd):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", image_module.DecompressionBombWarning)  # its bound is above ours
            opened = image_module.open(io.BytesIO(read()))
        with opened as picture:
            if picture.width * picture.height > MOST_PIXELS:
                size = f"{picture.width}x{picture.height}"
                raise DataError(
                    f"{path}: expected at most {MOST_PIXELS} pixels in {name}, found {size}; make it smaller"
                )
            if picture.mode[0] in "IF":
                raise DataError(f"{path}: expected 8 bits a channel in {name}, found mode {picture.mode}")
            chosen = mode or ("L" if picture.mode in ("1", "L") else "RGB")
            return np.asarray(picture.convert(chosen), np.uint8)


def _size(picture: npt.NDArray[np.uint8]) -> str:
    return f"{picture.shape[1]}x{picture.shape[0]}"
