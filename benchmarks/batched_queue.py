"""The batched engine against the plain queue, of every spec in ``examples/``.

    python benchmarks/batched_queue.py [--json] [--rounds 5] [--only NAME ...]

*Batched* gathers up to 1,024 pending computations into one call (`compute.width`, as by default), *plain* computes each
on its own. Both are whole runs in this process, as `gossamer.run` makes them, one after the other and in turn, after
one of each that does not count. A time is the processor time of a run's loop, without preparing, planning and, where
the spec can do without, evaluating; what is told is the median. The ratio must be at most 1.05.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from pathlib import Path
from statistics import median
from typing import Any

import gossamer as gs
from gossamer.experiment.runs.trackers import RunProgress
from gossamer.experiment.specs.spec_file import read_spec

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
REQUIRED = 1.05
WIDTHS = {"batched": 1024, "plain": 1}


class Clock(RunProgress):
    """Processor time of a run's updates, from its plan to the last one."""

    def __init__(self) -> None:
        self.begun = self.ended = 0.0

    def planned(self, plan: Any) -> None:
        self.begun = time.process_time()

    def updated(self, updates: int) -> None:
        self.ended = time.process_time()


def seconds(spec: Path, width: int) -> tuple[float, int]:
    """Processor time of a run at ``width``, and its updates."""
    clock = Clock()
    overrides = [f"compute.width={width}", "privacy.noise_secret=reproducible"]
    stopping = read_spec(spec).stop.accuracy is not None  # which needs evaluations
    experiment = read_spec(spec, overrides if stopping else [*overrides, "evaluation=off"])
    result = gs.run(experiment, progress=clock)
    return clock.ended - clock.begun, result.summary["updates"]


def compare(spec: Path, rounds: int) -> dict[str, Any]:
    """Medians of both ways of one spec."""
    times: dict[str, list[float]] = {name: [] for name in WIDTHS}
    updates = 0
    for turn in range(rounds + 1):
        for name in list(WIDTHS)[:: 1 if turn % 2 else -1]:  # each is the first every other time
            taken, updates = seconds(spec, WIDTHS[name])
            if turn:
                times[name].append(taken)
    batched, plain = (median(times[name]) for name in WIDTHS)
    return {
        "spec": spec.relative_to(EXAMPLES).as_posix(),
        "updates": updates,
        "batched_ms": round(1e3 * batched, 1),
        "plain_ms": round(1e3 * plain, 1),
        "ratio": round(batched / plain, 3),
        "required": REQUIRED,
    }


def specs(only: list[str]) -> list[Path]:
    """Those of ``examples/`` that are specs, of a name if any are given."""
    found = sorted(path for path in EXAMPLES.rglob("*.yaml") if "\nalgorithm:" in path.read_text("utf-8"))
    return [path for path in found if not only or any(name in path.stem for name in only)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--rounds", type=int, default=5, help="timed runs of each way")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="specs with this in their names")
    arguments = parser.parse_args()
    sys.path.insert(0, str(EXAMPLES / "python"))  # where a module of one's own lies
    os.chdir(EXAMPLES.parent)
    warnings.simplefilter("ignore")
    rows = []
    for spec in specs(arguments.only):
        rows.append(compare(spec, arguments.rounds))
        if not arguments.json:
            print("   ".join(f"{name}: {value}" for name, value in rows[-1].items()), flush=True)
    if arguments.json:
        print(json.dumps({"benchmark": "batched queue", "rows": rows}))


if __name__ == "__main__":
    main()
