"""Losses that count large errors, or examples that are right already, for less."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from gossamer import OwnLoss

Task = Literal["classification", "regression"]


class Huber(OwnLoss):
    """Half the square of errors up to ``delta``, and linear beyond."""

    task: ClassVar[Task] = "regression"
    name: Literal["huber"] = "huber"
    delta: float = Field(default=1.0, gt=0)

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        error = (outputs - target).abs()
        return torch.where(error < self.delta, error.square() / 2, self.delta * (error - self.delta / 2))


class Focal(OwnLoss):
    """Cross entropy, less for examples that are right already (Lin et al., ICCV 2017, equation 4)."""

    task: ClassVar[Task] = "classification"
    name: Literal["focal"] = "focal"
    gamma: float = Field(default=2.0, ge=0)

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        entropy = F.cross_entropy(outputs, target)
        return (1 - torch.exp(-entropy)) ** self.gamma * entropy


class Laplace(OwnLoss):
    """Two outputs: where a Laplace law lies, and the logarithm of its scale."""

    task: ClassVar[Task] = "regression"
    name: Literal["laplace"] = "laplace"

    def outputs(self, classes: int) -> int:
        return 2

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        return outputs[1] + (target - outputs[0]).abs() * torch.exp(-outputs[1])

    def scores(self, outputs: Tensor) -> Tensor:
        return outputs[0]


class Single(OwnLoss):
    """One output for two classes: the logarithm of the second one's odds."""

    task: ClassVar[Task] = "classification"
    name: Literal["single"] = "single"

    def outputs(self, classes: int) -> int:
        return classes - 1

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        return F.softplus(outputs) - target * outputs

    def scores(self, outputs: Tensor) -> Tensor:
        return torch.stack([torch.zeros_like(outputs), outputs])
