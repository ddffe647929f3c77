"""Moments at which checkpoints of a run are made: by the machine's clock, and when somebody interrupts it.

The clock decides only when, between two events; what happens in the run depends on nothing here.
"""

from __future__ import annotations

import math
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import Any, Protocol

from gossamer.errors import DataError, GossamerError, MalformedMessage, RunWarning, SpecError
from gossamer.experiment.checkpoints import Checkpoint, Origin, write_checkpoint
from gossamer.experiment.driving import Keeper, Patience
from gossamer.numbers import real_number
from gossamer.runtimes.crew import next_due

EVERY = 60.0
"""Seconds from one checkpoint to the next, unless the caller says otherwise."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_MISFITS = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError)


def check_interval(seconds: float | None) -> None:
    """Raise unless checkpoints can be made every so many seconds; None makes none.

    Raises
    ------
    SpecError
        If they cannot.
    """
    if seconds is not None and not 0 <= real_number(seconds) < math.inf:
        raise SpecError(f"checkpoint: expected a finite number of seconds, 0 or more, or None, found {seconds!r}")


class Part(Protocol):
    """Part of a run that has a state."""

    def snapshot(self) -> Any:
        """Return all that changes, as data that `protocol.snapshots` encodes."""
        ...

    def restore(self, snapshot: Any) -> None:
        """Be as the part was whose `snapshot` this is."""
        ...


class Checkpoints(Keeper):
    """Keeps the state of one run in its results folder.

    Parameters
    ----------
    folder : Path
        Of the results.
    origin : Origin
        Of the run, with the ranges that were found before its first event.
    parts : mapping of str to Part
        All that has a state; the order is that in which it is restored.
    every : float
        Seconds from one checkpoint to the next; more where they would take too much of the run's time.
    """

    def __init__(self, folder: Path, origin: Origin, parts: Mapping[str, Part], every: float = EVERY) -> None:
        self._folder, self._origin, self._parts, self._every = folder, origin, parts, every
        self._before: dict[int, Any] = {}
        self._signal: int | None = None
        self.due = monotonic() + every

    def begin(self) -> None:
        """Keep that the run is about to begin, which needs nothing of the state of its nodes."""
        self._write(replace(self._origin, ranges=None), without=("simulator", "receipts"))

    def keep(self, patience: Patience) -> None:
        began = monotonic()
        self._write(self._origin, patience=tuple(patience))
        if self.due < math.inf:
            self.due = next_due(self._every, began)
        self._pass_on()

    def _write(self, origin: Origin, without: tuple[str, ...] = (), **more: Any) -> None:
        try:
            kept = {name: part.snapshot() for name, part in self._parts.items() if name not in without}
            state = {**dict.fromkeys(without), **kept}
            write_checkpoint(self._folder, origin, {**state, **more})
        except (OSError, TypeError, SpecError) as error:
            reason = getattr(error, "strerror", None) or error
            warnings.warn(f"{self._folder}: no checkpoint from here on ({reason}); the run goes on", RunWarning, 3)
            self.due = math.inf

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Have the first interrupt wait until the event under way is over and the state is kept; the second is at once.

        Elsewhere than in the main thread, and where nobody hears a signal, nothing is changed.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._before = {number: signal.getsignal(number) for number in _SIGNALS}
        self._before = {number: handler for number, handler in self._before.items() if callable(handler)}
        for number in self._before:
            signal.signal(number, self._hear)
        try:
            yield
        finally:
            for number, handler in self._before.items():
                signal.signal(number, handler)
        self._pass_on()

    def _hear(self, number: int, frame: FrameType | None) -> None:
        again, self._signal, self.due = self._signal is not None, number, -math.inf
        if again:
            self._before[number](number, frame)

    def _pass_on(self) -> None:
        """Interrupt the run, if somebody has meanwhile."""
        number, self._signal = self._signal, None
        if number is not None:
            self._before[number](number, sys._getframe())


def restore(checkpoint: Checkpoint, parts: Mapping[str, Part]) -> Patience | None:
    """Bring the parts of a run to where they were; return the patience of `drive` then, or None before the first event.

    Raises
    ------
    DataError
        If the state does not fit them, in one line.
    """
    state = checkpoint.state()
    try:
        for name, part in parts.items():
            if state[name] is not None:
                part.restore(state[name])
        return _patience(state["patience"]) if checkpoint.begun else None
    except MalformedMessage as error:  # the state of a shard
        raise _misfit(checkpoint, error) from None
    except GossamerError:
        raise
    except _MISFITS as error:
        raise _misfit(checkpoint, error) from None


def _misfit(checkpoint: Checkpoint, error: Exception) -> DataError:
    return DataError(
        f"{checkpoint.path}: its state does not fit this run ({type(error).__name__}: {str(error)[:80]}); run the spec "
        "as a new run"
    )


def _patience(found: Any) -> Patience:
    updates, idle, reached = found
    if type(updates) is not int or type(idle) is not int or not isinstance(reached, float | None):
        raise TypeError(f"expected two counts and a time, found {found}")
    return Patience(updates, idle, reached)
