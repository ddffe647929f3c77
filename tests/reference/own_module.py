"""A network of one's own, with a buffer that is not trained."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from gossamer.objectives.models.small import LSTM

CENTRE = 0.5
"""What the buffer holds."""


def small_lstm(input_shape: tuple[int, ...], classes: int) -> LSTM:
    """The network of that name that comes with Gossamer, with few cells."""
    return LSTM(input_shape, classes, layers=2, cells=3, projection=4)


class Small(nn.Module):
    """Two linear layers around a tanh, on features from which a constant is taken off."""

    centre: Tensor

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.register_buffer("centre", torch.full((math.prod(input_shape),), CENTRE))
        self.first = nn.Linear(math.prod(input_shape), 7)
        self.last = nn.Linear(7, classes)

    def forward(self, features: Tensor) -> Tensor:
        """Scores [examples, classes]."""
        return self.last(torch.tanh(self.first(features.flatten(1) - self.centre)))  # type: ignore[no-any-return]
