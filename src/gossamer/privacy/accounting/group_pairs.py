"""Dominating pairs of one release for a person with several rows.

The pairs are of the kind that `gossamer.privacy.accounting.analytic` describes. A person has at most m rows in a shard,
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

References
----------
[1] Ganesh, "Tight group-level DP guarantees for DP-SGD with sampling via mixture of Gaussians mechanisms", 2024.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import ndtri

from gossamer.arrays import FloatArray
from gossamer.privacy.accounting.group_sides import Replaced, SampledAhead, SampledBack
from gossamer.privacy.chords import Chords, table
from gossamer.privacy.pairs import Full

_ONE_BY_ONE = 2**12  # losses times numbers of rows, up to which every loss is answered exactly
_FIRST, _FIRST_POINTS, _NOTHING = 1e-12, 120, 1e-300  # of a table: the first loss, relative to the last; how many
_NEARLY_ALWAYS = 1 - 1e-9  # a rate above which rates no longer tell profiles apart


@dataclass(frozen=True)
class Coins:
    """A symmetric pair that is ``fulls[i]`` with probability ``weights[i]``, and which one is public."""

    fulls: tuple[Full, ...]
    weights: tuple[float, ...]

    def divergence(self, losses: FloatArray) -> FloatArray:
        """The divergence at ``losses`` >= 0: of a few exactly, of many by chords."""
        return self.exactly(losses) if losses.size * len(self.fulls) <= _ONE_BY_ONE else _table(self).at(losses)

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
def _table(coins: Coins) -> Chords:
    suprema = [full.largest(0.0) for full in coins.fulls]
    top = max(min(full.largest(_NOTHING), most) for full, most in zip(coins.fulls, suprema))
    points = np.concatenate([[0.0], np.geomspace(_FIRST * top, top, _FIRST_POINTS), [e for e in suprema if e < top]])
    return table(lambda losses: (losses, coins.exactly(losses)), np.unique(points))


@dataclass(frozen=True)
class _Group:
    """K is binomial: ``rows`` rows, each sampled with ``probability`` below 1; mu is one row's shift."""

    mu: float
    probability: float
    rows: int

    @property
    def rate(self) -> float:
        return -math.expm1(self.rows * math.log1p(-self.probability))

    @property
    def family(self) -> Hashable:
        return (type(self), self.mu, self.rows) if self.rate < _NEARLY_ALWAYS else self


@dataclass(frozen=True)
class GroupSampled(_Group):
    """P = sum_k P(K = k) N(k mu, 1) against Q = N(0, 1)."""

    symmetric = False

    def forward(self, losses: FloatArray) -> FloatArray:
        return self._ahead.divergence(losses)

    def backward(self, losses: FloatArray) -> FloatArray:
        return self._back.divergence(losses)

    def largest(self, tail: float) -> tuple[float, float]:
        most = -self._ahead.numbers.log_none
        if not tail > 0:
            return math.inf, most
        ahead = float(self._ahead.losses(np.array([self._ahead.quantile(tail)]))[0])
        back = float(self._back.losses(np.array([float(ndtri(tail))]))[0])
        return ahead, float(min(max(back, 0.0), most))

    @property
    def _ahead(self) -> SampledAhead:
        return SampledAhead(self.mu, self.probability, self.rows)

    @property
    def _back(self) -> SampledBack:
        return SampledBack(self.mu, self.probability, self.rows)


@dataclass(frozen=True)
class GroupReplaced(_Group):
    """P = sum_k P(K = k) N(k mu, 1) against Q = sum_k P(K = k) N(-k mu, 1)."""

    symmetric = True

    def forward(self, losses: FloatArray) -> FloatArray:
        return self._side.divergence(losses)

    backward = forward

    def largest(self, tail: float) -> tuple[float, float]:
        if not tail > 0:
            return math.inf, math.inf
        loss = float(self._side.losses(np.array([self._side.quantile(tail)]))[0])
        return loss, loss

    @property
    def _side(self) -> Replaced:
        return Replaced(self.mu, self.probability, self.rows)
