"""A run whose process is killed at random instants, again and again, and resumed: the same bytes as without."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path

import numpy as np
import pytest
from tests.end_to_end import killed_run

from gossamer.experiment.results.results_folder import CHECKPOINT
from gossamer.experiment.runs import checkpoints


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "timing.json"}


def killed(updates: int, out: Path, kills: int, longest: float) -> int:
    """Kill a run so often, each time up to ``longest`` seconds after its process was forked, and let it end.

    Returns how many of the kills came after its first event that was kept.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([killed_run.__name__])
    generator, begun = np.random.default_rng(11), 0
    for number in range(kills):
        process = context.Process(target=killed_run.go, args=(updates, out))
        process.start()
        if number == 0:
            while not (out / CHECKPOINT).exists():  # before there is one, nothing has been released either
                time.sleep(0.01)
        process.join(generator.uniform(0, longest))
        assert process.exitcode is None, f"the run ended before kill {number + 1}; make it longer"
        process.kill()
        process.join()
        begun += checkpoints.read_checkpoint(out).begun
    process = context.Process(target=killed_run.go, args=(updates, out))
    process.start()
    process.join()
    assert process.exitcode == 0
    return begun


@pytest.mark.slow
def test_a_run_that_is_killed_50_times_ends_with_the_same_bytes(tmp_path: Path) -> None:
    """Half of the time goes to checkpoints, so some of the kills come in the middle of one."""
    updates, kills = 900, 50
    killed_run.go(updates, tmp_path / "whole")
    assert killed(updates, tmp_path / "out", kills, longest=1.5) >= kills // 2
    assert files(tmp_path / "out") == files(tmp_path / "whole")
    assert (tmp_path / "out.trace").read_bytes() == (tmp_path / "whole.trace").read_bytes()
