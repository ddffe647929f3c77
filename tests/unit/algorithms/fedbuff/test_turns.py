"""Cohorts in turn, against a search through all that could be drawn."""

from __future__ import annotations

import math
from collections import Counter
from functools import cache
from itertools import combinations, product

import numpy as np
import pytest

from gossamer.algorithms.fedbuff.box import MOST, Turns, draw_turns
from gossamer.errors import SpecError
from gossamer.randomness import Stream


def turns(quotas: tuple[int, ...], clients: int, most: int | None = None, seed: int = 0) -> Turns:
    named = {f"node-{i}": quota for i, quota in enumerate(quotas)}
    return draw_turns(Stream(seed, "cohorts"), named, clients, most)


@cache
def longest(quotas: tuple[int, ...], clients: int) -> int:
    """The most cohorts that anybody can draw, by trying all."""
    there = [place for place, quota in enumerate(quotas) if quota]
    found = 0
    for cohort in combinations(there, clients):
        left = tuple(sorted(quota - (place in cohort) for place, quota in enumerate(quotas)))
        found = max(found, 1 + longest(left, clients))
    return found


@pytest.mark.parametrize("clients", [1, 2, 3, 4])
def test_nobody_draws_more_cohorts_or_charges_fewer_to_the_client_that_is_in_most(clients: int) -> None:
    """All quotas of four clients up to 3, and one that is in front of all others."""
    for quotas in [*product((1, 2, 3), repeat=4), (7, 1, 1, 1), (9, 8, 1, 1)]:
        count = longest(tuple(sorted(quotas)), clients)
        for most in {1, count // 2 or 1, count}:
            found = turns(quotas, clients, most)
            assert len(found.drawn) == most
            cohorts = [found(round) for round in range(most)]
            assert all(len(set(cohort)) == clients for cohort in cohorts)
            drawn = Counter(name for cohort in cohorts for name in cohort)
            assert all(drawn[f"node-{i}"] <= quota for i, quota in enumerate(quotas))
            highest = max(drawn.values())
            fewer = tuple(sorted(min(quota, highest - 1) for quota in quotas))
            assert longest(fewer, clients) < most
        assert len(turns(quotas, clients).drawn) == count


def test_coins_decide_among_equals() -> None:
    """Each of the six pairs of four clients in 6,000 first cohorts: five standard deviations, so 4e-6 by chance."""
    pairs = Counter(turns((1,) * 4, 2, seed=seed)(0) for seed in range(6000))
    assert set(pairs) == set(combinations([f"node-{i}" for i in range(4)], 2))
    assert max(abs(count - 1000) for count in pairs.values()) < 5 * math.sqrt(6000 / 6 * 5 / 6)


def test_everybody_finds_the_same() -> None:
    one, other = turns((5,) * 7, 3), turns((5,) * 7, 3)
    np.testing.assert_array_equal(one.drawn, other.drawn)
    assert (one.drawn != turns((5,) * 7, 3, seed=1).drawn).any()


def test_there_is_nobody_beyond_the_last_cohort() -> None:
    found = turns((2, 2), 2)
    assert [found(round) for round in (-1, 0, 1, 2)] == [(), found.names, found.names, ()]


def test_more_than_can_be_drawn_before_a_run_are_refused() -> None:
    with pytest.raises(SpecError, match=f"at most {MOST} masked sums are drawn before a run, found 10000000"):
        turns((10**7,) * 4, 4)
