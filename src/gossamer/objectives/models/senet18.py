"""SENet-18: ResNet-18 with squeeze-and-excitation.

References
----------
Hu, Shen and Sun, "Squeeze-and-excitation networks", CVPR 2018: figure 3 (the block scales the residual branch, before
the sum) and section 6.1 (16 times fewer hidden units than channels).
"""

from __future__ import annotations

from torch import nn

from gossamer.objectives.models.blocks import Residual, SqueezeExcite
from gossamer.objectives.models.resnet18 import ResNet18, basic_block


class SENet18(ResNet18):
    """Four stages of two basic blocks, each with a squeeze-and-excitation block.

    Parameters
    ----------
    input_shape : tuple of int
        [channels, height, width].
    classes : int
    width : float
        Multiplies the channels.
    """

    name = "senet18"

    @staticmethod
    def block(inputs: int, outputs: int, stride: int) -> Residual:
        """A basic block whose residual branch is scaled before the sum."""
        return basic_block(inputs, outputs, stride, SqueezeExcite(outputs, max(1, outputs // 16), nn.ReLU()))
