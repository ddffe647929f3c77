"""Theorem 2 of "Privatized graph federated learning", and what it leaves out."""

from __future__ import annotations

import math
from typing import Any

import pytest

from gossamer.algorithms.graph_federated.guarantees import gfl_theorem2, theorem2_product
from gossamer.errors import SpecError
from gossamer.privacy.streams.correlated_noise import CorrelatedNoise, Factorisation, NoiseLaw, Temporal
from gossamer.privacy.streams.graph_bounds import GradientAt, UpdateBound, laplace_epsilon_of


def test_the_claim_is_the_sum_of_appendix_f() -> None:
    """Eq. 86: exp(sqrt(2)/sigma_g sum_(j <= i) 2 mu B j)."""
    claim = gfl_theorem2(12, 0.7, 10.0, 3.0)
    assert claim.epsilon == pytest.approx(math.sqrt(2) / 3.0 * sum(2 * 0.7 * 10.0 * j for j in range(13)), rel=1e-12)
    assert (claim.delta, claim.valid) == (0.0, True)
    assert "10" in claim.why
    assert "Theorem 2" in claim.theorem


def test_the_claim_and_its_standard_deviation_are_inverse() -> None:
    deviation = theorem2_product(200, 0.7, 10.0) / 2.0
    assert gfl_theorem2(200, 0.7, 10.0, deviation).epsilon == pytest.approx(2.0, rel=1e-12)


def test_figure_2_has_an_epsilon_of_millions() -> None:
    """mu 0.7, sigma_g^2 0.1, B 10, two features: with 200 rounds what is proved is about 2 10^6."""
    bound = UpdateBound(0.7, 10.0, 11, GradientAt.HIDDEN)
    noise = CorrelatedNoise(Factorisation(Temporal.INDEPENDENT, 200), math.sqrt(0.1), NoiseLaw.LAPLACE)
    assert laplace_epsilon_of(noise, bound, 2) == pytest.approx(2 * 7 * 200 * 201 / math.sqrt(0.1), rel=1e-12)


def test_in_one_dimension_the_claim_is_what_is_proved_and_in_d_it_is_sqrt_d_less() -> None:
    bound = UpdateBound(0.7, 10.0, 11, GradientAt.HIDDEN)
    noise = CorrelatedNoise(Factorisation(Temporal.INDEPENDENT, 30), 3.0, NoiseLaw.LAPLACE)
    claim = gfl_theorem2(30, 0.7, 10.0, 3.0)
    for size in (1, 2, 650):
        proved = laplace_epsilon_of(noise, bound, size)
        assert proved == pytest.approx(math.sqrt(size) * claim.epsilon, rel=1e-12)


def test_a_run_that_it_is_not_about() -> None:
    claim = gfl_theorem2(3, 0.7, 10.0, 3.0, conditions="the noise is Gaussian")
    assert not claim.valid
    assert claim.why == "the noise is Gaussian"


def test_nothing_is_claimed_of_no_rounds() -> None:
    assert gfl_theorem2(0, 0.7, 10.0, 3.0).epsilon == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1, 0.7, 10.0, 3.0), "rounds must be a whole number, 0 or more, found -1"),
        ((1.5, 0.7, 10.0, 3.0), "found 1.5"),
        ((3, -0.7, 10.0, 3.0), "step must be a finite number > 0, found -0.7"),
        ((3, 0.7, math.nan, 3.0), "bound must be .* found nan"),
        ((3, 0.7, 10.0, 0.0), "standard_deviation must be .* found 0.0"),
    ],
)
def test_impossible_values_are_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        gfl_theorem2(*arguments)
