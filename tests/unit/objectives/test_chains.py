"""Compiled chains against plain autograd, one example at a time, and what is done with their machine code."""

from __future__ import annotations

import os
import py_compile
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra torch")

import torch
from torch import nn
from torch.nn import functional as F

from gossamer.data.examples import Split
from gossamer.errors import ModelError
from gossamer.objectives.chains import compiled
from gossamer.objectives.networks.kernel import Unknown, chain_of
from gossamer.objectives.networks.module import TorchModule
from gossamer.objectives.networks.network import flat_parameters
from gossamer.objectives.objective import (
    LocalRound,
    Minibatches,
    Objective,
    Training,
    clipped_descent,
    momentum_descent,
)

MODULES = {
    "pooled": (
        lambda: nn.Sequential(
            *(
                nn.Conv2d(2, 3, 3, padding=1),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Conv2d(3, 4, 3),
                nn.MaxPool2d(2),
                nn.Tanh(),
            ),
            *(nn.Flatten(), nn.Linear(16, 5)),
        ),
        (2, 12, 12),
    ),
    "dense": (
        lambda: nn.Sequential(
            *(nn.Sequential(nn.Conv2d(2, 4, 3, bias=False), nn.GroupNorm(2, 4), nn.Sigmoid()), nn.AvgPool2d(2)),
            *(nn.Conv2d(4, 3, 2), nn.ReLU(), nn.Identity(), nn.MaxPool2d(2, 1), nn.Flatten(), nn.Linear(12, 5)),
        ),
        (2, 10, 10),
    ),
    "flat": (
        lambda: nn.Sequential(
            nn.Flatten(), nn.Linear(18, 7), nn.ReLU(), nn.Linear(7, 6, bias=False), nn.Tanh(), nn.Linear(6, 5)
        ),
        (2, 3, 3),
    ),
    "wide": (
        lambda: nn.Sequential(
            nn.Flatten(), nn.Linear(200, 170), nn.ReLU(), nn.Linear(170, 200, bias=False), nn.Tanh(), nn.Linear(200, 5)
        ),
        (2, 10, 10),
    ),
}


# A network takes seconds to compile; two have all kinds of kernels: in loops, in blocks, and of images.
@pytest.fixture(
    scope="module",
    params=[*("pooled", "wide"), *(pytest.param(one, marks=pytest.mark.slow) for one in ("dense", "flat"))],
)
def objective(request: pytest.FixtureRequest) -> TorchModule:
    make, _ = MODULES[request.param]
    torch.manual_seed(1)
    return TorchModule(make(), strategy="compiled", l2=0.01, threads=2)


@pytest.fixture
def data(objective: TorchModule) -> Split:
    shape = next(shape for make, shape in MODULES.values() if str(make()) == str(objective.network.module))
    generator = np.random.default_rng(3)
    return Split(generator.standard_normal((90, *shape), dtype=np.float32), generator.integers(0, 5, 90))


def models(objective: TorchModule, width: int) -> np.ndarray:
    return np.stack([objective.initial(np.random.default_rng(k)) for k in range(width)])


def gradients(objective: TorchModule, model: np.ndarray, data: Split, rows: np.ndarray) -> np.ndarray:
    """Gradients [rows, size] by autograd in float64."""
    network = objective.network.double()
    found = []
    for row in rows:
        parameters = {
            name: value.requires_grad_() for name, value in network.parameters(torch.tensor(model).double()).items()
        }
        loss = network.losses(
            parameters, torch.tensor(data.features[[row]]).double(), torch.tensor(data.targets[[row]])
        ).sum()
        found.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(parameters.values()))]).numpy())
    return np.array(found)


@pytest.mark.some(4)
@pytest.mark.parametrize("clip", [0.4, np.inf])
def test_sums_equal_a_loop_over_single_examples(objective: TorchModule, data: Split, clip: float) -> None:
    """To float32's rounding: some 100 sums of up to 20 numbers follow one another."""
    (model,) = models(objective, 1)
    rows = np.array([3, 80, 3, 41, *range(30)])
    exact = gradients(objective, model, data, rows)
    norms = np.linalg.norm(exact, axis=1)
    between = np.unique(norms)[15:17]  # a clip that is some norm itself would be reached or not by rounding
    clip = clip if np.isinf(clip) else float(between.mean())
    expected = (exact * np.minimum(1, clip / norms)[:, None]).sum(0)
    found = objective.clipped_gradients(model[None], data, [rows], clip)
    assert np.linalg.norm(found.sums[0] - expected) < 2e-6 * np.linalg.norm(expected)
    assert found.unclipped[0] == (norms <= clip).sum()
    assert found.zeroed[0] == 0


