"""SENet-18: ResNet-18 with squeeze-and-excitation.

References
----------
Hu, Shen and Sun, "Squeeze-and-excitation networks", CVPR 2018: figure 3 (the block scales the residual branch, before
the sum) and section 6.1 (16 times fewer hidden units than channels).
"""

from __future__ import annotations

from torch import nn

from gossamer.objectives.models.blocks import (
    ImageNetwork,
    Residual,
    SqueezeExcite,
    conv_norm_relu,
    image_channels,
    scaled,
)
from gossamer.objectives.models.resnet18 import STAGES, basic_block


def _block(inputs: int, outputs: int, stride: int) -> Residual:
    return basic_block(inputs, outputs, stride, SqueezeExcite(outputs, max(1, outputs // 16), nn.ReLU()))


class SENet18(ImageNetwork):
    """Four stages of two basic blocks, each with a squeeze-and-excitation block.

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
        layers: dict[str, nn.Module] = {"stem": conv_norm_relu(image_channels("senet18", input_shape), inputs, 3)}
        for number, (channels, stride) in enumerate(STAGES, start=1):
            outputs = scaled(channels, width)
            layers[f"stage{number}"] = nn.Sequential(_block(inputs, outputs, stride), _block(outputs, outputs, 1))
            inputs = outputs
        super().__init__(layers, inputs, classes)
