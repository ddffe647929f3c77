"""Checkpoints of a run: one file in its results folder, from which the run goes on after its process was killed.

The first line says what it is, the second, as JSON, of which run it is a checkpoint; what follows is the state, as
`protocol.snapshots` has it, so that reading it runs nothing but constructors. It is replaced whole or not at all, and
deleted when the run ends. It is as private as the data, and for its owner alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from gossamer.bounded import open_file, read_file
from gossamer.errors import DataError, MalformedMessage, SpecError
from gossamer.experiment.results_folder import CHECKPOINT
from gossamer.files import replaced
from gossamer.protocol.snapshots import decode_snapshot, encode_snapshot
from gossamer.version import __version__

MOST = 1 << 34
"""Most bytes of a checkpoint."""
_FIRST = b"gossamer checkpoint 1\n"
_MOST_HEADER = 1 << 20


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
    shards : int or None
        Number of shards that it is a run of; None is one process.
    """

    gossamer: str
    spec: str
    run: str
    traced: bool
    measured: bool
    ranges: Mapping[str, float] | None = None
    shards: int | None = None


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint of which the first lines were read.

    Attributes
    ----------
    path : Path
        Of the file.
    origin : Origin
        Of which run.
    start, size : int
        Where in the file its state is, and in how many bytes.
    digest : str
        Of these.
    """

    path: Path
    origin: Origin
    start: int
    size: int
    digest: str

    @property
    def begun(self) -> bool:
        """Whether anything had happened by then."""
        return self.origin.ranges is not None

    def state(self) -> dict[str, Any]:
        """Return the state of each part of the run, by name.

        Raises
        ------
        DataError
            If it is malformed.
        """
        try:
            with open_file(self.path, MOST) as file:
                file.seek(self.start)
                body = file.read(self.size + 1)
            if len(body) != self.size or hashlib.blake2b(body, digest_size=16).hexdigest() != self.digest:
                raise _malformed(self.path, "it was cut off, or changed")
            found = decode_snapshot(body)
        except OSError as error:
            raise _unreadable(self.path, error) from None
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
        if run != origin.run:
            raise DataError(
                f"{folder}: the spec, its data, or the files or the code that it names are not what they were, so this "
                "would be another run; bring them back, or run the spec as a new run"
            )
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
    pieces, digest = encode_snapshot(dict(state)), hashlib.blake2b(digest_size=16)
    for piece in pieces:
        digest.update(piece)
    if (size := sum(map(len, pieces))) > MOST - _MOST_HEADER:
        raise SpecError(f"a checkpoint has at most {MOST} bytes, found a state of {size}")
    header = {**asdict(origin), "size": size, "digest": digest.hexdigest()}
    with replaced(folder / CHECKPOINT, durable=origin.ranges is not None) as file:
        file.write(_FIRST + json.dumps(header).encode() + b"\n")
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
            header = _header(path, file.readline(_MOST_HEADER))
            if header["gossamer"] != __version__:
                raise DataError(
                    f"{path}: made by gossamer {header['gossamer'][:40]}, and this is {__version__}, which does other "
                    "things in between; go on with that version, or run the spec as a new run"
                )
            start = file.tell()
        if header["spec"] != spec_digest(folder):
            raise DataError(
                f"{path}: of another spec than {folder / 'spec.yaml'}, found beside it; bring back the one it was made "
                "with, or run this one as a new run"
            )
    except OSError as error:
        raise _unreadable(path, error) from None
    origin = Origin(**{item.name: header[item.name] for item in fields(Origin)})
    return Checkpoint(path, origin, start, header["size"], header["digest"])


def _header(path: Path, line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or found.keys() != _FIELDS.keys():
        raise _malformed(path, "it does not say of which run it is")
    ranges = found["ranges"] or {}
    numbers = isinstance(ranges, dict) and all(isinstance(value, float) for value in ranges.values())
    if not numbers or not all(isinstance(found[name], kind) for name, kind in _FIELDS.items() if kind is not None):
        raise _malformed(path, "what it says of its run has other types")
    if found["shards"] is not None and not (type(found["shards"]) is int and found["shards"] > 0):
        raise _malformed(path, "its number of shards is none")
    if not 0 <= found["size"] < MOST:
        raise _malformed(path, "its size is none")
    return found


_FIELDS: dict[str, type | None] = {
    **{"gossamer": str, "spec": str, "run": str, "traced": bool, "measured": bool},
    **{"ranges": None, "shards": None, "size": int, "digest": str},
}


def _unreadable(path: Path, error: OSError) -> DataError:
    return DataError(f"{error.filename or path}: cannot be read ({error.strerror}); nothing to resume")


def _malformed(path: Path, why: str) -> DataError:
    return DataError(f"{path}: expected a checkpoint as a run wrote it, but {why}; nothing goes on from it")
