"""Models recalibrated by what was released of held-out examples: against logistic regression, and by the command."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

import gossamer as gs
from gossamer.cli import main
from gossamer.errors import CallerError
from gossamer.objectives.score_histogram import BINS, SIZE, ScoreCounts, cells, edges, measured, scores_of
from gossamer.trained.card import read_model
from gossamer.trained.recalibration import Recalibration


def drawn(rows: int, slope: float, intercept: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Scores of a model whose right log odds are ``slope`` times them and ``intercept``, and outcomes."""
    draw = np.random.default_rng(seed)
    scores = draw.normal(0, 1.5, rows)
    return scores, (draw.random(rows) < expit(slope * scores + intercept)).astype(int)


@pytest.mark.parametrize(("slope", "intercept"), [(0.6, -0.5), (1.6, 0.4)])
def test_both_numbers_are_those_of_logistic_regression_on_the_log_odds(slope: float, intercept: float) -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    scores, outcomes = drawn(20_000, slope, intercept)
    found = Recalibration.of(ScoreCounts.of(measured(cells(scores, outcomes)), 0.0, len(scores)))
    binned = scores_of(None)[cells(scores, np.zeros(len(scores))) % BINS]
    reference = linear_model.LogisticRegression(C=np.inf, tol=1e-10).fit(binned[:, None], outcomes)
    assert found.slope == pytest.approx(reference.coef_[0, 0], rel=1e-5)
    assert found.intercept == pytest.approx(reference.intercept_[0], abs=1e-5)


def test_a_slope_that_noise_decides_is_left_and_the_intercept_is_fitted_alone() -> None:
    """At noise that a slope of 0.8 drowns in, over 20 seeds: at most one in 20 intervals misses 0.8, and 1 is nearly
    always in; if each had 1 in with a chance of 0.8 alone, fewer than 10 of 20 would have a chance of 6e-4."""
    kept = 0
    for seed in range(20):
        scores, outcomes = drawn(800, 0.8, -0.7, seed)
        noise = np.random.default_rng(100 + seed).normal(0, 8.0, measured(cells(scores, outcomes)).shape)
        found = Recalibration.of(ScoreCounts.of(measured(cells(scores, outcomes)) + noise, 8.0, 800))
        kept += found.slope == 1
    assert kept >= 10


def test_too_much_noise_is_refused() -> None:
    with pytest.raises(CallerError, match="too much noise for them; hold out more"):
        Recalibration.of(ScoreCounts.of(np.zeros(124), 50.0, 500))


