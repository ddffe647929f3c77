"""Plans are asked of algorithms, and say the same whichever way they are asked."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cryptography", reason="needs the extra secure")

from gossamer.algorithms.interface import Algorithm, Cast
from gossamer.algorithms.plan import Plan, Problem, differing
from gossamer.algorithms.sample_planning import plan_samples
from gossamer.algorithms.table import ALGORITHMS
from gossamer.errors import RunWarning, SpecError
from gossamer.experiment.preparation.planning import plan_run
from gossamer.experiment.preparation.prepare import Prepared, Sources, prepare, sides_of
from gossamer.experiment.specs.spec_file import parse_spec
from gossamer.sides.plan import Nothing

GRAPH = {"name": "graph_federated", "units": 2, "agents": 3, "rounds": 4}
BUDGET = {"epsilon": 6, "delta": 1e-6}
SPECS: dict[str, dict[str, Any]] = {
    "gossip": {"algorithm": {"name": "gossip", "nodes": 4}, "stop": {"epochs": 1}, "budget": BUDGET},
    "audp": {"algorithm": {"name": "audp", "nodes": 4, "updates_per_node": 3}, "budget": BUDGET},
    "units": {"algorithm": GRAPH, "budget": BUDGET},
    "masked": {"algorithm": {**GRAPH, "masking": "secure"}, "privacy": {"agent_noise": 8}, "budget": BUDGET},
}


def planned(name: str) -> tuple[Prepared, Plan]:
    prepared = prepare(parse_spec({"dataset": "digits", **SPECS[name]}))
    return prepared, plan_run(prepared)


def test_experiment_takes_the_plan_that_its_algorithm_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def plan(problem: Problem[Any]) -> Plan:
        asked.append(problem)
        found = plan_samples(problem)
        return replace(found, words=replace(found.words, advice=("a plan of its own",)))

    monkeypatch.setitem(ALGORITHMS, "gossip", replace(ALGORITHMS["gossip"], plan=plan))  # type: ignore[arg-type]
    with pytest.warns(RunWarning, match="a plan of its own"):
        prepared, _ = planned("gossip")
    (problem,) = asked
    assert (problem.names, problem.settings) == (prepared.names, prepared.experiment.algorithm)
    assert problem.size == prepared.objective.size


def test_an_algorithm_checks_the_rest_of_a_spec(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(settings: Any, spec: Any) -> list[str]:
        return [] if spec.budget is None else [f"{settings.name} has no use for a budget"]

    monkeypatch.setitem(ALGORITHMS, "gossip", replace(ALGORITHMS["gossip"], check=check))  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="gossip has no use for a budget"):
        planned("gossip")


@pytest.mark.parametrize("name", SPECS)
def test_all_sides_are_those_of_each_party(name: str) -> None:
    prepared, plan = planned(name)
    assert set(prepared.names) <= set(plan.sides)
    assert plan.side("a server that releases nothing") == Nothing()
    assert [ledger.owner for ledger in sides_of(prepared, plan, Sources(1)).ledgers] == [
        party for party, side in plan.sides.items() if side.charges() is not None
    ]


@pytest.mark.parametrize("name", SPECS)
def test_the_first_guarantee_is_the_one_that_noise_is_planned_for(name: str) -> None:
    _, plan = planned(name)
    assert plan.guarantee is next(iter(plan.guarantees.values()))
    assert plan.guarantee.epsilon == max(plan.epsilons.values()) <= BUDGET["epsilon"]
    several = differing(plan.guarantees)
    assert list(several) == (["other_units", "own_agents", "own_server"] if name in ("units", "masked") else [])


@pytest.mark.parametrize("name", ["units", "masked"])
def test_a_shard_of_local_updates_has_no_blank_slots(name: str) -> None:
    prepared, plan = planned(name)
    with pytest.raises(SpecError, match="none of its slots can be blank"):
        sides_of(replace(prepared, blank=prepared.shards[0][:1]), plan, Sources(1))
    # Rows that are nobody's blank nothing.
    nobodys = np.setdiff1d(np.arange(10**4), np.concatenate(prepared.shards))[:3]
    sides_of(replace(prepared, blank=nobodys), plan, Sources(1))


def test_interfaces_are_small() -> None:
    assert len(fields(Plan)) <= 14
    assert len(fields(Problem)) <= 14
    assert len(fields(Algorithm)) <= 18
    assert not Plan.__subclasses__()


def test_the_hub_is_the_one_node_above_all_others() -> None:
    assert Cast(("a", "b")).hub is None
    assert Cast(("a", "b"), ("s",), {"a": "s", "b": "s"}).hub == "s"
    assert Cast(("a", "b"), ("t", "s"), {"a": "t", "b": "t", "t": "s"}).hub == "s"
    assert Cast(("a", "b"), ("s", "t"), {"a": "s", "b": "t"}).hub is None
