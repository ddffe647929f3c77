"""Privacy profiles and their mu: against closed forms, gdpnum on dp-accounting's distributions, and brute force."""

from __future__ import annotations

import itertools
import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm
from tests.reference.gaussian_mu_slow import both_ways, gdpnum_mu, searched_mu

from gossamer.privacy.accounting.accountants import delta, epsilon, profile
from gossamer.privacy.accounting.gaussian_dp import gaussian_epsilon
from gossamer.privacy.guarantees import EVERYTHING, HIGHEST_LOSS, LEAST_ERROR, NOTHING, PrivacyProfile
from gossamer.privacy.mechanisms import (
    Counts,
    FixedSize,
    Gaussian,
    L2Laplace,
    Laplace,
    NeighboringRelation,
    NoNoise,
    Poisson,
    ReleaseKind,
)

ADD, REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE


def gaussian(multiplier: float, rate: float) -> ReleaseKind:
    return ReleaseKind(Gaussian(1.0, multiplier), Poisson(rate), 3)


def of(counts: Counts, relation: NeighboringRelation = ADD, rows: int = 1) -> PrivacyProfile:
    return profile([(counts, rows)], relation)


def settings(number: int) -> list[tuple[float, float, int]]:
    """Noise multipliers, rates and numbers of releases, of which gdpnum's grid tells mu to 1e-3 or nearly."""
    draws, found = np.random.default_rng(20250310), list[tuple[float, float, int]]()
    while len(found) < number:
        multiplier, rate = (float(np.exp(draws.uniform(*np.log(ends)))) for ends in ((0.6, 20), (0.005, 1)))
        releases = int(np.exp(draws.uniform(0, math.log(3000))))
        if 0.05 < rate * math.sqrt(releases) / multiplier < 3:
            found.append((multiplier, rate, releases))
    return found


@pytest.mark.some(2)
@pytest.mark.parametrize(("multiplier", "rate", "releases"), settings(200))
def test_mu_is_that_of_gdpnum(multiplier: float, rate: float, releases: int) -> None:
    found = of({gaussian(multiplier, rate): releases}).mu
    assert found == pytest.approx(gdpnum_mu(multiplier, rate, releases), abs=1e-3)


@pytest.mark.some(1)
@pytest.mark.parametrize(("multiplier", "rate", "releases"), settings(40))
def test_mu_is_never_below_the_profile(multiplier: float, rate: float, releases: int) -> None:
    """Of the accountant's deltas, no test between N(0, 1) and N(mu, 1) falls short."""
    found = of({gaussian(multiplier, rate): releases})
    losses = np.linspace(0, found.losses[-1], 30)
    exact = np.array([delta({gaussian(multiplier, rate): releases}, float(loss), ADD) for loss in losses])
    assert all(found.delta(float(loss)) >= value * (1 - 2e-3) for loss, value in zip(losses, exact, strict=True))
    alphas = np.geomspace(LEAST_ERROR, 0.5, 500)
    misses = norm.cdf(norm.isf(alphas) - found.mu)
    assert np.all(misses[misses >= LEAST_ERROR] <= found.miss_rate(alphas)[misses >= LEAST_ERROR] + 1e-15)
    # The search takes misses from 1, which leaves six digits at 1e-10 false alarms.
    assert found.mu >= searched_mu(np.array(found.losses), np.array(found.deltas), LEAST_ERROR) - 1e-6


@pytest.mark.parametrize("mu", [0.003, 0.1, 1.0, 2.5, 5.0])
def test_noise_on_all_data_is_gaussian_privacy_itself(mu: float) -> None:
    found = of({gaussian(2 / mu, 1.0): 4})
    assert mu <= found.mu <= mu + 1e-3
    assert found.accuracy == pytest.approx(norm.cdf(mu / 2), rel=1e-6)
    alphas = np.geomspace(1e-9, 1 - 1e-9, 50)
    assert np.all(found.miss_rate(alphas) <= norm.cdf(norm.isf(alphas) - mu) + 1e-12)


def test_one_sampled_release_by_hand() -> None:
    """At 1e-10 false alarms a sample that holds the example answers Phi(1/s - z) of the time, others 1e-10."""
    cut = norm.isf(LEAST_ERROR)
    hits = (1 - 0.4355) * LEAST_ERROR + 0.4355 * norm.sf(cut - 1 / 1.554)
    found = of({gaussian(1.554, 0.4355): 1})
    assert found.mu == pytest.approx(cut + norm.ppf(hits), abs=2e-3)
    assert found.mu >= cut + norm.ppf(hits)
    assert found.accuracy == pytest.approx((1 + 0.4355 * (2 * norm.cdf(0.5 / 1.554) - 1)) / 2, rel=1e-6)


def best_accuracy(single: float, releases: int) -> float:
    """How often the likelier of two neighbours is the right one, by adding up all answers of randomized response."""
    truth = math.exp(single) / (1 + math.exp(single))
    right = 0.0
    for answers in itertools.product((truth, 1 - truth), repeat=releases):
        ahead, back = math.prod(answers), math.prod(1 - answer for answer in answers)
        right += max(ahead, back) / 2
    return right


