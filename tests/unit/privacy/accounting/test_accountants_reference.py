"""Epsilon against dp-accounting, closed forms, quadrature, and the actual outputs on small data sets."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from tests.reference.accounting_slow import (
    Density,
    divergence,
    dp_accounting_epsilon,
    gaussian_epsilon,
    mixture,
    response_delta,
)

from gossamer.privacy.accounting import accountants
from gossamer.privacy.accounting.pld import Composition
from gossamer.privacy.mechanisms import FixedSize, Gaussian, Laplace, NeighboringRelation, Poisson, ReleaseKind
from gossamer.privacy.pairs import (
    FixedSizeSampled,
    GaussianFull,
    PoissonReplaced,
    PoissonSampled,
    Profile,
    ReleaseGroup,
    Response,
    ResponseFull,
)

ADD, REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE

# (noise multiplier, rate, count) each, delta, and an interval at which dp-accounting is fast; epsilons from 0.05 to 20
PLANS = {
    "small rate": ([(1.0, 0.001, 3000)], 1e-5, 1e-4),
    "usual": ([(1.0, 0.01, 3000)], 1e-5, 5e-4),
    "tiny delta": ([(2.0, 0.05, 100)], 1e-11, 2e-4),
    "large delta": ([(2.0, 0.05, 100)], 1e-2, 2e-4),
    "little noise": ([(0.5, 0.02, 200)], 1e-6, 1e-3),
    "much noise": ([(14.0, 0.07, 3000)], 1e-5, 1e-4),
    "one release": ([(0.6, 0.3, 1)], 1e-6, 1e-3),
    "nearly full": ([(5.0, 0.9, 40)], 1e-6, 5e-4),
    "least epsilon": ([(4.0, 0.005, 300)], 1e-5, 1e-4),
    "mix": ([(1.0, 0.01, 100), (2.0, 0.3, 7), (4.0, 1.0, 2), (0.8, 0.001, 1000)], 1e-6, 5e-4),
}


def plan_epsilon(releases: list[tuple[float, float, int]], delta: float) -> float:
    counts = {ReleaseKind(Gaussian(1.0, multiplier), Poisson(rate), 1): n for multiplier, rate, n in releases}
    return accountants.epsilon(counts, delta, ADD).epsilon


def unmerged(counts: dict[Profile, int]) -> Composition:
    return Composition([ReleaseGroup(profile, profile, 1.0, count) for profile, count in counts.items()])


@pytest.mark.some(5)
@pytest.mark.parametrize("plan", PLANS)
def test_epsilon_agrees_with_dp_accounting(plan: str) -> None:
    """To 0.2 %, or below it where its interval has not converged."""
    releases, delta, interval = PLANS[plan]
    reference = dp_accounting_epsilon(releases, delta, interval)
    found = plan_epsilon(releases, delta)
    assert 0.05 <= found <= 20
    assert 0.998 * reference <= found <= 1.002 * reference


@pytest.mark.slow
@pytest.mark.parametrize("plan", PLANS)
def test_epsilon_lies_between_the_converged_one_and_a_percent_above_the_usual(plan: str) -> None:
    releases, delta, _ = PLANS[plan]
    found = plan_epsilon(releases, delta)
    assert dp_accounting_epsilon(releases, delta, 1e-5) <= found <= 1.01 * dp_accounting_epsilon(releases, delta, 1e-4)


def test_tens_of_rates_against_dp_accounting() -> None:
    """Of which most are merged: dp-accounting has converged at 1e-3 for rates as large as these."""
    releases = [(2.0, rate, 3) for rate in np.linspace(0.05, 0.2, 25)]
    exact = dp_accounting_epsilon(releases, 1e-5, 1e-3)
    assert 0.9995 * exact <= plan_epsilon(releases, 1e-5) <= 1.003 * exact


@pytest.mark.some(1)
@pytest.mark.parametrize("multiplier", [0.5, 1.0, 4.0])
def test_merging_many_rates_adds_little_and_never_takes_any(multiplier: float) -> None:
    """Against the same composition with a distribution for each rate."""
    rates = [*np.linspace(0.001, 0.05, 60), *np.geomspace(1e-5, 0.9, 60)]
    counts: dict[Profile, int] = {
        PoissonSampled(GaussianFull(1 / multiplier), float(rate)): 1 + 7 * (index % 3)
        for index, rate in enumerate(rates)
    }
    exact = unmerged(counts)
    merged = plan_epsilon([(multiplier, profile.rate, count) for profile, count in counts.items()], 1e-5)
    assert exact.epsilon(1e-5) <= merged <= 1.002 * exact.epsilon(1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("multiplier", [1.0, 4.0])
def test_ten_thousand_rates_against_one_distribution_for_each_of_a_thousand(multiplier: float) -> None:
    """Ten releases at each of 1,000 rates, against 10,000 rates spread evenly around them: the same to second order."""
    centres = np.geomspace(1e-3, 1e-1, 1000)
    ratio = centres[1] / centres[0]
    rates = np.concatenate([centres * ratio**shift for shift in np.linspace(-0.45, 0.45, 10)])
    exact = unmerged({PoissonSampled(GaussianFull(1 / multiplier), float(rate)): 10 for rate in centres}).epsilon(1e-5)
    merged = plan_epsilon([(multiplier, float(rate), 1) for rate in rates], 1e-5)
    assert 0.9999 * exact <= merged <= 1.003 * exact


@pytest.mark.parametrize(
    ("rate", "releases", "multiplier"), [(1e-5, 10**7, 1.0), (1e-6, 10**9, 1.0), (2e-5, 10**7, 2.0)]
)
def test_releases_that_reveal_next_to_nothing(rate: float, releases: int, multiplier: float) -> None:
    """Their central limit: one Gaussian release with mu = q sqrt(T (exp(1/z^2) - 1)).

    Dong, Roth and Su, "Gaussian differential privacy", 2022, corollary 5.4, with the chi-squared divergence of Poisson
    samples; an interval of 1e-5 is larger than the losses here.
    """
    limit = gaussian_epsilon(rate * math.sqrt(releases * math.expm1(multiplier**-2)), 1.0, 1e-5)
    assert plan_epsilon([(multiplier, rate, releases)], 1e-5) == pytest.approx(limit, rel=6e-3)


@pytest.mark.parametrize(("single", "releases"), [(0.1, 1), (0.1, 30), (1.0, 5), (1.0, 60), (3.0, 4)])
@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-9])
def test_randomized_response_is_its_binomial_sum(single: float, releases: int, delta: float) -> None:
    """The exact composition of anything epsilon-differentially private: enough, and half a percent less is not."""
    kind = ReleaseKind(Laplace(1.0, 1 / single), Poisson(1.0), 1)
    found = accountants.epsilon({kind: releases}, delta, ADD).epsilon
    assert response_delta(single, releases, found) <= delta * (1 + 1e-9)
    assert response_delta(single, releases, 0.995 * found) > delta


# Each actual pair is of one dimension, in units of the noise; clip 1. The other examples are part of both data sets.
Q, MU = 0.3, 0.8


def poisson_pair(own: float, other: float | None, rest: tuple[float, ...]) -> tuple[Density, Density]:
    """Outputs on Poisson samples of ``rest`` with ``own``, and with ``other`` in its place (None: with nothing)."""

    def outputs(examples: tuple[float, ...]) -> Density:
        chosen = list(itertools.product((0, 1), repeat=len(examples)))
        return mixture(
            [MU * float(np.dot(picks, examples)) for picks in chosen],
            [math.prod(Q if pick else 1 - Q for pick in picks) for picks in chosen],
        )

    return outputs((own, *rest)), outputs(rest if other is None else (other, *rest))


def fixed_size_pair(own: float, other: float, rest: tuple[float, ...], size: int) -> tuple[Density, Density]:
    def outputs(examples: tuple[float, ...]) -> Density:
        sums = [MU * sum(batch) for batch in itertools.combinations(examples, size)]
        return mixture(sums, [1 / len(sums)] * len(sums))

    return outputs((own, *rest)), outputs((other, *rest))


RESTS = [(), (1.0,), (-1.0, 0.4)]


@pytest.mark.some(4)
@pytest.mark.parametrize("rest", RESTS)
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.5])
def test_no_poisson_sample_reveals_more_than_its_profile(rest: tuple[float, ...], epsilon: float) -> None:
    add, replace = PoissonSampled(GaussianFull(MU), Q), PoissonReplaced(MU, Q)
    at = np.array([epsilon])
    for own in (1.0, -1.0, 0.5):
        upper, lower = poisson_pair(own, None, rest)
        assert divergence(upper, lower, epsilon) <= add.forward(at)[0] + 1e-7
        assert divergence(lower, upper, epsilon) <= add.backward(at)[0] + 1e-7
        for other in (1.0, -1.0, 0.0):
            assert divergence(*poisson_pair(own, other, rest), epsilon) <= replace.forward(at)[0] + 1e-7


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.5])
def test_a_lone_example_reveals_exactly_its_profile(epsilon: float) -> None:
    """The worst case is attained, so the profiles of Poisson samples cannot be improved."""
    at = np.array([epsilon])
    alone, empty = poisson_pair(1.0, None, ())
    assert divergence(alone, empty, epsilon) == pytest.approx(
        PoissonSampled(GaussianFull(MU), Q).forward(at)[0], abs=1e-7
    )
    assert divergence(empty, alone, epsilon) == pytest.approx(
        PoissonSampled(GaussianFull(MU), Q).backward(at)[0], abs=1e-7
    )
    swapped = divergence(*poisson_pair(1.0, -1.0, ()), epsilon)
    assert swapped == pytest.approx(PoissonReplaced(MU, Q).forward(at)[0], abs=1e-7)


@pytest.mark.parametrize(("rest", "size"), [((1.0,), 1), ((-1.0,), 1), ((1.0, 1.0), 1), ((1.0, -1.0, 0.3), 2)])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.5])
def test_no_batch_of_fixed_size_reveals_more_than_its_profile(
    rest: tuple[float, ...], size: int, epsilon: float
) -> None:
    profile = FixedSizeSampled(GaussianFull(2 * MU), size / (len(rest) + 1))
    bound = profile.forward(np.array([epsilon]))[0] + 1e-7
    for own, other in itertools.permutations((1.0, -1.0, 0.2), 2):
        assert divergence(*fixed_size_pair(own, other, rest, size), epsilon) <= bound


@pytest.mark.parametrize("epsilon", [0.2, 1.0])
def test_two_releases_compose_as_quadrature_in_the_plane_says(epsilon: float) -> None:
    """Exact for Poisson samples, an upper bound for a batch of one of two examples."""
    add, replace = (
        unmerged({profile: 2}).delta(epsilon)
        for profile in (PoissonSampled(GaussianFull(MU), Q), PoissonReplaced(MU, Q))
    )
    pairs = [poisson_pair(1.0, None, ()), poisson_pair(1.0, None, ())[::-1]]
    assert add == pytest.approx(max(divergence(*pair, epsilon, times=2) for pair in pairs), rel=2e-3)
    assert replace == pytest.approx(divergence(*poisson_pair(1.0, -1.0, ()), epsilon, times=2), rel=2e-3)
    fixed = unmerged({FixedSizeSampled(GaussianFull(2 * MU), 0.5): 2}).delta(epsilon)
    assert divergence(*fixed_size_pair(1.0, -1.0, (1.0,), 1), epsilon, times=2) <= fixed


def test_responses_of_different_strength_are_merged_from_above() -> None:
    strengths = [float(strength) for strength in np.linspace(0.02, 0.6, 50)]
    exact = unmerged({Response(strength): 2 for strength in strengths}).epsilon(1e-6)
    counts = {ReleaseKind(Laplace(1.0, 2 / strength), Poisson(1.0), 1): 2 for strength in strengths}
    merged = accountants.epsilon(counts, 1e-6, REPLACE).epsilon
    assert exact * (1 - 1e-6) <= merged <= 1.002 * exact


def test_sampled_responses_against_their_two_outcomes() -> None:
    """A Poisson sample of randomized response has two outcomes; five releases have six losses, by hand."""
    rate, single, releases, epsilon = 0.2, 1.5, 5, 0.3
    truth = math.exp(single) / (1 + math.exp(single))
    upper = rate * truth + (1 - rate) * (1 - truth)
    pairs = {"forward": (upper, 1 - truth), "backward": (1 - truth, upper)}
    exact = max(
        sum(
            math.comb(releases, k)
            * max(p**k * (1 - p) ** (releases - k) - math.exp(epsilon) * q**k * (1 - q) ** (releases - k), 0.0)
            for k in range(releases + 1)
        )
        for p, q in pairs.values()
    )
    found = unmerged({PoissonSampled(ResponseFull(single), rate): releases}).delta(epsilon)
    assert exact <= found <= 1.01 * exact


def test_a_tiny_data_set_costs_more_than_a_large_one_at_the_same_batch() -> None:
    """Small data is the normal case: nothing is rounded, floored or taken as large."""
    costs = [
        accountants.epsilon({ReleaseKind(Gaussian(1.0, 2.0), FixedSize(size, 3), 1): 10}, 1e-3, REPLACE).epsilon
        for size in (3, 4, 7, 100)
    ]
    assert costs == sorted(costs, reverse=True)
    assert costs[0] > 1.2 * costs[1]
