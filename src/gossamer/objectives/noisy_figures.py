"""Figures of a model by two outcomes from noisy counts of its scores, with intervals that the noise is in.

Every figure is a function of the counts x of `ScoreCounts`. By the delta method its variance is g' (V + diag(x)) g,
where g is its gradient at the estimated counts, V the covariance of the noise, and diag(x) that of counts of rows that
come independently: so an interval is about the figure of all rows like these, and not of these alone. Areas have their
interval on the scale of log odds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, logit, ndtri

from gossamer.objectives.figures import LEVEL, Floats, predicting, ranking
from gossamer.objectives.score_histogram import BINS, CHANCES, EDGES, SCORES, ScoreCounts, unit_covariance

CERTAIN = 3.0
"""Standard deviations of its noise that the number of rows of an outcome is to be above, or nothing is said."""
_SURE = 6.0  # the same of what rows tell of a slope: nearer to the noise its error is far from normal


class Measured(NamedTuple):
    """A figure with its interval.

    Attributes
    ----------
    value : float or None
        Estimate; None where there are too few rows for the noise.
    low, high : float or None
        Ends of the interval of level `LEVEL`; None of what has none.
    """

    value: float | None = None
    low: float | None = None
    high: float | None = None


def noisy_figures(counts: ScoreCounts, threshold: float = 0.5) -> dict[str, Measured]:
    """Return figures by name: of ranks, of probabilities, at a threshold, and the Brier score of a constant.

    Parameters
    ----------
    counts : ScoreCounts
        Counts of a party, or of several together.
    threshold : float
        Probability from which a row counts as outcome 1, in (0, 1).
    """
    x, share = counts.counts.ravel(), above(threshold)
    step = 1e-4 * max(float(x.sum()), 1.0)
    moved = step * np.eye(x.size)
    ahead, back, here = (_figures(at.reshape(-1, 2, BINS), share) for at in (x + moved, x - moved, x))
    gradients = {name: ((ahead[name] - back[name]) / (2 * step)).reshape(2, BINS) for name in here}
    noise = {name: counts.variance * _squared(gradient) for name, gradient in gradients.items()}
    certain = {name: float(here[name][0]) > by * math.sqrt(noise[name]) for name, by in _NEEDED.items()}
    shown = [name for name in here if name not in _NEEDED]
    if not (certain["zeros"] and certain["ones"]):
        return dict.fromkeys((*shown, "constant_brier"), Measured())
    found = {
        name: _measured(name, float(here[name][0]), noise[name] + max(float((gradients[name] ** 2).ravel() @ x), 0.0))
        for name in shown
    }
    if not certain["information"]:
        found["calibration_slope"] = Measured()
    prevalence = found["prevalence"].value or 0.0
    return found | {"constant_brier": Measured(prevalence * (1 - prevalence))}


_VACUOUS = 2.5
"""Reach in log odds of an interval that says nothing: from 0.08 to 0.92 around a half."""
_NEEDED = {"zeros": CERTAIN, "ones": CERTAIN, "information": _SURE}
_RANKS, _REALS = ("auroc", "average_precision"), ("calibration_intercept", "calibration_slope")
_KEPT = ("prevalence", "mean_predicted", "brier", *_REALS)
_CELL_OUTCOMES = np.repeat([False, True], BINS)
_RANKING, _PREDICTING = ranking(np.tile(SCORES, 2), _CELL_OUTCOMES), predicting(np.tile(CHANCES, 2), _CELL_OUTCOMES)


def _figures(x: Floats, share: Floats) -> dict[str, Floats]:
    """Figures [n] of counts [n, 2, B], and the numbers that have to be clear of the noise."""
    zero, one = x[:, 0], x[:, 1]
    cells = x.reshape(len(x), -1)
    with np.errstate(all="ignore"):
        likely = _PREDICTING(cells)
        return {
            "auroc": _RANKING(cells)["auroc"],
            "average_precision": _average_precision(x),
            **{name: likely[name] for name in _KEPT},
            "sensitivity": one @ share / one.sum(axis=-1),
            "specificity": zero @ (1 - share) / zero.sum(axis=-1),
            "zeros": zero.sum(axis=-1),
            "ones": one.sum(axis=-1),
            "information": _information(zero + one),
        }


_PARTS, _WEIGHTS = (1 + np.array([-math.sqrt(0.6), 0.0, math.sqrt(0.6)])) / 2, np.array([5.0, 8.0, 5.0]) / 18


def _average_precision(x: Floats) -> Floats:
    """Mean precision above each row of outcome 1, where the rows of a bin are spread over it (Gauss-Legendre)."""
    down = x[..., ::-1]
    before = np.cumsum(down, axis=-1) - down
    zero, one = np.moveaxis(before[..., None] + down[..., None] * _PARTS, -3, 0)
    precision = np.where(zero + one > 0, np.clip(one / (zero + one), 0, 1), 0.0) @ _WEIGHTS
    return np.asarray((down[..., 1, :] * precision).sum(axis=-1) / down[..., 1, :].sum(axis=-1))


def _information(x: Floats) -> Floats:
    """Information of rows [n, B] on the slope: the curvature of the likelihood in it, with the intercept free."""
    none, once, twice = (x * (CHANCES * (1 - CHANCES)) @ SCORES**power for power in range(3))
    return np.asarray(twice - once**2 / none)


def above(threshold: float) -> Floats:
    """Return the share of each bin that counts as above a probability, [B]: a bin that it cuts counts in part."""
    at = float(logit(threshold))
    low, high = np.append(2 * SCORES[0] - EDGES[0], EDGES), np.append(EDGES, 2 * SCORES[-1] - EDGES[-1])
    return np.asarray(np.clip((high - at) / (high - low), 0, 1))


def confusion(counts: ScoreCounts, threshold: float) -> dict[str, float]:
    """Return estimated numbers of rows by outcome, above and below a threshold in (0, 1)."""
    share, (zero, one) = above(threshold), counts.counts
    return {
        "true_positives": float(one @ share),
        "false_positives": float(zero @ share),
        "false_negatives": float(one @ (1 - share)),
        "true_negatives": float(zero @ (1 - share)),
    }


def _squared(gradient: Floats) -> float:
    """Variance of a figure by noise of variance 1 in each released number."""
    return float(np.einsum("ob,bc,oc->", gradient, unit_covariance(), gradient))


def _measured(name: str, value: float, variance: float) -> Measured:
    reach = float(ndtri((1 + LEVEL) / 2)) * math.sqrt(variance)
    if not math.isfinite(value + reach):
        return Measured()
    if name in _REALS:
        return Measured(value, value - reach, value + reach)
    if name in _RANKS and 0 < value < 1:
        at, stretched = float(logit(value)), reach / (value * (1 - value))
        if stretched > _VACUOUS:
            return Measured()
        return Measured(value, float(expit(at - stretched)), float(expit(at + stretched)))
    return Measured(*(min(max(one, 0.0), 1.0) for one in (value, value - reach, value + reach)))


_WORDS = {
    "auroc": ("area under the ROC curve", ".3f"),
    "average_precision": ("average precision", ".3f"),
    "brier": ("Brier score", ".3f"),
    "calibration_intercept": ("calibration intercept", ".2f"),
    "calibration_slope": ("calibration slope", ".2f"),
}


def in_words(found: Mapping[str, Mapping[str, float | None]]) -> str:
    """Return the most telling of figures as plain data (`as_dict`) in a line, with intervals."""
    parts = []
    for name, (words, form) in _WORDS.items():
        value, low, high = (found[name][end] for end in Measured._fields)
        if value is not None and low is not None and high is not None:
            constant = found["constant_brier"]["value"] if name == "brier" else None
            beside = "" if constant is None else f", a constant's {constant:{form}}"
            parts.append(f"{words} {value:{form}} ({low:{form}} to {high:{form}}{beside})")
    return ", ".join(parts) or "too few examples of an outcome for so much noise"


def as_dict(found: Mapping[str, Measured]) -> dict[str, Any]:
    """Return figures as plain data: value, low and high by name."""
    return {name: one._asdict() for name, one in found.items()}
