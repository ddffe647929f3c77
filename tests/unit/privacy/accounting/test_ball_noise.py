"""Noise on sums that are clipped as a whole: how far data move such a sum, and what is proved of it.

The lemma: all sums lie in one ball, whatever the data, so a replaced example moves one by the ball's diameter, as an
example does that comes or goes.
"""

from __future__ import annotations

import math
from itertools import pairwise, product

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent
from dp_accounting import NeighboringRelation as DpRelation
from dp_accounting.pld import privacy_loss_distribution
from dp_accounting.rdp import RdpAccountant
from scipy.integrate import quad
from scipy.stats import multivariate_normal, norm
from tests.reference.accounting_slow import gaussian_epsilon

from gossamer.data.examples import Split
from gossamer.errors import AccountingError, SpecError
from gossamer.objectives.linear.model import LinearModel
from gossamer.privacy.accounting.accountants import epsilon, renyi_divergence
from gossamer.privacy.accounting.planner import calibrate, gaussian_family
from gossamer.privacy.accounting.renyi import fixed_size_gaussian, poisson_replaced_gaussian
from gossamer.privacy.mechanisms import (
    BallGaussian,
    BatchSampling,
    FixedSize,
    Gaussian,
    NeighboringRelation,
    Poisson,
    ReleaseKind,
)
from gossamer.privacy.pairs import FixedSizeSampled, GaussianFull, PoissonReplaced
from gossamer.privacy.tasks import Gradient, Query, Round, StepSizes, Swap
from gossamer.protocol.encoding import decode, encode
from gossamer.randomness import stream
from gossamer.sides.sums import DrawnTurns, GridQuery, Rounding, round_sum
from gossamer.vectors import Public

ADD, REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE
DELTA = 1e-5
BALL = BallGaussian(0.6, 2.0)
SAMPLES = [Poisson(0.3), Poisson(1.0), FixedSize(10, 3), FixedSize(10, 10)]
samples = pytest.mark.parametrize("sampling", SAMPLES, ids=str)


def kind(law: Gaussian, sampling: BatchSampling) -> ReleaseKind:
    return ReleaseKind(law.unit(), sampling, 5)


# How far one example moves a sum


def sums_of(features: np.ndarray, targets: np.ndarray, turns: DrawnTurns, steps: int, rate: float) -> np.ndarray:
    objective = LinearModel("squared", features.shape[1], None, intercept=False, dtype=np.float64)
    query = Query(Poisson(1.0), BALL, 1.0)
    swap = Swap(0, Public(np.zeros(features.shape[1])))
    task = Round(1, (swap,), query, steps, steps, StepSizes(rate), "clipped_sum")
    return round_sum(task, turns, objective, Split(features.astype(np.float32), targets.astype(np.float32))).total


def test_no_replaced_example_moves_a_sum_further_than_the_clip() -> None:
    """Random data, replacements up to a million times as long, drawn or not, in any slot; tiny to unstable steps."""
    generator, furthest = stream(11), 0.0
    for _ in range(200):
        examples, steps = generator.integers(1, 6), int(generator.integers(1, 7))
        features, targets = generator.standard_normal((examples, 3)), generator.standard_normal(examples)
        drawn = np.flatnonzero(generator.random(examples) < 0.8)
        turns = DrawnTurns(drawn, generator.integers(steps, size=len(drawn)))
        rate = 10.0 ** generator.uniform(-3, 2)
        before = sums_of(features, targets, turns, steps, rate)
        features[0] = generator.standard_normal(3) * 10.0 ** generator.uniform(-2, 6)
        targets[0] = generator.standard_normal() * 10.0 ** generator.uniform(-2, 6)
        after = sums_of(features, targets, turns, steps, rate)
        distance = float(np.linalg.norm(after - before))
        assert distance <= BALL.clip * (1 + 1e-12)
        furthest = max(furthest, distance)
    assert furthest > 0.8 * BALL.clip


