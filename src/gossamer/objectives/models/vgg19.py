"""VGG-19 for small images.

References
----------
Simonyan and Zisserman, "Very deep convolutional networks for large-scale image recognition", ICLR 2015, table 1,
configuration E; one linear layer in place of three, as images of 32 x 32 pixels leave one position.
"""

from __future__ import annotations

from torch import nn

from gossamer.objectives.models.blocks import ImageNetwork, conv_norm_relu, image_channels, scaled

_STAGES = ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4))  # channels, convolutions


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
        for number, (channels, depth) in enumerate(_STAGES, start=1):
            outputs = scaled(channels, width)
            blocks = [conv_norm_relu(outputs if i else inputs, outputs, 3) for i in range(depth)]
            layers[f"stage{number}"] = nn.Sequential(*blocks, nn.MaxPool2d(2))
            inputs = outputs
        super().__init__(layers, inputs, classes)
