"""Local mini-batch updates of many agents against a slow reference, closed forms, and plain PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from tests.reference import torch_slow
from tests.reference.glm_slow import gradient_of
from tests.reference.local_updates_slow import Gradient, Slow, local_update
from tests.reference.splits import half_zero
from torch import nn

from gossamer.data.examples import Split
from gossamer.errors import DataError, SpecError
from gossamer.objectives.linear import updates as glm_updates
from gossamer.objectives.linear.model import LinearModel
from gossamer.objectives.networks.module import TorchModule
from gossamer.objectives.objective import Objective, clipped_descent

LOSSES = [("logistic", 2), ("softmax", 3), ("squared", None), ("squared_error", None), ("hinge", 2), ("hinge", 3)]
N, FEATURES = 12, 19  # 19 is no multiple of a vector register's width
SHAPES = [(1, 5), (4, 1), (6, 3), (0, 4), (2, 8), (3, 4), (0, 0)]  # steps and examples of each agent
WIDTH = len(SHAPES)
RATES = np.linspace(0.1, 0.7, WIDTH)
CLIPS = np.array([math.inf, 0.01, 2.0, 1.0, 3.0, math.inf, 1.0])
# Updates below 10, of at most 6 steps whose gradients are sums of some tens of terms.
ROUNDING = {np.float32: 2e-5, np.float64: 1e-12}
LARGEST = {dtype: float(np.finfo(dtype).max) for dtype in (np.float32, np.float64)}


def split_for(classes: int | None, seed: int = 0) -> Split:
    return half_zero(classes, N, FEATURES, seed)


def one_example(x: list[float], y: float) -> Split:
    return Split(np.array([x], np.float32), np.array([y], np.float32))


def sparse(split: Split) -> Split:
    return Split(sp.csr_array(split.features), split.targets)


def models_for(model: Any, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((WIDTH, model.size)).astype(model.dtype)


def batches_for(seed: int = 2) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, N, shape) for shape in SHAPES]


def slow_updates(
    gradient: Gradient, models: np.ndarray, batches: list[np.ndarray], rates: Any, clips: Any, l2: float
) -> list[Slow]:
    largest = LARGEST[models.dtype.type]
    return [local_update(gradient, *each, l2, largest) for each in zip(models, batches, rates, clips)]


WAYS = {
    "dense": lambda model, models, data, *rest: model.local_updates(models, data, *rest),
    "sparse": lambda model, models, data, *rest: model.local_updates(models, sparse(data), *rest),
    "any objective": lambda model, models, data, *rest: Objective.descended(
        model, models, data, clipped_descent(*rest, len(data))
    ),
}


@pytest.fixture(params=WAYS)
def updates_of(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return WAYS[request.param]


def one_update(
    updates_of: Callable[..., Any],
    model: LinearModel,
    start: Any,
    data: Split,
    batch: Any = ((0,),),
    rate: float = 1.0,
    clip: float = math.inf,
) -> Any:
    """What one agent does from ``start`` [size]: its update [size], and how many gradients were not finite."""
    start = np.array([start], model.dtype)
    found = updates_of(model, start, data, [np.array(batch)], np.array([rate]), np.array([clip]))
    return found.updates[0], found.not_finite[0]


@pytest.mark.some(12)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("name", "classes"), LOSSES)
def test_updates_are_those_of_one_step_after_another(
    name: str, classes: int | None, dtype: Any, updates_of: Callable[..., Any]
) -> None:
    data, batches = split_for(classes), batches_for()
    for intercept in (True, False):
        for l2 in (0.0, 0.3):
            model = LinearModel(name, FEATURES, classes, intercept=intercept, l2=l2, dtype=dtype)
            models = models_for(model)
            found = updates_of(model, models, data, batches, RATES, CLIPS)
            assert found.updates.dtype == dtype
            assert found.updates.shape == models.shape
            assert found.not_finite.tolist() == [0] * WIDTH
            slow = slow_updates(gradient_of(name, model, data), models, batches, RATES, CLIPS, l2)
            expected = [each.update for each in slow]
            np.testing.assert_allclose(found.updates, expected, rtol=0, atol=ROUNDING[dtype])


def test_the_clips_of_the_comparison_change_some_updates_and_not_all_steps() -> None:
    data, batches = split_for(None), batches_for()
    model = LinearModel("squared", FEATURES, None, dtype=np.float64)
    models = models_for(model)
    found = model.local_updates(models, data, batches, RATES, CLIPS).updates
    whole = model.local_updates(models, data, batches, RATES, np.full(WIDTH, math.inf)).updates
    changed = (found != whole).any(axis=1)
    assert changed.tolist() == [False, True, True, False, True, False, False]
    lengths = np.linalg.norm(found, axis=1) / (RATES * CLIPS)
    assert lengths[1] > 0.2  # the smaller, the more its steps turn
    assert (lengths <= 1 + 1e-15).all()


def test_one_step_by_hand(updates_of: Callable[..., Any]) -> None:
    """Squared loss at w = (1, 0) and x = (1, 4), y = 0: gradient (1, 4), with l2 = 2 it is (3, 4) of norm 5.

    Clipped to a norm of 1 it is (0.6, 0.8): the L2 term is inside of the clip. An example that occurs twice counts
    twice in the mean.
    """
    data = one_example([1, 4], 0)
    model = LinearModel("squared", 2, None, intercept=False, l2=2.0, dtype=np.float64)
    for batch in ([[0]], [[0, 0]]):
        update, _ = one_update(updates_of, model, [1, 0], data, batch, rate=0.5, clip=1.0)
        np.testing.assert_allclose(update, [-0.3, -0.4], rtol=1e-15)
        update, _ = one_update(updates_of, model, [1, 0], data, batch, rate=0.5)
        np.testing.assert_allclose(update, [-1.5, -2], rtol=1e-15)


def test_every_step_has_its_share_of_the_rate(updates_of: Callable[..., Any]) -> None:
    """With x = 1, y = 0 each of E steps multiplies w by 1 - rate / E."""
    model = LinearModel("squared", 1, None, intercept=False, dtype=np.float64)
    for steps in (1, 2, 5):
        update, _ = one_update(updates_of, model, [1], one_example([1], 0), [[0]] * steps, rate=0.5)
        np.testing.assert_allclose(update, [(1 - 0.5 / steps) ** steps - 1], rtol=1e-14)


def test_examples_are_averaged_before_the_clip(updates_of: Callable[..., Any]) -> None:
    """Gradients 30 and -20 have the mean 5, and clipped to 10 it is 5; a clip of each would give 0."""
    data = Split(np.ones((2, 1), np.float32), np.array([-30, 20], np.float32))
    model = LinearModel("squared", 1, None, intercept=False, dtype=np.float64)
    assert one_update(updates_of, model, [0], data, [[0, 1]], clip=10.0)[0].tolist() == [-5]


@pytest.mark.parametrize("size", [1, 8])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_bound_holds_with_the_regulariser_and_to_the_last_bits(
    dtype: Any, size: int, updates_of: Callable[..., Any]
) -> None:
    """Hundreds of steps in one direction: their sum is as long as the bound, but for rounding, which may add 1e-14.

    What remains is half a unit in the last place of each entry.
    """
    model = LinearModel("squared", size, None, intercept=False, l2=10.0, dtype=dtype)
    data = Split(np.zeros((1, size), np.float32), np.zeros(1, np.float32))
    start = 1e6 * np.linspace(-1, 1, size)
    for rate, clip in zip(np.linspace(0.1, 0.9, 9), np.geomspace(0.01, 100, 9)):
        update, _ = one_update(updates_of, model, start, data, [[0]] * 300, rate, clip)
        length = math.hypot(*update.tolist())
        assert length <= rate * clip * (1 + 2 * np.finfo(dtype).eps)
        assert length >= rate * clip * (1 - 1e-6)


def test_a_tiny_update_is_rounded_towards_zero(updates_of: Callable[..., Any]) -> None:
    """Sixteen entries of 0.6 times the least float32: rounded up, the norm would exceed its bound by 2/3."""
    model = LinearModel("squared", 16, None, intercept=False)
    least = 2.0**-149
    update, _ = one_update(updates_of, model, [0] * 16, one_example([1] * 16, -1), clip=4 * 0.6 * least)
    assert update.tolist() == [0] * 16
    update, _ = one_update(updates_of, model, [0] * 16, one_example([1] * 16, -1), clip=4 * 2.0**-126)
    assert update.tolist() == [-(2.0**-126)] * 16


@pytest.mark.parametrize(("scale", "clip"), [(1e100, 1e-3), (1e-126, 1e-200), (1e100, 1e170), (1e-126, 1e-176)])
def test_norms_whose_squares_overflow_or_vanish_are_clipped(
    scale: float, clip: float, updates_of: Callable[..., Any]
) -> None:
    """At w = scale (3, 4) with x = 0 and an L2 term of 1e80 or 1e-50, whose gradient is 1e180 or 1e-176 (3, 4)."""
    l2 = 1e80 if scale > 1 else 1e-50
    model = LinearModel("squared", 2, None, intercept=False, l2=l2, dtype=np.float64)
    start = scale * np.array([3.0, 4.0])
    update, not_finite = one_update(updates_of, model, start, one_example([0, 0], 0), clip=clip)
    assert not_finite == 0
    np.testing.assert_allclose(update, -clip * np.array([0.6, 0.8]), rtol=1e-14)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_bits_of_an_agent_do_not_depend_on_its_companions(dtype: Any, updates_of: Callable[..., Any]) -> None:
    data, batches = split_for(3), batches_for()
    model = LinearModel("softmax", FEATURES, 3, l2=0.1, dtype=dtype)
    models = models_for(model)
    models[5, 0] = math.nan
    together = updates_of(model, models, data, batches, RATES, CLIPS)
    backwards = updates_of(model, models[::-1], data, batches[::-1], RATES[::-1], CLIPS[::-1])
    for k in range(WIDTH):
        one = slice(k, k + 1)
        alone = updates_of(model, models[one], data, batches[one], RATES[one], CLIPS[one])
        assert together.updates[k].tobytes() == alone.updates[0].tobytes() == backwards.updates[-1 - k].tobytes()
        assert together.not_finite[k] == alone.not_finite[0] == backwards.not_finite[-1 - k]


@pytest.mark.parametrize("clip", [2.0, math.inf])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize(("name", "classes"), LOSSES)
def test_examples_that_are_not_finite(
    name: str, classes: int | None, bad: float, clip: float, updates_of: Callable[..., Any]
) -> None:
    """A step with one counts as zero; without a clip it ends at the largest numbers, from where none returns."""
    data = split_for(classes)
    data.features[4, 4], data.features[5, 7] = bad, -bad
    model = LinearModel(name, FEATURES, classes, l2=0.3, dtype=np.float64)
    models, batches = models_for(model)[:2], [np.array([[1, 2], [4, 0], [3, 3], [6, 5]]), np.array([[0, 1, 2]])]
    right = gradient_of(name, model, Split(np.nan_to_num(data.features, posinf=0, neginf=0), data.targets))

    def gradient(w: np.ndarray, i: int) -> np.ndarray:
        huge = np.abs(w).max() > 1e300
        return np.full(model.size, np.nan) if i in (4, 5) or huge else right(w, i)

    rates, clips = np.array([0.5, 0.5]), np.full(2, clip)
    expected = slow_updates(gradient, models, batches, rates, clips, 0.3)
    found = updates_of(model, models, data, batches, rates, clips)
    assert found.not_finite[1] == 0
    np.testing.assert_allclose(found.updates, [each.update for each in expected], rtol=1e-12, atol=1e-12)
    if clip == 2:
        assert found.not_finite[0] == expected[0].not_finite == 2
    else:
        assert found.not_finite[0] >= 2  # some losses have a finite gradient at any output
        assert np.abs(found.updates[0]).min() == LARGEST[np.float64]
        assert set(np.sign(found.updates[0])) == {-1, 1}


def test_an_example_whose_norm_is_beyond_the_largest_number_is_not_finite(updates_of: Callable[..., Any]) -> None:
    """(3e38, 3e38) has a norm of 4.2e38; as everywhere else that is no gradient, also where the mean would be one."""
    model = LinearModel("squared", 2, None, intercept=False)
    data = Split(np.array([[3e38, 3e38], [0, 0]], np.float32), np.array([-1, 0], np.float32))
    for batch, expected in (([[0, 1, 1, 1]], 1), ([[0, 1], [1, 1]], 1), ([[1, 1]], 0)):
        update, not_finite = one_update(updates_of, model, [0, 0], data, batch, clip=1.0)
        assert update.tolist() == [0, 0]
        assert not_finite == expected


@pytest.mark.parametrize("rest", [0, 1e-30])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_sum_that_overflows_is_not_finite(place: int, rest: float, updates_of: Callable[..., Any]) -> None:
    """Four gradients of -2e38 and four of 2e38: both sums are infinite in float32, and together not a number.

    The other entries of the mean are ordinary numbers.
    """
    model = LinearModel("squared", 3, None, intercept=False)
    x = np.array([[rest] * 3, [2 * rest] * 3], np.float32)
    x[:, place] = 1
    data = Split(x, np.array([2e38, -2e38], np.float32))
    for batch in ([0] * 4, [0] * 4 + [1] * 4):
        update, not_finite = one_update(updates_of, model, [0, 0, 0], data, [batch], clip=1.0)
        assert update.tolist() == [0, 0, 0]
        assert not_finite == 1


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(("name", "classes"), LOSSES)
def test_a_model_that_is_not_finite_does_not_move(
    name: str, classes: int | None, bad: float, updates_of: Callable[..., Any]
) -> None:
    data, batches = split_for(classes), batches_for()
    model = LinearModel(name, FEATURES, classes)
    models = models_for(model)
    models[:, 4] = bad
    found = updates_of(model, models, data, batches, RATES, np.ones(WIDTH))
    assert not found.updates.any()
    assert found.not_finite.tolist() == [steps for steps, _ in SHAPES]
    assert np.isfinite(updates_of(model, models, data, batches, RATES, CLIPS).updates).all()  # some without a clip


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_without_a_clip_divergence_stays_in_sight(dtype: Any, updates_of: Callable[..., Any]) -> None:
    """From (1, -1), the L2 term of steps of 2 multiplies by -1e30 each time, until w stops at the largest number.

    A model that is there already stays there, on its own side.
    """
    largest = LARGEST[dtype]
    model = LinearModel("squared", 2, None, intercept=False, l2=1e30, dtype=dtype)
    data = one_example([0, 0], 0)
    update, not_finite = one_update(updates_of, model, [1, -1], data, [[0]], rate=1.0)
    np.testing.assert_allclose(update, [-1e30, 1e30], rtol=1e-6)
    assert not_finite == 0
    update, _ = one_update(updates_of, model, [1, -1], data, [[0]] * 20, rate=20.0)
    assert np.abs(update).tolist() == [largest] * 2
    bad = one_example([math.nan, 0], 0)
    update, not_finite = one_update(updates_of, model, [-largest, largest], bad, [[0]] * 3, rate=0.5)
    assert update.tolist() == [0, 0]
    assert not_finite == 3


def test_a_model_that_overflows_stays_where_it_is(updates_of: Callable[..., Any]) -> None:
    """Steps of 1e38 from 3e38: after the first, float32 does not hold the model, and the other two count as zero."""
    model = LinearModel("squared", 1, None, intercept=False)
    update, not_finite = one_update(updates_of, model, [3e38], one_example([1], 3.1e38), [[0]] * 3, 3e38, 1.0)
    np.testing.assert_allclose(update, [1e38], rtol=1e-6)
    assert not_finite == 2


def test_a_hinge_at_a_model_that_overflows_is_not_finite(updates_of: Callable[..., Any]) -> None:
    """The first step leads to 4e38, which is infinite in float32; the hinge's gradient there would look like zero."""
    model = LinearModel("hinge", 1, 2, intercept=False)
    data = Split(np.ones((1, 1), np.float32), np.array([1]))
    update, not_finite = one_update(updates_of, model, [0], data, [[0]] * 2, rate=8e38, clip=1.0)
    assert update.tolist() == [LARGEST[np.float32]]
    assert not_finite == 1


