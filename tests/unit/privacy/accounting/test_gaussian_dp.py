"""Gaussian differential privacy as (epsilon, delta): against the formula by itself, at more digits."""

from __future__ import annotations

import math

import pytest
from scipy.stats import norm

from gossamer.errors import AccountingError
from gossamer.privacy.accounting.gaussian_dp import gaussian_delta, gaussian_epsilon, gaussian_mu

MUS = [1e-3, 0.1, 0.5, 1.0, 3.0, 20.0, 500.0]
DELTAS = [1e-12, 1e-5, 0.01, 0.4]


def profile(mu: float, epsilon: float) -> float:
    """Balle and Wang, theorem 8: Phi(mu/2 - eps/mu) - exp(eps) Phi(-mu/2 - eps/mu)."""
    return float(norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon + norm.logcdf(-mu / 2 - epsilon / mu)))


@pytest.mark.parametrize("mu", MUS)
def test_epsilon_is_the_least_that_holds(mu: float) -> None:
    for delta in DELTAS:
        epsilon = gaussian_epsilon(mu, delta)
        assert gaussian_delta(mu, epsilon) <= delta
        assert profile(mu, epsilon) == pytest.approx(delta, rel=1e-6) or epsilon == 0
        if epsilon == 0:
            assert math.erf(mu / math.sqrt(8)) <= delta  # 2 Phi(mu/2) - 1


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 30.0, 1e5])
def test_mu_is_the_largest_that_holds(epsilon: float) -> None:
    for delta in [1e-200, *DELTAS, 0.9]:
        mu = gaussian_mu(epsilon, delta)
        assert gaussian_delta(mu, epsilon) <= delta < gaussian_delta(mu * (1 + 1e-9), epsilon)
        # Where delta is large, rounding of mu by 1e-12 moves a small epsilon by as much.
        assert gaussian_epsilon(mu, delta) == pytest.approx(epsilon, rel=1e-9, abs=1e-11)


@pytest.mark.parametrize("delta", [1e-200, *DELTAS])
def test_huge_values_are_rounded_to_the_safe_side(delta: float) -> None:
    """The privacy loss is N(mu^2/2, mu^2), so that it exceeds epsilon with probability delta at the root below.

    Delta is at most that, and not much less where epsilon is huge; mu^2/2 <= epsilon + mu times the quantile anyway.
    """
    for epsilon in [10.0**power for power in (*range(5, 301, 5), 308)]:
        quantile = float(norm.isf(delta))
        root = math.hypot(quantile, math.sqrt(2) * math.sqrt(epsilon)) - quantile
        mu = gaussian_mu(epsilon, delta)
        assert mu == pytest.approx(root, rel=1e-2)
        assert mu >= root * (1 - 1e-9)
        assert gaussian_epsilon(mu, delta) == pytest.approx(epsilon, rel=1e-2)


def test_delta_of_huge_values_is_the_tail_of_the_loss_or_one() -> None:
    for mu, epsilon in ((2e4, 2.1e8), (1e5, 4.9995e9), (10.0, 1e9)):
        assert gaussian_delta(mu, epsilon) == pytest.approx(norm.sf(epsilon / mu - mu / 2), rel=1e-9)
    assert gaussian_delta(1e5, 5e9) == pytest.approx(0.5)
    assert gaussian_delta(1e9, 1e30) == 1.0
    assert gaussian_epsilon(1e200, 1e-5) == math.inf


def test_nothing_is_nothing() -> None:
    assert gaussian_epsilon(0.0, 1e-5) == 0
    assert gaussian_delta(0.0, 0.0) == 0


@pytest.mark.parametrize("mu", [-1.0, math.nan, math.inf])
def test_impossible_mu_is_refused(mu: float) -> None:
    with pytest.raises(AccountingError, match=r"mu must be a finite number, 0 or more"):
        gaussian_epsilon(mu, 1e-5)
    with pytest.raises(AccountingError, match=r"mu must be a finite number, 0 or more"):
        gaussian_delta(mu, 1.0)
    with pytest.raises(AccountingError, match=r"epsilon must be a finite number, 0 or more"):
        gaussian_delta(1.0, mu)


@pytest.mark.parametrize("delta", [0.0, 1.0, math.nan, -1e-5])
def test_impossible_delta_is_refused(delta: float) -> None:
    with pytest.raises(AccountingError, match="delta"):
        gaussian_epsilon(1.0, delta)
    with pytest.raises(AccountingError, match="delta"):
        gaussian_mu(1.0, delta)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan])
def test_impossible_epsilon_is_refused(epsilon: float) -> None:
    with pytest.raises(AccountingError, match="epsilon"):
        gaussian_mu(epsilon, 1e-5)
