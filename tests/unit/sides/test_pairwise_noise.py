"""Float noise between pairs of agents: it cancels up to rounding, and has the variance it says."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from gossamer.errors import SpecError
from gossamer.sides.pairwise_noise import independent_noise, pairwise_noise

AGENTS = (3, 1, 8, 20)


def noises(number: int = 0, seed: int = 0, size: int = 20_000) -> dict[int, np.ndarray]:
    return {agent: pairwise_noise(seed, agent, AGENTS, number, size, 2.0) for agent in AGENTS}


def test_it_cancels_up_to_rounding() -> None:
    """Twelve additions of numbers below 2^6: less than 12 * 2^6 * 2^-53 is lost."""
    found = noises()
    assert max(np.abs(noise).max() for noise in found.values()) < 2**6
    total = sum(found.values())
    assert np.abs(total).max() < 12 * 2**6 * 2.0**-53
    assert np.abs(sum(noise for agent, noise in found.items() if agent != 8)).max() > 1  # one is missing


def test_the_standard_deviation_is_that_of_an_agent() -> None:
    """The sum of three Laplace variables of variance sigma^2/3 has kurtosis 3 + 3/3 = 4, so the sample variance of
    20,000 has a relative standard deviation sqrt(3/20000) = 0.0122; six of them fail once in 5e8."""
    for noise in noises().values():
        assert np.var(noise) == pytest.approx(4.0, rel=6 * 0.0122)


def test_two_agents_have_laplace_noise() -> None:
    """False alarm 1e-6; 5 % more noise is rejected."""
    noise = pairwise_noise(0, 1, (1, 2), 0, 100_000, 2.0)
    assert stats.kstest(noise, stats.laplace(scale=np.sqrt(2)).cdf).pvalue > 1e-6
    assert stats.kstest(noise, stats.laplace(scale=np.sqrt(2) * 1.05).cdf).pvalue < 1e-6
    assert (noise == -pairwise_noise(0, 2, (1, 2), 0, 100_000, 2.0)).all()


def test_rounds_seeds_and_pairs_differ() -> None:
    first = noises(size=5)
    for other in (noises(1, size=5), noises(0, 1, size=5)):
        assert all((first[agent] != other[agent]).all() for agent in AGENTS)
    with_two = pairwise_noise(0, 1, (1, 2), 0, 5, 2.0)
    assert (with_two != pairwise_noise(0, 1, (1, 3), 0, 5, 2.0)).all()


@pytest.mark.parametrize(("agent", "agents"), [(1, (1,)), (1, ()), (1, (2, 3)), (1, (1, 1))])
def test_who_has_nobody_to_share_with_is_refused(agent: int, agents: tuple[int, ...]) -> None:
    with pytest.raises(SpecError, match="noise cancels among two agents or more"):
        pairwise_noise(0, agent, agents, 0, 5, 1.0)


def test_independent_noise_is_laplace_and_of_each_agent_and_round_its_own() -> None:
    """Variance sigma^2 and a mean absolute value of sigma/sqrt(2); of 100,000 draws both are within 3 % (5 sigma)."""
    noise = independent_noise(0, "a", 0, 100_000, 2.0)
    assert noise.var() == pytest.approx(4, rel=0.04)
    assert np.abs(noise).mean() == pytest.approx(2 / np.sqrt(2), rel=0.02)
    for other in (independent_noise(0, "b", 0, 5, 2.0), independent_noise(0, "a", 1, 5, 2.0)):
        assert not np.isclose(other, noise[:5]).any()
