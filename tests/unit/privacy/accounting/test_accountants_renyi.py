"""Renyi divergences of every row, and what a level at one order proves."""

from __future__ import annotations

import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting.rdp import RdpAccountant
from mpmath import mp, mpf
from scipy.integrate import quad, trapezoid
from scipy.stats import norm

from gossamer.errors import CallerError
from gossamer.privacy.accounting import accountants, renyi
from gossamer.privacy.accounting.accountants import ROWS, AccountantRow, renyi_divergence, renyi_epsilon, renyi_level
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
from gossamer.privacy.pairs import FixedSizeSampled, GaussianFull, PoissonSampled, Profile, ResponseFull

ADD, REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE
SAMPLED: dict[type[BatchSampling], BatchSampling] = {Poisson: Poisson(0.1), FixedSize: FixedSize(50, 5)}
FULL: dict[type[BatchSampling], BatchSampling] = {Poisson: Poisson(1.0), FixedSize: FixedSize(50, 50)}

rows = pytest.mark.parametrize(
    "row", ROWS, ids=lambda row: f"{row.mechanism.__name__}-{row.sampling.__name__}-{row.relation}"
)


def kind_of(row: AccountantRow, sampling: BatchSampling) -> ReleaseKind:
    mechanisms: dict[type[Mechanism], Mechanism] = {
        Gaussian: Gaussian(1.0, 2.0),
        BallGaussian: BallGaussian(1.0, 2.0),
        L2Laplace: L2Laplace(1.0, 1.0, ADD),
        Laplace: Laplace(1.0, 2.0),
    }
    return ReleaseKind(mechanisms[row.mechanism], sampling, 4)


def from_profile(profile: Profile, order: float) -> float:
    """The Renyi divergence of a pair from its hockey-stick curve.

    With f(t) = t^order: E_Q f(P/Q) = 1 + int_1^inf f''(x) H_x(P||Q) + f''(1/x) x^-3 H_x(Q||P) dx, x = exp(e), where
    f''(t) = order (order-1) t^(order-2). Sason and Verdu, "f-divergence inequalities", 2016, proposition 3.
    """
    losses = np.linspace(0.0, min(max(profile.largest(1e-300)), 60.0), 400_001)
    with np.errstate(divide="ignore"):
        ahead, back = np.log(profile.forward(losses)), np.log(profile.backward(losses))
    integrand = np.exp((order - 1) * losses + ahead) + np.exp(-order * losses + back)
    return math.log1p(order * (order - 1) * float(trapezoid(integrand, losses))) / (order - 1)


@pytest.mark.some(6)
@rows
@pytest.mark.parametrize("order", [2.0, 3.5, 8.0, 32.0])
def test_the_divergence_bounds_that_of_the_dominating_pair(row: AccountantRow, order: float) -> None:
    """Both describe the same release; the pairs of Poisson-sampled Gaussians are exact, so there they agree.

    The pair of L2-Laplace noise on a Poisson sample under replace-one is the one of a batch of fixed size, a bound that
    is not comparable with the divergence of randomized response.
    """
    if (row.mechanism, row.sampling, row.relation) == (L2Laplace, Poisson, REPLACE):
        assert row.profile(kind_of(row, Poisson(0.1))).family[0] is FixedSizeSampled  # type: ignore[index]
        return
    for sampling in (SAMPLED[row.sampling], FULL[row.sampling]):
        kind = kind_of(row, sampling)
        found, pair = renyi_divergence(kind, order, row.relation), from_profile(row.profile(kind), order)
        assert found >= pair * (1 - 1e-5)
        if issubclass(row.mechanism, Gaussian) and row.sampling is Poisson and order.is_integer():
            assert found == pytest.approx(pair, rel=1e-4)


@rows
@pytest.mark.parametrize("order", [2.0, 16.0])
def test_full_batches(row: AccountantRow, order: float) -> None:
    """order S^2 / (2 sd^2) for Gaussian noise; randomized response at the pure epsilon otherwise."""
    sensitivity = 1.0 if row.relation is ADD or row.mechanism is BallGaussian else 2.0
    expected = order * sensitivity**2 / (2 * 2.0**2)
    if not issubclass(row.mechanism, Gaussian):
        truth = 1 / (1 + math.exp(-sensitivity))  # epsilon is 1 at sensitivity 1 for both laws
        lie = 1 - truth
        expected = math.log(truth**order * lie ** (1 - order) + lie**order * truth ** (1 - order)) / (order - 1)
    found = renyi_divergence(kind_of(row, FULL[row.sampling]), order, row.relation)
    assert found == pytest.approx(expected, rel=1e-8)


