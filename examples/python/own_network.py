"""A small convolutional network for `own-module.yaml` and `own_module.py`."""

from __future__ import annotations

from torch import Tensor, nn


class Network(nn.Module):
    """Two convolutions and a linear layer.

    Parameters
    ----------
    input_shape : tuple of int
        Shape of a picture: channels, height, width. Gossamer passes what a constructor asks for by these names.
    classes : int
        Number of scores.
    """

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        channels, height, width = input_shape
        self.layers = nn.Sequential(
            nn.Conv2d(channels, 8, 3, padding=1),
            nn.GroupNorm(2, 8),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(8 * (height // 2) * (width // 2), classes),
        )

    def forward(self, pictures: Tensor) -> Tensor:
        """Scores [n, classes] of pictures [n, channels, height, width]."""
        scores: Tensor = self.layers(pictures)
        return scores
