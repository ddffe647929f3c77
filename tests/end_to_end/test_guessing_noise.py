"""Whoever knows all but one record, and the spec with its seed, cannot draw a run's noise again."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

import gossamer as gs
from gossamer.experiment.reading import parse_spec

RECORDS = 40
WORLDS = 2
TRIALS = 40
MOST = 34
"""Of 40 guesses. Each is right with a probability of at most e^0.1/(1 + e^0.1) + 1e-5 < 0.525, which is what epsilon
0.1 leaves; 35 of 40 or more are then right with probability 3e-6."""

SPEC: dict[str, Any] = {
    "objective": "logistic",
    "algorithm": {"name": "gossip", "nodes": 2, "batch_size": 8, "updates_per_node": 2, "topology": "line"},
    "budget": {"epsilon": 0.1, "delta": 1e-5},
    "evaluation": "off",
}


def worlds(folder: Path) -> list[dict[str, Any]]:
    """The same spec on two files that differ in one training record, whose last feature is turned around."""
    generator = np.random.default_rng(0)
    rows, labels = generator.standard_normal((RECORDS, 4)), np.arange(RECORDS) % 2
    found = []
    for world in range(WORLDS):
        path = folder / f"world-{world}.npz"
        changed = rows.copy()
        changed[3] = (-1) ** world * 10.0
        np.savez(path, train_features=changed, train_targets=labels, test_features=rows, test_targets=labels)
        found.append({**SPEC, "dataset": {"name": "mine", "path": str(path)}})
    return found


def released(spec: dict[str, Any]) -> Any:
    """The model that a run of ``spec`` publishes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gs.RunWarning)
        return np.concatenate([part.ravel() for part in gs.run(parse_spec(spec)).model.values()])


def told_apart(specs: list[dict[str, Any]], guessed: list[Any], trials: int) -> int:
    """How often the published model lies nearest to what the attacker computed for the right world."""
    coins = np.random.default_rng(1).integers(WORLDS, size=trials)
    guesses = [np.argmin([np.linalg.norm(released(specs[coin]) - model) for model in guessed]) for coin in coins]
    return int(np.sum(coins == guesses))


def test_models_of_another_world_are_told_apart_by_chance(tmp_path: Path) -> None:
    specs = worlds(tmp_path)
    assert told_apart(specs, [released(spec) for spec in specs], TRIALS) <= MOST
