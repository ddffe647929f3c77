"""Modules that cannot be trained privately are refused; those that need care are computed the careful way."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from tests.reference.torch_slow import clipped_sum
from torch import Tensor, nn

from gossamer.data.split import Split
from gossamer.errors import ModelError
from gossamer.objectives.torch_module import TorchModule


def data(count: int = 5) -> Split:
    generator = np.random.default_rng(0)
    return Split(generator.standard_normal((count, 4)).astype(np.float32), generator.integers(0, 3, count))


class Wrapped(nn.Module):
    """A linear layer whose output goes through a function."""

    def __init__(self, layer: nn.Module, function: object = torch.relu) -> None:
        super().__init__()
        self.layer = layer
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.layer(x))  # type: ignore[operator]


class Tied(nn.Module):
    """Two layers with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.out = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.tanh(self.second(torch.tanh(self.first(x)))))


class Elsewhere(nn.Module):
    """Uses a layer's weight without calling the layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + x @ self.layer.weight.T.square()


class Bare(nn.Module):
    """A parameter of its own beside a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * self.scale


class Overwrites(nn.Module):
    """Changes a layer's input after the layer used it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = x.clone()
        scores = self.layer(x)
        x *= 3.0
        return scores


CAREFUL = {
    "tied weights": Tied(),
    "a weight used elsewhere": Elsewhere(),
    "a parameter of its own": Bare(),
    "a softmax over the batch": nn.Sequential(nn.Linear(4, 3), nn.Softmax(0), nn.Linear(3, 3)),
    "a subclass": type("Own", (nn.Linear,), {"forward": lambda self, x: 2 * nn.Linear.forward(self, x)})(4, 3),
}


@pytest.mark.parametrize("name", CAREFUL)
def test_what_layers_cannot_do_falls_back_and_stays_right(name: str) -> None:
    """Against one example at a time. With a softmax over the batch this is the only meaning there is."""
    module = CAREFUL[name].double()
    torch_module = TorchModule(module, pretrained=True)
    model = torch_module.initial(np.random.default_rng(0))
    found = torch_module.clipped_gradients(model[None], data(), [np.arange(5)], 0.5)
    expected = clipped_sum(module, model, data().features, data().targets, 0.5).total
    assert np.allclose(found.sums[0], expected, rtol=1e-10, atol=1e-12)
    assert torch_module.plan(data()).strategy == "threads"
    with pytest.raises(ModelError, match=r"strategy 'layers' cannot be used, since .*; choose 'auto'"):
        TorchModule(module, strategy="layers").evaluate(model[None], data())


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (nn.BatchNorm1d(4), r"layer '1' \(BatchNorm1d\) mixes the examples of a batch.*use torch.nn.GroupNorm instead"),
        (nn.Sequential(nn.BatchNorm2d(4)), r"layer '1.0' \(BatchNorm2d\)"),
        (nn.SyncBatchNorm(4), r"layer '1' \(SyncBatchNorm\)"),
        (nn.LazyBatchNorm1d(), r"layer '1' \(LazyBatchNorm1d\)"),
        (nn.InstanceNorm1d(4, track_running_stats=True), r"layer '1' \(InstanceNorm1d\)"),
    ],
)
def test_layers_that_mix_examples_are_refused(layer: nn.Module, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        TorchModule(nn.Sequential(nn.Linear(4, 4), layer))


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.Flatten(), "Flatten has no parameter to train"),
        (nn.Linear(2, 2).requires_grad_(False), "Linear has no parameter to train"),
        (nn.Linear, "expected a torch.nn.Module, found type"),
        (nn.LazyLinear(2), "parameter 'weight' has no shape yet"),
        (nn.Linear(2, 2).half(), r"all float32 or all float64, found torch.float16; convert with .float\(\)"),
        (nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double()), "found torch.float32, torch.float64"),
        (nn.Linear(2, 2, dtype=torch.complex64), "found torch.complex64"),
    ],
)
def test_modules_that_cannot_be_trained(module: nn.Module, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        TorchModule(module)


def test_instance_norm_without_statistics_is_fine() -> None:
    TorchModule(nn.Sequential(nn.InstanceNorm1d(4, affine=True), nn.Flatten(), nn.Linear(8, 3)))


def test_dropout_is_switched_off_with_a_warning() -> None:
    layers = nn.Linear(4, 3), nn.Dropout(0.5)
    with pytest.warns(UserWarning, match=r"dropout is switched off \(in 1\)"):
        torch_module = TorchModule(nn.Sequential(*layers))
    model = torch_module.initial(np.random.default_rng(0))[None]
    plain = TorchModule(layers[0])
    found, expected = (it.clipped_gradients(model, data(), [np.arange(5)], 1.0).sums for it in (torch_module, plain))
    assert np.array_equal(found, expected)


def test_dropout_of_nothing_needs_no_warning() -> None:
    TorchModule(nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.0)))


@pytest.mark.parametrize(
    "module",
    [
        Wrapped(nn.Linear(4, 3), lambda y: y * torch.rand(())),
        Wrapped(nn.Linear(4, 3), lambda y: y if y.sum() > 0 else -y),
        Wrapped(nn.Linear(4, 3), lambda y: y * float(y.detach().abs().max())),
        Overwrites(),
    ],
    ids=["random numbers", "a branch on data", "a number of the batch", "an input overwritten"],
)
def test_what_torch_cannot_differentiate_one_example_at_a_time_is_refused(module: nn.Module) -> None:
    state = torch.random.get_rng_state()
    torch_module = TorchModule(module)
    with pytest.raises(ModelError, match=r"torch\.func cannot differentiate the module one example at a time: Runtime"):
        torch_module.clipped_gradients(np.zeros((1, 15), np.float32), data(), [np.arange(5)], 1.0)
    assert torch.equal(torch.random.get_rng_state(), state)


_WITHOUT_TORCH = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")

sys.meta_path.insert(0, Missing())
import gossamer.objectives.
"""


def test_without_torch_one_line_says_how_to_install_it() -> None:
    for name in ("torch_module", "models"):
        code = _WITHOUT_TORCH.strip() + name
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        last = found.stderr.strip().splitlines()[-1]
        assert "CallerError: PyTorch modules need the optional package torch" in last
        assert '-m pip install "torch>=' in last


_PROGRAM = """
import hashlib, numpy as np
from gossamer.data.split import Split
from gossamer.objectives.models import build_model
from gossamer.objectives.torch_module import TorchModule

generator = np.random.default_rng(0)
data = Split(generator.standard_normal((70, 1, 28, 28)).astype(np.float32), generator.integers(0, 10, 70))
digest = hashlib.sha256()
for strategy in ("layers", "threads", "vmap"):
    objective = TorchModule(build_model("cnn_mapa", (1, 28, 28), 10), strategy=strategy)
    models = np.stack([objective.initial(np.random.default_rng(seed)) for seed in range(2)])
    for batches in ([np.arange(70), np.arange(5)], [np.arange(60)]):  # with worker threads, and without
        found = objective.clipped_gradients(models[: len(batches)], data, batches, 0.5)
        digest.update(found.sums.tobytes())
    digest.update(objective.evaluate(models, data).loss.tobytes())
print(digest.hexdigest())
"""


@pytest.mark.slow
def test_bytes_do_not_depend_on_the_number_of_threads_in_the_environment() -> None:
    found = {
        subprocess.run(
            [sys.executable, "-c", _PROGRAM],
            env={**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for threads in ("1", "4")
    }
    assert len(found) == 1
