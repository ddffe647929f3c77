"""Discretised losses, their composition in Fourier space, and the merging of rates, piece by piece."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest

from gossamer.privacy import composition
from gossamer.privacy.analytic import (
    FixedSizeSampled,
    FullBatch,
    GaussianFull,
    PoissonReplaced,
    PoissonSampled,
    Profile,
    Response,
    ResponseFull,
)
from gossamer.privacy.composition import ComposedLoss, Masses, Terms
from gossamer.privacy.mixtures import Group, merge
from gossamer.privacy.pld import Composition, choose_interval, discretise, relative_entropy

FloatArray = npt.NDArray[np.float64]

PROFILES: list[Profile] = [
    FullBatch(GaussianFull(0.7)),
    PoissonSampled(GaussianFull(1.0), 0.05),
    PoissonSampled(GaussianFull(0.2), 0.9),
    PoissonSampled(GaussianFull(4.0), 1e-3),
    PoissonSampled(ResponseFull(1.3), 0.2),
    PoissonReplaced(1.0, 0.1),
    FixedSizeSampled(GaussianFull(2.0), 0.25),
    FixedSizeSampled(ResponseFull(0.4), 0.5),
    Response(0.33),
]
profiles = pytest.mark.parametrize("profile", PROFILES, ids=repr)
INTERVAL = 0.01


def losses_of(law: Masses) -> np.ndarray:
    return np.arange(law.lowest, law.highest + 1) * INTERVAL


def divergence(law: Masses, epsilon: float) -> float:
    """By its definition, E max(0, 1 - exp(epsilon - loss))."""
    gains = np.maximum(-np.expm1(epsilon - losses_of(law)), 0.0)
    return float(np.dot(gains, law.probabilities)) + law.infinite


@profiles
def test_both_laws_of_a_discrete_pair_have_total_probability_one(profile: Profile) -> None:
    """P(loss) sums to 1, and so does Q, whose masses are exp(-loss) P plus what is infinite in reverse."""
    ahead, back = discretise(profile, INTERVAL, 1e-12)
    for one, other in ((ahead, back), (back, ahead)):
        assert np.all(one.probabilities >= 0)
        assert one.probabilities.sum() + one.infinite == pytest.approx(1.0, abs=1e-11)
        mirrored = np.dot(one.probabilities, np.exp(-losses_of(one)))
        assert mirrored + other.infinite == pytest.approx(1.0, abs=1e-11)
        assert one.infinite <= 1e-12


@profiles
def test_discrete_curves_touch_the_exact_ones_at_the_grid_and_lie_above_between(profile: Profile) -> None:
    """Connect the dots: chords of a convex curve, and no more than a chord's height above it."""
    for law, exact in zip(discretise(profile, INTERVAL, 1e-12), (profile.forward, profile.backward)):
        grid, middle = np.arange(0, 1.0, 0.1), np.arange(0, 1.0, 0.1) + INTERVAL / 3
        assert [divergence(law, e) for e in grid] == pytest.approx(exact(grid), abs=1e-11)
        between = np.array([divergence(law, e) for e in middle])
        assert np.all(between >= exact(middle) - 1e-12)
        assert np.all(between <= exact(np.floor(middle / INTERVAL) * INTERVAL) + 1e-12)


@profiles
def test_negative_losses_follow_from_the_reverse_direction(profile: Profile) -> None:
    """H(P||Q)(-e) = 1 - exp(-e) + exp(-e) H(Q||P)(e), a property of every pair."""
    ahead, back = discretise(profile, INTERVAL, 1e-12)
    for e in (INTERVAL, 5 * INTERVAL):
        assert divergence(ahead, -e) == pytest.approx(-math.expm1(-e) + math.exp(-e) * divergence(back, e), abs=1e-11)


@pytest.mark.parametrize("mu", [0.1, 1.0, 3.0])
def test_the_relative_entropy_of_gaussians(mu: float) -> None:
    """KL(N(mu, 1) || N(0, 1)) = mu^2 / 2."""
    assert relative_entropy(FullBatch(GaussianFull(mu))) == pytest.approx(mu**2 / 2, rel=1e-2)


def test_grids_are_nested_and_fine_enough() -> None:
    ratios = []
    for mu, count in ((0.01, 1), (0.1, 5), (1.0, 1000)):
        profile = FullBatch(GaussianFull(mu))
        interval, spread = choose_interval([Group(profile, profile, 1.0, count)], 10.0)
        assert spread == pytest.approx(mu * math.sqrt(count), rel=1e-2)
        assert interval <= mu / 32
        ratios.append(math.log2(interval / 2e-5))
    assert ratios == pytest.approx(np.round(ratios))


