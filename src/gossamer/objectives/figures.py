"""Figures of scored examples that have weights: how well scores rank, probabilities are right, and decisions are made.

Each kind of figures is a function of weights [..., n], one of each example, that gives figures [...]: with weights of
one they are those of a sample, with numbers of draws of bootstrap resamples, and with counts of a histogram, whose bins
stand for the examples of one outcome each: ``ranking(scores, outcomes)(weights)["auroc"]``. So weights may be no whole
numbers, and even negative, as noisy counts are. Given whose examples they are, weights are of units [..., units], and
resamples of persons take a pass over persons, not over rows. A figure that has no value is NaN, such as the area under
the curve where one outcome is missing.

References
----------
T. Fawcett, "An introduction to ROC analysis", Pattern Recognition Letters 27 (2006): sections 2, 7 and 8.
B. Van Calster et al., "Calibration: the Achilles heel of predictive analytics", BMC Medicine 17 (2019): intercept (in
the large, at slope 1) and slope of the logistic recalibration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit, logit

from gossamer.arrays import BoolArray, Floats, IndexArray
from gossamer.errors import CallerError, real_number, shortened
from gossamer.machine_code import compiled

Figures = dict[str, Floats]
"""Figures [...] by name, NaN where there is none."""
OfWeights = Callable[[Floats], Figures]
"""Figures for weights [..., n] of the examples."""


def check_threshold(threshold: object) -> None:
    """Raise `CallerError` if a threshold is no probability."""
    if not 0 <= real_number(threshold) <= 1:
        raise CallerError(f"threshold: expected one from 0 to 1, found {shortened(threshold)}; correct it")


def ranking(scores: npt.NDArray[Any], outcomes: BoolArray, units: IndexArray | None = None) -> OfWeights:
    """Figures of what needs no threshold and no probability: the area under the ROC curve, and average precision.

    Equal scores count as one threshold, so half a pair each in ``auroc``.

    Parameters
    ----------
    scores : ndarray [n]
        Scores, higher for likelier.
    outcomes : ndarray [n] of bool
        Whether each example has the outcome.
    units : ndarray [n], optional
        Number of the unit that each example is of; by default each is its own.
    """
    order = np.argsort(scores)[::-1].copy()
    ordered, highest_first, whose = scores[order], outcomes[order], order if units is None else units[order]
    last = np.append(ordered[1:] != ordered[:-1], True)  # of each run of equal scores

    def of(weights: Floats) -> Figures:
        rows = np.ascontiguousarray(weights.reshape(-1, weights.shape[-1]), np.float64)
        found = np.empty((len(rows), 2))
        _rank(rows, whose, highest_first, last, found)
        area, precision = np.moveaxis(found.reshape(*weights.shape[:-1], 2), -1, 0)
        return {"auroc": area, "average_precision": precision}

    return of


@compiled()
def _rank(weights, whose, outcomes, last, found):  # type: ignore[no-untyped-def]
    """Write both figures for each row of weights, in one pass from the highest score down."""
    for b in range(len(weights)):
        above = above_with = here = here_with = missed = precision = 0.0
        for i in range(len(whose)):
            weight = weights[b, whose[i]]
            here += weight
            here_with += weight if outcomes[i] else 0.0
            if last[i]:
                missed += here_with * (above - above_with + (here - here_with) / 2)
                above += here
                above_with += here_with
                if here_with != 0:
                    precision += here_with * above_with / above
                here = here_with = 0.0
        pairs = above_with * (above - above_with)
        found[b, 0] = 1 - missed / pairs if above_with > 0 and pairs > 0 else np.nan
        found[b, 1] = precision / above_with if above_with > 0 else np.nan


def by_unit(parts: Sequence[npt.NDArray[Any]], units: IndexArray | None) -> Floats:
    """Return columns [units, parts]: sums over the examples of each unit, or the examples' own."""
    own = parts if units is None else [np.bincount(units, part) for part in parts]
    return np.column_stack(own).astype(np.float64, copy=False)


def deciding(named: BoolArray, outcomes: BoolArray, units: IndexArray | None = None) -> OfWeights:
    """Figures of what a decision finds and misses: shares of the confusion, which is sums of weights.

    Parameters
    ----------
    named : ndarray [n] of bool
        Whether each example is said to have the outcome.
    outcomes : ndarray [n] of bool
        Whether it has it.
    units : ndarray [n], optional
        Number of the unit that each example is of; by default each is its own.
    """
    columns = by_unit([named & outcomes, named & ~outcomes, ~named & outcomes, ~named & ~outcomes], units)

    def of(weights: Floats) -> Figures:
        tp, fp, fn, tn = np.moveaxis(weights @ columns, -1, 0)
        sensitivity, specificity = _share(tp, fn), _share(tn, fp)
        return {
            "accuracy": _share(tp + tn, fp + fn),
            "balanced_accuracy": (sensitivity + specificity) / 2,
            "sensitivity": sensitivity,
            "specificity": specificity,
            "ppv": _share(tp, fp),
            "npv": _share(tn, fn),
        }

    return of


