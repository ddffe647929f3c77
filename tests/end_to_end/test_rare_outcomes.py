"""Outcomes that are rare, and counts, through the command: probabilities that are right, and what is refused."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
import torch
import yaml
from sklearn.linear_model import PoissonRegressor

import gossamer as gs
from gossamer.cli import main

pytestmark = [
    pytest.mark.usefixtures("called_here"),
    pytest.mark.filterwarnings("always::gossamer.errors.RunWarning"),
]


def hospitals(rows: int = 4000) -> float:
    """Write deaths.csv, of five hospitals, of which about 8 % died; return the share."""
    draw, lines, deaths = random.Random(11), ["hospital,age,glucose,bmi,pressure,sex,admission,died"], 0
    for row in range(rows):
        age, glucose, bmi, high = draw.randint(1, 90), draw.gauss(105, 40), draw.gauss(28, 7), draw.random() < 0.3
        sex, admission = draw.choice("fm"), draw.choice("xyz")
        odds = 0.055 * age + 0.5 * high + 0.004 * (glucose - 105) + 0.3 * (sex == "m") + 0.5 * (admission == "z") - 6.1
        died = draw.random() < 1 / (1 + math.exp(-odds))
        deaths += died
        cells = age, f"{glucose:.1f}", f"{bmi:.1f}", int(high), sex, admission, ["no", "yes"][died]
        lines.append(",".join(map(str, ("ABCDE"[row % 5], *cells))))
    Path("deaths.csv").write_text("\n".join(lines) + "\n")
    return deaths / rows


DATA: dict[str, Any] = {
    "name": "deaths",
    "path": "deaths.csv",
    "target": "died",
    "labels": ["no", "yes"],
    "owner": "hospital",
    "prevalence": 0.08,
    "columns": {
        "age": [0, 100],
        "glucose": [60, 250],
        "bmi": [15, 45],
        "pressure": "boolean",
        "sex": ["f", "m"],
        "admission": ["x", "y", "z"],
    },
}
GOSSIP = {"name": "gossip", "nodes": 5, "topology": "complete", "batch_size": 320, "learning_rate": 0.5}
PRIVATE = {
    "dataset": DATA,
    "partition": "natural",
    "algorithm": {**GOSSIP, "updates_per_node": 100},
    "privacy": {"clip": 1.0},
    "budget": {"epsilon": 3, "delta": 1e-5},
    "evaluation": "off",
}
BALANCED = {"name": "logistic", "class_weight": "balanced"}


def _risk(objective: dict[str, Any], seed: int) -> float:
    found = gs.run({**PRIVATE, "objective": objective, "seed": seed}).model.predict("deaths.csv").probabilities
    assert found is not None
    return float(found[:, 1].mean())


def test_the_mean_risk_is_that_of_the_outcome() -> None:
    """Within 15 % at epsilon 3, in five runs of other noise, where the same clip without weights is 30 % too low.

    The noise follows from the test's name, so it passes always or never.
    """
    share = hospitals()
    assert 0.07 < share < 0.09
    for seed in range(5):
        assert _risk(BALANCED, seed) == pytest.approx(share, rel=0.15)
    assert _risk({"name": "logistic"}, 0) < 0.75 * share


def test_the_compiled_engine_weights_alike() -> None:
    hospitals(500)
    spec = {**PRIVATE, "algorithm": {**GOSSIP, "batch_size": 20, "updates_per_node": 5}, "objective": BALANCED}
    secret = gs.NoiseSecret.fresh()
    runs = [gs.run({**spec, "compute": {"engine": one}}, secret=secret) for one in ("simulator", "compiled")]
    np.testing.assert_allclose(runs[0].model.vector, runs[1].model.vector, rtol=1e-5)


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        ({"class_weight": {"dead": 3}}, "objective.class_weight: dead is none of the classes no, yes; correct it"),
        (
            {"class_weight": {"yes": 0}},
            "error: s.yaml: objective.class_weight.yes: input should be greater than 0, found",
        ),
        ({"class_weight": "heavy"}, "error: s.yaml: objective.class_weight: unknown name 'heavy'; expected one of bal"),
        ({"name": "hinge", "class_weight": {"yes": 3}}, "class_weight is for logistic, softmax and networks"),
        ({"name": "mlp", "loss": "mse", "class_weight": {"yes": 3}}, "class_weight is for networks with cross_entropy"),
        ({"name": "poisson"}, "the poisson loss is for real targets, found 2 classes"),
    ],
)
def test_a_wrong_weight_is_a_line(objective: dict[str, Any], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    hospitals(200)
    Path("s.yaml").write_text(yaml.safe_dump({**PRIVATE, "objective": objective}))
    assert main(["run", "s.yaml", "--out", "out"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert message in said
    assert said.count("objective.class_weight") <= 1
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"prevalence": None}, "not from private rows; give dataset.prevalence, such as 0.08"),
        ({"labels": ["no", "yes", "maybe"]}, "prevalence is the share of the second of two labels"),
        ({"prevalence": 1.5}, "less than 1"),
        ({"positive": ["no"]}, "the second of two labels, and positive names another; leave positive out"),
    ],
)
def test_a_wrong_prevalence_is_a_line(data: dict[str, Any], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    hospitals(200)
    Path("s.yaml").write_text(yaml.safe_dump({**PRIVATE, "dataset": {**DATA, **data}, "objective": BALANCED}))
    assert main(["run", "s.yaml", "--out", "out"]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("name", ["logistic", "softmax"])
def test_a_run_starts_from_the_prevalence(name: str) -> None:
    hospitals(200)
    steps = {**GOSSIP, "batch_size": 20, "learning_rate": 0.05}
    spec = {**PRIVATE, "budget": None, "privacy": "none", "algorithm": steps, "stop": {"updates": 5}}
    found = gs.run({**spec, "objective": name}).model.predict("deaths.csv").probabilities
    assert found is not None
    assert 0.04 < found[:, 1].mean() < 0.16  # a short step of each node from 0.08, not from a half


@pytest.fixture
def visits() -> np.ndarray[Any, Any]:
    """Write visits.csv: counts whose logarithm of the mean is linear; return its numbers."""
    draw = np.random.default_rng(3)
    x = draw.integers(0, 2, (800, 2))
    table = np.column_stack([x, draw.poisson(np.exp(0.4 + x @ [0.7, -0.5]))])
    Path("visits.csv").write_text("ill,young,visits\n" + "\n".join(",".join(map(str, row)) for row in table) + "\n")
    return table


COUNTS = {"name": "visits", "path": "visits.csv", "target": "visits", "task": "regression", "target_range": "none"}
OF_COUNTS: dict[str, Any] = {
    "dataset": {**COUNTS, "columns": {"ill": "boolean", "young": "boolean"}, "test_path": "visits.csv"},
    "objective": "poisson",
    "algorithm": {"name": "central", "batch_size": 800, "learning_rate": 0.3, "updates_per_node": 400},
    "privacy": "none",
    "evaluation": "off",
}


def test_counts_are_fitted_as_scikit_learn_fits_them(visits: np.ndarray[Any, Any], tmp_path: Path) -> None:
    model = gs.run(OF_COUNTS).model
    right = PoissonRegressor(alpha=0, tol=1e-8).fit(visits[:, :2], visits[:, 2])
    np.testing.assert_allclose(model["weight"][0], right.coef_, atol=2e-3)
    cells = visits[:5, :2].astype(np.float64)
    predicted = model.predict([{"ill": int(ill), "young": int(young)} for ill, young in cells]).values
    np.testing.assert_allclose(predicted, right.predict(cells), rtol=5e-3)
    np.testing.assert_allclose(joblib.load(model.export("sklearn", tmp_path)).predict(cells), predicted, rtol=1e-6)
    assert model.evaluate("visits.csv")["figures"]["r2"]["value"] > 0.1


@pytest.mark.slow
def test_counts_are_exported_to_torch(visits: np.ndarray[Any, Any], tmp_path: Path) -> None:
    model = gs.run({**OF_COUNTS, "stop": {"updates": 5}}).model
    program = torch.export.load(model.export("torch", tmp_path)).module()
    cells = visits[:5, :2].astype(np.float64)
    predicted = model.predict([{"ill": int(ill), "young": int(young)} for ill, young in cells]).values
    np.testing.assert_allclose(program(torch.tensor(cells)).numpy(), predicted, rtol=1e-6)


def test_counts_are_not_scaled(visits: np.ndarray[Any, Any]) -> None:
    spec = {**OF_COUNTS, "dataset": {**OF_COUNTS["dataset"], "target_range": [0, 20]}}
    with pytest.raises(gs.SpecError, match="poisson is for counts as they are"):
        gs.run(spec)


def test_a_private_run_on_counts_is_not_told_to_scale_them(
    visits: np.ndarray[Any, Any], recwarn: pytest.WarningsRecorder
) -> None:
    data = {key: value for key, value in OF_COUNTS["dataset"].items() if key != "target_range"}
    for name in ("poisson", "squared"):
        recwarn.clear()
        spec = {**OF_COUNTS, "objective": name, "dataset": data, "privacy": {"clip": 4, "noise_multiplier": 2}}
        gs.run({**spec, "stop": {"updates": 2}})
        told = any("how large targets are" in str(one.message) for one in recwarn)
        assert told == (name == "squared")


def test_a_sweep_names_settings_that_diverged_and_those_that_learnt_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    hospitals(300)
    spec = {**PRIVATE, "privacy": "none", "budget": None, "objective": {"name": "logistic"}}
    spec["algorithm"] = {**GOSSIP, "batch_size": 20, "updates_per_node": 5}
    Path("s.yaml").write_text(yaml.safe_dump({key: value for key, value in spec.items() if value is not None}))
    grid = ["--grid", "algorithm.learning_rate=1e-9,1000", "--seeds", "1", "--out", "out"]
    assert main(["sweep", "s.yaml", *grid]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "at the beginning, or none: learning rate 1000 (1 of 1). Lower the learning rate or" in said
