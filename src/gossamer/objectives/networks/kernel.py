"""Compiled kernels at work: examples as they take them, gradients in fixed runs, losses.

A module is read as a chain of layers that there are kernels for (`chain_of`), with the shapes between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from torch import nn

from gossamer.arrays import FloatArray, IndexArray
from gossamer.data.examples import Split
from gossamer.objectives.chains import layers as kinds
from gossamer.objectives.chains.compiled import CLIPPED, SCORED, SUMMED
from gossamer.objectives.linear.updates import descent_step, place, round_step, write_update
from gossamer.objectives.networks.gradients import Piece, hooked, in_order, pieces, without_subnormals
from gossamer.objectives.objective import Descent, Evaluation, Gradients, LocalRound, LocalSum, LocalUpdates, slices
from gossamer.threads import one_blas_thread
from gossamer.vectors import Part

L = TypeVar("L", bound=kinds.Layer)

NOTHING = (nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.AlphaDropout)
"""Layers that leave numbers as they are, in evaluation mode."""

ACTIVATIONS: Mapping[type[nn.Module], str] = {nn.ReLU: "relu", nn.Tanh: "tanh", nn.Sigmoid: "sigmoid"}
"""All of them rise, so that they may change places with a maximum."""


class Unknown(ValueError):
    """A layer that there is no kernel for; the message names it."""


def chain_of(module: nn.Module, shape: Sequence[int], parts: Sequence[Part]) -> tuple[kinds.Layer, ...]:
    """Return the layers of ``module`` for examples of ``shape``.

    Parameters
    ----------
    module : nn.Module
        Module in evaluation mode.
    shape : sequence of int
        Shape of one example.
    parts : sequence of Part
        Places of its trainable parameters in the flat vector.

    Raises
    ------
    Unknown
        If it is no ``nn.Sequential`` of layers with kernels.
    """
    builder = _Builder(shape, parts)
    for name, layer in _leaves(module, ""):
        builder.add(name, layer)
    if not builder.layers or not isinstance(builder.layers[-1], kinds.LinearLayer):
        raise Unknown("the last layer is no Linear")
    return tuple(builder.layers)


def _leaves(module: nn.Module, name: str) -> Iterator[tuple[str, nn.Module]]:
    if isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward:
        for key, child in module._modules.items():  # one that is there twice counts twice
            assert child is not None
            yield from _leaves(child, f"{name}.{key}".lstrip("."))
    else:
        yield name, module


class _Builder:
    """Layers so far, and the layout behind them."""

    def __init__(self, shape: Sequence[int], parts: Sequence[Part]) -> None:
        self.layers: list[kinds.Layer] = []
        self.flat = len(shape) == 1
        if len(shape) not in (1, 3):
            raise Unknown(f"examples are of shape {list(shape)}, expected [features] or [channels, height, width]")
        self.image = kinds.Image.dense(*((shape[0], 1, 1) if self.flat else shape))
        starts = [0]
        for part in parts:
            starts.append(starts[-1] + part.size)
        self.starts = {part.name: start for part, start in zip(parts, starts)}

    def add(self, name: str, layer: nn.Module) -> None:
        """Append the kernel for ``layer``."""
        where = f"{f'layer {name!r}' if name else 'the module'} ({type(layer).__name__})"
        own = {key for key, _ in layer.named_parameters(recurse=False)}
        if hooked(layer) or any(f"{name}.{key}".lstrip(".") not in self.starts for key in own):
            raise Unknown(f"{where} has hooks or frozen parameters")
        known = {
            nn.Flatten: self.flatten,
            **dict.fromkeys(NOTHING, lambda layer, weights: None),
            nn.Conv2d: self.convolution,
            nn.Linear: self.linear,
            nn.MaxPool2d: self.maximum,
            nn.AvgPool2d: self.average,
            nn.GroupNorm: self.normalisation,
            **dict.fromkeys(ACTIVATIONS, self.activation),
        }
        if type(layer) not in known:
            raise Unknown(f"{where} has no kernel")
        weights = kinds.WeightPlaces(*(self.starts.get(f"{name}.{key}".lstrip("."), -1) for key in ("weight", "bias")))
        try:
            known[type(layer)](layer, weights)
        except Unknown as problem:
            raise Unknown(f"{where} {problem}") from None

    def append(self, layer: kinds.Layer) -> None:
        self.layers.append(layer)
        self.image = layer.after

    def arrange(self, border: int = 0) -> None:
        """Have the layout dense, within a border; a first layer's input is so anyway."""
        image = self.image
        dense = kinds.Image.dense(image.channels, image.height + 2 * border, image.width + 2 * border)
        if image != dense:
            self.append(kinds.Arranged(image, dense, border))

    def flatten(self, layer: nn.Flatten, weights: kinds.WeightPlaces) -> None:
        if layer.start_dim != 1 or layer.end_dim != -1:
            raise Unknown("flattens other dimensions than those of an example")
        if not self.flat:
            self.arrange()
            self.image, self.flat = kinds.Image.dense(self.image.size, 1, 1), True

    def linear(self, layer: nn.Linear, weights: kinds.WeightPlaces) -> None:
        if not self.flat:
            raise Unknown("is of images that are not flattened")
        self.append(kinds.LinearLayer(self.image, kinds.Image.dense(layer.out_features, 1, 1), weights))

    def convolution(self, layer: nn.Conv2d, weights: kinds.WeightPlaces) -> None:
        self._is_image()
        padding, (height, width) = layer.padding, layer.kernel_size
        plain = layer.stride == layer.dilation == (1, 1) and layer.groups == 1 and layer.padding_mode == "zeros"
        if not plain or isinstance(padding, str) or len(set(padding)) > 1:
            raise Unknown("has a stride, dilation, groups or padding that no kernel has")
        if padding[0]:
            self.arrange(padding[0])
        image = self.image
        rows, columns = image.height - height + 1, image.width - width + 1
        after = kinds.Image(layer.out_channels, rows, columns, image.stride, rows * image.stride)
        self.append(kinds.Convolution(image, after, weights, height, width))

    def maximum(self, layer: nn.MaxPool2d, weights: kinds.WeightPlaces) -> None:
        size, stride = self._window(layer)
        if layer.dilation not in (1, (1, 1)) or layer.return_indices:
            raise Unknown("has a dilation, or returns indices")
        # A rising function of each number changes places with the maximum: it is computed of fewer numbers.
        swapped = self._popped(kinds.Activation)
        after = self._pooled(size, stride)
        if (convolution := self._popped(kinds.Convolution)) is not None:
            self.append(kinds.PooledConvolution(convolution.before, after, size, stride, convolution))
        else:
            self.append(kinds.Maximum(self.image, after, size, stride))
        if swapped is not None:
            self.append(kinds.Activation(after, after, swapped.name))

    def average(self, layer: nn.AvgPool2d, weights: kinds.WeightPlaces) -> None:
        size, stride = self._window(layer)
        if layer.divisor_override is not None:
            raise Unknown("divides by another number than that of a window's entries")
        self.append(kinds.AveragePool(self.image, self._pooled(size, stride), size, stride))

    def normalisation(self, layer: nn.GroupNorm, weights: kinds.WeightPlaces) -> None:
        if self.flat or (layer.affine and not weights.biased):
            raise Unknown("is of vectors, or has a weight without a bias")
        self.arrange()
        self._own()
        self.append(kinds.Normalisation(self.image, self.image, weights, layer.num_groups, layer.eps))

    def activation(self, layer: nn.Module, weights: kinds.WeightPlaces) -> None:
        self._own()
        self.append(kinds.Activation(self.image, self.image, ACTIVATIONS[type(layer)]))

    def _own(self) -> None:
        """Have numbers to change: examples themselves stay."""
        if not self.layers:
            self.append(kinds.Arranged(self.image, self.image, 0))

    def _popped(self, kind: type[L]) -> L | None:
        """Take the last layer away, if it is of that kind."""
        if self.layers and isinstance(self.layers[-1], kind):
            return cast(L, self.layers.pop())
        return None

    def _is_image(self) -> None:
        if self.flat:
            raise Unknown("is of examples that are no images")

    def _window(self, layer: nn.MaxPool2d | nn.AvgPool2d) -> tuple[int, int]:
        self._is_image()
        size, stride, padding = (set(_pair(each)) for each in (layer.kernel_size, layer.stride, layer.padding))
        if len(size) > 1 or len(stride) > 1 or padding != {0} or layer.ceil_mode:
            raise Unknown("has windows that are not square, padded or cut off")
        return size.pop(), stride.pop()

    def _pooled(self, size: int, stride: int) -> kinds.Image:
        rows, columns = ((length - size) // stride + 1 for length in (self.image.height, self.image.width))
        return kinds.Image.dense(self.image.channels, rows, columns)


def _pair(value: int | tuple[int, ...]) -> tuple[int, ...]:
    return value if isinstance(value, tuple) else (value, value)


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


def walk(kernel: Kernel, given: LocalRound, data: Split, l2: float) -> LocalSum:
    """See `Objective.local_steps`; of a round on all coordinates, in float32, whose squares float64 holds."""
    kernel = kernel.of_one() if kernel.of_one else kernel
    size = given.models.shape[1]
    u, w, g, square = np.zeros(size), np.empty(size, kernel.dtype), np.empty(size, kernel.dtype), np.empty(1)
    x, y, index = kernel.examples(data, given.examples)
    segments = np.searchsorted(given.starts, np.arange(len(index)), side="right") - 1
    models, wrong = np.asarray(given.models, kernel.dtype), 0
    with kernel.alone(), np.errstate(over="ignore", invalid="ignore"):
        for step, segment in enumerate(segments):
            place(w, models[segment], u, given.unit)
            kernel.sum(x, y, index[step : step + 1], w, g, given.clip, square)
            wrong += not square[0] < np.inf
            round_step(u, g, w, given.rates[step] / given.unit, l2)
    return LocalSum(u.astype(kernel.dtype), wrong)


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
        See `chains.compiled`.
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
        totals = Gradients(np.zeros(models.shape, models.dtype), *np.zeros((2, len(models)), np.int64))
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
                (node,), (rows,) = piece.nodes, piece.indices
                finite = squares < np.inf
                totals.unclipped[node] += int((finite & (np.sqrt(squares) <= clips[node])).sum())
                if again is None:  # as long for any numbers
                    totals.zeroed[node] += int((~finite).sum())
                else:
                    for row in rows[~finite]:
                        for whole, part in zip(totals, again(node, int(row)), strict=True):
                            whole[node] += part[0]
                if not first:
                    totals.sums[node] += total
                    if len(self._spare) < _ROOMS:
                        self._spare.append(total)
        return totals

    def sum(
        self, x: Any, y: Any, index: Any, model: Any, total: FloatArray, clip: Any = np.inf, squares: Any = None
    ) -> None:
        """``total`` = the sum of gradients of examples ``index`` at ``model``; clipped, if their squares are wanted."""
        total[:] = 0
        mode, norms = (SUMMED, _NOTHING) if squares is None else (CLIPPED, squares)
        self.run(mode, x, y, index, model, clip, total, norms)

    def scores(
        self, models: FloatArray, data: Split, threads: int
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
        """Losses [width, examples] of float64, and whether each example is in the right class."""
        count = len(data)
        losses, correct = np.empty((len(models), count)), np.empty((len(models), count), bool)

        def score(item: tuple[int, slice]) -> None:
            row, span = item
            x, y, index = self.examples(data, np.arange(span.start, span.stop))
            best, values = np.empty(len(index), self.dtype), np.empty(len(index))
            self.run(SCORED, x, y, index, models[row], np.inf, best, values)
            losses[row, span], correct[row, span] = values, best == y[index]

        with self.alone():
            for _ in in_order(
                score, [(row, span) for row in range(len(models)) for span in slices(count, _SCORES)], threads
            ):
                pass
        return losses, correct

    def evaluation(self, models: FloatArray, data: Split, threads: int) -> Evaluation:
        """Mean losses and accuracies."""
        losses, correct = self.scores(models, data, threads)
        accuracy = correct.mean(1) if self.classifies else np.full(len(models), np.nan)
        return Evaluation(losses.mean(1), accuracy)
