"""Distances that answers of two data sides may have, of neighbouring data and with equal coins: sensitivities.

Each plan says it of its answers (`side_plan.SidePlan.apart`); audits hold answers against it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from gossamer.privacy.mechanisms import NeighboringRelation
from gossamer.privacy.sampling import Sampling
from gossamer.privacy.tasks import Query


class Apart(NamedTuple):
    """Distance that two answers may have, but for rounding.

    Attributes
    ----------
    most : float
        The L2 distance: of sums with a ``query`` for a clip of 1, of all else in the answer's own numbers; infinite
        where nothing bounds it.
    query : Query or None
        Clip, noise, and what is done after it, of a noisy sum.
    examples : int
        Most vectors that are added up, but for a chance of e^-45.
    noisy : bool
        Whether noise is to hide what is apart.
    adds : bool
        Whether each answer may be so much further apart than the one before it.
    """

    most: float
    query: Query | None = None
    examples: int = 1
    noisy: bool = True
    adds: bool = False


def of_sum(query: Query, relation: NeighboringRelation, examples: int = 1, *, proved: bool = True) -> Apart:
    """Return it for sums with the clip and noise of ``query``; without a bound unless one is ``proved``."""
    law = query.mechanism
    bounded = proved and math.isfinite(law.clip)
    most = law.with_clip(1.0).sensitivity(relation) if bounded else math.inf
    return Apart(most, query, examples, noisy=law.private)


def most_drawn(sampling: Sampling, shard: int) -> int:
    """Most examples that are drawn of a shard, but for a chance of e^-45.

    Of independent draws with mean m there are 2 m + 40 or more with a chance of at most exp(-t^2 / (2 m + 2 t/3)), with
    t = m + 40, by Bernstein's inequality; that is exp(-3/8 (m + 40)^2 / (m + 10)), and largest for m = 20.
    """
    return min(shard, math.ceil(2 * sampling.rate * shard) + 40)
