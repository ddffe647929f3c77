"""The page on choosing epsilon, delta, batch and clip: its tables are what runs and formulas give."""

from __future__ import annotations

import math
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

import gossamer as gs
from gossamer.cli import main
from gossamer.experiment.preparation.planning import plan_run
from gossamer.experiment.preparation.prepare import prepare
from gossamer.experiment.specs.spec_file import parse_spec

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "how-to" / "choosing.md").read_text(encoding="utf-8")
NEW = re.search(r"^\$ gossamer (new wards .*)$", (ROOT / "docs/how-to/your-csv.md").read_text(encoding="utf-8"), re.M)


def table(first: str) -> list[list[str]]:
    """The rows of the table whose header begins so, without the header's words."""
    (found,) = re.findall(rf"^\| {re.escape(first)} \|.*\n(?:\|.*\n)+", TEXT, re.MULTILINE)
    lines = found.splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in (lines[0], *lines[2:])]


@pytest.fixture
def wards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The spec that `gossamer new` writes for the table of the examples, with the steps that the page measures."""
    assert NEW is not None
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    assert main(shlex.split(NEW[1])) == 0
    spec = dict(yaml.safe_load((tmp_path / "wards.yaml").read_text(encoding="utf-8")))
    spec["algorithm"] |= {"learning_rate": 0.5, "updates_per_node": 100}
    return {**spec, "privacy": {"clip": 1}}


CHANGED = {"epsilon": "budget", "delta": "budget", "batch": "algorithm", "clip": "privacy"}


def changed(spec: dict[str, Any], key: str, value: str) -> Any:
    section, name = CHANGED[key], "batch_size" if key == "batch" else key
    number = int(value) if key == "batch" else float(value)
    return parse_spec({**spec, section: {**spec[section], name: number}, "evaluation": "off"})


@pytest.mark.some(1)
@pytest.mark.parametrize("key", ["epsilon", "delta", "batch"])
def test_the_noise_is_that_of_the_plan(wards: dict[str, Any], key: str) -> None:
    header, *rows = table(key) if key != "epsilon" else table("epsilon | 0.3")
    (shown,) = [row for row in rows if row[0].startswith("noise multiplier")]
    for value, multiplier in zip(header[-len(shown) + 1 :], shown[1:]):
        mechanisms = plan_run(prepare(changed(wards, key, value))).mechanisms.values()
        most = max(mechanism.noise_multiplier for mechanism in mechanisms)  # type: ignore[union-attr]
        assert float(multiplier) == pytest.approx(most, abs=0.06)


# Standard deviations of a run's accuracy, over eight runs, where noise or steps are large; at most 0.013 elsewhere.
DEVIATIONS = {("epsilon", "0.3"): 0.032, ("clip", "0.1"): 0.017, ("clip", "3"): 0.02, ("clip", "10"): 0.071}


@pytest.mark.slow
@pytest.mark.parametrize("key", ["epsilon", "delta", "batch", "clip"])
def test_the_accuracies_are_about_those_of_runs(wards: dict[str, Any], key: str) -> None:
    """Within 4.5 deviations of one run: false alarms in at most 1 of 100,000 runs if these are normal."""
    header, *rows = table(key) if key != "epsilon" else table("epsilon | 0.3")
    (shown,) = [row for row in rows if row[0].startswith("accuracy")]
    for value, accuracy in zip(header[-len(shown) + 1 :], shown[1:]):
        found = gs.run(changed(wards, key, value)).summary["metrics"]["mean_model_test_accuracy"]
        assert found == pytest.approx(float(accuracy), abs=4.5 * DEVIATIONS.get((key, value), 0.013))


def test_the_size_of_the_example_is_as_said(wards: dict[str, Any]) -> None:
    prepared = prepare(parse_spec({**wards, "evaluation": "off"}))
    assert prepared.objective.size == 12
    assert "| a yes or no, 12 parameters |" in TEXT
    assert min(len(shard) for shard in prepared.shards) == 194
    assert "the smallest ward trains on 194" in TEXT


def losses(column: int) -> list[tuple[float, int]]:
    """Of each run that the page measures for a column: n times epsilon, and points of accuracy lost."""
    if column == 1:
        header, accuracies, _ = table("epsilon | 0.3")
        return [(194 * float(e), 80 - round(100 * float(a))) for e, a in zip(header[1:], accuracies[1:])]
    header, *rows = table("nodes with rows each | epsilon 0.5")
    epsilons = [float(cell.removeprefix("epsilon ")) for cell in header[1:]]
    return [
        (int(row[0].split()[-1]) * epsilon, 94 - round(100 * float(accuracy)))
        for row in rows
        if "parameters" not in row[0]
        for epsilon, accuracy in zip(epsilons, row[1:])
    ]


@pytest.mark.parametrize("column", [1, 3])
def test_the_one_number_sums_up_the_measured_tables(column: int) -> None:
    """Every measured run is in one row of the summary, whose cell is the least and the most that was lost there."""
    left = losses(column)
    for row in table("n times epsilon")[1:]:
        ends = [float(end.replace(",", "")) for end in re.findall(r"[\d,]+", row[0])]
        low, high = ends[0], math.inf if "more" in row[0] else ends[-1]
        here = [run for run in left if low - 1 <= run[0] <= high + 1]
        left = [run for run in left if run not in here]
        lost = sorted({run[1] for run in here})
        assert [int(end) for end in re.findall(r"\d+", row[column].partition(" with")[0])] == lost[:1] + lost[1:][-1:]
    assert not left


def test_guesses_are_right_as_often_as_the_formula_says() -> None:
    for epsilons, shown, _ in table("epsilon | right at most")[1:]:
        if shown[0].isdigit():
            given = [100 / (1 + math.exp(-float(epsilon))) for epsilon in re.findall(r"[\d.]+", epsilons)]
            for found, most in zip(re.findall(r"\d+", shown), given):
                assert int(found) == int(round(most, 1))