def test_no_row_depends_on_its_company_nor_on_threads(objective: TorchModule, data: Split) -> None:
    some = models(objective, 3)
    batches = [np.arange(37), np.array([5]), np.array([], np.int64)]
    together = objective.clipped_gradients(some, data, batches, 0.5).sums
    one = TorchModule(objective.network.module, strategy="compiled", threads=1)
    for model, batch, total in zip(some, batches, together, strict=True):
        assert np.array_equal(one.clipped_gradients(model[None], data, [batch], 0.5).sums[0], total)
    assert not together[2].any()


def test_an_example_has_the_same_bits_beside_any_others(objective: TorchModule, data: Split) -> None:
    """Also beside one that is no number, which adds nothing."""
    (model,) = models(objective, 1)
    features = data.features.copy()
    features[7] = np.nan
    spoilt = Split(features, data.targets)
    alone = objective.clipped_gradients(model[None], data, [np.array([4])], 0.5)
    beside = objective.clipped_gradients(model[None], spoilt, [np.array([7, 4, 7])], 0.5)
    assert np.array_equal(alone.sums, beside.sums)
    assert beside.zeroed[0] == 2


@pytest.mark.parametrize("steady", [False, True])
def test_a_model_that_is_not_finite_gives_zero(objective: TorchModule, data: Split, steady: bool) -> None:
    bad = models(objective, 1)
    bad[0, -1] = np.nan
    found = (objective.steady() if steady else objective).clipped_gradients(bad, data, [np.arange(5)], 1.0)
    assert found.zeroed[0] == 5
    assert not found.sums.any()


def test_losses_and_accuracy_are_those_of_torch(objective: TorchModule, data: Split) -> None:
    some = models(objective, 2)
    losses, evaluation = objective.losses(some, data), objective.evaluate(some, data)
    network = objective.network
    for row, model in enumerate(some):
        outputs = network.outputs(network.parameters(torch.tensor(model)), torch.tensor(data.features)).detach()
        expected = F.cross_entropy(outputs, torch.tensor(data.targets), reduction="none").numpy()
        assert losses[row] == pytest.approx(expected, rel=1e-5, abs=1e-6)
        assert evaluation.loss[row] == pytest.approx(expected.mean(), rel=1e-6)
        assert evaluation.accuracy[row] == (outputs.argmax(1).numpy() == data.targets).mean()


def test_local_training_and_updates_are_those_of_any_objective(objective: TorchModule, data: Split) -> None:
    some, generator = models(objective, 2), np.random.default_rng(0)
    trainings = [
        Training(Minibatches(generator.choice(90, 21), np.array([5, 9, 7])), 0.3, 0.5, 0.1),
        Training(Minibatches(np.arange(4), np.array([4])), 0.1),
    ]
    found = objective.local_training(some, data, trainings)
    expected = Objective.descended(objective, some, data, momentum_descent(trainings, len(data)))
    assert found.updates == pytest.approx(expected.updates, rel=1e-4, abs=1e-6)
    batches = [generator.choice(90, (4, 6)), generator.choice(90, (2, 5))]
    rates, clips = np.array([0.5, 0.2]), np.array([0.7, np.inf])
    moved = objective.local_updates(some, data, batches, rates, clips)
    expected = Objective.descended(objective, some, data, clipped_descent(batches, rates, clips, len(data)))
    assert moved.updates == pytest.approx(expected.updates, rel=1e-4, abs=1e-6)
    assert not moved.not_finite.any()


