"""Networks of the jobs, as users write them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def cnn() -> nn.Sequential:
    """4,380 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 10, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(10, 10, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(160, 10),
    )


def lenet5(activation: type[nn.Module]) -> nn.Sequential:
    """61,706 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2),
        activation(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        activation(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 120),
        activation(),
        nn.Linear(120, 84),
        activation(),
        nn.Linear(84, 10),
    )


def mlp() -> nn.Sequential:
    """199,210 parameters."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 10)
    )


def softmax() -> nn.Sequential:
    """7,850 parameters."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))


class Block(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first, self.norm1 = nn.Conv2d(inputs, outputs, 3, stride, 1), nn.GroupNorm(4, outputs)
        self.second, self.norm2 = nn.Conv2d(outputs, outputs, 3, 1, 1), nn.GroupNorm(4, outputs)
        self.shortcut = nn.Identity() if inputs == outputs and stride == 1 else nn.Conv2d(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.first(x)))
        return F.relu(self.norm2(self.second(y)) + self.shortcut(x))


class Residual(nn.Module):
    """5,162 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(1, 8, 3, 2, 1), nn.GroupNorm(4, 8)
        self.blocks = nn.Sequential(Block(8, 8, 1), Block(8, 16, 2))
        self.out = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.blocks(F.relu(self.norm(self.stem(x)))).mean((2, 3)))


class Attention(nn.Module):
    """Rows of an image attend to each other, with four heads; 9,802 parameters."""

    def __init__(self, size: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.embedding = nn.Linear(28, size)
        self.norm1, self.qkv, self.joined = nn.LayerNorm(size), nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.norm2, self.up, self.down = nn.LayerNorm(size), nn.Linear(size, 2 * size), nn.Linear(2 * size, size)
        self.out = nn.Linear(size, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embedding(x.flatten(1, 2))
        n, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(n, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = (q @ k.transpose(-1, -2) * (d // self.heads) ** -0.5).softmax(dim=-1) @ v
        x = x + self.joined(y.transpose(1, 2).reshape(n, t, d))
        x = x + self.down(F.gelu(self.up(self.norm2(x))))
        return self.out(x.mean(1))


class Branches(nn.Module):
    """Convolutions of three sizes and a pool side by side."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(inputs, outputs, 1)
        self.three = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.five = nn.Conv2d(inputs, outputs, 5, padding=2)
        self.pool = nn.Sequential(nn.MaxPool2d(3, 1, 1), nn.Conv2d(inputs, outputs, 1))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(torch.cat([self.one(x), self.three(x), self.five(x), self.pool(x)], dim=1))


def branching() -> nn.Sequential:
    """9,466 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        Branches(8, 4),
        nn.MaxPool2d(2),
        Branches(16, 4),
        nn.Flatten(),
        nn.Linear(576, 10),
    )


NETWORKS: Mapping[str, Callable[[], nn.Module]] = MappingProxyType(
    {
        "cnn": cnn,
        "lenet5 relu": lambda: lenet5(nn.ReLU),
        "lenet5 tanh": lambda: lenet5(nn.Tanh),
        "mlp": mlp,
        "softmax": softmax,
        "residual": Residual,
        "attention": Attention,
        "branching": branching,
    }
)


def network(name: str, seed: int) -> nn.Module:
    """A network with the same parameters in every process."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return NETWORKS[name]()
