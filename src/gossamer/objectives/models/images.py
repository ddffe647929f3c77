"""Convolutional networks for small images: residual ones, GoogLeNet, VGG-19, and those of few parameters.

All normalise groups of channels where their papers normalise batches: group norm has the same parameters, and every
example keeps a gradient of its own.

References
----------
Wu and He, "Group normalization", ECCV 2018. Hu, Shen and Sun, "Squeeze-and-excitation networks", CVPR 2018.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, cast

import torch
from torch import Tensor, nn

from gossamer.errors import ModelError


def image_channels(name: str, input_shape: tuple[int, ...], least: int = 1) -> int:
    """Channels of images [channels, height, width] of at least ``least`` pixels each way.

    Raises
    ------
    ModelError
        If ``input_shape`` is no such shape.
    """
    if len(input_shape) != 3 or min(input_shape[1:]) < least:
        raise ModelError(
            f"{name} takes images [channels, height, width] of at least {least} x {least} pixels, found examples of "
            f"shape {list(input_shape)}; choose another model or reshape the examples"
        )
    return input_shape[0]


def scaled(channels: int, width: float) -> int:
    """``channels`` times ``width``, as a multiple of 4."""
    return max(4, 4 * round(channels * width / 4))


def conv_norm(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """A convolution without bias, which keeps the image's size (for stride 1), and normalisation."""
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.GroupNorm(math.gcd(32, outputs), outputs))  # as many of 32 groups as divide both


def conv_norm_act(
    inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1, act: Callable[[], nn.Module] = nn.ReLU
) -> nn.Sequential:
    """Convolution, normalisation and an activation."""
    return nn.Sequential(*conv_norm(inputs, outputs, kernel, stride, groups), act())


class ImageNetwork(nn.Sequential):
    """A stem, the network's body, perhaps a last 1x1 convolution, and a linear layer of the mean over positions.

    Parameters
    ----------
    input_shape : tuple of int
        Shape of an image, [channels, height, width].
    classes : int
        Number of classes.
    width : float
        Factor of all numbers of channels.

    Attributes
    ----------
    NAME : str
        Name in errors.
    STEM, LAST : int
        Numbers of channels of the first and of the last convolution; 0 for none.
    LEAST : int
        Least number of pixels each way.
    ACTIVATION : type
        Activation behind both.
    STAGES : sequence of tuple
        Channels, blocks and the stride of the first, for each stage; and what else its blocks are given.
    FIRST : int
        Number in the name of the first stage.
    WIDER : int
        Factor of the channels of all stages.
    POOLED : bool
        Whether the image is halved after each stage.
    """

    NAME: ClassVar[str]
    STEM: ClassVar[int] = 64
    LAST: ClassVar[int] = 0
    LEAST: ClassVar[int] = 1
    ACTIVATION: ClassVar[type[nn.Module]] = nn.ReLU
    STAGES: ClassVar[Sequence[tuple[int, ...]]] = ()
    FIRST: ClassVar[int] = 1
    WIDER: ClassVar[int] = 1
    POOLED: ClassVar[bool] = False

    def __init__(self, input_shape: tuple[int, ...], classes: int, *, width: float = 1.0) -> None:
        channels, layers = image_channels(self.NAME, input_shape, self.LEAST), OrderedDict[str, nn.Module]()
        if self.STEM:
            stem = scaled(self.STEM, width)
            layers["stem"], channels = conv_norm_act(channels, stem, 3, act=self.ACTIVATION), stem
        for name, layer, outputs in self.body(channels, width):
            layers[name], channels = layer, outputs
        if self.LAST:
            last = scaled(self.LAST, width)
            layers["last"], channels = conv_norm_act(channels, last, 1, act=self.ACTIVATION), last
        layers["classifier"] = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))
        super().__init__(layers)

    def body(self, channels: int, width: float) -> Iterator[tuple[str, nn.Module, int]]:
        """Name, layer and number of channels put out, of one layer after the other; by default of `STAGES`."""
        for number, (filters, depth, stride, *more) in enumerate(self.STAGES, self.FIRST):
            outputs, blocks = self.WIDER * scaled(filters, width), []
            for step in (stride, *[1] * (depth - 1)):
                blocks.append(self.block(channels, outputs, step, *more))
                channels = outputs
            yield f"stage{number}", nn.Sequential(*blocks, *([nn.MaxPool2d(2)] if self.POOLED else [])), outputs

    @abstractmethod
    def block(self, inputs: int, outputs: int, stride: int, *more: int) -> nn.Module:
        """Make a block of a stage."""


