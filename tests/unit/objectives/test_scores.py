"""Figures that show whether a model does more than say the same of every row, against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score, recall_score, roc_auc_score

from gossamer.objectives.scores import class_figures, in_words, no_better, real_figures, warnings_of

RNG = np.random.default_rng(4)
TRUTH = (RNG.random(400) < 0.1).astype(np.int64)
SCORES = np.round(RNG.normal(size=400) + TRUTH - 1, 1)
"""With ties, which share their ranks."""


@pytest.mark.parametrize("outputs", [1, 2])
def test_two_classes(outputs: int) -> None:
    shown = SCORES[:, None] if outputs == 1 else np.column_stack([np.zeros(400), SCORES])
    said = (SCORES > 0).astype(int)
    found = class_figures(shown, TRUTH, 2)
    assert found["constant_accuracy"] == pytest.approx(1 - TRUTH.mean())
    assert found["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(TRUTH, said))
    assert found["sensitivity"] == pytest.approx(recall_score(TRUTH, said))
    assert found["auroc"] == pytest.approx(roc_auc_score(TRUTH, SCORES), abs=1e-12)


def test_several_classes_of_which_one_is_not_there() -> None:
    truth, shown = RNG.integers(0, 3, 90), RNG.normal(size=(90, 4))
    found = class_figures(shown, truth, 4)
    with pytest.warns(UserWarning, match="y_pred contains classes"):
        expected = balanced_accuracy_score(truth, shown.argmax(1))
    assert found == {
        "constant_accuracy": pytest.approx(np.bincount(truth).max() / 90),
        "balanced_accuracy": pytest.approx(expected),
    }


def test_where_there_is_nothing_to_find() -> None:
    assert class_figures(np.full((3, 1), np.nan), np.ones(3, int), 2) == {}
    found = class_figures(np.ones((3, 1)), np.ones(3, int), 2)
    assert (found["auroc"], found["sensitivity"], found["constant_accuracy"]) == (None, 1, 1)
    assert not no_better({**found, "accuracy": 1.0})  # nothing is left to be better at
    assert real_figures(np.ones(2), np.full(2, np.inf)) == {"rmse": None, "r2": None, "mean_error": None}
    assert real_figures(np.full(2, 3.0), np.ones(2)) == {"rmse": 2, "r2": None, "mean_error": 2}


def test_a_rare_outcome_that_is_never_named() -> None:
    found = class_figures(SCORES[:, None] - 100, TRUTH, 2)
    accuracy = float(1 - TRUTH.mean())
    assert (found["balanced_accuracy"], found["sensitivity"]) == (0.5, 0)
    assert no_better({**found, "accuracy": accuracy})
    assert not no_better({**found, "accuracy": accuracy + 0.06 * (1 - accuracy)})
    (line,) = warnings_of({**found, "accuracy": accuracy})
    assert line.startswith(f"the accuracy of {accuracy:.3f} is hardly better than saying the commonest class")
    assert "choose a threshold" in line
    assert "choose a threshold" not in warnings_of({**found, "auroc": 0.52, "accuracy": accuracy})[0]
    assert in_words({**found, "accuracy": accuracy}).startswith(
        "balanced accuracy 0.500, sensitivity 0.000, area under the ROC curve 0.7"
    )


def test_targets_of_which_the_median_is_fitted() -> None:
    targets = RNG.exponential(size=5000)
    found = real_figures(np.full(5000, np.median(targets)), targets)
    assert found["mean_error"] == pytest.approx(np.median(targets) - targets.mean())
    (line,) = warnings_of(found)
    assert "its predictions are too low by 0.3" in line
    assert in_words(found).endswith(f"mean error {found['mean_error']:.3g}")
    assert warnings_of({"rmse": 1.0, "r2": 0.3, "mean_error": 0.1}) == warnings_of({"r2": None}) == []


def test_a_line_says_nothing_that_accuracy_says() -> None:
    alike = {"constant_accuracy": 0.1, "balanced_accuracy": 0.931}
    assert in_words({**alike, "accuracy": 0.93}) == ""
    assert in_words({**alike, "accuracy": 0.95}) == "balanced accuracy 0.931"
