"""Programs of `tests/reference` that start processes and kill them, and count what they find on disk then."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def killing(program: str, *arguments: object) -> tuple[dict[str, int], str]:
    """What a program found, and what it said on the way."""
    places = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places), "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, str(ROOT / "tests" / "reference" / program), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, int] = json.loads(done.stdout)
    return found, done.stderr
