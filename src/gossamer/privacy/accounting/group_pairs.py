"""Dominating pairs of one release for a person with several rows.

The pairs are of the kind that `gossamer.privacy.pairs` describes. A person has at most m rows in a shard,
of which a release samples K at random; then at most K vectors of the person's, each no longer than the clip, are in its
sum.

| profile | release | relation |
|---|---|---|
| `GroupSampled(mu, q, m)` | Gaussian noise on a Poisson sample | all m rows added or removed |
| `GroupReplaced(mu, q, m)` | Gaussian noise on a Poisson sample | all m rows replaced |
| `Coins(fulls, weights)` | any mechanism, its K public where K >= 1: for `PoissonSampled`, `FixedSizeSampled` | both |

Their ``rate`` is the probability that K >= 1, 1 - (1-q)^m for a Poisson sample.

Proofs
------
**A lemma.** Let P be a mixture of the laws N(v_i, I) with weights p_i, |v_i| <= r_i, and Q one of the N(v'_j, I) with
weights p'_j, |v'_j| <= r'_j. Then H(P||Q)(e) and H(Q||P)(e) are, for every real e, at most those of the mixtures of
N(r_i, 1) and of N(-r'_j, 1) on the line. Take densities relative to N(0, I):
``H(P||Q)(e) = E max(0, sum_i p_i X_i - exp(e) sum_j p'_j Y_j)`` with ``X_i = exp(<v_i, x> - |v_i|^2/2)``,
``Y_j = exp(<v'_j, x> - |v'_j|^2/2)``, x normal: log-normal variables of mean 1, whose logarithms have the covariances
<v_i, v_k>, <v'_j, v'_l> and <v_i, v'_j>. Of a function max(0, a X - b Y), smoothed, the second derivatives in two X or
in two Y are >= 0, and those in an X and a Y are <= 0. For log-normal variables of mean 1 the expectation's derivative
in a covariance is E[X Y d^2/dX dY] (half of that in a variance), so where covariances move on straight lines, it
increases with those among the X and among the Y, and decreases with those between them. The bounds are
<v_i, v_k> <= r_i r_k, <v'_j, v'_l> <= r'_j r'_l and <v_i, v'_j> >= -r_i r'_j, and the line attains all of them at once.
max(0, exp(e) Q - P) is of the same form.

**Added or removed.** Whoever else is sampled, with the sum s: without the person the output is N(s), with the person
N(s + v_A) where A is who of the m is sampled, |v_A| <= |A| C. The lemma with s as origin, in units of the noise, gives
P = sum_k Binomial(m, q)(k) N(k mu, 1) against Q = N(0, 1); divergences are jointly convex, so the average over the
others is no larger. This is the pair of [1]. **Replaced.** Likewise, with v_A and v'_A on the two data sets:
Q = sum_k Binomial(m, q)(k) N(-k mu, 1).

**Fewer rows** than m are covered: rows that are missing are vectors of length 0 in the lemma.

**Monotone and convex in the rate.** If K <= K' in distribution, draw them together with K <= K': the lemma, with K as
radii that are at most K', says that the pair of K' dominates that of K. Let a < q < b and w = (rate(q) - rate(a)) /
(rate(b) - rate(a)). "With probability w the pair at b, else that at a, and which one is public" dominates, by joint
convexity, the pair of the mixed numbers; and these are at least K in distribution, that is P(K >= k at q) is at most
(1-w) P(K >= k at a) + w P(K >= k at b): for k = 1 with equality, and for k > 1 since d/dq P(K >= k) relative to
d/dq P(K >= 1) is a multiple of (q/(1-q))^(k-1), which grows. So the profile is convex in ``rate``, as `merge` needs.

**Any mechanism.** Let g_k be the divergence of full-batch releases on two data sets that differ in k rows, symmetric.
Given K >= 1 the output is a mixture M of laws M_k, given K = 0 it is W, and M_k differs from W by at most k rows. What
tells k beside the output can only tell more, so H(M||W) is at most ``G = sum_k P(K = k | K >= 1) g_k``, in both
directions: `Coins`. Under add-or-remove the rest is `PoissonSampled`. Under replace-one the other data set's law is
(1-rate) W + rate M', where M'_k differs from M_k by k replaced rows. On a batch of fixed size W, the sum of a batch of
others, differs from M_k by k replaced rows too, if each of the person's rows takes the place of one that would have
been drawn. So M is as far as G from both W and M', and the proof of `FixedSizeSampled` goes through as it stands,
with ``rate`` for q and G for the divergence of the whole data. A person's missing rows are rows that are replaced by
themselves.

**Numbers are rounded up.** K is replaced by one of `RowNumbers`, which is larger in distribution and has fewer values.
The pairs of K' dominate ("Monotone"). The bounds of "Any mechanism" grow, too: forwards, and for batches of fixed size,
they are sum_k P(K = k) g_k(e') with g_0 = 0, where g_k grows with k and e' falls as P(K >= 1) grows; backwards there is
the factor exp(e) - (exp(e) - 1) / P(K >= 1) beside, which grows as well. ``rate`` stays that of K itself: the profile
that is convex in it is the exact one, and those of the ends of a cell are above the exact ones there.

How it is computed
------------------
A direction of a pair is computed by the output at which the best test cuts. A test says P where the output lies beyond
a cut; at the loss e the best cut x is where the densities' ratio is exp(e).
From a cut its loss and the divergence are sums over the numbers of rows. From a loss the cut is a root, found by some
ten such sums. So a few losses are answered each by its own root, and for many a table of cuts is made, with chords in
between (`pairs`): as many sums as there are points, however often it is asked.

An error of a cut is of second order in a divergence. `_GUARD` is added to the larger of two terms that are subtracted;
rounding takes less. The numbers' law is from above (`RowNumbers`).

Law of the number of a person's rows in a sample, never below it in distribution.

Of m rows a Poisson sample has a binomial number K, and a batch of fixed size a hypergeometric one. All that is computed
from K's law grows with K ("Monotone"): a law that is larger in distribution dominates, whether K is the
number of rows whose sum moves, or what `Coins` publishes. So a law K' is used with P(K' >= k) >= P(K >= k)
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

References
----------
[1] Ganesh, "Tight group-level DP guarantees for DP-SGD with sampling via mixture of Gaussians mechanisms", 2024.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import expit, log_ndtr, logsumexp, ndtr, ndtri

from gossamer.arrays import FloatArray
from gossamer.privacy.pairs import Chords, Full, table

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
    return np.asarray(logs - logsumexp(logs))


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
_SIDE_POINTS = 200  # of a table, to begin with
_NOTHING = 1e-300
_ONE_BY_ONE = 2**15  # losses times numbers of rows, up to which every loss is answered exactly


@dataclass(frozen=True)
class MixtureSide:
    """One direction of a pair of mixtures around 0: P from Q, where the test says P beyond a cut.

    Attributes
    ----------
    mu : float
        Shift of a row.
    probability : float
        Probability with which a row is sampled, below 1.
    rows : int
        Number of rows, of which K are sampled.
    up, down : bool
        Whether P is sum_k P(K = k) N(k mu, 1), and whether Q is sum_k P(K = k) N(-k mu, 1): one of them or both.
        Otherwise it is N(0, 1).
    """

    mu: float
    probability: float
    rows: int
    up: bool
    down: bool

    def divergence(self, losses: FloatArray) -> FloatArray:
        """The divergence at ``losses`` >= 0."""
        divergence = np.zeros_like(losses)
        # N(0, 1) exceeds exp(loss) times the mixture only if the part that both have leaves room for it.
        inside = losses < (math.inf if self.up else -self.numbers.log_none)
        at = losses[inside]
        few = losses.size * self.numbers.values.size <= _ONE_BY_ONE
        divergence[inside] = self.at(at, self.cuts(at)) if few else _side_table(self).at(at)
        return divergence

    def cuts(self, losses: FloatArray) -> FloatArray:
        """The outputs at which the privacy loss is ``losses`` >= 0."""
        if not self.down:
            return self._output(self._log_rest(losses))
        if not self.up:
            return -self._output(self._log_rest(-losses))
        # Q's ratio is at most its value at 0 for outputs above it, so the loss is reached where P's makes up for that.
        # That is exp(loss) (P(K = 0) + ratio at 0) - P(K = 0), in terms of which none is subtracted.
        with np.errstate(divide="ignore"):  # of loss 0
            log_excess = losses + np.log(-np.expm1(-losses))
        still = self._log_ratio(np.zeros(1))[0]
        needed = np.logaddexp(self.numbers.log_none + log_excess, losses + still)
        most = np.maximum(self._output(needed), 0.0)

        def excess(outputs: FloatArray) -> tuple[FloatArray, FloatArray]:
            none = self.numbers.log_none
            (up, rise), (down, fall) = self._log_ratio(outputs), self._log_ratio(-outputs)
            loss = np.logaddexp(none, up) - np.logaddexp(none, down)
            return loss - losses, expit(up - none) * rise + expit(down - none) * fall

        return _root(excess, np.zeros_like(losses), most)

    def losses(self, cuts: FloatArray) -> FloatArray:
        """The privacy losses at ``cuts``, from 0 on."""
        found = self._log_total(cuts) if self.up else np.zeros_like(cuts)
        return np.maximum(found - self._log_total(-cuts) if self.down else found, 0.0)

    def at(self, losses: FloatArray, cuts: FloatArray) -> FloatArray:
        """Return the mass that P has beyond a cut, less exp(loss) times that of Q, if it is more."""
        numbers, shifts = self.numbers, self.shifts
        beyond = log_ndtr(-cuts)  # of N(0, 1), which P and Q have in common in one share or another
        if not self.down:
            alone: FloatArray = self._above(cuts) * (1 + _GUARD) - np.exp(self._log_rest(losses) + beyond)
            return np.maximum(alone, 0.0)
        if self.up:
            still = -np.expm1(-losses) * np.exp(np.minimum(numbers.log_none + losses + beyond, 0.0))
            ahead = self._above(cuts) * (1 + _GUARD) - still
        else:
            # 1 - exp(loss) P(K = 0): where almost every sample has some row, the difference itself would cancel.
            ahead = -np.expm1(losses + numbers.log_none) * ndtr(-cuts) * (1 + _GUARD)
        away = self._in_parts(
            lambda loss, cut: np.sum(np.exp(np.minimum(numbers.logs + loss + log_ndtr(-shifts - cut), 0.0)), axis=1),
            losses,
            cuts,
        )
        return np.asarray(np.maximum(ahead - away, 0.0))

    @property
    def numbers(self) -> RowNumbers:
        """The law of K, from above."""
        return binomial(self.rows, self.probability)

    @property
    def shifts(self) -> FloatArray:
        """k mu of the values k of K."""
        return self.mu * self.numbers.values

    def quantile(self, tail: float) -> float:
        """An output that P exceeds with a probability of at most ``tail`` > 0."""
        if not self.up:
            return -float(ndtri(tail))
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
            return np.asarray(peak + np.log(total))

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

    def _log_total(self, outputs: FloatArray) -> FloatArray:
        """log sum_k P(K = k) N(k mu)/N(0) at ``outputs``: exact where it is all but 0."""
        ratios, numbers = self._log_ratio(outputs)[0], self.numbers
        excess = np.exp(np.minimum(ratios, 1.0)) - numbers.some
        near = (ratios < 1) & (excess > -0.5)
        return np.where(near, np.log1p(np.maximum(excess, -0.5)), np.logaddexp(numbers.log_none, ratios))

    def _log_rest(self, losses: FloatArray) -> FloatArray:
        """log(exp(loss) - P(K = 0)), which the terms with k >= 1 make up for; nothing cancels where a loss is small."""
        numbers, small = self.numbers, (losses >= 0) & (losses < 1.0)
        near = np.log(numbers.some + np.expm1(np.where(small, losses, 0.0)))
        far = losses + np.log(-np.expm1(np.where(small, -1.0, numbers.log_none - losses)))
        return np.where(small, near, far)


@lru_cache(maxsize=32)
def _side_table(side: MixtureSide) -> Chords:
    first, last = float(side.cuts(np.zeros(1))[0]), side.quantile(_NOTHING)

    def known(cuts: FloatArray) -> tuple[FloatArray, FloatArray]:
        losses = np.where(cuts == first, 0.0, side.losses(cuts))
        return losses, side.at(losses, cuts)

    return table(known, np.linspace(first, last, _SIDE_POINTS))


def _dot(terms: FloatArray, weights: FloatArray) -> FloatArray:
    # Not a matrix product: its result would depend on the number of BLAS threads.
    return np.asarray(np.einsum("ij,j->i", terms, weights))


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


_COINS_ONE_BY_ONE = 2**12  # losses times numbers of rows, up to which every loss is answered exactly
_FIRST, _COINS_POINTS = 1e-12, 120  # of a table: the first loss, relative to the last; how many
_NEARLY_ALWAYS = 1 - 1e-9  # a rate above which rates no longer tell profiles apart


@dataclass(frozen=True)
class Coins:
    """A symmetric pair that is ``fulls[i]`` with probability ``weights[i]``, and which one is public."""

    fulls: tuple[Full, ...]
    weights: tuple[float, ...]

    def divergence(self, losses: FloatArray) -> FloatArray:
        """The divergence at ``losses`` >= 0: of a few exactly, of many by chords."""
        return (
            self.exactly(losses)
            if losses.size * len(self.fulls) <= _COINS_ONE_BY_ONE
            else _coins_table(self).at(losses)
        )

    def exactly(self, losses: FloatArray) -> FloatArray:
        """The divergence at ``losses`` >= 0, each computed."""
        total = np.zeros_like(losses)
        for weight, full in zip(self.weights, self.fulls, strict=True):
            total += weight * full.divergence(losses)
        return total

    def largest(self, tail: float) -> float:
        # Each may have an equal part of the tail; one that is rarer than its part may have any loss.
        parts = [tail / (len(self.weights) * weight) for weight in self.weights]
        return max((full.largest(part) for full, part in zip(self.fulls, parts) if part < 1), default=0.0)


@lru_cache(maxsize=32)
def _coins_table(coins: Coins) -> Chords:
    suprema = [full.largest(0.0) for full in coins.fulls]
    top = max(min(full.largest(_NOTHING), most) for full, most in zip(coins.fulls, suprema))
    points = np.concatenate([[0.0], np.geomspace(_FIRST * top, top, _COINS_POINTS), [e for e in suprema if e < top]])
    return table(lambda losses: (losses, coins.exactly(losses)), np.unique(points))


@dataclass(frozen=True)
class GroupSampled:
    """P = sum_k P(K = k) N(k mu, 1) against Q = N(0, 1), K the number of rows in a Poisson sample.

    Attributes
    ----------
    mu : float
        Shift of one row.
    probability : float
        Probability with which each row is sampled, below 1.
    rows : int
        Number of rows.
    """

    mu: float
    probability: float
    rows: int

    symmetric = False

    @property
    def rate(self) -> float:
        return -math.expm1(self.rows * math.log1p(-self.probability))

    @property
    def family(self) -> Hashable:
        return (type(self), self.mu, self.rows) if self.rate < _NEARLY_ALWAYS else self

    def forward(self, losses: FloatArray) -> FloatArray:
        return self._side(ahead=True).divergence(losses)

    def backward(self, losses: FloatArray) -> FloatArray:
        return self._side(ahead=False).divergence(losses)

    def largest(self, tail: float) -> tuple[float, float]:
        sides = self._side(ahead=True), self._side(ahead=False)
        ahead, back = (
            float(side.losses(np.array([side.quantile(tail)]))[0]) if tail > 0 else math.inf for side in sides
        )
        return ahead, back if self.symmetric else min(back, -sides[1].numbers.log_none)

    def _side(self, ahead: bool) -> MixtureSide:
        """One direction; backwards mirrored."""
        both = self.symmetric
        return MixtureSide(self.mu, self.probability, self.rows, up=ahead or both, down=not ahead or both)


class GroupReplaced(GroupSampled):
    """P = sum_k P(K = k) N(k mu, 1) against Q = sum_k P(K = k) N(-k mu, 1)."""

    symmetric = True
