"""Clipped gradients of linear models as the definition says: one example at a time, by autograd."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

from gossamer.data.examples import Split
from gossamer.objectives.linear.model import LinearModel


class Clipped(NamedTuple):
    """Sum [size] of clipped gradients, how many were not finite, and how many were within the clip."""

    total: np.ndarray
    zeroed: int
    unclipped: int


def example_loss(loss: str, z: torch.Tensor, target: float) -> torch.Tensor:
    """The loss of one example with outputs z [outputs]."""
    if loss == "softmax":
        return F.cross_entropy(z, torch.tensor(int(target)))
    if loss == "logistic":
        return F.binary_cross_entropy_with_logits(z[0], torch.tensor(target, dtype=z.dtype))
    if loss == "squared":
        return F.mse_loss(z[0], torch.tensor(target, dtype=z.dtype)) / 2
    if loss == "squared_error":
        return F.mse_loss(z[0], torch.tensor(target, dtype=z.dtype))
    own = int(target) if len(z) > 1 else int(target) - 1
    signs = torch.tensor([1.0 if c == own else -1.0 for c in range(len(z))], dtype=z.dtype)
    return F.relu(1 - signs * z).sum()


def example_gradient(
    loss: str, model: np.ndarray, x: np.ndarray, target: float, outputs: int, intercept: bool
) -> np.ndarray:
    """The gradient [size] of one example's loss by the flat model [W in C order, b]."""
    w = torch.tensor(model, requires_grad=True)
    features = torch.tensor(x.reshape(-1), dtype=w.dtype)
    weight = w[: outputs * len(features)].reshape(outputs, len(features))
    bias = w[outputs * len(features) :] if intercept else None
    example_loss(loss, F.linear(features, weight, bias), target).backward()
    assert w.grad is not None
    return w.grad.numpy()


def clipped_sum(
    loss: str,
    model: np.ndarray,
    features: np.ndarray,
    targets: np.ndarray,
    batch: Sequence[int],
    clip: float,
    outputs: int,
    intercept: bool = True,
) -> Clipped:
    """Each gradient of the batch is scaled to a norm of at most ``clip``; one that is not finite is left out."""
    total, zeroed, unclipped = np.zeros(model.size), 0, 0
    for i in batch:
        gradient = example_gradient(loss, model, features[i], float(targets[i]), outputs, intercept)
        if not np.isfinite(gradient).all():
            zeroed += 1
            continue
        norm = np.linalg.norm(gradient.astype(np.float64))
        unclipped += int(norm <= clip)
        total += gradient * (min(1.0, clip / norm) if norm > 0 else 1.0)
    return Clipped(total, zeroed, unclipped)


def gradient_of(name: str, model: LinearModel, data: Split) -> Callable[[np.ndarray, int], np.ndarray]:
    """The gradient of one example at weights w, as a function of (w, its number)."""

    def gradient(w: np.ndarray, i: int) -> np.ndarray:
        target = float(data.targets[i])
        return example_gradient(name, w, data.features[i], target, model.outputs, model.intercept)

    return gradient
