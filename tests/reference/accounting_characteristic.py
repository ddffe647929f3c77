"""Slow, nearly exact accounting of subsampled Gaussian noise, for any number of releases.

Nothing is discretised or rounded up: the characteristic function of one privacy loss is integrated over the outputs
with Gauss-Legendre quadrature, raised to the number of releases, and inverted numerically [1]. The contour is moved to
the saddle point, so that small deltas keep their relative accuracy. `delta` checks itself: halving the step and
doubling the range must not change it by more than `PRECISION`.

The pairs are of *outputs*, not of divergences:

| pair | P | Q |
|---|---|---|
| remove | (1-q) N(0, 1) + q N(mu, 1) | N(0, 1) |
| add | N(0, 1) | (1-q) N(0, 1) + q N(mu, 1) |
| replace | (1-q) N(0, 1) + q N(mu, 1) | (1-q) N(0, 1) + q N(-mu, 1) |

References
----------
[1] Zhu, Dong and Wang, "Optimal accounting of differential privacy via characteristic function", AISTATS 2022.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq

FloatArray = npt.NDArray[np.float64]

PRECISION = 1e-6
MOST_FREQUENCIES = 20_000


class Loss(NamedTuple):
    """Privacy losses at the points of a quadrature, and log of P's probability of each point."""

    losses: FloatArray
    logs: FloatArray


def pair(direction: str, multiplier: float, rate: float, cells: int = 12) -> Loss:
    """One release; ``cells`` of 16 points each in a unit of the output."""
    mu = 1 / multiplier
    low, high = (-38.0 - mu, 38.0 + mu)
    edges = np.linspace(low, high, math.ceil((high - low) * cells * max(1.0, mu)) + 1)
    points, weights = np.polynomial.legendre.leggauss(16)
    half = np.diff(edges)[:, None] / 2
    x = (edges[:-1, None] + half * (1 + points)).ravel()
    log_step = np.log((half * weights).ravel())

    def mixed(shift: float) -> FloatArray:
        """log of the mixture's density over N(0, 1)'s."""
        exponent = shift * x - shift**2 / 2
        if rate == 1:
            return exponent
        near = np.log1p(rate * np.expm1(np.minimum(exponent, 30.0)))
        return np.where(exponent < 30, near, np.logaddexp(math.log1p(-rate), math.log(rate) + exponent))

    normal = -(x**2) / 2 - math.log(2 * math.pi) / 2 + log_step
    if direction == "remove":
        return Loss(mixed(mu), normal + mixed(mu))
    if direction == "add":
        return Loss(-mixed(mu), normal)
    if direction == "replace":
        return Loss(mixed(mu) - mixed(-mu), normal + mixed(mu))
    raise ValueError(direction)


class Tilted(NamedTuple):
    order: float
    log_moment: float
    weights: FloatArray
    mean: float
    variance: float


def tilted(loss: Loss, order: float) -> Tilted:
    exponents = loss.logs + order * loss.losses
    peak = float(np.max(exponents))
    if peak < -1:
        small = np.abs(order * loss.losses) < 30
        terms = np.exp(loss.logs) * np.expm1(np.where(small, order * loss.losses, 0.0))
        large = np.exp(exponents) - np.exp(loss.logs)
        log_moment = math.log1p(float(np.sum(np.where(small, terms, large))))
    else:
        log_moment = peak + math.log(float(np.sum(np.exp(exponents - peak))))
    weights = np.exp(exponents - log_moment)
    mean = float(np.sum(weights * loss.losses))
    return Tilted(order, log_moment, weights, mean, float(np.sum(weights * (loss.losses - mean) ** 2)))


def saddle(loss: Loss, releases: int, epsilon: float) -> Tilted:
    """At the order above 0 where the integrand is smallest."""

    def slope(log_order: float) -> float:
        order = math.exp(log_order)
        return releases * tilted(loss, order).mean - epsilon - 1 / order - 1 / (1 + order)

    return tilted(loss, math.exp(_crossing(slope)))


