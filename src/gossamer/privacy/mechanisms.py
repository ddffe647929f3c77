"""Noise laws, described as data.

A mechanism knows the L2 clip of what it is added to, so its sensitivity follows from the clip and the
neighbouring relation and is never typed in. It is added to a *sum* of clipped per-example vectors.

| mechanism | noise on the sum | one release, full batch, sensitivity S |
|---|---|---|
| `Gaussian(clip, noise_multiplier)` | N(0, (noise_multiplier clip)^2 I) | Gaussian mechanism, sd/S |
| `BallGaussian(clip, noise_multiplier)` | the same, on a sum that is clipped as a whole | the same with S = clip |
| `L2Laplace(clip, epsilon, relation)` | density ~ exp(-epsilon |n| / S), norm ~ Gamma(d, S/epsilon) | epsilon-DP |
| `Laplace(clip, scale)` | independent Laplace(scale) per coordinate | sqrt(d) S / scale-DP |
| `NoNoise(clip)` | none | no guarantee |

References
----------
Gamma norm: Chaudhuri, Monteleoni and Sarwate, "Differentially private empirical risk minimization", JMLR
2011, section 3; an exponential norm is not epsilon-DP for d > 1.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from gossamer.arrays import FloatArray
from gossamer.errors import AccountingError, SpecError, real_number

if TYPE_CHECKING:
    from gossamer.privacy.pairs import Full


class NeighboringRelation(StrEnum):
    """Relation by which datasets are neighbours: they differ in one example."""

    ADD_OR_REMOVE_ONE = "add_or_remove_one"
    """One example is present or absent (read: one of n public slots is blank)."""

    REPLACE_ONE = "replace_one"
    """One example is replaced by another; the size is the same."""

    def sensitivity(self, clip: float) -> float:
        """Return how far a sum of vectors of L2 norm at most ``clip`` moves, in L2 norm, between neighbours."""
        return clip if self is NeighboringRelation.ADD_OR_REMOVE_ONE else 2.0 * clip


@dataclass(frozen=True)
class Mechanism:
    """Base of the noise laws: noise that is added to a sum of vectors of L2 norm at most ``clip``."""

    clip: float

    whole: ClassVar[bool] = False
    """Whether it is for sums that are clipped as a whole, to half of the clip."""
    private: ClassVar[bool] = True
    """Whether a release has any guarantee at all."""
    scale_free: ClassVar[bool] = True
    """Whether the noise is in proportion to the clip, so that a guarantee holds for every clip alike."""
    depends_on_size: ClassVar[bool] = True
    """Whether what it proves depends on how many coordinates get noise."""

    def __post_init__(self) -> None:
        if not real_number(self.clip) > 0:
            raise SpecError(f"clip must be a positive number, found {self.clip!r}")

    def with_clip(self, clip: float) -> Self:
        """The same law for another clip."""
        return replace(self, clip=clip)

    def unit(self) -> Self:
        """The law that a guarantee depends on: one that is `scale_free` with a clip of 1, another one as it is."""
        return self.with_clip(1.0) if self.scale_free else self

    def sensitivity(self, relation: NeighboringRelation) -> float:
        """L2 sensitivity of the sum under ``relation``."""
        return NeighboringRelation(relation).sensitivity(self.clip)

    @property
    def normal(self) -> Gaussian | None:
        """The law as normal noise, which is drawn on a grid and can be split with a count; None for other laws."""
        return None

    @property
    def words(self) -> str:
        """The law in a few words."""
        return type(self).__name__

    def divided(self, count_share: float) -> tuple[Mechanism, float]:
        """The law on a sum, and the standard deviation of the noise on a count beside it; see `privacy.clipping`.

        Raises
        ------
        SpecError
            If nothing is proved of this law beside a count.
        """
        if count_share:
            raise SpecError(f"a count goes with Gaussian noise or none, found {type(self).__name__}")
        return self, 0.0

    def release_epsilon(self, relation: NeighboringRelation, size: int) -> float:
        """Pure epsilon of one full-batch release of a vector of ``size`` coordinates; infinite where it has none."""
        return math.inf

    def full(self, relation: NeighboringRelation, rows: int, size: int) -> Full:
        """The symmetric pair that dominates full-batch releases on sums that ``rows`` rows move, as far or less far.

        By default that of anything that has its pure epsilon.

        Raises
        ------
        AccountingError
            If nothing is proved of the law.
        """
        from gossamer.privacy.pairs import ResponseFull

        epsilon = self.release_epsilon(relation, size)
        if epsilon == math.inf:
            raise AccountingError(f"nothing is proved of {type(self).__name__} noise")
        return ResponseFull(rows * epsilon)

    numbers: ClassVar[int] = 10**9
    """Most numbers of a person's rows that an accountant tells apart, each by a pair of `full`."""

    def noise(self, generator: np.random.Generator, size: int, dtype: npt.DTypeLike) -> FloatArray:
        """One draw of the noise, [size], of ``dtype`` (float32 or float64)."""
        raise NotImplementedError

    def second_moment(self, size: int) -> float:
        """The mean squared L2 norm of the noise on a sum of ``size`` coordinates."""
        raise NotImplementedError

    def describe(self) -> dict[str, Any]:
        """The mechanism as plain data, for ledgers and summaries."""
        return {"mechanism": type(self).__name__, **asdict(self)}


def _require_finite(name: str, value: float, what: str) -> None:
    if not 0 < real_number(value) < math.inf:
        raise SpecError(f"{what} needs a finite {name} > 0, found {value!r}")


