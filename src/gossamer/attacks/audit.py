"""Lower bounds of epsilon from experiments, with the confidence at which they hold.

| function | experiment | what must be independent |
|---|---|---|
| `epsilon_from_runs` | many runs, half with a canary and half without | the runs |
| `one_run.epsilon_one_run` | one run with m canaries, each included by a fair coin | the coins |

Both say: *if the lower bound exceeds a claimed epsilon, the claim is false*, except with probability 1 - confidence. A
lower bound of 0 says nothing at all. Losses of one model's training and test examples are neither experiment, so no
epsilon follows from them.

References
----------
[1] Jagielski, Ullman and Oprea, "Auditing differentially private machine learning", NeurIPS 2020, section 3.
[2] Clopper and Pearson, "The use of confidence or fiducial limits illustrated in the case of the binomial",
    Biometrika 1934.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.stats import beta

from gossamer.arrays import FloatArray
from gossamer.errors import DataError, SpecError
from gossamer.privacy.mechanisms import NeighboringRelation

REPORTED = 0.95
"""Confidence of the bounds that commands report."""


@dataclass(frozen=True)
class LowerBound:
    """Lower bound that an audit found: epsilon is at least this, at ``confidence``.

    Attributes
    ----------
    epsilon : float
        The lower bound, at least 0; 0 says nothing.
    delta : float
        Delta at which it holds: no (epsilon', delta)-DP with a smaller epsilon' explains what was seen.
    confidence : float
        Least probability with which the bound is true.
    neighboring_relation : NeighboringRelation
        Relation of the data sets that were told apart.
    method : str
        Method that obtained it.
    """

    epsilon: float
    delta: float
    confidence: float
    neighboring_relation: NeighboringRelation
    method: str

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def binomial_lower(successes: int, trials: int, level: float) -> float:
    """A bound below the success probability, true with probability at least 1 - ``level`` (one-sided, [2])."""
    return float(beta.ppf(level, successes, trials - successes + 1)) if successes > 0 else 0.0


def binomial_upper(successes: int, trials: int, level: float) -> float:
    """A bound above the success probability, true with probability at least 1 - ``level`` (one-sided, [2])."""
    return float(beta.ppf(1 - level, successes + 1, trials - successes)) if successes < trials else 1.0


def epsilon_from_runs(
    with_canary: FloatArray,
    without_canary: FloatArray,
    delta: float,
    relation: NeighboringRelation,
    confidence: float = REPORTED,
) -> LowerBound:
    """The least epsilon that explains scores of independent runs on two neighbouring data sets D and D'.

    (epsilon, delta)-DP says ``P(E) <= exp(epsilon) P'(E) + delta`` for every event E, in both directions. The events
    here are ``score > t`` (likelier on D) and ``score <= t`` (likelier on D'). The event is the best one on the first
    half of the scores; the bound is ``log((p - delta)/p')`` of the second half, with p the lower and p' the upper
    Clopper-Pearson limit of the event's two probabilities, each at half of 1 - ``confidence`` [1].

    Parameters
    ----------
    with_canary, without_canary : ndarray [runs]
        A score of each run, larger where the canary seems present, in the order of the runs. No two runs may share
        randomness.
    delta : float
        Delta, in [0, 1).
    relation : NeighboringRelation
        Relation of D and D'.
    confidence : float
        Confidence level, in (0, 1).

    Raises
    ------
    DataError
        If there are fewer than two runs of a kind, or a score is not a number.
    SpecError
        If delta or confidence is out of range.
    """
    check_level(delta, confidence)
    scores = [np.asarray(s, np.float64) for s in (with_canary, without_canary)]
    if any(len(s) < 2 or s.ndim != 1 or np.isnan(s).any() for s in scores):
        raise DataError("expected scores of at least 2 runs with and 2 without the canary, none of them NaN")
    chosen, judged = zip(*((s[: len(s) // 2], s[len(s) // 2 :]) for s in scores))
    level = (1 - confidence) / 2
    threshold, above = _best_event(chosen, delta, level)
    seen, unseen = judged if above else judged[::-1]
    hits = [int(((s > threshold) == above).sum()) for s in (seen, unseen)]
    epsilon = _epsilon_of(hits[0], len(seen), hits[1], len(unseen), delta, level)
    sizes = f"{len(scores[0])} runs with and {len(scores[1])} without the canary"
    method = f"Clopper-Pearson limits on the second half of {sizes}, event chosen on the first"
    return LowerBound(epsilon, delta, confidence, relation, method)


def check_level(delta: float, confidence: float) -> None:
    """Refuse a delta or a confidence that is none."""
    if not 0 <= delta < 1:
        raise SpecError(f"delta lies in [0, 1), found {delta!r}")
    if not 0 < confidence < 1:
        raise SpecError(f"confidence lies in (0, 1), found {confidence!r}")


def _epsilon_of(hits: int, trials: int, other_hits: int, other_trials: int, delta: float, level: float) -> float:
    likelier = binomial_lower(hits, trials, level) - delta
    return max(0.0, math.log(likelier / binomial_upper(other_hits, other_trials, level))) if likelier > 0 else 0.0


def _best_event(scores: tuple[FloatArray, ...], delta: float, level: float) -> tuple[float, bool]:
    """The threshold, and whether the event lies above it, with the largest bound on ``scores``."""
    ordered = [np.sort(s) for s in scores]
    thresholds = np.unique(np.concatenate([-math.inf * np.ones(1), *ordered]))
    counts = [len(s) - np.searchsorted(s, thresholds, side="right") for s in ordered]  # how many lie above
    best, event = -1.0, (float(thresholds[0]), True)
    for above in (True, False):
        first, second = (0, 1) if above else (1, 0)
        sizes = [len(ordered[i]) for i in (first, second)]
        hits = [counts[i] if above else len(ordered[i]) - counts[i] for i in (first, second)]
        low = np.nan_to_num(beta.ppf(level, hits[0], sizes[0] - hits[0] + 1))  # NaN where there are no hits: 0
        high = np.nan_to_num(beta.ppf(1 - level, hits[1] + 1, sizes[1] - hits[1]), nan=1.0)
        ratios = np.maximum(low - delta, 0.0) / high
        if ratios.max() > best:
            best, event = float(ratios.max()), (float(thresholds[ratios.argmax()]), above)
    return event
