"""The profile of L2-Laplace noise: closed forms, slow references, sampling, and that it is never below any of them."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from gossamer.errors import AccountingError
from gossamer.privacy.accounting import accountants
from gossamer.privacy.accounting.composition import LossGrid, discretise
from gossamer.privacy.accounting.pld import Composition, Turned
from gossamer.privacy.mechanisms import FixedSize, L2Laplace, NeighboringRelation, Poisson, ReleaseKind
from gossamer.privacy.pairs import (
    FixedSizeSampled,
    FullBatch,
    GaussianFull,
    L2LaplaceFull,
    PoissonSampled,
    ReleaseGroup,
    ResponseFull,
)

pytest.importorskip("mpmath")  # comes with PyTorch
from tests.reference.l2_laplace_slow import by_density, by_norm, sampled_losses, three_dimensional

ADD, REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE
SETTINGS = [(0.1, 2), (1.0, 3), (30.0, 7), (2.0, 40), (12.0, 144), (1e-3, 5), (400.0, 2)]
settings = pytest.mark.parametrize(("epsilon", "size"), SETTINGS)


def at(epsilon: float, size: int, *losses: float) -> np.ndarray:
    return L2LaplaceFull(epsilon, size).divergence(np.array(losses))


# The curve


@settings
@pytest.mark.parametrize("share", [0.0, 0.02, 0.2, 0.5])
def test_it_is_the_integral_over_the_noise_s_norm(epsilon: float, size: int, share: float) -> None:
    """P(L > e) - exp(e) Q(L > e) by the noise's own polar coordinates, which the density of the loss does not use."""
    loss = share * min(epsilon, 5 * epsilon / math.sqrt(size) + 10)
    slow = by_norm(epsilon, size, loss)
    assert at(epsilon, size, loss)[0] == pytest.approx(slow, rel=1e-4, abs=2e-11)
    assert at(epsilon, size, loss)[0] >= slow - 2e-11 - math.exp(loss) * 1e-12


@pytest.mark.parametrize("epsilon", [0.3, 2.0, 25.0])
def test_three_dimensions_in_elementary_functions(epsilon: float) -> None:
    for share in (0.0, 0.1, 0.4, 0.8):
        exact = three_dimensional(epsilon, share * epsilon)
        assert at(epsilon, 3, share * epsilon)[0] == pytest.approx(exact, rel=1e-4, abs=1e-13)
        assert at(epsilon, 3, share * epsilon)[0] >= exact * (1 - 1e-12) - 1e-14


@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 40.0])
def test_one_dimension_is_the_laplace_mechanism(epsilon: float) -> None:
    """1 - exp((e - epsilon)/2): the best set is x < s, s = (1 - e/epsilon)/2, with P = 1 - exp(-epsilon s)/2."""
    losses = np.linspace(0, 1.2 * epsilon, 7)
    exact = np.maximum(1 - np.exp((losses - epsilon) / 2), 0)
    assert L2LaplaceFull(epsilon, 1).divergence(losses) == pytest.approx(exact, rel=1e-12, abs=1e-15)
    by_hand = by_laplace_density(epsilon, 0.4 * epsilon)
    assert at(epsilon, 1, 0.4 * epsilon)[0] == pytest.approx(by_hand, abs=1e-6)


def by_laplace_density(epsilon: float, loss: float) -> float:
    """The midpoint rule for the positive part of p(x) - exp(loss) p(x - 1), p the Laplace density."""
    step = 1e-4 / epsilon
    x = np.arange(-20 / epsilon, 20 / epsilon + 1, step) + step / 2
    p, q = (epsilon / 2 * np.exp(-epsilon * np.abs(x - centre)) for centre in (0, 1))
    return float(np.sum(np.maximum(p - math.exp(loss) * q, 0)) * step)


