"""Contents of an owner's data sets, by keyed hashes of their examples, in the file of the ledger.

It tells whether a data set is what it was, and whether two of them have examples in common. Hashes of examples that are
gone stay: what was released of them stays spent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gossamer.errors import counted
from gossamer.runtimes.storage.file import File
from gossamer.runtimes.storage.names import require_own

TABLES = (
    # By which key the hashes are.
    "CREATE TABLE secret (mark BLOB NOT NULL)",
    "CREATE TABLE content (data_set TEXT NOT NULL, number INTEGER NOT NULL, accepted TEXT NOT NULL, "
    "fingerprint BLOB NOT NULL, examples INTEGER NOT NULL, added INTEGER NOT NULL, gone INTEGER NOT NULL, "
    "PRIMARY KEY (data_set, number))",
    # `last` is the number of the last content that had it.
    "CREATE TABLE example (data_set TEXT NOT NULL, hash BLOB NOT NULL, last INTEGER NOT NULL, "
    "PRIMARY KEY (data_set, hash)) WITHOUT ROWID",
)


@dataclass(frozen=True)
class Content:
    """Content of a data set.

    Attributes
    ----------
    fingerprint : bytes
        Keyed hash of all examples in their order.
    hashes : sequence of bytes
        Keyed hash of each example, in their order.
    """

    fingerprint: bytes
    hashes: Sequence[bytes]


class Difference(NamedTuple):
    """Difference between a content and the one before.

    Attributes
    ----------
    before, now : int
        Numbers of examples.
    added, gone : int
        Of different ones.
    comparable : bool
        False if the hashes of those before were forgotten with their key.
    """

    before: int
    now: int
    added: int
    gone: int
    comparable: bool = True

    def __str__(self) -> str:
        if not self.comparable:
            now = counted(self.now, "example", form=",")
            return f"{now}, and the hashes of the {self.before:,} before were forgotten with their key"
        if not self.added and not self.gone:
            how = "in another order" if self.before == self.now else "but some of them another number of times"
            return f"the same examples, {how}"
        changes = ((self.added, "new"), (self.gone, "gone"))
        parts = [f"{counted(n, 'example is', 'examples are', form=',')} {what}" for n, what in changes if n]
        return f"{' and '.join(parts)}, of {self.before:,} before and {self.now:,} now"


class Accepted(NamedTuple):
    """A content that was accepted, and when (ISO 8601, UTC)."""

    accepted: str
    fingerprint: bytes
    examples: int
    added: int
    gone: int


class Contents:
    """The contents of all data sets of one ledger.

    Attributes
    ----------
    file : File
        Of a ledger.
    """

    def __init__(self, file: File) -> None:
        self.file = file

    @property
    def mark(self) -> bytes | None:
        """Mark that tells the key of all hashes from others; None before there was one."""
        found = self.file.rows("SELECT mark FROM secret")
        return found[0][0] if found else None

    @property
    def untouched(self) -> bool:
        """Whether nothing depends on the key yet, and nothing was spent."""
        return not self.file.rows("SELECT 1 FROM content UNION ALL SELECT 1 FROM data_set")

    def renew(self, mark: bytes) -> None:
        """Forget all hashes, which are of no use without their key; inside a transaction."""
        for table in ("secret", "example"):
            self.file.execute(f"DELETE FROM {table}")
        self.file.execute("INSERT INTO secret VALUES (?)", mark)

    def check(self, data_set: str, content: Content, now: str) -> Difference | None:
        """Compare ``content`` with the one that was accepted last; the first one is accepted.

        Raises
        ------
        KnownElsewhere
            If the first one is known under another name.
        StorageError
            If it cannot be read or written.
        """
        with self.file.transaction():
            last = self._last(data_set)
            if last is None:
                require_own(self.file, data_set, content.hashes)
                self._insert(data_set, content, now, 0)
                return None
            number, accepted = last
            if accepted.fingerprint == content.fingerprint:
                return None
            return self._difference(data_set, number, accepted, content)

    def accept(self, data_set: str, content: Content, now: str, *, adds_up: bool = False) -> Difference | None:
        """Accept ``content`` in the place of the one before; how it differs, if there was one and it does.

        Parameters
        ----------
        data_set, content, now
            As for `check`.
        adds_up : bool
            Whether it may be known under other names: what all of them spend then adds up.

        Raises
        ------
        KnownElsewhere
            If it is, and may not.
        """
        with self.file.transaction():
            last = self._last(data_set)
            if not (adds_up or (last is not None and last[1].fingerprint == content.fingerprint)):
                require_own(self.file, data_set, content.hashes)
            if last is None:
                self._insert(data_set, content, now, 0)
                return None
            number, accepted = last
            if accepted.fingerprint == content.fingerprint:
                return None
            found = self._difference(data_set, number, accepted, content)
            self._insert(data_set, content, now, number + 1, found.added, found.gone)
            return found

    def overlaps(self, data_set: str) -> dict[str, int]:
        """Numbers of examples, present or gone, that a data set shares with each other one that it shares any with."""
        others = self.file.rows("SELECT DISTINCT data_set FROM content WHERE data_set != ?", data_set)
        statement = (
            "SELECT COUNT(*) FROM example AS mine JOIN example AS other "
            "ON other.data_set = ? AND other.hash = mine.hash WHERE mine.data_set = ?"
        )
        counts = {other: self.file.rows(statement, other, data_set)[0][0] for (other,) in sorted(others)}
        return {other: count for other, count in counts.items() if count}

    def history(self, data_set: str) -> list[Accepted]:
        """Every content that was accepted, in order."""
        statement = (
            "SELECT accepted, fingerprint, examples, added, gone FROM content WHERE data_set = ? ORDER BY number"
        )
        return [Accepted(*row) for row in self.file.rows(statement, data_set)]

    def _last(self, data_set: str) -> tuple[int, Accepted] | None:
        history = self.history(data_set)
        return (len(history) - 1, history[-1]) if history else None

    def _difference(self, data_set: str, number: int, accepted: Accepted, content: Content) -> Difference:
        rows = self.file.rows("SELECT hash FROM example WHERE data_set = ? AND last = ?", data_set, number)
        before, now = {hash for (hash,) in rows}, set(content.hashes)
        sizes = accepted.examples, len(content.hashes)
        return Difference(*sizes, len(now - before), len(before - now), comparable=bool(before))

    def _insert(
        self, data_set: str, content: Content, now: str, number: int, added: int | None = None, gone: int = 0
    ) -> None:
        size = len(content.hashes)
        row = data_set, number, now, content.fingerprint, size, size if added is None else added, gone
        self.file.execute("INSERT INTO content VALUES (?, ?, ?, ?, ?, ?, ?)", *row)
        for hash in content.hashes:
            self.file.execute(
                "INSERT INTO example VALUES (?, ?, ?) ON CONFLICT (data_set, hash) DO UPDATE SET last = excluded.last",
                data_set,
                hash,
                number,
            )
