"""Few profiles in place of many: releases of neighbouring rates are replaced by mixtures that dominate them.

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
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from gossamer.arrays import FloatArray
from gossamer.privacy.accounting.analytic import Profile

TOLERANCE = 5e-4
"""What merging may add to sum_i rate_i^2, relative to it. To second order epsilon grows by half of that."""
_LEVELS = 16  # how many different weights a cell keeps


class Group(NamedTuple):
    """Releases that are dominated by the pair ``upper`` with probability ``weight`` each, else by ``lower``."""

    lower: Profile
    upper: Profile
    weight: float
    releases: int


def merge(counts: Mapping[Profile, int], tolerance: float = TOLERANCE) -> list[Group]:
    """Groups that together dominate ``counts`` releases of each profile."""
    families: defaultdict[Hashable, list[Profile]] = defaultdict(list)
    for profile in counts:
        families[profile.family].append(profile)
    return [group for members in families.values() for group in _merge_family(members, counts, tolerance)]


def _merge_family(members: list[Profile], counts: Mapping[Profile, int], tolerance: float) -> Iterator[Group]:
    # The largest loss as well: the rates of very revealing responses round to the same number.
    members = sorted(members, key=lambda profile: (profile.rate, profile.largest(0.0)), reverse=True)
    rates = np.array([profile.rate for profile in members])
    numbers = np.array([counts[profile] for profile in members], dtype=np.float64)
    yield Group(members[0], members[0], 1.0, counts[members[0]])
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


def _levels(members: list[Profile], rates: FloatArray, numbers: FloatArray) -> Iterator[Group]:
    """Groups for all members of a cell but the first; the first and last are its ends."""
    upper, lower = members[0], members[-1]
    yield Group(lower, lower, 1.0, int(numbers[-1]))
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
        yield Group(lower, upper, -math.expm1(float(np.sum(surprises[chosen])) / number), int(number))
