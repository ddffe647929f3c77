"""Scores with their intervals, beside those of the constant predictor, and what is said of them."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit, softmax
from scipy.stats import binom, binomtest
from sklearn.dummy import DummyClassifier
from sklearn.metrics import (
    average_precision_score,
    balanced_accuracy_score,
    brier_score_loss,
    confusion_matrix,
    log_loss,
    roc_auc_score,
)

from gossamer.errors import CallerError, DataError
from gossamer.objectives.score_words import said_first, table_of, table_of_groups, warnings_of
from gossamer.objectives.scores import ScoredSample, class_figures

RNG = np.random.default_rng(4)
N = 600
SCORES = np.round(RNG.normal(size=N) - 2.5, 1)
TRUTH = (RNG.random(N) < expit(1.5 * SCORES + 1)).astype(np.int64)


def of_two(scores: np.ndarray = SCORES, truth: np.ndarray = TRUTH, persons: np.ndarray | None = None) -> ScoredSample:
    p = expit(scores)
    return ScoredSample(scores[:, None], truth, ("no", "yes"), np.column_stack([1 - p, p]), persons)


def test_the_constant_predictor_is_the_one_of_scikit_learn() -> None:
    """Which says the shares of classes that it has seen, here those of the very examples."""
    found = of_two().assess()
    constant = DummyClassifier(strategy="prior").fit(np.zeros((N, 1)), TRUTH)
    shares, said = constant.predict_proba(np.zeros((N, 1)))[:, 1], constant.predict(np.zeros((N, 1)))
    expected = {
        "auroc": roc_auc_score(TRUTH, shares),
        "average_precision": average_precision_score(TRUTH, shares),
        "brier": brier_score_loss(TRUTH, shares),
        "log_loss": log_loss(TRUTH, shares),
        "accuracy": constant.score(np.zeros((N, 1)), TRUTH),
        "balanced_accuracy": balanced_accuracy_score(TRUTH, said),
        "sensitivity": 0.0,
        "specificity": 1.0,
        "mean_predicted": TRUTH.mean(),
    }
    assert {name: found["figures"][name]["constant"] for name in expected} == pytest.approx(expected, abs=1e-12)
    assert found["figures"]["calibration_slope"]["constant"] is None
    assert found["figures"]["calibration_intercept"]["constant"] == pytest.approx(0, abs=1e-9)
    assert found["figures"]["auroc"]["value"] == pytest.approx(roc_auc_score(TRUTH, SCORES), abs=1e-12)
    assert found["confusion"] == confusion_matrix(TRUTH, SCORES > 0).tolist()
    assert json.loads(json.dumps(found)) == found
    assert of_two().assess() == found  # draws are the same each time


def test_a_gain_is_above_zero_where_less_is_better_too() -> None:
    figures = of_two().assess()["figures"]
    for name in ("auroc", "average_precision", "brier", "log_loss"):
        one = figures[name]
        low, high = one["gain"]
        assert 0 < low < abs(one["value"] - one["constant"]) < high


def test_a_threshold_names_those_above_it() -> None:
    found = of_two().assess(0.1)
    assert found["threshold"] == 0.1
    assert found["confusion"] == confusion_matrix(TRUTH, expit(SCORES) > 0.1).tolist()
    low = of_two().assess(TRUTH.mean() - 0.01)["figures"]
    assert low["sensitivity"]["constant"] == 1  # always said, then
    assert low["accuracy"]["constant"] == pytest.approx(1 - TRUTH.mean())  # of the most accurate constant


def test_several_classes_of_which_one_is_not_there() -> None:
    truth, shown = RNG.integers(0, 3, 300), RNG.normal(size=(300, 4))
    shown[np.arange(300), truth] += 1
    likely = softmax(shown, axis=1)
    found = ScoredSample(shown, truth, tuple("abcd"), likely).assess()
    values = {name: one["value"] for name, one in found["figures"].items()}
    each = [(truth == k, likely[:, k]) for k in range(3)]
    with pytest.warns(UserWarning, match="y_pred contains classes"):
        balanced = balanced_accuracy_score(truth, shown.argmax(1))
    assert values == {
        "auroc": pytest.approx(np.mean([roc_auc_score(*one) for one in each])),
        "average_precision": pytest.approx(np.mean([average_precision_score(*one) for one in each])),
        "brier": pytest.approx(np.mean([*(brier_score_loss(*one) for one in each), np.mean(likely[:, 3] ** 2)])),
        "accuracy": pytest.approx((shown.argmax(1) == truth).mean()),
        "log_loss": pytest.approx(log_loss(truth, likely, labels=range(4))),
        "balanced_accuracy": pytest.approx(balanced),
    }
    assert found["figures"]["accuracy"]["constant"] == pytest.approx(np.bincount(truth).max() / 300)
    assert found["by_class"]["d"]["auroc"]["value"] is None
    assert found["by_class"]["a"]["auroc"]["value"] == pytest.approx(roc_auc_score(*each[0]))
    assert found["better"]
    assert class_figures(shown, truth, 4) == {
        "constant_accuracy": pytest.approx(np.bincount(truth).max() / 300),
        "balanced_accuracy": pytest.approx(balanced),
    }


def test_a_rare_outcome_that_is_never_named() -> None:
    found = of_two(SCORES - 100).assess()
    assert found["better"]
    assert found["figures"]["balanced_accuracy"]["value"] == 0.5
    (line,) = warnings_of(found)
    accuracy = f"{1 - TRUTH.mean():.3f}"
    assert line.startswith(f"the accuracy of {accuracy} is no better than always saying no, which has {accuracy}")
    assert "choose a threshold" in line
    assert said_first(found) == []


def test_a_model_that_tells_nothing_is_said_to_first() -> None:
    found = of_two(RNG.normal(size=N) - 3).assess()
    assert found["better"] is False
    (line,) = said_first(found)
    assert line.startswith("No better than saying the same of every row, as far as 600 rows tell: area under the ROC ")
    assert "where that has 0.500. Always saying no has an accuracy of" in line
    assert warnings_of(found)[0].startswith("the model is no better than saying the same of every row; train longer")


def test_a_table_of_few_figures_and_of_all() -> None:
    found = of_two(persons=np.arange(N) // 2).assess()
    rows = table_of(found)
    assert rows[0] == ("of 600 rows of 300 persons", "model", "95 % interval", "constant")
    figures = {row[0]: row[1:] for row in rows}
    low, high = found["figures"]["auroc"]["interval"]
    assert figures["area under the ROC curve"] == (
        f"{found['figures']['auroc']['value']:.3f}",
        f"{low:.3f} to {high:.3f}",
        "0.500",
    )
    assert figures["calibration slope"][2] == "-"
    assert len(table_of(found, brief=True)) < len(rows)
    assert table_of({}) == said_first({}) == warnings_of({}) == []


def test_rows_of_one_class_have_no_area_and_that_is_said() -> None:
    found = of_two(truth=np.zeros(N, np.int64)).assess()
    assert found["figures"]["auroc"]["value"] is None
    assert found["better"] is None
    assert said_first(found) == ["There is one class alone in 600 rows, so the area under the ROC curve has no value."]
    assert warnings_of(found) == []


def test_where_there_is_nothing_to_find() -> None:
    assert of_two(np.full(N, np.nan)).assess() == {}
    assert of_two(np.zeros(0), np.zeros(0, np.int64)).assess() == {}
    assert class_figures(np.full((3, 1), np.nan), np.ones(3, int), 2) == {}
    found = class_figures(np.ones((3, 1)), np.ones(3, int), 2)
    assert (found["auroc"], found["sensitivity"], found["specificity"], found["constant_accuracy"]) == (
        None,
        1,
        None,
        1,
    )
    one = of_two(np.zeros(1), np.ones(1, np.int64)).assess()
    assert (one["resamples"], one["figures"]["accuracy"]["interval"]) == (0, pytest.approx([0, 0.975]))


def test_targets_of_which_the_median_is_fitted() -> None:
    targets = RNG.exponential(size=1000)
    found = ScoredSample(np.full((1000, 1), np.median(targets)), targets).assess()
    figures = found["figures"]
    assert figures["mean_error"]["value"] == pytest.approx(np.median(targets) - targets.mean())
    assert figures["mae"]["constant"] == pytest.approx(figures["mae"]["value"])
    assert figures["rmse"]["constant"] == pytest.approx(targets.std())
    assert figures["r2"]["constant"] == pytest.approx(0, abs=1e-12)
    assert "R2 -0." in said_first(found)[0]
    (line,) = warnings_of(found)
    assert "its predictions are too low by 0.3" in line
    good = ScoredSample(targets[:, None] + 0.1, targets).assess()
    assert said_first(good) == warnings_of(good) == []


def test_groups_that_are_too_small_are_merged_and_never_follow_from_the_others() -> None:
    groups = np.array(["a"] * 400 + ["b"] * 185 + ["c"] * 9 + [""] * 6)
    found = of_two().grouped(groups, "ward", None, 10)
    assert {name: one["rows"] for name, one in found.items()} == {"a": 400, "b": 185, "(empty), c": 15}
    assert found["a"]["figures"] == of_two(SCORES[:400], TRUTH[:400]).assess()["figures"]
    # Nine alone would follow from all and the others, so the next one goes with them.
    lone = of_two().grouped(np.where(groups == "", "b", groups), "ward", None, 10)
    assert {name: one["rows"] for name, one in lone.items()} == {"a": 400, "b, c": 200}
    # Twelve rows are of six persons.
    persons = of_two(persons=np.arange(N) // 2).grouped(np.where(np.arange(N) < 12, "x", "y"), "ward", None, 10)
    assert [*persons] == ["x, y"]
    rows = table_of_groups("ward", found)
    assert [row[0] for row in rows] == ["by ward", "a", "b", "(empty), c"]
    assert rows[0][1:4] == ("rows", "ROC area", "outcome")
    with pytest.raises(DataError, match="at most 50 groups, found 600 different cells in 'number'"):
        of_two().grouped(np.arange(N).astype(str), "number", None, 10)
    with pytest.raises(DataError, match="at least 10 in a group, found 9 in all of 'ward'; give more rows"):
        of_two(SCORES[:9], TRUTH[:9]).grouped(groups[:9], "ward", None, 10)


def test_the_threshold_that_costs_least_is_the_best_of_all() -> None:
    sample = of_two()
    found = sample.cheapest({"false_negative": 10})
    p, ill = expit(SCORES), TRUTH == 1

    def cost(threshold: float) -> float:
        return float((10 * (ill & (p <= threshold)) + (~ill & (p > threshold))).mean())

    assert found["cost"] == pytest.approx(cost(found["threshold"]))
    assert found["cost"] == pytest.approx(min(cost(one) for one in [0, 1, *p, *(p + 1e-9)]))
    assert found["constant_cost"] == pytest.approx(min(cost(0), cost(1)))
    assert sample.cheapest({})["cost"] == pytest.approx(
        min(float(((p > one) != ill).mean()) for one in [0, 1, *p, *(p + 1e-9)])
    )


def test_what_has_no_probabilities_has_no_threshold() -> None:
    hinge = ScoredSample(SCORES[:, None], TRUTH, ("no", "yes"))
    assert "brier" not in hinge.assess()["figures"]
    assert hinge.assess()["figures"]["auroc"]["value"] == pytest.approx(roc_auc_score(TRUTH, SCORES))
    for call in (lambda: hinge.assess(0.2), lambda: hinge.cheapest({})):
        with pytest.raises(CallerError, match="needs probabilities of two classes, found a model of a loss that knows"):
            call()
    with pytest.raises(CallerError, match="found a model of real targets"):
        ScoredSample(SCORES[:, None], SCORES).assess(0.5)
    with pytest.raises(CallerError, match="cost: expected false_negative or false_positive, found 'false'"):
        of_two().cheapest({"false": 1})
    with pytest.raises(CallerError, match="cost: expected numbers above 0, found -1"):
        of_two().cheapest({"false_negative": -1.0})


@pytest.mark.parametrize("classes", [2, 3])
def test_a_threshold_is_advised_only_where_one_can_be_taken(classes: int) -> None:
    """Scores of a hinge loss, and of several classes, that rank rows well and never name any but the first."""
    targets = np.repeat(np.arange(classes), 200)
    scores = RNG.normal(size=(len(targets), classes)) + 1.5 * np.eye(classes)[targets] + 50 * np.eye(classes)[0]
    sample = ScoredSample(scores, targets, [*"abc"][:classes])
    (line,) = warnings_of(sample.assess())
    assert "the model does rank rows" in line
    assert "--threshold" not in line
    assert line.endswith("train longer, or take a larger budget or more rows")
    if classes == 2:
        likely = expit(scores - scores[:, ::-1])
        assert warnings_of(replace(sample, likely=likely).assess())[0].endswith("--threshold")


def test_figures_of_a_model_that_diverged_are_short() -> None:
    targets = RNG.normal(size=50)
    found = ScoredSample(targets[:, None] * 1e15, targets).assess()
    (line,) = said_first(found)
    assert len(line) < 200
    assert max(len(cell) for row in table_of(found) for cell in row) < 30


def test_a_share_of_all_has_the_interval_of_clopper_and_pearson() -> None:
    """Since no resample of rows that are all right has a wrong one; scipy's is the reference."""
    truth = np.repeat([0, 1], [30, 8])
    found = of_two(np.where(truth == 1, 2.0, -2.0), truth).assess()["figures"]
    for name, of in (("accuracy", 38), ("sensitivity", 8), ("specificity", 30), ("ppv", 8), ("npv", 30)):
        exact = binomtest(of, of).proportion_ci(0.95, "exact")
        assert found[name]["interval"] == pytest.approx([exact.low, exact.high], rel=1e-9), name
    none = of_two(np.full(38, -2.0), truth).assess()["figures"]
    exact = binomtest(0, 8).proportion_ci(0.95, "exact")
    assert none["sensitivity"]["interval"] == pytest.approx([exact.low, exact.high], rel=1e-9)
    # Of eight pairs without a common row each is ranked rightly: the area is a share of pairs.
    exact = binomtest(8, 8).proportion_ci(0.95, "exact")
    assert found["auroc"]["interval"] == pytest.approx([exact.low, 1], rel=1e-9)
    assert found["auroc"]["gain"] == pytest.approx([exact.low - 0.5, 0.5], rel=1e-9)
    assert found["average_precision"]["interval"] is None
    low, high = found["balanced_accuracy"]["interval"]
    assert low < 1 - (1 - exact.low) / 2 < high == 1


