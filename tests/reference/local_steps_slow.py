"""Local rounds as their definition says: one example after another, in float64, from any gradient."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from gossamer.objectives.objective import LocalRound

Gradient = Callable[[np.ndarray, int], np.ndarray]
"""(model [size], example) -> gradient [size] of the example's loss."""


class Slow(NamedTuple):
    """U [coordinates] of a round, and how many gradients were not finite."""

    total: np.ndarray
    zeroed: int


def clipped_share(gradient: np.ndarray, clip: float, first: int, step: int) -> np.ndarray | None:
    """``step`` times the gradient on every ``step``-th coordinate, at most ``clip`` long; None if not finite."""
    if not np.isfinite(gradient).all():
        return None
    share = step * gradient[first::step].astype(np.float64)
    norm = math.sqrt(sum(entry**2 for entry in share.tolist()))
    return share * (clip / norm) if norm > clip else share


def local_round(gradient: Gradient, given: LocalRound, l2: float) -> Slow:
    first, step = given.where.first, given.where.step
    model, total, zeroed = given.models[0].astype(np.float64), 0.0, 0
    for k, (example, rate) in enumerate(zip(given.examples.tolist(), given.rates.tolist())):
        for start, newer in zip(given.starts, given.models):
            if start == k:
                model = newer.astype(np.float64)
                model[first::step] -= given.unit * total
        share = clipped_share(gradient(model, example), given.clip, first, step)
        if share is None:
            zeroed, share = zeroed + 1, np.zeros(len(model[first::step]))
        move = share + step * l2 * model[first::step]
        total = total + rate / given.unit * move
        model[first::step] -= rate * move
    return Slow(total + np.zeros(len(model[first::step])), zeroed)
