"""Networks on a device: their clipped sums, and how they score.

One node that fills a device by itself takes an ordinary forward and backward pass (`BatchPass`); small ones are
stacked (`VectorisedPass`), where convolutions become products of matrices, one for each node in one batch. Either way
the rules of `networks.layers` find norms and sums from what went into each layer and what came back, with examples of
all nodes in a row: rules know examples, and no models.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from types import MethodType
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gossamer.arrays import FloatArray
from gossamer.data.examples import Split
from gossamer.errors import DataError, ModelError
from gossamer.objectives.device.device import Device, DeviceLimits, PaddedExamples, SumsThere
from gossamer.objectives.linear import kernels as glm_kernels
from gossamer.objectives.linear.model import LinearModel
from gossamer.objectives.networks.gradients import (
    ExampleGradients,
    GradientSums,
    PaddedBatch,
    clip_weights,
    within_clip,
)
from gossamer.objectives.networks.layers import (
    BY_PRODUCTS,
    Factored,
    LayerCall,
    PerExample,
    StoredGradients,
    patches_of,
)
from gossamer.objectives.networks.module import TorchModule
from gossamer.objectives.networks.network import Network
from gossamer.objectives.networks.taps import BatchPass, VectorisedPass, is_of_torch, trainable_layers
from gossamer.objectives.questions import Computing, Evaluation

# Linear models on a device: all nodes of a call by products of matrices, one batch of them a layer.
#
# A gradient is the product of an example's residual and its features (`glm_kernels`), so clipping scales residuals, and
# no gradient is ever formed.
#
# References
# ----------
# Goodfellow, "Efficient per-example gradient computations", arXiv:1510.01799, section 4.


def _softmax(z: Tensor, y: Tensor) -> Tensor:
    own = torch.arange(z.shape[-1], device=z.device) == y[..., None]
    return z.softmax(-1) - own.to(z.dtype)


def _hinge(z: Tensor, y: Tensor) -> Tensor:
    own = y[..., None] == (torch.arange(z.shape[-1], device=z.device) if z.shape[-1] > 1 else 1)
    sign = torch.where(own, 1.0, -1.0).to(z.dtype)
    return torch.where(sign * z < 1, -sign, 0.0)


RESIDUALS: dict[int, Callable[[Tensor, Tensor], Tensor]] = {
    glm_kernels.LOGISTIC: lambda z, y: torch.sigmoid(z) - y[..., None],
    glm_kernels.SOFTMAX: _softmax,
    glm_kernels.SQUARED: lambda z, y: z - y[..., None],
    glm_kernels.SQUARED_ERROR: lambda z, y: 2 * (z - y[..., None]),
    glm_kernels.HINGE: _hinge,
}
"""Derivatives of losses by outputs z [..., outputs], for targets y [...]."""


class _LinearWay(NamedTuple):
    """A split on the device, and the way to sums of it: ``squares`` are |x|^2, plus one if there is an intercept."""

    features: Tensor  # [n, features] of the models' type
    targets: Tensor  # [n] of float64
    squares: Tensor  # [n] of float64
    model: DeviceLinear
    limits: DeviceLimits

    def method(self, models: Tensor, examples: PaddedExamples, clips: Tensor) -> GradientSums:
        """See `device.Method`."""
        model = self.model
        nodes, weights = len(models), model.outputs * model.features
        matrices = models[:, :weights].view(nodes, model.outputs, model.features)
        x = self.features[examples.places]
        z = x @ matrices.mT
        if model.intercept:
            z += models[:, None, weights:]
        residuals = RESIDUALS[model.loss.code](z, self.targets[examples.places].to(z.dtype))
        norms = residuals.double().square().sum(-1).sqrt() * self.squares[examples.places].sqrt()
        sound = (norms <= torch.finfo(z.dtype).max) & models.isfinite().all(1)[:, None]
        counted = sound & examples.present
        within = norms <= clips[:, None]
        scale = torch.where(within, 1.0, clips[:, None] / norms)
        scaled = residuals * scale[..., None].to(z.dtype)
        # A subnormal number may be rounded up by half of itself, and the norm would exceed the clip.
        kept = counted[..., None] & (scaled.abs() >= torch.finfo(z.dtype).tiny)
        scaled = torch.where(kept, scaled, 0.0)
        if not sound.all():
            x = torch.where(counted[..., None], x, 0.0)  # zero times what is not finite is no number
        parts = [(scaled.mT @ x).flatten(1), *([scaled.sum(1)] if model.intercept else [])]
        zeroed = (examples.present & ~sound).sum(1)
        return GradientSums(torch.cat(parts, dim=1), zeroed, (counted & within).sum(1))


class DeviceLinear(SumsThere, LinearModel):
    """A linear model whose clipped sums are computed on a device; all else is as in `LinearModel`.

    Sparse examples are dense on the device.

    Parameters
    ----------
    device : Device
        Device that computes.
    *args, **settings
        Arguments of `LinearModel`.
    """

    def __init__(self, device: Device, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._settle(device, partial(LinearModel, *args, **settings))

    def computing(self) -> Computing:
        """See `Objective.computing`."""
        return Computing("linear", device=self.device.title)

    def _taken(self, data: Split) -> _LinearWay:
        examples = self._examples(data)
        matrix = examples.matrix.toarray() if sp.issparse(examples.matrix) else examples.matrix
        squares = np.einsum("ij,ij->i", matrix, matrix, dtype=np.float64) + self.intercept
        # Of an example its features, gathered, and of its node the model, the sum and room to add.
        each = self.dtype.itemsize * (2 * self.features + 4 * self.outputs + 3 * self.size)
        limit = max(1, self.device.memory // each)
        with self.device.computing():
            return _LinearWay(
                self.device.upload(np.ascontiguousarray(matrix, self.dtype)),
                self.device.upload(np.asarray(examples.targets)),
                self.device.upload(squares),
                self,
                DeviceLimits(limit, limit),
            )


Passing = Callable[[], AbstractContextManager[None]]
"""Opens the context of forward and backward passes, such as one of another precision."""


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

    def __call__(
        self, models: Tensor, features: Tensor, targets: Tensor, present: Tensor, clips: Tensor
    ) -> GradientSums:
        """Sums over the examples of each node that are ``present`` [nodes, examples]."""
        parameters = self._network.parameters(models)
        with self._passing():
            calls = self._calls(parameters, features, targets)
        found = {name: gradients for layer in calls for name, gradients in self._by_name(layer, calls[layer])}
        squares = torch.zeros(present.numel(), dtype=torch.float64, device=models.device)
        for gradients in found.values():
            squares += gradients.square_norms()
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

    def _calls(self, parameters: Mapping[str, Tensor], features: Tensor, targets: Tensor) -> dict[str, list[LayerCall]]:
        found: dict[str, list[LayerCall]] = {}
        if len(features) > 1:
            self._stacked(parameters, features, targets, found.__setitem__)
        else:
            own = {name: values[0] for name, values in parameters.items()}
            self._alone(own, features[0], targets[0], found.__setitem__)
        return found

    def _by_name(self, name: str, calls: Sequence[LayerCall]) -> list[tuple[str, PerExample]]:
        layer, whole = self._layers[name], [_whole(call) for call in calls]
        rule = BY_PRODUCTS[type(layer)](layer, whole)
        return [(f"{name}.{key}".lstrip("."), rule[key]) for key, _ in layer.named_parameters(recurse=False)]


class StackedExamples:
    """The gradients of each example, by ``torch.func``: for whatever has no rules.

    Parameters
    ----------
    network, passing
        Arguments as of `StackedGradients`, of any module.
    """

    def __init__(self, network: Network, passing: Passing) -> None:
        self._gradients, self._passing = ExampleGradients(network, steady=True), passing

    def __call__(
        self, models: Tensor, features: Tensor, targets: Tensor, present: Tensor, clips: Tensor
    ) -> GradientSums:
        """See `StackedGradients`."""
        batch = PaddedBatch(features, targets, present)
        with self._passing():
            gradients = self._gradients.gradients(models, batch.features, batch.targets)
        return self._gradients.summed([gradient.to(models.dtype) for gradient in gradients], batch, clips, models.dtype)


def node_sums(found: PerExample, weights: Tensor) -> Tensor:
    """``sum_n weights[k, n] gradient_kn`` of the examples n of each node k, [nodes, size]."""
    nodes, examples = weights.shape
    if isinstance(found, StoredGradients):
        gradients = found.gradients.reshape(nodes, examples, -1)
        return (weights[:, None] @ gradients)[:, 0]
    g = torch.unflatten(found.gradients * weights.flatten()[:, None, None, None], 0, (nodes, examples))
    a = torch.unflatten(found.inputs, 0, (nodes, examples))
    g, a = (values.transpose(1, 2).flatten(2, 3) for values in (g, a))  # [nodes, groups, examples positions, fan]
    return (g.mT @ a).flatten(1)


def _where(sound: Tensor, found: PerExample) -> PerExample:
    def kept(values: Tensor) -> Tensor:
        return torch.where(sound.view(-1, *[1] * (values.ndim - 1)), values, 0)

    if isinstance(found, StoredGradients):
        return StoredGradients(kept(found.gradients))
    return Factored(kept(found.inputs), kept(found.gradients))


def _whole(call: LayerCall) -> LayerCall:
    """The call in float32, if a pass was in something shorter."""
    if call.gradients.dtype == call.inputs.dtype and call.inputs.dtype not in (torch.bfloat16, torch.float16):
        return call
    return LayerCall(call.inputs.float(), call.gradients.float())


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
        return patches_of(layer, images, _outputs(layer, images.shape[-2:])).flatten(1, 2)

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


_ENOUGH = 2**22
"""Numbers that the layers of a node's examples put out, with which a graphics card is busy without other nodes."""
_COPIES, _GRADIENTS = 8.0, 1.5
"""Numbers held for each that a layer puts out: inputs, gradients, patches; and for each of a gradient that is
formed."""


