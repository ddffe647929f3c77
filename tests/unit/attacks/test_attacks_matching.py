"""Gradient matching: where theory says it works exactly, and what it reaches on MAPA's network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs gossamer-fl[torch]")
from torch import get_num_threads, nn

from gossamer.attacks.inversion import clipped_similarity
from gossamer.attacks.matching import infer_label, match_gradient
from gossamer.data.datasets import DatasetSettings, load_dataset
from gossamer.errors import ModelError, SpecError
from gossamer.objectives.linear.model import LinearModel
from gossamer.objectives.models import build_model
from gossamer.objectives.networks.module import TorchModule
from gossamer.privacy.mechanisms import L2Laplace, NeighboringRelation

TRAIN = load_dataset(DatasetSettings(name="digits")).train


def smooth() -> TorchModule:
    return TorchModule(
        nn.Sequential(nn.Conv2d(1, 12, 3, padding=1), nn.Sigmoid(), nn.Flatten(), nn.Linear(12 * 64, 10))
    )


def gradient_of(objective: TorchModule, model: np.ndarray, row: int, clip: float = np.inf) -> np.ndarray:
    return objective.clipped_gradients(model[None], TRAIN, [np.array([row])], clip).sums[0]


@pytest.mark.some(1)
@pytest.mark.parametrize("clip", [np.inf, 0.1])
def test_a_smooth_network_gives_its_input_away(clip: float) -> None:
    """More gradient than pixels and derivatives of all orders: the match is exact up to rounding, clipped or not."""
    objective = smooth()
    model = objective.initial(np.random.default_rng(1))
    for row in range(3):
        found = match_gradient(objective, model, gradient_of(objective, model, row, clip), (1, 8, 8), clip=clip)
        assert clipped_similarity(TRAIN.features[row], found, 0, 1) > 0.99


def test_the_clip_has_to_be_known_to_match_lengths() -> None:
    objective = smooth()
    model = objective.initial(np.random.default_rng(1))
    found = match_gradient(objective, model, gradient_of(objective, model, 0, 0.1), (1, 8, 8))
    assert clipped_similarity(TRAIN.features[0], found, 0, 1) < 0.9


def test_noise_hides_it() -> None:
    objective = smooth()
    model = objective.initial(np.random.default_rng(1))
    mechanism, generator = L2Laplace(1.0, 0.01, NeighboringRelation.ADD_OR_REMOVE_ONE), np.random.default_rng(2)
    similarities = []
    for row in range(6):
        seen = gradient_of(objective, model, row, 1.0) + mechanism.noise(generator, objective.size, np.float32)
        found = match_gradient(objective, model, seen, (1, 8, 8), clip=1.0)
        similarities.append(clipped_similarity(TRAIN.features[row], found, 0, 1))
    assert np.mean(similarities) < 0.5  # in pictures of 8 x 8 pixels chance alone reaches 0.3


def test_labels_are_read_off_the_last_bias() -> None:
    """Its gradient is p - y, negative at the class alone."""
    objective = smooth()
    model = objective.initial(np.random.default_rng(3))
    for row in range(30):
        gradient = gradient_of(objective, model, row, clip=0.5)
        assert np.flatnonzero(gradient[-10:] < 0).tolist() == [TRAIN.targets[row]]
        assert infer_label(objective, gradient) == TRAIN.targets[row]


@pytest.mark.slow
def test_the_cnn_of_mapa_shows_its_digits(shared_data: Path) -> None:
    """ReLU and max pooling leave local minima: about 0.87 in the mean on other digits than these, hardly ever above
    0.95. The bound is loose; a picture of noise has less than 0.1."""
    train = load_dataset(DatasetSettings(name="mnist", path=shared_data / "mnist")).train
    objective = TorchModule(build_model("cnn_mapa", (1, 28, 28), 10))
    model = objective.initial(np.random.default_rng(4))
    found = []
    for row in range(100, 104):
        gradient = objective.clipped_gradients(model[None], train, [np.array([row])], 1.0).sums[0]
        matched = match_gradient(objective, model, gradient, (1, 28, 28), seed=row)
        found.append(clipped_similarity(train.features[row], matched, 0, 1))
    assert np.mean(found) > 0.6


def test_the_same_seed_gives_the_same_picture_and_the_threads_are_put_back() -> None:
    objective = TorchModule(nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)))
    model, threads = objective.initial(np.random.default_rng(5)), get_num_threads()
    gradient = gradient_of(objective, model, 0)
    found = [match_gradient(objective, model, gradient, (1, 8, 8), steps=20, seed=seed) for seed in (1, 1, 2)]
    np.testing.assert_array_equal(found[0], found[1])
    assert np.any(found[0] != found[2])
    assert (found[0].min() >= 0, found[0].max() <= 1) == (True, True)
    assert get_num_threads() == threads


def test_what_cannot_be_matched() -> None:
    with pytest.raises(ModelError, match="is for networks"):
        match_gradient(LinearModel("softmax", 64, 10), np.zeros(650), np.zeros(650), (1, 8, 8))
    headless = TorchModule(nn.Sequential(nn.Flatten(), nn.Linear(64, 10, bias=False)))
    with pytest.raises(ModelError, match="last layer's bias"):
        match_gradient(headless, np.zeros(640, np.float32), np.zeros(640), (1, 8, 8))
    with pytest.raises(SpecError, match="at least 1"):
        match_gradient(smooth(), np.zeros(1), np.zeros(1), (1, 8, 8), steps=0)
