"""The discrete Gaussian, drawn exactly: integers k with probability proportional to exp(-k^2/(2 s^2)).

Normal noise that is rounded to integers, or to floats, is no normal noise, and its guarantee is another. Here every
coin is a comparison of uniform integers, so there is no rounding. The standard deviation is (to many digits) s, an
integer, which makes all probabilities products of

    exp(-1),  exp(-1/2),  exp(-r/s)  and  exp(-r^2/(2 s^2))      with integers 0 <= r < s,

each a coin of uniform integers below s. A discrete Laplace variable Y of scale s is accepted with probability
exp(-(|Y| - s)^2/(2 s^2)), about three times in four.

References
----------
Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020, algorithms 1 to 3.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gossamer.arrays import BoolArray, IntArray
from gossamer.errors import SpecError

LARGEST = 1 << 56
"""The largest s: no variable that could ever be drawn leaves the range of 64-bit integers."""


def discrete_gaussian(generator: np.random.Generator, scale: int, size: int) -> IntArray:
    """``size`` independent draws of parameter s = ``scale``.

    Parameters
    ----------
    generator : Generator
        Of uniform integers; nothing else is drawn from it.
    scale : int
        s, 1 to `LARGEST`. The standard deviation is s, but for less than 1e-6 of it.
    size : int
        How many.

    Raises
    ------
    SpecError
        If the scale is out of its range.
    """
    if type(scale) is not int or not 1 <= scale <= LARGEST:
        raise SpecError(f"a discrete Gaussian has an integer scale of 1 to {LARGEST}, found {scale!r}")
    coins = _Coins(generator, scale)
    return _until_accepted(coins.proposals, size)


class _Coins:
    """Coins whose chances of 1 are products of exp(-1), exp(-1/2), exp(-r/s) and exp(-r^2/(2 s^2))."""

    def __init__(self, generator: np.random.Generator, scale: int) -> None:
        self.generator, self.scale = generator, scale

    def proposals(self, count: int) -> tuple[IntArray, BoolArray]:
        """Discrete Laplace variables, and which of them are accepted."""
        drawn = _until_accepted(self.laplace, count)
        whole, rest = np.divmod(np.abs(np.abs(drawn) - self.scale), self.scale)
        # (q s + r)^2/(2 s^2) = q^2/2 + q r/s + r^2/(2 s^2); all coins have to be 1.
        accepted = self.powers(self.half, whole * whole)
        accepted &= self.powers(lambda some: self.exponential([rest[some]]), whole)
        accepted &= self.exponential([rest, rest], 2)
        return drawn, accepted

    def laplace(self, count: int) -> tuple[IntArray, BoolArray]:
        """Draw Laplace numbers of scale s: r + s v with a sign, r below s, v geometric; minus zero is no value."""
        rest = self.generator.integers(self.scale, size=count)
        accepted = self.exponential([rest])
        value = rest + self.scale * self.successes(count)
        negative = self.generator.integers(2, size=count) == 1
        return np.where(negative, -value, value), accepted & ~(negative & (value == 0))

    def successes(self, count: int) -> IntArray:
        """Count how often a coin of exp(-1) is 1 before it is 0."""
        found, going = np.zeros(count, np.int64), np.arange(count)
        while going.size:
            going = going[self.exponential([], 1, going.size)]
            found[going] += 1
        return found

    def half(self, some: IntArray) -> BoolArray:
        return self.exponential([], 2, some.size)

    def powers(self, coin: Callable[[IntArray], BoolArray], times: IntArray) -> BoolArray:
        """Whether ``times`` [count] coins are all 1; ``coin`` throws those of some indices."""
        good, going, thrown = np.ones(times.size, np.bool_), np.flatnonzero(times > 0), 0
        while going.size:
            ones = coin(going)
            good[going[~ones]] = False
            thrown += 1
            going = going[ones]
            going = going[times[going] > thrown]
        return good

    def exponential(self, numerators: list[IntArray], divisor: int = 1, count: int = 0) -> BoolArray:
        """Coins of exp(-x), x the product of all ``numerators`` [count] / s, over ``divisor``; x is at most 1.

        Throw coins of x, x/2, x/3, ... until one is 0, the K-th: K is odd with probability exp(-x).
        """
        count = numerators[0].size if numerators else count
        odd, going, k = np.zeros(count, np.bool_), np.arange(count), 1
        while going.size:
            ones = self.generator.integers(divisor * k, size=going.size) == 0
            for numerator in numerators:
                ones &= self.generator.integers(self.scale, size=going.size) < numerator[going]
            odd[going[~ones]] = k % 2 == 1
            going, k = going[ones], k + 1
        return odd


def _until_accepted(draw: Callable[[int], tuple[IntArray, BoolArray]], size: int) -> IntArray:
    """``size`` accepted values, in the order in which they were drawn."""
    found, left = [np.empty(0, np.int64)], size
    while left:
        values, accepted = draw(left)
        found.append(values[accepted])
        left -= found[-1].size
    return np.concatenate(found)
