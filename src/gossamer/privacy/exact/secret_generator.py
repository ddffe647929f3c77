"""The methods of `numpy.random.Generator` that data sides use, drawn from `SecretRandomness`.

What is drawn of integers is exact: numbers below a bound, who is in a sample, in which order. So every scheme of
`sampling` has its law to the last bit.

Floating-point numbers are the inverse of a distribution function, as scipy computes it, of 64 random bits: a sign, and
63 bits for the smaller of the two tails. They cannot be repeated, and their bits are those of floating-point noise:
which floats come out at all is not proved here, nor what that tells of a number that such noise is added to. Gaussian
noise in deployments is that of `grid_noise`.
"""

from __future__ import annotations

from typing import cast

import numpy as np
import numpy.typing as npt
from scipy import special

from gossamer.arrays import BoolArray, FloatArray, IntArray
from gossamer.privacy.exact.secret_randomness import SecretRandomness


def secret_generator(source: SecretRandomness | None = None) -> np.random.Generator:
    """A `SecretGenerator`, to be handed to samplers and noise laws in the place of numpy's."""
    return cast(np.random.Generator, SecretGenerator(source))


class FreshNumbers:
    """In the place of a `Stream`: whatever its number, a generator that draws what was never drawn before."""

    __slots__ = ()

    def at(self, number: int) -> np.random.Generator:
        """A generator; ``number`` says nothing here."""
        return secret_generator()


class SecretGenerator:
    """Draws from the operating system's randomness; without a state, as `SecretRandomness` is.

    Parameters
    ----------
    source : SecretRandomness, optional
        Of all numbers.
    """

    __slots__ = ("_source",)

    def __init__(self, source: SecretRandomness | None = None) -> None:
        self._source = SecretRandomness() if source is None else source

    # Exact

    def integers(self, high: int, size: int | tuple[int, ...]) -> IntArray:
        """Uniform integers of shape ``size``, 0 <= integer < ``high``."""
        return self._source.integers(high, int(np.prod(size))).reshape(size)

    def binomial(self, n: int, p: float) -> int:
        """Draw how many of ``n`` coins are 1."""
        return int(np.count_nonzero(self._source.coins(p, n)))

    def permutation(self, count: int) -> IntArray:
        """The numbers below ``count`` in an order of which all are equally likely."""
        while True:
            keys = self._source.words(count)
            order = np.argsort(keys)
            ranked = keys[order]
            if not (ranked[1:] == ranked[:-1]).any():  # ties would be broken by what stood first
                return np.asarray(order, np.int64)

    def choice(self, count: int, size: int, *, replace: bool, shuffle: bool) -> IntArray:
        """``size`` distinct numbers below ``count``, every set of them equally likely."""
        if replace:
            raise NotImplementedError("draws with replacement are integers(count, size)")
        return self.permutation(count)[:size]

    # In floating point

    def standard_normal(self, size: int, dtype: npt.DTypeLike = np.float64) -> FloatArray:
        """Normal numbers [size] of mean 0 and variance 1."""
        tail, upper = self._tails(size)
        found = special.ndtri(tail)
        return np.asarray(np.where(upper, -found, found), dtype)

    def laplace(self, loc: float, scale: float, size: int) -> FloatArray:
        """Laplace numbers [size]."""
        tail, upper = self._tails(size)
        found = scale * np.log(2 * tail)
        return np.asarray(loc + np.where(upper, -found, found))

    def gamma(self, shape: float, scale: float) -> float:
        """One Gamma number."""
        (tail,), (upper,) = self._tails(1)
        inverse = special.gammainccinv if upper else special.gammaincinv
        return float(scale * inverse(shape, tail))

    def _tails(self, size: int) -> tuple[npt.NDArray[np.float64], BoolArray]:
        """Probabilities [size] of at most a half, and whether they are those of the upper tail."""
        words = self._source.words(size)
        tails = ((words >> np.uint64(1)).astype(np.float64) + 0.5) * 2.0**-64
        upper: BoolArray = words & np.uint64(1) == 1
        return tails, upper