def test_without_a_clip_a_model_stops_at_the_largest_number_and_goes_on_from_there(
    updates_of: Callable[..., Any],
) -> None:
    """Steps of 4 (w - 2e38) from 1e38: the first leads to 5e38 and stops at 3.4e38, the second ends at -2.2e38."""
    largest, data = LARGEST[np.float32], one_example([1], 2e38)
    model = LinearModel("squared", 1, None, intercept=False)
    update, _ = one_update(updates_of, model, [1e38], data, rate=4.0)
    np.testing.assert_allclose(update, [largest - 1e38], rtol=1e-6)
    update, not_finite = one_update(updates_of, model, [1e38], data, [[0]] * 2, rate=8.0)
    np.testing.assert_allclose(update, [largest - 4 * (largest - 2e38) - 1e38], rtol=1e-6)
    assert not_finite == 0


def test_an_update_beyond_the_largest_number_is_the_largest_number(updates_of: Callable[..., Any]) -> None:
    """From -3e38 to 3.3e38 and back; both are float32, and the way is not."""
    model = LinearModel("hinge", 1, 2, intercept=False)
    for label, start in ((1, -3e38), (0, 3e38)):
        data = Split(np.ones((1, 1), np.float32), np.array([label]))
        update, _ = one_update(updates_of, model, [start], data, rate=6.3e38, clip=1.0)
        assert update.tolist() == [-np.sign(start) * LARGEST[np.float32]]


