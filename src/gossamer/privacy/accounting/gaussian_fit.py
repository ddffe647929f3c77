"""The least mu with which Gaussian differential privacy, but for a failure probability, covers a whole plan.

Of a plan, fixed in advance, `accountants.quick_figures` bounds ``H(t) = sup_S P(S) - t Q(S)`` for t = exp(e) >= 1, in
both directions at once. Its outputs are no easier to tell apart than

    with probability f: which data set it is;    else: N(mu, 1) against N(0, 1)

if, at every real e and in both directions,

    H(t) <= f + (1-f) G(t),        G(t) = Phi(mu/2 - e/mu) - t Phi(-mu/2 - e/mu).                           (1)

**Losses below 0 need no look.** For t < 1 both sides follow from the other direction at 1/t: ``H(P||Q)(t) = 1 - t + t
H(Q||P)(1/t)``, the same holds for the pair on the right, which is symmetric, and the terms 1 - t cancel.

**Finitely many losses are enough.** H is convex and decreasing in t. Between two losses at which bounds of it are known
it lies below their chord; G is convex and smooth with the slope ``-Phi(-mu/2 - e/mu)``. So the least distance between
the right side of (1) and a chord is at an end of it, or where the slopes are equal, and these are three closed forms.
Beyond a loss at which H is at most f, (1) holds whatever mu is. More losses are looked at where a chord, rather than
one of its ends, decides.

The proof that sums of mu^2 and of f make a filter is in docs/decisions/budgets-over-runs.md.
"""

from __future__ import annotations

import math
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri, ndtri_exp

from gossamer.arrays import FloatArray
from gossamer.privacy.accounting.accountant_table import pure_epsilon, row_of
from gossamer.privacy.accounting.accountants import LossFigures, quick_figures
from gossamer.privacy.accounting.renyi import check_delta
from gossamer.privacy.mechanisms import NeighboringRelation
from gossamer.privacy.pairs import GaussianFull
from gossamer.privacy.releases import Counts, ReleaseKind, checked_counts

_FIRST, _RATIO = 12, 2**0.5  # losses looked at to begin with, and the ratio of neighbours
_LOOSE = 2e-3  # relative; how much a chord may ask for more than its ends before it is cut
_ROUNDS = 12
_MARGIN = 1e-9  # relative, on divergences
_SAFE = 1e-6  # relative, on mu
_LEAST, _MOST = 1e-5, 1e3
"""Less mu than the first is called the first, and more than the second is not looked for: (1) is exact in between."""
_LARGE = 600.0  # of an epsilon whose exponential is near overflow
_FAR = 500.0  # of losses whose exponentials' ratio is as good as infinite


def release_mu(kind: ReleaseKind, relation: NeighboringRelation) -> float:
    """Gaussian differential privacy of one release without any failure; infinite without noise.

    Gaussian noise on a sample is counted as if all data were used, and any other noise by its pure epsilon.

    Raises
    ------
    AccountingError
        If the kind is not in `ROWS`.
    """
    if not kind.mechanism.private:
        return math.inf
    row_of(kind, relation)
    if (normal := kind.mechanism.normal) is not None:
        return normal.mu(relation)
    return response_mu(pure_epsilon(kind, relation))


def response_mu(pure: float) -> float:
    """Gaussian differential privacy of anything that is ``pure``-differentially private without a delta.

    Randomized response dominates it, whose trade-off curve has one corner, where both errors are 1/(1 + exp(pure)).
    That of N(0, 1) and N(mu, 1) is convex, with the same ends, so it lies below if it does at the corner:
    ``Phi(-mu/2) <= 1/(1 + exp(pure))``.
    """
    if not pure < _LARGE:
        return math.sqrt(8 * (pure + 1))  # -Phi^-1(p) <= sqrt(2 log(1/p))
    return max(-2 * float(ndtri(1 / (1 + math.exp(pure)))) * (1 + _SAFE), 0.0)


def full_mu(counts: Counts, relation: NeighboringRelation) -> float:
    """Gaussian differential privacy of all releases together, without any failure; see `release_mu`."""
    return math.sqrt(math.fsum(n * release_mu(kind, relation) ** 2 for kind, n in checked_counts(counts).items() if n))


def is_exact(counts: Counts) -> bool:
    """Whether `full_mu` is all that there is to say: Gaussian noise on all data."""
    return all(kind.mechanism.normal is not None and kind.sampling.rate == 1 for kind, n in counts.items() if n)


