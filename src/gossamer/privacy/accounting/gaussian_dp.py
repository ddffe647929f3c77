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
from functools import cached_property, lru_cache

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from gossamer.errors import AccountingError
from gossamer.privacy.accounting.accountants import LossFigures, pure_epsilon, quick_figures, row_of
from gossamer.privacy.accounting.renyi import check_delta, check_epsilon
from gossamer.privacy.exact.grid_noise import SMOOTHING, smoothing_error
from gossamer.privacy.guarantees import PrivacyProfile
from gossamer.privacy.mechanisms import Counts, NeighboringRelation, ReleaseKind, checked_counts
from gossamer.privacy.pairs import GaussianFull

# The least mu with which Gaussian differential privacy, but for a failure probability, covers a whole plan.
#
# Of a plan, fixed in advance, `accountants.quick_figures` bounds ``H(t) = sup_S P(S) - t Q(S)`` for t = exp(e) >= 1, in
# both directions at once. Its outputs are no easier to tell apart than
#
#     with probability f: which data set it is;    else: N(mu, 1) against N(0, 1)
#
# if, at every real e and in both directions,
#
#     H(t) <= f + (1-f) G(t),        G(t) = Phi(mu/2 - e/mu) - t Phi(-mu/2 - e/mu).                           (1)
#
# **Losses below 0 need no look.** For t < 1 both sides follow from the other direction at 1/t: ``H(P||Q)(t) = 1 - t + t
# H(Q||P)(1/t)``, the same holds for the pair on the right, which is symmetric, and the terms 1 - t cancel.
#
# **Finitely many losses are enough.** (1) says that the profile ``max(0, H - f)/(1-f)`` is at most G. H is convex and
# decreasing in t, so between losses at which bounds of it are known that profile lies below their chords, and it is 0
# once H is at most f. The trade-off curve of such a polygon has finitely many corners, each of which asks for a mu
# (`gossamer.privacy.guarantees`). Chords that ask for more than the losses themselves do are cut.
#
# The proof that sums of mu^2 and of f make a filter is in docs/decisions/budgets-over-runs.md.

_FIRST, _RATIO = 12, 2**0.5  # losses looked at to begin with, and the ratio of neighbours
_LOOSE = 2e-3  # relative; how much a chord may ask for more than its ends before it is cut
_LEAST = 1e-9  # of a loss above 0
_ROUNDS = 12
_MARGIN = 1e-9  # relative, on divergences
_SAFE = 1e-6  # relative, on mu
_LARGE = 600.0  # of an epsilon whose exponential is near overflow
_HIGHEST = 500.0  # more than this says next to nothing, with or without failures


def release_mu(kind: ReleaseKind, relation: NeighboringRelation) -> float:
    """Gaussian differential privacy of one release without any failure; infinite without noise.

    Gaussian noise on a sample is counted as if all data were used, and any other noise by its pure epsilon.

    Raises
    ------
    AccountingError
        If the kind is not in `ROWS`.
    """
    if not kind.mechanism.private:
        return math.inf
    row_of(kind, relation)
    if (normal := kind.mechanism.normal) is not None:
        return normal.mu(relation)
    return response_mu(pure_epsilon(kind, relation))


def response_mu(pure: float) -> float:
    """Gaussian differential privacy of anything that is ``pure``-differentially private without a delta.

    Randomized response dominates it, whose trade-off curve has one corner, where both errors are 1/(1 + exp(pure)).
    That of N(0, 1) and N(mu, 1) is convex, with the same ends, so it lies below if it does at the corner:
    ``Phi(-mu/2) <= 1/(1 + exp(pure))``.
    """
    if not pure < _LARGE:
        return math.sqrt(8 * (pure + 1))  # -Phi^-1(p) <= sqrt(2 log(1/p))
    return max(-2 * float(ndtri(1 / (1 + math.exp(pure)))) * (1 + _SAFE), 0.0)


