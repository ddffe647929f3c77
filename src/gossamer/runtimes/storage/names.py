"""Data sets by content, in the file of a ledger: what is known under another name, and what a name becomes.

A budget belongs to examples, and the ledger keeps it by a name that the owner gives. So content that turns up under a
new name is looked for under all others. Where it is much of either, the owner has to say which of two things it is:

- **the same data by another name** (`rename`): everything that is kept under the old name is kept under the new one,
  in one transaction, and nothing under the old one;
- **other data that share examples**: what both names spend adds up for those.

How much is much: `MOST_SHARED` of the smaller of the two, of those examples that the new name did not have before.
Below that nothing is asked, as tables of few columns have rows in common by chance; but little by little it becomes
much, too: whoever gets beyond that share with all that a name ever had is asked then. Where the hashes of another name
were forgotten with their key, all that is new may be of that one, whichever name it is for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gossamer.errors import SpecError
from gossamer.runtimes.storage.file import File

MOST_SHARED = 0.1
_AT_ONCE = 500  # hashes in one question; SQLite takes some 1,000


@dataclass(eq=False)
class KnownElsewhere(Exception):
    """Content that is known under other names; nothing was accepted.

    Attributes
    ----------
    shared : dict of str to int
        How many of its different examples each other name has.
    examples : int
        How many it has.
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
    distinct = set(hashes)
    names = [name for (name,) in file.rows("SELECT DISTINCT data_set FROM content WHERE data_set != ?", data_set)]
    sizes = {name: file.rows("SELECT COUNT(*) FROM example WHERE data_set = ?", name)[0][0] for name in sorted(names)}
    begun = bool(file.rows("SELECT 1 FROM content WHERE data_set = ?", data_set))
    fresh = distinct - _known(file, data_set, distinct)
    forgotten = tuple(
        name for name, size in sizes.items() if not size and _may_be_much(file, name, len(fresh), len(distinct))
    )
    shared = {name: n for name, size in sizes.items() if size and (n := len(_known(file, name, fresh)))}
    much = {name: n for name, n in shared.items() if n > MOST_SHARED * min(len(distinct), sizes[name])}
    for name in shared.keys() - much.keys():
        if _grows_much(file, data_set, name, len(fresh), shared[name]):
            much[name] = len(_known(file, name, distinct))
    if much or forgotten:
        raise KnownElsewhere(much, len(distinct), forgotten, begun)


def _may_be_much(file: File, other: str, fresh: int, examples: int) -> bool:
    """Whether ``fresh`` of so many examples would be much of both, were all of them the forgotten ``other``'s."""
    statement = "SELECT examples FROM content WHERE data_set = ? ORDER BY number DESC LIMIT 1"
    theirs: int = file.rows(statement, other)[0][0]
    return min(fresh, theirs) > MOST_SHARED * min(examples, theirs)


def _grows_much(file: File, data_set: str, other: str, fresh: int, shared: int) -> bool:
    """Whether ``fresh`` examples more, of which ``other`` has ``shared``, make much of what was not much before.

    What was much before was confirmed by the owner.
    """
    count = "SELECT COUNT(*) FROM example WHERE data_set = ?"
    mine, theirs = (file.rows(count, name)[0][0] for name in (data_set, other))
    common = f"{count} AND hash IN (SELECT hash FROM example WHERE data_set = ?)"
    before = file.rows(common, data_set, other)[0][0]
    return bool(before <= MOST_SHARED * min(mine, theirs) and before + shared > MOST_SHARED * min(mine + fresh, theirs))


def _known(file: File, data_set: str, hashes: set[bytes]) -> set[bytes]:
    """Return those of ``hashes`` that are of examples that ``data_set`` has or had."""
    found: set[bytes] = set()
    for some in _chunks(sorted(hashes)):
        marks = ", ".join("?" * len(some))
        statement = f"SELECT hash FROM example WHERE data_set = ? AND hash IN ({marks})"
        found.update(hash for (hash,) in file.rows(statement, data_set, *some))
    return found


def _chunks(values: list[bytes]) -> Iterator[list[bytes]]:
    for start in range(0, len(values), _AT_ONCE):
        yield values[start : start + _AT_ONCE]


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
