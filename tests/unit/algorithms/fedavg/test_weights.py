"""Weights by declared numbers of examples: at most 1, the same guarantee, and divisors that are public."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.algorithms.fedavg.test_fedavg import SECRET, SIZE, TRUSTED, context, given, planned, spec, told, update

from gossamer.algorithms.clients.nodes import SERVER, Fetch, Push
from gossamer.algorithms.fedavg import box as fedavg
from gossamer.algorithms.fedavg.box import Settings
from gossamer.cli import main
from gossamer.experiment.runs.running import run
from gossamer.experiment.specs.spec_file import parse_spec
from gossamer.privacy.mechanisms import Gaussian, Poisson
from gossamer.privacy.tasks import CuratedSum, Query
from gossamer.protocol.effects import Compute
from gossamer.protocol.events import Started
from gossamer.sides.plan import WHOLE
from gossamer.vectors import Confined

SIZES = {"node-0": 30, "node-1": 10, "node-2": 20}


def server(law: Any = None, **settings: Any) -> Any:
    uneven = replace(context(3, law), shard_sizes=SIZES)
    node = fedavg.build(Settings(**{"nodes": 3, "weights": "declared", **settings}), uneven)[SERVER]
    node.handle(Started(), 0.0)
    for name in SIZES:
        told(node, name, Fetch(1))
    return node


def test_weights_are_in_proportion_and_at_most_1() -> None:
    assert server().weights == {"node-0": 1.0, "node-1": 1 / 3, "node-2": 2 / 3}
    assert server(weights=None).weights is None


def test_the_mean_is_that_of_all_examples() -> None:
    """As in the paper: (30 u_0 + 10 u_1 + 20 u_2)/60, and of those who have answered where some are missing."""
    node = server(timeout=5.0)
    vectors = {"node-0": (6, 0, 0), "node-1": (0, 6, 0), "node-2": (0, 0, 6)}
    for name, vector in vectors.items():
        effects = told(node, name, Push(2, 0, update(*vector)))
    assert given(effects) == list(SIZES)
    np.testing.assert_allclose(node.state.x.values, [1 + 3, -1 + 1, 2 + 2])
    short = server(clients_per_round=2, over_selection=1.5)
    told(short, "node-0", Push(2, 0, update(4, 0, 0)))
    told(short, "node-1", Push(2, 0, update(0, 4, 0)))
    np.testing.assert_allclose(short.state.x.values, [1 + 3, -1 + 1, 2])


def test_a_trusted_server_divides_by_what_is_known_before_the_run() -> None:
    """By m times the mean weight, 3 * 2/3, and hands its data side updates that are no longer than they were."""
    node = server(Gaussian(0.5, 2.0), **TRUSTED)
    raw = Confined(np.full(SIZE, 0.3))
    for name in SIZES:
        effects = told(node, name, Push(2, 0, raw))
    _, asked = effects
    assert isinstance(asked, Compute)
    assert isinstance(asked.task, CuratedSum)
    assert asked.task.query == Query(WHOLE, Gaussian(0.5, 2.0), asked.task.query.normaliser)
    assert asked.task.query.normaliser == pytest.approx(2.0)
    lengths = {name: vector.values for name, vector in asked.task.updates}
    np.testing.assert_allclose(lengths["node-0"], raw.values)
    np.testing.assert_allclose(lengths["node-1"], raw.values / 3)
    secret = server(Gaussian(0.5, 2.0), **TRUSTED, cohorts="secret", clients_per_round=1)
    assert secret.query.sampling == Poisson(1 / 3)  # type: ignore[attr-defined]
    assert secret.query.normaliser == pytest.approx(2 / 3)  # type: ignore[attr-defined]


@pytest.mark.parametrize("algorithm", [{}, TRUSTED, SECRET])
def test_the_guarantee_is_that_of_equal_weights(algorithm: dict[str, Any]) -> None:
    """As the bound on what one client adds is; that sizes are public is assumed of every run."""
    weighted, equal = (planned(algorithm={**algorithm, "weights": how}) for how in ("declared", "equal"))
    assert weighted.guarantee == equal.guarantee
    assert "how many examples each client has is public" in str(weighted.guarantee.assumptions)
    found = run(parse_spec(spec(algorithm={**algorithm, "weights": "declared"}, partition="dirichlet")))
    assert found.summary["finished"][SERVER] == "rounds"


def test_a_private_number_is_no_weight(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = tmp_path / "spec.yaml"
    written.write_text(json.dumps(spec(algorithm={"weights": "examples"})))
    assert main(["check", str(written)]) == 2
    error = capsys.readouterr().err
    assert "algorithm.weights: a weight by how many examples a client has tells that number; say declared" in error
    assert error.count("\n") == 1
