"""The discrete Gaussian has its law, and nearby laws are rejected by the same tests.

Seeds are fixed, so a test passes or fails for good. The level of each p-value is 1e-6, and there are fewer than 30.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from gossamer.privacy.exact.grid_noise import LARGEST, discrete_gaussian

LEVEL = 1e-6
COUNT = 400_000


def words(seed: int) -> Callable[[int], np.ndarray]:
    generator = np.random.default_rng(seed)
    return lambda count: generator.integers(0, 2**64, count, dtype=np.uint64)


def p_value(drawn: np.ndarray, scale: float) -> float:
    """Chi-squared, of all values expected 20 times or more, and the rest."""
    values = np.arange(-60 * int(scale + 1), 60 * int(scale + 1) + 1)
    expected = np.exp(-(values**2) / (2 * scale**2))
    expected *= len(drawn) / expected.sum()
    kept = expected >= 20
    counts = np.array([np.count_nonzero(drawn == value) for value in values[kept]])
    observed = np.append(counts, len(drawn) - counts.sum())
    return float(stats.chisquare(observed, np.append(expected[kept], len(drawn) - expected[kept].sum())).pvalue)


@pytest.mark.parametrize("scale", [1, 2, 3, 7, 15, 16, 30, 33, 129])
def test_small_scales(scale: int) -> None:
    drawn = discrete_gaussian(words(scale), scale, COUNT)
    assert p_value(drawn, scale) > LEVEL
    assert p_value(drawn, 1.03 * scale) < LEVEL
    assert p_value(drawn, 0.97 * scale) < LEVEL
    assert p_value(np.where(drawn == 0, 1, drawn), scale) < LEVEL
    assert p_value(drawn + 1, scale) < LEVEL or scale > 100
    rounded = np.rint(np.random.default_rng(scale).normal(0, scale, COUNT)).astype(int)
    assert scale > 2 or p_value(rounded, scale) < LEVEL  # rounded normal noise is another law


@pytest.mark.some(1)
@pytest.mark.parametrize("scale", [10**6, 2**31 + 11, 2**44, LARGEST])
def test_large_scales_are_normal(scale: int) -> None:
    """Divided by the scale, it is N(0, 1) within 1e-6; the lowest bits are uniform."""
    drawn = discrete_gaussian(words(1), scale, COUNT)
    assert stats.kstest(drawn / scale, stats.norm().cdf).pvalue > LEVEL
    assert stats.kstest(drawn / scale, stats.norm(scale=1.02).cdf).pvalue < LEVEL
    assert stats.chisquare(np.bincount(drawn & 255, minlength=256)).pvalue > LEVEL


def test_draws_are_independent_of_each_other() -> None:
    """Correlation of neighbours, and of magnitudes: each is normal with deviation 1/sqrt(n)."""
    drawn = discrete_gaussian(words(2), 1000, COUNT).astype(float)
    for values in (drawn, np.abs(drawn)):
        correlation = np.corrcoef(values[:-1], values[1:])[0, 1]
        assert abs(correlation) * np.sqrt(COUNT) < 4.9  # twice 5e-7
