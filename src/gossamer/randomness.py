"""Stateless random streams: what is drawn depends on (seed, labels, number) and on nothing else.

A stream is a Philox generator, which is counter-based: the key is a hash of the seed and the labels, and each
number starts at a counter of its own, 2^64 blocks from the next. Draws therefore do not depend on the order of
events, on other nodes, on PYTHONHASHSEED or on any global generator.

Reproducible streams are for simulation. They are not fit for the noise of a deployment, where whoever knows the
seed could subtract it.

References
----------
Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

import hashlib
import sys
from array import array
from collections import deque
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from gossamer.threads import available_cores, in_order

PART = 2**16
"""Normals that one thread makes at a time; it has no influence on them."""
AHEAD = 16
"""Numbers that are drawn for at a time, where it is one value for each; it has no influence on them."""


class Draws(np.random.Generator):
    """A numpy generator whose vectors of float32 normals are made many at a time, by `normals`.

    They follow from the next 128 bits that the generator draws; everything else is numpy's.
    """

    def standard_normal(self, size: Any = None, dtype: Any = np.float64, out: Any = None) -> Any:
        """Normal numbers, as `numpy.random.Generator.standard_normal` gives them."""
        if out is not None or size is None or np.ndim(size) or np.dtype(dtype) != np.float32:
            return super().standard_normal(size, dtype, out)
        from gossamer.normals import fill  # a compiler's import takes as long as most commands

        drawn = np.empty(size, np.float32)
        key, label = self.bit_generator.random_raw(2)
        starts = range(0, len(drawn), PART)
        parts = in_order(lambda start: fill(key, label, start, drawn[start : start + PART]), starts, available_cores())
        deque(parts, maxlen=0)
        return drawn


class _Unseeded(np.random.bit_generator.ISeedSequence):
    """Seeds of generators that are given a key before anything is drawn: the operating system need not be asked."""

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> Any:
        return np.zeros(n_words, dtype)


_UNSEEDED = _Unseeded()


class Hand:
    """A generator that draws for one stream after the other.

    Streams that are many and draw little share one: each of their own would take a thousand times their memory.
    """

    __slots__ = ("_bits", "_generator", "_key", "_start")

    def __init__(self) -> None:
        self._bits = np.random.Philox(_UNSEEDED)  # type: ignore[arg-type]  # any such sequence will do
        self._generator = Draws(self._bits)
        self._start = self._bits.state  # counter 0 and nothing left over from earlier draws
        self._key: Any = None

    def at(self, key: tuple[np.uint64, np.uint64], number: int) -> np.random.Generator:
        """The generator of ``number`` of the stream with this key, at its start."""
        where = self._start["state"]
        if self._key is not key:
            where["key"][:], self._key = key, key
        where["counter"][1] = number
        self._bits.state = self._start
        return self._generator


class Stream:
    """A family of generators, one a number.

    Parameters
    ----------
    seed : int
        The run's seed.
    *labels : str or int
        Purpose of the stream, such as a node's name and what it draws.
    hand : Hand, optional
        Common to streams that draw one after the other; by default it has one of its own.

    Attributes
    ----------
    key : tuple of two numpy.uint64
        Key of Philox: a hash of the seed and the labels.
    """

    __slots__ = ("_hand", "key")

    def __init__(self, seed: int, *labels: str | int, hand: Hand | None = None) -> None:
        first, second = np.frombuffer(_digest(16, seed, *labels), "<u8")
        self.key, self._hand = (first, second), hand

    def at(self, number: int) -> np.random.Generator:
        """The generator of ``number`` (0 to 2^64 - 1), at its start.

        The same object is handed out each time, and to all streams of one hand, so finish with one number before asking
        for the next.
        """
        if self._hand is None:
            self._hand = Hand()
        return self._hand.at(self.key, number)


def stream_keys(seed: int, owners: Iterable[str | int], purpose: str) -> npt.NDArray[np.uint64]:
    """Keys [owners, 2] of the streams of many owners for one purpose."""
    found = b"".join([_digest(16, seed, owner, purpose) for owner in owners])
    return np.frombuffer(found, "<u8").reshape(-1, 2).copy()


class Ahead:
    """Values of a stream, the first of each number, of which many are drawn at a time where a compiler is there.

    They are those that a generator of the number would draw. What loads no compiler anyway is done before it would be.
    """

    __slots__ = ("_found", "_law", "_part", "_stream")

    def __init__(self, stream: Stream) -> None:
        self._stream, self._part = stream, -1
        self._law: tuple[float, ...] = ()
        self._found: Any = ()

    def lognormal(self, number: int, location: float, spread: float) -> float:
        """Return what ``Generator.lognormal`` draws."""
        if number // AHEAD != self._part or self._law != (location, spread):
            if "numba" not in sys.modules:
                return float(self._stream.at(number).lognormal(location, spread))
            from gossamer.philox import lognormals

            self._keep(lognormals, "d", number, location, spread)
        return float(self._found[number % AHEAD])

    def below(self, number: int, bound: int) -> int:
        """Return what ``Generator.integers`` draws below ``bound``."""
        if number // AHEAD != self._part or self._law != (bound,):
            if "numba" not in sys.modules:
                return int(self._stream.at(number).integers(bound))
            from gossamer.philox import integers

            self._keep(integers, "q", number, bound)
        return int(self._found[number % AHEAD])

    def _keep(self, draw: Any, kind: str, number: int, *law: float) -> None:
        self._part, self._law = number // AHEAD, law
        self._found = array(kind, draw(self._stream.key, AHEAD * self._part, AHEAD, *law).tobytes())


def _digest(size: int, *labels: str | int) -> bytes:
    # ascii() keeps 1 and "1", and ("a", "b") and "ab", apart and is the same on every version and machine.
    name = ascii([label if isinstance(label, str) else int(label) for label in labels])
    return hashlib.blake2b(name.encode(), digest_size=size).digest()


def digest_of(parts: Iterable[bytes | memoryview]) -> bytes:
    """A digest [16 bytes] of parts, which tells where one ends and the next begins."""
    found = hashlib.blake2b(digest_size=16)
    for part in parts:
        found.update(len(part).to_bytes(8, "little"))
        found.update(part)
    return found.digest()


def derive(seed: int, *labels: str | int) -> int:
    """A seed of 128 bits for one purpose, from which neither ``seed`` nor the seed of another purpose follows.

    A short ``seed`` can still be found by trying all.
    """
    return int.from_bytes(_digest(16, seed, "derive", *labels), "little")


def stream(seed: int, *labels: str | int, number: int = 0) -> np.random.Generator:
    """A fresh generator for (seed, labels, number), independent of all others."""
    return Stream(seed, *labels).at(number)
