"""MobileNetV2 for small images.

References
----------
Sandler et al., "MobileNetV2: inverted residuals and linear bottlenecks", CVPR 2018, tables 1 and 2; the first two
reductions are left out, since the images are 7 times smaller. Its blocks are those of the network of 8.76 MB that
A(DP)2SGD measured (its table 2), see `gossamer.objectives.models.blocks.inverted_residual`.
"""

from __future__ import annotations

from torch import nn

from gossamer.objectives.models.blocks import ImageNetwork, conv_norm, image_channels, inverted_residual, scaled

_STAGES = (
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
        for number, (expansion, channels, depth, stride) in enumerate(_STAGES, start=1):
            outputs = scaled(channels, width)
            blocks = [inverted_residual(inputs, outputs, expansion, stride, nn.ReLU6)]
            blocks += [inverted_residual(outputs, outputs, expansion, 1, nn.ReLU6) for _ in range(depth - 1)]
            layers[f"stage{number}"] = nn.Sequential(*blocks)
            inputs = outputs
        last = scaled(1280, width)
        layers["last"] = nn.Sequential(*conv_norm(inputs, last, 1), nn.ReLU6())
        super().__init__(layers, last, classes)
