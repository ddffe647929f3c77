"""Whole local trainings of many clients in one call, against PyTorch's own loop, on one core.

Gossamer: `LinearModel.local_training`. Any objective: the same by `Objective.descended`, one call of
``clipped_gradients`` a step. PyTorch: ``nn.Linear`` and ``torch.optim.SGD`` with momentum; L2 and proximal terms are
added to each batch's gradient, which is the faster way. All train on the same batches from the same models, so their
updates are compared; ways are measured in turn, and the figures are medians.

    python benchmarks/local_training.py [--json] [--repeats N]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from gossamer.data.examples import Split
from gossamer.objectives.linear.model import LinearModel
from gossamer.objectives.objective import Minibatches, Objective, Training, momentum_descent

FEATURES, CLASSES, CLIENTS, EPOCHS, SHARD = 784, 10, 50, 5, 200
L2, RATE, MOMENTUM, PROXIMAL = 1e-3, 0.1, 0.9, 0.1
REQUIRED = {"PyTorch's time over ours, batches of 32, at least": 3}


class Case(NamedTuple):
    """What is measured: softmax on 784 features, 50 clients of 200 examples, 5 epochs."""

    batch: int


CASES = [Case(10), Case(32), Case(64)]


def trainings_of(case: Case, rng: np.random.Generator) -> list[Training]:
    starts = np.arange(0, SHARD, case.batch)
    lengths = np.tile(np.minimum(SHARD - starts, case.batch), EPOCHS)
    found = []
    for client in range(CLIENTS):
        rows = np.concatenate([client * SHARD + rng.permutation(SHARD) for _ in range(EPOCHS)])
        found.append(Training(Minibatches(rows, lengths), RATE, MOMENTUM, PROXIMAL))
    return found


def torch_loop(data: Split, models: np.ndarray, trainings: list[Training]) -> np.ndarray:
    updates = np.empty_like(models)
    x, y = torch.from_numpy(data.features), torch.from_numpy(data.targets)
    layer = torch.nn.Linear(FEATURES, CLASSES)
    parameters = list(layer.parameters())
    for k, training in enumerate(trainings):
        torch.nn.utils.vector_to_parameters(torch.from_numpy(models[k].copy()), parameters)
        first = [parameter.detach().clone() for parameter in parameters]
        optimizer = torch.optim.SGD(parameters, lr=RATE, momentum=MOMENTUM, foreach=True)
        batches = torch.from_numpy(training.batches.examples).split(training.batches.lengths.tolist())
        for rows in batches:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(layer(x[rows]), y[rows]).backward()
            with torch.no_grad():
                for parameter, before in zip(parameters, first, strict=True):
                    parameter.grad.add_(parameter, alpha=L2 + PROXIMAL).sub_(before, alpha=PROXIMAL)
            optimizer.step()
        updates[k] = torch.nn.utils.parameters_to_vector(parameters).detach().numpy() - models[k]
    return updates


def measure(case: Case, repeats: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((CLIENTS * SHARD, FEATURES)).astype(np.float32) / np.float32(np.sqrt(FEATURES))
    data = Split(x, rng.integers(0, CLASSES, len(x)))
    model = LinearModel("softmax", FEATURES, CLASSES, l2=L2)
    models = rng.standard_normal((CLIENTS, model.size)).astype(np.float32)
    ways: dict[str, Callable[[list[Training]], np.ndarray]] = {
        "gossamer": lambda asked: model.local_training(models, data, asked).updates,
        "any objective": lambda asked: (
            Objective.descended(model, models, data, momentum_descent(asked, len(data))).updates
        ),
        "torch": lambda asked: torch_loop(data, models, asked),
    }
    some = trainings_of(case, rng)
    ends = [way(some) for way in ways.values()]
    assert np.abs(ends[0]).max() > 0.01
    assert max(np.abs(ends[0] - end).max() for end in ends[1:]) < 1e-4
    seconds = np.empty((repeats, len(ways)))
    for row in seconds:
        asked = trainings_of(case, rng)
        for n, way in enumerate(ways.values()):
            start = time.perf_counter()
            way(asked)
            row[n] = time.perf_counter() - start
    medians = np.median(seconds, axis=0)
    ratios = {f"{name}/ours": round(float(at / medians[0]), 2) for name, at in zip(list(ways)[1:], medians[1:])}
    steps = CLIENTS * len(some[0].batches.lengths)
    return {
        **case._asdict(),
        "gossamer_ms": round(float(medians[0]) * 1e3, 1),
        "us_a_step": round(float(medians[0]) / steps * 1e6, 1),
        **ratios,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--repeats", type=int, default=5, help="calls measured of each way")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = [measure(case, arguments.repeats) for case in CASES]
    if arguments.json:
        print(json.dumps({"benchmark": "local_training", "rows": rows, "required": REQUIRED}))
        return
    print("one call for all clients, float32, one thread; by how much the others take longer")
    print("".join(f"{name:>20}" for name in rows[0]))
    for each in rows:
        print("".join(f"{value:>20}" for value in each.values()))
    print("required:", "; ".join(f"{name} {value:,}" for name, value in REQUIRED.items()))


if __name__ == "__main__":
    main()
