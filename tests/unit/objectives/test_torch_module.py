"""Modules as objectives: parameters, starting points, evaluation, and data that does not fit."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import nn

from gossamer.data.examples import Split
from gossamer.errors import DataError, ModelError, SpecError
from gossamer.objectives.models import build_model
from gossamer.objectives.networks.module import TorchModule
from gossamer.objectives.networks.network import Network
from gossamer.vectors import unpack


def images(count: int = 6, seed: int = 0) -> Split:
    generator = np.random.default_rng(seed)
    return Split(generator.standard_normal((count, 1, 16, 16)).astype(np.float32), generator.integers(0, 3, count))


def vectors(count: int = 6, size: int = 4, classes: int = 3) -> Split:
    generator = np.random.default_rng(0)
    return Split(generator.standard_normal((count, size)).astype(np.float32), generator.integers(0, classes, count))


class Counting(nn.Module):
    """A linear layer with an integer and a floating-point buffer, the second of which matters."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.tensor(7))
        self.register_buffer("scale", torch.tensor(2.0))
        self.frozen = nn.Parameter(torch.ones(4), requires_grad=False)
        self.layer = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x * self.frozen) * self.scale


def test_parts_are_the_trainable_entries_of_the_state_dict_in_order() -> None:
    module = build_model("cnn_mapa", (1, 16, 16), 3)
    torch_module = TorchModule(module, pretrained=True)
    model = torch_module.initial(np.random.default_rng(0))
    arrays = unpack(model, torch_module.parts)
    assert list(arrays) == list(module.state_dict())
    for name, tensor in module.state_dict().items():
        assert np.array_equal(arrays[name], tensor.numpy())
    assert torch_module.size == model.size == sum(p.numel() for p in module.parameters())
    assert torch_module.dtype == model.dtype == np.float32


def test_buffers_and_frozen_parameters_are_in_no_vector_and_stay() -> None:
    module = Counting()
    torch_module = TorchModule(module)
    assert [part.name for part in torch_module.parts] == ["layer.weight", "layer.bias"]
    data = vectors()
    model = torch_module.initial(np.random.default_rng(0))[None]
    torch_module.clipped_gradients(model, data, [np.arange(6)], 1.0)
    plain = nn.Linear(4, 3)
    plain.weight.data = torch.tensor(model[0, :12].reshape(3, 4)) * 2
    plain.bias.data = torch.tensor(model[0, 12:]) * 2
    with torch.no_grad():
        expected = nn.functional.cross_entropy(plain(torch.tensor(data.features)), torch.tensor(data.targets))
    assert torch_module.evaluate(model, data).loss[0] == pytest.approx(float(expected), rel=1e-6)
    assert int(module.steps) == 7
    assert float(module.scale) == 2.0


def test_the_module_given_is_not_changed() -> None:
    module = build_model("cnn_mapa", (1, 16, 16), 3).train()
    before = copy.deepcopy(module.state_dict())
    torch_module = TorchModule(module)
    model = torch_module.initial(np.random.default_rng(0))[None]
    torch_module.clipped_gradients(model, images(), [np.arange(6)], 1.0)
    torch_module.evaluate(model, images())
    assert module.training
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())
    assert not module[0]._forward_hooks  # type: ignore[index]
    assert all(parameter.grad is None and parameter.requires_grad for parameter in module.parameters())


def test_the_start_follows_from_the_generator_alone() -> None:
    torch_module = TorchModule(build_model("cnn_mapa", (1, 16, 16), 3))
    first = torch_module.initial(np.random.default_rng(3))
    torch.manual_seed(99)
    again = TorchModule(build_model("cnn_mapa", (1, 16, 16), 3)).initial(np.random.default_rng(3))
    other = torch_module.initial(np.random.default_rng(4))
    assert first.tobytes() == again.tobytes()
    assert not np.any(first == other)


def test_no_global_random_state_is_touched() -> None:
    torch.manual_seed(5)
    np.random.seed(5)
    before, numpy_before = torch.random.get_rng_state(), np.random.get_state()[1].copy()
    torch_module = TorchModule(build_model("cnn_mapa", (1, 16, 16), 3), strategy="auto")
    model = torch_module.initial(np.random.default_rng(0))[None]
    torch_module.clipped_gradients(model, images(), [np.arange(6)], 1.0)
    torch_module.evaluate(model, images())
    assert torch.equal(torch.random.get_rng_state(), before)
    assert np.array_equal(np.random.get_state()[1], numpy_before)


