"""A private update of softmax regression against a plain PyTorch step, on one core.

Private: per-example clipping of a given batch, Gaussian noise on all 7,850 coordinates, a step of the model.
Plain: forward, mean cross-entropy, backward and SGD step of ``nn.Linear(784, 10)``, its batch gathered beforehand.
Both are measured in turn in one process; the figures are medians.

    python benchmarks/softmax_update.py [--json] [--repeats N]
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from gossamer.data.examples import Split
from gossamer.objectives.linear.model import LinearModel
from gossamer.privacy.mechanisms import Gaussian

MNIST = Path(__file__).resolve().parents[2] / "shared" / "data" / "mnist"
BATCHES, REQUIRED = (32, 64), 1.0
WARM_UP = 50  # updates of each kind that are not counted: the first one compiles
STEP, MECHANISM = 0.1, Gaussian(clip=1.0, noise_multiplier=1.0)


def read_idx(path: Path, header: int) -> np.ndarray:
    return np.frombuffer(gzip.decompress(path.read_bytes()), np.uint8, offset=header)


def load() -> tuple[Split, str]:
    """MNIST where it is found, else random numbers of its shape."""
    if MNIST.is_dir():
        pixels = read_idx(MNIST / "train-images-idx3-ubyte.gz", 16).reshape(-1, 784)
        labels = read_idx(MNIST / "train-labels-idx1-ubyte.gz", 8)
        return Split(pixels.astype(np.float32) / 255, labels.astype(np.int64)), "MNIST"
    rng = np.random.default_rng(0)
    return Split(rng.random((60_000, 784), dtype=np.float32), rng.integers(0, 10, 60_000)), "random"


def private_update(data: Split) -> Callable[[np.ndarray], None]:
    objective = LinearModel("softmax", 784, 10)
    generator = np.random.Generator(np.random.Philox(0))
    model = objective.initial(generator)

    def update(batch: np.ndarray) -> None:
        nonlocal model
        gradient = objective.clipped_gradients(model[None], data, [batch], MECHANISM.clip).sums[0]
        gradient += MECHANISM.noise(generator, objective.size, objective.dtype)
        model = model - np.float32(STEP / len(batch)) * gradient

    return update


def plain_update() -> Callable[[torch.Tensor, torch.Tensor], None]:
    layer = torch.nn.Linear(784, 10)
    optimizer = torch.optim.SGD(layer.parameters(), lr=STEP)

    def update(x: torch.Tensor, y: torch.Tensor) -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(layer(x), y).backward()
        optimizer.step()

    return update


def measure(data: Split, size: int, repeats: int) -> dict[str, float]:
    """Median microseconds of both updates with batches of ``size``."""
    private, plain, rng = private_update(data), plain_update(), np.random.default_rng(size)
    seconds = np.empty((WARM_UP + repeats, 2))
    for k in range(len(seconds)):
        batch = np.sort(rng.choice(len(data), size, replace=False))
        x, y = torch.from_numpy(data.features[batch]), torch.from_numpy(data.targets[batch])
        start = time.perf_counter()
        plain(x, y)
        middle = time.perf_counter()
        private(batch)
        seconds[k] = middle - start, time.perf_counter() - middle
    plain_us, private_us = np.median(seconds[WARM_UP:], axis=0) * 1e6
    return {
        "batch": size,
        "plain_us": round(plain_us, 1),
        "private_us": round(private_us, 1),
        "ratio": round(private_us / plain_us, 3),
        "required": REQUIRED,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--repeats", type=int, default=3000, help="updates measured of each kind")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    data, source = load()
    rows = [measure(data, size, arguments.repeats) for size in BATCHES]
    if arguments.json:
        print(json.dumps({"benchmark": "softmax_update", "data": source, "rows": rows}))
        return
    print(f"softmax regression, {source} 784 x 10, one thread")
    print("".join(f"{name:>12}" for name in rows[0]))
    for row in rows:
        print("".join(f"{value:>12}" for value in row.values()))


if __name__ == "__main__":
    main()
