"""FedAvg with a trusted server's noise as a plain loop in PyTorch, one client after the other.

It shares nothing with the library: it deals the examples, shuffles them, draws cohorts and makes the noise by its own
coins. The model that it starts from, and the noise multiplier, are given to it.

References
----------
B. McMahan, D. Ramage, K. Talwar and L. Zhang, "Learning differentially private recurrent language models", ICLR 2018,
Algorithm 1: clients drawn by coins of their own, whole updates clipped, a fixed denominator.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from threadpoolctl import threadpool_limits
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters


@dataclass(frozen=True)
class FedAvg:
    """A run of FedAvg; noise of standard deviation ``noise_multiplier * clip`` is added to each round's sum."""

    clients: int
    rounds: int
    per_round: int
    epochs: int
    batch: int
    local_rate: float
    rate: float
    clip: float
    noise_multiplier: float


def softmax() -> nn.Module:
    """Softmax regression on MNIST."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))


def cnn() -> nn.Module:
    """Two convolutions of ten 5x5 kernels, each with a 2x2 pooling and ReLU, and a linear layer, on MNIST."""
    return nn.Sequential(
        *(nn.Conv2d(1, 10, 5), nn.MaxPool2d(2), nn.ReLU()),
        *(nn.Conv2d(10, 10, 5), nn.MaxPool2d(2), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(160, 10)),
    )


def started(module: nn.Module, model: Mapping[str, np.ndarray]) -> nn.Module:
    """``module`` with the parameters of ``model``, which are in its order."""
    for parameter, values in zip(module.parameters(), model.values(), strict=True):
        assert parameter.shape == values.shape
        parameter.data = torch.tensor(values)
    return module


def federated(run: FedAvg, module: nn.Module, features: np.ndarray, targets: np.ndarray, seed: int) -> nn.Module:
    """The model after all rounds; ``features`` [n, ...] and ``targets`` [n] are dealt to the clients at random."""
    x, y = torch.tensor(features), torch.tensor(targets)
    coins, model = torch.Generator().manual_seed(seed), copy.deepcopy(module)
    shards = torch.randperm(len(y), generator=coins).tensor_split(run.clients)
    with threadpool_limits(1):  # a client's batches are too small to share
        for _ in range(run.rounds):
            drawn = torch.rand(run.clients, generator=coins) < run.per_round / run.clients
            start = parameters_to_vector(model.parameters()).detach()
            total = torch.zeros_like(start)
            for client in drawn.nonzero().flatten().tolist():
                total += clipped_update(run, model, x[shards[client]], y[shards[client]], coins)
            total += run.noise_multiplier * run.clip * torch.randn(total.shape, generator=coins)
            vector_to_parameters(start + run.rate * total / run.per_round, model.parameters())
    return model


def clipped_update(
    run: FedAvg, model: nn.Module, x: torch.Tensor, y: torch.Tensor, coins: torch.Generator
) -> torch.Tensor:
    """What a client's local training changes, no longer than the clip."""
    local = copy.deepcopy(model)
    optimizer = torch.optim.SGD(local.parameters(), lr=run.local_rate)
    for _ in range(run.epochs):
        for batch in torch.randperm(len(y), generator=coins).split(run.batch):
            optimizer.zero_grad()
            F.cross_entropy(local(x[batch]), y[batch]).backward()
            optimizer.step()
    delta = parameters_to_vector(local.parameters()).detach() - parameters_to_vector(model.parameters()).detach()
    return delta * min(1.0, run.clip / float(delta.norm()))


@torch.no_grad()
def accuracy(module: nn.Module, features: np.ndarray, targets: np.ndarray) -> float:
    """The share of ``features`` that ``module`` puts in the right class."""
    return float((module(torch.tensor(features)).argmax(1) == torch.tensor(targets)).float().mean())
