"""EfficientNet-B0 for small images.

References
----------
Tan and Le, "EfficientNet: rethinking model scaling for convolutional neural networks", ICML 2019, table 1. Three
things are smaller, so that the size is the 11 MB of A(DP)2SGD's table 2: the first reduction is left out, since the
images are 7 times smaller; so is the last 1x1 convolution; and squeeze-and-excitation scales the narrow end of a
block. Dropout and dropped connections are left out.
"""

from __future__ import annotations

from torch import nn

from gossamer.objectives.models.blocks import (
    ImageNetwork,
    Residual,
    SqueezeExcite,
    conv,
    conv_norm,
    group_norm,
    image_channels,
    scaled,
)

_STAGES = (
    (1, 16, 1, 3, 1),
    (6, 24, 2, 3, 2),
    (6, 40, 2, 5, 2),
    (6, 80, 3, 3, 2),
    (6, 112, 3, 5, 1),
    (6, 192, 4, 5, 2),
    (6, 320, 1, 3, 1),
)  # expansion, channels, blocks, kernel, stride of the first
_SQUEEZE = 16  # channels per hidden unit, as in SENet


def _conv_silu(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    return nn.Sequential(conv(inputs, outputs, kernel, stride, groups), group_norm(outputs), nn.SiLU())


def _block(inputs: int, outputs: int, expansion: int, kernel: int, stride: int) -> nn.Module:
    inner = inputs * expansion
    body = nn.Sequential(
        *([_conv_silu(inputs, inner, 1)] if expansion > 1 else []),
        _conv_silu(inner, inner, kernel, stride, groups=inner),
        conv_norm(inner, outputs, 1),
        SqueezeExcite(outputs, max(1, outputs // _SQUEEZE), nn.SiLU()),
    )
    return Residual(body, nn.Identity(), nn.Identity()) if inputs == outputs and stride == 1 else body


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
        layers: dict[str, nn.Module] = {"stem": _conv_silu(image_channels("efficientnet_b0", input_shape), inputs, 3)}
        for number, (expansion, channels, depth, kernel, stride) in enumerate(_STAGES, start=1):
            outputs = scaled(channels, width)
            blocks = [_block(inputs, outputs, expansion, kernel, stride)]
            blocks += [_block(outputs, outputs, expansion, kernel, 1) for _ in range(depth - 1)]
            layers[f"stage{number}"] = nn.Sequential(*blocks)
            inputs = outputs
        super().__init__(layers, inputs, classes)
