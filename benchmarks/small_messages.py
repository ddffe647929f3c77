"""What messages of few bits, and of few numbers, cost in accuracy, and what they save, on MNIST at epsilon 5.

A record is one run: algorithm, compression, seed, test accuracy, bytes of all messages, bytes of a message with a model
or an update, headers included, commit, and a digest of the spec. Runs that are recorded are not made again.

    GOSSAMER_DATA=DATA python benchmarks/small_messages.py ALGORITHM [--seeds 0-4]   # appends to small_messages.jsonl
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
from pathlib import Path
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
RECORDS = Path(__file__).with_suffix(".jsonl")


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
    parser.add_argument("--forms", type=int, default=len(FORMS), help="the first so many of them")
    options = parser.parse_args()
    name, (first, _, last) = options.algorithm, options.seeds.partition("-")
    kept = [json.loads(line) for line in RECORDS.read_text().splitlines()]
    done = [{key: one[key] for key in ("algorithm", "compression", "seed")} for one in kept]
    commit = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True)
    for seed in range(int(first), int(last or first) + 1):
        for form in FORMS[: options.forms]:
            record = {"algorithm": name, "compression": form, "seed": seed}
            if record in done:
                continue
            keys = {"name": name, "nodes": 8, **ALGORITHMS[name], **({} if form is None else {"compression": form})}
            spec = gs.Experiment(
                dataset="mnist",
                objective="softmax",
                algorithm=keys,
                budget={"epsilon": 5, "delta": 1e-5},
                privacy={"clip": 1.0},
                evaluation="off",
                seed=seed,
            )
            found = gs.run(spec).summary
            record |= {"accuracy": found["metrics"]["test_accuracy"], "bytes": found["bytes"]}
            record |= {"message": message_bytes(name, form), "commit": commit.stdout.strip()}
            record |= {"spec": hashlib.sha256(spec.model_dump_json().encode()).hexdigest()[:12]}
            with RECORDS.open("a") as file:
                file.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
