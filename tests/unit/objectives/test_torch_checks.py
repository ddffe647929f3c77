"""Modules that cannot be trained privately are refused; those that need care are computed the careful way."""

from __future__ import annotations

import linecache
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.reference.torch_slow import clipped_sum
from torch import Tensor, nn
from torch.nn.utils import parametrizations, spectral_norm
from torch.nn.utils import weight_norm as old_weight_norm

from gossamer.data.examples import Split
from gossamer.errors import DataError, ModelError
from gossamer.objectives.models import made
from gossamer.objectives.networks.module import TorchModule


def data(count: int = 5) -> Split:
    generator = np.random.default_rng(0)
    return Split(generator.standard_normal((count, 4)).astype(np.float32), generator.integers(0, 3, count))


class Wrapped(nn.Module):
    """A linear layer whose output goes through a function."""

    def __init__(self, layer: nn.Module, function: Any = torch.relu, first: Any = lambda x: x) -> None:
        super().__init__()
        self.layer = layer
        self.function = function
        self.first = first

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.layer(self.first(x)))


class Sign(torch.autograd.Function):
    """A step with a slope, as older code writes it: torch.func has no rule for it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.sign()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return gradient * (x.abs() < 1)


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


class Aside(nn.Module):
    """Uses a weight elsewhere, as much as the number that the same weight began with: past what a call is given."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.kept = [self.layer.weight]

    def forward(self, x: Tensor) -> Tensor:
        scale = self.kept[0].detach()[0, 0] if len(x) else 1.0  # which no graph can hold
        return self.layer(x) + x @ self.layer.weight.T * scale


CAREFUL = {
    "tied weights": Tied(),
    "a weight used elsewhere by its own first number": Aside(),
    "a weight used elsewhere": Elsewhere(),
    "a parameter of its own": Bare(),
    "a subclass": type("Own", (nn.Linear,), {"forward": lambda self, x: 2 * nn.Linear.forward(self, x)})(4, 3),
}


@pytest.mark.parametrize("name", CAREFUL)
def test_what_layers_cannot_do_falls_back_and_stays_right(name: str) -> None:
    """Against one example at a time."""
    module = CAREFUL[name].double()
    torch_module = TorchModule(module, pretrained=True)
    model = torch_module.initial(np.random.default_rng(0))
    found = torch_module.clipped_gradients(model[None], data(), [np.arange(5)], 0.5)
    expected = clipped_sum(module, model, data().features, data().targets, 0.5).total
    assert np.allclose(found.sums[0], expected, rtol=1e-10, atol=1e-12)
    assert torch_module.plan(data()).strategy == "threads"
    with pytest.raises(ModelError, match=r"strategy 'layers' cannot be used, since (?!.*Error).*; choose 'auto'"):
        TorchModule(module, strategy="layers").evaluate(model[None], data())


def test_a_module_that_could_become_a_graph_is_named_as_its_owner_wrote_it() -> None:
    with pytest.raises(ModelError, match=r"since layer '' \(Bare\) has no rule of its own; choose 'auto'"):
        TorchModule(Bare(), strategy="layers").plan(data())


GROUP_NORM = "so no example has a gradient of its own; use torch.nn.GroupNorm instead"


class Centres(nn.Module):
    """A batch norm that nobody would know by its name."""

    def __init__(self, *, training: bool) -> None:
        super().__init__()
        self.only_in_training = training

    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(0) if self.training or not self.only_in_training else x


class Draws(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.layer, self.function = nn.Linear(4, 3), function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.layer(x))


class FirstBatch(nn.Module):
    """Scales by the first batch that it sees, as some normalisations begin."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.holder: list[Any] = []

    def forward(self, x: Tensor) -> Tensor:
        if not self.holder:
            self.holder.append({"mean": x.detach().mean()})
        return self.layer(x - self.holder[0]["mean"])


class Table(nn.Module):
    """Keeps a table of positions for the shape of its examples, as attention layers do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.table = nn.Linear(4, 3), None

    def forward(self, x: Tensor) -> Tensor:
        if self.table is None:
            self.table = torch.linspace(0, 1, x.shape[1])
        return self.layer(x + self.table)


