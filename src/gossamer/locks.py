"""Folders that belong to one process at a time.

The lock is on the folder itself, so nothing is left in it, and the system lets go of it when the process ends, however
it ends. Where there are no such locks, as on Windows and on some network file systems, nobody is refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gossamer.errors import CallerError

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
