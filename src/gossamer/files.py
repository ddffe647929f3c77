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

from gossamer.errors import CallerError

# Folders that belong to one process at a time.
#
# The lock is on the folder itself, so nothing is left in it, and the system lets go of it when the process ends,
# however it ends. Where there are no such locks, as on Windows and on some network file systems, nobody is refused.

_HELD: set[int] = set()
"""Descriptors of folders that this process has."""


class UnderWay(CallerError):
    """Another run writes to the folder."""


class FolderLock:
    """The lock on a folder.

    Parameters
    ----------
    path : Path
        The folder.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._descriptor = path, -1

    def take(self) -> None:
        """Have the folder for this process, until `give_back`; a folder that is not there is nobody's yet.

        Raises
        ------
        UnderWay
            If another run has it, in this process or elsewhere.
        """
        if self._descriptor in _HELD:
            return
        try:
            descriptor = os.open(self._path, os.O_RDONLY)
        except OSError:  # as on Windows, where folders cannot be opened
            return
        if not _locked(descriptor):
            process = _holder(descriptor)
            os.close(descriptor)
            who = "" if process is None else f" (process {process})"
            raise UnderWay(f"{self._path}: a run is still under way there{who}; wait for it, or end it")
        _HELD.add(descriptor)
        self._descriptor = descriptor

    def give_back(self) -> None:
        """Let others have the folder."""
        if self._descriptor in _HELD:
            _HELD.remove(self._descriptor)
            os.close(self._descriptor)


@contextmanager
def held(path: Path) -> Iterator[FolderLock]:
    """Have a folder for this process alone, as long as the block runs.

    Raises
    ------
    UnderWay
        If another run has it.
    """
    lock = FolderLock(path)
    lock.take()
    try:
        yield lock
    finally:
        lock.give_back()


def _locked(descriptor: int) -> bool:
    """Whether the lock is ours now, or there are none."""
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        pass
    return True


def _holder(descriptor: int) -> int | None:
    """The process of this machine that has the lock, where the system says so."""
    found = os.fstat(descriptor)
    place = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    try:
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return None
    locks = (line.split() for line in lines)  # such as "1: FLOCK ADVISORY WRITE 812 fe:00:2181 0 EOF"
    numbers = (int(words[4]) for words in locks if words[1:2] == ["FLOCK"] and words[5:6] == [place])
    return next((number for number in numbers if number > 0), None)


def _let_go() -> None:
    """In a process that was forked: only the one that took a lock is to keep it."""
    for descriptor in _HELD:
        os.close(descriptor)
    _HELD.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)


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
        Opener of the new file, as for `open`: by whom it may be read.
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