@pytest.mark.parametrize("clip", [1.0, math.inf])
def test_a_gradient_of_zero_is_one(clip: float, updates_of: Callable[..., Any]) -> None:
    model = LinearModel("squared", 2, None, intercept=False)
    update, not_finite = one_update(updates_of, model, [1, 1], one_example([1, 2], 3), [[0]] * 3, clip=clip)
    assert update.tolist() == [0, 0]
    assert not_finite == 0


def test_no_agents_and_agents_without_steps(updates_of: Callable[..., Any]) -> None:
    data = split_for(2)
    model = LinearModel("logistic", FEATURES, 2, l2=0.1)
    nobody = updates_of(model, np.zeros((0, model.size), np.float32), data, [], np.zeros(0), np.zeros(0))
    assert nobody.updates.shape == (0, model.size)
    assert nobody.not_finite.shape == (0,)
    idle = [np.zeros((0, 5), np.int64), np.zeros((0, 0), np.int64)]
    found = updates_of(model, np.ones((2, model.size)), data, idle, np.ones(2), np.array([1.0, math.inf]))
    assert found.updates.tolist() == [[0.0] * model.size] * 2
    assert found.not_finite.tolist() == [0, 0]


def test_models_are_rounded_to_the_dtype_of_the_objective_first(updates_of: Callable[..., Any]) -> None:
    data, batches = split_for(3), batches_for()
    model = LinearModel("softmax", FEATURES, 3, l2=0.1)
    wide = models_for(model) + np.float64(1e-9)
    found = [updates_of(model, given, data, batches, RATES, CLIPS).updates for given in (wide, np.float32(wide))]
    assert found[0].tobytes() == found[1].tobytes()


