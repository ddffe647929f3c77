"""Runs that diverge say so, in a line at their end and in results; how many gradients were lost only without noise."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from gossamer.cli import main
from gossamer.experiment.preparation.prepare import prepare
from gossamer.experiment.results.summary import initial_loss, troubles, worse
from gossamer.experiment.runs.running import run
from gossamer.experiment.specs.spec_file import parse_spec

pytestmark = pytest.mark.filterwarnings("ignore:fedavg. local_learning_rate:gossamer.errors.RunWarning")

TEN = math.log(10)  # the loss of a softmax of ten classes whose weights are 0


def spec(privacy: Any = None, more: Any = None, **algorithm: Any) -> dict[str, Any]:
    return {
        "dataset": "digits",
        "algorithm": {"name": "fedavg", "nodes": 4, "rounds": 3, **algorithm},
        "privacy": privacy or {"mechanism": "none"},
        **(more or {}),
    }


WILD = {"local_learning_rate": 0.5, "proximal": 40}
LOST = {"local_learning_rate": 1e6, "proximal": 1e6, "local_steps": 30}


@pytest.mark.parametrize("more", [{}, {"evaluation": "off"}], ids=["looked at", "not looked at"])
def test_a_run_that_ends_worse_than_it_began_says_so(more: dict[str, Any]) -> None:
    """Each local step takes u to (1 - 20) u and more, five times in each of three rounds."""
    found = run(parse_spec(spec(more=more, **WILD)))
    ended = found.summary["ended_worse"]
    assert ended["initial_test_loss"] == pytest.approx(TEN, rel=1e-6)
    assert ended["test_loss"] == found.metrics[-1]["mean_model_test_loss"] > 100
    assert found.summary["status"] == "diverged"
    assert "gradients_not_finite" not in found.summary
    learns = run(parse_spec(spec(more=more, local_learning_rate=0.1)))
    assert learns.metrics[-1]["mean_model_test_loss"] < TEN
    assert "ended_worse" not in learns.summary
    assert learns.summary["status"] == "finished"


def test_gradients_that_were_not_finite_are_counted_where_there_is_no_noise(tmp_path: Path) -> None:
    """Their number is raw, so with noise it is in the private log alone."""

    def logged(folder: Path) -> float:
        lines = [json.loads(line) for line in (folder / "private.jsonl").read_text().splitlines()]
        return sum(line["value"] for line in lines if line["name"] == "gradients_not_finite")

    bare = run(parse_spec(spec(**LOST)), tmp_path / "bare")
    assert bare.summary["gradients_not_finite"] == logged(tmp_path / "bare") > 0
    noisy = run(parse_spec(spec({"clip": 0.5, "noise_multiplier": 1.0}, **LOST)), tmp_path / "noisy")
    assert logged(tmp_path / "noisy") > 0
    assert "gradients_not_finite" not in noisy.summary
    masked = run(parse_spec(spec({"mechanism": "none", "clip": 0.5}, masking="secure", **LOST)), tmp_path / "masked")
    assert logged(tmp_path / "masked") > 0
    assert "gradients_not_finite" not in masked.summary


def test_of_nodes_without_a_server_their_own_models_count() -> None:
    found = run(
        parse_spec({**spec(), "algorithm": {"name": "gossip", "nodes": 4, "updates_per_node": 9, "learning_rate": 99}})
    )
    assert found.summary["ended_worse"]["test_loss"] == found.metrics[-1]["test_loss"] > TEN


def test_before_the_first_update_nothing_is_worse() -> None:
    found = run(parse_spec(spec(more={"stop": {"virtual_seconds": 1e-3}}, **WILD)))
    assert found.summary["updates"] == 0
    assert "ended_worse" not in found.summary


def test_a_run_without_an_update_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run's time is up before a client has answered; one that learns says nothing of it."""
    monkeypatch.chdir(tmp_path)
    said = {}
    for seconds in (1e-3, 1e3):
        Path("spec.yaml").write_text(
            json.dumps({**spec(local_learning_rate=0.1), "stop": {"virtual_seconds": seconds}})
        )
        assert main(["run", "spec.yaml", "--out", "out", "--overwrite", "--json"]) == 0
        out, err = capsys.readouterr()
        said[json.loads(out)["updates"]] = [line for line in err.splitlines() if "no update" in line]
    assert said == {
        0: [
            "gossamer: warning: the run made no update, so its model is the one that it began with; give its nodes "
            "and rounds more time"
        ],
        12: [],
    }


@pytest.mark.parametrize("last", [None, math.nan, math.inf])
def test_a_loss_that_is_no_number_is_worse(last: float | None) -> None:
    assert worse(2.0, last) == {"ended_worse": {"initial_test_loss": 2.0, "test_loss": None}}
    assert worse(2.0, 2.0) == worse(None, last) == {}
    assert troubles(worse(2.0, last), private=False) == [
        "the run diverged: the test loss began at 2, and ended at no number; lower the learning rates, or scale the "
        "features (dataset.columns, dataset.scale)"
    ]


def test_the_start_is_the_model_that_all_begin_with() -> None:
    assert initial_loss(prepare(parse_spec(spec()))) == pytest.approx(TEN, rel=1e-6)


@pytest.mark.parametrize(
    ("privacy", "algorithm", "lines"),
    [
        ({"mechanism": "none"}, {"local_learning_rate": 0.1}, []),
        (
            {"mechanism": "none"},
            LOST,
            [
                "gossamer: warning: the run diverged: the test loss began at 2.303, and ended at ",
                "gossamer: warning: {} gradients of too large numbers were left out; lower the learning rates",
            ],
        ),
        (
            {"clip": 1.0, "noise_multiplier": 50.0},
            {"local_learning_rate": 0.1},
            [
                "gossamer: warning: the model is worse than before the run: the test loss began at 2.303, and ended at",
            ],
        ),
    ],
    ids=["learns", "diverges", "drowns"],
)
def test_the_command_says_it_in_a_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    privacy: dict[str, Any],
    algorithm: dict[str, Any],
    lines: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("spec.yaml").write_text(json.dumps(spec(privacy, **algorithm)))
    assert main(["run", "spec.yaml", "--out", "out", "--json"]) == 0
    out, err = capsys.readouterr()
    count = json.loads(out).get("gradients_not_finite", 0)
    said = [line for line in err.splitlines() if "worse than" in line or "diverged" in line or "left out" in line]
    assert len(said) == len(lines)
    assert all(found.startswith(line.format(count)) for found, line in zip(said, lines, strict=True))
    assert all(("or take less noise" in line) is ("noise_multiplier" in privacy) for line in said)
