"""Discretised losses, their composition by a Fourier sum, and the merging of rates, piece by piece."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest

from gossamer.privacy.accounting import composition, pld
from gossamer.privacy.accounting.composition import (
    AtomWeights,
    ComposedLoss,
    FourierBound,
    Laws,
    LawTerms,
    LossGrid,
    chord_masses,
    coarse,
    discretise,
    refined,
    roughness,
)
from gossamer.privacy.accounting.pld import Composition, Turned
from gossamer.privacy.pairs import (
    FixedSizeSampled,
    FullBatch,
    GaussianFull,
    PoissonReplaced,
    PoissonSampled,
    Profile,
    ReleaseGroup,
    Response,
    ResponseFull,
    merge,
)

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


def grid_of(profile: Profile, ratio: float = 1.0) -> LossGrid:
    """To where almost nothing is left: 1e-12."""
    ahead, back = (max(end, 0.2) * ratio for end in profile.largest(1e-12))
    return coarse(1e-4, ahead, back, [profile.largest(0.0)])


def divergence(laws: Laws, epsilon: float) -> float:
    """By its definition, E max(0, 1 - exp(epsilon - loss))."""
    at_zero = 1 - laws.infinite[0] - laws.probabilities[0].sum()
    gains = np.maximum(-np.expm1(epsilon - laws.losses), 0.0)
    return float(np.dot(gains, laws.probabilities[0]) + laws.infinite[0] + at_zero * max(-math.expm1(epsilon), 0.0))


@profiles
def test_both_laws_of_a_discrete_pair_have_total_probability_one(profile: Profile) -> None:
    """P(loss) sums to 1, and so does Q, whose masses are exp(-loss) P plus what is infinite in reverse."""
    grid = grid_of(profile)
    ahead, back = discretise([profile], grid), discretise([Turned(profile)], LossGrid(grid.back, grid.ahead))
    for one, other in ((ahead, back), (back, ahead)):
        assert np.all(one.probabilities >= 0)
        at_zero = 1 - one.infinite[0] - one.probabilities[0].sum()
        assert at_zero >= -1e-9
        mirrored = np.dot(one.probabilities[0], np.exp(-one.losses)) + at_zero
        assert mirrored + other.infinite[0] == pytest.approx(1.0, abs=1e-9)
        assert one.infinite[0] <= 1.1e-12


@profiles
def test_discrete_curves_touch_the_exact_ones_at_the_grid_and_lie_above_between(profile: Profile) -> None:
    """Connect the dots: chords of a convex curve, and no more than a chord's height above it."""
    grid = grid_of(profile)
    for law, side, exact in (
        (discretise([profile], grid), grid.ahead, profile.forward),
        (discretise([Turned(profile)], LossGrid(grid.back, grid.ahead)), grid.back, profile.backward),
    ):
        middle = (side[1:] + 2 * side[:-1]) / 3
        assert [divergence(law, e) for e in side] == pytest.approx(exact(side), rel=1e-9, abs=1e-11)
        between = np.array([divergence(law, e) for e in middle])
        assert np.all(between >= exact(middle) * (1 - 1e-12) - 1e-14)
        assert np.all(between <= exact(side[:-1]) + 1e-10)


