"""Randomness that nobody can repeat: for the noise and the samples of a deployment.

Every call takes a fresh key of 32 bytes from the operating system and expands it with ChaCha20. Nothing is kept from
one call to the next, and all else follows from that:

- there is no state to store, to restore after a crash, or to read out of a dump of the memory later on;
- a process that forks shares nothing with its child, and neither does a machine that is restored from a snapshot with
  its copy, as far as the operating system's own generator is fit for that;
- two calls share their numbers only if two of the system's keys are the same.

The price is a few microseconds a call, so numbers are asked for by the thousand. `numpy.random.Generator` is not used:
its bit generators are C structures, whose refills could neither raise an error nor survive an interrupt.

It has the methods of `numpy.random.Generator` that data sides use.

What is drawn of integers is exact: numbers below a bound, who is in a sample, in which order. So every scheme of
`mechanisms` has its law to the last bit.

Floating-point numbers are the inverse of a distribution function, as scipy computes it, of 64 random bits: a sign, and
63 bits for the smaller of the two tails. They cannot be repeated, and their bits are those of floating-point noise:
which floats come out at all is not proved here, nor what that tells of a number that such noise is added to. Gaussian
noise in deployments is that of `grid_noise`.
"""

from __future__ import annotations

import os
from typing import NoReturn, cast

import numpy as np
import numpy.typing as npt
from scipy import special

from gossamer.arrays import BoolArray, FloatArray, IntArray
from gossamer.errors import SpecError
from gossamer.privacy.masking.keys import keystream

WordArray = npt.NDArray[np.uint64]

MOST_BYTES = 1 << 34
"""Of one key's stream; ChaCha20 has more."""
LARGEST = 1 << 63
"""The largest bound of uniform integers."""
LEAST_PROBABILITY = 2.0**-64
"""The smallest probability of a coin, but for 0; larger ones have all of their digits among the first 128."""


class SecretRandomness:
    """Draws from the operating system's randomness, in the place of numpy's generators.

    It has no state, so one object serves all threads, and it refuses to be copied or stored, so that nobody mistakes it
    for what can be.
    """

    __slots__ = ()

    def bytes(self, count: int) -> bytes:
        """``count`` random bytes.

        Raises
        ------
        SpecError
            If they are more than `MOST_BYTES`, or fewer than none.
        """
        if not 0 <= count <= MOST_BYTES:
            raise SpecError(f"one call draws 0 to {MOST_BYTES} bytes, found {count}: draw them in parts")
        return keystream(os.urandom(32), count)

    def words(self, count: int) -> WordArray:
        """Uniform integers [count] of 64 bits."""
        return np.frombuffer(self.bytes(8 * count), np.dtype("<u8")).astype(np.uint64, copy=False)

    def integers(self, high: int, size: int | tuple[int, ...]) -> IntArray:
        """Uniform integers of shape ``size``, 0 <= integer < ``high``, every one equally likely.

        The lowest bits of a word that reach ``high`` are drawn again, so nothing is folded or rounded.

        Raises
        ------
        SpecError
            If ``high`` is not an integer of 1 to `LARGEST`.
        """
        if not isinstance(high, int | np.integer) or not 1 <= high <= LARGEST:
            raise SpecError(f"uniform integers lie below an integer of 1 to {LARGEST}, found {high!r}")
        mask = np.uint64((1 << (int(high) - 1).bit_length()) - 1)
        found = self.words(int(np.prod(size))) & mask
        again = np.flatnonzero(found >= np.uint64(high))
        while again.size:
            found[again] = self.words(again.size) & mask
            again = again[found[again] >= np.uint64(high)]
        return found.astype(np.int64).reshape(size)

    def coins(self, probability: float, size: int) -> BoolArray:
        """Coins [size], each True with exactly ``probability``: who is in a Poisson sample.

        A coin is a comparison of 128 random bits with the probability's digits, of which a second word is looked at
        only where the first does not tell.

        Raises
        ------
        SpecError
            If the probability is neither 0 nor `LEAST_PROBABILITY` to 1.
        """
        if not (probability == 0 or LEAST_PROBABILITY <= probability <= 1):
            raise SpecError(f"a coin's probability is 0, or {LEAST_PROBABILITY:g} to 1, found {probability!r}")
        if probability == 1:
            return np.ones(size, np.bool_)
        numerator, denominator = float(probability).as_integer_ratio()
        first, second = divmod((numerator << 128) // denominator, 1 << 64)  # no digit is lost
        words = self.words(size)
        ones: BoolArray = words < np.uint64(first)
        open_ = np.flatnonzero(words == np.uint64(first))
        ones[open_] = self.words(open_.size) < np.uint64(second)
        return ones

    def binomial(self, n: int, p: float) -> int:
        """Draw how many of ``n`` coins are 1."""
        return int(np.count_nonzero(self.coins(p, n)))

    def permutation(self, count: int) -> IntArray:
        """The numbers below ``count`` in an order of which all are equally likely."""
        while True:
            keys = self.words(count)
            order = np.argsort(keys)
            ranked = keys[order]
            if not (ranked[1:] == ranked[:-1]).any():  # ties would be broken by what stood first
                return np.asarray(order, np.int64)

    def choice(self, count: int, size: int, *, replace: bool, shuffle: bool) -> IntArray:
        """``size`` distinct numbers below ``count``, every set of them equally likely."""
        if replace:
            raise NotImplementedError("draws with replacement are integers(count, size)")
        return self.permutation(count)[:size]

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
        words = self.words(size)
        tails = ((words >> np.uint64(1)).astype(np.float64) + 0.5) * 2.0**-64
        upper: BoolArray = words & np.uint64(1) == 1
        return tails, upper

    def __reduce__(self) -> NoReturn:
        raise TypeError("the randomness of a deployment is never stored or copied: make a new SecretRandomness()")


class FreshNumbers:
    """In the place of a `Stream`: whatever its number, a generator that draws what was never drawn before."""

    __slots__ = ()

    def at(self, number: int) -> np.random.Generator:
        """A generator; ``number`` says nothing here."""
        return cast(np.random.Generator, SecretRandomness())