@pytest.fixture
def run(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A run whose weight decay makes it far too sure of the middle, with a release of its held-out rows."""
    draw = np.random.default_rng(5)
    table = tmp_path / "wards.csv"
    with table.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["age", "died"])
        for age in draw.integers(0, 101, 3_000):
            writer.writerow([age, "yes" if draw.random() < expit((age - 70) / 10) else "no"])
    spec: dict[str, Any] = {
        "dataset": {"name": "wards", "path": str(table), "target": "died", "labels": ["no", "yes"]},
        "objective": {"name": "logistic", "l2": 0.1, **getattr(request, "param", {})},
        "algorithm": {"name": "gossip", "nodes": 2, "updates_per_node": 40, "learning_rate": 1.0, "batch_size": 100},
        "budget": {"epsilon": 20, "delta": 1e-5},
        "evaluation": {"release": "private", "epsilon": 5},
    }
    spec["dataset"] |= {"columns": {"age": [0, 100]}, "test_fraction": 0.5}
    gs.run(spec, tmp_path / "run")
    return tmp_path / "run"


def of_test(run: Path, model: Path) -> dict[str, Any]:
    figures: dict[str, Any] = gs.load_model(model).evaluate(run.parent / "wards.csv")["figures"]
    return figures


def test_the_command_makes_probabilities_right(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = run.parent / "right"
    assert main(["recalibrate", str(run), "--out", str(out), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["slope"] > 1.3
    assert document == json.loads((out / "recalibration.json").read_text())
    before, after = of_test(run, run), of_test(run, out)
    assert before["calibration_slope"]["value"] > 1.3
    assert after["calibration_slope"]["value"] == pytest.approx(1, abs=0.15)
    assert abs(after["calibration_intercept"]["value"]) < 0.15
    assert after["auroc"]["value"] == pytest.approx(before["auroc"]["value"], abs=1e-6)
    assert after["log_loss"]["value"] < before["log_loss"]["value"]
    assert read_model(out)[0].recalibration == (document["intercept"], document["slope"])


def test_a_change_that_noise_may_have_made_is_said_and_flattering_rows_too(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, kept = run.parent / "right", run / "evaluation.json"
    assert main(["recalibrate", str(run), "--out", str(out)]) == 0
    assert "noise may have made this change" not in capsys.readouterr().err
    assert main(["evaluate", str(out), str(run.parent / "wards.csv")]) == 0
    assert "trained on most of its rows" in capsys.readouterr().err
    found = json.loads(kept.read_text())
    for part in found["parties"].values():
        part["noise"] *= 20
    kept.write_text(json.dumps(found))
    assert main(["recalibrate", str(run), "--out", str(run.parent / "noisy")]) == 0
    assert "noise may have made this change: from -" in capsys.readouterr().err


@pytest.mark.parametrize(
    "run", [{"name": "softmax"}, {"name": "mlp", "l2": 0.0}], ids=["softmax", "mlp"], indirect=True
)
def test_two_outputs_and_networks_have_their_odds_changed_just_so(run: Path) -> None:
    out = run.parent / "right"
    assert main(["recalibrate", str(run), "--out", str(out)]) == 0
    rows = [{"age": age} for age in range(0, 101, 10)]
    before, after = (gs.load_model(place).predict(rows).probabilities for place in (run, out))
    assert before is not None
    assert after is not None
    odds = [np.log(one[:, 1] / one[:, 0]) for one in (before, after)]
    told = json.loads((out / "recalibration.json").read_text())
    assert odds[1] == pytest.approx(told["slope"] * odds[0] + told["intercept"], abs=1e-4)


def test_what_cannot_be_recalibrated_is_one_line(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = run.parent / "right"
    assert main(["recalibrate", str(run), "--out", str(out)]) == 0
    assert main(["recalibrate", str(out), str(run), "--out", str(run.parent / "twice")]) == 2
    assert main(["recalibrate", str(out), "--out", str(run.parent / "none")]) == 2
    assert main(["recalibrate", str(run), "--out", str(out)]) == 2
    said = capsys.readouterr().err
    assert "the model has been recalibrated, and what was released is of the one before" in said
    assert "expected a folder with evaluation.json, which evaluation.release: private leaves, found none" in said
    assert "expected a new folder for the model" in said
    assert not (run.parent / "twice").exists()
    assert not (run.parent / "none").exists()


def test_releases_of_another_run_and_folders_without_are_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model beside which nothing was released, with what parties released of another one."""
    (bare := tmp_path / "bare").mkdir()
    for name in ("model.json", "model.safetensors"):
        (bare / name).write_bytes((run / name).read_bytes())
    assert main(["recalibrate", str(bare), str(run), "--out", str(tmp_path / "right")]) == 2
    assert "expected a model of the run of which parties released, found another's" in capsys.readouterr().err
    for other in (bare, tmp_path / "none"):
        assert main(["recalibrate", str(run), str(other), "--out", str(tmp_path / "right")]) == 2
        assert "expected what another party released (evaluation.json), found none" in capsys.readouterr().err
    assert not (tmp_path / "right").exists()


def test_a_sum_of_which_a_part_is_missing_says_which(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    part = {"rows": 90.0, "noise": 1.0, "values": "00" * 8 * SIZE}
    whole = {"run": "5e" * 16, "of": ["a", "b", "c"], "epsilon": 0.5, "prevalence": None, "edges": edges(None).tolist()}
    whole |= {"groups": [""], "parties": {}, "step": 0.5, "masked": {"a": part}}
    (run / "evaluation.json").write_text(json.dumps(whole))
    assert main(["recalibrate", str(run), "--out", str(run.parent / "right")]) == 2
    assert "cannot be opened without b, c; name their folders" in capsys.readouterr().err
    assert not (run.parent / "right").exists()


@pytest.mark.parametrize("run", [{"intercept": False}], ids=["no-bias"], indirect=True)
def test_a_model_without_a_bias_is_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recalibrate", str(run), "--out", str(run.parent / "right")]) == 2
    assert "found another; give it one (objective.intercept: true" in capsys.readouterr().err
