"""Seal of a file: by which it is noticed when a row is not as it was written, is missing, or came in by another way.

Each row has a digest of 2048 bits, and the file has the sum of them all, modulo 2^2048, which follows rows as they come
and go: a transaction costs a digest for each row that it writes, however many there are. That sum, the statements that
made the tables, and the number of transactions so far go into one digest, which anybody can check, and into one under a
secret key, which nobody can make who does not have it. When a file is opened, all of it is computed from the rows.

A whole file that is older has a seal that is as good. So the newest number and digest are also in a small file beside
it, ``<file>.newest``, which is written after each transaction and never waited for: a crash of the machine may leave it
behind the file, and never before it. A file that is behind it is a copy, or has lost the end of its log. Once a file is
closed, and nobody else has it, a digest of all its bytes is there, too: also of those that hold nothing.

References
----------
.. [1] M. Bellare, D. Micciancio, "A new paradigm for collision-free hashing: incrementality at reduced cost",
   EUROCRYPT 1997: the sum is AdHash.
.. [2] D. Wagner, "A generalized birthday problem", CRYPTO 2002: why it has 2048 bits.
"""

from __future__ import annotations

import os
import re
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import blake2b, sha256, shake_128
from pathlib import Path
from typing import Any, NamedTuple

from gossamer.files import for_owner
from gossamer.protocol.encoding import Buffer, encode

TABLE = "CREATE TABLE seal (one INTEGER PRIMARY KEY, number INTEGER, total BLOB, digest BLOB, tag BLOB)"
_BYTES = 256
_MODULUS = 1 << (8 * _BYTES)
_OPEN = "-" * 32
_COUNTERS = ((24, 28), (40, 44), (92, 100))
_OF_PART = "of_part"
"""Column of a hash that is sealed in the place of the column ``part``, which may be long."""


def hash_of(part: Buffer) -> bytes:
    """Hash of what is written in many bytes: processors have instructions for SHA-256, which is fastest with them."""
    return sha256(part).digest()


class Broken(Exception):
    """Something in the file is not as it was written."""


class Older(Exception):
    """The file is sound, and is not the newest."""


class _SealState(NamedTuple):
    """Row of the seal: number of transactions, the sum, the digest, and that under the key (empty without one)."""

    number: int
    total: int
    digest: bytes
    tag: bytes


class AtRest(NamedTuple):
    """A file before it is opened: the line beside it, and the digest of its bytes; empty if it cannot be told."""

    said: bytes
    content: str


