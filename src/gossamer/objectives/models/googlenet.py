"""GoogLeNet for small images.

References
----------
Szegedy et al., "Going deeper with convolutions", CVPR 2015, table 1, from inception (3a) on; the layers before it
become one 3x3 convolution, since the images are 7 times smaller. Each 5x5 convolution is two 3x3 ones, as in Szegedy
et al., "Rethinking the Inception architecture for computer vision", CVPR 2016, section 3.1. The auxiliary classifiers
and dropout are left out.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gossamer.objectives.models.blocks import ImageNetwork, conv_norm_relu, image_channels, scaled

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
