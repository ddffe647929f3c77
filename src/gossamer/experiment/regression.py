"""Figures of a regression that people know: root mean squared error, and R2."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from gossamer.data.split import Split
from gossamer.objectives.objective import Objective


def regression_figures(objective: Objective, loss: float | None, test: Split) -> dict[str, float | None]:
    """Return ``test_rmse`` and ``test_r2`` of a model by its ``loss`` on a test split; nothing of another objective.

    R2 is 1 less the mean squared error divided by the variance of the targets of the split: 1 is perfect, and 0 what
    their mean does. It is None where all targets are the same, and both are where the loss is not finite.
    """
    if objective.squared_error is None or not len(test):
        return {}
    error = math.inf if loss is None else objective.squared_error * loss
    if not math.isfinite(error):
        return {"test_rmse": None, "test_r2": None}
    variance = float(np.var(test.targets, dtype=np.float64))
    return {"test_rmse": math.sqrt(error), "test_r2": 1 - error / variance if variance > 0 else None}


def fit_in_words(metrics: Mapping[str, Any]) -> str:
    """Return a line on how well a regression fits; nothing of other runs."""
    rmse, r2 = metrics.get("test_rmse"), metrics.get("test_r2")
    if rmse is None:
        return ""
    return f"test RMSE {rmse:.4g}" + ("" if r2 is None else f", R2 {r2:.3f}") + ", of the run's model\n"
