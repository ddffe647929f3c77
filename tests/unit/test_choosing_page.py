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
from gossamer.experiment.planning import plan_run
from gossamer.experiment.prepare import prepare
from gossamer.experiment.reading import parse_spec

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
    """The spec that `gossamer new` writes for the table of the examples."""
    assert NEW is not None
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    assert main(shlex.split(NEW[1])) == 0
    return dict(yaml.safe_load((tmp_path / "wards.yaml").read_text(encoding="utf-8")))


CHANGED = {"epsilon": "budget", "delta": "budget", "batch": "algorithm", "clip": "privacy"}


def changed(spec: dict[str, Any], key: str, value: str) -> Any:
    section, name = CHANGED[key], "batch_size" if key == "batch" else key
    number = int(value) if key == "batch" else float(value)
    return parse_spec({**spec, section: {**spec[section], name: number}, "evaluation": "off"})


@pytest.mark.parametrize("key", ["epsilon", "delta", "batch"])
def test_the_noise_is_that_of_the_plan(wards: dict[str, Any], key: str) -> None:
    header, *rows = table(key) if key != "epsilon" else table("epsilon | 0.3")
    (shown,) = [row for row in rows if row[0].startswith("noise multiplier")]
    for value, multiplier in zip(header[-len(shown) + 1 :], shown[1:]):
        mechanisms = plan_run(prepare(changed(wards, key, value))).mechanisms.values()
        most = max(mechanism.noise_multiplier for mechanism in mechanisms)  # type: ignore[union-attr]
        assert float(multiplier) == pytest.approx(most, abs=0.06)


@pytest.mark.slow
@pytest.mark.parametrize("key", ["epsilon", "delta", "batch", "clip"])
def test_the_accuracies_are_about_those_of_runs(wards: dict[str, Any], key: str) -> None:
    """Within 0.05, 4 deviations of a run (0.012) and more, but for the clip of 10, whose runs differ by 0.1."""
    header, *rows = table(key) if key != "epsilon" else table("epsilon | 0.3")
    (shown,) = [row for row in rows if row[0].startswith("accuracy")]
    for value, accuracy in zip(header[-len(shown) + 1 :], shown[1:]):
        found = gs.run(changed(wards, key, value)).summary["metrics"]["mean_model_test_accuracy"]
        assert found == pytest.approx(float(accuracy), abs=0.3 if value == "10" else 0.05)


def test_guesses_are_right_as_often_as_the_formula_says() -> None:
    for epsilons, shown, _ in table("epsilon | right at most")[1:]:
        if shown[0].isdigit():
            given = [100 / (1 + math.exp(-float(epsilon))) for epsilon in re.findall(r"[\d.]+", epsilons)]
            for found, most in zip(re.findall(r"\d+", shown), given):
                assert int(found) == int(round(most, 1))
