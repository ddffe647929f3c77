"""Clipped gradients on some coordinates: against one gradient at a time, and exact where nothing is masked."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from tests.reference.glm_slow import example_gradient
from tests.reference.local_steps_slow import clipped_share
from torch import nn

from gossamer.data.examples import Split
from gossamer.errors import DataError, SpecError
from gossamer.objectives import objective
from gossamer.objectives.linear.model import LinearModel
from gossamer.objectives.networks.module import TorchModule
from gossamer.objectives.objective import clipped_on
from gossamer.vectors import Coordinates

N, FEATURES = 12, 9
WHERE = [Coordinates(), Coordinates(1, 2), Coordinates(3, 4), Coordinates(0, 3), Coordinates(8, 100)]
BATCHES = [np.arange(N), np.arange(3, 11), np.array([5, 5, 0]), np.array([], np.int64), np.arange(N)]
CLIPS = np.array([1.0, 2.0, math.inf, 1.0, 30.0])


@pytest.fixture
def data() -> Split:
    rng = np.random.default_rng(0)
    return Split(rng.standard_normal((N, FEATURES)).astype(np.float32), rng.integers(0, 3, N))


def models_for(objective: Any, width: int = len(WHERE)) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((width, objective.size)).astype(objective.dtype)


@pytest.mark.parametrize("numbers", [1, 100, objective._NUMBERS])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_each_row_is_the_sum_over_single_examples(
    data: Split, dtype: Any, numbers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether one gradient is held at once, or three, or all. Sums of up to 12 shares below 100."""
    monkeypatch.setattr(objective, "_NUMBERS", numbers)
    model = LinearModel("softmax", FEATURES, 3, l2=5.0, dtype=dtype)
    w = models_for(model)
    found = clipped_on(model, w, data, BATCHES, CLIPS, WHERE)
    for k, where in enumerate(WHERE):
        expected, unclipped = np.zeros(where.count(model.size)), 0
        for i in BATCHES[k]:
            gradient = example_gradient("softmax", w[k], data.features[i], float(data.targets[i]), 3, True)
            share = clipped_share(gradient, CLIPS[k], where.first, where.step)
            assert share is not None
            expected += share
            unclipped += where.step * np.linalg.norm(gradient[where.slice]) <= CLIPS[k]
        assert found.sums[k].dtype == dtype
        np.testing.assert_allclose(found.sums[k], expected, rtol=0, atol=1e-3 if dtype == np.float32 else 1e-11)
        assert found.unclipped[k] == unclipped
    assert found.zeroed.tolist() == [0] * len(WHERE)
    assert 0 < found.unclipped[1] < len(BATCHES[1])


@pytest.mark.parametrize("layout", [np.asarray, sp.csr_array])
def test_rows_of_all_coordinates_have_the_bits_of_clipped_gradients(data: Split, layout: Any) -> None:
    model = LinearModel("hinge", FEATURES, 3)
    split = Split(layout(data.features), data.targets)
    w = models_for(model)
    expected = model.clipped_gradients(w, split, BATCHES, CLIPS)
    for wheres in ([Coordinates()] * 5, [Coordinates(), *WHERE[:4]]):
        found = clipped_on(model, w, split, BATCHES, CLIPS, wheres)
        for k in (0, 1) if wheres[2].step > 1 else range(5):
            assert found.sums[k].tobytes() == expected.sums[k].tobytes()
            assert found.unclipped[k] == expected.unclipped[k]
    # One clip for all rows, as `clipped_gradients` takes it.
    alike = clipped_on(model, w, split, BATCHES, 0.5, [Coordinates()] * 5).sums
    assert np.stack(alike).tobytes() == model.clipped_gradients(w, split, BATCHES, 0.5).sums.tobytes()


