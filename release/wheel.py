"""The wheel of the last commit, built twice in two places: ``python release/wheel.py build/dist`` says its one SHA-256.

Builds have the commit's time (``SOURCE_DATE_EPOCH``) and see the commit's files alone. Whoever has the same commit and
the same setuptools gets the same bytes.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]


def git(*arguments: str) -> bytes:
    """Return what git prints, of this repository."""
    return subprocess.run(("git", "-C", str(ROOT), *arguments), check=True, capture_output=True).stdout


def build(folder: Path, epoch: str) -> Path:
    """Build the wheel of the last commit below ``folder``, which is empty, without a network."""
    source, out = folder / "source", folder / "out"
    with tarfile.open(fileobj=io.BytesIO(git("archive", "HEAD"))) as archive:
        archive.extractall(source, filter="data")
    options = ("--no-deps", "--no-build-isolation", "--no-index", "--no-cache-dir", "--disable-pip-version-check")
    subprocess.run(
        (sys.executable, "-m", "pip", "wheel", "--quiet", *options, "--wheel-dir", str(out), str(source)),
        check=True,
        env={**os.environ, "SOURCE_DATE_EPOCH": epoch},
    )
    (wheel,) = out.glob("*.whl")
    return wheel


def built_twice(out: Path) -> tuple[Path, str]:
    """Return the wheel, in ``out``, and its SHA-256.

    Raises
    ------
    SystemExit
        If two builds differ.
    """
    epoch = git("log", "-1", "--format=%ct").decode().strip()
    with TemporaryDirectory() as one, TemporaryDirectory(prefix="another-place-") as other:
        wheels = [build(Path(folder), epoch) for folder in (one, other)]
        first, second = (hashlib.sha256(wheel.read_bytes()).hexdigest() for wheel in wheels)
        if first != second:
            raise SystemExit(f"two builds of {wheels[0].name} differ: {first} and {second}")
        out.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(wheels[0], out)), first


if __name__ == "__main__":
    wheel, digest = built_twice(Path(sys.argv[1]))
    print(f"{digest}  {wheel}")
