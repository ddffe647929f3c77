"""Small networks: the fully connected one of the first federated learning, LeNet-5, the CNN of MAPA, and
an LSTM."""

from __future__ import annotations

import math
from collections import OrderedDict
from itertools import pairwise

import torch
from torch import Tensor, nn

from gossamer.errors import ModelError
from gossamer.objectives.models.images import image_channels

# The bidirectional LSTM acoustic model of A(DP)2SGD.
#
# References
# ----------
# Appendix of the A(DP)2SGD paper: 6 bidirectional layers of 512 cells each way, a linear projection to 256 units,
# 32,000 classes, subsequences of 21 frames of 260 features; "over 43 million parameters and about 165 MB". Cells:
# Hochreiter and Schmidhuber, "Long short-term memory", Neural Computation 1997, with forget gates.


class LstmDirection(nn.Module):
    """One LSTM layer that reads a sequence forwards or backwards.

    The gates are two linear layers, so that per-example gradients can be taken layer by layer; ``torch.nn.LSTM``
    computes the same in one fused kernel that hides its inputs.

    Parameters
    ----------
    inputs, cells : int
        Sizes of one frame and of the state.
    backwards : bool
    """

    def __init__(self, inputs: int, cells: int, *, backwards: bool) -> None:
        super().__init__()
        self.cells = cells
        self.backwards = backwards
        self.from_input = nn.Linear(inputs, 4 * cells)
        self.from_state = nn.Linear(cells, 4 * cells)

    def forward(self, frames: Tensor) -> Tensor:
        """States [examples, frames, cells] after each of ``frames`` [examples, frames, inputs]."""
        driven = self.from_input(frames).unbind(1)
        state = cell = frames.new_zeros(frames.shape[0], self.cells)
        states = []
        for drive in reversed(driven) if self.backwards else driven:
            gate_in, gate_forget, candidate, gate_out = (drive + self.from_state(state)).chunk(4, dim=1)
            cell = gate_forget.sigmoid() * cell + gate_in.sigmoid() * candidate.tanh()
            state = gate_out.sigmoid() * cell.tanh()
            states.append(state)
        return torch.stack(states[::-1] if self.backwards else states, dim=1)


class LSTM(nn.Module):
    """Bidirectional LSTM layers, a linear projection, and scores of the class of the middle frame, or of every frame.

    The paper's model learns the class of every frame.

    Parameters
    ----------
    input_shape : tuple of int
        [frames, features].
    classes : int
    layers : int
    cells : int
        Number of cells in each direction of each layer.
    projection : int
        Units of the linear layer below the scores.
    every : bool
        Whether there are scores of every frame.
    """

    def __init__(
        self,
        input_shape: tuple[int, ...],
        classes: int,
        *,
        layers: int = 6,
        cells: int = 512,
        projection: int = 256,
        every: bool = False,
    ) -> None:
        if len(input_shape) != 2:
            raise ModelError(f"lstm takes sequences [frames, features], found examples of shape {list(input_shape)}")
        super().__init__()
        self.middle, self.every = input_shape[0] // 2, every
        sizes = [input_shape[1], *[2 * cells] * (layers - 1)]
        self.forwards = nn.ModuleList(LstmDirection(size, cells, backwards=False) for size in sizes)
        self.backwards = nn.ModuleList(LstmDirection(size, cells, backwards=True) for size in sizes)
        self.projection = nn.Linear(2 * cells, projection)
        self.output = nn.Linear(projection, classes)

    def forward(self, frames: Tensor) -> Tensor:
        """Scores [examples, classes], or [examples, frames, classes], of ``frames`` [examples, frames, features]."""
        for ahead, back in zip(self.forwards, self.backwards):
            frames = torch.cat((ahead(frames), back(frames)), dim=2)
        scores: Tensor = self.output(self.projection(frames if self.every else frames[:, self.middle]))
        return scores


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
