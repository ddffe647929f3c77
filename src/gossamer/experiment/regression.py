"""Figures of a regression that people know: root mean squared error, and R2."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from gossamer.arrays import FloatArray
from gossamer.data.datasets import Dataset
from gossamer.data.split import Split
from gossamer.objectives.objective import Objective

Fit = dict[str, float | None]


def regression_figures(
    objective: Objective, model: FloatArray, loss: float, dataset: Dataset, test: Split | None = None
) -> Fit:
    """Return ``test_rmse`` and ``test_r2`` of a model of real targets; nothing where there are classes.

    The root mean squared error is in the target's own unit. R2 is 1 less the mean squared error divided by the variance
    of the targets: 1 is perfect, and 0 what their mean does. It is None where all targets are the same, and both are
    where no finite error is found.

    Parameters
    ----------
    objective : Objective
        What was minimised.
    model : ndarray [size]
        Its parameters.
    loss : float
        Of the model on the test examples.
    dataset : Dataset
        What says whether there are classes, and the unit of targets.
    test : Split, optional
        By default those of ``dataset``.
    """
    examples = dataset.test if test is None else test
    if dataset.classes is not None or not len(examples):
        return {}
    error = _mean_square(objective, model, loss, examples)
    if not math.isfinite(error):
        return {"test_rmse": None, "test_r2": None}
    scale = dataset.target_range
    variance = float(np.var(examples.targets, dtype=np.float64))
    return {
        "test_rmse": math.sqrt(error) * (1.0 if scale is None else scale.unit),
        "test_r2": 1 - error / variance if variance > 0 else None,
    }


def _mean_square(objective: Objective, model: FloatArray, loss: float, test: Split) -> float:
    """Mean squared error in the unit of ``test``; a squared loss says it already."""
    if objective.squared_error is not None:
        return objective.squared_error * loss
    with np.errstate(all="ignore"):
        predicted = np.asarray(objective.scores(model, test.features), np.float64)[:, 0]
        return float(np.square(predicted - test.targets).mean())


def fit_in_words(metrics: Mapping[str, Any]) -> str:
    """Return a line on how well a regression fits; nothing of other runs."""
    rmse, r2 = metrics.get("test_rmse"), metrics.get("test_r2")
    if rmse is None:
        return ""
    return f"test RMSE {rmse:.4g}" + ("" if r2 is None else f", R2 {r2:.3f}") + ", of the run's model\n"
