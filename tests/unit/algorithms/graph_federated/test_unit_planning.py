"""From a spec of federated units to noise and guarantees: against formulas of its own, and the planner's figures."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm
from tests.reference.graph_slow import factor

import gossamer as gs
from gossamer.algorithms.graph_federated.guarantees import THEOREM2
from gossamer.algorithms.graph_federated.planning import first_rounds, planned_noise, unit_terms
from gossamer.algorithms.graph_federated.settings import combination
from gossamer.algorithms.plan import Plan
from gossamer.cli import main
from gossamer.errors import CallerError
from gossamer.experiment.preparation.planning import plan_run, problem_of
from gossamer.experiment.preparation.prepare import Prepared, Sources, prepare, sides_of
from gossamer.experiment.preparation.secrets import _deciding, secret_seed
from gossamer.experiment.specs.spec_file import parse_spec
from gossamer.privacy.guarantees import SIMULATED_NOISE
from gossamer.privacy.mechanisms import NeighboringRelation
from gossamer.privacy.streams.correlated_noise import CorrelatedNoise, Factorisation, NoiseLaw, Temporal
from gossamer.privacy.streams.graph_bounds import RandomNoise, UpdateBound, gaussian_mu_of
from gossamer.sides.ledger import Receipt
from gossamer.sides.plan import Trust

MU, B, T, SIZE = 0.5, 2.0, 12, 650
BUDGET = {"epsilon": 6, "delta": 1e-6}
BASE: dict[str, Any] = {
    "name": "graph_federated",
    "units": 4,
    "agents": 5,
    "agents_sampled": 3,
    "rounds": T,
    "step_size": MU,
    "batch_size": 4,
}
MATRIX = ((0.5, 0.2, 0.3), (0.2, 0.7, 0.1), (0.3, 0.1, 0.6))
"""Two neighbours each, and own weights that differ."""


EXAMPLE = Path(__file__).parents[4] / "examples" / "digits-graph.yaml"


def spec(algorithm: dict[str, Any] | None = None, **sections: Any) -> gs.Experiment:
    content = {"dataset": "digits", "privacy": {"clip": B}, "budget": BUDGET, **sections}
    content["algorithm"] = {**BASE, **(algorithm or {})}
    return parse_spec({key: value for key, value in content.items() if value is not None})


def given(deviation: float, algorithm: dict[str, Any] | None = None, **privacy: Any) -> gs.Experiment:
    return spec(algorithm, privacy={"clip": B, "standard_deviation": deviation, **privacy}, budget=None)


def planned(experiment: gs.Experiment) -> tuple[Prepared, Plan]:
    prepared = prepare(experiment)
    return prepared, plan_run(prepared)


def servers_of(prepared: Prepared) -> tuple[str, ...]:
    return prepared.cast.servers


def slow_epsilon(mu: float, delta: float) -> float:
    """Of N(0, 1) against N(mu, 1), by the formula of Balle and Wang, theorem 8."""
    profile = lambda e: norm.cdf(mu / 2 - e / mu) - math.exp(e) * norm.cdf(-mu / 2 - e / mu) - delta  # noqa: E731
    return float(brentq(profile, 0, 100, xtol=1e-12))


def moved(temporal: str, bands: int | None = None) -> np.ndarray:
    """C 1."""
    return factor(temporal, T, bands).sum(axis=1)


# Epsilon of noise that is given


@pytest.mark.parametrize(("temporal", "bands"), [("independent", None), ("random_walk", None), ("banded", 3)])
@pytest.mark.parametrize("where", ["released", "hidden"])
def test_gaussian_noise_of_a_given_standard_deviation(temporal: str, bands: int | None, where: str) -> None:
    _, plan = planned(given(20.0, {"temporal": temporal, "bands": bands, "gradient_at": where}, delta=1e-7))
    reach = 2 * MU * B / (3 if where == "released" else 1)
    expected = slow_epsilon(reach / 20 * float(np.linalg.norm(moved(temporal, bands))), 1e-7)
    assert plan.guarantee.epsilon == pytest.approx(expected, rel=1e-6)
    assert set(plan.epsilons.values()) == {plan.guarantee.epsilon}
    assert plan.guarantee.delta == 1e-7
    assert plan.guarantee.unit == ("agent" if where == "released" else "federated unit")


@pytest.mark.parametrize("where", ["released", "hidden"])
def test_laplace_noise_is_by_the_l1_norm_at_delta_0(where: str) -> None:
    _, plan = planned(given(1e4, {"gradient_at": where}, mechanism="laplace"))
    reach = 2 * MU * B / (3 if where == "released" else 1)
    assert plan.guarantee.epsilon == pytest.approx(math.sqrt(2 * SIZE) * reach * moved("independent").sum() / 1e4)
    assert plan.guarantee.delta == 0


@pytest.mark.parametrize("own_term", [False, True])
@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_random_noise_of_each_unit_by_its_own_links(law: str, own_term: bool) -> None:
    """Noise on the own term is given to the observer: it is drawn, once more a round, and lowers no epsilon."""
    changes = {"units": 3, "combination": MATRIX, "noise": "random_own_term" if own_term else "random"}
    prepared, plan = planned(given(50.0, changes, mechanism=law, delta=1e-7))
    reach = 2 * MU * B
    for row, (server, agents) in enumerate(
        zip(servers_of(prepared), np.split(np.array(prepared.names), 3), strict=True)
    ):
        sums = [sum(MATRIX[row][row] ** j for j in range(i + 1)) for i in range(T)]
        if law == "gaussian":
            expected = slow_epsilon(reach / 50 * math.sqrt(2 * sum(s * s for s in sums)), 1e-7)
        else:
            expected = math.sqrt(2 * SIZE) * reach / 50 * 2 * sum(sums)
        assert [plan.epsilons[agent] for agent in agents.tolist()] == pytest.approx([expected] * 5, rel=1e-6)
        assert plan.sides[server].records == (2 + own_term) * T
    assert plan.guarantee.epsilon == max(plan.epsilons.values())
    assert len(set(plan.epsilons.values())) == 3
    assert plan.describe()["noise"] == "random"
    assert plan.describe()["rounds"] == T


def test_units_that_sample_other_numbers_of_agents() -> None:
    """Each agent's own epsilon is that of its unit's L; the guarantee is that of the smallest."""
    prepared, plan = planned(given(30.0, {"agents": (2, 3, 5, 9), "agents_sampled": None}))
    for agents, count in zip(np.split(np.array(prepared.names), [2, 5, 10]), (2, 3, 5, 9)):
        expected = slow_epsilon(2 * MU * B / count / 30 * np.linalg.norm(moved("independent")), 1e-5)
        assert [plan.epsilons[name] for name in agents.tolist()] == pytest.approx([expected] * count, rel=1e-6)
    assert plan.guarantee.epsilon == plan.epsilons["node-00"]


# Noise that a budget needs


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"gradient_at": "hidden"},
        {"temporal": "independent"},
        {"temporal": "banded", "bands": 4},
        {"noise": "random"},
        {"agents": (2, 3, 5, 9), "agents_sampled": None},
    ],
    ids=str,
)
def test_a_budget_is_met_and_hardly_any_is_left(law: str, changes: dict[str, Any]) -> None:
    _, plan = planned(spec(changes, privacy={"clip": B, "mechanism": law}))
    assert plan.guarantee.epsilon <= BUDGET["epsilon"]
    assert plan.guarantee.epsilon == pytest.approx(BUDGET["epsilon"], rel=1e-9)
    assert max(plan.epsilons.values()) == plan.guarantee.epsilon
    assert plan.guarantee.delta == (BUDGET["delta"] if law == "gaussian" else 0)
    if "temporal" in changes:
        assert plan.describe()["temporal"] == changes["temporal"]


@pytest.mark.parametrize("where", ["released", "hidden"])
def test_the_figures_of_the_planner(where: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What ``gossamer plan graph_federated`` says of the same problem, to the last digit."""
    arguments = f"--epsilon 6 --delta 1e-6 --rounds {T} --step {MU} --bound {B} --size {SIZE} --graph ring --units 4"
    assert (
        main(["plan", "graph_federated", *arguments.split(), "--agents-sampled", "3", "--gradient-at", where, "--json"])
        == 0
    )
    found = json.loads(capsys.readouterr().out)
    _, plan = planned(spec({"gradient_at": where}))
    noise = plan.side("server-0").law
    assert isinstance(noise, CorrelatedNoise)
    assert noise.standard_deviation == found["sigma"]
    assert noise.factorisation.temporal.value == found["temporal"]
    assert plan.figures["expected_noise"] == {
        key: found[key] for key in ("disagreement", "last_disagreement", "centroid", "last_centroid")
    }
    for observer, guarantee in plan.guarantees.items():
        expected = found["guarantees"][observer]
        assert guarantee.as_dict()["epsilon"] == expected["epsilon"]
        assert guarantee.proof == expected["proof"]
        assert set(expected["assumptions"]) <= set(guarantee.assumptions)


