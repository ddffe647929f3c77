"""Networks of the jobs, as users write them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
from torch import nn


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


NETWORKS: Mapping[str, Callable[[], nn.Sequential]] = MappingProxyType(
    {
        "cnn": cnn,
        "lenet5 relu": lambda: lenet5(nn.ReLU),
        "lenet5 tanh": lambda: lenet5(nn.Tanh),
        "mlp": mlp,
        "softmax": softmax,
    }
)


def network(name: str, seed: int) -> nn.Sequential:
    """A network with the same parameters in every process."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return NETWORKS[name]()
