"""Convolutional networks of few parameters, for small images: MobileNets, EfficientNet-B0, ShuffleNet."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from gossamer.objectives.models.blocks import (
    ImageNetwork,
    SqueezeExcite,
    conv_norm,
    conv_norm_relu,
    image_channels,
    inverted_residual,
    scaled,
    stage,
)

# MobileNetV2 for small images.
# Sandler et al., "MobileNetV2: inverted residuals and linear bottlenecks", CVPR 2018, tables 1 and 2; the first two
# reductions are left out, since the images are 7 times smaller. Its blocks are those of the network of 8.76 MB that
# A(DP)2SGD measured (its table 2), see `gossamer.objectives.models.blocks.inverted_residual`.

_MOBILE = (
    (1, 16, 1, 1),
    (6, 24, 2, 1),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)  # expansion, channels, blocks, stride of the first


class MobileNetV2(ImageNetwork):
    """Seventeen inverted residual blocks.

    Parameters
    ----------
    input_shape : tuple of int
        [channels, height, width].
    classes : int
    width : float
        Multiplies the channels.
    """

    def __init__(self, input_shape: tuple[int, ...], classes: int, *, width: float = 1.0) -> None:
        inputs = scaled(32, width)
        stem = conv_norm(image_channels("mobilenetv2", input_shape), inputs, 3)
        layers: dict[str, nn.Module] = {"stem": nn.Sequential(*stem, nn.ReLU6())}
        for number, (expansion, channels, depth, stride) in enumerate(_MOBILE, start=1):
            outputs = scaled(channels, width)
            block = partial(inverted_residual, expansion=expansion, activation=nn.ReLU6)
            layers[f"stage{number}"] = stage(block, inputs, outputs, depth, stride)
            inputs = outputs
        last = scaled(1280, width)
        layers["last"] = nn.Sequential(*conv_norm(inputs, last, 1), nn.ReLU6())
        super().__init__(layers, last, classes)


# EfficientNet-B0 for small images.
# Tan and Le, "EfficientNet: rethinking model scaling for convolutional neural networks", ICML 2019, table 1. The
# network that A(DP)2SGD measured (its table 2: 11.11 MB) is smaller, and so is this one: all kernels are 3x3, as in
# its source, https://github.com/kuangliu/pytorch-cifar in its version of May 2019; the first reduction is in another
# place, since the images are 7 times smaller; the last 1x1 convolution is left out; and squeeze-and-excitation scales
# the narrow end of a block. Dropout and dropped connections are left out.

_EFFICIENT = (
    (1, 16, 1, 2),
    (6, 24, 2, 1),
    (6, 40, 2, 2),
    (6, 80, 3, 2),
    (6, 112, 3, 1),
    (6, 192, 4, 2),
    (6, 320, 1, 2),
)  # expansion, channels, blocks, stride of the first
_SQUEEZE = 16  # channels per hidden unit, as in SENet


def _block(inputs: int, outputs: int, stride: int, expansion: int) -> nn.Module:
    excite = SqueezeExcite(outputs, max(1, outputs // _SQUEEZE), nn.SiLU())
    return inverted_residual(inputs, outputs, stride, expansion, nn.SiLU, excite)


class EfficientNetB0(ImageNetwork):
    """Sixteen inverted residual blocks with squeeze-and-excitation.

    Parameters
    ----------
    input_shape : tuple of int
        [channels, height, width].
    classes : int
    width : float
        Multiplies the channels.
    """

    def __init__(self, input_shape: tuple[int, ...], classes: int, *, width: float = 1.0) -> None:
        inputs = scaled(32, width)
        stem = conv_norm(image_channels("efficientnet_b0", input_shape), inputs, 3)
        layers: dict[str, nn.Module] = {"stem": nn.Sequential(*stem, nn.SiLU())}
        for number, (expansion, channels, depth, stride) in enumerate(_EFFICIENT, start=1):
            outputs = scaled(channels, width)
            layers[f"stage{number}"] = stage(partial(_block, expansion=expansion), inputs, outputs, depth, stride)
            inputs = outputs
        super().__init__(layers, inputs, classes)


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
    """Thirteen depthwise separable convolutions.

    Parameters
    ----------
    input_shape : tuple of int
        [channels, height, width].
    classes : int
    width : float
        Multiplies the channels.
    """

    def __init__(self, input_shape: tuple[int, ...], classes: int, *, width: float = 1.0) -> None:
        inputs = scaled(32, width)
        layers: dict[str, nn.Module] = {"stem": conv_norm_relu(image_channels("mobilenet", input_shape), inputs, 3)}
        for number, (channels, stride) in enumerate(_BLOCKS, start=1):
            outputs = scaled(channels, width)
            layers[f"depthwise{number}"] = conv_norm_relu(inputs, inputs, 3, stride, groups=inputs)
            layers[f"pointwise{number}"] = conv_norm_relu(inputs, outputs, 1)
            inputs = outputs
        super().__init__(layers, inputs, classes)


# ShuffleNet for small images, in its second version.
#
# A(DP)2SGD cites the first version, but the 4.82 MB in its table 2 are those of the second.
# Ma et al., "ShuffleNet V2: practical guidelines for efficient CNN architecture design", ECCV 2018, figure 3(c, d) and
# table 5 (1x); the first convolution has stride 1 and no pooling follows, since the images are 7 times smaller.

_SHUFFLE = ((116, 4), (232, 8), (464, 4))  # channels, units


def _branch(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        conv_norm_relu(inputs, outputs, 1),
        conv_norm(outputs, outputs, 3, stride, groups=outputs),
        conv_norm_relu(outputs, outputs, 1),
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
        self.left = nn.Sequential(conv_norm(inputs, inputs, 3, 2, groups=inputs), conv_norm_relu(inputs, half, 1))
        self.right = _branch(inputs, half, 2)

    def forward(self, x: Tensor) -> Tensor:
        return _shuffle(self.left(x), self.right(x))


class ShuffleNet(ImageNetwork):
    """Three stages of shuffle units.

    Parameters
    ----------
    input_shape : tuple of int
        [channels, height, width].
    classes : int
    width : float
        Multiplies the channels.
    """

    def __init__(self, input_shape: tuple[int, ...], classes: int, *, width: float = 1.0) -> None:
        inputs = scaled(24, width)
        layers: dict[str, nn.Module] = {"stem": conv_norm_relu(image_channels("shufflenet", input_shape), inputs, 3)}
        for number, (channels, units) in enumerate(_SHUFFLE, start=2):  # the paper's first stage is the stem
            outputs = scaled(channels, width)
            later = (_Unit(outputs) for _ in range(units - 1))
            layers[f"stage{number}"] = nn.Sequential(_Reduction(inputs, outputs), *later)
            inputs = outputs
        last = scaled(1024, width)
        layers["last"] = conv_norm_relu(inputs, last, 1)
        super().__init__(layers, last, classes)
