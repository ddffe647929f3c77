"""Gaussian differential privacy and (epsilon, delta), in closed form.

What is mu-Gaussian differentially private is at least as hard to tell apart as N(0, 1) and N(mu, 1) are, whose profile
is `analytic.GaussianFull`. Roots are rounded to the safe side.

Gaussian differential privacy of discrete noise, but for a factor that is written out.

Something is *mu-Gaussian differentially private but for eta* if its law is, on any data, within a factor exp(eta) at
every outcome of a law that is mu-Gaussian differentially private. Then it is (epsilon + 2 eta, exp(eta) delta)-private
for every (epsilon, delta) that those are: ``P(A) <= exp(eta) P'(A) <= exp(eta) (exp(epsilon) Q'(A) + delta) <=
exp(epsilon + 2 eta) Q(A) + exp(eta) delta``. Of several, each chosen after the earlier ones were seen, the squares of
mu add up, and the eta do: joint laws are products of conditional ones.

The same as a *failure*, for who adds up probabilities: with H the hockey-stick divergence of N(mu, 1) and N(0, 1),
which falls with slope -1 at most, the divergence at e >= 0 is at most ``exp(eta) H(e - 2 eta) <= exp(eta) (H(e) + 2
eta)``, and so at most H(e) + f with f = exp(eta) - 1 + 2 eta exp(eta).

**Lemma.** The sum of h discrete Gaussians of scale s, on integers that data move by at most D in L2 norm, is
D/sqrt(h s^2 - t^2)-Gaussian differentially private but for

    eta = d (2 artanh tau(t) + sum_(1 <= k < h) 2 artanh tau(s sqrt(k/(k+1)))),
    tau(u) = 2 sum_(m >= 1) exp(-2 pi^2 u^2 m^2).

*Proof.* One coordinate, and c for what does not depend on the outcome j. The sum of k variables has probability
``c phi(j) A(j)`` at j, phi being the density of N(0, k s^2) and A within bounds that k - 1 steps have made. With one
more it is ``c sum_i phi(i) A(i) exp(-(j-i)^2/(2 s^2))``. The exponents are those of N(0, (k+1) s^2) at j, and at i of a
normal law around j k/(k+1) of variance u^2 = s^2 k/(k+1). By Poisson's summation formula the sum of the latter over all
integers i is within a share tau(u) of its integral, wherever it is centred. So the step multiplies the bounds of A by
1 - tau(u) and 1 + tau(u). What is, before it is normalised, within [a, b] of a discrete Gaussian is within a factor b/a
of it after. This one has variance h s^2, and around any integer it is within exp(2 artanh tau(t)) of what is left of a
continuous one of variance h s^2 - t^2 (`grid_noise`). Coordinates are independent, and log((1 + tau)/(1 - tau)) is
2 artanh tau.

With t = 2 and a scale of 3 or more eta is below 1e-33 for each coordinate and summand: nothing, yet it is counted.

References
----------
Dong, Roth and Su, "Gaussian differential privacy", JRSS-B 2022. Balle and Wang, "Improving the Gaussian mechanism for
differential privacy", ICML 2018, theorem 8.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from gossamer.errors import AccountingError
from gossamer.privacy.accounting.renyi import check_delta, check_epsilon
from gossamer.privacy.exact.grid_noise import SMOOTHING, smoothing_error
from gossamer.privacy.pairs import GaussianFull

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


_UP = 1 + 1e-12  # more than the rounding of a dozen operations


@dataclass(frozen=True)
class NearlyGaussian:
    """Gaussian differential privacy, but for a factor.

    Attributes
    ----------
    mu : float
        Parameter mu of the normal laws.
    eta : float
        The logarithm of the factor that outcomes are at most apart from theirs.
    """

    mu: float
    eta: float = 0.0

    def times(self, releases: int) -> NearlyGaussian:
        """Compose so many, each chosen after the earlier ones were seen."""
        return NearlyGaussian(self.mu * math.sqrt(releases) * _UP, self.eta * releases * _UP)

    @property
    def failure(self) -> float:
        """f, what is to be added to the delta of mu at every epsilon."""
        return (math.expm1(self.eta) + 2 * self.eta * math.exp(self.eta)) * _UP

    def epsilon(self, delta: float) -> float:
        """The epsilon that is proved at ``delta``.

        Raises
        ------
        AccountingError
            If delta is not inside (0, 1).
        """
        check_delta(delta)
        if not self.eta:
            return gaussian_epsilon(self.mu, delta)
        part = delta * math.exp(-self.eta) * (1 - 1e-12)
        return (gaussian_epsilon(self.mu, part) + 2 * self.eta) * _UP if part > 0 else math.inf


def sum_of_discrete_gaussians(scale: int, moved: float, size: int, summands: int = 1) -> NearlyGaussian | None:
    """Bound a sum of discrete Gaussians of integer ``scale`` by a Gaussian; None where they are too narrow for it.

    Parameters
    ----------
    scale : int
        s, the parameter of each.
    moved : float
        D, how far data move the integers that they are added to, in L2 norm.
    size : int
        d, coordinates.
    summands : int
        h, how many are added.

    Raises
    ------
    AccountingError
        If there is not even one.
    """
    if summands < 1:
        raise AccountingError(f"a sum has one summand or more, found {summands}")
    # Integers, so that no digit of the difference is lost.
    variance = summands * scale**2 - int(SMOOTHING**2)
    if variance <= 0:
        return None
    factors = [SMOOTHING, *(scale * math.sqrt(k / (k + 1)) for k in range(1, summands))]
    return NearlyGaussian(moved / math.sqrt(variance) * _UP, size * math.fsum(map(smoothing_error, factors)) * _UP)
