"""Noise of a schedule whose nodes also make releases of fixed noise: one budget covers both."""

from __future__ import annotations

import math

import pytest

from gossamer.privacy.accounting.accountants import epsilon
from gossamer.privacy.accounting.planner import calibrate, calibrate_jointly, gaussian_family
from gossamer.privacy.mechanisms import Gaussian, NeighboringRelation, Poisson, ReleaseKind, added

ADD, REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE
BESIDE = {ReleaseKind(Gaussian(1.0, 20.0), Poisson(1.0), 6): 1}


def test_full_batch_releases_add_up_as_squares() -> None:
    """Gaussian releases of full batches are one of mu^2 = sum of 1/z^2 (Dong, Roth and Su, corollary 3.3)."""
    alone = calibrate(1.0, 1e-5, ADD, [{Poisson(1.0): 10}], gaussian_family())
    both = calibrate(1.0, 1e-5, ADD, [{Poisson(1.0): 10}], gaussian_family(), beside=BESIDE)
    assert 10 / both.noise**2 + 1 / 20.0**2 == pytest.approx(10 / alone.noise**2, rel=3e-3)


@pytest.mark.parametrize("relation", [ADD, REPLACE])
def test_what_is_calibrated_meets_the_budget_with_what_is_beside(relation: NeighboringRelation) -> None:
    schedules = [{Poisson(0.02): 300}, {Poisson(0.1): 40}]
    found = calibrate(1.0, 1e-5, relation, schedules, gaussian_family(), beside=BESIDE)
    spent = [
        epsilon(added({ReleaseKind(found.mechanism, law, 1): n for law, n in each.items()}, BESIDE), 1e-5, relation)
        for each in schedules
    ]
    assert max(each.epsilon for each in spent) <= 1.0
    assert max(each.epsilon for each in spent) >= 0.99
    assert found.noise > calibrate(1.0, 1e-5, relation, schedules, gaussian_family()).noise


def test_a_person_at_several_nodes_pays_for_what_each_makes_beside() -> None:
    """Two nodes with a row each: mu^2 adds up over both."""
    schedule = {Poisson(1.0): 10}
    alone = calibrate_jointly(1.0, 1e-5, ADD, [[(schedule, 1), (schedule, 1)]], gaussian_family())
    both = calibrate_jointly(1.0, 1e-5, ADD, [[(schedule, 1), (schedule, 1)]], gaussian_family(), beside=BESIDE)
    assert 20 / both.noise**2 + 2 / 20.0**2 == pytest.approx(20 / alone.noise**2, rel=3e-3)


def test_equal_kinds_are_counted_together() -> None:
    kind = next(iter(BESIDE))
    assert added({kind: 3}, BESIDE) == {kind: 4}
    assert not math.isinf(epsilon(added({}, BESIDE), 1e-5, ADD).epsilon)
