"""Figures of weighted examples, against scikit-learn, and the level of their intervals."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import (
    average_precision_score,
    balanced_accuracy_score,
    brier_score_loss,
    log_loss,
    mean_absolute_error,
    precision_score,
    r2_score,
    recall_score,
    roc_auc_score,
    root_mean_squared_error,
)

from gossamer.objectives.figures import (
    deciding,
    interval,
    measuring,
    predicting,
    ranking,
    recalibrated,
    reliability,
    resamples,
)

RNG = np.random.default_rng(4)
N = 500
SCORES = np.round(RNG.normal(size=N) - 1.5, 1)
"""With ties."""
TRUE = RNG.random(N) < expit(0.6 * SCORES - 0.4)
LIKELY = expit(SCORES)
WEIGHTS = np.stack([np.ones(N), RNG.random(N) + 0.1, RNG.integers(0, 3, N).astype(float)])
"""Of the sample itself, of any positive weights, and of examples that some resample left out."""


@pytest.mark.parametrize("row", range(3))
def test_two_classes_as_scikit_learn_has_them(row: int) -> None:
    w, said = WEIGHTS[row], LIKELY > 0.25
    found = {
        name: values[row]
        for figures in (
            ranking(SCORES, TRUE),
            deciding(said, TRUE),
            predicting(LIKELY, TRUE),
        )
        for name, values in figures(WEIGHTS).items()
    }
    fitted = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(SCORES[:, None], TRUE, w)
    intercept, slope = found.pop("calibration_intercept"), found.pop("calibration_slope")
    assert slope == pytest.approx(fitted.coef_[0, 0], abs=1e-6)
    assert (w * (TRUE - expit(SCORES + intercept))).sum() == pytest.approx(0, abs=1e-9)  # the likeliest
    assert found == {
        "auroc": pytest.approx(roc_auc_score(TRUE, SCORES, sample_weight=w), abs=1e-12),
        "average_precision": pytest.approx(average_precision_score(TRUE, SCORES, sample_weight=w), abs=1e-12),
        "accuracy": pytest.approx(np.average(said == TRUE, weights=w), abs=1e-12),
        "balanced_accuracy": pytest.approx(balanced_accuracy_score(TRUE, said, sample_weight=w), abs=1e-12),
        "sensitivity": pytest.approx(recall_score(TRUE, said, sample_weight=w), abs=1e-12),
        "specificity": pytest.approx(recall_score(~TRUE, ~said, sample_weight=w), abs=1e-12),
        "ppv": pytest.approx(precision_score(TRUE, said, sample_weight=w), abs=1e-12),
        "npv": pytest.approx(precision_score(~TRUE, ~said, sample_weight=w), abs=1e-12),
        "brier": pytest.approx(brier_score_loss(TRUE, LIKELY, sample_weight=w), abs=1e-12),
        "log_loss": pytest.approx(log_loss(TRUE, LIKELY, sample_weight=w), abs=1e-12),
        "prevalence": pytest.approx(np.average(TRUE, weights=w), abs=1e-12),
        "mean_predicted": pytest.approx(np.average(LIKELY, weights=w), abs=1e-12),
    }


def test_numbers_as_scikit_learn_has_them() -> None:
    targets = SCORES * 3 + RNG.normal(size=N) + 100
    found = measuring(SCORES, targets)(WEIGHTS)
    for row, w in enumerate(WEIGHTS):
        assert {name: values[row] for name, values in found.items()} == {
            "r2": pytest.approx(r2_score(targets, SCORES, sample_weight=w), rel=1e-12),
            "rmse": pytest.approx(root_mean_squared_error(targets, SCORES, sample_weight=w), rel=1e-12),
            "mae": pytest.approx(mean_absolute_error(targets, SCORES, sample_weight=w), rel=1e-12),
            "mean_error": pytest.approx(np.average(SCORES - targets, weights=w), rel=1e-12),
        }


def test_a_histogram_is_examples_that_are_alike() -> None:
    bins = np.unique(SCORES)
    places = np.concatenate([bins, bins])
    outcomes = np.repeat([True, False], len(bins))
    counts = np.array([((at == SCORES) & (outcome == TRUE)).sum() for at, outcome in zip(places, outcomes)], float)
    for of in (ranking, lambda x, outcomes: predicting(expit(x), outcomes)):
        whole = of(SCORES, TRUE)(np.ones(N))
        assert of(places, outcomes)(counts) == {name: pytest.approx(value, rel=1e-9) for name, value in whole.items()}


def test_what_has_no_value_is_no_number() -> None:
    nobody, ones = np.zeros(4, bool), np.ones(4)
    scores = np.array([0.1, 0.2, 0.3, 0.4])
    assert all(np.isnan([*ranking(scores, nobody)(ones).values()]))
    assert np.isnan(deciding(nobody, nobody)(ones)["ppv"])
    assert np.isnan(recalibrated(scores, nobody, ones)).all()
    parted = recalibrated(np.array([0.1, 0.2, 0.8, 0.9]), np.array([0, 0, 1, 1], bool), ones)  # no finite slope is best
    assert np.isnan(parted).tolist() == [False, True, True]
    alike = recalibrated(np.full(4, 0.5), np.array([1, 0, 0, 0], bool), ones)
    assert alike[0] == pytest.approx(np.log(1 / 3))
    assert np.isnan(alike[2])
    assert np.isnan(measuring(scores, ones)(ones)["r2"])


def test_calibration_of_a_resample_is_a_step_from_that_of_the_sample() -> None:
    whole = recalibrated(LIKELY, TRUE, np.ones(N))
    (weights,) = resamples(N, 300, np.random.default_rng(0))
    exact = predicting(LIKELY, TRUE)(weights)
    step = predicting(LIKELY, TRUE, whole)(weights)
    for name, values in exact.items():
        off = np.sqrt(np.square(step[name] - values).mean())  # of second order in how far resamples are off
        assert off < (values.std() ** 2 if "calibration" in name else 1e-12)


def test_a_reliability_curve_of_groups_of_one_weight() -> None:
    found = reliability(LIKELY, TRUE, np.ones(N), bins=5)
    assert found[:, 2].sum() == N
    assert (np.diff(found[:, 0]) > 0).all()
    edges = np.cumsum(found[:, 2]).astype(int)
    order = np.argsort(LIKELY)
    for end, (mean, share, many) in zip(edges, found):
        rows = order[end - int(many) : end]
        assert (mean, share) == (pytest.approx(LIKELY[rows].mean()), pytest.approx(TRUE[rows].mean()))
        assert 50 < many < 150  # 100, but for ties
    assert len(reliability(np.full(9, 0.5), np.ones(9, bool), np.ones(9))) == 1


def test_weights_of_persons_are_those_of_all_their_rows() -> None:
    """Figures of units' weights are those of the weights of rows, which scikit-learn holds above."""
    units = np.random.default_rng(5).permutation(np.arange(N) % 120)
    weights = np.random.default_rng(6).integers(0, 4, (3, 120)).astype(float)
    whole = recalibrated(LIKELY, TRUE, np.ones(N))
    for of in (
        partial(ranking, SCORES, TRUE),
        partial(deciding, LIKELY > 0.25, TRUE),
        partial(predicting, LIKELY, TRUE, whole),
        partial(measuring, SCORES, LIKELY + TRUE),
    ):
        expected = of()(weights[:, units])
        for name, values in of(units=units)(weights).items():
            np.testing.assert_allclose(values, expected[name], rtol=1e-12, err_msg=name)


