"""The choice of noise for graph federated learning: against its own parts, and a slow search."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.reference.graph_slow import factor, model_spread, noise_factor

from gossamer.algorithms.graph_federated.noise import (
    Measure,
    NoiseProblem,
    factorisations,
    least_noise,
    plan_noise,
    privacy_loss,
)
from gossamer.errors import AccountingError, SpecError, TopologyError
from gossamer.privacy.accounting.gaussian_dp import gaussian_epsilon, gaussian_mu
from gossamer.privacy.streams.correlated_noise import Factorisation, NoiseLaw, Temporal
from gossamer.privacy.streams.graph_bounds import (
    GradientAt,
    RandomNoise,
    UpdateBound,
    gaussian_mu_of,
    laplace_epsilon_of,
)
from gossamer.topology.graphs import Graph
from gossamer.topology.mixing import metropolis

HIDDEN, RELEASED = GradientAt.HIDDEN, GradientAt.RELEASED


def ring(units: int) -> np.ndarray:
    return metropolis(Graph(units, np.array([[i, (i + 1) % units] for i in range(units)]))).toarray()


def problem(where: GradientAt = RELEASED, rounds: int = 6, units: int = 5, measure: str = "mean") -> NoiseProblem:
    return NoiseProblem(1.5, 1e-6, rounds, UpdateBound(0.5, 4.0, 3, where), 7, ring(units), measure=Measure(measure))


def slow(asked: NoiseProblem) -> dict[tuple[str, int | None], float]:
    """Disagreement of every factorisation at the noise that it needs, by matrices."""
    mu, found = gaussian_mu(asked.epsilon, asked.delta), {}
    for made in factorisations(asked.rounds):
        key = made.temporal.value, made.bands
        arguments = key[0], asked.rounds, key[1]
        deviation = asked.update.moved * np.linalg.norm(factor(*arguments).sum(axis=1)) / mu
        spread = model_spread(
            np.asarray(asked.mixing),
            noise_factor(*arguments),
            asked.contraction,
            released=asked.update.gradient_at is RELEASED,
        )
        apart = spread.apart * asked.size * deviation**2
        found[key] = float(apart.mean() if asked.measure is Measure.MEAN else apart[-1])
    return found


@pytest.mark.parametrize("measure", list(Measure))
@pytest.mark.parametrize("where", [HIDDEN, RELEASED])
@pytest.mark.parametrize("rounds", [2, 5, 9])
@pytest.mark.parametrize("units", [3, 24])
def test_the_least_disagreement_is_taken(where: GradientAt, rounds: int, units: int, measure: Measure) -> None:
    asked = replace(problem(where, rounds, units), measure=measure)
    plan, expected = plan_noise(asked), slow(asked)
    which = "last_disagreement" if measure is Measure.LAST else "disagreement"
    found = {(c.noise.factorisation.temporal.value, c.noise.factorisation.bands): c.figures[which] for c in plan}
    assert found == pytest.approx(expected, rel=1e-6)
    assert plan[0].figures[which] == min(found.values())
    assert list(found.values()) == sorted(found.values())


def test_it_is_not_always_the_same() -> None:
    """A star mixes slowly: after the last of 100 rounds the walk is not the least, on average it is."""
    star = metropolis(Graph(10, np.array([[0, i] for i in range(1, 10)])))
    asked = replace(problem(HIDDEN, 100), mixing=star)
    assert plan_noise(asked)[0].noise.factorisation.temporal is Temporal.RANDOM_WALK
    last = plan_noise(replace(asked, measure=Measure.LAST))
    assert last[0].noise.factorisation.temporal is Temporal.BANDED


@pytest.mark.parametrize("where", [HIDDEN, RELEASED])
def test_every_choice_meets_the_guarantee_and_no_less_noise_does(where: GradientAt) -> None:
    asked = problem(where)
    for choice in plan_noise(asked):
        assert choice.mu_g == gaussian_mu_of(choice.noise, asked.update)
        assert choice.mu_g <= gaussian_mu(asked.epsilon, asked.delta)
        assert gaussian_epsilon(choice.mu_g, asked.delta) == pytest.approx(asked.epsilon, rel=1e-9)


def test_one_round_has_one_kind_of_noise_and_the_simplest_is_taken() -> None:
    plan = plan_noise(problem(rounds=1))
    assert [choice.noise.factorisation.temporal for choice in plan] == [
        Temporal.INDEPENDENT,
        Temporal.RANDOM_WALK,
        Temporal.SQRT_TOEPLITZ,
    ]
    assert len({choice.noise.standard_deviation for choice in plan}) == 1


def test_of_equal_disagreement_the_centroid_decides() -> None:
    """Full averaging leaves none between released models, whatever the noise; the centroid moves."""
    plan = plan_noise(replace(problem(), mixing=np.full((4, 4), 0.25)))
    assert {choice.figures["disagreement"] for choice in plan} == {0.0}
    assert plan[0].noise.factorisation.temporal is Temporal.RANDOM_WALK
    moved = [choice.figures["centroid"] for choice in plan]
    assert moved == sorted(moved)
    assert moved[0] < moved[-1]


def test_contraction_lessens_disagreement() -> None:
    whole, half = (plan_noise(replace(problem(), contraction=r))[0].figures["disagreement"] for r in (1.0, 0.5))
    assert half < 0.9 * whole
    assert slow(replace(problem(), contraction=0.5))["random_walk", None] == pytest.approx(half, rel=1e-6)


def test_what_is_tried() -> None:
    assert [made.bands for made in factorisations(9)] == [None, None, 2, 4, 8, None]
    assert [made.bands for made in factorisations(99)] == [None, None, 2, 4, 8, 16, 32, 64, None]
    assert [made.bands for made in factorisations(8)] == [None, None, 2, 4, None]


def test_impossible_problems_are_refused() -> None:
    with pytest.raises(SpecError, match="rounds must be a whole number > 0, found 0"):
        plan_noise(problem(rounds=0))
    with pytest.raises(AccountingError, match="epsilon"):
        plan_noise(replace(problem(), epsilon=0.0))
    with pytest.raises(AccountingError, match="delta"):
        plan_noise(replace(problem(), delta=math.nan))
    with pytest.raises(TopologyError, match="connects"):
        plan_noise(replace(problem(), mixing=np.eye(3)))
    with pytest.raises(SpecError, match="largest floating-point number"):
        plan_noise(replace(problem(), update=UpdateBound(1e160, 1.0, 1, HIDDEN)))


@pytest.mark.parametrize("where", [HIDDEN, RELEASED])
def test_laplace_noise_is_planned_by_the_l1_norm(where: GradientAt) -> None:
    """sqrt(2d) D sum_ij C_ij / sigma is epsilon, at delta 0, and hardly less."""
    asked = replace(problem(where), law=NoiseLaw.LAPLACE)
    plan = plan_noise(asked)
    for choice in plan:
        made = choice.noise.factorisation
        entries = factor(made.temporal.value, asked.rounds, made.bands).sum()
        expected = math.sqrt(2 * 7) * asked.update.moved * entries / asked.epsilon
        assert choice.noise.standard_deviation == pytest.approx(expected, rel=1e-6)
        assert choice.noise.law is NoiseLaw.LAPLACE
        assert laplace_epsilon_of(choice.noise, asked.update, 7) == choice.mu_g <= asked.epsilon
    assert plan[0].figures["disagreement"] == min(choice.figures["disagreement"] for choice in plan)


def test_a_plan_among_some() -> None:
    some = [Factorisation(Temporal.INDEPENDENT, 6), Factorisation(Temporal.BANDED, 6, 3)]
    plan = plan_noise(problem(), some)
    assert {choice.noise.factorisation for choice in plan} == set(some)
    everything = {choice.noise.factorisation: choice for choice in plan_noise(problem())}
    assert everything[some[0]] in plan


@pytest.mark.parametrize("law", list(NoiseLaw))
def test_the_least_random_noise(law: NoiseLaw) -> None:
    asked = replace(problem(HIDDEN), law=law)
    found = least_noise(RandomNoise(6, 99.0, ((0.5, 2), (0.9, 1)), law), asked)
    assert privacy_loss(found, asked.update, asked.size) <= asked.allowed
    less = replace(found, standard_deviation=found.standard_deviation * (1 - 1e-9))
    assert privacy_loss(less, asked.update, asked.size) > asked.allowed
