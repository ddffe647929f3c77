"""Checkpoints of a run: one file in its results folder, from which the run goes on after its process was killed.

The first line says what it is. The second is a digest of all that follows, under a key that follows from the run's
noise secret where it has one. The third says, as JSON, of which run it is a checkpoint. The rest is the state, as
`protocol.snapshots` has it, so that reading it runs nothing but constructors. The file is replaced whole or not at all,
and deleted when the run ends. It is as private as the data, and for its owner alone.
"""

from __future__ import annotations

import hashlib
import json
import math
import signal
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from gossamer.errors import DataError, GossamerError, MalformedMessage, RunWarning, SpecError, real_number
from gossamer.experiment.preparation.ending import Keeper
from gossamer.experiment.preparation.secrets import FILE as SECRET
from gossamer.experiment.preparation.secrets import KeptSecret, check_mark
from gossamer.experiment.results.results_folder import CHECKPOINT
from gossamer.files import open_file, read_file, replaced
from gossamer.protocol.encoding import Buffer
from gossamer.protocol.snapshots import Kept, decode_snapshot, encode_snapshot, restore
from gossamer.version import __version__

# Moments at which checkpoints of a run are made: by the machine's clock, and when somebody interrupts it.
#
# The clock decides only when, between two events; what happens in the run depends on nothing here.

