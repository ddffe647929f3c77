"""Memory of a witness, in one SQLite file: how far each peer's receipts went, and how far it has countersigned ours.

All of it is public to the two. The file is apart from the ledger, so that a ledger that was put back alone is noticed.
What a peer has now may become less; the most that it ever countersigned never does.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gossamer.protocol.witnesses import Known, Seen
from gossamer.runtimes.storage.file import File, Format

FORMAT = Format(
    what="what a witness of receipts keeps",
    identifier=int.from_bytes(b"GSMW"),
    version=3,
    tables=(
        "CREATE TABLE peer (name TEXT PRIMARY KEY, seen INTEGER NOT NULL, seen_head BLOB NOT NULL, "
        "told INTEGER NOT NULL, told_head BLOB NOT NULL)",
        "CREATE TABLE evidence (name TEXT PRIMARY KEY, releases INTEGER NOT NULL, head BLOB NOT NULL)",
    ),
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


class WitnessFile:
    """The file of one node of one run.

    Parameters
    ----------
    path : Path
        Made if it does not exist, readable by its owner alone.
    run, node : str
        Whose it is.
    key : bytes, optional
        The node's secret, by which the file is sealed.

    Raises
    ------
    WrongStore
        If it is something else, another node's, or in use.
    StorageError
        If it cannot be read or written.
    """

    def __init__(self, path: Path, run: str, node: str, key: bytes | None = None) -> None:
        self._file = File(path, FORMAT, {"run": run, "node": node}, alone=True, key=key)

    def kept(self) -> Mapping[str, Known]:
        """Return what is known of each peer."""
        rows = self._file.rows(_KEPT)
        return {name: Known(_seen(*one[:2]), _seen(*one[2:4]), _seen(*one[4:])) for name, *one in rows}

    def keep(self, known: Mapping[str, Known]) -> None:
        """Keep what is known of some; it is durable when this returns."""
        with self._file.transaction():
            for name, one in known.items():
                row = name, *(one.seen or _NOTHING), *(one.told or _NOTHING)
                self._file.execute(_PEER, *row)
                if one.evidence is not None:
                    self._file.execute(_GROWN, name, *one.evidence)

    def close(self) -> None:
        """Let others have it."""
        self._file.close()


def _seen(releases: int, head: bytes) -> Seen | None:
    return Seen(releases, head) if releases else None
