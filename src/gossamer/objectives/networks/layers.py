"""Per-example gradients of single layers, from what went into a layer and what came back through it.

One backward pass over a batch gives, at every layer, each example's inputs a and the gradient g by its outputs.
The gradient by the layer's parameters follows from these two alone:

| layer | per-example gradient | held as |
|---|---|---|
| `Linear` | weight: sum_t g_t a_t', bias: sum_t g_t, over positions t (one, or a sequence) | the cheaper of the two |
| `Conv1d`, `Conv2d`, `Conv3d` | the same, with a_t the patch under position t | the cheaper of the two |
| `GroupNorm`, `LayerNorm` | weight: sum_t g_t * normalised a_t, bias: sum_t g_t | stored |

*Stored* gradients are arrays of numbers. *Factored* ones stay the two factors: their norms come from inner products
between positions, ``|sum_t g_t a_t'|^2 = sum_ts (g_t . g_s)(a_t . a_s)``, and a weighted sum over examples is one
matrix product. A large layer's gradients are then never formed one by one.

References
----------
Factored norms: Goodfellow, "Efficient per-example gradient computations", 2015 (one position); Li et al., "Large
language models can be strong differentially private learners", ICLR 2022, section 4 (several). The weighted sum
from the kept factors, without a second backward pass: Bu et al., "Differentially private optimization on large model
at small cost", ICML 2023.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn import grad as convolution_gradients

from gossamer.arrays import FloatArray
from gossamer.machine_code import compiled
from gossamer.objectives.linear.kernels import dense_square

_ROUNDING = 1e-4
"""Factors may cancel. A norm below this part of what cancels is mostly rounding error of the float32 sum, so it is
taken to be that large: such an example is scaled down a little more than it must be, never less."""


class LayerCall(NamedTuple):
    """One passage of a batch through a layer, both arrays with the examples first."""

    inputs: Tensor
    gradients: Tensor  # by the outputs
    statistics: tuple[Tensor, Tensor] | None = None  # of a normalisation: means and reciprocal deviations


@compiled(fastmath={"reassoc", "contract"})
def _add_squares(rows: FloatArray, total: npt.NDArray[np.float64]) -> None:
    for n in range(len(rows)):
        total[n] += dense_square(rows[n], False)


@compiled(fastmath={"contract"})
def _add_weighted(rows: FloatArray, weights: FloatArray, total: FloatArray) -> None:
    for n in range(len(rows)):
        for j in range(len(total)):
            total[j] += weights[n] * rows[n, j]


@compiled()
def clip_factors(squares: FloatArray, clip: float, tiny: float, weights: FloatArray) -> tuple[int, int]:
    """Write factors that bring norms to a clip at most, as `gradients.clip_weights`, and count norms.

    Returns
    -------
    tuple of int
        Number of norms that are not finite, and of those that are and within the clip.
    """
    unsound = within = 0
    for n in range(len(squares)):
        norm = np.sqrt(squares[n])
        unsound += not np.isfinite(norm)
        within += np.isfinite(norm) and norm <= clip
        weights[n] = min(1 / norm * clip, 1.0)  # of a norm of 0 as well
        if weights[n] < tiny:
            weights[n] = 0
    return unsound, within


@dataclass(frozen=True)
class StoredGradients:
    """Per-example gradients as numbers, [examples, *shape]."""

    gradients: Tensor

    @cached_property
    def _rows(self) -> FloatArray:
        return np.ascontiguousarray(self.gradients.numpy()).reshape(len(self.gradients), -1)

    def add_squares(self, total: Tensor) -> None:
        """Add squared L2 norms to ``total`` [examples] of float64, which no square of float32 leaves."""
        if total.is_cpu:
            _add_squares(self._rows, total.numpy())
        else:
            total += self.gradients.flatten(1).square().sum(1)

    def add_weighted(self, weights: FloatArray, total: FloatArray) -> None:
        """Add ``sum_n weights[n] gradients[n]``, [*shape] flattened, to ``total``."""
        _add_weighted(self._rows, weights, total)


@dataclass(frozen=True)
class Factored:
    """Per-example gradients ``sum_t g_t a_t'``, never formed.

    Attributes
    ----------
    inputs : Tensor [examples, groups, positions, fan_in]
    gradients : Tensor [examples, groups, positions, fan_out]
    """

    inputs: Tensor
    gradients: Tensor

    def add_squares(self, total: Tensor) -> None:
        """Add squared L2 norms to ``total`` [examples] of float64, since the inner products may cancel."""
        a, g = self.inputs.double(), self.gradients.double()
        if a.shape[2] == 1:  # one product, of which nothing cancels
            squares = (a.square().sum((2, 3)) * g.square().sum((2, 3))).sum(1)
        else:
            squares = ((a @ a.mT) * (g @ g.mT)).sum((1, 2, 3))
            cancelling = (a.norm(dim=3) * g.norm(dim=3)).sum((1, 2))
            squares = squares.maximum((_ROUNDING * cancelling).square())
        total += squares

    def add_weighted(self, weights: FloatArray, total: FloatArray) -> None:
        """Add ``sum_n weights[n] sum_t g_t a_t'``, [groups, fan_out, fan_in] flattened, to ``total``."""
        g = (self.gradients * torch.from_numpy(weights)[:, None, None, None]).transpose(0, 1).flatten(1, 2)
        a = self.inputs.transpose(0, 1).flatten(1, 2)
        torch.from_numpy(total).view(len(g), g.shape[2], a.shape[2]).baddbmm_(g.mT, a)


