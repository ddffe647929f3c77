"""Generated frames of speech, and the loss of a piece whose frames have a class each."""

from __future__ import annotations

import numpy as np
import torch
from experiments.adp2sgd.frames import CLASSES, FEATURES, FRAMES, STAYS, FrameLoss, data, pieces
from tests.reference.torch_slow import clipped_sum
from torch import nn

from gossamer.data.examples import Split
from gossamer.objectives.networks.module import TorchModule


def test_the_squared_output_is_the_mean_cross_entropy_of_the_frames() -> None:
    """And its gradient is that of the mean, by a loop over pieces and frames."""
    some = pieces("test", 3)
    module = FrameLoss().double()
    frames = torch.tensor(some, dtype=torch.float64)
    scores = module.scores(frames[..., :FEATURES])
    classes = frames[..., FEATURES].long()
    one = nn.CrossEntropyLoss()
    means = [sum(one(scores[n, t], classes[n, t]) for t in range(FRAMES)) / FRAMES for n in range(3)]
    assert torch.allclose(module(frames).square(), torch.stack(means), rtol=1e-12)
    objective = TorchModule(module, loss="mse")
    model = objective.initial(np.random.default_rng(0))
    found = objective.clipped_gradients(model[None], Split(some, np.zeros(3, np.float32)), [np.arange(3)], 0.5)
    expected = clipped_sum(module, model, some, np.zeros(3), 0.5, loss="mse").total
    assert np.abs(found.sums[0] - expected).max() <= 1e-9


def test_classes_last_and_are_all_there() -> None:
    """A frame has the class before it with probability 0.8, or 0.2/20 by chance; 5,120 draws are within 0.03.

    Their standard deviation is 0.0055, so a right law fails once in 10^7.
    """
    classes = pieces("test", 256)[..., FEATURES]
    assert set(classes.ravel()) == set(range(CLASSES))
    assert abs((classes[:, 1:] == classes[:, :-1]).mean() - (STAYS + (1 - STAYS) / CLASSES)) < 0.03
    assert np.array_equal(pieces("test", 256)[..., FEATURES], classes)
    assert data().train.features.shape == (1024, FRAMES, FEATURES + 1)
