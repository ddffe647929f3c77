"""Networks on a device: their clipped sums, and how they score. Linear models gain nothing there.

Models go there once a call, and what leaves is sums, with noise if that is wanted. Nodes are sorted by the length of
their batches, longest first, and taken in *chunks* of as many as a device holds, padded to one length; a batch too long
for that is taken in runs. Nothing waits for the device before the last chunk is asked for, but for a look at each chunk
for gradients that are not finite.

One node that fills a device by itself takes an ordinary forward and backward pass (`BatchPass`); small ones are
stacked (`VectorisedPass`), where convolutions become products of matrices, one for each node in one batch. Either way
the rules of `networks.layers` find norms and sums from what went into each layer and what came back, with examples of
all nodes in a row: rules know examples, and no models.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from types import MethodType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gossamer.arrays import FloatArray, IndexArray
from gossamer.data.examples import Split
from gossamer.errors import DataError, ModelError
from gossamer.objectives import objective
from gossamer.objectives.device.device import Device, add_normals
from gossamer.objectives.networks import layers
from gossamer.objectives.networks.gradients import (
    BatchPass,
    ExampleGradients,
    GradientSums,
    PaddedBatch,
    Passing,
    VectorisedPass,
    clip_weights,
    is_of_torch,
    padded,
    trainable_layers,
    within_clip,
)
from gossamer.objectives.networks.module import TorchModule
from gossamer.objectives.networks.network import Network


class StackedGradients:
    """Norms and sums layer by layer, for one or more nodes.

    A gradient whose squared norm leaves the range of its type counts as zero, like one that is not finite.

    Parameters
    ----------
    network : Network
        Network on its device, with layers that have rules and a module that may see batches (`is_of_torch`).
    passing : callable
        Context of passes; what they leave is taken in float32.
    """

    def __init__(self, network: Network, passing: Passing) -> None:
        assert is_of_torch(network.module)
        self._network, self._passing = network, passing
        alone, stacked = network.twin(), network.twin()
        for layer in stacked.module.modules():
            if type(layer) is nn.Conv2d:
                layer.forward = MethodType(_by_patches, layer)  # type: ignore[method-assign]
        self._alone, self._stacked = BatchPass(alone), VectorisedPass(stacked, stacked=True)
        self._layers = trainable_layers(network.module)

    def __call__(self, models: Tensor, batch: PaddedBatch, clips: Tensor) -> GradientSums:
        """Sums over the examples of each node that are present."""
        present, calls = batch.present, dict[str, list[layers.LayerCall]]()
        with self._passing():
            if len(models) > 1:
                self._stacked(models, batch.features, batch.targets, calls.__setitem__)
            else:
                self._alone(models[0].clone(), batch.features[0], batch.targets[0], calls.__setitem__)
        found = {name: gradients for layer in calls for name, gradients in self._by_name(layer, calls[layer])}
        squares = torch.zeros(present.numel(), dtype=torch.float64, device=models.device)
        for gradients in found.values():
            gradients.add_squares(squares)
        norms = squares.to(models.dtype).double().sqrt().view(present.shape)
        sound = norms.isfinite()
        if not sound.all():  # zero times NaN is NaN
            found = {name: _where(sound.flatten(), gradients) for name, gradients in found.items()}
        counted = sound & present
        weights = torch.where(counted, clip_weights(norms, clips, models.dtype), 0)
        sums = (
            node_sums(found[part.name], weights) if part.name in found else models.new_zeros(len(models), part.size)
            for part in self._network.parts
        )
        within = (counted & within_clip(norms, clips)).sum(1)
        return GradientSums(torch.cat(list(sums), dim=1), (present & ~sound).sum(1), within)

    def _by_name(self, name: str, calls: Sequence[layers.LayerCall]) -> list[tuple[str, layers.PerExample]]:
        layer, whole = self._layers[name], [_whole(call) for call in calls]
        rule = layers.BY_PRODUCTS[type(layer)](layer, whole)
        return [(f"{name}.{key}".lstrip("."), rule[key]) for key, _ in layer.named_parameters(recurse=False)]


def node_sums(found: layers.PerExample, weights: Tensor) -> Tensor:
    """``sum_n weights[k, n] gradient_kn`` of the examples n of each node k, [nodes, size]."""
    nodes, examples = weights.shape
    if isinstance(found, layers.StoredGradients):
        gradients = found.gradients.reshape(nodes, examples, -1)
        return (weights[:, None] @ gradients)[:, 0]
    g = torch.unflatten(found.gradients * weights.flatten()[:, None, None, None], 0, (nodes, examples))
    a = torch.unflatten(found.inputs, 0, (nodes, examples))
    g, a = (values.transpose(1, 2).flatten(2, 3) for values in (g, a))  # [nodes, groups, examples positions, fan]
    return (g.mT @ a).flatten(1)


def _where(sound: Tensor, found: layers.PerExample) -> layers.PerExample:
    def kept(values: Tensor) -> Tensor:
        return torch.where(sound.view(-1, *[1] * (values.ndim - 1)), values, 0)

    if isinstance(found, layers.StoredGradients):
        return layers.StoredGradients(kept(found.gradients))
    return layers.Factored(kept(found.inputs), kept(found.gradients))


def _whole(call: layers.LayerCall) -> layers.LayerCall:
    """The call in float32, if a pass was in something shorter."""
    if call.gradients.dtype == call.inputs.dtype and call.inputs.dtype not in (torch.bfloat16, torch.float16):
        return call
    return layers.LayerCall(call.inputs.float(), call.gradients.float())


def _by_patches(layer: nn.Conv2d, images: Tensor) -> Tensor:
    """Return what a convolution does, by a product with the patches of images [examples, channels, height, width]."""
    patches: Tensor = _Patches.apply(images, layer)  # type: ignore[no-untyped-call]
    groups, outputs = layer.groups, _outputs(layer, images.shape[-2:])
    weight = layer.weight.reshape(groups, layer.out_channels // groups, -1)
    found = (weight @ torch.unflatten(patches, 1, (groups, -1))).flatten(1, 2)
    if layer.bias is not None:
        found = found + layer.bias[:, None]
    return torch.unflatten(found, 2, outputs)


class _Patches(torch.autograd.Function):
    """Patches of images, [examples, channels kernel, positions]; `F.unfold` launches a kernel an example on a GPU."""

    generate_vmap_rule = True

    @staticmethod
    def forward(images: Tensor, layer: nn.Conv2d) -> Tensor:
        return layers.patches_of(layer, images, _outputs(layer, images.shape[-2:])).flatten(1, 2)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, nn.Conv2d], output: Tensor) -> None:
        ctx.lengths, ctx.layer = inputs[0].shape[-2:], inputs[1]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        layer = ctx.layer
        return F.fold(gradient, ctx.lengths, layer.kernel_size, layer.dilation, layer.padding, layer.stride), None


def _outputs(layer: nn.Conv2d, lengths: Sequence[int]) -> tuple[int, ...]:
    """Height and width of what a convolution puts out."""
    assert not isinstance(layer.padding, str)  # no rule covers it
    return tuple(
        (length + 2 * padding - dilation * (size - 1) - 1) // stride + 1
        for length, padding, dilation, size, stride in zip(
            lengths, layer.padding, layer.dilation, layer.kernel_size, layer.stride, strict=True
        )
    )


class DeviceLimits(NamedTuple):
    """Most that a device holds at once.

    Attributes
    ----------
    examples : int
        Number of examples of all nodes together, padding included.
    alone : int
        PaddedExamples of one node that are enough for a device by themselves.
    """

    examples: int
    alone: int


class NodeChunk(NamedTuple):
    """Nodes that are computed at once, or a run of one node's examples: ``rows`` are places in the sorted order."""

    rows: slice
    first: int
    last: int