def test_rounds_of_single_examples_are_those_of_any_objective(objective: TorchModule, data: Split) -> None:
    """Also of one whose model is swapped on the way."""
    some, generator = models(objective, 3), np.random.default_rng(0)
    rounds = [
        LocalRound(some[:2], np.array([0, 4]), generator.choice(90, 9), np.linspace(0.1, 0.3, 9), 0.2, 0.5),
        LocalRound(some[2:], np.array([0]), np.array([3]), np.array([0.1]), 1.0, np.inf),
    ]
    for given in rounds:
        found, expected = objective.local_steps(given, data), Objective.local_steps(objective, given, data)
        assert found.total == pytest.approx(expected.total, rel=1e-4, abs=1e-6)
        assert not found.zeroed


@pytest.mark.parametrize(
    ("module", "shape", "why"),
    [
        (
            nn.Sequential(nn.Conv2d(1, 2, 3, stride=2), nn.Flatten(), nn.Linear(8, 3)),
            (1, 5, 5),
            "'0' .Conv2d. has a stride",
        ),
        (nn.Sequential(nn.Linear(3, 3), nn.GELU(), nn.Linear(3, 2)), (3,), r"'1' \(GELU\) has no kernel"),
        (nn.Sequential(nn.Linear(3, 3), nn.ReLU()), (3,), "the last layer is no Linear"),
        (nn.Sequential(nn.Conv2d(1, 2, 3), nn.Linear(3, 2)), (1, 5, 5), "images that are not flattened"),
        (nn.Bilinear(3, 3, 2), (3,), r"Bilinear\) has no kernel"),
        (nn.Sequential(nn.Linear(4, 4)), (2, 4), "examples are of shape"),
    ],
)
def test_what_is_no_chain_is_named(module: nn.Module, shape: tuple[int, ...], why: str) -> None:
    with pytest.raises(Unknown, match=why):
        chain_of(module, shape, flat_parameters(module)[0])


def test_layers_that_are_shared_hooked_or_frozen_are_no_chain() -> None:
    shared = nn.Linear(3, 3)
    hooked = nn.Linear(3, 3)
    hooked.register_forward_hook(lambda *_: None)
    frozen = nn.Linear(3, 3)
    frozen.weight.requires_grad = False
    for layers in ([shared, shared], [hooked], [frozen]):
        module = nn.Sequential(*layers, nn.Linear(3, 2))
        with pytest.raises(Unknown, match="hooks or frozen"):
            chain_of(module, (3,), flat_parameters(module)[0])


def test_compiled_is_refused_where_there_are_no_kernels() -> None:
    objective = TorchModule(nn.Sequential(nn.Linear(3, 3), nn.GELU(), nn.Linear(3, 2)), strategy="compiled")
    with pytest.raises(ModelError, match=r"strategy 'compiled' cannot be used, since layer '1' \(GELU\) has no kernel"):
        objective.plan(Split(np.zeros((2, 3), np.float32), np.array([0, 1])))


def test_a_kernel_that_disagrees_with_torch_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(mode, x, y, index, model, clip, total, values) -> None:  # type: ignore[no-untyped-def]
        total += 1

    monkeypatch.setattr("gossamer.objectives.networks.module.kernel_of", lambda *_: wrong)
    module, data = nn.Sequential(nn.Linear(3, 2)), Split(np.zeros((2, 3), np.float32), np.array([0, 1]))
    assert TorchModule(module).plan(data).strategy == "layers"
    with pytest.raises(ModelError, match="its kernel finds other gradients than torch"):
        TorchModule(module, strategy="compiled").plan(data)


