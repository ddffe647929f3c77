"""Local rounds of sequential SGD against a slow reference, closed forms, and plain PyTorch."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from tests.reference.glm_slow import example_gradient
from tests.reference.local_rounds import of_rounds
from tests.reference.local_steps_slow import Slow, local_round
from tests.reference.splits import half_zero
from torch import nn

from gossamer.data.examples import Split
from gossamer.errors import DataError, SpecError
from gossamer.objectives.linear import steps as glm_steps
from gossamer.objectives.linear.model import LinearModel
from gossamer.objectives.models import build_model
from gossamer.objectives.networks.module import TorchModule
from gossamer.objectives.objective import LocalRound, Objective
from gossamer.vectors import Coordinates

LOSSES = [("logistic", 2), ("softmax", 3), ("squared", None), ("squared_error", None), ("hinge", 2), ("hinge", 3)]
N, FEATURES, STEPS = 12, 19, 24  # 19 is no multiple of a vector register's width
WHERE = [Coordinates(), Coordinates(0, 2), Coordinates(3, 5), Coordinates(17, 30)]
# Sums of 24 terms, each below 10 and with the L2 term; an early error is carried on by every later step.
ROUNDING = {np.float32: 1e-4, np.float64: 1e-12}


def split_for(classes: int | None, seed: int = 0) -> Split:
    return half_zero(classes, N, FEATURES, seed)


def sparse(split: Split) -> Split:
    return Split(sp.csr_array(split.features), split.targets)


def round_for(model: Any, seed: int = 1, steps: int = STEPS, **changes: Any) -> LocalRound:
    """Four models, two of which are swapped in at one place and one after the last step; falling step sizes."""
    rng = np.random.default_rng(seed)
    given = LocalRound(
        models=rng.standard_normal((5, model.size)).astype(model.dtype),
        starts=np.array([0, 7, 7, 15, steps]),
        examples=rng.integers(0, N, steps),
        rates=0.05 / (1 + 0.1 * np.arange(steps)),
        unit=0.05,
        clip=2.0,
    )
    return given._replace(**changes)


def one_model(given: LocalRound, model: np.ndarray) -> LocalRound:
    return given._replace(models=model[None], starts=np.array([0]))


def slow_round(name: str, model: LinearModel, given: LocalRound, data: Split) -> Slow:
    def gradient(w: np.ndarray, i: int) -> np.ndarray:
        return example_gradient(name, w, data.features[i], float(data.targets[i]), model.outputs, model.intercept)

    return local_round(gradient, given, model.l2)


WAYS = {
    "dense": lambda model, rounds, data: of_rounds(model.local_steps, rounds, data),
    "sparse": lambda model, rounds, data: of_rounds(model.local_steps, rounds, sparse(data)),
    "any objective": lambda model, rounds, data: of_rounds(partial(Objective.local_steps, model), rounds, data),
}


@pytest.fixture(params=WAYS)
def steps_of(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return WAYS[request.param]


@pytest.mark.some(6)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("name", "classes"), LOSSES)
def test_sums_are_those_of_one_example_after_another(
    name: str, classes: int | None, dtype: Any, steps_of: Callable[..., Any]
) -> None:
    data = split_for(classes)
    for intercept in (True, False):
        for l2 in (0.0, 0.3):
            model = LinearModel(name, FEATURES, classes, intercept=intercept, l2=l2, dtype=dtype)
            where = [each for each in WHERE if each.first < model.size]
            rounds = [round_for(model, seed, where=each, clip=2.0 * each.step) for seed, each in enumerate(where)]
            rounds.append(round_for(model, 9, clip=math.inf))
            found = steps_of(model, rounds, data)
            assert found.zeroed.tolist() == [0] * len(rounds)
            for given, total in zip(rounds, found.sums):
                expected = slow_round(name, model, given, data).total
                assert total.dtype == dtype
                assert total.shape == expected.shape
                atol = ROUNDING[dtype] * given.where.step
                np.testing.assert_allclose(total, expected, rtol=0, atol=atol)


def test_the_rounds_of_the_comparison_clip_some_gradients_and_not_others() -> None:
    for name, classes in LOSSES:
        data = split_for(classes)
        model = LinearModel(name, FEATURES, classes)
        given = round_for(model)
        counts = model.clipped_gradients(given.models, data, [np.arange(N)] * 5, given.clip).unclipped
        assert 0 < counts.sum() < 5 * N


def test_one_step_by_hand(steps_of: Callable[..., Any]) -> None:
    """Squared loss at w = (1, 2) and x = (3, 4), y = 1: z = 11, gradient 10 (3, 4) of norm 50, clipped to (6, 8).

    With l2 = 1/2 and steps of 1/4 in units of 1/8, U = 2 ((6, 8) + w / 2) = (13, 18).
    """
    data = Split(np.array([[3, 4]], np.float32), np.array([1], np.float32))
    model = LinearModel("squared", 2, None, intercept=False, l2=0.5, dtype=np.float64)
    given = LocalRound(np.array([[1.0, 2.0]]), np.array([0]), np.array([0]), np.array([0.25]), 0.125, 10.0)
    np.testing.assert_allclose(steps_of(model, [given], data).sums[0], [13, 18], rtol=1e-15)
    # Masked to the second coordinate and doubled, the gradient is 80; clipped it is 10, and U = 2 (10 + 2 w_2 / 2).
    masked = given._replace(where=Coordinates(1, 2))
    np.testing.assert_allclose(steps_of(model, [masked], data).sums[0], [24], rtol=1e-15)


@pytest.mark.some(10)
@pytest.mark.parametrize("where", [Coordinates(), Coordinates(1, 3)])
@pytest.mark.parametrize("rate", [0.02, 0.5, 1.0, 1.5, 2.5])
def test_strong_l2_terms_shrink_empty_and_turn_the_model(
    rate: float, where: Coordinates, steps_of: Callable[..., Any]
) -> None:
    """Step size times L2 from small to beyond 1 and 2, over so many steps that 2^-10 and 2^10 are passed.

    Errors are relative to the largest entry, times the growth of an early error where the model grows.
    """
    data = split_for(2)
    model = LinearModel("logistic", FEATURES, 2, l2=1.0 / where.step, dtype=np.float64)
    steps = 400 if rate < 0.1 else 40
    given = round_for(model, steps=steps, rates=np.full(steps, rate), unit=rate, where=where)
    expected = slow_round("logistic", model, given, data).total
    found = steps_of(model, [given], data).sums[0]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-11 * np.abs(expected).max())


def test_tiny_step_sizes_give_the_sum_of_gradients_at_one_model(steps_of: Callable[..., Any]) -> None:
    """Steps of 1e-30 leave the model where it is, so that U is the sum of clipped gradients plus L2 terms."""
    data = split_for(2)
    for dtype in (np.float32, np.float64):
        model = LinearModel("logistic", FEATURES, 2, l2=0.3, dtype=dtype)
        given = round_for(model, rates=np.full(STEPS, 1e-30), unit=1e-30)
        given = one_model(given, given.models[0])
        w = given.models[0]
        expected = model.clipped_gradients(w[None], data, [given.examples], given.clip).sums[0] + STEPS * 0.3 * w
        np.testing.assert_allclose(steps_of(model, [given], data).sums[0], expected, rtol=0, atol=ROUNDING[dtype])


@pytest.mark.parametrize("l2", [0.0, 0.3])
@pytest.mark.parametrize("where", [Coordinates(), Coordinates(1, 2)])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize(("name", "classes"), LOSSES)
def test_examples_that_are_not_finite_count_as_zero(
    name: str, classes: int | None, bad: float, where: Coordinates, l2: float, steps_of: Callable[..., Any]
) -> None:
    """A bad feature (4) off the coordinates that move, and one (7) on them."""
    data = split_for(classes)
    data.features[4, 4], data.features[5, 7] = bad, -bad
    model = LinearModel(name, FEATURES, classes, l2=l2, dtype=np.float64)
    given = round_for(model, examples=np.resize([1, 4, 2, 5, 0], STEPS), where=where)
    found = steps_of(model, [given], data)
    clean = Split(np.nan_to_num(data.features, nan=0, posinf=0, neginf=0), data.targets)

    def gradient(w: np.ndarray, i: int) -> np.ndarray:
        right = example_gradient(name, w, clean.features[i], float(data.targets[i]), model.outputs, True)
        return np.full(model.size, np.nan) if i in (4, 5) else right

    expected = local_round(gradient, given, l2)
    assert found.zeroed.tolist() == [expected.zeroed] == [10]
    np.testing.assert_allclose(found.sums[0], expected.total, rtol=0, atol=1e-11)


@pytest.mark.parametrize(("name", "classes"), LOSSES)
def test_a_model_that_is_not_finite_has_only_zeroed_gradients(
    name: str, classes: int | None, steps_of: Callable[..., Any]
) -> None:
    """From the swap at 7 to the one at 15. Without an L2 term, nothing else happens in these eight steps."""
    for where, place, bad in itertools.product([Coordinates(), Coordinates(1, 2)], [4, 7, -1], [math.nan, math.inf]):
        data = split_for(classes)
        model = LinearModel(name, FEATURES, classes, dtype=np.float64)
        given = round_for(model, where=where)
        given.models[2, place] = bad
        found = steps_of(model, [given], data)
        kept = np.r_[0:7, 15:STEPS]
        rest = given._replace(
            models=given.models[[0, 3]],
            starts=np.array([0, 7]),
            examples=given.examples[kept],
            rates=given.rates[kept],
        )
        assert found.zeroed.tolist() == [8]
        np.testing.assert_allclose(found.sums[0], steps_of(model, [rest], data).sums[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize(("dtype", "finite"), [(np.float32, 2), (np.float64, 16)])
def test_a_model_that_overflows_within_the_round_has_zeroed_gradients_from_there(
    dtype: Any, finite: int, steps_of: Callable[..., Any]
) -> None:
    """From 1, each step multiplies by 1 - 1e20: float32 holds the model of 2 steps, float64 that of 16.

    The hinge's gradients would look finite at any model.
    """
    model = LinearModel("hinge", FEATURES, 2, l2=1e20, dtype=dtype)
    given = one_model(round_for(model, rates=np.ones(STEPS), unit=1.0), np.ones(model.size))
    assert steps_of(model, [given], split_for(2)).zeroed.tolist() == [STEPS - finite]


@pytest.mark.parametrize("clip", [1.0, math.inf])
def test_a_model_that_overflows_by_its_gradients_has_zeroed_gradients_from_there(
    clip: float, steps_of: Callable[..., Any]
) -> None:
    """Hinge, both examples of class 1. From 0, a step of 3.2e38 leads to about 3.2e38 (1, 0.1), and a second to
    3.5e38 or more in the first place, whether clipped to a norm of 1 or not.

    That is beyond float32, and the hinge's gradient there, at an infinite output, would look finite.
    """
    data = Split(np.array([[1, 0.1], [1, -10.1]], np.float32), np.array([1, 1]))
    model = LinearModel("hinge", 2, 2, intercept=False)
    rates = np.full(5, 3.2e38)
    given = LocalRound(np.zeros((1, 2)), np.array([0]), np.array([0, 1, 0, 1, 0]), rates, 3.2e38, clip)
    assert steps_of(model, [given], data).zeroed.tolist() == [3]


def test_a_tiny_scale_is_rounded_towards_zero(steps_of: Callable[..., Any]) -> None:
    """Clip 2^-23 at x = 2^127 scales by 2^-150, half the least float32: rounded up, it doubles the norm."""
    data = Split(np.array([[2.0**127]], np.float32), np.array([-1], np.float32))
    model = LinearModel("squared", 1, None, intercept=False)
    for clip in (1.01 * 2.0**-23, 1.7 * 2.0**-22):
        given = LocalRound(np.zeros((1, 1)), np.array([0]), np.array([0]), np.array([1.0]), 1.0, clip)
        assert steps_of(model, [given], data).sums[0][0] <= clip


def test_a_gradient_beyond_the_largest_number_is_zeroed(steps_of: Callable[..., Any]) -> None:
    """Of norm 2e38 in float32; doubled on one coordinate, it is more than that holds."""
    data = Split(np.array([[1e19, 0]], np.float32), np.array([-2e19], np.float32))
    model = LinearModel("squared", 2, None, intercept=False)
    given = LocalRound(np.zeros((1, 2)), np.array([0]), np.array([0]), np.array([1.0]), 1.0, 3.0)
    found = steps_of(model, [given, given._replace(where=Coordinates(0, 2))], data)
    assert found.zeroed.tolist() == [0, 1]
    np.testing.assert_allclose(found.sums[0], [3, 0])
    assert found.sums[1].tolist() == [0]


def test_no_rounds_and_rounds_without_examples(steps_of: Callable[..., Any]) -> None:
    data = split_for(2)
    model = LinearModel("logistic", FEATURES, 2, l2=0.1)
    assert steps_of(model, [], data).sums == []
    empty = LocalRound(np.ones((2, model.size)), np.array([0, 0]), np.array([]), np.array([]), 1.0, 1.0)
    found = steps_of(model, [empty, empty._replace(where=Coordinates(3, 8))], data)
    assert [total.tolist() for total in found.sums] == [[0.0] * 20, [0.0] * 3]
    assert found.zeroed.tolist() == [0, 0]


def test_arrays_are_left_alone_and_any_layout_is_compiled_once() -> None:
    data = split_for(2)
    model = LinearModel("logistic", FEATURES, 2, l2=0.1, dtype=np.float64)
    given = round_for(model)
    expected = model.local_steps(given, data)
    before = [np.copy(field) for field in given[:4]]
    compiled = len(glm_steps.dense_round.signatures)
    strided = given._replace(
        models=np.asfortranarray(given.models),
        starts=given.starts.astype(np.int32),
        examples=np.repeat(given.examples, 2)[::2],
        rates=np.repeat(given.rates, 2)[::2],
        clip=np.float32(2),
        where=Coordinates(np.int64(0), np.int64(1)),
    )
    for field in given[:4]:
        field.setflags(write=False)
    for each in (strided, given):
        assert model.local_steps(each, data).total.tobytes() == expected.total.tobytes()
    assert len(glm_steps.dense_round.signatures) == compiled
    assert all(np.array_equal(old, new) for old, new in zip(before, given[:4]))


WRONG = {
    "clip": (SpecError, {"clip": 0.0}, "a positive clip and a positive finite unit, found 0"),
    "clip nan": (SpecError, {"clip": math.nan}, "a positive clip .*found nan"),
    "unit": (SpecError, {"unit": -1.0}, "a positive finite unit, found .*, -1"),
    "unit inf": (SpecError, {"unit": math.inf}, "inf$"),
    "rate": (SpecError, {"rates": np.r_[np.ones(STEPS - 1), 0.0]}, "positive and finite, found 0"),
    "rate nan": (SpecError, {"rates": np.r_[math.nan, np.ones(STEPS - 1)]}, "positive and finite, found nan"),
    "rate inf": (SpecError, {"rates": np.r_[np.ones(STEPS - 1), math.inf]}, "positive and finite, found inf"),
    "rates": (DataError, {"rates": np.ones(STEPS - 1)}, r"24 examples needs as many step sizes, found \[23\]"),
    "models": (DataError, {"models": np.ones((5, 3))}, r"models \[5, 20\], one a start, found \[5, 3\]"),
    "no models": (DataError, {"models": np.ones((0, 20)), "starts": np.zeros(0, int)}, "one a start"),
    "flat model": (DataError, {"models": np.ones(20)}, r"found \[20\]"),
    "starts length": (DataError, {"starts": np.array([0, 7])}, "one a start"),
    "starts begin": (DataError, {"starts": np.array([1, 7, 7, 15, 24])}, "must rise from 0"),
    "starts fall": (DataError, {"starts": np.array([0, 7, 6, 15, 24])}, "must rise from 0"),
    "starts beyond": (DataError, {"starts": np.array([0, 7, 7, 15, 25])}, "at most 24"),
    "examples low": (DataError, {"examples": np.r_[np.zeros(23, int), -1]}, r"in 0\.\.11, found -1\.\.0"),
    "examples high": (DataError, {"examples": np.r_[np.zeros(23, int), 12]}, r"in 0\.\.11, found 0\.\.12"),
    "examples real": (DataError, {"examples": np.zeros(24)}, "whole numbers"),
    "examples square": (DataError, {"examples": np.zeros((24, 1), int)}, "whole numbers"),
    "coordinates": (DataError, {"where": Coordinates(20, 21)}, "start below 20"),
}


@pytest.mark.parametrize("name", WRONG)
def test_rounds_that_do_not_fit_are_refused_in_one_line(name: str, steps_of: Callable[..., Any]) -> None:
    error, changes, match = WRONG[name]
    model = LinearModel("logistic", FEATURES, 2)
    given = round_for(model)
    with pytest.raises(error, match=match) as raised:
        steps_of(model, [given, given._replace(**changes)], split_for(2))
    assert "\n" not in str(raised.value)


MANY_FEATURES = """
import resource
import numpy as np, scipy.sparse as sp
from gossamer.data.examples import Split
from gossamer.objectives.objective import LocalRound
from gossamer.objectives.linear.model import LinearModel

