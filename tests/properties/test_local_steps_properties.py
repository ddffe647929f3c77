"""What must hold for every local round, whatever the numbers."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests.reference.local_rounds import of_rounds
from tests.reference.splits import split_of
from tests.sampling import examples

from gossamer.objectives.linear.model import LinearModel
from gossamer.objectives.objective import LocalRound, Objective, clipped_on
from gossamer.vectors import Coordinates

LOSSES = st.sampled_from([("logistic", 2), ("softmax", 3), ("squared", None), ("hinge", 2), ("hinge", 3)])
N, FEATURES = 5, 6

wild = hnp.arrays(np.float32, (N, FEATURES), elements=st.floats(width=32))
clips = st.floats(1e-30, 1e30)
wheres = st.sampled_from([Coordinates(), Coordinates(0, 2), Coordinates(2, 3), Coordinates(5, 6)])


@settings(max_examples=examples(300), deadline=None, derandomize=True)
@given(st.data(), LOSSES, wild, clips, st.booleans(), st.booleans(), wheres)
def test_no_example_moves_a_step_by_more_than_the_clip(
    data: st.DataObject, kind: Any, x: np.ndarray, clip: float, csr: bool, intercept: bool, where: Coordinates
) -> None:
    """Rounds of one step: rounding is 2^-24 of factor and product each, and 2^-150 where they are subnormal.

    Zeroed are the same gradients as everywhere else.
    """
    model = LinearModel(kind[0], FEATURES, kind[1], intercept=intercept)
    w = data.draw(hnp.arrays(np.float32, (1, model.size), elements=st.floats(width=32)))
    split = split_of(kind, x, csr)
    one, rate = np.zeros(1, np.int64), np.ones(1)
    rounds = [LocalRound(w, one, one + i, rate, 1.0, clip, where) for i in range(N)]
    found = of_rounds(model.local_steps, rounds, split)
    norms = [np.sqrt(np.square(total, dtype=np.float64).sum()) for total in found.sums]
    assert np.isfinite(norms).all()
    assert max(norms) <= clip * (1 + 1e-6) + 1e-43
    assert not any(total.any() for total, zeroed in zip(found.sums, found.zeroed) if zeroed)
    general = of_rounds(partial(Objective.local_steps, model), rounds, split)
    assert found.zeroed.tolist() == general.zeroed.tolist()
    batches = [np.array([i]) for i in range(N)]
    assert found.zeroed.tolist() == clipped_on(model, w.repeat(N, 0), split, batches, clip, [where] * N).zeroed.tolist()


tame = hnp.arrays(np.float32, (N, FEATURES), elements=st.floats(-2, 2, width=32))


@settings(max_examples=examples(200), deadline=None, derandomize=True)
@given(st.data(), st.sampled_from([("logistic", 2), ("softmax", 3), ("squared", None)]), tame, wheres)
def test_all_ways_agree(data: st.DataObject, kind: Any, x: np.ndarray, where: Coordinates) -> None:
    """Dense, sparse and general, on smooth losses, with any swaps, step sizes, L2 terms and coordinates.

    An error grows by at most 1 + rate (curvature D (|x|^2 + 1) + D l2) <= 1 + 0.1 (6 * 25 + 6 * 3), 18, a step,
    and clipping at 1 keeps everything below about 100: 1e-16 * 100 * 18^6 is 4e-7 at most, over 6 steps.
    """
    steps = data.draw(st.integers(0, 6))
    model = LinearModel(kind[0], FEATURES, kind[1], l2=data.draw(st.sampled_from([0.0, 0.5, 3.0])), dtype=np.float64)
    starts = np.sort(np.r_[0, data.draw(st.lists(st.integers(0, steps), max_size=4))]).astype(np.int64)
    models = data.draw(hnp.arrays(np.float64, (len(starts), model.size), elements=st.floats(-3, 3)))
    examples = data.draw(hnp.arrays(np.int64, steps, elements=st.integers(0, N - 1)))
    rates = data.draw(hnp.arrays(np.float64, steps, elements=st.floats(1e-3, 0.1)))
    one = LocalRound(models, starts, examples, rates, 0.05, 1.0, where)
    general = Objective.local_steps(model, one, split_of(kind, x, False)).total
    for csr in (False, True):
        found = model.local_steps(one, split_of(kind, x, csr)).total
        np.testing.assert_allclose(found, general, rtol=0, atol=1e-6)
