"""The small CNN of MAPA.

References
----------
Section 7 of the MAPA paper: two convolutional layers, two pooling layers and one fully connected layer; 10 channels
and 5x5 kernels each.
"""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

from gossamer.objectives.models.blocks import image_channels


class CNNMapa(nn.Sequential):
    """conv(10, 5x5)-pool-conv(10, 5x5)-pool-linear, with ReLU after each pooling; 4,380 parameters on MNIST.

    Parameters
    ----------
    input_shape : tuple of int
        [channels, height, width], at least 16 x 16 pixels.
    classes : int
    """

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        channels = image_channels("cnn_mapa", input_shape, least=16)
        height, width = (((pixels - 4) // 2 - 4) // 2 for pixels in input_shape[1:])
        super().__init__(
            OrderedDict(
                conv1=nn.Conv2d(channels, 10, 5),
                pool1=nn.MaxPool2d(2),
                relu1=nn.ReLU(),
                conv2=nn.Conv2d(10, 10, 5),
                pool2=nn.MaxPool2d(2),
                relu2=nn.ReLU(),
                flatten=nn.Flatten(),
                output=nn.Linear(10 * height * width, classes),
            )
        )
