"""Whole local trainings of many clients at once, for any objective.

What a client computes is said in `objective.Objective.local_training`. Here it is done with one call of
``clipped_gradients`` a step, for all clients that still have steps; linear models have a compiled loop of their own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gossamer.arrays import FloatArray, IndexArray
from gossamer.data.examples import Split
from gossamer.errors import DataError, SpecError
from gossamer.objectives.asked import Differentiable, LocalUpdates, Training
from gossamer.objectives.local_updates import finish, mean_gradients

_Numbers = npt.NDArray[np.float64]


class PackedTrainings(NamedTuple):
    """Trainings of many clients, one behind the other.

    Attributes
    ----------
    steps : ndarray [width] of int64
        Number of steps of each client.
    lengths : ndarray [all steps] of int64
        Examples of each step.
    examples : ndarray [drawn] of int64
        Those of the first client's first step, of its second step, and so on.
    rates, momenta, proximals : ndarray [width] of float64
        Settings of each client.
    """

    steps: IndexArray
    lengths: IndexArray
    examples: IndexArray
    rates: _Numbers
    momenta: _Numbers
    proximals: _Numbers

    @classmethod
    def of(cls, trainings: Sequence[Training], count: int) -> PackedTrainings:
        """Pack ``trainings`` on ``count`` examples.

        Raises
        ------
        SpecError
            If a number is out of its range.
        DataError
            If batches do not fit each other or the examples.
        """
        for each in trainings:
            _check(each)
        batches = [each.batches for each in trainings]
        examples = _joined([each.examples for each in batches])
        if examples.size and not 0 <= examples.min() <= examples.max() < count:
            raise DataError(f"batch indices must be in 0..{count - 1}, found {examples.min()}..{examples.max()}")
        numbers = [(each.rate, each.momentum, each.proximal) for each in trainings]
        rates, momenta, proximals = np.array(numbers, np.float64).reshape(-1, 3).T.copy()
        steps = np.fromiter((len(each.lengths) for each in batches), np.int64, len(batches))
        return cls(steps, _joined([each.lengths for each in batches]), examples, rates, momenta, proximals)


def _check(training: Training) -> None:
    (examples, lengths), rate, momentum, proximal = training
    if not 0 < rate < math.inf:
        raise SpecError(f"rates must be positive and finite, found {rate!r}")
    if not 0 <= momentum < 1:
        raise SpecError(f"momentum lies in [0, 1), found {momentum!r}")
    if not 0 <= proximal < math.inf:
        raise SpecError(f"a proximal term is a finite number of at least 0, found {proximal!r}")
    if examples.ndim != 1 or lengths.ndim != 1:
        raise DataError(f"expected examples and lengths in rows, found {list(examples.shape)}, {list(lengths.shape)}")
    if (lengths < 1).any():
        raise DataError("a batch needs at least 1 example, found one of none")
    if lengths.sum() != examples.size:
        raise DataError(f"expected as many examples as batches are long, {lengths.sum()}, found {examples.size}")


def _joined(arrays: Sequence[IndexArray]) -> IndexArray:
    try:
        return np.concatenate((np.empty(0, np.int64), *arrays), dtype=np.int64, casting="same_kind")
    except TypeError:
        raise DataError(f"batches are whole numbers, found {np.result_type(*arrays)}") from None


def step_by_step(
    objective: Differentiable, models: FloatArray, data: Split, trainings: Sequence[Training]
) -> LocalUpdates:
    """`Objective.local_training` for any objective."""
    packed, width, limits = PackedTrainings.of(trainings, len(data)), len(trainings), np.finfo(objective.dtype)
    models = np.asarray(models, objective.dtype)
    if models.shape != (width, objective.size):
        raise DataError(f"expected models [{width}, {objective.size}], one a row, found {list(models.shape)}")
    totals, velocities = np.zeros((2, width, objective.size))
    not_finite = np.zeros(width, np.int64)
    batches = [np.split(each.batches.examples, np.cumsum(each.batches.lengths)[:-1]) for each in trainings]
    with np.errstate(over="ignore", invalid="ignore"):  # a step that is not finite is counted
        for step in range(packed.steps.max(initial=0)):
            running = [k for k in range(width) if step < packed.steps[k]]
            rows = [batches[k][step] for k in running]
            gradients = mean_gradients(objective, models[running] + totals[running], data, rows)
            for k, gradient in zip(running, gradients):
                gradient += packed.proximals[k] * totals[k]
                if np.isfinite(gradient).all():
                    velocities[k] = packed.momenta[k] * velocities[k] + gradient
                    totals[k] -= packed.rates[k] * velocities[k]
                else:
                    not_finite[k] += 1
        for total in totals:
            finish(total, math.inf, float(limits.max), float(limits.tiny))
    return LocalUpdates(totals.astype(objective.dtype), not_finite)
