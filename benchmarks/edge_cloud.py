"""Edge-cloud learning against gossip: updates per second of the same network in the same simulator, as a ratio.

    python benchmarks/edge_cloud.py [--json] [--edges K ...] [--repeats R]

Private runs of `cnn_mapa`, batches of 32, on random numbers of MNIST's shape; the two algorithms take turns, and the
ratio is of the medians. Preparing a run (calibration, the schedule) does not count. With 1,000 edges, the whole run is
in one process.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import gossamer as gs

REQUIRED = 1.0
BATCH = 32


def data(folder: Path, edges: int) -> Path:
    """Random pictures, 40 for each edge and at least 2,000."""
    generator = np.random.default_rng(0)
    count = max(2_000, 40 * edges)
    arrays: dict[str, Any] = {}
    for split, size in (("train", count), ("test", 100)):
        arrays[f"{split}_features"] = generator.random((size, 1, 28, 28), dtype=np.float32)
        arrays[f"{split}_targets"] = generator.integers(10, size=size)
    path = folder / f"pictures-{edges}.npz"
    np.savez(path, **arrays)
    return path


def updates_per_second(algorithm: str, edges: int, updates: int, path: Path) -> float:
    """Of one private run."""
    experiment = gs.Experiment(
        dataset={"name": "random", "path": path},
        objective="cnn_mapa",
        algorithm={"name": algorithm, "nodes": edges, "batch_size": BATCH},
        privacy={"noise_multiplier": 1.0},
        stop={"updates": updates},
        evaluation={"name": "off", "nodes": 1},
    )
    result = gs.run(experiment)
    return float(result.summary["updates"] / result.timing["run_seconds"])


def compare(edges: int, repeats: int, folder: Path) -> dict[str, Any]:
    """Both algorithms in turn."""
    path, updates = data(folder, edges), max(400, 2 * edges)
    found: dict[str, list[float]] = {"gossip": [], "audp": []}
    for _ in range(repeats):
        for algorithm, rates in found.items():
            rates.append(updates_per_second(algorithm, edges, updates, path))
    gossip, audp = (statistics.median(found[name]) for name in ("gossip", "audp"))
    return {
        "edges": edges,
        "updates": updates,
        "gossip_updates_per_second": round(gossip, 1),
        "audp_updates_per_second": round(audp, 1),
        "ratio": round(audp / gossip, 3),
        "required": REQUIRED,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--edges", type=int, nargs="+", default=[5, 16, 1000])
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = [compare(edges, options.repeats, Path(folder)) for edges in options.edges]
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    for row in rows:
        print(
            f"{row['edges']:5} edges: audp {row['audp_updates_per_second']:8.1f} updates/s, gossip "
            f"{row['gossip_updates_per_second']:8.1f}, ratio {row['ratio']} (required {REQUIRED})"
        )


if __name__ == "__main__":
    main()
