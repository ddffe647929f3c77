"""What privacy costs a small CNN: one update, and a round of gossip workers, against plain PyTorch.

    python benchmarks/cnn_update.py [--json] [--rounds 30] [--threads 1 2]

Update: `cnn_mapa` on images like MNIST's. *plain* is forward, backward and an SGD step on the mean loss; *private* is
clipped per-example gradients, Gaussian noise and the step. Workers: private gradients of 16 models with a batch each;
*loop* goes through them one by one with ``vmap(grad(...))`` written by hand, *gossamer* takes all in one call.
Either way both sides may use the same number of threads: of torch (plain, loop) or worker threads (private, gossamer).

Both sides run in turn, and a ratio is that of their least times: what load from elsewhere disturbed least.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
import torch
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

from gossamer.arrays import FloatArray, IndexArray
from gossamer.data.examples import Split
from gossamer.objectives.models import build_model
from gossamer.objectives.networks.module import TorchModule
from gossamer.privacy.mechanisms import Gaussian
from gossamer.threads import available_cores

SHAPE, CLASSES = (1, 28, 28), 10
NODES = 16
MECHANISM = Gaussian(clip=1.0, noise_multiplier=1.0)
LEARNING_RATE = 0.1
REQUIRED = {("update", 256): 1.7, ("workers", 32): 0.75}

Step = Callable[[], object]


@dataclass(frozen=True)
class Row:
    """One comparison; times are the least of all rounds, in milliseconds."""

    what: str
    batch: int
    threads: int
    plain_ms: float
    private_ms: float
    ratio: float
    required: float | None


def update(data: Split, batch: int, threads: int) -> tuple[Step, Step]:
    """A plain and a private update at one batch."""
    module = build_model("cnn_mapa", SHAPE, CLASSES)
    objective = TorchModule(module, threads=threads)
    generator = np.random.default_rng(1)
    indices = generator.choice(len(data), batch, replace=False)
    optimiser = torch.optim.SGD(module.parameters(), lr=LEARNING_RATE)
    features, targets = torch.from_numpy(data.features), torch.from_numpy(data.targets)
    model = objective.initial(generator)

    def plain() -> None:
        optimiser.zero_grad()
        F.cross_entropy(module(features[indices]), targets[indices]).backward()  # type: ignore[no-untyped-call]
        optimiser.step()

    def private() -> None:
        sums = objective.clipped_gradients(model[None], data, [indices], MECHANISM.clip).sums[0]
        noisy = sums + MECHANISM.noise(generator, objective.size, objective.dtype)
        model[:] -= LEARNING_RATE / batch * noisy

    return plain, private


def workers(data: Split, batch: int, threads: int) -> tuple[Step, Step]:
    """Private gradients of all nodes, by a loop written by hand and by the library."""
    module = build_model("cnn_mapa", SHAPE, CLASSES)
    objective = TorchModule(module, threads=threads)
    generator = np.random.default_rng(1)
    models = np.stack([objective.initial(generator) for _ in range(NODES)])
    batches = [generator.choice(len(data), batch, replace=False) for _ in range(NODES)]
    features, targets = torch.from_numpy(data.features), torch.from_numpy(data.targets)
    shapes = {name: parameter.shape for name, parameter in module.named_parameters()}

    def loss(parameters: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(functional_call(module, parameters, (x[None],)), y[None])

    per_example = vmap(grad(loss), in_dims=(None, 0, 0))

    def one(model: FloatArray, indices: IndexArray) -> torch.Tensor:
        pieces = torch.split(torch.from_numpy(model), [shape.numel() for shape in shapes.values()])
        parameters = {name: piece.view(shape) for (name, shape), piece in zip(shapes.items(), pieces)}
        gradients = [g.flatten(1) for g in per_example(parameters, features[indices], targets[indices]).values()]
        norms = torch.stack([g.square().sum(1) for g in gradients]).sum(0).sqrt()
        weights = (MECHANISM.clip / norms).clamp(max=1)
        return torch.cat([weights @ g for g in gradients])

    def loop() -> list[torch.Tensor]:
        return [one(model, indices) for model, indices in zip(models, batches)]

    def library() -> FloatArray:
        return objective.clipped_gradients(models, data, batches, MECHANISM.clip).sums

    assert np.allclose(torch.stack(loop()).numpy(), library(), atol=1e-4)  # the two compute the same
    return loop, library


def compare(what: str, batch: int, threads: int, sides: tuple[Step, Step], rounds: int) -> Row:
    """Time both sides in turn."""
    torch.set_num_threads(threads)
    times: tuple[list[float], list[float]] = ([], [])
    for round_number in range(rounds + 2):
        for side, taken in zip(sides, times):
            start = time.perf_counter()
            side()
            if round_number >= 2:  # the first calls prepare
                taken.append(1e3 * (time.perf_counter() - start))
    plain, private = map(min, times)
    return Row(what, batch, threads, plain, private, private / plain, REQUIRED.get((what, batch)))


def main() -> None:
    """Run all comparisons and print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--rounds", type=int, default=30, help="timed rounds of each comparison")
    parser.add_argument("--threads", type=int, nargs="+", default=sorted({1, available_cores()}))
    arguments = parser.parse_args()

    generator = np.random.default_rng(0)
    features = generator.standard_normal((4096, *SHAPE), dtype=np.float32)
    data = Split(features, generator.integers(0, CLASSES, 4096))
    rows = []
    for threads in arguments.threads:
        rows += [compare("update", n, threads, update(data, n, threads), arguments.rounds) for n in (64, 256)]
        rows += [compare("workers", n, threads, workers(data, n, threads), arguments.rounds) for n in (8, 32, 64)]
    if arguments.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
        return
    print(f"{'':8} {'batch':>5} {'threads':>7} {'plain/loop ms':>13} {'private ms':>10} {'ratio':>6} {'required':>8}")
    for row in rows:
        required = f"{row.required:8.2f}" if row.required else f"{'-':>8}"
        times = f"{row.plain_ms:13.2f} {row.private_ms:10.2f} {row.ratio:6.2f} {required}"
        print(f"{row.what:8} {row.batch:5} {row.threads:7} {times}")


if __name__ == "__main__":
    main()
