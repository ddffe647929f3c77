"""Clipped gradients on some coordinates only, for any objective.

With ``D = where.step``, an example's share of a sum is ``clip(D * gradient[where])``: the clip comes after masking
and scaling, so that no example moves the sum by more than the clip.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gossamer.arrays import FloatArray, IndexArray
from gossamer.data.split import Split
from gossamer.errors import DataError
from gossamer.objectives.asked import Clip, Differentiable, clips_of
from gossamer.vectors import Coordinates

_NUMBERS = 2**23  # of per-example gradients that are held at once: 32 MiB in float32


class CoordinateSums(NamedTuple):
    """Sums of clipped per-example gradients, each on coordinates of its own.

    Attributes
    ----------
    sums : list of ndarray
        Of row k, [wheres[k].count(size)].
    zeroed, unclipped : ndarray [width] of int64
        As in `asked.Gradients`, and raw like those.
    """

    sums: list[FloatArray]
    zeroed: npt.NDArray[np.int64]
    unclipped: npt.NDArray[np.int64]


def clipped_on(
    objective: Differentiable,
    models: FloatArray,
    data: Split,
    batches: Sequence[IndexArray],
    clips: Clip,
    wheres: Sequence[Coordinates],
) -> CoordinateSums:
    """Sum over each batch of ``clip(D * gradient[where])``, in bounded memory.

    Rows of all coordinates are exactly what `Objective.clipped_gradients` gives for them. The others take every
    per-example gradient, some at a time; one with a component that is not finite counts as zero, wherever the
    component is.

    Parameters
    ----------
    objective : Differentiable
        What is differentiated.
    models : ndarray [width, size]
        Row k is the model at which batch k is evaluated.
    data : Split
        The training examples that the indices refer to.
    batches : sequence of ``width`` index arrays [batch_k] of int64
        May be empty and of different lengths.
    clips : float or ndarray [width]
        Most L2 norm of an example's share, positive; common to all rows or one for each.
    wheres : sequence of ``width`` Coordinates
        Each with its first coordinate below ``size``.

    Raises
    ------
    SpecError
        If a clip is not positive.
    DataError
        If the arguments do not fit each other.
    """
    limits = clips_of(clips, len(models))
    _check(objective, models, batches, wheres)
    sums: list[FloatArray] = [np.zeros(where.count(objective.size)) for where in wheres]
    zeroed, unclipped = np.zeros((2, len(wheres)), np.int64)
    if whole := [k for k, where in enumerate(wheres) if where.step == 1]:
        found = objective.clipped_gradients(models[whole], data, [batches[k] for k in whole], limits[whole])
        for k, total in zip(whole, found.sums):
            sums[k] = total
        zeroed[whole], unclipped[whole] = found.zeroed, found.unclipped
    most = float(np.finfo(objective.dtype).max)
    for k, gradient in _one_by_one(objective, models, data, batches, wheres):
        with np.errstate(over="ignore"):
            share = wheres[k].step * gradient[wheres[k].slice].astype(np.float64)
            norm = math.sqrt(np.square(share).sum())
        if not norm <= most:
            zeroed[k] += 1
            continue
        unclipped[k] += norm <= limits[k]
        sums[k] += share * min(1.0, limits[k] / norm) if norm > 0 else 0.0
    return CoordinateSums([total.astype(objective.dtype, copy=False) for total in sums], zeroed, unclipped)


def _one_by_one(
    objective: Differentiable,
    models: FloatArray,
    data: Split,
    batches: Sequence[IndexArray],
    wheres: Sequence[Coordinates],
) -> Iterator[tuple[int, FloatArray]]:
    """The row and the gradient [size] of each example of the rows that are masked; NaN for one that is not finite."""
    masked = [k for k, where in enumerate(wheres) if where.step > 1]
    rows = np.repeat(masked, [len(batches[k]) for k in masked])
    examples = [batches[k][i : i + 1] for k in masked for i in range(len(batches[k]))]
    at_once = max(1, _NUMBERS // objective.size)
    for start in range(0, len(rows), at_once):
        some = slice(start, start + at_once)
        found = objective.clipped_gradients(models[rows[some]], data, examples[some], math.inf)
        found.sums[found.zeroed > 0] = np.nan
        yield from zip(rows[some].tolist(), found.sums)


def _check(
    objective: Differentiable, models: FloatArray, batches: Sequence[IndexArray], wheres: Sequence[Coordinates]
) -> None:
    if not len(models) == len(batches) == len(wheres):
        raise DataError(
            f"expected a batch and coordinates for each of {len(models)} models, found {len(batches)} and {len(wheres)}"
        )
    beyond = [where for where in wheres if where.first >= objective.size]
    if beyond:
        raise DataError(f"coordinates of {objective.size} numbers start below {objective.size}, found {beyond[0]}")
