"""Compiled kernels at work: examples as they take them, gradients in fixed runs, losses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from gossamer.arrays import FloatArray, IndexArray
from gossamer.data.examples import Split
from gossamer.objectives.chains.compiled import CLIPPED, SCORED, SUMMED
from gossamer.objectives.linear.updates import descent_step, place, round_step, write_update
from gossamer.objectives.local_training import Descent
from gossamer.objectives.networks.gradients import Piece, in_order, pieces, without_subnormals
from gossamer.objectives.questions import Evaluation, Gradients, LocalRound, LocalSums, LocalUpdates
from gossamer.threads import one_blas_thread


def descend(kernel: Kernel, models: FloatArray, data: Split, given: Descent, l2: float, threads: int) -> LocalUpdates:
    """See `Objective.local_updates` and `Objective.local_training`; one agent a thread."""
    updates, size = np.empty_like(models), models.shape[1]
    steps_before = np.cumsum(given.steps) - given.steps
    examples_before = np.cumsum(given.lengths) - given.lengths

    def agent(k: int) -> int:
        start, w, g = models[k], models[k].copy(), np.empty_like(models[k])
        h, (u, v), wrong = np.empty(size), np.zeros((2, size)), 0
        settings = (l2, given.rates[k], *(each[k] for each in given.settings))
        steps = slice(steps_before[k], steps_before[k] + given.steps[k])
        lengths, firsts = given.lengths[steps], examples_before[steps]
        first = firsts[0] if len(firsts) else 0
        x, y, index = kernel.examples(data, given.examples[first : first + lengths.sum()])
        for at, count in zip((firsts - first).tolist(), lengths.tolist()):
            kernel.sum(x, y, index[at : at + count], w, g)
            wrong += not descent_step(w, g, h, u, v, start, count, settings)
        write_update(updates[k], u, given.bounds[k])
        return wrong

    with kernel.alone():
        return LocalUpdates(updates, np.fromiter(in_order(agent, range(len(models)), threads), np.int64, len(models)))


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


RUN, LONG_RUN, LARGE = 16, 64, 2**17
"""Examples whose gradients are summed by one thread before they are added to a model's sum, in order: few enough that a
small batch keeps two threads busy, and more where there are many parameters to be added. A setting would change
rounding, so it is none."""
_ROOMS = 8
"""Sums of runs that are kept as room for later ones."""
_SCORES = 512
_NOTHING = np.empty(0)


@dataclass(frozen=True)
class Kernel:
    """A chain's kernels.

    Attributes
    ----------
    run : callable
        See `source`.
    dtype : numpy dtype
        Type of parameters.
    classifies : bool
        Whether targets are classes.
    products : bool
        Whether some layers are left to BLAS.
    of_one : callable or None
        () -> a kernel that is quicker where examples come one by one; None for this one.
    """

    run: Callable[..., None]
    dtype: np.dtype[np.floating]
    classifies: bool
    products: bool = False
    of_one: Callable[[], Kernel] | None = None
    _spare: list[FloatArray] = field(default_factory=list, repr=False, compare=False)

    def _room(self, size: int) -> FloatArray:
        """Zeros, in memory that was used before: a large array's first use takes longer than a small batch."""
        try:
            room = self._spare.pop()
        except IndexError:
            return np.zeros(size, self.dtype)
        room[:] = 0
        return room

    def alone(self) -> AbstractContextManager[None]:
        """Inside, BLAS computes with one thread, if the kernel calls it."""
        return one_blas_thread() if self.products else nullcontext()

    @property
    def targets(self) -> np.dtype[Any]:
        """Type of targets."""
        return np.dtype(np.int64) if self.classifies else self.dtype

    def examples(self, data: Split, rows: IndexArray) -> tuple[FloatArray, npt.NDArray[Any], IndexArray]:
        """Features one behind the other, targets, and where ``rows`` of ``data`` are in them."""
        features, targets = data.features, data.targets
        as_they_are = features.dtype == self.dtype and targets.dtype == self.targets
        if sp.issparse(features) or not as_they_are or not features.flags.c_contiguous:  # only those rows are turned
            taken: Any = features[rows]
            features, targets = taken.toarray() if sp.issparse(features) else taken, targets[rows]
            rows = np.arange(len(rows))
        flat = np.ascontiguousarray(features, self.dtype).reshape(-1)
        return flat, np.ascontiguousarray(targets, self.targets), np.ascontiguousarray(rows, np.int64)

    def gradients(
        self,
        models: FloatArray,
        data: Split,
        batches: Sequence[IndexArray],
        clips: npt.NDArray[np.float64],
        *,
        threads: int,
        flushed: bool,
        again: Callable[[int, int], Gradients] | None,
    ) -> Gradients:
        """Sums of clipped gradients; see `Objective.clipped_gradients`.

        Parameters
        ----------
        models, data, batches, clips
            Arguments as there; clips [width].
        threads : int
            Workers.
        flushed : bool
            Whether subnormal numbers count as zero.
        again : callable or None
            (model, example) -> its gradient by other means, for one whose square leaves the range of numbers.
        """
        totals = Gradients(np.zeros_like(models), *np.zeros((2, len(models)), np.int64))
        work = pieces(batches, RUN if models.shape[1] < LARGE else LONG_RUN, 1)
        begins = [n == 0 or piece.nodes != work[n - 1].nodes for n, piece in enumerate(work)]

        def compute(item: tuple[Piece, bool]) -> tuple[FloatArray, npt.NDArray[np.float64]]:
            ((node,), (rows,)), first = item
            total = totals.sums[node] if first else self._room(models.shape[1])
            squares = np.empty(len(rows))
            x, y, index = self.examples(data, rows)
            with without_subnormals(flushed):
                self.run(CLIPPED, x, y, index, models[node], clips[node], total, squares)
            return total, squares

        items = list(zip(work, begins, strict=True))
        with self.alone():
            for (piece, first), (total, squares) in zip(items, in_order(compute, items, threads), strict=True):
                self._count(totals, piece, clips, squares, again)
                if not first:
                    totals.sums[piece.nodes[0]] += total
                    self._keep(total)
        return totals

    def _keep(self, room: FloatArray) -> None:
        if len(self._spare) < _ROOMS:
            self._spare.append(room)

    @staticmethod
    def _count(
        totals: Gradients,
        piece: Piece,
        clips: npt.NDArray[np.float64],
        squares: npt.NDArray[np.float64],
        again: Callable[[int, int], Gradients] | None,
    ) -> None:
        """Count a piece's gradients by their squared norms, and look ``again`` at those that are not finite."""
        (node,), (rows,) = piece.nodes, piece.indices
        finite = squares < np.inf
        totals.unclipped[node] += int((finite & (np.sqrt(squares) <= clips[node])).sum())
        if again is None:  # as long for any numbers
            totals.zeroed[node] += int((~finite).sum())
            return
        for row in rows[~finite]:
            for whole, part in zip(totals, again(node, int(row)), strict=True):
                whole[node] += part[0]

    def sum(self, x: FloatArray, y: npt.NDArray[Any], index: IndexArray, model: FloatArray, total: FloatArray) -> None:
        """``total`` = the sum of plain gradients of examples ``index`` at ``model``."""
        total[:] = 0
        self.run(SUMMED, x, y, index, model, np.inf, total, _NOTHING)

    def clipped(
        self,
        x: FloatArray,
        y: npt.NDArray[Any],
        index: IndexArray,
        model: FloatArray,
        clip: float,
        total: FloatArray,
        squares: npt.NDArray[np.float64],
    ) -> None:
        """``total`` = the sum of gradients of examples ``index`` at ``model``, clipped; their squared norms."""
        total[:] = 0
        self.run(CLIPPED, x, y, index, model, clip, total, squares)

    def scores(
        self, models: FloatArray, data: Split, threads: int
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
        """Losses [width, examples] of float64, and whether each example is in the right class."""
        count = len(data)
        losses, correct = np.empty((len(models), count)), np.empty((len(models), count), bool)
        spans = [slice(start, min(start + _SCORES, count)) for start in range(0, count, _SCORES)]

        def score(item: tuple[int, slice]) -> None:
            row, span = item
            x, y, index = self.examples(data, np.arange(span.start, span.stop))
            best, values = np.empty(len(index), self.dtype), np.empty(len(index))
            self.run(SCORED, x, y, index, models[row], np.inf, best, values)
            losses[row, span], correct[row, span] = values, best == y[index]

        with self.alone():
            for _ in in_order(score, [(row, span) for row in range(len(models)) for span in spans], threads):
                pass
        return losses, correct

    def evaluation(self, models: FloatArray, data: Split, threads: int) -> Evaluation:
        """Mean losses and accuracies."""
        losses, correct = self.scores(models, data, threads)
        accuracy = correct.mean(1) if self.classifies else np.full(len(models), np.nan)
        return Evaluation(losses.mean(1), accuracy)