def test_one_example_turns_the_whole_sum_around() -> None:
    """So the charge cannot be halved again: both ends of a diameter are reached, by one replaced example."""
    turns = DrawnTurns(np.array([0, 1]), np.array([0, 1]))
    features = np.ones((2, 1))
    ends = [sums_of(features, np.array([target, -1.0]), turns, 2, 10.0) for target in (-5.0, 1.0)]
    assert abs(float(ends[0][0] - ends[1][0])) == pytest.approx(BALL.clip, rel=1e-12)


def test_its_sensitivity_is_that_diameter_under_either_relation() -> None:
    assert BALL.sensitivity(ADD) == BALL.sensitivity(REPLACE) == 0.6
    assert BALL.standard_deviation == 1.2
    assert decode(encode(BALL)) == BALL != Gaussian(0.6, 2.0)


# What is proved


def divergence(x: np.ndarray, other: np.ndarray, rest: np.ndarray, rate: float, loss: float) -> float:
    """Of (1-q) N(rest) + q N(x) to (1-q) N(rest) + q N(other), on a grid of the plane; unit normals."""
    axis = np.arange(-8, 8, 0.05)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1)
    at = {id(point): multivariate_normal(point, np.eye(2)).pdf(grid) for point in (x, other, rest)}
    first, second = ((1 - rate) * at[id(rest)] + rate * at[id(point)] for point in (x, other))
    return float(np.maximum(first - math.exp(loss) * second, 0).sum()) * 0.05**2


@pytest.mark.some(1)
@pytest.mark.parametrize("rate", [0.1, 0.5, 1.0])
def test_the_pair_dominates_all_mixtures_in_a_ball_and_one_reaches_it(rate: float) -> None:
    """Three points of a disc of diameter mu, random ones and on its edge; at several losses. The integral errs by less
    than 1e-4: a step of 0.05 on smooth densities that have a kink."""
    mu, generator = 1.4, stream(12)
    pair = FixedSizeSampled(GaussianFull(mu), rate)
    losses = [0.0, 0.05, 0.3, 1.0]
    for number in range(15):
        points = generator.standard_normal((3, 2))
        lengths = np.ones(3) if number % 2 else np.sqrt(generator.random(3))
        points *= (mu / 2 * lengths / np.linalg.norm(points, axis=1))[:, None]
        for loss in losses:
            assert divergence(points[0], points[1], points[2], rate, loss) <= pair.forward(np.array([loss]))[0] + 1e-4
    ends = np.array([[mu / 2, 0.0], [-mu / 2, 0.0]])
    for loss in losses:
        reached = divergence(ends[0], ends[1], ends[1].copy(), rate, loss)
        assert reached == pytest.approx(pair.forward(np.array([loss]))[0], abs=1e-4)


def test_the_pair_of_sums_of_clipped_vectors_at_half_the_clip_would_say_too_little() -> None:
    """Not every pair of a moved sum will do: with the centre of the ball in the rest's place it is no bound."""
    mu, rate = 1.4, 0.1
    loss = np.array([0.1])
    assert (
        PoissonReplaced(mu / 2, rate).forward(loss)[0] < 0.8 * FixedSizeSampled(GaussianFull(mu), rate).forward(loss)[0]
    )


@pytest.mark.parametrize("sampling", [FixedSize(10, 10), Poisson(1.0)], ids=str)
@pytest.mark.parametrize(("multiplier", "releases"), [(2.0, 1), (8.0, 50)])
def test_a_full_batch_is_the_analytic_gaussian_mechanism(
    sampling: BatchSampling, multiplier: float, releases: int
) -> None:
    exact = gaussian_epsilon(math.sqrt(releases), multiplier, DELTA)
    found = epsilon({kind(BallGaussian(0.5, multiplier), sampling): releases}, DELTA, REPLACE).epsilon
    assert exact <= found <= exact * 1.001


