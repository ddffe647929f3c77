"""The statistics of audits: closed forms, and the theorem's formula against a slow reference."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.stats import binom

from gossamer.attacks.audit import (
    binomial_lower,
    binomial_upper,
    epsilon_from_runs,
    epsilon_one_run,
    one_run_p_value,
)
from gossamer.errors import DataError, SpecError
from gossamer.privacy.mechanisms import NeighboringRelation

ADD = NeighboringRelation.ADD_OR_REMOVE_ONE


# Clopper-Pearson


@pytest.mark.parametrize("level", [0.05, 1e-6])
@pytest.mark.parametrize(("successes", "trials"), [(0, 10), (3, 10), (9, 10), (10, 10), (40, 1000)])
def test_clopper_pearson_inverts_the_binomial_test(successes: int, trials: int, level: float) -> None:
    """At the limits, what was seen or something more extreme has probability ``level`` exactly."""
    low, high = binomial_lower(successes, trials, level), binomial_upper(successes, trials, level)
    assert low < successes / trials < high or successes in (0, trials)
    if successes > 0:
        assert binom.sf(successes - 1, trials, low) == pytest.approx(level, rel=1e-6)
    else:
        assert low == 0.0
    if successes < trials:
        assert binom.cdf(successes, trials, high) == pytest.approx(level, rel=1e-6)
    else:
        assert high == 1.0


# Independent runs


@pytest.mark.parametrize("delta", [0.0, 0.1])
def test_runs_that_are_told_apart_perfectly(delta: float) -> None:
    """Of 50 judged runs each, all and none: the limits are l^(1/50) and 1 - l^(1/50), l = 0.05/2."""
    found = epsilon_from_runs(np.ones(100), np.zeros(100), delta, ADD)
    low = 0.025 ** (1 / 50)
    assert found.epsilon == pytest.approx(math.log((low - delta) / (1 - low)), rel=1e-9)
    assert (found.delta, found.confidence, found.neighboring_relation) == (delta, 0.95, ADD)


def test_both_directions_are_looked_at() -> None:
    """``score > 0`` is at most twice as likely with the canary, but ``score <= 0`` is seen in 25 of 50 runs without it
    and in none with it."""
    found = epsilon_from_runs(np.ones(100), np.arange(100) % 2, 0.0, ADD)
    expected = math.log(binomial_lower(25, 50, 0.025) / binomial_upper(0, 50, 0.025))
    assert found.epsilon == pytest.approx(expected)
    assert expected > math.log(2)


def test_a_score_that_points_the_other_way_is_no_evidence() -> None:
    assert epsilon_from_runs(np.zeros(100), np.ones(100), 0.0, ADD).epsilon == 0.0


def test_the_event_is_chosen_on_the_first_half_alone() -> None:
    """Chosen on the first half, ``score > 0`` is no evidence in the second; chosen there, it would have been."""
    first, second = np.arange(50.0), np.full(50, -1.0)
    with_canary, without = np.concatenate([first, second]), np.concatenate([second, second - 1])
    assert epsilon_from_runs(with_canary, without, 0.0, ADD).epsilon == 0.0


def test_runs_that_say_nothing() -> None:
    same = np.tile(np.arange(10.0), 10)
    assert epsilon_from_runs(same, same, 0.0, ADD).epsilon == 0.0
    assert epsilon_from_runs(np.ones(4), np.zeros(4), 0.99, ADD).epsilon == 0.0


def test_what_runs_must_be() -> None:
    with pytest.raises(DataError, match="at least 2 runs"):
        epsilon_from_runs(np.ones(1), np.ones(9), 0.0, ADD)
    with pytest.raises(DataError, match="none of them NaN"):
        epsilon_from_runs(np.array([1.0, np.nan]), np.ones(9), 0.0, ADD)
    with pytest.raises(SpecError, match="delta"):
        epsilon_from_runs(np.ones(9), np.ones(9), 1.0, ADD)
    with pytest.raises(SpecError, match="confidence"):
        epsilon_from_runs(np.ones(9), np.ones(9), 0.0, ADD, confidence=95)


# One run


def most_likely(canaries: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """The largest P(W + F >= v) over the laws of F on 0..m with mean at most 2 m delta, F free to choose after W's tail
    is fixed: a linear programme, solved as such."""
    accuracy = math.exp(epsilon) / (1 + math.exp(epsilon))
    extra = np.arange(canaries + 1)
    tails = binom.sf(correct - extra - 1, guesses, accuracy)
    found = linprog(
        -tails, A_ub=[extra], b_ub=[2 * canaries * delta], A_eq=[np.ones(canaries + 1)], b_eq=[1], method="highs"
    )
    return float(-found.fun)


@pytest.mark.some(5)
@pytest.mark.parametrize("delta", [0.0, 1e-4, 1e-3, 4e-3])
@pytest.mark.parametrize("epsilon", [0.0, 0.7, 3.0])
@pytest.mark.parametrize(("canaries", "guesses"), [(100, 100), (100, 20), (7, 5)])
def test_the_p_value_is_that_of_the_theorem(canaries: int, guesses: int, epsilon: float, delta: float) -> None:
    for correct in range(guesses + 1):
        found = one_run_p_value(canaries, guesses, correct, epsilon, delta)
        assert found == pytest.approx(most_likely(canaries, guesses, correct, epsilon, delta), rel=1e-6, abs=1e-9)


def test_a_mechanism_that_sometimes_reveals_everything_is_within_the_bound() -> None:
    """Randomised response that shows all bits with probability delta is (epsilon, delta)-DP in each bit. Its tail is
    (1 - delta) f(v) + delta; without the theorem's second term it would be rejected far too often."""
    canaries, epsilon, delta = 50, 0.5, 1e-3
    accuracy = math.exp(epsilon) / (1 + math.exp(epsilon))
    for correct in range(canaries + 1):
        truth = (1 - delta) * binom.sf(correct - 1, canaries, accuracy) + delta
        assert one_run_p_value(canaries, canaries, correct, epsilon, delta) >= truth - 1e-12
    assert one_run_p_value(canaries, canaries, canaries, epsilon, 0.0) < delta / 1000


