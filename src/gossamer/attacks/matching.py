"""Gradient matching: an input, found by optimisation, whose gradient is the one that was seen.

| objective | minimises over the dummy x | optimiser | for |
|---|---|---|---|
| `euclidean` | ``|g(x) - g|^2 / |g|^2`` [1] | L-BFGS | smooth networks (sigmoid, tanh, average pooling) |
| `cosine` | ``1 - cos(g(x), g) + tv TV(x)`` [3] | Adam on the gradient's signs | ReLU, max pooling; any other |

The label is read off first: with the cross-entropy loss the last layer's bias has the gradient ``p - y``, whose only
negative entry is the true class [2]. The gradient is that of one example; a clip scales it by an unknown factor of at
most 1, which the cosine ignores and `euclidean` imitates by clipping g(x) too.

References
----------
[1] Zhu, Liu and Han, "Deep leakage from gradients", NeurIPS 2019, algorithm 1.
[2] Zhao, Mopuri and Bilen, "iDLG: improved deep leakage from gradients", 2020, equation (3).
[3] Geiping, Bauermeister, Droege and Moeller, "Inverting gradients: how easy is it to break privacy in federated
    learning?", NeurIPS 2020, equation (4) and section 5 (signed Adam, a box, total variation).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from gossamer.arrays import FloatArray
from gossamer.errors import ModelError, SpecError
from gossamer.objectives.networks.gradients import one_torch_thread
from gossamer.objectives.networks.module import TorchModule
from gossamer.objectives.networks.network import Network
from gossamer.objectives.objective import Objective

_KINKED = (nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.Hardtanh, nn.Hardswish, nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)
_STEP = 0.05  # of Adam, in units of the data's range
_TV = 0.1  # chosen on the first four MNIST digits under cnn_mapa, from 0, 0.001, 0.01, 0.05, 0.1, 0.2 and 0.3


def infer_label(objective: TorchModule, gradient: FloatArray) -> int:
    """The class whose entry in the last bias's gradient is the least; the true one without noise [2].

    Raises
    ------
    ModelError
        If the last part is no bias, or the loss is not the cross-entropy.
    """
    last = objective.parts[-1]
    if objective.loss != "cross_entropy" or len(last.shape) != 1 or not last.name.endswith("bias"):
        raise ModelError(
            f"labels are inferred from the last layer's bias under cross_entropy, found {last.name} "
            f"{list(last.shape)} under {objective.loss}"
        )
    return int(np.argmin(gradient[-last.size :]))


def match_gradient(
    objective: Objective,
    model: FloatArray,
    gradient: FloatArray,
    shape: tuple[int, ...],
    *,
    low: float = 0.0,
    high: float = 1.0,
    clip: float = math.inf,
    steps: int | None = None,
    seed: int = 0,
) -> FloatArray:
    """Recover one example from its gradient.

    Parameters
    ----------
    objective : TorchModule
        The network.
    model : ndarray [size]
        Model at which the gradient was taken.
    gradient : ndarray [size]
        Gradient of the loss alone, of one example; clipped, noised or neither.
    shape : tuple of int
        Shape of an example.
    low, high : float
        Range of the data; the recovered input stays inside.
    clip : float
        Clip of the gradient; only `euclidean` needs it.
    steps : int, optional
        Number of steps of the optimiser; by default 300 for L-BFGS, whose steps are larger, and 1,200 for Adam.
    seed : int
        Seed of the start.

    Raises
    ------
    ModelError
        If the objective is no network with the cross-entropy loss and a last bias.
    SpecError
        If a number is out of range.
    """
    if not isinstance(objective, TorchModule):
        raise ModelError(f"gradient matching is for networks, found {type(objective).__name__}; invert linear models")
    if (steps is not None and steps < 1) or not high > low:
        raise SpecError(f"expected steps of at least 1 and low < high, found {steps}, {low:g} and {high:g}")
    label, network = infer_label(objective, gradient), objective.network
    target = torch.tensor(np.asarray(gradient), dtype=torch.float32)
    dummy = _Dummy(network, torch.tensor(model), target, torch.tensor([label]), clip)
    generator = torch.Generator().manual_seed(seed % 2**63)
    start = low + (high - low) * torch.rand((1, *shape), generator=generator)
    with one_torch_thread():  # one example is too little work to share: more threads take up to ten times longer
        if any(isinstance(layer, _KINKED) for layer in network.module.modules()):
            found = _by_signs(dummy, start, (low, high), steps or 1200)
        else:
            found = _by_lbfgs(dummy, start, (low, high), steps or 300)
    return found[0].double().numpy()


@dataclass(frozen=True)
class _Dummy:
    """Distance of the gradient of a dummy input from the one that was seen."""

    network: Network
    model: Tensor
    target: Tensor
    label: Tensor
    clip: float

    def gradient(self, x: Tensor) -> Tensor:
        """Gradient of the loss at x by the parameters, [size], differentiable by x."""
        parameters = {name: p.detach().requires_grad_() for name, p in self.network.parameters(self.model).items()}
        loss = self.network.losses(parameters, x, self.label).sum()
        pieces = torch.autograd.grad(loss, list(parameters.values()), create_graph=True)
        return torch.cat([piece.reshape(-1) for piece in pieces])

    def cosine(self, x: Tensor) -> Tensor:
        found = self.gradient(x)
        distance: Tensor = 1 - (found @ self.target) / (found.norm() * self.target.norm()).clamp_min(1e-12)
        return distance

    def euclidean(self, x: Tensor) -> Tensor:
        found = self.gradient(x)
        if math.isfinite(self.clip):
            found = found * (self.clip / found.norm().clamp_min(1e-12)).clamp_max(1.0)
        return (found - self.target).square().sum() / self.target.square().sum().clamp_min(1e-12)


def _variation(x: Tensor) -> Tensor:
    """Mean absolute difference of neighbouring pixels; 0 for what is no picture."""
    if x.ndim != 4:
        return torch.zeros(())
    return x.diff(dim=-1).abs().mean() + x.diff(dim=-2).abs().mean()


def _by_signs(dummy: _Dummy, start: Tensor, box: tuple[float, float], count: int) -> Tensor:
    low, high = box
    x = start.clone().requires_grad_()
    optimiser = torch.optim.Adam([x], lr=_STEP * (high - low))
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimiser, [count * k // 8 for k in (3, 5, 7)], gamma=0.1)
    for _ in range(count):
        loss = dummy.cosine(x) + _TV * _variation(x) / (high - low)
        (slope,) = torch.autograd.grad(loss, x)
        x.grad = slope.sign()
        optimiser.step()
        schedule.step()
        with torch.no_grad():
            x.clamp_(low, high)
    return x.detach()


def _by_lbfgs(dummy: _Dummy, start: Tensor, box: tuple[float, float], count: int) -> Tensor:
    x = start.clone().requires_grad_()
    optimiser = torch.optim.LBFGS([x], max_iter=count, history_size=50, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        loss = dummy.euclidean(x)
        (x.grad,) = torch.autograd.grad(loss, x)
        return loss

    step: Callable[[Callable[[], Tensor]], Tensor] = optimiser.step
    step(closure)
    return x.detach().clamp(*box)
