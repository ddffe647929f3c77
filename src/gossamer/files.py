"""Files that are written whole or not at all, most for their owner alone.

Files for their owner alone are so whatever the umask is: there is no moment at which others could open them.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO


def for_owner(path: str, flags: int) -> int:
    """Open a file for `open`, as its ``opener``: what it makes is for its owner alone, and so is what it finds."""
    descriptor = os.open(path, flags, 0o600)
    try:
        found = os.fstat(descriptor)
        # What is no file of ours, such as /dev/null, is left as it is.
        if os.name == "posix" and stat.S_ISREG(found.st_mode) and found.st_mode & 0o077:
            os.fchmod(descriptor, 0o600)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


@contextmanager
def replaced(path: Path, *, durable: bool = False, opener: Callable[[str, int], int] = for_owner) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of ``path`` at the end: whole, or not at all.

    Parameters
    ----------
    path : Path
        The file.
    durable : bool
        Whether it has to be on disk before anything else happens.
    opener : callable
        Of the new file, as for `open`: by whom it may be read.
    """
    beside = path.with_name(f".{path.name}.new")
    try:
        with open(beside, "wb", opener=opener) as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException as error:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise _naming(error, path, beside) from error.__cause__
    if durable:
        sync_names(path.parent)


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Have an error of the system name ``path``: of what is written to an open file, such as to a full disk, it names
    none."""
    try:
        yield
    except OSError as error:
        raise _naming(error, path) from error.__cause__


def _naming(error: BaseException, path: Path, beside: Path | None = None) -> BaseException:
    if not isinstance(error, OSError) or error.filename not in (None, str(beside)):
        return error
    return OSError(error.errno, error.strerror or str(error), str(path))


def append(path: Path, line: str) -> None:
    """Add a line to a file of its owner's, whole or not at all."""
    left = memoryview(line.encode())
    with named(path), open(path, "ab", buffering=0, opener=for_owner) as file:
        before = file.tell()
        try:
            while left:
                left = left[file.write(left) :]
        except OSError:
            with suppress(OSError):
                file.truncate(before)
            raise


def synced(path: Path) -> int:
    """Have all of a file on disk; the number of its bytes."""
    with named(path), open(path, "rb") as file:
        os.fsync(file.fileno())
        return os.fstat(file.fileno()).st_size


def sync_names(folder: Path) -> None:
    """Have what the names in a folder stand for on disk: a file that is new, or that took another's place."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_own(path: Path, content: str | bytes, *, durable: bool = False) -> None:
    """Replace a file, whole or not at all; it is on disk when this returns, if it has to be ``durable``."""
    with replaced(path, durable=durable) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def make_own_folder(path: Path) -> None:
    """Make a folder that nobody else can look into, and have it on disk; one that is there stays as it is."""
    new = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    for folder in new:
        sync_names(folder.parent)


def is_read_only(path: Path) -> bool:
    """Whether what a path is on may be read and not written, as a disk may be left after an error."""
    try:
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except OSError:
        return False


def to_json(value: Any, *, indent: int | None = None) -> str:
    """Standard JSON, in which there is no NaN or infinity."""
    return json.dumps(value, indent=indent, allow_nan=False)


def cache_home() -> Path:
    """Return the folder of all that Gossamer keeps between runs: ``gossamer`` in XDG_CACHE_HOME, or in ``~/.cache``.

    Whatever is in it may be deleted at any time; a run makes again what it needs.
    """
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gossamer"