def delta(loss: Loss, releases: int, epsilon: float) -> float:
    """The divergence of ``releases`` releases at ``epsilon``."""
    at = saddle(loss, releases, epsilon)
    order = at.order
    spread = math.sqrt(releases * at.variance)
    factor = releases * at.log_moment - order * epsilon
    # The integral over s of M(order + i s) exp(-i s epsilon) / (z (z + 1)), by the trapezoidal rule.
    step, found = 2 * math.pi / (30 * spread + 60 / order), math.nan
    for _ in range(8):
        total = _integral(loss, at, releases, epsilon, step)
        value = math.exp(factor) * total * step / math.pi
        if abs(value - found) <= PRECISION * value:
            return value
        step, found = step / 2, value
    raise ArithmeticError(f"no convergence at epsilon {epsilon} of {releases} releases")


def _integral(loss: Loss, at: Tilted, releases: int, epsilon: float, step: float) -> float:
    order, total, size, start = at.order, 0.5 / (at.order * (at.order + 1)), 0.0, 1
    kept = at.weights > 1e-25 / releases
    losses, weights = loss.losses[kept], at.weights[kept]
    while start < MOST_FREQUENCIES:
        s = step * np.arange(start, start + 256)
        half = np.sin(np.multiply.outer(s, losses) / 2)
        excess = np.sum(-2 * half**2 * weights, 1) + 1j * np.sum(np.sin(np.multiply.outer(s, losses)) * weights, 1)
        modulus = np.log1p(np.maximum(2 * excess.real + np.abs(excess) ** 2, -1 + 1e-16)) / 2
        angle = np.arctan2(excess.imag, 1 + excess.real)
        z = order + 1j * s
        terms = np.exp(releases * (modulus + 1j * angle) - 1j * s * epsilon) / (z * (z + 1))
        total += float(np.sum(terms.real))
        size = float(np.max(np.abs(terms[-64:])))
        # What follows oscillates or decays: at most one more period of it.
        if size * max(1 / step, 256) < PRECISION / 10 * abs(total) or size < 1e-9 * abs(total):
            return total
        start += 256
    raise ArithmeticError(f"the characteristic function of {releases} releases does not fall")


def epsilon(loss: Loss, releases: int, target: float) -> float:
    """The epsilon > 0 whose divergence is ``target``."""

    def excess(log_epsilon: float) -> float:
        return math.log(delta(loss, releases, math.exp(log_epsilon)) / target)

    low = high = math.log(_guess(loss, releases, target))
    while excess(high) > 0:
        high += 0.1
    while excess(low) < 0:
        low -= 0.1
    return math.exp(brentq(excess, low, high, xtol=1e-7))


def _guess(loss: Loss, releases: int, target: float) -> float:
    """By the saddle point alone."""

    def of(log_order: float) -> tuple[float, float]:
        order = math.exp(log_order)
        at = tilted(loss, order)
        epsilon = releases * at.mean - 1 / order - 1 / (1 + order)
        variance = releases * at.variance + order**-2 + (1 + order) ** -2
        log_delta = releases * at.log_moment - order * epsilon - math.log(order * (order + 1))
        return epsilon, log_delta - math.log(2 * math.pi * variance) / 2

    found = _crossing(lambda u: math.log(target) - of(u)[1])
    return max(of(found)[0], 1e-3 / math.exp(found))


def _crossing(rising: Callable[[float], float]) -> float:
    """Where a function of the logarithm of an order crosses 0; it starts at -25 and may overflow."""
    low, high = -25.0, -24.0
    while not rising(high) > 0:
        low, high = high, high + 1.0
        if high > 60:
            raise ArithmeticError("no saddle point: epsilon is above every loss")
    return float(brentq(rising, low, high, xtol=1e-6))
