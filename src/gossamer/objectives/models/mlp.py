"""A fully connected network with two hidden layers.

References
----------
The "2NN" of McMahan et al., "Communication-efficient learning of deep networks from decentralized data", AISTATS
2017, section 3: 199,210 parameters on MNIST.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from itertools import pairwise

from torch import nn


class MLP(nn.Sequential):
    """Flatten, then linear layers with ReLU between them.

    Parameters
    ----------
    input_shape : tuple of int
        Of one example; any.
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