def _share(some: Floats, others: Floats) -> Floats:
    return _mean(some, some + others)


def predicting(
    probabilities: Floats, outcomes: BoolArray, recalibration: Floats | None = None, units: IndexArray | None = None
) -> OfWeights:
    """Figures of probabilities: Brier score, log loss, calibration, and the shares predicted and found.

    ``calibration_intercept`` a and ``calibration_slope`` b are of the logistic models logit P = a + logit p and
    logit P = a' + b logit p: 0 and 1 are right; a above 0 says that outcomes come oftener than predicted, and b below 1
    that predictions are too extreme. Both are NaN where no finite one is likeliest, b also where all p are the same.

    Parameters
    ----------
    probabilities : ndarray [n]
        Predicted probabilities of the outcome.
    outcomes : ndarray [n] of bool
        Whether each example has it.
    recalibration : ndarray [3], optional
        `recalibrated` of the whole sample, for weights that are resamples of it: what is fitted is then one step of
        Newton from there, which costs no pass over the examples. By default it is fitted to each weights, of examples.
    units : ndarray [n], optional
        Number of the unit that each example is of; by default each is its own.
    """
    likely = np.clip(probabilities, _LEAST, 1 - _LEAST)
    parts = [np.ones_like(likely), outcomes, probabilities, np.square(probabilities - outcomes)]
    parts.append(-np.log(np.where(outcomes, likely, 1 - likely)))
    if recalibration is not None:
        parts += _steps(logit(likely), outcomes, recalibration)
    columns = by_unit(parts, units)

    def of(weights: Floats) -> Figures:
        whole, *sums = np.moveaxis(weights @ columns, -1, 0)
        if recalibration is None:
            fitted = recalibrated(probabilities, outcomes, weights)
        else:
            fitted = recalibration + _newton(np.stack(sums[4:], axis=-1))
        prevalence, mean, brier, loss = (_mean(total, whole) for total in sums[:4])
        return {
            "prevalence": prevalence,
            "mean_predicted": mean,
            "brier": brier,
            "log_loss": loss,
            "calibration_intercept": fitted[..., 0],
            "calibration_slope": fitted[..., 2],
        }

    return of


def _mean(total: Floats, whole: Floats) -> Floats:
    with np.errstate(all="ignore"):
        return np.where(whole > 0, total / whole, np.nan)


_LEAST = float(np.finfo(np.float64).eps)
"""Least probability that a logarithm is taken of, as scikit-learn has it."""
_STEPS, _NEAR, _LONGEST = 60, 1e-10, 3.0


def recalibrated(probabilities: Floats, outcomes: BoolArray, weights: Floats) -> Floats:
    """Return the recalibration of probabilities by maximum likelihood; see `predicting`.

    Returns
    -------
    ndarray [..., 3]
        The intercept at slope 1; intercept and slope of the model that has both. NaN where no finite one is likeliest.
    """
    x = logit(np.clip(probabilities, _LEAST, 1 - _LEAST))
    centre, spread = float(x.mean()), max(float(x.std()), _NEAR)
    z = (x - centre) / spread  # in which steps of Newton have a length that says something
    many = weights.shape[:-1]
    found = np.zeros((*many, 3))
    length = np.ones((*many, 3))
    for _ in range(_STEPS):
        predicted = [expit(x + found[..., :1]), expit(found[..., 1:2] + found[..., 2:] * z)]
        alone, both = ((weights * (outcomes - p), weights * p * (1 - p)) for p in predicted)
        moments = [alone[0].sum(-1), alone[1].sum(-1), both[0].sum(-1), both[0] @ z]
        moments += [both[1].sum(-1), both[1] @ z, both[1] @ np.square(z)]
        length = _newton(np.stack(moments, axis=-1))
        found = found + np.clip(length, -_LONGEST, _LONGEST)
        if not (np.abs(length) > _NEAR).any():
            break
    done = np.abs(length) <= 100 * _NEAR
    done[..., 1:] = done[..., 1:].all(axis=-1, keepdims=True)
    found = np.where(done, found, np.nan)
    slope = found[..., 2] / spread
    return np.stack([found[..., 0], found[..., 1] - slope * centre, slope], axis=-1)


def _steps(x: Floats, outcomes: BoolArray, at: Floats) -> list[Floats]:
    """Each example's parts of the moments that `_newton` needs, at one recalibration [3]."""
    alone, both = expit(x + at[0]), expit(at[1] + at[2] * x)
    off, curve = outcomes - both, both * (1 - both)
    return [outcomes - alone, alone * (1 - alone), off, off * x, curve, curve * x, curve * np.square(x)]