SMALL = Masses(-3, np.array([0.1, 0.2, 0.05, 0.15, 0.1, 0.2, 0.199]), 1e-3)
LARGE = Masses(-4, np.array([0.05, 0.1, 0.1, 0.05, 0.1, 0.1, 0.2, 0.1, 0.197]), 3e-3)


def convolved(terms: list[Terms], masses: list[Masses]) -> Masses:
    """Composition by plain convolution."""
    lowest, probabilities, finite = 0, np.ones(1), 1.0
    for term in terms:
        lower, upper = masses[term.lower], masses[term.upper]
        start, end = min(lower.lowest, upper.lowest), max(lower.highest, upper.highest)
        mixed = np.zeros(end - start + 1)
        for law, weight in ((lower, 1 - term.weight), (upper, term.weight)):
            mixed[law.lowest - start : law.highest - start + 1] += weight * law.probabilities
        infinite = (1 - term.weight) * lower.infinite + term.weight * upper.infinite
        for _ in range(term.times):
            lowest, probabilities, finite = lowest + start, np.convolve(probabilities, mixed), finite * (1 - infinite)
    return Masses(lowest, probabilities, 1 - finite)


TERMS = {
    "one": [Terms(0, 0, 1.0, 1)],
    "many": [Terms(0, 0, 1.0, 40)],
    "mixed": [Terms(0, 1, 0.3, 5), Terms(1, 1, 1.0, 2), Terms(0, 1, 0.9, 3)],
    "rare": [Terms(0, 1, 1e-6, 30)],
}


@pytest.mark.parametrize("name", TERMS)
def test_the_transform_agrees_with_plain_convolution(name: str) -> None:
    terms, masses = TERMS[name], [SMALL, LARGE]
    exact = convolved(terms, masses)
    composed = ComposedLoss(masses, terms, INTERVAL, 0.02 * math.sqrt(sum(term.times for term in terms)))
    for epsilon in (0.0, 0.004, 0.02, 0.055, 0.1):
        delta = divergence(exact, epsilon)
        assert composed.delta(epsilon) == pytest.approx(delta, rel=1e-8)
        if delta > exact.infinite:
            assert composed.epsilon(delta) == pytest.approx(epsilon, abs=1e-6)


def test_far_tails_keep_their_relative_accuracy() -> None:
    """Where a plain transform drowns in rounding errors of 1e-17: against exact integer arithmetic."""
    law = Masses(-1, np.array([0.5, 0.0, 0.5]), 0.0)
    composed = ComposedLoss([law], [Terms(0, 0, 1.0, 1000)], INTERVAL, INTERVAL * math.sqrt(1000))
    epsilon = 7.995  # only 900 or more steps up of 1000 exceed it
    exact = sum(
        math.comb(1000, ups) / 2**1000 * -math.expm1(epsilon - (2 * ups - 1000) * INTERVAL) for ups in range(900, 1001)
    )
    assert exact < 1e-150
    assert composed.delta(epsilon) == pytest.approx(exact, rel=1e-6)
    assert composed.epsilon(exact) == pytest.approx(epsilon, rel=1e-8)


def test_an_infinite_loss_that_is_too_likely_leaves_no_epsilon() -> None:
    composed = ComposedLoss([SMALL], [Terms(0, 0, 1.0, 10)], INTERVAL, 0.05)
    assert composed.epsilon(9e-3) == math.inf
    assert composed.epsilon(1.1e-2) < math.inf
    assert composed.delta(1e6) == pytest.approx(1 - (1 - 1e-3) ** 10)


