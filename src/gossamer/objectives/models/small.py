"""Small networks: the fully connected one of the first federated learning, LeNet-5, and the CNN of MAPA."""

from __future__ import annotations

import math
from collections import OrderedDict
from itertools import pairwise

from torch import nn

from gossamer.objectives.models.images import image_channels

# The small CNN of MAPA.
# Section 7 of the MAPA paper: two convolutional layers, two pooling layers and one fully connected layer; 10 channels
# and 5x5 kernels each.


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


# LeNet-5: max pooling, with ReLU as used today, or with tanh as at first.
# LeCun et al., "Gradient-based learning applied to document recognition", Proceedings of the IEEE 1998, figure 2;
# with every map of the third layer connected to all maps below, 61,706 parameters on MNIST.


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


# A fully connected network with two hidden layers.
# The "2NN" of McMahan et al., "Communication-efficient learning of deep networks from decentralized data", AISTATS
# 2017, section 3: 199,210 parameters on MNIST.


class MLP(nn.Sequential):
    """Flatten, then linear layers with ReLU between them.

    Parameters
    ----------
    input_shape : tuple of int
        Shape of one example; any.
    classes : int
    hidden : tuple of int
        Units of the hidden layers.
    """

    def __init__(self, input_shape: tuple[int, ...], classes: int, *, hidden: tuple[int, ...] = (200, 200)) -> None:
        layers: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten())
        for number, (inputs, outputs) in enumerate(pairwise((math.prod(input_shape), *hidden)), start=1):
            layers[f"hidden{number}"] = nn.Linear(inputs, outputs)
            layers[f"relu{number}"] = nn.ReLU()
        layers["output"] = nn.Linear((math.prod(input_shape), *hidden)[-1], classes)
        super().__init__(layers)
