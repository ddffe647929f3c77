"""Linear models on a device: all nodes of a call by products of matrices, one batch of them a layer.

A gradient is the product of an example's residual and its features (`glm_kernels`), so clipping scales residuals, and
no gradient is ever formed.

References
----------
Goodfellow, "Efficient per-example gradient computations", arXiv:1510.01799, section 4.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from gossamer.data.examples import Split
from gossamer.objectives.asked import Computing
from gossamer.objectives.device.device import Device, DeviceLimits, PaddedExamples, SumsThere
from gossamer.objectives.linear import kernels as glm_kernels
from gossamer.objectives.linear.model import LinearModel
from gossamer.objectives.networks.gradients import GradientSums


def _softmax(z: Tensor, y: Tensor) -> Tensor:
    own = torch.arange(z.shape[-1], device=z.device) == y[..., None]
    return z.softmax(-1) - own.to(z.dtype)


def _hinge(z: Tensor, y: Tensor) -> Tensor:
    own = y[..., None] == (torch.arange(z.shape[-1], device=z.device) if z.shape[-1] > 1 else 1)
    sign = torch.where(own, 1.0, -1.0).to(z.dtype)
    return torch.where(sign * z < 1, -sign, 0.0)


RESIDUALS: dict[int, Callable[[Tensor, Tensor], Tensor]] = {
    glm_kernels.LOGISTIC: lambda z, y: torch.sigmoid(z) - y[..., None],
    glm_kernels.SOFTMAX: _softmax,
    glm_kernels.SQUARED: lambda z, y: z - y[..., None],
    glm_kernels.SQUARED_ERROR: lambda z, y: 2 * (z - y[..., None]),
    glm_kernels.HINGE: _hinge,
}
"""Derivatives of losses by outputs z [..., outputs], for targets y [...]."""


class _LinearWay(NamedTuple):
    """A split on the device, and the way to sums of it: ``squares`` are |x|^2, plus one if there is an intercept."""

    features: Tensor  # [n, features] of the models' type
    targets: Tensor  # [n] of float64
    squares: Tensor  # [n] of float64
    model: DeviceLinear
    limits: DeviceLimits

    def method(self, models: Tensor, examples: PaddedExamples, clips: Tensor) -> GradientSums:
        """See `device.Method`."""
        model = self.model
        nodes, weights = len(models), model.outputs * model.features
        matrices = models[:, :weights].view(nodes, model.outputs, model.features)
        x = self.features[examples.places]
        z = x @ matrices.mT
        if model.intercept:
            z += models[:, None, weights:]
        residuals = RESIDUALS[model.loss.code](z, self.targets[examples.places].to(z.dtype))
        norms = residuals.double().square().sum(-1).sqrt() * self.squares[examples.places].sqrt()
        sound = (norms <= torch.finfo(z.dtype).max) & models.isfinite().all(1)[:, None]
        counted = sound & examples.present
        within = norms <= clips[:, None]
        scale = torch.where(within, 1.0, clips[:, None] / norms)
        scaled = residuals * scale[..., None].to(z.dtype)
        # A subnormal number may be rounded up by half of itself, and the norm would exceed the clip.
        kept = counted[..., None] & (scaled.abs() >= torch.finfo(z.dtype).tiny)
        scaled = torch.where(kept, scaled, 0.0)
        if not sound.all():
            x = torch.where(counted[..., None], x, 0.0)  # zero times what is not finite is no number
        parts = [(scaled.mT @ x).flatten(1), *([scaled.sum(1)] if model.intercept else [])]
        zeroed = (examples.present & ~sound).sum(1)
        return GradientSums(torch.cat(parts, dim=1), zeroed, (counted & within).sum(1))


class DeviceLinear(SumsThere, LinearModel):
    """A linear model whose clipped sums are computed on a device; all else is as in `LinearModel`.

    Sparse examples are dense on the device.

    Parameters
    ----------
    device : Device
        Device that computes.
    *args, **settings
        Arguments of `LinearModel`.
    """

    def __init__(self, device: Device, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._settle(device, partial(LinearModel, *args, **settings))

    def computing(self) -> Computing:
        """See `Objective.computing`."""
        return Computing("linear", device=self.device.title)

    def _taken(self, data: Split) -> _LinearWay:
        examples = self._examples(data)
        matrix = examples.matrix.toarray() if sp.issparse(examples.matrix) else examples.matrix
        squares = np.einsum("ij,ij->i", matrix, matrix, dtype=np.float64) + self.intercept
        # Of an example its features, gathered, and of its node the model, the sum and room to add.
        each = self.dtype.itemsize * (2 * self.features + 4 * self.outputs + 3 * self.size)
        limit = max(1, self.device.memory // each)
        with self.device.computing():
            return _LinearWay(
                self.device.upload(np.ascontiguousarray(matrix, self.dtype)),
                self.device.upload(np.asarray(examples.targets)),
                self.device.upload(squares),
                self,
                DeviceLimits(limit, limit),
            )