@profiles
def test_negative_losses_follow_from_the_reverse_direction(profile: Profile) -> None:
    """H(P||Q)(-e) = 1 - exp(-e) + exp(-e) H(Q||P)(e), a property of every pair."""
    grid = grid_of(profile)
    ahead, back = discretise([profile], grid), discretise([Turned(profile)], LossGrid(grid.back, grid.ahead))
    for e in grid.back[[1, grid.back.size // 2]]:
        assert divergence(ahead, -e) == pytest.approx(-math.expm1(-e) + math.exp(-e) * divergence(back, e), abs=1e-9)


def test_the_masses_of_chords_are_those_of_a_pair_with_that_curve() -> None:
    """Three outcomes, by hand: P = (0.5, 0.3, 0.2) at the losses log 2, 0 and -log 4 has Q = (0.25, 0.3, 0.8)."""
    losses = np.array([0.0, math.log(2.0), 3.0])
    curve = np.array([0.25, 0.0, 0.0])  # P - Q where that is positive; 0.5 - 0.25 exp(e)
    assert chord_masses(losses, curve) == pytest.approx([0.5, 0.0])


def test_dents_of_a_rounded_curve_are_bridged() -> None:
    """The curve that is discretised stays above the one that is given, and no mass is negative."""

    @dataclass(frozen=True)
    class Dented:
        profile: Profile
        rate = 1.0
        family = "dented"
        symmetric = True

        def forward(self, losses: FloatArray) -> FloatArray:
            wobble = 1 + 1e-3 * np.sin(40 * np.arange(losses.size))
            return self.profile.forward(losses) * wobble

        backward = forward

        def largest(self, tail: float) -> tuple[float, float]:
            return self.profile.largest(tail)

    profile = Dented(FullBatch(GaussianFull(0.7)))
    grid = grid_of(profile)
    law = discretise([profile], refined(grid, even(grid), 400))
    assert np.all(law.probabilities >= 0)
    for e in (0.01, 0.1, 0.5, 2.0):
        assert divergence(law, e) >= profile.profile.forward(np.array([e]))[0] * (1 - 1.1e-3)


def plainly(laws: Laws) -> AtomWeights:
    return AtomWeights(laws.losses, laws.probabilities[0], laws.probabilities[0])


def even(grid: LossGrid) -> AtomWeights:
    """Atoms of a grid, with weights of 1 per unit of loss."""
    losses = np.concatenate([-grid.back[:0:-1], grid.ahead[1:]])
    gaps = np.gradient(np.concatenate([-grid.back[:0:-1], [0.0], grid.ahead[1:]]))
    weights = np.delete(gaps, grid.back.size - 1)
    return AtomWeights(losses, weights, weights)


def test_refined_grids_keep_their_losses_and_lower_what_chords_add() -> None:
    profile = PoissonSampled(GaussianFull(1.0), 0.05)
    grid = grid_of(profile)
    law = discretise([profile], grid)
    before, best = roughness(grid, plainly(law))
    finer = refined(grid, plainly(law), 500)
    assert set(grid.ahead) <= set(finer.ahead)
    assert set(grid.back) <= set(finer.back)
    law = discretise([profile], finer)
    after, _ = roughness(finer, plainly(law))
    assert after <= 1.5 * best / 500**2
    assert after < before / 50


def test_what_chords_add_to_the_variance_is_foretold() -> None:
    """Against a grid so fine that it adds nothing: N(mu^2/2, mu^2)."""
    profile = FullBatch(GaussianFull(1.0))
    grid = coarse(1e-4, 10.0, 10.0, [(math.inf, math.inf)])
    for atoms in (100, 400):
        law = discretise([profile], grid)
        grid = refined(grid, plainly(law), atoms)
        law = discretise([profile], grid)
        found = ComposedLoss(law, [LawTerms(0, 0, 1.0, 1)]).moments(0.0)
        foretold, _ = roughness(grid, plainly(law))
        assert found.variance - 1.0 == pytest.approx(foretold, rel=0.3)


# Composition, against plain convolution

LOSSES = np.array([-0.04, -0.03, -0.02, -0.01, 0.01, 0.02, 0.03, 0.04])
SMALL = [0.0, 0.1, 0.2, 0.05, 0.1, 0.2, 0.199, 0.0]  # and 0.15 at 0
LARGE = [0.05, 0.1, 0.1, 0.05, 0.1, 0.2, 0.1, 0.197]  # and 0.1 at 0
LAWS = Laws(LOSSES, np.array([SMALL, LARGE]), np.array([1e-3, 3e-3]))
INTERVAL = 0.01

TERMS = {
    "one": [LawTerms(0, 0, 1.0, 1)],
    "many": [LawTerms(0, 0, 1.0, 40)],
    "mixed": [LawTerms(0, 1, 0.3, 5), LawTerms(1, 1, 1.0, 2), LawTerms(0, 1, 0.9, 3)],
    "rare": [LawTerms(0, 1, 1e-6, 30)],
}


def convolved(terms: list[LawTerms]) -> tuple[FloatArray, FloatArray, float]:
    """Losses, probabilities and what is infinite of a composition, by plain convolution."""
    probabilities, finite = np.ones(1), 1.0
    full = [np.insert(law, 4, 1 - law.sum() - lost) for law, lost in zip(LAWS.probabilities, LAWS.infinite)]
    for term in terms:
        mixed = (1 - term.weight) * full[term.lower] + term.weight * full[term.upper]
        for _ in range(term.times):
            probabilities, finite = np.convolve(probabilities, mixed), finite * float(mixed.sum())
    reach = (probabilities.size - 1) // 2
    return INTERVAL * np.arange(-reach, reach + 1), probabilities, 1 - finite


def exact_delta(terms: list[LawTerms], epsilon: float) -> float:
    losses, probabilities, infinite = convolved(terms)
    return float(np.dot(np.maximum(-np.expm1(epsilon - losses), 0.0), probabilities)) + infinite


@pytest.mark.some(4)
@pytest.mark.parametrize("name", TERMS)
@pytest.mark.parametrize("share", [0.5, 1.0, 1.3])
def test_the_fourier_sum_agrees_with_plain_convolution(name: str, share: float) -> None:
    """With hardly any smoothing; never below, and at orders near the saddle point's hardly above."""
    composed = ComposedLoss(LAWS, TERMS[name])
    for epsilon in (0.004, 0.013, 0.055):
        exact = exact_delta(TERMS[name], epsilon)
        order = share * pld.at_epsilon(composed, epsilon, 1.0).order if epsilon < composed.highest else 10.0
        found = FourierBound(composed, order, 40 / order, 2e-5).delta(epsilon)
        assert exact * (1 - 1e-12) <= found <= exact * (1 + 2e-4)


@pytest.mark.parametrize("name", TERMS)
@pytest.mark.parametrize("period", [0.02, 0.1, 0.5])
def test_a_short_period_only_adds(name: str, period: float) -> None:
    """All terms of Poisson's formula are positive: with a period far too short deltas are too large, not too small."""
    composed = ComposedLoss(LAWS, TERMS[name])
    for epsilon in (0.0, 0.02, 0.055, 0.1):
        for order in (3.0, 40.0):
            bound = FourierBound(composed, order, period, 1e-3)
            assert bound.delta(epsilon) >= exact_delta(TERMS[name], epsilon) * (1 - 1e-12)
    assert FourierBound(composed, 3.0, 0.02, 1e-3).delta(0.02) > 1.5 * exact_delta(TERMS[name], 0.02)


@pytest.mark.parametrize("name", TERMS)
@pytest.mark.parametrize("order", [5.0, 60.0, 300.0])
def test_smoothing_and_a_sum_that_ends_early_only_add(name: str, order: float, monkeypatch: pytest.MonkeyPatch) -> None:
    composed = ComposedLoss(LAWS, TERMS[name])
    for fall in (34.0, 3.0, 0.5):
        monkeypatch.setattr(composition, "_FALL", fall)
        for smoothing in (1e-3, 0.02, 0.3):
            bound = FourierBound(composed, order, 2.0, smoothing)
            for epsilon in (0.0, 0.02, 0.055, 0.1):
                for smoother in (1.0, 2.0):
                    assert bound.delta(epsilon, smoother) >= exact_delta(TERMS[name], epsilon) * (1 - 1e-12)


def test_rounding_errors_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """In arithmetic that is thought to have eleven digits, the bound is larger by about as much."""
    composed = ComposedLoss(LAWS, TERMS["many"])
    plan = pld.at_epsilon(composed, 0.1, 1.0).order, 3.0, 1e-3
    fine = FourierBound(composed, *plan).delta(0.1)
    monkeypatch.setattr(composition, "_ROUNDING", 1e-11)
    assert fine * (1 + 1e-10) < FourierBound(composed, *plan).delta(0.1) < fine * (1 + 1e-5)


def test_far_tails_keep_their_relative_accuracy() -> None:
    """Where a plain transform drowns in rounding errors of 1e-17: against exact integer arithmetic."""
    laws = Laws(np.array([-0.01, 0.01]), np.array([[0.5, 0.5]]), np.zeros(1))
    composed = ComposedLoss(laws, [LawTerms(0, 0, 1.0, 1000)])
    epsilon = 7.995  # only 900 or more steps up of 1000 exceed it
    exact = sum(
        math.comb(1000, ups) / 2**1000 * -math.expm1(epsilon - (2 * ups - 1000) * INTERVAL) for ups in range(900, 1001)
    )
    assert exact < 1e-150
    point = pld.at_epsilon(composed, epsilon, 1.0)
    period, order = pld.period_of(composed, point, 20.0)
    found = FourierBound(composed, order, period, 2e-5).delta(epsilon)
    assert exact * (1 - 1e-9) <= found <= exact * (1 + 1e-4)


def test_a_saddle_point_estimates_the_divergence() -> None:
    """Of N(mu^2/2, mu^2), in closed form; to ten percent."""
    profile = FullBatch(GaussianFull(1.0))
    grid = coarse(1e-4, 14.0, 14.0, [(math.inf, math.inf)])
    law = discretise([profile], refined(grid, even(grid), 2000))
    composed = ComposedLoss(law, [LawTerms(0, 0, 1.0, 1)])
    for epsilon in (0.5, 3.0, 6.0):
        exact = float(profile.forward(np.array([epsilon]))[0])
        point = pld.at_epsilon(composed, epsilon, 1.0)
        assert math.exp(point.log_delta) == pytest.approx(exact, rel=0.1)
        assert pld.at_delta(composed, point.log_delta, 1.0).epsilon == pytest.approx(epsilon, rel=1e-2)


def test_an_infinite_loss_that_is_too_likely_leaves_no_epsilon() -> None:
    bound = FourierBound(ComposedLoss(LAWS, [LawTerms(0, 0, 1.0, 10)]), 60.0, 2.0, 1e-3)
    assert bound.infinite == pytest.approx(1 - (1 - 1e-3) ** 10)
    assert bound.delta(1e6) == bound.infinite


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
    plain, turned = (Composition([ReleaseGroup(each, each, 1.0, 5)]) for each in (profile, mirror))
    assert turned.delta(1.0) == pytest.approx(plain.delta(1.0), rel=1e-9)
    assert turned.epsilon(1e-4) == pytest.approx(plain.epsilon(1e-4), rel=1e-9)


def test_one_rate_is_not_touched_and_neighbours_are_merged() -> None:
    one: Profile = PoissonSampled(GaussianFull(1.0), 0.1)
    assert merge({one: 3}) == [ReleaseGroup(one, one, 1.0, 3)]
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
