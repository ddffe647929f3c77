"""Programs of other libraries, moved as the pages say: few lines, and as good as before within the noise.

The originals run in environments of their own, which the benchmarks beside other libraries make as well.
"""

from __future__ import annotations

import difflib
import os
import re
import subprocess
import sys
from pathlib import Path
from shutil import copy
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

import gossamer as gs

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "coming-from"
MOVED = {
    "opacus": ("opacus_loop.py", "opacus_loop.py", "opacus_moved.py"),
    "flower": ("flower_app.py", "flower_app.py", "fedavg_moved.py"),
    "pfl-research": ("pfl_simulation.py", "pfl_simulation.py", "fedavg_moved.py"),
    "nvflare": ("nvflare_job.py", "nvflare_client.py", "nvflare_moved.py"),
}
"""Of each page what starts the program, the part of it that is shown, and what it becomes."""
PINS = {"pfl-research": "pfl"}
MOST_LINES = 10
SEEDS = 5


def changed(page: str) -> list[str]:
    """Lines of both programs, with what goes and what comes marked."""
    _, before, after = ((EXAMPLES / name).read_text(encoding="utf-8").splitlines() for name in MOVED[page])
    return [line.rstrip() for line in difflib.unified_diff(before, after, lineterm="", n=1_000)][3:]


@pytest.mark.parametrize("page", MOVED)
def test_a_page_shows_what_changes_and_few_lines_come(page: str) -> None:
    text = (ROOT / "docs" / "coming-from" / f"{page}.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```diff\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert shown.splitlines() == changed(page), "the page is to show:\n" + "\n".join(changed(page))
    assert len([line for line in changed(page) if line.startswith("+") and line[1:].strip()]) <= MOST_LINES


def accuracies(python: Path | str, program: str, folder: Path, times: int) -> list[float]:
    """Accuracies that a program prints at its end; its noise is another each time."""
    silent = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}
    # Ray joins any session whose address it finds in its usual folder, and waits for one that is over.
    environment = {**os.environ, **silent, "FLWR_HOME": str(folder / "flower")}
    found = []
    for _ in range(times):
        with TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as ray:  # names of its sockets are short
            done = subprocess.run(
                [str(python), "-W", "ignore", program],
                cwd=folder,
                env={**environment, "RAY_TMPDIR": ray},
                capture_output=True,
                text=True,
                timeout=1_200,
                check=False,
            )
        assert done.returncode == 0, done.stderr[-2_000:]
        found.append(float(re.findall(r"accuracy ([\d.]+)", done.stdout)[-1]))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("page", MOVED)
def test_what_was_moved_is_as_good_as_before(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Means of five runs each, of which one has a deviation of 0.01 at most: they differ by more than 0.03 in 2e-6."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    from peers.environments import Unavailable, default_cache, python_of  # type: ignore[import-not-found]

    name = PINS.get(page, page)
    pins = (ROOT / "benchmarks" / "peers" if name != "nvflare" else EXAMPLES) / f"requirements-{name}.txt"
    try:
        python = python_of(name, default_cache(), pins)
    except Unavailable as problem:
        pytest.skip(str(problem))
    digits = gs.load_dataset(gs.DatasetSettings(name="digits"))
    arrays: dict[str, Any] = {}
    for part, split in (("", digits.train), ("_test", digits.test)):
        arrays[f"x{part}"] = np.asarray(split.features, np.float32).reshape(len(split), -1)
        arrays[f"y{part}"] = split.targets.astype(np.int64)
    np.savez(tmp_path / "digits.npz", **arrays)
    for program in EXAMPLES.glob("*.py"):
        copy(program, tmp_path)
    before = accuracies(python, MOVED[page][0], tmp_path, SEEDS)
    after = accuracies(sys.executable, MOVED[page][2], tmp_path, SEEDS)
    # FLARE's job has no noise, and every example has epsilon 5 against the server after the move.
    assert mean(after) >= mean(before) - (0.06 if page == "nvflare" else 0.03)
    assert mean(after) <= mean(before) + 0.03