rows, features, stored = 20_000, 20_958, 50
rng = np.random.default_rng(0)
columns = np.sort(rng.integers(0, features // stored, (rows, stored)) + np.arange(stored) * (features // stored))
values = rng.standard_normal(rows * stored).astype(np.float32)
matrix = sp.csr_array((values, columns.ravel(), np.arange(rows + 1) * stored), shape=(rows, features))
data = Split(matrix, rng.integers(0, 2, rows))
model = LinearModel("logistic", features, 2, l2=1 / rows)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start, rates = np.zeros((1, model.size), np.float32), np.full(rows, 0.1)
given = LocalRound(start, np.array([0]), rng.permutation(rows), rates, 0.1, 1.0)
found = model.local_steps(given, data)
assert np.isfinite(found.total).all() and np.count_nonzero(found.total) > 20_000
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory is in kibibytes on Linux only")
def test_many_sparse_features_are_never_made_dense() -> None:
    """20,000 x 20,958 numbers would be 1,599 MiB; what is needed is the model, and the compiler where it must run."""
    done = subprocess.run([sys.executable, "-c", MANY_FEATURES], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 300


@pytest.mark.parametrize("where", [Coordinates(), Coordinates(2, 3)])
def test_networks_take_the_steps_of_a_plain_training_loop(where: Coordinates) -> None:
    """Three rounds of different lengths. In float64, to 1e-10."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    rng = np.random.default_rng(0)
    data = Split(rng.standard_normal((N, 5)).astype(np.float32), rng.integers(0, 3, N))
    objective = TorchModule(module, l2=0.1)
    rounds = [
        round_for(objective, seed, steps=15 + seed, clip=0.5, where=where if seed else Coordinates())
        for seed in range(3)
    ]

    def gradient(w: np.ndarray, i: int) -> np.ndarray:
        nn.utils.vector_to_parameters(torch.tensor(w), module.parameters())
        module.zero_grad()
        outputs = module(torch.tensor(data.features[i : i + 1], dtype=torch.float64))
        nn.functional.cross_entropy(outputs, torch.tensor(data.targets[i : i + 1])).backward()
        return torch.cat([p.grad.reshape(-1) for p in module.parameters()]).numpy()

    found = of_rounds(objective.local_steps, rounds, data)
    assert found.zeroed.tolist() == [0, 0, 0]
    for given, total in zip(rounds, found.sums):
        expected = local_round(gradient, given, 0.1).total
        np.testing.assert_allclose(total, expected, rtol=0, atol=1e-10)


@pytest.mark.slow
def test_a_convolutional_network_moves_as_under_torch_sgd() -> None:
    """LeNet-5 in float32 without a clip: five steps of torch.optim.SGD with weight decay as the L2 term.

    U times the step size is the distance moved; each of both roundings is of numbers below 1.
    """
    module = build_model("lenet5", (1, 28, 28), 10)
    objective = TorchModule(module, l2=0.1)
    rng = np.random.default_rng(0)
    data = Split(rng.random((6, 1, 28, 28), dtype=np.float32), rng.integers(0, 10, 6))
    start = objective.initial(rng)
    examples, rate = np.array([0, 3, 1, 5, 3]), 0.05
    given = LocalRound(start[None], np.array([0]), examples, np.full(5, rate), rate, math.inf)
    moved = rate * objective.local_steps(given, data).total
    nn.utils.vector_to_parameters(torch.tensor(start), module.parameters())
    optimizer = torch.optim.SGD(module.parameters(), lr=rate, weight_decay=objective.l2)
    for i in examples:
        optimizer.zero_grad()
        outputs = module(torch.tensor(data.features[i : i + 1]))
        nn.functional.cross_entropy(outputs, torch.tensor(data.targets[i : i + 1])).backward()
        optimizer.step()
    end = nn.utils.parameters_to_vector(module.parameters()).detach().numpy()
    assert np.abs(moved).max() > 1e-3
    np.testing.assert_allclose(start - end, moved, rtol=0, atol=1e-6)
