"""Sources of a data side's random numbers: a seed in a simulation, the operating system in a deployment."""

from __future__ import annotations

from typing import Any, Protocol, cast

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
    from gossamer.privacy.exact.secret_generator import FreshNumbers

    return FreshNumbers()


def sampled(numbers: Numbers, number: int, sampling: Sampling, count: int) -> IndexArray:
    """Positions in a shard of ``count`` examples that ``sampling`` draws from the numbers of ``number``."""
    if type(numbers) is Stream and type(sampling) is Poisson:
        from gossamer.philox import poisson_sample  # a compiler's import takes as long as most commands

        return poisson_sample(numbers.key, number, count, sampling.probability)
    return sampling.draw(numbers.at(number), count)


def generator_of(numbers: Numbers, number: int) -> np.random.Generator:
    """The generator of ``number``; from a seed, one that is made only if more than normal numbers are asked of it."""
    return cast(np.random.Generator, _Late(numbers, number)) if type(numbers) is Stream else numbers.at(number)


class _Late:
    """A generator whose first vector of float32 normals, often all that is drawn, needs no object of numpy's."""

    __slots__ = ("_drawn", "_made", "_number", "_stream")

    def __init__(self, stream: Stream, number: int) -> None:
        self._stream, self._number = stream, number
        self._drawn = False
        self._made: np.random.Generator | None = None

    def standard_normal(self, size: Any = None, dtype: Any = np.float64, out: Any = None) -> Any:
        quick = out is None and type(size) is int and size <= PART and np.dtype(dtype) == np.float32
        if not quick or self._drawn or self._made is not None:  # threads share the making of more
            return self._generator().standard_normal(size, dtype, out)
        from gossamer.philox import normals  # a compiler's import takes as long as most commands

        found: FloatArray = np.empty(size, np.float32)
        normals(self._stream.key, self._number, found)
        self._drawn = True
        return found

    def _generator(self) -> np.random.Generator:
        if self._made is None:
            self._made = self._stream.at(self._number)
            if self._drawn:
                self._made.bit_generator.random_raw(2)  # what the normal numbers followed from
        return self._made

    def __getattr__(self, name: str) -> Any:
        return getattr(self._generator(), name)
