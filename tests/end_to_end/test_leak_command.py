"""``gossamer audit leak``: nothing differs; a bug is named; a run that is another one each time is refused."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.reference.planted_leaks import BUGS

from gossamer.cli.main import main
from gossamer.sides.machine import SideAnswer
from gossamer.sides.samples import SampleRule
from gossamer.vectors import Released

SPEC = {
    "dataset": {"name": "digits", "positive": [0, 1, 2, 3, 4]},
    "objective": {"name": "logistic", "dtype": "float64"},
    "algorithm": {"name": "gossip", "nodes": 3, "topology": "ring", "batch_size": 4, "updates_per_node": 3},
    "privacy": {"clip": 1.0, "noise_multiplier": 1.0},
}


@pytest.fixture
def spec(tmp_path: Path) -> str:
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(SPEC))
    return str(path)


def test_nothing_differs(spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "leak", spec, "--pairs", "3"]) == 0
    printed = capsys.readouterr().out
    assert "releases compared                     27" in printed
    assert "Nothing but noise told the two data sets of a pair apart." in printed


def test_releases_without_noise_are_not_said_to_hide_anything(spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "leak", spec, "--pairs", "3", "--set", "privacy={mechanism: none}"]) == 0
    printed = capsys.readouterr().out
    assert "Nothing but releases told the two data sets of a pair apart, and they have no noise." in printed
    assert "Nothing but noise" not in printed


def test_that_no_row_that_differs_was_released_is_said(spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = "No release was of a row that differs: raise --pairs or --updates."
    assert main(["audit", "leak", spec, "--pairs", "1", "--updates", "1"]) == 0
    printed = capsys.readouterr().out
    assert "of these, with a row that differs     0" in printed
    assert said in printed
    assert main(["audit", "leak", spec, "--pairs", "60"]) == 0
    printed = capsys.readouterr().out
    assert "of these, with a row that differs     0" not in printed
    assert said not in printed


def test_fewer_updates_make_shorter_runs(spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "leak", spec, "--pairs", "2", "--updates", "4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["pairs"] == 2
    assert 8 <= found["releases"] < 18
    assert found["divergences"] == 0
    assert found["leak"] is None


def test_a_leak_is_named_with_the_command_that_finds_it_again(
    spec: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (bug,) = (bug for bug in BUGS if bug.plant.__name__ == "loss_in_the_summary")
    bug.plant(monkeypatch)
    assert main(["audit", "leak", spec, "--seed", "4"]) == 1
    printed = capsys.readouterr().out
    assert "Leak in pair 1" in printed
    assert "summary: not what the first run has" in printed
    assert "train_loss" in printed
    *_, again = printed.strip().splitlines()
    assert again == f"again: gossamer audit leak {spec} --seed 4 --updates 200 --pairs 1"
    assert main(["audit", "leak", spec, "--seed", "4", "--pairs", "1", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["divergences"] == 1


def test_a_run_that_is_another_one_each_time_is_refused(
    spec: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gradient, calls = SampleRule._gradient, count()

    def from_elsewhere(self: SampleRule, ticket: Any, raw: Any) -> SideAnswer:
        found = gradient(self, ticket, raw)
        return found._replace(released=Released(found.released.values + 1e-9 * next(calls)))

    monkeypatch.setattr(SampleRule, "_gradient", from_elsewhere)
    assert main(["audit", "leak", spec]) == 2
    said = capsys.readouterr().err.strip()
    assert said.startswith(
        f"gossamer: error: {spec}: a run of this spec cannot be replayed, since with the same data and coins"
    )
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("options", [["--pairs", "0"], ["--pairs", "-3"], ["--updates", "0"]])
def test_what_is_no_number_of_pairs_is_refused(
    spec: str, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", "leak", spec, *options]) == 2
    said = capsys.readouterr().err.strip()
    assert f"{options[0]}: expected a whole number, 1 or more" in said
    assert len(said.splitlines()) == 1
