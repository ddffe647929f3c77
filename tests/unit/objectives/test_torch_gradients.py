"""Clipped gradients of modules, by every strategy, against one example at a time by plain autograd."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from tests.reference.torch_slow import clipped_sum, example_gradient
from torch import Tensor, nn

from gossamer.data.examples import Split
from gossamer.errors import SpecError
from gossamer.objectives.models.small import LSTM
from gossamer.objectives.networks.gradients import LayerGradients
from gossamer.objectives.networks.module import TorchModule

CLASSES = 3
STRATEGIES = ("layers", "threads", "vmap")


class Twice(nn.Module):
    """Uses one layer twice, and changes outputs in place."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)
        self.out = nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        first = self.layer(x)
        first += x
        second = self.layer(torch.tanh(first))
        second.relu_()
        return self.out(second)


def conv2d(*layers: nn.Module, channels: int) -> nn.Module:
    return nn.Sequential(*layers, nn.Flatten(2), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(channels, CLASSES))


# Each convolution goes one of the rule's ways: patches times gradients, grouped convolution, or factors.
MODULES = {
    "linear": (nn.Sequential(nn.Linear(5, 8), nn.ReLU(inplace=True), nn.Linear(8, CLASSES)), (5,)),
    "sequence stored": (nn.Sequential(nn.Linear(3, 4), nn.Flatten(), nn.Linear(36, CLASSES)), (9, 3)),
    "sequence factored": (nn.Sequential(nn.Linear(12, 20), nn.Flatten(), nn.Linear(60, CLASSES)), (3, 12)),
    "twice": (Twice(), (6,)),
    "conv patches": (conv2d(nn.Conv2d(2, 4, 3, padding=1), nn.MaxPool2d(2), nn.ReLU(), channels=4), (2, 7, 6)),
    "conv strided": (conv2d(nn.Conv2d(2, 4, (3, 2), (2, 3), (1, 2), (1, 2), bias=False), channels=4), (2, 8, 9)),
    "conv grouped": (conv2d(nn.Conv2d(4, 6, 3, stride=2, groups=2), channels=6), (4, 8, 7)),
    "conv depthwise": (conv2d(nn.Conv2d(4, 8, 3, padding=1, groups=4, dilation=2), channels=8), (4, 7, 7)),
    "conv many inputs": (conv2d(nn.Conv2d(30, 4, 3, padding=1), channels=4), (30, 5, 5)),
    "conv factored": (conv2d(nn.Conv2d(6, 30, 3, stride=2), channels=30), (6, 5, 5)),
    "conv factored groups": (conv2d(nn.Conv2d(12, 40, 3, groups=2, dilation=2), channels=40), (12, 6, 6)),
    "conv1d": (nn.Sequential(nn.Conv1d(3, 5, 4, 2), nn.Flatten(), nn.Linear(15, CLASSES)), (3, 8)),
    "conv3d": (nn.Sequential(nn.Conv3d(2, 3, 2), nn.Flatten(), nn.Linear(24, CLASSES)), (2, 3, 3, 3)),
    "norms": (
        nn.Sequential(nn.GroupNorm(2, 4), nn.Conv2d(4, 4, 1), nn.LayerNorm((3, 3)), nn.Flatten(), nn.Linear(36, 3)),
        (4, 3, 3),
    ),
    "lstm": (LSTM((5, 4), CLASSES, layers=2, cells=3, projection=4), (5, 4)),
}


def objective(module: nn.Module, strategy: str, **settings: object) -> TorchModule:
    return TorchModule(module, strategy=strategy, threads=2, **settings)  # type: ignore[arg-type]


def examples(shape: tuple[int, ...], count: int = 12, seed: int = 0) -> Split:
    generator = np.random.default_rng(seed)
    features = generator.standard_normal((count, *shape)).astype(np.float32)
    return Split(features, generator.integers(0, CLASSES, count))


def lengths(module: nn.Module, model: np.ndarray, data: Split, batch: np.ndarray) -> list[float]:
    """Norms of the gradients of the examples in ``batch``."""
    rows = zip(data.features[batch], data.targets[batch])
    return [float(np.linalg.norm(example_gradient(module, model, x, y, "cross_entropy"))) for x, y in rows]


