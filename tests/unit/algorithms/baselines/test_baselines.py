"""Baselines: nodes that hear nothing of each other, against gossip without edges and a loop by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gossamer.algorithms.baselines.box import AloneNode, Settings
from gossamer.errors import SpecError
from gossamer.experiment.preparation.planning import plan_run
from gossamer.experiment.preparation.prepare import prepare
from gossamer.experiment.runs.running import run
from gossamer.experiment.specs.spec_file import parse_spec
from gossamer.protocol.effects import Compute, Finish
from gossamer.protocol.events import Completed, Resumed, Started
from gossamer.testing.contracts import AlgorithmContract
from gossamer.vectors import Released

SPEC: dict[str, Any] = {
    "dataset": "digits",
    "algorithm": {"name": "local", "nodes": 3, "updates_per_node": 5, "learning_rate": 0.5},
    "budget": {"epsilon": 5, "delta": 1e-4},
}
CENTRAL = {**SPEC, "algorithm": {"name": "central", "updates_per_node": 5}}


class TestLocal(AlgorithmContract):
    settings = Settings(nodes=3)


def test_a_node_takes_its_released_gradients_off_its_model() -> None:
    contract = TestLocal()
    node = AloneNode("node-0", contract.context(), Settings(nodes=3, learning_rate=0.25))
    model = node.state.w.values
    (asked,) = node.handle(Started(), 0.0)
    for number in range(1, 6):
        assert isinstance(asked, Compute)
        assert asked.task.id == number
        gradient = np.full(model.size, float(number))
        (asked,) = node.handle(Completed(number, Released(gradient), 1), 0.0)
        model = model - 0.25 * gradient
        np.testing.assert_allclose(node.state.w.values, model, rtol=1e-12)
    (again,) = node.handle(Resumed(1.0), 9.0)
    assert isinstance(again, Compute)
    assert node.handle(Completed(6, Released(gradient), 1), 9.0) == []  # the answer of before is lost
    assert node.handle(Completed(7, Released(gradient), 1), 9.0) == [Finish("quota")]


def test_nobody_sends_anything() -> None:
    for spec in (SPEC, CENTRAL):
        assert run(parse_spec(spec)).summary["messages"] == 0


def test_noise_and_epsilon_of_a_node_are_those_of_gossip() -> None:
    """The same shards, samples, updates and accountant: exchanges are post-processing."""
    gossip = {**SPEC, "algorithm": {**SPEC["algorithm"], "name": "gossip"}}
    local, other = (plan_run(prepare(parse_spec(spec))) for spec in (SPEC, gossip))
    assert local.epsilons == other.epsilons
    assert local.mechanisms == other.mechanisms


def test_central_holds_all_training_examples() -> None:
    local, central = (prepare(parse_spec(spec)) for spec in (SPEC, CENTRAL))
    assert len(central.names) == 1
    assert sum(central.shard_sizes.values()) == sum(local.shard_sizes.values())


def test_central_is_at_one_node() -> None:
    with pytest.raises(SpecError, match="all examples at 1 node, found 3; leave nodes out"):
        parse_spec({**SPEC, "algorithm": {"name": "central", "nodes": 3}})
