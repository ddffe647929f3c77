"""Draws without a generator object are numpy's, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from gossamer import philox
from gossamer.privacy.sampling import FixedSize, Poisson
from gossamer.randomness import Stream
from gossamer.sides.number_source import generator_of, sampled

NUMBERS = (*range(200), 2**32, 2**63 - 1)


@pytest.mark.some(24)
@pytest.mark.parametrize("count", [1, 2, 3, 10, 64, 181, 1000, philox.MOST_COUNT])
@pytest.mark.parametrize("probability", [1e-4, 0.003, 0.1, 0.4, 0.5, 0.500001, 0.7, 0.99, 1.0])
def test_samples_are_those_of_the_generator(count: int, probability: float) -> None:
    """Of every count and rate, drawn by inversion or not: the positions that `Poisson.draw` gives."""
    numbers, law = Stream(3, "node", "sampling"), Poisson(probability)
    for number in NUMBERS:
        expected = law.draw(numbers.at(number), count)
        found = sampled(numbers, number, law, count)
        assert found.dtype == expected.dtype == np.int64
        assert found.tolist() == expected.tolist()


def test_small_samples_are_drawn_without_a_generator() -> None:
    key = Stream(3, "node", "sampling").key
    assert philox.poisson_sample(key, 1, 10, 0.4) is not None
    assert philox.poisson_sample(key, 1, 100, 0.9) is None  # too many to be looked through
    assert philox.poisson_sample(key, 1, 1000, 0.4) is None  # not by inversion
    assert philox.poisson_sample(key, 1, philox.MOST_COUNT + 1, 1e-4) is None
    assert philox.poisson_sample(key, 1, 0, 0.4) is None


def test_rejected_words_are_drawn_again() -> None:
    """A bound just above 2^31 rejects nearly every second word; counts that large are reached by the loop alone."""
    key, bound = Stream(4, "words").key, 2**31 + 1
    state = np.zeros(7, np.uint64)
    state[4] = 4
    found = [int(philox._below(key, np.uint64(9), state, np.uint64(bound))) for _ in range(50)]
    generator = Stream(4, "words").at(9)
    assert found == [int(generator.integers(bound)) for _ in range(50)]


def test_other_laws_and_sources_are_drawn_as_before() -> None:
    numbers, law = Stream(3, "node", "sampling"), FixedSize(10, 4)
    assert sampled(numbers, 5, law, 10).tolist() == law.draw(numbers.at(5), 10).tolist()


@pytest.mark.parametrize("size", [1, 124, 256, 257, 5000])
def test_normals_are_those_of_the_generator(size: int) -> None:
    numbers = Stream(3, "node", "noise")
    for number in (0, 1, 2**63 - 1):
        expected = numbers.at(number).standard_normal(size, dtype=np.float32)
        found = generator_of(numbers, number).standard_normal(size, dtype=np.float32)
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
