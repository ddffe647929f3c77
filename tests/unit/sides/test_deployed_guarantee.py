"""What a guarantee becomes in a deployment: the terms of noise on a grid, rounded up, and other assumptions."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from decimal import Decimal, localcontext
from pathlib import Path

import pytest
from tests.reference.grid_accounting import grid_epsilon

from gossamer.algorithms.graph_federated import guarantees as graph_guarantees
from gossamer.privacy.exact.grid_noise import GridGaussian
from gossamer.privacy.guarantees import SIMULATED_NOISE, Guarantee, none, planned
from gossamer.privacy.mechanisms import OPEN_TIMES, PUBLIC_TIMES, Gaussian, NeighboringRelation, Poisson
from gossamer.privacy.streams import graph_bounds
from gossamer.privacy.streams.graph_bounds import AgentNoise, own_server_guarantee
from gossamer.sides.guarantees import (
    DISK,
    FLOATING_POINT,
    MACHINE,
    NETWORK,
    RANDOMNESS,
    ROUNDING_TOO,
    deployed_bound,
    deployed_guarantee,
)
from gossamer.sides.plan import NOT_CRASHES, Drawn, Times

ADD_OR_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE
PLAN = planned(1.25, 1e-5, ADD_OR_REMOVE, "PLD")


@pytest.mark.parametrize("part", ["1e-5", "1e-90"])
def test_the_terms_are_those_of_the_page(part: str) -> None:
    """In 60 decimal digits: no less, and no more than rounding."""
    for epsilon, drawn in itertools.product(
        [0.01, 1.0, 20.0, 60.0], [Drawn(1), Drawn(10**11, 10**4), Drawn(0, 5), Drawn(10**30, 1)]
    ):
        found, delta = deployed_bound(epsilon, float(part), drawn)
        with localcontext() as context:
            context.prec = 60
            tau = 2 * (-8 * Decimal(math.pi) ** 2).exp()  # t = 2; later terms are far below
            eta = drawn.numbers * ((1 + tau) / (1 - tau)).ln()
            bound = Decimal(epsilon) + 2 * eta
            distance = (1 + bound.exp()) * (drawn.numbers + drawn.samples) / Decimal(2) ** 170
            total = eta.exp() * Decimal(part) + distance
            assert bound <= Decimal(found) <= bound * (1 + Decimal("1e-9"))
            assert total <= Decimal(delta) <= total * (1 + Decimal("1e-9"))


def test_they_are_those_of_noise_on_a_grid() -> None:
    """Against `grid_epsilon`, which spends them from delta: at the same delta it is no smaller than the plan's."""
    noise, sampling, releases = GridGaussian.like(Gaussian(1.0, 1.0), 100), Poisson(0.01), 300
    accounted = grid_epsilon({(noise, sampling): releases}, 1e-5, ADD_OR_REMOVE)
    found, delta = deployed_bound(accounted.epsilon, 1e-5, Drawn(releases * 100, releases))
    assert accounted.epsilon < found < accounted.epsilon * (1 + 1e-12)
    assert 1e-5 < delta < 1e-5 * (1 + 1e-9)


def test_where_nothing_is_drawn_on_a_grid_the_bound_stays() -> None:
    assert deployed_bound(3.0, 0.0, Drawn(floating_point=True)) == (3.0, 0.0)
    found = deployed_guarantee(replace(PLAN, delta=0.0), Drawn(floating_point=True, network=True))
    assert (found.epsilon, found.delta, found.proof) == (1.25, 0.0, "PLD")
    assert FLOATING_POINT in found.assumptions
    assert NETWORK not in found.assumptions


def test_assumptions_of_a_simulation_go_and_those_of_a_deployment_come() -> None:
    found = deployed_guarantee(PLAN, Drawn(10, 1))
    assert SIMULATED_NOISE in PLAN.assumptions
    kept = [line for line in PLAN.assumptions if line != SIMULATED_NOISE]
    assert found.assumptions == (*kept, RANDOMNESS, MACHINE, DISK)
    assert found.proof == "PLD; rounding of sums and noise is covered: the noise is drawn exactly, on a grid"
    network = deployed_guarantee(PLAN, Drawn(10, 1, network=True))
    assert network.assumptions == (*found.assumptions, NETWORK)


@pytest.mark.parametrize("drawn", [Drawn(), Drawn(10**6, 300), Drawn(floating_point=True)])
def test_samples_that_may_be_late_are_added_to_delta(drawn: Drawn) -> None:
    """As they are, with no factor; and what is said of times is said of these."""
    late = 1 << 55  # 3e-8, which a float beside 1e-5 shows
    found = deployed_guarantee(PLAN, replace(drawn, times=Times(PUBLIC_TIMES, late)))
    before = deployed_guarantee(PLAN, drawn)
    assert found.epsilon == before.epsilon
    assert before.delta + late * 2.0**-80 <= found.delta <= (before.delta + late * 2.0**-80) * (1 + 1e-9)
    assert PUBLIC_TIMES in found.assumptions
    assert NOT_CRASHES not in found.assumptions
    assert found.assumptions == tuple(PUBLIC_TIMES if line == NOT_CRASHES else line for line in before.assumptions)


def test_answers_that_go_at_once_may_tell_and_it_is_said() -> None:
    found = deployed_guarantee(PLAN, Drawn(10, 1, times=Times(OPEN_TIMES)))
    assert found.delta == deployed_guarantee(PLAN, Drawn(10, 1)).delta
    assert OPEN_TIMES in found.assumptions


def test_what_is_said_of_rounding_in_units_is_replaced() -> None:
    assert ROUNDING_TOO in graph_guarantees.ASSUMPTIONS
    unit = Guarantee(1.0, 1e-5, "agent", NeighboringRelation.REPLACE_ONE, "", graph_guarantees.ASSUMPTIONS, "")
    found = deployed_guarantee(unit, Drawn(10))
    assert ROUNDING_TOO not in found.assumptions
    assert NOT_CRASHES in found.assumptions


def test_an_agent_s_own_guarantee_loses_the_secret_too() -> None:
    plan = own_server_guarantee(AgentNoise(100, 50.0, 3), 2, 1e-5)
    assert any("noise secret" in line for line in graph_bounds.ASSUMPTIONS)
    found = deployed_guarantee(plan, Drawn())
    assert (found.epsilon, found.delta) == (plan.epsilon, plan.delta)
    assert not any("noise secret" in line for line in found.assumptions)
    assert RANDOMNESS in found.assumptions


def test_no_guarantee_stays_none() -> None:
    nothing = none("privacy: none", ADD_OR_REMOVE)
    assert deployed_guarantee(nothing, Drawn(10)) == nothing


def test_an_epsilon_beyond_the_samplers_errors_is_none() -> None:
    found = deployed_guarantee(replace(PLAN, epsilon=120.0), Drawn(10**9, 10))
    assert math.isinf(found.epsilon)
    assert "samplers" in str(found)
    assert math.isinf(deployed_guarantee(replace(PLAN, epsilon=1e6), Drawn(1)).epsilon)


def test_every_assumption_is_explained() -> None:
    page = Path(__file__).resolve().parents[3] / "docs" / "privacy" / "guarantees.md"
    text = " ".join(page.read_text(encoding="utf-8").split())
    for line in (RANDOMNESS, MACHINE, DISK, FLOATING_POINT, NETWORK, NOT_CRASHES, PUBLIC_TIMES, OPEN_TIMES):
        assert f'"{line}"' in text
