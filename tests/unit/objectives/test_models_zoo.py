"""The networks: sizes as published, and one private step each."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch
from tests.reference.torch_slow import clipped_sum
from torch import nn

from gossamer.data.examples import Split
from gossamer.errors import ModelError
from gossamer.objectives.models import MODELS, build_model
from gossamer.objectives.models.images import scaled
from gossamer.objectives.models.small import LSTM, LstmDirection
from gossamer.objectives.networks.module import TorchModule

FRAMES = (21, 260)

# A(DP)2SGD, table 2: sizes in MB (2^20 bytes) of float32 models with 10 classes, and 32,000 for the LSTM.
TABLE_2 = {
    "shufflenet": 4.82,
    "mobilenetv2": 8.76,
    "efficientnet_b0": 11.11,
    "mobilenet": 12.27,
    "googlenet": 23.53,
    "resnext29": 34.82,
    "resnet18": 42.63,
    "senet18": 42.95,
    "vgg19": 76.45,
    "lstm": 164.62,
}


def parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize("name", TABLE_2)
def test_sizes_are_those_of_table_2(name: str) -> None:
    """To half a percent."""
    with torch.device("meta"):  # shapes alone
        module = build_model(name, FRAMES, 32_000) if name == "lstm" else build_model(name, (3, 32, 32), 10)
    assert parameters(module) * 4 / 2**20 == pytest.approx(TABLE_2[name], rel=0.005)


def test_sizes_of_the_small_networks() -> None:
    """Weights and biases, layer by layer; 199,210 and 61,706 are also the published numbers."""
    count = {name: parameters(build_model(name, (1, 28, 28), 10)) for name in ("mlp", "lenet5", "cnn_mapa")}
    assert count["mlp"] == 785 * 200 + 201 * 200 + 201 * 10 == 199_210
    assert count["lenet5"] == 26 * 6 + 151 * 16 + 401 * 120 + 121 * 84 + 85 * 10 == 61_706
    assert count["cnn_mapa"] == 26 * 10 + 251 * 10 + 161 * 10 == 4_380


SMALL = {
    "mlp": (partial(MODELS["mlp"], hidden=(6, 5)), (2, 3)),
    "lenet5": (MODELS["lenet5"], (1, 12, 13)),
    "cnn_mapa": (MODELS["cnn_mapa"], (1, 16, 17)),
    "lstm": (partial(LSTM, layers=2, cells=4, projection=3), (5, 6)),
    **{name: (partial(MODELS[name], width=1 / 16), (3, 32, 32)) for name in TABLE_2 if name != "lstm"},
}


def two_examples(shape: tuple[int, ...], classes: int = 10) -> Split:
    generator = np.random.default_rng(0)
    return Split(generator.standard_normal((2, *shape)).astype(np.float32), generator.integers(0, classes, 2))


def check_private_step(torch_module: TorchModule, data: Split) -> None:
    """Both gradients are finite, longer than the clip, and hence of the clip's length afterwards."""
    models = torch_module.initial(np.random.default_rng(1))[None].repeat(3, axis=0)
    batches = [np.array([0]), np.array([1]), np.array([0, 1])]
    clip = 1e-3
    found = torch_module.clipped_gradients(models, data, batches, clip)
    assert found.zeroed.tolist() == [0, 0, 0]
    first, second, both = found.sums.astype(np.float64)
    assert np.linalg.norm(first) == pytest.approx(clip, rel=1e-5)
    assert np.linalg.norm(second) == pytest.approx(clip, rel=1e-5)
    # A ReLU within rounding of zero may fall to either side of it.
    assert np.linalg.norm(both - first - second) <= 1e-2 * clip
    assert torch_module.plan(data).strategy in ("compiled", "layers")
    stepped = models[:1] - 0.1 * both
    assert math.isfinite(torch_module.evaluate(stepped, data).loss[0])


@pytest.mark.some(3)
@pytest.mark.parametrize("name", SMALL)
def test_a_private_step_of_each_network_at_a_small_width(name: str) -> None:
    """In float64, where gradients can also be compared with a loop over single examples."""
    build, shape = SMALL[name]
    module, data = build(shape, 10).double(), two_examples(shape)
    torch_module = TorchModule(module)
    check_private_step(torch_module, data)
    model = torch_module.initial(np.random.default_rng(1))
    found = torch_module.clipped_gradients(model[None], data, [np.arange(2)], 0.5)
    expected = clipped_sum(module, model, data.features, data.targets, 0.5).total
    assert np.abs(found.sums[0] - expected).max() <= 1e-10


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLE_2)
def test_a_private_step_of_each_network_at_full_size(name: str) -> None:
    shape, classes = (FRAMES, 32_000) if name == "lstm" else ((3, 32, 32), 10)
    check_private_step(TorchModule(build_model(name, shape, classes)), two_examples(shape, classes))


def test_a_direction_computes_what_torch_does() -> None:
    """`torch.nn.LSTM` orders its gates input, forget, cell, output, as here."""
    ours = {way: LstmDirection(3, 4, backwards=way == "_reverse").double() for way in ("", "_reverse")}
    theirs = nn.LSTM(3, 4, batch_first=True, bidirectional=True).double()
    for way, direction in ours.items():
        for kind, layer in (("ih", direction.from_input), ("hh", direction.from_state)):
            layer.weight.data = getattr(theirs, f"weight_{kind}_l0{way}").data
            layer.bias.data = getattr(theirs, f"bias_{kind}_l0{way}").data
    frames = torch.linspace(-1, 1, 2 * 5 * 3, dtype=torch.float64).reshape(2, 5, 3)
    found = torch.cat([direction(frames) for direction in ours.values()], dim=2)
    assert torch.allclose(found, theirs(frames)[0], rtol=1e-12, atol=1e-14)


def test_scores_of_every_frame() -> None:
    """Those of the middle frame are the same, and the size does not change."""
    made = [LSTM((5, 3), 7, layers=2, cells=4, projection=2, every=every) for every in (False, True)]
    made[1].load_state_dict(made[0].state_dict())
    frames = torch.linspace(-1, 1, 2 * 5 * 3).reshape(2, 5, 3)
    middle, every = (module(frames) for module in made)
    assert every.shape == (2, 5, 7)
    assert torch.allclose(every[:, 2], middle)


def test_full_width_keeps_every_number_of_channels() -> None:
    """All numbers of channels in the papers' tables are multiples of 4."""
    assert [scaled(channels, 1.0) for channels in (4, 24, 116, 208, 1280)] == [4, 24, 116, 208, 1280]
    assert scaled(116, 0.5) == 56
    assert scaled(16, 0.01) == 4


@pytest.mark.parametrize("name", [name for name in MODELS if name not in ("mlp", "lstm")])
def test_networks_for_images_refuse_other_examples(name: str) -> None:
    with pytest.raises(ModelError, match=rf"{name} takes images \[channels, height, width\].*found .* shape \[784\]"):
        build_model(name, (784,), 10)


def test_images_that_are_too_small_are_refused() -> None:
    with pytest.raises(
        ModelError, match=r"cnn_mapa takes .* at least 16 x 16 pixels, found examples of shape \[1, 8, 8\]"
    ):
        build_model("cnn_mapa", (1, 8, 8), 10)


def test_the_lstm_refuses_images() -> None:
    with pytest.raises(ModelError, match=r"lstm takes sequences \[frames, features\], found .* \[1, 8, 8\]"):
        build_model("lstm", (1, 8, 8), 10)
