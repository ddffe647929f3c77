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
from numba.np.random._constants import fi_double, ki_double, wi_double, ziggurat_nor_inv_r, ziggurat_nor_r

from gossamer.arrays import IndexArray
from gossamer.machine_code import compiled
from gossamer.normals import fill

_compiled = compiled()
_inlined = compiled(inline="always")

_FACTORS = np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157)
_STEPS = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B)
_LOW, _HALF, _ONE = np.uint64(0xFFFFFFFF), np.uint64(32), np.uint64(1)
_MANTISSA = np.uint64(2**52 - 1)
_INSIDE, _WIDTHS, _HEIGHTS = ki_double, wi_double, fi_double  # of the layers of numpy's ziggurat


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
def sample(key, at, count, rate, drawn):  # type: ignore[no-untyped-def]
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
        size = sample((keys[places[k], 0], keys[places[k], 1]), numbers[k], count, rates[k], drawn)
        if at + size > found.size:
            larger = np.empty(2 * (at + size), np.int64)
            larger[:at] = found[:at]
            found = larger
        for i in range(size):
            found[at + i] = rows[start + drawn[i]]
        begins[k + 1] = at + size
    return found, begins


@_compiled
def add_normals(key, number, deviation, noise, values):  # type: ignore[no-untyped-def]
    """Add normal numbers of ``number`` to ``values`` [size] of float32; ``noise`` [size] is overwritten."""
    normals(key, number, noise)
    factor = np.float32(deviation)
    for j in range(noise.size):
        values[j] = noise[j] * factor + values[j]


_PLACE, _COUNT, _KEPT = 4, 5, 6  # of a state: of the next of its four words, of blocks so far, and of half a word


@_compiled
def _word(key, number, state):  # type: ignore[no-untyped-def]
    """The next 64 bits of numpy's generator."""
    if state[_PLACE] == 4:
        state[_COUNT] += _ONE
        _block(key, number, state[_COUNT], state)
        state[_PLACE] = 0
    state[_PLACE] += _ONE
    return state[state[_PLACE] - _ONE]


@_compiled
def _half_word(key, number, state):  # type: ignore[no-untyped-def]
    """The next 32 bits: the lower half of a word, and then its higher one."""
    kept = state[_KEPT]
    if kept != 0:
        state[_KEPT] = 0
        return kept & _LOW
    word = _word(key, number, state)
    state[_KEPT] = (word >> _HALF) | (_ONE << _HALF)
    return word & _LOW


@_compiled
def _share(key, number, state):  # type: ignore[no-untyped-def]
    """The next number in [0, 1)."""
    return np.float64(_word(key, number, state) >> np.uint64(11)) * 2.0**-53


@_compiled
def _normal(key, number, state):  # type: ignore[no-untyped-def]
    """The next normal number, by numpy's ziggurat."""
    while True:
        word = _word(key, number, state)
        layer, sign, size = np.int64(word & np.uint64(255)), word & np.uint64(256), (word >> np.uint64(9)) & _MANTISSA
        x = np.float64(size) * _WIDTHS[layer]
        x = -x if sign else x
        if size < _INSIDE[layer]:
            return x
        if layer == 0:
            while True:
                beyond = -ziggurat_nor_inv_r * math.log1p(-_share(key, number, state))
                height = -math.log1p(-_share(key, number, state))
                if height + height > beyond * beyond:
                    beyond += ziggurat_nor_r
                    return -beyond if (size >> np.uint64(8)) & _ONE else beyond
        elif (_HEIGHTS[layer - 1] - _HEIGHTS[layer]) * _share(key, number, state) + _HEIGHTS[layer] < math.exp(
            -0.5 * x * x
        ):
            return x


@_compiled
def lognormal(key, number, location, spread, state):  # type: ignore[no-untyped-def]
    """Return the first number of ``Generator.lognormal``; ``state`` [7] is overwritten."""
    state[:] = 0
    state[_PLACE] = 4
    return math.exp(location + spread * _normal(key, np.uint64(number), state))


@_compiled
def lognormals(key, first, count, location, spread):  # type: ignore[no-untyped-def]
    """Return `lognormal` for each of ``count`` numbers from ``first`` on."""
    found, state = np.empty(count), np.empty(7, np.uint64)
    for i in range(count):
        found[i] = lognormal(key, first + i, location, spread, state)
    return found


@_compiled
def integer(key, number, bound, state):  # type: ignore[no-untyped-def]
    """Return the first of ``Generator.integers`` below ``bound`` (at most 2^32); ``state`` [7] is overwritten."""
    if bound == 1:
        return np.int64(0)  # nothing is drawn
    number, below = np.uint64(number), np.uint64(bound)
    state[:] = 0
    state[_PLACE] = 4
    product = _half_word(key, number, state) * below
    if (product & _LOW) < below:
        least = (_LOW - (below - _ONE)) % below
        while (product & _LOW) < least:
            product = _half_word(key, number, state) * below
    return np.int64(product >> _HALF)


@_compiled
def integers(key, first, count, bound):  # type: ignore[no-untyped-def]
    """Return `integer` for each of ``count`` numbers from ``first`` on."""
    found, state = np.zeros(count, np.int64), np.empty(7, np.uint64)
    for i in range(count):
        found[i] = integer(key, first + i, bound, state)
    return found


def poisson_sample(key: tuple[np.uint64, np.uint64], number: int, count: int, probability: float) -> IndexArray:
    """Places of a Poisson sample of ``count`` examples, ascending: the law of `privacy.mechanisms.Poisson`."""
    drawn = np.empty(count, np.int64)
    return drawn[: sample(key, number, count, probability, drawn)].copy()
