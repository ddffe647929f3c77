"""What a node may ask of its data side."""

from __future__ import annotations

from dataclasses import dataclass

from gossamer.privacy.mechanisms import Gaussian, Laplace, Mechanism, NoNoise
from gossamer.privacy.releases import ReleaseKind
from gossamer.privacy.sampling import FixedSize, Poisson, Sampling
from gossamer.protocol.encoding import register
from gossamer.vectors import Model

register("mechanism.gaussian")(Gaussian)
register("mechanism.laplace")(Laplace)
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
    """

    sampling: Sampling
    mechanism: Mechanism
    normaliser: float

    def release(self, size: int) -> ReleaseKind:
        """The kind of release that an answer of ``size`` numbers is."""
        return ReleaseKind(self.mechanism, self.sampling, size)


@register("task.gradient")
@dataclass(frozen=True)
class Gradient:
    """One noisy mean of clipped gradients, at ``model``.

    The answer is (sum of clipped gradients + noise) / normaliser + l2 * model, of the model's size.
    """

    id: int
    model: Model
    query: Query
