"""LeNet-5, as used today: max pooling and ReLU.

References
----------
LeCun et al., "Gradient-based learning applied to document recognition", Proceedings of the IEEE 1998, figure 2;
with every map of the third layer connected to all maps below, 61,706 parameters on MNIST.
"""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

from gossamer.objectives.models.blocks import image_channels


class LeNet5(nn.Sequential):
    """conv(6, 5x5)-pool-conv(16, 5x5)-pool-120-84-classes; the first convolution pads by 2.

    Parameters
    ----------
    input_shape : tuple of int
        [channels, height, width], at least 12 x 12 pixels.
    classes : int
    """

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        channels = image_channels("lenet5", input_shape, least=12)
        height, width = ((pixels // 2 - 4) // 2 for pixels in input_shape[1:])
        super().__init__(
            OrderedDict(
                conv1=nn.Conv2d(channels, 6, 5, padding=2),
                pool1=nn.MaxPool2d(2),
                relu1=nn.ReLU(),
                conv2=nn.Conv2d(6, 16, 5),
                pool2=nn.MaxPool2d(2),
                relu2=nn.ReLU(),
                flatten=nn.Flatten(),
                hidden1=nn.Linear(16 * height * width, 120),
                relu3=nn.ReLU(),
                hidden2=nn.Linear(120, 84),
                relu4=nn.ReLU(),
                output=nn.Linear(84, classes),
            )
        )
