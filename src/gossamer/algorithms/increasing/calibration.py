"""Proved privacy of rounds on Poisson samples, and the least noise for it.

An estimate says where to look: for many releases at small rates q_i the central limit theorem makes them one Gaussian
release with ``mu^2 = sum_i q_i^2 (exp(1/sigma^2) - 1)`` [1]. It decides what is looked at first, and nothing else: all
that is reported is the accountant's.

References
----------
[1] Bu, Dong, Long and Su, "Deep learning with Gaussian differential privacy", HDSR 2020, theorem 5.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq

from gossamer.errors import BudgetUnreachable
from gossamer.numbers import round_up
from gossamer.privacy.accounting import accountants
from gossamer.privacy.accounting.planner import (
    LEAST_MULTIPLIER,
    MOST_MULTIPLIER,
    NOISE_DIGITS,
    Schedule,
    calibrate_noise_multiplier,
    gaussian_releases,
)
from gossamer.privacy.mechanisms import NeighboringRelation
from gossamer.privacy.sampling import Poisson, Sampling

Sizes = npt.NDArray[np.int64]

_PRECISION = 2.5e-4  # relative, of the root; the result is at most four of these above it


def schedule_of(sizes: Sizes, dataset_size: int) -> Schedule:
    """Poisson samples, one a round, at rates s_i/N_c."""
    values, counts = np.unique(sizes, return_counts=True)
    return {Poisson(size / dataset_size): count for size, count in zip(values.tolist(), counts.tolist())}


def constant_schedule(size: int, dataset_size: int, gradients: int) -> Schedule:
    """Rounds of one size that make so many gradients."""
    sampling: Sampling = Poisson(size / dataset_size)
    return {sampling: -(-gradients // size)}


def proved_epsilon(schedule: Schedule, sigma: float, delta: float, relation: NeighboringRelation) -> float:
    """Epsilon proved for Gaussian noise of multiplier sigma on every round, gradients taken at released models."""
    return accountants.epsilon(gaussian_releases(sigma, schedule), delta, relation).epsilon


@lru_cache(maxsize=64)
def full_batch_sigma(epsilon: float, delta: float, relation: NeighboringRelation) -> float:
    """The least multiplier of one release on the full batch; the largest that is searched if it needs more."""
    try:
        return calibrate_noise_multiplier(epsilon, delta, relation, [{Poisson(1.0): 1}]).noise_multiplier
    except BudgetUnreachable:
        return MOST_MULTIPLIER


def estimated_sigma(squares: float, full: float) -> float:
    """The multiplier at which rounds with ``squares`` = sum_i (s_i/N_c)^2 reveal as much as one full batch does with
    ``full``, roughly: never less than with full batches of as many squares."""
    limit = 1.0 / math.sqrt(math.log1p(1.0 / (full**2 * squares)))
    # Measured at epsilon 1: the limit is too small by a quarter at a sigma of 0.6, and right from 10 on.
    return limit * (1.0 + 0.4 / (1.0 + limit**2))


def smallest_sigma(schedule: Schedule, epsilon: float, delta: float, relation: NeighboringRelation) -> float | None:
    """The least multiplier, to 0.1 %, for which (epsilon, delta) is proved; None if it is above 1000.

    As `calibrate_noise_multiplier`, but from the estimate on: small multipliers take long to account for.
    """

    def spent(sigma: float) -> float:
        return proved_epsilon(schedule, sigma, delta, relation)

    squares = sum(count * sampling.rate**2 for sampling, count in schedule.items())
    start = estimated_sigma(squares, full_batch_sigma(epsilon, delta, relation))
    low = high = min(max(start, LEAST_MULTIPLIER), MOST_MULTIPLIER)
    step = 1.05
    if spent(start := high) > epsilon:
        while spent(high) > epsilon:
            if high >= MOST_MULTIPLIER:
                return None
            low, high, step = high, min(high * step, MOST_MULTIPLIER), min(step**2, 2.0)
    else:
        while spent(low) <= epsilon:
            if low <= LEAST_MULTIPLIER:
                return low
            low, high, step = max(low / step, LEAST_MULTIPLIER), low, min(step**2, 2.0)

    def excess(log_sigma: float) -> float:
        return math.log(min(max(spent(math.exp(log_sigma)) / epsilon, 1e-6), 1e6))

    sigma = min(round_up(math.exp(brentq(excess, math.log(low), math.log(high), xtol=_PRECISION)), NOISE_DIGITS), high)
    while spent(sigma) > epsilon:
        sigma = min(round_up(sigma * (1 + _PRECISION), NOISE_DIGITS), high)
    return sigma
