"""Seconds of a sweep of short runs: one after the other in one process, and by two workers of a Ray on this machine.

A run takes about two seconds of a processor. Both sweeps are the command as a user gives it, in a fresh process each,
with the same runs; Ray's seconds have its start in them, which is also measured alone. Before, one run fills the caches
of compiled loops. Required: Ray starts in at most 10 s, and takes at most 0.6 of the seconds of one after the other.

    python benchmarks/sweeps.py [--json] [--runs 60] [--updates 2000]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

STARTING = """
import time
began = time.perf_counter()
from gossamer.studies.runs import workers_of
with workers_of("ray", jobs=2):
    print(time.perf_counter() - began)
"""


def swept(spec: Path, runs: int, out: Path, *options: str) -> float:
    """Seconds of a sweep."""
    command = [sys.executable, "-m", "gossamer", "sweep", str(spec), "--seeds", str(runs), "--out", str(out), *options]
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return time.perf_counter() - began


def measured(runs: int, updates: int) -> dict[str, float]:
    """All figures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spec = folder / "spec.yaml"
        algorithm = {"name": "gossip", "nodes": 8, "batch_size": 60, "updates_per_node": updates}
        spec.write_text(
            yaml.safe_dump({"algorithm": algorithm, "privacy": {"noise_multiplier": 2.0}, "evaluation": "off"})
        )
        swept(spec, 1, folder / "before")
        load = os.getloadavg()[0]
        start = subprocess.run([sys.executable, "-c", STARTING], capture_output=True, text=True, check=True)
        alone = swept(spec, runs, folder / "alone")
        on_ray = swept(spec, runs, folder / "ray", "--engine", "ray", "--jobs", "2")
    return {
        "runs": runs,
        "seconds one after the other": round(alone, 1),
        "seconds on Ray, two workers": round(on_ray, 1),
        "ratio": round(on_ray / alone, 2),
        "seconds to start Ray": round(float(start.stdout), 1),
        "load before": round(load, 1),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--updates", type=int, default=2000)
    options = parser.parse_args()
    found = measured(options.runs, options.updates)
    print(json.dumps(found, indent=2) if options.json else "\n".join(f"{key:30} {found[key]:g}" for key in found))


if __name__ == "__main__":
    main()
