"""Processes killed while they make an owner's ledger, accept data and charge releases: nothing is lost or forgotten."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.sampling import examples

ROOT = Path(__file__).resolve().parents[4]
PROGRAM = ROOT / "tests" / "reference" / "owned_data_kills.py"


def run(folder: Path, rounds: int, seed: int) -> dict[str, int]:
    places = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places), "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, str(PROGRAM), str(folder), str(rounds), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, int] = json.loads(done.stdout)
    return found


def test_some_kills(tmp_path: Path) -> None:
    found = run(tmp_path, examples(40), 1)
    assert found["u"] > 0


@pytest.mark.slow
def test_five_hundred_kills(tmp_path: Path) -> None:
    """Some before there was a key, and some between a commit and the moment when it was said to be durable, or else the
    instants were not random."""
    found = run(tmp_path, 500, 2)
    assert found["young"] > 0
    assert found["unsaid"] > 0
    assert found["c"] > 100