def test_the_number_of_torch_threads_is_put_back() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        torch_module = TorchModule(nn.Linear(4, 3), threads=2)
        model = torch_module.initial(np.random.default_rng(0))[None].repeat(3, axis=0)
        torch_module.clipped_gradients(model, vectors(), [np.arange(6)] * 3, 1.0)
        torch_module.evaluate(model, vectors())
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_evaluation_is_the_mean_over_all_chunks() -> None:
    """Softmax regression in float64 by hand; memory for a few rows at a time."""
    data = vectors(count=2500, size=40)
    torch_module = TorchModule(nn.Linear(40, 3), memory_mib=1, threads=2)
    models = np.stack([torch_module.initial(np.random.default_rng(seed)) for seed in range(3)])
    found = torch_module.evaluate(models, data)
    for model, loss, accuracy in zip(models.astype(np.float64), found.loss, found.accuracy):
        scores = data.features @ model[:120].reshape(3, 40).T + model[120:]
        picked = scores[np.arange(2500), data.targets]
        assert loss == pytest.approx((np.log(np.exp(scores).sum(1)) - picked).mean(), rel=1e-6)
        assert accuracy == (scores.argmax(1) == data.targets).mean()


def test_evaluation_of_a_regression_has_no_accuracy() -> None:
    data = Split(np.eye(4, dtype=np.float32), np.array([1.0, 2.0, 3.0, 5.0], np.float32))
    torch_module = TorchModule(nn.Linear(4, 1, bias=False), loss="mse")
    found = torch_module.evaluate(np.array([[1, 1, 1, 1], [0, 0, 0, 0]], np.float32), data)
    assert found.loss.tolist() == [(0 + 1 + 4 + 16) / 4, (1 + 4 + 9 + 25) / 4]
    assert np.isnan(found.accuracy).all()


def test_sparse_examples_count_like_dense_ones() -> None:
    dense = vectors()
    sparse = Split(sp.csr_array(dense.features), dense.targets)
    torch_module = TorchModule(nn.Linear(4, 3))
    model = torch_module.initial(np.random.default_rng(0))[None]
    batch = [np.array([0, 2, 3])]
    assert np.array_equal(
        torch_module.clipped_gradients(model, sparse, batch, 1.0).sums,
        torch_module.clipped_gradients(model, dense, batch, 1.0).sums,
    )
    assert torch_module.evaluate(model, sparse) == torch_module.evaluate(model, dense)


def test_models_may_be_read_only() -> None:
    torch_module = TorchModule(nn.Linear(4, 3))
    model = torch_module.initial(np.random.default_rng(0))[None]
    expected = torch_module.clipped_gradients(model, vectors(), [np.arange(6)], 1.0).sums
    model.setflags(write=False)
    assert np.array_equal(torch_module.clipped_gradients(model, vectors(), [np.arange(6)], 1.0).sums, expected)


def test_no_models_give_no_rows() -> None:
    found = TorchModule(nn.Linear(4, 3)).clipped_gradients(np.zeros((0, 15), np.float32), vectors(), [], 1.0)
    assert found.sums.shape == (0, 15)
    assert found.zeroed.shape == (0,)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))], ids=["copy", "pickle"])
