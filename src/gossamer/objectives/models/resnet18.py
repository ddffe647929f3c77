"""ResNet-18 for small images.

References
----------
He et al., "Deep residual learning for image recognition", CVPR 2016, table 1; the first convolution is 3x3 with
stride 1 and without pooling, as in their section 4.2 on CIFAR-10.
"""

from __future__ import annotations

from torch import nn

from gossamer.objectives.models.blocks import (
    ImageNetwork,
    Residual,
    conv_norm,
    conv_norm_relu,
    image_channels,
    projection,
    scaled,
)

_STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))  # channels, stride of the first of two blocks


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
        for number, (channels, stride) in enumerate(_STAGES, start=1):
            outputs = scaled(channels, width)
            blocks = self.block(inputs, outputs, stride), self.block(outputs, outputs, 1)
            layers[f"stage{number}"] = nn.Sequential(*blocks)
            inputs = outputs
        super().__init__(layers, inputs, classes)