@dataclass(frozen=True)
class Gaussian(Mechanism):
    """Normal noise of standard deviation ``noise_multiplier * clip`` in every coordinate of the sum.

    ``noise_multiplier`` is relative to the clip under every neighbouring relation, so the same settings
    make the same noise whichever relation the guarantee is stated for.
    """

    noise_multiplier: float

    numbers: ClassVar[int] = 128
    depends_on_size: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_finite("clip", self.clip, "Gaussian noise")
        _require_finite("noise_multiplier", self.noise_multiplier, "Gaussian noise")

    @property
    def standard_deviation(self) -> float:
        """The standard deviation of each coordinate of the noise on the sum."""
        return self.noise_multiplier * self.clip

    @property
    def normal(self) -> Gaussian:
        return self

    @property
    def words(self) -> str:
        return f"Gaussian noise (noise multiplier {self.noise_multiplier:.4g})"

    def divided(self, count_share: float) -> tuple[Mechanism, float]:
        if not count_share:
            return self, 0.0
        multiplier = self.noise_multiplier
        on_sum = replace(self, noise_multiplier=multiplier / math.sqrt(1 - count_share))
        return on_sum, multiplier / (2 * math.sqrt(count_share))

    def mu(self, relation: NeighboringRelation) -> float:
        """Sensitivity over standard deviation."""
        return self.unit().sensitivity(relation) / self.noise_multiplier

    def full(self, relation: NeighboringRelation, rows: int, size: int) -> Full:
        from gossamer.privacy.pairs import GaussianFull

        return GaussianFull(rows * self.mu(relation))

    def noise(self, generator: np.random.Generator, size: int, dtype: npt.DTypeLike) -> FloatArray:
        draw: FloatArray = generator.standard_normal(size, dtype=np.dtype(dtype).type)  # type: ignore[arg-type]
        draw *= self.standard_deviation
        return draw

    def second_moment(self, size: int) -> float:
        return size * self.standard_deviation**2


@dataclass(frozen=True)
class BallGaussian(Gaussian):
    """Normal noise on a sum that is clipped *as a whole*, to ``clip / 2``: rounds of the kind ``clipped_sum``.

    Any two points of a ball of radius clip/2 are at most ``clip`` apart. That is the sensitivity under every relation:
    an example that is replaced moves such a sum no further than one that comes or goes.
    """

    whole: ClassVar[bool] = True

    def sensitivity(self, relation: NeighboringRelation) -> float:
        return self.clip

    def full(self, relation: NeighboringRelation, rows: int, size: int) -> Full:
        return super().full(relation, 1, size)


@dataclass(frozen=True)
class L2Laplace(Mechanism):
    """Noise with density proportional to exp(-epsilon |n|_2 / S): epsilon-DP per full-batch release.

    The direction is uniform on the sphere and the norm is Gamma(shape d, scale S/epsilon), with S the
    sensitivity of the sum under ``relation``.
    """

    epsilon: float
    relation: NeighboringRelation

    numbers: ClassVar[int] = 24  # each takes a table of its own

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "relation", NeighboringRelation(self.relation))  # decoded, it is a bare string
        _require_finite("clip", self.clip, "L2Laplace noise")
        _require_finite("epsilon", self.epsilon, "L2Laplace noise")

    @property
    def scale(self) -> float:
        """S / epsilon, the scale of the noise's norm."""
        return self.sensitivity(self.relation) / self.epsilon

    @property
    def words(self) -> str:
        return f"L2-Laplace noise (epsilon {self.epsilon:.4g} a full-batch release)"

    def release_epsilon(self, relation: NeighboringRelation, size: int = 1) -> float:
        return self.sensitivity(relation) / self.scale

    def full(self, relation: NeighboringRelation, rows: int, size: int) -> Full:
        from gossamer.privacy.l2_laplace import L2LaplaceFull

        return L2LaplaceFull(rows * self.release_epsilon(relation), size)

    def noise(self, generator: np.random.Generator, size: int, dtype: npt.DTypeLike) -> FloatArray:
        direction = generator.standard_normal(size)
        norm = generator.gamma(size, self.scale)
        return (direction * (norm / np.linalg.norm(direction))).astype(dtype)

    def second_moment(self, size: int) -> float:
        return size * (size + 1) * self.scale**2

    def mean_norm(self, size: int) -> float:
        """The mean L2 norm of the noise on a sum of ``size`` coordinates."""
        return size * self.scale


@dataclass(frozen=True)
class Laplace(Mechanism):
    """Independent Laplace noise of ``scale`` on every coordinate.

    The sum is clipped in L2 norm, so its L1 sensitivity is at most sqrt(d) times the L2 one.
    """

    scale: float

    scale_free: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_finite("clip", self.clip, "Laplace noise")
        _require_finite("scale", self.scale, "Laplace noise")

    def release_epsilon(self, relation: NeighboringRelation, size: int) -> float:
        return math.sqrt(size) * self.sensitivity(relation) / self.scale

    def noise(self, generator: np.random.Generator, size: int, dtype: npt.DTypeLike) -> FloatArray:
        return generator.laplace(0.0, self.scale, size).astype(dtype)

    def second_moment(self, size: int) -> float:
        return 2 * size * self.scale**2


@dataclass(frozen=True)
class NoNoise(Mechanism):
    """Nothing is added and nothing is guaranteed."""

    clip: float = math.inf

    private: ClassVar[bool] = False
    depends_on_size: ClassVar[bool] = False

    @property
    def words(self) -> str:
        return "no noise"

    def divided(self, count_share: float) -> tuple[Mechanism, float]:
        return self, 0.0

    def describe(self) -> dict[str, Any]:
        return {"mechanism": "NoNoise", "clip": self.clip if math.isfinite(self.clip) else None}

    def noise(self, generator: np.random.Generator, size: int, dtype: npt.DTypeLike) -> FloatArray:
        return np.zeros(size, dtype)

    def second_moment(self, size: int) -> float:
        return 0.0