@pytest.mark.some(2)
@pytest.mark.parametrize("sampling", [Poisson(0.1), FixedSize(100, 10)], ids=str)
@pytest.mark.parametrize("multiplier", [0.8, 2.0])
def test_one_release_on_a_sample_agrees_with_dp_accounting(sampling: BatchSampling, multiplier: float) -> None:
    """Its pair for removing an example has the same curve at losses of 0 and more, so one release the same epsilon."""
    removed = privacy_loss_distribution.from_gaussian_mechanism(
        multiplier, value_discretization_interval=1e-4, sampling_prob=0.1
    )
    found = epsilon({kind(BallGaussian(0.5, multiplier), sampling): 1}, DELTA, REPLACE).epsilon
    assert found == pytest.approx(removed.get_epsilon_for_delta(DELTA), rel=1e-3)


def test_batches_of_fixed_size_and_poisson_samples_have_one_pair() -> None:
    fixed, poisson = (kind(BallGaussian(0.5, 2.0), sampling) for sampling in (FixedSize(100, 10), Poisson(0.1)))
    assert epsilon({fixed: 50}, DELTA, REPLACE) == epsilon({poisson: 50}, DELTA, REPLACE)


@pytest.mark.parametrize("sampling", [FixedSize(100, 10), FixedSize(10, 10), Poisson(1.0)], ids=str)
def test_it_is_noise_of_twice_the_multiplier_where_nothing_else_is_known(sampling: BatchSampling) -> None:
    """As for sums of vectors of half the length, which also move by this ball's diameter."""
    ball, terms = kind(BallGaussian(0.5, 2.0), sampling), kind(Gaussian(0.5, 4.0), sampling)
    before = epsilon({terms: 30}, DELTA, REPLACE)
    assert epsilon({ball: 30}, DELTA, REPLACE).epsilon == pytest.approx(before.epsilon, rel=1e-9)
    assert renyi_divergence(ball, 8.0, REPLACE) == pytest.approx(renyi_divergence(terms, 8.0, REPLACE), rel=1e-8)


@samples
def test_it_never_costs_more_than_what_was_charged_before(sampling: BatchSampling) -> None:
    ball, terms = kind(BallGaussian(0.5, 2.0), sampling), kind(Gaussian(0.5, 2.0), sampling)
    assert epsilon({ball: 20}, DELTA, REPLACE).epsilon < 0.75 * epsilon({terms: 20}, DELTA, REPLACE).epsilon
    for order in (2.0, 16.0):
        assert renyi_divergence(ball, order, REPLACE) < 0.75 * renyi_divergence(terms, order, REPLACE)


@pytest.mark.parametrize(
    ("sampling", "least", "most"),
    [(FixedSize(200, 10), 0.498, 0.502), (Poisson(0.05), 0.5, 0.65), (Poisson(1.0), 0.498, 0.502)],
    ids=str,
)
def test_about_half_the_noise_has_the_same_guarantee(sampling: BatchSampling, least: float, most: float) -> None:
    """Exactly half on batches of fixed size, and on all data. On Poisson samples the pair before was another one: half
    is the limit for much noise, and for little noise nearly all of it is needed."""
    schedule = [{sampling: 100}]
    before = calibrate(1.0, DELTA, REPLACE, schedule, gaussian_family(0.5))
    found = calibrate(1.0, DELTA, REPLACE, schedule, gaussian_family(0.5, BallGaussian))
    assert found.epsilon == pytest.approx(1.0, rel=3e-3)
    assert least < found.noise / before.noise < most
    assert isinstance(found.mechanism, BallGaussian)


# Renyi divergence on samples


@pytest.mark.parametrize(
    ("mu", "rate", "order"), [(1.0, 0.1, 8.0), (0.25, 0.01, 32.0), (2.0, 0.5, 3.5), (3.0, 0.3, 6.0)]
)
def test_the_divergence_is_that_of_both_branches_of_the_curve(mu: float, rate: float, order: float) -> None:
    """By adaptive quadrature over the losses, as in Sason and Verdu's proposition 3, of the pair's closed form."""
    pair = FixedSizeSampled(GaussianFull(mu), rate)

    def integrand(loss: float) -> float:
        at = float(pair.forward(np.array([loss]))[0])
        return (math.exp((order - 1) * loss) + math.exp(-order * loss)) * at

    reach = pair.largest(1e-200)[0]
    points = np.linspace(0, min(reach, (order + 12 / mu) * mu**2 + 5), 40)
    total = sum(quad(integrand, *ends, epsabs=0, epsrel=1e-11)[0] for ends in pairwise(points))
    exact = math.log1p(order * (order - 1) * total) / (order - 1)
    assert fixed_size_gaussian(mu, rate, order) == pytest.approx(exact, rel=1e-6)


