"""Local training of many clients with a chain's kernels: one client a thread, one call of the kernel a step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gossamer.arrays import FloatArray, IndexArray
from gossamer.data.split import Split
from gossamer.objectives.asked import LocalRound, LocalSums, LocalUpdates
from gossamer.objectives.local_kernels import place, round_step, training_step, update_step, write_update
from gossamer.objectives.local_training import Packed
from gossamer.objectives.local_updates import Ragged
from gossamer.objectives.torch_batching import in_order
from gossamer.objectives.torch_kernel import Kernel


@dataclass
class _Walk:
    """A client on its way from ``start``: its model w, what it has moved by, u, and room for gradients."""

    start: FloatArray
    w: FloatArray
    g: FloatArray
    h: npt.NDArray[np.float64]
    u: npt.NDArray[np.float64]

    @classmethod
    def from_(cls, start: FloatArray) -> _Walk:
        size = len(start)
        return cls(start, start.copy(), np.empty_like(start), np.empty(size), np.zeros(size))


def train(kernel: Kernel, models: FloatArray, data: Split, given: Packed, l2: float, threads: int) -> LocalUpdates:
    """See `Objective.local_training`."""
    step_ends = np.cumsum(given.steps)
    example_ends = np.cumsum(given.lengths)

    def client(k: int, update: FloatArray) -> int:
        walk, velocity, wrong = _Walk.from_(models[k]), np.zeros(models.shape[1]), 0
        first, last = step_ends[k] - given.steps[k], step_ends[k]
        lengths = given.lengths[first:last]
        ends = example_ends[first:last]
        packed = given.examples[ends[0] - lengths[0] : ends[-1]] if len(ends) else given.examples[:0]
        settings = (l2, given.proximals[k], given.rates[k], given.momenta[k])
        for rows in _gradients(kernel, walk, data, packed, lengths):
            wrong += not training_step(walk.w, walk.g, walk.h, walk.u, velocity, walk.start, rows, *settings)
        write_update(update, walk.u, np.inf)
        return wrong

    return _each(kernel, client, models, threads)


def update(
    kernel: Kernel,
    models: FloatArray,
    data: Split,
    given: tuple[Ragged, npt.NDArray[np.float64], npt.NDArray[np.float64]],
    l2: float,
    threads: int,
) -> LocalUpdates:
    """See `Objective.local_updates`."""
    (shapes, rows), rates, clips = given
    ends = np.cumsum(shapes.prod(1))

    def agent(k: int, update: FloatArray) -> int:
        walk, wrong = _Walk.from_(models[k]), 0
        steps, length = shapes[k]
        packed = rows[ends[k] - steps * length : ends[k]]
        for count in _gradients(kernel, walk, data, packed, np.full(steps, length)):
            arguments = (walk.w, walk.g, walk.h, walk.u, walk.start, count, l2, rates[k] / steps, clips[k])
            wrong += not update_step(*arguments)
        write_update(update, walk.u, rates[k] * clips[k])
        return wrong

    return _each(kernel, agent, models, threads)


def walk(kernel: Kernel, rounds: Sequence[LocalRound], data: Split, l2: float, threads: int) -> LocalSums:
    """See `Objective.local_steps`; of rounds on all coordinates, in float32, whose squares float64 holds."""
    kernel = kernel.of_one() if kernel.of_one else kernel

    def one(given: LocalRound) -> tuple[FloatArray, int]:
        size = given.models.shape[1]
        u, w, g, square = np.zeros(size), np.empty(size, kernel.dtype), np.empty(size, kernel.dtype), np.empty(1)
        x, y, index = kernel.examples(data, given.examples)
        segments = np.searchsorted(given.starts, np.arange(len(index)), side="right") - 1
        models, wrong = np.asarray(given.models, kernel.dtype), 0
        for step, segment in enumerate(segments):
            place(w, models[segment], u, given.unit)
            kernel.clipped(x, y, index[step : step + 1], w, given.clip, g, square)
            wrong += not square[0] < np.inf
            round_step(u, g, w, given.rates[step] / given.unit, l2)
        return u.astype(kernel.dtype), wrong

    with kernel.alone(), np.errstate(over="ignore", invalid="ignore"):
        found = list(in_order(one, rounds, threads))
    return LocalSums([u for u, _ in found], np.array([wrong for _, wrong in found], np.int64))


def _gradients(kernel: Kernel, walk: _Walk, data: Split, packed: IndexArray, lengths: IndexArray) -> Iterator[int]:
    """Put the sum of each batch's gradients at ``walk.w`` into ``walk.g``, one batch at a time; their lengths."""
    x, y, index = kernel.examples(data, packed)
    first = 0
    for length in lengths.tolist():
        kernel.sum(x, y, index[first : first + length], walk.w, walk.g)
        first += length
        yield length


def _each(kernel: Kernel, client: Callable[[int, FloatArray], int], models: FloatArray, threads: int) -> LocalUpdates:
    updates = np.empty_like(models)
    with kernel.alone():
        wrong = in_order(lambda k: client(k, updates[k]), range(len(models)), threads)
        return LocalUpdates(updates, np.fromiter(wrong, np.int64, len(models)))
