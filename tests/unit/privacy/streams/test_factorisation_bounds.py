"""What correlated noise could gain at all, as docs/decisions/optimised-noise.md has it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.reference.factorisations_slow import least, sensitivity

from gossamer.privacy.accounting.gaussian_dp import gaussian_mu
from gossamer.privacy.accounting.planner import calibrate_noise_multiplier
from gossamer.privacy.mechanisms import NeighboringRelation, Poisson
from gossamer.privacy.streams.correlated_noise import square_root_kernel

SUMS = np.tril(np.ones((100, 100)))


def toeplitz(kernel: np.ndarray, count: int) -> np.ndarray:
    return sum(
        (value * np.eye(count, k=-place) for place, value in enumerate(kernel[:count])), np.zeros((count, count))
    )


@pytest.mark.parametrize("gap", [1, 4])
@pytest.mark.parametrize("bands", [1, 2, 4, 24])
def test_no_factorisation_is_below_the_bound(gap, bands):
    """Square roots of sums, cut to bands, and independent noise; without any sampling."""
    count = 24
    sums = np.tril(np.ones((count, count)))
    c = toeplitz(square_root_kernel(bands), count)
    error = sensitivity(c, gap) ** 2 * np.linalg.norm(sums @ np.linalg.inv(c)) ** 2
    bound = least(sums.T @ sums, gap)
    assert bound <= error
    best = min(
        sensitivity(m, gap) ** 2 * np.linalg.norm(sums @ np.linalg.inv(m)) ** 2
        for m in (toeplitz(square_root_kernel(most), count) for most in range(1, count + 1))
    )
    assert best < 1.25 * bound


@pytest.mark.parametrize(("rows", "gain"), [(SUMS, 1.12), (SUMS[-1:], 1.0)], ids=["all models", "the last model"])
def test_what_full_batches_could_gain(rows, gain):
    """Variance of independent noise in mean models over the least of any, with every example in all 100 releases."""
    gram = rows.T @ rows
    assert 100 * np.trace(gram) / least(gram) == pytest.approx(gain, abs=0.005)


def test_noise_that_changes_over_time_has_all_of_it_without_any_correlation():
    """Independent noise of a variance as 1/sqrt(k), k rounds before the end: (sum sqrt(k))^2 in place of 100 sum k."""
    left = np.arange(100, 0, -1)
    c = np.diag(left**0.25)
    error = np.trace(c @ c) * np.linalg.norm(SUMS @ np.linalg.inv(c)) ** 2
    assert error == pytest.approx(np.sqrt(left).sum() ** 2)
    assert error == pytest.approx(least(SUMS.T @ SUMS), rel=1e-6)


@pytest.mark.parametrize(("contraction", "gain"), [(0.01, 1.08), (0.1, 5.26)])
def test_what_a_last_model_could_gain_needs_no_correlation(contraction, gain):
    """Of one row r any C leaves (sum |r_k|)^2 at least, as independent noise of variance 1/|r_k| has."""
    row = (1 - contraction) ** np.arange(99, -1, -1.0)[None]
    c = np.diag(np.sqrt(row[0]))
    error = np.trace(c @ c) * np.linalg.norm(row @ np.linalg.inv(c)) ** 2
    assert error == pytest.approx(row.sum() ** 2)
    assert error == pytest.approx(least(row.T @ row), rel=1e-6)
    assert 100 * np.linalg.norm(row) ** 2 / error == pytest.approx(gain, abs=0.005)


@pytest.mark.parametrize(("epsilon", "gain"), [(1.0, 0.58), (8.0, 2.37)])
def test_what_batches_in_turn_could_gain_over_sampled_ones(epsilon, gain):
    """The same, of batches of a twentieth at a time: drawn by coins, which amplify, over those taken in turn."""
    drawn = {Poisson(1 / 20): 100}
    found = calibrate_noise_multiplier(epsilon, 1e-5, NeighboringRelation.ADD_OR_REMOVE_ONE, [drawn]).noise
    other = math.sqrt(least(SUMS.T @ SUMS, 20)) / gaussian_mu(epsilon, 1e-5)
    assert found**2 * np.trace(SUMS.T @ SUMS) / other**2 == pytest.approx(gain, abs=0.01)
