"""Figures of a model by two outcomes from noisy counts of its scores, with intervals that the noise is in.

Whether figures are shown follows from what is public beforehand alone (`shown`): noise that chose among its own draws
would bias them. An interval is made of all values that the counts x do not speak against, as Fieller [1] has it for
ratios: each value t of a figure has weights w(t) of the cells, for which the sum of w x is 0 but for chance where t is
right, and t is in where that sum is within so many of its deviations. Its variance is w' (V + diag(x)) w, where V is
the covariance of the noise, and diag(x) that of counts of rows that come independently: so an interval is about the
figure of all rows like these, and not of these alone. Nothing is divided by, so it holds for few rows as well, where it
may be the whole range. Where noise puts a figure out of its range, all values are spoken against; those are in then
that are hardly more so than the one that is least, or the interval would be a point. Weights of ranks and of the slope
are made of counts themselves.

References
----------
[1] E. C. Fieller, "Some problems in interval estimation", JRSS B 16 (1954).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.special import expit, ndtri

from gossamer.arrays import Floats
from gossamer.objectives.figures import LEVEL, check_threshold, recalibrated
from gossamer.objectives.score_histogram import BINS, ScoreCounts, edges, scores_of, unit_covariance
from gossamer.objectives.score_words import LABELS
from gossamer.objectives.score_words import shown as said

LEAST = 10
"""Fewest rows, or persons where they are known, that figures of a group are given of."""
CERTAIN = 3.0
"""Deviations of its count's noise that the expected number of rows of an outcome is above, or nothing is shown."""


class Measured(NamedTuple):
    """A figure with its interval.

    Attributes
    ----------
    value : float or None
        Estimate; None where nothing is shown, and where noise leaves no rows that it could be a figure of.
    low, high : float or None
        Ends of the interval of level `LEVEL`; None where nothing is shown, and of what has none.
    """

    value: float | None = None
    low: float | None = None
    high: float | None = None


def shown(rows: float, deviation: float, prevalence: float | None = None) -> bool:
    """Return whether figures are shown, which no row and no noise decides.

    Parameters
    ----------
    rows : float
        Public number of rows.
    deviation : float
        Standard deviation of the noise of one released number.
    prevalence : float, optional
        Share of outcome 1, as known without the rows. By default a half, for which the fewest rows do.
    """
    share = 0.5 if prevalence is None else prevalence
    return rows >= LEAST and min(share, 1 - share) * rows > CERTAIN * deviation * math.sqrt(unit_covariance().sum())


def noisy_figures(counts: ScoreCounts, threshold: float = 0.5, prevalence: float | None = None) -> dict[str, Measured]:
    """Return figures by name: of ranks, of probabilities, at a threshold, and the Brier score of a constant.

    Parameters
    ----------
    counts : ScoreCounts
        Counts of a party, or of several together.
    threshold : float
        Probability from which a row counts as outcome 1; the one `nearest` to it is taken.
    prevalence : float, optional
        Share of outcome 1, as known without the rows; see `shown`.

    Raises
    ------
    CallerError
        If the threshold is no probability.
    """
    check_threshold(threshold)
    x, log_odds = counts.counts.ravel(), np.asarray(np.tile(scores_of(counts.around), 2), np.float64)
    likely = np.asarray(expit(log_odds), np.float64)
    named = np.asarray(likely > nearest(threshold, counts.around), np.float64)
    hits, spared = named * _ONE, (1 - named) * _ZERO
    ratios = {
        "auroc": (*_pairs(*counts.counts), 2),
        "average_precision": (_precision_gradient(counts.counts), _ONE, 1),
        "prevalence": (_ONE, _ANY, 1),
        "mean_predicted": (likely, _ANY, 1),
        "brier": ((likely - _ONE) ** 2, _ANY, 1),
        "sensitivity": (hits, _ONE, 1),
        "specificity": (spared, _ZERO, 1),
        "ppv": (hits, named, 1),
        "npv": (spared, 1 - named, 1),
        "true_positives": (hits, _ANY, 1),
        "false_positives": (named * _ZERO, _ANY, 1),
        "false_negatives": ((1 - named) * _ONE, _ANY, 1),
        "true_negatives": (spared, _ANY, 1),
        "beyond_grid": (np.isin(np.arange(2 * BINS) % BINS, (0, BINS - 1)).astype(np.float64), _ANY, 1),
    }
    if not shown(counts.rows, math.sqrt(counts.variance), prevalence):
        return dict.fromkeys((*ratios, *_FITTED, "constant_brier"), Measured())
    found = {}
    for name, (part, whole, degree) in ratios.items():
        value = float(np.clip(part @ x / (whole @ x), 0, 1)) if whole @ x > _NONE else math.nan
        found[name] = _measured(value, counts, partial(_of_ratio, part, whole), (0.0, 1.0), degree)
    best = fitted(counts)
    for name, (number, weights, ends) in _FITTED.items():
        found[name] = _measured(float(best[number]), counts, partial(weights, x, log_odds), ends)
    common = found["prevalence"].value
    return found | {"constant_brier": Measured(None if common is None else common * (1 - common))}


def fitted(counts: ScoreCounts) -> Floats:
    """Return the intercept at a slope of 1, and intercept and slope together, as `figures.recalibrated` does, [3]."""
    return recalibrated(expit(np.tile(scores_of(counts.around), 2)), _ONE > 0, counts.counts.ravel())