def test_laplace_takes_the_least_disagreement_too() -> None:
    plans = [
        planned(spec({"temporal": temporal}, privacy={"clip": B, "mechanism": "laplace"}))[1]
        for temporal in (None, "independent", "random_walk", "sqrt_toeplitz")
    ]
    figures = [plan.figures["expected_noise"]["disagreement"] for plan in plans]
    assert len(figures) == 4
    assert figures[0] == min(figures[1:])
    assert figures[0] < max(figures[1:])


# What is said


def test_observers_of_released_and_of_hidden_state() -> None:
    for where, own_agents in (("released", True), ("hidden", False)):
        _, plan = planned(spec({"gradient_at": where}))
        assert set(plan.guarantees) == {"other_units", "own_agents", "own_server"}
        assert plan.guarantee is plan.guarantees["other_units"]
        assert math.isfinite(plan.guarantees["own_agents"].epsilon) == own_agents
        assert math.isinf(plan.guarantees["own_server"].epsilon)
        assert plan.guarantee.neighboring_relation is NeighboringRelation.REPLACE_ONE
        assert any("own server" in assumption for assumption in plan.guarantee.assumptions)


@pytest.mark.parametrize(("masking", "hidden"), [("none", False), ("secure", True)])
def test_what_the_own_server_sees(masking: str, hidden: bool) -> None:
    """Sums only with secure masks."""
    if masking == "secure":
        pytest.importorskip("cryptography")
    settings: dict[str, Any] = {"name": masking}
    _, plan = planned(spec({"masking": settings, "agents_sampled": 3}))
    reason = plan.guarantees["own_server"].proof
    assert ("exact sums of their updates" in reason) == hidden
    assert ("sees each of its agents' updates" in reason) != hidden
    assert any("exact sums" in assumption for assumption in plan.guarantee.assumptions) == hidden


