"""Real processes, killed while they write, and disks that are full: nothing acknowledged is lost, no ledger short."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.sampling import examples

ROOT = Path(__file__).resolve().parents[4]
PROGRAM = ROOT / "tests" / "reference" / "storage_kills.py"


def run(*arguments: object) -> tuple[dict[str, int], str]:
    """What the program found, and what it said on the way."""
    places = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places), "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, str(PROGRAM), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, int] = json.loads(done.stdout)
    return found, done.stderr


def test_some_kills(tmp_path: Path) -> None:
    """Each in the midst of the files that the last one left, after a note or more and a charge or more."""
    kills = examples(60)
    found, _ = run(tmp_path, kills, 1)
    assert found["sent"] >= kills
    assert found["charged"] >= kills


@pytest.mark.slow
def test_a_thousand_kills(tmp_path: Path) -> None:
    """Some of them between a commit and the moment when it was acknowledged, or else the instants were not random."""
    found, _ = run(tmp_path, 1000, 2)
    assert found["unsaid"] > 0
    assert found["overcounted"] > 0


def test_a_full_disk_stops_everything_and_loses_nothing(tmp_path: Path) -> None:
    """The operating system itself lets no file grow any further: every write before that is there, whole."""
    found, said = run(tmp_path, "full")
    assert found["sent"] > 10
    lines = [line for line in said.splitlines() if line]
    assert len(lines) == 2
    assert all("its disk reports an error; see to the disk" in line for line in lines)
    assert "a.store" in lines[0]
    assert "owner.ledger" in lines[1]