@pytest.mark.some(3)
@pytest.mark.parametrize(
    ("epsilon", "size"),
    [(1e-4, 2), (1.0, 3), (0.1, 784), (300.0, 1000), (1e5, 2), (1e5, 40), (5e3, 700), (1e6, 2000)],
)
def test_at_the_table_s_losses_it_is_exact_to_ten_digits_far_into_the_tail(epsilon: float, size: int) -> None:
    """Against 40 digits: never below, and above by the stated margin of 1e-9 and at most a tenth of it more."""
    from gossamer.privacy.pairs import _table

    table = _table(epsilon, size)
    near = [int(np.argmax(table.divergences < level)) for level in (0.9, 0.1, 1e-6, 1e-14, 1e-60)]
    chosen = sorted({index for index in near if 0 < index < table.losses.size - 1})
    exact = by_density(epsilon, size, table.losses[chosen])
    ratios = np.array([float(found / value) for found, value in zip(table.divergences[chosen], exact)])
    assert np.all(ratios >= 1 + 0.9e-9)
    assert np.all(ratios <= 1 + 1.1e-9)


@pytest.mark.some(3)
@settings
def test_between_the_table_s_losses_it_is_above_by_next_to_nothing(epsilon: float, size: int) -> None:
    top = L2LaplaceFull(epsilon, size).largest(1e-12)
    losses = top * np.array([0.0123, 0.1234, 0.5432])
    ratios = [
        float(found / exact) for found, exact in zip(at(epsilon, size, *losses), by_density(epsilon, size, losses))
    ]
    assert 1 <= min(ratios) <= max(ratios) < 1 + 2e-4


@pytest.mark.parametrize("size", [10**4, 10**7])
@pytest.mark.parametrize("mu", [1e-3, 0.3, 2.0])
def test_many_dimensions_are_gaussian_noise(size: int, mu: float) -> None:
    """With mu = epsilon/sqrt(size); deviations are of order 1/size, times powers of how far out the loss is."""
    losses = mu * np.array([0.0, 1.0, 2.0])
    gaussian = GaussianFull(mu).divergence(losses)
    assert L2LaplaceFull(mu * math.sqrt(size), size).divergence(losses) == pytest.approx(gaussian, rel=40 / size + 1e-4)


@settings
def test_no_more_than_randomized_response_and_no_less_in_fewer_dimensions(epsilon: float, size: int) -> None:
    losses = np.linspace(0, epsilon, 50)
    full = L2LaplaceFull(epsilon, size).divergence(losses)
    assert np.all(full <= ResponseFull(epsilon).divergence(losses))
    assert np.all(full <= L2LaplaceFull(epsilon, size - 1).divergence(losses) * (1 + 2e-9))


@settings
def test_it_grows_with_epsilon(epsilon: float, size: int) -> None:
    losses = np.linspace(0, epsilon, 50)
    less, more = (L2LaplaceFull(factor * epsilon, size).divergence(losses) for factor in (1.0, 1.01))
    assert np.all(less <= more * (1 + 1e-12))
    inside = (less > 1e-12) & (less < 0.999)
    assert np.all(less[inside] < more[inside])
    assert inside.any()


@settings
def test_it_is_the_curve_of_a_pair(epsilon: float, size: int) -> None:
    """Falling and convex in exp(loss), between max(0, 1 - exp(loss)) and 1: compared as slopes."""
    losses = np.linspace(0, min(epsilon, 30.0), 400)
    values = L2LaplaceFull(epsilon, size).divergence(losses)
    assert np.all((values >= 0) & (values <= 1))
    slopes = np.diff(values) / np.diff(np.exp(losses))
    assert np.all(slopes <= 0)
    assert np.all(np.diff(slopes) >= -1e-8 * np.abs(slopes[:-1]))


# The worst shift


@pytest.mark.some(5)
@pytest.mark.parametrize(("epsilon", "size"), [(0.5, 2), (3.0, 5), (20.0, 30)])
@pytest.mark.parametrize("share", [-0.4, -0.05, 0.0, 0.05, 0.3])
def test_a_longer_shift_reveals_more_at_every_loss(epsilon: float, size: int, share: float) -> None:
    """The lemma of the module's docstring, by quadrature over the norm, for losses of either sign."""
    loss = share * epsilon
    found = [by_norm(epsilon, size, loss, shift) for shift in (0.2, 0.5, 0.9, 1.0)]
    slack = 1e-9 + math.exp(loss) * 1e-10
    assert all(shorter <= longer + slack for shorter, longer in pairwise(found))
    assert found[0] < found[-1]