def test_arrays_are_left_alone_and_any_layout_is_compiled_once() -> None:
    data, batches = split_for(2), batches_for()
    model = LinearModel("logistic", FEATURES, 2, l2=0.1, dtype=np.float64)
    models = models_for(model)
    expected = model.local_updates(models, data, batches, RATES, CLIPS)
    before = [np.copy(array) for array in (models, *batches)]
    compiled = len(glm_updates.descend.signatures)
    strided = [np.asfortranarray(each).astype(np.uint32 if k % 2 else np.int64) for k, each in enumerate(batches)]
    given = (np.asfortranarray(models), data, strided, np.repeat(RATES, 2)[::2], np.repeat(CLIPS, 2)[::2])
    for array in (models, *batches):
        array.setflags(write=False)
    for found in (model.local_updates(*given), model.local_updates(models, data, batches, RATES, CLIPS)):
        assert found.updates.tobytes() == expected.updates.tobytes()
    assert len(glm_updates.descend.signatures) == compiled
    assert all(np.array_equal(old, new) for old, new in zip(before, (models, *batches)))


ONE = np.zeros((1, 1), np.int64)
WRONG = {
    "clip": (SpecError, {"clips": np.array([1.0, 0.0])}, "clip must be a positive number, found 0"),
    "clip nan": (SpecError, {"clips": np.array([math.nan, 1.0])}, "clip must be a positive number, found nan"),
    "clips": (DataError, {"clips": np.ones(3)}, r"array \[2\] with one for each model, found \[3\]"),
    "rate": (SpecError, {"rates": np.array([1.0, 0.0])}, "rates must be positive and finite, found 0"),
    "rate nan": (SpecError, {"rates": np.array([1.0, math.nan])}, "positive and finite, found nan"),
    "rate inf": (SpecError, {"rates": np.array([math.inf, 1.0])}, "positive and finite, found inf"),
    "rates": (DataError, {"rates": np.ones(1)}, r"expected rates \[2\], one for each model, found \[1\]"),
    "models": (DataError, {"models": np.ones((3, FEATURES + 1))}, r"models \[2, 20\], one a row, found \[3, 20\]"),
    "size": (DataError, {"models": np.ones((2, FEATURES))}, r"found \[2, 19\]"),
    "flat batch": (DataError, {"batches": [ONE, ONE[0]]}, r"batches \[steps, examples\], found one of \[1\]"),
    "batch of none": (DataError, {"batches": [ONE, ONE[:, :0]]}, "a batch needs at least 1 example"),
    "real": (DataError, {"batches": [ONE, ONE * 1.0]}, "expected whole numbers in a row, found float64"),
    "low": (DataError, {"batches": [ONE, ONE - 1]}, r"in 0\.\.11, found -1\.\.0"),
    "high": (DataError, {"batches": [ONE, ONE + 12]}, r"in 0\.\.11, found 0\.\.12"),
}


