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
max(0, 1 - exp(e)) and 1, is the profile of a pair [1, section 3]. (`accountants` has two cases in which it is also that
of a Poisson sample.)

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

One release. Write q = (1-w) a + w b. A profile is convex in its rate (see above), so the pair "with probability
w the pair at b, else the pair at a, and which one is public" has a divergence ``(1-w) H_a + w H_b >= H_q`` at every e
and in both directions: it dominates the release.

Many releases. Let K of n releases use b, so that K is a sum of independent coins with probabilities w_1, ..., w_n.
Profiles increase with the rate, hence the composed divergence increases with K, and K may be replaced by anything
stochastically larger: n coins of probability p with ``1 - p = geometric mean of (1 - w_i)``. (For two coins, as many
samples show no b as before, and ``p^2 >= w_1 w_2`` because the arithmetic mean of the 1 - w_i exceeds the geometric
one; for more, replace two at a time.) Releases whose w_i are close are merged like this, which keeps the means close
too.

Full batches
------------
A noise law proves a symmetric pair of releases that use every example, by itself (`Full`).

**Chords.** A divergence is known at some points, and between them by chords. ``H(P||Q)(e)`` is convex in exp(e), so
chords in exp(e) lie above it: whatever the points are, the figure is never too small. `table` chooses them. Chords that
are a relative t above the divergence everywhere raise log E exp(z L) of the loss, for every z > 0, by at most
a relative t, and so epsilons of compositions by about as much.

**L2-Laplace noise**, density ~ exp(-epsilon |n|_2 / S) in d dimensions, is epsilon-differentially private, and in many
dimensions far better than that says: its loss is epsilon only where the noise lies on the axis through the two centres,
and there is hardly any room there. Its own profile is close to that of Gaussian noise with mu = epsilon / sqrt(d);
`L2LaplaceFull` computes it, as follows.

**The worst shift.**
Let the noise have density exp(-psi(x)) with psi convex, and let P be its law and Q_s its law moved by s w, |w| = 1.
For every real e, ``H(P||Q_s)(e)`` and ``H(Q_s||P)(e)`` increase with s.

1. The loss of P to Q_s is L(x) = psi(x - s w) - psi(x). It falls along w: for t >= 0 the points x - s w and x + t w of
   one line enclose x and x + t w - s w, which have the same sum, so by convexity
   psi(x) + psi(x + t w - s w) <= psi(x - s w) + psi(x + t w), that is L(x + t w) <= L(x).
2. So the best set against Q_s, A = {L > e}, contains A - t w for every t >= 0. (Here and for e > 0 it is one sheet
   of a two-sheeted hyperboloid around the centre of P.)