class PlanCurve:
    """Curve of what a plan reveals, for as many failure probabilities as one likes; made by `of`.

    Attributes
    ----------
    full : float
        `full_mu`.
    """

    def __init__(self, counts: Counts, relation: NeighboringRelation) -> None:
        self.full = full_mu(counts, relation)
        self._counts, self._relation = counts, relation
        self._exact = is_exact(counts) or not self.full < math.inf
        self._known: dict[float, float] = {}
        self._mus: dict[float, float] = {}

    @classmethod
    def of(cls, counts: Counts, relation: NeighboringRelation) -> PlanCurve:
        """The curve of releases that are fixed in advance: ``counts`` of each kind.

        Raises
        ------
        AccountingError
            If a kind is not in `ROWS`, or a count is not a number of releases.
        """
        released = frozenset((kind, number) for kind, number in checked_counts(counts).items() if number)
        return _curve(released, NeighboringRelation(relation))

    def mu(self, failure: float) -> float:
        """The least mu, but for ``failure`` in (0, 1): to 0.2 %, and never too small; infinite where there is none.

        Raises
        ------
        AccountingError
            If failure is not inside (0, 1).
        """
        check_delta(failure)
        if self._exact:
            return self.full
        if failure not in self._mus:
            self._mus[failure] = min(self.full, self._least(failure))
        return self._mus[failure]

    @cached_property
    def _figures(self) -> LossFigures:
        return quick_figures(self._counts, self._relation)

    def _divergence(self, loss: float) -> float:
        if loss not in self._known:
            self._known[loss] = self._figures.delta(loss)
        return self._known[loss]

    def _least(self, failure: float) -> float:
        end = self._figures.epsilon(failure)
        if end == math.inf:
            return math.inf
        if end == 0:
            return 0.0
        # Losses that other failures look at, too.
        highest = math.ceil(math.log(end, _RATIO))
        losses = {0.0, *(_RATIO ** (highest - step) for step in range(1, _FIRST))}
        for _ in range(_ROUNDS):
            chords = _Chords(sorted(losses), [*map(self._divergence, sorted(losses))], end, failure)
            ends, all_of_it = chords.least(inside=False), chords.least(inside=True)
            if all_of_it <= ends * (1 + _LOOSE):
                break
            losses |= chords.middles(ends * (1 + _LOOSE / 2))
        return all_of_it * (1 + _SAFE) if all_of_it < _MOST else math.inf


@lru_cache(maxsize=64)
def _curve(released: frozenset[tuple[ReleaseKind, int]], relation: NeighboringRelation) -> PlanCurve:
    return PlanCurve(dict(released), relation)


class _Chords:
    """An upper bound of a curve, linear in t between ``losses``, that ends at ``end`` with the value ``failure``."""

    def __init__(self, losses: list[float], values: list[float], end: float, failure: float) -> None:
        self._losses = np.array([*losses, end])
        self._values = np.array([*values, failure]) * (1 + _MARGIN)
        self._values[-1] = failure  # from there on the bound is not needed
        self._failure = failure
        steps, apart = -np.diff(self._values), np.diff(self._losses)
        self._flat = (steps <= 0) | (apart > _FAR)  # these count as their higher end
        # Slopes and positions in t are relative to the chord's left end, so that nothing overflows.
        self._slopes = np.where(self._flat, 0.0, steps) / np.expm1(np.minimum(apart, _FAR))

    def least(self, *, inside: bool) -> float:
        """The least mu for the ends of all chords; or ``inside`` of them, too."""
        low, high = _LEAST, 1.0
        while self._short(high, inside).any():
            low, high = high, 4 * high
            if high > _MOST:
                return math.inf
        while high > low * (1 + 1e-5):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if self._short(middle, inside).any() else (low, middle)
        return high

    def middles(self, mu: float) -> set[float]:
        """The middles of chords that ask for more than ``mu``."""
        short = self._short(mu, inside=True)
        return set(((self._losses[:-1] + self._losses[1:]) / 2)[short].tolist())

    def _short(self, mu: float, inside: bool) -> npt.NDArray[np.bool_]:
        """Mark the chords for which ``mu`` is too small."""
        beyond = self._right(mu, self._losses) < self._values
        short: npt.NDArray[np.bool_] = beyond[:-1] | beyond[1:]
        if inside:
            left, right = self._losses[:-1], self._losses[1:]
            touching = self._touching(mu, left, right)
            chord = self._values[:-1] - self._slopes * np.expm1(np.minimum(touching - left, _FAR))
            highest = np.maximum(self._values[:-1], self._values[1:])
            short |= self._right(mu, touching) < np.where(self._flat, highest, chord)
        return short

    def _right(self, mu: float, losses: FloatArray) -> FloatArray:
        """The right side of (1)."""
        return self._failure + (1 - self._failure) * GaussianFull(mu).divergence(losses)

    def _touching(self, mu: float, left: FloatArray, right: FloatArray) -> FloatArray:
        """Points at which the right side of (1) is as steep as the chord, or the ends that are closest to them."""
        # d/dt of the chord is -slope / exp(left), which may be too small for a number that is no logarithm.
        with np.errstate(divide="ignore", over="ignore"):
            slopes = np.log(self._slopes) - left - math.log1p(-self._failure)
            quantile = ndtri_exp(np.minimum(slopes, 0.0))
            inside = -mu * (mu / 2 + quantile)
        found: FloatArray = np.clip(inside, left, right)
        return found