def chunks(lengths: Sequence[int], limits: DeviceLimits) -> Iterator[NodeChunk]:
    """Every example of batches of these ``lengths``, longest first, in exactly one chunk."""
    at, filled = 0, sum(length > 0 for length in lengths)
    while at < filled:
        longest = lengths[at]
        runs = -(-longest // limits.examples)
        if runs > 1:
            bounds = [longest * run // runs for run in range(runs + 1)]
            yield from (NodeChunk(slice(at, at + 1), *pair) for pair in pairwise(bounds))
            at += 1
            continue
        nodes = 1 if longest >= limits.alone else limits.examples // longest
        yield NodeChunk(slice(at, min(at + nodes, filled)), 0, longest)
        at = min(at + nodes, filled)


_ENOUGH = 2**22
"""Numbers that the layers of a node's examples put out, with which a graphics card is busy without other nodes."""
_COPIES, _GRADIENTS = 8.0, 1.5
"""Numbers held for each that a layer puts out: inputs, gradients, patches; and for each of a gradient that is
formed."""


class _NetworkWay(NamedTuple):
    """A split on the device, ways to gradients and to outputs of it, and how many examples at once."""

    features: Tensor
    targets: Tensor
    gradients: StackedGradients | ExampleGradients
    network: Network
    limits: DeviceLimits
    rows: int
    strategy: str


class DeviceNetwork(TorchModule):
    """A network whose clipped sums and scores are computed on a device; all else is as in `TorchModule`.

    A gradient whose squared norm leaves the range of float32 counts as zero, like one that is not finite.

    Parameters
    ----------
    device : Device
        Device that computes.
    module : torch.nn.Module
        Module as of `TorchModule`.
    **settings
        Settings of `TorchModule`.
    """

    def __init__(self, device: Device, module: nn.Module, **settings: Any) -> None:
        super().__init__(module, **settings)
        self._kernels, self.device = False, device
        self._usual = partial(TorchModule, module, **settings)
        self._ways = objective.KnownSplits[_NetworkWay]()

    def steady(self) -> objective.Objective:
        """The objective on the processor: what is deployed computes there."""
        return self._usual().steady()

    def clipped_gradients(
        self, models: FloatArray, data: Split, batches: Sequence[IndexArray], clip: objective.Clip
    ) -> objective.Gradients:
        """See `Objective.clipped_gradients`; here what is computed beside a row may change its last digits."""
        return self.noisy_gradients(models, data, batches, clip, None)

    def noisy_gradients(
        self,
        models: FloatArray,
        data: Split,
        batches: Sequence[IndexArray],
        clips: objective.Clip,
        noise: objective.Normals | None,
    ) -> objective.Gradients:
        """See `objective.NoisyObjective`.

        Raises
        ------
        ModelError
            If the device's memory does not suffice.
        """
        clips = objective.clips_of(clips, len(batches))
        way = self._way(data)
        for batch in batches:
            objective.check_indices(batch, len(data))
        models = self.rows(models, len(batches))
        device, order = self.device, np.argsort([-len(batch) for batch in batches], kind="stable")
        with device.computing(), torch.no_grad():
            sorting = device.upload(order)
            given, limit = device.upload(models)[sorting], device.upload(clips)[sorting]
            totals = torch.zeros_like(given)
            counts = torch.zeros((2, len(given)), dtype=torch.int64, device=device.place)
            for chunk in chunks([len(batches[place]) for place in order], way.limits):
                runs = [batches[place][chunk.first : chunk.last] for place in order[chunk.rows]]
                places, present = map(device.upload, padded(runs))
                some = PaddedBatch(way.features[places], way.targets[places], present)
                with device.computing(places.numel()), torch.enable_grad():
                    found = way.gradients(given[chunk.rows], some, limit[chunk.rows])
                totals[chunk.rows] += found.gradients
                counts[0, chunk.rows] += found.zeroed
                counts[1, chunk.rows] += found.unclipped
            if noise is not None:
                add_normals(totals, noise.keys[order], noise.deviations[order])
            back = torch.empty_like(sorting)
            back[sorting] = torch.arange(len(order), device=device.place)
            zeroed, unclipped = device.download(counts[:, back])
            return objective.Gradients(device.download(totals[back]), zeroed, unclipped)

    def computing(self) -> objective.Computing:
        """See `Objective.computing`."""
        work = next(iter(self._ways.values()), None)
        return objective.Computing(self.strategy if work is None else work.strategy, device=self.device.title)

    def evaluate(self, models: FloatArray, split: Split) -> objective.Evaluation:
        """See `TorchModule.evaluate`."""
        if len(split) == 0:
            raise DataError("an evaluation needs at least 1 example, found an empty split")
        plan, models, work = self.plan(split), self.rows(models, len(models)), self._way(split)
        totals = torch.zeros((len(models), 2), dtype=torch.float64, device=self.device.place)
        with self.device.computing(work.rows), torch.no_grad():
            for row, model in enumerate(models):
                parameters = work.network.parameters(self.device.upload(model))
                for part in objective.slices(len(split), work.rows):
                    outputs, targets = work.network.outputs(parameters, work.features[part]), work.targets[part]
                    totals[row, 0] += work.network.loss.values(outputs, targets).double().sum()
                    if plan.classes:
                        right = work.network.loss.scores(outputs).argmax(1) == targets
                        totals[row, 1] += right.double().reshape(len(targets), -1).mean(1).sum()
        loss, correct = self.device.download(totals).T / len(split)
        return objective.Evaluation(loss, correct if plan.classes else np.full_like(loss, np.nan))

    def _way(self, data: Split) -> _NetworkWay:
        """Way to sums of ``data``, which is taken to the device the first time."""
        if (known := self._ways.get(data)) is not None:
            return known

        def moved(network: Network) -> Network:
            return replace(network, module=copy.deepcopy(network.module).to(self.device.place))

        plan = self.plan(data)
        if plan.strategy == "loop":
            raise ModelError(f"compute.device: {plan.unchained}, which a device needs; leave compute.device out")
        stacked = plan.strategy == "layers" and is_of_torch(plan.network.module)
        formed = 0 if stacked else _GRADIENTS * self.size
        each = (_COPIES * plan.put_out + formed) * self.dtype.itemsize
        most = max(1, int(self.device.memory / each))
        with self.device.computing():
            features, targets = (each.to(self.device.place) for each in self._examples(data, slice(0, len(data))))
            module = moved(plan.network)
            passing = self.device.passing
            found = _NetworkWay(
                features,
                targets,
                StackedGradients(module, passing) if stacked else ExampleGradients(module, True, passing),
                moved(self._network),
                DeviceLimits(most, max(1, _ENOUGH // max(1, plan.put_out))),
                max(1, self.device.memory // (2 * plan.put_out * self.dtype.itemsize)),
                "stacked layers" if stacked else "stacked examples",
            )
        return self._ways.setdefault(data, found)
