"""One SQLite file of a deployment: opened for one purpose only, written in whole transactions.

The write-ahead log is synchronised before a transaction counts as committed (``synchronous=FULL``), so what was
committed outlives the process and, as far as the disk keeps its word, the machine. A disk that confirms a write which
it then forgets is not provided for.
"""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gossamer.bounded import wrong_kind
from gossamer.errors import CallerError, GossamerError

IN_MEMORY = Path(":memory:")
"""A path for tests: a file that ends with its process."""


class StorageError(GossamerError):
    """Failure to write, or to read, what had to be kept; nothing that depends on it may go on."""


class NotWritable(StorageError, CallerError):
    """The place cannot be written: its disk is full, or its owner does not allow it. What was there is as it was."""


class WrongStore(StorageError, CallerError):
    """The file is another one than was meant: of another run, node, kind or version, or in use."""

    exit_code = 2


@dataclass(frozen=True)
class Format:
    """Format of a file.

    Attributes
    ----------
    what : str
        In words.
    identifier : int
        Four bytes that tell it from other SQLite files.
    version : int
        Of the tables; a file of a newer version is refused.
    tables : tuple of str
        The statements that make them, as they were in the first version.
    added : mapping of int to tuple of str, optional
        The statements that make what later versions have more, by version. A file of an older version is brought up to
        date when it is opened, if every version since only added tables, with what is in them, or triggers; otherwise
        it is refused.
    page_size : int
        Bytes of a page. Larger ones are faster for long values.
    log_pages : int
        How many pages the write-ahead log grows to before a commit moves them into the file itself, and what is left of
        it then. A transaction that is larger makes it grow for as long as it takes.
    another : str
        What to do if the file is another one than was meant.
    """

    what: str
    identifier: int
    version: int
    tables: tuple[str, ...]
    added: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    page_size: int = 4096
    log_pages: int = 1000
    another: str = "name another file for this one"

    def since(self, version: int) -> tuple[str, ...] | None:
        """The statements that bring a file of an older ``version`` up to date; None if there are none."""
        later = range(version + 1, self.version + 1)
        if not all(one in self.added for one in later):
            return None
        return tuple(statement for one in later for statement in self.added[one])


class File:
    """An open file.

    Parameters
    ----------
    path : Path
        Made if it does not exist, readable by its owner alone.
    layout : Format
        What it has to hold.
    header : mapping of str to str
        What it is about. Written when the file is made, compared when it is opened again.
    alone : bool
        Whether nobody else may have it open until `close`, or the process's end. Others wait for their turn.

    Raises
    ------
    WrongStore
        If it is something else, is about something else, is of another version or is in use. It is left as it was.
    StorageError
        If it cannot be opened, read or written.
    """

    def __init__(self, path: Path, layout: Format, header: Mapping[str, str], *, alone: bool) -> None:
        self.path, self._inside = path, False
        with explained(path):
            _make(path)
            self._connection = sqlite3.connect(
                path, timeout=1.0 if alone else 30.0, isolation_level=None, check_same_thread=False
            )
            try:
                self._open(layout, header, alone)
            except BaseException:
                self._connection.close()
                raise

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All that is written inside, or none of it; durable when this returns. One inside of another is part of that.

        Raises
        ------
        StorageError
            If it was not written, for want of space for example. After an error of the disk itself it may yet turn out
            to be there, whole, when the file is opened again.
        """
        if self._inside:
            yield
            return
        with explained(self.path):
            self.begin()
            self._inside = True
            try:
                yield
                self._inside = False
                self.commit()
            except BaseException:
                self._inside = False
                with suppress(sqlite3.Error):
                    if self._connection.in_transaction:
                        self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def rehearsal(self) -> Iterator[None]:
        """Forget all that is written inside, in whatever transactions, when it ends: for whether it would be refused.

        Raises
        ------
        StorageError
            As `transaction`.
        """
        self.begin()
        self._inside = True
        try:
            yield
        finally:
            self._inside = False
            with explained(self.path):
                self._connection.execute("ROLLBACK")

    def begin(self) -> None:
        """Begin a transaction that is open until `commit`; if anything inside fails, `close` forgets it all."""
        with explained(self.path):
            self._connection.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """End it; all that was written inside is durable when this returns."""
        with explained(self.path):
            self._connection.execute("COMMIT")

    def checkpoint(self) -> None:
        """Move what is in the write-ahead log into the file itself."""
        self.rows("PRAGMA wal_checkpoint(PASSIVE)")

    def execute(self, statement: str, *values: Any) -> None:
        """Write; inside a transaction."""
        with explained(self.path):
            self._connection.execute(statement, values)

    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Read."""
        with explained(self.path):
            return self._connection.execute(statement, values).fetchall()

    def close(self) -> None:
        """Let others have it."""
        with explained(self.path):
            self._connection.close()

    def _open(self, layout: Format, header: Mapping[str, str], alone: bool) -> None:
        if alone:
            self.execute("PRAGMA locking_mode=EXCLUSIVE")
        self._check_format(layout)
        self.execute(f"PRAGMA page_size={layout.page_size}")  # of a file that is made now
        self.execute(f"PRAGMA wal_autocheckpoint={layout.log_pages}")
        self.execute(f"PRAGMA journal_size_limit={layout.log_pages * layout.page_size}")
        self.execute("PRAGMA journal_mode=WAL")
        self.execute("PRAGMA synchronous=FULL")
        self.execute("PRAGMA fullfsync=ON")
        self.execute("PRAGMA secure_delete=OFF")  # what was deleted is as private as what is there
        with self.transaction():
            self._check_format(layout)  # somebody may just have made it
            if self._empty:
                self._fill(layout, header)
            self._bring_up_to_date(layout)
            found = dict(self.rows("SELECT name, value FROM header"))
            for name, expected in header.items():
                if found.get(name) != expected:
                    raise WrongStore(
                        f"{self.path} is {layout.what} of {name} {found.get(name)!r}, expected {name} {expected!r}; "
                        f"{layout.another}"
                    )

    def _fill(self, layout: Format, header: Mapping[str, str]) -> None:
        self.execute(f"PRAGMA application_id={layout.identifier}")
        self.execute(f"PRAGMA user_version={layout.version}")
        added = [statement for version in sorted(layout.added) for statement in layout.added[version]]
        for statement in ("CREATE TABLE header (name TEXT PRIMARY KEY, value TEXT NOT NULL)", *layout.tables, *added):
            self.execute(statement)
        for item in header.items():
            self.execute("INSERT INTO header VALUES (?, ?)", *item)

    def _bring_up_to_date(self, layout: Format) -> None:
        version = self.rows("PRAGMA user_version")[0][0]
        if version < layout.version:
            for statement in layout.since(version) or ():
                self.execute(statement)
            self.execute(f"PRAGMA user_version={layout.version}")

    @property
    def _empty(self) -> bool:
        return not self.rows("SELECT 1 FROM sqlite_master")

    def _check_format(self, layout: Format) -> None:
        identifier, version = (self.rows(f"PRAGMA {name}")[0][0] for name in ("application_id", "user_version"))
        if identifier == 0 and self._empty:
            return
        if identifier != layout.identifier:
            raise WrongStore(f"{self.path}: expected {layout.what}, found another SQLite file; {layout.another}")
        if version > layout.version or layout.since(version) is None:
            age = "a newer" if version > layout.version else "an older"
            raise WrongStore(
                f"{self.path} was written by {age} version of gossamer (format {version}, expected {layout.version}); "
                f"use the version that wrote it"
            )


