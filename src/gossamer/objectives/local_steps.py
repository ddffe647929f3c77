"""Local rounds of any objective, one call of its `clipped_gradients` a step for all rounds that still run.

What a round is, and what it computes, is said in `asked.LocalRound` and `objective.Objective.local_steps`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gossamer.arrays import FloatArray, IndexArray
from gossamer.data.examples import Split
from gossamer.errors import DataError, SpecError
from gossamer.objectives.questions import Clip, Differentiable, LocalRound, LocalSums, clips_of
from gossamer.vectors import Coordinates

# With ``D = where.step``, an example's share of a sum is ``clip(D * gradient[where])``: the clip comes after masking
# and scaling, so that no example moves the sum by more than the clip.

_NUMBERS = 2**23  # of per-example gradients that are held at once: 32 MiB in float32


class CoordinateSums(NamedTuple):
    """Sums of clipped per-example gradients, each on coordinates of its own.

    Attributes
    ----------
    sums : list of ndarray
        Sum of each row k, [wheres[k].count(size)].
    zeroed, unclipped : ndarray [width] of int64
        Numbers as in `asked.Gradients`, and raw like those.
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
        Objective that is differentiated.
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


def step_by_step(objective: Differentiable, rounds: Sequence[LocalRound], data: Split) -> LocalSums:
    """`Objective.local_steps` for any objective.

    The sums are accumulated in float64, so that the model of each step is rounded once.
    """
    rounds = [checked(each, objective.size, len(data)) for each in rounds]
    sums: list[FloatArray] = [np.zeros(each.where.count(objective.size)) for each in rounds]
    zeroed = np.zeros(len(rounds), np.int64)
    with np.errstate(over="ignore", invalid="ignore"):  # a model that is no longer finite has zeroed gradients
        for step in range(max((len(each.examples) for each in rounds), default=0)):
            running = [k for k, each in enumerate(rounds) if step < len(each.examples)]
            some = [rounds[k] for k in running]
            models = np.stack([_model(rounds[k], sums[k], step, objective.dtype) for k in running])
            wheres = [each.where for each in some]
            examples = [each.examples[step : step + 1] for each in some]
            clips = np.array([each.clip for each in some])
            found = clipped_on(objective, models, data, examples, clips, wheres)
            zeroed[running] += found.zeroed
            for k, each, model, gradient in zip(running, some, models, found.sums):
                move = gradient.astype(np.float64)
                if objective.l2 > 0:  # zero times what is not finite would be no zero
                    move += each.where.step * objective.l2 * model[each.where.slice]
                sums[k] += each.rates[step] / each.unit * move
        return LocalSums([total.astype(objective.dtype) for total in sums], zeroed)


def checked(given: LocalRound, size: int, count: int) -> LocalRound:
    """``given`` with arrays of the documented types, for a model of ``size`` numbers and ``count`` examples.

    Raises
    ------
    SpecError
        If a clip, unit or step size is not positive, or a unit or step size not finite.
    DataError
        If the arrays do not fit each other, the model or the examples.
    """
    models, starts, examples, rates = arrays_of(given, size)
    steps = len(examples)
    if starts[0] != 0 or starts[-1] > steps or (starts[1:] < starts[:-1]).any():
        raise _wrong_starts(starts, len(models), steps)
    if steps and not (rates.min() > 0 and rates.max() < math.inf):
        wrong = rates[~((rates > 0) & (rates < math.inf))]
        raise SpecError(f"step sizes must be positive and finite, found {wrong[0]:g}")
    if steps and not 0 <= examples.min() <= examples.max() < count:
        raise DataError(f"a round's examples must be in 0..{count - 1}, found {examples.min()}..{examples.max()}")
    return given._replace(models=models, starts=starts, examples=examples, rates=rates)


def arrays_of(
    given: LocalRound, size: int, dtype: np.dtype[Any] | None = None
) -> tuple[FloatArray, IndexArray, IndexArray, npt.NDArray[np.float64]]:
    """The first four fields, contiguous and of the documented types and shapes; their entries are not looked at.

    Raises
    ------
    SpecError, DataError
        As `checked`, for anything but the entries of arrays.
    """
    models, rates = np.ascontiguousarray(given.models, dtype), np.ascontiguousarray(given.rates, np.float64)
    starts, examples = _indices("starts", given.starts), _indices("examples", given.examples)
    steps = len(examples)
    if not given.clip > 0:
        raise SpecError(f"every clip must be a positive number, found {given.clip:g}")
    if not 0 < given.unit < math.inf:
        raise SpecError(f"a round's unit is a positive finite step size, found {given.unit:g}")
    if models.ndim != 2 or models.shape[1] != size or not len(models):
        raise DataError(f"a round needs models [segments, {size}], at least one, found {list(models.shape)}")
    if len(starts) != len(models):
        raise _wrong_starts(starts, len(models), steps)
    if rates.shape != (steps,):
        raise DataError(f"a round of {steps} examples needs as many step sizes, found {list(rates.shape)}")
    if given.where.first >= size:
        raise DataError(f"coordinates of {size} numbers start below {size}, found {given.where}")
    return models, starts, examples, rates


def _wrong_starts(starts: IndexArray, models: int, steps: int) -> DataError:
    return DataError(
        f"starts of {models} models in a round of {steps} steps must rise from 0 to at most {steps}, one a "
        f"model, found {starts.tolist()[:8]}"
    )


def _indices(name: str, given: npt.ArrayLike) -> IndexArray:
    array = np.asarray(given)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise DataError(f"a round's {name} are whole numbers in one row, found {list(array.shape)} of {array.dtype}")
    return np.ascontiguousarray(array, np.int64)


def _model(of: LocalRound, total: FloatArray, step: int, dtype: np.dtype[np.floating]) -> FloatArray:
    """The model [size] at which the example of ``step`` is evaluated."""
    last = np.searchsorted(of.starts, step, side="right") - 1
    model: FloatArray = of.models[last].astype(np.float64)
    model[of.where.slice] -= of.unit * total
    return model.astype(dtype, copy=False)
