"""Reading of files that other people made: of regular files alone, and no more of them than a bound.

A pipe keeps its reader waiting and a device such as ``/dev/zero`` never ends, so nothing is read before it is known to
be a file of a size that can be read. What is wrong is an `OSError`, whose ``strerror`` says so, as of a file that is
not there: whoever reads a file says already what it was for.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

MOST_TEXT = 1 << 22
"""Bytes of a file that somebody writes by hand: a spec, a policy, a list of nodes."""

MOST_RECORDS = 1 << 30
"""Bytes of a file that a run writes, such as its metrics."""

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


@contextmanager
def open_file(path: str | Path, most: int = MOST_TEXT) -> Iterator[BinaryIO]:
    """Open a regular file of at most ``most`` bytes; it may grow while it is read.

    Raises
    ------
    OSError
        If it cannot be read, is no regular file or is larger.
    """
    # A pipe must not make us wait for its other end; of a terminal we must not become the owner.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, flags)
    except ValueError as error:  # a null character
        raise _refused(path, f"no file can have this name ({error})") from None
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket cannot be opened
            raise _refused(path, wrong_kind(os.stat(path).st_mode)) from None
        raise
    try:
        found = os.fstat(descriptor)  # of the open file, so that it cannot be swapped
        if not stat.S_ISREG(found.st_mode):
            raise _refused(path, wrong_kind(found.st_mode))
        if found.st_size > most:
            raise _refused(path, _too_large(found.st_size, most))
        with open(descriptor, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(descriptor)


def read_file(path: str | Path, most: int = MOST_TEXT) -> bytes:
    """Return the content of a regular file of at most ``most`` bytes.

    Raises
    ------
    OSError
        If it cannot be read, is no regular file or is larger.
    """
    with open_file(path, most) as file:
        size = os.fstat(file.fileno()).st_size
        content = file.read(size + 1)  # room is made for all that is asked for, so not for ``most``
        if len(content) > size:
            content += file.read(most - size)
    if len(content) > most:  # it grew, or its system does not know its size
        raise _refused(path, _too_large(len(content), most))
    return content


def read_text(path: str | Path, most: int = MOST_TEXT) -> str:
    """Return the text of a regular file in UTF-8, without the mark of its byte order.

    Raises
    ------
    OSError
        As `read_file`, and for what is not UTF-8.
    """
    content = read_file(path, most)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _refused(path, f"it is not UTF-8 text (byte {error.start}); save it as UTF-8") from None


def real_path(path: str | Path) -> Path:
    """Return a path without links; one whose links lead in a circle stays as it is, for whoever opens it to say so."""
    return Path(os.path.realpath(path))


def in_bytes(size: int) -> str:
    """Return a number of bytes in words: ``4 MiB``."""
    for unit, name in ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:.3g} {name}"
    return f"{size} bytes"


def wrong_kind(mode: int) -> str:
    """Return what is wrong with something that is no file, by its mode."""
    return f"it is {_KINDS.get(stat.S_IFMT(mode), 'something else')}, expected a file"


def _too_large(size: int, most: int) -> str:
    return f"it has {in_bytes(size)}, expected at most {in_bytes(most)}"


def _refused(path: str | Path, why: str) -> OSError:
    return OSError(errno.EINVAL, why, str(path))


def elsewhere(folder: Path, file: str) -> str:
    """Say where ``file``, which was expected in ``folder``, is instead: nowhere, or in folders just below it."""
    try:
        if not folder.exists():
            return ", found no such folder"
        below = sorted(str(path.parent) for path in folder.glob(f"*/{file}"))
    except (OSError, ValueError):  # a name that is too long, or has a zero byte
        return ""
    more = f" and {len(below) - _NAMED:,} more" if len(below) > _NAMED else ""
    return f", found one in {', '.join(below[:_NAMED])}{more}" if below else ""


_NAMED = 3
"""Most folders that an error names."""
