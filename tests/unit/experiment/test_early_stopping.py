"""Early stopping: by public examples, or by test examples with a word about it; the whole plan is charged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import gossamer as gs
from gossamer.cli import main
from gossamer.errors import CallerError
from gossamer.experiment.preparation.planning import PUBLIC_EXAMPLES, UNITS, plan_run
from gossamer.experiment.preparation.prepare import prepare
from gossamer.experiment.results.observer import PUBLIC, TEST
from gossamer.experiment.specs.spec_file import parse_spec

GRAPH = {"name": "graph_federated", "units": 3, "agents": 4, "rounds": 5, "topology": "complete"}


def rows(path: Path, examples: int, seed: int, flipped: bool = False) -> str:
    """Two classes, a feature apart from noise; or with their names exchanged."""
    generator = np.random.default_rng(seed)
    labels = np.arange(examples) % 2
    features = generator.normal(0, 0.3, (examples, 2)) + np.where(labels, 1, -1)[:, None]
    names = np.array(["yes", "no"] if flipped else ["no", "yes"])[labels]
    lines = [f"{a:.4f},{b:.4f},{name}" for (a, b), name in zip(features, names, strict=True)]
    path.write_text("a,b,outcome\n" + "\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


@pytest.fixture
def spec(tmp_path: Path) -> dict[str, Any]:
    """The test file has its classes exchanged, so that a model which is right elsewhere is wrong there."""
    return {
        "dataset": {
            "name": "own",
            "path": rows(tmp_path / "train.csv", 400, 1),
            "test_path": rows(tmp_path / "test.csv", 100, 2, flipped=True),
            "labels": ["no", "yes"],
        },
        "algorithm": {"name": "gossip", "topology": "complete", "nodes": 2, "batch_size": 20, "updates_per_node": 40},
        "budget": {"epsilon": 3, "delta": 1e-4},
        "evaluation": {"public_path": rows(tmp_path / "public.csv", 100, 3)},
        "stop": {"accuracy": 0.9},
    }


def run(spec: dict[str, Any], **changes: Any) -> gs.Result:
    return gs.run(parse_spec({**spec, **changes}))


pytestmark = pytest.mark.filterwarnings("ignore:.*used as they are:gossamer.RunWarning")


def test_public_examples_decide_where_there_are_some(spec: dict[str, Any]) -> None:
    """On test examples the run would never end: who is right on the others is wrong there."""
    early = run(spec)
    assert early.summary["status"] == "accuracy"
    assert early.summary["stopped_by"] == PUBLIC
    assert early.metrics[-1][PUBLIC] >= 0.9
    assert early.metrics[-1][TEST] <= 0.1
    assert run(spec, evaluation="on").summary["status"] == "diverged"  # on test examples it only gets worse


def test_the_guarantee_is_that_of_the_whole_plan(spec: dict[str, Any]) -> None:
    """What was charged is what was planned, however early the run ends."""
    early, whole = run(spec), run(spec, stop={})
    assert early.summary["updates"] < whole.summary["updates"] == 80
    assert early.guarantee.epsilon == whole.guarantee.epsilon
    assert early.guarantee.assumptions == (*whole.guarantee.assumptions, PUBLIC_EXAMPLES)
    assert "stopped_by" not in whole.summary


def test_figures_on_public_examples_are_those_of_the_model(spec: dict[str, Any], tmp_path: Path) -> None:
    """The public file in the place of the test file gives the same figures, from the test's own code."""
    found = run({**spec, "stop": {}, "dataset": {**spec["dataset"], "test_path": str(tmp_path / "public.csv")}})
    for row in found.metrics:
        assert row[PUBLIC] == row[TEST]
        assert row["public_loss"] == row["mean_model_test_loss"]
    assert PUBLIC not in run(spec, stop={}, evaluation="on").metrics[-1]


def test_a_run_that_ends_by_its_test_accuracy_says_so(
    spec: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(spec))
    assert main(["run", str(path), "--out", str(tmp_path / "public")]) == 0
    assert "by its accuracy on test examples" not in capsys.readouterr().err
    path.write_text(yaml.safe_dump({**spec, "stop": {"accuracy": 0.01}, "evaluation": "on"}))
    assert main(["run", str(path), "--out", str(tmp_path / "test")]) == 0
    assert "warning: the run ended by its accuracy on test examples" in capsys.readouterr().err
    assert main(["check", str(path)]) == 0
    assert "It may end before, at stop.accuracy on test examples." in " ".join(capsys.readouterr().out.split())


def test_models_that_are_not_released_may_tell_by_the_end_of_the_run() -> None:
    made = parse_spec({"algorithm": GRAPH, "budget": {"epsilon": 5, "delta": 1e-4}, "stop": {"accuracy": 0.9}})
    found = plan_run(prepare(made))
    proved = [guarantee for guarantee in found.guarantees.values() if np.isfinite(guarantee.epsilon)]
    assert proved
    assert all(UNITS in guarantee.assumptions for guarantee in proved)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, r"evaluation.public_path: there is no file .*public.csv; correct the path"),
        ("a,b,outcome\n1,2,maybe\n", r"evaluation.public_path .*maybe"),
        ("a,outcome\n1,yes\n", r"evaluation.public_path .*public.csv"),
        ("a,b,outcome\n1,zero,yes\n", r"evaluation.public_path .*zero"),
    ],
)
def test_public_examples_that_do_not_fit(spec: dict[str, Any], tmp_path: Path, content: str | None, said: str) -> None:
    path = tmp_path / "public.csv"
    path.unlink()
    if content is not None:
        path.write_text(content)
    with pytest.raises(CallerError, match=said) as raised:
        prepare(parse_spec(spec))
    assert "\n" not in str(raised.value)
