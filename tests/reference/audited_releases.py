"""Epsilon of *one* release, measured: many releases with and without a canary, through the real data side.

The canary's gradient has norm C or more, along the direction (1, ..., 1)/sqrt(d), in which the L1 norm is largest; all
other gradients are zero. The gradients are those of the squared loss ``(w x - y)^2 / 2`` at w = 0 and y = -1, which are
x, so sampling, clipping, summing and noise are the ones that every run uses.

Scores are rounded to a millionth of what the canary moves them by. Without that, an audit finds the rounding of
floating point: the last bits of ``0 + noise`` and of ``C + noise`` differ, and guarantees here do not cover them.

References
----------
Mironov, "On significance of the least significant bits for differential privacy", CCS 2012.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import numpy as np

from gossamer.arrays import FloatArray
from gossamer.attacks.audit import REPORTED, LowerBound, epsilon_from_runs
from gossamer.data.examples import Split
from gossamer.errors import SpecError
from gossamer.objectives.linear.model import LinearModel
from gossamer.privacy.mechanisms import BatchSampling, FixedSize, Laplace, Mechanism, NeighboringRelation, Poisson
from gossamer.privacy.tasks import Gradient, Query
from gossamer.sides.home import Simulated
from gossamer.sides.plan import Samples
from gossamer.sides.pool import open_pool
from gossamer.sides.samples import ShardRows
from gossamer.vectors import Public

Statistic = Literal["projection", "distance"]

_TOGETHER = 2**20  # numbers in the releases computed in one call
_OVER = 8.0  # the canary's gradient before clipping, in clips
_GRAIN = 1e-6  # of scores, in units of their range


def audit_release(
    mechanism: Mechanism,
    relation: NeighboringRelation,
    size: int,
    *,
    sampling: BatchSampling | None = None,
    statistic: Statistic = "projection",
    draws: int = 20_000,
    delta: float = 0.0,
    confidence: float = REPORTED,
    seed: int = 0,
) -> LowerBound:
    """A lower bound of the epsilon of one release of ``mechanism``, from independent releases.

    Parameters
    ----------
    mechanism : Mechanism
        Its clip must be finite.
    relation : NeighboringRelation
        Add or remove: the canary's slot is blank in the other data set. Replace: it holds the opposite gradient.
    size : int
        d, numbers in a release.
    sampling : BatchSampling, optional
        By default every example is in every batch.
    statistic : {"projection", "distance"}
        What is seen of a released sum s, with g and g' the canary's clipped gradients in the two data sets:
        ``projection`` is its inner product with g - g', on which a Gaussian's likelihood ratio depends; ``distance`` is
        ``|s - g'| - |s - g|`` (in L1 norm for `Laplace`), on which that of the Laplace laws does.
    draws : int
        Releases with the canary, and as many without.
    delta, confidence : float
        Of the bound.
    seed : int
        Of batches and noise.

    Raises
    ------
    SpecError
        If the clip is infinite, or ``sampling`` is for no data set.
    """
    if not math.isfinite(mechanism.clip):
        raise SpecError("a mechanism without a clip has no worst case; give it a finite clip")
    relation = NeighboringRelation(relation)
    sampling = Poisson(1.0) if sampling is None else sampling
    grain = _GRAIN * relation.sensitivity(mechanism.clip)
    direction = np.full(size, 1 / math.sqrt(size))
    present = mechanism.clip * direction
    absent = -present if relation is NeighboringRelation.REPLACE_ONE else 0 * present
    score = _score(mechanism, statistic, present, absent)
    slots = sampling.dataset_size if isinstance(sampling, FixedSize) else 1
    scores = []
    for name, gradient in (("with", present), ("without", absent)):
        released = _sums(mechanism, sampling, gradient, slots, draws, (seed, name))
        scores.append(np.round(np.concatenate([score(sums) for sums in released]) / grain))
    return epsilon_from_runs(scores[0], scores[1], delta, relation, confidence)


def _score(
    mechanism: Mechanism, statistic: Statistic, present: FloatArray, absent: FloatArray
) -> Callable[[FloatArray], FloatArray]:
    if statistic == "projection":
        towards = (present - absent) / np.linalg.norm(present - absent)
        return lambda sums: np.asarray(sums @ towards)
    order = 1 if isinstance(mechanism, Laplace) else 2

    def distances(sums: FloatArray) -> FloatArray:
        found = [np.linalg.norm(sums - gradient, ord=order, axis=1) for gradient in (absent, present)]
        return np.asarray(found[0] - found[1])

    return distances


def _sums(
    mechanism: Mechanism, sampling: BatchSampling, gradient: FloatArray, slots: int, draws: int, key: tuple[int, str]
) -> list[FloatArray]:
    """Noisy sums of the gradients of a shard of ``slots``, of which the first holds the canary, [some, size] each."""
    seed, owner = key
    features = np.zeros((slots, gradient.size), np.float32)
    features[0] = _OVER * gradient
    data = Split(features, np.full(slots, -1.0, np.float32))
    objective = LinearModel("squared", gradient.size, None, intercept=False, dtype=np.float64)
    plans = {owner: Samples({}, enforced=False)}
    sides = open_pool(plans, {owner: ShardRows(np.arange(slots))}, objective, data, Simulated(seed))
    task = Gradient(0, Public(np.zeros(gradient.size)), Query(sampling, mechanism, 1.0))
    found: list[FloatArray] = []
    step = max(1, _TOGETHER // gradient.size)
    for start in range(0, draws, step):
        tickets = [sides.admit(owner, task) for _ in range(min(step, draws - start))]
        found.append(np.stack([np.asarray(answer.released.values) for answer in sides.compute(tickets)]))
    return found