def _make(path: Path) -> None:
    """An empty file for the owner's eyes only; one that exists is not touched, since closing it would unlock it."""
    if path == IN_MEMORY:
        return
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        _check_kind(path)
    except OSError as error:
        remedy = "make room and start again" if error.errno in _NO_ROOM else "name a file in a folder of your own"
        raise NotWritable(f"{path} cannot be made: {error.strerror}; {remedy}") from error


def _check_kind(path: Path) -> None:
    """Refuse what is no file: SQLite would wait for a pipe's other end, or say that a disk is broken."""
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        raise WrongStore(f"{path} cannot be opened: {error.strerror}; name another file") from None
    if not stat.S_ISREG(mode):
        raise WrongStore(f"{path}: {wrong_kind(mode)}; name another one")


_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_LEAST_ROOM = 1 << 16
"""Bytes without which SQLite cannot share a file with other processes, and calls that an error of the disk."""

_REASONS: dict[int, tuple[type[StorageError], str]] = {
    sqlite3.SQLITE_BUSY: (WrongStore, "is in use by another process; end that one first"),
    sqlite3.SQLITE_NOTADB: (
        WrongStore,
        "is no file of gossamer's, or is damaged; bring it back from a copy, or name another one if it never was",
    ),
    sqlite3.SQLITE_FULL: (NotWritable, "could not grow: the disk is full; nothing was written. Make room and restart"),
    sqlite3.SQLITE_IOERR: (StorageError, "could not be read or written: its disk reports an error; see to the disk"),
    sqlite3.SQLITE_READONLY: (NotWritable, "may not be written; give its owner that right, and that to its folder"),
    sqlite3.SQLITE_CANTOPEN: (NotWritable, "cannot be opened; expected a file, in a folder that may be written"),
    sqlite3.SQLITE_CORRUPT: (WrongStore, "is damaged; bring back a copy from before"),
}


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Errors of SQLite in one clear line."""
    try:
        yield
    except sqlite3.Error as error:
        # The lowest byte is the kind of the error; what is above it are details.
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_IOERR and path != IN_MEMORY and _is_full(path.parent):
            code = sqlite3.SQLITE_FULL
        kind, reason = _REASONS.get(code, (StorageError, ""))
        raise kind(f"{path} {reason}" if reason else f"{path} failed: {error}") from error


def _is_full(folder: Path) -> bool:
    try:
        return shutil.disk_usage(folder).free < _LEAST_ROOM
    except OSError:
        return False
