"""Draws without a generator object: words and normals are numpy's, bit for bit, and samples have their law."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from gossamer.philox import normals
from gossamer.privacy.mechanisms import FixedSize, Poisson
from gossamer.randomness import Stream
from gossamer.sides.home import sampled

NUMBERS = (*range(200), 2**32, 2**63 - 1)


def slow_sample(numbers: Stream, number: int, count: int, probability: float) -> list[int]:
    """Words of numpy's generator; each tells how many examples are left out before the next that is drawn."""
    bits, place, found = numbers.at(number).bit_generator, 0, list[int]()
    while True:
        share = 1 - (int(bits.random_raw()) >> 11) / 2**53
        place += int(min(math.log(share) / math.log1p(-probability), count)) if probability < 1 else 0
        if place >= count:
            return found
        found.append(place)
        place += 1


@pytest.mark.some(24)
@pytest.mark.parametrize("count", [0, 1, 2, 3, 10, 64, 181, 1000])
@pytest.mark.parametrize("probability", [1e-300, 1e-4, 0.003, 0.1, 0.4, 0.5, 0.7, 0.99, 1.0])
def test_samples_follow_from_the_generators_words(count: int, probability: float) -> None:
    numbers = Stream(3, "node", "sampling")
    for number in NUMBERS:
        found = sampled(numbers, number, Poisson(probability), count)
        assert found.dtype == np.int64
        assert found.tolist() == slow_sample(numbers, number, count, probability)


def test_each_example_is_drawn_by_a_coin_of_its_own() -> None:
    """Chi-square over all 2^6 sets of 6 examples at level 1e-6; a rate of 0.32 in the place of 0.3 is rejected."""
    numbers, count, trials = Stream(8, "sets"), 6, 40_000
    sets = np.zeros(2**count)
    for number in range(trials):
        sets[int(np.sum(2 ** sampled(numbers, number, Poisson(0.3), count)))] += 1
    sizes = np.array([place.bit_count() for place in range(2**count)])

    def p_value(rate: float) -> float:
        return float(stats.chisquare(sets, trials * rate**sizes * (1 - rate) ** (count - sizes)).pvalue)

    assert p_value(0.3) > 1e-6 > p_value(0.32)


def test_other_laws_and_sources_are_drawn_as_before() -> None:
    numbers, law = Stream(3, "node", "sampling"), FixedSize(10, 4)
    assert sampled(numbers, 5, law, 10).tolist() == law.draw(numbers.at(5), 10).tolist()


@pytest.mark.parametrize("size", [1, 124, 256, 257, 5000])
def test_normals_are_those_of_the_generator(size: int) -> None:
    numbers = Stream(3, "node", "noise")
    for number in (0, 1, 2**63 - 1):
        expected, found = numbers.at(number).standard_normal(size, dtype=np.float32), np.empty(size, np.float32)
        normals(numbers.key, number, found)
        assert found.tobytes() == expected.tobytes()


def test_sizes_of_samples_are_binomial() -> None:
    """Chi-square over 20,000 numbers of a fixed stream at level 1e-6: were the seed free, one false alarm in 10^6."""
    numbers, law = Stream(6, "sizes"), Poisson(0.4)
    sizes = np.array([len(sampled(numbers, number, law, 10)) for number in range(20_000)])
    expected = 20_000 * stats.binom(10, 0.4).pmf(np.arange(11))
    kept = expected >= 5
    found = np.bincount(sizes, minlength=11)[kept]
    scaled = expected[kept] * found.sum() / expected[kept].sum()
    assert stats.chisquare(found, scaled).pvalue > 1e-6
