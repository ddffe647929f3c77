"""Dominating pairs of one release for a person with several rows.

The pairs are of the kind that `gossamer.privacy.analytic` describes. A person has at most m rows in a shard, of which a
release samples K at random; then at most K vectors of the person's, each no longer than the clip, are in its sum.

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
d/dq P(K >= 1) is a multiple of (q/(1-q))^(k-1), which grows. So the profile is convex in ``rate``, as `mixtures` needs.

**Any mechanism.** Let g_k be the divergence of full-batch releases on two data sets that differ in k rows, symmetric.
Given K >= 1 the output is a mixture M of laws M_k, given K = 0 it is W, and M_k differs from W by at most k rows. What
tells k beside the output can only tell more, so H(M||W) is at most ``G = sum_k P(K = k | K >= 1) g_k``, in both
directions: `Coins`. Under add-or-remove the rest is `PoissonSampled`. Under replace-one the other data set's law is
(1-rate) W + rate M', where M'_k differs from M_k by k replaced rows. On a batch of fixed size W, the sum of a batch of
others, differs from M_k by k replaced rows too, if each of the person's rows takes the place of one that would have
been drawn. So M is as far as G from both W and M', and the proof of `FixedSizeSampled` goes through as it stands,
with ``rate`` for q and G for the divergence of the whole data. A person's missing rows are rows that are replaced by
themselves.

References
----------
[1] Ganesh, "Tight group-level DP guarantees for DP-SGD with sampling via mixture of Gaussians mechanisms", 2024.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import expit, log_ndtr, logsumexp, ndtr, ndtri, softmax
from scipy.stats import binom

from gossamer.privacy.analytic import Full

FloatArray = npt.NDArray[np.float64]
_Function = Callable[[FloatArray], FloatArray]

_AT_ONCE = 2**20  # numbers in a table of losses by rows
_NEARLY_ALWAYS = 1 - 1e-9  # a rate above which rates no longer tell profiles apart
_MOST_STEPS, _CLOSE = 200, 1e-13
_GUARD = 1e-12  # relative, on the larger of two terms that are subtracted: more than both are rounded by


@dataclass(frozen=True)
class Coins:
    """A symmetric pair that is ``fulls[i]`` with probability ``weights[i]``, and which one is public."""

    fulls: tuple[Full, ...]
    weights: tuple[float, ...]

    def divergence(self, losses: FloatArray) -> FloatArray:
        total = np.zeros_like(losses)
        for weight, full in zip(self.weights, self.fulls, strict=True):
            total += weight * full.divergence(losses)
        return total

    def largest(self, tail: float) -> float:
        # Each may have an equal part of the tail; one that is rarer than its part may have any loss.
        parts = [tail / (len(self.weights) * weight) for weight in self.weights]
        return max((full.largest(part) for full, part in zip(self.fulls, parts) if part < 1), default=0.0)


@dataclass(frozen=True)
class _Group:
    """K is binomial: ``rows`` rows, each sampled with ``probability`` below 1; mu is one row's shift."""

    mu: float
    probability: float
    rows: int

    @property
    def rate(self) -> float:
        return -math.expm1(self._log_missed)

    @property
    def family(self) -> Hashable:
        return (type(self), self.mu, self.rows) if self.rate < _NEARLY_ALWAYS else self

    @property
    def _log_missed(self) -> float:
        """log P(K = 0)."""
        return self.rows * math.log1p(-self.probability)

    @property
    def _missed(self) -> float:
        return math.exp(self._log_missed)

    @property
    def _logs(self) -> FloatArray:
        return _log_weights(self.rows, self.probability)

    @property
    def _shifts(self) -> FloatArray:
        """k mu of k = 1, ..., m."""
        return self.mu * np.arange(1.0, self.rows + 1)

    def _above(self, cuts: FloatArray) -> FloatArray:
        """sum_(k >= 1) P(K = k) Phi(k mu - cut)."""
        return _in_parts(self.rows, cuts, lambda part: ndtr(self._shifts - part[:, None]) @ np.exp(self._logs))

    def _log_ratio(self, outputs: FloatArray) -> FloatArray:
        """log sum_(k >= 1) P(K = k) N(k mu)/N(0) at ``outputs``."""
        constants = self._logs - self._shifts**2 / 2

        def part(some: FloatArray) -> FloatArray:
            found: FloatArray = logsumexp(constants + some[:, None] * self._shifts, axis=1)
            return found

        return _in_parts(self.rows, outputs, part)

    def _slope(self, outputs: FloatArray) -> FloatArray:
        """The derivative of `_log_ratio`: the mean shift of the terms, each weighted by what it has of the sum."""
        constants = self._logs - self._shifts**2 / 2

        def part(some: FloatArray) -> FloatArray:
            found: FloatArray = softmax(constants + some[:, None] * self._shifts, axis=1) @ self._shifts
            return found

        return _in_parts(self.rows, outputs, part)

    def _output(self, log_ratios: FloatArray) -> FloatArray:
        """Where `_log_ratio` is ``log_ratios``."""
        terms = self._logs - self._shifts**2 / 2
        # One term is at most the sum; and where each density is at most the target's share, so is the sum.
        most = _in_parts(self.rows, log_ratios, lambda part: np.min((part[:, None] - terms) / self._shifts, axis=1))
        share = log_ratios - math.log(self.rate)
        least = _in_parts(
            self.rows, share, lambda part: np.min(part[:, None] / self._shifts + self._shifts / 2, axis=1)
        )
        return _root(lambda outputs: self._log_ratio(outputs) - log_ratios, self._slope, np.minimum(least, most), most)

    def _quantile(self, tail: float) -> float:
        """An output that P exceeds with a probability of at most ``tail`` > 0."""
        logs = np.append(self._log_missed, self._logs)
        shifts = np.append(0.0, self._shifts)

        def excess(output: float) -> float:
            return float(logsumexp(logs + log_ndtr(shifts - output))) - math.log(tail)

        low, high = -float(ndtri(tail)) - 1e-6, float(shifts[-1]) - float(ndtri(tail)) + 1e-6
        return float(brentq(excess, low, high, xtol=1e-9)) + 1e-8


