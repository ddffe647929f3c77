"""LeNet-5 as it may be read."""

from __future__ import annotations

from torch import nn

from gossamer.objectives.models.small import LeNet5Tanh


class AverageLeNet5(LeNet5Tanh):
    """With average pooling, as in 1998, in the place of maxima."""

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__(input_shape, classes)
        self.pool1, self.pool2 = nn.AvgPool2d(2), nn.AvgPool2d(2)
