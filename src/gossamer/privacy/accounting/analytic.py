"""Privacy profiles of one release, in closed form.

A release is described by a *dominating pair* (P, Q): two laws on the line whose hockey-stick divergence
``H(P||Q)(e) = sup_A P(A) - exp(e) Q(A)`` is at least that of the release's outputs on any two neighbours, for every
real e. Pairs compose: the product of dominating pairs dominates the composition, also when each release is chosen
after seeing the ones before it [1, theorem 10]. `pld` composes what this module describes.

| profile | release | relation |
|---|---|---|
| `PoissonSampled(full, q)` | any mechanism with the symmetric pair `full`, on a Poisson sample | add or remove one |
| `FixedSizeSampled(full, q)` | any mechanism with the symmetric pair `full`, on a batch of fixed size | replace one |
| `PoissonReplaced(mu, q)` | Gaussian noise on a Poisson sample | replace one |
| `Response(rate)` | anything epsilon-differentially private, rate = tanh(epsilon / 2) | any |

Every profile is increasing and convex in its ``rate``, at each e. For the pairs of `PoissonSampled`,
`PoissonReplaced` and `Response` this is the joint convexity of divergences, since both laws are affine in the rate
and equal at rate 0; for `FixedSizeSampled` the profile is a perspective function of a convex one. `merge` builds
on it.

Proofs
------
`PoissonSampled`: theorem 11 of [1]. With full-batch pair (A, B), the pair is P = q A + (1-q) B, Q = B (the example is
in the first data set), and the reverse for the other direction.

`FixedSizeSampled`, q = batch_size / dataset_size: with (A, B) the pair under replace-one, advanced joint convexity and
a coupling that swaps the replaced example for another one give, for e >= 0,
``H(e) <= q H_full(log(1 + (exp(e)-1)/q))`` [2, theorem 9]. For e < 0 the data sets change places,
``H(e) = 1 - exp(e) + exp(e) H(-e)``. The two branches meet in a convex function of exp(e): at e = 0 the left slope less
the right one is ``(q-1) H_full(0)``, not positive. A function that is convex and decreasing in exp(e), between
max(0, 1 - exp(e)) and 1, is the profile of a pair [1, section 3]. (`rows` has two cases in which it is also that of a
Poisson sample.)

`PoissonReplaced`: given who else is sampled, the outputs follow ``(1-q) N(s) + q N(s+v)`` for one data set and
``(1-q) N(s) + q N(s+v')`` for the other, |v|, |v'| <= C, in units of the noise's standard deviation. Their divergence
at e >= 0 is ``q E max(0, 1 - exp(e) X - c Y)`` with c = (1-q)(exp(e)-1)/q >= 0 and X, Y the likelihood ratios of
N(s+v') and of N(s) to N(s+v), under N(s+v): log-normal variables of mean 1 whose logarithms have the covariances
|v-v'|^2, <v-v', v> and |v|^2. The function's second derivatives in X and Y are all >= 0, so by Gaussian interpolation
the expectation increases with each covariance. All three are largest at v' = -v, |v| = C, which is the pair used here
(and by dp-accounting). For e < 0 the data sets change places.

Few profiles in place of many: releases of neighbouring rates are replaced by mixtures that dominate them.

A node whose batch size grows makes thousands of releases, each at a rate of its own. Composing thousands of different
privacy loss distributions is slow, so the rates of one family are cut into cells [a, b], and every rate inside a cell
is accounted by the two profiles at the cell's ends.

One release. Write q = (1-w) a + w b. A profile is convex in its rate (see `analytic`), so the pair "with probability
w the pair at b, else the pair at a, and which one is public" has a divergence ``(1-w) H_a + w H_b >= H_q`` at every e
and in both directions: it dominates the release.

Many releases. Let K of n releases use b, so that K is a sum of independent coins with probabilities w_1, ..., w_n.
Profiles increase with the rate, hence the composed divergence increases with K, and K may be replaced by anything
stochastically larger: n coins of probability p with ``1 - p = geometric mean of (1 - w_i)``. (For two coins, as many
samples show no b as before, and ``p^2 >= w_1 w_2`` because the arithmetic mean of the 1 - w_i exceeds the geometric
one; for more, replace two at a time.) Releases whose w_i are close are merged like this, which keeps the means close
too.

References
----------
[1] Zhu, Dong and Wang, "Optimal accounting of differential privacy via characteristic function", AISTATS 2022.
[2] Balle, Barthe and Gaboardi, "Privacy amplification by subsampling", NeurIPS 2018.
[3] Balle and Wang, "Improving the Gaussian mechanism for differential privacy", ICML 2018, theorem 8.
[4] Kairouz, Oh and Viswanath, "The composition theorem for differential privacy", ICML 2015, theorem 3.3: randomized
    response dominates every epsilon-differentially private mechanism.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from scipy.special import ndtri

from gossamer.arrays import FloatArray
from gossamer.privacy.pairs import MOST_EXPONENT, MOST_MU, ROUNDING, Full, ResponseFull, drop, mills_drop


class Profile(Protocol):
    """The dominating pair (P, Q) of one release, through its divergences.

    Attributes
    ----------
    rate : float
        Sampling rate, in [0, 1]. Profiles that differ in nothing else are convex and increasing in it.
    family : Hashable
        Key that such profiles share.
    symmetric : bool
        Whether the two directions agree.
    """

    @property
    def rate(self) -> float: ...

    @property
    def family(self) -> Hashable: ...

    @property
    def symmetric(self) -> bool: ...

    def forward(self, losses: FloatArray) -> FloatArray:
        """H(P||Q) at ``losses`` >= 0."""
        ...

    def backward(self, losses: FloatArray) -> FloatArray:
        """H(Q||P) at ``losses`` >= 0."""
        ...

    def largest(self, tail: float) -> tuple[float, float]:
        """Losses at which the two divergences are at most ``tail``; their suprema for ``tail`` 0."""
        ...


@dataclass(frozen=True)
class FullBatch:
    """Every example is used."""

    full: Full
    rate = 1.0
    symmetric = True

    @property
    def family(self) -> Hashable:
        return self

    def forward(self, losses: FloatArray) -> FloatArray:
        return self.full.divergence(losses)

    backward = forward

    def largest(self, tail: float) -> tuple[float, float]:
        loss = self.full.largest(tail)
        return loss, loss


@dataclass(frozen=True)
class PoissonSampled:
    """P = rate A + (1 - rate) B against Q = B, with (A, B) the pair of ``full``."""

    full: Full
    rate: float

    @property
    def family(self) -> Hashable:
        return type(self), self.full

    @property
    def symmetric(self) -> bool:
        return self.rate == 1.0

    def forward(self, losses: FloatArray) -> FloatArray:
        return _sampled_divergence(self.full, self.rate, losses)

    def backward(self, losses: FloatArray) -> FloatArray:
        # H(B||P)(e) = w H(B||A)(log(exp(e) rate / w)) with w = 1 - exp(e) (1 - rate), and 0 where w <= 0.
        # It grows with w, whose rounding error is added.
        growth = np.expm1(np.minimum(losses, MOST_EXPONENT))
        weight = self.rate * (1 + 4 * ROUNDING) - growth * (1.0 - self.rate)
        # Beyond the largest loss there is nothing, not even that error.
        inside = (weight > 0) & (losses < self.largest(0.0)[1])
        divergence = np.zeros_like(losses)
        arguments = np.maximum(losses[inside] + np.log(self.rate / weight[inside]), 0.0)
        divergence[inside] = weight[inside] * self.full.divergence(arguments)
        return divergence

    def largest(self, tail: float) -> tuple[float, float]:
        loss = self.full.largest(tail)
        return _sampled(loss, self.rate), -_sampled(-loss, self.rate)


class FixedSizeSampled(PoissonSampled):
    """A batch of a fixed share ``rate`` of the examples, under replace-one: both directions are one."""

    symmetric = True
    backward = PoissonSampled.forward

    def largest(self, tail: float) -> tuple[float, float]:
        loss, _ = super().largest(tail)
        return loss, loss


@dataclass(frozen=True)
class PoissonReplaced:
    """P = rate N(mu, 1) + (1 - rate) N(0, 1) against Q = rate N(-mu, 1) + (1 - rate) N(0, 1)."""

    mu: float
    rate: float
    symmetric = True

    @property
    def family(self) -> Hashable:
        return type(self), self.mu

    def forward(self, losses: FloatArray) -> FloatArray:
        cut = self._cut(losses)
        if self.mu <= MOST_MU:
            # With the densities' ratio at the cut, all that is left are Mills ratios' differences, which do not cancel.
            below, above = np.exp(-((cut - self.mu) ** 2) / 2), np.exp(losses - (cut + self.mu) ** 2 / 2)
            parts = below * mills_drop(cut - self.mu, self.mu) + above * mills_drop(cut, self.mu)
            return np.minimum(self.rate * parts / math.sqrt(2 * math.pi), 1.0)
        still, moved = drop(losses, -cut, -cut), drop(losses, self.mu - cut, -self.mu - cut)
        return np.maximum((1.0 - self.rate) * still + self.rate * moved, 0.0)

    backward = forward

    def largest(self, tail: float) -> tuple[float, float]:
        # P(loss > e) <= P(output > mu + t) <= Phi(-t), and the loss is increasing in the output
        if not tail > 0:
            return math.inf, math.inf
        output = self.mu - float(ndtri(tail))
        loss = _sampled(self.mu * output - self.mu**2 / 2, self.rate) - _sampled(
            -self.mu * output - self.mu**2 / 2, self.rate
        )
        return loss, loss

    def _cut(self, losses: FloatArray) -> FloatArray:
        """The output at which the privacy loss equals ``losses``."""
        # With u = exp(mu x) and k = exp(mu^2/2) (1-q)/q the loss is e where k + u = exp(e) (k + 1/u), that is, where
        # u = exp(e/2) exp(asinh(k sinh(e/2))).
        if self.rate == 1.0:
            return losses / (2.0 * self.mu)
        with np.errstate(divide="ignore"):
            log_sinh = losses / 2 + np.log(-np.expm1(-losses) / 2)
        log_factor = self.mu**2 / 2 + math.log1p(-self.rate) - math.log(self.rate) + log_sinh
        asinh = np.logaddexp(log_factor, np.logaddexp(2 * log_factor, 0.0) / 2)
        cut: FloatArray = (losses / 2 + asinh) / self.mu
        return cut


@dataclass(frozen=True)
class Response:
    """Randomized response as rate (1, 0) + (1 - rate) (1/2, 1/2) against its mirror image, rate = tanh(epsilon / 2)."""

    epsilon: float
    symmetric = True

    @property
    def family(self) -> Hashable:
        # Where the rate rounds to 1 it no longer tells two of them apart, and each is on its own.
        return "randomized response" if self.rate < 1 - 1e-9 else self

    @property
    def rate(self) -> float:
        return math.tanh(self.epsilon / 2)

    def forward(self, losses: FloatArray) -> FloatArray:
        return ResponseFull(self.epsilon).divergence(losses)

    backward = forward

    def largest(self, tail: float) -> tuple[float, float]:
        return self.epsilon, self.epsilon


def _sampled_divergence(full: Full, rate: float, losses: FloatArray) -> FloatArray:
    """Divergence of rate A + (1 - rate) B from B, with (A, B) the pair of ``full``; 0 beyond the largest loss."""
    divergence = rate * full.divergence(_unsampled(losses, rate))
    return np.where(losses < _sampled(full.largest(0.0), rate), divergence, 0.0)


def _unsampled(losses: FloatArray, rate: float) -> FloatArray:
    """log(1 + (exp(loss) - 1) / rate), the full-batch loss behind ``losses`` >= 0."""
    small = losses < 1.0
    near = np.log1p(np.expm1(np.where(small, losses, 0.0)) / rate)
    far = losses + np.log1p(-(1.0 - rate) * np.exp(-np.where(small, 1.0, losses))) - math.log(rate)
    return np.where(small, near, far)


def _sampled(loss: float, rate: float) -> float:
    """log(1 - rate + rate exp(loss)), away from 0 by rounding; it stays finite for a huge loss."""
    if rate == 1.0 or loss == math.inf:
        return loss
    # Nothing cancels where a loss is small.
    near = loss < 1.0
    found = math.log1p(rate * math.expm1(loss)) if near else np.logaddexp(math.log1p(-rate), math.log(rate) + loss)
    return float(found) * (1 + 4 * ROUNDING)


TOLERANCE = 5e-4
"""What merging may add to sum_i rate_i^2, relative to it. To second order epsilon grows by half of that."""
_LEVELS = 16  # how many different weights a cell keeps


class ReleaseGroup(NamedTuple):
    """Releases that are dominated by the pair ``upper`` with probability ``weight`` each, else by ``lower``."""

    lower: Profile
    upper: Profile
    weight: float
    releases: int


def merge(counts: Mapping[Profile, int], tolerance: float = TOLERANCE) -> list[ReleaseGroup]:
    """Groups that together dominate ``counts`` releases of each profile."""
    families: defaultdict[Hashable, list[Profile]] = defaultdict(list)
    for profile in counts:
        families[profile.family].append(profile)
    return [group for members in families.values() for group in _merge_family(members, counts, tolerance)]


def _merge_family(members: list[Profile], counts: Mapping[Profile, int], tolerance: float) -> Iterator[ReleaseGroup]:
    # The largest loss as well: the rates of very revealing responses round to the same number.
    members = sorted(members, key=lambda profile: (profile.rate, profile.largest(0.0)), reverse=True)
    rates = np.array([profile.rate for profile in members])
    numbers = np.array([counts[profile] for profile in members], dtype=np.float64)
    yield ReleaseGroup(members[0], members[0], 1.0, counts[members[0]])
    start = 0
    while start < len(members) - 1:
        end = _cell_end(rates, numbers, start, tolerance)
        yield from _levels(members[start : end + 1], rates[start : end + 1], numbers[start : end + 1])
        start = end


def _cell_end(rates: FloatArray, numbers: FloatArray, start: int, tolerance: float) -> int:
    """The last position that a cell whose upper end is at ``start`` may reach."""
    inside, count = rates[start + 1 :], numbers[start + 1 :]
    total, first, second = (np.cumsum(count * inside**power) for power in (0, 1, 2))
    excess = (rates[start] + inside) * first - second - rates[start] * inside * total  # sum (b - q)(q - a)
    allowed = tolerance * (second + float(np.sum(numbers * rates**2)) / 32)
    beyond = np.flatnonzero(excess > allowed)
    return start + (int(beyond[0]) if beyond.size else inside.size)


def _levels(members: list[Profile], rates: FloatArray, numbers: FloatArray) -> Iterator[ReleaseGroup]:
    """Groups for all members of a cell but the first; the first and last are its ends."""
    upper, lower = members[0], members[-1]
    yield ReleaseGroup(lower, lower, 1.0, int(numbers[-1]))
    if len(members) == 2:
        return
    inside, count = rates[1:-1], numbers[1:-1]
    with np.errstate(divide="ignore"):  # of weights that round to 1, which is the safe side
        # The error of the subtraction is added, so that no weight is rounded down.
        weights = (inside - rates[-1] + 4 * np.finfo(float).eps) / (rates[0] - rates[-1])
        surprises = count * np.log1p(-np.minimum(weights, 1.0))
    levels = np.floor(np.minimum(weights, 1.0) * _LEVELS)
    for level in np.unique(levels):
        chosen = levels == level
        number = float(np.sum(count[chosen]))
        yield ReleaseGroup(lower, upper, -math.expm1(float(np.sum(surprises[chosen])) / number), int(number))