@pytest.mark.some(20)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", MODULES)
def test_sums_equal_a_loop_over_single_examples(name: str, strategy: str) -> None:
    """Ragged batches, one empty and one with an index twice; in float64, to 1e-9 of the clip."""
    module, shape = MODULES[name]
    torch_module = objective(module.double(), strategy)
    data = examples(shape)
    generator = np.random.default_rng(1)
    models = np.stack([torch_module.initial(generator) for _ in range(4)])
    batches = [np.array(batch, np.int64) for batch in ([0, 3, 4], [], [7, 7], [5, 6, 8, 9, 11])]
    clip = 0.8 * np.linalg.norm(example_gradient(module, models[0], data.features[0], data.targets[0], "cross_entropy"))

    found = torch_module.clipped_gradients(models, data, batches, clip)

    for row, (model, batch) in enumerate(zip(models, batches)):
        expected = clipped_sum(module, model, data.features[batch], data.targets[batch], clip)
        assert np.abs(found.sums[row] - expected.total).max() <= 1e-9 * clip
        assert found.zeroed[row] == expected.zeroed == 0
        assert found.unclipped[row] == expected.unclipped
    assert not found.sums[1].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_each_model_has_its_own_clip(strategy: str, dtype: torch.dtype) -> None:
    """Clips between norms of the batches, so that some gradients of each are clipped; batches differ in length."""
    module, shape = MODULES["conv patches"]
    torch_module = objective(module.to(dtype), strategy)
    data = examples(shape)
    generator = np.random.default_rng(1)
    models = np.stack([torch_module.initial(generator) for _ in range(5)])
    batches = [np.arange(12), np.arange(3, 9), np.arange(5), np.arange(0), np.arange(7)]
    middles = [np.median(lengths(module, models[k], data, batches[k])) for k in (0, 1)]
    clips = np.array([*middles, 1e-3, 1.0, math.inf])

    found = torch_module.clipped_gradients(models, data, batches, clips)

    for row, (model, batch, clip) in enumerate(zip(models, batches, clips)):
        expected = clipped_sum(module, model, data.features[batch], data.targets[batch], clip)
        assert np.abs(found.sums[row] - expected.total).max() <= (1e-9 if dtype == torch.float64 else 1e-5)
        assert found.unclipped[row] == expected.unclipped
        if strategy != "vmap":
            alone = torch_module.clipped_gradients(models[row : row + 1], data, [batch], float(clip))
            assert alone.sums.tobytes() == found.sums[row].tobytes()
            assert alone.unclipped[0] == found.unclipped[row]
    assert found.unclipped.tolist() == [6, 3, 0, 0, 7]  # half of a batch, where the clip is its median


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_norm_that_equals_the_clip_is_within_it_and_so_is_a_zero_gradient(strategy: str, dtype: torch.dtype) -> None:
    """Squared error at w = 0: y = 1/2 and x = (3, 4) have a gradient of norm 5, y = 0 of norm 0.

    The last clip is zero in float32, and a quotient of zeros must not reach the sum.
    """
    torch_module = objective(nn.Linear(2, 1, bias=False, dtype=dtype), strategy, loss="mse")
    data = Split(np.array([[3, 4], [3, 4]], np.float32), np.array([0.5, 0], np.float32))
    models = np.zeros((3, 2), torch_module.dtype)
    clips = np.array([5.0, np.nextafter(5.0, 0), 1e-60])
    found = torch_module.clipped_gradients(models, data, [np.array([0, 1])] * 3, clips)
    assert found.unclipped.tolist() == [2, 1, 1]
    assert found.zeroed.tolist() == [0, 0, 0]
    np.testing.assert_allclose(found.sums[:2], [[-3, -4]] * 2, rtol=1e-6)
    assert np.linalg.norm(found.sums[2].astype(np.float64)) <= 1e-60 * (1 + 1e-6)


def test_every_rule_is_taken_where_it_is_asked_for() -> None:
    """The comparisons above would say little if `auto` fell back."""
    for module, shape in MODULES.values():
        torch_module = objective(module, "layers")
        torch_module.evaluate(torch_module.initial(np.random.default_rng(0))[None], data := examples(shape))
        assert torch_module.plan(data).strategy == "layers"


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_without_a_clip_the_sum_is_the_batch_gradient(strategy: str) -> None:
    """By linearity: the sum of gradients is the gradient of the sum, here by one ordinary backward pass."""
    module, shape = MODULES["conv patches"]
    module = module.double()
    torch_module = objective(module, strategy, pretrained=True)
    data = examples(shape)
    model = torch_module.initial(np.random.default_rng(0))

    found = torch_module.clipped_gradients(model[None], data, [np.arange(12)], math.inf).sums[0]

    module.zero_grad()
    outputs = module(torch.tensor(data.features).double())
    torch.nn.functional.cross_entropy(outputs, torch.tensor(data.targets), reduction="sum").backward()
    expected = torch.cat([p.grad.reshape(-1) for p in module.parameters()]).numpy()  # type: ignore[union-attr]
    assert np.allclose(found, expected, rtol=1e-10, atol=1e-12)


