"""For how many examples a deadline provides, against exact binomial tails, and what it costs that there may be more."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from scipy import stats

from gossamer.privacy.accounting.accountants import delta
from gossamer.privacy.mechanisms import (
    LATE,
    LEAST,
    SET_ASIDE,
    FixedSize,
    Gaussian,
    L2Laplace,
    NeighboringRelation,
    Poisson,
    ReleaseKind,
    WithReplacement,
    provided_for,
    without_late,
)

RELATION = NeighboringRelation.ADD_OR_REMOVE_ONE


def larger(count: int, rate: Fraction, most: int) -> Fraction:
    """The probability that more than ``most`` of ``count`` are in a Poisson sample, exactly.

    In whole numbers: with the rate a/b, the law of the size has a^k (b-a)^(n-k) n!/(k! (n-k)!) out of b^n at k.
    """
    of, taken, left = rate.denominator, rate.numerator, rate.denominator - rate.numerator
    within = sum(math.comb(count, k) * taken**k * left ** (count - k) for k in range(most + 1))
    return 1 - Fraction(within, of**count)


@pytest.mark.parametrize(
    ("count", "rate", "until", "steps"),
    [(181, 0.33, 1, 1), (1500, 64 / 1500, 1, 1), (187, 20 / 187, 1, 1), (12, 0.01, 1, 1), (181, 0.33, 3, 7)],
)
def test_no_more_than_so_many_but_for_the_stated_probability(count: int, rate: float, until: int, steps: int) -> None:
    found, exact = provided_for(Poisson(rate), count, until, steps), Fraction(rate) * until / steps
    assert larger(count, exact, found) <= Fraction(LATE)
    assert larger(count, exact, found - 1) > Fraction(LATE) / 2 * Fraction(999, 1000), "one fewer would not do"


def test_it_is_at_most_one_in_a_million_with_room_to_spare() -> None:
    """A release; and 300 of them together are far below a delta of 1e-5."""
    assert LATE <= 1e-6
    assert 300 * LATE < 1e-9 * 1e-5
    assert provided_for(Poisson(0.33), 181) < 181, "which would be no quantile"


@pytest.mark.parametrize("sampling", [FixedSize(40, 8), WithReplacement(40, 8)])
def test_samples_of_a_fixed_size_have_that_size(sampling: FixedSize | WithReplacement) -> None:
    assert provided_for(sampling, 40) == 8
    assert [provided_for(sampling, 40, until, 8) for until in (0, 3, 8)] == [0, 3, 8]


@pytest.mark.parametrize(("sampling", "until", "expected"), [(Poisson(1.0), 1, 9), (Poisson(0.5), 0, 0)])
def test_all_and_none(sampling: Poisson, until: int, expected: int) -> None:
    assert provided_for(sampling, 9, until) == expected
    assert provided_for(sampling, 0) == 0


@pytest.mark.parametrize("count", [3, 4])
@pytest.mark.parametrize("most", [1, 2])
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("gone", [False, True], ids=["added", "removed"])
def test_late_answers_cost_their_probability_and_no_more(count: int, most: int, epsilon: float, gone: bool) -> None:
    """Exactly, for one release of one number, whose time tells the size of a sample that is larger than ``most``.

    The slot in question holds 1 or is blank, the others hold 1, so that their number is confounded with its own.
    """
    rate, sd = 0.4, 1.2
    grid = np.linspace(-8, count + 8, 20_001)
    laws = []
    for mine in (1.0, 0.0):
        seen = {time: np.zeros_like(grid) for time in range(most, count + 1)}
        for coins in product((0, 1), repeat=count):
            chance = math.prod(rate if coin else 1 - rate for coin in coins)
            total = mine * coins[0] + sum(coins[1:])
            seen[max(most, sum(coins))] += chance * stats.norm.pdf(grid, total, sd)
        laws.append(np.concatenate(list(seen.values())))
    first, second = laws[::-1] if gone else laws
    found = float(np.maximum(first - math.exp(epsilon) * second, 0).sum() * (grid[1] - grid[0]))
    kind = ReleaseKind(Gaussian(1.0, sd), Poisson(rate), 1)
    planned = delta({kind: 1}, epsilon, NeighboringRelation.ADD_OR_REMOVE_ONE)
    late = float(larger(count, Fraction(rate), most))
    assert found <= planned + late


@pytest.mark.parametrize("most", [1, 2, 3])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("law", ["gaussian", "l2_laplace"])
@pytest.mark.parametrize("gone", [False, True], ids=["added", "removed"])
def test_late_answers_cost_as_much_where_a_person_has_two_rows(most: int, epsilon: float, law: str, gone: bool) -> None:
    """As above, with two of four slots that hold 1, or are blank."""
    count, rate, scale = 4, 0.4, 1.2
    grid = np.linspace(-30, 34, 64_001)
    density, mechanism = {
        "gaussian": (stats.norm.pdf, Gaussian(1.0, scale)),
        "l2_laplace": (stats.laplace.pdf, L2Laplace(1.0, 1 / scale, RELATION)),
    }[law]
    laws = []
    for mine in (1.0, 0.0):
        seen = {time: np.zeros_like(grid) for time in range(most, count + 1)}
        for coins in product((0, 1), repeat=count):
            chance = math.prod(rate if coin else 1 - rate for coin in coins)
            total = mine * sum(coins[:2]) + sum(coins[2:])
            seen[max(most, sum(coins))] += chance * density(grid, total, scale)
        laws.append(np.concatenate(list(seen.values())))
    first, second = laws[::-1] if gone else laws
    found = float(np.maximum(first - math.exp(epsilon) * second, 0).sum() * (grid[1] - grid[0]))
    planned = delta({ReleaseKind(mechanism, Poisson(rate), 1): 1}, epsilon, RELATION, rows=2)
    assert found <= planned + float(larger(count, Fraction(rate), most)) + 1e-9


def test_times_that_tell_more_are_not_covered_by_the_plan() -> None:
    """So the charge is needed: a sample whose size is always seen, among few, tells more than was planned."""
    rate, sd, epsilon = 0.4, 0.4, 1.0
    grid = np.linspace(-5, 6, 20_001)
    step = grid[1] - grid[0]
    # One slot: either it was sampled, and the time says so, or nothing is in the release.
    first, second = (rate * stats.norm.pdf(grid, mine, sd) for mine in (1.0, 0.0))
    found = float(np.maximum(first - math.exp(epsilon) * second, 0).sum() * step)
    kind = ReleaseKind(Gaussian(1.0, sd), Poisson(rate), 1)
    assert found > delta({kind: 1}, epsilon, NeighboringRelation.ADD_OR_REMOVE_ONE) * 1.05


@pytest.mark.parametrize("given", [1e-5, 1e-9, 1e-12, 1e-300])
def test_an_owner_s_delta_less_what_late_answers_may_take(given: float) -> None:
    found = without_late(given)
    assert 0 < found < given
    assert Fraction(found) + Fraction(min(SET_ASIDE, given / 2)) <= Fraction(given) * (1 + Fraction(1, 2**52))
    releases = min(2**40, int(given / 2 / LATE))
    assert Fraction(found) + releases * Fraction(LATE) <= Fraction(given) * (1 + Fraction(1, 2**52))


def test_of_the_smallest_delta_that_is_taken_half_is_enough_for_2_29_releases() -> None:
    assert Fraction(without_late(LEAST)) + 2**29 * Fraction(LATE) <= Fraction(LEAST)
