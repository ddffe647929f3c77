"""Inversion of linear layers: closed forms, and MNIST digits with and without noise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gossamer.attacks.inversion import (
    clipped_similarity,
    cosine_similarity,
    is_linear,
    recover_input,
    structural_similarity,
)
from gossamer.data.datasets import DatasetSettings, load_dataset
from gossamer.data.examples import Split
from gossamer.errors import DataError, ModelError
from gossamer.experiment.audits.inversion_audit import released_gradients
from gossamer.objectives.linear.model import LinearModel
from gossamer.privacy.mechanisms import L2Laplace, Mechanism, NeighboringRelation, NoNoise
from gossamer.vectors import Part, Public, pack

ADD = NeighboringRelation.ADD_OR_REMOVE_ONE
PARTS = (Part("weight", (3, 4)), Part("bias", (3,)))


def gradient(a: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Of examples x [n, features] whose outputs have derivatives a [n, outputs]."""
    return pack({"weight": a.T @ x, "bias": a.sum(axis=0)}, PARTS, np.float64)


def test_one_example_is_recovered_exactly() -> None:
    """grad w_c = a_c x and grad b_c = a_c, so the ratio is x, whatever a is and however it is scaled."""
    x = np.array([[0.5, -1.0, 0.0, 2.0]])
    for a in ([[0.3, -0.9, 0.6]], [[0.0, 0.0, 1e-6]], [[-5.0, 5.0, 0.0]]):
        np.testing.assert_allclose(recover_input(gradient(np.array(a), x), PARTS, 4), x[0], rtol=1e-12)


def test_least_squares_minimises_its_sum_of_squares() -> None:
    generator = np.random.default_rng(1)
    noisy = generator.standard_normal(15)
    weight, bias = noisy[:12].reshape(3, 4), noisy[12:]
    expected = np.linalg.lstsq(bias[:, None], weight, rcond=None)[0][0]
    np.testing.assert_allclose(recover_input(noisy, PARTS, 4), expected, rtol=1e-12)


def test_a_zero_gradient_says_nothing() -> None:
    np.testing.assert_array_equal(recover_input(np.zeros(15), PARTS, 4), np.zeros(4))


@pytest.mark.parametrize(
    ("parts", "linear"),
    [
        (PARTS, True),
        ((Part("body.1.weight", (3, 4)), Part("body.1.bias", (3,)), Part("out.weight", (2, 3))), True),
        ((Part("weight", (3, 4)),), False),
        ((Part("a.weight", (3, 4)), Part("b.bias", (3,))), False),
        ((Part("conv.weight", (3, 1, 2, 2)), Part("conv.bias", (3,))), False),
        ((Part("weight", (3, 5)), Part("bias", (3,))), False),
        ((Part("bias", (3,)), Part("weight", (3, 4))), False),
    ],
)
def test_which_first_layers_are_linear(parts: tuple[Part, ...], linear: bool) -> None:
    assert is_linear(parts, 4) is linear
    if not linear:
        with pytest.raises(ModelError, match="use gradient matching instead"):
            recover_input(np.zeros(sum(part.size for part in parts)), parts, 4)


# Structural similarity


def slow_similarity(a: np.ndarray, b: np.ndarray, data_range: float, size: int = 11) -> float:
    """Equation (13) of Wang et al. window after window, with their 11 x 11 Gaussian of sd 1.5 that sums to 1."""
    offsets = np.arange(size) - size // 2
    window = np.exp(-(offsets[:, None] ** 2 + offsets[None] ** 2) / (2 * 1.5**2))
    window /= window.sum()
    c1, c2 = (0.01 * data_range) ** 2, (0.03 * data_range) ** 2
    values = []
    for i in range(a.shape[0] - size + 1):
        for j in range(a.shape[1] - size + 1):
            x, y = a[i : i + size, j : j + size], b[i : i + size, j : j + size]
            mx, my = (window * x).sum(), (window * y).sum()
            vx, vy = (window * (x - mx) ** 2).sum(), (window * (y - my) ** 2).sum()
            cov = (window * (x - mx) * (y - my)).sum()
            values.append((2 * mx * my + c1) * (2 * cov + c2) / ((mx**2 + my**2 + c1) * (vx + vy + c2)))
    return float(np.mean(values))


@pytest.mark.parametrize("data_range", [1.0, 255.0])
def test_ssim_is_equation_13(data_range: float) -> None:
    generator = np.random.default_rng(2)
    a = data_range * generator.random((17, 15))
    b = np.clip(a + 0.2 * data_range * generator.standard_normal(a.shape), 0, data_range)
    assert structural_similarity(a, b, data_range) == pytest.approx(slow_similarity(a, b, data_range), abs=1e-10)
    # Nearby wrong definitions are told apart.
    assert abs(structural_similarity(a, b, data_range) - slow_similarity(a, b, 2 * data_range)) > 1e-4
    assert abs(structural_similarity(a, b, data_range) - slow_similarity(a, b, data_range, 9)) > 1e-4


