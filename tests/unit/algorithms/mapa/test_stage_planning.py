"""Stages within a budget: the noise decides how many releases there are, and these decide the noise."""

from __future__ import annotations

import math

import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from gossamer.algorithms.mapa.stages import (
    Problem,
    calibrate_stages,
    gaussian_epsilon,
    gaussian_second_moment,
    plan_stages,
)
from gossamer.errors import AccountingError, BudgetUnreachable, SpecError
from gossamer.privacy.accounting.planner import calibrate_noise_multiplier
from gossamer.privacy.mechanisms import NeighboringRelation, Poisson

ADD_OR_REMOVE, REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE
BY_THE_BOOK = Problem(gradient_sd=1.0, smoothness=1e-5, loss_gap=1.0, staleness=2, batch_size=50)
SIZE, FIRST, DELTA = 100, 0.02, 1e-5
FULL = Poisson(1.0)


def epsilon_of(mu: float) -> float:
    """Of the Gaussian mechanism with sensitivity/sd = mu at DELTA (Balle and Wang 2018, theorem 8)."""

    def excess(epsilon: float) -> float:
        upper, lower = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
        return norm.cdf(upper) - math.exp(epsilon) * norm.cdf(lower) - DELTA

    return brentq(excess, 1e-6, 100, xtol=1e-12)


def coefficients() -> tuple[float, float]:
    """A and B of T(z) = A + B z^2 for two stages with P > 1, up to rounding.

    P = 2 Delta_b/((tau+1) rho^2 G^2) makes T_s = 4 P^2 L D_F (tau+1)^2/Delta_b = 16 L D_F Delta_b/(rho G)^4, and
    Delta_b = s^2/b + d z^2 G^2/b^2.
    """
    factors = [(clip, 16e-5 / (clip / 2) ** 4) for clip in (FIRST, FIRST / 2)]
    return sum(f / 50 for _, f in factors), sum(f * SIZE * clip**2 / 2500 for clip, f in factors)


@pytest.mark.parametrize("nodes", [None, 3])
@pytest.mark.parametrize("above", [0.3, 3.0])
def test_full_batches_have_a_closed_form(above, nodes):
    """T/K releases have mu^2 = T/(K z^2), so mu*^2 is met at z^2 = A/(K mu*^2 - B); T is about 7,700 or 23,000."""
    a, b = coefficients()
    charged = nodes or 1
    budget = epsilon_of(math.sqrt((b + above) / charged))
    found = calibrate_stages(BY_THE_BOOK, SIZE, 2, (budget, DELTA), ADD_OR_REMOVE, FULL, nodes, FIRST)
    assert all(stage.penalty > 1 for stage in found.plan.stages)
    assert found.noise_multiplier == pytest.approx(math.sqrt(a / above), rel=2e-3)
    assert found.plan.updates == pytest.approx(a + b * a / above, rel=4e-3)
    # K - 1 others have pulled, and are charged, when the last update is made
    assert found.plan.releases == math.ceil((found.plan.updates + charged - 1) / charged)
    assert found.epsilon <= budget


def test_a_budget_below_what_endless_noise_costs_is_unreachable():
    """mu^2 = A/z^2 + B stays above B, whatever z: 5 % above it is met at z = 260 or so, 5 % below it never."""
    _, b = coefficients()
    above, below = (epsilon_of(math.sqrt(share * b)) for share in (1.05, 0.95))
    found = calibrate_stages(BY_THE_BOOK, SIZE, 2, (above, DELTA), ADD_OR_REMOVE, FULL, None, FIRST)
    assert found.noise_multiplier > 200
    with pytest.raises(BudgetUnreachable, match=r"more noise makes stages longer.*the least epsilon found is"):
        calibrate_stages(BY_THE_BOOK, SIZE, 2, (below, DELTA), ADD_OR_REMOVE, FULL, None, FIRST)


def test_plans_that_are_too_long_are_unreachable():
    problem = Problem(1.0, 1.0, 1.0, staleness=4, batch_size=64)
    with pytest.raises(
        BudgetUnreachable, match=r"with at most 1e\+09 updates epsilon is always more than 10 times that"
    ):
        calibrate_stages(problem, 7840, 14, (3.0, DELTA), ADD_OR_REMOVE, Poisson(0.005))


