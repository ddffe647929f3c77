"""Noise and sampling as distributions, in both directions: the right law passes, a nearby wrong one is rejected.

Every test uses fixed streams, so it passes or fails for good. The level of each is 1e-6: that is the chance that
a right implementation would have failed when the streams were chosen. Its power, the chance to reject the wrong
law named in it, is practically one, which the same test shows by rejecting it.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from gossamer.privacy.mechanisms import FixedSize, Gaussian, L2Laplace, Laplace, Mechanism, NeighboringRelation, Poisson
from gossamer.randomness import Stream

LEVEL = 1e-6
SIZE, DRAWS = 20, 5_000


def draws(mechanism: Mechanism, size: int = SIZE, count: int = DRAWS, dtype: str = "float64") -> np.ndarray:
    """Releases as the data side draws them: one stream, number after number."""
    noise = Stream(11, "node", "noise")
    return np.stack([mechanism.noise(noise.at(number), size, dtype) for number in range(count)])


def p_value(sample: np.ndarray, law: stats.rv_continuous) -> float:
    return float(stats.kstest(sample.ravel(), law.cdf).pvalue)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gaussian(dtype: str) -> None:
    """100,000 coordinates; 5 % more or less noise is rejected."""
    sample = draws(Gaussian(clip=0.5, noise_multiplier=3.0), dtype=dtype).astype(np.float64)
    assert p_value(sample, stats.norm(scale=1.5)) > LEVEL
    for wrong in (1.5 * 0.95, 1.5 * 1.05):
        assert p_value(sample, stats.norm(scale=wrong)) < LEVEL


def test_gaussian_noise_is_independent_over_coordinates_and_releases() -> None:
    """Correlations of neighbours, each N(0, 1/n) under independence; z-scores beyond 4.9 have probability 1e-6."""
    sample = draws(Gaussian(1.0, 1.0))
    for left, right in ((sample[:, :-1], sample[:, 1:]), (sample[:-1], sample[1:])):
        z = np.sum(left * right) / np.sqrt(left.size)
        assert abs(z) < 4.9
    # A stream that did not advance would be noticed: the same noise twice has correlation one.
    assert abs(np.sum(sample * sample) / np.sqrt(sample.size)) > 4.9


def test_laplace() -> None:
    sample = draws(Laplace(clip=1.0, scale=2.0))
    assert p_value(sample, stats.laplace(scale=2.0)) > LEVEL
    assert p_value(sample, stats.laplace(scale=2.1)) < LEVEL
    assert p_value(sample, stats.norm(scale=sample.std())) < LEVEL


@pytest.mark.parametrize("relation", list(NeighboringRelation))
def test_the_norm_of_l2_laplace_is_gamma_and_not_exponential(relation: NeighboringRelation) -> None:
    """Density ~ exp(-eps |n| / S) in d dimensions makes the norm Gamma(d, S/eps). An exponential norm of the same
    mean, which is not private for d > 1, is rejected; so is a scale 5 % off, or the other relation's."""
    mechanism = L2Laplace(clip=0.5, epsilon=0.1, relation=relation)
    norms = np.linalg.norm(draws(mechanism), axis=1)
    scale = mechanism.sensitivity(relation) / 0.1
    assert p_value(norms, stats.gamma(SIZE, scale=scale)) > LEVEL
    assert p_value(norms, stats.expon(scale=SIZE * scale)) < LEVEL
    for wrong in (scale * 0.95, scale * 1.05, scale * 2, scale / 2):
        assert p_value(norms, stats.gamma(SIZE, scale=wrong)) < LEVEL


def test_the_direction_of_l2_laplace_is_uniform() -> None:
    """On the sphere of R^3 every coordinate of a uniform direction is uniform on [-1, 1] (Archimedes)."""
    sample = draws(L2Laplace(1.0, 1.0, NeighboringRelation.ADD_OR_REMOVE_ONE), size=3, count=20_000)
    directions = sample / np.linalg.norm(sample, axis=1, keepdims=True)
    for axis in range(3):
        assert p_value(directions[:, axis], stats.uniform(-1, 2)) > LEVEL
    # Independent Laplace coordinates, which prefer the axes, are told apart.
    other = draws(Laplace(1.0, 1.0), size=3, count=20_000)
    other /= np.linalg.norm(other, axis=1, keepdims=True)
    assert p_value(other[:, 0], stats.uniform(-1, 2)) < LEVEL


def batches(sampling: Poisson | FixedSize, count: int, number: int = 4_000) -> np.ndarray:
    """Whether each example was in each batch, [batches, examples]."""
    stream = Stream(12, "node", "sampling")
    member = np.zeros((number, count), bool)
    for row in range(number):
        member[row, sampling.draw(stream.at(row), count)] = True
    return member


def chi_squared(found: np.ndarray, expected: np.ndarray) -> float:
    return float(stats.chi2.sf(np.sum((found - expected) ** 2 / expected), len(found) - 1))


@pytest.mark.parametrize("rate", [0.05, 0.3, 0.9])
def test_poisson_batches_have_a_binomial_size(rate: float) -> None:
    sizes = batches(Poisson(rate), 30).sum(axis=1)
    support = np.arange(31)

    def fit(assumed: float) -> float:
        expected = len(sizes) * stats.binom(30, assumed).pmf(support)
        often = expected >= 5
        found = np.bincount(sizes, minlength=31)
        pooled = np.append(found[often], found[~often].sum()), np.append(expected[often], expected[~often].sum())
        keep = pooled[1] > 0.5
        return chi_squared(pooled[0][keep], pooled[1][keep])

    assert fit(rate) > LEVEL
    assert fit(rate * 1.06) < LEVEL or rate == 0.05
    assert not np.all(sizes == sizes[0])  # a fixed size would be another mechanism


@pytest.mark.parametrize("sampling", [Poisson(0.3), FixedSize(10, 3)])
def test_every_example_is_as_likely_and_pairs_are_as_the_scheme_says(sampling: Poisson | FixedSize) -> None:
    """Inclusion 3/10 for each. Of two examples both: 0.09 independently, 3/10 * 2/9 = 1/15 without replacement."""
    member = batches(sampling, 10)
    number = len(member)
    z = (member.sum(axis=0) - 0.3 * number) / np.sqrt(number * 0.3 * 0.7)
    assert np.all(np.abs(z) < 5.5)  # 10 of them: level 4e-7
    both = {Poisson: 0.09, FixedSize: 1 / 15}
    right = both.pop(type(sampling))
    (wrong,) = both.values()
    pairs = sum((member[:, i] & member[:, i + 1]).sum() for i in range(0, 10, 2))
    assert stats.binomtest(int(pairs), 5 * number, right).pvalue > LEVEL
    assert stats.binomtest(int(pairs), 5 * number, wrong).pvalue < LEVEL