def test_noise_of_agents_protects_them_from_their_own_server() -> None:
    """By its own noise alone: rho = (2/z)^2/2 a sum at a multiplier of z, in the sums that public coins draw it for."""
    pytest.importorskip("cryptography")
    prepared, plan = planned(spec({"masking": "secure"}, privacy={"clip": B, "agent_noise": 8.0}))
    server = plan.guarantees["own_server"]
    assert 0 < server.epsilon < math.inf
    assert server.delta == BUDGET["delta"]
    ledgers = sides_of(prepared, plan, Sources(1)).ledgers
    most = max(ledger.charges.most for ledger in ledgers if ledger.owner in prepared.names)
    assert 0 < most < T
    rho = most * (2 / 8.0) ** 2 / 2
    least = min((order * rho + math.log(1 / BUDGET["delta"]) / (order - 1)) for order in np.geomspace(1.01, 1e3, 9999))
    assert 0.7 * least < server.epsilon <= least  # a sharper conversion than this one is used
    assert plan.guarantee.epsilon == pytest.approx(BUDGET["epsilon"], rel=1e-9)
    assert len(ledgers) == 4 + 20
    assert prepared.context(plan.mechanisms, None).agent_noise == 8


ALONE: dict[str, Any] = {"noise": "none", "masking": "secure"}


@pytest.mark.parametrize("where", ["released", "hidden"])
def test_noise_of_agents_alone_protects_them_from_everybody(where: str) -> None:
    """Sums 2 mu B apart under noise of z mu B in the sums that coins draw an agent for: mu = 2 sqrt(n)/z, but for
    rounding of the noise to whole steps."""
    pytest.importorskip("cryptography")
    chosen = spec({**ALONE, "gradient_at": where}, privacy={"clip": B, "agent_noise": 8.0, "delta": 1e-6}, budget=None)
    prepared, plan = planned(chosen)
    (guarantee,) = plan.guarantees.values()
    assert guarantee.unit == "agent"
    assert "the own server: it and all other agents together, malicious ones included" in guarantee.observer
    sides = sides_of(prepared, plan, Sources(1)).ledgers
    sums = {ledger.owner: ledger.charges.most for ledger in sides if ledger.owner in prepared.names}
    assert 0 < min(sums.values()) < max(sums.values()) < T
    normal = NormalDist()
    for agent, count in sums.items():
        mu, found = 2 * math.sqrt(count) / 8.0, plan.epsilons[agent]
        exact = [
            normal.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * normal.cdf(-mu / 2 - epsilon / mu)
            for epsilon in (found * 1.005, found * 0.995)
        ]
        assert exact[0] < 1e-6 < exact[1]
    assert guarantee.epsilon == max(plan.epsilons.values())
    for name, side in plan.sides.items():
        alone = side.revealed(Trust.NOBODY).divergence(8.0, NeighboringRelation.REPLACE_ONE)
        assert math.isinf(alone) == (name not in prepared.names)  # servers add nothing