PerExample = StoredGradients | Factored
Rule = Callable[[Any, Sequence[LayerCall]], dict[str, PerExample]]


class Joined:
    """Per-example gradients by all parameters.

    Attributes
    ----------
    square_norms : Tensor [examples] of float64
        Squared L2 norms of what was taken.
    """

    def __init__(self, sizes: Mapping[str, int], examples: int) -> None:
        self._sizes, self._found = sizes, dict[str, PerExample]()
        self.square_norms = torch.zeros(examples, dtype=torch.float64)

    def take(self, name: str, found: PerExample) -> None:
        """Take gradients by a parameter: their norms are found while they are in the cache."""
        self._found[name] = found
        found.add_squares(self.square_norms)

    def weighted_sum(self, weights: FloatArray) -> FloatArray:
        """``sum_n weights[n] gradient_n`` as a flat vector, [size]; zero for what was not taken."""
        total, start = np.zeros(sum(self._sizes.values()), weights.dtype), 0
        for name, size in self._sizes.items():
            if name in self._found:  # a weight that layers share has one name here, and several there
                self._found[name].add_weighted(weights, total[start : start + size])
            start += size
        return total


_FORMED = 2**12
"""Numbers of a gradient that are sooner formed than factors handled."""


def is_factored(positions: int, fan_in: int, fan_out: int) -> bool:
    """Whether inner products between positions cost less than forming the gradients."""
    return fan_in * fan_out >= _FORMED and positions**2 * (fan_in + fan_out) < positions * fan_in * fan_out


def _linear(layer: nn.Linear, calls: Sequence[LayerCall]) -> dict[str, PerExample]:
    a, g = (_behind(map(_sequence, each)) for each in ((c.inputs for c in calls), (c.gradients for c in calls)))
    if is_factored(a.shape[1], layer.in_features, layer.out_features):
        weight: PerExample = Factored(a[:, None], g[:, None])
    else:  # of one position entry by entry: a product of matrices that small costs its call
        weight = StoredGradients(_product(g.mT, a) if a.shape[1] > 1 else g.mT * a)
    return {"weight": weight} if layer.bias is None else {"weight": weight, "bias": StoredGradients(g.sum(1))}


_ONE_THREAD = 2**18
"""Products of numbers in a matrix product that OpenBLAS never shares among threads."""


def _product(left: Tensor, right: Tensor) -> Tensor:
    """Products of matrices, small ones by NumPy's BLAS: torch's takes a half longer for them."""
    if left.is_cpu and left.shape[-2] * right.shape[-2:].numel() <= _ONE_THREAD:
        return torch.from_numpy(np.matmul(left.numpy(), right.numpy()))
    return left @ right


def _behind(arrays: Iterable[Tensor], dim: int = 1) -> Tensor:
    """Arrays one behind the other, along their positions; one alone is not copied."""
    first, *rest = arrays
    return torch.cat([first, *rest], dim) if rest else first


