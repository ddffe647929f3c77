"""The results folder, valid at every moment.

| file | what |
|---|---|
| `spec.yaml` | the complete spec, every default written out |
| `summary.json` | the outcome and the guarantee |
| `guarantee.json` | all that is proved, with its profile, for programs (`privacy.guarantee_card`) |
| `metrics.jsonl` | a line an evaluation |
| `metrics.csv` | the same as a table, for programs that read no JSON |
| `ledger.jsonl` | a line for each kind of release of each node, of very many for all that are alike |
| `receipts.jsonl` | a line for each release, or for many, in a chain that strangers can check (`sides.receipts`) |
| `model.safetensors` | the run's model, by the names of its parts, with `model.json` in its metadata |
| `model.json` | what the model is, and how rows are read for it (`trained.card`) |
| `evaluation.json` | histograms of scores that parties released with noise; only if they did |
| `private.jsonl` | what nodes recorded for themselves; only if they did |
| `nodes.json` | what each node did, written when the run ends (`records.NodeRecords`) |
| `nodes.npz` | the same of very many nodes, as arrays |
| `noise_secret.json` | the run's `NoiseSecret`, for its owner alone; only if it has one |
| `timing.json` | wall time and machine; the only file that differs between two runs of one seed and secret |
| `checkpoint.bin` | where the run goes on from if its process is killed; only until it ends |

All are for their owner alone, in a folder that nobody else can look into: models without noise, and what nodes recorded
for themselves, tell of the data. `summary.json`, `ledger.jsonl` and `model.safetensors` are replaced whole at each
evaluation, so a run that is interrupted, or killed, leaves a folder that is valid up to the last one.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gossamer.arrays import FloatArray
from gossamer.errors import DataError, SpecError, failing_as
from gossamer.experiment.preparation import secrets
from gossamer.files import FolderLock, append, held, make_own_folder, synced, to_json, write_own
from gossamer.objectives.released_scores import FILE as HISTOGRAMS
from gossamer.privacy import guarantee_card
from gossamer.privacy.guarantees import Guarantee
from gossamer.sides import receipts
from gossamer.trained.card import ARRAYS, Card, saved
from gossamer.trained.card import FILE as CARD
from gossamer.version import __version__, source_hash

UNFINISHED = ("running", "interrupted")
"""Statuses of runs that have not ended, in `summary.json`."""
EXPORTS = ("model.pt2", "model.onnx", "model.joblib")
"""Files that `gossamer export` puts beside a model; they go when it does."""
CHECKPOINT = "checkpoint.bin"
"""Where a run that is under way goes on from, if its process is killed (`checkpoints`)."""
FILES = (
    "spec.yaml",
    "summary.json",
    guarantee_card.FILE,
    "metrics.jsonl",
    "metrics.csv",
    "ledger.jsonl",
    receipts.FILE,
    "model.safetensors",
    "model.json",
    *EXPORTS,
    HISTOGRAMS,
    "private.jsonl",
    "nodes.json",
    "nodes.npz",
    secrets.FILE,
    "timing.json",
)
"""Files of a run that has ended."""


MOST_PACKED = 2**30
"""Bytes of a results folder that is sent to another machine, at most."""


class ResultsFolder:
    """A folder that a run writes to.

    Parameters
    ----------
    path : Path
        Path of the folder; made by `clear`, and untouched before.
    overwrite : bool
        Whether the results of an earlier run may be replaced.

    Raises
    ------
    SpecError
        If something is there and may not be replaced.
    """

    def __init__(self, path: Path, *, overwrite: bool = False) -> None:
        self.path = path
        self._lock: FolderLock | None = None
        _check_room(path, overwrite)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Have the folder for this run alone, as long as the block runs; if it is not there yet, from `clear` on.

        Raises
        ------
        UnderWay
            If another run has it.
        SpecError
            If it may not be written to.
        """
        if self.path.exists() and not os.access(self.path, os.W_OK | os.X_OK):
            raise SpecError(f"{self.path}: this folder may not be written to; make it writable, or give another")
        with held(self.path) as lock:
            self._lock = lock
            try:
                yield
            finally:
                self._lock = None

    def clear(self) -> None:
        """Make the folder, and delete what an earlier run wrote to it; nothing else."""
        with failing_as(SpecError, f"{self.path}: cannot make the results folder (", "); choose another --out"):
            make_own_folder(self.path)
            if self._lock is not None:
                self._lock.take()
            for name in (item.name for item in self.path.iterdir()):
                if name in (*FILES, CHECKPOINT) or (name.startswith(".") and name.endswith(".new")):
                    (self.path / name).unlink()

    def set_back(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Have the metrics end with ``rows``, as at an earlier moment, and delete what a killed process left half."""
        for item in self.path.iterdir():
            if item.name.startswith(".") and item.name.endswith(".new"):
                item.unlink()
        self.write_lines("metrics.jsonl", rows)

    def length(self, name: str) -> int:
        """Bytes of a file that only grows, which are on disk when this returns; 0 where there is none."""
        path = self.path / name
        return synced(path) if path.exists() else 0

    def cut(self, name: str, length: int) -> None:
        """Have a file that only grows end where it did when it had so many bytes.

        Raises
        ------
        DataError
            If it has fewer.
        """
        path = self.path / name
        if path.is_symlink():
            raise DataError(f"{path}: expected a file that the run wrote, found a link; bring back the file")
        if (found := path.stat().st_size if path.exists() else 0) < length:
            raise DataError(f"{path}: expected the {length} bytes that the checkpoint goes on from, found {found}")
        if length:
            os.truncate(path, length)
        else:
            path.unlink(missing_ok=True)

    def forget_checkpoint(self) -> None:
        """Delete the checkpoint of a run that has ended."""
        (self.path / CHECKPOINT).unlink(missing_ok=True)

    def write(self, name: str, content: str | bytes) -> None:
        """Replace a file, whole or not at all."""
        write_own(self.path / name, content)

    def write_json(self, name: str, value: Mapping[str, Any], *, indent: int | None = 2) -> None:
        self.write(name, to_json(value, indent=indent) + "\n")

    def write_lines(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        self.write(name, "".join(to_json(row) + "\n" for row in rows))

    def write_arrays(self, name: str, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        out = io.BytesIO()
        np.savez(out, **dict[str, Any](arrays))
        self.write(name, out.getvalue())

    def append(self, name: str, row: Mapping[str, Any]) -> None:
        append(self.path / name, to_json(row) + "\n")

    def write_guarantees(self, guarantees: Iterable[Guarantee], mechanism: Mapping[str, Any], run: str) -> None:
        """Write all that is proved, which the plan fixes before the first release."""
        software = guarantee_card.Software(name="gossamer", version=__version__, source=f"sha256:{source_hash()}")
        self._card = guarantee_card.GuaranteeCard.of(guarantees, mechanism, __version__, software, run=run)
        self.write(guarantee_card.FILE, self._card.to_json())

    def add_receipts(self, book: receipts.Book, *, late: bool = True) -> None:
        """Write down the receipts that were added to a book, as `Book.written` gives them."""
        append(self.path / receipts.FILE, book.written(late=late))

    def end_receipts(self, book: receipts.Book) -> None:
        """Write down the end of a book, and have the guarantee name it."""
        self.add_receipts(book)
        line, head = book.ended(card=self._card.digest)
        append(self.path / receipts.FILE, line)
        ended = self._card.ended(guarantee_card.ReceiptsHead(releases=head.releases, head=head.head))
        self.write(guarantee_card.FILE, ended.to_json())

    def write_model(self, model: FloatArray, card: Card) -> None:
        """Replace the model and its card, which is the same throughout a run, so that the two always fit."""
        self.write(CARD, card.to_json(indent=2) + "\n")
        self.write(ARRAYS, saved(model, card))


@contextmanager
def results_folder(path: str | Path | None, *, overwrite: bool = False) -> Iterator[ResultsFolder | None]:
    """The folder of a run, which has it to itself as long as the block runs; None where nothing is written.

    Raises
    ------
    CallerError
        If it cannot be had.
    """
    if path is None:
        yield None
        return
    folder = ResultsFolder(Path(path), overwrite=overwrite)
    with folder.held():
        yield folder


def packed(path: Path) -> dict[str, bytes]:
    """All files of a results folder by name, for another machine.

    Raises
    ------
    DataError
        If they are larger than another machine takes.
    """
    there = [path / name for name in FILES if (path / name).is_file()]
    size = sum(file.stat().st_size for file in there)
    if size > MOST_PACKED:
        raise DataError(
            f"expected results of at most {MOST_PACKED >> 20} MiB to send, found {size >> 20}; make this run where its "
            "results go"
        )
    return {file.name: file.read_bytes() for file in there}


def unpack(files: Mapping[str, bytes], path: Path) -> None:
    """Make a results folder of what another machine sent, ``summary.json`` last: it says what became of the run."""
    folder = ResultsFolder(path, overwrite=True)
    make_own_folder(path)
    last = "summary.json"
    with folder.held():
        for name in sorted(FILES, key=last.__eq__):
            if name in files:
                folder.write(name, files[name])
            else:
                (path / name).unlink(missing_ok=True)


def _check_room(path: Path, overwrite: bool) -> None:
    """Raise unless results may be written to ``path``."""
    what, remedy = f"{str(path)[:80]}: no such folder can be made (", "); choose another --out"
    with failing_as(SpecError, what, remedy, (OSError, ValueError)):
        there, folder = path.exists(), path.is_dir()
    above = next(place for place in (path.absolute(), *path.absolute().parents) if os.path.lexists(place))
    if not there and not (above.is_dir() and os.access(above, os.W_OK | os.X_OK)):
        found = "may not be written to" if above.is_dir() else "is no folder"
        raise SpecError(f"{path}: cannot make the results folder ({above} {found}); choose another --out")
    if there and not folder:
        raise SpecError(f"{path} is a file, expected a folder for the results; choose another --out")
    present = [item.name for item in path.iterdir()] if there else []
    if present and not overwrite:
        raise SpecError(f"{path} exists and is not empty; choose another --out, or replace it with --overwrite")
    if present and "summary.json" not in present and "spec.yaml" not in present:
        raise SpecError(f"{path} is not the results folder of a run, so it is not overwritten; choose another --out")
