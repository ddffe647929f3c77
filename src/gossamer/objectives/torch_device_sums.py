"""All clipped sums of a call on a device: models go there once, what leaves is sums, with noise if that is wanted.

Nodes are sorted by the length of their batches, longest first, and taken in *chunks* of as many as a device holds,
padded to one length; a batch too long for that is taken in runs. Nothing waits for the device before the last chunk is
asked for, but for a look at each chunk for gradients that are not finite.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gossamer.arrays import FloatArray, IndexArray
from gossamer.data.split import Split
from gossamer.objectives.asked import Clip, Gradients, clips_of
from gossamer.objectives.noisy import Normals
from gossamer.objectives.torch_device import Device
from gossamer.objectives.torch_gradients import Sums
from gossamer.objectives.torch_normals import add_normals


class Limits(NamedTuple):
    """Most that a device holds at once.

    Attributes
    ----------
    examples : int
        Of all nodes together, padding included.
    alone : int
        Examples of one node that are enough for a device by themselves.
    """

    examples: int
    alone: int


class Chunk(NamedTuple):
    """Nodes that are computed at once, or a run of one node's examples: ``rows`` are places in the sorted order."""

    rows: slice
    first: int
    last: int


class Examples(NamedTuple):
    """Examples of several nodes as places in the data, padded with each node's first one.

    Attributes
    ----------
    places : Tensor [nodes, examples] of int64
    present : Tensor [nodes, examples] of bool
        False for padding.
    """

    places: Tensor
    present: Tensor


Method = Callable[[Tensor, Examples, Tensor], Sums]
"""(models [nodes, size], examples, clips [nodes] of float64) -> sums."""


def chunks(lengths: Sequence[int], limits: Limits) -> Iterator[Chunk]:
    """Every example of batches of these ``lengths``, longest first, in exactly one chunk."""
    at, filled = 0, sum(length > 0 for length in lengths)
    while at < filled:
        longest = lengths[at]
        runs = -(-longest // limits.examples)
        if runs > 1:
            bounds = [longest * run // runs for run in range(runs + 1)]
            yield from (Chunk(slice(at, at + 1), *pair) for pair in pairwise(bounds))
            at += 1
            continue
        nodes = 1 if longest >= limits.alone else limits.examples // longest
        yield Chunk(slice(at, min(at + nodes, filled)), 0, longest)
        at = min(at + nodes, filled)


def summed(
    device: Device,
    method: Method,
    limits: Limits,
    models: FloatArray,
    batches: Sequence[IndexArray],
    clips: npt.NDArray[np.floating],
    noise: Normals | None,
) -> Gradients:
    """Sums of clipped gradients over ``batches``, with ``noise`` on them if there is any.

    Raises
    ------
    ModelError
        If the device's memory does not suffice.
    """
    order = np.argsort([-len(batch) for batch in batches], kind="stable")
    lengths = [len(batches[place]) for place in order]
    with device.computing(), torch.no_grad():
        sorting = device.upload(order)
        given, limit = device.upload(models)[sorting], device.upload(np.asarray(clips, np.float64))[sorting]
        totals = torch.zeros_like(given)
        counts = torch.zeros((2, len(given)), dtype=torch.int64, device=device.place)
        for chunk in chunks(lengths, limits):
            examples = _examples(device, [batches[place] for place in order[chunk.rows]], chunk)
            with device.computing(examples.places.numel()):
                found = method(given[chunk.rows], examples, limit[chunk.rows])
            totals[chunk.rows] += found.gradients
            counts[0, chunk.rows] += found.zeroed
            counts[1, chunk.rows] += found.unclipped
        if noise is not None:
            add_normals(totals, noise.keys[order], noise.deviations[order])
        back = torch.empty_like(sorting)
        back[sorting] = torch.arange(len(order), device=device.place)
        zeroed, unclipped = device.download(counts[:, back])
        return Gradients(device.download(totals[back]), zeroed, unclipped)


def _examples(device: Device, batches: Sequence[IndexArray], chunk: Chunk) -> Examples:
    runs = [batch[chunk.first : chunk.last] for batch in batches]
    count = np.array([len(run) for run in runs])[:, None]
    present = np.arange(chunk.last - chunk.first) < count
    index = np.repeat(np.array([run[0] for run in runs]), present.shape[1]).reshape(present.shape)
    index[present] = np.concatenate(runs)
    return Examples(device.upload(index), device.upload(present))


class SumsThere:
    """Sums of an objective, all of which are made on its device, with noise or without."""

    def clipped_gradients(
        self, models: FloatArray, data: Split, batches: Sequence[IndexArray], clip: Clip
    ) -> Gradients:
        """See `Objective.clipped_gradients`; here what is computed beside a row may change its last digits."""
        return self._sums(models, data, batches, clips_of(clip, len(batches)), None)

    def noisy_gradients(
        self,
        models: FloatArray,
        data: Split,
        batches: Sequence[IndexArray],
        clips: npt.NDArray[np.floating],
        noise: Normals,
    ) -> Gradients:
        """See `noisy.NoisyObjective`."""
        return self._sums(models, data, batches, clips_of(clips, len(batches)), noise)

    def _sums(
        self,
        models: FloatArray,
        data: Split,
        batches: Sequence[IndexArray],
        clips: npt.NDArray[np.floating],
        noise: Normals | None,
    ) -> Gradients:
        """Make the sums, each with its noise."""
        raise NotImplementedError
