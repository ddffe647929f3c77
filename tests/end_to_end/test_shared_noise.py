"""No two different runs share their noise: the difference of their releases would show what a guarantee hides.

Runs have secrets of their own, so this is about those that have the same: from a caller, or because noise follows from
the seed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gossamer as gs
from gossamer.experiment.audits.canary_audit import audit_run
from gossamer.experiment.specs.spec_file import parse_spec

SPEC: dict[str, Any] = {
    "algorithm": {"name": "audp", "nodes": 1},
    "privacy": {"noise_multiplier": 5.0, "clip": 1.0},
    "stop": {"updates": 1},
}


HOW: dict[str, dict[str, Any]] = {
    "one secret": {"secret": gs.NoiseSecret(bytes(range(16)))},
    "reproducible": {"secret": None},
}


@pytest.fixture(params=HOW)
def alike(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Arguments with which runs have the same noise if they are the same run."""
    return HOW[request.param]


def specified(alike: dict[str, Any], sections: dict[str, Any]) -> Any:
    """A spec whose noise is alike."""
    drawn = "reproducible" if alike["secret"] is None else "fresh"
    return parse_spec({**sections, "privacy": {**sections["privacy"], "noise_secret": drawn}})


def weights(result: gs.Result) -> Any:
    """Of one noisy step: noise of norm about 0.5 * 5 * sqrt(650) / 64 = 2, and hardly anything else."""
    return result.model["weight"].ravel()


def unlike(one: Any, other: Any) -> bool:
    """Correlation of independent noise in 640 numbers stays below 0.25 with probability 1 - 1e-10."""
    return bool(abs(np.corrcoef(one, other)[0, 1]) < 0.25)


def test_an_audit_does_not_have_the_noise_of_the_run_nor_of_another_audit(alike: dict[str, Any]) -> None:
    spec = specified(alike, {"dataset": "digits", **SPEC})
    plain = weights(gs.run(spec, **alike))
    np.testing.assert_array_equal(plain, weights(gs.run(spec, **alike)))
    audits = [weights(audit_run(spec, canaries=m, guesses=4, **alike)) for m in (20, 21, 21)]
    np.testing.assert_array_equal(audits[1], audits.pop())
    assert all(unlike(plain, audit) for audit in audits)
    assert unlike(*audits)


def rows(folder: Path, changed: float) -> Path:
    values = np.random.default_rng(0).standard_normal((200, 640))
    values[0, 0] = changed
    path = folder / "data.csv"
    lines = [",".join(f"{x:.5g}" for x in row) + f",{i % 2}" for i, row in enumerate(values)]
    path.write_text(",".join(f"f{j}" for j in range(640)) + ",label\n" + "\n".join(lines) + "\n")
    return path


def test_a_changed_example_changes_the_noise_and_where_the_file_lies_does_not(
    tmp_path: Path, alike: dict[str, Any]
) -> None:
    found = []
    for name, changed in (("one", 1.0), ("two", 2.0), ("three", 1.0)):
        (tmp_path / name).mkdir()
        path = str(rows(tmp_path / name, changed))
        dataset = {"name": "mine", "path": path, "labels": [0, 1], "scale": "none"}
        logistic = {"dataset": dataset, "objective": "logistic", **SPEC}
        found.append(weights(gs.run(specified(alike, logistic), **alike)))
    assert unlike(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


def test_changed_speeds_change_the_noise(tmp_path: Path, alike: dict[str, Any]) -> None:
    """With other speeds gradients are taken at other models."""
    found = []
    for seconds in ("1.0", "2.0"):
        path = tmp_path / "speeds.csv"
        path.write_text(f"0,{seconds}\n")
        speeds = {"name": "file", "path": path}
        found.append(weights(gs.run(specified(alike, {"dataset": "digits", "speeds": speeds, **SPEC}), **alike)))
    assert unlike(*found)


@pytest.mark.parametrize(
    "clip",
    [pytest.param(1.0, id="fixed", marks=pytest.mark.slow), pytest.param({"policy": "quantile"}, id="quantile")],
)
def test_an_audit_sees_through_the_unit_of_a_moving_clip(clip: Any) -> None:
    """With little noise nearly all coins are guessed, whichever policy. By chance 50 of 60 right has p = 1e-7."""
    algorithm = {"name": "audp", "nodes": 4, "learning_rate": 0.5}
    privacy = {"noise_multiplier": 0.3, "clip": clip}
    spec = parse_spec({"dataset": "digits", "algorithm": algorithm, "privacy": privacy, "stop": {"updates": 200}})
    result = audit_run(spec, canaries=120, guesses=60)
    assert result.summary["privacy"]["audits"]["one_run"]["correct"] >= 50
