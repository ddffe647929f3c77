"""Figures of releases together, by their privacy losses: an epsilon for a delta, or a delta for an epsilon.

Of a single release the divergence is known in closed form. Of more, losses are discretised (`discretisation`) and
composed (`composition`), as `tuning` chooses. The two directions of a pair, P from Q and Q from P, are
composed separately, and the larger figure counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq

from gossamer.arrays import FloatArray
from gossamer.privacy.accounting.analytic import TOLERANCE, Profile, ReleaseGroup
from gossamer.privacy.accounting.tuning import (
    Releases,
    proved_delta,
    proved_epsilon,
    quick_bound,
    quick_delta,
    quick_epsilon,
)

_OfMany = Callable[[Releases, float], float]


class Precision(NamedTuple):
    """Functions by which figures of many releases are found.

    Attributes
    ----------
    epsilon, delta : callable
        An epsilon for a delta, and a delta for an epsilon.
    merging : float
        Relative excess that merging kinds of releases may add (`analytic.TOLERANCE`).
    """

    epsilon: _OfMany
    delta: _OfMany
    merging: float


FINE = Precision(proved_epsilon, proved_delta, TOLERANCE)
QUICK = Precision(quick_epsilon, quick_delta, 10 * TOLERANCE)
"""Upper bounds as well, in a fraction of the time: deltas may be 1 % larger, and epsilons of many rates 0.25 %."""

_SUMS = 8  # Fourier sums that bound the deltas of many losses
_ROUNDING = 1e-10  # relative, on divergences: far more than their formulas lose
_SAFE = 1e-7  # the same, on epsilons


@dataclass(frozen=True)
class Composition:
    """Releases composed: what (epsilon, delta) they satisfy together.

    Attributes
    ----------
    groups : sequence of ReleaseGroup
        Groups of releases, at least one.
    precision : Precision
        Functions for its figures; by default as close as can be.
    """

    groups: Sequence[ReleaseGroup]
    precision: Precision = FINE

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon >= 0 that is proved here at ``delta``; infinite where there is none."""
        found, *others = self._directions()
        epsilon = _epsilon(found, delta, self.precision.epsilon)
        for other in others:
            if epsilon < math.inf and _exceeds(other, epsilon, delta):
                epsilon = max(epsilon, _epsilon(other, delta, self.precision.epsilon))
        return epsilon

    def delta(self, epsilon: float) -> float:
        """The smallest delta that is proved here for ``epsilon`` >= 0."""
        found, *others = self._directions()
        delta = _delta(found, epsilon, self.precision.delta)
        for other in others:
            quick = _delta(other, epsilon, quick_delta)
            if quick > delta:
                delta = max(delta, quick if self.precision is QUICK else _delta(other, epsilon, self.precision.delta))
        return delta

    def deltas(self, losses: FloatArray) -> FloatArray:
        """Deltas proved for many ``losses``, 0 or more and increasing: at most some percent larger than the least."""
        found: FloatArray = np.max([_deltas(groups, losses) for groups in self._directions()], axis=0)
        return found

    def _directions(self) -> list[Sequence[ReleaseGroup]]:
        if all(profile.symmetric for group in self.groups for profile in group[:2]):
            return [self.groups]
        return [
            self.groups,
            [ReleaseGroup(Turned(g.lower), Turned(g.upper), g.weight, g.releases) for g in self.groups],
        ]


@dataclass(frozen=True)
class Turned:
    """The pair (Q, P) for the pair (P, Q)."""

    profile: Profile
    symmetric = False

    @property
    def rate(self) -> float:
        return self.profile.rate

    @property
    def family(self) -> Hashable:
        return type(self), self.profile.family

    def forward(self, losses: FloatArray) -> FloatArray:
        return self.profile.backward(losses)

    def backward(self, losses: FloatArray) -> FloatArray:
        return self.profile.forward(losses)

    def largest(self, tail: float) -> tuple[float, float]:
        ahead, back = self.profile.largest(tail)
        return back, ahead


def _epsilon(groups: Sequence[ReleaseGroup], delta: float, of_many: _OfMany) -> float:
    if sum_of_divergences(groups, 0.0) <= delta:
        return 0.0
    if sum(group.releases for group in groups) > 1:
        return of_many(Releases(groups), delta)
    highest = max(profile.largest(delta)[0] for profile in groups[0][:2])
    return _least(lambda e: sum_of_divergences(groups, e) - delta, highest) * (1 + _SAFE)


def _exceeds(groups: Sequence[ReleaseGroup], epsilon: float, delta: float) -> bool:
    """Whether no delta of at most ``delta`` is found quickly for ``epsilon``."""
    return sum_of_divergences(groups, 0.0) > delta and _delta(groups, epsilon, quick_delta) > delta


def _delta(groups: Sequence[ReleaseGroup], epsilon: float, of_many: _OfMany) -> float:
    if sum(group.releases for group in groups) > 1:
        return of_many(Releases(groups), epsilon)
    return min(sum_of_divergences(groups, epsilon), 1.0)


def _deltas(groups: Sequence[ReleaseGroup], losses: FloatArray) -> FloatArray:
    """The same in one direction: each Fourier sum bounds the losses around the one that it was taken for."""
    if sum(group.releases for group in groups) == 1:
        return np.array([min(sum_of_divergences(groups, float(loss)), 1.0) for loss in losses])
    releases = Releases(groups)
    middles = losses[np.linspace(0, losses.size - 1, _SUMS).round().astype(int)]
    found = np.ones(losses.size)
    for before, middle, after in zip([0.0, *middles[:-1]], middles, [*middles[1:], math.inf], strict=True):
        bound = quick_bound(releases, float(middle))
        near = (before <= losses) & (losses <= after)
        found[near] = np.minimum(found[near], [bound.delta(float(loss)) for loss in losses[near]])
    found[0] = min(found[0], sum_of_divergences(groups, float(losses[0])))
    return found


def sum_of_divergences(groups: Sequence[ReleaseGroup], epsilon: float) -> float:
    """The sum of the releases' divergences at ``epsilon``, from above.

    Of a single release it is the divergence, and at 0 it is never below that of all releases together.
    """
    at = np.array([epsilon])
    total = math.fsum(
        group.releases * weight * float(profile.forward(at)[0])
        for group in groups
        for profile, weight in ((group.lower, 1 - group.weight), (group.upper, group.weight))
    )
    return total * (1 + _ROUNDING)


def _least(falling: Callable[[float], float], high: float) -> float:
    """The least number >= 0 at which ``falling`` is not above 0, rounded up; or ``high``, if it is above 0 before."""
    if falling(0.0) <= 0:
        return 0.0
    if falling(high) >= 0:
        return high
    found = float(brentq(falling, 0.0, high, xtol=1e-300, rtol=1e-13))
    while falling(found) > 0:
        found *= 1 + 1e-12
    return min(found, high)