def test_resamples_draw_as_many_as_there_are() -> None:
    found = np.concatenate(list(resamples(3, 4000, np.random.default_rng(1))))
    assert found.shape == (4000, 3)
    assert (found.sum(axis=1) == 3).all()
    # A person is drawn Binomial(3, 1/3) times: mean 1, variance 2/3; five deviations of the mean of 4,000.
    assert np.abs(found.mean(axis=0) - 1).max() < 5 * np.sqrt(2 / 3 / 4000)


def test_an_interval_of_a_figure_that_resamples_seldom_have() -> None:
    assert interval(np.array([np.nan, np.nan, 1.0, 2.0])) is None
    low, high = interval(np.append(np.arange(1001.0), np.nan)) or (0, 0)
    assert (low, high) == (pytest.approx(25), pytest.approx(975))


@pytest.mark.parametrize(("rows", "persons"), [(300, 300), pytest.param(600, 150, marks=pytest.mark.slow)])
def test_intervals_of_the_area_under_the_curve_cover_it(rows: int, persons: int) -> None:
    """In 93 to 97 % of 1,000 samples.

    An interval of exactly 95 % is outside of that in 0.4 % of all seeds, by the binomial law. One that takes the rows
    of a person for independent, of which there are four each here, covers about three quarters.
    """
    rng = np.random.default_rng(7)
    covered = {"persons": 0, "rows": 0}
    shift = 1.0
    truth = 0.7602499389065233  # Phi(1 / sqrt 2): of normal scores a standard deviation apart
    for _ in range(1000):
        person = np.arange(rows) % persons
        ill = rng.random(persons) < 0.3
        scores = (rng.normal(size=persons) + shift * ill)[person]
        outcomes = ill[person]
        units = {"persons": person, "rows": np.arange(rows)}
        for unit, who in units.items() if rows > persons else [("persons", units["persons"])]:
            areas, drawn = ranking(scores, outcomes, who), resamples(int(who.max()) + 1, 200, rng)
            low, high = interval(np.concatenate([areas(weights)["auroc"] for weights in drawn])) or (1, 0)
            covered[unit] += low <= truth <= high
    assert 930 <= covered["persons"] <= 970
    if rows > persons:
        assert covered["rows"] < 850
