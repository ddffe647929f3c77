"""A private step of low-rank adapters over a step of the same adapters without privacy.

    python benchmarks/adapters.py                 # one thread
    python benchmarks/adapters.py --threads 2 --blocks 15

A transformer of 10 million parameters, sequences of 64 words, batches of 16, rank 8, noise on. Blocks of both take
turns, so whatever else the machine does meets both; the median of their ratios is printed. Beside it stands how far
clipped gradients are from those by ``vmap(grad)``.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

from gossamer import Split, TorchModule
from gossamer.objectives.network_settings import AdapterSettings
from gossamer.objectives.networks.adapters import adapt
from gossamer.privacy.mechanisms import Gaussian
from gossamer.randomness import stream

WORDS, LENGTH, BATCH, CLASSES, SIZE, HEADS, BLOCKS, RANK, RATE = 3000, 64, 16, 4, 384, 6, 5, 8, 0.1
MODULES = {"query and value": ("query", "value"), "all": ("query", "key", "value", "joined", "up", "down")}


class Block(nn.Module):
    """Attention and two layers behind it, each beside a shortcut."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(SIZE), nn.LayerNorm(SIZE)
        self.query, self.key, self.value, self.joined = (nn.Linear(SIZE, SIZE) for _ in range(4))
        self.up, self.down = nn.Linear(SIZE, 4 * SIZE), nn.Linear(4 * SIZE, SIZE)

    def forward(self, x: Tensor) -> Tensor:
        n, t, d = x.shape
        y = self.norm1(x)
        q, k, v = (f(y).view(n, t, HEADS, d // HEADS).transpose(1, 2) for f in (self.query, self.key, self.value))
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, t, d)
        x = x + self.joined(y)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    """Classes of sequences of words."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, SIZE), nn.Parameter(torch.randn(LENGTH, SIZE) / 10)
        self.blocks = nn.Sequential(*(Block() for _ in range(BLOCKS)))
        self.out = nn.Linear(SIZE, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.blocks(self.words(x.long()) + self.places).mean(1))


def measured(modules: tuple[str, ...], threads: int, blocks: int) -> None:
    """Print one line."""
    torch.manual_seed(0)
    module = Transformer()
    whole = sum(each.numel() for each in module.parameters())
    module = adapt(module, AdapterSettings(rank=RANK, modules=modules))
    generator = np.random.default_rng(0)
    x, y = generator.integers(0, WORDS, (256, LENGTH)).astype(np.float32), generator.integers(0, CLASSES, 256)
    objective, data, law = TorchModule(module, threads=threads), Split(x, y), Gaussian(clip=1.0, noise_multiplier=1.0)
    model, noise = objective.initial(generator), stream(0, "noise")
    trained = [each for each in module.parameters() if each.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=RATE)

    def plain(rows: np.ndarray) -> None:
        optimizer.zero_grad()
        F.cross_entropy(module(torch.tensor(x[rows])), torch.tensor(y[rows])).backward()
        optimizer.step()

    def private(rows: np.ndarray) -> None:
        total = objective.clipped_gradients(model[None], data, [rows], law.clip).sums[0]
        total += law.noise(noise, objective.size, objective.dtype)
        model[:] -= np.float32(RATE / len(rows)) * total

    def clock(step: Callable[[np.ndarray], None]) -> float:
        began = time.perf_counter()
        step(generator.choice(256, BATCH, replace=False))
        return time.perf_counter() - began

    torch.set_num_threads(threads)
    for step in (plain, private):
        clock(step)
    pairs = [(clock(plain), clock(private)) for _ in range(blocks)]
    ratio = statistics.median(after / before for before, after in pairs)
    error = difference(objective, module, data, generator)
    print(
        f"adapters of {', '.join(modules)}: {whole:,} parameters, {objective.size:,} trained ({model.nbytes:,} bytes), "
        f"{objective.computing().strategy}, {statistics.median(before for before, _ in pairs):.3f} s without privacy, "
        f"private {ratio:.2f} times that; gradients differ by {error:.1e}; load {os.getloadavg()[0]:.1f}"
    )


def difference(objective: TorchModule, module: nn.Module, data: Split, generator: np.random.Generator) -> float:
    """Relative difference of a clipped sum from ``vmap(grad)``, at a random model."""
    model = (generator.standard_normal(objective.size) / 10).astype(np.float32)
    found = objective.clipped_gradients(model[None], data, [np.arange(BATCH)], 1.0).sums[0]
    pieces = torch.tensor(model).split([part.size for part in objective.parts])
    held = {part.name: piece.view(part.shape) for part, piece in zip(objective.parts, pieces, strict=True)}

    def loss(parameters: dict[str, Tensor], features: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(module, parameters, features[None]), target[None])

    rows = torch.tensor(data.features[:BATCH]), torch.tensor(data.targets[:BATCH])
    each = torch.cat([one.flatten(1) for one in vmap(grad(loss), (None, 0, 0))(held, *rows).values()], 1).double()
    expected = (each * (1 / each.norm(dim=1)).clamp(max=1)[:, None]).sum(0).numpy()
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--blocks", type=int, default=9)
    asked = parser.parse_args()
    for modules in MODULES.values():
        measured(modules, asked.threads, asked.blocks)
