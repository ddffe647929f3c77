"""A kernel that is compiled before there are data is the one that is asked for afterwards."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gossamer.data.split import Split
from gossamer.experiment import compiling_ahead
from gossamer.experiment.spec import Experiment
from gossamer.objectives import torch_ahead, torch_plan
from gossamer.objectives.models import build_model
from gossamer.objectives.torch_ahead import kernel_ahead
from gossamer.objectives.torch_chains import Unknown
from gossamer.objectives.torch_module import TorchModule

SHAPE = (1, 8, 8)


class Asked(Exception):
    """Raised in the place of compiling."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What kernels were asked for, none of which is compiled."""
    found: list[tuple[Any, ...]] = []

    def kernel_of(*given: Any) -> None:
        found.append(given)
        raise Asked

    monkeypatch.setattr(torch_ahead, "kernel_of", kernel_of)
    monkeypatch.setattr(torch_plan, "kernel_of", kernel_of)
    return found


@pytest.mark.parametrize("exact", [False, True])
def test_the_same_kernel_is_asked_for_as_with_data(asked: list[tuple[Any, ...]], exact: bool) -> None:
    kernel_ahead(lambda: build_model("mlp", SHAPE, 10), SHAPE, "cross_entropy", exact)()
    objective = TorchModule(build_model("mlp", SHAPE, 10), exact=exact)
    with pytest.raises(Asked):
        objective.plan(Split(np.zeros((1, *SHAPE), np.float32), np.zeros(1, np.int64)))
    assert len(asked) == 2
    assert asked[0] == asked[1]


def test_no_number_is_drawn_for_it(asked: list[tuple[Any, ...]]) -> None:
    before = torch.get_rng_state()
    kernel_ahead(lambda: build_model("mlp", SHAPE, 10), SHAPE, "cross_entropy")
    assert torch.equal(torch.get_rng_state(), before)


def test_what_is_no_chain_has_none() -> None:
    with pytest.raises(Unknown):
        kernel_ahead(lambda: build_model("resnet18", (3, 32, 32), 10), (3, 32, 32), "cross_entropy")


def started(monkeypatch: pytest.MonkeyPatch, **spec: Any) -> int:
    """How many threads `compile_ahead` starts."""
    count = 0

    class Thread(threading.Thread):
        def start(self) -> None:
            nonlocal count
            count += 1

    monkeypatch.setattr(compiling_ahead, "Thread", Thread)
    compiling_ahead.compile_ahead(Experiment.model_validate({"privacy": "none", **spec}))
    return count


@pytest.mark.parametrize(
    ("spec", "threads"),
    [
        ({"objective": "mlp"}, 1),
        ({"objective": "mlp", "compute": {"strategy": "layers"}}, 0),
        ({"objective": "softmax"}, 0),
        ({"objective": {"module": "no_such_module:Net"}}, 0),
        ({"objective": "mlp", "dataset": {"name": "mine", "path": "mine.csv"}}, 0),
        ({"objective": "no_such_network"}, 0),
    ],
)
def test_only_known_shapes_of_known_networks(
    spec: dict[str, Any], threads: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert started(monkeypatch, **spec) == threads