@pytest.mark.parametrize("name", WRONG)
def test_arguments_that_do_not_fit_are_refused_in_one_line(name: str, updates_of: Callable[..., Any]) -> None:
    error, changes, match = WRONG[name]
    model = LinearModel("logistic", FEATURES, 2)
    right = {
        "models": np.ones((2, model.size)),
        "data": split_for(2),
        "batches": [ONE, ONE],
        "rates": np.ones(2),
        "clips": np.ones(2),
    }
    with pytest.raises(error, match=match) as raised:
        updates_of(model, *(right | changes).values())
    assert "\n" not in str(raised.value)


def network(dtype: torch.dtype) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3)).to(dtype)


def network_data() -> Split:
    rng = np.random.default_rng(0)
    return Split(rng.standard_normal((N, 5)).astype(np.float32), rng.integers(0, 3, N))


def test_networks_take_the_steps_of_plain_autograd() -> None:
    module, data, batches = network(torch.float64), network_data(), batches_for()
    objective = TorchModule(module, l2=0.1)
    models = models_for(objective)

    def gradient(w: np.ndarray, i: int) -> np.ndarray:
        return torch_slow.example_gradient(module, w, data.features[i], int(data.targets[i]), "cross_entropy")

    found = objective.local_updates(models, data, batches, RATES, CLIPS)
    expected = slow_updates(gradient, models, batches, RATES, CLIPS, 0.1)
    assert found.not_finite.tolist() == [0] * WIDTH
    np.testing.assert_allclose(found.updates, [each.update for each in expected], rtol=0, atol=1e-12)


