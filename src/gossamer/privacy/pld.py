"""Privacy loss distributions of single releases, discretised from above.

A release's dominating pair (see `analytic`) is replaced by a discrete pair whose losses are multiples of an interval
and whose hockey-stick curve joins points of the exact curve by chords, in exp(loss): it is never below the exact one
[1]. Products of such pairs dominate the composition, so every epsilon and delta computed from them is an upper bound.

References
----------
[1] Doroshenko, Ghazi, Kamath, Kumar and Manurangsi, "Connect the dots: tighter discrete approximations of privacy
    loss distributions", PoPETs 2022, algorithm 1 and theorem 3.1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.integrate import trapezoid

from gossamer.privacy.analytic import Profile
from gossamer.privacy.composition import ComposedLoss, Masses, Terms
from gossamer.privacy.mixtures import Group

FloatArray = npt.NDArray[np.float64]

_RESOLUTION, _LEAST_RESOLUTION = 32, 4  # intervals per typical privacy loss of one release: wanted, and at least
_COARSEST = 0.02  # largest interval, unless the losses of all releases together are larger than this many intervals:
_MOST_TYPICAL = 2**12
_FINEST = 2e-5  # smallest interval, unless that leaves too few per typical loss
_MOST_LOSSES = 2**19  # on either side of one release, whatever the interval is then
_TAIL = 1e-6  # share of delta that may go to losses too large to be represented


@dataclass(frozen=True)
class Composition:
    """Releases composed: what (epsilon, delta) they satisfy together.

    Attributes
    ----------
    groups : sequence of Group
        At least one.
    """

    groups: Sequence[Group]

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon >= 0 that is proved here at ``delta``; infinite where there is none."""
        return max(loss.epsilon(delta) for loss in self._directions(_TAIL * delta))

    def delta(self, epsilon: float) -> float:
        """The smallest delta that is proved here for ``epsilon`` >= 0."""
        return max(loss.delta(epsilon) for loss in self._directions(1e-40))

    def _directions(self, tail: float) -> list[ComposedLoss]:
        profiles = list(dict.fromkeys(profile for group in self.groups for profile in group[:2]))
        releases = sum(group.releases for group in self.groups)
        interval, spread = choose_interval(self.groups, max(max(p.largest(tail / releases)) for p in profiles))
        discrete = [discretise(profile, interval, tail / releases) for profile in profiles]
        position = {profile: index for index, profile in enumerate(profiles)}
        terms = [Terms(position[lower], position[upper], weight, count) for lower, upper, weight, count in self.groups]
        sides = 1 if all(profile.symmetric for profile in profiles) else 2
        return [ComposedLoss([pair[side] for pair in discrete], terms, interval, spread) for side in range(sides)]


def choose_interval(groups: Sequence[Group], largest: float) -> tuple[float, float]:
    """An interval well below the typical privacy loss of one release, and the typical loss of all together.

    ``largest`` is the largest loss that has to be represented.

    Chords add at most interval^2 / 4 to the variance of one loss, which is about twice its mean. Powers of two make
    the grids nested: releases that reveal less get the same grid or a finer one, hence no larger epsilon.
    """
    means = {profile: relative_entropy(profile) for profile in {side for group in groups for side in group[:2]}}
    total = sum(
        group.releases * ((1 - group.weight) * means[group.lower] + group.weight * means[group.upper])
        for group in groups
    )
    spread = math.sqrt(2 * total) + 1e-12
    typical = spread / math.sqrt(sum(group.releases for group in groups))
    wanted = min(typical / _RESOLUTION, max(_COARSEST, spread / _MOST_TYPICAL))
    wanted = min(max(wanted, _FINEST), typical / _LEAST_RESOLUTION)
    doublings = max(math.floor(math.log2(wanted / _FINEST)), math.ceil(math.log2(largest / _MOST_LOSSES / _FINEST)))
    return _FINEST * 2.0**doublings, spread


def relative_entropy(profile: Profile) -> float:
    """The mean privacy loss of one release, roughly: ``int_0^inf H(P||Q)(e) + exp(-e) H(Q||P)(e) de``."""
    top = max(profile.largest(1e-12))
    losses = np.concatenate([[0.0], np.geomspace(1e-7 * top, top, 300)])
    values = profile.forward(losses) + np.exp(-losses) * profile.backward(losses)
    return float(trapezoid(values, losses))


def discretise(profile: Profile, interval: float, tail: float) -> tuple[Masses, Masses]:
    """The loss log(P/Q) under P, and log(Q/P) under Q, of a discrete pair that dominates the profile's.

    Only divergences at losses >= 0 are used, where they are small and hence exact: the mass that P has at a negative
    loss -e is exp(-e) times the mass that Q has at the loss e of the reverse.

    Parameters
    ----------
    profile : Profile
        Of one release.
    interval : float
        Between neighbouring losses.
    tail : float
        Most probability that may be counted as an infinite loss.
    """
    curves = [
        np.minimum.accumulate(divergence(interval * np.arange(max(math.ceil(largest / interval), 1) + 1.0)))
        for divergence, largest in zip((profile.forward, profile.backward), profile.largest(tail))
    ]
    shrunk = math.exp(-interval) / -math.expm1(-interval)
    centre = 1.0 - curves[0][0] - shrunk * sum(curve[0] - curve[1] for curve in curves)
    ahead, back = (_masses_above(curve, interval) for curve in curves)
    return _join(back, centre, ahead, curves[0][-1], interval), _join(ahead, centre, back, curves[1][-1], interval)


def _masses_above(curve: FloatArray, interval: float) -> FloatArray:
    """Masses at the losses interval, 2 interval, ... of the chords of ``curve`` at 0, interval, ..."""
    drops = -np.diff(curve)
    masses = (drops - math.exp(-interval) * np.append(drops[1:], 0.0)) / -math.expm1(-interval)
    return np.maximum(masses, 0.0)


def _join(reverse: FloatArray, centre: float, above: FloatArray, infinite: float, interval: float) -> Masses:
    below = reverse * np.exp(-interval * np.arange(1, reverse.size + 1))
    return Masses(-reverse.size, np.concatenate([below[::-1], [max(centre, 0.0)], above]), float(infinite))
