"""State that data sides keep over restarts, in one SQLite file: the mark of who masks, the records of a unit's server.

Whoever masks its updates marks the newest round that it has said something secret in (`sides.round_mark`); a unit's
server keeps the answers that later ones go on from (`privacy.streams.records`). No noise, key or sample is ever in it.
A server's records hold its raw state, so the file is as private as the unit's data.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gossamer.errors import DataError
from gossamer.privacy.streams.kept_records import Record
from gossamer.runtimes.storage.file import LOST, File, Format

FORMAT = Format(
    what="what a data side keeps",
    identifier=int.from_bytes(b"GSMD"),
    version=2,
    tables=(
        "CREATE TABLE mark (round INTEGER NOT NULL)",
        "CREATE TABLE record (number INTEGER PRIMARY KEY, state BLOB NOT NULL, answer BLOB NOT NULL)",
    ),
    damaged=LOST,
    older=LOST,
)
_NUMBERS = np.dtype("<f8")


class SideFile:
    """The file of one node of one run: a `RoundMark`, and `Records`.

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
        self.round = max((round for (round,) in self._file.rows("SELECT round FROM mark")), default=-1)

    def reached(self, round: int) -> None:
        """Mark ``round``; it is durable when this returns."""
        with self._file.transaction():
            self._file.execute("DELETE FROM mark")
            self._file.execute("INSERT INTO mark VALUES (?)", max(round, self.round))
        self.round = max(round, self.round)

    def kept(self) -> list[Record]:
        """The newest records, the oldest first.

        Raises
        ------
        DataError
            If their vectors are not of one size.
        """
        rows = self._file.rows("SELECT number, state, answer FROM record ORDER BY number")
        found = [Record(number, _vector(state), _vector(answer)) for number, state, answer in rows]
        sizes = {vector.size for record in found for vector in (record.state, record.answer)}
        if len(sizes) > 1:
            raise DataError(
                f"{self._file.path}: records have {sorted(sizes)} numbers, expected one size; it is damaged"
            )
        return found

    def keep(self, record: Record, most: int) -> None:
        """Keep ``record``, and no more than the newest ``most``; it is durable when this returns."""
        with self._file.transaction():
            content = (vector.astype(_NUMBERS).tobytes() for vector in (record.state, record.answer))
            self._file.execute("INSERT INTO record VALUES (?, ?, ?)", record.number, *content)
            self._file.execute("DELETE FROM record WHERE number <= ?", record.number - most)

    def close(self) -> None:
        """Let others have it."""
        self._file.close()


def _vector(content: bytes) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.frombuffer(content, _NUMBERS).astype(np.float64)