def _sequence(values: Tensor) -> Tensor:
    """[examples, ..., size] as [examples, positions, size]."""
    return values if values.ndim == 3 else values.reshape(values.shape[0], -1, values.shape[-1])


_LANES = 8
"""Grouped convolutions are fast for whole vectors of channels on both sides. So others get channels of zeros, unless
that more than doubles the work: then patches and a matrix product are faster, and where patches are mere views.
Milliseconds of patches, of a grouped convolution, and of one with zeros, for 32 images: 0.79, 1.09, 0.36 (12 x 12,
8 -> 4 channels, 5x5); 0.91, 1.51, 0.69 (16 x 16, 12 -> 12, 3x3); 0.31, 0.63, 1.25 (28 x 28, 1 -> 8, 5x5). At 16 -> 16
channels (32 x 32, 3x3), which are whole, patches take 4.8 times as long."""

Convolution = nn.Conv1d | nn.Conv2d | nn.Conv3d


def _convolution(layer: Convolution, calls: Sequence[LayerCall], products: bool = False) -> dict[str, PerExample]:
    """Weight and bias; by ``products`` of matrices alone where a convolution of many groups would be slow."""
    positions = sum(math.prod(call.gradients.shape[2:]) for call in calls)
    fan_in, fan_out = layer.weight[0].numel(), layer.out_channels // layer.groups
    if is_factored(positions, fan_in, fan_out):
        weight: PerExample = Factored(
            _behind((_patches(layer, call).mT for call in calls), 2),
            _behind((_grouped(layer, call).mT for call in calls), 2),
        )
    elif products or _by_patches(layer):
        weight = _total(_product(_grouped(layer, call), _patches(layer, call).mT) for call in calls)
    else:
        weight = _total(_weight_gradients(layer, call) for call in calls)
    return {"weight": weight, "bias": _total(_over_positions(call.gradients) for call in calls)}