@dataclass(frozen=True)
class GroupSampled(_Group):
    """P = sum_k P(K = k) N(k mu, 1) against Q = N(0, 1)."""

    symmetric = False

    def forward(self, losses: FloatArray) -> FloatArray:
        # exp(loss) - P(K = 0), which is what the terms with k >= 1 have to make up for
        log_needed = _log_needed(losses, self._missed, self.rate)
        cuts = self._output(log_needed)
        above = self._above(cuts)
        divergence: FloatArray = np.maximum(above * (1 + _GUARD) - np.exp(log_needed + log_ndtr(-cuts)), 0.0)
        return divergence

    def backward(self, losses: FloatArray) -> FloatArray:
        # Q exceeds exp(loss) P below the output where the ratio P/Q is exp(-loss), if it is ever that small
        inside = losses < -self._log_missed
        divergence = np.zeros_like(losses)
        own = losses[inside]
        # exp(loss) (exp(-loss) - P(K = 0)): where almost every sample has some row, the difference itself would cancel
        needed = -np.expm1(own + self._log_missed)
        cuts = self._output(np.log(needed) - own)

        def below(part: FloatArray) -> FloatArray:
            loss, cut = part.T
            terms = loss[:, None] + self._logs + log_ndtr(cut[:, None] - self._shifts)
            found: FloatArray = np.exp(logsumexp(terms, axis=1))
            return found

        away = _in_parts(self.rows, np.stack([own, cuts], axis=1), below)
        divergence[inside] = np.maximum(needed * ndtr(cuts) * (1 + _GUARD) - away, 0.0)
        return divergence

    def largest(self, tail: float) -> tuple[float, float]:
        most = -self._log_missed
        if not tail > 0:
            return math.inf, most
        ratios = self._log_ratio(np.array([self._quantile(tail), float(ndtri(tail))]))
        forward, backward = np.logaddexp(-most, ratios)
        return float(forward), float(min(max(-backward, 0.0), most))