@pytest.mark.parametrize("guesses", [10, 100])
def test_a_perfect_auditor_without_delta(guesses: int) -> None:
    """q^r = 0.05 at the bound, so epsilon = log(q/(1 - q)) with q = 0.05^(1/r)."""
    q = 0.05 ** (1 / guesses)
    found = epsilon_one_run(200, guesses, guesses, 0.0, ADD)
    assert found.epsilon == pytest.approx(math.log(q / (1 - q)), rel=1e-9)


def test_delta_and_abstentions_cost() -> None:
    bounds = [epsilon_one_run(m, 100, 90, delta, ADD).epsilon for m, delta in ((100, 0.0), (100, 1e-4), (1000, 1e-4))]
    assert bounds[0] > bounds[1] > bounds[2] > 0
    # Without delta, canaries that nobody guessed about cost nothing.
    assert epsilon_one_run(1000, 100, 90, 0.0, ADD).epsilon == bounds[0]


def test_the_bound_is_the_largest_epsilon_rejected() -> None:
    found = epsilon_one_run(300, 100, 80, 1e-5, ADD).epsilon
    assert one_run_p_value(300, 100, 80, found - 1e-6, 1e-5) < 0.05 <= one_run_p_value(300, 100, 80, found + 1e-6, 1e-5)


def test_guesses_at_random_bound_nothing() -> None:
    assert epsilon_one_run(100, 100, 50, 0.0, ADD).epsilon == 0.0
    assert epsilon_one_run(10, 0, 0, 0.0, ADD).epsilon == 0.0


def test_what_one_run_must_be() -> None:
    with pytest.raises(SpecError, match="correct <= guesses <= canaries"):
        epsilon_one_run(10, 5, 6, 0.0, ADD)
    with pytest.raises(SpecError, match="use fewer"):
        epsilon_one_run(1000, 10, 10, 1e-3, ADD)
    with pytest.raises(SpecError, match="epsilon >= 0"):
        one_run_p_value(10, 10, 10, -1.0, 0.0)