def test_noise_of_agents_alone_is_read_by_what_they_have_added(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    settings = {**ALONE, "units": 1, "agents": 3, "agents_sampled": 3, "rounds": 2}
    chosen = spec(settings, privacy={"clip": B, "agent_noise": 8.0}, budget=None)
    result = gs.run(chosen, tmp_path / "out")
    assert result.metrics[-1]["epsilon_so_far"] == pytest.approx(result.guarantee.epsilon)
    assert result.summary["privacy"]["nodes"]["node-0"]["epsilon"] == pytest.approx(result.guarantee.epsilon)
    assert result.summary["privacy"].get("claims", []) == []


def test_with_hidden_state_that_noise_protects_from_own_agents_too(capsys: pytest.CaptureFixture[str]) -> None:
    """All that they see follows from the noised sums; and what is proved against both is printed once."""
    pytest.importorskip("cryptography")
    chosen = {"gradient_at": "hidden", "masking": "secure"}
    _, plan = planned(spec(chosen, privacy={"clip": B, "agent_noise": 8.0}))
    assert plan.guarantees["own_agents"] == plan.guarantees["own_server"]
    assert plan.guarantees["own_agents"].epsilon < math.inf
    _, released = planned(spec({**chosen, "gradient_at": "released"}, privacy={"clip": B, "agent_noise": 8.0}))
    assert released.guarantees["own_agents"] == released.guarantees["other_units"]
    settings = [
        "algorithm.agents=6",
        "algorithm.gradient_at=hidden",
        "algorithm.masking=secure",
        "privacy.agent_noise=8",
    ]
    main(["check", str(EXAMPLE), *(word for setting in settings for word in ("--set", setting))])
    assert capsys.readouterr().out.count("Guarantee: (") == 2


@pytest.mark.parametrize(
    "chosen",
    [
        spec(privacy="none", budget=None),
        spec(privacy="none", budget=None, algorithm={"units": 1}),
        given(1.0, clip="none"),
        given(1.0, {"noise": "random"}, clip="none", mechanism="laplace"),
        given(1.0, {"gradient_at": "hidden"}, clip="none"),
    ],
)
def test_no_noise_or_no_bound_is_no_guarantee(chosen: gs.Experiment) -> None:
    prepared, plan = planned(chosen)
    assert {guarantee.epsilon for guarantee in plan.guarantees.values()} == {math.inf}
    assert set(plan.epsilons.values()) == {math.inf}
    ledgers = sides_of(prepared, plan, Sources(1)).ledgers
    assert plan.spent(ledgers) is None
    assert {law.clip for law in plan.mechanisms.values()} == {math.inf}
    assert prepared.algorithm.figures.claims(problem_of(prepared), plan) == []


def test_the_bound_reaches_the_agents() -> None:
    prepared, plan = planned(spec())
    context = prepared.context(plan.mechanisms, plan.quotas)
    assert {query.mechanism.clip for query in context.queries.values()} == {B}
    assert not any(query.mechanism.private for query in context.queries.values())
    assert context.graph.nodes == 4
    assert len(context.names) == 20
    assert prepared.world.units["node-05"] == prepared.world.units["server-1"] == "server-1"


def test_batches_may_be_larger_than_shards() -> None:
    """They are drawn with replacement: 200 of some 70 examples."""
    prepared, plan = planned(spec({"batch_size": 200}))
    assert max(prepared.shard_sizes.values()) < 200
    assert prepared.context(plan.mechanisms, None).queries["node-00"].normaliser == 200


def test_units_with_other_numbers_of_links_have_no_common_number_of_records() -> None:
    prepared, plan = planned(spec({"noise": "random", "topology": "line"}))
    assert [plan.sides[server].records for server in servers_of(prepared)] == [T, 2 * T, 2 * T, T]
    assert "records" not in plan.describe()
    assert plan.describe()["standard_deviation"] == plan.noise[0]["standard_deviation"]


def test_blank_slots_are_refused() -> None:
    prepared, plan = planned(spec())
    with pytest.raises(CallerError, match="none of its slots can be blank"):
        sides_of(replace(prepared, blank=np.arange(3)), plan, Sources(1))


@pytest.mark.parametrize("temporal", ["independent", "random_walk", "sqrt_toeplitz", "banded"])
def test_noise_of_the_first_rounds_moves_what_they_move(temporal: str) -> None:
    bands = 3 if temporal == "banded" else None
    noise = CorrelatedNoise(Factorisation(Temporal(temporal), T, bands), 5.0)
    bound = UpdateBound(MU, B, 3, "released")  # type: ignore[arg-type]
    for rounds in range(1, T + 1):
        expected = bound.moved / 5 * np.linalg.norm(moved(temporal, bands)[:rounds])
        assert gaussian_mu_of(first_rounds(noise, rounds), bound) == pytest.approx(expected, rel=1e-9)
    assert first_rounds(noise, T) == noise


def test_random_noise_of_the_first_rounds() -> None:
    noise = RandomNoise(T, 1.0, ((0.5, 2),))
    assert first_rounds(noise, 3) == RandomNoise(3, 1.0, ((0.5, 2),))


@pytest.mark.parametrize(
    "changes",
    [{}, {"noise": "random"}, {"noise": "random_own_term"}, {"agents": (2, 3, 5, 9), "agents_sampled": None}],
)
def test_a_reading_is_that_of_the_unit_that_has_spent_most(changes: dict[str, Any]) -> None:
    prepared, plan = planned(spec(changes))
    ledgers = sides_of(prepared, plan, Sources(1)).ledgers
    assert plan.spent(ledgers) == 0
    problem = problem_of(prepared)
    noise = planned_noise(problem, combination(problem.settings, problem.graph), B)
    units = unit_terms(problem, noise, B)
    links = {ledger.owner: units[ledger.owner].links for ledger in ledgers}
    first = ledgers[0]

    def charge(ledger: Any) -> None:
        ledger.charge(Receipt(units[ledger.owner].stream))

    charge(first)  # of two links one is enough for a round to have begun
    unit = units[first.owner]
    one = unit.epsilon(1, BUDGET["delta"])
    assert plan.spent(ledgers) == one > 0
    for _ in range(2 * links[first.owner] - 1):
        charge(first)
    charge(ledgers[1])
    assert plan.spent(ledgers) == unit.epsilon(2, BUDGET["delta"]) > one
    for ledger in ledgers:
        while ledger.releases < units[ledger.owner].stream.records:
            charge(ledger)
    assert plan.spent(ledgers) == plan.guarantee.epsilon


# Claims


def test_the_claim_of_the_papers_run() -> None:
    """Independent homomorphic Laplace noise, hidden state: sqrt(2) mu B (1+T) T/sigma."""
    prepared, plan = planned(given(3.0, {"gradient_at": "hidden"}, mechanism="laplace"))
    (claim,) = prepared.algorithm.figures.claims(problem_of(prepared), plan)
    assert claim.theorem == THEOREM2
    assert claim.epsilon == pytest.approx(math.sqrt(2) * MU * B * (1 + T) * T / 3)
    assert claim.valid
    assert plan.guarantee.epsilon == pytest.approx(math.sqrt(SIZE) * claim.epsilon)


@pytest.mark.parametrize(
    ("changes", "law", "reason"),
    [
        ({"gradient_at": "hidden"}, "gaussian", "the noise is gaussian"),
        ({"noise": "random"}, "laplace", "not homomorphic"),
        ({"gradient_at": "hidden", "temporal": "random_walk"}, "laplace", "correlated"),
        ({}, "laplace", "released"),
    ],
)
def test_other_runs_are_not_the_theorems(changes: dict[str, Any], law: str, reason: str) -> None:
    prepared, plan = planned(given(3.0, changes, mechanism=law))
    (claim,) = prepared.algorithm.figures.claims(problem_of(prepared), plan)
    assert not claim.valid
    assert claim.why.partition(": ")[2].count(reason) == 1
    assert "," not in claim.why  # one reason alone
    assert claim.epsilon == pytest.approx(math.sqrt(2) * MU * B * (1 + T) * T / 3)


# The seed of the noise


def test_whatever_decides_the_noise_changes_its_seed() -> None:
    specs = [
        spec(),
        spec(budget={**BUDGET, "epsilon": 7}),
        spec({"temporal": "independent"}),
        spec({"noise": "random"}),
        spec(privacy={"clip": B, "mechanism": "laplace"}),
        spec(privacy={"clip": 3.0}),
        spec({"topology": "star"}),
        given(1.0),
        given(2.0),
        given(2.0, {"temporal": "random_walk"}),
    ]
    seeds = []
    for chosen in specs:
        prepared, plan = planned(chosen)
        seeds.append(secret_seed(prepared, plan.noise))
    assert len(set(seeds)) == len(specs)
    prepared, plan = planned(spec())
    assert secret_seed(prepared, plan.noise) == seeds[0]
    assert _deciding({"old": [{"a": 1, "new": None}], "new": None}) == _deciding({"old": [{"a": 1, "new": None}]})
    assert _deciding({"old": 1, "new": 0.0}) != _deciding({"old": 1})
    other = [{**plan.noise[0], "standard_deviation": 1.0}, *plan.noise[1:]]
    assert secret_seed(prepared, other) != seeds[0]


# Bad input

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "masks of one": ({"algorithm": {"masking": "secure", "agents_sampled": 1}}, "2 to 65535 agents"),
    "masks without bound": (
        {"algorithm": {"masking": "secure"}, "privacy": {"clip": "none", "standard_deviation": 1.0}, "budget": None},
        "give privacy.clip",
    ),
    "agents' noise without masks": ({"privacy": {"agent_noise": 1.0}}, "algorithm.masking: secure, found none"),
    "agents' noise alone, without masks": (
        {"algorithm": {"noise": "none"}, "privacy": {"agent_noise": 1.0}, "budget": None},
        "algorithm.masking: secure, found none",
    ),
    "agents' noise alone, with a budget": (
        {"algorithm": ALONE, "privacy": {"agent_noise": 1.0}},
        "as privacy.agent_noise says, found a budget",
    ),
    "agents' noise alone, with servers' too": (
        {"algorithm": ALONE, "privacy": {"agent_noise": 1.0, "standard_deviation": 1.0}, "budget": None},
        "as privacy.agent_noise says, found a standard_deviation",
    ),
    "agents' noise alone, of another law": (
        {"algorithm": ALONE, "privacy": {"agent_noise": 1.0, "mechanism": "laplace"}, "budget": None},
        "as privacy.agent_noise says, found mechanism: laplace",
    ),
    "agents' noise alone, without a clip": (
        {"algorithm": ALONE, "privacy": {"agent_noise": 1.0, "clip": "none"}, "budget": None},
        "give privacy.clip",
    ),
    "agents' noise without a law": (
        {"privacy": {"mechanism": "none", "agent_noise": 1.0}, "budget": None, "algorithm": {"masking": "secure"}},
        "name a privacy.mechanism",
    ),
    "no amount": ({"budget": None}, "give a budget, or privacy.standard_deviation"),
    "both amounts": ({"privacy": {"standard_deviation": 1.0}}, "give one of them"),
    "multiplier": ({"privacy": {"noise_multiplier": 1.0}}, "privacy.noise_multiplier is of noise on one gradient"),
    "release epsilon": (
        {"privacy": {"mechanism": "l2_laplace", "epsilon": 1.0}},
        "privacy.epsilon is of noise on one gradient",
    ),
    "l2_laplace": ({"privacy": "l2_laplace"}, "knows gaussian and laplace and none"),
    "list": ({"budget": {"epsilon": [1, 2]}}, "one number"),
    "clip": ({"privacy": {"clip": "none"}}, "meets no budget"),
    "quantile": ({"privacy": {"clip": "quantile"}}, "knows fixed and none"),
    "noise without law": ({"privacy": "none", "budget": None, "algorithm": {"noise": "random"}}, "needs a law"),
    "law without noise": ({"algorithm": {"noise": "none"}}, "adds no noise"),
    "relation": ({"privacy": {"neighboring_relation": "add_or_remove_one"}}, "replaced"),
    "sampling": ({"privacy": {"sampling": "fixed_size"}}, "with replacement"),
    "epochs": ({"stop": {"epochs": 3}}, "stop.epochs: graph_federated ends after algorithm.rounds"),
    "updates": ({"stop": {"updates": 3}}, "stop.updates: graph_federated ends after algorithm.rounds"),
    "one unit": ({"algorithm": {"units": 1}}, "2 units or more"),
    "too many agents": ({"algorithm": {"agents_sampled": 6}}, "more than the 5 agents"),
    "bands": ({"algorithm": {"temporal": "banded", "bands": 99}}, "bands must be"),
    "shape": ({"algorithm": {"combination": [[1.0]]}}, "4 rows of 4 weights"),
    "asymmetric": ({"algorithm": {"units": 2, "combination": [[0.5, 0.4], [0.5, 0.6]]}}, "symmetric"),
    "sums": ({"algorithm": {"units": 2, "combination": [[0.5, 0.4], [0.4, 0.6]]}}, "doubly stochastic"),
    "negative": ({"algorithm": {"units": 2, "combination": [[1.5, -0.5], [-0.5, 1.5]]}}, ">= 0"),
    "disconnected": ({"algorithm": {"units": 2, "combination": [[1, 0], [0, 1]]}}, "connects"),
    "no own weight": ({"algorithm": {"units": 2, "combination": [[0, 1], [1, 0]]}}, "a weight above 0"),
    "random and released": ({"algorithm": {"noise": "random", "gradient_at": "released"}}, "use gradient_at: hidden"),
    "infinite": ({"privacy": {"standard_deviation": math.inf}, "budget": None}, "finite"),
    "zero": ({"privacy": {"standard_deviation": 0}, "budget": None}, "greater than 0"),
    "too large": (
        {"privacy": {"standard_deviation": 1e300}, "budget": None},
        "above the largest floating-point number",
    ),
    "deviation without noise": (
        {"privacy": {"mechanism": "none", "standard_deviation": 1.0}, "budget": None},
        "standard_deviation is for gaussian and laplace",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused_in_a_line(name: str) -> None:
    changes, message = REFUSED[name]
    if changes.get("algorithm", {}).get("masking") == "secure":
        pytest.importorskip("cryptography")
    with pytest.raises(CallerError) as caught:
        plan_run(prepare(spec(**changes)))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "laplace": ({"privacy": "laplace"}, "gossip takes l2_laplace"),
    "deviation": ({"privacy": {"standard_deviation": 1.0}}, "gossip takes privacy.noise_multiplier"),
    "agents' noise": ({"privacy": {"agent_noise": 1.0}}, "gossip has none"),
    "no clip": ({"privacy": {"clip": "none"}}, "found none"),
    "no clip in rounds": (
        {"privacy": {"clip": "none"}, "algorithm": {"name": "increasing", "rounds": 5}},
        "noise is a multiple of the clip, found none",
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_of_units_is_refused_elsewhere(name: str) -> None:
    changes, message = OTHERS[name]
    with pytest.raises(CallerError, match=message):
        plan_run(prepare(parse_spec({"dataset": "digits", "algorithm": "gossip", "budget": BUDGET, **changes})))


def test_a_written_spec_says_the_same() -> None:
    for chosen in (spec(), given(1.0, clip="none"), spec(privacy="none", budget=None), spec({"noise": "random"})):
        content = json.loads(json.dumps(chosen.model_dump(mode="json"), allow_nan=False))
        assert parse_spec(content) == chosen


def test_laws_are_those_of_the_streams() -> None:
    """`privacy.mechanism` and the law of z have the same names."""
    for law in NoiseLaw:
        _, plan = planned(given(1.0, mechanism=law.value))
        assert plan.side("server-0").law.law is law


@pytest.mark.parametrize("where", ["released", "hidden"])
@pytest.mark.parametrize("masking", ["none", "secure"])
def test_every_assumption_is_explained(where: str, masking: str) -> None:
    """On the page of guarantees, in its own words; a run assumes more than the planner does."""
    if masking == "secure":
        pytest.importorskip("cryptography")
    page = Path(__file__).parents[4] / "docs" / "privacy" / "guarantees.md"
    words = " ".join(page.read_text(encoding="utf-8").split())
    _, plan = planned(spec({"gradient_at": where, "masking": masking}))
    unexplained = [assumption for assumption in plan.guarantee.assumptions if assumption not in words]
    assert unexplained == []
    assert SIMULATED_NOISE in plan.guarantee.assumptions
    assert len(set(plan.guarantee.assumptions)) == len(plan.guarantee.assumptions)
