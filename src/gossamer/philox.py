"""Draws of simulations without a generator object: the words of numpy's Philox, Poisson samples and normals of them.

To make a generator ready for a number of a stream, and to ask it for a sample, takes ten times as long as these loops
take for both.

References
----------
Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011: Philox4x64 with ten rounds.
Fan, Muller and Rezucha, "Development of sampling plans by using sequential selection techniques and digital computers",
JASA 57, 1962: samples by the gaps between what is chosen.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from gossamer.arrays import IndexArray
from gossamer.normals import fill

_compiled = njit(cache=True, nogil=True, error_model="numpy")
_inlined = njit(inline="always", error_model="numpy")

_FACTORS = np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157)
_STEPS = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B)
_LOW, _HALF, _ONE = np.uint64(0xFFFFFFFF), np.uint64(32), np.uint64(1)


@_inlined
def _high(a, b):  # type: ignore[no-untyped-def]
    """The higher word of a product."""
    low_a, high_a, low_b, high_b = a & _LOW, a >> _HALF, b & _LOW, b >> _HALF
    middle = high_a * low_b + ((low_a * low_b) >> _HALF)
    other = low_a * high_b + (middle & _LOW)
    return high_a * high_b + (middle >> _HALF) + (other >> _HALF)


@_compiled
def _block(key, number, block, words):  # type: ignore[no-untyped-def]
    """Write the four words of ``block`` (numpy's first is 1) of ``number``."""
    c0, c1, c2, c3 = block, number, np.uint64(0), np.uint64(0)
    k0, k1 = key
    for _ in range(10):
        high0, low0 = _high(_FACTORS[0], c0), _FACTORS[0] * c0
        high1, low1 = _high(_FACTORS[1], c2), _FACTORS[1] * c2
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = k0 + _STEPS[0], k1 + _STEPS[1]
    words[0], words[1], words[2], words[3] = c0, c1, c2, c3


@_compiled
def _sample(key, at, count, rate, drawn):  # type: ignore[no-untyped-def]
    """Write the places below ``count`` of a Poisson sample to ``drawn`` [count], ascending; how many.

    The gap before each place is geometric, and follows from one word: P(gap >= k) is (1 - rate)^k.
    """
    number, words, used, block = np.uint64(at), np.empty(4, np.uint64), 4, np.uint64(0)
    size, place, decay = 0, 0, math.log1p(-rate)
    while True:
        if used == 4:
            block += _ONE
            _block(key, number, block, words)
            used = 0
        share = 1.0 - np.float64(words[used] >> np.uint64(11)) * 2.0**-53  # in (0, 1]
        used += 1
        gap = math.log(share) / decay
        if not gap < count - place:
            return size
        place += int(gap)
        drawn[size] = place
        size, place = size + 1, place + 1


@_compiled
def first_words(key, number):  # type: ignore[no-untyped-def]
    """The two words that normal numbers of ``number`` follow from: key and label of `gossamer.normals`."""
    words = np.empty(4, np.uint64)
    _block(key, np.uint64(number), _ONE, words)
    return words[0], words[1]


@_compiled
def normals(key, number, found):  # type: ignore[no-untyped-def]
    """Fill ``found`` [size] of float32 with normal numbers, as `randomness.Draws` gives them first."""
    first, second = first_words(key, number)
    fill(first, second, 0, found)


@_compiled
def poisson_samples(keys, numbers, rates, places, starts, rows):  # type: ignore[no-untyped-def]
    """Poisson samples of many parties: the rows of all, one sample after the other, and where each of them begins.

    Sample k is that of number ``numbers[k]`` by key ``keys[places[k]]``, of ``rows[starts[places[k]] :]`` up to those
    of the next place.
    """
    most = 0
    for place in places:
        most = max(most, starts[place + 1] - starts[place])
    drawn, found, begins = (
        np.empty(most, np.int64),
        np.empty(16 * places.size, np.int64),
        np.zeros(places.size + 1, np.int64),
    )
    for k in range(places.size):
        start, at = starts[places[k]], begins[k]
        count = starts[places[k] + 1] - start
        size = _sample((keys[places[k], 0], keys[places[k], 1]), numbers[k], count, rates[k], drawn)
        if at + size > found.size:
            larger = np.empty(2 * (at + size), np.int64)
            larger[:at] = found[:at]
            found = larger
        for i in range(size):
            found[at + i] = rows[start + drawn[i]]
        begins[k + 1] = at + size
    return found, begins


@_compiled
def add_normals(keys, numbers, deviations, places, sums):  # type: ignore[no-untyped-def]
    """Add normal noise to ``sums`` [width, size] of float32: to row k that of ``numbers[k]`` by ``keys[places[k]]``."""
    noise = np.empty(sums.shape[1], np.float32)
    for k in range(places.size):
        normals((keys[places[k], 0], keys[places[k], 1]), numbers[k], noise)
        deviation = np.float32(deviations[k])
        for j in range(noise.size):
            sums[k, j] = noise[j] * deviation + sums[k, j]


def poisson_sample(key: tuple[np.uint64, np.uint64], number: int, count: int, probability: float) -> IndexArray:
    """Places of a Poisson sample of ``count`` examples, ascending: the law of `privacy.sampling.Poisson`."""
    drawn = np.empty(count, np.int64)
    return drawn[: _sample(key, number, count, probability, drawn)].copy()
