"""Local mini-batch updates of many agents in one call, against plain NumPy and PyTorch loops, on one core.

Gossamer: `LinearModel.local_updates`, which also checks its arguments and counts gradients that are not finite. Any
objective: the same by `Objective.descended`, one call of ``clipped_gradients`` a step. NumPy: for each agent
and step the batch's rows, outputs, residuals, mean, clip and step, without any check. PyTorch: forward, backward, clip
of the gradient's norm with the L2 term in it, and SGD step of ``nn.Linear``. All take the same steps, so the updates
they end at are compared; they run in one process, in turn, and the figures are medians.

An agent takes 1 to 10 steps with batches of 5 to 10 examples, as in the experiments with federated units.

    python benchmarks/local_updates.py [--json] [--repeats N]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch

from gossamer.data.examples import Split
from gossamer.objectives.linear.model import LinearModel
from gossamer.objectives.objective import Objective, clipped_descent

EXAMPLES, CLIP, L2, RATE = 10_000, 1.0, 0.1, 0.7
REQUIRED = {"2 features, 110 agents: microseconds, at most": 300, "1 agent: microseconds, at most": 60}


class Case(NamedTuple):
    """What is measured."""

    loss: str
    features: int
    outputs: int
    width: int
    layout: str = "dense"


CASES = [
    Case("squared", 2, 1, 1),
    Case("squared", 2, 1, 110),
    Case("logistic", 2, 1, 110),
    Case("logistic", 123, 1, 110),
    Case("logistic", 123, 1, 110, "sparse"),
    Case("softmax", 784, 10, 110),
]


def split_of(case: Case, rng: np.random.Generator) -> Split:
    x = rng.standard_normal((EXAMPLES, case.features)).astype(np.float32) / np.float32(np.sqrt(case.features))
    if case.layout == "sparse":
        x[rng.random(x.shape) > 0.1] = 0
    y = rng.integers(0, max(case.outputs, 2), EXAMPLES)
    return Split(
        sp.csr_array(x) if case.layout == "sparse" else x, y.astype(np.float32) if case.loss == "squared" else y
    )


def model_of(case: Case) -> LinearModel:
    classes = {"squared": None, "logistic": 2, "softmax": case.outputs}[case.loss]
    return LinearModel(case.loss, case.features, classes, intercept=False, l2=L2)


def batches_of(case: Case, rng: np.random.Generator) -> list[np.ndarray]:
    return [rng.integers(0, EXAMPLES, (rng.integers(1, 11), rng.integers(5, 11))) for _ in range(case.width)]


def numpy_loop(case: Case, x: np.ndarray, y: np.ndarray, models: np.ndarray, batches: list[np.ndarray]) -> np.ndarray:
    updates = np.empty_like(models)
    own = np.eye(case.outputs, dtype=np.float32)[y.astype(int)] if case.loss == "softmax" else y[:, None]
    for k, batch in enumerate(batches):
        w = models[k].reshape(case.outputs, case.features).astype(np.float64)
        for rows in batch:
            z = x[rows] @ w.T
            if case.loss == "softmax":
                z = np.exp(z - z.max(axis=1, keepdims=True))
                z /= z.sum(axis=1, keepdims=True)
            elif case.loss == "logistic":
                z = 1 / (1 + np.exp(-z))
            g = (z - own[rows]).T @ x[rows] / len(rows) + L2 * w
            w -= RATE / len(batch) * min(1.0, CLIP / np.linalg.norm(g)) * g
        updates[k] = w.ravel() - models[k]
    return updates


def torch_loop(case: Case, x: np.ndarray, y: np.ndarray, models: np.ndarray, batches: list[np.ndarray]) -> np.ndarray:
    updates = np.empty_like(models)
    examples, targets = torch.from_numpy(x), torch.from_numpy(y)
    layer = torch.nn.Linear(case.features, case.outputs, bias=False)
    for k, batch in enumerate(batches):
        layer.weight.data[:] = torch.from_numpy(models[k].reshape(case.outputs, case.features))
        optimizer = torch.optim.SGD(layer.parameters(), lr=RATE / len(batch))
        for rows in torch.from_numpy(batch):
            optimizer.zero_grad()
            z, y_rows = layer(examples[rows]), targets[rows]
            if case.loss == "softmax":
                loss = torch.nn.functional.cross_entropy(z, y_rows)
            elif case.loss == "logistic":
                loss = torch.nn.functional.binary_cross_entropy_with_logits(z[:, 0], y_rows.float())
            else:
                loss = torch.nn.functional.mse_loss(z[:, 0], y_rows) / 2
            loss.backward()
            layer.weight.grad.add_(layer.weight.detach(), alpha=L2)
            torch.nn.utils.clip_grad_norm_(layer.parameters(), CLIP)
            optimizer.step()
        updates[k] = layer.weight.detach().numpy().ravel() - models[k]
    return updates


def microseconds(ways: Sequence[Callable[[list[np.ndarray]], Any]], case: Case, repeats: int) -> list[float]:
    """Median time of a call of each of ``ways``, in turn, on new batches each time."""
    rng = np.random.default_rng(1)
    seconds = np.empty((repeats, len(ways)))
    for row in seconds:
        for n, way in enumerate(ways):
            batches = batches_of(case, rng)
            start = time.perf_counter()
            way(batches)
            row[n] = time.perf_counter() - start
    medians: list[float] = (np.median(seconds, axis=0) * 1e6).tolist()
    return medians


def measure(case: Case, repeats: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    data, model = split_of(case, rng), model_of(case)
    models = rng.standard_normal((case.width, model.size)).astype(np.float32)
    rates, clips = np.full(case.width, RATE), np.full(case.width, CLIP)
    x = data.features.toarray() if data.sparse else data.features

    ways: dict[str, Callable[[list[np.ndarray]], np.ndarray]] = {
        "gossamer": lambda batches: model.local_updates(models, data, batches, rates, clips).updates,
        "any objective": lambda batches: (
            Objective.descended(model, models, data, clipped_descent(batches, rates, clips, len(data))).updates
        ),
        "numpy": lambda batches: numpy_loop(case, x, data.targets, models, batches),
        "torch": lambda batches: torch_loop(case, x, data.targets, models, batches),
    }
    some = batches_of(case, rng)
    ends = [way(some) for way in ways.values()]
    assert np.abs(ends[0]).max() > 0.01
    assert max(np.abs(ends[0] - end).max() for end in ends[1:]) < 1e-4
    (ours,) = microseconds([ways["gossamer"]], case, 10 * repeats)
    others = microseconds(list(ways.values())[1:], case, repeats)
    ratios = {f"{name}/ours": round(other / ours, 1) for name, other in zip(list(ways)[1:], others)}
    return {**case._asdict(), "gossamer_us": round(ours, 1), **ratios}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--repeats", type=int, default=20, help="calls measured of each other way; of ours ten times")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = [measure(case, arguments.repeats) for case in CASES]
    if arguments.json:
        print(json.dumps({"benchmark": "local_updates", "rows": rows, "required": REQUIRED}))
        return
    print("one call for all agents, float32, one thread; by how much the others take longer")
    print("".join(f"{name:>20}" for name in rows[0]))
    for each in rows:
        print("".join(f"{value:>20}" for value in each.values()))
    print("required:", "; ".join(f"{name} {value:,}" for name, value in REQUIRED.items()))


if __name__ == "__main__":
    main()
