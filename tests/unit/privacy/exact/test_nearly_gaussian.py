"""Sums of discrete Gaussians against Gaussian differential privacy: by adding up their probabilities, to 50 digits."""

from __future__ import annotations

import math

import pytest
from mpmath import exp, mp, mpf, sqrt

from gossamer.errors import AccountingError
from gossamer.privacy.accounting.gaussian_dp import (
    NearlyGaussian,
    gaussian_delta,
    gaussian_epsilon,
    sum_of_discrete_gaussians,
)
from gossamer.privacy.exact.grid_noise import SMOOTHING, smoothing_error
from gossamer.privacy.streams.graph_bounds import AgentNoise, concentrated_epsilon, own_server_guarantee

Law = dict[int, mpf]


@pytest.fixture(autouse=True)
def fifty_digits() -> None:
    mp.dps = 50


def discrete(variance: mpf) -> Law:
    """Probabilities of a discrete Gaussian, around 0, to 18 standard deviations: tails of 1e-70."""
    reach = int(18 * sqrt(variance)) + 1
    weights = {k: exp(-mpf(k * k) / (2 * variance)) for k in range(-reach, reach + 1)}
    total = sum(weights.values())
    return {k: weight / total for k, weight in weights.items()}


def summed(scale: int, summands: int) -> Law:
    one = discrete(mpf(scale) ** 2)
    total = one
    for _ in range(summands - 1):
        found: Law = {}
        for i, p in total.items():
            for j, q in one.items():
                found[i + j] = found.get(i + j, mpf(0)) + p * q
        total = found
    return total


def true_delta(law: Law, shift: int, epsilon: float) -> float:
    grown = exp(mpf(epsilon))
    return float(sum(max(p - grown * law.get(k + shift, mpf(0)), mpf(0)) for k, p in law.items()))


@pytest.mark.parametrize(("scale", "summands"), [(1, 2), (1, 4), (2, 3)])
def test_a_sum_is_within_its_factor_of_one_discrete_gaussian(scale: int, summands: int) -> None:
    """At every outcome to 8 standard deviations. Of two with scale 1 it is needed; more of them average it away."""
    variance = mpf(summands * scale**2)
    total, one = summed(scale, summands), discrete(variance)
    reach = int(8 * sqrt(variance))
    off = max(abs(float(mp.log(total[k] / one[k]))) for k in range(-reach, reach + 1))
    allowed = math.fsum(smoothing_error(scale * math.sqrt(k / (k + 1))) for k in range(1, summands))
    assert 0 < off <= allowed
    assert off > 0.4 * allowed or summands > 2


@pytest.mark.parametrize(
    ("scale", "summands", "shift"), [(3, 1, 1), (3, 1, 7), (10, 1, 4), (1, 5, 1), (1, 7, 3), (2, 2, 2), (2, 5, 9)]
)
def test_the_privacy_loss_of_a_sum_is_within_what_is_proved(scale: int, summands: int, shift: int) -> None:
    """The exact delta at many epsilons, and the epsilon at several deltas; one coordinate."""
    found = sum_of_discrete_gaussians(scale, float(shift), 1, summands)
    assert found is not None
    law = summed(scale, summands)
    for part in (0.0, 0.1, 0.5, 1.0, 3.0):
        epsilon = part * found.mu
        bound = math.exp(found.eta) * gaussian_delta(found.mu, epsilon)
        assert true_delta(law, shift, epsilon + 2 * found.eta) <= bound * (1 + 1e-9)
        assert true_delta(law, shift, epsilon) <= (gaussian_delta(found.mu, epsilon) + found.failure) * (1 + 1e-9)
    for delta in (1e-2, 1e-5, 1e-9):
        assert true_delta(law, shift, found.epsilon(delta)) <= delta


