"""Checkpoints of a run: one file in its results folder, from which the run goes on after its process was killed.

The first line says what it is. The second is a digest of all that follows, under a key that follows from the run's
noise secret where it has one. The third says, as JSON, of which run it is a checkpoint. The rest is the state, as
`protocol.snapshots` has it, so that reading it runs nothing but constructors. The file is replaced whole or not at all,
and deleted when the run ends. It is as private as the data, and for its owner alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from gossamer.bounded import open_file, read_file
from gossamer.errors import DataError, MalformedMessage, SpecError
from gossamer.experiment.results_folder import CHECKPOINT
from gossamer.experiment.secrets import FILE as SECRET
from gossamer.experiment.secrets import KeptSecret
from gossamer.files import replaced
from gossamer.protocol.encoding import Buffer
from gossamer.protocol.snapshots import decode_snapshot, encode_snapshot
from gossamer.version import __version__

MOST = 1 << 34
"""Most bytes of a checkpoint."""
_FIRST = b"gossamer checkpoint 3\n"
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


@dataclass
class Checkpoint:
    """A checkpoint as it was read.

    Attributes
    ----------
    path : Path
        Of the file.
    origin : Origin
        Of which run.
    body : bytes
        Its state, until that was asked for.
    """

    path: Path
    origin: Origin
    body: bytes = field(repr=False)

    @property
    def begun(self) -> bool:
        """Whether anything had happened by then."""
        return self.origin.ranges is not None

    def state(self) -> dict[str, Any]:
        """Return the state of each part of the run, by name, which is not kept: it can be asked for once.

        Raises
        ------
        DataError
            If it is malformed.
        """
        body, self.body = self.body, b""
        try:
            found = decode_snapshot(body)
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
            header = _header(path, line)
            if header["gossamer"] != __version__:
                raise DataError(
                    f"{path}: made by gossamer {header['gossamer'][:40]}, and this is {__version__}, which does other "
                    "things in between; go on with that version, or run the spec as a new run"
                )
            body = file.read()
        if digest != _digest((line, body), _key(folder)):
            why = "it was cut off, or changed"
            if not (folder / SECRET).exists():  # of a run with something to hide it is the key
                why += f", or its key is lost: expected the run's noise secret, {SECRET}, found none"
            raise _malformed(path, why)
        if header["spec"] != spec_digest(folder):
            raise DataError(
                f"{path}: of another spec than {folder / 'spec.yaml'}, found beside it; bring back the one it was made "
                "with, or run this one as a new run"
            )
    except OSError as error:
        raise _unreadable(path, error) from None
    origin = Origin(**{item.name: header[item.name] for item in fields(Origin)})
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
    return found


_FIELDS: dict[str, type | None] = {
    **{"gossamer": str, "spec": str, "run": str, "traced": bool, "measured": bool},
    **{"ranges": None, "shards": None},
}


def _unreadable(path: Path, error: OSError) -> DataError:
    return DataError(f"{error.filename or path}: cannot be read ({error.strerror}); nothing to resume")


def _malformed(path: Path, why: str) -> DataError:
    return DataError(f"{path}: expected a checkpoint as a run wrote it, but {why}; nothing goes on from it")
