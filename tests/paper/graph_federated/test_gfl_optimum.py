"""Graph federated learning without noise reaches the closed form of the regression's best model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gossamer as gs


def regression(rounds: int, **algorithm: Any) -> gs.Result:
    """Agents with one example each, so that no gradient is a sample of others."""
    spec = {
        "dataset": {"name": "graph_regression", "synthetic": {"owners": 24, "examples": 1, "seed": 4}},
        "partition": "natural",
        "objective": {"name": "squared", "l2": 0.1, "intercept": False, "dtype": "float64"},
        "algorithm": {
            "name": "graph_federated",
            "units": 4,
            "agents": 6,
            "rounds": rounds,
            "batch_size": 1,
            **algorithm,
        },
        "privacy": "none",
        "evaluation": "off",
    }
    return gs.run(gs.Experiment.model_validate(spec))


@pytest.mark.some(1)
@pytest.mark.parametrize("synchronous", [True, False])
def test_equal_weights_reach_the_optimum(synchronous: bool) -> None:
    """On a complete graph every server takes the mean of all, which is gradient descent: only rounding is left.

    In step. Out of step servers take newest models, whose fixed point is the same.
    """
    found = regression(800, topology="complete", step_size=0.3, synchronous=synchronous).summary["metrics"]
    start = regression(1, topology="complete", step_size=1e-9).summary["metrics"]["centroid_msd"]
    assert start > 0.05
    assert found["centroid_msd"] < 1e-12 * start
    assert found["individual_msd"] < 1e-12 * start


@pytest.mark.slow
def test_on_a_ring_the_distance_falls_with_the_square_of_the_step_size() -> None:
    """Units whose data differ pull their models apart by O(mu), and the centroid off by as much."""
    squared = {
        mu: regression(round(60 / mu), topology="ring", step_size=mu).summary["metrics"]["individual_msd"]
        for mu in (0.2, 0.1, 0.05)
    }
    ratios = np.array([squared[0.2] / squared[0.1], squared[0.1] / squared[0.05]])
    assert (ratios > 2.5).all()
    assert (ratios < 6).all()
