"""Divergences of a sum of privacy losses, bounded from above by a Fourier sum.

Let ``M(z) = E exp(z L)`` over finite L, for the sum L of all losses. For an order t > 0 and a period W,

    sum over whole k of exp(t k W) delta(e + k W)
        = exp(-t e) / W  sum over whole n of M(z) exp(-i s e) / (z (z + 1)),    s = 2 pi n / W,  z = t + i s,

which is Poisson's summation formula for exp(t e) delta(e). Every term on the left is positive, so the sum on the right
is never below delta(e), whatever t and W are. With t near the saddle point of the terms at n = 0 and W wide enough it
is delta(e) to any accuracy, and its rounding errors are relative to delta, however small delta is.

The sum on the right has to end. A Gaussian release with a tiny mu is composed with the others: that can only raise
delta, and makes the terms fall like exp(-(mu s)^2 / 2), which bounds what is left out. Rounding errors are bounded and
added as well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gossamer.privacy.accounting.composition import ComposedLoss

_ROUNDING = float(np.finfo(np.float64).eps)
_FALL = 34.0  # the smoothing's exponent at the last frequency
_MOST_EXPONENT = 690.0
_TINIEST = 1e-300
_SUMMED = 1e-14  # relative, on up to 2^17 terms that are added up in pairs


@dataclass(frozen=True)
class Fourier:
    """Bounds of delta(e) from above by a Fourier sum: how it is taken.

    Attributes
    ----------
    order : float
        Above 0.
    period : float
        W of the module's docstring.
    smoothing : float
        mu of the Gaussian release that is composed with the others.
    """

    order: float
    period: float
    smoothing: float

    @property
    def step(self) -> float:
        return 2 * math.pi / self.period

    @property
    def count(self) -> int:
        """Number of frequencies: from the last on, the smoothing leaves less than exp(-`_FALL`)."""
        return math.ceil(math.sqrt(2 * _FALL) / self.smoothing / self.step) + 1


class FourierBound:
    """Upper bounds of the divergence of a sum of losses near the loss that the order belongs to.

    Parameters
    ----------
    loss : ComposedLoss
        The sum.
    plan : Fourier
        How the sum is taken.
    """

    def __init__(self, loss: ComposedLoss, plan: Fourier) -> None:
        order = plan.order
        self._plan, self.infinite, self._highest = plan, loss.infinite, loss.highest
        self._moments = moments = loss.moments(order)
        self._frequencies = plan.step * np.arange(plan.count)
        spectrum, larger = loss.spectrum(order, plan.step, plan.count, _ROUNDING)
        z = order + 1j * self._frequencies
        poles = np.log(z / order) + np.log((z + 1) / (order + 1))
        self._terms = spectrum - poles
        # What rounding may have taken from the logarithms of the terms' sizes, and from that of M(order).
        self._larger = larger + _ROUNDING * 8 * (np.abs(spectrum) + np.abs(poles) + 2)
        self._start = _ROUNDING * (40 * (order * moments.absolute + moments.summed) + 8 * (abs(moments.log) + 1))

    def log_delta(self, epsilon: float, smoother: float = 1.0) -> float:
        """log of an upper bound of the divergence at ``epsilon``, what is infinite left out.

        ``smoother``, at least 1, is a factor on the plan's smoothing.
        """
        if epsilon > self._highest * (1 + 1e-12):
            return -math.inf
        order, period = self._plan.order, self._plan.period
        mu = self._plan.smoothing * smoother
        s = self._frequencies
        exponents = self._terms - (mu * s) ** 2 / 2 + 1j * s * (mu**2 * (order + 0.5) - epsilon)
        larger = self._larger + _ROUNDING * 8 * (s * (abs(epsilon) + mu**2 * (order + 0.5)) + (mu * s) ** 2)
        with np.errstate(under="ignore"):
            terms = np.exp(exponents)
            sizes = np.abs(terms)
            lost = np.exp(np.minimum(exponents.real + larger, _MOST_EXPONENT))
            errors = np.where(larger < 1, sizes * np.expm1(np.minimum(larger, 1.0)), lost)
        total = float(np.sum(terms.real[1:])) * 2 + 1.0 + 2 * float(np.sum(errors)) + _SUMMED * float(np.sum(sizes))
        last = float(s[-1])
        left_out = period / math.pi * order * (order + 1) * math.exp(-((mu * last) ** 2) / 2) / (mu**2 * last**3)
        factor = self._moments.log - order * epsilon + _ROUNDING * 8 * (abs(self._moments.log) + order * abs(epsilon))
        found = math.log(max(total + left_out, _TINIEST)) - math.log(period * order * (order + 1))
        found += order * (order + 1) * mu**2 / 2
        # Chernoff's bound, exp(order (L - epsilon)) in place of what exceeds epsilon, where the sum is lost in errors.
        return factor + self._start + (min(found, 0.0) if math.isfinite(found) else 0.0)

    def delta(self, epsilon: float, smoother: float = 1.0) -> float:
        """An upper bound of the divergence at ``epsilon``."""
        return min(math.exp(min(self.log_delta(epsilon, smoother), 0.0)) + self.infinite, 1.0)
