"""Calibration: never above the budget, hardly below it, for the worst of many nodes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.reference.accounting_slow import gaussian_epsilon

from gossamer.algorithms.increasing.planning import smallest_sigma
from gossamer.errors import AccountingError, BudgetUnreachable, CallerError
from gossamer.privacy.accounting import accountants
from gossamer.privacy.accounting.planner import (
    LEAST_MULTIPLIER,
    Calibrated,
    Schedule,
    calibrate_noise_multiplier,
    gaussian_releases,
)
from gossamer.privacy.mechanisms import FixedSize, Gaussian, NeighboringRelation, Poisson

ADD, REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE


def spent(schedule: Schedule, multiplier: float, delta: float, relation: NeighboringRelation = ADD) -> float:
    return accountants.epsilon(gaussian_releases(multiplier, schedule), delta, relation).epsilon


def worst(schedules: Sequence[Schedule], multiplier: float, delta: float) -> float:
    """The slow way: ask every node."""
    return max(spent(schedule, multiplier, delta) for schedule in schedules)


@pytest.mark.some(3)
@pytest.mark.parametrize(
    ("epsilon", "delta", "schedule", "relation"),
    [
        (1.0, 1e-5, {Poisson(0.01): 1000}, ADD),
        (0.05, 1e-6, {Poisson(0.001): 3000}, ADD),
        (8.0, 1e-5, {Poisson(0.1): 100, Poisson(1.0): 2}, ADD),
        (20.0, 1e-9, {Poisson(0.3): 300}, ADD),
        (3.0, 1e-5, {Poisson(0.02): 500}, REPLACE),
        (3.0, 1e-5, {FixedSize(500, 10): 500}, REPLACE),
    ],
)
def test_the_smallest_noise_within_the_budget(
    epsilon: float, delta: float, schedule: Schedule, relation: NeighboringRelation
) -> None:
    found = calibrate_noise_multiplier(epsilon, delta, relation, [schedule])
    assert found.epsilon <= epsilon
    assert found.epsilon == spent(schedule, found.noise_multiplier, delta, relation)
    assert spent(schedule, found.noise_multiplier * 0.999, delta, relation) > epsilon


@pytest.mark.parametrize("off", [1e-13, -1e-13])
def test_the_noise_does_not_depend_on_a_processor_s_rounding(off: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Logarithms of other processors differ in their last bits, and a run's noise depends on each bit of this."""
    here = calibrate_noise_multiplier(5.0, 1e-4, ADD, [{Poisson(0.1): 300}])
    increasing = smallest_sigma({Poisson(0.1): 300}, 5.0, 1e-4, ADD)
    proved = accountants.joint_epsilon

    def elsewhere(*given: Any, **more: Any) -> Any:
        found = proved(*given, **more)
        return replace(found, epsilon=found.epsilon * (1 + off))

    monkeypatch.setattr(accountants, "joint_epsilon", elsewhere)
    there = calibrate_noise_multiplier(5.0, 1e-4, ADD, [{Poisson(0.1): 300}])
    assert there.epsilon != here.epsilon
    assert there.noise_multiplier == here.noise_multiplier
    assert smallest_sigma({Poisson(0.1): 300}, 5.0, 1e-4, ADD) == increasing


def test_a_full_batch_needs_what_the_analytic_mechanism_needs() -> None:
    found = calibrate_noise_multiplier(2.0, 1e-5, ADD, [{Poisson(1.0): 9}])
    assert gaussian_epsilon(3.0, found.noise_multiplier, 1e-5) == pytest.approx(2.0, rel=1.5e-3)


