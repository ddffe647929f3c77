"""The discrete Gaussian: integers k with probability proportional to exp(-k^2/(2 s^2)), for an integer s.

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
Buchmann, Cabarcas, Göpfert, Hülsing and Weiden, "Discrete Ziggurat: a time-memory trade-off for sampling from a
Gaussian distribution over the integers", SAC 2013 (blocks); Karney, "Sampling exactly from the normal distribution",
ACM Transactions on Mathematical Software 2016 (digits as needed).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import lru_cache
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from gossamer.arrays import BoolArray, IntArray
from gossamer.errors import SpecError

WordArray = npt.NDArray[np.uint64]
Words = Callable[[int], WordArray]
"""So many independent uniform integers of 64 bits."""

LARGEST = 1 << 56
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
        s, 1 to `LARGEST`. The standard deviation is s, but for less than 1e-6 of it.
    size : int
        Number of draws.

    Raises
    ------
    SpecError
        If the scale is out of its range.
    """
    if type(scale) is not int or not 1 <= scale <= LARGEST:
        raise SpecError(f"a discrete Gaussian has an integer scale of 1 to {LARGEST}, found {scale!r}")
    blocks, found, filled = _blocks(scale), np.empty(size, np.int64), 0
    while filled < size:
        drawn = blocks.draw(words, min(size - filled, _CHUNK))
        found[filled : filled + drawn.size] = drawn
        filled += drawn.size
    return found


def words_of(generator: np.random.Generator) -> Words:
    """The random words of a generator: of numpy's, or of a `SecretRandomness`."""
    found: Words = getattr(generator, "words", None) or generator.bit_generator.random_raw
    return found


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
        drawn: IntArray = np.where(negative, -value, value)[accepted]
        return drawn

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
