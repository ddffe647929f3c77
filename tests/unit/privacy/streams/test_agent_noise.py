"""Guarantees of agents' own noise, against privacy losses that are added up number by number."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.special import logsumexp
from tests.reference.ledgers import AgentLedger

from gossamer.errors import AccountingError, BudgetSpent
from gossamer.privacy.mechanisms import NeighboringRelation
from gossamer.privacy.streams.graph_bounds import AgentNoise, concentrated_epsilon, own_server_guarantee


def law(scale: int, agents: int = 1) -> np.ndarray:
    """Probabilities of the sum of ``agents`` discrete Gaussians, around 0."""
    one = np.exp(-(np.arange(-40 * scale, 40 * scale + 1.0) ** 2) / (2 * scale**2))
    one /= one.sum()
    total = one
    for _ in range(agents - 1):
        total = np.convolve(total, one)
    return total


def renyi(probabilities: np.ndarray, shift: int, order: float) -> float:
    """Divergence of the law from the same, moved by ``shift``; tails below 1e-290 are left out."""
    p, q = probabilities[shift:], probabilities[:-shift]
    kept = (p > 1e-290) & (q > 1e-290)
    p, q = np.log(p[kept]), np.log(q[kept])
    return float(logsumexp(order * p + (1 - order) * q) / (order - 1))


@pytest.mark.parametrize("shift", [1, 3])
def test_one_agents_noise_is_as_concentrated_as_it_says(shift: int) -> None:
    """Divergence at every order is at most rho times the order, and for whole steps of a scale this is nearly it."""
    for scale, order in itertools.product([1, 2, 5], [1.5, 2.0, 4.0]):
        rho = AgentNoise(scale, float(shift), 1).rho()
        assert rho == pytest.approx(shift**2 / (2 * scale**2))
        found = renyi(law(scale), shift, order)
        assert found <= rho * order * (1 + 1e-9)
        assert found >= 0.99 * rho * order


@pytest.mark.parametrize("agents", [2, 3, 5])
@pytest.mark.parametrize("scale", [1, 2])
def test_the_noise_of_several_is_as_concentrated_as_it_says(agents: int, scale: int) -> None:
    """With scale 1 the sum is visibly no discrete Gaussian, and the correction tau covers that."""
    noise = AgentNoise(scale, 2.0, 1)
    tau = 10 * sum(math.exp(-2 * math.pi**2 * scale**2 * k / (k + 1)) for k in range(1, agents))
    assert noise.rho(agents) == pytest.approx((2 / (scale * math.sqrt(agents)) + tau) ** 2 / 2)
    for order in (1.5, 2.0, 4.0):
        found = renyi(law(scale, agents), 2, order)
        assert found <= noise.rho(agents) * order * (1 + 1e-9)
        assert found >= 0.98 * 4 / (2 * agents * scale**2) * order


def test_more_dimensions_need_more_correction() -> None:
    assert AgentNoise(1, 2.0, 100).rho(3) > AgentNoise(1, 2.0, 1).rho(3)
    assert AgentNoise(1000, 2.0, 10**6).rho(10) == pytest.approx(4 / (2 * 10 * 1000**2), rel=1e-12)


@pytest.mark.parametrize(("scale", "shift", "delta"), [(3, 2, 1e-5), (10, 1, 1e-3), (2, 4, 1e-6)])
def test_epsilon_covers_the_true_privacy_loss(scale: int, shift: int, delta: float) -> None:
    """Against the exact delta of one discrete Gaussian: never less than needed, and within a third and 0.1 of it."""
    epsilon = own_server_guarantee(AgentNoise(scale, float(shift), 1), 1, delta).epsilon
    probabilities = law(scale)
    p, q = probabilities[shift:], probabilities[:-shift]

    def true_delta(at: float) -> float:
        return float(np.maximum(p - math.exp(at) * q, 0).sum())

    assert true_delta(epsilon) <= delta
    assert true_delta(0.7 * epsilon - 0.1) > delta


def test_epsilon_of_concentrated_privacy() -> None:
    """Between the closed form of Bun and Steinke, rho + 2 sqrt(rho ln(1/delta)), and the Gaussian's own."""
    for rho in (1e-6, 0.01, 0.5, 8.0, 400.0):
        epsilon = concentrated_epsilon(rho, 1e-5)
        assert epsilon <= rho + 2 * math.sqrt(rho * math.log(1e5))
        assert epsilon >= 0.6 * (rho + 2 * math.sqrt(rho * math.log(1e5))) - 0.1 or rho < 1e-3
    assert concentrated_epsilon(0.0, 1e-5) == 0.0
    for rho in (-1.0, math.inf, math.nan):
        with pytest.raises(AccountingError, match="rho must be a finite number"):
            concentrated_epsilon(rho, 1e-5)
    with pytest.raises(AccountingError, match="delta"):
        concentrated_epsilon(0.1, 1.0)


def test_rounds_add_up() -> None:
    """100 rounds with ten times the noise are as one, where a step is nothing to the noise."""
    noise = AgentNoise(50_000, 100_000.0, 7)
    once = own_server_guarantee(noise, 1, 1e-5)
    assert own_server_guarantee(AgentNoise(500_000, 100_000.0, 7), 100, 1e-5).epsilon == pytest.approx(once.epsilon)
    assert own_server_guarantee(noise, 2, 1e-5).epsilon > once.epsilon
    assert own_server_guarantee(noise, 0, 1e-5).epsilon == 0.0
    with pytest.raises(AccountingError, match="rounds must be 0 or more"):
        own_server_guarantee(noise, -1, 1e-5)


def test_the_guarantee_says_whom_it_trusts() -> None:
    noise = AgentNoise(500, 100.0, 7)
    alone, together = (own_server_guarantee(noise, 10, 1e-5, honest) for honest in (1, 6))
    assert together.epsilon < alone.epsilon
    assert {alone.unit, together.unit} == {"agent"}
    assert alone.neighboring_relation is NeighboringRelation.REPLACE_ONE
    assert "all other agents together" in alone.observer
    assert "trusted: nobody but the agent itself" in alone.assumptions[0]
    assert "6 agents of every sum" in together.assumptions[0]
    assert "the masks hold" in together.assumptions[1]
    assert "this agent alone" in alone.proof
    assert "2 agents of every sum" in own_server_guarantee(noise, 10, 1e-5, 2).assumptions[0]
    with pytest.raises(AccountingError, match="own noise is one of"):
        own_server_guarantee(noise, 10, 1e-5, honest=0)


def test_without_noise_nothing_is_proved() -> None:
    guarantee = own_server_guarantee(None, 10, 1e-5)
    assert math.isinf(guarantee.epsilon)
    assert "exact sums" in guarantee.proof


def test_the_ledger_refuses_what_it_was_not_opened_for() -> None:
    noise = AgentNoise(5, 2.0, 7)
    ledger = AgentLedger("node-3", noise, 2)
    ledger.charge()
    ledger.charge()
    with pytest.raises(BudgetSpent, match="node-3: release refused: the plan covers 2 releases"):
        ledger.charge()
    (line,) = ledger.lines()
    assert line == {
        "node": "node-3",
        "to": "own server",
        "releases": 2,
        "most": 2,
        "mechanism": "discrete_gaussian",
        "scale": 5,
        "sensitivity": 2.0,
    }