def test_copies_compute_the_same(copied: object) -> None:
    torch_module = TorchModule(build_model("cnn_mapa", (1, 16, 16), 3))
    model = torch_module.initial(np.random.default_rng(0))[None]
    expected = torch_module.clipped_gradients(model, images(), [np.arange(6)], 1.0).sums
    twin = copied(torch_module)  # type: ignore[operator]
    assert np.array_equal(twin.clipped_gradients(model, images(), [np.arange(6)], 1.0).sums, expected)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"loss": "hinge"}, r"loss is one of cross_entropy, mse, binary_cross_entropy, found 'hinge'"),
        ({"l2": -1.0}, "l2 of 0 or more, .*found -1.0, "),
        ({"memory_mib": 0}, "memory_mib of 1 or more .*found 0.0, 0 and None"),
        ({"strategy": "fast"}, r"strategy is one of auto, compiled, layers, threads, vmap, loop, found 'fast'"),
        ({"threads": 0}, "threads alike or None, found .* and 0"),
    ],
)
def test_settings_out_of_range(settings: dict[str, object], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        TorchModule(nn.Linear(2, 2), **settings)  # type: ignore[arg-type]


def test_a_clip_that_is_not_positive() -> None:
    with pytest.raises(SpecError, match="clip must be a positive number, found 0"):
        TorchModule(nn.Linear(4, 3)).clipped_gradients(np.zeros((1, 15), np.float32), vectors(), [np.arange(2)], 0)


@pytest.mark.parametrize(
    ("data", "models", "batch", "message"),
    [
        (vectors(classes=9, count=50), (1, 15), [0], r"targets must be classes 0..2, found \d; relabel"),
        (vectors(), (2, 15), [0], r"expected models \[1, 15\], one a row, found \[2, 15\]"),
        (vectors(), (1, 14), [0], r"expected models \[1, 15\], one a row, found \[1, 14\]"),
        (vectors(), (1, 15), [6], r"batch indices must be in 0..5, found 6..6"),
        (vectors(), (1, 15), [-1], r"batch indices must be in 0..5, found -1..-1"),
        (Split(np.zeros((3, 4), np.float32), np.zeros((3, 2), np.int64)), (1, 15), [0], r"expected one target \[n\]"),
        (Split(np.zeros((3, 4), np.float32), np.zeros(2, np.int64)), (1, 15), [0], r"expected one target \[n\]"),
    ],
)
def test_data_that_does_not_fit(data: Split, models: tuple[int, int], batch: list[int], message: str) -> None:
    with pytest.raises(DataError, match=message):
        TorchModule(nn.Linear(4, 3)).clipped_gradients(np.zeros(models, np.float32), data, [np.array(batch)], 1.0)


def test_an_evaluation_needs_examples() -> None:
    with pytest.raises(DataError, match="at least 1 example, found an empty split"):
        TorchModule(nn.Linear(4, 3)).evaluate(np.zeros((1, 15), np.float32), vectors(count=0))


@pytest.mark.parametrize(
    ("module", "loss", "message"),
    [
        (
            nn.Linear(5, 3),
            "cross_entropy",
            r"cannot take examples of shape \[4\]: layer 'itself' is Linear\(in_features=5, .* given \[1, 4\]",
        ),
        (
            nn.Sequential(nn.Linear(4, 4), nn.Unflatten(1, (2, 2))),
            "cross_entropy",
            r"must return scores \[examples, 2 or more classes\], found shape \[1, 2, 2\]",
        ),
        (nn.Linear(4, 2), "mse", r"must return one number an example, found shape \[1, 2\]"),
    ],
)
def test_a_module_that_does_not_fit_the_data_or_the_loss(module: nn.Module, loss: str, message: str) -> None:
    torch_module = TorchModule(module, loss=loss)
    with pytest.raises(ModelError, match=message):
        torch_module.evaluate(np.zeros((1, torch_module.size), np.float32), vectors())


def test_equal_models_are_evaluated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """All nodes begin with one model, and of one that differs in a bit alone the figures are its own."""
    generator = np.random.default_rng(0)
    split = Split(generator.standard_normal((50, 6)).astype(np.float32), generator.integers(0, 3, 50))
    objective = TorchModule(nn.Sequential(nn.Linear(6, 3), nn.LayerNorm(3)), strategy="layers")
    one = generator.standard_normal(objective.size).astype(np.float32)
    two, three = one.copy(), one.copy()
    two[0] = np.nextafter(two[0], np.float32(9))
    three[:] = np.nan
    models = np.stack([one, two, one, three, three, one])
    alone = [objective.evaluate(model[None], split) for model in models]
    seen: list[int] = []
    outputs = Network.outputs

    def counted(self: Network, *given: Any) -> Any:
        seen.append(1)
        return outputs(self, *given)

    monkeypatch.setattr(Network, "outputs", counted)
    found = objective.evaluate(models, split)
    assert len(seen) == 3
    assert np.array_equal(found.loss, [each.loss[0] for each in alone], equal_nan=True)
    assert np.array_equal(found.accuracy, [each.accuracy[0] for each in alone], equal_nan=True)
