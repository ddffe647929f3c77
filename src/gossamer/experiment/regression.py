"""Figures of how well a run's model fits, beside its loss and accuracy, on test examples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gossamer.arrays import FloatArray
from gossamer.data.datasets import Dataset
from gossamer.data.examples import Split
from gossamer.errors import ModelError
from gossamer.objectives import fit
from gossamer.objectives.objective import Objective

Fit = fit.Fit
"""Figures of a model, each None where it is no number."""
_FIGURES = ("rmse", "r2", "mean_error", "constant_accuracy", "balanced_accuracy", "sensitivity", "auroc")


def fit_figures(objective: Objective, model: FloatArray, dataset: Dataset, test: Split | None = None) -> Fit:
    """Return `fit.class_figures` or `fit.real_figures` of a model, each with ``test_`` before its name.

    Errors are in the target's own unit.

    Parameters
    ----------
    objective : Objective
        What was minimised; of one that predicts nothing there are no figures.
    model : ndarray [size]
        Its parameters.
    dataset : Dataset
        What says whether there are classes, and the unit of targets.
    test : Split, optional
        By default those of ``dataset``.
    """
    examples = dataset.test if test is None else test
    if not len(examples):
        return {}
    try:
        with np.errstate(all="ignore"):
            scores = np.asarray(objective.scores(model, examples.features), np.float64)
    except ModelError:
        return {}
    if dataset.classes is not None:
        found = fit.class_figures(scores, examples.targets, dataset.classes)
    else:
        found = fit.real_figures(scores[:, 0], examples.targets)
        unit = 1.0 if dataset.target_range is None else dataset.target_range.unit
        found |= {name: value * unit for name in ("rmse", "mean_error") if (value := found[name]) is not None}
    return {f"test_{name}": value for name, value in found.items()}


def fit_in_words(metrics: Mapping[str, Any]) -> str:
    """Return a line on how well a model fits; nothing where it would say what accuracy does."""
    line = fit.in_words(*_parted(metrics))
    return f"test {line}, of the run's model\n" if line else ""


def fit_warnings(metrics: Mapping[str, Any]) -> list[str]:
    """Return a line where a model is no better than one that says the same of every row."""
    return fit.warnings_of(*_parted(metrics))


def no_better(metrics: Mapping[str, Any]) -> bool:
    """Whether a model is no better than one that says the same of every row."""
    found, accuracy = _parted(metrics)
    return fit.no_better(accuracy, found)


def _parted(metrics: Mapping[str, Any]) -> tuple[Fit, float | None]:
    """Figures without ``test_``, and the accuracy of the same model."""
    found = {name: metrics[f"test_{name}"] for name in _FIGURES if f"test_{name}" in metrics}
    return found, metrics.get("mean_model_test_accuracy", metrics.get("test_accuracy"))