class Residual(nn.Module):
    """``after(body(x) + shortcut(x))``."""

    def __init__(self, body: nn.Module, shortcut: nn.Module, after: nn.Module) -> None:
        super().__init__()
        self.body = body
        self.shortcut = shortcut
        self.after = after

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.after(self.body(x) + self.shortcut(x)))


def projection(inputs: int, outputs: int, stride: int) -> nn.Module:
    """The shortcut of a residual block: the identity where shapes allow, else a strided 1x1 convolution."""
    return nn.Identity() if inputs == outputs and stride == 1 else conv_norm(inputs, outputs, 1, stride)


def inverted_residual(
    inputs: int, outputs: int, stride: int, expansion: int, activation: Callable[[], nn.Module], *last: nn.Module
) -> nn.Module:
    """1x1 up to ``expansion`` times the channels, 3x3 each channel by itself, 1x1 down (and ``last``).

    Beside it is a shortcut, unless the image is halved. Both are as in the networks that A(DP)2SGD measured: the first
    1x1 convolution is there also for an expansion of 1, and a shortcut to another number of channels is a 1x1
    convolution, where the paper on MobileNetV2 has none.
    """
    inner = inputs * expansion
    body = nn.Sequential(
        nn.Sequential(*conv_norm(inputs, inner, 1), activation()),
        nn.Sequential(*conv_norm(inner, inner, 3, stride, groups=inner), activation()),
        conv_norm(inner, outputs, 1),
        *last,
    )
    return Residual(body, projection(inputs, outputs, stride), nn.Identity()) if stride == 1 else body


class SqueezeExcite(nn.Module):
    """Scales each channel by a number in (0, 1), computed from the means of all channels."""

    def __init__(self, channels: int, hidden: int, activation: nn.Module) -> None:
        super().__init__()
        self.scales = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(channels, hidden),
            activation,
            nn.Linear(hidden, channels),
            nn.Sigmoid(),
        )

    def forward(self, x: Tensor) -> Tensor:
        scales: Tensor = self.scales(x)
        return x * scales[:, :, None, None]


# ResNeXt-29 with two groups of width 64.
# Xie et al., "Aggregated residual transformations for deep neural networks", CVPR 2017: figure 3(c) (the block as a
# grouped convolution) and section 5.2 (the 29-layer network for CIFAR).

_GROUPS = 2


class ResNeXt29(ImageNetwork):
    """Three stages of three bottlenecks, each with two parallel transformations."""

    NAME = "resnext29"
    STAGES = ((64, 3, 1), (128, 3, 2), (256, 3, 2))  # width of a group, blocks, stride
    WIDER = 2 * _GROUPS

    def block(self, inputs: int, outputs: int, stride: int, *more: int) -> nn.Module:
        """1x1 down, grouped 3x3, 1x1 up to twice the channels between."""
        inner = outputs // 2
        middle = conv_norm_act(inner, inner, 3, stride, groups=_GROUPS)
        body = nn.Sequential(conv_norm_act(inputs, inner, 1), middle, conv_norm(inner, outputs, 1))
        return Residual(body, projection(inputs, outputs, stride), nn.ReLU())


# ResNet-18 for small images.
# He et al., "Deep residual learning for image recognition", CVPR 2016, table 1; the first convolution is 3x3 with
# stride 1 and without pooling, as in their section 4.2 on CIFAR-10.


def basic_block(inputs: int, outputs: int, stride: int, *last: nn.Module) -> Residual:
    """Two 3x3 convolutions (and ``last``) beside a shortcut; their figure 5, left."""
    body = nn.Sequential(conv_norm_act(inputs, outputs, 3, stride), conv_norm(outputs, outputs, 3), *last)
    return Residual(body, projection(inputs, outputs, stride), nn.ReLU())


class ResNet18(ImageNetwork):
    """Four stages of two basic blocks."""

    NAME = "resnet18"
    STAGES = ((64, 2, 1), (128, 2, 2), (256, 2, 2), (512, 2, 2))

    def block(self, inputs: int, outputs: int, stride: int, *more: int) -> nn.Module:
        return basic_block(inputs, outputs, stride)