class Scaled(nn.Module):
    """A temperature, which has no axis."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.temperature = nn.Linear(4, 3), nn.Parameter(torch.tensor(0.5))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * self.temperature.exp()


def between(layer: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), layer, nn.Flatten(), nn.Linear(4, 3))


REFUSED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "a batch norm": (
        lambda: between(nn.BatchNorm1d(4)),
        rf"layer '1' \(BatchNorm1d\) mixes .* in training mode, {GROUP_NORM}",
    ),
    "inside": (lambda: between(nn.Sequential(nn.BatchNorm1d(4))), r"layer '1.0' \(BatchNorm1d\) mixes"),
    "over machines": (lambda: between(nn.SyncBatchNorm(4)), r"layer '1' \(SyncBatchNorm\) mixes"),
    "without statistics": (
        lambda: between(nn.BatchNorm1d(4, track_running_stats=False)).eval(),
        "takes several examples, but not one alone; use torch.nn.GroupNorm for what mixes them",
    ),
    "one of one's own": (
        lambda: between(Centres(training=True)),
        r"layer '1' \(Centres\) mixes .* in training mode.*or call .eval\(\) on it before",
    ),
    "one of one's own, always": (
        lambda: between(Centres(training=False)).eval(),
        rf"layer '1' \(Centres\) mixes the examples of a batch, {GROUP_NORM}$",
    ),
    "a softmax over the batch": (lambda: between(nn.Softmax(0)), r"layer '1' \(Softmax\) mixes the examples"),
    "a number of the batch": (
        lambda: Wrapped(nn.Linear(4, 3), lambda y: y / float(y.detach().abs().max())),
        "the module mixes",
    ),
    "instances' statistics": (
        lambda: between(nn.Sequential(nn.Unflatten(1, (2, 2)), nn.InstanceNorm1d(2, track_running_stats=True))),
        r"changes itself in training mode \(1.1.running_mean\), .*; call .eval\(\) on it before",
    ),
    "the first batch": (FirstBatch, r"the module changes itself while it runs \(holder.0.mean\)"),
    "torch's random numbers": (
        lambda: Draws(lambda y: y * torch.rand(())),
        "draws random numbers, in evaluation mode too",
    ),
    "dropout that is always on": (lambda: Draws(nn.functional.dropout).eval(), "or to training: F.dropout"),
    "numpy's random numbers": (lambda: Draws(lambda y: y + np.random.normal()), "draws random numbers"),
    "one example only": (
        lambda: Wrapped(nn.Linear(4, 3), lambda y: y.view(1, 3)),
        "takes one example, but not 3 at once",
    ),
    "an input overwritten": (Overwrites, "no gradient of one example alone: it changes an array in place"),
    "no way back": (
        lambda: Wrapped(nn.Linear(4, 3), lambda y: y.tolist() and y.detach().numpy()),
        "must return scores",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.filterwarnings("ignore:dropout is switched off")
def test_what_has_no_gradient_of_its_own_is_refused_in_words_of_ours(case: str) -> None:
    make, said = REFUSED[case]
    objective = TorchModule(make())
    state = torch.random.get_rng_state()
    with pytest.raises(ModelError, match=said) as caught:
        objective.plan(data())
    assert torch.equal(torch.random.get_rng_state(), state)
    assert not re.search(r"vmap|torch\.func|Error|mat1", str(caught.value))


@pytest.mark.parametrize("seed", [1, 42])
def test_a_number_that_the_first_example_sets_for_all_is_seen_at_the_others(seed: int) -> None:
    """With these weights the first of the examples that are tried has the largest answer, and keeps its own."""
    make, said = REFUSED["a number of the batch"]
    torch.manual_seed(seed)
    with pytest.raises(ModelError, match=said):
        TorchModule(make()).plan(data())


TAKEN: dict[str, Callable[[], nn.Module]] = {
    "a frozen batch norm": lambda: between(nn.BatchNorm1d(4)).eval(),
    "an own one, frozen": lambda: between(Centres(training=True)).eval(),
    "frozen statistics of instances": lambda: between(
        nn.Sequential(nn.Unflatten(1, (2, 2)), nn.InstanceNorm1d(2, track_running_stats=True))
    ).eval(),
    "a table by shape": Table,
    "a number as a parameter": Scaled,
    "float32 by name": lambda: Wrapped(nn.Linear(4, 3), lambda y: y.float() @ torch.diag(torch.linspace(0.5, 1.0, 3))),
    "a choice by numbers": lambda: Wrapped(
        nn.Linear(4, 3), lambda y: torch.stack([r if r.sum() > 0 else -r for r in y])
    ),
    "a number as a number": lambda: Wrapped(
        nn.Linear(4, 3), lambda y: torch.stack([r / (1 + float(r.detach().abs().max())) for r in y])
    ),
    "an autograd function without a rule": lambda: Wrapped(nn.Linear(4, 3), Sign.apply),
    "whole numbers, one-hot": lambda: Wrapped(
        nn.Linear(20, 3), lambda y: y, lambda x: nn.functional.one_hot(x.abs().clamp(0, 4).long(), 5).flatten(1).float()
    ),
}


@pytest.mark.parametrize("case", TAKEN)
def test_what_treats_each_example_by_itself_is_trained_exactly(case: str) -> None:
    """Against an ordinary backward pass of each example; none of these was taken once."""
    torch.manual_seed(0)
    module = TAKEN[case]()
    before = {name: values.clone() for name, values in module.state_dict().items()}
    objective = TorchModule(module, pretrained=True)
    model = objective.initial(np.random.default_rng(0))
    found = objective.clipped_gradients(model[None], data(), [np.arange(5)], 0.5)
    expected = clipped_sum(module.eval(), model, data().features, data().targets, 0.5).total
    assert np.allclose(found.sums[0], expected, rtol=1e-4, atol=1e-6)
    assert np.isfinite(objective.evaluate(model[None], data()).loss).all()
    assert all(torch.equal(before[name], values) for name, values in module.state_dict().items())


def test_where_torch_has_no_way_over_many_examples_a_run_says_so() -> None:
    objective = TorchModule(Wrapped(nn.Linear(4, 3), Sign.apply))
    objective.plan(data())
    said = objective.computing().remark
    assert said is not None
    assert said.startswith("network: torch.func cannot vectorise the module (line ")
    assert said.endswith("so gradients are computed by strategy 'loop'")
    for other in (objective.steady(), TorchModule(Wrapped(nn.Linear(4, 3), Sign.apply), strategy="threads")):
        with pytest.raises(ModelError, match="in the same way whatever an example's numbers are"):
            other.plan(data())


def test_examples_that_code_fails_on_are_told_in_words_of_ours() -> None:
    """Of code that torch.func cannot vectorise before it is trained, of all else where it fails."""
    examples, table = data(), torch.eye(4)
    examples.features[3, 0] = 7.0
    looped = Wrapped(nn.Linear(4, 3), lambda y: y, lambda x: nn.functional.one_hot(x[:, 0].abs().long(), 4).float())
    TorchModule(looped).plan(data())
    with pytest.raises(DataError, match=r"fails on some examples of the data \(line \d+ of test_torch_checks.py\)"):
        TorchModule(looped).plan(examples)
    vectorised = TorchModule(Wrapped(nn.Linear(4, 3), lambda y: y, lambda x: table[x[:, 0].abs().long()]))
    with pytest.raises(ModelError, match=r"fails on some examples \(line \d+ of test_torch_checks.py\)"):
        vectorised.clipped_gradients(np.zeros((1, 15), np.float32), examples, [np.arange(5)], 1.0)


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


NORMED: dict[str, tuple[Callable[..., nn.Module], str]] = {
    "spectral_norm": (parametrizations.spectral_norm, "layer '0' has torch's spectral_norm, whose vectors change with"),
    "spectral_norm of hooks": (
        spectral_norm,
        "layer '0' has torch's .*spectral_norm of torch.nn.utils, .* is no param",
    ),
    "weight_norm of hooks": (
        old_weight_norm,
        "layer '0' has torch's weight_norm .* of torch.nn.utils, .*; take that of",
    ),
}


@pytest.mark.parametrize("case", NORMED)
@pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated")
def test_weights_that_each_pass_makes_anew_are_refused_by_their_name(case: str) -> None:
    normed, said = NORMED[case]
    module = nn.Sequential(normed(nn.Linear(4, 3)))
    for make in (lambda: TorchModule(module), lambda: made(module, (4,), 3)):
        with pytest.raises(ModelError, match=said):
            make()


@pytest.mark.parametrize("normed", [parametrizations.weight_norm, parametrizations.orthogonal])
def test_weights_that_parameters_alone_make_have_the_gradients_of_single_examples(
    normed: Callable[[nn.Module], nn.Module],
) -> None:
    module = nn.Sequential(normed(nn.Linear(4, 3)))
    objective = TorchModule(module)
    model = objective.initial(np.random.default_rng(0))
    found = objective.clipped_gradients(model[None], data(), [np.arange(5)], 0.5)
    expected = clipped_sum(module, model, data().features, data().targets, 0.5).total
    assert np.allclose(found.sums[0], expected, rtol=1e-4, atol=1e-6)


class SpectralNorm(nn.Module):
    """A layer of the user's, called as one of torch's hooks."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