@dataclass(frozen=True)
class GroupReplaced(_Group):
    """P = sum_k P(K = k) N(k mu, 1) against Q = sum_k P(K = k) N(-k mu, 1)."""

    symmetric = True

    def forward(self, losses: FloatArray) -> FloatArray:
        cuts = self._cut(losses)
        still = -np.expm1(-losses) * np.exp(self._log_missed + losses + log_ndtr(-cuts))
        weights = self._logs

        def turned(part: FloatArray) -> FloatArray:
            own, cut = part.T
            away = np.exp(weights + own[:, None] + log_ndtr(-self._shifts - cut[:, None]))
            found: FloatArray = ndtr(self._shifts - cut[:, None]) @ np.exp(weights) * (1 + _GUARD) - away.sum(axis=1)
            return found

        moved = _in_parts(self.rows, np.stack([losses, cuts], axis=1), turned)
        divergence: FloatArray = np.maximum(moved - still, 0.0)
        return divergence

    backward = forward

    def largest(self, tail: float) -> tuple[float, float]:
        if not tail > 0:
            return math.inf, math.inf
        loss = float(self._loss(np.array([self._quantile(tail)]))[0])
        return loss, loss

    def _loss(self, outputs: FloatArray) -> FloatArray:
        up, down = self._log_ratio(outputs), self._log_ratio(-outputs)
        loss: FloatArray = np.logaddexp(self._log_missed, up) - np.logaddexp(self._log_missed, down)
        return loss

    def _loss_slope(self, outputs: FloatArray) -> FloatArray:
        found = np.zeros_like(outputs)
        for side in (outputs, -outputs):
            found += expit(self._log_ratio(side) - self._log_missed) * self._slope(side)
        return found

    def _cut(self, losses: FloatArray) -> FloatArray:
        """The output at which the privacy loss equals ``losses`` >= 0."""
        # Q's ratio is at most its value at 0 for outputs above it, so the loss is reached where P's makes up for that.
        # That is exp(loss) (P(K = 0) + ratio at 0) - P(K = 0), in terms of which none is subtracted.
        with np.errstate(divide="ignore"):  # of loss 0
            log_excess = losses + np.log(-np.expm1(-losses))
        needed = np.logaddexp(self._log_missed + log_excess, losses + self._log_ratio(np.zeros(1)))
        most = np.maximum(self._output(needed), 0.0)
        return _root(lambda outputs: self._loss(outputs) - losses, self._loss_slope, np.zeros_like(losses), most)


@lru_cache(maxsize=1024)
def _log_weights(rows: int, probability: float) -> FloatArray:
    """log P(K = k) of k = 1, ..., rows."""
    return np.asarray(binom.logpmf(np.arange(1, rows + 1), rows, probability))


def _log_needed(losses: FloatArray, missed: float, rate: float) -> FloatArray:
    """log(exp(loss) - missed) with missed = 1 - rate; nothing cancels where a loss is small."""
    small = losses < 1.0
    near = np.log(rate + np.expm1(np.where(small, losses, 0.0)))
    far = losses + np.log1p(-missed * np.exp(-np.where(small, 1.0, losses)))
    return np.where(small, near, far)


def _in_parts(rows: int, values: FloatArray, function: Callable[[FloatArray], FloatArray]) -> FloatArray:
    """``function`` of all ``values`` [n, ...], so many at a time that a table of them by rows stays small."""
    width = max(_AT_ONCE // rows, 1)
    if len(values) <= width:
        return function(values)
    return np.concatenate([function(values[start : start + width]) for start in range(0, len(values), width)])


def _root(value: _Function, slope: _Function, low: FloatArray, high: FloatArray) -> FloatArray:
    """Where ``value``, increasing, is 0, between ``low`` and ``high``: Newton's steps, halving where one leads outside.

    An error of the root is of second order in a divergence, whose best cut it is.
    """
    place = high
    for _ in range(_MOST_STEPS):
        found = value(place)
        low, high = np.where(found > 0, low, place), np.where(found > 0, place, high)
        with np.errstate(divide="ignore", invalid="ignore"):
            ahead = place - found / slope(place)
        ahead = np.where((ahead >= low) & (ahead <= high), ahead, (low + high) / 2)
        settled = np.abs(ahead - place) <= _CLOSE * (1 + np.abs(place))
        place = ahead
        if settled.all():
            break
    return place
