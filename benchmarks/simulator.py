"""The simulator: what a bare event costs, and ten thousand nodes in one process.

    python benchmarks/simulator.py [--json] [--nodes N] [--updates U]

*Bare event*: gossip with nothing in its vectors, so only the nodes, the links and the clock are at work.
*Many nodes*: private gossip on a9a's 123 features (random numbers of its shape where it is not found), from reading the
spec to the written results, in a process of its own whose peak memory is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from gossamer.algorithms.context import Context
from gossamer.algorithms.gossip import box as gossip
from gossamer.privacy.mechanisms import NoNoise
from gossamer.privacy.sampling import Poisson
from gossamer.privacy.tasks import Query
from gossamer.randomness import stream
from gossamer.runtimes.simulator import Simulator, World
from gossamer.runtimes.speeds import SpeedSettings
from gossamer.sides.null import DryRun
from gossamer.topology.builders import build_graph
from gossamer.topology.settings import Ring
from gossamer.vectors import Blank, Public

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
MOST_US, MOST_SECONDS, MOST_GIB = 25.0, 300.0, 4.0


def bare_events(nodes: int = 100, updates: int = 500) -> dict[str, Any]:
    """Processor microseconds an event of gossip takes when there is nothing to compute."""
    names = tuple(f"node-{i:03d}" for i in range(nodes))
    context = Context(
        seed=0,
        names=names,
        graph=build_graph(Ring(), nodes, stream(0)),
        initial=Public(Blank(100)),
        queries=dict.fromkeys(names, Query(Poisson(0.1), NoNoise(), 10.0)),
        shard_sizes=dict.fromkeys(names, 100),
        quotas=dict.fromkeys(names, updates),
    )
    best = float("inf")
    for _ in range(3):
        built = gossip.build(gossip.Settings(nodes=nodes), context)
        simulator = Simulator(built, DryRun(), World(SpeedSettings(name="lognormal")))
        start = time.process_time()
        while simulator.next_time is not None:
            simulator.step()
        best = min(best, (time.process_time() - start) / simulator.counters.events)
    return {
        "what": "bare event",
        "events": simulator.counters.events,
        "us_per_event": round(best * 1e6, 2),
        "required": MOST_US,
    }


def many_nodes(nodes: int, updates: int) -> dict[str, Any]:
    """Seconds and peak memory of one large run."""
    with tempfile.TemporaryDirectory() as folder:
        spec = Path(folder) / "many.yaml"
        spec.write_text(yaml.safe_dump(_spec(Path(folder), nodes, updates)))
        command = [sys.executable, "-m", "gossamer", "run", str(spec), "--out", str(Path(folder) / "out"), "--json"]
        environment = {**os.environ, "GOSSAMER_DATA": str(SHARED)}
        start = time.perf_counter()
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - start
        if done.returncode:
            raise SystemExit(done.stderr)
        summary = json.loads(done.stdout)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "what": f"{nodes} nodes x {updates} updates",
        "updates": summary["updates"],
        "seconds": round(seconds, 1),
        "required_seconds": MOST_SECONDS,
        "processor_seconds": round(used.ru_utime + used.ru_stime, 1),
        "peak_gib": round(used.ru_maxrss / 2**20, 2),
        "required_gib": MOST_GIB,
    }


def _spec(folder: Path, nodes: int, updates: int) -> dict[str, Any]:
    dataset: Any = "a9a"
    if not (SHARED / "libsvm" / "a9a.bz2").exists():
        generator = np.random.default_rng(0)
        features = (generator.random((40_000, 123)) < 0.11).astype(np.float32)
        np.savez(folder / "like-a9a.npz", features=features, targets=generator.integers(0, 2, 40_000))
        dataset = {"name": "like-a9a", "path": str(folder / "like-a9a.npz")}
    return {
        "dataset": dataset,
        "objective": "logistic",
        "algorithm": {
            "name": "gossip",
            "nodes": nodes,
            "topology": {"name": "regular", "degree": 4},
            "batch_size": 2,
            "learning_rate": 0.1,
            "updates_per_node": updates,
        },
        "privacy": {"clip": 1.0, "noise_multiplier": 1.0},
        "speeds": "lognormal",
        "evaluation": {"name": "off", "nodes": 100},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--updates", type=int, default=100, help="of each node")
    arguments = parser.parse_args()
    rows = [bare_events(), many_nodes(arguments.nodes, arguments.updates)]
    if arguments.json:
        print(json.dumps({"benchmark": "simulator", "rows": rows}))
        return
    for row in rows:
        print("   ".join(f"{name}: {value}" for name, value in row.items()))


if __name__ == "__main__":
    main()
