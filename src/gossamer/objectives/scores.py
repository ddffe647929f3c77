"""Scores of a model that show what accuracy and loss hide: whether it does more than say the same of every row.

References
----------
T. Fawcett, "An introduction to ROC analysis", Pattern Recognition Letters 27 (2006): sections 2, 7 and 8.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from gossamer.arrays import FloatArray
from gossamer.data.datasets import Dataset
from gossamer.data.examples import Split
from gossamer.errors import ModelError
from gossamer.objectives.objective import Objective

Fit = dict[str, float | None]
"""Figures of a model, each None where it is no number."""
Floats = npt.NDArray[np.floating[Any]]

LEAST = 0.05
"""Share of the errors of a constant prediction that a model has to save, or else it is called no better."""


def class_figures(scores: Floats, targets: npt.NDArray[Any], classes: int) -> Fit:
    """Return the accuracy of always naming the commonest class, and balanced accuracy; of two classes more.

    ``balanced_accuracy`` is the mean, over the classes that there are, of the share of their examples that is found.
    ``sensitivity`` is that share of the second of two classes, and ``auroc`` the probability that an example of the
    second has a higher score than one of the first; None where examples of one are missing.

    Parameters
    ----------
    scores : ndarray [n, outputs]
        Scores of classes, or one score of the second of two.
    targets : ndarray [n] of int
        Numbers of the right classes.
    classes : int
        Number of classes.
    """
    if not len(targets) or not np.isfinite(scores).all():
        return {}
    single = scores.shape[1] == 1
    said = (scores[:, 0] > 0).astype(np.int64) if single else scores.argmax(axis=1)
    truth = np.asarray(targets).astype(np.int64)
    there = np.bincount(truth, minlength=classes)
    found = np.bincount(truth[said == truth], minlength=classes) / np.maximum(there, 1)
    figures: Fit = {
        "constant_accuracy": float(there.max() / len(truth)),
        "balanced_accuracy": float(found[there > 0].mean()),
    }
    if classes != 2:
        return figures
    both = bool(there.min())
    higher = _area(scores[:, 0] if single else scores[:, 1] - scores[:, 0], truth) if both else None
    return {**figures, "sensitivity": float(found[1]) if there[1] else None, "auroc": higher}


def _area(scores: Floats, truth: npt.NDArray[np.int64]) -> float:
    """Area under the ROC curve by the sum of ranks, in which equal scores share theirs."""
    _, which, many = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(many) - (many - 1) / 2)[which]
    ones = int(truth.sum())
    return float((ranks[truth == 1].sum() - ones * (ones + 1) / 2) / (ones * (len(truth) - ones)))


def real_figures(predicted: Floats, targets: npt.NDArray[Any]) -> Fit:
    """Return the root of the mean squared error, R2, and the mean error, of predictions of real targets.

    R2 is 1 less the mean squared error divided by the variance of the targets: 1 is perfect, and 0 what their mean
    does. It is None where all targets are the same, and all are where an error is not finite.
    """
    with np.errstate(all="ignore"):
        errors = predicted.astype(np.float64) - targets
        square, mean, spread = (
            float(np.square(errors).mean()),
            float(errors.mean()),
            float(np.var(targets, dtype=float)),
        )
    if not math.isfinite(square):
        return {"rmse": None, "r2": None, "mean_error": None}
    return {"rmse": math.sqrt(square), "r2": 1 - square / spread if spread > 0 else None, "mean_error": mean}


def fit_figures(objective: Objective, model: FloatArray, dataset: Dataset, test: Split | None = None) -> Fit:
    """Return `class_figures` or `real_figures` of a model, each with ``test_`` before its name.

    Errors are in the target's own unit.

    Parameters
    ----------
    objective : Objective
        Objective that was minimised; of one that predicts nothing there are no figures.
    model : ndarray [size]
        Parameters of the model.
    dataset : Dataset
        Data set that says whether there are classes, and the unit of targets.
    test : Split, optional
        Test examples; by default those of ``dataset``.
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
        found = class_figures(scores, examples.targets, dataset.classes)
    else:
        found = real_figures(scores[:, 0], examples.targets)
        unit = 1.0 if dataset.target_range is None else dataset.target_range.unit
        found |= {name: value * unit for name in ("rmse", "mean_error") if (value := found[name]) is not None}
    return {f"test_{name}": value for name, value in found.items()}


def of_metrics(metrics: Mapping[str, Any]) -> Fit:
    """Return the figures of a run's metrics without ``test_``, and the ``accuracy`` of the same model."""
    found = {name: metrics[f"test_{name}"] for name in _FIGURES if f"test_{name}" in metrics}
    accuracy = metrics.get("mean_model_test_accuracy", metrics.get("test_accuracy"))
    return found if accuracy is None else {**found, "accuracy": accuracy}


_FIGURES = ("rmse", "r2", "mean_error", "constant_accuracy", "balanced_accuracy", "sensitivity", "auroc")


def no_better(fit: Mapping[str, float | None]) -> bool:
    """Whether a model saves less than a twentieth of the errors of one that says the same of every row."""
    accuracy, constant, r2 = fit.get("accuracy"), fit.get("constant_accuracy"), fit.get("r2")
    if accuracy is not None and constant is not None:
        return constant < 1 and accuracy - constant < LEAST * (1 - constant)
    return r2 is not None and r2 < LEAST


def in_words(fit: Mapping[str, float | None]) -> str:
    """Return the figures in a line; nothing of several classes where it would say what accuracy does."""
    balanced, accuracy = fit.get("balanced_accuracy"), fit.get("accuracy")
    parts = [
        f"{words} {value:{form}}"
        for name, (words, form) in _WORDS.items()
        if (value := fit.get(name)) is not None and (name != "mean_error" or no_better(fit))
    ]
    alike = balanced is not None and accuracy is not None and abs(balanced - accuracy) < 0.01
    return "" if alike and "auroc" not in fit else ", ".join(parts)


_WORDS = {
    "rmse": ("RMSE", ".4g"),
    "r2": ("R2", ".3f"),
    "mean_error": ("mean error", ".3g"),
    "balanced_accuracy": ("balanced accuracy", ".3f"),
    "sensitivity": ("sensitivity", ".3f"),
    "auroc": ("area under the ROC curve", ".3f"),
}


def warnings_of(fit: Mapping[str, float | None]) -> list[str]:
    """Return a line where a model is no better than a constant, and what may help."""
    if not no_better(fit):
        return []
    if (accuracy := fit.get("accuracy")) is not None:
        area = fit.get("auroc")
        use = "train longer, or take a larger budget or more rows"
        if area is not None and area > _RANKS:
            use = (
                f"it does rank rows (area under the ROC curve {area:.3f}), so choose a threshold of your own on the "
                "probabilities that gossamer predict writes"
            )
        return [
            f"the accuracy of {accuracy:.3f} is hardly better than saying the commonest class of every row, which has "
            f"{fit['constant_accuracy']:.3f}; {use}"
        ]
    off = fit.get("mean_error") or 0.0
    return [
        f"the model is hardly better than the mean of the targets (R2 {fit['r2']:.3f}), and its predictions are too "
        f"{'low' if off < 0 else 'high'} by {abs(off):.3g} on average; where the clip shortens most errors a "
        "model fits something near the median: raise privacy.clip and lower algorithm.learning_rate, or take a larger "
        "budget or more rows"
    ]


_RANKS = 0.6
"""Area under the ROC curve above which a ranking is worth pointing at."""
