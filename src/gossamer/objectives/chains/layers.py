"""Layers that there are kernels for, with the layouts of the numbers between them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Image:
    """Layout of the numbers between two layers: channels one behind the other, each in rows.

    Attributes
    ----------
    channels, height, width : int
        Numbers of channels, rows and columns that are read.
    stride : int
        Distance from one row to the next, at least the width.
    plane : int
        Distance from one channel to the next.
    """

    channels: int
    height: int
    width: int
    stride: int
    plane: int

    @classmethod
    def dense(cls, channels: int, height: int, width: int) -> Image:
        """Nothing between rows and channels."""
        return cls(channels, height, width, width, height * width)

    @property
    def is_dense(self) -> bool:
        """Whether nothing is between rows and channels."""
        return self == Image.dense(self.channels, self.height, self.width)

    @property
    def size(self) -> int:
        """Numbers that it takes."""
        return self.channels * self.plane


@dataclass(frozen=True)
class WeightPlaces:
    """Places in the flat vector where the parameters of a layer begin."""

    weight: int = -1
    bias: int = -1

    @property
    def biased(self) -> bool:
        return self.bias >= 0


@dataclass(frozen=True)
class Layer:
    """A layer with a kernel; ``before`` and ``after`` are the layouts around it."""

    before: Image
    after: Image


@dataclass(frozen=True)
class Arranged(Layer):
    """A copy in another layout, with ``border`` zeros around each channel."""

    border: int


@dataclass(frozen=True)
class Convolution(Layer):
    """A convolution of stride 1; columns of ``after`` behind its width are of no use."""

    weights: WeightPlaces
    height: int
    width: int

    @property
    def parameters(self) -> int:
        """Numbers in its kernels."""
        return self.after.channels * self.before.channels * self.height * self.width

    @property
    def length(self) -> int:
        """Numbers of one output channel, in one row."""
        return (self.after.height - 1) * self.after.stride + self.after.width


@dataclass(frozen=True)
class PooledConvolution(Layer):
    """A convolution whose outputs only a maximum over windows reads."""

    convolution: Convolution
    size: int
    stride: int


@dataclass(frozen=True)
class Maximum(Layer):
    """Maxima over windows."""

    size: int
    stride: int


@dataclass(frozen=True)
class AveragePool(Layer):
    """Means over windows."""

    size: int
    stride: int


@dataclass(frozen=True)
class LinearLayer(Layer):
    """W x + b."""

    weights: WeightPlaces


@dataclass(frozen=True)
class Activation(Layer):
    """A function of each number, in its place."""

    name: str


@dataclass(frozen=True)
class Normalisation(Layer):
    """`torch.nn.GroupNorm`."""

    weights: WeightPlaces
    groups: int
    eps: float