# SENet-18: ResNet-18 with squeeze-and-excitation.
# Hu, Shen and Sun, "Squeeze-and-excitation networks", CVPR 2018: figure 3 (the block scales the residual branch, before
# the sum) and section 6.1 (16 times fewer hidden units than channels).
class SENet18(ResNet18):
    """Four stages of two basic blocks, each with a squeeze-and-excitation block."""

    NAME = "senet18"

    def block(self, inputs: int, outputs: int, stride: int, *more: int) -> nn.Module:
        return basic_block(inputs, outputs, stride, SqueezeExcite(outputs, max(1, outputs // 16), nn.ReLU()))


# GoogLeNet for small images.
# Szegedy et al., "Going deeper with convolutions", CVPR 2015, table 1, from inception (3a) on; the layers before it
# become one 3x3 convolution, since the images are 7 times smaller. Each 5x5 convolution is two 3x3 ones, as in Szegedy
# et al., "Rethinking the Inception architecture for computer vision", CVPR 2016, section 3.1. The auxiliary classifiers
# and dropout are left out.

# 1x1, 3x3 reduce, 3x3, 5x5 reduce, 5x5, pool projection; None halves the image
_INCEPTIONS: dict[str, tuple[int, int, int, int, int, int] | None] = {
    "inception3a": (64, 96, 128, 16, 32, 32),
    "inception3b": (128, 128, 192, 32, 96, 64),
    "pool3": None,
    "inception4a": (192, 96, 208, 16, 48, 64),
    "inception4b": (160, 112, 224, 24, 64, 64),
    "inception4c": (128, 128, 256, 24, 64, 64),
    "inception4d": (112, 144, 288, 32, 64, 64),
    "inception4e": (256, 160, 320, 32, 128, 128),
    "pool4": None,
    "inception5a": (256, 160, 320, 32, 128, 128),
    "inception5b": (384, 192, 384, 48, 128, 128),
}


class _Inception(nn.Module):
    """Four branches side by side, joined channel by channel."""

    def __init__(self, inputs: int, one: int, reduce3: int, three: int, reduce5: int, five: int, pool: int) -> None:
        super().__init__()
        self.one = conv_norm_act(inputs, one, 1)
        self.three = nn.Sequential(conv_norm_act(inputs, reduce3, 1), conv_norm_act(reduce3, three, 3))
        self.five = nn.Sequential(
            conv_norm_act(inputs, reduce5, 1), conv_norm_act(reduce5, five, 3), conv_norm_act(five, five, 3)
        )
        self.pool = nn.Sequential(nn.MaxPool2d(3, stride=1, padding=1), conv_norm_act(inputs, pool, 1))
        self.channels = one + three + five + pool

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat((self.one(x), self.three(x), self.five(x), self.pool(x)), dim=1)


class GoogLeNet(ImageNetwork):
    """Nine inception modules."""

    NAME, STEM = "googlenet", 192

    def body(self, channels: int, width: float) -> Iterator[tuple[str, nn.Module, int]]:
        for name, branches in _INCEPTIONS.items():
            if branches is None:
                yield name, nn.MaxPool2d(3, stride=2, padding=1), channels
                continue
            inception = _Inception(channels, *(scaled(branch, width) for branch in branches))
            channels = inception.channels
            yield name, inception, channels


# VGG-19 for small images.
# Simonyan and Zisserman, "Very deep convolutional networks for large-scale image recognition", ICLR 2015, table 1,
# configuration E; one linear layer in place of three, as images of 32 x 32 pixels leave one position.
class VGG19(ImageNetwork):
    """Sixteen 3x3 convolutions in five stages, halving the image after each, and a linear layer."""

    NAME, STEM, LEAST, POOLED = "vgg19", 0, 32, True
    STAGES = ((64, 2, 1), (128, 2, 1), (256, 4, 1), (512, 4, 1), (512, 4, 1))

    def block(self, inputs: int, outputs: int, stride: int, *more: int) -> nn.Module:
        return conv_norm_act(inputs, outputs, 3)


# MobileNetV2 for small images.
# Sandler et al., "MobileNetV2: inverted residuals and linear bottlenecks", CVPR 2018, tables 1 and 2; the first two
# reductions are left out, since the images are 7 times smaller. Its blocks are those of the network of 8.76 MB that
# A(DP)2SGD measured (its table 2), see `inverted_residual`.
class MobileNetV2(ImageNetwork):
    """Seventeen inverted residual blocks."""

    NAME, STEM, LAST, ACTIVATION = "mobilenetv2", 32, 1280, nn.ReLU6
    STAGES = (
        (16, 1, 1, 1),
        (24, 2, 1, 6),
        (32, 3, 2, 6),
        (64, 4, 2, 6),
        (96, 3, 1, 6),
        (160, 3, 2, 6),
        (320, 1, 1, 6),
    )  # channels, blocks, stride of the first, expansion

    def block(self, inputs: int, outputs: int, stride: int, *more: int) -> nn.Module:
        return inverted_residual(inputs, outputs, stride, more[0], nn.ReLU6)


# EfficientNet-B0 for small images.
# Tan and Le, "EfficientNet: rethinking model scaling for convolutional neural networks", ICML 2019, table 1. The
# network that A(DP)2SGD measured (its table 2: 11.11 MB) is smaller, and so is this one: all kernels are 3x3, as in
# its source, https://github.com/kuangliu/pytorch-cifar in its version of May 2019; the first reduction is in another
# place, since the images are 7 times smaller; the last 1x1 convolution is left out; and squeeze-and-excitation scales
# the narrow end of a block. Dropout and dropped connections are left out.
class EfficientNetB0(ImageNetwork):
    """Sixteen inverted residual blocks with squeeze-and-excitation."""

    NAME, STEM, ACTIVATION = "efficientnet_b0", 32, nn.SiLU
    STAGES = (
        (16, 1, 2, 1),
        (24, 2, 1, 6),
        (40, 2, 2, 6),
        (80, 3, 2, 6),
        (112, 3, 1, 6),
        (192, 4, 2, 6),
        (320, 1, 2, 6),
    )  # channels, blocks, stride of the first, expansion

    def block(self, inputs: int, outputs: int, stride: int, *more: int) -> nn.Module:
        excite = SqueezeExcite(outputs, max(1, outputs // 16), nn.SiLU())  # as in SENet
        return inverted_residual(inputs, outputs, stride, more[0], nn.SiLU, excite)


# MobileNet for small images.
# Howard et al., "MobileNets: efficient convolutional neural networks for mobile vision applications", 2017, table 1;
# the first convolution has stride 1, since the images are 7 times smaller.

_BLOCKS = (
    (64, 1),
    (128, 2),
    (128, 1),
    (256, 2),
    (256, 1),
    (512, 2),
    *5 * ((512, 1),),
    (1024, 2),
    (1024, 1),
)  # channels, stride


class MobileNet(ImageNetwork):
    """Thirteen depthwise separable convolutions."""

    NAME, STEM = "mobilenet", 32

    def body(self, channels: int, width: float) -> Iterator[tuple[str, nn.Module, int]]:
        for number, (filters, stride) in enumerate(_BLOCKS, start=1):
            outputs = scaled(filters, width)
            yield f"depthwise{number}", conv_norm_act(channels, channels, 3, stride, groups=channels), channels
            yield f"pointwise{number}", conv_norm_act(channels, outputs, 1), outputs
            channels = outputs


# ShuffleNet for small images, in its second version.
#
# A(DP)2SGD cites the first version, but the 4.82 MB in its table 2 are those of the second.
# Ma et al., "ShuffleNet V2: practical guidelines for efficient CNN architecture design", ECCV 2018, figure 3(c, d) and
# table 5 (1x); the first convolution has stride 1 and no pooling follows, since the images are 7 times smaller.


def _branch(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        conv_norm_act(inputs, outputs, 1),
        conv_norm(outputs, outputs, 3, stride, groups=outputs),
        conv_norm_act(outputs, outputs, 1),
    )


def _shuffle(left: Tensor, right: Tensor) -> Tensor:
    """The channels of both, taken in turn."""
    return torch.stack((left, right), dim=2).flatten(1, 2)


class _Unit(nn.Module):
    """Half of the channels pass unchanged, the other half through a branch."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.branch = _branch(channels // 2, channels // 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        left, right = x.chunk(2, dim=1)
        return _shuffle(left, self.branch(right))


class _Reduction(nn.Module):
    """All channels through both branches; the image is halved."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        half = outputs // 2
        self.left = nn.Sequential(conv_norm(inputs, inputs, 3, 2, groups=inputs), conv_norm_act(inputs, half, 1))
        self.right = _branch(inputs, half, 2)

    def forward(self, x: Tensor) -> Tensor:
        return _shuffle(self.left(x), self.right(x))


class ShuffleNet(ImageNetwork):
    """Three stages of shuffle units."""

    NAME, STEM, LAST, FIRST = "shufflenet", 24, 1024, 2  # the paper's first stage is the stem
    STAGES = ((116, 4, 2), (232, 8, 2), (464, 4, 2))

    def block(self, inputs: int, outputs: int, stride: int, *more: int) -> nn.Module:
        return _Reduction(inputs, outputs) if stride == 2 else _Unit(outputs)