def _newton(moments: Floats) -> Floats:
    """Steps [..., 3] of Newton, from the gradients and curvatures [..., 7] of both likelihoods."""
    off, curve, g0, g1, h00, h01, h11 = np.moveaxis(moments, -1, 0)
    with np.errstate(all="ignore"):
        determinant = h00 * h11 - np.square(h01)
        determinant = np.where(determinant > _NEAR * np.abs(h00 * h11), determinant, np.nan)
        both = [(h11 * g0 - h01 * g1) / determinant, (h00 * g1 - h01 * g0) / determinant]
        return np.stack([np.where(curve > 0, off / curve, np.nan), *both], axis=-1)


def measuring(predicted: Floats, targets: Floats, units: IndexArray | None = None) -> OfWeights:
    """Figures of numbers: R2, the root of the mean squared error, the mean absolute error, and the mean error.

    R2 is 1 less the mean squared error divided by the variance of the targets: 1 is perfect, and 0 what their mean
    does.

    Parameters
    ----------
    predicted, targets : ndarray [n]
        Predictions and real targets, on one scale.
    units : ndarray [n], optional
        Number of the unit that each example is of; by default each is its own.
    """
    with np.errstate(all="ignore"):
        errors, centred = predicted - targets, targets - targets.mean()
        parts = [np.ones_like(errors), errors, np.abs(errors), np.square(errors), centred, np.square(centred)]
    columns = by_unit(parts, units)

    def of(weights: Floats) -> Figures:
        with np.errstate(all="ignore"):
            whole, *sums = np.moveaxis(weights @ columns, -1, 0)
            error, distance, square, mean, second = (_mean(total, whole) for total in sums)
            spread = second - np.square(mean)
            r2 = np.where(spread > _LEAST * second, 1 - square / spread, np.nan)
            return {"r2": r2, "rmse": np.sqrt(square), "mae": distance, "mean_error": error}

    return of


def reliability(probabilities: Floats, outcomes: BoolArray, weights: Floats, bins: int = 10) -> Floats:
    """Return the reliability curve: how often the outcome comes where about so much was predicted.

    Parameters
    ----------
    probabilities : ndarray [n]
        Predicted probabilities of the outcome.
    outcomes : ndarray [n] of bool
        Whether each example has it.
    weights : ndarray [n]
        Weight of each example, not negative.
    bins : int
        Number of groups of about the same weight, by rising probability, that equal ones are not parted by.

    Returns
    -------
    ndarray [groups, 3]
        Mean probability, share of the outcome, and weight of each group, without empty ones.
    """
    order = np.argsort(probabilities)
    sorted_by, weight = probabilities[order], weights[order]
    _, first = np.unique(sorted_by, return_inverse=True)
    starts = np.cumsum(weight) - weight
    lowest = np.minimum.reduceat(starts, np.flatnonzero(np.diff(first, prepend=-1)))[first]  # the same of equal ones
    groups = np.minimum((lowest / weight.sum() * bins).astype(np.int64), bins - 1)
    whole = np.bincount(groups, weight, bins)
    sums = [np.bincount(groups, weight * values, bins) for values in (sorted_by, outcomes[order])]
    kept = whole > 0
    return np.column_stack([*(each[kept] / whole[kept] for each in sums), whole[kept]])


# Intervals, by resamples of those who are independent of each other: persons, or rows where no persons are known.

LEVEL = 0.95
"""Share of samples whose interval covers the truth."""
_AT_ONCE = 200_000  # weights of resamples that are made at once: they stay in the processor's cache


def resamples(many: int, count: int, rng: np.random.Generator) -> Iterator[Floats]:
    """Yield the weights of bootstrap resamples: how often each unit was drawn, of as many as there are.

    Parameters
    ----------
    many : int
        Number of units: of persons that the examples are about, or of the examples themselves.
    count : int
        Number of resamples.
    rng : numpy.random.Generator
        Generator of the draws.

    Yields
    ------
    ndarray [some, many]
        Weights of some of the resamples, together ``count``.
    """
    some = max(1, _AT_ONCE // many)
    for begun in range(0, count, some):
        here = min(some, count - begun)
        drawn = rng.integers(many, size=(here, many))
        times = np.zeros((here, many), np.uint16)  # a quarter of the bytes, which stay in the cache
        _count(drawn, times)
        yield times.astype(np.float64)


@compiled()
def _count(drawn, times):  # type: ignore[no-untyped-def]
    """Add to ``times`` [b, n] how often each number stands in each row of ``drawn`` [b, n]."""
    for b in range(len(drawn)):
        for one in drawn[b]:
            times[b, one] += 1


def interval(values: Floats, level: float = LEVEL) -> list[float] | None:
    """Return the interval between percentiles of a figure of resamples [n]; None where most of them have none."""
    known = values[np.isfinite(values)]
    if 2 * len(known) <= len(values):
        return None
    return [float(end) for end in np.quantile(known, [(1 - level) / 2, (1 + level) / 2])]
