"""The least mu with which Gaussian differential privacy, but for a failure probability, covers a whole plan.

Of a plan, fixed in advance, `accountants.quick_figures` bounds ``H(t) = sup_S P(S) - t Q(S)`` for t = exp(e) >= 1, in
both directions at once. Its outputs are no easier to tell apart than

    with probability f: which data set it is;    else: N(mu, 1) against N(0, 1)

if, at every real e and in both directions,

    H(t) <= f + (1-f) G(t),        G(t) = Phi(mu/2 - e/mu) - t Phi(-mu/2 - e/mu).                           (1)

**Losses below 0 need no look.** For t < 1 both sides follow from the other direction at 1/t: ``H(P||Q)(t) = 1 - t + t
H(Q||P)(1/t)``, the same holds for the pair on the right, which is symmetric, and the terms 1 - t cancel.

**Finitely many losses are enough.** (1) says that the profile ``max(0, H - f)/(1-f)`` is at most G. H is convex and
decreasing in t, so between losses at which bounds of it are known that profile lies below their chords, and from where
H is at most f on it is 0. The trade-off curve of such a polygon has finitely many corners, each of which asks for a mu
(`gossamer.privacy.profile`). Chords that ask for most are cut until that says nothing new.

The proof that sums of mu^2 and of f make a filter is in docs/decisions/budgets-over-runs.md.
"""

from __future__ import annotations

import math
from functools import cached_property, lru_cache

import numpy as np
from scipy.special import ndtri

from gossamer.privacy.accounting.accountant_table import pure_epsilon, row_of
from gossamer.privacy.accounting.accountants import LossFigures, quick_figures
from gossamer.privacy.accounting.renyi import check_delta
from gossamer.privacy.mechanisms import NeighboringRelation
from gossamer.privacy.profile import PrivacyProfile
from gossamer.privacy.releases import Counts, ReleaseKind, checked_counts

_FIRST, _RATIO = 12, 2**0.5  # losses looked at to begin with, and the ratio of neighbours
_LOOSE = 2e-3  # relative; by how much less mu is asked for once chords were cut, if it is worth another cut
_ROUNDS = 12
_MARGIN = 1e-9  # relative, on divergences
_SAFE = 1e-6  # relative, on mu
_LARGE = 600.0  # of an epsilon whose exponential is near overflow
_HIGHEST = 500.0  # more than this says next to nothing, with or without failures


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
        if end == 0 or not end < _HIGHEST:
            return math.inf if end else 0.0
        # Losses that other failures look at, too.
        highest = math.ceil(math.log(end, _RATIO))
        losses = {0.0, *(_RATIO ** (highest - step) for step in range(1, _FIRST))}
        least = math.inf
        for _ in range(_ROUNDS):
            at = np.array([*sorted(losses), end])
            found = np.array([*map(self._divergence, at[:-1].tolist()), failure]) * (1 + _MARGIN)
            found[-1] = failure  # from there on the bound is not needed
            curve = PrivacyProfile.of(at, np.maximum(found - failure, 0.0) / (1 - failure))
            alphas, hits = curve.corners
            with np.errstate(divide="ignore"):
                asked = ndtri(np.minimum(hits, 1.0)) - ndtri(alphas)
            before, least = least, float(np.max(asked, where=alphas > 0, initial=0.0))
            if least > before * (1 - _LOOSE):
                break
            middles = (np.array(curve.losses[:-1]) + curve.losses[1:]) / 2
            losses |= set(middles[asked > least * (1 - _LOOSE)].tolist())
        return least * (1 + _SAFE)


@lru_cache(maxsize=64)
def _curve(released: frozenset[tuple[ReleaseKind, int]], relation: NeighboringRelation) -> PlanCurve:
    return PlanCurve(dict(released), relation)
