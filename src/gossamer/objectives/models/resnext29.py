"""ResNeXt-29 with two groups of width 64.

References
----------
Xie et al., "Aggregated residual transformations for deep neural networks", CVPR 2017: figure 3(c) (the block as a
grouped convolution) and section 5.2 (the 29-layer network for CIFAR).
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

_GROUPS = 2
_STAGES = ((64, 1), (128, 2), (256, 2))  # width of a group, stride of the first of three blocks


def _bottleneck(inputs: int, group: int, stride: int) -> Residual:
    """1x1 down, grouped 3x3, 1x1 up to twice the channels between."""
    inner = _GROUPS * group
    body = nn.Sequential(
        conv_norm_relu(inputs, inner, 1),
        conv_norm_relu(inner, inner, 3, stride, groups=_GROUPS),
        conv_norm(inner, 2 * inner, 1),
    )
    return Residual(body, projection(inputs, 2 * inner, stride), nn.ReLU())


class ResNeXt29(ImageNetwork):
    """Three stages of three bottlenecks, each with two parallel transformations.

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
        layers: dict[str, nn.Module] = {"stem": conv_norm_relu(image_channels("resnext29", input_shape), inputs, 3)}
        for number, (channels, stride) in enumerate(_STAGES, start=1):
            group = scaled(channels, width)
            outputs = 2 * _GROUPS * group
            later = (_bottleneck(outputs, group, 1) for _ in range(2))
            layers[f"stage{number}"] = nn.Sequential(_bottleneck(inputs, group, stride), *later)
            inputs = outputs
        super().__init__(layers, inputs, classes)
