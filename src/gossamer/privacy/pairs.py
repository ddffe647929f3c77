"""Symmetric dominating pairs of releases that use every example: what a noise law proves by itself.

A pair (P, Q) dominates releases if its hockey-stick divergence ``H(P||Q)(e) = sup_A P(A) - exp(e) Q(A)`` is at least
that of their outputs on any two neighbours, for every real e (`accounting.analytic`, which has samples of them).

References
----------
[1] Balle and Wang, "Improving the Gaussian mechanism for differential privacy", ICML 2018, theorem 8.
[2] Kairouz, Oh and Viswanath, "The composition theorem for differential privacy", ICML 2015, theorem 3.3: randomized
    response dominates every epsilon-differentially private mechanism.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.special import erfcx, log_ndtr, ndtr, ndtri

from gossamer.arrays import FloatArray

MOST_MU = 30.0  # beyond it exp(mu^2/2) comes near overflow
MOST_EXPONENT = 700.0  # exp of it is far above what matters, and no overflow
ROUNDING = float(np.finfo(np.float64).eps)
_ROOT_2 = math.sqrt(2)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(10)


class Full(Protocol):
    """The symmetric pair of a release that uses every example."""

    def divergence(self, losses: FloatArray) -> FloatArray:
        """H(P||Q) at ``losses`` >= 0."""
        ...

    def largest(self, tail: float) -> float:
        """A privacy loss e with H(P||Q)(e) <= ``tail``; the supremum of the loss for ``tail`` 0."""
        ...


@dataclass(frozen=True)
class GaussianFull:
    """N(mu, 1) against N(0, 1): Gaussian noise, mu = sensitivity / standard deviation. Equation 6 of [1]."""

    mu: float

    def divergence(self, losses: FloatArray) -> FloatArray:
        cut = losses / self.mu
        upper, lower = self.mu / 2 - cut, -self.mu / 2 - cut
        divergence: FloatArray
        if self.mu > MOST_MU:
            return np.maximum(drop(losses, upper, lower), 0.0)
        # exp(loss) phi(lower) = phi(upper), which leaves a difference of Mills ratios
        divergence = np.exp(-(upper**2) / 2) * mills_drop(-upper, self.mu) / math.sqrt(2 * math.pi)
        return divergence

    def largest(self, tail: float) -> float:
        return self.mu * -float(ndtri(tail)) + self.mu**2 / 2 if tail > 0 else math.inf


@dataclass(frozen=True)
class ResponseFull:
    """Randomized response: P = (p, 1-p), Q = (1-p, p) with p = exp(epsilon) / (1 + exp(epsilon))."""

    epsilon: float

    def divergence(self, losses: FloatArray) -> FloatArray:
        # (exp(epsilon) - exp(loss)) / (1 + exp(epsilon)), where that is positive
        found: FloatArray = -np.expm1(np.minimum(losses - self.epsilon, 0.0)) / (1.0 + math.exp(-self.epsilon))
        return found

    def largest(self, tail: float) -> float:
        return self.epsilon


def drop(losses: FloatArray, upper: FloatArray, lower: FloatArray) -> FloatArray:
    """Phi(upper) - exp(loss) Phi(lower), and what rounding may take from numbers so large."""
    raised = upper + 4 * ROUNDING * (np.abs(upper) + np.abs(lower))
    exponents = losses + log_ndtr(lower) - 4 * ROUNDING * (losses + lower**2)
    drop: FloatArray = ndtr(raised) - np.exp(np.minimum(exponents, MOST_EXPONENT))
    return drop


def mills_drop(points: FloatArray, gap: float) -> FloatArray:
    """R(points) - R(points + gap), where R(x) is the Mills ratio Phi(-x) / phi(x), which falls."""
    scale = math.sqrt(math.pi / 2)
    if gap > 0.5:
        drop: FloatArray = scale * (erfcx(points / _ROOT_2) - erfcx((points + gap) / _ROOT_2))
        return drop
    # -R'(x) = 1 - x R(x), integrated over so short a way that ten points are exact
    nodes = points[:, None] + gap * (1 + _NODES) / 2
    drop = gap / 2 * np.sum((1 - nodes * scale * erfcx(nodes / _ROOT_2)) * _WEIGHTS, axis=1)
    return drop