class _NetworkWay(NamedTuple):
    """A split on the device, ways to gradients and to outputs of it, and how many examples at once."""

    features: Tensor
    targets: Tensor
    gradients: StackedGradients | StackedExamples
    network: Network
    limits: DeviceLimits
    rows: int
    strategy: str

    def method(self, models: Tensor, examples: PaddedExamples, clips: Tensor) -> GradientSums:
        """See `device.Method`."""
        places, present = examples
        with torch.enable_grad():
            return self.gradients(models, self.features[places], self.targets[places], present, clips)


class DeviceNetwork(SumsThere, TorchModule):
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
        self._kernels = False
        self._settle(device, partial(TorchModule, module, **settings))

    def computing(self) -> Computing:
        """See `Objective.computing`."""
        work = next(iter(self._ways.values()), None)
        return Computing(self.strategy if work is None else work.strategy, device=self.device.title)

    def evaluate(self, models: FloatArray, split: Split) -> Evaluation:
        """See `TorchModule.evaluate`."""
        if len(split) == 0:
            raise DataError("an evaluation needs at least 1 example, found an empty split")
        plan, models, work = self.plan(split), self.rows(models, len(models)), self._way(split)
        totals = torch.zeros((len(models), 2), dtype=torch.float64, device=self.device.place)
        with self.device.computing(work.rows), torch.no_grad():
            for row, model in enumerate(models):
                parameters = work.network.parameters(self.device.upload(model))
                for start in range(0, len(split), work.rows):
                    part = slice(start, start + work.rows)
                    outputs, targets = work.network.outputs(parameters, work.features[part]), work.targets[part]
                    totals[row, 0] += work.network.loss.values(outputs, targets).double().sum()
                    if plan.classes:
                        totals[row, 1] += (work.network.loss.scores(outputs).argmax(1) == targets).sum()
        loss, correct = self.device.download(totals).T / len(split)
        return Evaluation(loss, correct if plan.classes else np.full_like(loss, np.nan))

    def _taken(self, data: Split) -> _NetworkWay:
        def moved(network: Network) -> Network:
            return replace(network, module=copy.deepcopy(network.module).to(self.device.place))

        plan, whole = self.plan(data), slice(0, len(data))
        if plan.strategy == "loop":
            raise ModelError(f"compute.device: {plan.unchained}, which a device needs; leave compute.device out")
        stacked = plan.strategy == "layers" and is_of_torch(plan.network.module)
        formed = 0 if stacked else _GRADIENTS * self.size
        each = (_COPIES * plan.put_out + formed) * self.dtype.itemsize
        most = max(1, int(self.device.memory / each))
        with self.device.computing():
            kind = StackedGradients if stacked else StackedExamples
            return _NetworkWay(
                self._tensors.features(data, whole).to(self.device.place),
                self._tensors.targets(data, whole).to(self.device.place),
                kind(moved(plan.network), self.device.passing),
                moved(self._network),
                DeviceLimits(most, max(1, _ENOUGH // max(1, plan.put_out))),
                max(1, self.device.memory // (2 * plan.put_out * self.dtype.itemsize)),
                "stacked layers" if stacked else "stacked examples",
            )
