"""Shards of a run: how much faster its networks are computed by two processes than by one.

    python benchmarks/shards.py [--json] [--nodes N] [--rounds R]

Rounds of FedAvg, in which each client trains a network of 199,210 parameters (`mlp`) on digits: in one process, on one
shard, and on two, each with one thread. The seconds are wall time between the first update of a client and the last:
what starts the shards and what ends a run is beside it, and is given apart. Two shards need two cores that nobody else
uses. Where others use them, the processor time on the way that everybody waits for, this process and the busiest shard,
says what the ratio would be.
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

from gossamer.experiment.runs.running import run
from gossamer.experiment.runs.trackers import RunProgress
from gossamer.experiment.specs.spec_file import read_spec
from gossamer.runtimes.ray_shards import RayShards

LEAST_RATIO = 1.5
ALGORITHM = {"name": "fedavg", "batch_size": 16, "local_epochs": 4}
SPEC = {
    "dataset": "digits",
    "objective": "mlp",
    "privacy": {"clip": 1.0, "noise_multiplier": 1.0},
    "evaluation": {"name": "off"},
}
SHARDS = (None, 1, 2)
"""None is one process without Ray."""


class Clock(RunProgress):
    """Wall time and processor time from when the first update is made to the last one.

    Attributes
    ----------
    seconds, updates
        Of wall time, and how many updates of clients were made in them.
    processor : float
        Seconds of the processors on the way that everybody waits for: those of this process, and the most of a shard.
    """

    def __init__(self, engine: RayShards | None) -> None:
        self.engine = engine
        self.all = self.updates = 0
        self.seconds = self.processor = 0.0
        self._first: tuple[float, int, float, list[float]] | None = None

    def planned(self, plan: Any) -> None:
        self.all = plan.updates

    def updated(self, updates: int) -> None:
        if self._first is None and updates:
            self._first = self._now(updates)
        elif self._first is not None and updates == self.all and not self.updates:
            now = self._now(updates)
            self.seconds, self.updates = now[0] - self._first[0], updates - self._first[1]
            shards = [last - first for last, first in zip(now[3], self._first[3], strict=True)]
            self.processor = now[2] - self._first[2] + max(shards, default=0.0)

    def _now(self, updates: int) -> tuple[float, int, float, list[float]]:
        actors = [] if self.engine is None else self.engine.actors
        asked = [actor.__ray_call__.remote(lambda shard: time.process_time()) for actor in actors]
        if asked:
            import ray

            asked = ray.get(asked)
        return time.perf_counter(), updates, time.process_time(), asked


def one_run(spec: Path, shards: int | None) -> dict[str, Any]:
    """Run a spec, and say how long an update took."""
    engine = None if shards is None else RayShards(shards)
    clock = Clock(engine)
    result = run(read_spec(spec), spec.parent / "out", progress=clock, overwrite=True, engine=engine)
    return {
        "seconds_per_update": round(clock.seconds / clock.updates, 5),
        "processor_seconds_per_update": round(clock.processor / clock.updates, 5),
        "preparation_seconds": result.timing["preparation_seconds"],
        "run_seconds": result.timing["run_seconds"],
    }


def rows(nodes: int, rounds: int) -> list[dict[str, Any]]:
    """One row for each number of shards, and how much faster the last is than the one before."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        spec = Path(folder) / "networks.yaml"
        spec.write_text(yaml.safe_dump(SPEC | {"algorithm": ALGORITHM | {"nodes": nodes, "rounds": rounds}}))
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
    ratios = {
        figure: round(found[1][f"{figure}seconds_per_update"] / found[2][f"{figure}seconds_per_update"], 2)
        for figure in ("", "processor_")
    }
    told = {"what": "one shard over two", "ratio": ratios[""], "processor_ratio": ratios["processor_"]}
    return [*found, told | {"required": LEAST_RATIO}]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--shards", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run is not None:
        print(json.dumps(one_run(arguments.run, arguments.shards)))
        return
    found = rows(arguments.nodes, arguments.rounds)
    if arguments.json:
        print(json.dumps({"benchmark": "shards", "rows": found}))
        return
    for row in found:
        print("   ".join(f"{name}: {value}" for name, value in row.items()))


if __name__ == "__main__":
    main()
