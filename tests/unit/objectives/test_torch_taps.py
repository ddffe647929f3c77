"""The two passes over a batch, and which module gets which."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.reference.torch_slow import clipped_sum
from torch import Tensor, nn

from gossamer.data.examples import Split
from gossamer.objectives.models import build_model
from gossamer.objectives.networks.gradients import BatchPass, VectorisedPass, is_of_torch
from gossamer.objectives.networks.layers import LayerCall
from gossamer.objectives.networks.module import TorchModule
from gossamer.objectives.networks.network import LOSSES, Network, flat_parameters


class Own(nn.Module):
    """A network in code of one's own; ``frames`` are convolved as a batch of images, one example's at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.out = nn.Linear(4, 3)

    def forward(self, frames: Tensor) -> Tensor:
        images = torch.relu(self.conv(frames.flatten(0, 1)[:, None]))
        return self.out(images.mean((2, 3)).unflatten(0, frames.shape[:2])).sum(1)


def double_forward(layer: nn.Linear, x: Tensor) -> Tensor:
    return 2 * nn.functional.linear(x, layer.weight)


def patched() -> nn.Module:
    layer = nn.Linear(4, 3)
    layer.forward = lambda x: double_forward(layer, x)  # type: ignore[method-assign]
    return layer


def hooked() -> nn.Module:
    layer = nn.Linear(4, 3)
    layer.register_forward_hook(lambda _layer, _inputs, output: output - output.mean(0))
    return nn.Sequential(layer)


@pytest.mark.parametrize(
    ("module", "known"),
    [
        (nn.Linear(4, 3), True),
        (nn.Sequential(nn.Sequential(nn.Conv2d(1, 1, 1), nn.GroupNorm(1, 1)), nn.Flatten()), True),
        (build_model("resnet18", (3, 32, 32), 10), True),
        (build_model("lstm", (3, 4), 10), True),
        (Own(), False),
        (nn.Sequential(Own()), False),
        (type("OwnSequential", (nn.Sequential,), {})(nn.Linear(4, 3)), False),
        (nn.Sequential(patched()), False),
        (hooked(), False),
    ],
)
def test_only_code_of_torch_and_of_ours_sees_batches(module: nn.Module, known: bool) -> None:
    assert is_of_torch(module) is known


@pytest.mark.parametrize("name", ["lenet5", "cnn_mapa"])
def test_both_passes_find_the_same(name: str) -> None:
    module = build_model(name, (1, 16, 16), 5).double()
    parts, model = flat_parameters(module)
    network = Network(module, parts, LOSSES["cross_entropy"])
    generator = np.random.default_rng(0)
    features = torch.from_numpy(generator.standard_normal((6, 1, 16, 16)))
    targets = torch.from_numpy(generator.integers(0, 5, 6))
    one: dict[str, list[LayerCall]] = {}
    other: dict[str, list[LayerCall]] = {}
    BatchPass(network.twin())(torch.from_numpy(model), features, targets, one.__setitem__)
    alone = VectorisedPass(network.twin(), stacked=False)
    alone(torch.from_numpy(model), features[:, None], targets[:, None], other.__setitem__)
    assert list(one) == list(other)[::-1]
    for name_of_layer in one:
        for mine, theirs in zip(one[name_of_layer], other[name_of_layer], strict=True):
            assert torch.allclose(mine.inputs, theirs.inputs, rtol=1e-10, atol=1e-14)
            assert torch.allclose(mine.gradients, theirs.gradients, rtol=1e-10, atol=1e-14)


def test_code_of_ones_own_is_computed_layer_by_layer() -> None:
    """Against one example at a time, where a layer sees several rows of one example."""
    module, shape = Own(), (5, 6, 6)
    generator = np.random.default_rng(0)
    data = Split(generator.standard_normal((7, *shape)).astype(np.float32), generator.integers(0, 3, 7))
    torch_module = TorchModule(module.double())
    model = torch_module.initial(generator)
    found = torch_module.clipped_gradients(model[None], data, [np.arange(7)], 0.1)
    expected = clipped_sum(module, model, data.features, data.targets, 0.1).total
    assert np.allclose(found.sums[0], expected, rtol=1e-10, atol=1e-12)
    assert torch_module.plan(data).strategy == "layers"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_module_that_writes_over_its_examples_is_computed_layer_by_layer(dtype: torch.dtype) -> None:
    """What one way has made of made-up examples is not what another is shown."""
    module = nn.Sequential(nn.LeakyReLU(0.3, inplace=True), nn.Linear(4, 3)).to(dtype)
    objective = TorchModule(module)
    features = np.random.default_rng(0).standard_normal((7, 4)).astype(str(dtype)[6:])
    assert objective.plan(Split(features, np.arange(7) % 3)).strategy == "layers"


def test_outputs_that_are_changed_in_place_keep_their_own_gradients() -> None:
    """Also those of a first layer, before which nothing has a gradient, and of a layer that is there twice."""
    twice = nn.Linear(6, 6)
    layers = [nn.Linear(4, 6), nn.ReLU(inplace=True), twice, nn.Tanh(), twice, nn.Hardtanh(inplace=True)]
    module = nn.Sequential(*layers, nn.Unflatten(1, (6, 1)), nn.Flatten(), nn.Linear(6, 3)).double()
    generator = np.random.default_rng(0)
    data = Split(generator.standard_normal((7, 4)), generator.integers(0, 3, 7))
    torch_module = TorchModule(module, strategy="layers")
    model = torch_module.initial(generator)
    found = torch_module.clipped_gradients(model[None], data, [np.arange(7)], 0.1)
    expected = clipped_sum(module, model, data.features, data.targets, 0.1).total
    assert np.allclose(found.sums[0], expected, rtol=1e-10, atol=1e-12)