@pytest.mark.some(2)
@pytest.mark.parametrize(("single", "releases"), [(0.5, 1), (0.3, 5), (1.0, 4), (2.0, 3), (0.05, 10)])
def test_the_best_attackers_accuracy_is_that_of_brute_force(single: float, releases: int) -> None:
    response = ReleaseKind(Laplace(1.0, 2 / single), FixedSize(10, 10), 1)  # counted as randomized response
    found = of({response: releases}, REPLACE)
    exact = best_accuracy(single, releases)
    assert exact * (1 - 1e-12) <= found.accuracy <= exact * (1 + 1e-4)


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 4.0, 1e4])
@pytest.mark.parametrize("delta", [0.0, 1e-4, 0.01])
def test_one_point_allows_the_best_attack_on_the_worst_mechanism(epsilon: float, delta: float) -> None:
    """A mechanism that tells all with probability delta and else answers at random, e^epsilon to 1, attains it."""
    honest = 1 / (1 + math.exp(-epsilon))
    found = PrivacyProfile.of_points([(epsilon, delta)])
    assert found.accuracy == pytest.approx(delta + (1 - delta) * honest, rel=1e-12)
    assert found.delta(epsilon) == pytest.approx(delta if epsilon < 20 else found.deltas[-1])


@pytest.mark.parametrize("mu", [0.01, 0.5, 2.0, 4.0])
def test_a_gaussian_profile_is_below_its_points(mu: float) -> None:
    found = PrivacyProfile.gaussian(mu)
    assert mu <= found.mu <= mu * (1 + 1e-3)
    points = [(gaussian_epsilon(mu, delta), delta) for delta in (1e-9, 1e-6, 1e-3)]
    points = [point for point in points if point[0] < HIGHEST_LOSS]
    assert all(delta * (1 - 1e-6) <= found.delta(at) <= delta * 1.01 for at, delta in points)
    through = PrivacyProfile.through(partial(gaussian_epsilon, mu))
    assert mu <= through.mu <= mu * 1.05
    assert found.accuracy <= through.accuracy


def test_a_moved_profile_holds_for_what_was_moved() -> None:
    """H'(e + s) = f H(e) + p + g exp(e) at every point, to which the chords add nothing that matters."""
    found = PrivacyProfile.gaussian(1.0)
    moved = found.moved(0.01, 1.02, 1e-6, 1e-7)
    for loss in np.linspace(0, found.losses[-1] - 0.02, 40):
        assert moved.delta(float(loss) + 0.01) >= min(1.02 * found.delta(float(loss)) + 1e-6, 1.0) * (1 - 1e-3)
    assert found.moved(0.0, 1.0, 0.0).mu == pytest.approx(found.mu)


PLANS: list[tuple[Counts, NeighboringRelation, int]] = [
    ({gaussian(1.0, 0.02): 50}, REPLACE, 1),
    ({ReleaseKind(Gaussian(1.0, 2.0), FixedSize(1000, 50), 3): 40}, REPLACE, 1),
    ({gaussian(2.0, 0.1): 10, gaussian(4.0, 0.3): 5, gaussian(8.0, 1.0): 3}, ADD, 1),
    ({gaussian(4.0, 0.1): 100}, ADD, 3),
    ({ReleaseKind(L2Laplace(1.0, 0.4, ADD), Poisson(0.2), 8): 20}, ADD, 1),
    ({ReleaseKind(Laplace(1.0, 4.0), Poisson(0.5), 2): 6, gaussian(2.0, 0.1): 4}, ADD, 1),
    ({gaussian(0.3, 0.5): 50}, ADD, 1),
    ({gaussian(1e5, 0.001): 7}, ADD, 1),
]


@pytest.mark.some(4)
@pytest.mark.parametrize(("counts", "relation", "rows"), PLANS)
def test_a_profile_is_that_of_the_accountant(counts: Counts, relation: NeighboringRelation, rows: int) -> None:
    found = of(counts, relation, rows)
    for wanted in (1e-8, 1e-5, 1e-2):
        at = epsilon(counts, wanted, relation, rows).epsilon
        if 0 < at < found.losses[-1]:
            assert wanted * (1 - 1e-3) <= found.delta(at) <= wanted * 1.03
    assert found.delta(1e4) == found.deltas[-1]
    assert found.mu >= 0
    assert found.accuracy <= 1


def test_strong_and_weak_ends() -> None:
    assert (NOTHING.mu, NOTHING.accuracy) == (pytest.approx(0, abs=1e-8), 0.5)
    assert (EVERYTHING.mu, EVERYTHING.accuracy) == (math.inf, 1.0)
    assert of({}) == NOTHING
    assert of({ReleaseKind(NoNoise(1.0), Poisson(0.1), 2): 1}) == EVERYTHING


@given(st.lists(st.tuples(st.floats(0, 20), st.floats(0, 1)), min_size=1, max_size=30))
def test_points_are_kept_below_and_never_above_those_given(points: list[tuple[float, float]]) -> None:
    losses = np.unique([0.0, *(round(loss, 3) for loss, _ in points)])
    deltas = np.resize([height for _, height in points], losses.size)
    found = PrivacyProfile.of(losses, deltas)
    steps = -np.diff(found.deltas) / np.diff(np.expm1(found.losses)) if len(found.losses) > 1 else np.zeros(1)
    assert np.all(np.diff(steps) <= 1e-12)
    assert all(found.delta(float(loss)) <= most + 1e-12 for loss, most in zip(losses, deltas, strict=True))


def test_the_worst_of_several_is_above_each() -> None:
    many, few = of({gaussian(2.0, 0.02): 300}), of({gaussian(1.0, 0.5): 1})
    worst = PrivacyProfile.worst([many, few])
    losses = np.linspace(0, 5, 60)
    assert all(worst.delta(e) >= max(many.delta(e), few.delta(e)) * (1 - 1e-9) for e in losses)
    assert worst.mu >= max(many.mu, few.mu) - 1e-9


def test_the_reference_is_of_one_pair() -> None:
    """What gdpnum is given agrees with the accountant's delta in both directions."""
    pair = both_ways(1.554, 0.4355, 1)
    exact = delta({gaussian(1.554, 0.4355): 1}, 0.5, ADD)
    assert pair.get_delta_for_epsilon(0.5) == pytest.approx(exact, rel=1e-3)
