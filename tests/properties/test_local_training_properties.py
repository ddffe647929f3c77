"""What must hold for every local training, whatever the numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests.properties.test_local_updates_properties import FEATURES, LOSSES, SMOOTH, N, split_of, tame, wild
from tests.reference import glm_slow
from tests.reference.local_training_slow import local_training
from tests.sampling import examples

from gossamer.objectives.linear.model import LinearModel
from gossamer.objectives.objective import Minibatches, Objective, Training, momentum_descent

momenta = st.sampled_from([0.0, 0.5, 0.9, 0.999])
proximals = st.sampled_from([0.0, 0.1, 3.0])


def batches(draw: st.DrawFn, most: int) -> Minibatches:
    lengths = draw(st.lists(st.integers(1, 2 * N), max_size=most))
    examples = draw(hnp.arrays(np.int64, sum(lengths), elements=st.integers(0, N - 1)))
    return Minibatches(examples, np.array(lengths, np.int64))


@st.composite
def trainings(draw: st.DrawFn, rates: st.SearchStrategy[float], most: int = 6) -> Training:
    return Training(batches(draw, most), draw(rates), draw(momenta), draw(proximals))


@settings(max_examples=examples(300), deadline=None, derandomize=True)
@given(
    st.data(),
    LOSSES,
    wild,
    st.lists(trainings(st.floats(1e-30, 1e30)), min_size=1, max_size=3),
    st.booleans(),
    st.sampled_from([0.0, 0.5, 1e6]),
    st.sampled_from([np.float32, np.float64]),
)
def test_updates_are_finite_and_alone_the_same_bits(
    data: st.DataObject, kind: Any, x: np.ndarray, asked: list[Training], csr: bool, l2: float, dtype: Any
) -> None:
    model, split = LinearModel(kind[0], FEATURES, kind[1], l2=l2, dtype=dtype), split_of(kind, x, csr)
    models = data.draw(hnp.arrays(np.float32, (len(asked), model.size), elements=st.floats(width=32)))
    found = model.local_training(models, split, asked)
    assert np.isfinite(found.updates).all()
    assert (found.not_finite <= [len(each.batches.lengths) for each in asked]).all()
    assert not found.updates[~np.isfinite(models).all(axis=1)].any()
    for k, each in enumerate(asked):
        alone = model.local_training(models[k : k + 1], split, [each])
        assert alone.updates[0].tobytes() == found.updates[k].tobytes()
        assert alone.not_finite[0] == found.not_finite[k]


@settings(max_examples=examples(150), deadline=None, derandomize=True)
@given(SMOOTH, tame, st.lists(trainings(st.floats(0.001, 0.1)), max_size=4), st.booleans(), st.integers(0, 2**32))
def test_compiled_trainings_are_those_of_any_objective_and_of_the_definition(
    kind: Any, x: np.ndarray, asked: list[Training], csr: bool, seed: int
) -> None:
    """In float64, to 1e-12. Not for the hinge, whose gradient jumps, and rounding decides on which side."""
    model, split = LinearModel(kind[0], FEATURES, kind[1], l2=0.1, dtype=np.float64), split_of(kind, x, csr)
    models = np.random.default_rng(seed).standard_normal((len(asked), model.size))

    def gradient(w: np.ndarray, i: int) -> np.ndarray:
        target = float(split.targets[i])
        return glm_slow.example_gradient(kind[0], w, x[i], target, model.outputs, model.intercept)

    found, general = (
        model.local_training(models, split, asked),
        Objective.descended(model, models, split, momentum_descent(asked, len(split))),
    )
    np.testing.assert_allclose(found.updates, general.updates, rtol=0, atol=1e-12)
    slow = [local_training(gradient, *each, 0.1).update for each in zip(models, asked)]
    np.testing.assert_allclose(found.updates, np.reshape(slow, models.shape), rtol=0, atol=1e-12)


@settings(max_examples=examples(50), deadline=None, derandomize=True)
@given(SMOOTH, tame, trainings(st.floats(0.001, 0.1)), st.integers(0, 2**32))
def test_a_training_cut_in_two_goes_on_where_it_was_without_momentum_and_proximal_term(
    kind: Any, x: np.ndarray, asked: Training, seed: int
) -> None:
    """Momentum and the proximal term are what a training remembers: without them its steps have no history."""
    model, split = LinearModel(kind[0], FEATURES, kind[1], l2=0.1, dtype=np.float64), split_of(kind, x, False)
    (examples, lengths), start = asked.batches, np.random.default_rng(seed).standard_normal((1, model.size))
    cut = len(lengths) // 2
    at = int(lengths[:cut].sum())
    plain = asked._replace(momentum=0.0, proximal=0.0)
    whole = model.local_training(start, split, [plain]).updates
    first = model.local_training(
        start, split, [plain._replace(batches=Minibatches(examples[:at], lengths[:cut]))]
    ).updates
    second = model.local_training(
        start + first, split, [plain._replace(batches=Minibatches(examples[at:], lengths[cut:]))]
    ).updates
    np.testing.assert_allclose(first + second, whole, rtol=0, atol=1e-12)
