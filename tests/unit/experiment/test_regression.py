"""RMSE and R2 of regressions, against scikit-learn on the predictions of the run's model."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import r2_score, root_mean_squared_error

import gossamer as gs
from gossamer.data.datasets import Dataset, DatasetSettings
from gossamer.data.declaration import Declaration
from gossamer.data.examples import Split
from gossamer.experiment.preparation.prepare import prepare
from gossamer.experiment.specs.spec_file import parse_spec
from gossamer.objectives.linear.model import LinearModel
from gossamer.objectives.models import build_model
from gossamer.objectives.scores import fit_figures


@pytest.mark.parametrize("objective", ["squared", pytest.param("mlp", marks=pytest.mark.slow)])
def test_figures_are_those_of_the_model_that_is_saved(objective: str) -> None:
    spec = parse_spec(
        {
            "dataset": {"name": "graph_regression", "synthetic": {"owners": 4, "features": 5, "test_examples": 80}},
            "objective": objective,
            "algorithm": {"name": "fedavg", "nodes": 4, "rounds": 3, "local_learning_rate": 0.05},
            "privacy": "none",
        }
    )
    found = gs.run(spec)
    prepared = prepare(spec)
    test, model = prepared.dataset.test, np.concatenate([part.ravel() for part in found.model.values()])
    if objective == "squared":
        predicted = np.asarray(test.features) @ model[:5] + model[5]
    else:
        module: torch.nn.Module = build_model("mlp", (5,), 1)
        torch.nn.utils.vector_to_parameters(torch.tensor(model), module.parameters())
        predicted = module(torch.tensor(test.features)).detach().numpy().ravel()
    metrics = found.summary["metrics"]
    assert metrics["test_rmse"] == pytest.approx(root_mean_squared_error(test.targets, predicted), rel=1e-5)
    assert metrics["test_r2"] == pytest.approx(r2_score(test.targets, predicted), rel=1e-4)
    assert found.frame()["test_r2"][-1] == metrics["test_r2"]  # as at every look
    scored = found.summary["scores"]
    assert scored["figures"]["r2"]["value"] == pytest.approx(metrics["test_r2"])
    assert scored["better"] == (scored["figures"]["r2"]["interval"][0] > 0)


def of_constant_targets(classes: int | None = None) -> Dataset:
    test = Split(np.zeros((3, 2), np.float32), np.ones(3, np.float32))
    names = None if classes is None else tuple((str(label),) for label in range(classes))
    settings = DatasetSettings(name="mine", path="mine.csv", task="regression" if classes is None else "classification")
    return Dataset(Declaration.of(settings, None, (2,), "dense", names), test, test, "made up")


def test_targets_that_are_all_the_same_have_no_r2() -> None:
    squared, model = LinearModel("squared", 2, None), np.zeros(3)
    assert fit_figures(squared, model, of_constant_targets()) == {
        "test_rmse": 1.0,
        "test_mae": 1.0,
        "test_r2": None,
        "test_mean_error": -1.0,
    }
    nothing = dict.fromkeys(("test_rmse", "test_mae", "test_r2", "test_mean_error"))
    assert fit_figures(squared, np.full(3, math.inf), of_constant_targets()) == nothing
    assert fit_figures(LinearModel("softmax", 2, 3), np.zeros(9), of_constant_targets(3)) == {
        "test_constant_accuracy": 1.0,
        "test_balanced_accuracy": 0.0,
    }