_ONE = np.repeat([0.0, 1.0], BINS)
_ZERO, _ANY = 1 - _ONE, np.ones(2 * BINS)
_NONE = 1e-3  # rows: none, but for rounding
_REACH = float(ndtri((1 + LEVEL) / 2))
_TRIED, _FINER = 201, 3  # values that are tried, and how often between the outer ones of those that are in


def _measured(
    value: float, counts: ScoreCounts, weights: Callable[[Floats], Floats], ends: tuple[float, float], degree: int = 1
) -> Measured:
    """A figure whose sums are of a degree in the counts, where weights are their derivatives."""
    x, (low, high) = counts.counts.ravel(), ends
    for _ in range(_FINER):
        tried = np.linspace(low, high, _TRIED)
        of = weights(tried)
        halves = of.reshape(-1, 2, BINS)
        variance = counts.variance * np.einsum("tob,bc,toc->t", halves, unit_covariance(), halves, optimize=True)
        variance += np.maximum(of**2 @ x, 0)
        off = (of @ x / degree) ** 2 / np.maximum(variance, _NONE**2)
        inside = np.flatnonzero(off <= off.min() + _REACH**2)
        low, high = float(tried[max(inside[0] - 1, 0)]), float(tried[min(inside[-1] + 1, _TRIED - 1)])
    if not ends[0] <= value <= ends[1]:
        return Measured(None, low, high)
    return Measured(value, min(low, value), max(high, value))


def _pairs(zero: Floats, one: Floats) -> tuple[Floats, Floats]:
    """Derivatives of the pairs of both outcomes that are ranked rightly, and of all, [2 B]."""
    below, over = np.cumsum(zero) - zero / 2, one.sum() - np.cumsum(one) + one / 2
    return np.concatenate([over, below]), np.where(_ONE > 0, zero.sum(), one.sum())


def _of_ratio(part: Floats, whole: Floats, tried: Floats) -> Floats:
    return part - tried[:, None] * whole


def _of_intercept(x: Floats, log_odds: Floats, tried: Floats) -> Floats:
    return np.asarray(_ONE - expit(log_odds + tried[:, None]))


def _of_slope(x: Floats, log_odds: Floats, tried: Floats) -> Floats:
    """Weights of the score of the slope, where the intercept is fitted and what it takes along is taken off."""
    sloped, below, over = tried[:, None] * log_odds, np.full(len(tried), -30.0), np.full(len(tried), 30.0)
    for _ in range(30):
        middle = (below + over) / 2
        many = expit(sloped + middle[:, None]) @ x > _ONE @ x
        below, over = np.where(many, below, middle), np.where(many, middle, over)
    p = expit(sloped + middle[:, None])
    curve = p * (1 - p)
    with np.errstate(all="ignore"):
        centre = np.nan_to_num(np.clip(curve @ (log_odds * x) / (curve @ x), log_odds[0], log_odds[-1]))
    return np.asarray((log_odds - centre[:, None]) * (_ONE - p))


_FITTED: dict[str, tuple[int, Callable[[Floats, Floats, Floats], Floats], tuple[float, float]]] = {
    "calibration_intercept": (0, _of_intercept, (-6.0, 6.0)),
    "calibration_slope": (2, _of_slope, (-4.0, 6.0)),
}
"""Place in a recalibration, weights, and the widest interval."""
_PARTS, _WEIGHTS = (1 + np.array([-math.sqrt(0.6), 0.0, math.sqrt(0.6)])) / 2, np.array([5.0, 8.0, 5.0]) / 18


def _precision_gradient(x: Floats) -> Floats:
    """Derivatives [2 B] of `_precision`, which is of degree 1."""
    step = 1e-4 * max(float(x.sum()), 1.0)
    moved = (step * np.eye(x.size)).reshape(-1, 2, BINS)
    return np.asarray((_precision(x + moved) - _precision(x - moved)) / (2 * step))


def _precision(x: Floats) -> Floats:
    """Sum [n] of precisions above each row of outcome 1, the rows of a bin spread over it (Gauss-Legendre)."""
    down = x[..., ::-1]
    before = np.cumsum(down, axis=-1) - down
    zero, one = np.moveaxis(before[..., None] + down[..., None] * _PARTS, -3, 0)
    with np.errstate(all="ignore"):
        precision = np.where(zero + one > 0, np.clip(one / (zero + one), 0, 1), 0.0) @ _WEIGHTS
    return np.asarray((down[..., 1, :] * precision).sum(axis=-1))


def nearest(threshold: float, around: float | None = None) -> float:
    """Return the probability at which two bins meet that is nearest to a threshold: no row is counted in part there."""
    met = expit(edges(around))
    return float(met[np.abs(met - threshold).argmin()])


_SAID = ("auroc", "average_precision", "brier", "calibration_intercept", "calibration_slope")


def in_words(found: Mapping[str, Mapping[str, float | None]]) -> str:
    """Return the most telling of figures as plain data (`Measured._asdict`) in a line, with intervals."""
    parts = []
    for name in _SAID:
        value, low, high = (found[name][end] for end in Measured._fields)
        if low is not None and high is not None:
            constant = found["constant_brier"]["value"] if name == "brier" else None
            beside = "" if constant is None else f", a constant's {said(name, constant)}"
            known = "unknown" if value is None else said(name, value)
            parts.append(f"{LABELS[name].words} {known} ({said(name, (low, high))}{beside})")
    return ", ".join(parts) or "too few examples, or too much noise for them"
