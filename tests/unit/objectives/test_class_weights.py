"""Weights and shares of classes, and counts: gradients by their formulas, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from pydantic import ValidationError
from scipy.special import expit, log_softmax, softmax
from sklearn.metrics import mean_poisson_deviance

from gossamer.data.examples import Split
from gossamer.errors import DataError, SpecError
from gossamer.experiment.specs.spec import ObjectiveSettings
from gossamer.objectives.class_weights import shares_of, weights_of
from gossamer.objectives.linear.model import LinearModel
from gossamer.objectives.networks.module import TorchModule
from gossamer.objectives.objective import LocalRound, Minibatches, Objective, Training

DRAWN = np.random.default_rng(5)
ROWS, FEATURES = 60, 4
X = DRAWN.normal(size=(ROWS, FEATURES)).astype(np.float32)
LABELS = {2: np.arange(ROWS) % 2, 3: np.arange(ROWS) % 3}
COUNTS = DRAWN.poisson(3, ROWS).astype(np.float32)
WEIGHTS = {2: np.array([0.1, 3.0]), 3: np.array([0.5, 4.0, 1.0])}
EVERY = [np.arange(ROWS)]


def _outputs(model: LinearModel, w: np.ndarray) -> np.ndarray:
    split = model.outputs * FEATURES
    return X.astype(np.float64) @ w[:split].reshape(model.outputs, FEATURES).T + w[split:]


def _residuals(loss: str, z: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """The derivatives [rows, outputs] by the formulas."""
    if loss == "poisson":
        return np.exp(z) - COUNTS[:, None]
    assert weights is not None
    y = LABELS[len(weights)]
    if loss == "logistic":
        return weights[y][:, None] * (expit(z + np.log(weights[1] / weights[0])) - y[:, None])
    return weights[y][:, None] * (softmax(z + np.log(weights), axis=1) - np.eye(len(weights))[y])


CASES = [("logistic", 2), ("softmax", 2), ("softmax", 3), ("poisson", None)]


def _made(loss: str, classes: int | None) -> tuple[LinearModel, Split, np.ndarray]:
    weights = None if classes is None else WEIGHTS[classes]
    model = LinearModel(loss, FEATURES, classes, dtype=np.float64, class_weight=weights)
    targets = COUNTS if classes is None else LABELS[classes]
    return model, Split(X, targets), np.random.default_rng(1).normal(size=model.size) / 3


@pytest.mark.parametrize(("loss", "classes"), CASES)
@pytest.mark.parametrize("clip", [0.7, np.inf])
def test_gradients_are_weighted_before_they_are_clipped(loss: str, classes: int | None, clip: float) -> None:
    model, split, w = _made(loss, classes)
    r = _residuals(loss, _outputs(model, w), None if classes is None else WEIGHTS[classes])
    each = np.concatenate([(r[:, :, None] * X[:, None, :]).reshape(ROWS, -1), r], axis=1)
    each *= np.minimum(1, clip / np.linalg.norm(each, axis=1, keepdims=True))
    for features in (X, sp.csr_array(X)):
        found = model.clipped_gradients(w[None], Split(features, split.targets), EVERY, clip)
        np.testing.assert_allclose(found.sums[0], each.sum(axis=0), rtol=1e-9)


@pytest.mark.parametrize(("loss", "classes"), CASES)
def test_other_loops_take_the_same_gradients(loss: str, classes: int | None) -> None:
    """Rounds of single steps and local trainings, against those that call `clipped_gradients` for each step."""
    model, split, w = _made(loss, classes)
    given = LocalRound(w[None], np.array([0]), np.arange(20), np.full(20, 0.01), 0.01, 0.5)
    np.testing.assert_allclose(
        model.local_steps(given, split).total, Objective.local_steps(model, given, split).total, rtol=1e-9
    )
    training = Training(Minibatches(np.arange(20), np.array([10, 10])), 0.05, momentum=0.5)
    found = model.local_training(w[None], split, [training]).updates
    model.descended = lambda *given: Objective.descended(model, *given)  # type: ignore[method-assign]
    np.testing.assert_allclose(found, model.local_training(w[None], split, [training]).updates, rtol=1e-9)


@pytest.mark.parametrize("strategy", ["layers", "vmap", "threads"])
def test_a_network_weights_as_a_linear_model_does(strategy: str) -> None:
    linear = LinearModel("softmax", FEATURES, 3, class_weight=WEIGHTS[3])
    network = TorchModule(torch.nn.Linear(FEATURES, 3), strategy=strategy, class_weight=WEIGHTS[3])
    w = np.random.default_rng(2).normal(size=(1, linear.size)).astype(np.float32)
    split = Split(X, LABELS[3])
    of_linear, of_network = (each.clipped_gradients(w, split, EVERY, 0.6) for each in (linear, network))
    np.testing.assert_allclose(of_linear.sums, of_network.sums, rtol=1e-4, atol=1e-4)
    assert network.evaluate(w, split).loss == pytest.approx(linear.evaluate(w, split).loss, rel=1e-5)


def test_a_network_with_weights_has_no_kernel() -> None:
    network = TorchModule(torch.nn.Linear(FEATURES, 3), class_weight=WEIGHTS[3])
    network.clipped_gradients(np.zeros((1, network.size), np.float32), Split(X, LABELS[3]), EVERY, 1.0)
    assert network.computing().strategy != "compiled"


def test_evaluations_have_no_weights() -> None:
    model, split, w = _made("softmax", 3)
    expected = -log_softmax(_outputs(model, w), axis=1)[np.arange(ROWS), LABELS[3]].mean()
    assert model.evaluate(w[None], split).loss == pytest.approx(expected)


def test_weights_leave_the_probabilities_of_the_population() -> None:
    """Of a coin of 0.1 that weights 0.1 and 3 apply to, the minimiser's probability is 0.1."""
    targets = (np.arange(1000) < 100).astype(np.int64)
    model = LinearModel("logistic", 1, 2, dtype=np.float64, class_weight=WEIGHTS[2])
    split, bias = Split(np.zeros((1000, 1), np.float32), targets), np.log(0.1 / 0.9)
    found = model.clipped_gradients(np.array([[0.0, bias]]), split, [np.arange(1000)], np.inf)
    assert np.abs(found.sums).max() < 1e-9