def test_sampled_noise_has_this_divergence_in_any_direction_and_less_for_a_shorter_shift() -> None:
    """200,000 draws of the noise in 20 dimensions, four standard errors: a false alarm in 1 of 5,000 of these tests.

    The same draws reject the profile of an epsilon 5 % larger and that of 18 dimensions.
    """
    epsilon, size, loss = 6.0, 20, 0.5
    shift = np.array([0.48, -0.6, 0.64])  # of length 1
    losses = sampled_losses(epsilon, size, shift, 200_000, seed=11)
    gains = np.maximum(-np.expm1(loss - losses), 0)
    mean, error = float(np.mean(gains)), float(np.std(gains)) / math.sqrt(gains.size)
    assert abs(mean - at(epsilon, size, loss)[0]) < 4 * error
    assert abs(mean - at(1.05 * epsilon, size, loss)[0]) > 6 * error
    assert abs(mean - at(epsilon, 18, loss)[0]) > 6 * error
    shorter = np.maximum(-np.expm1(loss - sampled_losses(epsilon, size, 0.9 * shift, 200_000, seed=12)), 0)
    assert float(np.mean(shorter)) < mean - 6 * error


# As a profile


PROFILES = [
    FullBatch(L2LaplaceFull(0.7, 2)),
    FullBatch(L2LaplaceFull(30.0, 650)),
    PoissonSampled(L2LaplaceFull(60.0, 650), 0.02),
    PoissonSampled(L2LaplaceFull(3.0, 1), 0.3),
    FixedSizeSampled(L2LaplaceFull(20.0, 50), 0.1),
]


@pytest.mark.parametrize("profile", PROFILES, ids=repr)
def test_its_discrete_pair_is_a_pair_of_laws(profile: FullBatch) -> None:
    grid = LossGrid(*(np.append(np.arange(0.0, end, 0.01), end) for end in profile.largest(1e-12)))
    ahead, back = discretise([profile], grid), discretise([Turned(profile)], LossGrid(grid.back, grid.ahead))
    for one, other in ((ahead, back), (back, ahead)):
        masses, at_zero = one.probabilities[0], 1 - one.probabilities.sum() - one.infinite[0]
        assert at_zero > -1e-8
        assert np.dot(masses, np.exp(-one.losses)) + at_zero + other.infinite[0] == pytest.approx(1.0, abs=1e-8)
        gains = np.maximum(-np.expm1(0.2 - one.losses), 0)
        exact = (profile.forward if one is ahead else profile.backward)(np.array([0.2]))[0]
        assert np.dot(gains, masses) + one.infinite[0] == pytest.approx(exact, abs=1e-8)


@pytest.mark.parametrize("profile", PROFILES, ids=repr)
def test_tails_are_cut_where_they_are_small_enough(profile: FullBatch) -> None:
    for tail in (1e-3, 1e-12, 1e-40):
        forward, backward = profile.largest(tail)
        assert profile.forward(np.array([forward * (1 + 1e-14)]))[0] <= tail
        assert profile.backward(np.array([backward * (1 + 1e-14)]))[0] <= tail
    full = profile.full
    assert full.largest(0.0) == full.epsilon >= full.largest(1e-40) >= full.largest(1e-12) > 0  # type: ignore[attr-defined]


@pytest.mark.parametrize("sampled", [PoissonSampled, FixedSizeSampled])
def test_sampled_profiles_are_convex_in_the_rate(sampled: type[PoissonSampled]) -> None:
    """What merging rates rests on."""
    losses = np.linspace(0, 1, 30)
    for side in ("forward", "backward"):
        low, middle, high = (getattr(sampled(L2LaplaceFull(8.0, 20), q), side)(losses) for q in (0.1, 0.2, 0.3))
        assert np.all(middle <= (low + high) / 2 * (1 + 1e-6) + 1e-15)
        assert np.all(low <= middle * (1 + 1e-6))


def test_two_releases_compose_as_sampling_them_says() -> None:
    """400,000 draws of two losses; four standard errors, so a false alarm in 1 of 15,000."""
    epsilon, size, total = 4.0, 9, 0.7
    losses = sampled_losses(epsilon, size, np.array([1.0]), 800_000, seed=5).reshape(2, -1).sum(0)
    gains = np.maximum(-np.expm1(total - losses), 0)
    mean, error = float(np.mean(gains)), float(np.std(gains)) / math.sqrt(gains.size)
    profile = FullBatch(L2LaplaceFull(epsilon, size))
    found = Composition([ReleaseGroup(profile, profile, 1.0, 2)]).delta(total)
    assert abs(found - mean) < 4 * error
    assert abs(found - mean) < 0.02 * mean


