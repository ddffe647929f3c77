"""EfficientNet-B0 for small images.

References
----------
Tan and Le, "EfficientNet: rethinking model scaling for convolutional neural networks", ICML 2019, table 1. The network
that A(DP)2SGD measured (its table 2: 11.11 MB) is smaller, and so is this one: all kernels are 3x3, as in its source,
https://github.com/kuangliu/pytorch-cifar in its version of May 2019; the first reduction is in another place, since the
images are 7 times smaller; the last 1x1 convolution is left out; and squeeze-and-excitation scales the narrow end of a
block. Dropout and dropped connections are left out.
"""

from __future__ import annotations

from torch import nn

from gossamer.objectives.models.blocks import (
    ImageNetwork,
    SqueezeExcite,
    conv_norm,
    image_channels,
    inverted_residual,
    scaled,
)

_STAGES = (
    (1, 16, 1, 2),
    (6, 24, 2, 1),
    (6, 40, 2, 2),
    (6, 80, 3, 2),
    (6, 112, 3, 1),
    (6, 192, 4, 2),
    (6, 320, 1, 2),
)  # expansion, channels, blocks, stride of the first
_SQUEEZE = 16  # channels per hidden unit, as in SENet


def _block(inputs: int, outputs: int, expansion: int, stride: int) -> nn.Module:
    excite = SqueezeExcite(outputs, max(1, outputs // _SQUEEZE), nn.SiLU())
    return inverted_residual(inputs, outputs, expansion, stride, nn.SiLU, excite)


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
        for number, (expansion, channels, depth, stride) in enumerate(_STAGES, start=1):
            outputs = scaled(channels, width)
            blocks = [_block(inputs, outputs, expansion, stride)]
            blocks += [_block(outputs, outputs, expansion, 1) for _ in range(depth - 1)]
            layers[f"stage{number}"] = nn.Sequential(*blocks)
            inputs = outputs
        super().__init__(layers, inputs, classes)