def test_without_a_clip_no_gradient_is_taken_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Local training of networks costs what it costs without privacy; what is not finite is still left out alone."""
    module, shape = MODULES["norms"]
    torch_module = objective(module.double(), "layers")
    data, model = examples(shape), torch_module.initial(np.random.default_rng(0))[None]
    torch_module.plan(data)
    with monkeypatch.context() as patched:
        patched.setattr(LayerGradients, "per_example", None)
        found = torch_module.clipped_gradients(model, data, [np.arange(12)], math.inf)
        trained = torch_module.local_updates(
            model, data, [np.arange(12).reshape(3, 4)], np.ones(1), np.array([math.inf])
        )
    assert (found.zeroed[0], found.unclipped[0]) == (0, 12)
    expected = clipped_sum(module, model[0], data.features, data.targets, math.inf).total
    assert np.allclose(found.sums[0], expected, rtol=1e-10, atol=1e-12)
    assert np.isfinite(trained.updates).all()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_mean_squared_error(strategy: str) -> None:
    module = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1)).double()
    torch_module = objective(module, strategy, loss="mse")
    generator = np.random.default_rng(0)
    data = Split(generator.standard_normal((6, 4)).astype(np.float32), generator.standard_normal(6).astype(np.float32))
    model = torch_module.initial(generator)

    found = torch_module.clipped_gradients(model[None], data, [np.arange(6)], 0.5).sums[0]

    expected = clipped_sum(module, model, data.features, data.targets, 0.5, "mse").total
    assert np.allclose(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_in_float32_norms_stay_within_the_clip(strategy: str) -> None:
    """One example a batch, so each row is one clipped gradient; 1e-6 is 8 roundings of float32."""
    module, shape = MODULES["conv factored"]
    torch_module = objective(module.float(), strategy)
    data = examples(shape)
    models = np.repeat(torch_module.initial(np.random.default_rng(0))[None], 12, axis=0)
    sums = torch_module.clipped_gradients(models, data, [np.array([i]) for i in range(12)], 1e-3).sums
    assert sums.dtype == np.float32
    norms = np.linalg.norm(sums.astype(np.float64), axis=1)
    assert (norms <= 1e-3 * (1 + 1e-6)).all()
    assert (norms >= 1e-3 * (1 - 1e-5)).all()  # all were longer than the clip


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_gradient_that_is_not_finite_counts_as_zero(strategy: str, bad: float) -> None:
    module, shape = MODULES["conv patches"]
    torch_module = objective(module.double(), strategy)
    data = examples(shape)
    data.features[4, 0, 2, 2] = bad
    data.features[9, 1, 0, 0] = bad
    model = torch_module.initial(np.random.default_rng(0))
    batches = [np.array([3, 4, 5, 9]), np.array([4]), np.array([1, 2])]

    found = torch_module.clipped_gradients(np.stack([model] * 3), data, batches, 0.5)

    assert found.zeroed.tolist() == [2, 1, 0]
    for row, kept in enumerate(([3, 5], [], [1, 2])):
        expected = clipped_sum(module, model, data.features[kept], data.targets[kept], 0.5)
        assert np.abs(found.sums[row] - expected.total).max() <= 1e-10
        assert found.unclipped[row] == expected.unclipped
    unlimited = torch_module.clipped_gradients(np.stack([model] * 3), data, batches, math.inf)
    assert unlimited.unclipped.tolist() == [2, 0, 2]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_model_that_is_not_finite_gives_zero(strategy: str) -> None:
    module, shape = MODULES["linear"]
    torch_module = objective(module.float(), strategy)
    models = np.full((2, torch_module.size), np.nan, np.float32)
    found = torch_module.clipped_gradients(models, examples(shape), [np.arange(3), np.arange(0)], 1.0)
    assert not found.sums.any()
    assert found.zeroed.tolist() == [3, 0]
    assert found.unclipped.tolist() == [0, 0]


def overflowing(name: str) -> tuple[nn.Module, tuple[int, ...], np.ndarray]:
    """A module, the shape of its examples, and a model [size] at which large features give large gradients."""
    if name == "linear":
        return nn.Linear(5, CLASSES), (5,), np.zeros(18, np.float32)
    if name == "two layers":
        model = np.zeros(39, np.float32)
        model[:20] = 1e-25 * np.arange(20)
        return nn.Sequential(nn.Linear(5, 4), nn.Linear(4, CLASSES)), (5,), model
    # Gradients of the first layer are stored in float32, where their squares overflow.
    model = np.zeros(127, np.float32)
    model[16:124] = np.random.default_rng(2).standard_normal(108)
    return nn.Sequential(nn.Linear(3, 4), nn.Flatten(), nn.Linear(36, CLASSES)), (9, 3), model


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", ["linear", "two layers", "sequence stored"])
def test_a_finite_gradient_whose_square_overflows_is_clipped_not_dropped(name: str, strategy: str) -> None:
    """Features of 1e25 make squares of 1e50, beyond float32; the direction is that of float64."""
    module, shape, model = overflowing(name)
    torch_module = objective(module, strategy)
    data = examples(shape, count=3)
    data.features[1] *= 1e25
    found = torch_module.clipped_gradients(model[None], data, [np.arange(3)], 0.1)
    expected = clipped_sum(module.double(), model.astype(np.float64), data.features, data.targets, 0.1)
    assert found.zeroed.tolist() == [0]
    assert found.unclipped.tolist() == [expected.unclipped]
    assert np.abs(found.sums[0] - expected.total).max() <= 1e-6
    assert torch_module.clipped_gradients(model[None], data, [np.arange(3)], math.inf).unclipped.tolist() == [3]


@pytest.mark.parametrize("strategy", ["layers", "threads"])
def test_a_row_has_the_same_bits_in_any_company_and_with_any_threads(strategy: str) -> None:
    module, shape = MODULES["conv factored"]
    data = examples(shape, count=150)
    generator = np.random.default_rng(0)
    batches = [np.sort(generator.choice(150, size, replace=False)) for size in (140, 7, 1, 30)]
    together = TorchModule(module.float(), strategy=strategy, threads=3)
    models = np.stack([together.initial(generator) for _ in batches])
    expected = together.clipped_gradients(models, data, batches, 0.5).sums
    alone = TorchModule(module.float(), strategy=strategy, threads=1)
    for row, batch in enumerate(batches):
        sums = alone.clipped_gradients(models[row : row + 1], data, [batch], 0.5).sums
        assert sums.tobytes() == expected[row].tobytes()


@pytest.mark.parametrize("strategy", ["layers", "threads"])
def test_an_exact_gradient_has_the_same_bits_beside_any_examples(strategy: str) -> None:
    """A sum of two is that of each for itself; kernels' promise is in `test_chains`."""
    layers = (nn.Linear(40, 30), nn.GELU(), nn.Linear(30, CLASSES))
    data = examples((40,), count=60)
    exact = TorchModule(nn.Sequential(*layers).float(), strategy=strategy, threads=2, exact=True)
    model = exact.initial(np.random.default_rng(0))[None]
    alone = [exact.clipped_gradients(model, data, [np.array([row])], 0.5).sums[0] for row in range(60)]
    for first in range(0, 60, 2):
        both = exact.clipped_gradients(model, data, [np.array([first, first + 1])], 0.5).sums[0]
        assert both.tobytes() == (alone[first] + alone[first + 1]).tobytes()
    several = exact.clipped_gradients(np.repeat(model, 2, 0), data, [np.arange(9), np.array([3])], 0.5).sums
    assert several[1].tobytes() == alone[3].tobytes()
    assert (exact.plan(data).examples, exact.plan(data).nodes) == (1, 1)


def test_what_is_computed_with_other_nodes_is_not_exact() -> None:
    with pytest.raises(SpecError, match="strategy 'vmap' rounds by what is computed together"):
        TorchModule(nn.Sequential(nn.Linear(3, 2)), strategy="vmap", exact=True)


@pytest.mark.some(1)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_batch_cut_by_the_memory_setting_gives_the_same_sum(strategy: str) -> None:
    module = nn.Sequential(*(nn.Linear(300, 300) for _ in range(9)), nn.Linear(300, CLASSES)).double()
    data = examples((300,), count=90)
    whole, cut = (objective(module, strategy, memory_mib=memory) for memory in (512, 1))
    models = whole.initial(np.random.default_rng(0))[None].repeat(2, axis=0)
    batches = [np.arange(90), np.arange(10, 40)]
    clips = [np.median(lengths(module, models[0], data, batch)) for batch in batches]
    found, parts = (one.clipped_gradients(models, data, batches, np.array(clips)) for one in (whole, cut))
    assert np.allclose(found.sums, parts.sums, rtol=1e-11, atol=1e-13)
    assert found.unclipped.tolist() == parts.unclipped.tolist() == [45, 15]  # half of each batch, by the median
    assert cut.plan(data).examples < whole.plan(data).examples
