"""Files of data; compressed ones are taken apart no further than a bound, as a small one may stand for any amount."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO

from gossamer.errors import DataError
from gossamer.files import in_bytes, open_file

MOST_DATA = 1 << 34
"""Bytes of a file of data, and of what is in a compressed one: all of it has to fit into memory."""

FREE = 1 << 28
"""Bytes that may come of a compressed file whatever its own size is."""

MOST_GROWTH = 300
"""Beyond those, the most bytes for each byte of the compressed file. Tables grow by 100 times and less; a file that was
made to fill memory by 1000 and more."""

_PIECE = 1 << 20

_READERS: Mapping[str, Callable[[BinaryIO], Any]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
}
COMPRESSIONS = tuple(_READERS)
_DAMAGED = (OSError, EOFError, zlib.error, lzma.LZMAError)


def variant(folder: Path, name: str) -> Path | None:
    """The file ``name`` in ``folder``, plain or compressed; None where there is none."""
    candidates = (folder / (name + suffix) for suffix in ("", *COMPRESSIONS))
    return next((path for path in candidates if os.path.isfile(path)), None)


def read_bytes(path: Path) -> bytes:
    """The contents of a file, decompressed where its name ends in .gz, .bz2 or .xz; refused as `opened` refuses."""
    with opened(path) as file:
        return b"".join(iter(lambda: file.read(_PIECE), b""))


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file of data to read it from its beginning, decompressed where its name ends in .gz, .bz2 or .xz.

    Raises
    ------
    DataError
        If it is no regular file, cannot be read or is damaged, or grows by more than files of data do; also while it
        is read.
    """
    reader = _READERS.get(path.suffix, nullcontext)
    try:
        with open_file(path, MOST_DATA) as file:
            try:
                with reader(file) as stream:
                    yield io.BufferedReader(_BoundedStream(str(path), stream, file), _PIECE)
            except _DAMAGED as error:
                if reader is nullcontext:
                    raise
                raise DataError(
                    f"{path} is damaged or not a {path.suffix} file ({error}); get the file again"
                ) from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error


class _BoundedStream(io.RawIOBase):
    """A stream that grows no further than `check_growth` allows."""

    def __init__(self, what: str, stream: BinaryIO, file: BinaryIO) -> None:
        self._what, self._stream, self._file, self._produced = what, stream, file, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._stream.read(len(buffer))
        self._produced += len(piece)
        check_growth(self._what, self._produced, self._file.tell())
        buffer[: len(piece)] = piece
        return len(piece)


@contextmanager
def archive(path: Path, content: bytes) -> Iterator[zipfile.ZipFile]:
    """Open a zip whose members hold no more than files of data do.

    Raises
    ------
    BadZipFile
        If it is no zip.
    DataError
        If a member grows by more than files of data do.
    """
    with zipfile.ZipFile(io.BytesIO(content)) as found:
        held = packed = 0
        for member in found.infolist():
            held, packed = held + member.file_size, packed + member.compress_size
            check_growth(f"{path}: {member.filename[:80]}", held, packed)
        yield found


def check_growth(what: str, produced: int, size: int) -> None:
    """Refuse data that are larger than they may be, as ``produced`` bytes of ``size`` compressed ones.

    Raises
    ------
    DataError
        If so.
    """
    if produced > max(FREE, MOST_GROWTH * size) or produced > MOST_DATA:
        raise DataError(
            f"{what}: expected data, found {in_bytes(produced)} or more in {in_bytes(size)}, which no data are "
            "compressed to; decompress the file and look at what is in it"
        )
