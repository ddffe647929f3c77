"""The command, called in this process, and hashes of what it wrote and said.

Nothing of Gossamer but the command itself is used here, so that this outlives any change of layout.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import signal
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from gossamer import RunWarning
from gossamer.cli import main

ROOT = Path(__file__).resolve().parents[2]
_DIGITS = {path.stem for path in (ROOT / "examples").glob("digits-*.yaml")} - {"digits-central"}
EXAMPLES = ("hospitals", *sorted(_DIGITS))
"""Those whose bytes are recorded."""
NOT_COMPARED = ("timing.json", "inversion.png", "metrics.csv", "guarantee.json", "receipts.jsonl")
"""Times, a picture whose bytes are its library's, and what says `metrics.jsonl` once more."""

_CHANGING = (
    (re.compile(rb'"gossamer": "[^"]*"'), b'"gossamer": "<version>"'),
    (re.compile(rb'"version": "[^"]*", "source": "sha256:[0-9a-f]{64}"'), b'"version": "<version>"'),
    (re.compile(rb"\(\d+(\.\d+)? s here\)"), b"(<time> here)"),
    (re.compile(rb"[0-9.e+]+ seeds a second"), b"<speed> seeds a second"),
)

Hashes = dict[str, str]


class Said(NamedTuple):
    """What a command said.

    Attributes
    ----------
    code : int
        With which it ended.
    out, remarks : bytes
        Its standard output, and the lines of standard error that are no progress.
    """

    code: int
    out: bytes
    remarks: bytes


def plain(content: bytes, folder: Path) -> bytes:
    """``content`` without what may differ: where files lie, how long it took, and which version it was."""
    for place, name in ((folder, b"<folder>"), (ROOT, b"<root>")):
        content = content.replace(str(place).encode(), name)
    for pattern, instead in _CHANGING:
        content = pattern.sub(instead, content)
    return content


def sha256(content: bytes) -> str:
    """In hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def sha256_of_file(path: Path) -> str:
    """Of a file that may be large."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def call(*arguments: str) -> Said:
    """Call ``gossamer`` with ``arguments``."""
    out, err = io.StringIO(), io.StringIO()
    with _undone(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(list(arguments))
    remarks = [line for line in err.getvalue().splitlines(keepends=True) if line.startswith(("gossamer:", "plan:"))]
    return Said(code, out.getvalue().encode(), "".join(remarks).encode())


@contextlib.contextmanager
def _undone() -> Iterator[None]:
    """Lines of a fixed width, every warning, and afterwards everything as it was before."""
    before = {name: os.environ.get(name) for name in ("COLUMNS", "LINES")}
    handler, install = signal.getsignal(signal.SIGTERM), signal.signal
    os.environ.update(COLUMNS="100", LINES="24")
    signal.signal = lambda *_: handler  # type: ignore[assignment]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", RunWarning)
            yield
    finally:
        signal.signal = install
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def hashes_of(folder: Path, place: Path) -> Hashes:
    """Of each file of a results folder that lies in ``place``."""
    return {
        path.name: sha256(plain(path.read_bytes(), place))
        for path in sorted(folder.iterdir())
        if path.name not in NOT_COMPARED
    }


def run(spec: Path, *more: str, keep: Path | None = None) -> Hashes:
    """Run a spec, and hash all that it gives: each file of its results, its trace, and what it says.

    Parameters
    ----------
    spec : Path
        A YAML file.
    *more : str
        More arguments.
    keep : Path, optional
        A folder for what was hashed, to be looked at.
    """
    with _place(keep) as place:
        results, trace = place / "results", place / "trace"
        said = call("run", str(spec), *more, "--out", str(results), "--trace", str(trace), "--overwrite")
        found = hashes_of(results, place) if results.is_dir() else {}
        found["trace"] = sha256_of_file(trace) if trace.exists() else "none"
        return found | _said(said, place, "")


def check(spec: Path, *, keep: Path | None = None) -> Hashes:
    """What ``gossamer check`` says of a spec: its plan, and the guarantee that it has with a noise secret."""
    with _place(keep) as place:
        return _said(call("check", str(spec)), place, "check ") | _said(
            call("check", str(spec), "--json"), place, "check --json "
        )


def command(*arguments: str, writes: bool = False, keep: Path | None = None) -> Hashes:
    """What a command says, and each file that it writes."""
    with _place(keep) as place:
        results = place / "results"
        said = call(*arguments, *(("--out", str(results)) if writes else ()))
        return (hashes_of(results, place) if results.is_dir() else {}) | _said(said, place, "")


def _said(said: Said, place: Path, what: str) -> Hashes:
    found = {}
    for name, content in (("out", said.out), ("remarks", said.remarks)):
        content = plain(content, place)
        (place / f"{what}{name}.txt").write_bytes(content)
        found[f"{what}{name}"] = sha256(content)
    return found | ({f"{what}code": str(said.code)} if said.code else {})


@contextlib.contextmanager
def _place(keep: Path | None) -> Iterator[Path]:
    """A folder that is kept, or one that is not."""
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="oracle-") as folder:
        yield Path(folder).resolve()
