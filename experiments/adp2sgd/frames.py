"""Frames of speech, as A(DP)2SGD's LSTM reads them, but generated: the corpus of the paper is not public.

A piece has 21 frames of 260 features, and each frame has a class. A class lasts for some frames, as states of a hidden
Markov model do, and has a mean of its own, which frames are normal around.

Gossamer's losses have one target an example. So the classes travel with the frames, as feature 261, and the module
returns the square root of the mean cross-entropy of a piece's frames: its squared error against 0 is that mean, and so
is every gradient.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn
from torch.nn import functional as F

import gossamer as gs
from gossamer.objectives.models.small import LSTM
from gossamer.randomness import stream

FRAMES, FEATURES, CLASSES = 21, 260, 20
PIECES, TESTED = 1024, 256
STAYS, SPREAD = 0.8, 5.0
"""Probability that a frame has the class of the one before; deviation of frames around the mean of their class."""


class FrameLoss(nn.Module):
    """The model of the paper in small, and the loss that it makes of frames and their classes."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = LSTM((FRAMES, FEATURES), CLASSES, layers=1, cells=16, projection=16, every=True)

    def forward(self, pieces: Tensor) -> Tensor:
        """Square root of the mean cross-entropy, [pieces], of pieces [pieces, frames, features + 1]."""
        scores, classes = self.scores(pieces[..., :FEATURES]), pieces[..., FEATURES].long().clamp(0, CLASSES - 1)
        losses = F.cross_entropy(scores.flatten(0, 1), classes.flatten(), reduction="none")
        return losses.reshape(classes.shape).mean(1).sqrt()


def pieces(part: str, count: int) -> npt.NDArray[np.float32]:
    """Pieces [count, frames, features + 1] of one law: the same at each call."""
    means = stream(0, "frames", "means").normal(size=(CLASSES, FEATURES))
    generator = stream(0, "frames", part)
    classes = generator.integers(CLASSES, size=(count, FRAMES))
    stays = generator.random((count, FRAMES)) < STAYS
    for frame in range(1, FRAMES):
        classes[:, frame] = np.where(stays[:, frame], classes[:, frame - 1], classes[:, frame])
    frames = means[classes] + SPREAD * generator.normal(size=(count, FRAMES, FEATURES))
    return np.concatenate([frames, classes[..., None]], axis=2).astype(np.float32)


def data() -> gs.Data:
    """Training and test pieces; every target is 0."""
    train, test = pieces("training", PIECES), pieces("test", TESTED)
    return gs.Data(train, np.zeros(PIECES), x_test=test, y_test=np.zeros(TESTED), task="regression")
