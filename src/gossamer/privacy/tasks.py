"""What a node may ask of its data side."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gossamer.errors import SpecError
from gossamer.privacy.mechanisms import Gaussian, L2Laplace, Laplace, Mechanism, NoNoise
from gossamer.privacy.paper_noise import PaperNoise
from gossamer.privacy.releases import ReleaseKind
from gossamer.privacy.sampling import FixedSize, Poisson, Sampling
from gossamer.protocol.encoding import register
from gossamer.vectors import Model

register("mechanism.gaussian")(Gaussian)
register("mechanism.laplace")(Laplace)
register("mechanism.l2_laplace")(L2Laplace)
register("mechanism.paper_noise")(PaperNoise)
register("mechanism.none")(NoNoise)
register("sampling.poisson")(Poisson)
register("sampling.fixed_size")(FixedSize)


@register("query")
@dataclass(frozen=True)
class Query:
    """How a gradient is to be computed; fixed for a node before the run.

    Attributes
    ----------
    sampling : Sampling
        How the batch is drawn.
    mechanism : Mechanism
        The clip and the noise on the sum.
    normaliser : float
        The expected batch size B that a mean divides by: a public constant, never the realised batch size.
    count_share : float
        Share of the release's squared privacy loss that goes to counting the gradients that were not clipped, in
        [0, 1); 0 is no count. Only for Gaussian noise, and none. See `gossamer.privacy.clipping`.
    unit : float
        What the noisy mean gradient is given in units of, such as the clip.
    """

    sampling: Sampling
    mechanism: Mechanism
    normaliser: float
    count_share: float = 0.0
    unit: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.unit < math.inf:
            raise SpecError(f"a gradient is given in units of a finite number above 0, found {self.unit!r}")
        if not 0 <= self.count_share < 1:
            raise SpecError(f"count_share lies in [0, 1), found {self.count_share!r}")
        if self.count_share and not isinstance(self.mechanism, (Gaussian, NoNoise)):
            raise SpecError(f"a count goes with Gaussian noise or none, found {type(self.mechanism).__name__}")

    def release(self, size: int) -> ReleaseKind:
        """The kind of release that a gradient of ``size`` numbers is, with its count if there is one."""
        return ReleaseKind(self.mechanism.unit(), self.sampling, size)


@register("task.gradient")
@dataclass(frozen=True)
class Gradient:
    """One noisy mean of clipped gradients, at ``model``.

    The answer is (sum of clipped gradients + noise) / (normaliser unit) + l2 * model, of the model's size, and after
    it, if the query asks for a count, (sum of b_i - 1/2 + noise) / normaliser with b_i 1 for an example that was not
    clipped and 0 for one that was.
    """

    id: int
    model: Model
    query: Query

    @property
    def answer_size(self) -> int:
        """How many numbers the answer has."""
        return self.model.size + (1 if self.query.count_share else 0)
