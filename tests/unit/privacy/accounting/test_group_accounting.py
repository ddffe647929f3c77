"""Epsilon for a person with several rows: dp-accounting, closed forms, and the actual outputs on small data sets."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import comb
from scipy.stats import binom, norm
from tests.reference.accounting_slow import (
    Density,
    divergence,
    dp_accounting_group_epsilon,
    gaussian_epsilon,
    mixture,
)

from gossamer.errors import AccountingError
from gossamer.privacy.accounting import accountants
from gossamer.privacy.accounting.accountants import MOST_ROWS, ROWS, AccountantRow, row_of
from gossamer.privacy.accounting.group_pairs import GroupReplaced, GroupSampled
from gossamer.privacy.accounting.planner import calibrate, gaussian_family, gaussian_releases
from gossamer.privacy.accounting.pld import Composition
from gossamer.privacy.mechanisms import (
    BallGaussian,
    BatchSampling,
    FixedSize,
    Gaussian,
    L2Laplace,
    Laplace,
    Mechanism,
    NeighboringRelation,
    Poisson,
    ReleaseKind,
)
from gossamer.privacy.pairs import GaussianFull, PoissonReplaced, PoissonSampled, Profile, ReleaseGroup

ADD, REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE
README = 4.708627  # the noise multiplier of README's demo: epsilon 5 at delta 1e-4, 300 releases of 60 in 179

FloatArray = npt.NDArray[np.float64]


def kind(mechanism: Mechanism, sampling: BatchSampling) -> ReleaseKind:
    return ReleaseKind(mechanism, sampling, 1)


def gaussian(multiplier: float, rate: float, count: int, rows: int, delta: float) -> float:
    counts = {kind(Gaussian(1.0, multiplier), Poisson(rate)): count}
    return accountants.epsilon(counts, delta, ADD, rows).epsilon


def composed(profile: Profile, count: int) -> Composition:
    return Composition([ReleaseGroup(profile, profile, 1.0, count)])


@pytest.mark.parametrize(("rows", "epsilon"), [(2, 11.9), (3, 20.4), (5, 42.3)])
def test_several_rows_cost_more_than_as_many_times_one(rows: int, epsilon: float) -> None:
    """Ganesh (2024), mixtures of Gaussians, with dp-accounting's figures: far from 10, 15 and 25."""
    assert gaussian(README, 0.335, 300, 1, 1e-4) == pytest.approx(5.0, abs=0.01)
    assert gaussian(README, 0.335, 300, rows, 1e-4) == pytest.approx(epsilon, abs=0.05)


# (noise multiplier, rate, rows, releases), delta, and an interval at which dp-accounting is fast and has converged
GROUPS = {
    "README, 2": ((README, 0.335, 2, 300), 1e-4, 5e-3),
    "README, 3": ((README, 0.335, 3, 300), 1e-4, 5e-3),
    "README, 5": ((README, 0.335, 5, 300), 1e-4, 1e-2),
    "small rate": ((1.0, 0.01, 4, 1000), 1e-5, 2e-3),
    "many rows": ((4.0, 0.02, 40, 100), 1e-6, 5e-3),
    "little noise": ((0.7, 0.05, 3, 20), 1e-6, 5e-3),
    "one release": ((1.0, 0.3, 3, 1), 1e-6, 5e-3),
    "nearly full": ((6.0, 0.95, 3, 30), 1e-6, 5e-3),
}


@pytest.mark.some(2)
@pytest.mark.parametrize("group", GROUPS)
def test_epsilon_of_a_group_agrees_with_dp_accounting(group: str) -> None:
    (multiplier, rate, rows, count), delta, interval = GROUPS[group]
    reference = dp_accounting_group_epsilon(multiplier, rate, rows, count, delta, interval)
    assert gaussian(multiplier, rate, count, rows, delta) == pytest.approx(reference, rel=2e-3)


@pytest.mark.parametrize("relation", [ADD, REPLACE])
@pytest.mark.parametrize("rows", [2, 7])
def test_on_all_data_rows_add_up_as_vectors(relation: NeighboringRelation, rows: int) -> None:
    counts = {kind(Gaussian(1.0, 30.0), Poisson(1.0)): 20}
    sensitivity = rows * relation.sensitivity(1.0) * math.sqrt(20)
    exact = gaussian_epsilon(sensitivity, 30.0, 1e-5)
    assert accountants.epsilon(counts, 1e-5, relation, rows).epsilon == pytest.approx(exact, rel=1e-3)


