"""A torch module of one's own (`own_network.py`), trained privately by four nodes.

python examples/python/own_module.py
"""

from __future__ import annotations

from own_network import Network

import gossamer as gs


def main() -> gs.Result:
    """Train, and print how often the mean of the nodes' models is right."""
    experiment = gs.Experiment(
        dataset="digits",
        algorithm=gs.Gossip(nodes=4, batch_size=100, learning_rate=0.5, updates_per_node=40),
        budget=gs.Budget(epsilon=8, delta=1e-4),
        evaluation="off",
    )
    # The class, not a module: its parameters are then drawn by the seed, and it is told the shape of a picture.
    result = gs.run(experiment, module=Network)
    print(f"accuracy {result.summary['metrics']['mean_model_test_accuracy']:.3f}")
    print({name: array.shape for name, array in result.model.items()})
    return result


if __name__ == "__main__":
    main()