3. For s' > s, Q_s'(A) = P(A - s' w) <= P(A - s w) = Q_s(A), hence
   H(P||Q_s')(e) >= P(A) - exp(e) Q_s'(A) >= P(A) - exp(e) Q_s(A) = H(P||Q_s)(e).
4. For the other direction, H(Q||P)(e) = 1 - exp(e) + exp(e) H(P||Q)(-e) for every pair, and step 3 holds at -e.

The L2-Laplace law looks the same in every direction, so H depends on the shift's length only: a shift of length S
attains at every e the largest divergence that shifts of at most S have. That is what a dominating pair is [1]. It is
symmetric: a reflection swaps the two centres.

**The law of the loss.**
Take S = 1, centres at distance 1, and let r and r' be the distances of a point to the centres of P and Q. With
u = r + r' >= 1 and v = r' - r in [-1, 1] (prolate spheroidal coordinates) the volume element is proportional to
(u^2 - v^2) ((u^2 - 1)(1 - v^2))^((d-3)/2) for d >= 2, P has density exp(-epsilon (u - v)/2), and the loss is epsilon v.
Integrating over u leaves

    f(v) ~ exp(epsilon v/2) (1 - v^2)^((d-3)/2) (kappa - v^2),
    kappa = 1 + (2 (d-1)/epsilon) K_{d/2}(epsilon/2) / K_{d/2-1}(epsilon/2),

with the modified Bessel functions that the integrals of (u^2 - 1)^(n - 1/2) exp(-epsilon u/2) are [5, 10.32.8]. For
d = 1 it is the Laplace law, with H(e) = 1 - exp((e - epsilon)/2).

**How it is computed, and how exactly.**
With v = cos(angle) the density is smooth. A table has the profile at losses about 1/128 of a standard deviation apart.
From the largest loss down, by Gauss-Legendre quadrature over each cell,

    H(e_k) = r H(e_{k+1}) + (1 - r) P(L > e_{k+1}) + int_cell (1 - exp(e_k - l)) dP(l),    r = exp(e_k - e_{k+1}),

where every term is positive, so that nothing cancels, however small H is. Where the noise stops mattering (a
probability of 1e-300) the table starts with 1e-300 instead of 0. Between the table's losses H is replaced by chords in
exp(e), which lie above it, and all of it is raised by a relative 1e-9. For epsilon up to 1e6 and divergences above
1e-50 quadrature and rounding err by less than a tenth of that (the tests compare with arithmetic of 40 digits). For a
larger epsilon, and wherever that is less, the profile of randomized response is taken, which holds for everything
epsilon-differentially private.

References
----------
[1] Zhu, Dong and Wang, "Optimal accounting of differential privacy via characteristic function", AISTATS 2022.
[2] Balle, Barthe and Gaboardi, "Privacy amplification by subsampling", NeurIPS 2018.
[3] Balle and Wang, "Improving the Gaussian mechanism for differential privacy", ICML 2018, theorem 8.
[4] Kairouz, Oh and Viswanath, "The composition theorem for differential privacy", ICML 2015, theorem 3.3: randomized
    response dominates every epsilon-differentially private mechanism.
[5] NIST digital library of mathematical functions, https://dlmf.nist.gov.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from scipy.special import erfcx, k0e, k1e, log_ndtr, ndtr, ndtri

from gossamer.arrays import FloatArray
from gossamer.errors import AccountingError, real_number, whole_number

MOST_MU = 30.0  # beyond it exp(mu^2/2) comes near overflow
MOST_EXPONENT = 700.0  # exp of it is far above what matters, and no overflow
ROUNDING = float(np.finfo(np.float64).eps)
_ROOT_2 = math.sqrt(2)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(10)


class Full(Protocol):
    """The symmetric pair of a release that uses every example."""

    def divergence(self, losses: FloatArray) -> FloatArray:
        """H(P||Q) at ``losses`` >= 0."""

    def largest(self, tail: float) -> float:
        """A privacy loss e with H(P||Q)(e) <= ``tail``; the supremum of the loss for ``tail`` 0."""


@dataclass(frozen=True)
class GaussianFull:
    """N(mu, 1) against N(0, 1): Gaussian noise, mu = sensitivity / standard deviation. Equation 6 of [3]."""

    mu: float

    def divergence(self, losses: FloatArray) -> FloatArray:
        cut = losses / self.mu
        upper, lower = self.mu / 2 - cut, -self.mu / 2 - cut
        if self.mu > MOST_MU:
            return np.maximum(drop(losses, upper, lower), 0.0)
        # exp(loss) phi(lower) = phi(upper), which leaves a difference of Mills ratios
        return np.asarray(np.exp(-(upper**2) / 2) * mills_drop(-upper, self.mu) / math.sqrt(2 * math.pi))

    def largest(self, tail: float) -> float:
        return self.mu * -float(ndtri(tail)) + self.mu**2 / 2 if tail > 0 else math.inf


@dataclass(frozen=True)
class ResponseFull:
    """Randomized response: P = (p, 1-p), Q = (1-p, p) with p = exp(epsilon) / (1 + exp(epsilon))."""

    epsilon: float

    def divergence(self, losses: FloatArray) -> FloatArray:
        # (exp(epsilon) - exp(loss)) / (1 + exp(epsilon)), where that is positive
        return np.asarray(-np.expm1(np.minimum(losses - self.epsilon, 0.0)) / (1.0 + math.exp(-self.epsilon)))

    def largest(self, tail: float) -> float:
        return self.epsilon


def drop(losses: FloatArray, upper: FloatArray, lower: FloatArray) -> FloatArray:
    """Phi(upper) - exp(loss) Phi(lower), and what rounding may take from numbers so large."""
    raised = upper + 4 * ROUNDING * (np.abs(upper) + np.abs(lower))
    exponents = losses + log_ndtr(lower) - 4 * ROUNDING * (losses + lower**2)
    return np.asarray(ndtr(raised) - np.exp(np.minimum(exponents, MOST_EXPONENT)))


def mills_drop(points: FloatArray, gap: float) -> FloatArray:
    """R(points) - R(points + gap), where R(x) is the Mills ratio Phi(-x) / phi(x), which falls."""
    scale = math.sqrt(math.pi / 2)
    if gap > 0.5:
        return np.asarray(scale * (erfcx(points / _ROOT_2) - erfcx((points + gap) / _ROOT_2)))
    # -R'(x) = 1 - x R(x), integrated over so short a way that ten points are exact
    nodes = points[:, None] + gap * (1 + _NODES) / 2
    return np.asarray(gap / 2 * np.sum((1 - nodes * scale * erfcx(nodes / _ROOT_2)) * _WEIGHTS, axis=1))


_CLOSE = 1e-5  # relative, on divergences: what chords may add, times 1 + log(1 / divergence)
_DEEP = 90.0  # of log(1 / divergence): far less than counts, where they may add more
_PASSES, _MOST_PARTS, _MOST_POINTS = 6, 16, 12_000


class Chords(NamedTuple):
    """A piecewise linear function of exp(loss).

    Attributes
    ----------
    losses : ndarray [points]
        Increasing.
    divergences : ndarray [points]
        Falling.
    """

    losses: FloatArray
    divergences: FloatArray

    def at(self, losses: FloatArray) -> FloatArray:
        """Its values at ``losses``; that of the last point beyond it."""
        cell = np.clip(np.searchsorted(self.losses, losses, side="right") - 1, 0, self.losses.size - 2)
        start, end = self.losses[cell], self.losses[cell + 1]
        inside = np.minimum(losses, end)
        with np.errstate(under="ignore"):
            whole = np.expm1(start - end)
            last = np.exp(inside - end) * np.expm1(start - inside) / whole
            first = np.expm1(inside - end) / whole
            value: FloatArray = first * self.divergences[cell] + last * self.divergences[cell + 1]
        return value


def table(known: Callable[[FloatArray], tuple[FloatArray, FloatArray]], points: FloatArray) -> Chords:
    """Chords between points where a divergence is known, as many as they take to be close to it.

    Parameters
    ----------
    known : callable
        Function from increasing numbers to losses, which increase with them, and to the divergences there.
    points : ndarray
        The numbers to begin with, at least two.
    """
    losses, divergences = known(points)
    for _ in range(_PASSES):
        chords = _chords(losses, divergences)
        middles = (points[:-1] + points[1:]) / 2
        between, exact = known(middles)
        parts = _parts(chords.at(between) - exact, exact)
        points, losses, divergences = (
            _merged(whole, more) for whole, more in ((points, middles), (losses, between), (divergences, exact))
        )
        # Each half of a cell that was not close enough is cut as finely as its whole would have to be.
        inner = _inner(points, np.repeat(np.ceil(parts / 2).astype(np.int64), 2))
        if not inner.size or points.size + inner.size > _MOST_POINTS:
            break
        order = np.argsort(np.append(points, inner), kind="stable")
        points, losses, divergences = (
            np.append(whole, more)[order] for whole, more in zip((points, losses, divergences), (inner, *known(inner)))
        )
    return _chords(losses, divergences)


def _chords(losses: FloatArray, divergences: FloatArray) -> Chords:
    """The same with increasing losses. Of points that rounding leaves at one loss, the largest divergence is kept."""
    own, first = np.unique(np.maximum.accumulate(losses), return_index=True)
    most = np.maximum.reduceat(divergences, first)
    if own.size == 1:
        own, most = np.append(own, own[0] + 1.0), np.append(most, most[0])
    return Chords(own, most)


def _parts(excess: FloatArray, exact: FloatArray) -> FloatArray:
    """Into how many parts each cell is to be cut, for chords that exceed its divergence by ``excess`` in its middle."""
    known = exact > 0
    depth = -np.log(np.where(known, np.minimum(exact, 1.0), 1.0))
    allowed = _CLOSE * (1 + depth) * (1 + (depth / _DEEP) ** 2) * exact
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        parts = np.ceil(np.sqrt(np.maximum(excess, 0.0) / allowed))
    return np.where(known, np.clip(parts, 1, _MOST_PARTS), 1.0)


def _merged(whole: FloatArray, between: FloatArray) -> FloatArray:
    found = np.empty(whole.size + between.size)
    found[::2], found[1::2] = whole, between
    return found


def _inner(points: FloatArray, parts: npt.NDArray[np.int64]) -> FloatArray:
    """Points that cut the cells between ``points`` into so many parts each."""
    cell = np.repeat(np.arange(parts.size), parts - 1)
    within = np.arange(cell.size) - np.repeat(np.cumsum(parts - 1) - (parts - 1), parts - 1) + 1
    return points[cell] + np.diff(points)[cell] * (within / parts[cell])


_CELLS = 128  # per standard deviation of the angle
_REACH = 40.0  # standard deviations of the angle on either side of its mode: beyond it there is less than _NOTHING
_NOTHING = 1e-300
_MARGIN = 1e-9  # relative, far more than quadrature and rounding lose
_LARGEST_EPSILON = 1e6  # where rounding of the density's exponent would come near the margin
_MOST_RECURRENCES = 10_000


@dataclass(frozen=True)
class L2LaplaceFull:
    """L2-Laplace noise in ``size`` dimensions, moved by its sensitivity: a `Full` pair.

    Attributes
    ----------
    epsilon : float
        Pure epsilon of one release on a full batch, the sensitivity over the scale of the noise's norm.
    size : int
        Number of coordinates that get noise.

    Raises
    ------
    AccountingError
        If epsilon is not a finite positive number or size not at least 1.
    """

    epsilon: float
    size: int

    def __post_init__(self) -> None:
        if not (0 < real_number(self.epsilon) < math.inf and whole_number(self.size)):
            raise AccountingError(
                f"L2-Laplace noise needs a finite epsilon > 0 and a size of at least 1, "
                f"found epsilon {self.epsilon!r} and size {self.size!r}"
            )

    def divergence(self, losses: FloatArray) -> FloatArray:
        """H(P||Q) at ``losses`` >= 0, from above."""
        pure = ResponseFull(self.epsilon).divergence(losses)
        if self.epsilon > _LARGEST_EPSILON:
            return pure
        if self.size == 1:
            return np.maximum(-np.expm1((losses - self.epsilon) / 2), 0.0)
        own: FloatArray = _table(self.epsilon, self.size).at(losses)
        return np.minimum(own, pure)

    def largest(self, tail: float) -> float:
        """A privacy loss e > 0 with H(P||Q)(e) <= ``tail``; the supremum of the loss, epsilon, for ``tail`` 0."""
        if not tail > 0 or self.size == 1 or self.epsilon > _LARGEST_EPSILON:
            return self.epsilon
        table = _table(self.epsilon, self.size)
        return float(table.losses[max(int(np.argmax(table.divergences <= tail)), 1)])


@lru_cache(maxsize=64)
def _table(epsilon: float, size: int) -> Chords:
    """The profile of L2-Laplace noise in two dimensions or more, down to 0 at the loss epsilon."""
    losses = epsilon * np.cos(_angles(epsilon, size))
    losses[0] *= losses[0] > 1e-15 * epsilon  # the cosine of a rounded right angle is not 0
    # The angles of the rounded losses: the cells have to end where the table says.
    angles = 2 * np.arcsin(np.sqrt((epsilon - losses) / (2 * epsilon)))
    masses, shortfalls, total = _cells(epsilon, size, angles)
    above = divergence = 0.0 if losses[-1] == epsilon else _NOTHING
    divergences = [divergence]
    drops = -np.expm1(losses[:-1] - losses[1:])
    for mass, shortfall, drop in zip((masses / total)[::-1], (shortfalls / total)[::-1], drops[::-1]):
        divergence = (1 - drop) * divergence + drop * above + shortfall
        above += mass
        divergences.append(divergence)
    values = np.array(divergences[::-1]) * (1 + _MARGIN)
    if losses[0] > 0:
        losses, values = np.append(0.0, losses), np.append(1.0, values)
    if losses[-1] < epsilon:
        losses, values = np.append(losses, epsilon), np.append(values, 0.0)
    return Chords(losses, values)


def _angles(epsilon: float, size: int) -> FloatArray:
    """Falling angles, acos of the loss over epsilon, that are dense where exp(epsilon v/2) sin^(d-1) is not nothing."""
    mode = epsilon / (size - 1 + math.hypot(size - 1, epsilon))
    room = (1 - mode) * (1 + mode)
    deviation = 1 / math.sqrt(epsilon * mode / 2 + (size - 1) / room)
    angle = math.asin(math.sqrt(room)) if mode > 0.5 else math.acos(mode)
    low, high = max(angle - _REACH * deviation, 0.0), min(angle + _REACH * deviation, math.pi / 2)
    return np.linspace(high, low, max(math.ceil((high - low) / deviation * _CELLS), 2) + 1)


def _cells(epsilon: float, size: int, angles: FloatArray) -> tuple[FloatArray, FloatArray, float]:
    """For the cells between falling ``angles``: P's mass, and the integral of 1 - exp(start - loss); and P's total.

    Up to one factor. The total has the cells' mirror images too: at the loss -l is exp(-l) times the mass at l.
    """
    starts, ends = angles[:-1, None], angles[1:, None]
    offsets = (starts - ends) * (1 + _NODES) / 2  # from the cell's start
    points = starts - offsets
    density = np.exp(_exponent(epsilon, size, points)) * (starts - ends) / 2 * _WEIGHTS
    gains = 2 * epsilon * np.sin(starts - offsets / 2) * np.sin(offsets / 2)  # loss less the loss at the start
    shortfalls = -np.expm1(-gains) * density
    mirrored = np.exp(-epsilon * np.cos(points)) * density
    return density.sum(1), shortfalls.sum(1), float(density.sum() + mirrored.sum())


def _exponent(epsilon: float, size: int, angles: FloatArray) -> FloatArray:
    """The logarithm of P's density in the angle, up to a constant; about 0 at its largest."""
    excess = min(2 * (size - 1) / epsilon * _bessel_ratio(size / 2 - 1, epsilon / 2), 1e30)
    mode = epsilon / (size - 1 + math.hypot(size - 1, epsilon))
    cosine, sine = np.cos(angles), np.sin(angles)
    wide = np.abs(cosine) < 0.5
    log_sine = np.where(wide, np.log1p(-(np.where(wide, cosine, 0.0) ** 2)) / 2, np.log(sine))
    height = (size - 2) * math.log1p(-mode) / 2 + (size - 2) * math.log1p(mode) / 2
    return np.asarray(
        epsilon / 2 * (cosine - mode) + (size - 2) * log_sine - height + np.log((excess + sine**2) / (excess + 1))
    )


def _bessel_ratio(order: float, at: float) -> float:
    """K_{order+1} / K_order at ``at``, for an order that is half of a whole number, 0 or more.

    By the recurrence R_n = 2 n / x + 1 / R_{n-1} [5, 10.29.1], which shrinks relative errors at every step.
    Far up, a start at the ratio's leading term [5, 10.41.4] is forgotten within the steps taken.
    """
    steps = min(math.floor(order), _MOST_RECURRENCES)
    lowest = order - steps
    if lowest == 0.0:
        ratio = float(k1e(at) / k0e(at))
    elif lowest == 0.5:
        ratio = 1 + 1 / at
    else:
        ratio = (lowest + math.hypot(lowest, at)) / at
    for step in range(1, steps + 1):
        ratio = 2 * (lowest + step) / at + 1 / ratio
    return ratio


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

    def backward(self, losses: FloatArray) -> FloatArray:
        """H(Q||P) at ``losses`` >= 0."""

    def largest(self, tail: float) -> tuple[float, float]:
        """Losses at which the two divergences are at most ``tail``; their suprema for ``tail`` 0."""


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
        return (losses / 2 + asinh) / self.mu


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