@pytest.mark.some(1)
@pytest.mark.parametrize("relation", [ADD_OR_REMOVE, REPLACE])
def test_the_fixed_point_is_the_one_that_iteration_finds(relation):
    """Where P > 1 whatever the noise, T grows with z, and z -> z(T(z)) from below rises to the least fixed point.

    Here 2 (s^2/b)/((tau+1) rho^2 G^2) = 2.5 at G = 0.1.

    Both calibrate to 0.1 %, and the map's slope at the fixed point multiplies that.
    """
    problem, sampling, budget = Problem(1.0, 1.0, 1e-3, staleness=4, batch_size=64), Poisson(64 / 12_000), (4.0, DELTA)

    def updates(multiplier: float) -> int:
        return plan_stages(problem, gaussian_second_moment(7840, multiplier, 64), 2, clip=0.1).updates

    multiplier = 0.05
    for _ in range(40):
        before = multiplier
        multiplier = calibrate_noise_multiplier(*budget, relation, [{sampling: updates(before)}]).noise_multiplier
        if multiplier <= before * (1 + 1e-4):
            break
    found = calibrate_stages(problem, 7840, 2, budget, relation, sampling, clip=0.1)
    assert found.noise_multiplier == pytest.approx(multiplier, rel=5e-3)
    assert found.plan.updates == updates(found.noise_multiplier)
    assert 0.99 * 4 < found.epsilon <= 4


def test_noise_that_shortens_stages_is_found_as_well():
    """While P = 1, T_s = 4 L D_F (tau+1)^2/Delta_b falls with the noise; a scan finds the same least multiplier.

    Iterating T -> z(T) -> T(z) from the least noise would start with too many updates, and end with too much noise.
    """
    problem = Problem(1.0, 1.0, 10.0, staleness=4, batch_size=64)
    sampling, budget = Poisson(0.01), (3.0, DELTA)

    def fits(multiplier: float) -> bool:
        plan = plan_stages(problem, gaussian_second_moment(500, multiplier, 64), 1)
        assert plan.stages[0].penalty == 1
        return gaussian_epsilon(plan.releases, multiplier, DELTA, ADD_OR_REMOVE, sampling) <= budget[0]

    found = calibrate_stages(problem, 500, 1, budget, ADD_OR_REMOVE, sampling)
    scanned = [found.noise_multiplier * 1.03**i for i in range(-30, 11) if i]
    assert [fits(multiplier) for multiplier in scanned] == [False] * 30 + [True] * 10
    least = plan_stages(problem, gaussian_second_moment(500, 0.05, 64), 1)
    iterated = calibrate_noise_multiplier(*budget, ADD_OR_REMOVE, [{sampling: least.updates}])
    assert iterated.noise_multiplier > 1.2 * found.noise_multiplier


def test_a_large_budget_gets_the_least_noise_there_is():
    found = calibrate_stages(BY_THE_BOOK, SIZE, 2, (1e4, DELTA), ADD_OR_REMOVE, Poisson(0.001), None, FIRST)
    assert found.noise_multiplier == 0.05


def test_a_plan_adds_up_and_is_shared_by_nodes_in_turn():
    moment = gaussian_second_moment(SIZE, 2.0, 50)
    plan = plan_stages(BY_THE_BOOK, moment, 3, nodes=7, clip=FIRST)
    assert plan.updates == sum(stage.updates for stage in plan.stages)
    assert 7 * plan.releases - (plan.updates + 6) in range(7)  # six more are under way at the end
    assert plan_stages(BY_THE_BOOK, moment, 3, clip=FIRST).releases == plan.updates


def test_what_cannot_be_planned_gets_one_line():
    moment = gaussian_second_moment(SIZE, 2.0, 50)
    with pytest.raises(SpecError, match=r"stage \d+ would take more than 2\^63 - 1 updates; plan at most \d+ stages"):
        plan_stages(BY_THE_BOOK, moment, 50)
    with pytest.raises(SpecError, match=r"stage 1 would .*; give less noise or a larger initial clip"):
        plan_stages(BY_THE_BOOK, moment, 1, clip=1e-9)
    with pytest.raises(AccountingError, match=r"at most 10\^9 releases, found 1000000001"):
        gaussian_epsilon(10**9 + 1, 1.0, DELTA, ADD_OR_REMOVE, FULL)
    for budget in [(0.0, DELTA), (1.0, 0.0), (1.0, 1.0)]:
        with pytest.raises(AccountingError):
            calibrate_stages(BY_THE_BOOK, SIZE, 2, budget, ADD_OR_REMOVE, FULL)
