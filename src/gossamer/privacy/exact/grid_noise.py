"""Gaussian noise on a grid, exact to the last bit.

Normal noise in floating point is no normal noise: which floats can come out depends on what the noise was added to, and
that has been used to read the secret off the last bits [1]. Here a clipped sum is rounded to the nearest multiples of
a step g, and noise that is a multiple of g is added as integers. With g a power of two, every multiple that occurs is a
float64, so dividing, rounding, adding and multiplying by g lose nothing.

Proofs
------
**Rounding.** The nearest multiple is at most g/2 away in each coordinate, so two sums that are S apart are rounded to
multiples at most S + g sqrt(d) apart, in L2 norm. No less is true: sums that differ by almost nothing may lie on two
sides of a midpoint in every coordinate. (Coins in place of the nearest multiple bring nothing here: thrown alike for
both sums they move the midpoints, and the bound is the same.) Bounding each coordinate to `MOST` steps brings no two
sums further apart. If computed sums are within ``error`` of the true ones, S is that of the true ones plus twice it.

**The noise** is the discrete Gaussian of an integer scale s, which has standard deviation s g. One release on the whole
data is rho-zero-concentrated differentially private, rho = (S + g sqrt(d))^2/(2 s^2 g^2) [2, theorem 14]. For samples
and for compositions more is true than follows from that number: **a discrete Gaussian of scale s is what is left of a
continuous one of variance s^2 - t^2.** Let Y be normal around an integer x with variance s^2 - t^2. Given Y = y, let K
be an integer with probability proportional to exp(-(k-y)^2/(2 t^2)), a step that knows y alone. These weights add up,
by Poisson's summation formula, to

    t sqrt(2 pi) theta(y),    theta(y) = 1 + 2 sum_(m >= 1) exp(-2 pi^2 t^2 m^2) cos(2 pi m y),

which is within tau = 2 sum_(m >= 1) exp(-2 pi^2 t^2 m^2) of 1. Two normal densities convolve to one of variance s^2, so
the law of K is phi_s(k - x) times an average of 1/theta. The discrete Gaussian around x is phi_s(k - x)/theta' with
1 <= theta' <= 1 + tau. Hence the two are within a factor (1 + tau)/(1 - tau) of each other, at every k. ([3, theorem
3.1] has the same for lattices.) Here t = 2, for which tau is about 1e-34; it costs 2/s^2 of the noise multiplier.

Coordinates are independent, a sample's law is an average over who is drawn, and releases multiply, whatever was seen in
between. So all that n releases show has, on any data, a law within a factor exp(eta) of what post-processing makes of
Gaussian releases of sensitivity S + g sqrt(d) and standard deviation g sqrt(s^2 - t^2),

    eta = n d log((1 + tau)/(1 - tau)),

and if those are (epsilon, delta)-private, the ones on the grid are (epsilon + 2 eta, exp(eta) delta)-private. The
sampler is within a total variation of `DISTANCE` of the law at each draw: (1 + exp(epsilon)) n d `DISTANCE` of delta.

References
----------
[1] Mironov, "On significance of the least significant bits for differential privacy", CCS 2012; Jin, McMurtry,
    Rubinstein and Ohrimenko, "Are we there yet? Timing and floating-point attacks on differential privacy systems",
    IEEE S&P 2022 (Gaussian noise).
[2] Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020.
[3] Peikert, "An efficient and parallel Gaussian sampler for lattices", CRYPTO 2010.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from gossamer.arrays import FloatArray
from gossamer.errors import SpecError, real_number, whole_number
from gossamer.privacy.exact.discrete_gaussian import Words, discrete_gaussian
from gossamer.privacy.mechanisms import Gaussian, NeighboringRelation

MOST = 1 << 52
"""Steps to which a coordinate of the sum is bounded. No noise is longer, and a float64 has all integers to twice it."""
SMALLEST, LARGEST = 16, 1 << 44
"""Scales of noise that sums have room for."""
FINENESS = 2.0**-16
"""How much of the clip g sqrt(d) may be, where the step is not given."""
SMOOTHING = 2.0
"""t, in steps."""

_DOWN, _UP = 1 - 1e-12, 1 + 1e-12  # more than the rounding of a dozen operations


def smoothing_error(smoothing: float) -> float:
    """log((1 + tau)/(1 - tau)), rounded up: of one coordinate, at every value, for t = ``smoothing`` of 0.5 or more."""
    first = math.exp(-2 * (math.pi * smoothing) ** 2)
    tau = 2 * first / (1 - first**3)  # m^2 >= 1 + 3 (m - 1)
    return 2 * math.atanh(tau) * _UP


@dataclass(frozen=True)
class GridGaussian:
    """Discrete Gaussian noise on a sum of clipped vectors that is rounded to a grid.

    Attributes
    ----------
    clip : float
        C, the most L2 norm of a vector in the sum.
    step : float
        g, a power of two.
    scale : int
        s, the noise's parameter in steps.
    size : int
        d, coordinates.
    error : float
        Largest L2 distance of a computed sum from the sum of vectors of norm C; see `summation_error`.

    Raises
    ------
    SpecError
        If a number is out of its range.
    """

    clip: float
    step: float
    scale: int
    size: int
    error: float = 0.0

    def __post_init__(self) -> None:
        if not (0 < real_number(self.clip) < math.inf and 0 <= real_number(self.error) < math.inf):
            raise SpecError(
                f"noise on a grid needs a finite clip > 0 and error >= 0, found {self.clip!r} and {self.error!r}"
            )
        if not 2.0**-900 <= real_number(self.step) <= 2.0**900 or math.frexp(self.step)[0] != 0.5:
            raise SpecError(f"the step of a grid is a power of two, of 2^-900 to 2^900, found {self.step!r}")
        if type(self.scale) is not int or not SMALLEST <= self.scale <= LARGEST:
            raise SpecError(
                f"noise on a grid is {SMALLEST} to {LARGEST} steps wide, found {self.scale!r}: change the step"
            )
        if not whole_number(self.size):
            raise SpecError(f"noise on a grid needs a coordinate or more, found {self.size!r}")

    @classmethod
    def like(cls, noise: Gaussian, size: int, *, error: float = 0.0, step: float | None = None) -> Self:
        """As private as ``noise`` is on the true sum: the cost of the grid is somewhat more noise, and no epsilon.

        Parameters
        ----------
        noise : Gaussian
            The continuous law. What is returned has an `equivalent` with at least its noise multiplier.
        size : int
            d, coordinates.
        error : float
            See `GridGaussian`.
        step : float, optional
            g; by default the largest power of two for which g sqrt(d) is at most `FINENESS` of the clip, and the noise
            2^10 steps wide or more.

        Raises
        ------
        SpecError
            If the noise is out of the range of the grid.
        """
        if step is None:
            finest = min(FINENESS * noise.clip / math.sqrt(max(size, 1)), noise.standard_deviation / 2**10)
            if not finest >= 2.0**-900:
                raise SpecError(f"noise on a grid needs a clip and noise that are not tiny, found {noise!r}")
            step = math.ldexp(0.5, math.frexp(finest)[1])
        moved = noise.clip + 2 * error + step * math.sqrt(size)
        wanted = math.hypot(noise.noise_multiplier * moved / step, SMOOTHING) * _UP**2
        return cls(noise.clip, step, math.ceil(min(wanted, 2.0 * LARGEST)), size, error)

    @property
    def standard_deviation(self) -> float:
        """The standard deviation of each coordinate of the noise on the sum."""
        return self.scale * self.step

    @property
    def equivalent(self) -> Gaussian:
        """Continuous noise, with a clip, that each release is as private as, but for what `deployed_guarantee` adds.

        Good for every sampling and relation: a sum moves by its clip, or by twice that.
        """
        clip = (self.clip + 2 * self.error + self.step * math.sqrt(self.size)) * _UP
        deviation = self.step * math.sqrt(self.scale**2 - SMOOTHING**2)
        return Gaussian(clip, deviation / clip * _DOWN)

    def sensitivity(self, relation: NeighboringRelation) -> float:
        """Bound the distance of neighbours' rounded sums, in L2 norm."""
        moved = NeighboringRelation(relation).sensitivity(self.clip) + 2 * self.error
        return (moved + self.step * math.sqrt(self.size)) * _UP

    def rho(self, relation: NeighboringRelation) -> float:
        """Return rho of zero-concentrated differential privacy, of one release on the whole data."""
        return (self.sensitivity(relation) / self.standard_deviation) ** 2 / 2 * _UP

    def release(self, total: npt.NDArray[np.floating], words: Words) -> FloatArray:
        """The sum [size] on the grid, with noise: multiples of the step.

        Never refuses a value: what is out of range saturates, and NaN, which a finite sum has not, is zero.

        Parameters
        ----------
        total : ndarray [size]
            The clipped sum.
        words : callable
            Random words, such as `SecretRandomness().words`. They must be used for nothing else.

        Raises
        ------
        SpecError
            If the sum has another size.
        """
        if total.shape != (self.size,):
            raise SpecError(f"noise on a grid is for sums of {self.size} coordinates, found shape {total.shape}")
        found = self.rounded(total)
        found += discrete_gaussian(words, self.scale, self.size)
        answer = found.astype(np.float64)
        answer *= self.step
        return answer

    def rounded(self, total: npt.NDArray[np.floating]) -> npt.NDArray[np.int64]:
        """The nearest multiples of the step, as integers: raw data."""
        with np.errstate(over="ignore", under="ignore"):
            steps = np.nan_to_num(total.astype(np.float64) / self.step, nan=0.0)
        return np.rint(np.clip(steps, -MOST, MOST)).astype(np.int64)

    def describe(self) -> dict[str, Any]:
        """Plain data, for ledgers and summaries."""
        return {"mechanism": "GridGaussian", **asdict(self)}


def summation_error(clip: float, examples: int, dtype: npt.DTypeLike) -> float:
    """Bound how far a sum of vectors of L2 norm at most ``clip`` may be from the true one, added in any order.

    With u the unit roundoff, each coordinate errs by at most (n-1) u/(1 - (n-1) u) times the sum of its magnitudes
    (Higham, "Accuracy and stability of numerical algorithms", section 4.2), and so does the norm of all.

    Parameters
    ----------
    clip : float
        C.
    examples : int
        n, the most that are added.
    dtype : float32 or float64
        Type in which the sums are computed.

    Raises
    ------
    SpecError
        If there are so many that nothing is proved.
    """
    relative = max(examples - 1, 0) * float(np.finfo(np.dtype(dtype)).eps) / 2
    if not relative < 0.5:
        raise SpecError(f"a sum of {examples} numbers in {np.dtype(dtype)} may be all error: add them in float64")
    return relative / (1 - relative) * examples * clip * _UP
