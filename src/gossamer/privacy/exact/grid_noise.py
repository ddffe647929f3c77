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

The discrete Gaussian: integers k with probability proportional to exp(-k^2/(2 s^2)), for an integer s.

Normal noise that is rounded to integers, or to floats, is no normal noise, and its guarantee is another. Here a draw
takes three random words. The magnitudes are cut into blocks of w integers, w a power of two of s/16 to s/8, and 1 where
s is below 16. With |k| = q w + r and 0 <= r < w,

    exp(-k^2/(2 s^2)) = exp(-(q w)^2/(2 s^2)) exp(-r (2 q w + r)/(2 s^2)),

so q is drawn by a table, r as bits, and the pair is accepted with the last factor, 19 times in 20 or more. Minus zero
is refused.

Each word is the start of a uniform number with as many digits as it takes. A comparison with a table's entry or with a
floating-point exponential is decided by the first word if it is clear of every error that entry or exponential can
have, and is otherwise made with 192 bits of both. What is not exact is this: the table's entries and the exponentials
are rounded in the 190th bit or later, and magnitudes of 16 s and more, of probability below 2^-184, are left out. So
a draw is within `DISTANCE` of the law, in total variation.

References
----------
[1] Mironov, "On significance of the least significant bits for differential privacy", CCS 2012; Jin, McMurtry,
    Rubinstein and Ohrimenko, "Are we there yet? Timing and floating-point attacks on differential privacy systems",
    IEEE S&P 2022 (Gaussian noise).
[2] Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020.
[3] Peikert, "An efficient and parallel Gaussian sampler for lattices", CRYPTO 2010.
Buchmann, Cabarcas, Göpfert, Hülsing and Weiden, "Discrete Ziggurat: a time-memory trade-off for sampling from a
Gaussian distribution over the integers", SAC 2013 (blocks); Karney, "Sampling exactly from the normal distribution",
ACM Transactions on Mathematical Software 2016 (digits as needed).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from decimal import Context, Decimal
from functools import lru_cache
from itertools import accumulate
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from gossamer.arrays import BoolArray, FloatArray, IntArray
from gossamer.errors import SpecError, real_number, require_counts, require_not_negative, require_positive
from gossamer.privacy.mechanisms import Gaussian, NeighboringRelation

WordArray = npt.NDArray[np.uint64]
Words = Callable[[int], WordArray]
"""So many independent uniform integers of 64 bits."""

WIDEST = 1 << 56
"""The largest s: no variable that could ever be drawn leaves the range of 64-bit integers."""
DISTANCE = 2.0**-170
"""Of one draw's law from the discrete Gaussian, in total variation: 256 entries and one exponential, and the tail."""

_TAIL = 16  # magnitudes, in scales
_CHUNK = 1 << 16  # draws at a time, so that they stay in the processor's caches
_DIGITS = Context(prec=75)  # 249 bits
_DOUBT = 2.0**-40  # relative; the floating-point exponential and the word's conversion err by less than 2^-48


def discrete_gaussian(words: Words, scale: int, size: int) -> IntArray:
    """``size`` independent draws of parameter s = ``scale``.

    Parameters
    ----------
    words : callable
        The random words.
    scale : int
        s, 1 to `WIDEST`. The standard deviation is s, but for less than 1e-6 of it.
    size : int
        Number of draws.

    Raises
    ------
    SpecError
        If the scale is out of its range.
    """
    if type(scale) is not int or not 1 <= scale <= WIDEST:
        raise SpecError(f"a discrete Gaussian has an integer scale of 1 to {WIDEST}, found {scale!r}")
    blocks, found, filled = _blocks(scale), np.empty(size, np.int64), 0
    while filled < size:
        drawn = blocks.draw(words, min(size - filled, _CHUNK))
        found[filled : filled + drawn.size] = drawn
        filled += drawn.size
    return found


def words_of(generator: np.random.Generator) -> Words:
    """The random words of a generator: of numpy's, or of a `SecretRandomness`."""
    return getattr(generator, "words", None) or generator.bit_generator.random_raw


