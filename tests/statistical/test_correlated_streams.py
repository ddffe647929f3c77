"""Correlated noise as a distribution: the right covariance over rounds passes, that of another factorisation does not.

Every test uses fixed streams, so it passes or fails for good. Each statistic has a level of 1e-6: the chance that right
streams would have failed when the keys were chosen. There are 75 of them, hence about 1e-4 for the file.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from tests.reference.graph_slow import noise_factor

from gossamer.privacy.streams.correlated_noise import (
    CorrelatedNoise,
    Factorisation,
    NoiseLaw,
    NoiseState,
    NoiseStream,
    Temporal,
)
from gossamer.randomness import Stream

LEVEL = 1e-6
ROUNDS, SIZE, DEVIATION = 6, 40_000, 1.5
KINDS: list[tuple[str, int | None]] = [
    ("independent", None),
    ("random_walk", None),
    ("sqrt_toeplitz", None),
    ("banded", 2),
    ("banded", 3),
]


def records(temporal: str, bands: int | None, law: NoiseLaw) -> np.ndarray:
    """All records of a stream, [rounds, size]: its coordinates are independent draws of the law over rounds."""
    stream = NoiseStream(CorrelatedNoise(Factorisation(Temporal(temporal), ROUNDS, bands), DEVIATION, law), SIZE)
    keyed, state, drawn = Stream(23, "unit", "noise"), NoiseState(), []
    for number in range(ROUNDS):
        record, state = stream.draw(state, keyed.at(number))
        drawn.append(record)
    return np.stack(drawn)


def p_value(z: np.ndarray, kurtosis: float) -> float:
    """Of white z of variance 1: (products - expectation)/sd of all pairs of rounds, squared and added.

    Products of different rounds have variance 1, squares have kurtosis - 1; sums over 40,000 coordinates are normal, so
    the sum over 21 pairs is chi-squared with 21 degrees of freedom.
    """
    covariance = z @ z.T / SIZE - np.eye(ROUNDS)
    deviations = np.where(np.eye(ROUNDS, dtype=bool), np.sqrt(kurtosis - 1), 1.0)
    scores = (covariance / deviations)[np.triu_indices(ROUNDS)] * np.sqrt(SIZE)
    return float(stats.chi2.sf((scores**2).sum(), scores.size))


@pytest.mark.parametrize(("law", "kurtosis"), [(NoiseLaw.GAUSSIAN, 3.0), (NoiseLaw.LAPLACE, 6.0)])
@pytest.mark.parametrize(("temporal", "bands"), KINDS)
def test_covariance_over_rounds(temporal: str, bands: int | None, law: NoiseLaw, kurtosis: float) -> None:
    """B^-1 times the records is white; by the B of any other factorisation, or 3 % more noise, it is not."""
    drawn = records(temporal, bands, law)

    def whitened(by: tuple[str, int | None], deviation: float = DEVIATION) -> float:
        return p_value(np.linalg.solve(noise_factor(by[0], ROUNDS, by[1]), drawn) / deviation, kurtosis)

    assert whitened((temporal, bands)) > LEVEL
    for other in KINDS:
        if other != (temporal, bands):
            assert whitened(other) < LEVEL
    for wrong in (DEVIATION * 0.97, DEVIATION * 1.03):
        assert whitened((temporal, bands), wrong) < LEVEL


@pytest.mark.some(2)
@pytest.mark.parametrize(("temporal", "bands"), KINDS)
def test_laws_of_single_records(temporal: str, bands: int | None) -> None:
    """Normal records are normal with the variance of their message; first Laplace records are Laplace."""
    noise = CorrelatedNoise(Factorisation(Temporal(temporal), ROUNDS, bands), DEVIATION)
    drawn = records(temporal, bands, NoiseLaw.GAUSSIAN)
    for record, deviation in zip(drawn, noise.message_standard_deviations):
        assert stats.kstest(record, stats.norm(scale=deviation).cdf).pvalue > LEVEL
        assert stats.kstest(record, stats.norm(scale=1.1 * deviation).cdf).pvalue < LEVEL
    first = records(temporal, bands, NoiseLaw.LAPLACE)[0]
    assert stats.kstest(first, stats.laplace(scale=DEVIATION / np.sqrt(2)).cdf).pvalue > LEVEL
    assert stats.kstest(first, stats.laplace(scale=1.1 * DEVIATION / np.sqrt(2)).cdf).pvalue < LEVEL
    assert stats.kstest(first, stats.norm(scale=DEVIATION).cdf).pvalue < LEVEL


def test_coordinates_are_independent() -> None:
    """Products of neighbours, each N(0, 1/n) under independence; z-scores beyond 4.9 have probability 1e-6."""
    for temporal, bands in KINDS:
        for record in records(temporal, bands, NoiseLaw.GAUSSIAN):
            z = np.sum(record[:-1] * record[1:]) / np.sum(record**2) * np.sqrt(SIZE)
            assert abs(z) < 4.9
