"""How many updates each node makes where a spec bounds them in two ways."""

from __future__ import annotations

import math
from typing import Any

import pytest

from gossamer.experiment.preparation.planning import plan_run
from gossamer.experiment.preparation.prepare import prepare
from gossamer.experiment.specs.spec_file import parse_spec


@pytest.mark.parametrize("epochs", [0.1, 10.0])
def test_of_a_quota_and_epochs_the_smaller_counts(epochs: float) -> None:
    """By the documentation: epochs give node k ceil(epochs n_k/B) updates; both kinds of shards are there."""
    spec: dict[str, Any] = {
        "dataset": "digits",
        "partition": {"name": "sizes", "sizes": [100, 400, 640]},
        "algorithm": {"name": "gossip", "nodes": 3, "batch_size": 20, "updates_per_node": 2},
        "privacy": {"noise_multiplier": 1.0},
        "stop": {"epochs": epochs},
    }
    prepared = prepare(parse_spec(spec))
    plan = plan_run(prepared)
    by_epochs = [math.ceil(epochs * size / 20) for size in (100, 400, 640)]
    expected = dict(zip(prepared.names, (min(updates, 2) for updates in by_epochs)))
    assert list(expected.values()) == ([1, 2, 2] if epochs == 0.1 else [2, 2, 2])
    assert plan.quotas == expected
    assert {name: plan.releases[name] for name in prepared.names} == expected
