"""MobileNet for small images.

References
----------
Howard et al., "MobileNets: efficient convolutional neural networks for mobile vision applications", 2017, table 1;
the first convolution has stride 1, since the images are 7 times smaller.
"""

from __future__ import annotations

from torch import nn

from gossamer.objectives.models.blocks import ImageNetwork, conv_norm_relu, image_channels, scaled

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
