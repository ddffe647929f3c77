"""The composition of many discrete privacy losses, in one transform.

Losses add up, so their law is a product in Fourier space, taken over all groups of releases together [1]. The masses
are tilted first, multiplied by exp(t loss), with t such that losses near the answer become typical: a tail of 1e-10
is then computed with the relative accuracy of the bulk, and the transform's rounding errors are relative to the
answer. What lies outside the transform's window is bounded by Chernoff's inequality: above it, it counts as an
infinite loss; from below, it wraps around to the top, where it can only add.

`dp_accounting.pld` composes one pair of distributions at a time, which is too slow for thousands of different rates;
it discretises point by point, knows no batches of fixed size and, in its older releases, no replace-one. The tests
compare with it.

References
----------
[1] Koskela, Jälkö and Honkela, "Computing tight differential privacy guarantees using FFT", AISTATS 2020.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import fft, signal
from scipy.special import expit

FloatArray = npt.NDArray[np.float64]
ComplexArray = npt.NDArray[np.complex128]

_OUTSIDE = 1e-13  # tilted probability that may lie outside the window, on either side
_RELIABLE = 1e-3  # tilted probability that has to lie below an answer
_GONE = 1e-25  # magnitude below which a frequency is left out
_ROUNDING = 1e-9  # relative, on delta: far more than the transforms lose


@dataclass(frozen=True, eq=False)
class Masses:
    """The law of one discretised privacy loss.

    Attributes
    ----------
    lowest : int
        The smallest loss, in intervals.
    probabilities : ndarray [size]
        Of the losses lowest, lowest + 1, ...
    infinite : float
        Probability of an infinite loss.
    """

    lowest: int
    probabilities: FloatArray
    infinite: float

    @property
    def highest(self) -> int:
        """The largest finite loss, in intervals."""
        return self.lowest + self.probabilities.size - 1


class Terms(NamedTuple):
    """``times`` losses that follow masses ``upper`` with probability ``weight``, else masses ``lower``."""

    lower: int
    upper: int
    weight: float
    times: int


class ComposedLoss:
    """The sum of independent privacy losses.

    Parameters
    ----------
    masses : sequence of Masses
        The laws that occur, on grids of the same interval.
    terms : sequence of Terms
        How often they occur; positions refer to ``masses``.
    interval : float
        Between neighbouring losses.
    spread : float
        The standard deviation of the sum, roughly: where searches for a tilt start.
    """

    def __init__(self, masses: Sequence[Masses], terms: Sequence[Terms], interval: float, spread: float) -> None:
        self._masses = masses
        self._terms = terms
        self._interval = interval
        self._spread = spread
        self._lower = np.array([term.lower for term in terms])
        self._upper = np.array([term.upper for term in terms])
        self._weight = np.array([term.weight for term in terms])
        self._count = np.array([float(term.times) for term in terms])
        self._known_moments: dict[float, float] = {}

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon >= 0 whose hockey-stick divergence is at most ``delta``; infinite if none is."""
        surprise = -math.log(delta)
        tilt = _descend(
            lambda order: (self._log_moment(order) + surprise) / order, math.sqrt(2 * surprise + 0.1) / self._spread
        )
        loss, reliable = self._solve(tilt, delta)
        # Where losses are bounded, the best Chernoff bound may lie far above the answer.
        while not reliable and tilt * self._spread > 0.01:
            tilt /= 2
            loss, reliable = self._solve(tilt, delta)
        return max(loss, 0.0)

    def _solve(self, tilt: float, delta: float) -> tuple[float, bool]:
        """The loss at which the divergence is ``delta``, and whether the tilted law reaches well below it."""
        tail = self._tail(tilt)
        target = delta * (1 - _ROUNDING) - tail.infinite
        if target < 0:
            return math.inf, True
        # The divergence at e decreases; between two losses it is infinite + upper - exp(e - loss) lower.
        first = int(np.argmax(tail.upper - tail.lower <= target))
        loss = (tail.start + first) * self._interval
        if first > 0:
            loss += math.log((tail.upper[first] - target) / tail.lower[first])
        zero = min(max(-tail.start, 0), tail.below.size - 1)
        return loss, bool(tail.below[max(first, zero)] > _RELIABLE)

    def delta(self, epsilon: float) -> float:
        """The hockey-stick divergence at ``epsilon`` >= 0."""
        tilt = _descend(
            lambda order: self._log_moment(order) - order * epsilon, max(epsilon, self._spread) / self._spread**2
        )
        tail = self._tail(tilt, epsilon)
        first = max(math.ceil(epsilon / self._interval) - tail.start, 0)
        if first >= tail.upper.size:
            return tail.infinite
        loss = (tail.start + first) * self._interval
        above = tail.upper[first] - math.exp(epsilon - loss) * tail.lower[first]
        return min(float(above) * (1 + _ROUNDING) + tail.infinite, 1.0)

    def _tail(self, tilt: float, needed: float = math.inf) -> _Tail:
        """Sums over the upper end of the law, exact from somewhat below the tilted mean, or the loss ``needed``."""
        low, high = self._window(tilt)
        low = max(min(low, math.floor(min(needed / self._interval, low))), self._end("lowest"))
        tilted = self._tilted(tilt, low, high)
        cumulant = self._log_moment(tilt)
        with np.errstate(over="ignore"):
            masses = tilted * np.exp(cumulant - tilt * self._interval * np.arange(low, high + 1))
            upper = np.cumsum(masses[::-1])[::-1]
            # lower[j] = sum over i >= j of masses[i] exp(loss_j - loss_i): a recursion, so that nothing overflows
            lower = signal.lfilter([1.0], [1.0, -math.exp(-self._interval)], masses[::-1])[::-1]
        infinite = self._infinite
        if high < self._end("highest"):
            infinite += _OUTSIDE * math.exp(min(cumulant - tilt * self._interval * high, 0.0))
        return _Tail(low, upper, lower, np.cumsum(tilted), infinite)

    def _tilted(self, tilt: float, low: int, high: int) -> FloatArray:
        """The tilted law at the losses low, ..., high, in intervals."""
        length = fft.next_fast_len(high - low + 1, real=True)
        logs = self._log_moments(tilt)

        @lru_cache(maxsize=3)  # neighbouring terms share their masses
        def transform(index: int) -> ComplexArray:
            law = self._masses[index]
            losses = np.arange(law.lowest, law.highest + 1)
            weights = law.probabilities * np.exp(tilt * self._interval * losses - logs[index])
            result: ComplexArray = fft.rfft(np.bincount(losses % length, weights, minlength=length))
            return result

        spectrum = np.zeros(length // 2 + 1, dtype=np.complex128)
        product, kept = np.ones(spectrum.size, dtype=np.complex128), np.arange(spectrum.size)
        for term in self._terms:
            factor = transform(term.upper)[kept]
            if term.weight < 1:
                odds = math.log(term.weight) - math.log1p(-term.weight) + logs[term.upper] - logs[term.lower]
                other = transform(term.lower)[kept]
                factor = other + float(expit(odds)) * (factor - other)
            product *= factor if term.times == 1 else factor**term.times
            # No factor exceeds 1, so frequencies that are gone stay gone: after many releases nearly all are.
            alive = np.abs(product) > _GONE
            if np.count_nonzero(alive) < alive.size / 2:
                product, kept = product[alive], kept[alive]
        spectrum[kept] = product
        around: FloatArray = fft.irfft(spectrum, length)[np.arange(low, high + 1) % length]
        return np.maximum(around, 0.0)

    def _window(self, tilt: float) -> tuple[int, int]:
        """Losses, in intervals, below and above which at most _OUTSIDE of the tilted law lies."""
        here, allowance = self._log_moment(tilt), -math.log(_OUTSIDE)
        start = math.sqrt(2 * allowance) / self._spread

        def beyond(order: float) -> float:
            return (self._log_moment(tilt + order) - here + allowance) / order

        def before(order: float) -> float:
            return (self._log_moment(tilt - order) - here + allowance) / order

        high = beyond(_descend(beyond, start)) / self._interval
        low = -before(_descend(before, start)) / self._interval
        bottom, top = self._end("lowest"), self._end("highest")
        return math.floor(max(low, bottom)), math.ceil(min(high, top))

    def _end(self, which: str) -> int:
        """The smallest or largest value the sum can take, in intervals."""
        pick = min if which == "lowest" else max
        return sum(
            term.times * pick(getattr(self._masses[index], which) for index in (term.lower, term.upper))
            for term in self._terms
        )

    @property
    def _infinite(self) -> float:
        """Probability that some loss is infinite."""
        single = np.array([law.infinite for law in self._masses])
        mixed = (1 - self._weight) * single[self._lower] + self._weight * single[self._upper]
        return -math.expm1(float(np.dot(self._count, np.log1p(-mixed))))

    def _log_moment(self, order: float) -> float:
        """log E exp(order loss) of the finite part; infinite where it overflows."""
        if order not in self._known_moments:
            self._known_moments[order] = self._mixed_log_moment(self._log_moments(order))
        return self._known_moments[order]

    def _mixed_log_moment(self, logs: FloatArray) -> float:
        if not np.isfinite(logs).all():
            return math.inf
        with np.errstate(divide="ignore"):
            lower, upper = np.log1p(-self._weight), np.log(self._weight)
        return float(np.dot(self._count, np.logaddexp(lower + logs[self._lower], upper + logs[self._upper])))

    def _log_moments(self, order: float) -> FloatArray:
        """log E exp(order loss) of the finite part of each of the masses."""
        bottom = min(law.lowest for law in self._masses)
        top = max(law.highest for law in self._masses)
        with np.errstate(over="ignore", invalid="ignore"):
            growth = np.exp(order * self._interval * np.arange(bottom, top + 1))
            # Not np.dot: its result would depend on the number of BLAS threads.
            moments = np.array(
                [
                    np.sum(law.probabilities * growth[law.lowest - bottom : law.highest - bottom + 1])
                    for law in self._masses
                ]
            )
        logs: FloatArray = np.log(np.where(np.isnan(moments), math.inf, moments))
        return logs


class _Tail(NamedTuple):
    """For each of the losses start, start + 1, ... (in intervals): sums over it and all above, and one over all below.

    ``upper`` sums masses, ``lower`` masses times exp(-distance), ``below`` tilted probabilities.
    """

    start: int
    upper: FloatArray
    lower: FloatArray
    below: FloatArray
    infinite: float


def _descend(value: Callable[[float], float], start: float) -> float:
    """Where ``value``, a function with one valley, is near its smallest on a grid of ratio sqrt(2) around ``start``."""
    best, lowest = start, value(start)
    for factor in (math.sqrt(0.5), math.sqrt(2)):
        for _ in range(60):
            trial = value(best * factor)
            if trial > lowest - 1e-3 * abs(lowest) and math.isfinite(lowest):
                break
            best, lowest = best * factor, trial
    return best
