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

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from gossamer.errors import SpecError
from gossamer.numbers import whole_number
from gossamer.privacy.mechanisms import L2Laplace, NeighboringRelation


@dataclass(frozen=True)
class PaperNoise(L2Laplace):
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

    norm: Literal["gamma", "exponential"] = "exponential"
    coordinates: int = 0

    private: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if whole_number(self.coordinates) is None:
            raise SpecError(f"noise is on a whole number of coordinates, 0 for all, found {self.coordinates!r}")

    @property
    def words(self) -> str:
        return f"noise whose norm is {self.norm} (epsilon {self.epsilon:.4g} a release, which is not proved)"

    def release_epsilon(self, relation: NeighboringRelation, size: int = 1) -> float:
        return math.inf

    def _noised(self, size: int) -> int:
        return min(self.coordinates, size) if self.coordinates else size

    def _shape(self, size: int) -> int:
        return self._noised(size) if self.norm == "gamma" else 1  # an exponential law is the one of shape 1