@pytest.mark.some(1)
@pytest.mark.parametrize(("mu", "rate", "order"), [*product([0.3, 2.0], [0.01, 0.5], [2.0, 12.0])])
def test_the_divergence_bounds_that_of_mixtures_on_a_line(mu: float, rate: float, order: float) -> None:
    """Both directions of the worst mixtures, and of three points apart, by quadrature."""
    found = fixed_size_gaussian(mu, rate, order)
    for x, other, rest in [(mu, 0, 0), (0, mu, 0), (0, 0.7 * mu, mu), (mu, 0, 0.5 * mu), (mu, 0, mu)]:

        def integrand(t: float, x: float = x, other: float = other, rest: float = rest) -> float:
            still = np.log1p(-rate) + norm.logpdf(t, rest)
            first, second = (np.logaddexp(math.log(rate) + norm.logpdf(t, at), still) for at in (x, other))
            return math.exp(order * first + (1 - order) * second)

        points = np.linspace(-order * mu - 12, order * mu + 12, 60)
        total = sum(quad(integrand, *ends, epsrel=1e-11)[0] for ends in pairwise(points))
        assert math.log(total) / (order - 1) <= found + 1e-8
    assert found <= poisson_replaced_gaussian(mu, rate, order) * (1 + 1e-6)


def test_a_full_batch_has_the_divergence_of_a_gaussian() -> None:
    accountant = RdpAccountant([8.0], DpRelation.REPLACE_ONE).compose(GaussianDpEvent(2.0))
    assert fixed_size_gaussian(0.5, 1.0, 8.0) == pytest.approx(accountant.rdp[0], rel=1e-12)
    assert fixed_size_gaussian(0.5, 1 - 1e-9, 8.0) == pytest.approx(accountant.rdp[0], rel=1e-6)


# Where it may be used


@pytest.mark.parametrize("update", ["batch", "sequential"])
def test_sums_that_are_not_clipped_as_a_whole_are_refused(update: str) -> None:
    swap, query = Swap(0, Public(np.zeros(3))), Query(Poisson(0.5), BALL, 1.0)
    with pytest.raises(SpecError, match="clipped_sum"):
        Round(1, (swap,), query, 4, 4, StepSizes(0.1), update)
    with pytest.raises(SpecError, match="clipped_sum"):
        Gradient(1, Public(np.zeros(3)), query)


def test_where_one_example_comes_or_goes_it_is_as_any_gaussian_noise_and_no_batch_of_fixed_size_is_analysed() -> None:
    same = Gaussian(BALL.clip, BALL.noise_multiplier)
    assert epsilon({kind(BALL, Poisson(0.1)): 9}, DELTA, ADD) == epsilon({kind(same, Poisson(0.1)): 9}, DELTA, ADD)
    # of several rows it says more
    several = [epsilon({kind(law, Poisson(0.1)): 9}, DELTA, ADD, 3).epsilon for law in (BALL, same)]
    assert several[0] < 0.9 * several[1]
    with pytest.raises(AccountingError, match="BallGaussian on FixedSize batches under add_or_remove_one"):
        epsilon({kind(BALL, FixedSize(10, 1)): 1}, DELTA, ADD)


def test_on_a_grid_it_has_room_for_rounding_and_no_less_noise() -> None:
    query = GridQuery.of(BALL, 50, Rounding.of_clipped_sum(LinearModel("squared", 50, None, intercept=False)))
    assert query.noise.equivalent.noise_multiplier >= BALL.noise_multiplier
    assert query.noise.equivalent.clip >= BALL.clip + query.noise.step * math.sqrt(50)
