"""Counts of scores from noisy sums, and the level of the intervals of figures that are made of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.special import expit, logit
from sklearn.metrics import average_precision_score, brier_score_loss, confusion_matrix, roc_auc_score
from tests.sampling import examples

from gossamer.errors import CallerError
from gossamer.objectives.noisy_figures import Measured, nearest, noisy_figures, shown
from gossamer.objectives.score_histogram import (
    BINS,
    SIZE,
    ScoreCounts,
    cells,
    measured,
    middle,
    scores_of,
    unit_covariance,
)

SIGMA = 7.032
"""Noise multiplier of epsilon 0.5 at delta 1e-5, for rows that come or go: the analytic Gaussian mechanism's."""
PARTIES, ROWS = 5, 4000
CHANCES = expit(scores_of(None))


def counted(scores: np.ndarray, outcomes: np.ndarray, around: float | None = None) -> ScoreCounts:
    """Counts of rows, without noise."""
    counts = np.bincount(cells(scores, outcomes, around), minlength=2 * BINS)
    return ScoreCounts(counts.astype(float).reshape(2, BINS), 0.0, len(outcomes), around)


def drawn(prevalence: float, spread: float, rng: np.random.Generator, rows: int = ROWS) -> tuple[np.ndarray, ...]:
    """Scores of a calibrated model, and outcomes."""
    scores = rng.normal(size=rows) * spread + logit(prevalence)
    return scores, rng.random(rows) < expit(scores)


def noisy(
    scores: np.ndarray, outcomes: np.ndarray, rng: np.random.Generator, parties: int = PARTIES, rows: int | None = None
) -> ScoreCounts:
    """What the parties' releases say together."""
    deviation, found = SIGMA * math.sqrt(parties), measured(cells(scores, outcomes))
    return ScoreCounts.of(found + rng.normal(size=SIZE) * deviation, deviation, len(scores) if rows is None else rows)


def test_a_row_moves_the_sum_by_a_length_of_one_and_never_by_more() -> None:
    """The sensitivity that is charged: exact to 1e-11, and not above 1."""
    lengths = [np.linalg.norm(measured(np.array([cell]))) for cell in range(2 * BINS)]
    assert max(lengths) <= 1
    assert min(lengths) > 1 - 1e-11


