"""The part of a report on scores: intervals beside a constant, and axes that reach as far as they do."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.special import expit
from tests.unit.report.test_records import folder

import gossamer as gs
from gossamer.objectives.score_words import shown
from gossamer.objectives.scores import ScoredSample
from gossamer.report.curves import curves
from gossamer.report.page import html, page_of_runs
from gossamer.report.records import SCORES, RunRecord, read_records

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


def test_all_figures_stand_in_a_table_beside_the_constant(tmp_path: Path) -> None:
    """What a board needs of risks: how right they are as well as how they rank, and of how many rows."""
    good = record(tmp_path / "good", 1.5)
    text = html(page_of_runs([good]))
    assert 'id="scores-table">All figures on test rows' in text
    assert "of 500 rows" in text
    for words, name in (("log loss", "log_loss"), ("Brier score", "brier"), ("calibration slope", "calibration_slope")):
        one = good.scores["figures"][name]
        cells = [shown(name, one[part]) for part in ("value", "interval", "constant")]
        row = re.search(rf"<th[^>]*>{words}</th>(.*?)</tr>", text, re.DOTALL)
        assert row is not None
        assert re.findall(r"<td[^>]*>(.*?)</td>", row[1]) == cells
    assert "mean predicted probability</th>" in text
    assert "log loss" not in html(page_of_runs([good], public=True))


def test_several_runs_have_a_column_each_of_the_first_three(tmp_path: Path) -> None:
    found = [record(tmp_path / name, 1.0) for name in "abcd"]
    section = next(one for one in page_of_runs(found).sections if one.name == "scores")
    first, *rows = section.values["rows"]
    assert [*first.values()] == ["number of test rows", *["500 rows"] * 3]
    assert [*first][1:] == ["a", "b", "c"]
    brier = next(row for row in rows if "Brier score" in row.values())
    one = found[1].scores["figures"]["brier"]
    low, high = one["interval"]
    assert brier["b"] == f"{one['value']:.4f} ({low:.4f} to {high:.4f}); constant {one['constant']:.4f}"
    wide = [replace(one, summary={**one.summary, "metrics": dict.fromkeys(SCORES, 0.5)}) for one in found]
    on_paper = html(page_of_runs(wide), {"none": ""}).partition('id="overview"')[2].partition("</section>")[0]
    assert (on_paper.count("<dl"), on_paper.count("<table")) == (4, 0)  # a table of all scores would be cut


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


def test_a_run_that_diverged_leaves_the_others_their_room(tmp_path: Path) -> None:
    """Its R2 of minus a million is at the edge of an axis from -1 to 1, and in the table as it is."""
    found = [record(tmp_path / name, 1.0) for name in "ab"]
    worst = {"value": -1e6, "interval": [-2e6, -5e5], "constant": 0.0, "gain": [-2e6, -5e5]}
    scores = {**found[0].scores, "figures": {"r2": worst}}
    both = [replace(found[0], summary={**found[0].summary, "scores": scores}), found[1]]
    section = next(one for one in page_of_runs(both).sections if one.name == "scores")
    scale = section.figures[0].spec["layer"][0]["encoding"]["x"]["scale"]
    assert (scale["domain"], scale["clamp"]) == ([-1, 1], True)
    assert any("-1e+06" in cell for row in section.values["rows"] for cell in row.values())
