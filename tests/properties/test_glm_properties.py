"""What must hold for every model, batch and clip, whatever the numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests.reference.splits import split_of
from tests.sampling import examples

from gossamer.objectives.linear.model import LinearModel

LOSSES = st.sampled_from([("logistic", 2), ("softmax", 3), ("squared", None), ("hinge", 2), ("hinge", 3)])
N, FEATURES = 5, 6

wild = hnp.arrays(np.float32, (N, FEATURES), elements=st.floats(width=32))
tame = hnp.arrays(np.float32, (N, FEATURES), elements=st.floats(-10, 10, width=32))
clips = st.floats(1e-30, 1e30)
batches = st.lists(st.lists(st.integers(0, N - 1), max_size=6), min_size=1, max_size=5)


def model_of(kind: tuple[str, int | None], intercept: bool) -> LinearModel:
    return LinearModel(kind[0], FEATURES, kind[1], intercept=intercept)


def models_of(data: st.DataObject, model: LinearModel, width: int, **limits: Any) -> np.ndarray:
    return data.draw(hnp.arrays(np.float32, (width, model.size), elements=st.floats(width=32, **limits)))


@settings(max_examples=examples(300), deadline=None, derandomize=True)
@given(st.data(), LOSSES, wild, clips, st.booleans(), st.booleans())
def test_no_example_moves_the_sum_by_more_than_the_clip(
    data: st.DataObject, kind: Any, x: np.ndarray, clip: float, csr: bool, intercept: bool
) -> None:
    """Rounding: factor and product each err by 2^-24 of themselves, and by 2^-150 where they are subnormal."""
    model = model_of(kind, intercept)
    w = np.repeat(models_of(data, model, 1), N, axis=0)
    found = model.clipped_gradients(w, split_of(kind, x, csr), list(np.arange(N)[:, None]), clip)
    sums, zeroed, unclipped = found
    norms = np.sqrt(np.square(sums, dtype=np.float64).sum(axis=1))
    assert np.isfinite(sums).all()
    assert (norms <= clip * (1 + 1e-6) + 1e-43).all()
    assert set(zeroed.tolist()) <= {0, 1}
    assert not sums[zeroed == 1].any()
    assert (unclipped <= 1 - zeroed).all()
    assert (zeroed == 1)[~np.isfinite(x).all(axis=1)].all()


@settings(max_examples=examples(200), deadline=None, derandomize=True)
@given(st.data(), LOSSES, wild, st.booleans(), st.booleans(), batches)
def test_a_row_does_not_depend_on_the_others(
    data: st.DataObject, kind: Any, x: np.ndarray, csr: bool, intercept: bool, picks: list[list[int]]
) -> None:
    model, split = model_of(kind, intercept), split_of(kind, x, csr)
    w = models_of(data, model, len(picks))
    chosen = [np.array(pick, np.int64) for pick in picks]
    each = clips | st.just(math.inf)
    clip = data.draw(each | hnp.arrays(np.float64, len(picks), elements=each))
    together = model.clipped_gradients(w, split, chosen, clip)
    for k, batch in enumerate(chosen):
        own = float(np.broadcast_to(clip, len(picks))[k])
        alone = model.clipped_gradients(w[k : k + 1], split, [batch], own)
        assert alone.sums.tobytes() == together.sums[k].tobytes()
        assert (alone.zeroed[0], alone.unclipped[0]) == (together.zeroed[k], together.unclipped[k])


@settings(max_examples=examples(200), deadline=None, derandomize=True)
@given(st.data(), LOSSES, tame, st.floats(0.01, 100), st.booleans(), st.lists(st.integers(0, N - 1), max_size=8))
def test_a_batch_is_the_sum_of_its_examples_in_either_layout(
    data: st.DataObject, kind: Any, x: np.ndarray, clip: float, intercept: bool, pick: list[int]
) -> None:
    """Each of at most 8 addends is at most the clip (or a residual of 600 times |x| of 25) and errs by 1e-6 of it.

    The hinge's gradient jumps at a margin of 1, which rounding may cross, so its models are zero.
    """
    model = model_of(kind, intercept)
    w = models_of(data, model, 1, min_value=-10, max_value=10) * np.float32(kind[0] != "hinge")
    batch = np.array(pick, np.int64)
    dense, csr = split_of(kind, x, False), split_of(kind, x, True)
    whole = model.clipped_gradients(w, dense, [batch], clip)
    each = model.clipped_gradients(np.repeat(w, len(pick), axis=0), dense, list(batch[:, None]), clip)
    assert np.abs(whole.sums[0] - each.sums.sum(axis=0)).max() <= 1e-5 * clip
    assert np.abs(whole.sums - model.clipped_gradients(w, csr, [batch], clip).sums).max() <= 1e-4 * clip
