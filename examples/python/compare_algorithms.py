"""Four ways to learn digits for the same budget: alone, by gossip, in rounds, and with all examples in one place.

python examples/python/compare_algorithms.py
"""

from __future__ import annotations

import gossamer as gs

ALGORITHMS = ("local", "gossip", "allreduce", "central")
SEEDS = (0, 1)


def outcome(algorithm: str, seed: int) -> tuple[float, float]:
    """Mean accuracy of the nodes' own models, which is what a party has in the end, and the virtual seconds it took."""
    nodes = {} if algorithm == "central" else {"nodes": 8}
    batch = 256 if algorithm == "central" else 32
    experiment = gs.Experiment(
        dataset="digits",
        algorithm={"name": algorithm, "batch_size": batch, "learning_rate": 0.5, "updates_per_node": 150, **nodes},
        budget=gs.Budget(epsilon=5, delta=1e-4),
        speeds={"scenario": {"name": "one_slow", "factor": 10}},
        evaluation="off",
        seed=seed,
    )
    summary = gs.run(experiment).summary
    return float(summary["metrics"]["test_accuracy"]), float(summary["virtual_seconds"])


def main() -> dict[str, tuple[float, float]]:
    """Print a line an algorithm, and return means over seeds. One of the nodes is ten times slower than the others."""
    found = {}
    for algorithm in ALGORITHMS:
        accuracy, seconds = (sum(each) / len(SEEDS) for each in zip(*(outcome(algorithm, seed) for seed in SEEDS)))
        found[algorithm] = accuracy, seconds
        print(f"{algorithm:10} accuracy {accuracy:.3f} after {seconds:.0f} virtual seconds")
    return found


if __name__ == "__main__":
    main()
