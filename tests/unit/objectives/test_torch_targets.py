"""Targets beside one class or one number an example: a single logit, several answers, a class for each place."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import gossamer as gs
from gossamer.data.examples import Split
from gossamer.objectives.networks.module import TorchModule

RNG = np.random.default_rng(11)
ROWS = 20
X = RNG.standard_normal((ROWS, 2, 4, 4), dtype=np.float32)
EVERY = [np.arange(ROWS)]


def vectors(outputs: int) -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Flatten(), nn.Linear(32, 6), nn.Tanh(), nn.Linear(6, outputs))


def places(classes: int) -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.Tanh(), nn.Conv2d(4, classes, 1))


TWO, SEVERAL = RNG.integers(0, 2, ROWS), RNG.integers(0, 2, (ROWS, 5)).astype(np.float32)
PIXELS = {classes: RNG.integers(0, classes, (ROWS, 4, 4)) for classes in (2, 3)}


def _one_logit(outputs: Tensor, y: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(outputs[0, 0], y.float())


def _answers(outputs: Tensor, y: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(outputs[0], y.float())


def _places(outputs: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(outputs, y[None])


def _one_map(outputs: Tensor, y: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(outputs[0, 0], y.float())


CASES = {
    "a single logit": (vectors(1), "cross_entropy", TWO, _one_logit),
    "several answers": (vectors(5), "binary_cross_entropy", SEVERAL, _answers),
    "several numbers": (vectors(5), "mse", SEVERAL, lambda outputs, y: (outputs[0] - y).square().mean()),
    "places": (places(3), "cross_entropy", PIXELS[3], _places),
    "places of two classes": (places(1), "cross_entropy", PIXELS[2], _one_map),
}


@pytest.mark.parametrize("strategy", ["auto", "threads", "loop"])
@pytest.mark.parametrize("case", CASES)
def test_clipped_gradients_are_those_of_single_examples(case: str, strategy: str) -> None:
    """Of torch's own losses, one backward pass an example; the mean over what an example has several of."""
    module, loss, y, of_one = CASES[case]
    objective = TorchModule(module, loss=loss, strategy=strategy, pretrained=True)
    model = objective.initial(RNG)
    found = objective.clipped_gradients(model[None], Split(X, y), EVERY, 0.4)
    total, values = 0.0, []
    for row in range(ROWS):
        value = of_one(module(torch.tensor(X[[row]])), torch.tensor(y[row]))
        gradients = torch.autograd.grad(value, tuple(module.parameters()))
        one = torch.cat([each.flatten() for each in gradients]).double().numpy()
        total, values = total + one * min(1, 0.4 / np.linalg.norm(one)), [*values, value.item()]
    assert np.linalg.norm(found.sums[0] - total) <= 1e-5 * np.linalg.norm(total)
    assert np.allclose(objective.losses(model[None], Split(X, y))[0], values, atol=1e-6)
    assert objective.evaluate(model[None], Split(X, y)).loss[0] == pytest.approx(np.mean(values), rel=1e-5)


def test_accuracy_is_the_share_of_places() -> None:
    module = places(3)
    objective = TorchModule(module, pretrained=True)
    right = module(torch.tensor(X)).argmax(1).numpy() == PIXELS[3]
    found = objective.evaluate(objective.initial(RNG)[None], Split(X, PIXELS[3]))
    assert found.accuracy[0] == pytest.approx(right.mean())


def spec() -> dict[str, object]:
    return {
        "algorithm": {"name": "gossip", "nodes": 2, "batch_size": 4, "topology": "complete"},
        "budget": {"epsilon": 5, "delta": 1e-3},
        "stop": {"updates": 4},
    }


def test_a_single_logit_is_the_second_of_two_classes(tmp_path: Path) -> None:
    module = vectors(1)
    gs.run(spec(), str(tmp_path / "run"), data=gs.Data(X, TWO, labels=[0, 1]), module=module)
    model = gs.load_model(tmp_path / "run", module=module)
    module.load_state_dict({name: torch.tensor(part) for name, part in model.items()})
    likely = module(torch.tensor(X)).sigmoid()[:, 0].detach().numpy()
    assert np.allclose(model.predict(X).probabilities, np.stack([1 - likely, likely], 1), atol=1e-6)


@pytest.mark.parametrize(("outputs", "y"), [(5, SEVERAL), (3, PIXELS[3])])
def test_several_targets_are_trained_and_predicted(tmp_path: Path, outputs: int, y: np.ndarray) -> None:
    make = vectors if y.ndim == 2 else places
    data = gs.Data(X, y, x_test=X[:6], y_test=y[:6])
    known = nullcontext() if y.ndim == 2 else pytest.warns(gs.RunWarning, match="how many classes there are is found")
    with known:  # how many answers there are is a shape, and how many classes what is in private rows
        result = gs.run(spec(), str(tmp_path / "run"), data=data, module=lambda classes: make(classes))
    assert result.metrics[-1]["mean_model_test_loss"] > 0
    module = make(outputs)
    model = gs.load_model(tmp_path / "run", module=(lambda classes: make(classes)) if y.ndim == 2 else module)
    module.load_state_dict({name: torch.tensor(part) for name, part in model.items()})
    found = module(torch.tensor(X)).detach()
    expected = found.sigmoid() if y.ndim == 2 else found.flatten(1)
    assert np.allclose(model.predict(X).values, expected.numpy(), atol=1e-5)


@pytest.mark.parametrize(
    ("module", "y", "message"),
    [
        (
            vectors(4),
            SEVERAL,
            r"expected one target \[n, 4\] an example \[n, ...\], found targets \[16, 5\] and features",
        ),
        (
            places(3),
            PIXELS[3][:, :3],
            r"expected one target \[n, 4, 4\] an example \[n, ...\], found targets \[16, 3, 4\]",
        ),
        (None, SEVERAL, r"y: squared has one target an example, found several; give one, or a network with module="),
        (vectors(5), SEVERAL + 1, "targets of binary_cross_entropy must be from 0 to 1, found others"),
        (places(3), PIXELS[3] + 1, r"targets must be classes 0\.\.2, found 3; relabel the targets"),
    ],
)
def test_targets_that_do_not_fit_are_refused(module: nn.Module | None, y: np.ndarray, message: str) -> None:
    with pytest.raises(gs.CallerError, match=message):
        gs.run(spec(), data=gs.Data(X, y), module=module)


def test_several_targets_have_no_labels() -> None:
    for said in ({"labels": [0, 1]}, {"task": "classification"}, {"target_range": (0, 1)}):
        with pytest.raises(gs.DataError, match="y: expected no labels, task or range for several targets an example"):
            gs.Data(X, SEVERAL, **said)
