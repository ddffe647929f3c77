"""Runs that are killed between two events and resumed: their folders are those of runs that were not."""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.oracle.specs import SPECS

import gossamer as gs
from gossamer.errors import DataError, RunWarning, SpecError
from gossamer.experiment import checkpoints, keeping
from gossamer.experiment.driving import Patience
from gossamer.experiment.keeping import Checkpoints
from gossamer.experiment.results_folder import CHECKPOINT

SECRET = gs.NoiseSecret(bytes(range(16)))
_WARDS = str(Path(__file__).parents[3] / "examples" / "wards.csv")


class Killed(BaseException):
    """The process is gone."""


class Killing:
    """Has a run kept at some events, and killed some events later."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kept, self.killed = math.inf, math.inf
        self.events, keep = 0, Checkpoints.keep

        def count(keeper: Checkpoints, patience: Patience) -> None:
            if self.events == self.kept:
                keep(keeper, patience)
            if self.events == self.killed:
                raise Killed
            self.events += 1
            keeper.due = 0.0

        monkeypatch.setattr(Checkpoints, "keep", count)

    def at(self, kept: float, killed: float) -> None:
        """Keep after so many events of the next process, and kill it after so many."""
        self.events, self.kept, self.killed = 0, kept, killed


@pytest.fixture
def killing(monkeypatch: pytest.MonkeyPatch) -> Killing:
    return Killing(monkeypatch)


def run(spec: Any, out: Path, **more: Any) -> gs.Result:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RunWarning)
        secret = SECRET if gs.parse_spec(spec).secretive else None
        return gs.run(spec, out, secret=secret, checkpoint=0, **more)


def resume(out: Path, **more: Any) -> gs.Result:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RunWarning)
        return gs.resume_run(out, checkpoint=0, **more)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "timing.json"}


RUNS: dict[str, Any] = {
    name: {"dataset": "digits", "seed": 7, **SPECS[name]}
    for name in (
        *("gossip-quantile", "gossip-lossy", "allreduce", "audp-wait", "mapa-estimated", "increasing-aggregators"),
        *("graph-secure-agent-noise", "graph-walk"),
    )
}
RUNS["none"] = {"dataset": "digits", "algorithm": {"name": "gossip", "nodes": 3, "updates_per_node": 6}, "privacy": "none"}


@pytest.mark.some(4)
@pytest.mark.parametrize("name", RUNS)
def test_a_run_that_was_killed_three_times_ends_with_the_same_bytes(
    name: str, killing: Killing, tmp_path: Path
) -> None:
    spec = RUNS[name]
    whole = run(spec, tmp_path / "whole", trace=tmp_path / "whole.trace")
    places = np.random.default_rng(5).integers(0, killing.events // 5, 5)

    out, trace = tmp_path / "out", tmp_path / "out.trace"
    killing.at(math.inf, places[0])  # before the first checkpoint of an event
    with pytest.raises(Killed):
        run(spec, out, trace=trace)
    for kept, more in (places[1:3], places[3:5]):
        killing.at(kept, kept + more)
        with pytest.raises(Killed):
            resume(out, trace=trace)
        assert (out / CHECKPOINT).exists()
    killing.at(math.inf, math.inf)
    found = resume(out, trace=trace)
    assert files(out) == files(tmp_path / "whole")
    assert trace.read_bytes() == (tmp_path / "whole.trace").read_bytes()
    assert found.summary == whole.summary
    assert found.metrics == whole.metrics
    assert found.secret == whole.secret
