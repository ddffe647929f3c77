"""A(DP)2SGD, section 5: without noise and without a slow node, gossip is as accurate as the synchronous baseline."""

from __future__ import annotations

from pathlib import Path

import pytest

import gossamer as gs

SPEC = {
    "objective": "softmax",
    "privacy": "none",
    "stop": {"epochs": 5},
    "evaluation": "off",
}


@pytest.mark.slow
@pytest.mark.parametrize("topology", ["ring", "exponential"])
def test_within_one_point_on_mnist(shared_data: Path, topology: str) -> None:
    """Softmax regression on all of MNIST, 16 nodes, 5 epochs: mean models within 0.01 of each other."""
    common = {**SPEC, "dataset": {"name": "mnist", "path": shared_data / "mnist"}}
    settings = {"nodes": 16, "batch_size": 32, "learning_rate": 0.5}
    gossip = gs.run(gs.Experiment(**common, algorithm={"name": "gossip", "topology": topology, **settings}))
    allreduce = gs.run(gs.Experiment(**common, algorithm={"name": "allreduce", **settings}))
    accuracies = [run.summary["metrics"]["mean_model_test_accuracy"] for run in (gossip, allreduce)]
    assert min(accuracies) > 0.88
    assert abs(accuracies[0] - accuracies[1]) <= 0.01