def test_a_fixed_batch_of_all_data_has_all_rows() -> None:
    counts = {kind(Gaussian(1.0, 30.0), FixedSize(9, 9)): 20}
    exact = gaussian_epsilon(2 * 4 * math.sqrt(20), 30.0, 1e-5)
    assert accountants.epsilon(counts, 1e-5, REPLACE, 4).epsilon == pytest.approx(exact, rel=1e-3)
    # no more rows can be a person's than there are
    everything = accountants.epsilon(counts, 1e-5, REPLACE, 50).epsilon
    assert everything == accountants.epsilon(counts, 1e-5, REPLACE, 9).epsilon


LOSSES = np.concatenate([[0.0], np.geomspace(1e-6, 20, 200)])


@pytest.mark.parametrize(("mu", "rate"), [(1.0, 0.01), (0.2, 0.335), (3.0, 0.5), (0.01, 0.9)])
def test_one_row_is_what_it_was(mu: float, rate: float) -> None:
    """The closed forms of one row, which are computed in another way."""
    sampled, one = PoissonSampled(GaussianFull(mu), rate), GroupSampled(mu, rate, 1)
    np.testing.assert_allclose(one.forward(LOSSES), sampled.forward(LOSSES), rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(one.backward(LOSSES), sampled.backward(LOSSES), rtol=1e-9, atol=1e-15)
    replaced = PoissonReplaced(mu, rate)
    np.testing.assert_allclose(
        GroupReplaced(mu, rate, 1).forward(LOSSES), replaced.forward(LOSSES), rtol=1e-9, atol=1e-15
    )
    assert one.rate == pytest.approx(rate, rel=1e-14)


@pytest.mark.some(6)
@pytest.mark.parametrize(
    "row", ROWS, ids=lambda row: f"{row.mechanism.__name__} {row.sampling.__name__} {row.relation}"
)
def test_every_row_of_the_table_has_a_pair_for_groups(row: AccountantRow) -> None:
    """And a pair for one row is that of the table."""
    laws = {
        BallGaussian: BallGaussian(1.0, 2.0),
        Gaussian: Gaussian(1.0, 2.0),
        L2Laplace: L2Laplace(1.0, 0.4, REPLACE),
        Laplace: Laplace(1.0, 3.0),
    }
    samplings = {Poisson: Poisson(0.2), FixedSize: FixedSize(20, 4)}
    relation, of = row.relation, kind(laws[row.mechanism], samplings[row.sampling])
    assert row_of(of, relation).profile(of, 1) == row.profile(of)
    epsilons = [accountants.epsilon({of: 5}, 1e-5, relation, rows).epsilon for rows in (1, 2, 3, 6)]
    assert all(b > 1.05 * a for a, b in itertools.pairwise(epsilons))


@pytest.mark.parametrize("rows", [0, -1, 2.5, MOST_ROWS + 1])
def test_what_is_no_number_of_rows_is_refused(rows: float) -> None:
    with pytest.raises(AccountingError, match=f"1 to {MOST_ROWS}"):
        accountants.epsilon({kind(Gaussian(1.0, 1.0), Poisson(0.1)): 1}, 1e-5, ADD, rows)  # type: ignore[arg-type]


# Actual outputs, in one dimension and units of the noise; clip 1. Other examples are in both data sets.
Q, MU = 0.3, 0.8
STEP = 4e-3
POINTS = np.arange(-12, 12, STEP) + STEP / 2


def law(weights: dict[float, float]) -> FloatArray:
    """Probabilities of the cells around `POINTS` of a mixture of unit normals, given as {mean: weight}."""
    table = norm.pdf(POINTS - np.array(list(weights))[:, None])
    return np.asarray(np.array(list(weights.values())) @ table) * STEP


def poisson(examples: tuple[float, ...]) -> FloatArray:
    weights: Counter[float] = Counter()
    for picks in itertools.product((0, 1), repeat=len(examples)):
        weights[round(MU * float(np.dot(picks, examples)), 12)] += math.prod(Q if pick else 1 - Q for pick in picks)
    return law(weights)


def fixed_size(examples: tuple[float, ...], size: int) -> FloatArray:
    sums = Counter(round(MU * sum(batch), 12) for batch in itertools.combinations(examples, size))
    return law({mean: count / sums.total() for mean, count in sums.items()})


def told(upper: FloatArray, lower: FloatArray) -> FloatArray:
    """H(upper||lower) at `EPSILONS`, by the midpoint rule."""
    return np.array([np.sum(np.maximum(upper - math.exp(epsilon) * lower, 0.0)) for epsilon in EPSILONS])


SIGNS = (1.0, -1.0, 0.4)
EPSILONS = np.array([0.0, 0.1, 0.5, 1.5])


@pytest.mark.parametrize("rest", [(), (1.0,), (-1.0, 0.4)])
@pytest.mark.parametrize("rows", [2, 3])
def test_no_person_of_a_poisson_sample_is_told_more_than_the_pairs_say(rest: tuple[float, ...], rows: int) -> None:
    """All persons of 1 to ``rows`` rows."""
    add, replace = GroupSampled(MU, Q, rows), GroupReplaced(MU, Q, rows)
    up, down, swap = (side(EPSILONS) + 1e-6 for side in (add.forward, add.backward, replace.forward))
    without = poisson(rest)
    for held in range(1, rows + 1):
        laws = [poisson((*own, *rest)) for own in itertools.combinations_with_replacement(SIGNS, held)]
        assert all((told(there, without) <= up).all() for there in laws)
        assert all((told(without, there) <= down).all() for there in laws)
        assert all((told(one, other) <= swap).all() for one, other in itertools.permutations(laws, 2))


@pytest.mark.parametrize("rows", [2, 4])
def test_a_person_whose_rows_all_agree_is_told_exactly_what_the_pairs_say(rows: int) -> None:
    """So no smaller epsilon could be proved of one release."""
    add, replace = GroupSampled(MU, Q, rows), GroupReplaced(MU, Q, rows)
    there, turned, away = poisson((1.0,) * rows), poisson((-1.0,) * rows), poisson(())
    np.testing.assert_allclose(told(there, away), add.forward(EPSILONS), atol=1e-6)
    np.testing.assert_allclose(told(away, there), add.backward(EPSILONS), atol=1e-6)
    np.testing.assert_allclose(told(there, turned), replace.forward(EPSILONS), atol=1e-6)


@pytest.mark.parametrize(
    ("rest", "size"), [((1.0,), 1), ((-1.0, -1.0), 2), ((1.0, -1.0), 3), ((-1.0, -1.0, 0.3), 2), ((1.0,) * 4, 2)]
)
@pytest.mark.parametrize("rows", [2, 3])
def test_no_person_of_a_fixed_batch_is_told_more_than_the_pair_says(
    rest: tuple[float, ...], size: int, rows: int
) -> None:
    of = kind(Gaussian(1.0, 1 / MU), FixedSize(len(rest) + rows, size))
    bound = row_of(of, REPLACE).profile(of, rows).forward(EPSILONS) + 1e-6
    laws = [fixed_size((*own, *rest), size) for own in itertools.combinations_with_replacement(SIGNS, rows)]
    assert all((told(one, other) <= bound).all() for one, other in itertools.permutations(laws, 2))


def in_the_plane(vectors: FloatArray) -> FloatArray:
    """The law of a Poisson sample of ``vectors`` [n, 2] on a grid of points."""
    line = np.arange(-9, 9, 0.025) + 0.0125
    total = np.zeros((line.size, line.size))
    for picks in itertools.product((0, 1), repeat=len(vectors)):
        centre = MU * np.array(picks) @ vectors if len(vectors) else np.zeros(2)
        weight = math.prod(Q if pick else 1 - Q for pick in picks)
        total += weight * np.outer(norm.pdf(line, centre[0]), norm.pdf(line, centre[1]))
    return total * 0.025**2


@pytest.mark.parametrize("angles", [(0.0, 0.0), (0.0, 1.0), (0.0, 2.0), (0.0, 1.5, 3.0)])
def test_rows_that_point_elsewhere_are_covered(angles: tuple[float, ...]) -> None:
    """In the plane, with the person's rows in different directions: less than on the line."""
    own = np.array([[math.cos(angle), math.sin(angle)] for angle in angles])
    pair, back = GroupSampled(MU, Q, len(angles)), GroupReplaced(MU, Q, len(angles))
    there, away, turned = in_the_plane(own), in_the_plane(own[:0]), in_the_plane(own @ np.array([[0, 1], [-1, 0]]))
    found = [told(there, away), told(away, there), told(there, turned)]
    bounds = [pair.forward(EPSILONS), pair.backward(EPSILONS), back.forward(EPSILONS)]
    assert all((value <= bound + 1e-5).all() for value, bound in zip(found, bounds))
    if angles == (0.0, 0.0):
        np.testing.assert_allclose(found[:2], bounds[:2], atol=2e-5)


WIDE = np.arange(-40, 40, STEP) + STEP / 2


def laplace_law(weights: dict[float, float]) -> FloatArray:
    table = np.exp(-np.abs(WIDE - np.array(list(weights))[:, None])) / 2
    return np.asarray(np.array(list(weights.values())) @ table) * STEP


@pytest.mark.parametrize("law", ["l2_laplace", "laplace"])
@pytest.mark.parametrize("rows", [2, 3])
def test_laplace_noise_tells_no_more_of_a_person(law: str, rows: int) -> None:
    """In one dimension both are Laplace noise of scale 1/MU in units of the clip; every pair of the table."""

    def mechanism(relation: NeighboringRelation) -> Mechanism:
        return Laplace(1.0, 1 / MU) if law == "laplace" else L2Laplace(1.0, MU * relation.sensitivity(1.0), relation)

    binomial = {MU * k: float(binom.pmf(k, rows, Q)) for k in range(rows + 1)}
    there, away = laplace_law(binomial), laplace_law({0.0: 1.0})
    turned = laplace_law({-mean: weight for mean, weight in binomial.items()})
    size, batch = rows + 2, 2
    # the two others are -1, and the rows 1, or -1 as well
    held = [math.comb(rows, k) * math.comb(2, batch - k) / math.comb(size, batch) for k in range(3)]
    one, other = laplace_law({MU * (2 * k - batch): held[k] for k in range(3)}), laplace_law({-MU * batch: 1.0})
    add, replace = (
        row_of(kind(mechanism(r), Poisson(Q)), r).profile(kind(mechanism(r), Poisson(Q)), rows) for r in (ADD, REPLACE)
    )
    fixed = row_of(kind(mechanism(REPLACE), FixedSize(size, batch)), REPLACE).profile(
        kind(mechanism(REPLACE), FixedSize(size, batch)), rows
    )
    for upper, lower, bound in (
        (there, away, add.forward),
        (away, there, add.backward),
        (there, turned, replace.forward),
        (one, other, fixed.forward),
        (other, one, fixed.forward),
    ):
        assert (told(upper, lower) <= bound(EPSILONS) + 1e-5).all()


def group(rows: int, rate: float, sign: float = 1.0) -> Density:
    numbers = np.arange(rows + 1)
    return mixture(list(sign * MU * numbers), list(binom.pmf(numbers, rows, rate)))


@pytest.mark.parametrize("epsilon", [0.4, 2.0])
def test_two_releases_of_a_group_compose_as_quadrature_in_the_plane_says(epsilon: float) -> None:
    there, away, turned = group(3, Q), group(0, Q), group(3, Q, -1.0)
    exact = max(divergence(there, away, epsilon, times=2), divergence(away, there, epsilon, times=2))
    assert composed(GroupSampled(MU, Q, 3), 2).delta(epsilon) == pytest.approx(exact, rel=2e-3)
    swapped = divergence(there, turned, epsilon, times=2)
    assert composed(GroupReplaced(MU, Q, 3), 2).delta(epsilon) == pytest.approx(swapped, rel=2e-3)


def test_rows_in_two_shards_are_composed_jointly() -> None:
    """Two releases of one row and one of two, at rates of their own, against quadrature."""
    epsilon, points = 0.6, POINTS[::2]
    first, second, away = (density(points) for density in (group(1, 0.5), group(2, 0.2), group(0, 0.5)))
    there, gone = np.multiply.outer(first, second), np.multiply.outer(away, away)
    exact = max(
        float(np.sum(np.maximum(p - math.exp(epsilon) * q, 0.0))) * (2 * STEP) ** 2
        for p, q in ((there, gone), (gone, there))
    )
    parts = [
        ({kind(Gaussian(1.0, 1 / MU), Poisson(0.5)): 1}, 1),
        ({kind(Gaussian(1.0, 1 / MU), Poisson(0.2)): 1}, 2),
    ]
    found = accountants.joint_epsilon(parts, exact, ADD).epsilon
    assert found == pytest.approx(epsilon, rel=2e-3)
    # two shards with the same releases are two, and one shard is what it is alone
    twice = accountants.joint_epsilon([parts[0], parts[0]], 1e-5, ADD).epsilon
    assert twice == accountants.epsilon({kind(Gaussian(1.0, 1 / MU), Poisson(0.5)): 2}, 1e-5, ADD).epsilon
    assert accountants.joint_epsilon([parts[1]], 1e-5, ADD) == accountants.epsilon(*parts[1][:1], 1e-5, ADD, 2)


def test_delta_and_epsilon_of_a_group_are_each_others() -> None:
    counts = {kind(Gaussian(1.0, 2.0), Poisson(0.1)): 50}
    epsilon = accountants.epsilon(counts, 1e-5, ADD, 3).epsilon
    assert accountants.delta(counts, epsilon, ADD, 3) == pytest.approx(1e-5, rel=1e-3)


@pytest.mark.some(1)
@pytest.mark.parametrize("relation", [ADD, REPLACE])
def test_many_rates_of_a_group_are_merged_from_above(relation: NeighboringRelation) -> None:
    """Their profiles are convex in 1 - (1-q)^m, so a few cells stand for thirty rates."""
    rates = np.geomspace(0.2, 0.4, 30)
    profile = GroupSampled if relation is ADD else GroupReplaced
    exact = Composition([ReleaseGroup(p, p, 1.0, 1) for p in (profile(0.4, float(rate), 3) for rate in rates)])
    merged = accountants.epsilon(
        {kind(Gaussian(1.0, 2.5), Poisson(float(rate))): 1 for rate in rates}, 1e-5, relation, 3
    ).epsilon
    lower = exact.epsilon(1e-5)
    assert lower * (1 - 1e-6) <= merged <= 1.005 * lower


@pytest.mark.parametrize("relation", [ADD, REPLACE])
@pytest.mark.parametrize("rows", [2, 3])
def test_a_sum_clipped_as_a_whole_moves_no_further_for_more_rows(relation: NeighboringRelation, rows: int) -> None:
    """Whatever is sampled, its sum is one of two opposite points of the ball, as the data set and the sample choose.

    The worst that rows can do is to send every sample with any of them to the other point.
    """
    some = 1 - (1 - Q) ** rows
    of = kind(BallGaussian(1.0, 1 / MU), Poisson(Q))
    pair = row_of(of, relation).profile(of, rows)
    here, both = law({0.0: 1.0}), law({0.0: 1 - some, MU: some})
    assert (told(both, here) <= pair.forward(EPSILONS) + 1e-6).all()
    assert (told(here, both) <= pair.backward(EPSILONS) + 1e-6).all()
    np.testing.assert_allclose(told(both, here), pair.forward(EPSILONS), atol=1e-6)
    full = kind(BallGaussian(1.0, 1 / MU), Poisson(1.0))
    assert row_of(full, relation).profile(full, rows) == row_of(full, relation).profile(full, 1)
    if relation is REPLACE:  # to and fro: of the samples with a row, some go to one point, and some to the other
        swapped = law({0.0: 1 - some, MU: some / 2, -MU / 4: some / 2}), law({0.0: 1 - some, MU / 4: some})
        assert (told(*swapped) <= pair.forward(EPSILONS) + 1e-6).all()


def test_how_many_rows_of_a_person_are_in_a_fixed_batch() -> None:
    """By counting: the weights behind the pair."""
    of = kind(Gaussian(1.0, 1.0), FixedSize(7, 3))
    pair = row_of(of, REPLACE).profile(of, 4)
    assert pair.rate == pytest.approx(1 - comb(3, 3) / comb(7, 3), rel=1e-12)


def test_noise_meets_the_budget_on_batches_of_one_rate_and_different_sizes() -> None:
    """Of 10 rows all are drawn far oftener by 499 of 1000 than by 5 of 10, though its rate is lower."""
    schedules = [{FixedSize(10, 5): 20}, {FixedSize(1000, 499): 20}]
    found = calibrate(3.0, 1e-5, REPLACE, schedules, gaussian_family(), rows=10)
    for schedule in schedules:
        counts = gaussian_releases(found.noise, schedule)
        assert accountants.epsilon(counts, 1e-5, REPLACE, 10).epsilon <= found.epsilon <= 3


def test_the_pair_of_a_person_who_is_nearly_always_sampled_does_not_cancel() -> None:
    """Without the person the output is near 0, where with the person it is with a probability of 0.001^m or less."""
    losses = np.array([0.0, 11.5, 53.4, 276.0])
    assert GroupSampled(100.0, 0.999, 40).backward(losses) == pytest.approx(-np.expm1(losses + 40 * np.log(0.001)))
    pair = GroupReplaced(1.0, 0.999, 1000)
    huge = pair.forward(np.geomspace(1.0, 1e6, 40))
    assert np.isfinite(huge).all()
    assert (np.diff(huge) <= 1e-12).all()
