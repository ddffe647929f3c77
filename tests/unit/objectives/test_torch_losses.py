"""Losses of one's own: gradients against ``torch.func``, and each example's is its own whatever the loss does."""

from __future__ import annotations

import pickle
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

from gossamer import OwnLoss, Split, TorchModule
from gossamer.errors import ModelError, SpecError

ROWS, FEATURES, CLASSES = 12, 5, 3


class Huber(OwnLoss):
    task: ClassVar[Any] = "regression"
    name: Literal["huber"] = "huber"
    delta: float = 0.7

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        error = (outputs - target).abs()
        return torch.where(error < self.delta, error.square() / 2, self.delta * (error - self.delta / 2))


class Focal(OwnLoss):
    task: ClassVar[Any] = "classification"
    name: Literal["focal"] = "focal"

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        entropy = F.cross_entropy(outputs, target)
        return (1 - torch.exp(-entropy)) ** 2 * entropy


class Greedy(OwnLoss):
    """Takes all that it can reach: sums, norms and orders along every axis of what it is given."""

    task: ClassVar[Any] = "classification"
    name: Literal["greedy"] = "greedy"

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        together = outputs.reshape(-1).sort().values.cumsum(0)
        return together.square().sum() * 100 + outputs.mean(0).sum() * outputs.norm() + 0 * target


class Pair(OwnLoss):
    task: ClassVar[Any] = "regression"
    name: Literal["pair"] = "pair"

    def outputs(self, classes: int) -> int:
        return 2

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        return outputs[1] + (target - outputs[0]).abs() * torch.exp(-outputs[1])

    def scores(self, outputs: Tensor) -> Tensor:
        return outputs[0]


def network(outputs: int) -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(FEATURES, 4), nn.Tanh(), nn.Linear(4, outputs)).double()


def made(loss: OwnLoss, **options: Any) -> tuple[TorchModule, Split]:
    generator = np.random.default_rng(1)
    classes = CLASSES if loss.task == "classification" else None
    features = generator.standard_normal((ROWS, FEATURES))
    targets = generator.integers(0, CLASSES, ROWS) if classes else 2 * generator.standard_normal(ROWS)
    objective = TorchModule(network(loss.outputs(classes or 1)), loss=loss, classes=classes, pretrained=True, **options)
    return objective, Split(features, targets)


def by_hand(loss: str, outputs: Tensor, target: Tensor) -> Tensor:
    """The same losses, written differently: torch's own Huber loss, and Lin et al., equations 1 to 4."""
    if loss == "huber":
        return F.huber_loss(outputs[0], target, delta=0.7)
    likely = torch.where(torch.arange(CLASSES) == target, outputs.softmax(0), 0).sum()
    return -((1 - likely) ** 2) * likely.log()


