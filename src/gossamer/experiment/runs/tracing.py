"""Writing down every event and effect of a run."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from gossamer.errors import DataError, RunWarning, SpecError
from gossamer.experiment.preparation.prepared import Prepared
from gossamer.files import for_owner, named
from gossamer.protocol.trace import Step, check_is_trace, write_step


class TraceFile:
    """A file that a simulator's steps are written to; calling it adds one.

    Parameters
    ----------
    path : Path
        Path of the file.
    file : file
        Open to write to.
    """

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path, self._file = path, file

    def __call__(self, step: Step) -> None:
        with named(self._path):
            write_step(self._file, step)

    def snapshot(self) -> int | None:
        """Return how many bytes were written, which are on disk by then; None of a pipe or a device, which has none."""
        if not self._path.is_file():
            return None
        with named(self._path):
            self._file.flush()
            os.fsync(self._file.fileno())
            return self._file.tell()

    def restore(self, snapshot: int) -> None:
        """Go on after so many bytes; what is behind them is cut off.

        Raises
        ------
        DataError
            If there are fewer.
        """
        with named(self._path):
            if (found := self._file.seek(0, os.SEEK_END)) < snapshot:
                raise DataError(
                    f"{self._path}: expected the {snapshot} bytes that the checkpoint goes on from, found {found}; "
                    "give the trace of this run"
                )
            self._file.seek(snapshot)
            self._file.truncate()


@contextmanager
def tracing(path: str | Path | None, prepared: Prepared, *, goes_on: bool = False) -> Iterator[TraceFile | None]:
    """A function for a simulator's steps, which writes them to ``path``; None without one.

    A trace that ``goes_on`` keeps what is in it, until it is told how much of that is to stay.

    Raises
    ------
    SpecError
        If that file cannot be written, or is something else.
    """
    if path is None:
        yield None
        return
    place = Path(path)
    file = _open_trace(place, goes_on)
    try:
        if prepared.cast.trust:
            warning = f"{path} will hold raw models of units: keep it as private as the data"
            warnings.warn(warning, RunWarning, stacklevel=4)
        yield TraceFile(place, file)
    finally:
        with named(place):
            file.close()


def _open_trace(path: Path, goes_on: bool) -> BinaryIO:
    try:
        check_is_trace(path)
        # Raw models of units may be in it, so it is for nobody else to read.
        return open(path, "r+b" if goes_on else "wb", opener=for_owner)
    except OSError as error:
        raise SpecError(f"{path}: cannot write the trace ({error.strerror}); choose another file") from None
