"""Draws of simulations without a generator object: the words of numpy's Philox, and samples as numpy draws them.

To make a generator ready for a number of a stream, and to ask it for a sample, takes ten times as long as these loops
take for both. They give what the generator would, bit for bit.

References
----------
Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011: Philox4x64 with ten rounds.
Kachitvichyanukul and Schmeiser, "Binomial random variate generation", Communications of the ACM 31, 1988: inversion.
Bentley and Floyd, "A sample of brilliance", Communications of the ACM 30, 1987.
Lemire, "Fast random integer generation in an interval", ACM Transactions on Modeling and Computer Simulation 29, 2019.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numba import njit

from gossamer.arrays import IndexArray
from gossamer.normals import fill

MOST_MEAN = 30.0
"""Binomial numbers of a larger mean are drawn in another way than by inversion."""
MOST_DRAWN = 64
"""Samples of more examples are looked through for too long."""
MOST_COUNT = 10_000
"""Of more examples samples are drawn in another way, if they are large."""

_compiled = njit(cache=True, nogil=True, error_model="numpy")
_inlined = njit(inline="always", error_model="numpy")

_FACTORS = np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157)
_STEPS = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B)
_LOW, _HALF, _ONE = np.uint64(0xFFFFFFFF), np.uint64(32), np.uint64(1)
_PLACE, _BLOCK, _KEPT = 4, 5, 6  # of a state [7]: four words, the next of them, their block, 2^32 + half a word, or 0


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
def _word(key, number, state):  # type: ignore[no-untyped-def]
    """The next 64 bits."""
    if state[_PLACE] == 4:
        state[_BLOCK] += _ONE
        _block(key, number, state[_BLOCK], state)
        state[_PLACE] = 0
    word = state[state[_PLACE]]
    state[_PLACE] += _ONE
    return word


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
def _below(key, number, state, bound):  # type: ignore[no-untyped-def]
    """An integer from 0 to ``bound`` - 1, which is below 2^32 and not 0; of one that is 1 nothing is drawn."""
    if bound == _ONE:
        return np.uint64(0)
    product = _half_word(key, number, state) * bound
    if (product & _LOW) < bound:
        least = (_LOW - (bound - _ONE)) % bound
        while (product & _LOW) < least:
            product = _half_word(key, number, state) * bound
    return product >> _HALF


@_compiled
def _share(key, number, state):  # type: ignore[no-untyped-def]
    """The next number in [0, 1)."""
    return np.float64(_word(key, number, state) >> np.uint64(11)) * 2.0**-53


@_compiled
def _inverted(key, number, state, count, law):  # type: ignore[no-untyped-def]
    """A binomial number of ``count`` coins, by inversion."""
    p, none, most = law
    found, left, mass = 0, _share(key, number, state), none
    while left > mass:
        found += 1
        if found > most:
            found, left, mass = 0, _share(key, number, state), none
        else:
            left -= mass
            mass = ((count - found + 1) * p * mass) / (found * (1.0 - p))
    return found


@_compiled
def sample(key, at, count, turned, law, drawn):  # type: ignore[no-untyped-def]
    """Write a binomial number of distinct numbers below ``count``, ascending, to ``drawn``; how many.

    ``turned`` is whether the law is of how many are left out. If there is not room enough, they are not drawn.
    """
    number, state = np.uint64(at), np.zeros(7, np.uint64)
    state[_PLACE] = 4
    size = _inverted(key, number, state, count, law)
    size = count - size if turned else size
    if size > drawn.size:
        return size
    for k in range(size):
        last = count - size + k
        value = np.int64(_below(key, number, state, np.uint64(last + 1)))
        for other in range(k):
            if drawn[other] == value:
                value = last
                break
        place = k
        while place > 0 and drawn[place - 1] > value:  # kept in order
            drawn[place] = drawn[place - 1]
            place -= 1
        drawn[place] = value
    return size


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


class Coins(NamedTuple):
    """Law of a binomial number, or if it is ``turned`` of those left out: p, the chance of none, the most."""

    turned: bool
    law: tuple[float, float, int]


@lru_cache(maxsize=4096)
def coins(count: int, probability: float) -> Coins | None:
    """Return how the number of heads of ``count`` coins is drawn; None if it is not by inversion."""
    p = probability if probability <= 0.5 else 1.0 - probability
    if not 0 < count <= MOST_COUNT or p * count > MOST_MEAN or probability <= 0:
        return None
    most = int(min(count, count * p + 10.0 * math.sqrt(count * p * (1.0 - p) + 1)))
    return Coins(probability > 0.5, (p, math.exp(count * math.log1p(-p)), most))


def poisson_sample(key: tuple[np.uint64, np.uint64], number: int, count: int, probability: float) -> IndexArray | None:
    """Positions that `privacy.sampling.Poisson` draws; None if only a generator can tell."""
    law = coins(count, probability)
    if law is None:
        return None
    drawn = np.empty(MOST_DRAWN, np.int64)
    size = sample(key, number, count, law.turned, law.law, drawn)
    return drawn[:size] if size <= MOST_DRAWN else None
