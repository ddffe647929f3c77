"""What must hold for every local update, whatever the numbers."""

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
from gossamer.objectives.objective import Objective, clipped_descent

LOSSES = st.sampled_from([("logistic", 2), ("softmax", 3), ("squared", None), ("hinge", 2), ("hinge", 3)])
SMOOTH = st.sampled_from([("logistic", 2), ("softmax", 3), ("squared", None)])
N, FEATURES = 5, 6

wild = hnp.arrays(np.float32, (N, FEATURES), elements=st.floats(width=32))
tame = hnp.arrays(np.float32, (N, FEATURES), elements=st.floats(-2, 2, width=32))


@settings(max_examples=examples(300), deadline=None, derandomize=True)
@given(st.data(), LOSSES, wild, st.floats(1e-30, 1e30), st.booleans(), st.sampled_from([0.0, 0.5, 1e6]))
def test_no_data_moves_an_agent_by_more_than_the_bound(
    data: st.DataObject, kind: Any, x: np.ndarray, clip: float, csr: bool, l2: float
) -> None:
    """Rounding is 2^-24 of each entry. In one step, the same gradients are not finite as for any objective."""
    model = LinearModel(kind[0], FEATURES, kind[1], l2=l2)
    models = data.draw(hnp.arrays(np.float32, (3, model.size), elements=st.floats(width=32)))
    batches = [np.array([[0, 1, 2, 3, 4]]), np.array([[1], [2], [3]]), np.array([[4, 0]])]
    split, rates, clips = split_of(kind, x, csr), np.array([0.7, 3.0, 1e-3]), np.full(3, clip)
    found = model.local_updates(models, split, batches, rates, clips)
    lengths = np.sqrt(np.square(found.updates, dtype=np.float64).sum(axis=1))
    assert (lengths <= rates * clips * (1 + 1e-7)).all()
    general = Objective.descended(model, models, split, clipped_descent(batches, rates, clips, len(split)))
    assert found.not_finite[[0, 2]].tolist() == general.not_finite[[0, 2]].tolist()
    free = model.local_updates(models, split, batches, rates, np.full(3, math.inf))
    assert np.isfinite(free.updates).all()


@settings(max_examples=examples(100), deadline=None, derandomize=True)
@given(SMOOTH, tame, st.floats(0.01, 10), st.booleans(), st.integers(0, 2**32))
def test_compiled_updates_are_those_of_any_objective(
    kind: Any, x: np.ndarray, clip: float, csr: bool, seed: int
) -> None:
    """In float64, to 1e-12. Not for the hinge, whose gradient jumps, and rounding decides on which side."""
    rng = np.random.default_rng(seed)
    model, split = LinearModel(kind[0], FEATURES, kind[1], l2=0.1, dtype=np.float64), split_of(kind, x, csr)
    models = rng.standard_normal((4, model.size))
    batches = [rng.integers(0, N, rng.integers(1, 6, 2)) for _ in range(4)]
    clips = np.array([clip, clip / 3, math.inf, 3 * clip])
    asked = (batches, rng.uniform(0.1, 1, 4), clips)
    found = model.local_updates(models, split, *asked)
    general = Objective.descended(model, models, split, clipped_descent(*asked, len(split)))
    np.testing.assert_allclose(found.updates, general.updates, rtol=0, atol=1e-12)