def test_the_bits_of_an_agent_with_a_network_do_not_depend_on_its_companions() -> None:
    data, batches = network_data(), batches_for()
    objective = TorchModule(network(torch.float32), l2=0.1)
    models = models_for(objective)
    models[4, 7] = math.nan
    together = objective.local_updates(models, data, batches, RATES, CLIPS)
    assert together.not_finite.tolist() == [0, 0, 0, 0, 2, 0, 0]
    for k in range(WIDTH):
        one = slice(k, k + 1)
        alone = objective.local_updates(models[one], data, batches[one], RATES[one], CLIPS[one])
        assert together.updates[k].tobytes() == alone.updates[0].tobytes()


def test_a_network_that_overflows_is_not_finite_where_its_gradient_is() -> None:
    """The first step leads from 0 to 4e38, infinite in float32, where the output is 1 and its derivative zero."""
    objective = TorchModule(nn.Sequential(nn.Linear(1, 1, bias=False), nn.Hardtanh()), loss="mse")
    data, start = one_example([1], 5), np.zeros((1, 1), np.float32)
    found = objective.local_updates(start, data, [np.zeros((2, 1), np.int64)], np.array([8e38]), np.ones(1))
    assert found.updates.tolist() == [[LARGEST[np.float32]]]
    assert found.not_finite.tolist() == [1]
