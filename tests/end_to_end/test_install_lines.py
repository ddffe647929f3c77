"""The lines of the pages that install Gossamer, each in an environment that has nothing but what the line brings.

What Gossamer needs is not downloaded: the environments see the packages of the one that tests run in.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "deploy" / "README.md", *(ROOT / "docs").rglob("*.md")]
LINE = re.compile(r"(?:/opt/gossamer/bin/)?pip install (?:--upgrade )?((?:-e )?\"[^\"\n]*\"|-e \.)")
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "NOTICE", "CHANGELOG.md", "src")


def lines() -> list[str]:
    """What pages install of Gossamer, each once."""
    found = {line for page in PAGES for line in LINE.findall(page.read_text())}
    return sorted(line for line in found if "git+" not in line and "gossamer-fl[" not in line)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources, with their wheel beside them as an organiser makes it."""
    folder = tmp_path_factory.mktemp("clone")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(
                ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "*.nb?")
            )
        elif (ROOT / name).exists():
            shutil.copy(ROOT / name, folder / name)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", ".", "."]
    subprocess.run(command, cwd=folder, check=True)
    shutil.rmtree(folder / "build", ignore_errors=True)
    return folder


def environment(place: Path) -> Path:
    """The Python of a new environment that sees the packages of this one, and no Gossamer."""
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
    site = next(place.glob("lib/python*/site-packages"))
    theirs = place / "theirs"
    theirs.mkdir()
    for each in {sysconfig.get_path("purelib"), *(path for path in sys.path if path.endswith("site-packages"))}:
        for item in Path(each).iterdir():
            if (
                not re.match(r"_*(gossamer|pip|editable)|00\.pth|distutils", item.name)
                and not (theirs / item.name).exists()
            ):
                (theirs / item.name).symlink_to(item)
    for old in site.glob("setuptools*"):  # that comes with an environment, and may be too old to build with
        shutil.rmtree(old)
    (site / "theirs.pth").write_text(f"{theirs}\n")
    return place / "bin" / "python"


@pytest.mark.slow
@pytest.mark.parametrize("line", lines())
def test_a_line_installs_what_it_says(line: str, clone: Path, tmp_path: Path) -> None:
    python = environment(tmp_path / "venv")
    without = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL_ENV"))}
    extras = re.findall(r"\[(.*)\]", line)
    # Nothing is downloaded: what lacks ends the command, and says so.
    command = f"{python} -m pip install --quiet --no-index --no-build-isolation {line}"
    done = subprocess.run(command, shell=True, cwd=clone, env=without, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    code = "import gossamer.extras as e; print(e.installed_wheel()); print(e.__file__)"
    shown = subprocess.run([python, "-c", code], cwd=tmp_path, env=without, capture_output=True, text=True, check=True)
    wheel, file = shown.stdout.split()
    (made,) = clone.glob("gossamer_fl-*.whl")
    assert wheel == (hashlib.sha256(made.read_bytes()).hexdigest() if "whl" in line else "None")
    assert file.startswith(str(clone if line.startswith("-e") else tmp_path))
    assert extras or line == "-e ."


def test_pages_install_from_the_clone_and_from_a_wheel() -> None:
    assert {line.partition("[")[0].strip('"') for line in lines()} == {
        "-e .",
        '-e ".',
        ".",
        "$(echo ./gossamer_fl-*.whl)",
        "$(echo gossamer_fl-*.whl)",
    }
