"""Deep convolutional networks for small images: VGG-19, GoogLeNet, and residual ones."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gossamer.objectives.models.blocks import (
    ImageNetwork,
    Residual,
    SqueezeExcite,
    conv_norm,
    conv_norm_relu,
    image_channels,
    projection,
    scaled,
    stage,
)

# ResNeXt-29 with two groups of width 64.
# Xie et al., "Aggregated residual transformations for deep neural networks", CVPR 2017: figure 3(c) (the block as a
# grouped convolution) and section 5.2 (the 29-layer network for CIFAR).

_GROUPS = 2
_RESNEXT = ((64, 1), (128, 2), (256, 2))  # width of a group, stride of the first of three blocks


def _bottleneck(inputs: int, outputs: int, stride: int) -> Residual:
    """1x1 down, grouped 3x3, 1x1 up to twice the channels between."""
    inner = outputs // 2
    body = nn.Sequential(
        conv_norm_relu(inputs, inner, 1),
        conv_norm_relu(inner, inner, 3, stride, groups=_GROUPS),
        conv_norm(inner, outputs, 1),
    )
    return Residual(body, projection(inputs, outputs, stride), nn.ReLU())


class ResNeXt29(ImageNetwork):
    """Three stages of three bottlenecks, each with two parallel transformations.

    Parameters
    ----------
    input_shape : tuple of int
        [channels, height, width].
    classes : int
    width : float
        Multiplies the channels.
    """

    def __init__(self, input_shape: tuple[int, ...], classes: int, *, width: float = 1.0) -> None:
        inputs = scaled(64, width)
        layers: dict[str, nn.Module] = {"stem": conv_norm_relu(image_channels("resnext29", input_shape), inputs, 3)}
        for number, (channels, stride) in enumerate(_RESNEXT, start=1):
            outputs = 2 * _GROUPS * scaled(channels, width)
            layers[f"stage{number}"] = stage(_bottleneck, inputs, outputs, 3, stride)
            inputs = outputs
        super().__init__(layers, inputs, classes)


# ResNet-18 for small images.
# He et al., "Deep residual learning for image recognition", CVPR 2016, table 1; the first convolution is 3x3 with
# stride 1 and without pooling, as in their section 4.2 on CIFAR-10.

_RESNET = ((64, 1), (128, 2), (256, 2), (512, 2))  # channels, stride of the first of two blocks


def basic_block(inputs: int, outputs: int, stride: int, *last: nn.Module) -> Residual:
    """Two 3x3 convolutions (and ``last``) beside a shortcut; their figure 5, left."""
    body = nn.Sequential(conv_norm_relu(inputs, outputs, 3, stride), conv_norm(outputs, outputs, 3), *last)
    return Residual(body, projection(inputs, outputs, stride), nn.ReLU())


class ResNet18(ImageNetwork):
    """Four stages of two basic blocks.

    Parameters
    ----------
    input_shape : tuple of int
        [channels, height, width].
    classes : int
    width : float
        Multiplies the channels.
    """

    name = "resnet18"

    @staticmethod
    def block(inputs: int, outputs: int, stride: int) -> Residual:
        """One of the two blocks of a stage."""
        return basic_block(inputs, outputs, stride)

    def __init__(self, input_shape: tuple[int, ...], classes: int, *, width: float = 1.0) -> None:
        inputs = scaled(64, width)
        layers: dict[str, nn.Module] = {"stem": conv_norm_relu(image_channels(self.name, input_shape), inputs, 3)}
        for number, (channels, stride) in enumerate(_RESNET, start=1):
            outputs = scaled(channels, width)
            layers[f"stage{number}"] = stage(self.block, inputs, outputs, 2, stride)
            inputs = outputs
        super().__init__(layers, inputs, classes)


# SENet-18: ResNet-18 with squeeze-and-excitation.
# Hu, Shen and Sun, "Squeeze-and-excitation networks", CVPR 2018: figure 3 (the block scales the residual branch, before
# the sum) and section 6.1 (16 times fewer hidden units than channels).
class SENet18(ResNet18):
    """Four stages of two basic blocks, each with a squeeze-and-excitation block.

    Parameters
    ----------
    input_shape : tuple of int
        [channels, height, width].
    classes : int
    width : float
        Multiplies the channels.
    """

    name = "senet18"

    @staticmethod
    def block(inputs: int, outputs: int, stride: int) -> Residual:
        """A basic block whose residual branch is scaled before the sum."""
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
        self.one = conv_norm_relu(inputs, one, 1)
        self.three = nn.Sequential(conv_norm_relu(inputs, reduce3, 1), conv_norm_relu(reduce3, three, 3))
        self.five = nn.Sequential(
            conv_norm_relu(inputs, reduce5, 1), conv_norm_relu(reduce5, five, 3), conv_norm_relu(five, five, 3)
        )
        self.pool = nn.Sequential(nn.MaxPool2d(3, stride=1, padding=1), conv_norm_relu(inputs, pool, 1))
        self.channels = one + three + five + pool

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat((self.one(x), self.three(x), self.five(x), self.pool(x)), dim=1)


class GoogLeNet(ImageNetwork):
    """Nine inception modules.

    Parameters
    ----------
    input_shape : tuple of int
        [channels, height, width].
    classes : int
    width : float
        Multiplies the channels.
    """

    def __init__(self, input_shape: tuple[int, ...], classes: int, *, width: float = 1.0) -> None:
        channels = scaled(192, width)
        layers: dict[str, nn.Module] = {"stem": conv_norm_relu(image_channels("googlenet", input_shape), channels, 3)}
        for name, branches in _INCEPTIONS.items():
            if branches is None:
                layers[name] = nn.MaxPool2d(3, stride=2, padding=1)
                continue
            one, reduce3, three, reduce5, five, pool = (scaled(branch, width) for branch in branches)
            layers[name] = inception = _Inception(channels, one, reduce3, three, reduce5, five, pool)
            channels = inception.channels
        super().__init__(layers, channels, classes)


# VGG-19 for small images.
# Simonyan and Zisserman, "Very deep convolutional networks for large-scale image recognition", ICLR 2015, table 1,
# configuration E; one linear layer in place of three, as images of 32 x 32 pixels leave one position.

_VGG = ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4))  # channels, convolutions


class VGG19(ImageNetwork):
    """Sixteen 3x3 convolutions in five stages, halving the image after each, and a linear layer.

    Parameters
    ----------
    input_shape : tuple of int
        [channels, height, width], at least 32 x 32 pixels.
    classes : int
    width : float
        Multiplies the channels.
    """

    def __init__(self, input_shape: tuple[int, ...], classes: int, *, width: float = 1.0) -> None:
        inputs = image_channels("vgg19", input_shape, least=32)
        layers: dict[str, nn.Module] = {}
        for number, (channels, depth) in enumerate(_VGG, start=1):
            outputs = scaled(channels, width)
            blocks = [conv_norm_relu(outputs if i else inputs, outputs, 3) for i in range(depth)]
            layers[f"stage{number}"] = nn.Sequential(*blocks, nn.MaxPool2d(2))
            inputs = outputs
        super().__init__(layers, inputs, classes)
