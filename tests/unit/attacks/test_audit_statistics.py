"""The statistics of audits of many runs, in closed form; those of one run are in `test_one_run`."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom

from gossamer.attacks.audit import binomial_lower, binomial_upper, epsilon_from_runs
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
