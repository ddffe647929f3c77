"""Calibration of any family of noise laws: the budget is met, by L2-Laplace noise as by Gaussian noise."""

from __future__ import annotations

import math

import pytest
from tests.reference.accounting_slow import gaussian_epsilon

from gossamer.errors import AccountingError, BudgetUnreachable
from gossamer.privacy.accounting import accountants
from gossamer.privacy.accounting.planner import (
    LEAST_MULTIPLIER,
    Calibrated,
    Schedule,
    calibrate,
    calibrate_noise_multiplier,
    gaussian_family,
    l2_laplace_family,
)
from gossamer.privacy.mechanisms import FixedSize, Gaussian, L2Laplace, NeighboringRelation, Poisson, ReleaseKind

ADD, REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE


def test_gaussian_noise_is_calibrated_as_ever() -> None:
    schedules = [{Poisson(0.1): 50}, {Poisson(0.02): 500}]
    plain = calibrate_noise_multiplier(1.0, 1e-5, ADD, schedules)
    found = calibrate(1.0, 1e-5, ADD, schedules, gaussian_family())
    assert (found.noise, found.epsilon) == (plain.noise_multiplier, plain.epsilon)
    assert found.mechanism == Gaussian(1.0, plain.noise_multiplier)


@pytest.mark.some(3)
@pytest.mark.parametrize(
    ("size", "schedule", "relation"),
    [
        (650, {Poisson(0.02): 500}, ADD),
        (650, {Poisson(0.02): 500}, REPLACE),
        (7840, {FixedSize(500, 10): 500}, REPLACE),
        (2, {Poisson(1.0): 20}, ADD),
        (1, {Poisson(0.1): 20, Poisson(0.2): 3}, ADD),
    ],
)
def test_the_least_l2_laplace_noise_within_the_budget(
    size: int, schedule: Schedule, relation: NeighboringRelation
) -> None:
    """The mechanism that comes back is what the epsilon is proved for, and a thousandth less noise is too little."""
    found = calibrate(2.0, 1e-5, relation, [schedule], l2_laplace_family(size, relation, clip=0.5))
    law = found.mechanism
    assert isinstance(law, L2Laplace)
    assert (law.clip, law.relation) == (0.5, relation)
    assert law.epsilon == pytest.approx(math.sqrt(size) / found.noise, rel=1e-12)

    def spent(epsilon: float) -> float:
        kinds = {ReleaseKind(L2Laplace(0.5, epsilon, relation), sampling, size): n for sampling, n in schedule.items()}
        return accountants.epsilon(kinds, 1e-5, relation).epsilon

    assert found.epsilon == spent(law.epsilon) <= 2.0
    assert spent(law.epsilon * 1.001) > 2.0


def test_in_many_dimensions_it_costs_what_gaussian_noise_costs() -> None:
    """Nine full batches: Gaussian DP with mu = 3 / noise, up to terms of order 1/size."""
    found = calibrate(2.0, 1e-5, ADD, [{Poisson(1.0): 9}], l2_laplace_family(10**6, ADD))
    assert gaussian_epsilon(3.0, found.noise, 1e-5) == pytest.approx(2.0, rel=1.5e-3)


def test_without_releases_the_least_noise_will_do() -> None:
    found = calibrate(1.0, 1e-5, ADD, [], l2_laplace_family(4, ADD))
    assert found == Calibrated(L2Laplace(1.0, 2 / LEAST_MULTIPLIER, ADD), LEAST_MULTIPLIER, 0.0)


def test_what_cannot_be_reached_is_refused_in_the_family_s_terms() -> None:
    with pytest.raises(BudgetUnreachable, match=r"needs sqrt\(size\) / .* above 1000, where epsilon is still"):
        calibrate(0.01, 1e-9, ADD, [{Poisson(1.0): 100}], l2_laplace_family(50, ADD))
    with pytest.raises(AccountingError, match="a size of at least 1, found 0"):
        l2_laplace_family(0, ADD)
