"""One SQLite file of a deployment: opened for one purpose only, written in whole transactions.

The write-ahead log is synchronised before a transaction counts as committed (``synchronous=FULL``), so what was
committed outlives the process and, as far as the disk keeps its word, the machine. A disk that confirms a write which
it then forgets is not provided for.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import sqlite3
import stat
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from gossamer.errors import CallerError, GossamerError, failing_as, shortened
from gossamer.files import is_read_only, wrong_kind
from gossamer.runtimes.storage import seal
from gossamer.runtimes.storage.seal import Broken, Older, Seal

IN_MEMORY = Path(":memory:")
"""A path for tests: a file that ends with its process."""


class StorageError(GossamerError):
    """Failure to write, or to read, what had to be kept; nothing that depends on it may go on."""


class NotWritable(StorageError, CallerError):
    """The place cannot be written: its disk is full, or its owner does not allow it. What was there is as it was."""


class WrongStore(StorageError, CallerError):
    """The file is another one than was meant: of another run, node, kind or version, or in use."""

    exit_code = 2


class _Rehearsed(Exception):
    """The end of a rehearsal, by which its transaction is rolled back."""


class _Damaged(WrongStore):
    """SQLite cannot make sense of the file."""


LOST = (
    "put the newest copy of the node's whole state folder back; if there is none, the node's part in this run is over, "
    "and what was charged stays charged"
)
"""What to do without a file that a node goes on from."""


@dataclass(frozen=True)
class Format:
    """Format of a file.

    Attributes
    ----------
    what : str
        Name in words.
    identifier : int
        Four bytes that tell it from other SQLite files.
    version : int
        Version of the tables; a file of another version is refused.
    tables : tuple of str
        The statements that make them.
    page_size : int
        Bytes of a page. Larger ones are faster for long values.
    log_pages : int
        Number of pages that the write-ahead log grows to before a commit moves them into the file itself, and what is
        left of it then. A transaction that is larger makes it grow for as long as it takes.
    another : str
        Advice on what to do if the file is another one than was meant.
    damaged, older : str
        Advice on what to do if the file is not what was written, or is not the newest one.
    """

    what: str
    identifier: int
    version: int
    tables: tuple[str, ...]
    page_size: int = 4096
    log_pages: int = 1000
    another: str = "name another file for this one"
    damaged: str = "put the newest copy in its place"
    older: str = "put the newest one back"


def tables_of(name: str) -> tuple[str, ...]:
    """Statements of ``NAME.sql`` beside this module, each of which makes a table, without comments."""
    text = re.sub("--.*", "", Path(__file__).with_name(f"{name}.sql").read_text("utf-8"))
    return tuple(" ".join(statement.split()) for statement in text.split(";") if statement.strip())


class File:
    """An open file.

    Parameters
    ----------
    path : Path
        Made if it does not exist, readable by its owner alone.
    layout : Format
        Format that it has to have.
    header : mapping of str to str
        Facts of what it is about. Written when the file is made, compared when it is opened again.
    alone : bool
        Whether nobody else may have it open until `close`, or the process's end. Others wait for their turn.
    key : bytes, optional
        The secret key that the file is sealed with; without one it is compared with what its seal says by itself, and
        nothing is written to a file that is sealed with one.

    Raises
    ------
    WrongStore
        If it is something else, is about something else, is of another version, is in use, is not what was written
        or is older than it was. It is left as it was.
    StorageError
        If it cannot be opened, read or written.
    """

    def __init__(
        self, path: Path, layout: Format, header: Mapping[str, str], *, alone: bool, key: bytes | None = None
    ) -> None:
        self.path, self._layout, self._inside = path, layout, False
        if path != IN_MEMORY and seal.is_inherited(path):
            # What this process commits would be lost with the log that the other one removes when it closes the file.
            raise WrongStore(
                f"{path} was open when this process was forked from another, and what both write would "
                "be lost; fork before it is opened, or start processes by spawn"
            )
        with explained(path):
            _make(path)
            rests = seal.enter(path)
            self._connection = sqlite3.connect(
                path, timeout=1.0 if alone else 30.0, isolation_level=None, check_same_thread=False
            )
        try:
            with self._sound(opening=True):
                self._open(header, alone, key, rests)
        except BaseException:
            self._connection.close()
            seal.leave(path)
            raise

    def unlock(self, key: bytes) -> None:
        """Have the key of a file that was opened without it.

        Raises
        ------
        WrongStore
            If the file is not sealed with it.
        """
        with self.transaction(), self._sound():
            self._seal.begin(key)

    def seal_with(self, key: bytes) -> None:
        """Seal the file with a new key; inside a transaction."""
        self._seal.next_key = key

    def back_up(self, copy: Path) -> None:
        """Copy all of the file, with what is in its log, to one that does not exist yet; others may go on writing.

        Raises
        ------
        StorageError
            If it cannot be written.
        """
        if os.path.lexists(copy):
            raise NotWritable(f"{copy} exists already; name a file that does not")
        try:
            with explained(copy):
                _make(copy)
                with closing(sqlite3.connect(copy)) as other:
                    self._connection.backup(other)
        except BaseException:
            copy.unlink(missing_ok=True)
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
        with suppress(_Rehearsed), self.transaction():
            yield
            raise _Rehearsed

    def begin(self) -> None:
        """Begin a transaction that is open until `commit`; if anything inside fails, `close` forgets it all."""
        with self._sound():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                self._seal.begin()
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise

    def commit(self) -> None:
        """End it; all that was written inside is durable when this returns."""
        with explained(self.path):
            self._seal.write()
            self._connection.execute("COMMIT")
            self._seal.note()

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
        self._seal.note_closed()

    def damage(self, why: str) -> WrongStore:
        """Error of a file that holds something else than was written."""
        why = shortened(" ".join(why.split()), 200).strip("\"'")
        return WrongStore(f"{self.path} is damaged ({why}), so nothing goes on from it; {self._layout.damaged}")

    @contextmanager
    def _sound(self, *, opening: bool = False) -> Iterator[None]:
        """Have what is wrong with the file in one clear line: at an opening also what SQLite makes no sense of."""
        try:
            with explained(self.path):
                yield
        except (Broken, UnicodeDecodeError) as error:
            raise self.damage(str(error)) from None
        except Older as error:
            raise WrongStore(f"{self.path} is an older copy: {error}; {self._layout.older}") from None
        except StorageError as error:
            cause = error.__cause__
            code = getattr(cause, "sqlite_errorcode", 0)
            if (
                isinstance(error, _Damaged)
                or code in _CUT
                or (opening and type(error) is StorageError and code & 0xFF != sqlite3.SQLITE_IOERR)
            ):
                raise self.damage(str(cause)) from error
            raise

    def _open(self, header: Mapping[str, str], alone: bool, key: bytes | None, rests: seal.AtRest) -> None:
        layout = self._layout
        if alone:
            self.execute("PRAGMA locking_mode=EXCLUSIVE")
        self._check_format()
        self.execute(f"PRAGMA page_size={layout.page_size}")  # of a file that is made now
        self.execute(f"PRAGMA wal_autocheckpoint={layout.log_pages}")
        self.execute(f"PRAGMA journal_size_limit={layout.log_pages * layout.page_size}")
        self.execute("PRAGMA journal_mode=WAL")
        self.execute("PRAGMA synchronous=FULL")
        self.execute("PRAGMA fullfsync=ON")
        self.execute("PRAGMA secure_delete=OFF")  # what was deleted is as private as what is there
        self.execute("PRAGMA temp_store=MEMORY")
        self.execute("BEGIN IMMEDIATE")
        self._check_format()  # somebody may just have made it
        tables, fresh = (_HEADER, *layout.tables), self._empty
        if fresh:
            self.execute(f"PRAGMA application_id={layout.identifier}")
            self.execute(f"PRAGMA user_version={layout.version}")
            for statement in (seal.TABLE, *tables):
                self.execute(statement)
        path = None if str(self.path) == str(IN_MEMORY) else self.path
        self._seal = Seal(self._connection, tables, path, rests, key if fresh else None)
        if fresh:
            self._seal.check_newest()
            for item in header.items():
                self.execute("INSERT INTO header VALUES (?, ?)", *item)
        else:
            self._seal.check()
        found = dict(self.rows("SELECT name, value FROM header"))
        for name, expected in header.items():
            if found.get(name) != expected:
                raise WrongStore(
                    f"{self.path} is {layout.what} of {name} {found.get(name)!r}, expected {name} {expected!r}; "
                    f"{layout.another}"
                )
        if not fresh and key is not None:
            self._seal.begin(key)
        self.commit()

    @property
    def _empty(self) -> bool:
        return not self.rows("SELECT 1 FROM sqlite_master")

    def _check_format(self) -> None:
        layout = self._layout
        identifier, version = (self.rows(f"PRAGMA {name}")[0][0] for name in ("application_id", "user_version"))
        if identifier == 0 and self._empty:
            return
        if identifier != layout.identifier:
            raise WrongStore(
                f"{self.path}: expected {layout.what}, found another SQLite file, or it is damaged; {layout.another}"
            )
        if version != layout.version:
            age = "a newer" if version > layout.version else "an older"
            raise WrongStore(
                f"{self.path} was written by {age} version of gossamer (format {version}, expected {layout.version}), "
                "or is damaged; use the version that wrote it"
            )


class NodeFile(File):
    """A file of one node of one run, which is the node's alone.

    Parameters
    ----------
    path : Path
        Made if it does not exist, readable by its owner alone.
    run, node : str
        Names of the run and of the node that it is of.
    key : bytes, optional
        The node's secret, by which the file is sealed.

    Raises
    ------
    WrongStore, StorageError
        As `File`.
    """

    layout: ClassVar[Format]

    def __init__(self, path: Path, run: str, node: str, key: bytes | None = None) -> None:
        super().__init__(path, self.layout, {"run": run, "node": node}, alone=True, key=key)


_CUT = (sqlite3.SQLITE_IOERR_SHORT_READ,)
"""Errors of the disk that are none: the file is shorter than it says."""
_HEADER = "CREATE TABLE header (name TEXT PRIMARY KEY, value TEXT NOT NULL)"


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
    with failing_as(WrongStore, f"{path} cannot be opened: ", "; name another file"):
        mode = os.stat(path).st_mode
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
    sqlite3.SQLITE_CORRUPT: (_Damaged, "is damaged; see to its disk, and put the newest copy in its place"),
    sqlite3.SQLITE_CANTOPEN: (NotWritable, "cannot be opened; expected a file, in a folder that may be written"),
}
_OF_THE_DISK = (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)


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
        if code in _OF_THE_DISK and path != IN_MEMORY and is_read_only(path.parent):
            kind, reason = NotWritable, "cannot be written: its disk may only be read; have it mounted for writing"
        raise kind(f"{path} {reason}" if reason else f"{path} failed: {error}") from error


def _is_full(folder: Path) -> bool:
    try:
        return shutil.disk_usage(folder).free < _LEAST_ROOM
    except OSError:
        return False
