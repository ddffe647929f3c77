"""Gaussian differential privacy and (epsilon, delta), in closed form.

What is mu-Gaussian differentially private is at least as hard to tell apart as N(0, 1) and N(mu, 1) are, whose profile
is `analytic.GaussianFull`. Roots are rounded to the safe side.

References
----------
Dong, Roth and Su, "Gaussian differential privacy", JRSS-B 2022. Balle and Wang, "Improving the Gaussian mechanism for
differential privacy", ICML 2018, theorem 8.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from gossamer.errors import AccountingError
from gossamer.privacy.accounting.analytic import GaussianFull
from gossamer.privacy.accounting.renyi import check_delta, check_epsilon

_STEP = 1e-12  # relative; roots are moved by it until they are safe

_HUGE = 1e8
"""The profile's two terms cancel to eight digits where epsilon or mu^2/2 is so large.

Above it the probability of a larger privacy loss, which is N(mu^2/2, mu^2), is taken for delta. It is never too small.
"""


def gaussian_delta(mu: float, epsilon: float) -> float:
    """The least delta of mu-Gaussian differential privacy at ``epsilon`` >= 0, or above it where both are huge.

    Raises
    ------
    AccountingError
        mu or epsilon is negative or not finite.
    """
    _check_mu(mu)
    if not 0 <= epsilon < math.inf:
        raise AccountingError(f"epsilon must be a finite number, 0 or more, found {epsilon!r}")
    if mu == 0:
        return 0.0
    if mu <= math.sqrt(2 * _HUGE) and epsilon <= _HUGE:
        return float(GaussianFull(mu).divergence(np.array([epsilon]))[0])
    return float(ndtr(mu / 2 - epsilon / mu)) if mu <= _HUGE else 1.0


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The least epsilon >= 0 of mu-Gaussian differential privacy at ``delta``.

    Raises
    ------
    AccountingError
        mu is negative or not finite, or delta is not inside (0, 1).
    """
    _check_mu(mu)
    check_delta(delta)
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    high = mu * (mu / 2 - float(ndtri(delta)))  # the loss is larger with probability delta
    if high > _HUGE:
        return high
    epsilon = float(brentq(lambda e: gaussian_delta(mu, e) / delta - 1.0, 0.0, high, xtol=1e-300, rtol=1e-14))
    while gaussian_delta(mu, epsilon) > delta:
        epsilon *= 1 + _STEP
    return min(epsilon, high)


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The largest mu whose Gaussian differential privacy is (epsilon, delta)-differential privacy.

    Raises
    ------
    AccountingError
        epsilon is not positive, or delta is not inside (0, 1).
    """
    check_epsilon(epsilon)
    check_delta(delta)
    quantile = -float(ndtri(delta))
    # mu^2/2 + mu quantile = epsilon, without its cancellation: the loss is larger with probability delta
    root = math.hypot(quantile, math.sqrt(2) * math.sqrt(epsilon))
    low = epsilon / ((root + quantile) / 2) if quantile > 0 else root - quantile
    if epsilon > _HUGE:
        return low
    high = low
    while gaussian_delta(high, epsilon) <= delta:
        high *= 2
    mu = float(brentq(lambda m: gaussian_delta(m, epsilon) / delta - 1.0, low, high, xtol=1e-300, rtol=1e-14))
    while gaussian_delta(mu, epsilon) > delta:
        mu *= 1 - _STEP
    return max(mu, low)


def _check_mu(mu: float) -> None:
    if not 0 <= mu < math.inf:
        raise AccountingError(f"mu must be a finite number, 0 or more, found {mu!r}")
