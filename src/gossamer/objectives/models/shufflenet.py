"""ShuffleNet for small images, in its second version.

A(DP)2SGD cites the first version, but the 4.82 MB in its table 2 are those of the second.

References
----------
Ma et al., "ShuffleNet V2: practical guidelines for efficient CNN architecture design", ECCV 2018, figure 3(c, d) and
table 5 (1x); the first convolution has stride 1 and no pooling follows, since the images are 7 times smaller.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gossamer.objectives.models.blocks import ImageNetwork, conv_norm, conv_norm_relu, image_channels, scaled

_STAGES = ((116, 4), (232, 8), (464, 4))  # channels, units


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
        for number, (channels, units) in enumerate(_STAGES, start=2):  # the paper's first stage is the stem
            outputs = scaled(channels, width)
            later = (_Unit(outputs) for _ in range(units - 1))
            layers[f"stage{number}"] = nn.Sequential(_Reduction(inputs, outputs), *later)
            inputs = outputs
        last = scaled(1024, width)
        layers["last"] = conv_norm_relu(inputs, last, 1)
        super().__init__(layers, last, classes)