def test_a_row_has_the_same_bits_whatever_is_computed_with_it(data: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    model = LinearModel("logistic", FEATURES, 2)
    split = Split(data.features, data.targets % 2)
    w = models_for(model)
    together = clipped_on(model, w, split, BATCHES, CLIPS, WHERE)
    monkeypatch.setattr(objective, "_NUMBERS", 3 * model.size)
    for k in range(5):
        alone = clipped_on(model, w[k : k + 1], split, BATCHES[k : k + 1], CLIPS[k : k + 1], WHERE[k : k + 1])
        assert alone.sums[0].tobytes() == together.sums[k].tobytes()
        assert alone.unclipped[0] == together.unclipped[k]


def test_the_parts_of_a_vector_make_up_the_unclipped_whole(data: Split) -> None:
    """Without a clip, the average of the parts, each in its place, is the gradient: E of the mask times D is one."""
    model = LinearModel("softmax", FEATURES, 3, dtype=np.float64)
    w = models_for(model, 1)
    whole = model.clipped_gradients(w, data, [np.arange(N)], math.inf).sums[0]
    parts = [Coordinates(first, 4) for first in range(4)]
    found = clipped_on(model, np.repeat(w, 4, axis=0), data, [np.arange(N)] * 4, math.inf, parts)
    joined = np.empty(model.size)
    for where, total in zip(parts, found.sums):
        joined[where.slice] = total / 4
    np.testing.assert_allclose(joined, whole, rtol=0, atol=1e-13)


def test_networks_are_masked_alike(data: Split) -> None:
    module = nn.Sequential(nn.Linear(FEATURES, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    objective = TorchModule(module)
    w, where = models_for(objective, 1), Coordinates(2, 3)
    batch = np.arange(6)
    expected = np.zeros(where.count(objective.size))
    for i in batch:
        gradient = objective.clipped_gradients(w, data, [batch[i : i + 1]], math.inf).sums[0]
        share = clipped_share(gradient, 0.7, 2, 3)
        assert share is not None
        expected += share
    found = clipped_on(objective, w, data, [batch], 0.7, [where])
    np.testing.assert_allclose(found.sums[0], expected, rtol=0, atol=1e-12)
    assert found.unclipped[0] < 6


@pytest.mark.parametrize("place", [3, 4])
def test_gradients_that_are_not_finite_count_as_zero_wherever_the_component_is(data: Split, place: int) -> None:
    """On the masked coordinates (odd) or off them; an infinite feature leaves the logistic's residual finite."""
    model = LinearModel("logistic", FEATURES, 2, intercept=False)
    split = Split(data.features.copy(), data.targets % 2)
    split.features[4, place] = math.inf
    w = models_for(model, 1)
    found = clipped_on(model, w, split, [np.arange(N)], 0.5, [Coordinates(1, 2)])
    others = clipped_on(model, w, split, [np.delete(np.arange(N), 4)], 0.5, [Coordinates(1, 2)])
    assert (found.zeroed.tolist(), others.zeroed.tolist()) == ([1], [0])
    assert found.sums[0].tobytes() == others.sums[0].tobytes()
    assert found.unclipped[0] == others.unclipped[0]


def test_a_share_beyond_the_largest_number_counts_as_zero() -> None:
    """Both components are 2e38, of norm 2.8e38, which float32 holds; 4e38, one of them doubled, it does not."""
    split = Split(np.array([[1e19, 1e19]], np.float32), np.array([-2e19], np.float32))
    model = LinearModel("squared", 2, None, intercept=False)
    for step, zeroed in ((1, 0), (2, 1)):
        found = clipped_on(model, np.zeros((1, 2), np.float32), split, [np.array([0])], 3.0, [Coordinates(0, step)])
        assert found.zeroed.tolist() == [zeroed]
        assert found.sums[0].any() == (zeroed == 0)


def test_no_rows_give_no_sums(data: Split) -> None:
    model = LinearModel("softmax", FEATURES, 3)
    found = clipped_on(model, np.empty((0, model.size)), data, [], np.empty(0), [])
    assert (found.sums, found.zeroed.tolist(), found.unclipped.tolist()) == ([], [], [])


def test_what_does_not_fit_is_refused(data: Split) -> None:
    model = LinearModel("softmax", FEATURES, 3)
    w, batches, where = models_for(model, 2), [np.arange(3)] * 2, [Coordinates(0, 2)] * 2
    with pytest.raises(DataError, match="2 batches and coordinates, found 2 and 1"):
        clipped_on(model, w, data, batches, 1.0, where[:1])
    with pytest.raises(DataError, match="2 batches and coordinates, found 1 and 2"):
        clipped_on(model, w, data, batches[:1], 1.0, where)
    with pytest.raises(DataError, match="expected one clip"):
        clipped_on(model, w, data, batches, np.ones(3), where)
    with pytest.raises(SpecError, match="positive number, found 0"):
        clipped_on(model, w, data, batches, np.array([1.0, 0.0]), where)
    with pytest.raises(DataError, match=r"30 numbers start below 30, found Coordinates\(first=30"):
        clipped_on(model, w, data, batches, 1.0, [Coordinates(0, 2), Coordinates(30, 31)])
    with pytest.raises(DataError, match=r"in 0\.\.11"):
        clipped_on(model, w, data, [np.array([12])] * 2, 1.0, where)
