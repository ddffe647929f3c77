"""Shards of a simulation: how much faster two processes are than one.

    python benchmarks/shards.py [--json] [--nodes N] [--updates U]

Private gossip of logistic models, as in `simulator.py`, over links on which a message takes as long as an update
(``links.latency: 1``): in one process, on one shard, and on two, each shard with one thread. The time of an update is
wall time between the tenth part of all updates and the last, divided by their number: what starts the shards and what
ends a run is beside it, and is given apart. Two shards need two cores that nobody else uses.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml
from simulator import _spec

from gossamer.experiment.progress import NullProgress
from gossamer.experiment.reading import read_spec
from gossamer.experiment.running import run
from gossamer.runtimes.ray_shards import RayShards

LEAST_RATIO = 1.5
SHARDS = (None, 1, 2)
"""None is one process without Ray."""


class Clock(NullProgress):
    """Seconds and updates when the tenth part of all updates is made, and at the last one."""

    def __init__(self) -> None:
        self.tenth, self.first, self.last = 0.0, (0.0, 0), (0.0, 0)

    def planned(self, plan: Any) -> None:
        self.tenth = plan.updates / 10

    def updated(self, updates: int) -> None:
        self.last = (time.perf_counter(), updates)
        if updates <= self.tenth or not self.first[1]:
            self.first = self.last


def one_run(spec: Path, shards: int | None) -> dict[str, Any]:
    """Run a spec, and say how long an update took."""
    clock = Clock()
    engine = None if shards is None else RayShards(shards)
    result = run(read_spec(spec), spec.parent / "out", progress=clock, overwrite=True, engine=engine)
    seconds, updates = clock.last[0] - clock.first[0], clock.last[1] - clock.first[1]
    return {
        "us_per_update": round(1e6 * seconds / updates, 1),
        "preparation_seconds": result.timing["preparation_seconds"],
        "run_seconds": result.timing["run_seconds"],
    }


def rows(nodes: int, updates: int) -> list[dict[str, Any]]:
    """One row for each number of shards, and how much faster the last is than the one before."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        spec = Path(folder) / "many.yaml"
        spec.write_text(yaml.safe_dump(_spec(Path(folder), nodes, updates, "logistic") | {"links": {"latency": 1.0}}))
        for shards in SHARDS:
            command = [
                sys.executable,
                __file__,
                "--run",
                str(spec),
                *([] if shards is None else ["--shards", str(shards)]),
            ]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(done.stderr)
            what = "one process" if shards is None else f"shards: {shards}"
            found.append({"what": what, **json.loads(done.stdout.splitlines()[-1])})
    ratio = found[1]["us_per_update"] / found[2]["us_per_update"]
    return [*found, {"what": "one shard over two", "ratio": round(ratio, 2), "required": LEAST_RATIO}]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--updates", type=int, default=30, help="of each node")
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--shards", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run is not None:
        print(json.dumps(one_run(arguments.run, arguments.shards)))
        return
    found = rows(arguments.nodes, arguments.updates)
    if arguments.json:
        print(json.dumps({"benchmark": "shards", "rows": found}))
        return
    for row in found:
        print("   ".join(f"{name}: {value}" for name, value in row.items()))


if __name__ == "__main__":
    main()