def test_laplace_noise_on_one_number_composes_as_dp_accounting_says() -> None:
    """from_laplace_mechanism, whose discretisation is pessimistic too, full batch and on Poisson samples."""
    from dp_accounting.pld import privacy_loss_distribution

    for rate, count in ((1.0, 30), (0.1, 200)):
        single = privacy_loss_distribution.from_laplace_mechanism(
            2.0, value_discretization_interval=1e-4, sampling_prob=rate
        )
        reference = single.self_compose(count).get_epsilon_for_delta(1e-6)
        kind = ReleaseKind(L2Laplace(1.0, 0.5, ADD), Poisson(rate), 1)
        found = accountants.epsilon({kind: count}, 1e-6, ADD).epsilon
        assert found == pytest.approx(reference, rel=2e-3)


# Rows


def test_fifteen_thousand_releases_of_the_paper() -> None:
    """MAPA on MNIST, Figure 6: d = 7,840, eps = 0.1; nearly Gaussian DP with mu = 0.1/sqrt(7840) each."""
    kind = ReleaseKind(L2Laplace(1.0, 0.1, ADD), Poisson(1.0), 7840)
    found = accountants.epsilon({kind: 15_000}, 1e-5, ADD)
    mu = 0.1 * math.sqrt(15_000 / 7840)
    limit = GaussianFull(mu)
    assert limit.divergence(np.array([found.epsilon]))[0] == pytest.approx(1e-5, rel=5e-3)
    assert found.accountant == "PLD of the L2-Laplace law"


def test_the_size_matters() -> None:
    kinds = [ReleaseKind(L2Laplace(1.0, 5.0, ADD), Poisson(0.1), size) for size in (10, 1000)]
    few, many = (accountants.epsilon({kind: 50}, 1e-5, ADD).epsilon for kind in kinds)
    assert many < few / 5


def test_a_poisson_sample_under_replace_one_is_within_the_pair_used_for_it() -> None:
    """Outputs on a sample with own example +1, against -1 in its place, on one number: by quadrature of densities.

    `gossamer.privacy.accounting.accountants` proves it for everything; this would notice a slip in sensitivity or
    direction.
    """
    epsilon, rate = 1.5, 0.3
    kind = ReleaseKind(L2Laplace(1.0, epsilon, ADD), Poisson(rate), 1)
    from gossamer.privacy.accounting.accountants import row_of

    profile = row_of(kind, REPLACE).profile(kind)
    step = 1e-4
    x = np.arange(-25, 25, step) + step / 2
    still, ahead, back = (epsilon / 2 * np.exp(-epsilon * np.abs(x - centre)) for centre in (0, 1, -1))
    p, q = (1 - rate) * still + rate * ahead, (1 - rate) * still + rate * back
    for loss in (0.0, 0.1, 0.3, 0.6):
        actual = float(np.sum(np.maximum(p - math.exp(loss) * q, 0)) * step)
        assert actual <= profile.forward(np.array([loss]))[0] + 1e-8
    same = ReleaseKind(L2Laplace(1.0, epsilon, ADD), FixedSize(10, 3), 1)
    assert profile == row_of(same, REPLACE).profile(same)


@pytest.mark.parametrize(("epsilon", "size"), [(0.0, 3), (math.inf, 3), (math.nan, 3), (1.0, 0)])
def test_what_is_not_noise_is_refused(epsilon: float, size: int) -> None:
    with pytest.raises(AccountingError, match="needs a finite epsilon > 0 and a size of at least 1"):
        L2LaplaceFull(epsilon, size)


def test_beyond_the_range_of_the_table_the_pure_bound_holds() -> None:
    losses = np.array([0.0, 1e6, 2e6])
    assert np.array_equal(L2LaplaceFull(3e6, 5).divergence(losses), ResponseFull(3e6).divergence(losses))
    assert L2LaplaceFull(3e6, 5).largest(1e-3) == 3e6