@pytest.mark.parametrize("loss", ["logistic", "softmax"])
def test_a_model_starts_from_the_prevalence(loss: str) -> None:
    shares = np.array([0.92, 0.08])
    model = LinearModel(loss, FEATURES, 2, dtype=np.float64, prevalence=shares)
    scores = model.scores(model.initial(np.random.default_rng(0)), X)
    odds = scores[:, -1] - (scores[:, 0] if loss == "softmax" else 0)
    np.testing.assert_allclose(expit(odds), 0.08)


def test_smoothness_counts_the_largest_weight() -> None:
    plain = LinearModel("logistic", FEATURES, 2)
    model, split, _ = _made("logistic", 2)
    assert model.smoothness(split) == pytest.approx(3.0 * plain.smoothness(split))


def test_the_loss_of_counts_is_half_of_the_deviance() -> None:
    model, split, w = _made("poisson", None)
    means = np.exp(_outputs(model, w)[:, 0])
    assert model.evaluate(w[None], split).loss == pytest.approx(mean_poisson_deviance(COUNTS, means) / 2)
    np.testing.assert_allclose(model.scores(w, X)[:, 0], means)


def test_counts_are_not_negative() -> None:
    model, _, w = _made("poisson", None)
    with pytest.raises(DataError, match="the poisson loss is for counts, 0 or more, found -1"):
        model.clipped_gradients(w[None], Split(X, COUNTS - 1 - COUNTS), EVERY, 1.0)


def test_a_count_beyond_all_numbers_counts_as_zero() -> None:
    model, split, w = _made("poisson", None)
    found = model.clipped_gradients(w[None] * 0 + 1e5, split, EVERY, 1.0)
    assert np.isfinite(found.sums).all()


def test_weights_are_those_that_were_given_or_inverse_to_shares() -> None:
    np.testing.assert_allclose(weights_of({"yes": 5}, None, ("no", "yes", "maybe")), [1, 5, 1])
    np.testing.assert_allclose(weights_of("balanced", shares_of(0.08), ("no", "yes")), [0.08 / 0.92, 1])
    np.testing.assert_allclose(weights_of("balanced", shares_of(0.8), ("no", "yes")), [1, 0.25])
    assert weights_of(None, shares_of(None), None) is None


@pytest.mark.parametrize(
    ("weight", "labels", "message"),
    [
        ({"x": 2.0}, ("a", "b"), "objective.class_weight: x is none of the classes a, b; correct it"),
        ({"a": 2.0}, None, "objective.class_weight is about classes, and the targets are numbers"),
        ("balanced", ("a", "b"), "from public knowledge and not from private rows; give dataset.prevalence"),
    ],
)
def test_what_fits_no_classes_is_refused(weight, labels, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        weights_of(weight, None, labels)


@pytest.mark.parametrize("given", ["even", {"a": 0}, {"a": float("inf")}])
def test_numbers_out_of_range_are_refused(given: object) -> None:
    with pytest.raises(ValidationError):
        ObjectiveSettings.model_validate({"class_weight": given})


@pytest.mark.parametrize("key", ["class_weight", "prevalence"])
def test_other_losses_have_no_classes_to_weight(key: str) -> None:
    with pytest.raises(SpecError, match=f"{key} is for logistic, softmax and networks, found hinge"):
        LinearModel("hinge", FEATURES, 2, **{key: np.array([0.5, 0.5])})
    with pytest.raises(SpecError, match="networks with cross_entropy"):
        TorchModule(torch.nn.Linear(FEATURES, 1), loss="mse", class_weight=np.ones(2))
