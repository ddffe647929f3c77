"""MobileNetV2 for small images.

References
----------
Sandler et al., "MobileNetV2: inverted residuals and linear bottlenecks", CVPR 2018, tables 1 and 2; the first two
reductions are left out, since the images are 7 times smaller.
"""

from __future__ import annotations

from torch import nn

from gossamer.objectives.models.blocks import (
    ImageNetwork,
    Residual,
    conv,
    conv_norm,
    group_norm,
    image_channels,
    scaled,
)

_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 1),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)  # expansion, channels, blocks, stride of the first


def _conv_relu6(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    return nn.Sequential(conv(inputs, outputs, kernel, stride, groups), group_norm(outputs), nn.ReLU6())


def _inverted_residual(inputs: int, outputs: int, expansion: int, stride: int) -> nn.Module:
    inner = inputs * expansion
    expand = [_conv_relu6(inputs, inner, 1)] if expansion > 1 else []
    depthwise = _conv_relu6(inner, inner, 3, stride, groups=inner)
    body = nn.Sequential(*expand, depthwise, conv_norm(inner, outputs, 1))
    return Residual(body, nn.Identity(), nn.Identity()) if inputs == outputs and stride == 1 else body


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
        layers: dict[str, nn.Module] = {"stem": _conv_relu6(image_channels("mobilenetv2", input_shape), inputs, 3)}
        for number, (expansion, channels, depth, stride) in enumerate(_STAGES, start=1):
            outputs = scaled(channels, width)
            blocks = [_inverted_residual(inputs, outputs, expansion, stride)]
            blocks += [_inverted_residual(outputs, outputs, expansion, 1) for _ in range(depth - 1)]
            layers[f"stage{number}"] = nn.Sequential(*blocks)
            inputs = outputs
        last = scaled(1280, width)
        layers["last"] = _conv_relu6(inputs, last, 1)
        super().__init__(layers, last, classes)
