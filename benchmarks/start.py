"""Seconds from the command to a run's first update, in fresh processes, with caches that are warm and, if asked, cold.

The command is run as a user runs it, with progress lines, and ended once the first update is made (of a server: the
first round). Wall time counts from before the process is made; processor time is that of all its threads. Figures are
medians. ``cold`` empties the cache of compiled networks before each start. What comes with the
package, such as compiled loops of linear models, was compiled before, by a start that does not count.

    GOSSAMER_DATA=FOLDER python benchmarks/start.py [--json] [--repeats N] [--cold]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NoReturn

import yaml

from gossamer.data.datasets import known_datasets

DEMO = Path(__file__).resolve().parents[1] / "examples" / "digits-gossip.yaml"
ALGORITHMS: dict[str, dict[str, Any]] = {
    "gossip": {"nodes": 8, "batch_size": 60, "learning_rate": 0.5, "updates_per_node": 300},
    "fedavg": {
        "nodes": 50,
        "clients_per_round": 10,
        "rounds": 20,
        "local_epochs": 1,
        "batch_size": 20,
        "local_learning_rate": 0.05,
        "noise_by": "server",
        "trusted": "server",
    },
}
JOBS = [("softmax", "gossip"), ("softmax", "fedavg"), ("cnn_mapa", "gossip"), ("cnn_mapa", "fedavg")]
REQUIRED = {"demo": 2.0, "softmax": 3.0, "cnn_mapa": 5.0, "cnn_mapa, cold": 12.0}
"""Wall seconds, at most."""


def run_until_first_update(arguments: list[str]) -> NoReturn:
    """Run the command in this process, print its processor time at the first update, and end there."""
    from gossamer.cli import main, printing

    def updated(bar: printing.PlainProgress, updates: int) -> None:
        if updates:
            print(time.process_time(), flush=True)
            os._exit(0)

    printing.PlainProgress.updated = updated  # type: ignore[method-assign]
    sys.exit(main(arguments) or "the run ended before its first update")


def once(spec: Path, cache: Path, out: Path) -> tuple[float, float]:
    """Wall and processor seconds of one start."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # a user's modules are compiled
    command = [sys.executable, __file__, "--child", "run", str(spec), "--out", str(out), "--overwrite"]
    start = time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    wall = time.perf_counter() - start
    if done.returncode:
        raise SystemExit(done.stderr)
    return wall, float(done.stdout.split()[-1])


def measured(spec: Path, repeats: int, cold: bool, folder: Path) -> dict[str, float]:
    """Medians over fresh processes."""
    kept, times = folder / "kept", []
    once(spec, kept, folder / "out")
    for _ in range(repeats):
        with tempfile.TemporaryDirectory(dir=folder) as empty:
            times.append(once(spec, Path(empty) if cold else kept, folder / "out"))
    wall, processor = (statistics.median(each) for each in zip(*times, strict=True))
    return {"wall_seconds": round(wall, 2), "processor_seconds": round(processor, 2)}


def specs(folder: Path) -> dict[str, Path]:
    """A spec for each job; those of MNIST only where it is found."""
    found = {"demo": DEMO}
    if not any(each.name == "mnist" and each.path for each in known_datasets()):
        print("MNIST is not found; name its folder in GOSSAMER_DATA to measure more than the demo", file=sys.stderr)
        return found
    for objective, algorithm in JOBS:
        spec = {
            "dataset": "mnist",
            "objective": objective,
            "algorithm": {"name": algorithm, **ALGORITHMS[algorithm]},
            "partition": {"name": "sizes", "sizes": [200] * 50} if algorithm == "fedavg" else "iid",
            "privacy": {"clip": 1.0, "noise_multiplier": 1.0},
        }
        path = folder / f"{objective}-{algorithm}.yaml"
        path.write_text(yaml.safe_dump(spec))
        found[f"{objective}, {algorithm}"] = path
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--cold", action="store_true", help="also with empty caches")
    options = parser.parse_args()
    figures: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for job, spec in specs(folder).items():
            figures[job] = measured(spec, options.repeats, False, folder)
            if options.cold and job != "demo":
                figures[f"{job}, cold"] = measured(spec, options.repeats, True, folder)
    if options.json:
        print(
            json.dumps({"seconds to the first update": figures, "required wall seconds, at most": REQUIRED}, indent=2)
        )
        return
    print(f"{'seconds to the first update':28}  wall  processor")
    for job, each in figures.items():
        print(f"{job:28} {each['wall_seconds']:5.2f}  {each['processor_seconds']:9.2f}")
    print("required wall seconds, at most: " + "; ".join(f"{job} {most:g}" for job, most in REQUIRED.items()))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        run_until_first_update(sys.argv[2:])
    main()
