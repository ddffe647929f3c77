"""LeNet-5: max pooling, with ReLU as used today, or with tanh as at first.

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

    NAME = "lenet5"
    Activation: type[nn.Module] = nn.ReLU

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        channels = image_channels(self.NAME, input_shape, least=12)
        height, width = ((pixels // 2 - 4) // 2 for pixels in input_shape[1:])
        super().__init__(
            OrderedDict(
                conv1=nn.Conv2d(channels, 6, 5, padding=2),
                pool1=nn.MaxPool2d(2),
                relu1=self.Activation(),
                conv2=nn.Conv2d(6, 16, 5),
                pool2=nn.MaxPool2d(2),
                relu2=self.Activation(),
                flatten=nn.Flatten(),
                hidden1=nn.Linear(16 * height * width, 120),
                relu3=self.Activation(),
                hidden2=nn.Linear(120, 84),
                relu4=self.Activation(),
                output=nn.Linear(84, classes),
            )
        )


class LeNet5Tanh(LeNet5):
    """The same with tanh, the squashing function of 1998 but for its constants."""

    NAME = "lenet5_tanh"
    Activation = nn.Tanh
