"""Randomness that nobody can repeat: for the noise and the samples of a deployment.

Every call takes a fresh key of 32 bytes from the operating system and expands it with ChaCha20. Nothing is kept from
one call to the next, and all else follows from that:

- there is no state to store, to restore after a crash, or to read out of a dump of the memory later on;
- a process that forks shares nothing with its child, and neither does a machine that is restored from a snapshot with
  its copy, as far as the operating system's own generator is fit for that;
- two calls share their numbers only if two of the system's keys are the same.

The price is a few microseconds a call, so numbers are asked for by the thousand. `numpy.random.Generator` is not used:
its bit generators are C structures, whose refills could neither raise an error nor survive an interrupt.
"""

from __future__ import annotations

import os
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from gossamer.arrays import BoolArray, IntArray
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
    """Uniform numbers from the operating system's randomness.

    It can be handed to whatever draws uniform integers alone, such as `discrete_gaussian`. It has no state, so one
    object serves all threads, and it refuses to be copied or stored, so that nobody mistakes it for what can be.
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

    def integers(self, high: int, size: int) -> IntArray:
        """Uniform integers [size], 0 <= integer < ``high``, every one equally likely.

        The lowest bits of a word that reach ``high`` are drawn again, so nothing is folded or rounded.

        Raises
        ------
        SpecError
            If ``high`` is not an integer of 1 to `LARGEST`.
        """
        if not isinstance(high, int | np.integer) or not 1 <= high <= LARGEST:
            raise SpecError(f"uniform integers lie below an integer of 1 to {LARGEST}, found {high!r}")
        mask = np.uint64((1 << (int(high) - 1).bit_length()) - 1)
        found = self.words(size) & mask
        again = np.flatnonzero(found >= np.uint64(high))
        while again.size:
            found[again] = self.words(again.size) & mask
            again = again[found[again] >= np.uint64(high)]
        return found.astype(np.int64)

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

    def __reduce__(self) -> NoReturn:
        raise TypeError("the randomness of a deployment is never stored or copied: make a new SecretRandomness()")
