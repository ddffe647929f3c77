"""A privacy profile as a value: the deltas of all losses, and what they say of an attacker.

The profile of releases is ``H(e) = sup_S P(S) - exp(e) Q(S)``, of the two directions the larger: for every e >= 0 the
releases are (e, H(e))-differentially private. It is kept as finitely many points, each an upper bound. H is convex in
t = exp(e), so what lies between two points is below their chord, and points above the chord of others are left out.

**Trade-off curve.** A test that tells two neighbours apart with false alarms alpha misses at least

    f(alpha) = sup over e of  1 - H(e) - exp(e) alpha                                                      (1)

of the cases [1, proposition 6]. The lines of finitely many e are a lower bound of it, and so are they mirrored at
alpha = beta, since H covers both directions.

**mu** is the least mu such that no test does better than one between N(0, 1) and N(mu, 1), whose curve is
``Phi(Phi^-1(1 - alpha) - mu)``. That curve is convex, so it lies below the lines if it does at their corners; at a
corner (alpha, beta) mu is ``Phi^-1(1 - alpha) + Phi^-1(1 - beta)``. To an attacker who is content to be right once in a
life, sampled noise looks like noise without sampling: tests with less than `LEAST_ERROR` of either error are left out
[2, section 3].

References
----------
[1] Dong, Roth and Su, "Gaussian differential privacy", JRSS-B 2022.
[2] Gomez et al., "Gaussian DP for reporting differential privacy guarantees in machine learning", arXiv 2503.10945.
[3] Kairouz, Oh and Viswanath, "The composition theorem for differential privacy", ICML 2015.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri

from gossamer.arrays import FloatArray

LEAST_ERROR = 1e-10
"""Least rate of false alarms, and of misses, of the tests that mu is about."""
HIGHEST_LOSS = -math.log(LEAST_ERROR) + 0.1
"""Losses beyond it say nothing of such tests: their lines (1) are below 0."""
DELTAS: tuple[float, ...] = (
    *np.geomspace(1e-16, 0.5, 97).tolist(),
    *(1 - np.geomspace(0.49, 1e-6, 96)).tolist(),
)
"""Deltas at which an epsilon is asked for where nothing but epsilons is known."""
_POINTS, _FAR = 513, 8.0  # losses of a Gaussian profile, and how many deviations they go
_ROUNDING = 1e-15  # of a difference of two probabilities
_SAFE = 1e-9  # relative and absolute, on mu: more than the rounding of quantiles


@dataclass(frozen=True)
class PrivacyProfile:
    """Losses and the deltas proved for them; made by `of`.

    Attributes
    ----------
    losses : tuple of float
        Increasing, the first is 0.
    deltas : tuple of float
        Upper bound of the divergence at each, in [0, 1]; decreasing and convex in exp(loss).
    """

    losses: tuple[float, ...]
    deltas: tuple[float, ...]

    @classmethod
    def of(cls, losses: FloatArray, deltas: FloatArray) -> PrivacyProfile:
        """The profile through points, without those that are above the chord of others.

        Parameters
        ----------
        losses : ndarray
            Increasing from 0, at most `HIGHEST_LOSS`.
        deltas : ndarray
            Upper bounds of the divergences at them, in any order and not below 0.
        """
        falling = np.minimum.accumulate(np.minimum(deltas, 1.0))
        kept = _lower_hull(np.expm1(losses), falling)
        return cls(tuple(losses[kept].tolist()), tuple(falling[kept].tolist()))

    @classmethod
    def through(cls, epsilon: Callable[[float], float]) -> PrivacyProfile:
        """The profile of what is (``epsilon(delta)``, delta)-differentially private for each delta of `DELTAS`."""
        found = [(epsilon(delta), delta) for delta in DELTAS]
        return cls.of_points([(at, delta) for at, delta in found if at < math.inf])

    @classmethod
    def gaussian(cls, mu: float) -> PrivacyProfile:
        """The profile of N(0, 1) against N(mu, 1) [1, corollary 2.13]."""
        if mu == 0:
            return NOTHING
        losses = np.linspace(0.0, min(mu * (mu / 2 + _FAR), HIGHEST_LOSS), _POINTS)
        lost = np.exp(losses + log_ndtr(-mu / 2 - losses / mu))
        return cls.of(losses, ndtr(mu / 2 - losses / mu) - lost + _ROUNDING)

    @classmethod
    def of_points(cls, points: Sequence[tuple[float, float]]) -> PrivacyProfile:
        """The profile of what is differentially private for each of ``points``, an epsilon and a delta."""
        near = sorted((at, delta) for at, delta in points if 0 < at <= HIGHEST_LOSS)
        advantage = min([1.0, *(_advantage(at, delta) for at, delta in points)])
        losses, deltas = np.array([(0.0, advantage), *near]).T
        kept = np.append(np.diff(losses) > 0, True)
        return cls.of(losses[kept], deltas[kept])

    @classmethod
    def worst(cls, profiles: Sequence[PrivacyProfile]) -> PrivacyProfile:
        """The profile of whichever of ``profiles`` it is."""
        losses = np.unique(np.concatenate([profile.losses for profile in profiles]))
        return cls.of(losses, np.max([[profile.delta(loss) for loss in losses] for profile in profiles], axis=0))

    def delta(self, epsilon: float) -> float:
        """The least delta that the points prove for ``epsilon`` >= 0."""
        if epsilon >= self.losses[-1]:
            return self.deltas[-1]
        right = int(np.searchsorted(self.losses, epsilon, side="right"))
        (low, high), (left, after) = self.losses[right - 1 : right + 1], self.deltas[right - 1 : right + 1]
        return left - (left - after) * math.expm1(epsilon - low) / math.expm1(high - low)

    def moved(self, shift: float, factor: float, failure: float, growing: float = 0.0) -> PrivacyProfile:
        """The profile of what is ``(e + shift, factor H(e) + failure + growing exp(e))``-private for every e."""
        # H falls by at most exp(e) (exp(shift) - 1) from e to e + shift.
        slope = growing + math.expm1(shift)
        points = zip(self.losses, self.deltas, strict=True)
        deltas = [min(factor * delta + failure + slope * math.exp(loss), 1.0) for loss, delta in points]
        return PrivacyProfile.of(np.array(self.losses), np.array(deltas))

    @property
    def advantage(self) -> float:
        """The most by which an attacker's true alarms can exceed its false ones."""
        return self.deltas[0]

    @property
    def accuracy(self) -> float:
        """Share of right guesses of the best attacker, who would be right half the time without looking."""
        return (1 + self.advantage) / 2

    def miss_rate(self, false_alarms: FloatArray) -> FloatArray:
        """The least rate of misses of a test with these rates of false alarms, each in [0, 1]."""
        alarms = np.asarray(false_alarms, dtype=np.float64)[..., None]
        deltas, factors = np.array(self.deltas), np.exp(self.losses)
        ahead = np.max(1 - deltas - factors * alarms, axis=-1)
        back = np.max((1 - deltas - alarms) / factors, axis=-1)
        misses: FloatArray = np.maximum(np.maximum(ahead, back), 0.0)
        return misses

    @property
    def corners(self) -> tuple[FloatArray, FloatArray]:
        """False alarms and hits at the corners of the lines (1): a corner for each two points that are neighbours."""
        deltas, factors = np.array(self.deltas), np.exp(self.losses)
        alphas = -np.diff(deltas) / np.diff(factors)
        return alphas, deltas[:-1] + factors[:-1] * alphas

    @cached_property
    def mu(self) -> float:
        """The least mu whose Gaussian trade-off curve is below this one, for tests of errors from `LEAST_ERROR` up.

        Infinite where there is none.
        """
        deltas, factors = np.array(self.deltas), np.exp(self.losses)
        alphas, hits = self.corners
        seen = (alphas > LEAST_ERROR) & (hits < 1 - LEAST_ERROR)
        least = min(float(np.min(deltas + factors * LEAST_ERROR)), 1.0)
        found = np.append(ndtri(hits[seen]) - ndtri(alphas[seen]), ndtri(least) - ndtri(LEAST_ERROR))
        return max(float(np.max(found)), 0.0) * (1 + _SAFE) + _SAFE


def _advantage(epsilon: float, delta: float) -> float:
    """The most of it under (epsilon, delta)-differential privacy [3, theorem 2.1]."""
    return 1 - 2 * (1 - delta) * math.exp(-epsilon) / (1 + math.exp(-epsilon))


def _lower_hull(across: FloatArray, up: FloatArray) -> list[int]:
    """Positions of the points that no chord of others is below."""
    kept: list[int] = []
    for point in range(across.size):
        while len(kept) > 1 and _above(across, up, kept[-2], kept[-1], point):
            kept.pop()
        kept.append(point)
    return kept


def _above(across: FloatArray, up: FloatArray, left: int, middle: int, right: int) -> bool:
    """Whether the middle point is on or above the chord."""
    first, second = across[middle] - across[left], across[right] - across[middle]
    return bool((up[middle] - up[left]) * second >= (up[right] - up[middle]) * first)


NOTHING = PrivacyProfile((0.0,), (0.0,))
"""The profile of no release."""
EVERYTHING = PrivacyProfile((0.0,), (1.0,))
"""The profile of releases that may reveal everything."""
