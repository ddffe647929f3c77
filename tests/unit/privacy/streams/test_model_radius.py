"""How far out models of honest runs can be: the bound, its tails, and that runs of every kind stay within it."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from scipy import stats

from gossamer.algorithms.graph_federated.nodes import Assignment
from gossamer.errors import RunWarning, SpecError
from gossamer.experiment.preparation.planning import plan_run
from gossamer.experiment.preparation.prepare import Sources, nodes_of, prepare, sides_of
from gossamer.experiment.preparation.secrets import secret_seed
from gossamer.experiment.specs.spec_file import parse_spec
from gossamer.privacy.streams.correlated_noise import CorrelatedNoise, Factorisation, NoiseLaw, Temporal
from gossamer.privacy.streams.graph_bounds import TAIL_BITS, RandomNoise, model_lengths
from gossamer.protocol.effects import Send
from gossamer.runtimes.simulator import Simulator
from gossamer.vectors import Public

ROUNDS = 8


def model_radius(*arguments: Any) -> float:
    return model_lengths(*arguments).radius


def test_without_noise_it_is_the_start_and_all_moves() -> None:
    """Attained by updates that all point away from zero."""
    assert model_radius(2.0, 0.5, 10, 7, 3) == pytest.approx(7.0, rel=1e-5)
    assert model_radius(2.0, 0.5, 10, 7, 3) >= 7.0
    assert model_radius(0.0, 1.0, 10**6, 7, 3) >= 10**6 * (1 + 2.0**-24) ** 10**6 * (1 - 1e-12)  # rounding to float32


def test_no_neighbour_leads_an_honest_server_out_of_its_lengths() -> None:
    """All that pushes, pushes away from zero: own updates, noise, and neighbours that send the most that is accepted.

    Numbers are lengths; each is rounded up by 2^-24 where a model is rounded.
    """
    noise, up = CorrelatedNoise(Factorisation(Temporal.INDEPENDENT, 50), 0.1), 1 + 2.0**-24
    between = model_lengths(0.0, 0.0, 1, 7, 3 * 50, noise).radius / (3 * math.exp(2.0**-22))  # as many vectors
    for own in (0.05, 0.5, 0.95):
        found = model_lengths(2.0, 0.5, 50, 7, 3, noise)
        v = 2.0
        for _ in range(50):
            assert (v + between) * up <= found.radius
            message = (v + 0.5 + 2 * between) * up
            assert message <= found.message
            v = min(own * message + (1 - own) * found.message, found.model)
        assert v == found.model


@pytest.mark.parametrize(("size", "rounds", "servers"), [(1, 1, 1), (650, 200, 5), (10**6, 10**5, 100)])
def test_lengths_of_normal_noise(size: int, rounds: int, servers: int) -> None:
    """The quantile is no less than the exact one of chi: of one vector, by the union bound over all."""
    noise = CorrelatedNoise(Factorisation(Temporal.INDEPENDENT, rounds), 0.1)
    rounding = math.exp(rounds * 2.0**-22)
    found = model_radius(0.0, 0.0, rounds, size, servers, noise) / ((2 * rounds + 1) * 2 * 0.1 * rounding)
    assert stats.chi(size).logsf(found) < -TAIL_BITS * math.log(2) - math.log(servers * rounds)
    assert found < 1.001 * (math.sqrt(size) + 13 + math.sqrt(2 * math.log(servers * rounds)))


@pytest.mark.parametrize("weights", [[1.0], [1.0] * 50, [1.0, 0.5, 0.375, 0.3125], [3.0, 0.01, 0.01]])
def test_tails_of_sums_of_laplace_noise(weights: list[float]) -> None:
    """P(|sum b_j z_j| > s x) <= 4 exp(-x): by the moments of the proof, and well above what is drawn."""
    b = np.array(weights) / math.sqrt(2)  # scales
    s = math.sqrt(2 * float(b @ b))
    log_moment = -np.log1p(-((b / s) ** 2)).sum()  # log E exp(sum b_j z_j/s)
    assert log_moment <= math.log(2) * (1 + 1e-12)
    if len(weights) == 1:
        for x in (1.0, 5.0, 40.0):
            assert 2 * stats.laplace(scale=b[0]).sf(s * x) <= 4 * math.exp(-x)
    drawn = np.abs(np.random.default_rng(0).laplace(size=(200_000, len(b))) @ b) / s
    for x in (2.0, 3.0, 5.0):  # at most half of the bound is true of each, so 200,000 draws never come near it
        assert (drawn > x).mean() < 4 * math.exp(-x)


def test_noise_of_every_kind_makes_it_longer() -> None:
    def radius(noise: Any = None, agents: float = 0.0) -> float:
        return model_radius(1.0, 0.5, 20, 650, 4, noise, agents)

    independent = CorrelatedNoise(Factorisation(Temporal.INDEPENDENT, 20), 0.1)
    walk = CorrelatedNoise(Factorisation(Temporal.RANDOM_WALK, 20), 0.1)
    laplace = CorrelatedNoise(Factorisation(Temporal.INDEPENDENT, 20), 0.1, NoiseLaw.LAPLACE)
    few, many = (RandomNoise(20, 0.1, ((0.5, links),)) for links in (1, 50))
    assert radius() < radius(independent) < radius(walk) < radius(laplace)
    assert radius(independent) <= radius(few) < radius(many) < 1.01 * radius(few)
    assert radius() < radius(agents=0.01) < radius(agents=0.02)
    # The last message of a random walk carries all twenty draws.
    more = (radius(walk) - radius()) / (radius(independent) - radius())
    assert more == pytest.approx(math.sqrt(20), rel=1e-9)


BASE: dict[str, Any] = {"dataset": "digits", "seed": 3, "budget": {"epsilon": 2.0, "delta": 1e-4}}
UNITS = {
    "name": "graph_federated",
    "units": 3,
    "agents": 3,
    "rounds": ROUNDS,
    "local_steps": 2,
    "step_size": 0.5,
    "batch_size": 4,
    "masking": "secure",
}
RUNS: dict[str, dict[str, Any]] = {
    "no noise": {"privacy": {"mechanism": "none", "clip": 1.0}, "budget": None, "algorithm": {"noise": "none"}},
    "released": {},
    "hidden": {"algorithm": {"gradient_at": "hidden"}},
    "random": {"algorithm": {"noise": "random"}},
    "random walk": {"algorithm": {"temporal": "random_walk"}},
    "independent": {"algorithm": {"temporal": "independent"}},
    "square root": {"algorithm": {"temporal": "sqrt_toeplitz"}},
    "laplace": {"privacy": {"mechanism": "laplace", "clip": 1.0}},
    "asynchronous": {"algorithm": {"synchronous": False, "gradient_at": "hidden"}},
    "agents' noise": {
        "privacy": {"clip": 1.0, "agent_noise": 5.0},
        "algorithm": {"masking": {"name": "secure", "bits": 64}},
    },
    "a network": {"objective": {"name": "mlp"}},
    "far start": {"seed": 11, "algorithm": {"step_size": 1e-6}},
}


@pytest.mark.some(3)
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * ("network" in name)) for name in RUNS])
def test_honest_runs_stay_within_it(name: str) -> None:
    """False alarms: none in 2^64 runs, by what is proved. No sum is refused and no agent withdraws."""
    if RUNS[name].get("objective"):
        pytest.importorskip("torch")
    changes = {"privacy": {"clip": 1.0}, **RUNS[name]}
    spec = {**BASE, **changes, "algorithm": {**UNITS, **changes.get("algorithm", {})}}
    prepared = prepare(parse_spec({key: value for key, value in spec.items() if value is not None}))
    plan: Any = plan_run(prepared)
    assert plan.figures["masked_model_radius"] == plan.lengths.radius
    sides = sides_of(prepared, plan, Sources(secret_seed(prepared, plan.noise, "run")))
    nodes = nodes_of(prepared, plan)
    longest = 0.0

    def look(step: Any) -> None:
        nonlocal longest
        for effect in step.effects:
            if isinstance(effect, Send) and isinstance(effect.message, Assignment):
                longest = max(longest, float(np.linalg.norm(effect.message.model.values.astype(np.float64))))

    simulator = Simulator(nodes, sides, prepared.world, watch=look)
    while not simulator.settled:
        simulator.step()
    assert 0 < longest <= plan.lengths.radius
    assert prepared.algorithm.figures.report(nodes)["masked_sums_refused"] == 0
    assert prepared.algorithm.figures.report(nodes)["updates_unanswered"] == 0


def plan_with(radius: float | None) -> Any:
    masking = {"name": "secure", "radius": radius}
    return plan_run(prepare(parse_spec({**BASE, "privacy": {"clip": 1.0}, "algorithm": {**UNITS, "masking": masking}})))


def test_a_radius_of_ones_own_that_honest_runs_may_leave_warns_with_the_one_that_they_do_not() -> None:
    honest = plan_with(None).lengths.radius
    assert honest > 12.5
    with pytest.warns(
        RunWarning, match=rf"masking.radius is 12.5, .* within {re.escape(f'{honest:.4g}')} only: agents"
    ):
        assert plan_with(12.5).lengths.radius == 12.5
    assert plan_with(1.01 * honest).lengths.radius == 1.01 * honest  # without a word


def test_a_radius_that_the_start_is_beyond_is_refused() -> None:
    algorithm = {**UNITS, "masking": {"name": "secure", "radius": 2.5}}
    prepared = prepare(parse_spec({**BASE, "privacy": {"clip": 1.0}, "algorithm": algorithm}))
    start = np.zeros(prepared.objective.size)
    start[0] = 3.0
    vars(prepared)["initial"] = Public(start)  # in the place of what it would compute
    with pytest.raises(SpecError, match=r"radius is 2\.5 and the starting model is 3 from zero, so no agent"):
        plan_run(prepared)


def test_where_nothing_is_masked_there_is_none() -> None:
    spec = {**BASE, "privacy": {"clip": 1.0}, "algorithm": {**UNITS, "masking": "none"}}
    prepared = prepare(parse_spec(spec))
    plan: Any = plan_run(prepared)
    assert plan.lengths is None
    assert "masked_model_radius" not in plan.figures


@pytest.mark.slow
def test_a_radius_within_the_starting_model_is_refused() -> None:
    pytest.importorskip("torch")
    masking = {"name": "secure", "radius": 0.01}
    spec = {**BASE, "objective": {"name": "mlp"}, "privacy": {"clip": 1.0}, "algorithm": {**UNITS, "masking": masking}}
    with pytest.raises(SpecError, match=r"algorithm.masking.radius is 0.01 and the starting model is .* raise it"):
        plan_run(prepare(parse_spec(spec)))
