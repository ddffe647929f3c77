"""What messages of graph federated learning reveal: the formulas against the algorithm, run on small linear systems."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tests.reference.graph_slow import (
    factor,
    homomorphic,
    mixing,
    noise_factor,
    random_links,
    signs,
)

from gossamer.algorithms.graph_federated.guarantees import graph_guarantees
from gossamer.errors import AccountingError, SpecError
from gossamer.privacy.accounting.gaussian_dp import gaussian_epsilon
from gossamer.privacy.mechanisms import NeighboringRelation
from gossamer.privacy.streams.correlated_noise import CorrelatedNoise, Factorisation, NoiseLaw, Temporal
from gossamer.privacy.streams.graph_bounds import (
    GradientAt,
    RandomNoise,
    UpdateBound,
    gaussian_mu_of,
    laplace_epsilon_of,
)

HIDDEN, RELEASED = GradientAt.HIDDEN, GradientAt.RELEASED
STEP, BOUND, SIGMA = 0.7, 3.0, 2.5
KINDS: list[tuple[str, int | None]] = [
    ("independent", None),
    ("random_walk", None),
    ("sqrt_toeplitz", None),
    ("banded", 2),
    ("banded", 3),
]
CASES = [(t, rounds, bands) for t, bands in KINDS for rounds in (1, 2, 4, 6) if bands is None or bands < rounds]


def update(where: GradientAt = HIDDEN, agents: int = 1) -> UpdateBound:
    return UpdateBound(STEP, BOUND, agents, where)


def correlated(temporal: str, rounds: int, bands: int | None, law: NoiseLaw = NoiseLaw.GAUSSIAN) -> CorrelatedNoise:
    return CorrelatedNoise(Factorisation(Temporal(temporal), rounds, bands), SIGMA, law)


@pytest.mark.parametrize(("temporal", "rounds", "bands"), CASES)
def test_homomorphic_noise(temporal: str, rounds: int, bands: int | None) -> None:
    """The largest mu and pure epsilon over all corners of the moves, of messages of eqs. 6-8 and 47 with feedback."""
    for where in [HIDDEN, RELEASED]:
        generator = np.random.default_rng(rounds)
        agents = 4
        bound = update(where, agents)
        moves = 2 * BOUND / (agents if where is RELEASED else 1)
        for units in (2, 4):
            seen = homomorphic(
                mixing(units, generator), noise_factor(temporal, rounds, bands), STEP, released=where is RELEASED
            )
            mu = max(seen.mu(moves * d / SIGMA) for d in signs(rounds))
            assert gaussian_mu_of(correlated(temporal, rounds, bands), bound) == pytest.approx(mu, rel=1e-6)
            epsilon = max(seen.laplace(moves * d / SIGMA) for d in signs(rounds))
            law = correlated(temporal, rounds, bands, NoiseLaw.LAPLACE)
            assert laplace_epsilon_of(law, bound, 1) == pytest.approx(epsilon, rel=1e-6)


@pytest.mark.parametrize(("temporal", "rounds", "bands"), CASES)
def test_a_unit_that_learns_at_its_hidden_state(temporal: str, rounds: int, bands: int | None) -> None:
    """A least-squares unit whose target moves by 1: its updates move by what follows, and the bound holds."""
    for curvature in [0.2, 0.9]:
        a = mixing(3, np.random.default_rng(1))
        seen = homomorphic(a, noise_factor(temporal, rounds, bands), STEP, curvature=curvature)
        exact = seen.mu(-curvature * np.ones(rounds) / SIGMA)
        # Given the messages, the hidden state moves by the running sum of the moves of earlier updates.
        moved: list[float] = []
        for _ in range(rounds):
            moved.append(-curvature * (1.0 + STEP * sum(moved)))
        c = factor(temporal, rounds, bands)
        assert exact == pytest.approx(STEP / SIGMA * np.linalg.norm(c @ np.array(moved)), rel=1e-6)
        bound = UpdateBound(STEP, max(map(abs, moved)) / 2, 1, HIDDEN)
        assert exact <= gaussian_mu_of(correlated(temporal, rounds, bands), bound) * (1 + 1e-6)


def test_in_more_dimensions_the_laplace_bound_is_attained_on_the_diagonal() -> None:
    """A move of L2 norm D has L1 norm sqrt(d) D there; along an axis it has D."""
    rounds, size = 4, 9
    for temporal, bands in KINDS:
        c = factor(temporal, rounds, bands)
        diagonal = np.full((rounds, size), 2 * STEP * BOUND / math.sqrt(size))
        exact = math.sqrt(2) / SIGMA * np.abs(c @ diagonal).sum()
        found = laplace_epsilon_of(correlated(temporal, rounds, bands, NoiseLaw.LAPLACE), update(), size)
        assert found == pytest.approx(exact, rel=1e-6)


def test_the_papers_own_setting() -> None:
    """Independent Laplace noise: sqrt(2d) mu B T (T+1)/sigma; normal: mu_G^2 = sum_i (2 mu B i/sigma)^2."""
    rounds, size = 7, 5
    laplace = correlated("independent", rounds, None, NoiseLaw.LAPLACE)
    expected = math.sqrt(2 * size) * STEP * BOUND * rounds * (rounds + 1) / SIGMA
    assert laplace_epsilon_of(laplace, update(), size) == pytest.approx(expected, rel=1e-12)
    mu = math.sqrt(sum((2 * STEP * BOUND * i / SIGMA) ** 2 for i in range(1, rounds + 1)))
    assert gaussian_mu_of(correlated("independent", rounds, None), update()) == pytest.approx(mu, rel=1e-12)


def test_released_models_divide_by_the_sampled_agents_and_hidden_ones_do_not() -> None:
    noise = correlated("random_walk", 5, None)
    assert update(RELEASED, 11).moved == pytest.approx(2 * STEP * BOUND / 11)
    assert update(HIDDEN, 11).moved == pytest.approx(2 * STEP * BOUND)
    assert gaussian_mu_of(noise, update(HIDDEN, 11)) == pytest.approx(11 * gaussian_mu_of(noise, update(RELEASED, 11)))


@pytest.mark.parametrize("units", [2, 3, 5])
def test_random_noise(units: int) -> None:
    """Messages on all links of a unit with a clean own term reveal what the formula says; with a noisy one, less."""
    for rounds in [1, 2, 4, 6]:
        a = mixing(units, np.random.default_rng(units))
        links = ((float(a[0, 0]), units - 1),)
        clean, noisy = (random_links(a, rounds, STEP, own_noise=own) for own in (False, True))
        moves = 2 * BOUND / SIGMA
        mu = max(clean.mu(moves * d) for d in signs(rounds))
        assert gaussian_mu_of(RandomNoise(rounds, SIGMA, links), update()) == pytest.approx(mu, rel=1e-8)
        assert max(noisy.mu(moves * d) for d in signs(rounds)) <= mu * (1 + 1e-9)
        geometric = np.array([[a[0, 0] ** (i - j) if i >= j else 0.0 for j in range(rounds)] for i in range(rounds)])
        epsilon = max(math.sqrt(2) * (units - 1) * STEP * np.abs(geometric @ (moves * d)).sum() for d in signs(rounds))
        law = RandomNoise(rounds, SIGMA, links, NoiseLaw.LAPLACE)
        assert laplace_epsilon_of(law, update(), 1) == pytest.approx(epsilon, rel=1e-9)


def test_a_unit_without_an_own_term_forgets_at_once() -> None:
    """a_pp = 0: each message has one update, on n_p links for T rounds."""
    mu = gaussian_mu_of(RandomNoise(4, SIGMA, ((0.0, 3),)), update())
    assert mu == pytest.approx(2 * STEP * BOUND / SIGMA * math.sqrt(3 * 4), rel=1e-12)


def test_with_a_noisy_own_term_random_noise_reveals_strictly_less() -> None:
    a = mixing(3, np.random.default_rng(3))
    clean, noisy = (random_links(a, 5, STEP, own_noise=own).mu(np.ones(5)) for own in (False, True))
    assert noisy < 0.99 * clean


def test_random_noise_counts_the_unit_about_which_most_is_said() -> None:
    few, many = (0.8, 2), (0.1, 7)
    noise = {links: gaussian_mu_of(RandomNoise(10, SIGMA, (links,)), update()) for links in (few, many)}
    assert gaussian_mu_of(RandomNoise(10, SIGMA, (few, many)), update()) == max(noise.values())
    law = NoiseLaw.LAPLACE
    pure = [laplace_epsilon_of(RandomNoise(10, SIGMA, (links,), law), update(), 3) for links in (few, many)]
    assert pure[0] != pure[1]
    assert laplace_epsilon_of(RandomNoise(10, SIGMA, (many, few), law), update(), 3) == max(pure)


def test_guarantees_by_observer() -> None:
    noise, delta = correlated("random_walk", 20, None), 1e-5
    hidden, released = (graph_guarantees(noise, update(where, 4), 3, delta) for where in (HIDDEN, RELEASED))
    assert set(hidden) == {"other_units", "own_agents", "own_server"}
    for found, where, unit in ((hidden, HIDDEN, "federated unit"), (released, RELEASED, "agent")):
        guarantee = found["other_units"]
        assert guarantee.epsilon == gaussian_epsilon(gaussian_mu_of(noise, update(where, 4)), delta)
        assert (guarantee.delta, guarantee.unit) == (delta, unit)
        assert guarantee.neighboring_relation is NeighboringRelation.REPLACE_ONE
        assert guarantee.observer.startswith("other units")
        assert any(line.startswith("trusted: ") for line in guarantee.assumptions)
        assert f"whether any one {unit} was replaced by another" in str(guarantee)
        assert math.isinf(found["own_server"].epsilon)
        assert str(found["own_server"]).startswith("Guarantee: none.")
    assert "own agents" in hidden["other_units"].assumptions[0]
    assert math.isinf(hidden["own_agents"].epsilon)
    assert released["own_agents"] == released["other_units"]
    assert "the other agents" in released["own_agents"].observer


def test_laplace_guarantees_need_no_delta() -> None:
    noise = correlated("independent", 4, None, NoiseLaw.LAPLACE)
    guarantee = graph_guarantees(noise, update(), 3, 1e-5)["other_units"]
    assert guarantee.delta == 0
    assert guarantee.epsilon == laplace_epsilon_of(noise, update(), 3)


def test_a_law_is_not_accounted_for_as_another() -> None:
    with pytest.raises(SpecError, match="expected gaussian noise, found laplace"):
        gaussian_mu_of(correlated("independent", 4, None, NoiseLaw.LAPLACE), update())
    with pytest.raises(SpecError, match="expected laplace noise, found gaussian"):
        laplace_epsilon_of(correlated("independent", 4, None), update(), 3)


@pytest.mark.parametrize("law", list(NoiseLaw))
def test_random_noise_has_no_released_model(law: NoiseLaw) -> None:
    noise = RandomNoise(3, 1.0, ((0.5, 2),), law)
    with pytest.raises(SpecError, match="use gradient_at: hidden"):
        graph_guarantees(noise, update(RELEASED), 3, 1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-0.1, 1.0, 1, "hidden"), "step must be a finite number > 0, found -0.1"),
        ((math.nan, 1.0, 1, "hidden"), "step must be .* found nan"),
        ((0.0, 1.0, 1, "hidden"), "step must be .* found 0.0"),
        ((0.1, math.inf, 1, "hidden"), "bound must be a finite number > 0, found inf"),
        ((0.1, 0.0, 1, "hidden"), "bound must be a finite number > 0, found 0.0"),
        ((0.1, 1.0, 0, "released"), "agents_sampled must be a whole number > 0, found 0"),
        ((0.1, 1.0, 1, "relased"), "'relased' is not a valid GradientAt"),
    ],
)
def test_impossible_bounds_are_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        UpdateBound(*arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 1.0, ((0.5, 2),)), "rounds must be a whole number > 0, found 0"),
        ((3, math.nan, ((0.5, 2),)), "standard_deviation must be a finite number > 0, found nan"),
        ((3, -1.0, ((0.5, 2),)), "found -1.0"),
        ((3, 0.0, ((0.5, 2),)), "found 0.0"),
        ((3, math.inf, ((0.5, 2),)), "found inf"),
        ((3, 1.0, ()), "at least 1 neighbour"),
        ((3, 1.0, ((1.0, 2),)), "own weight"),
        ((3, 1.0, ((-0.1, 2),)), "own weight"),
        ((3, 1.0, ((0.5, 2), (0.5, 0))), "at least 1 neighbour"),
    ],
)
def test_impossible_random_noise_is_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        RandomNoise(*arguments)


def test_sizes_and_deltas_are_checked() -> None:
    with pytest.raises(SpecError, match="at least 1, found 0"):
        laplace_epsilon_of(correlated("independent", 4, None, NoiseLaw.LAPLACE), update(), 0)
    with pytest.raises(AccountingError, match="delta"):
        graph_guarantees(correlated("independent", 4, None), update(), 3, 0.0)
