"""Writing down every event and effect of a run."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from gossamer.errors import RunWarning, SpecError
from gossamer.experiment.prepared import Prepared
from gossamer.files import for_owner, named
from gossamer.protocol.trace import Step, check_is_trace, write_step


@contextmanager
def tracing(path: str | Path | None, prepared: Prepared) -> Iterator[Callable[[Step], None] | None]:
    """A function for a simulator's steps, which writes them to ``path``; None without one.

    Raises
    ------
    SpecError
        If that file cannot be written, or is something else.
    """
    if path is None:
        yield None
        return
    place = Path(path)
    file = _open_trace(place)

    def write(step: Step) -> None:
        with named(place):
            write_step(file, step)

    try:
        if prepared.cast.trust:
            warning = f"{path} will hold raw models of units: keep it as private as the data"
            warnings.warn(warning, RunWarning, stacklevel=4)
        yield write
    finally:
        with named(place):
            file.close()


def _open_trace(path: Path) -> BinaryIO:
    try:
        check_is_trace(path)
        # Raw models of units may be in it, so it is for nobody else to read.
        return open(path, "wb", opener=for_owner)
    except OSError as error:
        raise SpecError(f"{path}: cannot write the trace ({error.strerror}); choose another file") from None
