"""The part of a report on scores: intervals beside a constant, and axes that reach as far as they do."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.special import expit
from tests.unit.report.test_records import folder

import gossamer as gs
from gossamer.objectives.scores import ScoredSample
from gossamer.report.curves import curves
from gossamer.report.page import page_of_runs
from gossamer.report.records import RunRecord, read_records

RNG = np.random.default_rng(5)
ROWS = [
    {"updates": n, "virtual_seconds": 1.0 * n, "bytes": n, "messages": n, "mean_model_test_accuracy": 0.92 + n / 1e4}
    for n in range(3)
]


def record(place: Path, signal: float) -> RunRecord:
    """A run whose model has so much of a signal of a rare outcome."""
    truth = (RNG.random(500) < 0.08).astype(np.int64)
    p = expit(RNG.normal(size=500) + signal * truth - 2.6)
    scores = ScoredSample(np.log(p / (1 - p))[:, None], truth, ("no", "yes"), np.column_stack([1 - p, p])).assess()
    folder(place, ROWS)
    summary = json.loads((place / "summary.json").read_text())
    (place / "summary.json").write_text(json.dumps({**summary, "scores": scores}))
    return read_records([place])[0]


def test_intervals_are_drawn_beside_a_constant(tmp_path: Path) -> None:
    good = record(tmp_path / "good", 1.5)
    page = page_of_runs([good])
    intervals, reliability = next(one for one in page.sections if one.name == "scores").figures
    first = intervals.rows[0]
    assert (first["figure"], first["constant"]) == ("area under the ROC curve", 0.5)
    assert first["low"] < first["value"] < first["high"]
    assert intervals.spec["layer"][0]["encoding"]["x"]["scale"]["domain"] == [0, 1]
    assert sum(row["rows"] for row in reliability.rows) == 500
    assert page.notes == [] or "No better" not in page.notes[0]
    public = page_of_runs([good], public=True)
    assert not [one for one in public.sections if one.name == "scores"]


def test_what_is_no_better_than_a_constant_is_the_first_note(tmp_path: Path) -> None:
    bad = record(tmp_path / "bad", 0.0)
    assert page_of_runs([bad]).notes[0].startswith("bad: No better than saying the same of every row, as far as 500")
    assert not any("No better" in note for note in page_of_runs([bad], public=True).notes)


def test_no_axis_is_narrower_than_the_intervals(tmp_path: Path) -> None:
    """Accuracies from 0.9200 to 0.9202 are all within one interval, which is the axis."""
    found = record(tmp_path / "r", 1.0)
    low, high = found.scores["figures"]["accuracy"]["interval"]
    accuracy = next(one for one in curves([found]) if one.name == "mean-model-test-accuracy")
    domain = accuracy.spec["layer"][0]["encoding"]["y"]["scale"]["domain"]
    assert domain[0] <= low < high <= domain[1]
    assert domain == [min(low, 0.92), max(high, 0.9202)]


@pytest.mark.parametrize(
    "change",
    [{"figures": {"auroc": {"value": "<b>", "interval": [0, 1], "constant": 0.5}}}, {"figures": 3}, {"rows": 5}],
)
def test_scores_that_no_run_writes_are_refused(tmp_path: Path, change: dict[str, object]) -> None:
    record(tmp_path / "r", 1.0)
    place = tmp_path / "r" / "summary.json"
    summary = json.loads(place.read_text())
    summary["scores"] = change if "rows" in change else {**summary["scores"], **change}
    place.write_text(json.dumps(summary))
    with pytest.raises(gs.CallerError, match="expected the results folder of a run"):
        read_records([tmp_path / "r"])