EVERY = 60.0
"""Seconds from one checkpoint to the next, unless the caller says otherwise."""
SHARE = 0.01
"""Most of the time of a run that keeping it takes."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_LATER = ("simulator", "receipts")  # have no state before the first event
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


class Checkpoints(Keeper):
    """Keeps the state of one run in its results folder.

    Parameters
    ----------
    folder : Path
        Folder of the results.
    origin : Origin
        Origin of the run, with the ranges that were found before its first event.
    parts : mapping of str to Kept
        All that has a state; the order is that in which it is restored.
    every : float
        Seconds from one checkpoint to the next; more where they would take too much of the run's time. Where they are
        infinite nothing is kept, and the first interrupt waits all the same, so that results are those of a moment.
    """

    def __init__(self, folder: Path, origin: Origin, parts: Mapping[str, Kept], every: float = EVERY) -> None:
        self._folder, self._origin, self._parts, self._every = folder, origin, parts, every
        self._before: dict[int, Any] = {}
        self._signal: int | None = None
        self.due = monotonic() + every

    def begin(self) -> None:
        """Keep that the run is about to begin, which needs nothing of the state of its nodes."""
        self._write(replace(self._origin, ranges=None), without=_LATER)

    def keep(self) -> None:
        began = monotonic()
        self._write(self._origin)
        if self.due < math.inf:
            now = monotonic()
            self.due = now + max(self._every, (now - began) / SHARE)
        self._pass_on()

    def _write(self, origin: Origin, without: tuple[str, ...] = ()) -> None:
        if self._every == math.inf:
            return
        try:
            parts = {name: part for name, part in self._parts.items() if name not in without}
            write_checkpoint(self._folder, origin, parts)
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


def go_on(checkpoint: Checkpoint, parts: Mapping[str, Kept]) -> None:
    """Bring the parts of a run to where they were.

    Raises
    ------
    DataError
        If the state does not fit them, in one line.
    """
    own = {name: part for name, part in parts.items() if checkpoint.begun or name not in _LATER}
    state = checkpoint.state(own)
    try:
        restore(own, state)
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


MOST = 1 << 34
"""Most bytes of a checkpoint."""
_FIRST = b"gossamer checkpoint 6\n"
_MOST_HEADER = 1 << 20


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True)
class Origin:
    """The run that a checkpoint is of, and what it was given that is in no spec.

    Attributes
    ----------
    gossamer : str
        Version of the library.
    spec : str
        SHA-256 of ``spec.yaml``.
    run : str
        Mark of the seed of the run's noise (`secrets.secret_seed`): the same where settings, examples and code are.
    traced, measured : bool
        Whether a trace is written, and whether the caller measures figures of its own.
    ranges : mapping of str to float, or None
        Ranges of columns that were found privately; None before the first event, when they are found anew.
    compiled : bool
        Whether the compiled loop makes the run, whose state is another than the simulator's.
    """

    gossamer: str
    spec: str
    run: str
    traced: bool
    measured: bool
    ranges: Mapping[str, float] | None = None
    compiled: bool = False


@dataclass
class Checkpoint:
    """A checkpoint as it was read.

    Attributes
    ----------
    path : Path
        Path of the file.
    origin : Origin
        Origin of the run.
    body : bytes
        State of the run, until that was asked for.
    """

    path: Path
    origin: Origin
    body: bytes = field(repr=False)

    @property
    def begun(self) -> bool:
        """Whether anything had happened by then."""
        return self.origin.ranges is not None

    def state(self, parts: Mapping[str, Kept] | None = None) -> dict[str, Any]:
        """Return the state of the run, for its ``parts``, which is not kept: it can be asked for once.

        Raises
        ------
        DataError
            If it is malformed.
        """
        body, self.body = self.body, b""
        try:
            found = decode_snapshot(body, parts)
        except MalformedMessage as error:
            raise _malformed(self.path, str(error)) from None
        if not isinstance(found, dict):
            raise _malformed(self.path, f"its state is a {type(found).__name__}")
        return found

    def check_run(self, run: str, traced: bool, measured: bool) -> None:
        """Raise unless it is of the run with the mark ``run``, which was given what this one is.

        Raises
        ------
        CallerError
            In one line.
        """
        folder, origin = self.path.parent, self.origin
        check_mark(folder, run, origin.run)
        for name, before, now in (("trace", origin.traced, traced), ("measure", origin.measured, measured)):
            if before and not now:
                raise SpecError(f"{folder}: the run was given a {name}, found none to go on with; give the same one")
            if now and not before:
                raise SpecError(f"{folder}: the run was given no {name}, found one to go on with; leave it out")


def spec_digest(folder: Path) -> str:
    """SHA-256 of the spec of a results folder."""
    return hashlib.sha256(read_file(folder / "spec.yaml")).hexdigest()


def write_checkpoint(folder: Path, origin: Origin, state: Mapping[str, Any]) -> None:
    """Replace the checkpoint of a results folder; it is on disk when this returns, if anything has happened by then.

    Raises
    ------
    TypeError
        If something in the state has no encoding.
    SpecError
        If it has more bytes than are read again.
    OSError
        If it cannot be written.
    """
    pieces = encode_snapshot(dict(state))
    if (size := sum(map(len, pieces))) > MOST - _MOST_HEADER:
        raise SpecError(f"a checkpoint has at most {MOST} bytes, found a state of {size}")
    header = json.dumps(asdict(origin)).encode() + b"\n"
    with replaced(folder / CHECKPOINT, durable=origin.ranges is not None) as file:
        file.write(_FIRST + _digest((header, *pieces), _key(folder)) + header)
        file.writelines(pieces)


def read_checkpoint(folder: Path) -> Checkpoint:
    """Return the checkpoint of a results folder, whose version and spec are these.

    Raises
    ------
    DataError
        In one line: if there is none, it is malformed, or of another version or another spec.
    """
    path = folder / CHECKPOINT
    try:
        with open_file(path, MOST) as file:
            if file.read(len(_FIRST)) != _FIRST:
                raise _malformed(path, "it begins with something else")
            digest, line = file.readline(_MOST_HEADER), file.readline(_MOST_HEADER)
            origin = _header(path, line)
            if origin.gossamer != __version__:
                raise DataError(
                    f"{path}: made by gossamer {origin.gossamer[:40]}, and this is {__version__}, which does other "
                    "things in between; go on with that version, or run the spec as a new run"
                )
            body = file.read()
        if digest != _digest((line, body), _key(folder)):
            why = "it was cut off, or changed"
            if not (folder / SECRET).exists():  # of a run with something to hide it is the key
                why += f", or its key is lost: expected the run's noise secret, {SECRET}, found none"
            raise _malformed(path, why)
        if origin.spec != spec_digest(folder):
            raise DataError(
                f"{path}: of another spec than {folder / 'spec.yaml'}, found beside it; bring back the one it was made "
                "with, or run this one as a new run"
            )
    except OSError as error:
        raise DataError(f"{error.filename or path}: cannot be read ({error.strerror}); nothing to resume") from None
    return Checkpoint(path, origin, body)


def _key(folder: Path) -> bytes:
    """Key of a checkpoint, from the noise secret beside it; empty where nothing is kept secret."""
    if not (folder / SECRET).exists():
        return b""
    return KeptSecret.read(folder).secret.derive("checkpoint").to_bytes(16, "little")


def _digest(pieces: Iterable[Buffer], key: bytes) -> bytes:
    """The second line of a checkpoint, for the pieces of all that follows."""
    digest = hashlib.blake2b(digest_size=16, key=key)
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest().encode() + b"\n"


def _header(path: Path, line: bytes) -> Origin:
    try:
        return _ORIGIN.validate_json(line, strict=True)
    except ValidationError:
        raise _malformed(path, "it does not say of which run it is") from None


_ORIGIN = TypeAdapter(Origin)


def _malformed(path: Path, why: str) -> DataError:
    return DataError(f"{path}: expected a checkpoint as a run wrote it, but {why}; nothing goes on from it")
