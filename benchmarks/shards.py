"""Shards of a simulation: how much faster two processes are than one.

    python benchmarks/shards.py [--json] [--nodes N] [--updates U] [--latency SECONDS]

Private gossip of logistic models, as in `simulator.py`, over links on which a message takes as long as an update
(``links.latency: 1``): in one process, on one shard, and on two, each shard with one thread. The time of an update is
wall time between the tenth part of all updates and the last, divided by their number: what starts the shards and what
ends a run is beside it, and is given apart. Two shards need two cores that nobody else uses. Where others use them, the
processor time on the way that everybody waits for, this process and the busiest shard, says what the ratio would be.
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

from gossamer.experiment.runs.running import run
from gossamer.experiment.runs.trackers import RunProgress
from gossamer.experiment.specs.spec_file import read_spec
from gossamer.runtimes.ray_shards import RayShards
from gossamer.runtimes.shards import Shards

LEAST_RATIO = 1.5
SHARDS = (None, 1, 2)
"""None is one process without Ray."""


class Clock(RunProgress):
    """Wall time and processor time from when the tenth part of all updates is made to the last one.

    Attributes
    ----------
    seconds, updates
        Of wall time, and how many updates were made in them.
    processor : float
        Seconds of the processors on the way that everybody waits for: those of this process, and the most of a shard.
    """

    def __init__(self) -> None:
        self.actors: list[Any] = []
        self.all = self.updates = 0
        self.seconds = self.processor = 0.0
        self._first: tuple[float, int, float, list[float]] | None = None

    def planned(self, plan: Any) -> None:
        self.all = plan.updates

    def began(self, run: Any) -> None:
        self.actors = run.simulator.crew.actors if isinstance(run.simulator, Shards) else []

    def updated(self, updates: int) -> None:
        if self._first is None and updates > self.all / 10:
            self._first = self._now(updates)
        elif self._first is not None and updates == self.all and not self.updates:
            now = self._now(updates)
            self.seconds, self.updates = now[0] - self._first[0], updates - self._first[1]
            shards = [last - first for last, first in zip(now[3], self._first[3], strict=True)]
            self.processor = now[2] - self._first[2] + max(shards, default=0.0)

    def _now(self, updates: int) -> tuple[float, int, float, list[float]]:
        asked = [actor.__ray_call__.remote(lambda shard: time.process_time()) for actor in self.actors]
        if asked:
            import ray

            asked = ray.get(asked)
        return time.perf_counter(), updates, time.process_time(), asked


def one_run(spec: Path, shards: int | None) -> dict[str, Any]:
    """Run a spec, and say how long an update took."""
    clock = Clock()
    engine = None if shards is None else RayShards(shards)
    result = run(read_spec(spec), spec.parent / "out", progress=clock, overwrite=True, engine=engine)
    return {
        "us_per_update": round(1e6 * clock.seconds / clock.updates, 1),
        "processor_us_per_update": round(1e6 * clock.processor / clock.updates, 1),
        "preparation_seconds": result.timing["preparation_seconds"],
        "run_seconds": result.timing["run_seconds"],
    }


def rows(nodes: int, updates: int, latency: float) -> list[dict[str, Any]]:
    """One row for each number of shards, and how much faster the last is than the one before."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        spec = Path(folder) / "many.yaml"
        spec.write_text(
            yaml.safe_dump(_spec(Path(folder), nodes, updates, "logistic") | {"links": {"latency": latency}})
        )
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
        figure: round(found[1][f"{figure}us_per_update"] / found[2][f"{figure}us_per_update"], 2)
        for figure in ("", "processor_")
    }
    told = {"what": "one shard over two", "ratio": ratios[""], "processor_ratio": ratios["processor_"]}
    return [*found, told | {"required": LEAST_RATIO}]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--updates", type=int, default=30, help="of each node")
    parser.add_argument("--latency", type=float, default=1.0, help="virtual seconds; an update takes 1")
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--shards", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run is not None:
        print(json.dumps(one_run(arguments.run, arguments.shards)))
        return
    found = rows(arguments.nodes, arguments.updates, arguments.latency)
    if arguments.json:
        print(json.dumps({"benchmark": "shards", "rows": found}))
        return
    for row in found:
        print("   ".join(f"{name}: {value}" for name, value in row.items()))


if __name__ == "__main__":
    main()