def test_any_score_has_a_cell_also_one_that_is_no_number() -> None:
    found = cells(np.array([-np.inf, -1e9, np.nan, 1e9, np.inf]), np.array([0, 1, 0, 0, 1]))
    assert found.tolist() == [0, BINS, BINS // 2, BINS - 1, 2 * BINS - 1]


def test_without_noise_the_counts_are_those_of_the_rows() -> None:
    scores, outcomes = drawn(0.2, 1.5, np.random.default_rng(1))
    exact, again = counted(scores, outcomes), ScoreCounts.of(measured(cells(scores, outcomes)), 0.0, ROWS)
    np.testing.assert_allclose(again.counts, exact.counts, atol=1e-8)
    np.testing.assert_allclose((again + exact).counts, 2 * exact.counts, atol=1e-8)


def test_counts_have_the_covariance_that_least_squares_has() -> None:
    """Of N draws an entry of the covariance errs by at most sqrt(2/N) of the variances: 6 of these never, for 1e-8."""
    rng, many = np.random.default_rng(2), 4000
    draws = np.stack([ScoreCounts.of(rng.normal(size=SIZE), 1.0, 0).counts[0] for _ in range(many)])
    expected = unit_covariance()
    bound = 6 * math.sqrt(2 / many) * np.sqrt(np.outer(np.diag(expected), np.diag(expected)))
    assert (np.abs(np.cov(draws.T) - expected) < bound).all()
    assert not (np.abs(np.cov(draws.T) - 1.2 * expected) < bound).all()


def test_figures_of_exact_counts_are_those_of_the_rows_but_for_the_bins() -> None:
    """Scores of a bin are taken for equal, which costs little: 0.003 here."""
    scores, outcomes = drawn(0.3, 1.5, np.random.default_rng(3), 200_000)
    found = noisy_figures(counted(scores, outcomes), 0.4)
    likely = expit(scores)
    assert found["auroc"].value == pytest.approx(roc_auc_score(outcomes, scores), abs=0.003)
    assert found["average_precision"].value == pytest.approx(average_precision_score(outcomes, scores), abs=0.003)
    assert found["brier"].value == pytest.approx(brier_score_loss(outcomes, likely), abs=0.003)
    assert found["prevalence"].value == pytest.approx(outcomes.mean(), abs=1e-9)
    assert found["calibration_intercept"].value == pytest.approx(0, abs=0.03)
    assert found["calibration_slope"].value == pytest.approx(1, abs=0.03)


@pytest.mark.parametrize(("prevalence", "spread", "slope"), [(0.1, 0.25, 3.0), (0.002, 1.0, 1.0)])
def test_scores_close_together_or_far_out_are_told_apart_around_the_declared_prevalence(
    prevalence: float, spread: float, slope: float
) -> None:
    """Against figures of the rows themselves, to the error of the bins; around a half it is many times that."""
    rng = np.random.default_rng(8)
    scores = rng.normal(size=400_000) * spread + logit(prevalence)
    outcomes = rng.random(400_000) < expit(logit(prevalence) + slope * (scores - logit(prevalence)))
    exact = roc_auc_score(outcomes, scores)
    near, far = (noisy_figures(counted(scores, outcomes, middle(share)))["auroc"].value for share in (prevalence, None))
    assert near == pytest.approx(exact, abs=0.005)
    assert far is not None
    assert abs(far - exact) > 0.02


def test_figures_are_the_same_wherever_the_grid_is_but_for_its_bins() -> None:
    """Each is about scores and not about numbers of bins: what the grid is moved by is put back."""
    scores, outcomes = drawn(0.3, 1.0, np.random.default_rng(9), 200_000)
    found = [noisy_figures(counted(scores, outcomes, middle(share))) for share in (None, 0.3, 0.1)]
    for name in ("auroc", "average_precision", "brier", "mean_predicted", "calibration_intercept", "calibration_slope"):
        for other in found[1:]:
            expected = pytest.approx(found[0][name].value, abs=0.03 if "calibration" in name else 0.01)
            assert other[name].value == expected, name


@pytest.mark.parametrize("prevalence", [None, 0.08])
@pytest.mark.parametrize("threshold", [0.0, 0.03, 0.1, 0.5, 1.0])
def test_at_a_threshold_that_is_taken_to_where_two_bins_meet_nothing_is_lost_to_bins(
    threshold: float, prevalence: float | None
) -> None:
    """Confusion and what is made of it are exactly those of the rows, as scikit-learn counts them."""
    scores, outcomes = drawn(0.08, 1.5, np.random.default_rng(10), 20_000)
    at = nearest(threshold, middle(prevalence))
    assert abs(at - threshold) < {0.0: 0.01, 0.03: 0.004, 0.1: 0.012, 0.5: 0.07, 1.0: 0.1}[threshold]
    found = noisy_figures(counted(scores, outcomes, middle(prevalence)), threshold)
    tn, fp, fn, tp = confusion_matrix(outcomes, expit(scores) >= at).ravel().tolist()
    expected = {"sensitivity": tp / (tp + fn), "specificity": tn / (tn + fp), "npv": tn / (tn + fn)}
    expected |= {"true_positives": tp / 20_000, "false_positives": fp / 20_000}
    expected |= {"false_negatives": fn / 20_000, "true_negatives": tn / 20_000}
    expected |= {"ppv": tp / (tp + fp)} if tp + fp else {}
    assert {name: found[name].value for name in expected} == pytest.approx(expected, abs=1e-9)


def test_where_nobody_is_named_there_is_no_value_of_those_who_are() -> None:
    """Without noise, whose counts are whole but for the rounding of least squares."""
    scores, outcomes = drawn(0.08, 0.5, np.random.default_rng(12), 2_000)
    released = measured(cells(scores, outcomes, middle(0.08)))
    for threshold in (0.5, 0.9):
        found = noisy_figures(ScoreCounts.of(released, 0.0, 2_000, middle(0.08)), threshold)
        assert found["ppv"] == Measured(None, 0.0, 1.0)
        assert found["npv"].value == pytest.approx(1 - outcomes.mean())


@pytest.mark.parametrize("threshold", [-0.1, 1.1, math.nan, "a half"])
def test_a_threshold_that_is_no_probability_is_refused(threshold: Any) -> None:
    with pytest.raises(CallerError, match="threshold: expected one from 0 to 1, found"):
        noisy_figures(counted(np.zeros(20), np.zeros(20)), threshold)


@pytest.mark.parametrize(("rows", "told"), [(9, False), (9.9, False), (10, True)])
def test_too_few_rows_are_not_told_of_however_little_noise_there_is(rows: float, told: bool) -> None:
    """Ten, as a group of exact figures needs: an even share of public rows, for how many a group has is private."""
    assert shown(rows, 1e-3) == told


def test_what_is_public_alone_decides_whether_figures_are_shown() -> None:
    """All bins together have noise of a variance of 32/7.6 (A' A 1 is the sum of shares times bins, 7.6): 2.05 squared.

    So with a deviation of 15.7, over 96.8 rows of the rarer outcome are to be expected, by its share where that is
    declared, else by a half. What the counts say, many rows or none of an outcome, is nothing to it.
    """
    scores, rng = np.linspace(-3, 3, 800), np.random.default_rng(5)
    public = ((194, None, True), (193, None, False), (800, 0.13, True), (800, 0.88, False))
    for outcomes in (np.arange(800) < 3, np.arange(800) % 2 == 0):
        for rows, prevalence, expected in public:
            found = noisy_figures(noisy(scores, outcomes, rng, rows=rows), prevalence=prevalence)
            assert len(found) == 17
            assert [one.low is not None for one in found.values()] == [expected] * 16 + [False]
            assert expected or set(found.values()) == {Measured()}


def test_an_outcome_that_nobody_has_has_no_ranks_and_any_area_is_possible() -> None:
    found = noisy_figures(counted(np.linspace(-3, 3, 300), np.zeros(300)))
    assert found["auroc"] == found["average_precision"] == found["sensitivity"] == Measured(None, 0.0, 1.0)
    assert found["prevalence"].value == 0
    assert noisy_figures(counted(np.zeros(0), np.zeros(0)))["auroc"] == Measured()


def test_noise_that_puts_a_figure_out_of_its_range_leaves_no_point_as_an_interval() -> None:
    """Counts above the threshold that noise made -3 deviations in sum: a sensitivity of 0 to 0 would be a lie.

    What is 3 deviations off is in up to sqrt(9 + 1.96^2) of them, 0.58 more; they move a little with the value.
    """
    counts = np.zeros((2, BINS))
    counts[:, : BINS // 2] = [[50.0], [10.0]]
    half = np.repeat([0.0, 1.0], BINS // 2)
    deviation = math.sqrt(float(half @ unit_covariance() @ half)) * SIGMA
    counts[1, BINS // 2 :] = -3 * deviation / (BINS // 2)
    one = noisy_figures(ScoreCounts(counts, SIGMA**2, 1000))["sensitivity"]
    assert one.value is not None
    assert one.low == one.value == 0
    assert one.high is not None
    assert one.high * counts[1].sum() > 0.4 * deviation


@pytest.mark.slow
@pytest.mark.parametrize(
    ("prevalence", "spread", "rows", "parties"),
    [
        (0.5, 1.0, 4000, 5),
        (0.3, 1.5, 4000, 5),
        (0.1, 1.5, 4000, 5),
        (0.08, 0.9, 2000, 5),
        (0.08, 0.9, 800, 5),
        (0.08, 0.9, 500, 1),
    ],
)
def test_intervals_cover_what_they_are_about_also_of_few_rows(
    prevalence: float, spread: float, rows: int, parties: int
) -> None:
    """At a level of 95 %, of 1,000 seeds 93 % or more cover, by chance all but 2 times in 1,000 for each figure.

    So that no seed decides, the bound is lower by 1 % than asked for: false alarms of one figure in 1e5. Average
    precision is far from linear in the counts: here 90 % or more. Of 4,000 rows no more than 98 % cover. All are shown
    in all seeds: none is chosen by noise.
    """
    rng, seeds = np.random.default_rng(6), examples(1000)
    slack = 0.01 if seeds == 1000 else 0.05
    truth = noisy_figures(counted(*drawn(prevalence, spread, rng, 4_000_000)), prevalence)
    hits: dict[str, list[bool]] = {}
    for _ in range(seeds):
        for name, one in noisy_figures(noisy(*drawn(prevalence, spread, rng, rows), rng, parties), prevalence).items():
            at = truth[name].value
            if one.low is not None and one.high is not None and at is not None:
                hits.setdefault(name, []).append(one.low <= at <= one.high)
    assert [len(found) for found in hits.values()] == [seeds] * 16
    covered = {name: float(np.mean(found)) for name, found in hits.items()}
    least = {name: 0.91 if name == "average_precision" else 0.93 for name in covered}
    most = 0.97 if rows == 4000 else 1.0 - slack
    assert all(least[name] - slack <= share <= most + slack for name, share in covered.items()), covered


def test_at_epsilon_a_half_the_area_and_the_intercept_are_near_the_exact_ones() -> None:
    """Errors over seeds, against the deviations that follow from the covariance and the gradients in closed form.

    The area is the mean over pairs, so a row of outcome 1 in bin b moves it by (F0(b) - A)/n1, and one of outcome 0 by
    (1 - F1(b) - A)/n0; a row moves the intercept by (y - p)/sum p (1 - p). Of 100 seeds the root mean square is within
    30 % of the deviation, but for 1 time in 5e4.
    """
    rng, errors = np.random.default_rng(7), []
    for _ in range(100):
        scores, outcomes = drawn(0.5, 1.0, rng)
        exact, found = noisy_figures(counted(scores, outcomes)), noisy_figures(noisy(scores, outcomes, rng))
        errors.append([found[n].value - exact[n].value for n in ("auroc", "calibration_intercept")])  # type: ignore[operator]
    zero, one = counted(*drawn(0.5, 1.0, rng, 1_000_000)).counts * ROWS / 1e6
    below, over = (np.cumsum(zero) - zero / 2) / zero.sum(), 1 - (np.cumsum(one) - one / 2) / one.sum()
    area = float(one @ below / one.sum())
    weight = float((zero + one) @ (CHANCES * (1 - CHANCES)))
    expected = [
        SIGMA * math.sqrt(PARTIES) * math.sqrt(sum(float(g @ unit_covariance() @ g) for g in of_outcome))
        for of_outcome in (
            ((below - area) / one.sum(), (over - area) / zero.sum()),
            (CHANCES / weight, (1 - CHANCES) / weight),
        )
    ]
    assert expected == pytest.approx([0.0129, 0.037], rel=0.02)  # as the page on it says
    assert np.sqrt(np.mean(np.square(errors), axis=0)) == pytest.approx(expected, rel=0.3)