def full_mu(counts: Counts, relation: NeighboringRelation) -> float:
    """Gaussian differential privacy of all releases together, without any failure; see `release_mu`."""
    return math.sqrt(math.fsum(n * release_mu(kind, relation) ** 2 for kind, n in checked_counts(counts).items() if n))


def is_exact(counts: Counts) -> bool:
    """Whether `full_mu` is all that there is to say: Gaussian noise on all data."""
    return all(kind.mechanism.normal is not None and kind.sampling.rate == 1 for kind, n in counts.items() if n)


class PlanCurve:
    """Curve of what a plan reveals, for as many failure probabilities as one likes; made by `of`.

    Attributes
    ----------
    full : float
        `full_mu`.
    """

    def __init__(self, counts: Counts, relation: NeighboringRelation) -> None:
        self.full = full_mu(counts, relation)
        self._counts, self._relation = counts, relation
        self._exact = is_exact(counts) or not self.full < math.inf
        self._known: dict[float, float] = {}
        self._mus: dict[float, float] = {}

    @classmethod
    def of(cls, counts: Counts, relation: NeighboringRelation) -> PlanCurve:
        """The curve of releases that are fixed in advance: ``counts`` of each kind.

        Raises
        ------
        AccountingError
            If a kind is not in `ROWS`, or a count is not a number of releases.
        """
        released = frozenset((kind, number) for kind, number in checked_counts(counts).items() if number)
        return _curve(released, NeighboringRelation(relation))

    def mu(self, failure: float) -> float:
        """The least mu, but for ``failure`` in (0, 1): to 0.2 %, and never too small; infinite where there is none.

        Raises
        ------
        AccountingError
            If failure is not inside (0, 1).
        """
        check_delta(failure)
        if self._exact:
            return self.full
        if failure not in self._mus:
            self._mus[failure] = min(self.full, self._least(failure))
        return self._mus[failure]

    @cached_property
    def _figures(self) -> LossFigures:
        return quick_figures(self._counts, self._relation)

    def _divergence(self, loss: float) -> float:
        if loss not in self._known:
            self._known[loss] = self._figures.delta(loss)
        return self._known[loss]

    def _least(self, failure: float) -> float:
        end = self._figures.epsilon(failure)
        if end == 0 or not end < _HIGHEST:
            return math.inf if end else 0.0
        # Losses that other failures look at, too.
        highest = math.ceil(math.log(end, _RATIO))
        losses = {0.0, *(_RATIO ** (highest - step) for step in range(1, _FIRST))}
        for _ in range(_ROUNDS):
            at = np.array([*sorted(losses), end])
            found = np.array([*map(self._divergence, at[:-1].tolist()), failure]) * (1 + _MARGIN)
            found[-1] = failure  # from there on the bound is not needed
            curve = PrivacyProfile.of(at, np.maximum(found - failure, 0.0) / (1 - failure))
            alphas, hits = curve.corners
            with np.errstate(divide="ignore"):
                asked = ndtri(np.minimum(hits, 1.0)) - ndtri(alphas)
            least = float(np.max(asked, where=alphas > 0, initial=0.0))
            points = zip(curve.losses, curve.deltas, strict=True)
            ends = max((gaussian_mu(max(e, _LEAST), d) for e, d in points if 0 < d < 1), default=least)
            if least <= ends * (1 + _LOOSE):
                break
            # A chord that the curve of what it asks for touches elsewhere asks for no more than its ends do.
            before, after = np.array(curve.losses[:-1]), np.array(curve.losses[1:])
            with np.errstate(invalid="ignore"):
                touching = -asked * (asked / 2 + ndtri(alphas))
            cut = (asked > ends * (1 + _LOOSE / 2)) & ~((touching < before) | (touching > after))
            if not cut.any():
                break
            losses |= set(((before + after) / 2)[cut].tolist())
        return least * (1 + _SAFE)


@lru_cache(maxsize=64)
def _curve(released: frozenset[tuple[ReleaseKind, int]], relation: NeighboringRelation) -> PlanCurve:
    return PlanCurve(dict(released), relation)


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