def test_ssim_of_flat_pictures_is_their_luminance_term() -> None:
    """Variances and covariance are 0, so what is left is (2 a b + c1)/(a^2 + b^2 + c1)."""
    flat = np.ones((12, 12))
    expected = (2 * 0.2 * 0.8 + 1e-4) / (0.04 + 0.64 + 1e-4)
    assert structural_similarity(0.2 * flat, 0.8 * flat, 1.0) == pytest.approx(expected)
    assert structural_similarity(flat, flat, 1.0) == pytest.approx(1.0)


def test_ssim_of_channels_is_their_mean_and_small_pictures_have_a_smaller_window() -> None:
    generator = np.random.default_rng(3)
    a, b = generator.random((2, 3, 12, 12))
    each = [structural_similarity(x, y, 1.0) for x, y in zip(a, b)]
    assert structural_similarity(a, b, 1.0) == pytest.approx(np.mean(each))
    small, other = generator.random((2, 8, 8))
    assert structural_similarity(small, other, 1.0) == pytest.approx(slow_similarity(small, other, 1.0, 7), abs=1e-10)


def test_pictures_that_cannot_be_compared() -> None:
    with pytest.raises(DataError, match="one shape"):
        structural_similarity(np.zeros((3, 3)), np.zeros((3, 4)), 1.0)
    with pytest.raises(DataError, match="range above 0"):
        structural_similarity(np.zeros((3, 3)), np.zeros((3, 3)), 0.0)


def test_recovered_pictures_are_clipped_and_not_rescaled() -> None:
    picture = np.random.default_rng(4).random((12, 12))
    assert clipped_similarity(picture, np.where(picture > 0.5, 7, picture), 0, 1) < 1
    hard = (picture > 0.5).astype(float)
    assert clipped_similarity(hard, 100 * hard - 50, 0, 1) == pytest.approx(1.0)
    assert clipped_similarity(picture, picture / 2, 0, 1) < 0.95


def test_cosine_similarity() -> None:
    assert cosine_similarity(np.array([1.0, 0]), np.array([1.0, 1])) == pytest.approx(np.sqrt(0.5))
    assert cosine_similarity(np.zeros(2), np.ones(2)) == 0.0


# Digits


@pytest.fixture(scope="module")
def digits(shared_data: Path) -> Split:
    """The first 2,000 MNIST digits."""
    train = load_dataset(DatasetSettings(name="mnist", path=shared_data / "mnist")).train
    return Split(train.features[:2000], train.targets[:2000])


def similarities(digits: Split, loss: str, mechanism: Mechanism, batch: int = 1) -> list[float]:
    """SSIM of what is recovered from each of ten batches with the batch's first digit."""
    classes = 2 if loss == "logistic" else 10
    rows = np.flatnonzero(digits.targets < classes)[: 10 * batch].reshape(10, batch)
    kept = Split(digits.features, np.minimum(digits.targets, classes - 1))
    objective = LinearModel(loss, 784, classes)
    model = Public(np.zeros(objective.size, np.float32))
    released = released_gradients(objective, kept, list(rows), model, mechanism, seed=5)
    return [
        clipped_similarity(
            digits.features[batch[0]], recover_input(one, objective.parts, 784).reshape(1, 28, 28), 0.0, 1.0
        )
        for one, batch in zip(released, rows)
    ]


@pytest.mark.parametrize("loss", ["softmax", "logistic", "hinge"])
def test_a_digit_is_recognised_without_noise_and_lost_in_it(digits: Split, loss: str) -> None:
    """Section 7 of MAPA, figure 4, with the noise that is epsilon-DP: the norm of the noise is about d C/epsilon."""
    assert min(similarities(digits, loss, NoNoise())) > 0.9
    assert min(similarities(digits, loss, NoNoise(1.0))) > 0.9  # clipping alone hides nothing
    assert max(similarities(digits, loss, L2Laplace(1.0, 0.01, ADD))) < 0.2


def test_a_batch_gives_a_mixture(digits: Split) -> None:
    alone, mixed = similarities(digits, "softmax", NoNoise()), similarities(digits, "softmax", NoNoise(), batch=16)
    assert np.mean(mixed) < 0.6 < np.mean(alone)


def test_the_regulariser_is_taken_off(digits: Split) -> None:
    objective = LinearModel("softmax", 784, 10, l2=0.1)
    model = Public(np.random.default_rng(6).standard_normal(objective.size).astype(np.float32) / 100)
    (released,) = released_gradients(objective, digits, [np.array([3])], model, NoNoise(), seed=1)
    np.testing.assert_allclose(
        recover_input(released, objective.parts, 784), digits.features[3].ravel(), rtol=1e-3, atol=1e-4
    )
