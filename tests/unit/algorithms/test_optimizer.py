"""Optimizers, step by step against torch's; in the nodes that have one; and what they leave as it was."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from gossamer.algorithms.optimizer import Adam, Memory, Momentum, Optimizer, step
from gossamer.protocol.encoding import decode, encode
from gossamer.vectors import Blank, Masked, Public, Released

torch = pytest.importorskip("torch", reason="needs the extra torch")

ADAPTER: TypeAdapter[Optimizer] = TypeAdapter(Optimizer)
STEPS, SIZE, RATE = 60, 7, 0.05
CASES: dict[str, tuple[Any, Callable[..., Any]]] = {
    "sgd": ("sgd", torch.optim.SGD),
    "heavy ball": ({"name": "momentum", "momentum": 0.9}, partial(torch.optim.SGD, momentum=0.9)),
    "light ball": ({"name": "momentum", "momentum": 0.3}, partial(torch.optim.SGD, momentum=0.3)),
    "nesterov": (
        {"name": "momentum", "momentum": 0.8, "nesterov": True},
        partial(torch.optim.SGD, momentum=0.8, nesterov=True),
    ),
    "adam": ("adam", torch.optim.Adam),
    "adam of FedOpt": (
        {"name": "adam", "beta1": 0.9, "beta2": 0.99, "floor": 1e-3},
        partial(torch.optim.Adam, betas=(0.9, 0.99), eps=1e-3),
    ),
    "rmsprop, corrected": ({"name": "adam", "beta1": 0.0}, partial(torch.optim.Adam, betas=(0.0, 0.999))),
}


def directions(steps: int = STEPS, size: int = SIZE) -> np.ndarray[Any, Any]:
    """Of lengths that differ by a lot, from step to step and from entry to entry; and one that is 0."""
    generator = np.random.default_rng(5)
    found = generator.normal(size=(steps, size)) * 10.0 ** generator.uniform(-3, 2, (steps, 1))
    found *= 10.0 ** np.arange(-3, size - 3)
    found[3] = 0.0
    return found


def path(optimizer: Optimizer, gradients: np.ndarray[Any, Any], label: type[Any] = Released) -> list[Any]:
    """Models after each step from 0, with the learning rate `RATE`."""
    model: Any = Public(np.zeros(gradients.shape[1], gradients.dtype))
    memory, models = None, []
    for gradient in gradients:
        memory, move = step(optimizer, memory, label(gradient.copy()))
        model = model - RATE * move
        models.append(model)
    return models


def torch_path(make: Callable[..., Any], gradients: np.ndarray[Any, Any]) -> list[Any]:
    parameter = torch.nn.Parameter(torch.zeros(gradients.shape[1], dtype=torch.float64))
    optimizer, models = make([parameter], lr=RATE), []
    for gradient in gradients:
        parameter.grad = torch.from_numpy(gradient.copy())
        optimizer.step()
        models.append(parameter.detach().numpy().copy())
    return models


@pytest.mark.parametrize("name", CASES)
def test_each_step_is_torchs(name: str) -> None:
    said, make = CASES[name]
    ours, theirs = path(ADAPTER.validate_python(said), directions()), torch_path(make, directions())
    for mine, other in zip(ours, theirs, strict=True):
        # Rounding alone: of the order of a step, where steps cancel.
        np.testing.assert_allclose(mine.values, other, rtol=1e-12, atol=1e-13 * np.abs(other).max())
    others = [torch_path(other, directions())[-1] for key, (_, other) in CASES.items() if key != name]
    assert all(np.abs(other - theirs[-1]).max() > 1e-3 for other in others)  # so the comparison can fail


@pytest.mark.parametrize("name", CASES)
def test_moves_keep_label_and_type_and_do_not_need_values(name: str) -> None:
    optimizer = ADAPTER.validate_python(CASES[name][0])
    single = directions().astype(np.float32)
    assert {type(model) for model in path(optimizer, single)} == {Released}
    assert {type(model) for model in path(optimizer, single, Public)} == {Public}
    assert {model.values.dtype for model in path(optimizer, single)} == {np.dtype(np.float32)}
    memory = None
    for _ in range(2):
        memory, move = step(optimizer, memory, Released(Blank(SIZE)))
        assert (type(move), move.size, move.values.dtype) == (Released, SIZE, np.dtype(np.float32))


@pytest.mark.parametrize("name", CASES)
def test_nothing_is_infinite(name: str) -> None:
    """Directions that are out of all bounds, or not numbers, leave numbers."""
    optimizer = ADAPTER.validate_python(CASES[name][0])
    memory = None
    for value in (3e38, -3e38, np.nan, np.inf, 1.0, 0.0):
        memory, move = step(optimizer, memory, Released(np.full(2, value, np.float32)))
        if optimizer is not None:
            assert np.isfinite(move.values).all()
            assert memory is not None
            assert all(np.isfinite(vector.values).all() for vector in memory.averages)


@pytest.mark.parametrize("optimizer", [Momentum(), Momentum(nesterov=True), Adam()], ids=str)
def test_a_memory_that_was_stored_goes_on_as_it_was(optimizer: Optimizer) -> None:
    memory: Any = None
    stored: Any = None
    for gradient in directions():
        memory, move = step(optimizer, memory, Released(gradient.copy()))
        stored, again = step(optimizer, decode(encode(stored)), Released(gradient.copy()))
        assert move == again
    assert memory.steps == STEPS
    assert encode(stored) == encode(memory)


def test_what_may_not_be_seen_is_not_squared() -> None:
    with pytest.raises(TypeError, match="only Public and Released"):
        step(Adam(), None, Masked(np.ones(2)))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="only Public and Released"):
        step(Adam(), Memory(1, (Public(np.ones(2)), Masked(np.ones(2)))), Released(np.ones(2)))  # type: ignore[arg-type]


def test_sgd_is_what_happens_where_nothing_is_said() -> None:
    for said in (None, "sgd", {"name": "sgd"}):
        assert ADAPTER.validate_python(said) is None
    direction = Released(np.ones(2))
    assert step(None, None, direction) == (None, direction)


@pytest.mark.parametrize(
    "bad",
    [
        "adamw",
        {"name": "momentum", "momentum": 1.0},
        {"name": "momentum", "momentum": 0.0},
        {"name": "momentum", "momentum": -0.1},
        {"name": "momentum", "momentum": float("nan")},
        {"name": "momentum", "beta1": 0.9},
        {"name": "sgd", "momentum": 0.9},
        {"name": "adam", "beta1": 1.0},
        {"name": "adam", "beta2": 1.0},
        {"name": "adam", "floor": 0.0},
        {"name": "adam", "nesterov": True},
        {"momentum": 0.9},
        0.9,
        True,
    ],
)
def test_what_is_no_optimizer(bad: object) -> None:
    with pytest.raises(ValidationError):
        ADAPTER.validate_python(bad)
