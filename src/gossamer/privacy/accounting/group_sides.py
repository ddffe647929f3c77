"""Divergences of the pairs of `group_pairs` in either direction, by the output at which the best test cuts.

A test says P where the output lies beyond a cut; at the loss e the best cut x is where the densities' ratio is exp(e).
From a cut its loss and the divergence are sums over the numbers of rows. From a loss the cut is a root, found by some
ten such sums. So a few losses are answered each by its own root, and for many a table of cuts is made, with chords in
between (`chords`): as many sums as there are points, however often it is asked.

An error of a cut is of second order in a divergence. `_GUARD` is added to the larger of two terms that are subtracted;
rounding takes less. The numbers' law is from above (`RowNumbers`).

Law of the number of a person's rows in a sample, never below it in distribution.

Of m rows a Poisson sample has a binomial number K, and a batch of fixed size a hypergeometric one. All that is computed
from K's law grows with K (`group_pairs`, "Monotone"): a law that is larger in distribution dominates, whether K is the
number of rows whose sum moves, or what `group_pairs.Coins` publishes. So a law K' is used with P(K' >= k) >= P(K >= k)
for every k, and it has few values:

- **Rounding.** Probabilities are products of ratios of neighbours, from the mode on, over their sum. n ratios, computed
  and added up as logarithms, leave a relative error of at most n (5e-15 + 5e-16 abs(log p)). Probabilities of numbers
  below the mode are lowered by twice that and those above it raised, and the mode has what is missing to 1: so
  P(K' <= k) <= P(K <= k) for k below the mode, and P(K' >= k) >= P(K >= k) above it. What is below 1e-300 is 0.
- **Tails.** On either side of the middle, outside which K is with a probability of `_SELDOM`, some numbers stand for
  all: each has the probability of those between it and the one before it, so every number is rounded up. 0 keeps its
  own probability, which is the largest loss of what is seen without the person.
- **The middle** keeps every number, or is rounded up in the same way to at most ``most`` of them.

`scipy.stats.hypergeom` takes logarithms of factorials of the data's size, whose rounding errors are 1e-7 and more of a
probability where that is 1e9; ratios of neighbours have none of them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import expit, log_ndtr, logsumexp, ndtr, ndtri

from gossamer.arrays import FloatArray
from gossamer.privacy.chords import Chords, table

EVERY = 10**9
"""As many numbers in the middle as there are."""

_MARGIN = 1e-15  # twice the relative error of p is below this times 10 - log p, and the number of ratios
_SELDOM, _RARE = 1e-15, 1e-60  # probabilities of tails; they are rounded up, not left out
# Numbers that stand for tails: below the middle, where the loss of a replaced person is decided; above it; and beyond.
_BELOW, _ABOVE, _FAR = 64, 12, 4


class RowNumbers(NamedTuple):
    """A law of a number of rows.

    Attributes
    ----------
    values : ndarray [values]
        Increasing, from 1 on.
    logs : ndarray [values]
        Logarithms of their probabilities.
    log_none : float
        The logarithm of the probability of 0.
    some : float
        The probability of 1 or more.
    """

    values: FloatArray
    logs: FloatArray
    log_none: float
    some: float


@lru_cache(maxsize=1024)
def binomial(rows: int, probability: float, most: int = EVERY) -> RowNumbers:
    """Numbers of ``rows`` rows, each of them sampled with ``probability`` below 1."""
    odds = math.log(probability) - math.log1p(-probability)
    return _dominating(0, np.log(np.arange(rows, 0, -1.0) / np.arange(1.0, rows + 1)) + odds, most)


@lru_cache(maxsize=1024)
def hypergeometric(rows: int, size: int, batch: int, most: int = EVERY) -> RowNumbers:
    """Numbers of ``rows`` rows among ``size`` that are in a batch of ``batch``."""
    rows = min(rows, size)
    least, top = max(0, batch - (size - rows)), min(rows, batch)
    ratios = [(rows - k) * (batch - k) / ((k + 1) * (size - rows - batch + k + 1)) for k in range(least, top)]
    return _dominating(least, np.log(ratios), most)


def _dominating(least: int, steps: FloatArray, most: int) -> RowNumbers:
    """The law on ``least``, ``least`` + 1, ... from above; the logarithms of its probabilities go up by ``steps``."""
    logs = _rounded_up(_normalised(steps))
    with np.errstate(under="ignore"):
        probabilities = np.exp(logs)
    kept = _kept(probabilities, least, most)
    starts = np.append(0, kept[:-1] + 1)
    with np.errstate(under="ignore"):
        masses = np.add.reduceat(probabilities, starts)
    own = kept + least
    used = (own > 0) & (masses > 0)
    with np.errstate(divide="ignore"):
        return RowNumbers(
            own[used].astype(np.float64),
            np.log(masses[used]),
            float(logs[0]) if least == 0 else -math.inf,
            min(math.fsum(masses[own > 0]), 1.0),
        )


def _normalised(steps: FloatArray) -> FloatArray:
    """Logarithms of probabilities that go up by ``steps``; summed from the mode, where nothing is lost."""
    mode = int(np.argmax(np.append(0.0, np.cumsum(steps))))
    down, up = -np.cumsum(steps[:mode][::-1])[::-1], np.cumsum(steps[mode:])
    logs = np.concatenate([down, [0.0], up])
    normalised: FloatArray = logs - logsumexp(logs)
    return normalised


def _rounded_up(logs: FloatArray) -> FloatArray:
    mode = int(np.argmax(logs))
    room = _MARGIN * (logs.size + 3) * (10 - logs)
    raised = np.concatenate([logs[:mode] - room[:mode], [0.0], logs[mode + 1 :] + room[mode + 1 :]])
    with np.errstate(under="ignore"):
        others = math.fsum(np.exp(raised[:mode])) + math.fsum(np.exp(raised[mode + 1 :]))
    raised[mode] = math.log1p(-others)
    return raised


def _kept(probabilities: FloatArray, least: int, most: int) -> npt.NDArray[np.int64]:
    """Positions of the numbers that stand for themselves and those below them, the last one among them."""
    top = probabilities.size - 1
    low = int(np.argmax(np.cumsum(probabilities) > _SELDOM))
    high, higher = (top - int(np.argmax(np.cumsum(probabilities[::-1]) > rare)) for rare in (_SELDOM, _RARE))
    step = math.ceil((high - low + 1) / most)
    ends = [0] if least == 0 else []
    stretches = [(0, low, min(_BELOW, most)), (high, higher, _ABOVE), (higher, top, _FAR)]
    evenly = [np.linspace(start, end, number + 1)[1:] for start, end, number in stretches]
    return np.unique(np.concatenate([ends, *evenly, np.arange(high, low, -step)]).astype(np.int64))


_Function = Callable[[FloatArray], tuple[FloatArray, FloatArray]]

_AT_ONCE = 2**20  # numbers in a table of losses by rows
_MOST_STEPS, _CLOSE, _NEARLY = 200, 1e-13, 1e-6
_GUARD = 1e-12  # relative, on the larger of two terms that are subtracted: more than both are rounded by
_FIRST_POINTS = 200
_NOTHING = 1e-300

_ONE_BY_ONE = 2**15  # losses times numbers of rows, up to which every loss is answered exactly


@dataclass(frozen=True)
class MixtureSide(ABC):
    """One direction of a pair: K binomial of ``rows`` rows, sampled with ``probability`` below 1; mu a row's shift."""

    mu: float
    probability: float
    rows: int

    def divergence(self, losses: FloatArray) -> FloatArray:
        """The divergence at ``losses`` >= 0."""
        if losses.size * self.numbers.values.size <= _ONE_BY_ONE:
            return self.at(losses, self.cuts(losses))
        return _table(self).at(losses)

    @abstractmethod
    def cuts(self, losses: FloatArray) -> FloatArray:
        """The outputs at which the privacy loss is ``losses`` >= 0."""

    @abstractmethod
    def losses(self, cuts: FloatArray) -> FloatArray:
        """The privacy losses at ``cuts``."""

    @abstractmethod
    def at(self, losses: FloatArray, cuts: FloatArray) -> FloatArray:
        """Return the mass that the other law has beyond a cut, less exp(loss) times that of the one, if it is more."""

    @abstractmethod
    def last(self) -> float:
        """A cut beyond which there is nothing."""

    @property
    def numbers(self) -> RowNumbers:
        """The law of K, from above."""
        return binomial(self.rows, self.probability)

    @property
    def shifts(self) -> FloatArray:
        """k mu of the values k of K."""
        return self.mu * self.numbers.values

    def quantile(self, tail: float) -> float:
        """An output that sum_k P(K = k) N(k mu, 1) exceeds with a probability of at most ``tail`` > 0."""
        numbers = self.numbers
        logs, shifts = np.append(numbers.log_none, numbers.logs), np.append(0.0, self.shifts)

        def excess(output: float) -> float:
            terms = logs + log_ndtr(shifts - output)
            peak = float(np.max(terms))
            return peak + math.log(float(np.sum(np.exp(terms - peak)))) - math.log(tail)

        low, high = -float(ndtri(tail)) - 1e-6, float(shifts[-1]) - float(ndtri(tail)) + 1e-6
        return float(brentq(excess, low, high, xtol=_NEARLY)) + 2 * _NEARLY

    def _above(self, cuts: FloatArray) -> FloatArray:
        """sum_(k >= 1) P(K = k) Phi(k mu - cut)."""
        weights = np.exp(self.numbers.logs)
        return self._in_parts(lambda part: _dot(ndtr(self.shifts - part), weights), cuts)

    def _log_ratio(self, outputs: FloatArray) -> tuple[FloatArray, FloatArray]:
        """log sum_(k >= 1) P(K = k) N(k mu)/N(0) at ``outputs``, and its derivative: the mean shift of the terms."""
        shifts = self.shifts
        constants = self.numbers.logs - shifts**2 / 2
        slopes = np.empty_like(outputs)
        done = 0

        def part(some: FloatArray) -> FloatArray:
            nonlocal done
            terms = constants + some * shifts
            peak = np.max(terms, axis=1)
            terms = np.exp(terms - peak[:, None])
            total = np.sum(terms, axis=1)
            slopes[done : done + total.size] = _dot(terms, shifts) / total
            done += total.size
            logs: FloatArray = peak + np.log(total)
            return logs

        return self._in_parts(part, outputs), slopes

    def _output(self, log_ratios: FloatArray) -> FloatArray:
        """Find the outputs at which `_log_ratio` is ``log_ratios``."""
        numbers, shifts = self.numbers, self.shifts
        terms = numbers.logs - shifts**2 / 2
        # One term is at most the sum; and where each density is at most the target's share, so is the sum.
        most = self._in_parts(lambda part: np.min((part - terms) / shifts, axis=1), log_ratios)
        share = log_ratios - math.log(numbers.some)
        least = self._in_parts(lambda part: np.min(part / shifts + shifts / 2, axis=1), share)

        def excess(outputs: FloatArray) -> tuple[FloatArray, FloatArray]:
            found, slopes = self._log_ratio(outputs)
            return found - log_ratios, slopes

        return _root(excess, np.minimum(least, most), most)

    def _in_parts(self, function: Callable[..., FloatArray], *values: FloatArray) -> FloatArray:
        """``function`` of columns of ``values``, so many at a time that a table of them by rows stays small."""
        width = max(_AT_ONCE // self.numbers.values.size, 1)
        if values[0].size <= width:
            return function(*(each[:, None] for each in values))
        parts = (slice(start, start + width) for start in range(0, values[0].size, width))
        return np.concatenate([function(*(each[part, None] for each in values)) for part in parts])


@dataclass(frozen=True)
class SampledAhead(MixtureSide):
    """P = sum_k P(K = k) N(k mu, 1) from Q = N(0, 1)."""

    def cuts(self, losses: FloatArray) -> FloatArray:
        return self._output(self._log_needed(losses))

    def losses(self, cuts: FloatArray) -> FloatArray:
        ratios, numbers = self._log_ratio(cuts)[0], self.numbers
        near = np.log1p(np.maximum(np.exp(np.minimum(ratios, 1.0)) - numbers.some, 0.0))
        losses: FloatArray = np.where(ratios < 1, near, np.logaddexp(numbers.log_none, ratios))
        return losses

    def at(self, losses: FloatArray, cuts: FloatArray) -> FloatArray:
        found: FloatArray = self._above(cuts) * (1 + _GUARD) - np.exp(self._log_needed(losses) + log_ndtr(-cuts))
        return np.maximum(found, 0.0)

    def last(self) -> float:
        return self.quantile(_NOTHING)

    def _log_needed(self, losses: FloatArray) -> FloatArray:
        """log(exp(loss) - P(K = 0)), which the terms with k >= 1 make up for; nothing cancels where a loss is small."""
        numbers, small = self.numbers, losses < 1.0
        near = np.log(numbers.some + np.expm1(np.where(small, losses, 0.0)))
        far = losses + np.log1p(-math.exp(numbers.log_none) * np.exp(-np.where(small, 1.0, losses)))
        return np.where(small, near, far)


@dataclass(frozen=True)
class SampledBack(MixtureSide):
    """Q = N(0, 1) from P = sum_k P(K = k) N(k mu, 1): the test says Q below the cut."""

    def divergence(self, losses: FloatArray) -> FloatArray:
        # Q exceeds exp(loss) P below the output where the ratio P/Q is exp(-loss), if it is ever that small.
        inside = losses < -self.numbers.log_none
        divergence = np.zeros_like(losses)
        divergence[inside] = super().divergence(losses[inside])
        return divergence

    def cuts(self, losses: FloatArray) -> FloatArray:
        return self._output(np.log(self._needed(losses)) - losses)

    def losses(self, cuts: FloatArray) -> FloatArray:
        ratios, numbers = self._log_ratio(cuts)[0], self.numbers
        drop = np.minimum(np.exp(ratios) - numbers.some, 0.0)
        near = np.log1p(np.maximum(drop, -0.5))
        losses: FloatArray = -np.where(drop > -0.5, near, np.logaddexp(numbers.log_none, ratios))
        return losses

    def at(self, losses: FloatArray, cuts: FloatArray) -> FloatArray:
        logs, shifts = self.numbers.logs, self.shifts
        away = self._in_parts(
            lambda loss, cut: np.sum(np.exp(np.minimum(loss + logs + log_ndtr(cut - shifts), 0.0)), axis=1),
            losses,
            cuts,
        )
        found: FloatArray = np.maximum(self._needed(losses) * ndtr(cuts) * (1 + _GUARD) - away, 0.0)
        return found

    def last(self) -> float:
        return float(ndtri(_NOTHING))

    def _needed(self, losses: FloatArray) -> FloatArray:
        """1 - exp(loss) P(K = 0): where almost every sample has some row, the difference itself would cancel."""
        needed: FloatArray = -np.expm1(losses + self.numbers.log_none)
        return needed


@dataclass(frozen=True)
class Replaced(MixtureSide):
    """P = sum_k P(K = k) N(k mu, 1) from Q = sum_k P(K = k) N(-k mu, 1)."""

    def cuts(self, losses: FloatArray) -> FloatArray:
        # Q's ratio is at most its value at 0 for outputs above it, so the loss is reached where P's makes up for that.
        # That is exp(loss) (P(K = 0) + ratio at 0) - P(K = 0), in terms of which none is subtracted.
        with np.errstate(divide="ignore"):  # of loss 0
            log_excess = losses + np.log(-np.expm1(-losses))
        still = self._log_ratio(np.zeros(1))[0]
        needed = np.logaddexp(self.numbers.log_none + log_excess, losses + still)
        most = np.maximum(self._output(needed), 0.0)

        def excess(outputs: FloatArray) -> tuple[FloatArray, FloatArray]:
            found, slopes = self._loss(outputs)
            return found - losses, slopes

        return _root(excess, np.zeros_like(losses), most)

    def losses(self, cuts: FloatArray) -> FloatArray:
        return np.maximum(self._loss(cuts)[0], 0.0)

    def at(self, losses: FloatArray, cuts: FloatArray) -> FloatArray:
        logs, shifts = self.numbers.logs, self.shifts
        still = -np.expm1(-losses) * np.exp(np.minimum(self.numbers.log_none + losses + log_ndtr(-cuts), 0.0))
        away = self._in_parts(
            lambda loss, cut: np.sum(np.exp(np.minimum(logs + loss + log_ndtr(-shifts - cut), 0.0)), axis=1),
            losses,
            cuts,
        )
        found: FloatArray = np.maximum(self._above(cuts) * (1 + _GUARD) - away - still, 0.0)
        return found

    def last(self) -> float:
        return self.quantile(_NOTHING)

    def _loss(self, outputs: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The loss and its derivative."""
        none = self.numbers.log_none
        (up, rise), (down, fall) = self._log_ratio(outputs), self._log_ratio(-outputs)
        loss: FloatArray = np.logaddexp(none, up) - np.logaddexp(none, down)
        return loss, expit(up - none) * rise + expit(down - none) * fall


@lru_cache(maxsize=32)
def _table(side: MixtureSide) -> Chords:
    first, last = float(side.cuts(np.zeros(1))[0]), side.last()
    direction = math.copysign(1.0, last - first)

    def known(points: FloatArray) -> tuple[FloatArray, FloatArray]:
        cuts = direction * points
        losses = np.where(cuts == first, 0.0, side.losses(cuts))
        return losses, side.at(losses, cuts)

    return table(known, np.linspace(direction * first, direction * last, _FIRST_POINTS))


def _dot(terms: FloatArray, weights: FloatArray) -> FloatArray:
    # Not a matrix product: its result would depend on the number of BLAS threads.
    found: FloatArray = np.einsum("ij,j->i", terms, weights)
    return found


def _root(value: _Function, low: FloatArray, high: FloatArray) -> FloatArray:
    """Find the zero of increasing ``value`` in [``low``, ``high``]: Newton's steps, halving where one leads outside.

    ``value`` gives its derivative as well.
    """
    place = high
    for _ in range(_MOST_STEPS):
        found, slope = value(place)
        low, high = np.where(found > 0, low, place), np.where(found > 0, place, high)
        with np.errstate(divide="ignore", invalid="ignore"):
            ahead = place - found / slope
        ahead = np.where((ahead >= low) & (ahead <= high), ahead, (low + high) / 2)
        settled = np.abs(ahead - place) <= _CLOSE * (1 + np.abs(place))
        place = ahead
        if settled.all():
            break
    return place