@dataclass(frozen=True, eq=False)
class _Blocks:
    """The table of one scale.

    Attributes
    ----------
    scale, bits : int
        s, and w = 2^bits.
    bounds : tuple of int
        2^192 times the probabilities that q is at most 0, 1, ...; the last is 2^192.
    starts : ndarray [blocks]
        The first 64 bits of the bounds, all ones for the last.
    guide : ndarray [2^16]
        Number of starts at or below each word of these first 16 bits and else zeros.
    """

    scale: int
    bits: int
    bounds: tuple[int, ...]
    starts: WordArray
    guide: IntArray

    def draw(self, words: Words, count: int) -> IntArray:
        """Up to ``count`` draws, those of so many that are accepted."""
        first, second, third = words(3 * count).reshape(3, count)
        block = self.block(first, words)
        rest = (second & np.uint64((1 << self.bits) - 1)).astype(np.int64)
        value = (block << self.bits) + rest
        negative = second >> np.uint64(63) == 1
        accepted = self.accept(block, rest, third, words) & ~(negative & (value == 0))
        return np.asarray(np.where(negative, -value, value)[accepted])

    def block(self, word: WordArray, words: Words) -> IntArray:
        """q: how many bounds lie at or below a uniform number that starts with ``word`` [count]."""
        found = self.guide[(word >> np.uint64(48)).astype(np.int64)]
        beyond = self.starts[found] <= word
        found[beyond] = np.searchsorted(self.starts, word[beyond], side="right")
        for index in np.flatnonzero((found > 0) & (self.starts[found - 1] == word)).tolist():
            number = _longer(word[index], words)
            found[index] = sum(bound <= number for bound in self.bounds)
        return found

    def accept(self, block: IntArray, rest: IntArray, word: WordArray, words: Words) -> BoolArray:
        """Whether a uniform number that starts with ``word`` [count] is below exp(-r (2 q w + r)/(2 s^2))."""
        whole = (block << (self.bits + 1)) + rest
        chance = np.exp(-(rest / self.scale) * (whole / self.scale) / 2)
        number = word * 2.0**-64
        accepted: BoolArray = number < chance
        for index in np.flatnonzero(np.abs(number - chance) <= _DOUBT * chance).tolist():
            exponent = _DIGITS.divide(Decimal(-int(rest[index]) * int(whole[index])), Decimal(2 * self.scale**2))
            accepted[index] = _longer(word[index], words) < _scaled(_DIGITS.exp(exponent))
        return accepted


@lru_cache(maxsize=16)
def _blocks(scale: int) -> _Blocks:
    bits = max((scale // 8).bit_length() - 1, 0)
    number = -(-_TAIL * scale >> bits)
    twice = Decimal(2 * scale**2)
    weights = [_scaled(_DIGITS.exp(_DIGITS.divide(Decimal(-((q << bits) ** 2)), twice))) for q in range(number)]
    total = sum(weights)
    bounds = tuple((upper << 192) // total for upper in accumulate(weights))
    starts = np.array([min(bound >> 128, (1 << 64) - 1) for bound in bounds], np.uint64)
    guide = np.searchsorted(starts, np.arange(1 << 16, dtype=np.uint64) << np.uint64(48), side="right")
    return _Blocks(scale, bits, bounds, starts, guide.astype(np.int64))


def _scaled(probability: Decimal) -> int:
    """2^192 times a number, rounded down."""
    return int(_DIGITS.multiply(probability, Decimal(1 << 192)))


def _longer(word: np.uint64, words: Words) -> int:
    """192 bits that start with ``word``."""
    high, low = (int(more) for more in words(2))
    return (int(word) << 128) + (high << 64) + low


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
        require_positive(clip=self.clip)
        require_not_negative(error=self.error)
        require_counts(size=self.size)
        if not 2.0**-900 <= real_number(self.step) <= 2.0**900 or math.frexp(self.step)[0] != 0.5:
            raise SpecError(f"the step of a grid is a power of two, of 2^-900 to 2^900, found {self.step!r}")
        if type(self.scale) is not int or not SMALLEST <= self.scale <= LARGEST:
            raise SpecError(
                f"noise on a grid is {SMALLEST} to {LARGEST} steps wide, found {self.scale!r}: change the step"
            )

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
        answer = np.empty(self.size)
        for start in range(0, self.size, 4 * _CHUNK):  # beside a large answer there is little else
            steps, part = self.rounded(total[start : start + 4 * _CHUNK]), answer[start : start + 4 * _CHUNK]
            np.multiply(steps + discrete_gaussian(words, self.scale, part.size), self.step, out=part)
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
