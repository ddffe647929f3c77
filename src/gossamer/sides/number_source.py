"""Sources of a data side's random numbers: a seed in a simulation, the operating system in a deployment."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from gossamer.arrays import FloatArray, IndexArray
from gossamer.privacy.sampling import Poisson, Sampling
from gossamer.randomness import PART, Stream


class Numbers(Protocol):
    """A family of generators, one a number."""

    def at(self, number: int) -> np.random.Generator:
        """The generator of ``number``: the same numbers again, if they come from a seed."""
        ...


def numbers_of(seed: int | None, *labels: str) -> Numbers:
    """Those of ``seed`` for one purpose; without a seed, numbers that nobody can repeat."""
    if seed is not None:
        return Stream(seed, *labels)
    # It needs cryptography, which is optional, so it is imported only here.
    from gossamer.privacy.exact.secret_generator import Fresh

    return Fresh()


def sampled(numbers: Numbers, number: int, sampling: Sampling, count: int) -> IndexArray:
    """Positions in a shard of ``count`` examples that ``sampling`` draws from the generator of ``number``."""
    found = None
    if type(numbers) is Stream and type(sampling) is Poisson:
        from gossamer.philox import poisson_sample  # a compiler's import takes as long as most commands

        found = poisson_sample(numbers.key, number, count, sampling.probability)
    return sampling.draw(numbers.at(number), count) if found is None else found


def standard_normals(numbers: Numbers, number: int, size: int) -> FloatArray:
    """Normal numbers [size] of float32 from the generator of ``number``."""
    if type(numbers) is Stream and size <= PART:  # threads share the making of more
        from gossamer.philox import normals

        found: FloatArray = np.empty(size, np.float32)
        normals(numbers.key, number, found)
        return found
    return numbers.at(number).standard_normal(size, dtype=np.float32)
