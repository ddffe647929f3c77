"""A module read as a chain of layers that there are kernels for, with the shapes between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar, cast

from torch import nn

from gossamer.objectives.chains.layers import (
    Activation,
    Arranged,
    AveragePool,
    Convolution,
    Image,
    Layer,
    LinearLayer,
    Maximum,
    Normalisation,
    PooledConvolution,
    WeightPlaces,
)
from gossamer.vectors import Part

L = TypeVar("L", bound=Layer)

NOTHING = (nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.AlphaDropout)
"""Layers that leave numbers as they are, in evaluation mode."""

ACTIVATIONS: Mapping[type[nn.Module], str] = {nn.ReLU: "relu", nn.Tanh: "tanh", nn.Sigmoid: "sigmoid"}
"""All of them rise, so that they may change places with a maximum."""


class Unknown(ValueError):
    """A layer that there is no kernel for; the message names it."""


def chain_of(module: nn.Module, shape: Sequence[int], parts: Sequence[Part]) -> tuple[Layer, ...]:
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
    if not any(isinstance(each, (LinearLayer, Convolution, PooledConvolution)) for each in builder.layers):
        raise Unknown("no layer has parameters")
    if not isinstance(builder.layers[-1], LinearLayer):
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
        self.layers: list[Layer] = []
        self.flat = len(shape) == 1
        if len(shape) not in (1, 3):
            raise Unknown(f"examples are of shape {list(shape)}, expected [features] or [channels, height, width]")
        self.image = Image.dense(*((shape[0], 1, 1) if self.flat else shape))
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
        weights = WeightPlaces(*(self.starts.get(f"{name}.{key}".lstrip("."), -1) for key in ("weight", "bias")))
        try:
            known[type(layer)](layer, weights)
        except Unknown as problem:
            raise Unknown(f"{where} {problem}") from None

    def append(self, layer: Layer) -> None:
        self.layers.append(layer)
        self.image = layer.after

    def arrange(self, border: int = 0) -> None:
        """Have the layout dense, within a border; a first layer's input is so anyway."""
        image = self.image
        if border == 0 and image.is_dense:
            return
        height, width = image.height + 2 * border, image.width + 2 * border
        self.append(Arranged(image, Image.dense(image.channels, height, width), border))

    def flatten(self, layer: nn.Flatten, weights: WeightPlaces) -> None:
        if layer.start_dim != 1 or layer.end_dim != -1:
            raise Unknown("flattens other dimensions than those of an example")
        if not self.flat:
            self.arrange()
            self.image, self.flat = Image.dense(self.image.size, 1, 1), True

    def linear(self, layer: nn.Linear, weights: WeightPlaces) -> None:
        if not self.flat:
            raise Unknown("is of images that are not flattened")
        self.append(LinearLayer(self.image, Image.dense(layer.out_features, 1, 1), weights))

    def convolution(self, layer: nn.Conv2d, weights: WeightPlaces) -> None:
        self._is_image()
        padding, (height, width) = layer.padding, layer.kernel_size
        if layer.stride != (1, 1) or layer.dilation != (1, 1) or layer.groups != 1 or layer.padding_mode != "zeros":
            raise Unknown("has a stride, dilation, groups or padding that no kernel has")
        if isinstance(padding, str) or len(set(padding)) > 1:
            raise Unknown(f"pads by {padding}, expected the same number all around")
        if padding[0]:
            self.arrange(padding[0])
        image = self.image
        rows, columns = image.height - height + 1, image.width - width + 1
        after = Image(layer.out_channels, rows, columns, image.stride, rows * image.stride)
        self.append(Convolution(image, after, weights, height, width))

    def maximum(self, layer: nn.MaxPool2d, weights: WeightPlaces) -> None:
        size, stride = self._window(layer)
        if layer.dilation not in (1, (1, 1)) or layer.return_indices:
            raise Unknown("has a dilation, or returns indices")
        # A rising function of each number changes places with the maximum: it is computed of fewer numbers.
        swapped = self._popped(Activation)
        after = self._pooled(size, stride)
        if (convolution := self._popped(Convolution)) is not None:
            self.append(PooledConvolution(convolution.before, after, convolution, size, stride))
        else:
            self.append(Maximum(self.image, after, size, stride))
        if swapped is not None:
            self.append(Activation(after, after, swapped.name))

    def average(self, layer: nn.AvgPool2d, weights: WeightPlaces) -> None:
        size, stride = self._window(layer)
        if layer.divisor_override is not None:
            raise Unknown("divides by another number than that of a window's entries")
        self.append(AveragePool(self.image, self._pooled(size, stride), size, stride))

    def normalisation(self, layer: nn.GroupNorm, weights: WeightPlaces) -> None:
        if layer.affine and not weights.biased:
            raise Unknown("has a weight without a bias")
        if self.flat:
            raise Unknown("is of vectors")
        self.arrange()
        self._own()
        self.append(Normalisation(self.image, self.image, weights, layer.num_groups, layer.eps))

    def activation(self, layer: nn.Module, weights: WeightPlaces) -> None:
        self._own()
        self.append(Activation(self.image, self.image, ACTIVATIONS[type(layer)]))

    def _own(self) -> None:
        """Have numbers to change: examples themselves stay."""
        if not self.layers:
            self.append(Arranged(self.image, self.image, 0))

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

    def _pooled(self, size: int, stride: int) -> Image:
        rows, columns = ((length - size) // stride + 1 for length in (self.image.height, self.image.width))
        return Image.dense(self.image.channels, rows, columns)


def _pair(value: int | tuple[int, ...]) -> tuple[int, ...]:
    return value if isinstance(value, tuple) else (value, value)


def hooked(layer: nn.Module) -> bool:
    """Whether something is called beside the layer."""
    return bool(layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks)