@rows
def test_it_composes_to_an_epsilon_above_the_plans(row: AccountantRow) -> None:
    """A filter's bound at its best order is looser than the distribution of the whole plan, and not by much.

    Of L2-Laplace noise a filter knows the pure epsilon only, so there it may be looser by any factor.
    """
    kind, count = kind_of(row, SAMPLED[row.sampling]), 20
    plan = accountants.epsilon({kind: count}, 1e-5, row.relation).epsilon
    filtered = [
        renyi_epsilon(order, count * renyi_divergence(kind, order, row.relation), 1e-5)
        for order in (2.0, 4.0, 8.0, 16.0, 32.0)
    ]
    assert plan <= min(filtered)
    assert min(filtered) <= 2.5 * plan or row.mechanism is L2Laplace


@pytest.mark.parametrize(
    ("mu", "rate", "order"), [(1.0, 0.1, 8.0), (0.25, 0.01, 32.0), (2.0, 0.5, 3.5), (0.5, 1.0, 4.0)]
)
def test_poisson_under_replace_one_against_adaptive_quadrature(mu: float, rate: float, order: float) -> None:
    def integrand(x: float) -> float:
        p, q = (
            np.logaddexp(math.log(rate) + norm.logpdf(x, sign * mu), np.log1p(-rate) + norm.logpdf(x))
            if rate < 1
            else norm.logpdf(x, sign * mu)
            for sign in (1, -1)
        )
        return math.exp(order * p + (1 - order) * q)

    exact = math.log(quad(integrand, -12, order * mu + 12, epsabs=0, epsrel=1e-12, limit=500)[0]) / (order - 1)
    found = renyi.poisson_replaced_gaussian(mu, rate, order)
    assert exact * (1 - 1e-7) <= found <= exact * (1 + 1e-6)


def test_tiny_divergences_are_exact() -> None:
    """To second order: order/2 times the chi-squared divergence, (2 q mu)^2 for a small mu."""
    assert renyi.poisson_replaced_gaussian(1e-3, 1e-4, 16.0) == pytest.approx(8 * (2 * 1e-7) ** 2, rel=1e-3)
    assert renyi.response(1e-6, 3.0) == pytest.approx(1.5e-12, rel=1e-4)


@pytest.mark.parametrize(
    ("multiplier", "rate", "order"), [(1.0206, 1.2e-4, 19.0), (1.654, 7.3e-7, 37.0), (2.06, 2e-4, 52.7)]
)
def test_large_rare_losses_of_a_small_divergence_do_not_overflow(multiplier: float, rate: float, order: float) -> None:
    """exp(order loss) is beyond all numbers where next to nothing of it counts: the divergence was no number."""
    with mp.workdps(30):
        mu, q = 1 / mpf(multiplier), mpf(rate)

        def ratio(x: mpf, sign: int) -> mpf:
            return 1 - q + q * mp.exp(sign * mu * x - mu**2 / 2)

        def excess(x: mpf) -> mpf:
            ahead, back = ratio(x, 1), ratio(x, -1)
            return mp.npdf(x) * (back * (ahead / back) ** mpf(order) - back - order * (ahead - back))

        exact = mp.log1p(mp.quad(excess, mp.linspace(-40, 40 + 2 * order * mu, 60))) / (order - 1)
    found = renyi.poisson_replaced_gaussian(1 / multiplier, rate, order)
    assert 0 <= found / float(exact) - 1 < 2e-9


@pytest.mark.parametrize(("multiplier", "rate", "order"), [(35.0, 1.4e-7, 2), (87.0, 1.36e-7, 32), (9.5, 5.2e-7, 32)])
def test_divergences_of_tiny_samples_are_never_rounded_down(multiplier: float, rate: float, order: int) -> None:
    """By the binomial sum of whole orders, with 40 digits."""
    with mp.workdps(40):
        moment = sum(
            mp.binomial(order, k)
            * (1 - mpf(rate)) ** (order - k)
            * mpf(rate) ** k
            * mp.exp((k * k - k) / (2 * mpf(multiplier) ** 2))
            for k in range(order + 1)
        )
        exact = mp.log(moment) / (order - 1)
    assert 0 <= renyi.poisson_gaussian(multiplier, rate, float(order)) / float(exact) - 1 < 1e-3


def test_divergences_never_exceed_a_pure_epsilon_and_do_not_overflow() -> None:
    assert renyi.response(5.0, 1e6) == 5.0
    assert renyi.response(5.0, 20.0) < 5.0
    assert renyi.poisson_replaced_gaussian(10.0, 0.1, 30.0) < 30 * 20.0**2 / 2


@pytest.mark.parametrize("order", [1.5, 4.0, 16.0, 100.0])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-5), (3.0, 1e-3), (20.0, 1e-9)])
def test_a_level_is_the_most_that_proves_the_budget(order: float, epsilon: float, delta: float) -> None:
    level = renyi_level(order, epsilon, delta)
    if level == 0:  # the order is too low for this delta: not even a divergence just above 0 proves the budget
        assert epsilon - math.log1p(-1 / order) + math.log(delta * order) / (order - 1) <= 0
        return
    assert renyi_epsilon(order, level, delta) <= epsilon
    assert renyi_epsilon(order, level * 1.00001, delta) > epsilon * (1 - 1e-9)


