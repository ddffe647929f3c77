"""The simulator: what a bare event costs, and large populations in one process.

    python benchmarks/simulator.py [--json] [--nodes N] [--updates U]
    python benchmarks/simulator.py --softmax [--json]

*Bare event*: gossip with nothing in its vectors, so only the nodes, the links and the clock are at work. *Many nodes*:
private gossip of logistic models on data made here, 123 features and 10 rows a node, in Poisson batches of 4 expected
examples, from reading the spec to the written results, in a process of its own whose peak memory is measured. The time
of an update is the process's processor time between the tenth part of all updates and the last, divided by their
number: kernels are compiled by then, and what ends a run has not begun. *Softmax*: 1,000 and 100,000 nodes with softmax
regression on 784 features and 10 classes, which need about 10 GiB: an update may cost 1.2 times as much with the more,
in 12 GiB. Larger populations are in `population.py`.
"""

from __future__ import annotations

import argparse
import json
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
from gossamer.experiment.runs.running import run
from gossamer.experiment.runs.trackers import RunProgress
from gossamer.experiment.specs.spec_file import read_spec
from gossamer.privacy.mechanisms import NoNoise, Poisson
from gossamer.privacy.tasks import Query
from gossamer.randomness import stream
from gossamer.runtimes.simulator import Simulator
from gossamer.runtimes.speeds import SpeedSettings
from gossamer.runtimes.world import World
from gossamer.sides.pool import BlankSides
from gossamer.topology.kinds import Ring
from gossamer.topology.topologies import build_graph
from gossamer.vectors import Blank, Public

MOST_US, MOST_RATIO = 25.0, 1.2
FEATURES, ROWS, BATCH, TESTED = 123, 10, 4, 1_000
LARGE_MODELS, MOST_GIB = ((1_000, 100), (100_000, 3)), 12.0
REQUIRED = {(10_000, 100): (60.0, 1.0), (100_000, 20): (180.0, 6.0)}
"""Most seconds and GiB, by nodes and updates of each."""


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
        simulator = Simulator(built, BlankSides(), World(SpeedSettings(name="lognormal")))
        start = time.process_time()
        while simulator.proceed(100):  # as `drive` does it
            pass
        best = min(best, (time.process_time() - start) / simulator.counters.events)
    return {
        "what": "bare event",
        "events": simulator.counters.events,
        "us_per_event": round(best * 1e6, 2),
        "required": MOST_US,
    }


class Clock(RunProgress):
    """Processor seconds and updates when the tenth part of all updates is made, and at the last one."""

    def __init__(self) -> None:
        self.tenth, self.first, self.last = 0.0, (0.0, 0), (0.0, 0)

    def planned(self, plan: Any) -> None:
        self.tenth = plan.updates / 10

    def updated(self, updates: int) -> None:
        self.last = (time.process_time(), updates)
        if updates <= self.tenth:
            self.first = self.last

    @property
    def seconds(self) -> float:
        """Of an update."""
        return (self.last[0] - self.first[0]) / (self.last[1] - self.first[1])


def one_run(spec: Path) -> dict[str, Any]:
    """Run a spec in this process, and say what it took."""
    clock = Clock()
    result = run(read_spec(spec), spec.parent / "out", progress=clock)
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "made": result.summary["updates"],
        "us_per_update": round(clock.seconds * 1e6, 1),
        "processor_seconds": round(used.ru_utime + used.ru_stime, 1),
        "peak_gib": round(used.ru_maxrss / 2**20, 3),
    }


def many_nodes(nodes: int, updates: int, model: str = "logistic") -> dict[str, Any]:
    """Seconds and peak memory of one large run, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        spec = Path(folder) / "many.yaml"
        spec.write_text(yaml.safe_dump(_spec(Path(folder), nodes, updates, model)))
        start = time.perf_counter()
        done = subprocess.run([sys.executable, __file__, "--run", spec], capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - start
        if done.returncode:
            raise SystemExit(done.stderr)
        found = json.loads(done.stdout)
    most = REQUIRED.get((nodes, updates)) if model == "logistic" else None
    required = {} if most is None else {"required_seconds": most[0], "required_gib": most[1]}
    return (
        {"what": f"{nodes} {model} nodes x {updates}", "nodes": nodes, "seconds": round(seconds, 1)} | found | required
    )


def _spec(folder: Path, nodes: int, updates: int, model: str, rows: int = ROWS) -> dict[str, Any]:
    paths = {name: str(folder / f"{name}.npz") for name in ("train", "test")}
    for (path, count), seed in zip(((paths["train"], rows * nodes), (paths["test"], TESTED)), (0, 1), strict=True):
        generator = np.random.default_rng(seed)
        classes = 2
        if model == "softmax":
            features, classes = generator.random((count, 784), dtype=np.float32), 10
        elif model == "logistic":
            features = np.empty((count, FEATURES), np.float32)
            for block in np.array_split(features, -(-count // 100_000)):
                block[:] = generator.random(block.shape, dtype=np.float32) < 0.11
        else:
            features = generator.random((count, 1, 28, 28), dtype=np.float32)
        np.savez(path, features=features, targets=generator.integers(0, classes, count))
        del features  # before the run, which has a process of its own
    return {
        "dataset": {"name": "made-up", "path": paths["train"], "test_path": paths["test"]},
        "objective": model,
        "algorithm": {
            "name": "gossip",
            "nodes": nodes,
            "topology": {"name": "regular", "degree": 4},
            "batch_size": BATCH,
            "learning_rate": 0.1,
            "updates_per_node": updates,
        },
        "privacy": {"clip": 1.0, "noise_multiplier": 1.0},
        "speeds": "lognormal",
        "evaluation": {"name": "off", "nodes": 100},
        "compute": {"engine": "simulator"},
    }


def large_models() -> list[dict[str, Any]]:
    """Rows of populations with softmax regression, and how much more an update costs in the larger one."""
    rows = [many_nodes(nodes, updates, "softmax") for nodes, updates in LARGE_MODELS]
    ratio = rows[1]["us_per_update"] / rows[0]["us_per_update"]
    told = {"what": "an update of the larger population, over one of the smaller", "ratio": round(ratio, 2)}
    return [*rows, told | {"required": MOST_RATIO, "required_gib": MOST_GIB}]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--updates", type=int, default=100, help="of each node")
    parser.add_argument("--softmax", action="store_true", help="1,000 and 100,000 nodes with softmax regression")
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run is not None:
        print(json.dumps(one_run(arguments.run)))
        return
    rows = large_models() if arguments.softmax else [bare_events(), many_nodes(arguments.nodes, arguments.updates)]
    if arguments.json:
        print(json.dumps({"benchmark": "simulator", "rows": rows}))
        return
    for row in rows:
        print("   ".join(f"{name}: {value}" for name, value in row.items()))


if __name__ == "__main__":
    main()
