"""Sequential SGD inside a round, against a plain PyTorch loop and against a bare compiled loop, on one core.

Gossamer: `LinearModel.local_steps`, which also checks its arguments, keeps the round's sum beside the model, counts
gradients that are not finite and knows four losses, swaps and masks. Bare: a numba loop that does nothing but dot
product, sigmoid, norm, clip and update. PyTorch: forward, backward, clip of the gradient's norm and SGD step with
weight decay of ``nn.Linear(123, 1)``, one example a step. All three take the same steps (so the models they end at are
compared), on new examples in each round, in one process; the figures are medians.

The sparse examples have 20,958 features, of which 51 are stored; a step costs what these cost, although the L2 term
moves all weights.

    python benchmarks/local_steps.py [--json] [--repeats N]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numba import njit

from gossamer.data.examples import Split
from gossamer.objectives.linear.model import LinearModel
from gossamer.objectives.objective import LocalRound

FEATURES, EXAMPLES = 123, 32_561  # a9a
CLIP, L2, RATE = 1.0, 1 / EXAMPLES, 0.1
LENGTHS = (50, 4_000)
WARM_UP = 2  # rounds of each kind that are not counted: the first one compiles
TORCH_ROUNDS, TORCH_STEPS = 3, 1_000
REQUIRED = {"torch / gossamer, at least": 1_000, "gossamer / bare, at most": 2}


@njit(cache=True, error_model="numpy", fastmath={"reassoc", "contract"})
def bare_steps(w, examples, targets, batch, rate, clip, l2):  # type: ignore[no-untyped-def]
    """Steps of logistic regression without a bias that change w [features]."""
    one = w.dtype.type
    for i in batch:
        x = examples[i]
        z, square = one(0), one(0)
        for j in range(w.size):
            z += w[j] * x[j]
        for j in range(w.size):
            square += x[j] * x[j]
        residual = 1 / (1 + np.exp(-z)) - targets[i]
        norm = abs(residual) * np.sqrt(square)
        a = one(rate * residual * min(1.0, clip / norm))
        b = one(rate * l2)
        for j in range(w.size):
            w[j] -= a * x[j] + b * w[j]


def torch_steps(data: Split, batch: np.ndarray) -> np.ndarray:
    layer = torch.nn.Linear(FEATURES, 1, bias=False)
    torch.nn.init.zeros_(layer.weight)
    optimizer = torch.optim.SGD(layer.parameters(), lr=RATE)
    x, y = torch.from_numpy(data.features), torch.from_numpy(data.targets).float()
    for i in batch.tolist():
        optimizer.zero_grad()
        torch.nn.functional.binary_cross_entropy_with_logits(layer(x[i])[0], y[i]).backward()
        torch.nn.utils.clip_grad_norm_(layer.parameters(), CLIP)
        layer.weight.grad.add_(layer.weight.detach(), alpha=L2)  # outside the clip, as in the other two
        optimizer.step()
    return layer.weight.detach().numpy()[0]


def our_steps(model: LinearModel, data: Split, batch: np.ndarray) -> np.ndarray:
    rates = np.full(len(batch), RATE)
    start = np.zeros((1, model.size), np.float32)
    given = LocalRound(start, np.zeros(1, np.int64), batch, rates, RATE, CLIP)
    return -np.float32(RATE) * model.local_steps(given, data).total


def microseconds(ways: Sequence[Callable[[np.ndarray], Any]], steps: int, rounds: int) -> list[float]:
    """Median time of a step in each of ``ways``, in turn; nobody finds examples that another has just fetched."""
    rng = np.random.default_rng(steps)
    seconds = np.empty((WARM_UP + rounds, len(ways)))
    for k in range(len(seconds)):
        for n, way in enumerate(ways):
            batch = rng.integers(0, EXAMPLES, steps)
            start = time.perf_counter()
            way(batch)
            seconds[k, n] = time.perf_counter() - start
    medians: list[float] = (np.median(seconds[WARM_UP:], axis=0) / steps * 1e6).tolist()
    return medians


def dense_split(rng: np.random.Generator) -> Split:
    """As many ones among zeros as in a9a, where 14 of 123 are stored."""
    features = (rng.random((EXAMPLES, FEATURES)) < 14 / FEATURES).astype(np.float32)
    return Split(features, rng.integers(0, 2, EXAMPLES))


def sparse_split(rng: np.random.Generator, features: int = 20_958, stored: int = 51) -> Split:
    """As many features as real-sim, each example's ``stored`` ones spread over them."""
    width = features // stored
    columns = rng.integers(0, width, (EXAMPLES, stored)) + np.arange(stored) * width
    values = rng.random(columns.size, dtype=np.float32)
    starts = np.arange(EXAMPLES + 1) * stored
    matrix = sp.csr_array((values, columns.ravel(), starts), shape=(EXAMPLES, features))
    return Split(matrix, rng.integers(0, 2, EXAMPLES))


def measure(steps: int, repeats: int) -> dict[str, float | str]:
    """Rounds of ``steps`` steps on dense examples, in all three ways."""
    rng = np.random.default_rng(steps)
    data, model = dense_split(rng), LinearModel("logistic", FEATURES, 2, intercept=False, l2=L2)

    def torch_loop(batch: np.ndarray) -> np.ndarray:
        return torch_steps(data, batch)

    def bare(batch: np.ndarray) -> np.ndarray:
        w = np.zeros(FEATURES, np.float32)
        bare_steps(w, data.features, data.targets, batch, RATE, CLIP, L2)
        return w

    def ours(batch: np.ndarray) -> np.ndarray:
        return our_steps(model, data, batch)

    some = rng.integers(0, EXAMPLES, TORCH_STEPS)
    ends = [way(some) for way in (torch_loop, bare, ours)]
    assert np.abs(ends[0]).max() > 0.05
    assert max(np.abs(ends[0] - end).max() for end in ends[1:]) < 1e-4
    (torch_us,) = microseconds([torch_loop], TORCH_STEPS, TORCH_ROUNDS)
    bare_us, ours_us = microseconds([bare, ours], steps, repeats)
    return {
        "layout": "dense",
        "features": FEATURES,
        "steps": steps,
        "gossamer_us": round(ours_us, 3),
        "bare_us": round(bare_us, 3),
        "torch_us": round(torch_us, 1),
        "ours/bare": round(ours_us / bare_us, 2),
        "torch/ours": round(torch_us / ours_us),
    }


def measure_sparse(steps: int, repeats: int) -> dict[str, float | str]:
    rng = np.random.default_rng(steps)
    data = sparse_split(rng)
    model = LinearModel("logistic", data.features.shape[1], 2, intercept=False, l2=L2)
    (ours_us,) = microseconds([lambda batch: our_steps(model, data, batch)], steps, repeats)
    return {"layout": "sparse", "features": model.features, "steps": steps, "gossamer_us": round(ours_us, 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--repeats", type=int, default=500, help="rounds measured of each kind")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = [measure(steps, arguments.repeats) for steps in LENGTHS]
    rows += [measure_sparse(steps, arguments.repeats) for steps in LENGTHS]
    if arguments.json:
        print(json.dumps({"benchmark": "local_steps", "rows": rows, "required": REQUIRED}))
        return
    print("one step of logistic regression with clip and L2 term, float32, one thread")
    print("".join(f"{name:>12}" for name in rows[0]))
    for each in rows:
        print("".join(f"{each.get(name, ''):>12}" for name in rows[0]))
    print("required of rounds of 4,000 steps:", "; ".join(f"{name} {value:,}" for name, value in REQUIRED.items()))


if __name__ == "__main__":
    main()
