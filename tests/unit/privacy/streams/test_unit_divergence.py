"""What enters an agent's ledger: an upper bound of the Renyi divergence of all that its unit's run reveals."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import logsumexp
from tests.reference.gaussian_fit_slow import right_side

from gossamer.errors import AccountingError, SpecError
from gossamer.privacy.accounting.filters import NOTHING_PROVED, FilterEntry
from gossamer.privacy.accounting.gaussian_dp import gaussian_epsilon, response_mu
from gossamer.privacy.accounting.renyi import renyi_epsilon
from gossamer.privacy.mechanisms import NeighboringRelation
from gossamer.privacy.streams.correlated_noise import CorrelatedNoise, Factorisation, NoiseLaw, Temporal
from gossamer.privacy.streams.graph_bounds import (
    AgentNoise,
    GradientAt,
    Noise,
    RandomNoise,
    UpdateBound,
    gaussian_mu_of,
    laplace_epsilon_of,
)
from gossamer.sides.plan import ClientUpdate, MaskedMember, SidePlan, StreamPlan, Trust

BOUND = UpdateBound(step=0.1, bound=2.0, agents_sampled=4, gradient_at=GradientAt.HIDDEN)
REPLACED = NeighboringRelation.REPLACE_ONE


def messages(noise: Noise | None, bound: UpdateBound | None, size: int) -> StreamPlan:
    """What leaves a unit."""
    proved = {}
    if noise is not None and bound is not None:
        gaussian = noise.law is NoiseLaw.GAUSSIAN
        proved = (
            {"mu": gaussian_mu_of(noise, bound)} if gaussian else {"epsilon": laplace_epsilon_of(noise, bound, size)}
        )
    law: Any = noise
    return StreamPlan(law, 1, size, None if bound is None else bound.moved, 4, 0.2, ("agent",), **proved)


def agent(behind: StreamPlan, own: AgentNoise | None = None, sums: int = 0) -> SidePlan:
    """What leaves an agent of that unit."""
    if own is None:
        return ClientUpdate(behind=behind)
    unit: Any = SimpleNamespace(noise=own, group=SimpleNamespace(minimum=1))
    terms: Any = None
    return MaskedMember(unit, lambda round: (), terms, sums, behind=behind)


def messages_divergence(noise: Noise | None, bound: UpdateBound | None, size: int, order: float) -> float:
    return messages(noise, bound, size).revealed(Trust.SCOPE).divergence(order, REPLACED)


def renyi_by_quadrature(shift: float, deviation: float, order: float) -> float:
    """D_a of N(shift, s^2) from N(0, s^2), from its definition."""

    def integrand(x: float) -> float:
        p, q = (-((x - mean) ** 2) / (2 * deviation**2) for mean in (shift, 0.0))
        return math.exp(order * p + (1 - order) * q) / (deviation * math.sqrt(2 * math.pi))

    middle = order * shift
    total, _ = quad(integrand, middle - 40 * deviation, middle + 40 * deviation, points=[middle], limit=400)
    return math.log(total) / (order - 1)


@pytest.mark.parametrize("order", [1.5, 4.0, 16.0])
def test_independent_noise_reveals_the_running_sums(order: float) -> None:
    """Message i is the sum of i updates, moved by i D, with noise of its own: divergences of independent normal
    messages add up. Here D = 2 mu B, and both data sets are fixed, as the worst case has them."""
    noise = CorrelatedNoise(Factorisation(Temporal.INDEPENDENT, 3), standard_deviation=1.5)
    moved = 2 * 0.1 * 2.0
    expected = sum(renyi_by_quadrature(i * moved, 1.5, order) for i in (1, 2, 3))
    assert messages_divergence(noise, BOUND, 7, order) == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("temporal", list(Temporal))
def test_the_filter_proves_no_less_epsilon_than_the_tight_accountant(temporal: Temporal) -> None:
    bands = 2 if temporal is Temporal.BANDED else None
    noise = CorrelatedNoise(Factorisation(temporal, 5, bands), standard_deviation=2.0)
    tight = gaussian_epsilon(gaussian_mu_of(noise, BOUND), 1e-5)
    found = [renyi_epsilon(a, messages_divergence(noise, BOUND, 7, a), 1e-5) for a in (2.0, 4.0, 8.0, 16.0, 32.0)]
    assert tight <= min(found) <= 1.4 * tight


def test_each_links_own_noise_counts() -> None:
    noise = RandomNoise(rounds=4, standard_deviation=3.0, links=((0.25, 2), (0.0, 1)))
    sums = np.array([[0.25 ** (i - j) if j <= i else 0.0 for j in range(4)] for i in range(4)]).sum(axis=1)
    expected = sum(2 * renyi_by_quadrature(0.4 * amount, 3.0, 8.0) for amount in sums)
    assert messages_divergence(noise, BOUND, 7, 8.0) == pytest.approx(expected, rel=1e-7)


def test_laplace_noise_is_within_its_pure_epsilon() -> None:
    """One round, one coordinate: the divergence of the Laplace law itself, from its definition, is no larger."""
    noise = CorrelatedNoise(Factorisation(Temporal.INDEPENDENT, 1), 1.0, NoiseLaw.LAPLACE)
    scale, moved, order = 1 / math.sqrt(2), 0.4, 6.0
    points = np.linspace(-40, 40, 800_001)
    exponents = -order * abs(points - moved) / scale - (1 - order) * abs(points) / scale
    exact = (logsumexp(exponents) + math.log(points[1] - points[0]) - math.log(2 * scale)) / (order - 1)
    found = messages_divergence(noise, BOUND, 1, order)
    assert exact <= found <= moved / scale


def test_without_noise_or_bound_nothing_is_proved() -> None:
    noise: Noise = CorrelatedNoise(Factorisation(Temporal.INDEPENDENT, 1), 1.0)
    assert messages_divergence(None, BOUND, 7, 8.0) == math.inf == messages_divergence(noise, None, 7, 8.0)
    with pytest.raises(AccountingError, match="order"):
        messages_divergence(None, None, 7, 1.0)


def test_who_trusts_nobody_counts_its_own_noise_alone() -> None:
    noise: Noise = CorrelatedNoise(Factorisation(Temporal.RANDOM_WALK, 5), standard_deviation=2.0)
    all_messages = messages_divergence(noise, BOUND, 7, 8.0)
    # rho = D^2/(2 s^2) of one sum [Canonne, Kamath and Steinke, theorem 14], divergence rho a of each.
    weak, strong = AgentNoise(scale=10, sensitivity=20.0, size=7), AgentNoise(scale=1000, sensitivity=20.0, size=7)

    def found(trust: bool, own: AgentNoise | None) -> float:
        plan = agent(messages(noise, BOUND, 7), own, 5)
        return plan.revealed(Trust.SCOPE if trust else Trust.NOBODY).divergence(8.0, REPLACED)

    assert found(False, None) == math.inf
    assert found(True, None) == all_messages
    assert found(False, weak) == pytest.approx(8 * 5 * (20 / 10) ** 2 / 2)
    assert found(True, weak) == all_messages
    assert found(False, strong) == found(True, strong) < all_messages
    assert found(False, strong) == pytest.approx(8 * 5 * (20 / 1000) ** 2 / 2)


def test_gaussian_privacy_of_units() -> None:
    """Messages with normal noise have a mu, of which the divergence is order mu^2/2; others that of a response."""
    for law in NoiseLaw:
        noise = CorrelatedNoise(Factorisation(Temporal.INDEPENDENT, 3), 2.0, law)
        plan = agent(messages(noise, BOUND, 5))
        found = plan.revealed(Trust.SCOPE).entry
        assert found.failure == 0
        if law is NoiseLaw.GAUSSIAN:
            assert messages_divergence(noise, BOUND, 5, 8.0) == pytest.approx(8.0 * found.mu**2 / 2)
        else:
            assert found.mu == response_mu(laplace_epsilon_of(noise, BOUND, 5))
        assert plan.revealed(Trust.NOBODY).entry == NOTHING_PROVED
    assert agent(messages(None, None, 5)).revealed(Trust.SCOPE).entry == NOTHING_PROVED


@pytest.mark.parametrize("scale", [2, 3, 40])
def test_gaussian_privacy_of_an_agents_own_noise(scale: int) -> None:
    """Of four sums, and of one next to the discrete law itself; noise of scale 2 is too narrow for it."""
    own = AgentNoise(scale, sensitivity=0.2 * scale, size=1)

    def entry(own: AgentNoise, sums: int) -> FilterEntry:
        return agent(messages(None, None, 1), own, sums).revealed(Trust.NOBODY).entry

    found = entry(own, 4)
    if scale == 2:
        assert found == NOTHING_PROVED
        return
    assert 0.4 <= found.mu <= 0.4 * math.sqrt(scale**2 / (scale**2 - 4)) * (1 + 1e-9)
    assert 0 < found.failure < 1e-25
    # One sum, exactly: of the integers' laws around 0 and around the (whole) shift.
    integers = np.arange(-60 * scale, 60 * scale + 1)
    shift = round(0.2 * scale) or 1
    one = entry(AgentNoise(scale, float(shift), 1), 1)
    here, there = (np.exp(-((integers - centre) ** 2) / (2 * scale**2)) for centre in (0, shift))
    here, there = here / here.sum(), there / there.sum()
    losses = np.linspace(0, 3 * one.mu, 50)
    exact = np.array([np.maximum(there - np.exp(e) * here, 0).sum() for e in losses])
    assert (exact <= right_side(one.mu, one.failure, losses) + 1e-15).all()


def test_of_two_entries_the_smaller_counts_where_the_own_server_is_trusted() -> None:
    noise: Noise = CorrelatedNoise(Factorisation(Temporal.RANDOM_WALK, 5), standard_deviation=2.0)
    unit = messages(noise, BOUND, 7)
    for scale in (10, 1000):
        own = agent(messages(None, None, 7), AgentNoise(scale, 20.0, 7), 5).revealed(Trust.NOBODY).entry
        both = agent(unit, AgentNoise(scale, 20.0, 7), 5)
        assert both.revealed(Trust.SCOPE).entry == min(unit.revealed(Trust.SCOPE).entry, own)
        assert both.revealed(Trust.NOBODY).entry == own
    assert own < unit.revealed(Trust.SCOPE).entry


@pytest.mark.parametrize("sums", [-1, 0.5, math.nan, True])
def test_sums_are_counted_in_whole_numbers(sums: float) -> None:
    with pytest.raises(SpecError, match="a whole number of masked sums"):
        agent(messages(None, None, 5), AgentNoise(10, 1.0, 5), sums)  # type: ignore[arg-type]
