"""Clipped gradients of a module as the definition says: one example at a time, by plain autograd."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from tests.reference.glm_slow import Clipped
from threadpoolctl import threadpool_limits
from torch import nn


@threadpool_limits.wrap(limits=1)  # one example is too small to share
def example_gradient(module: nn.Module, model: np.ndarray, x: np.ndarray, target: float, loss: str) -> np.ndarray:
    """The gradient [size] of one example's loss, with the flat ``model`` put into a copy of ``module``."""
    module = copy.deepcopy(module).eval()
    trainable = [parameter for parameter in module.parameters() if parameter.requires_grad]
    start = 0
    for parameter in trainable:
        piece = torch.tensor(model[start : start + parameter.numel()])
        parameter.data = piece.reshape(parameter.shape)
        start += parameter.numel()
    outputs = module(torch.tensor(x[None], dtype=trainable[0].dtype))
    if loss == "cross_entropy":
        value = F.cross_entropy(outputs, torch.tensor([int(target)]))
    else:
        value = F.mse_loss(outputs.reshape(()), torch.tensor(target, dtype=outputs.dtype))
    value.backward()
    gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in trainable]
    return torch.cat([gradient.reshape(-1) for gradient in gradients]).numpy()


def clipped_sum(
    module: nn.Module,
    model: np.ndarray,
    features: np.ndarray,
    targets: Sequence[float] | np.ndarray,
    clip: float,
    loss: str = "cross_entropy",
) -> Clipped:
    """Each gradient is scaled to a norm of at most ``clip``; one that is not finite is left out."""
    total, zeroed, unclipped = np.zeros_like(model), 0, 0
    for x, target in zip(features, targets):
        gradient = example_gradient(module, model, x, target, loss)
        if not np.isfinite(gradient).all():
            zeroed += 1
            continue
        norm = math.sqrt(math.fsum(float(entry) ** 2 for entry in gradient))
        unclipped += norm <= clip
        total += gradient * min(1.0, clip / norm) if norm else 0.0
    return Clipped(total, zeroed, unclipped)