@pytest.mark.parametrize("what", ["clip", "norm"])
def test_a_kernel_that_does_not_clip_as_it_should_is_not_used(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    def kernel(*given):  # type: ignore[no-untyped-def]
        run = compiled.kernel_of(*given)

        def wrong(mode, x, y, index, model, clip, total, values) -> None:  # type: ignore[no-untyped-def]
            run(mode, x, y, index, model, 1.5 * clip if what == "clip" else clip, total, values)
            if what == "norm":
                values *= 0.5

        return wrong

    monkeypatch.setattr("gossamer.objectives.networks.module.kernel_of", kernel)
    data = Split(np.zeros((2, 3), np.float32), np.array([0, 1]))
    assert TorchModule(nn.Sequential(nn.Linear(3, 2))).plan(data).strategy == "layers"


def test_products_that_round_an_example_by_its_company_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that rounds differently for more examples: the loops take its place."""
    asked = []

    def kernel(chain, loss, dtype, products):  # type: ignore[no-untyped-def]
        asked.append(products)
        run = compiled.kernel_of(chain, loss, dtype, products)

        def rounding(mode, x, y, index, model, clip, total, values) -> None:  # type: ignore[no-untyped-def]
            run(mode, x, y, index, model, clip, total, values)
            if products and len(index) > 32:
                total *= np.float32(1 + 2e-7)

        return rounding

    monkeypatch.setattr("gossamer.objectives.networks.module.kernel_of", kernel)
    make, shape = MODULES["wide"]
    plan = TorchModule(make(), strategy="compiled").plan(Split(np.zeros((2, *shape), np.float32), np.array([0, 1])))
    assert asked == [True, False]
    assert plan.kernel is not None
    assert not plan.kernel.products


def test_single_examples_do_not_fill_a_block_for_blas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers that take as long for any numbers, and rounds, look at one example at a time."""
    # On some machines BLAS rounds an example by its company, and then it is not used; what follows is about others.
    monkeypatch.setattr("gossamer.objectives.networks.checks.kernel_problem", lambda *tried: None)
    make, shape = MODULES["wide"]
    objective, data = TorchModule(make()), Split(np.zeros((2, *shape), np.float32), np.array([0, 1]))
    kernel, steady = objective.plan(data).kernel, objective.steady().plan(data).kernel
    assert kernel is not None
    assert steady is not None
    if not kernel.products:
        pytest.skip("BLAS of this processor rounds an example's gradient by those beside it, so no block is filled")
    assert kernel.of_one is not None
    assert (kernel.products, kernel.of_one().products, steady.products) == (True, False, False)


PROGRAM = """
import numpy as np, torch
from torch import nn
from gossamer.data.examples import Split
from gossamer.objectives.chains import compiled
from gossamer.objectives.networks.module import TorchModule
objective = TorchModule(nn.Sequential(nn.Linear(3, 2)), strategy="compiled")
data = Split(np.ones((2, 3), np.float32), np.array([0, 1]))
print(objective.clipped_gradients(np.ones((1, 8), np.float32), data, [np.arange(2)], 1.0).sums.tobytes().hex())
import sys
assert "torch._dynamo" not in sys.modules  # importing it takes a second, and a chain needs nothing of it
"""


def called(home: Path) -> tuple[str, str]:
    environment = {**os.environ, "XDG_CACHE_HOME": str(home)}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
    return done.stdout, done.stderr


@pytest.mark.slow
def test_machine_code_is_kept_made_anew_or_done_without(tmp_path: Path) -> None:
    first, said = called(tmp_path)
    folder = tmp_path / "gossamer" / "kernels"
    kept = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
    assert said == ""
    assert any(path.suffix == ".nbc" for path in kept)
    assert called(tmp_path) == (first, "")
    assert kept == {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
    (code,) = folder.rglob("*.nbc")
    flipped = bytearray(code.read_bytes())
    flipped[len(flipped) // 2] ^= 1
    code.write_bytes(flipped)
    again, said = called(tmp_path)
    assert again == first
    assert said.count("is damaged") == 1
    (text,) = folder.rglob("chain_*.py")
    bytecode = Path(py_compile.compile(str(text), doraise=True))
    for path in (*kept, bytecode):  # of which nobody reads bytecode
        path.write_bytes(b"damaged\xff")
    again, said = called(tmp_path)
    assert again == first
    assert said.count("is damaged") == 1
    assert called(tmp_path) == (first, "")
    no_folder = tmp_path / "file"
    no_folder.write_text("")
    again, said = called(no_folder)
    assert again == first
    assert "compiled kernels cannot be kept in" in said


def test_a_file_that_is_no_text_is_written_again(tmp_path: Path) -> None:
    path = tmp_path / "chain.py"
    path.write_bytes(b"damaged\xff")
    compiled._keep(path, "whole")
    assert path.read_text(encoding="utf-8") == "whole"


def test_a_kernel_is_named_by_what_it_is_made_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert compiled.folder() == tmp_path / "gossamer" / "kernels"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert compiled.folder() == Path.home() / ".cache" / "gossamer" / "kernels"
