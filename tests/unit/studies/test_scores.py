"""Scores over seeds, against figures worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from gossamer.studies.study import Scores, scores_of


def figure(value: float, constant: float, wide: float = 0.01) -> dict[str, Any]:
    gain = value - constant
    return {
        "value": value,
        "interval": [value - wide, value + wide],
        "constant": constant,
        "gain": [gain - wide, gain + wide],
    }


def summary(
    metrics: dict[str, Any], epsilon: float | None = 1.0, status: str = "finished", **figures: Any
) -> dict[str, Any]:
    guarantee = {"epsilon": epsilon, "delta": None if epsilon is None else 1e-4}
    return {
        "metrics": metrics,
        **({"scores": {"figures": figures}} if figures else {}),
        "nodes": 3,
        "virtual_seconds": 10.0,
        "bytes": 2**20,
        "status": status,
        "privacy": {"guarantee": guarantee},
    }


def accuracies(*values: float | None) -> Scores:
    rows = [{"test_accuracy": 0.1, "mean_model_test_accuracy": value} for value in values]
    return scores_of([summary(row) for row in rows], shared=True)


def test_mean_and_standard_deviation() -> None:
    """Of 0.5 and 0.7: 0.6, and the root of (0.01 + 0.01) / (2 - 1)."""
    found = accuracies(0.5, 0.7)
    assert found.score.mean == pytest.approx(0.6)
    assert found.score.deviation == pytest.approx(0.02**0.5)
    assert accuracies(0.5).score.deviation is None


def test_where_nobody_has_a_common_model_nodes_own_count() -> None:
    rows = [{"test_accuracy": 0.1, "mean_model_test_accuracy": 0.9}]
    found = scores_of([summary(row) for row in rows], shared=False)
    assert found.score.mean == 0.1


def test_more_accuracy_is_better_and_less_loss_is() -> None:
    high, low = accuracies(0.9).rank, accuracies(0.2).rank
    assert (high, low) == (-0.9, -0.2)
    losses = [scores_of([summary({"mean_model_test_loss": loss, "test_r2": 0.5})], shared=True) for loss in (0.1, 0.3)]
    assert [one.kind for one in losses] == ["loss", "loss"]
    assert [one.rank for one in losses] == [0.1, 0.3]
    assert losses[0].r2.mean == 0.5


def test_a_setting_with_a_run_that_has_no_score_is_not_compared() -> None:
    assert accuracies(0.9, None).rank is None


def test_the_weakest_guarantee_counts() -> None:
    row = {"test_accuracy": 0.1, "mean_model_test_accuracy": 0.1}
    assert scores_of([summary(row, 1.0), summary(row, 2.0)], shared=True).epsilon == 2.0
    assert scores_of([summary(row, 1.0), summary(row, None)], shared=True).epsilon is None


def test_two_classes_are_compared_by_the_area_under_the_curve() -> None:
    """Whatever their accuracy, which is that of a constant here."""
    row = {"test_accuracy": 0.92, "mean_model_test_accuracy": 0.92}
    runs = [summary(row, auroc=figure(area, 0.5, 0.03), accuracy=figure(0.92, 0.92)) for area in (0.6, 0.7)]
    found = scores_of(runs, shared=True)
    assert (found.kind, found.score.mean, found.constant) == ("auroc", pytest.approx(0.65), 0.5)
    assert found.interval == (pytest.approx(0.57), pytest.approx(0.73))
    assert found.better
    assert found.rank == pytest.approx(-0.65)
    assert found.called == "ROC area"
    assert found.figures()["95 %"] == "0.570 to 0.730"
    assert not scores_of([summary(row, auroc=figure(0.52, 0.5, 0.03))], shared=True).better
    own = [one | {"scores": {**one["scores"], "nodes": {"auroc": 0.55}}} for one in runs]
    assert scores_of(own, shared=False).score.mean == pytest.approx(0.55)
    assert scores_of(runs, shared=False).kind == "accuracy"
