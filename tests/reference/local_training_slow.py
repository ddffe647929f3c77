"""Local training of one client as its definition says: step after step in float64, from any gradient; and PyTorch's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from tests.reference.local_updates_slow import Gradient, Slow
from torch import nn

from gossamer.data.examples import Split
from gossamer.objectives.objective import Training


def batches_of(training: Training) -> list[list[int]]:
    """The examples of each step."""
    left, found = training.batches.examples.tolist(), []
    for length in training.batches.lengths.tolist():
        found.append(left[:length])
        left = left[length:]
    assert not left
    return found


def local_training(gradient: Gradient, start: np.ndarray, training: Training, l2: float) -> Slow:
    """Heavy ball on the loss with the L2 term and ``mu/2 |w - w_0|^2``; a step that is not finite is left out."""
    start = start.astype(np.float64)
    w, velocity, not_finite = start.copy(), np.zeros_like(start), 0
    for rows in batches_of(training):
        with np.errstate(over="ignore", invalid="ignore"):
            mean = sum(gradient(w, i) for i in rows) / len(rows)
            whole = mean + l2 * w + training.proximal * (w - start)
        if not np.isfinite(whole).all():
            not_finite += 1
            continue
        velocity = training.momentum * velocity + whole
        w = w - training.rate * velocity
    return Slow(w - start, not_finite)


def torch_training(
    module: nn.Module,
    start: np.ndarray,
    data: Split,
    training: Training,
    l2: float,
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> np.ndarray:
    """The update [size] of PyTorch's own optimiser and autograd, with both terms in the loss that it differentiates."""
    parameters = list(module.parameters())
    kind = parameters[0].dtype
    nn.utils.vector_to_parameters(torch.tensor(start, dtype=kind), parameters)
    first = [parameter.detach().clone() for parameter in parameters]
    x, y = torch.tensor(data.features, dtype=kind), torch.tensor(data.targets)
    optimizer = torch.optim.SGD(parameters, lr=training.rate, momentum=training.momentum)
    for rows in batches_of(training):
        optimizer.zero_grad()
        total = loss(module(x[rows]), y[rows])
        for parameter, before in zip(parameters, first, strict=True):
            total = total + l2 / 2 * parameter.square().sum()
            total = total + training.proximal / 2 * (parameter - before).square().sum()
        total.backward()
        optimizer.step()
    after = nn.utils.parameters_to_vector(parameters).detach().numpy()
    return np.asarray(after.astype(np.float64) - start.astype(np.float64))