@pytest.mark.parametrize("classes", [2, 3])
def test_balanced_accuracy_of_persons_of_all_classes_is_as_uncertain_as_they_are(classes: int) -> None:
    """If persons are right in all their rows or in none, all 10 are with p^10: the interval is that of 10 of 10."""
    persons, truth = np.repeat(np.arange(10), classes), np.tile(np.arange(classes), 10)
    scores = 2.0 * truth[:, None] - 1 if classes == 2 else np.eye(classes)[truth]
    names = [str(one) for one in range(classes)]
    exact = binomtest(10, 10).proportion_ci(0.95, "exact")
    found = ScoredSample(scores, truth, names, None, persons).assess()["figures"]
    assert found["balanced_accuracy"]["interval"] == pytest.approx([exact.low, 1], rel=1e-9)


def test_a_perfect_rank_of_very_few_rows_is_no_gain() -> None:
    """Five pairs are all ranked rightly by chance in 1 of 32 cases, six in 1 of 64."""
    for many, better in ((5, False), (6, True)):
        truth = np.repeat([0, 1], many)
        assert of_two(np.where(truth == 1, 2.0, -2.0), truth).assess()["better"] is better


def test_what_all_resamples_have_alike_has_no_interval() -> None:
    """Each row's own class has a chance of 0.6: log loss is -log(0.6) in every resample, for whatever rows."""
    truth = np.repeat([0, 1, 2], 8)
    likely = np.where(np.eye(3)[truth] == 1, 0.6, 0.2)
    found = ScoredSample(np.log(likely), truth, ("a", "b", "c"), likely).assess()["figures"]["log_loss"]
    assert found["value"] == pytest.approx(-np.log(0.6))
    assert found["interval"] is None


@pytest.mark.parametrize("alike", [1, 4])
def test_intervals_of_a_share_near_one_cover_it(alike: int) -> None:
    """In at least 95 % of all samples of 30 persons, whose rows are right together: a sum over the binomial law.

    Resamples alone cover 0.95 in 78 %, since with probability 0.95^30 every row is right. Fewer than 20 persons are
    right in 6e-7 of all samples, which count as missed.
    """
    covered = {"interval": 0.0, "resamples": 0.0}
    for right in range(20, 31):
        scores = np.repeat(np.where(np.arange(30) < right, 1.0, -1.0), alike)
        persons = np.repeat(np.arange(30), alike)
        found = ScoredSample(scores[:, None], np.ones(len(scores)), ("no", "yes"), None, persons).assess()
        low, high = found["figures"]["sensitivity"]["interval"]
        chance = binom.pmf(right, 30, 0.95)
        covered["interval"] += chance * (low <= 0.95 <= high)
        covered["resamples"] += chance * (low <= 0.95 <= high and right < 30)
    assert covered["interval"] >= 0.95
    assert covered["resamples"] == pytest.approx(0.78, abs=0.01)