def test_the_conversion_is_proposition_12_of_canonne_kamath_and_steinke() -> None:
    """epsilon = rho + log((a-1)/a) - (log delta + log a)/(a-1)."""
    order, total, delta = 16.0, 0.7, 1e-5
    expected = total + math.log(15 / 16) - (math.log(delta) + math.log(16)) / 15
    assert renyi_epsilon(order, total, delta) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("order", [1.0, 0.5, 1.001, math.inf, math.nan])
def test_an_order_out_of_range_is_the_callers_mistake(order: float) -> None:
    for ask in (
        lambda: renyi_divergence(ReleaseKind(Gaussian(1.0, 1.0), Poisson(0.1), 1), order, ADD),
        lambda: renyi_epsilon(order, 1.0, 1e-5),
        lambda: renyi_level(order, 1.0, 1e-5),
    ):
        with pytest.raises(CallerError, match="order must be a finite number above 1"):
            ask()


def test_budgets_out_of_range_are_the_callers_mistake() -> None:
    with pytest.raises(CallerError, match="delta must lie"):
        renyi_level(16.0, 1.0, 0.0)
    with pytest.raises(CallerError, match="epsilon must be a finite number above 0"):
        renyi_level(16.0, 0.0, 1e-5)


def test_the_curve_formula_itself() -> None:
    """Pedigree of `from_profile`: Gaussians and randomized response in closed form."""
    gaussian = PoissonSampled(GaussianFull(0.5), 1.0)
    assert from_profile(gaussian, 8.0) == pytest.approx(8 * 0.25 / 2, rel=1e-6)
    response = FixedSizeSampled(ResponseFull(1.0), 1.0)
    assert from_profile(response, 8.0) == pytest.approx(renyi.response(1.0, 8.0), rel=1e-5)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-5), (1.0, 1e-5), (4.0, 1e-5), (4.0, 1e-9), (50.0, 1e-5)])
def test_the_widest_order_has_room_for_most_gaussian_noise(epsilon: float, delta: float) -> None:
    """Room for releases is the level over the divergence of one, order mu^2/2; looked for among whole orders."""
    room = {order: renyi.renyi_level(order, epsilon, delta) / order for order in range(2, 2000)}
    found = renyi.widest_order(epsilon, delta)
    assert room[found] == max(room.values()) > 0


def test_no_order_proves_next_to_nothing() -> None:
    with pytest.raises(CallerError, match="no Renyi order here proves"):
        renyi.widest_order(1e-6, 1e-10)


@pytest.mark.parametrize(
    ("mu", "rate", "order"),
    [(0.5, 0.05, 6.0), (2.0, 0.05, 6.0), (0.05, 0.01, 30.0), (2.5, 0.3, 2.5), (1.0, 0.999, 16.0)],
)
def test_a_batch_of_fixed_size_has_the_divergence_of_its_pair(mu: float, rate: float, order: float) -> None:
    """By another quadrature; between a release that really is so bad, and a bound for every mechanism.

    The release: of all examples only the replaced one is not 0, and it is replaced by its opposite.
    """
    found = renyi.fixed_size_gaussian(mu, rate, order)
    assert found == pytest.approx(from_profile(FixedSizeSampled(GaussianFull(mu), rate), order), rel=1e-6)
    assert renyi.poisson_replaced_gaussian(mu / 2, rate, order) <= found <= order * mu**2 / 2
    accountant = RdpAccountant([order], dp_accounting.NeighboringRelation.REPLACE_ONE)
    event = dp_accounting.GaussianDpEvent(1 / mu)
    accountant.compose(dp_accounting.SampledWithoutReplacementDpEvent(1000, round(1000 * rate), event))
    assert found <= accountant.rdp[0]


def test_a_batch_of_all_examples_has_the_divergence_of_all() -> None:
    assert renyi.fixed_size_gaussian(0.3, 1.0, 7.0) == pytest.approx(7 * 0.3**2 / 2)
    assert renyi.fixed_size_gaussian(0.3, 1 - 1e-13, 7.0) == pytest.approx(7 * 0.3**2 / 2, rel=1e-6)


@pytest.mark.parametrize("total", [-0.1, math.nan, -math.inf])
def test_what_is_no_divergence_proves_nothing(total: float) -> None:
    with pytest.raises(CallerError, match="a divergence is a number, 0 or more"):
        renyi_epsilon(8.0, total, 1e-5)
    assert renyi_epsilon(8.0, math.inf, 1e-5) == math.inf
