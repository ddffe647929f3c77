"""A module whose gradients take as long whatever numbers they are made of, and are the same ones."""

from __future__ import annotations

import pickle
from unittest.mock import patch

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits
from torch import nn

from gossamer.data.examples import Split
from gossamer.objectives.networks import checks
from gossamer.objectives.networks import gradients as torch_gradients
from gossamer.objectives.networks.kernel import Kernel
from gossamer.objectives.networks.module import TorchModule

STRATEGIES = ("compiled", "layers", "threads", "vmap")
TINY = np.float32(1e-40)
"""Below the normal numbers of float32, whose least is 1.2e-38."""


def module(strategy: str) -> TorchModule:
    return TorchModule(nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3)), strategy=strategy, threads=1)


def data() -> Split:
    generator = np.random.default_rng(1)
    return Split(generator.standard_normal((6, 5)).astype(np.float32), generator.integers(0, 3, 6))


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("clip", [0.3, 1e3])
@pytest.mark.parametrize("batch", [[2], [0, 3, 3, 5]])
def test_usual_gradients_have_the_same_bits(strategy: str, clip: float, batch: list[int]) -> None:
    objective = module(strategy)
    model = objective.initial(np.random.default_rng(2))[None]
    expected = objective.clipped_gradients(model, data(), [np.array(batch)], clip)
    found = objective.steady().clipped_gradients(model, data(), [np.array(batch)], clip)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("wrong", [np.nan, np.inf, 1e30])
def test_what_is_not_finite_counts_as_zero_and_is_not_looked_at_again(strategy: str, wrong: float) -> None:
    """A gradient of 1e30 is finite, and its square is not in float32, in which ``threads`` and ``vmap`` take it."""
    objective = module(strategy)
    model = objective.initial(np.random.default_rng(2))[None]
    features = data().features.copy()
    features[2] = wrong
    odd = Split(features, data().targets)
    steady = objective.steady()
    with patch.object(torch_gradients, "_norms", side_effect=AssertionError("looked at again")):
        found = steady.clipped_gradients(model, odd, [np.array([2])], 1.0)
    lost = not (strategy in ("compiled", "layers") and wrong == 1e30)
    assert found.zeroed.tolist() == [int(lost)]
    assert found.unclipped.tolist() == [0]
    assert found.sums.any() != lost
    assert objective.clipped_gradients(model, odd, [np.array([2])], 1.0).zeroed.tolist() == [int(wrong != 1e30)]


def test_one_example_by_layers_is_never_taken_by_itself() -> None:
    objective = module("layers").steady()
    model = objective.initial(np.random.default_rng(2))[None]
    with patch.object(torch_gradients.ExampleGradients, "__call__", side_effect=AssertionError("looked at again")):
        found = objective.clipped_gradients(np.full_like(model, np.nan), data(), [np.array([2])], 1.0)
    assert found.zeroed.tolist() == [1]


@pytest.mark.some(60)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("smaller", range(-45, 1, 9))
@pytest.mark.parametrize("larger", range(0, 37, 6))
def test_no_gradient_is_longer_than_its_clip_however_far_apart_its_factors_are(
    strategy: str, smaller: int, larger: int
) -> None:
    """Small derivatives of large inputs, whose squares alone would count as zero."""
    objective = TorchModule(
        nn.Sequential(nn.Linear(5, 8, bias=False), nn.Linear(8, 3, bias=False)), strategy=strategy, threads=1
    )
    model = objective.initial(np.random.default_rng(2))
    model[40:] *= np.float32(10.0**smaller)
    features = (data().features * 10.0**larger).astype(np.float32)
    found = objective.steady().clipped_gradients(model[None], Split(features, data().targets), [np.array([0])], 1.0)
    assert np.linalg.norm(found.sums[0].astype(np.float64)) <= 1 + 1e-5


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_others_beside_it_are_as_they_were(strategy: str) -> None:
    objective = module(strategy)
    model = objective.initial(np.random.default_rng(2))[None]
    features = data().features.copy()
    features[2] = np.nan
    odd, steady = Split(features, data().targets), objective.steady()
    found = steady.clipped_gradients(model, odd, [np.array([1, 2, 4])], 1.0)
    expected = objective.clipped_gradients(model, data(), [np.array([1, 4])], 1.0)
    np.testing.assert_allclose(found.sums, expected.sums, rtol=1e-5, atol=1e-7)
    assert found.zeroed.tolist() == [1]


def subnormals_count() -> bool:
    """Whether this thread computes with numbers below the normal ones."""
    return bool((torch.full((64,), float(TINY)) * 1.0).any())


@pytest.mark.skipif(not torch.set_flush_denormal(False), reason="this processor takes subnormal numbers as they are")
@pytest.mark.parametrize(("clip", "counted"), [(1.0, False), (1e-9, False), (1e-12, True)])
def test_numbers_below_the_normal_ones_count_as_zero_where_the_clip_is_far_above(clip: float, counted: bool) -> None:
    """Processors are up to a hundred times slower on them; and not a moment longer than gradients take."""
    seen: list[bool] = []

    class Looking(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(subnormals_count())
            return super().forward(x)

    objective = TorchModule(nn.Sequential(Looking(5, 3)), strategy="threads", threads=1)
    model, steady = objective.initial(np.random.default_rng(2))[None], objective.steady()
    examples = data()
    steady.plan(examples)
    seen.clear()
    steady.clipped_gradients(model, examples, [np.array([1])], clip)
    assert seen
    assert set(seen) == {counted}
    assert subnormals_count()
    seen.clear()
    objective.clipped_gradients(model, examples, [np.array([1])], clip)
    assert set(seen) == {True}


def test_an_error_leaves_the_thread_as_it_was() -> None:
    with pytest.raises(ZeroDivisionError), torch_gradients.without_subnormals(True):
        raise ZeroDivisionError
    assert subnormals_count()


def test_a_module_is_checked_once_however_often_it_is_asked_for() -> None:
    objective, index = module("layers"), [np.array([0])]
    model = objective.initial(np.random.default_rng(2))[None]
    objective.steady().clipped_gradients(model, data(), index, 1.0)
    with patch.object(checks, "probe", side_effect=AssertionError("checked again")):
        objective.steady().clipped_gradients(model, data(), index, 1.0)
    copied = pickle.loads(pickle.dumps(objective))  # hooks do not go along
    assert copied.steady().clipped_gradients(model, data(), index, 1.0).zeroed.tolist() == [0]


def test_linear_models_are_as_they_are() -> None:
    from gossamer.objectives.linear.model import LinearModel

    model = LinearModel("softmax", 4, 3)
    assert model.steady() is model


@pytest.mark.skipif(not torch.set_flush_denormal(False), reason="this processor takes subnormal numbers as they are")
def test_blas_has_no_threads_of_its_own_which_would_count_numbers_below_the_normal_ones() -> None:
    """With a second thread of BLAS, rows of such numbers took 50 times as long as others."""
    seen: list[tuple[bool, set[int]]] = []

    def looking(*_: object) -> None:
        used = {info["num_threads"] for info in threadpool_info() if info["user_api"] == "blas"}
        seen.append((subnormals_count(), used))

    kernel = Kernel(looking, np.dtype(np.float32), classifies=True, products=True)
    batches, clips = [np.arange(3)], np.array([1.0])
    with threadpool_limits(2, user_api="blas"):
        model = np.zeros((1, 8), np.float32)
        kernel.gradients(model, data(), batches, clips, threads=1, flushed=True, again=None)
    assert seen == [(False, {1})]
