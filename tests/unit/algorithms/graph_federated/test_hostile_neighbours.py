"""A hostile server among units whose sums are masked: its neighbours' units go on, and its models do not count.

Agents make no update at a model beyond a public radius, so a server that mixes a huge one into its own stops its unit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gossamer.algorithms.graph_federated import box as graph_federated
from gossamer.algorithms.graph_federated.neighbours import Average, Combine
from gossamer.algorithms.graph_federated.nodes import Assignment
from gossamer.experiment.preparation.planning import plan_run
from gossamer.experiment.preparation.prepare import Prepared, Sources, nodes_of, prepare, sides_of
from gossamer.experiment.preparation.secrets import secret_seed
from gossamer.experiment.specs.spec_file import parse_spec
from gossamer.protocol.effects import Effect, Send
from gossamer.protocol.node import Node
from gossamer.runtimes.simulator import Simulator
from gossamer.vectors import Released

ROUNDS = 6
HOSTILE = "server-0"
Lie = Callable[[int, np.ndarray], np.ndarray]


def spec(**algorithm: Any) -> Prepared:
    units = {
        "name": "graph_federated",
        "units": 3,
        "agents": 3,
        "rounds": ROUNDS,
        "step_size": 0.5,
        "batch_size": 4,
        "masking": "secure",
        "topology": "complete",
        **algorithm,
    }
    changes: dict[str, Any] = {"privacy": {"clip": 1.0}, "budget": {"epsilon": 2.0, "delta": 1e-4}}
    return prepare(parse_spec({"dataset": "digits", "seed": 3, "algorithm": units, **changes}))


class Run:
    """A run whose first server lies about its models."""

    def __init__(self, prepared: Prepared, lie: Lie | None) -> None:
        self.plan: Any = plan_run(prepared)
        self.nodes = nodes_of(prepared, self.plan)
        if lie is not None:
            lies_from(self.nodes[HOSTILE], lie)
        self.honest = [name for name in self.nodes if name.startswith("server-") and name != HOSTILE]
        sides = sides_of(prepared, self.plan, Sources(secret_seed(prepared, self.plan.noise, "run")))
        self.starts: dict[str, list[float]] = {}
        self.simulator = Simulator(self.nodes, sides, prepared.world, watch=self.look)

    def look(self, step: Any) -> None:
        for effect in step.effects:
            if isinstance(effect, Send) and isinstance(effect.message, Assignment) and step.node in self.honest:
                length = float(np.linalg.norm(effect.message.model.values.astype(np.float64)))
                self.starts.setdefault(step.node, []).append(length)

    def go(self) -> Run:
        while not self.simulator.settled:
            self.simulator.step()
            assert self.simulator.elapsed < 100 * ROUNDS, "somebody is waited for in vain"
        return self

    @property
    def refused(self) -> dict[str, int]:
        """Rounds of honest units that had no sum."""
        return {name: self.nodes[name].state.sums_refused for name in self.honest}


def lies_from(node: Node, lie: Lie) -> None:
    """Let ``node`` send other models to its neighbours than it has."""
    handle = node.handle

    def lying(event: Any, now: float) -> list[Effect]:
        return [
            replace(effect, message=told(effect.message, lie))
            if isinstance(effect, Send) and isinstance(effect.message, Combine | Average)
            else effect
            for effect in handle(event, now)
        ]

    node.handle = lying  # type: ignore[method-assign]


def told(message: Any, lie: Lie) -> Any:
    values = lie(message.round, message.model.values.astype(np.float64))
    return replace(message, model=Released(values.astype(message.model.values.dtype)))


def of_length(length: float) -> Lie:
    return lambda round, values: np.full(len(values), length / np.sqrt(len(values)))


@pytest.mark.some(3)
@pytest.mark.parametrize("algorithm", [{}, {"gradient_at": "hidden"}, {"synchronous": False}, {"noise": "random"}])
@pytest.mark.parametrize("length", [1e9, np.inf, np.nan])
def test_a_neighbours_huge_models_stop_nobody(algorithm: dict[str, Any], length: float) -> None:
    """All rounds of the others have their sums, and each such model is refused as an offence."""
    run = Run(spec(**algorithm), of_length(length)).go()
    assert run.refused == dict.fromkeys(run.honest, 0)
    assert {run.nodes[name].state.round for name in run.honest} == {ROUNDS}
    assert run.simulator.counters.rejected == ROUNDS * len(run.honest)
    assert max(map(max, run.starts.values())) <= run.plan.lengths.radius


@pytest.mark.parametrize("algorithm", [{}, {"gradient_at": "hidden", "synchronous": False}])
def test_nor_do_models_just_within_what_is_accepted(algorithm: dict[str, Any]) -> None:
    """They are mixed, all rounds, and what follows from them is within the radius all the same."""
    prepared = spec(**algorithm)
    lengths = plan_run(prepared).lengths
    assert lengths is not None
    run = Run(prepared, of_length(0.999 * lengths.message)).go()
    assert run.simulator.counters.rejected == 0
    assert run.refused == dict.fromkeys(run.honest, 0)
    longest = max(map(max, run.starts.values()))
    assert 0.2 * run.plan.lengths.radius < longest <= run.plan.lengths.radius


@pytest.mark.filterwarnings("ignore:algorithm.masking.radius is:gossamer.errors.RunWarning")
@pytest.mark.parametrize("where", ["released", "hidden"])
def test_nor_where_the_radius_is_a_smaller_one(where: str) -> None:
    run = Run(spec(gradient_at=where, masking={"name": "secure", "radius": 2.0}), of_length(50.0)).go()
    assert run.plan.lengths.message > 50.0
    assert run.simulator.counters.rejected == 0
    assert run.refused == dict.fromkeys(run.honest, 0)
    assert 1.9 < max(map(max, run.starts.values())) <= 2.0


def test_an_honest_run_is_what_it_was() -> None:
    """Nothing is refused or shortened: servers that know no lengths send the same."""
    prepared = spec()
    found = []
    for lengths in (True, False):
        run = Run(prepared, None)
        if not lengths:
            bare = prepared.context(run.plan.mechanisms, run.plan.quotas)
            run.nodes.update(prepared.algorithm.build(prepared.experiment.algorithm, bare))
            run.simulator.nodes.update(run.nodes)
        run.go()
        assert run.simulator.counters.rejected == 0
        found.append(graph_federated.output(run.nodes))
    assert found[0] == found[1]


def test_huge_models_while_averaging_do_not_count() -> None:
    run = Run(spec(consensus=3), lambda round, values: np.full(len(values), 1e8)).go()
    assert Counter(run.nodes[name].state.averaged for name in run.honest) == {3: len(run.honest)}
    lengths = run.plan.lengths
    assert all(np.linalg.norm(run.nodes[name].state.v.values) <= lengths.message for name in run.honest)
