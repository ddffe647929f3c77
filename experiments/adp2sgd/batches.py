"""Batches that are clipped as a whole: each is one example, whose gradient is the mean of its images'.

Nobody is protected by that: a clipped mean moves by twice the clip when one image of it is replaced.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import vector_to_parameters

import gossamer as gs
from gossamer.objectives.models.small import CNNMapa

BATCH, SIDE, CLASSES = 64, 28, 10
BATCHES, TESTED = 96, 15
"""Batches of 8 nodes with 768 images each; and of those that are tested, every tenth test image."""


class BatchLoss(nn.Module):
    """The CNN of MAPA, and the loss that it makes of batches; classes travel as one more pixel, as in `frames`."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = CNNMapa((1, SIDE, SIDE), CLASSES)

    def forward(self, batches: Tensor) -> Tensor:
        """Square root of the mean cross-entropy, [batches], of batches [batches, images, pixels + 1]."""
        images, classes = batches[..., :-1].reshape(-1, 1, SIDE, SIDE), batches[..., -1].long().clamp(0, CLASSES - 1)
        losses = F.cross_entropy(self.scores(images), classes.flatten(), reduction="none")
        return losses.reshape(classes.shape).mean(1).sqrt()


def data() -> gs.Data:
    """MNIST in batches that stay together; every target is 0."""
    found = gs.load_dataset(gs.DatasetSettings(name="mnist"))
    train = _batches(found.train.features, found.train.targets, BATCHES)
    test = _batches(found.test.features[::10], found.test.targets[::10], TESTED)
    return gs.Data(train, np.zeros(BATCHES), x_test=test, y_test=np.zeros(TESTED), task="regression")


def _batches(images: npt.NDArray[np.float32], classes: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.float32]:
    flat = images[: count * BATCH].reshape(count, BATCH, SIDE * SIDE)
    return np.concatenate([flat, classes[: count * BATCH].reshape(count, BATCH, 1)], axis=2).astype(np.float32)


def right(prepared: Any, model: Any) -> dict[str, float]:
    """Share of the tested images that a model [size] is right about."""
    network, tested = BatchLoss(), torch.tensor(prepared.dataset.test.features)
    vector_to_parameters(torch.tensor(model), network.parameters())
    with torch.no_grad():
        scores = network.scores(tested[..., :-1].reshape(-1, 1, SIDE, SIDE))
    return {"right": float((scores.argmax(1) == tested[..., -1].flatten()).double().mean())}
