"""Saddle point of the Fourier integral of a composed loss, near which its divergence comes from.

Estimates, good to some tens of percent. They decide how a bound is computed, never what is proved: see `fourier_bound`.
The integrand at order t is exp(K(t) - t e) / (t (t + 1)) with K = log E exp(t L), and its saddle point is where

    K'(t) = e + 1/t + 1/(t + 1).

Reference: Butler, "Saddlepoint approximations with applications", Cambridge 2007, chapters 1 and 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from scipy.optimize import brentq

from gossamer.privacy.accounting.composition import ComposedLoss, Moments

_LEAST, _MOST = math.log(1e-15), math.log(1e18)  # of the logarithm of an order


class Saddle(NamedTuple):
    """A saddle point.

    Attributes
    ----------
    order : float
        Where it is.
    epsilon : float
        The loss it belongs to.
    log_delta : float
        Of the divergence there, roughly; what is infinite left out.
    """

    order: float
    epsilon: float
    log_delta: float


def at_epsilon(loss: ComposedLoss, epsilon: float, start: float) -> Saddle:
    """The saddle point of ``epsilon``; the search starts at the order ``start``."""

    def ahead(log_order: float) -> float:
        moments = loss.moments(math.exp(log_order))
        return _finite(_epsilon(moments)) - epsilon

    order = math.exp(_root(ahead, math.log(start)))
    return Saddle(order, epsilon, _log_delta(loss.moments(order), epsilon))


def at_delta(loss: ComposedLoss, log_delta: float, start: float) -> Saddle:
    """The saddle point of the loss >= 0 whose divergence is exp(log_delta), roughly."""

    def ahead(log_order: float) -> float:
        moments = loss.moments(math.exp(log_order))
        return log_delta - _finite(_log_delta(moments, _epsilon(moments)), -1e300)

    order = math.exp(_root(ahead, math.log(start)))
    # Not the tilted mean, which leaps where few releases have a large loss: there the root is of the leap.
    epsilon = (_log_delta(loss.moments(order), 0.0) - log_delta) / order
    if not 0 < epsilon < math.inf:
        return at_epsilon(loss, 0.0, order)
    return Saddle(order, epsilon, log_delta)


def least_sum(loss: ComposedLoss, surprise: float) -> float:
    """A loss <= 0 below which the sum lies with a probability of about exp(-surprise) or less.

    Single losses as low as are rarer than that among all releases are left out: they would hide how low the others go.
    """
    usual = loss.without_rare_low(math.exp(-surprise))
    order, best = 1.0, math.inf
    while order < 1e18:
        found = (usual.moments(-order).log + surprise) / order
        if not found < best:
            break
        order, best = order * 2, found
    return -max(best, 0.0)


def period(loss: ComposedLoss, saddle: Saddle, surprise: float) -> tuple[float, float]:
    """A period and an order whose Fourier sum repeats exp(-surprise) of the divergence after it, or less.

    Orders below the saddle point's need shorter periods where tails are heavy.
    """
    above = [(other, _finite(_surplus(loss, saddle, other))) for other in (saddle.order * part for part in _ABOVE)]
    below = [(0.0, -saddle.log_delta), (saddle.order * _BELOW, _surplus(loss, saddle, saddle.order * _BELOW))]

    def needed(order: float) -> float:
        return max(
            min(max(surplus + surprise, 1.0) / abs(other - order) for other, surplus in side) for side in (above, below)
        )

    return min((needed(saddle.order * part), saddle.order * part) for part in _CONTOURS)


_ABOVE, _BELOW, _CONTOURS = (1.1, 1.35, 1.75, 2.5, 4.0, 10.0, 100.0), 0.4, (1.0, 0.8, 0.6)


def _surplus(loss: ComposedLoss, saddle: Saddle, order: float) -> float:
    """log of Chernoff's bound at ``order`` over the divergence."""
    return loss.moments(order).log - order * saddle.epsilon - saddle.log_delta


def _epsilon(moments: Moments) -> float:
    return moments.mean - 1 / moments.order - 1 / (moments.order + 1)


def _log_delta(moments: Moments, epsilon: float) -> float:
    order = moments.order
    variance = moments.variance + order**-2 + (order + 1) ** -2
    return moments.log - order * epsilon - math.log(order * (order + 1)) - math.log(2 * math.pi * variance) / 2


def _finite(value: float, otherwise: float = 1e300) -> float:
    return value if math.isfinite(value) else otherwise


def _root(increasing: Callable[[float], float], start: float) -> float:
    """Find the order at which a function crosses 0, to a percent; the end of the range if it does not."""
    low = high = min(max(start, _LEAST), _MOST)
    width = 0.5
    if increasing(low) > 0:
        while low > _LEAST and increasing(low := max(low - width, _LEAST)) > 0:
            high, width = low, width * 2
        if increasing(low) > 0:
            return low
    else:
        while high < _MOST and increasing(high := min(high + width, _MOST)) <= 0:
            low, width = high, width * 2
        if increasing(high) <= 0:
            return high
    return float(brentq(increasing, low, high, xtol=1e-3, rtol=1e-3))
