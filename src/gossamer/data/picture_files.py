"""Pictures: a folder or a zip of them, and CIFAR-10 as it is published.

Pictures lie as ``train/<class>/<name>.jpg`` and, if there are, ``test/<class>/<name>.jpg``. CIFAR-10, in its binary
version, is six batches, in an archive or unpacked. A batch has records of 3,073 bytes: the class, then the red, green
and blue plane of a picture, row by row. The Python version is pickles, and nothing here reads any.

References
----------
A. Krizhevsky, "The CIFAR-10 dataset", https://www.cs.toronto.edu/~kriz/cifar.html, section "Dataset layout".
"""

from __future__ import annotations

import io
import tarfile
import warnings
import zipfile
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt

from gossamer.data.examples import Labelled, Pair
from gossamer.data.files import BATCHES, MOST_DATA, NAMES, archive, read_bytes, variant
from gossamer.errors import DataError
from gossamer.extras import install_line
from gossamer.files import read_file

_SHAPE = (3, 32, 32)
_RECORD = 1 + 3 * 32 * 32


def read_cifar10(path: Path) -> Pair:
    """Read an archive (``.tar``, also compressed), or a folder, of all six batches of the binary version.

    Returns
    -------
    pair of Labelled
        Features [n, 3, 32, 32], pixels in 0..255; labels are the names of the classes. Batches are in their order.

    Raises
    ------
    DataError
        If batches are missing, or one is no batch.
    """
    entries = _folder(path) if path.is_dir() else _archive(path)
    if missing := [name for name in BATCHES if name not in entries]:
        raise DataError(
            f"{path}: expected all batches of CIFAR-10, found no {', '.join(missing)}; get its binary version, "
            "cifar-10-binary.tar.gz"
        )
    batches = [_batch(path, name, entries[name]) for name in BATCHES]
    return _examples(batches[:-1]), _examples(batches[-1:])


def _folder(path: Path) -> dict[str, memoryview]:
    found = {name: variant(path, name) for name in BATCHES}
    return {name: memoryview(read_bytes(place)) for name, place in found.items() if place is not None}


def _archive(path: Path) -> dict[str, memoryview]:
    content = memoryview(read_bytes(path))
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
            members = [member for member in archive.getmembers() if member.isreg() and not member.issparse()]
    # what is in a damaged header is used as it is
    except (tarfile.TarError, ValueError, OverflowError, EOFError, OSError) as error:
        raise DataError(f"{path}: expected a tar archive of CIFAR-10 ({error}); get the file again") from None
    return {
        PurePosixPath(member.name).name: content[member.offset_data : member.offset_data + member.size]
        for member in members
    }


def _batch(path: Path, name: str, content: memoryview) -> npt.NDArray[np.uint8]:
    """Records [n, 3073] of a class and pixels."""
    if not content or len(content) % _RECORD:
        raise DataError(
            f"{path}: {name}: expected a batch of CIFAR-10, found {len(content)} bytes, which are no records of "
            f"{_RECORD}; get the file again"
        )
    records = np.frombuffer(content, np.uint8).reshape(-1, _RECORD)
    if (most := records[:, 0].max()) >= len(NAMES):
        raise DataError(f"{path}: {name}: expected pictures of classes 0..{len(NAMES) - 1}, found class {most}")
    return records


def _examples(batches: list[npt.NDArray[np.uint8]]) -> Labelled:
    records = np.concatenate(batches)
    return Labelled(records[:, 1:].astype(np.float32).reshape(-1, *_SHAPE), np.array(NAMES)[records[:, 0]])


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
    try:
        image_module = import_module("PIL.Image")
    except ImportError as error:
        raise DataError(f"pictures need Pillow, which is not here: {install_line('images')}") from error
    if path.is_dir():
        return _read_both(path, _folder_entries(path), image_module)
    try:
        with archive(path, read_file(path, MOST_DATA)) as members:
            return _read_both(path, _zip_entries(members), image_module)
    except (OSError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: expected a folder or a zip of pictures ({error})") from error


def _folder_entries(folder: Path) -> list[_Entry]:
    return [
        (PurePosixPath(file.relative_to(folder).as_posix()), partial(read_file, file, MOST_DATA))
        for file in folder.glob("*/*/*")
    ]


def _zip_entries(members: zipfile.ZipFile) -> list[_Entry]:
    return [(PurePosixPath(name), partial(members.read, name)) for name in members.namelist()]


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


def _pixels(path: Path, entry: _Entry, image_module: Any, mode: str) -> npt.NDArray[np.uint8]:
    """One picture [height, width] or [height, width, 3]; an empty ``mode`` lets the picture choose."""
    name, read = entry
    try:
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
    except (OSError, SyntaxError, zipfile.BadZipFile, image_module.DecompressionBombError) as error:
        raise DataError(f"{path}: {name} is not a picture that can be read ({error})") from error


def _size(picture: npt.NDArray[np.uint8]) -> str:
    return f"{picture.shape[1]}x{picture.shape[0]}"
