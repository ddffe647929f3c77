"""Local mini-batch SGD of many agents at once, for any objective.

What an agent computes is said in `objective.Objective.local_updates`. Here it is done with one call of
``clipped_gradients`` a step, for all agents that still have steps; linear models have a compiled loop of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gossamer.arrays import FloatArray, IndexArray
from gossamer.data.examples import Split
from gossamer.errors import DataError, SpecError
from gossamer.objectives.asked import Differentiable, LocalUpdates, clips_of

__all__ = ["LocalUpdates", "Ragged", "checked", "finish", "mean_gradients", "step_by_step"]

_Numbers = npt.NDArray[np.float64]


class Ragged(NamedTuple):
    """Mini-batches of different numbers and lengths, one behind the other.

    Attributes
    ----------
    shapes : ndarray [width, 2] of int64
        Steps of each agent, and examples in each of its steps.
    rows : ndarray [packed] of int64
        The examples of the first agent's first step, of its second step, and so on.
    """

    shapes: IndexArray
    rows: IndexArray


def checked(
    batches: Sequence[IndexArray], rates: _Numbers, clips: _Numbers, count: int
) -> tuple[Ragged, _Numbers, _Numbers]:
    """The arguments of `Objective.local_updates` as arrays of the documented types, for ``count`` examples.

    Raises
    ------
    SpecError
        If a clip or rate is not positive, or a rate not finite.
    DataError
        If they do not fit each other or the examples.
    """
    width = len(batches)
    clips, rates = clips_of(clips, width), np.ascontiguousarray(rates, np.float64)
    if rates.shape != (width,):
        raise DataError(f"expected rates [{width}], one for each model, found {list(rates.shape)}")
    ragged = _packed(batches)
    if not width:
        return ragged, rates, clips
    if not (rates.min() > 0 and rates.max() < math.inf):
        wrong = rates[~((rates > 0) & (rates < math.inf))]
        raise SpecError(f"rates must be positive and finite, found {wrong[0]:g}")
    if ragged.rows.size and not 0 <= ragged.rows.min() <= ragged.rows.max() < count:
        raise DataError(f"batch indices must be in 0..{count - 1}, found {ragged.rows.min()}..{ragged.rows.max()}")
    return ragged, rates, clips


def _packed(batches: Sequence[IndexArray]) -> Ragged:
    width, found = len(batches), [batch.shape for batch in batches]
    if not set(map(len, found)) <= {2}:
        wrong = next(shape for shape in found if len(shape) != 2)
        raise DataError(f"expected batches [steps, examples], found one of {list(wrong)}")
    shapes = np.fromiter(chain.from_iterable(found), np.int64, 2 * width).reshape(width, 2)
    if (shapes[:, 1] < np.minimum(shapes[:, 0], 1)).any():
        raise DataError("a batch needs at least 1 example, found one of none")
    flat = (shapes.ravel()[:0], *[batch.ravel() for batch in batches])
    try:
        rows = np.concatenate(flat, dtype=np.int64, casting="same_kind")
    except TypeError:
        raise DataError(f"batches are whole numbers, found {np.result_type(*flat)}") from None
    return Ragged(shapes, rows)


def step_by_step(
    objective: Differentiable,
    models: FloatArray,
    data: Split,
    batches: Sequence[IndexArray],
    rates: _Numbers,
    clips: _Numbers,
) -> LocalUpdates:
    """`Objective.local_updates` for any objective."""
    (shapes, _), rates, clips = checked(batches, rates, clips, len(data))
    width, limits = len(batches), np.finfo(objective.dtype)
    most, tiny = float(limits.max), float(limits.tiny)
    models = np.asarray(models, objective.dtype)
    if models.shape != (width, objective.size):
        raise DataError(f"expected models [{width}, {objective.size}], one a row, found {list(models.shape)}")
    totals, not_finite = np.zeros((width, objective.size)), np.zeros(width, np.int64)
    paces = rates / np.maximum(shapes[:, 0], 1)
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is counted
        for step in range(shapes[:, 0].max(initial=0)):
            running = [k for k in range(width) if step < shapes[k, 0]]
            rows = [batches[k][step] for k in running]
            places = models[running] + totals[running]
            for k, gradient in zip(running, mean_gradients(objective, places, data, rows)):
                norm = _norm(gradient)
                _move(totals[k], models[k], gradient, norm, paces[k], clips[k], most)
                not_finite[k] += not norm < math.inf
        for total, bound in zip(totals, rates * clips):
            finish(total, bound, most, tiny)
    return LocalUpdates(totals.astype(objective.dtype), not_finite)


def mean_gradients(
    objective: Differentiable, places: _Numbers, data: Split, rows: Sequence[IndexArray]
) -> Iterator[_Numbers]:
    """The mean gradient [size] at each of ``places`` with the L2 term; NaN where it is not finite."""
    models = places.astype(objective.dtype)
    found = objective.clipped_gradients(models, data, rows, math.inf)
    for place, model, total, zeroed, examples in zip(places, models, found.sums, found.zeroed, rows):
        sound = not zeroed and np.isfinite(model).all()
        yield total / np.float64(len(examples)) + objective.l2 * place if sound else np.full(len(total), np.nan)


def _move(
    total: _Numbers, start: FloatArray, gradient: _Numbers, norm: float, pace: float, clip: float, most: float
) -> None:
    """Take one step, which changes ``total``; without a clip ``start + total`` stops at ``most``."""
    if norm < math.inf:
        total -= pace * (gradient if norm <= clip else clip / norm * gradient)
    if clip == math.inf:
        place = start + total
        stopped = ~((norm < math.inf) & (np.abs(place) <= most))
        total[stopped] = np.where(place < 0, -most, most)[stopped] - start[stopped]


def finish(total: _Numbers, bound: float, most: float, tiny: float) -> None:
    """Make ``total`` at most ``bound`` long, whatever rounding did, and of numbers that its dtype holds."""
    norm = _norm(total)
    if norm > bound:
        total *= bound / norm
    total[np.isnan(total)] = most
    np.clip(total, -most, most, out=total)
    total[np.abs(total) < tiny] = 0  # a subnormal number may be rounded up by half of itself


def _norm(vector: _Numbers) -> float:
    """The L2 norm, where squares overflow or vanish too; not finite where an entry is not."""
    peak = float(np.abs(vector).max(initial=0))
    return peak * math.sqrt(np.square(vector / peak).sum()) if 0 < peak < math.inf else peak
