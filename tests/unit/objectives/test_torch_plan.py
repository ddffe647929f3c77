"""What a module must not do, and which modules the fast way is taken for."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gossamer.data.examples import Split
from gossamer.errors import ModelError
from gossamer.objectives.networks.module import TorchModule

FEATURES, CLASSES = 6, 3


def data(examples: int = 40, seed: int = 0, scale: float = 1.0) -> Split:
    generator = np.random.default_rng(seed)
    features = scale * generator.standard_normal((examples, FEATURES))
    return Split(features.astype(np.float32), generator.integers(0, CLASSES, examples))


class Base(nn.Module):
    """A linear model whose features pass through `change`."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(FEATURES, CLASSES)
        self.register_buffer("mean", torch.zeros(()))
        self.seen: list[float] = []
        self.calls = 0

    def change(self, x: Tensor) -> Tensor:
        return x

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.change(x))


class RunningMean(Base):
    def change(self, x: Tensor) -> Tensor:
        self.mean = 0.9 * self.mean + 0.1 * x.detach().abs().mean()
        return x / (1 + self.mean)


class Diary(Base):
    def change(self, x: Tensor) -> Tensor:
        self.seen.append(float(len(x)))
        return x


class Counter(Base):
    def change(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * (1 + self.calls)


@pytest.mark.parametrize("module", [RunningMean, Diary, Counter])
def test_a_module_that_remembers_is_refused(module: type[Base]) -> None:
    """What it keeps of one release would reach the next, which the ledger does not charge for it."""
    objective = TorchModule(module())
    model = objective.initial(np.random.default_rng(0))[None]
    with pytest.raises(ModelError, match="changes itself while it runs"):
        objective.clipped_gradients(model, data(), [np.arange(4)], 1.0)


class LargeValues(Base):
    """Mixes examples only where values are large, which no two examples of a probe show."""

    def change(self, x: Tensor) -> Tensor:
        return x / (x.abs().max().clamp(min=10) / 10)


class LargeBatches(Base):
    def change(self, x: Tensor) -> Tensor:
        return x - x.mean(0) if len(x) > 4 else x


@pytest.mark.parametrize(("module", "scale"), [(LargeValues, 100.0), (LargeBatches, 1.0)])
def test_one_example_never_moves_the_others(module: type[Base], scale: float) -> None:
    """The sum with and without an example differ by at most the clip, also for modules that mix examples on the sly."""
    objective = TorchModule(module())
    model = objective.initial(np.random.default_rng(0))[None]
    examples = data(scale=scale)
    examples.features[0] *= 50
    sums = [objective.clipped_gradients(model, examples, [np.arange(s, 33)], 1.0).sums[0] for s in (0, 1)]
    assert np.linalg.norm(sums[0] - sums[1]) <= 1 + 1e-5


@pytest.mark.parametrize("clip", [1e-3, 1e-5])
@pytest.mark.parametrize("strategy", ["auto", "threads"])
def test_a_huge_gradient_is_not_rounded_above_the_clip(clip: float, strategy: str) -> None:
    """Its weight is subnormal in float32, where rounding may be by any factor."""
    examples = Split(np.full((1, FEATURES), 3e38, np.float32), np.zeros(1, np.int64))
    objective = TorchModule(nn.Sequential(nn.Linear(FEATURES, CLASSES)), strategy=strategy)
    model = np.zeros((1, objective.size), np.float32)
    total = objective.clipped_gradients(model, examples, [np.arange(1)], clip).sums[0]
    assert np.linalg.norm(total.astype(np.float64)) <= clip
