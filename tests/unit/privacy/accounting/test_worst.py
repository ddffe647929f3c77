"""The profile of whoever is exposed most: never below anybody's own."""

from __future__ import annotations

import numpy as np
import pytest

from gossamer.privacy.accounting.accountants import epsilon, profile, worst_profile
from gossamer.privacy.mechanisms import (
    BallGaussian,
    Counts,
    FixedSize,
    Gaussian,
    NeighboringRelation,
    Poisson,
    ReleaseKind,
)

ADD = NeighboringRelation.ADD_OR_REMOVE_ONE


def node(multiplier: float, rate: float, releases: int) -> Counts:
    return {ReleaseKind(Gaussian(1.0, multiplier), Poisson(rate), 3): releases}


def point(nodes: list[Counts]) -> tuple[float, float]:
    return max(epsilon(counts, 1e-5, ADD).epsilon for counts in nodes), 1e-5


@pytest.mark.parametrize(
    "nodes",
    [
        [node(2.0, 0.1, 10), node(2.0, 0.1, 300), node(2.0, 0.05, 100)],
        [node(2.0, 0.02, 500), node(1.0, 0.5, 1)],
        pytest.param([node(2.0, rate, round(2 / rate)) for rate in np.linspace(0.02, 0.3, 12)], marks=pytest.mark.slow),
        [node(2.0 + rate, rate, round(2 / rate)) for rate in np.linspace(0.05, 0.3, 9)],
    ],
)
def test_it_is_never_below_a_nodes_own(nodes: list[Counts]) -> None:
    found = worst_profile([[(counts, 1)] for counts in nodes], ADD, point(nodes))
    own = [profile([(counts, 1)], ADD) for counts in nodes]
    for loss in np.linspace(0, found.losses[-1], 30):
        assert found.delta(float(loss)) >= max(one.delta(float(loss)) for one in own) * (1 - 1e-2)
    assert found.mu >= max(one.mu for one in own) - 1e-6


def test_nodes_that_release_less_cost_nothing() -> None:
    worst = node(2.0, 0.1, 300)
    less = [node(2.0, 0.1, 300 - n) for n in range(1, 200)]
    assert worst_profile([[(c, 1)] for c in [*less, worst]], ADD, (9.0, 0.1)) == profile([(worst, 1)], ADD)


@pytest.mark.slow
def test_many_that_differ_are_covered_closely() -> None:
    """Twelve nodes with as many epochs each: the most sampled one decides, and covers are of neighbouring rates."""
    nodes = [node(4.0, rate, round(2 / rate)) for rate in np.linspace(0.02, 0.3, 12)]
    nodes += [node(4.0 - rate, rate, round(2 / rate)) for rate in np.linspace(0.025, 0.295, 12)]
    found = worst_profile([[(counts, 1)] for counts in nodes], ADD, point(nodes))
    assert found.mu <= 1.1 * max(profile([(counts, 1)], ADD).mu for counts in nodes)


def test_rates_that_differ_a_lot_do_not_cost_much() -> None:
    """Each of 300 nodes samples each example as often: the most sampled decides, and is covered with few others."""
    nodes = [node(4.0, rate, round(20 / rate)) for rate in np.geomspace(0.002, 0.3, 300)]
    found = worst_profile([[(counts, 1)] for counts in nodes], ADD, (50.0, 0.1))
    assert max(profile([(counts, 1)], ADD).mu for counts in nodes[-3:]) <= found.mu
    assert found.mu <= 1.1 * profile([(nodes[-1], 1)], ADD).mu


@pytest.mark.parametrize(("rows", "small", "large"), [(5, (1, 1), (100, 99)), (2, (2, 1), (1000, 499))])
def test_samples_of_fixed_size_are_not_told_apart_by_their_rate(
    rows: int, small: tuple[int, int], large: tuple[int, int]
) -> None:
    """A shard of one row has the higher rate, and less to lose for a person who has five in the other."""
    kinds = [ReleaseKind(Gaussian(1.0, 4.0), FixedSize(*numbers), 3) for numbers in (small, large)]
    replaced = NeighboringRelation.REPLACE_ONE
    found = worst_profile([[({kind: 10}, rows)] for kind in kinds], replaced, (9.0, 0.1))
    assert found.mu >= max(profile([({kind: 10}, rows)], replaced).mu for kind in kinds) - 1e-6


def test_noise_on_a_ball_is_a_law_of_its_own() -> None:
    kinds = [ReleaseKind(law, Poisson(0.5), 3) for law in (BallGaussian(1.0, 3.9), Gaussian(1.0, 4.0))]
    found = worst_profile([[({kind: 10}, 5)] for kind in kinds], ADD, (9.0, 0.1))
    assert found.mu >= max(profile([({kind: 10}, 5)], ADD).mu for kind in kinds) - 1e-6


def test_more_rows_of_a_person_are_more_exposed() -> None:
    counts = node(4.0, 0.1, 50)
    found = worst_profile([[(counts, 1)], [(counts, 3)]], ADD, (9.0, 0.1))
    assert found == profile([(counts, 3)], ADD)
