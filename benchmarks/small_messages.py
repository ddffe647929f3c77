"""What messages of few bits, and of few numbers, cost in accuracy, and what they save, on MNIST at epsilon 5.

Each line that is printed is one run: algorithm, compression, seed, test accuracy, bytes of all messages, and bytes of a
message with a model or an update, headers included.

    GOSSAMER_DATA=DATA python benchmarks/small_messages.py ALGORITHM [--seeds 0-4] >> benchmarks/small_messages.jsonl
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np

import gossamer as gs
from gossamer.algorithms.clients.nodes import Push
from gossamer.algorithms.compression import Packing
from gossamer.algorithms.gossip.exchange import Offer
from gossamer.protocol.messages import encoded_size
from gossamer.vectors import Released

ALGORITHMS: dict[str, dict[str, Any]] = {
    "gossip": {"topology": "complete", "batch_size": 250, "learning_rate": 2.0, "updates_per_node": 120},
    "fedbuff": {
        "buffer": 8,
        "updates_per_node": 40,
        "local_steps": 10,
        "batch_size": 120,
        "local_learning_rate": 0.6,
        "privacy_unit": "example",
    },
}
FORMS = (None, {"bits": 8}, {"bits": 4}, {"share": 0.1}, {"share": 0.01})


def message_bytes(name: str, form: dict[str, Any] | None) -> int:
    """Bytes of a message with 7,850 numbers, as it is encoded."""
    numbers = Released(np.ones(7850, np.float32))
    if form is not None:
        packing = Packing(**form)
        numbers = packing.pack(numbers, packing.places(numbers))
    return encoded_size(Offer(1, numbers) if name == "gossip" else Push(1, 1, numbers))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("algorithm", choices=ALGORITHMS)
    parser.add_argument("--seeds", default="0-4")
    options = parser.parse_args()
    name, (first, _, last) = options.algorithm, options.seeds.partition("-")
    for seed in range(int(first), int(last or first) + 1):
        for form in FORMS:
            keys = {"name": name, "nodes": 8, **ALGORITHMS[name], **({} if form is None else {"compression": form})}
            found = gs.run(
                gs.Experiment(
                    dataset="mnist",
                    objective="softmax",
                    algorithm=keys,
                    budget={"epsilon": 5, "delta": 1e-5},
                    privacy={"clip": 1.0},
                    evaluation="off",
                    seed=seed,
                )
            ).summary
            line = {"algorithm": name, "compression": form, "seed": seed, "accuracy": found["metrics"]["test_accuracy"]}
            line |= {"bytes": found["bytes"], "message": message_bytes(name, form)}
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
