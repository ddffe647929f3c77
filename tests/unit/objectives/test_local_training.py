"""Whole local trainings of many clients against a slow reference, PyTorch's own optimiser, and closed forms."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tests.reference import torch_slow
from tests.reference.glm_slow import gradient_of
from tests.reference.local_training_slow import local_training, torch_training
from tests.unit.objectives.test_local_updates import (
    FEATURES,
    LARGEST,
    LOSSES,
    network,
    network_data,
    one_example,
    sparse,
    split_for,
)
from torch import nn

from gossamer.data.examples import Split
from gossamer.errors import DataError, SpecError
from gossamer.objectives.linear import updates as glm_updates
from gossamer.objectives.linear.model import LinearModel
from gossamer.objectives.networks.module import TorchModule
from gossamer.objectives.objective import LocalUpdates, Minibatches, Objective, Training, momentum_descent

N = 12
LENGTHS = [[5, 5, 2, 5, 5, 2], [1, 1, 1], [12, 12], [], [4], [7, 3, 9, 1, 2]]
"""Of the mini-batches of each client: epochs with a last one that is smaller, none at all, and ragged ones."""
WIDTH = len(LENGTHS)
MOMENTA = [0.9, 0.0, 0.5, 0.9, 0.3, 0.99]
PROXIMALS = [0.0, 2.0, 0.7, 1.0, 0.0, 0.1]
# Updates below 10, of at most 6 steps whose gradients are sums of some tens of terms.
ROUNDING = {np.float32: 2e-5, np.float64: 1e-12}


def trainings_for(seed: int = 2) -> list[Training]:
    rng = np.random.default_rng(seed)
    return [
        Training(Minibatches(rng.integers(0, N, sum(lengths)), np.array(lengths, np.int64)), rate, momentum, proximal)
        for lengths, rate, momentum, proximal in zip(LENGTHS, np.linspace(0.05, 0.3, WIDTH), MOMENTA, PROXIMALS)
    ]


def models_for(model: Any, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((WIDTH, model.size)).astype(model.dtype)


Way = Callable[[Any, np.ndarray, Split, list[Training]], LocalUpdates]
WAYS: dict[str, Way] = {
    "dense": lambda model, models, data, trainings: model.local_training(models, data, trainings),
    "sparse": lambda model, models, data, trainings: model.local_training(models, sparse(data), trainings),
    "any objective": lambda model, models, data, trainings: Objective.descended(
        model, models, data, momentum_descent(trainings, len(data))
    ),
}


@pytest.fixture(params=WAYS)
def trained(request: pytest.FixtureRequest) -> Way:
    return WAYS[request.param]


def one(
    trained: Way, model: LinearModel, start: Any, data: Split, steps: int = 1, rate: float = 1.0, *terms: float
) -> tuple[np.ndarray, int]:
    """What one client does from ``start`` [size] with so many steps on the first example."""
    batches = Minibatches(np.zeros(steps, np.int64), np.ones(steps, np.int64))
    found = trained(model, np.array([start], model.dtype), data, [Training(batches, rate, *terms)])
    return found.updates[0], int(found.not_finite[0])


@pytest.mark.some(12)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("name", "classes"), LOSSES)
def test_a_training_is_one_step_after_another(name: str, classes: int | None, dtype: Any, trained: Way) -> None:
    data, trainings = split_for(classes), trainings_for()
    for intercept in (True, False):
        for l2 in (0.0, 0.3):
            model = LinearModel(name, FEATURES, classes, intercept=intercept, l2=l2, dtype=dtype)
            models, gradient = models_for(model), gradient_of(name, model, data)
            found = trained(model, models, data, trainings)
            assert found.updates.dtype == dtype
            assert found.updates.shape == models.shape
            assert found.not_finite.tolist() == [0] * WIDTH
            expected = [local_training(gradient, *each, l2).update for each in zip(models, trainings)]
            np.testing.assert_allclose(found.updates, expected, rtol=0, atol=ROUNDING[dtype])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_linear_models_training_is_that_of_pytorchs_optimiser(dtype: Any, trained: Way) -> None:
    data, trainings = split_for(3), trainings_for()
    model = LinearModel("softmax", FEATURES, 3, l2=0.3, dtype=dtype)
    models = models_for(model)
    found = trained(model, models, data, trainings)
    layer = nn.Linear(FEATURES, 3).double()
    expected = [
        torch_training(layer, start, data, training, 0.3, nn.functional.cross_entropy)
        for start, training in zip(models, trainings)
    ]
    np.testing.assert_allclose(found.updates, expected, rtol=0, atol=ROUNDING[dtype])
    assert np.abs(expected).max() > 1


def test_a_networks_training_is_that_of_pytorchs_optimiser() -> None:
    module, data, trainings = network(torch.float64), network_data(), trainings_for()
    objective = TorchModule(module, l2=0.1)
    models = models_for(objective)
    found = objective.local_training(models, data, trainings)
    expected = [
        torch_training(module, start, data, training, 0.1, nn.functional.cross_entropy)
        for start, training in zip(models, trainings)
    ]
    assert found.not_finite.tolist() == [0] * WIDTH
    np.testing.assert_allclose(found.updates, expected, rtol=0, atol=1e-12)


def test_a_networks_training_is_one_step_after_another() -> None:
    module, data, trainings = network(torch.float64), network_data(), trainings_for()
    objective = TorchModule(module, l2=0.1)
    models = models_for(objective)

    def gradient(w: np.ndarray, i: int) -> np.ndarray:
        return torch_slow.example_gradient(module, w, data.features[i], int(data.targets[i]), "cross_entropy")

    found = objective.local_training(models, data, trainings)
    expected = [local_training(gradient, *each, 0.1).update for each in zip(models, trainings)]
    np.testing.assert_allclose(found.updates, expected, rtol=0, atol=1e-12)


# By hand


def test_momentum_adds_up_what_went_before(trained: Way) -> None:
    """The hinge of a far away label has the gradient -1 at each step: velocities 1, 1 + m, 1 + m + m^2 downhill."""
    model = LinearModel("hinge", 1, 2, intercept=False, dtype=np.float64)
    data, m = Split(np.ones((1, 1), np.float32), np.array([1])), 0.5
    for steps, expected in ((1, 1.0), (2, 1 + 1.5), (3, 1 + 1.5 + 1.75)):
        update, _ = one(trained, model, [-100.0], data, steps, 0.1, m)
        np.testing.assert_allclose(update, [0.1 * expected], rtol=1e-13)


def test_the_proximal_term_pulls_back_to_where_the_training_began(trained: Way) -> None:
    """A gradient of -1 against mu u: u goes to 1/mu, as 1/mu (1 - (1 - rate mu)^steps), from wherever it starts."""
    model = LinearModel("hinge", 1, 2, intercept=False, dtype=np.float64)
    data = Split(np.ones((1, 1), np.float32), np.array([1]))
    for start in (-100.0, -1000.0):
        for steps in (1, 2, 7, 400):
            update, _ = one(trained, model, [start], data, steps, 0.1, 0.0, 2.0)
            np.testing.assert_allclose(update, [0.5 * (1 - 0.8**steps)], rtol=1e-12)


def test_every_step_has_the_whole_rate_and_the_regulariser(trained: Way) -> None:
    """With x = 1, y = 0 and an L2 term of 1 each step multiplies w by 1 - 2 rate."""
    model = LinearModel("squared", 1, None, intercept=False, l2=1.0, dtype=np.float64)
    for steps in (1, 2, 5):
        update, _ = one(trained, model, [1.0], one_example([1], 0), steps, 0.1)
        np.testing.assert_allclose(update, [0.8**steps - 1], rtol=1e-13)


def test_a_smaller_batch_is_divided_by_its_own_number(trained: Way) -> None:
    """At w = 0, y = 1 and x = 1 the mean gradient is -1, of three examples and of one."""
    model = LinearModel("squared", 1, None, intercept=False, dtype=np.float64)
    data = Split(np.ones((4, 1), np.float32), np.ones(4, np.float32))
    training = Training(Minibatches(np.array([0, 1, 2, 3]), np.array([3, 1])), 0.5)
    found = trained(model, np.zeros((1, 1)), data, [training])
    np.testing.assert_allclose(found.updates, [[0.75]], rtol=1e-14)


def test_without_momentum_and_proximal_term_it_is_the_plain_steps_of_a_local_update(trained: Way) -> None:
    """`local_updates` without a clip, whose rate is that of all steps together."""
    data, rng = split_for(3), np.random.default_rng(3)
    model = LinearModel("softmax", FEATURES, 3, l2=0.2, dtype=np.float64)
    models, rows = models_for(model)[:1], rng.integers(0, N, (4, 5))
    plain = model.local_updates(models, data, [rows], np.array([0.8]), np.array([math.inf]))
    training = Training(Minibatches(rows.ravel(), np.full(4, 5)), 0.2)
    np.testing.assert_allclose(trained(model, models, data, [training]).updates, plain.updates, rtol=0, atol=1e-14)


# Independence


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_bits_of_a_client_do_not_depend_on_its_companions(dtype: Any, trained: Way) -> None:
    data, trainings = split_for(3), trainings_for()
    model = LinearModel("softmax", FEATURES, 3, l2=0.1, dtype=dtype)
    models = models_for(model)
    models[5, 0] = math.nan
    together = trained(model, models, data, trainings)
    backwards = trained(model, models[::-1], data, trainings[::-1])
    for k in range(WIDTH):
        alone = trained(model, models[k : k + 1], data, trainings[k : k + 1])
        assert together.updates[k].tobytes() == alone.updates[0].tobytes() == backwards.updates[-1 - k].tobytes()
        assert together.not_finite[k] == alone.not_finite[0] == backwards.not_finite[-1 - k]


def test_the_bits_of_a_client_with_a_network_do_not_depend_on_its_companions() -> None:
    data, trainings = network_data(), trainings_for()
    objective = TorchModule(network(torch.float32), l2=0.1)
    models = models_for(objective)
    models[2, 7] = math.nan
    together = objective.local_training(models, data, trainings)
    assert together.not_finite.tolist() == [0, 0, 2, 0, 0, 0]
    for k in range(WIDTH):
        alone = objective.local_training(models[k : k + 1], data, trainings[k : k + 1])
        assert together.updates[k].tobytes() == alone.updates[0].tobytes()


def test_arrays_are_left_alone_and_any_layout_is_compiled_once() -> None:
    data, trainings = split_for(2), trainings_for()
    model = LinearModel("logistic", FEATURES, 2, l2=0.1, dtype=np.float64)
    models = models_for(model)
    expected = model.local_training(models, data, trainings)
    before = [np.copy(models), *(np.copy(array) for each in trainings for array in each.batches)]
    compiled = len(glm_updates.descend.signatures)
    others = [
        each._replace(batches=Minibatches(*(np.repeat(array.astype(np.uint32), 2)[::2] for array in each.batches)))
        for each in trainings
    ]
    for array in (models, *(array for each in trainings for array in each.batches)):
        array.setflags(write=False)
    for given in ((np.asfortranarray(models), data, others), (models, data, trainings)):
        assert model.local_training(*given).updates.tobytes() == expected.updates.tobytes()
    assert len(glm_updates.descend.signatures) == compiled
    after = [models, *(array for each in trainings for array in each.batches)]
    assert all(np.array_equal(old, new) for old, new in zip(before, after, strict=True))


def test_no_clients_and_clients_without_steps(trained: Way) -> None:
    model, data = LinearModel("logistic", FEATURES, 2, l2=0.1), split_for(2)
    nobody = trained(model, np.zeros((0, model.size), np.float32), data, [])
    assert nobody.updates.shape == (0, model.size)
    assert nobody.not_finite.shape == (0,)
    idle = Training(Minibatches(np.zeros(0, np.int64), np.zeros(0, np.int64)), 1.0, 0.9, 1.0)
    found = trained(model, np.ones((2, model.size)), data, [idle, idle])
    assert found.updates.tolist() == [[0.0] * model.size] * 2
    assert found.not_finite.tolist() == [0, 0]


# Numbers that are not finite, or far out


@pytest.mark.parametrize(("name", "classes"), LOSSES)
def test_a_step_that_is_not_finite_is_left_out(name: str, classes: int | None, trained: Way) -> None:
    """As if its batch had never been there: neither the model nor the velocity moves, and it is counted."""
    for bad in [math.nan, math.inf]:
        data = split_for(classes)
        data.features[4, 4], data.features[5, 7] = bad, -bad
        model = LinearModel(name, FEATURES, classes, l2=0.3, dtype=np.float64)
        models = models_for(model)[:2]
        bad_ones = Minibatches(np.array([1, 2, 4, 0, 3, 3, 6, 5]), np.array([2, 2, 2, 2]))
        sound = Minibatches(np.array([1, 2, 3, 3]), np.array([2, 2]))
        found = trained(model, models, data, [Training(bad_ones, 0.2, 0.9, 0.5), Training(sound, 0.2, 0.9, 0.5)])
        assert found.not_finite.tolist() == [2, 0]
        alone = trained(model, models[:1], data, [Training(sound, 0.2, 0.9, 0.5)])
        assert found.updates[0].tobytes() == alone.updates[0].tobytes()
        assert np.abs(alone.updates).max() > 0.01


def test_an_example_whose_norm_is_beyond_the_largest_number_is_not_finite(trained: Way) -> None:
    """(3e38, 3e38) has a norm of 4.2e38; as everywhere else that is no gradient, also where the mean would be one."""
    model = LinearModel("squared", 2, None, intercept=False)
    data = Split(np.array([[3e38, 3e38], [0, 0]], np.float32), np.array([-1, 0], np.float32))
    batches = Minibatches(np.array([0, 1, 1, 1, 1, 1]), np.array([4, 2]))
    found = trained(model, np.zeros((1, 2), np.float32), data, [Training(batches, 1.0, 0.9)])
    assert found.updates.tolist() == [[0, 0]]
    assert found.not_finite.tolist() == [1]


def test_a_sum_that_overflows_is_not_finite(trained: Way) -> None:
    """Four gradients of -2e38 add up to infinity in float32."""
    model = LinearModel("squared", 1, None, intercept=False)
    data = one_example([1], 2e38)
    training = Training(Minibatches(np.zeros(4, np.int64), np.array([4])), 1.0)
    found = trained(model, np.zeros((1, 1), np.float32), data, [training])
    assert (found.updates.tolist(), found.not_finite.tolist()) == ([[0]], [1])


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_model_that_is_not_finite_does_not_move(bad: float, trained: Way) -> None:
    model = LinearModel("softmax", FEATURES, 3, l2=0.1)
    models = models_for(model)
    models[:, 4] = bad
    found = trained(model, models, split_for(3), trainings_for())
    assert not found.updates.any()
    assert found.not_finite.tolist() == [len(lengths) for lengths in LENGTHS]


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_training_that_diverges_stops_where_numbers_end_and_counts(momentum: float, trained: Way) -> None:
    """The L2 term multiplies w by -1e30 each time, until float32 does not hold w, or float64 its gradient of 1e330."""
    for dtype in [np.float32, np.float64]:
        model = LinearModel("squared", 2, None, intercept=False, l2=1e30, dtype=dtype)
        update, not_finite = one(trained, model, [1, -1], one_example([0, 0], 0), 20, 1.0, momentum)
        steps, length = (2, LARGEST[dtype]) if dtype == np.float32 else (10, 1e300)
        np.testing.assert_allclose(np.abs(update), [length] * 2, rtol=1e-12)
        assert update[0] == -update[1]
        assert not_finite == 20 - steps


@pytest.mark.parametrize("terms", [(1e300, 0.0, 0.0), (1e300, 0.99, 0.0), (1.0, 0.9, 1e300), (1e300, 0.9, 1e300)])
def test_no_numbers_make_an_update_that_is_not_finite(terms: tuple[float, ...], trained: Way) -> None:
    for dtype in (np.float32, np.float64):
        model = LinearModel("squared", 2, None, intercept=False, l2=0.5, dtype=dtype)
        for start in ([1e30, -1e30], [0.0, 1e-30]):
            update, not_finite = one(trained, model, start, one_example([1e15, -3], 7), 12, *terms)
            assert np.isfinite(update).all()
            assert not_finite > 0


def test_tiny_numbers_are_rounded_towards_zero(trained: Way) -> None:
    """As in a local update, so that a norm never grows by rounding to float32."""
    model = LinearModel("squared", 1, None, intercept=False)
    update, _ = one(trained, model, [0], one_example([1], -1), 1, 0.6 * 2.0**-149)
    assert update.tolist() == [0]
    update, _ = one(trained, model, [0], one_example([1], -1), 1, 2.0**-126)
    assert update.tolist() == [-(2.0**-126)]


# What is refused

ONE = Minibatches(np.zeros(1, np.int64), np.ones(1, np.int64))
WRONG: dict[str, tuple[type[Exception], dict[str, Any], str]] = {
    "rate": (SpecError, {"rate": 0.0}, "rates must be positive and finite, found 0"),
    "rate nan": (SpecError, {"rate": math.nan}, "positive and finite, found nan"),
    "rate inf": (SpecError, {"rate": math.inf}, "positive and finite, found inf"),
    "momentum 1": (SpecError, {"momentum": 1.0}, r"momentum in \[0, 1\) .*found 1.0, 0.0"),
    "momentum below 0": (SpecError, {"momentum": -0.1}, r"momentum in \[0, 1\) .*found -0.1"),
    "momentum nan": (SpecError, {"momentum": math.nan}, "found nan"),
    "proximal below 0": (SpecError, {"proximal": -1.0}, r"proximal in \[0, inf\), found 0.0, -1"),
    "proximal inf": (SpecError, {"proximal": math.inf}, "found 0.0, inf"),
    "no examples": (DataError, {"batches": ONE._replace(lengths=np.array([1, 0]))}, "at least 1 example"),
    "negative": (DataError, {"batches": Minibatches(np.zeros(1, np.int64), np.array([2, -1]))}, "at least 1 example"),
    "too few": (DataError, {"batches": ONE._replace(lengths=np.array([2]))}, "batches are long, 2, found 1"),
    "too many": (DataError, {"batches": ONE._replace(examples=np.array([1, 2]))}, "batches are long, 1, found 2"),
    "real": (DataError, {"batches": ONE._replace(examples=np.zeros(1))}, "whole numbers in a row, found float64"),
    "real lengths": (DataError, {"batches": ONE._replace(lengths=np.ones(1))}, "expected whole numbers"),
    "low": (DataError, {"batches": ONE._replace(examples=np.array([-1]))}, r"in 0\.\.11, found -1\.\.0"),
    "high": (DataError, {"batches": ONE._replace(examples=np.array([12]))}, r"in 0\.\.11, found 0\.\.12"),
    "square": (DataError, {"batches": ONE._replace(examples=np.zeros((1, 1), np.int64))}, r"found int64 \[1, 1\]"),
}


@pytest.mark.parametrize("name", WRONG)
def test_trainings_that_cannot_be_are_refused_in_one_line(name: str, trained: Way) -> None:
    error, changes, match = WRONG[name]
    model, right = LinearModel("logistic", FEATURES, 2), Training(ONE, 0.5)
    with pytest.raises(error, match=match) as raised:
        trained(model, np.ones((2, model.size)), split_for(2), [right, right._replace(**changes)])
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("shape", [(3, FEATURES + 1), (2, FEATURES)])
def test_models_that_do_not_fit_are_refused(shape: tuple[int, int], trained: Way) -> None:
    model = LinearModel("logistic", FEATURES, 2)
    with pytest.raises(DataError, match=rf"models \[2, 20\], one a row, found \[{shape[0]}, {shape[1]}\]"):
        trained(model, np.ones(shape), split_for(2), [Training(ONE, 0.5)] * 2)
