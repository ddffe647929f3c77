"""The noise of MAPA's published experiments, which guarantees nothing.

It exists to reproduce the paper's figures, and every run with it ends with the guarantee "none":

- An *exponential* norm in place of `gossamer.privacy.mechanisms.L2Laplace`'s Gamma(d) is not epsilon-DP for d > 1: its
  density is proportional to ``exp(-epsilon |n| / S) |n|^(1-d)``, unbounded at 0, so two neighbours are told apart with
  certainty in the limit of small noise.
- Noise on the *first layer* alone leaves the gradients of all other layers exact, and they come from the same data.

References
----------
MAPA, section 7.1 ("noise is only added to the gradient of the first convolutional layer") and its published code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from gossamer.arrays import FloatArray
from gossamer.errors import SpecError, real_number, whole_number
from gossamer.privacy.mechanisms import Mechanism, NeighboringRelation


@dataclass(frozen=True)
class PaperNoise(Mechanism):
    """Noise of random direction whose norm follows another law, or that leaves coordinates out.

    Attributes
    ----------
    epsilon : float
        Epsilon that the paper calls the privacy of one release.
    relation : NeighboringRelation
        Relation under which the sensitivity S is taken.
    norm : {"gamma", "exponential"}
        Law of the noise's norm: Gamma(coordinates, S/epsilon), or exponential of mean S/epsilon.
    coordinates : int
        Number of leading coordinates that are noised; 0 is all.
    """

    epsilon: float
    relation: NeighboringRelation
    norm: Literal["gamma", "exponential"] = "exponential"
    coordinates: int = 0

    private: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "relation", NeighboringRelation(self.relation))  # decoded, it is a bare string
        if not 0 < real_number(self.epsilon) < np.inf or not self.clip < np.inf:
            raise SpecError(f"noise needs a finite clip and epsilon > 0, found {self.clip!r} and {self.epsilon!r}")
        if whole_number(self.coordinates) is None:
            raise SpecError(f"noise is on a whole number of coordinates, 0 for all, found {self.coordinates!r}")

    @property
    def words(self) -> str:
        return f"noise whose norm is {self.norm} (epsilon {self.epsilon:.4g} a release, which is not proved)"

    @property
    def scale(self) -> float:
        """S / epsilon, the scale of the noise's norm."""
        return self.sensitivity(self.relation) / self.epsilon

    def noise(self, generator: np.random.Generator, size: int, dtype: npt.DTypeLike) -> FloatArray:
        noised = self._noised(size)
        direction = generator.standard_normal(noised)
        norm = generator.gamma(noised if self.norm == "gamma" else 1.0, self.scale)
        draw = np.zeros(size, dtype)
        draw[:noised] = direction * (norm / np.linalg.norm(direction))
        return draw

    def second_moment(self, size: int) -> float:
        shape = self._shape(size)
        return shape * (shape + 1) * self.scale**2

    def mean_norm(self, size: int) -> float:
        """The mean L2 norm of the noise on a sum of ``size`` coordinates."""
        return self._shape(size) * self.scale

    def _shape(self, size: int) -> int:
        """Return the shape of the Gamma law of the noise's norm; an exponential law is the one of shape 1."""
        return self._noised(size) if self.norm == "gamma" else 1

    def _noised(self, size: int) -> int:
        return min(self.coordinates, size) if self.coordinates else size
