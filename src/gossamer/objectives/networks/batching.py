"""Work cut into pieces and spread over threads. Only `threads` is free of influence on rounding.

A piece is some examples of one node (or of a few nodes under ``vmap``), small enough for the memory setting.
Pieces are the same whatever the number of threads, each is computed by one thread with torch set to one thread, and
their sums are added in order. So results depend neither on cores, nor on load, nor on OMP_NUM_THREADS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from gossamer import threads as shared_threads
from gossamer.arrays import IndexArray
from gossamer.data.examples import Split
from gossamer.errors import DataError
from gossamer.objectives.networks.gradients import PaddedBatch
from gossamer.threads import Item, Result


class Tensors(NamedTuple):
    """Makes tensors of examples.

    Attributes
    ----------
    dtype : torch.dtype
        Type of features, and of targets that are no classes.
    classifies : bool
        Whether targets are classes.
    """

    dtype: torch.dtype
    classifies: bool

    def batch(self, data: Split, piece: Piece) -> PaddedBatch:
        """Examples of a piece, padded with its first."""
        longest = max(map(len, piece.indices))
        present = np.array([np.arange(longest) < len(indices) for indices in piece.indices])
        index = np.array([np.pad(i, (0, longest - len(i)), constant_values=i[0]) for i in piece.indices])
        features = self.features(data, index.ravel())
        return PaddedBatch(
            torch.unflatten(features, 0, index.shape),
            torch.unflatten(self.targets(data, index.ravel()), 0, index.shape),
            torch.from_numpy(present),
        )

    def features(self, data: Split, index: IndexArray | slice) -> Tensor:
        """Features of some examples, [examples, ...]; dense."""
        features: Any = data.features[index]
        if sp.issparse(features):
            features = features.toarray()
        # torch.tensor copies to memory aligned in one way, so that sums are rounded in one way.
        return torch.tensor(features, dtype=self.dtype)

    def targets(self, data: Split, index: IndexArray | slice) -> Tensor:
        """Targets of some examples, [examples]."""
        return torch.tensor(data.targets[index], dtype=torch.int64 if self.classifies else self.dtype)


def check_split(data: Split, classes: int | None) -> None:
    """Raise DataError unless there is one target an example, and it is one of the ``classes``, if there are any."""
    if data.features.shape[0] != len(data) or data.targets.ndim != 1:
        raise DataError(
            f"expected one target [n] an example [n, ...], found targets {list(data.targets.shape)} and features "
            f"{list(data.features.shape)}"
        )
    if classes is None or len(data) == 0:
        return
    known = (data.targets >= 0) & (data.targets < classes) & (data.targets == np.floor(data.targets))
    if not known.all():
        raise DataError(
            f"targets must be classes 0..{classes - 1}, found {data.targets[~known][0]:g}; relabel the targets or give "
            "the module more outputs"
        )


def check_indices(batches: Sequence[IndexArray], count: int) -> None:
    """Raise DataError unless all indices are in 0..count-1."""
    for batch in batches:
        if len(batch) and not 0 <= batch.min() <= batch.max() < count:
            raise DataError(f"batch indices must be in 0..{count - 1}, found {batch.min()}..{batch.max()}")


class Piece(NamedTuple):
    """Examples of some nodes that are computed in one go."""

    nodes: list[int]
    indices: list[IndexArray]


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Torch computes with one thread inside, as before outside."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def without_subnormals(wanted: bool) -> Iterator[None]:
    """This thread takes numbers below the normal ones of their type for zero, if that is wanted and it can."""
    wanted = wanted and torch.set_flush_denormal(True)
    try:
        yield
    finally:
        if wanted:
            torch.set_flush_denormal(False)


def in_order(function: Callable[[Item], Result], items: Sequence[Item], threads: int) -> Iterator[Result]:
    """`threads.in_order`, where torch computes with one thread in each of them."""

    def alone(item: Item) -> Result:
        torch.set_num_threads(1)
        return function(item)

    with one_torch_thread():
        yield from shared_threads.in_order(alone, items, threads)


def pieces(batches: Sequence[IndexArray], examples: int, nodes: int) -> list[Piece]:
    """Every index of ``batches`` in exactly one piece, of at most ``examples`` examples (padding included).

    Parameters
    ----------
    batches : sequence of index arrays
        One a node; an empty batch is in no piece.
    examples : int
        The most in one piece; a longer batch is cut into even runs.
    nodes : int
        The most nodes in one piece.
    """
    found: list[Piece] = []
    for node, batch in enumerate(batches):
        runs = np.array_split(batch, -(-len(batch) // examples)) if len(batch) > examples else [batch]
        for run in runs if len(batch) else ():
            if found and len(found[-1].nodes) < nodes and _fits(found[-1], run, examples):
                found[-1].nodes.append(node)
                found[-1].indices.append(run)
            else:
                found.append(Piece([node], [run]))
    return found


def _fits(piece: Piece, run: IndexArray, examples: int) -> bool:
    """Whether ``run`` can join, with padding."""
    return max(map(len, (*piece.indices, run))) * (len(piece.nodes) + 1) <= examples


def activations(module: nn.Module, call: Callable[[], object]) -> int:
    """Count of the numbers that the innermost layers of ``module`` put out during ``call``."""
    counts: list[int] = []

    def count(_layer: nn.Module, _inputs: object, output: object) -> None:
        counts.append(output.numel() if isinstance(output, Tensor) else 0)

    innermost = [layer for layer in module.modules() if not list(layer.children())]
    hooks = [layer.register_forward_hook(count) for layer in innermost]
    try:
        call()
    finally:
        for hook in hooks:
            hook.remove()
    return sum(counts)
