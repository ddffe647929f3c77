"""Contents of an owner's data sets, by keyed hashes of their examples, in the file of the ledger.

It tells whether a data set is what it was, and whether two of them have examples in common. Hashes of examples that are
gone stay: what was released of them stays spent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gossamer.errors import SpecError, counted
from gossamer.runtimes.storage.file import File

# Data sets by content, in the file of a ledger: what is known under another name, and what a name becomes.
#
# A budget belongs to examples, and the ledger keeps it by a name that the owner gives. So content that turns up under a
# new name is looked for under all others. Where it is much of either, the owner has to say which of two things it is:
#
# - **the same data by another name** (`rename`): everything that is kept under the old name is kept under the new one,
#   in one transaction, and nothing under the old one;
# - **other data that share examples**: what both names spend adds up for those.
#
# How much is much: `MOST_SHARED` of the smaller of the two, of those examples that the new name did not have before.
# Below that nothing is asked, as tables of few columns have rows in common by chance; but little by little it becomes
# much, too: whoever gets beyond that share with all that a name ever had is asked then. Where the hashes of another
# name were forgotten with their key, all that is new may be of that one, whichever name it is for.

MOST_SHARED = 0.1


@dataclass(eq=False)
class KnownElsewhere(Exception):
    """Content that is known under other names; nothing was accepted.

    Attributes
    ----------
    shared : dict of str to int
        Number of its different examples that each other name has.
    examples : int
        Number of its examples.
    forgotten : tuple of str
        Names whose hashes were forgotten with their key, so that it may be one of them.
    begun : bool
        Whether the name that it is for had other content before, so that it cannot be another's new name.
    """

    shared: dict[str, int]
    examples: int
    forgotten: tuple[str, ...]
    begun: bool


def require_own(file: File, data_set: str, hashes: Sequence[bytes]) -> None:
    """Refuse content for ``data_set`` that is known under other names; inside a transaction.

    Raises
    ------
    KnownElsewhere
        If it is.
    """
    distinct, mine = set(hashes), _held(file, data_set)
    fresh = distinct - mine
    sizes = dict(file.rows("SELECT data_set, examples FROM content ORDER BY number"))  # of the newest content of each
    begun, much, forgotten = sizes.pop(data_set, None) is not None, dict[str, int](), list[str]()
    for name, size in sorted(sizes.items()):
        if not (theirs := _held(file, name)):
            forgotten += [name] if _is_much(min(len(fresh), size), len(distinct), size) else []
            continue
        new, before = len(fresh & theirs), len(mine & theirs)
        confirmed = _is_much(before, len(mine), len(theirs))  # by the owner, at that time
        if _is_much(new, len(distinct), len(theirs)):
            much[name] = new
        elif new and not confirmed and _is_much(before + new, len(mine) + len(fresh), len(theirs)):
            much[name] = len(distinct & theirs)
    if much or forgotten:
        raise KnownElsewhere(much, len(distinct), tuple(forgotten), begun)


def _is_much(shared: int, *sizes: int) -> bool:
    return shared > MOST_SHARED * min(sizes)


def _held(file: File, data_set: str) -> set[bytes]:
    """Hashes of examples that ``data_set`` has or had; none where they were forgotten with their key."""
    return {hash for (hash,) in file.rows("SELECT hash FROM example WHERE data_set = ?", data_set)}


def rename(file: File, old: str, new: str) -> None:
    """Keep under ``new`` all that is kept under ``old``, in one transaction.

    A node that still runs under the old name is refused its next release: what it was charged is not there any more.

    Raises
    ------
    SpecError
        If nothing is known of ``old``, or something of ``new``.
    StorageError
        If it cannot be written.
    """
    with file.transaction():
        columns = list(_columns(file))
        known = {name for table, column in columns for (name,) in file.rows(f"SELECT {column} FROM {table}")}
        if old not in known:
            raise SpecError(
                f"the ledger knows no data set {old!r}, so nothing was renamed; it knows "
                f"{', '.join(sorted(known)) or 'none'}"
            )
        if new in known:
            raise SpecError(
                f"data set {new!r} is in the ledger already, with what it consists of or has spent; two names are not "
                "made one: accept what they share with --adds-up"
            )
        for table, column in columns:
            file.execute(f"UPDATE {table} SET {column} = ? WHERE {column} = ?", new, old)
        for statement in _GUARDS:
            file.execute(statement)


def _columns(file: File) -> Iterator[tuple[str, str]]:
    """Tables and columns that hold names of data sets, those of later versions too."""
    for (table,) in file.rows("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"):
        found = {row[1] for row in file.rows(f"PRAGMA table_info({table})")}
        if table == "data_set":
            yield table, "name"
        elif "data_set" in found:
            yield table, "data_set"


_GUARDS = (
    "CREATE TRIGGER IF NOT EXISTS charges_of_known_runs BEFORE INSERT ON charge "
    "WHEN NOT EXISTS (SELECT 1 FROM run WHERE data_set = NEW.data_set AND name = NEW.run) "
    "BEGIN SELECT RAISE(ABORT, 'its data set was renamed; start the node again'); END",
    "CREATE TRIGGER IF NOT EXISTS known_data_sets BEFORE INSERT ON data_set "
    "WHEN NOT EXISTS (SELECT 1 FROM content WHERE data_set = NEW.name) "
    "BEGIN SELECT RAISE(ABORT, 'its data set was renamed; start the node again'); END",
)
"""Against processes that began before: what they write under the old name would be a budget of its own."""


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
        Numbers of different ones.
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
        File of a ledger.
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

    def compare(
        self, data_set: str, content: Content, now: str, *, replaces: bool, adds_up: bool = False
    ) -> Difference | None:
        """Compare ``content`` with the one that was accepted last; how it differs, if there was one and it does.

        The first one is accepted.

        Parameters
        ----------
        data_set, content, now
            Name of the data set, its content, and the time.
        replaces : bool
            Whether it is accepted in the place of the one before.
        adds_up : bool
            Whether it may be known under other names: what all of them spend then adds up.

        Raises
        ------
        KnownElsewhere
            If it is to be accepted, is known under another name and may not be.
        StorageError
            If it cannot be read or written.
        """
        with self.file.transaction():
            history = self.history(data_set)
            if history and history[-1].fingerprint == content.fingerprint:
                return None
            if not adds_up and (replaces or not history):
                require_own(self.file, data_set, content.hashes)
            number, size = len(history), len(content.hashes)
            if not history:
                self._insert(data_set, content, now, number, size, 0)
                return None
            found = self._difference(data_set, number - 1, history[-1], content)
            if replaces:
                self._insert(data_set, content, now, number, found.added, found.gone)
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

    def _difference(self, data_set: str, number: int, accepted: Accepted, content: Content) -> Difference:
        rows = self.file.rows("SELECT hash FROM example WHERE data_set = ? AND last = ?", data_set, number)
        before, now = {hash for (hash,) in rows}, set(content.hashes)
        sizes = accepted.examples, len(content.hashes)
        return Difference(*sizes, len(now - before), len(before - now), comparable=bool(before))

    def _insert(self, data_set: str, content: Content, now: str, number: int, added: int, gone: int) -> None:
        row = data_set, number, now, content.fingerprint, len(content.hashes), added, gone
        self.file.execute("INSERT INTO content VALUES (?, ?, ?, ?, ?, ?, ?)", *row)
        statement = (
            "INSERT INTO example VALUES (?, ?, ?) ON CONFLICT (data_set, hash) DO UPDATE SET last = excluded.last"
        )
        for hash in content.hashes:
            self.file.execute(statement, data_set, hash, number)