def test_it_is_nearly_what_noise_of_the_same_variance_has() -> None:
    """4/s^2 of the variance is all that is lost: for a scale of 1000 two millionths of mu."""
    found = sum_of_discrete_gaussians(1000, 500.0, 100, 1)
    assert found is not None
    assert found.mu == pytest.approx(0.5, rel=3e-6)
    assert found.mu > 0.5
    assert 0 < found.eta < 100 * 1e-33
    assert found.epsilon(1e-5) == pytest.approx(gaussian_epsilon(0.5, 1e-5), rel=1e-5)


def test_releases_add_up_in_squares_and_their_factors_one_by_one() -> None:
    one = NearlyGaussian(0.3, 1e-3)
    assert one.times(100).mu == pytest.approx(3.0)
    assert one.times(100).eta == pytest.approx(0.1)
    assert one.times(0).epsilon(1e-5) == 0.0
    assert one.times(100).epsilon(1e-5) > gaussian_epsilon(3.0, 1e-5) + 0.2
    assert NearlyGaussian(0.3).epsilon(1e-5) == gaussian_epsilon(0.3, 1e-5)
    assert NearlyGaussian(0.3, 1e4).epsilon(1e-5) == math.inf


def test_a_factor_as_a_failure_is_three_times_its_logarithm() -> None:
    """And covers the larger epsilon and delta of the factor itself, at every epsilon."""
    for eta in (1e-33, 1e-6, 0.1):
        found = NearlyGaussian(0.7, eta)
        assert found.failure == pytest.approx(3 * eta, rel=2 * eta + 1e-9)
        for at in (2 * eta, 0.3, 1.0, 4.0):
            assert math.exp(eta) * gaussian_delta(0.7, at - 2 * eta) <= gaussian_delta(0.7, at) + found.failure


def test_a_factor_costs_what_it_says() -> None:
    """Of an (epsilon, delta): epsilon + 2 eta at exp(eta) delta, the other way round."""
    found = NearlyGaussian(0.7, 0.01).epsilon(1e-5)
    assert found == pytest.approx(gaussian_epsilon(0.7, 1e-5 * math.exp(-0.01)) + 0.02, rel=1e-9)


@pytest.mark.parametrize(("scale", "summands"), [(1, 1), (2, 1), (1, 4)])
def test_noise_of_a_few_steps_is_accounted_by_concentration_alone(scale: int, summands: int) -> None:
    assert summands * scale**2 <= SMOOTHING**2
    assert sum_of_discrete_gaussians(scale, 1.0, 1, summands) is None
    noise = AgentNoise(scale, 1.0, 1)
    guarantee = own_server_guarantee(noise, 3, 1e-5, summands)
    assert guarantee.epsilon == concentrated_epsilon(3 * noise.rho(summands), 1e-5)
    assert "zero-concentrated" in guarantee.proof


def test_an_empty_sum_is_the_callers_mistake() -> None:
    with pytest.raises(AccountingError, match="one summand or more"):
        sum_of_discrete_gaussians(5, 1.0, 1, 0)
    with pytest.raises(AccountingError, match="delta"):
        NearlyGaussian(1.0).epsilon(0.0)


@pytest.mark.parametrize(("z", "rounds"), [(2, 10), (2, 1000), (20, 100), (100, 10)])
def test_towards_the_own_server_it_saves_two_to_eleven_percent(z: int, rounds: int) -> None:
    """Against zero-concentration, which was all that counted; the pages' table has these."""
    noise = AgentNoise(z * 1000, 2000.0, 650)
    guarantee = own_server_guarantee(noise, rounds, 1e-5)
    concentrated = concentrated_epsilon(rounds * noise.rho(), 1e-5)
    assert 1.02 < concentrated / guarantee.epsilon < 1.11
    assert guarantee.epsilon == pytest.approx(gaussian_epsilon(2 / z * math.sqrt(rounds), 1e-5), rel=1e-5)
    assert guarantee.epsilon >= gaussian_epsilon(2 / z * math.sqrt(rounds), 1e-5)
    assert "Gaussian differential privacy, but for a factor" in guarantee.proof
