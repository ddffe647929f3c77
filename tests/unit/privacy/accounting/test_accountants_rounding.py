"""Rounding errors of the accountant: where many are added up or magnified, figures stay above the exact ones."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from mpmath import binomial, erfc, exp, expm1, log1p, mp, mpf, sqrt

from gossamer.privacy.accounting import accountants, composition
from gossamer.privacy.accounting.composition import (
    ComposedLoss,
    FourierBound,
    Laws,
    LawTerms,
    LossGrid,
    coarse,
    discretise,
)
from gossamer.privacy.accounting.pld import Turned
from gossamer.privacy.mechanisms import FixedSize, Gaussian, Laplace, NeighboringRelation, Poisson, ReleaseKind
from gossamer.privacy.pairs import (
    FixedSizeSampled,
    FullBatch,
    GaussianFull,
    PoissonReplaced,
    PoissonSampled,
    Profile,
    ResponseFull,
)

ADD, REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE
SHARES = (0.3456789, 0.4, 0.41, 0.4123, 0.42, 0.43, 0.44)


def tiny_and_huge(share: float) -> Laws:
    """Losses of 1e-7 either way, and one of 50 that hardly ever occurs."""
    return Laws(
        np.array([-1e-7, 1e-7, 50.0]),
        np.array([[share * (1 - 1e-7), share, 0.0], [0.0, 0.0, 1e-300]]),
        np.zeros(2),
    )


@pytest.mark.parametrize("share", SHARES)
def test_the_moments_of_tiny_losses_are_exact_beside_a_huge_one(share: float) -> None:
    """exp(order loss) of the huge one overflows; a rounding error of 1e-16 in each of 10^12 releases is 1e-4."""
    laws, order, count = tiny_and_huge(share), 13.9, 10**12
    found = ComposedLoss(laws, [LawTerms(0, 0, 1.0, count), LawTerms(1, 1, 1.0, 1)]).moments(order).log
    with mp.workdps(40):
        below, above = (mpf(float(p)) for p in laws.probabilities[0, :2])
        exact = count * log1p(below * expm1(mpf(order) * mpf(-1e-7)) + above * expm1(mpf(order) * mpf(1e-7)))
        exact += log1p(mpf(1e-300) * expm1(mpf(order) * 50))
    assert found == pytest.approx(float(exact), abs=1e-9)


@pytest.mark.parametrize("share", SHARES)
def test_one_more_release_never_lowers_delta(share: float) -> None:
    """The bounds of 10^12 tiny losses with a huge, rare one and without it, at the same order."""
    laws, plan = tiny_and_huge(share), (13.9, 10.0, 1e-3)
    alone = Laws(laws.losses[:2], laws.probabilities[:1, :2], np.zeros(1))
    without = FourierBound(ComposedLoss(alone, [LawTerms(0, 0, 1.0, 10**12)]), *plan)
    both = FourierBound(ComposedLoss(laws, [LawTerms(0, 0, 1.0, 10**12), LawTerms(1, 1, 1.0, 1)]), *plan)
    rare = math.log1p(math.exp(50 * 13.9 + math.log(1e-300)))  # the other factor of M(order)
    assert both.log_delta(0.12) >= without.log_delta(0.12) + rare - 1e-6


def test_logarithms_of_factors_that_are_all_but_zero() -> None:
    """log(1 + f) with f near -1, where abs(1 + f)^2 is lost in rounding, and with a small f."""
    values = np.array([-1 + 1e-10, -1 + 1e-9j, -1 + 1e-7 - 1e-7j, -0.9, 1e-12 + 1e-13j, -1.0])
    sizes = composition._log1p(values).real
    expected = [abs(1 + value) for value in values[:4]]
    assert sizes[:4] == pytest.approx([math.log(size) for size in expected], rel=1e-6)
    assert sizes[4] == pytest.approx(1e-12, rel=1e-9)
    assert sizes[5] < -500


def test_what_rounding_may_take_covers_factors_near_zero() -> None:
    """Probabilities that are wrong in the seventh digit: |M(z)/M(t)| stays within what such rounding is said to do.

    Two releases of losses either way, so that some factors are all but 0.
    """
    rng = np.random.default_rng(8)
    losses = np.array([-0.3, -0.1, 0.1, 0.3])
    rounding, order, step, count = 1e-7, 2.0, 0.05, 400
    for _ in range(20):
        law = rng.dirichlet(np.full(5, 0.3))[:4]
        wrong = law * (1 + rounding * rng.choice([-1, 1], 4))
        terms = [LawTerms(0, 0, 1.0, 1), LawTerms(1, 1, 1.0, 1)]
        near, far = (
            ComposedLoss(Laws(losses, np.array([each, each[::-1]]), np.zeros(2)), terms) for each in (law, wrong)
        )
        found, larger = near.spectrum(order, step, count, rounding)
        other, _ = far.spectrum(order, step, count, rounding)
        assert np.all(np.exp(other.real) <= np.exp(found.real + larger) * (1 + 1e-12))
        assert np.all(np.exp(found.real + larger) <= np.exp(found.real) + 2e-3)


PROFILES: list[Profile] = [
    PoissonSampled(GaussianFull(1.0), 0.05),
    PoissonSampled(GaussianFull(0.2), 0.9),
    PoissonSampled(ResponseFull(1.3), 0.2),
    PoissonReplaced(1.0, 0.1),
    FixedSizeSampled(GaussianFull(2.0), 0.25),
]


@pytest.mark.parametrize("profile", PROFILES, ids=repr)
def test_the_second_law_of_a_discrete_pair_has_a_mass_of_at_most_one(profile: Profile) -> None:
    """Of a larger one, all losses would be too small by its logarithm, in each of 10^9 releases."""
    ahead, back = (max(end, 0.2) for end in profile.largest(1e-12))
    grid = coarse(1e-4, ahead, back, [profile.largest(0.0)])
    law, reverse = discretise([profile], grid), discretise([Turned(profile)], LossGrid(grid.back, grid.ahead))
    with mp.workdps(40):
        at_zero = 1 - mpf(float(law.infinite[0])) - sum(mpf(float(p)) for p in law.probabilities[0])
        finite = sum(mpf(float(p)) * exp(-mpf(float(x))) for p, x in zip(law.probabilities[0], law.losses))
        assert finite + at_zero + mpf(float(reverse.infinite[0])) <= 1


@pytest.mark.parametrize("single", [1e-10, 1e-9, 1e-8, 1e-6])
@pytest.mark.parametrize("rate", [0.77, 0.3, 0.01])
def test_tiny_losses_of_samples_are_not_lost_in_a_logarithm(single: float, rate: float) -> None:
    """log(1 + q (exp(epsilon) - 1)) is the largest loss of a sampled Laplace release, and needed at a tiny delta."""
    ahead, _ = PoissonSampled(ResponseFull(1 / (1 / single)), rate).largest(0.0)
    counts = {ReleaseKind(Laplace(1.0, 1 / single), Poisson(rate), 1): 10}
    with mp.workdps(40):
        exact = log1p(mpf(rate) * expm1(mpf(1) / mpf(1 / single)))
        assert 0 <= ahead / exact - 1 < 2e-15
        assert 0 <= accountants.epsilon(counts, 1e-30, ADD).epsilon / (10 * exact) - 1 < 1e-14


def normal(x: mpf) -> mpf:
    return erfc(-x / sqrt(mpf(2))) / 2


@pytest.mark.parametrize(
    ("mu", "epsilon"), [(23957.573074425203, 287657413.9520193), (5000.0, 12.6e6), (96.5, 5000.0), (31.0, 900.0)]
)
def test_divergences_of_releases_that_reveal_all_are_not_rounded_down(mu: float, epsilon: float) -> None:
    """Phi(mu/2 - e/mu) - exp(e) Phi(-mu/2 - e/mu), whose exponents lose what exceeds a margin of 1e-10 at such a mu."""
    with mp.workdps(60):
        m, e = mpf(mu), mpf(epsilon)
        exact = normal(m / 2 - e / m) - exp(e) * normal(-m / 2 - e / m)
    found = float(FullBatch(GaussianFull(mu)).forward(np.array([epsilon]))[0])
    assert 0 <= found / exact - 1 < 1e-8


def test_releases_that_reveal_all_beside_sampled_ones() -> None:
    """A full batch whose losses are about 202,000 +- 636: a coarse grid has all of them in one cell.

    Epsilon was too large by 1.7 %, and the delta of it was 1. The other releases' losses are 3,000 at most times less.
    """
    full = {ReleaseKind(Gaussian(1.0, 0.1693471804041998), FixedSize(3, 3), 1): 2902}
    sampled = {ReleaseKind(Gaussian(1.0, 5.750973514311086), Poisson(0.025215039049812978), 1): 209_476}
    delta = 3.1e-6
    together = accountants.epsilon({**full, **sampled}, delta, REPLACE).epsilon
    assert delta * 0.99 <= accountants.delta({**full, **sampled}, together, REPLACE) <= delta
    # Each alone at half of delta: an upper bound that needs no composition.
    apart = sum(accountants.epsilon(each, delta / 2, REPLACE).epsilon for each in (full, sampled))
    assert accountants.epsilon(full, delta, REPLACE).epsilon < together < apart


@pytest.mark.parametrize(
    ("multiplier", "rate", "releases", "delta"),
    [(1.446090999537674, 2.056411783519238e-07, 4, 2.834e-119), (3.1, 2.9e-6, 214, 1e-200)],
)
def test_a_tiny_delta_of_rare_large_losses_has_an_epsilon(
    multiplier: float, rate: float, releases: int, delta: float
) -> None:
    """Where the tilted mean leaps from no large loss to many, an estimate from it has nothing to do with delta."""
    counts = {ReleaseKind(Gaussian(1.0, multiplier), Poisson(rate), 1): releases}
    epsilon = accountants.epsilon(counts, delta, REPLACE).epsilon
    single = accountants.epsilon({kind: 1 for kind in counts}, delta, REPLACE).epsilon
    assert (
        single <= epsilon <= releases * accountants.epsilon({k: 1 for k in counts}, delta / releases, REPLACE).epsilon
    )


def test_a_loss_above_all_that_are_possible_is_not_counted_as_infinite() -> None:
    """Two losses of a sampled Laplace release, against the binomial sum; rounding left 4e-16 above the larger one."""
    scale, rate, releases, epsilon = 10.646383927274297, 0.9053072035510012, 190, 9.44795431993186
    with mp.workdps(40):
        full, q = 1 / mpf(scale), mpf(rate)
        truth = 1 / (1 + exp(-full))
        up, down = log1p(q * expm1(full)), log1p(q * expm1(-full))  # of one removed; their negatives of one added
        exact = max(
            binomial_delta(up, q * truth + (1 - q) * (1 - truth), down, releases, epsilon),
            binomial_delta(-down, truth, -up, releases, epsilon),
        )
    counts = {ReleaseKind(Laplace(1.0, scale), Poisson(rate), 1): releases}
    assert exact < 1e-15
    assert exact <= accountants.delta(counts, epsilon, ADD) <= 1.001 * exact


@pytest.mark.parametrize(("scale", "releases"), [(2.754546412501501, 7), (0.25681834225521677, 1153)])
def test_the_sum_of_pure_epsilons_is_rounded_up(scale: float, releases: int) -> None:
    """At the sum itself delta is 0, so it must not be below the exact one."""
    counts = {ReleaseKind(Laplace(1.0, scale), Poisson(1.0), 1): releases}
    with mp.workdps(40):
        excess = accountants.epsilon(counts, 1e-200, ADD).epsilon / (releases / mpf(scale)) - 1
        assert 0 <= excess < 1e-14


def binomial_delta(high: mpf, share: mpf, low: mpf, releases: int, epsilon: float) -> mpf:
    """Of losses ``high`` with probability ``share`` and ``low`` else."""
    total = mpf(0)
    for k in range(releases + 1):
        loss = k * high + (releases - k) * low
        if loss > epsilon:
            total += binomial(releases, k) * share**k * (1 - share) ** (releases - k) * (1 - exp(epsilon - loss))
    return total


def test_losses_far_above_a_pure_epsilon_have_no_warning() -> None:
    """Divergences of a small Laplace release at the losses of a full batch that reveals all."""
    counts = {
        ReleaseKind(Gaussian(1.0, 0.3), Poisson(1.0), 1): 10**6,
        ReleaseKind(Laplace(1.0, 3.4), Poisson(0.008), 1): 10**4,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert 0 < accountants.epsilon(counts, 1e-5, ADD).epsilon < math.inf