def test_a_users_layer_is_not_taken_for_that_of_torch_with_its_name() -> None:
    objective = TorchModule(nn.Sequential(SpectralNorm()))
    model = objective.initial(np.random.default_rng(0))
    assert objective.clipped_gradients(model[None], data(), [np.arange(5)], 0.5).sums.any()


def test_a_package_whose_name_begins_as_torchs_does_says_itself_what_is_wrong() -> None:
    names: dict[str, type[nn.Module]] = {}
    code = "class Sized(Module):\n def forward(self, x):\n  raise ValueError('pictures of 224 pixels')"
    exec(compile(code, f"{Path(torch.__file__).parent}vision/sized.py", "exec"), {"Module": nn.Module}, names)
    linecache.cache[f"{Path(torch.__file__).parent}vision/sized.py"] = (0, None, code.splitlines(True), "")
    module = nn.Sequential(nn.Linear(4, 3), names["Sized"]())
    with pytest.raises(ModelError, match=r"ValueError: pictures of 224 pixels$"):
        TorchModule(module).plan(data())


class Wrong(nn.Module):
    """Fails by one of several ways, each on a line of its own."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.layer, self.how = nn.Linear(4, 3), how

    def forward(self, x: Tensor) -> Tensor:
        if self.how == "raise":
            raise ValueError("five features are needed")
        if self.how == "name":
            return self.lair(x)
        if self.how == "library":
            return torch.as_tensor(np.asarray(x).reshape(7, 7))
        return self.layer(x.reshape(-1, 2))


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (
            "raise",
            r'ValueError: five features are needed, in line \d+ of test_torch_checks.py: raise ValueError\("five',
        ),
        ("name", r"AttributeError: .*'lair', in line \d+ of test_torch_checks.py: return self.lair\(x\)$"),
        ("library", r": line \d+ of test_torch_checks.py: return torch.as_tensor\(np.asarray\(x\).reshape\(7, 7\)\)$"),
        ("layer", r"is given \[2, 2\], in line \d+ of test_torch_checks.py: return self.layer\(x.reshape\(-1, 2\)\)$"),
    ],
)
def test_an_error_inside_forward_is_told_with_its_file_line_and_code(how: str, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        TorchModule(Wrong(how)).plan(data())


def test_instance_norm_without_statistics_is_fine() -> None:
    TorchModule(nn.Sequential(nn.InstanceNorm1d(4, affine=True), nn.Flatten(), nn.Linear(8, 3)))


def test_dropout_is_switched_off_with_a_warning() -> None:
    layers = nn.Linear(4, 3), nn.Dropout(0.5)
    torch_module = TorchModule(nn.Sequential(*layers))
    with pytest.warns(UserWarning, match="dropout is switched off"):
        torch_module.plan(data())
    model = torch_module.initial(np.random.default_rng(0))[None]
    plain = TorchModule(layers[0])
    found, expected = (it.clipped_gradients(model, data(), [np.arange(5)], 1.0).sums for it in (torch_module, plain))
    assert np.array_equal(found, expected)


def test_dropout_of_nothing_needs_no_warning() -> None:
    TorchModule(nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.0)))


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
    for name in ("networks.module", "models"):
        code = _WITHOUT_TORCH.strip() + name
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        last = found.stderr.strip().splitlines()[-1]
        assert "CallerError: PyTorch modules need the optional package torch" in last
        assert '-m pip install "torch>=' in last


_PROGRAM = """
import hashlib, numpy as np
from gossamer.data.examples import Split
from gossamer.objectives.models import build_model
from gossamer.objectives.networks.module import TorchModule

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
