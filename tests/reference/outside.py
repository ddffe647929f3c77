"""Distributions outside the project, installed without a network into folders of their own."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gossamer.cli import main

SOURCES = Path(__file__).resolve().parents[1] / "outside"


def installed(name: str, folder: Path) -> Path:
    """A distribution of ``tests/outside`` as pip installs it; ``folder`` is to go on the path."""
    source = folder / "source"
    shutil.copytree(SOURCES / name, source)  # building leaves files beside it
    target = folder / "site"
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--no-compile", "--target", str(target)]
    command = [sys.executable, "-m", "pip", "install", *options, str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    shutil.rmtree(source)
    return target


def written(
    folder: Path, name: str, version: str, points: dict[str, str], group: str = "gossamer.algorithms", **modules: str
) -> Path:
    """A distribution of modules, with its metadata written by hand; ``folder`` is to go on the path."""
    about = folder / f"{name}-{version}.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = [f"{key} = {value}" for key, value in points.items()]
    (about / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines, ""]))
    for module, text in modules.items():
        (folder / f"{module}.py").write_text(text)
    record = [f"{path.relative_to(folder)},{_hash(path)}" for path in folder.rglob("*") if path.is_file()]
    (about / "RECORD").write_text("\n".join([*record, f"{about.name}/RECORD,,", ""]))
    return folder


def python(site: Path | None, *arguments: object) -> subprocess.CompletedProcess[str]:
    """What Python does with what is installed in ``site``, beside what these tests import."""
    places = [*([] if site is None else [str(site)]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def gossamer(site: Path | None, *arguments: object) -> str:
    """What a command prints that goes well."""
    done = python(site, "-m", "gossamer", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def here(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> str:
    """What a command prints in this process, on whose path it is all; its line of error if ``code`` is not 0."""
    capsys.readouterr()
    found = main([*map(str, arguments)])
    out, err = capsys.readouterr()
    assert found == code, err
    if not code:
        return out
    assert out == ""
    (line,) = err.splitlines()
    return line.removeprefix("gossamer: error: ")


def _hash(path: Path) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).rstrip(b"=").decode()
    return f"sha256={digest},{path.stat().st_size}"
