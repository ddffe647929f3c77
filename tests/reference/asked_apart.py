"""An own server that asks the real data sides of its agents one by one, each as it likes, and adds what they answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from tests.end_to_end.test_deployed_sides import own, signing_of

from gossamer.algorithms.graph_federated.settings import units_of
from gossamer.deployment.party.data_side import SideFile, deployed_computer
from gossamer.errors import TooFewAgents
from gossamer.experiment.preparation.planning import plan_run, problem_of
from gossamer.experiment.preparation.prepare import Prepared, Sources, prepare, sides_of
from gossamer.experiment.specs.spec_file import parse_spec
from gossamer.privacy.masking import MaskedSum, MaskingServer, Phase
from gossamer.privacy.masking.messages import packed
from gossamer.privacy.tasks import REFUSED, LocalQuery, LocalUpdate, MaskingStep
from gossamer.runtimes.storage.file import IN_MEMORY
from gossamer.sides.ledger import Ledger
from gossamer.vectors import Public

RUN = "0" * 32
Forge = Callable[[int, int, Public], Public]
"""What an agent is told at a step instead of what it should be."""


def spec_of(**changes: Any) -> dict[str, Any]:
    """Ten agents of one unit, an example each a round, and an L2 term; changes of the algorithm go by their names."""
    spec: dict[str, Any] = {
        "dataset": "digits",
        "seed": 5,
        "objective": {"name": "softmax", "l2": 1e-3, "intercept": False},
        "privacy": {"mechanism": "none", "clip": 50.0},
    }
    algorithm = {
        "name": "graph_federated",
        "units": 1,
        "agents": 10,
        "rounds": 4,
        "batch_size": 1,
        "step_size": 0.5,
        "noise": "none",
        "masking": "secure",
    }
    sections = {key: value for key, value in changes.items() if key in ("objective", "privacy", "dataset", "seed")}
    own = {key: value for key, value in changes.items() if key not in sections}
    return {**spec, **sections, "algorithm": {**algorithm, **own}}


@cache
def _prepared(text: str, run: str) -> Prepared:
    return replace(prepare(parse_spec(json.loads(text))), run=run)


def prepared_of(run: str = "", **changes: Any) -> Prepared:
    """What the agents are made of; with a ``run``, deployed ones that sign their keys."""
    return _prepared(json.dumps(spec_of(**changes)), run)


class Party:
    """The real data side of one agent."""

    def __init__(self, prepared: Prepared, name: str) -> None:
        self.name, self.prepared, plan = name, prepared, plan_run(prepared)
        nodes = prepared.algorithm.build(prepared.experiment.algorithm, prepared.context(plan.mechanisms, plan.quotas))
        self.query: LocalQuery = nodes[name].query
        computer: Any
        if prepared.run:
            file, signing = SideFile(IN_MEMORY, prepared.run, name), signing_of(prepared, name)
            computer = deployed_computer(own(prepared, name), plan, name, None, kept=file, signing=signing)
        else:
            computer = sides_of(prepared, plan, Sources(3))
        self._computer = computer
        self.side = computer.sides[name].rule
        self.ledger: Ledger | None = computer.sides[name].ledger
        problem = problem_of(prepared)
        self.members = units_of(problem.settings, problem.names, problem.seed)[0].of

    def ask(self, task: Any) -> Any:
        return self._computer.compute([self._computer.admit(self.name, task)])[0].released

    def update(self, round: int, model: Public, query: LocalQuery | None = None) -> None:
        assert self.ask(LocalUpdate(round, model, query or self.query)) == REFUSED  # all that the server learns

    @property
    def kept(self) -> np.ndarray:
        """The update that is under masks: for the test, nobody else sees it."""
        found: np.ndarray = self.side._round.update
        return found


def parties_of(prepared: Prepared, changed: Mapping[str, Prepared] | None = None) -> dict[str, Party]:
    """All agents; those that are ``changed`` were told another spec."""
    return {name: Party((changed or {}).get(name, prepared), name) for name in prepared.names}


def unchanged(number: int, step: int, request: Public) -> Public:
    return request


def added(parties: Mapping[str, Party], round: int = 0, forge: Forge = unchanged) -> MaskedSum | None:
    """The sum of what these agents say who have an update; None if too few go on. Whoever refuses is left out."""
    first = next(iter(parties.values()))
    group, numbers = first.side.unit.group, {i: name for i, name in enumerate(first.members(round), 1)}
    server = MaskingServer(group, round)
    requests = {number: REFUSED for number, name in numbers.items() if name in parties}
    for step in list(Phase)[:-1]:
        for number, request in requests.items():
            answer = parties[numbers[number]].ask(MaskingStep(round, step, forge(number, step, request), 0))
            if answer != REFUSED:
                server.take(number, answer)
        try:
            if step == Phase.REVEAL:
                return server.unmask()
            requests = {number: packed(message) for number, message in server.advance().items()}
        except TooFewAgents:
            return None
    raise AssertionError


def found_in(total: MaskedSum, parties: Mapping[str, Party], known: Mapping[str, np.ndarray]) -> np.ndarray:
    """What is left of a sum without the updates that the server knows."""
    unit = next(iter(parties.values())).side.unit
    left: np.ndarray = unit.decoded(total).values - sum(
        unit.fixed.decode_sum(unit.encode(u), 1) for u in known.values()
    )
    return left
