"""Files of one node: the store of what has to outlive its process, and what it has witnessed, in SQLite.

A store is the journal of a `runtimes.host.Host`: its inputs in order, and a snapshot of its state that makes what came
before superfluous. Both are bytes here. What is written is *staged*; `SqliteStore.commit` returns when all that was
staged is durable, and what follows from it (a frame on a link, a task at the data side) may happen only then. Of what
was staged and not committed a crash keeps the first few entries, or none; it never keeps part of an entry, and never
takes back what was committed. No node could survive a disk that forgets what it confirmed: a message would be
acknowledged and gone.

Staged entries are written at once, into a transaction that stays open, so a commit has little left to do and nothing
waits in memory. They are written in parts: a state can be larger than memory that there is to spare. Of a large message
whose parts arrive one by one the first megabytes are committed meanwhile, so that the disk does not begin when the last
part is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from gossamer.protocol.encoding import Buffer
from gossamer.protocol.witnesses import Known, Seen
from gossamer.runtimes.storage.file import LOST, File, Format, NodeFile, StorageError, tables_of
from gossamer.runtimes.storage.seal import hash_of

# Memory of a witness, in one SQLite file: how far each peer's receipts went, and how far it has countersigned ours.
#
# All of it is public to the two. The file is apart from the ledger, so that a ledger that was put back alone is
# noticed. What a peer has now may become less; the most that it ever countersigned never does.

WITNESS_FORMAT = Format(
    what="what a witness of receipts keeps",
    identifier=int.from_bytes(b"GSMW"),
    version=4,
    tables=tables_of("witness"),
    damaged="put its newest copy back, or delete it with the file beside it and start the node while its peers are "
    "there, which say again what they have countersigned",
)
_KEPT = (
    "SELECT peer.name, seen, seen_head, told, told_head, IFNULL(releases, 0), IFNULL(head, x'') "
    "FROM peer LEFT JOIN evidence ON evidence.name = peer.name"
)
_PEER = (
    "INSERT INTO peer VALUES (?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET seen = excluded.seen, "
    "seen_head = excluded.seen_head, told = excluded.told, told_head = excluded.told_head"
)
_GROWN = (
    "INSERT INTO evidence VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE SET releases = excluded.releases, "
    "head = excluded.head WHERE excluded.releases > evidence.releases"
)
_NOTHING = Seen(0, b"")


class WitnessFile(NodeFile):
    """Witnesses of one node of one run."""

    layout = WITNESS_FORMAT

    def kept(self) -> Mapping[str, Known]:
        """Return what is known of each peer."""
        rows = self.rows(_KEPT)
        return {name: Known(_seen(*one[:2]), _seen(*one[2:4]), _seen(*one[4:])) for name, *one in rows}

    def keep(self, known: Mapping[str, Known]) -> None:
        """Keep what is known of some; it is durable when this returns."""
        with self.transaction():
            for name, one in known.items():
                row = name, *(one.seen or _NOTHING), *(one.told or _NOTHING)
                self.execute(_PEER, *row)
                if one.evidence is not None:
                    self.execute(_GROWN, name, *one.evidence)


def _seen(releases: int, head: bytes) -> Seen | None:
    return Seen(releases, head) if releases else None


_PART = 1 << 20  # most bytes in a row
_LONG = 1 << 16  # bytes that are worth a row of their own
_EARLY = 8 << 20  # bytes of staged entries that are committed though nobody asks

FORMAT = Format(
    what="the store",
    identifier=int.from_bytes(b"GSMS"),
    version=7,
    tables=tables_of("store"),
    page_size=1 << 14,
    log_pages=1 << 8,
    another="give another --store, if that is meant",
    damaged=LOST,
    older=LOST,
)
_LARGE = 1 << 20  # bytes of a model


class SqliteStore:
    """A store in one SQLite file, which is the node's alone until it is closed or its process ends.

    Parameters
    ----------
    path : str or Path
        Made if it does not exist.
    run, node : str
        Names of the run and of the node that it is of.
    key : bytes, optional
        The node's secret, by which the store is sealed.
    model : int, optional
        Number of bytes of the model that entries hold. If they are megabytes, pages are large, and what is written is
        moved from the log into the file once the node rests, unless it does not for four models, or 64 MiB: both cost
        time where a model waits to be durable.

    Raises
    ------
    WrongStore
        If the file is another node's or run's, of another version or kind, or in use.
    StorageError
        If it cannot be opened.
    """

    def __init__(self, path: str | Path, run: str, node: str, key: bytes | None = None, *, model: int = 0) -> None:
        self.name = str(path)
        layout = FORMAT if model < _LARGE else replace(FORMAT, page_size=1 << 16, log_pages=min(model >> 14, 1 << 10))
        self._file = File(Path(path), layout, {"run": run, "node": node}, alone=True, key=key)
        self._usable, self._staged = True, 0  # bytes in the open transaction
        self._logged = 0  # bytes since the log was last empty, as far as is known

    def append(self, entry: Sequence[Buffer]) -> None:
        """Stage an entry, in pieces.

        Raises
        ------
        StorageError
            If there is no room for it. The node is now ahead of its store and has to end; so the store takes no more.
        """
        with self._whole():
            self._write("journal", entry)
        if self._staged >= _EARLY:
            self.commit()

    def snapshot(self, state: Sequence[Buffer]) -> None:
        """Stage a state, in pieces, in the place of all entries so far.

        Raises
        ------
        StorageError
            As `append`.
        """
        with self._whole():
            self._file.execute("DELETE FROM journal")
            self._file.execute("DELETE FROM snapshot")
            self._write("snapshot", state)

    def commit(self) -> None:
        """Make all that was staged durable.

        Raises
        ------
        StorageError
            As `append`.
        """
        if self._usable and not self._staged:
            return
        with self._whole():
            self._file.commit()
            self._staged = 0

    def load(self) -> tuple[bytes | None, Iterator[bytes]]:
        """The newest snapshot, None if there is none, and the entries after it, which are read one by one."""
        return next(self._entries("snapshot"), None), self._entries("journal")

    def tidy(self) -> None:
        """Do now, while the node waits for others, what a commit would have to do some time: shorten a long log.

        Raises
        ------
        StorageError
            If the disk fails.
        """
        if self._usable and not self._staged and self._logged >= _PART:
            self._file.rows("PRAGMA wal_checkpoint(PASSIVE)")
            self._logged = 0

    def close(self) -> None:
        """End; what was staged and not committed is forgotten."""
        self._usable = False
        self._file.close()

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Around what may be written inside a transaction; if it fails, nothing more is."""
        if not self._usable:
            raise StorageError(
                f"{self.name} takes nothing more: it was closed, or a write to it failed; restart the node"
            )
        self._usable = False
        if not self._staged:
            self._file.begin()
        yield
        self._usable = True

    def _write(self, table: str, pieces: Sequence[Buffer]) -> None:
        for last, part in _parts(pieces):
            row = last, hash_of(part), part
            self._file.execute(f"INSERT INTO {table} (last, of_part, part) VALUES (?, ?, ?)", *row)
            self._staged += len(part) + 1  # so that what is empty is staged, too
            self._logged += len(part)

    def _entries(self, table: str) -> Iterator[bytes]:
        # A statement for each row: nothing is open while the caller works, so an interrupt then has nothing to close,
        # which would print a traceback where nobody can catch it.
        statement = f"SELECT number, last, part FROM {table} WHERE number > ? ORDER BY number LIMIT 1"
        parts: list[bytes] = []
        number = 0
        while found := self._file.rows(statement, number):
            [(number, last, part)] = found
            parts.append(part)
            if last:
                yield b"".join(parts)
                parts = []


def _parts(pieces: Iterable[Buffer]) -> Iterator[tuple[bool, Buffer]]:
    """Join ``pieces`` into parts of at most `_PART` bytes, each with whether it is the last one.

    Short pieces are put together; long ones, which are most of what is written, are not copied.
    """
    held: list[Buffer] = []
    size = 0
    for piece in pieces:
        rest = memoryview(piece)
        if size + len(rest) >= _LONG:
            yield False, b"".join(held)
            held, size = [], 0
            while len(rest) >= _LONG:
                yield False, rest[:_PART]
                rest = rest[_PART:]
        held.append(rest)
        size += len(rest)
    yield True, b"".join(held)
