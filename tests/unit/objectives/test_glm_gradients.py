"""Clipped gradients of linear models against autograd, finite differences and closed forms."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from tests.reference.glm_slow import clipped_sum
from tests.reference.splits import half_zero
from threadpoolctl import threadpool_limits

from gossamer.data.examples import Split
from gossamer.errors import DataError, SpecError
from gossamer.objectives.linear.model import LinearModel

LOSSES = [
    ("logistic", 2),
    ("softmax", 2),
    ("softmax", 4),
    ("squared", None),
    ("squared_error", None),
    ("hinge", 2),
    ("hinge", 4),
]
ROUNDING = {np.float32: 1e-4, np.float64: 1e-12}  # of sums of about 12 numbers of size 10
N, FEATURES = 12, 19  # 19 is no multiple of a vector register's width


def split_for(classes: int | None, seed: int = 0, features: int = FEATURES) -> Split:
    return half_zero(classes, N, features, seed)


def sparse(split: Split) -> Split:
    return Split(sp.csr_array(split.features), split.targets)


def models_for(model: LinearModel, width: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((width, model.size)).astype(model.dtype)


def slow_sum(model: LinearModel, name: str, w: np.ndarray, data: Split, batch: Any, clip: float) -> Any:
    return clipped_sum(name, w, data.features, data.targets, batch, clip, model.outputs, model.intercept)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("layout", [lambda split: split, sparse])
@pytest.mark.parametrize(("name", "classes"), LOSSES)
def test_sums_are_those_of_autograd_example_by_example(name: str, classes: int | None, layout: Any, dtype: Any) -> None:
    data = split_for(classes)
    batches = [np.arange(N), np.array([3]), np.array([], np.int64), np.array([5, 5, 0])]
    for intercept in (True, False):
        model = LinearModel(name, FEATURES, classes, intercept=intercept, l2=7.0, dtype=dtype)
        w = models_for(model, len(batches))
        for clip in (math.inf, 1.0, 0.01):
            sums, zeroed, unclipped = model.clipped_gradients(w, layout(data), batches, clip)
            slow = [slow_sum(model, name, w[k], data, batch, clip) for k, batch in enumerate(batches)]
            expected = [one.total for one in slow]
            assert sums.dtype == dtype
            np.testing.assert_allclose(sums, expected, rtol=0, atol=ROUNDING[dtype])
            assert zeroed.tolist() == [0] * len(batches)
            assert unclipped.tolist() == [one.unclipped for one in slow]
            assert not sums[2].any()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("layout", [lambda split: split, sparse])
@pytest.mark.parametrize(("name", "classes"), LOSSES)
def test_each_model_has_its_own_clip(name: str, classes: int | None, layout: Any, dtype: Any) -> None:
    """Clips between norms of the batch, so that all counts between none and all occur."""
    data = split_for(classes)
    model = LinearModel(name, FEATURES, classes, dtype=dtype)
    w = models_for(model, 6)
    batch = np.arange(N)
    shares = (0.2, 0.5, 0.9)
    lengths = [[np.linalg.norm(slow_sum(model, name, row, data, [i], math.inf).total) for i in batch] for row in w]
    middles = [np.quantile(found, share) + 1e-3 for found, share in zip(lengths, shares)]
    clips = np.array([1e-3, *middles, 1e9, math.inf])

    found = model.clipped_gradients(w, layout(data), [batch] * 6, clips)

    slow = [slow_sum(model, name, row, data, batch, clip) for row, clip in zip(w, clips)]
    np.testing.assert_allclose(found.sums, [one.total for one in slow], rtol=0, atol=ROUNDING[dtype])
    assert found.unclipped.tolist() == [one.unclipped for one in slow]
    assert found.unclipped[4:].tolist() == [N, N]
    assert 0 < found.unclipped[2] < N
    for k, clip in enumerate(clips):
        alone = model.clipped_gradients(w[k : k + 1], layout(data), [batch], float(clip))
        assert alone.sums.tobytes() == found.sums[k].tobytes()
        assert alone.unclipped[0] == found.unclipped[k]


@pytest.mark.parametrize(("name", "classes"), LOSSES)
def test_gradients_are_the_slopes_of_the_evaluated_loss(name: str, classes: int | None) -> None:
    """Central differences with step h err by h^2 f'''/6, about 1e-10 here; the hinge has no kink within h."""
    data, h = split_for(classes), 1e-5
    model = LinearModel(name, FEATURES, classes, l2=3.0, dtype=np.float64)
    w = models_for(model, 1)
    steps = h * np.eye(model.size)
    slopes = (model.evaluate(w + steps, data).loss - model.evaluate(w - steps, data).loss) / (2 * h)
    sums = model.clipped_gradients(w, data, [np.arange(N)], math.inf).sums
    np.testing.assert_allclose(sums[0] / N, slopes, atol=1e-8)


def test_a_gradient_over_the_clip_has_its_norm_and_one_under_it_is_untouched() -> None:
    """Squared loss at W = 0: the gradient is -y (x, 1), of norm |y| sqrt(|x|^2 + 1)."""
    data = Split(np.array([[3, 4], [0, 0]], np.float32), np.array([-10, 0.5], np.float32))
    model = LinearModel("squared", 2, None)
    sums, _, unclipped = model.clipped_gradients(np.zeros((1, 3)), data, [np.array([0])], 2.0)
    assert unclipped.tolist() == [0]
    np.testing.assert_allclose(sums[0], 2 * np.array([3, 4, 1]) / math.sqrt(26), rtol=1e-6)
    sums, _, unclipped = model.clipped_gradients(np.zeros((1, 3)), data, [np.array([1])], 2.0)
    assert unclipped.tolist() == [1]
    assert sums[0].tolist() == [0, 0, -0.5]
    bare = LinearModel("squared", 2, None, intercept=False)
    sums = bare.clipped_gradients(np.zeros((1, 2)), data, [np.array([0])], 2.0).sums
    np.testing.assert_allclose(sums[0], 2 * np.array([3, 4]) / 5, rtol=1e-6)


@pytest.mark.parametrize("layout", [lambda split: split, sparse])
def test_a_norm_that_equals_the_clip_is_within_it_and_so_is_a_zero_gradient(layout: Any) -> None:
    """Squared loss at W = 0 without a bias: y = 1 and x = (3, 4) have a gradient of norm 5, y = 0 of norm 0."""
    data = layout(Split(np.array([[3, 4], [3, 4]], np.float32), np.array([1, 0], np.float32)))
    model = LinearModel("squared", 2, None, intercept=False)
    clips = np.array([5.0, np.nextafter(5.0, 0), 1e-300])
    found = model.clipped_gradients(np.zeros((3, 2)), data, [np.array([0, 1])] * 3, clips)
    assert found.unclipped.tolist() == [2, 1, 1]
    assert found.zeroed.tolist() == [0, 0, 0]
    assert found.sums[0].tolist() == [-3, -4]


def test_the_l2_term_is_not_in_the_gradients() -> None:
    data = split_for(2)
    plain, heavy = LinearModel("logistic", FEATURES, 2), LinearModel("logistic", FEATURES, 2, l2=100.0)
    w = models_for(plain, 1)
    assert np.array_equal(
        plain.clipped_gradients(w, data, [np.arange(N)], 1.0).sums,
        heavy.clipped_gradients(w, data, [np.arange(N)], 1.0).sums,
    )


@pytest.mark.parametrize(("name", "classes"), LOSSES)
def test_an_example_that_is_not_finite_counts_as_zero_and_leaves_others_alone(name: str, classes: int | None) -> None:
    for layout, bad in itertools.product([lambda split: split, sparse], [math.nan, math.inf, -math.inf]):
        clean = split_for(classes)
        dirty = Split(clean.features.copy(), clean.targets)
        dirty.features[4, 7] = bad
        model = LinearModel(name, FEATURES, classes)
        w = models_for(model, 2)
        w[1] = 0
        others = np.array([0, 1, 2, 3, 5])
        for clip in (1.0, math.inf):
            found = model.clipped_gradients(w, layout(dirty), [np.array([0, 1, 4, 2, 3, 5, 4])] * 2, clip)
            expected = model.clipped_gradients(w, layout(clean), [others] * 2, clip)
            assert found.zeroed.tolist() == [2, 2]
            assert np.array_equal(found.unclipped, expected.unclipped)
            assert np.array_equal(found.sums, expected.sums)
        assert found.unclipped.tolist() == [5, 5]


@pytest.mark.parametrize(("name", "classes"), LOSSES)
def test_a_model_that_is_not_finite_gives_a_zero_row(name: str, classes: int | None) -> None:
    for layout, bad, place in itertools.product([lambda split: split, sparse], [math.nan, math.inf], [7, -1]):
        data = layout(split_for(classes))
        model = LinearModel(name, FEATURES, classes)
        w = models_for(model, 3)
        expected = model.clipped_gradients(w[[0, 2]], data, [np.arange(N)] * 2, 1.0).sums
        w[1, place] = bad
        sums, zeroed, unclipped = model.clipped_gradients(w, data, [np.arange(N)] * 3, 1.0)
        assert zeroed.tolist() == [0, N, 0]
        assert unclipped[1] == 0
        assert not sums[1].any()
        assert np.array_equal(sums[[0, 2]], expected)


@pytest.mark.parametrize("far", [1e3, -1e3])
def test_extreme_outputs_have_finite_residuals(far: float) -> None:
    """At z = (far, 0) the probabilities are 0 and 1 to float32, so each loss has residuals 0, 1 and -1."""
    data = Split(np.ones((2, 1), np.float32), np.array([0, 1]))
    right = np.array([0 if far > 0 else 1])
    for model, w, wrong_residuals in (
        (LinearModel("softmax", 1, 2, intercept=False), [far, 0], np.sign(far) * np.array([1, -1])),
        (LinearModel("logistic", 1, 2, intercept=False), [-far], np.array([-np.sign(far)])),
    ):
        sums, zeroed, _ = model.clipped_gradients(np.array([w, w]), data, [right, 1 - right], math.inf)
        assert zeroed.tolist() == [0, 0]
        assert sums.tolist() == [[0] * len(w), wrong_residuals.tolist()]


def test_a_gradient_that_overflows_is_zero_even_without_a_clip() -> None:
    """Residual 1e30 and |x| = 1e10 make a norm of 1e40, more than float32 holds and less than float64 does."""
    data = Split(np.array([[1e10]], np.float32), np.array([-1e30], np.float32))
    single, double = (LinearModel("squared", 1, None, dtype=t) for t in (np.float32, np.float64))
    sums, zeroed, unclipped = single.clipped_gradients(np.zeros((1, 2)), data, [np.array([0])], math.inf)
    assert not sums.any()
    assert (zeroed.tolist(), unclipped.tolist()) == ([1], [0])
    sums, zeroed, unclipped = double.clipped_gradients(np.zeros((1, 2)), data, [np.array([0])], math.inf)
    np.testing.assert_allclose(sums, [[1e40, 1e30]], rtol=1e-6)
    assert (zeroed.tolist(), unclipped.tolist()) == ([0], [1])


def test_a_tiny_scale_is_rounded_towards_zero() -> None:
    """Clip 2^-23 at x = 2^127 scales by 2^-150, half the least float32: rounded up, it doubles the norm."""
    data = Split(np.array([[2.0**127]], np.float32), np.array([-1], np.float32))
    model = LinearModel("squared", 1, None, intercept=False)
    for clip in (1.01 * 2.0**-23, 1.7 * 2.0**-22):
        sums = model.clipped_gradients(np.zeros((1, 1)), data, [np.array([0])], clip).sums
        assert sums[0, 0] <= clip


@pytest.mark.parametrize(("name", "classes"), LOSSES)
def test_many_models_at_once_have_the_bits_of_one_at_a_time(name: str, classes: int | None) -> None:
    for layout in [lambda split: split, sparse]:
        data = layout(split_for(classes))
        model = LinearModel(name, FEATURES, classes)
        w = models_for(model, 9)
        batches = [np.random.default_rng(k).integers(0, N, k) for k in range(9)]
        together = model.clipped_gradients(w, data, batches, 0.5).sums
        with threadpool_limits(1):
            alone = [model.clipped_gradients(w[k : k + 1], data, [batches[k]], 0.5).sums[0] for k in range(9)]
        assert together.tobytes() == np.array(alone).tobytes()


def test_examples_of_any_shape_are_flattened_without_a_copy() -> None:
    flat = split_for(4, features=24)
    images = Split(flat.features.reshape(N, 2, 3, 4), flat.targets)
    model = LinearModel("softmax", 24, 4)
    w = models_for(model, 1)
    batch = [np.arange(N)]
    assert np.shares_memory(model._examples(images).matrix, images.features)
    expected = model.clipped_gradients(w, flat, batch, 1.0).sums
    assert np.array_equal(model.clipped_gradients(w, images, batch, 1.0).sums, expected)
    strided = Split(np.repeat(flat.features, 2, axis=0)[::2], flat.targets)
    assert np.array_equal(model.clipped_gradients(w, strided, batch, 1.0).sums, expected)


def test_frozen_arrays_and_models_of_another_dtype_are_taken() -> None:
    data = split_for(2)
    model = LinearModel("logistic", FEATURES, 2)
    w = models_for(model, 1)
    expected = model.clipped_gradients(w, data, [np.arange(N)], 1.0).sums
    frozen = w.copy()
    frozen.setflags(write=False)
    assert np.array_equal(model.clipped_gradients(frozen, data, [np.arange(N)], 1.0).sums, expected)
    assert np.array_equal(model.clipped_gradients(w.astype(np.float64), data, [np.arange(N)], 1.0).sums, expected)


@pytest.mark.parametrize("index", [-1, N])
def test_an_index_outside_of_the_data_is_refused(index: int) -> None:
    model = LinearModel("logistic", FEATURES, 2)
    with pytest.raises(DataError, match=rf"batch indices must be in 0\.\.{N - 1}"):
        model.clipped_gradients(models_for(model, 1), split_for(2), [np.array([index])], 1.0)


@pytest.mark.parametrize("clip", [0.0, -1.0, math.nan])
def test_a_clip_that_is_not_positive_is_refused(clip: float) -> None:
    model = LinearModel("logistic", FEATURES, 2)
    for given in (clip, np.array([1.0, clip])):
        with pytest.raises(SpecError, match=f"every clip must be a positive number, found {clip:g}"):
            model.clipped_gradients(models_for(model, 2), split_for(2), [np.arange(3)] * 2, given)


@pytest.mark.parametrize("shape", [(1,), (3,), (2, 1)])
def test_clips_that_are_not_one_a_model_are_refused(shape: tuple[int, ...]) -> None:
    model = LinearModel("logistic", FEATURES, 2)
    with pytest.raises(DataError, match=r"expected one clip, or an array \[2\] with one for each model, found \["):
        model.clipped_gradients(models_for(model, 2), split_for(2), [np.arange(3)] * 2, np.ones(shape))


def test_models_of_another_size_are_refused() -> None:
    model = LinearModel("logistic", FEATURES, 2)
    with pytest.raises(DataError, match=rf"expected models \[2, {FEATURES + 1}\]"):
        model.clipped_gradients(np.zeros((1, FEATURES + 1)), split_for(2), [np.arange(3)] * 2, 1.0)