@pytest.mark.parametrize("strategy", ["auto", "threads", "vmap"])
@pytest.mark.parametrize("loss", [Huber(), Focal()])
def test_sums_of_clipped_gradients_are_those_of_torch_func(loss: Any, strategy: str) -> None:
    objective, data = made(loss, strategy=strategy)
    module = network(CLASSES if loss.name == "focal" else 1)
    start = dict(module.named_parameters())
    kind = torch.int64 if loss.name == "focal" else torch.float64
    features, targets = torch.tensor(data.features), torch.tensor(data.targets, dtype=kind)

    def one(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return by_hand(loss.name, functional_call(module, parameters, (x,)), y)

    each = vmap(grad(one), in_dims=(None, 0, 0))(start, features, targets)
    rows = torch.cat([each[part.name].flatten(1) for part in objective.parts], dim=1).detach().numpy()
    norms = np.linalg.norm(rows, axis=1)
    clip = float(np.median(norms))  # some are clipped, and some are not
    expected = (rows * np.minimum(1, clip / norms)[:, None]).sum(0)
    model = objective.initial(np.random.default_rng(0))[None]
    found = objective.clipped_gradients(model, data, [np.arange(ROWS)], clip)
    np.testing.assert_allclose(found[0][0], expected, rtol=1e-10, atol=1e-12)
    losses = [by_hand(loss.name, module(x), y).item() for x, y in zip(features, targets)]
    np.testing.assert_allclose(objective.losses(model, data)[0], losses, rtol=1e-10)
    np.testing.assert_allclose(objective.evaluate(model, data).loss[0], np.mean(losses), rtol=1e-10)


@pytest.mark.parametrize("strategy", ["auto", "vmap"])
def test_a_greedy_loss_reaches_one_example_alone(strategy: str) -> None:
    """Whatever one row is, the others' sum stays, so that a change of a row moves a sum by a clip at most."""
    objective, data = made(Greedy(), strategy=strategy)
    model = objective.initial(np.random.default_rng(0))[None]
    splits = [Split(data.features[[n]], data.targets[[n]]) for n in range(ROWS)]
    apart = [objective.losses(model, split)[0, 0] for split in splits]
    np.testing.assert_allclose(objective.losses(model, data)[0], apart, rtol=1e-10)
    clip, batch = 0.1, np.arange(ROWS)
    without = objective.clipped_gradients(model, data, [batch[1:]], clip)[0]
    alone = sum(objective.clipped_gradients(model, data, [batch[[n]]], clip)[0] for n in range(1, ROWS))
    np.testing.assert_allclose(without, alone, rtol=1e-10, atol=1e-13)
    for row in (1e6, -1e3, 0.0):
        changed = data.features.copy()
        changed[0] = row
        found = objective.clipped_gradients(model, Split(changed, data.targets), [batch], clip)[0]
        assert np.linalg.norm(found - without) <= clip * (1 + 1e-9)
    changed[0] = np.nan
    found = objective.clipped_gradients(model, Split(changed, data.targets), [batch], clip)
    np.testing.assert_allclose(found.sums, without, rtol=1e-10, atol=1e-13)
    assert found.zeroed.tolist() == [1]


def test_neither_kernels_nor_layers_are_taken() -> None:
    objective, data = made(Focal())
    assert objective.plan(data).strategy == "threads"
    assert "kernels are for the losses cross_entropy and mse" in objective.plan(data).unchained
    usual = TorchModule(network(CLASSES))
    assert usual.plan(data).strategy != "threads"
    for strategy, why in {"layers": "one example at a time", "compiled": "kernels are for the losses"}.items():
        with pytest.raises(ModelError, match=f"strategy '{strategy}' cannot be used, since .*{why}"):
            made(Focal(), strategy=strategy)[0].plan(data)


def test_scores_and_accuracy_are_what_the_loss_says() -> None:
    objective, data = made(Pair())
    model = objective.initial(np.random.default_rng(0))
    both = network(2)(torch.tensor(data.features)).detach().numpy()
    np.testing.assert_allclose(objective.scores(model, data.features), both[:, :1], rtol=1e-12)
    assert np.isnan(objective.evaluate(model[None], data).accuracy[0])
    objective, data = made(Focal())
    scores = network(CLASSES)(torch.tensor(data.features)).detach().numpy()
    accuracy = (scores.argmax(1) == data.targets).mean()
    assert objective.evaluate(objective.initial(np.random.default_rng(0))[None], data).accuracy[0] == accuracy


def test_a_copy_for_another_process_computes_the_same() -> None:
    objective, data = made(Pair())
    model = objective.initial(np.random.default_rng(0))[None]
    there = pickle.loads(pickle.dumps(objective))
    np.testing.assert_array_equal(there.losses(model, data), objective.losses(model, data))


def test_targets_of_another_kind_are_refused() -> None:
    with pytest.raises(SpecError, match="focal is for classification, and the targets are real numbers"):
        TorchModule(network(1), loss=Focal())
    with pytest.raises(SpecError, match="huber is for regression, and the targets are 3 classes"):
        TorchModule(network(1), loss=Huber(), classes=3)
    made_up = Split(np.zeros((2, FEATURES)), np.zeros(2))
    with pytest.raises(ModelError, match=r"must return outputs \[examples, 2\], found shape \[1, 1\]"):
        TorchModule(network(1), loss=Pair()).plan(made_up)