@pytest.mark.parametrize("name", TERMS)
def test_what_lies_outside_the_window_is_counted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a window that leaves out a tenth of the tilted law on either side, deltas are too large, never too small."""
    monkeypatch.setattr(composition, "_OUTSIDE", 0.1)
    terms, masses = TERMS[name], [SMALL, LARGE]
    exact = convolved(terms, masses)
    composed = ComposedLoss(masses, terms, INTERVAL, 0.02 * math.sqrt(sum(term.times for term in terms)))
    for epsilon in (0.0, 0.02, 0.055, 0.1):
        assert composed.delta(epsilon) >= divergence(exact, epsilon) * (1 - 1e-12)


def test_both_directions_are_composed() -> None:
    """The larger one decides, whichever it is."""

    @dataclass(frozen=True)
    class Reversed:
        profile: PoissonSampled
        rate = 0.3
        family = "reversed"
        symmetric = False

        def forward(self, losses: FloatArray) -> FloatArray:
            return self.profile.backward(losses)

        def backward(self, losses: FloatArray) -> FloatArray:
            return self.profile.forward(losses)

        def largest(self, tail: float) -> tuple[float, float]:
            ahead, back = self.profile.largest(tail)
            return back, ahead

    profile = PoissonSampled(GaussianFull(2.0), 0.3)
    mirror = Reversed(profile)
    plain, turned = (Composition([Group(each, each, 1.0, 5)]) for each in (profile, mirror))
    assert turned.delta(1.0) == pytest.approx(plain.delta(1.0), rel=1e-9)
    assert turned.epsilon(1e-4) == pytest.approx(plain.epsilon(1e-4), rel=1e-9)


def test_one_rate_is_not_touched_and_neighbours_are_merged() -> None:
    one: Profile = PoissonSampled(GaussianFull(1.0), 0.1)
    assert merge({one: 3}) == [Group(one, one, 1.0, 3)]
    many = {PoissonSampled(GaussianFull(1.0), float(rate)): 2 for rate in np.linspace(0.1, 0.11, 500)}
    groups = merge(many)
    assert len(groups) < 40
    assert sum(group.releases for group in groups) == 1000


def test_what_differs_in_more_than_the_rate_is_not_merged() -> None:
    counts: dict[Profile, int] = {
        profile: 1
        for rate in (0.1, 0.1001, 0.1002)
        for profile in (
            PoissonSampled(GaussianFull(1.0), rate),
            PoissonSampled(GaussianFull(1.1), rate),
            PoissonSampled(ResponseFull(1.0), rate),
            FixedSizeSampled(GaussianFull(1.0), rate),
            PoissonReplaced(1.0, rate),
        )
    }
    for group in merge(counts):
        assert group.lower.family == group.upper.family


def test_merged_weights_are_as_rarely_zero_in_a_row_as_the_exact_ones() -> None:
    """The condition for stochastic dominance: no upper end among n coins is as likely as with the exact weights."""
    rng = np.random.default_rng(5)
    counts = {
        PoissonSampled(GaussianFull(1.0), float(r)): int(n) for r, n in zip(rng.random(60), rng.integers(1, 9, 60))
    }
    groups = merge(counts)
    cells = {(group.lower, group.upper) for group in groups if group.weight < 1}
    assert cells
    for lower, upper in cells:
        inside = [profile for profile in counts if lower.rate < profile.rate < upper.rate]
        exact = sum(counts[p] * math.log1p(-(p.rate - lower.rate) / (upper.rate - lower.rate)) for p in inside)
        merged = sum(g.releases * math.log1p(-g.weight) for g in groups if (g.lower, g.upper) == (lower, upper))
        assert sum(counts[p] for p in inside) == sum(g.releases for g in groups if (g.lower, g.upper) == (lower, upper))
        assert merged == pytest.approx(exact, rel=1e-9)
        assert merged <= exact * (1 - 1e-14)  # both are negative: rounded towards more weight


def test_responses_whose_rates_round_to_one_are_never_taken_for_weaker_ones() -> None:
    """tanh(20) is 1 in floating point; the strongest must still be the upper end."""
    strengths = [40.0, 80.0, 41.0, 60.0]
    groups = merge({Response(strength): 1 for strength in strengths})
    strongest = [max(e.epsilon for e in (g.lower, g.upper)[g.weight == 1 :]) for g in groups for _ in range(g.releases)]  # type: ignore[attr-defined]
    assert all(given >= asked for given, asked in zip(sorted(strongest), sorted(strengths)))


def test_merging_keeps_the_mean_rate_or_raises_it_a_little() -> None:
    """The groups' mean rate is never below the releases': weights are rounded up."""
    rng = np.random.default_rng(4)
    counts = {
        PoissonSampled(GaussianFull(1.0), float(rate)): int(n)
        for rate, n in zip(rng.random(800), rng.integers(1, 9, 800))
    }
    exact = sum(profile.rate * count for profile, count in counts.items())
    merged = sum(g.releases * ((1 - g.weight) * g.lower.rate + g.weight * g.upper.rate) for g in merge(counts))
    assert exact <= merged <= exact * 1.002
