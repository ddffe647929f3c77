"""Laplace noise on every coordinate, so wide that a full-batch release has one epsilon, whatever its size."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gossamer.arrays import FloatArray
from gossamer.privacy.mechanisms import Mechanism, NeighboringRelation
from gossamer.protocol.encoding import register


@register("mechanism.sized_laplace")
@dataclass(frozen=True)
class SizedLaplace(Mechanism):
    """Independent Laplace noise of scale sqrt(size) clip / epsilon."""

    epsilon: float

    def release_epsilon(self, relation: NeighboringRelation, size: int) -> float:
        return relation.sensitivity(1.0) * self.epsilon

    def noise(self, generator: np.random.Generator, size: int, dtype: npt.DTypeLike) -> FloatArray:
        return generator.laplace(0.0, math.sqrt(size) * self.clip / self.epsilon, size).astype(dtype)

    def second_moment(self, size: int) -> float:
        return 2 * size * size * (self.clip / self.epsilon) ** 2