def test_the_worst_of_many_nodes_decides() -> None:
    """Twenty epochs each, at a fixed batch size: no node exceeds another in both rate and count."""
    schedules: list[Schedule] = [{Poisson(16 / n): 20 * n // 16} for n in range(40, 400, 28)]
    found = calibrate_noise_multiplier(2.0, 1e-5, ADD, schedules)
    assert worst(schedules, found.noise_multiplier, 1e-5) == pytest.approx(found.epsilon, rel=1e-12)
    assert found.epsilon <= 2.0
    assert worst(schedules, found.noise_multiplier * 0.999, 1e-5) > 2.0


def test_the_worst_node_may_not_be_the_one_that_looks_worst() -> None:
    """Many small rates look harmless next to one full batch by sum of squares, and are not at a delta this small."""
    schedules: list[Schedule] = [{Poisson(1.0): 1}, {Poisson(0.05): 380}, {Poisson(0.9): 1, Poisson(0.01): 10}]
    found = calibrate_noise_multiplier(6.0, 1e-9, ADD, schedules)
    assert worst(schedules, found.noise_multiplier, 1e-9) == pytest.approx(found.epsilon, rel=1e-12)
    assert worst(schedules, found.noise_multiplier * 0.999, 1e-9) > 6.0


def test_dominated_nodes_change_nothing() -> None:
    one = calibrate_noise_multiplier(1.0, 1e-5, ADD, [{Poisson(0.1): 50}])
    schedules: list[Schedule] = [{Poisson(0.1): 50}, {Poisson(0.1): 20}, {Poisson(0.05): 50}, {}, {Poisson(0.9): 0}]
    assert calibrate_noise_multiplier(1.0, 1e-5, ADD, schedules) == one


def test_thousands_of_equal_nodes_are_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0
    real = accountants.joint_epsilon

    def counting(*arguments: object) -> accountants.Accounted:
        nonlocal asked
        asked += 1
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(accountants, "joint_epsilon", counting)
    schedules: list[Schedule] = [{Poisson(32 / (1000 + k % 50)): 60} for k in range(5000)]
    calibrate_noise_multiplier(1.0, 1e-5, ADD, schedules)
    assert asked < 60


def test_a_generator_of_schedules_is_read_once() -> None:
    assert calibrate_noise_multiplier(1.0, 1e-5, ADD, ({Poisson(0.1): n} for n in (5, 50))) == (
        calibrate_noise_multiplier(1.0, 1e-5, ADD, [{Poisson(0.1): 50}])
    )


def test_without_releases_there_is_nothing_to_hide() -> None:
    assert calibrate_noise_multiplier(1.0, 1e-5, ADD, []) == Calibrated(
        Gaussian(1.0, LEAST_MULTIPLIER), LEAST_MULTIPLIER, 0.0
    )


def test_a_huge_budget_still_gets_some_noise() -> None:
    found = calibrate_noise_multiplier(1e6, 1e-5, ADD, [{Poisson(1.0): 1}])
    assert found.noise_multiplier == LEAST_MULTIPLIER
    assert found.epsilon == pytest.approx(gaussian_epsilon(1.0, LEAST_MULTIPLIER, 1e-5), rel=1e-3)


def test_a_budget_that_needs_more_than_a_thousand_is_refused_with_what_a_thousand_gives() -> None:
    """100 full batches at multiplier 1000 are one at 100."""
    reachable = gaussian_epsilon(1.0, 100.0, 1e-9)
    with pytest.raises(BudgetUnreachable, match="above 1000, where epsilon is still") as caught:
        calibrate_noise_multiplier(0.01, 1e-9, ADD, [{Poisson(1.0): 100}])
    named = float(str(caught.value).split("still ")[1].split(";")[0])
    assert named == pytest.approx(reachable, rel=2e-3)
    assert isinstance(caught.value, CallerError)
    just = calibrate_noise_multiplier(reachable * 1.01, 1e-9, ADD, [{Poisson(1.0): 100}])
    assert 900 < just.noise_multiplier <= 1000


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan])
def test_an_impossible_epsilon_is_the_callers_mistake(epsilon: float) -> None:
    with pytest.raises(CallerError, match="epsilon must be a finite number above 0"):
        calibrate_noise_multiplier(epsilon, 1e-5, ADD, [{Poisson(0.1): 1}])


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1])
def test_an_impossible_delta_is_the_callers_mistake(delta: float) -> None:
    with pytest.raises(CallerError, match="delta must lie"):
        calibrate_noise_multiplier(1.0, delta, ADD, [{Poisson(0.1): 1}])


def test_a_sampling_that_is_not_accounted_for_is_refused() -> None:
    with pytest.raises(AccountingError, match="Gaussian on FixedSize"):
        calibrate_noise_multiplier(1.0, 1e-5, ADD, [{FixedSize(100, 10): 1}])