class Seal:
    """Seal of an open file, which follows what this connection writes.

    Parameters
    ----------
    connection : Connection
        Connection of the file, inside a transaction; its tables are there.
    tables : sequence of str
        The statements that made the tables whose rows are sealed.
    path : Path or None
        The file; None of one in memory.
    rests : AtRest
        Bytes and digest that were found before it was opened.
    key : bytes or None
        Secret key; without one a file can be checked, and can be written if it was made without one.

    Attributes
    ----------
    key : bytes or None
        The key of the transactions to come.
    next_key : bytes or None
        The key that the transaction under way seals with, if it is to be another one.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        tables: tuple[str, ...],
        path: Path | None,
        rests: AtRest,
        key: bytes | None,
    ) -> None:
        self._connection, self._path, self.key = connection, path, key
        self._rests = rests
        self._noted: _SealState | None = None  # the newest that is known to be in the file
        self.next_key: bytes | None = None
        self._state = _SealState(0, 0, b"", b"")
        self._total = 0
        self._columns = {name: self._columns_of(name, statement) for name, statement in map(_named, tables)}
        connection.create_function("sealed", -1, self._follow)
        connection.create_function("hash_of", 1, hash_of)
        for table, columns in self._columns.items():
            for event, calls in (("INSERT", ("NEW",)), ("DELETE", ("OLD",)), ("UPDATE", ("OLD", "NEW"))):
                made = "".join(f"SELECT sealed('{row}', '{table}', {_of(row, columns)}); " for row in calls)
                connection.execute(
                    f"CREATE TEMP TRIGGER sealed_{event}_{table} AFTER {event} ON main.{table} BEGIN {made}END"
                )

    def check(self) -> None:
        """Compare the whole file with its seal, inside a transaction.

        Raises
        ------
        Broken
            If it is not as it was written.
        Older
            If the file beside it knows of a newer one.
        """
        found = self._connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if found != "ok":
            raise Broken(" ".join(found.split()))
        self.begin()
        total = sum(_digest(table, row) for table, row in self._rows()) % _MODULUS
        if (total, self._made(b"")) != (self._state.total, self._state.digest):
            raise Broken("its rows are not what was written")
        self.check_newest()

    def begin(self, key: bytes | None = None) -> None:
        """Take up what the file has now, at the beginning of a transaction; ``key`` is that of this one and later ones.

        Raises
        ------
        Broken
            If it is not sealed by the key.
        """
        self.key = key or self.key
        self._state = self._read()
        self._total, self.next_key = self._state.total, None
        if self.key is not None and self._state.tag != self._made(self.key):
            raise Broken("it is not sealed with its key")

    def write(self) -> None:
        """Seal what the transaction has written; at its end."""
        key = self.next_key or self.key
        schema_too = self._made(b"", self._total % _MODULUS) != self._state.digest
        if not schema_too and self.next_key is None:
            return
        assert key is not None or not self._state.tag, "a file that is sealed by a key is written by who has the key"
        self._state = self._state._replace(number=self._state.number + 1, total=self._total % _MODULUS)
        tag = b"" if key is None else self._made(key)
        self._state = self._state._replace(digest=self._made(b""), tag=tag)
        row = self._state.number, self._state.total.to_bytes(_BYTES, "big"), self._state.digest, tag
        self._connection.execute("INSERT OR REPLACE INTO seal VALUES (0, ?, ?, ?, ?)", row)

    def note(self) -> None:
        """Write down beside the file how new it is; after the transaction."""
        self._noted = self._state
        self._write_newest(_OPEN)

    def note_closed(self) -> None:
        """Write down its bytes as well, once the connection is closed."""
        if self._path is not None:
            leave(self._path, self._write_newest)
            self._path = None

    def _write_newest(self, content: str) -> None:
        if self._path is None or self._noted is None:
            return
        path, line = newest_of(self._path), _line(self._noted.number, self._noted.digest.hex(), content)
        # It is a second look, and a disk that takes no more says so in the transactions themselves.
        with suppress(OSError), open(path, "r+b" if path.exists() else "wb", opener=for_owner) as file:
            file.write(line)

    def _follow(self, row: str, table: str, *values: Any) -> None:
        self._total += _digest(table, values) if row == "NEW" else -_digest(table, values)

    def _rows(self) -> Iterator[tuple[str, tuple[Any, ...]]]:
        for table, columns in self._columns.items():
            read = ", ".join(columns).replace(_OF_PART, f"CASE {_OF_PART} WHEN hash_of(part) THEN {_OF_PART} END")
            for row in self._connection.execute(f"SELECT {read} FROM main.{table} NOT INDEXED"):
                yield table, row

    def _made(self, key: bytes, total: int | None = None) -> bytes:
        """Digest of all that is sealed, under ``key`` if there is one."""
        schema = self._connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()
        sealed = blake2b(repr((self._state.number, schema)).encode(), digest_size=32, key=key)
        sealed.update((self._state.total if total is None else total).to_bytes(_BYTES, "big"))
        return sealed.digest()

    def _read(self) -> _SealState:
        found = self._connection.execute("SELECT number, total, digest, tag FROM seal").fetchall()
        if [tuple(map(type, row)) for row in found] != [(int, bytes, bytes, bytes)]:
            raise Broken("its seal is not one")
        [(number, total, digest, tag)] = found
        return _SealState(number, int.from_bytes(total, "big"), digest, tag)

    def check_newest(self) -> None:
        """Compare what the file is with what the one beside it knows of; as `check`."""
        if self._path is None or not (newest := newest_of(self._path)).exists():
            return
        if not (said := newest.read_bytes()):  # the machine went down before it was on disk
            return
        found = re.fullmatch(rb"(\d{20}) ([0-9a-f]{64}) ([0-9a-f-]{32}) [0-9a-f]{32}\n", said)
        number, digest, content = (
            (-1, "", "") if found is None else (int(found[1]), found[2].decode(), found[3].decode())
        )
        if said != _line(number, digest, content):
            raise Broken(f"{newest} beside it is not what was written")
        mine = self._state.number, self._state.digest.hex()
        if number > mine[0] or (number == mine[0] and digest != mine[1]):
            raise Older(f"it was written {mine[0]} times, and {newest} knows of {number}")
        # Whoever has opened it meanwhile has written another line.
        if number == mine[0] and said == self._rests[0] and content != self._rests[1]:
            raise Broken("its bytes are not those that it was closed with")

    def _columns_of(self, table: str, statement: str) -> tuple[str, ...]:
        columns = tuple(row[1] for row in self._connection.execute(f"PRAGMA main.table_info({table})"))
        if _OF_PART in columns:
            columns = tuple(name for name in columns if name != "part")
        # The order in which rows were written is told by their numbers, where they have one.
        return columns if "WITHOUT ROWID" in statement else ("rowid", *columns)


_HERE: Counter[str] = Counter()
"""Connections of this process to each file: whoever else opens and closes a file frees all locks that they have."""
_BY: dict[str, int] = {}
"""Process that opened each file last."""
_ONE_AT_A_TIME = threading.Lock()


def is_inherited(path: Path) -> bool:
    """Whether the process that this one was forked from has it open: SQLite takes its locks for this one's, too."""
    here = os.path.realpath(path)
    return _HERE[here] > 0 and _BY.get(here) != os.getpid()


