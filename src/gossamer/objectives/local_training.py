"""Mini-batch SGD of many agents at once, each from a model of its own, for any objective.

What an agent computes is said in `objective.Objective.local_updates` (clipped steps) and `local_training` (steps with
momentum). Both are one `Descent`; here it is done with one call of ``clipped_gradients`` a step, for all agents that
still have steps. Linear models and compiled networks have loops of their own (`linear.updates`).
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
from gossamer.objectives.questions import Differentiable, LocalUpdates, Training, clips_of

_Numbers = npt.NDArray[np.float64]


class Descent(NamedTuple):
    """Steps of many agents, one behind the other.

    Attributes
    ----------
    steps : ndarray [width] of int64
        Number of steps of each agent.
    lengths : ndarray [all steps] of int64
        Number of examples of each step.
    examples : ndarray [drawn] of int64
        Examples of the first agent's first step, of its second step, and so on.
    rates : ndarray [width] of float64
        Size of each agent's steps.
    settings : tuple of ndarray [width] of float64
        Either the clips of mean gradients, or momenta and strengths of proximal terms.
    bounds : ndarray [width] of float64
        Most L2 norm of each agent's update.
    """

    steps: IndexArray
    lengths: IndexArray
    examples: IndexArray
    rates: _Numbers
    settings: tuple[_Numbers, ...]
    bounds: _Numbers


def clipped_descent(batches: Sequence[IndexArray], rates: _Numbers, clips: _Numbers, count: int) -> Descent:
    """The steps that `Objective.local_updates` is asked for, of ``count`` examples.

    Raises
    ------
    SpecError
        If a clip or rate is not positive, or a rate not finite.
    DataError
        If the arguments do not fit each other or the examples.
    """
    width, shapes = len(batches), [batch.shape for batch in batches]
    clips, rates = clips_of(clips, width), np.ascontiguousarray(rates, np.float64)
    if rates.shape != (width,):
        raise DataError(f"expected rates [{width}], one for each model, found {list(rates.shape)}")
    if wrong := [shape for shape in shapes if len(shape) != 2]:
        raise DataError(f"expected batches [steps, examples], found one of {list(wrong[0])}")
    steps, lengths = np.fromiter(chain.from_iterable(shapes), np.int64, 2 * width).reshape(width, 2).T.copy()
    _check_rates(rates)
    examples = _joined([batch.ravel() for batch in batches], count)
    every = _checked_lengths(np.repeat(lengths, steps))
    return Descent(steps, every, examples, rates / np.maximum(steps, 1), (clips,), rates * clips)


def momentum_descent(trainings: Sequence[Training], count: int) -> Descent:
    """The steps that `Objective.local_training` is asked for, of ``count`` examples.

    Raises
    ------
    SpecError
        If a number is out of its range.
    DataError
        If batches do not fit each other or the examples.
    """
    for (drawn, lengths), _, momentum, proximal in trainings:
        if not 0 <= momentum < 1:
            raise SpecError(f"momentum lies in [0, 1), found {momentum!r}")
        if not 0 <= proximal < math.inf:
            raise SpecError(f"a proximal term is a finite number of at least 0, found {proximal!r}")
        if drawn.ndim != 1 or lengths.ndim != 1:
            raise DataError(f"expected examples and lengths in rows, found {list(drawn.shape)}, {list(lengths.shape)}")
        if lengths.sum() != drawn.size:
            raise DataError(f"expected as many examples as batches are long, {lengths.sum()}, found {drawn.size}")
    numbers = [(each.rate, each.momentum, each.proximal) for each in trainings]
    rates, *rule = np.array(numbers, np.float64).reshape(-1, 3).T.copy()
    _check_rates(rates)
    batches = [each.batches for each in trainings]
    examples = _joined([each.examples for each in batches], count)
    steps = np.fromiter((len(each.lengths) for each in batches), np.int64, len(batches))
    lengths = _checked_lengths(_joined([each.lengths for each in batches]))
    return Descent(steps, lengths, examples, rates, tuple(rule), np.full(len(rates), math.inf))


def _check_rates(rates: _Numbers) -> None:
    if rates.size and not (rates.min() > 0 and rates.max() < math.inf):
        wrong = rates[~((rates > 0) & (rates < math.inf))]
        raise SpecError(f"rates must be positive and finite, found {wrong[0]:g}")


def _checked_lengths(lengths: IndexArray) -> IndexArray:
    if lengths.size and lengths.min() < 1:
        raise DataError("a batch needs at least 1 example, found one of none")
    return lengths


def _joined(arrays: Sequence[IndexArray], count: int | None = None) -> IndexArray:
    """One array behind the other, with every number in 0..count-1."""
    try:
        found = np.concatenate((np.empty(0, np.int64), *arrays), dtype=np.int64, casting="same_kind")
    except TypeError:
        raise DataError(f"batches are whole numbers, found {np.result_type(*arrays)}") from None
    if count is not None and found.size and not 0 <= found.min() <= found.max() < count:
        raise DataError(f"batch indices must be in 0..{count - 1}, found {found.min()}..{found.max()}")
    return found


def step_by_step(objective: Differentiable, models: FloatArray, data: Split, given: Descent) -> LocalUpdates:
    """The updates of ``given`` steps from ``models`` [width, size], for any objective."""
    steps, lengths, examples, rates, settings, bounds = given
    width, limits = len(steps), np.finfo(objective.dtype)
    most, tiny = float(limits.max), float(limits.tiny)
    models = objective.rows(models, width)
    totals, velocities = np.zeros((2, width, objective.size))
    not_finite, firsts = np.zeros(width, np.int64), np.cumsum(steps) - steps
    batches = np.split(examples, np.cumsum(lengths)[:-1])
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is counted
        for step in range(steps.max(initial=0)):
            running = [k for k in range(width) if step < steps[k]]
            places, rows = models[running] + totals[running], [batches[firsts[k] + step] for k in running]
            for k, gradient in zip(running, _mean_gradients(objective, places, data, rows)):
                own = [each[k] for each in settings]
                if len(own) == 1:
                    sound = _clipped_step(totals[k], models[k], gradient, rates[k], own[0], most)
                else:
                    sound = _momentum_step(totals[k], velocities[k], gradient, rates[k], *own)
                not_finite[k] += not sound
        for total, bound in zip(totals, bounds):
            _finish(total, bound, most, tiny)
    return LocalUpdates(totals.astype(objective.dtype), not_finite)


def _mean_gradients(
    objective: Differentiable, places: _Numbers, data: Split, rows: Sequence[IndexArray]
) -> Iterator[_Numbers]:
    """The mean gradient [size] at each of ``places`` with the L2 term; NaN where it is not finite."""
    models = places.astype(objective.dtype)
    found = objective.clipped_gradients(models, data, rows, math.inf)
    for place, model, total, zeroed, examples in zip(places, models, found.sums, found.zeroed, rows):
        sound = not zeroed and np.isfinite(model).all()
        yield total / np.float64(len(examples)) + objective.l2 * place if sound else np.full(len(total), np.nan)


def _clipped_step(
    total: _Numbers, start: FloatArray, gradient: _Numbers, rate: float, clip: float, most: float
) -> bool:
    """Change ``total`` by one step, if it is finite; without a clip ``start + total`` stops at ``most``."""
    sound = (norm := _norm(gradient)) < math.inf
    if sound:
        total -= rate * (gradient if norm <= clip else clip / norm * gradient)
    if clip == math.inf:
        place = start + total
        stopped = ~(sound & (np.abs(place) <= most))
        total[stopped] = np.where(place < 0, -most, most)[stopped] - start[stopped]
    return sound


def _momentum_step(
    total: _Numbers, velocity: _Numbers, gradient: _Numbers, rate: float, momentum: float, proximal: float
) -> bool:
    """Change ``total`` and ``velocity`` by one step, if it is finite."""
    gradient += proximal * total
    if sound := bool(np.isfinite(gradient).all()):
        velocity[:] = momentum * velocity + gradient
        total -= rate * velocity
    return sound


def _finish(total: _Numbers, bound: float, most: float, tiny: float) -> None:
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