def _whole(channels: int) -> int:
    """At least so many channels, in whole vectors."""
    return -(-channels // _LANES) * _LANES


def _by_patches(layer: Convolution) -> bool:
    inputs, outputs = layer.in_channels, layer.out_channels
    return layer.groups == 1 and (
        math.prod(layer.kernel_size) == 1 or _whole(inputs) * _whole(outputs) > 2 * inputs * outputs
    )


def _total(gradients: Iterable[Tensor]) -> StoredGradients:
    return StoredGradients(reduce(torch.add, gradients))


def _over_positions(values: Tensor) -> Tensor:
    """[examples, channels, *positions] summed to [examples, channels]."""
    return values.sum(tuple(range(2, values.ndim))) if values.ndim > 2 else values


def _patches(layer: Convolution, call: LayerCall) -> Tensor:
    return patches_of(layer, call.inputs, call.gradients.shape[2:])


def patches_of(layer: Convolution, inputs: Tensor, outputs: Sequence[int]) -> Tensor:
    """Inputs that each of the ``outputs`` positions sees, [examples, groups, fan_in, positions].

    One entry of the kernel after the other looks at a shifted image: such copies have longer runs, and take a third
    of the time, than going through the positions.
    """
    padding = layer.padding
    assert not isinstance(padding, str)  # `handles` refuses it
    patches = F.pad(inputs.contiguous(), [p for p in reversed(padding) for _ in (0, 1)]) if any(padding) else inputs
    for axis, (size, kernel) in enumerate(zip(outputs, layer.kernel_size)):
        stride, dilation = layer.stride[axis], layer.dilation[axis]
        shifted = patches.unfold(2 + axis, (size - 1) * stride + 1, dilation).narrow(2 + axis, 0, kernel)
        patches = shifted[..., ::stride]
    examples = len(patches)  # [examples, channels, *kernel, *outputs]
    fan_in = layer.in_channels // layer.groups * math.prod(layer.kernel_size)
    return patches.reshape(examples, layer.groups, fan_in, math.prod(outputs))


def _grouped(layer: Convolution, call: LayerCall) -> Tensor:
    """[examples, groups, fan_out, positions]; without a copy, whether channels or positions come last in memory."""
    g = call.gradients
    g = g.flatten(2) if g.is_contiguous() else g.movedim(1, -1).flatten(1, -2).mT
    return torch.unflatten(g, 1, (layer.groups, -1))


def _weight_gradients(layer: Convolution, call: LayerCall) -> Tensor:
    """All examples at once as the groups of one convolution, [examples, *weight.shape]."""
    examples = len(call.inputs)
    outputs, fan_in, *kernel = layer.weight.shape
    more = (_whole(fan_in) - fan_in, _whole(outputs) - outputs) if layer.groups == 1 else (0, 0)
    inputs, gradients = (_with_zeros(*each) for each in zip((call.inputs, call.gradients), more))
    found: Tensor = getattr(convolution_gradients, f"conv{len(kernel)}d_weight")(
        inputs.flatten(0, 1)[None],
        (examples * (outputs + more[1]), fan_in + more[0], *kernel),
        gradients.flatten(0, 1)[None],
        layer.stride,
        layer.padding,
        layer.dilation,
        examples * layer.groups,
    )
    return torch.unflatten(found, 0, (examples, -1))[:, :outputs, :fan_in]


def _with_zeros(values: Tensor, more: int) -> Tensor:
    """[examples, channels, *positions] with ``more`` channels of zeros."""
    values = values.contiguous()
    return F.pad(values, [0, 0] * (values.ndim - 2) + [0, more]) if more else values


def _group_norm(layer: nn.GroupNorm, calls: Sequence[LayerCall]) -> dict[str, PerExample]:
    weights, biases = zip(*(_of_group_norm(layer, call) for call in calls))
    return {"weight": _total(weights), "bias": _total(biases)}


def _of_group_norm(layer: nn.GroupNorm, call: LayerCall) -> tuple[Tensor, Tensor]:
    """By weight and bias, each [examples, channels]: torch's own loop, to which examples are further groups."""
    examples, channels, *lengths = call.inputs.shape
    positions, every, groups = math.prod(lengths), examples * channels, layer.num_groups
    # Of one position, torch may take images for such whose channels come last, and read beyond their ends.
    a, g = (each.reshape(1, every, positions).contiguous() for each in (call.inputs, call.gradients))
    if call.statistics is None:
        _, mean, scale = torch.native_group_norm(a, None, None, examples, channels, positions, groups, layer.eps)
    else:
        mean, scale = call.statistics
    # Of the layer's own weight only the length counts, as long as no gradient by inputs is asked for.
    _, weight, bias = torch.ops.aten.native_group_norm_backward(
        g, a, mean, scale, a.new_empty(every), 1, every, positions, examples * groups, [False, True, True]
    )
    return weight.view(examples, channels), bias.view(examples, channels)


def _layer_norm(layer: nn.LayerNorm, calls: Sequence[LayerCall]) -> dict[str, PerExample]:
    shape = layer.normalized_shape

    def normalised(call: LayerCall) -> Tensor:
        if call.statistics is None:
            return F.layer_norm(call.inputs, shape, eps=layer.eps)
        mean, scale = call.statistics
        return (call.inputs - mean).mul_(scale)

    def over_positions(values: Tensor) -> Tensor:
        return values.reshape(values.shape[0], -1, *shape).sum(1)

    return {
        "weight": _total(over_positions(normalised(call).mul_(call.gradients)) for call in calls),
        "bias": _total(over_positions(call.gradients) for call in calls),
    }


RULES: Mapping[type[nn.Module], Rule] = {
    nn.Linear: _linear,
    nn.Conv1d: _convolution,
    nn.Conv2d: _convolution,
    nn.Conv3d: _convolution,
    nn.GroupNorm: _group_norm,
    nn.LayerNorm: _layer_norm,
}
"""Layer types with a rule, exactly these: a subclass may compute something else."""

BY_PRODUCTS: Mapping[type[nn.Module], Rule] = {
    **RULES,
    **{kind: partial(_convolution, products=True) for kind in (nn.Conv1d, nn.Conv2d, nn.Conv3d)},
}
"""Rules for devices: graphics cards take a group of a convolution after the other, and batches of products at once."""


def handles(layer: nn.Module) -> bool:
    """Whether a rule covers this layer with its settings and its trainable parameters."""
    own = list(layer.parameters(recurse=False))
    padded_by_rule = getattr(layer, "padding_mode", "zeros") == "zeros"
    return (
        type(layer) in RULES
        and all(parameter.requires_grad for parameter in own)
        and padded_by_rule
        and not isinstance(getattr(layer, "padding", 0), str)
    )
