"""Epsilon of noise on a grid, with its remainder spent from delta: the proof in `gossamer.privacy.exact.grid_noise`."""

from __future__ import annotations

import math
from collections.abc import Mapping

from gossamer.privacy.accounting.accountants import Accounted, epsilon
from gossamer.privacy.accounting.renyi import check_delta
from gossamer.privacy.exact.grid_noise import DISTANCE, SMOOTHING, GridGaussian, smoothing_error
from gossamer.privacy.mechanisms import BatchSampling, NeighboringRelation, ReleaseKind

_UP = 1 + 1e-12  # more than the rounding of a few operations


def grid_epsilon(
    counts: Mapping[tuple[GridGaussian, BatchSampling], int], delta: float, relation: NeighboringRelation
) -> Accounted:
    """The smallest epsilon proved for so many releases of each noise on samples of each kind, fixed in advance.

    Parameters
    ----------
    counts : mapping of (GridGaussian, BatchSampling) to int
        How many releases of each.
    delta : float
        In (0, 1).
    relation : NeighboringRelation
        Which data sets count as neighbours.

    Returns
    -------
    Accounted
        With an infinite epsilon where delta is less than what the samplers' own errors need.

    Raises
    ------
    AccountingError
        If a combination is not accounted for, a count is no number of releases, or delta is not inside (0, 1).
    """
    check_delta(delta)
    kinds: dict[ReleaseKind, int] = {}
    for (noise, sampling), count in counts.items():
        kind = ReleaseKind(noise.equivalent.unit(), sampling, noise.size)
        kinds[kind] = kinds.get(kind, 0) + count
    part = delta * (1 - 1e-9)
    continuous = epsilon(kinds, part, relation)
    draws = sum(kind.size * count for kind, count in kinds.items())
    eta = draws * smoothing_error(SMOOTHING)
    bound = (continuous.epsilon + 2 * eta) * _UP
    # delta has to cover exp(eta) part and the distance of the drawn laws from the exact ones.
    distance = (1 + math.exp(min(bound, 700.0))) * draws * DISTANCE
    covered = math.expm1(min(eta, 1.0)) * part + distance <= delta - part
    return Accounted(bound if covered else math.inf, f"{continuous.accountant}; discrete Gaussian on a grid")
