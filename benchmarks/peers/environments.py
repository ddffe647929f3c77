"""The libraries' own environments: made once, in a cache folder, from files of pinned requirements."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
ACCELERATED = ("nvidia", "cuda", "triton")
"""How packages begin that only builds of torch for graphics cards bring, in gigabytes."""


class Unavailable(Exception):
    """Why a library is left out, in one line."""


def default_cache() -> Path:
    """Return the folder that environments are in."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gossamer" / "peers"


def python_of(name: str, cache: Path, requirements: Path | None = None) -> Path:
    """Return the interpreter of an environment, which is made where it is not there yet.

    Parameters
    ----------
    name : str
        Of the library.
    cache : Path
        Folder for environments and logs.
    requirements : Path, optional
        Pins, of which ``torch==`` is one; by default ``requirements-NAME.txt`` beside this file.

    Raises
    ------
    Unavailable
        If it cannot be made.
    """
    requirements = requirements or HERE / f"requirements-{name}.txt"
    pins = requirements.read_text(encoding="utf-8")
    digest = hashlib.sha256(f"{sys.version}\0{pins}".encode()).hexdigest()[:12]
    folder = cache / f"{name}-{digest}"
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    if (folder / ".ready").exists():
        return python
    try:
        _make(name, folder, python, requirements)
        (folder / ".ready").touch()
    except (OSError, Unavailable) as problem:
        shutil.rmtree(folder, ignore_errors=True)
        raise Unavailable(f"its environment cannot be made: {problem}") from problem
    return python


def _make(name: str, folder: Path, python: Path, requirements: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)  # what an interrupted call has left
    print(f"Making the environment of {name} in {folder} ...", file=sys.stderr, flush=True)
    try:
        venv.create(folder, with_pip=True)
    except subprocess.CalledProcessError as problem:
        raise Unavailable(f"python -m venv ended with {problem.returncode}") from problem
    torch = _torch_pin(requirements)
    report = json.loads(_pip(python, "--quiet", "--dry-run", "--report", "-", torch))
    names = [item["metadata"]["name"].lower() for item in report["install"]]
    if heavy := [each for each in names if each.startswith(ACCELERATED)]:
        raise Unavailable(
            f"pip would take a build of {torch} for graphics cards, with {', '.join(heavy[:3])}; let pip find one for "
            "processors (PIP_FIND_LINKS or PIP_EXTRA_INDEX_URL)"
        )
    # First and alone, so that what comes after it finds it there.
    _pip(python, "--quiet", torch)
    _pip(python, "--quiet", "-r", str(requirements))


def _torch_pin(requirements: Path) -> str:
    lines = requirements.read_text(encoding="utf-8").split()
    pins = [line for line in lines if line.startswith("torch==")]
    if len(pins) != 1:
        raise Unavailable(f"expected one line torch==VERSION in {requirements.name}, found {len(pins)}")
    return pins[0]


def _pip(python: Path, *arguments: str) -> str:
    command = [str(python), "-m", "pip", "install", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise Unavailable(_reason(done.stderr.splitlines()) or f"pip ended with {done.returncode}")
    return done.stdout


def _reason(lines: Sequence[str]) -> str:
    """The first error that pip says, without the list of all versions that there are."""
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return errors[0].partition(" (from versions:")[0] if errors else ""
