"""Blocks that several of the networks are built from.

All networks normalise groups of channels where their papers normalise batches: group norm has the same parameters,
and every example keeps a gradient of its own.

References
----------
Wu and He, "Group normalization", ECCV 2018. Hu, Shen and Sun, "Squeeze-and-excitation networks", CVPR 2018.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping

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


def group_norm(channels: int) -> nn.GroupNorm:
    """Normalises 32 groups of channels, or as many as divide both."""
    return nn.GroupNorm(math.gcd(32, channels), channels)


def conv(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    """A convolution without bias that keeps the image's size (for stride 1)."""
    return nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)


def conv_norm(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Convolution and normalisation."""
    return nn.Sequential(conv(inputs, outputs, kernel, stride, groups), group_norm(outputs))


def conv_norm_relu(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Convolution, normalisation and ReLU."""
    return nn.Sequential(*conv_norm(inputs, outputs, kernel, stride, groups), nn.ReLU())


def classifier(channels: int, classes: int) -> nn.Sequential:
    """The mean over all positions of an image, then a linear layer."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


class ImageNetwork(nn.Sequential):
    """Named layers, and a `classifier` of the ``channels`` that the last one leaves."""

    def __init__(self, layers: Mapping[str, nn.Module], channels: int, classes: int) -> None:
        super().__init__(OrderedDict(layers, classifier=classifier(channels, classes)))


class Residual(nn.Module):
    """``after(body(x) + shortcut(x))``."""

    def __init__(self, body: nn.Module, shortcut: nn.Module, after: nn.Module) -> None:
        super().__init__()
        self.body = body
        self.shortcut = shortcut
        self.after = after

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.after(self.body(x) + self.shortcut(x))
        return y


def stage(
    block: Callable[[int, int, int], nn.Module], inputs: int, outputs: int, depth: int, stride: int
) -> nn.Sequential:
    """``depth`` blocks of (inputs, outputs, stride), of which the first alone has the stride and other inputs."""
    later = (block(outputs, outputs, 1) for _ in range(depth - 1))
    return nn.Sequential(block(inputs, outputs, stride), *later)


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