def enter(path: Path) -> AtRest:
    """Count a connection of this process that is to be made; return what is found of a file that nobody has open."""
    with _ONE_AT_A_TIME, suppress(OSError):
        _HERE[os.path.realpath(path)] += 1
        _BY[os.path.realpath(path)] = os.getpid()
        if _HERE[os.path.realpath(path)] == 1 and not _log_of(path).exists():
            said = newest_of(path).read_bytes()
            if said and _OPEN.encode() not in said:
                return AtRest(said, _bytes_of(path))
    return AtRest(b"", "")


def leave(path: Path, note: Callable[[str], None] | None = None) -> None:
    """Count a connection less, which is closed; have the bytes noted if nobody has the file open."""
    with _ONE_AT_A_TIME, suppress(OSError):
        _HERE[os.path.realpath(path)] -= 1
        if note is not None and not _HERE[os.path.realpath(path)] and not _log_of(path).exists():
            note(_bytes_of(path))


def newest_of(path: Path) -> Path:
    """Return the file beside a sealed one that says how new it is."""
    return path.with_name(f"{path.name}.newest")


def _named(statement: str) -> tuple[str, str]:
    found = re.match(r"CREATE TABLE (\w+)", statement)
    assert found is not None
    return found[1], statement


def _of(row: str, columns: tuple[str, ...]) -> str:
    return ", ".join(f"{row}.{column}" for column in columns)


def _log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _bytes_of(path: Path) -> str:
    """Digest of all bytes of a file but for counters of SQLite's, which differ in a copy and hold nothing of ours."""
    with path.open("rb") as file:
        head = bytearray(file.read(100))
        for start, end in _COUNTERS:
            head[start:end] = bytes(end - start)
        found = blake2b(head, digest_size=16)
        while some := file.read(1 << 20):
            found.update(some)
    return found.hexdigest()


def _line(number: int, digest: str, content: str) -> bytes:
    said = f"{number:020d} {digest} {content}"
    return f"{said} {blake2b(said.encode(), digest_size=16).hexdigest()}\n".encode()


def _digest(table: str, row: tuple[Any, ...]) -> int:
    """Digest of a row, as messages are encoded: values of other types are others, and lengths keep them apart."""
    plain = [value + 0.0 if isinstance(value, float) else value for value in row]  # a file keeps no sign of zero
    return int.from_bytes(shake_128(encode((table, *plain))).digest(_BYTES), "big")
