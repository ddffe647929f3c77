"""A network of a user's own, which `torch_taps` has to look at."""

from __future__ import annotations

import torch
from torch import nn


class Net(nn.Module):
    """Two layers, and a scale that is no layer."""

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        size = 1
        for length in input_shape:
            size *= length
        self.hidden, self.out = nn.Linear(size, 12), nn.Linear(12, classes)
        self.scale = nn.Parameter(torch.ones(12))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(torch.tanh(self.hidden(x.flatten(1))) * self.scale)
