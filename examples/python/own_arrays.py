"""Arrays of one's own: two clinics learn together from features and labels that are in memory.

python examples/python/own_arrays.py
"""

from __future__ import annotations

import numpy as np

import gossamer as gs


def clinics(patients: int = 1200) -> gs.Data:
    """Made-up patients of two clinics; a data frame, a tensor or a sparse array would do as well."""
    generator = np.random.default_rng(7)
    features = generator.uniform(-1, 1, (patients, 3))  # scaled by what is known of such values, not by what is found
    risk = features @ [2.0, -1.0, 0.5] + generator.normal(0, 0.3, patients)
    return gs.Data(
        features,
        np.where(risk > 0, "high", "low"),
        owners=np.where(generator.random(patients) < 0.6, "north", "south"),
        feature_names=["age", "dose", "weight"],
        labels=["low", "high"],  # named, so that the data need not tell which there are
    )


def main() -> gs.Result:
    """Train, and print what was learnt and what leaked."""
    experiment = gs.Experiment(
        partition="natural",
        objective="logistic",
        algorithm=gs.Gossip(nodes=2, batch_size=60, learning_rate=0.5, updates_per_node=60),
        budget=gs.Budget(epsilon=3, delta=1e-4),
        evaluation="off",
    )
    result = gs.run(experiment, data=clinics())
    print(f"accuracy {result.summary['metrics']['mean_model_test_accuracy']:.3f}")
    print(f"weights {dict(zip(['age', 'dose', 'weight'], result.model['weight'].ravel().round(2).tolist()))}")
    print(result.guarantee)
    return result


if __name__ == "__main__":
    main()
