"""What two lying peers of eight cost, with a robust rule and without, on MNIST at epsilon 5 (delta 1e-5).

Each line that is printed is one run: its case, attack, rule, seed and test accuracy, the mean over honest nodes, or of
the server's model. Rates were tuned without liars and without a rule. ``local`` is eight nodes that share nothing,
which is what a radius of zero would come to.

    GOSSAMER_DATA=DATA python benchmarks/hostile_peers.py CASE [--seeds 0-4] >> benchmarks/hostile_peers.jsonl
    python benchmarks/hostile_peers.py table
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import gossamer as gs
from gossamer.errors import RunWarning

LIARS = [1, 4]
ATTACKS = ("sign_flip", "scaled", "drift", "nan")
GOSSIP = {"name": "gossip", "nodes": 8, "topology": "complete", "batch_size": 250}
CLIENTS = {"nodes": 8, "local_steps": 10, "batch_size": 120, "local_learning_rate": 0.6, "privacy_unit": "example"}
SOFTMAX = GOSSIP | {"learning_rate": 2.0, "updates_per_node": 120}
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "gossip": ("softmax", SOFTMAX, {"name": "centred_clipping", "radius": 0.04}),
    "fedavg": ("softmax", CLIENTS | {"name": "fedavg", "rounds": 40}, {"name": "trimmed_mean", "trim": 2}),
    "fedbuff": (
        "softmax",
        CLIENTS | {"name": "fedbuff", "buffer": 8, "updates_per_node": 40},
        {"name": "trimmed_mean", "trim": 2},
    ),
    "network": (
        "cnn_mapa",
        GOSSIP | {"learning_rate": 4.0, "updates_per_node": 50},
        {"name": "centred_clipping", "radius": 0.1},
    ),
}
RADII = (0.01, 0.04, 0.12, 0.4, 1.2, 4.0)
"""Radii of gossip with softmax, for which sign flips and drifts are run."""
RECORDS = Path(__file__).with_suffix(".jsonl")


def accuracy(objective: str, algorithm: dict[str, Any], attack: str | None, rule: Any, seed: int) -> float:
    keys = algorithm | ({} if rule is None else {"aggregation": rule})
    experiment = gs.Experiment(
        dataset="mnist",
        objective=objective,
        algorithm=keys,
        budget={"epsilon": 5, "delta": 1e-5},
        privacy={"clip": 1.0},
        faults={} if attack is None else {"hostile": {"nodes": LIARS, "attack": attack}},
        stop={"virtual_seconds": 5000},  # a round without a rule waits for ever for whoever sends no numbers
        evaluation="off",
        seed=seed,
    )
    return float(gs.run(experiment).summary["metrics"]["test_accuracy"])


def runs(case: str) -> list[tuple[str, dict[str, Any], str | None, Any]]:
    if case == "radii":
        made = [(a, {"name": "centred_clipping", "radius": r}) for r in RADII for a in (None, "sign_flip", "drift")]
        return [("softmax", SOFTMAX, attack, rule) for attack, rule in made]
    if case == "local":
        keys = {key: value for key, value in SOFTMAX.items() if key != "topology"}
        return [("softmax", keys | {"name": "local"}, None, None)]
    objective, algorithm, rule = CASES[case]
    return [(objective, algorithm, attack, one) for attack in (None, *ATTACKS) for one in (None, rule)]


def table() -> None:
    """Means over seeds, and the least and most, of all records."""
    found: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for line in RECORDS.read_text().splitlines():
        one = json.loads(line)
        rule = "-" if one["rule"] is None else f"{one['rule']['name']} {one['rule'].get('radius', '')}".strip()
        found[one["case"], one["attack"] or "nobody", rule].append(one["accuracy"])
    for key, values in found.items():
        span = f"{statistics.fmean(values):.3f} ({min(values):.3f} to {max(values):.3f})"
        print("|", " | ".join((*key, span, str(len(values)))), "|")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", choices=[*CASES, "radii", "local", "table"])
    parser.add_argument("--seeds", default="0-4")
    options = parser.parse_args()
    if options.case == "table":
        return table()
    warnings.simplefilter("ignore", RunWarning)
    first, _, last = options.seeds.partition("-")
    for seed in range(int(first), int(last or first) + 1):
        for objective, algorithm, attack, rule in runs(options.case):
            found = accuracy(objective, algorithm, attack, rule, seed)
            line = {"case": options.case, "attack": attack, "rule": rule, "seed": seed, "accuracy": found}
            print(json.dumps(line), flush=True)
    return None


if __name__ == "__main__":
    sys.exit(main())
