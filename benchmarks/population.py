"""Populations: private asynchronous gossip of 1,000 to 1,000,000 nodes, in the compiled loop and in the simulator.

    python benchmarks/population.py [--most N] [--simulated N] [--peer] [--json] [--out FILE.png]

Each run is that of ``benchmarks/simulator.py``: logistic models on 123 features and a bias, 10 rows a node, Poisson
batches of 4, noise, a random regular graph of degree 4, lognormal times; from reading the spec to the written results,
in a process of its own. The time of an update is processor time of the run's loop, receipts included, over the number
of updates; the first run compiles what is not kept. ``--most`` is the largest population, and ``--simulated`` the
largest that the simulator runs, too. ``--peer`` runs gossipy, a simulator of gossip without noise, on the same examples
and a graph of the same degree, in an environment of its own (`peers.environments`): a model that comes is averaged and
takes one step, so that its updates are as many as its messages; nothing is evaluated meanwhile.
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
from unittest import mock

import simulator
import yaml
from peers.environments import HERE, Unavailable, default_cache, python_of

import gossamer as gs
from gossamer.experiment.runs.running import Run

SIZES = ((1_000, 100), (10_000, 100), (100_000, 20), (1_000_000, 20))
"""Nodes, and updates of each."""
PEER = (1_000, 10)
"""The same of the peer, which takes long."""


def one_run(spec: Path) -> dict[str, Any]:
    """Run a spec in this process, and say what it took."""
    took, drive = [], Run._drive

    def timed(run: Run) -> str:
        start = time.process_time()
        status = drive(run)
        took.append(time.process_time() - start)
        return status

    with mock.patch.object(Run, "_drive", timed):
        result = gs.run(spec, spec.parent / "out", overwrite=True)
    used, made = resource.getrusage(resource.RUSAGE_SELF), result.summary["updates"]
    return {
        "us_per_update": round(took[0] / made * 1e6, 2),
        "processor_seconds": round(used.ru_utime + used.ru_stime, 1),
        "peak_gib": round(used.ru_maxrss / 2**20, 2),
    }


def run_of(nodes: int, updates: int, engine: str, folder: Path) -> dict[str, Any]:
    """Seconds, microseconds of an update and peak memory of one run, in a process of its own."""
    spec = folder / f"{nodes}.yaml"
    known = yaml.safe_load(spec.read_text()) if spec.exists() else None
    settings = known or simulator._spec(folder, nodes, updates, "logistic")
    spec.write_text(yaml.safe_dump({**settings, "compute": {"engine": engine}}))
    start = time.perf_counter()
    command = [sys.executable, __file__, "--run", spec]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    seconds = round(time.perf_counter() - start, 1)
    return {"engine": engine, "nodes": nodes, "updates": updates, "seconds": seconds, **json.loads(done.stdout)}


def peer(folder: Path) -> dict[str, Any]:
    """Microseconds of an update in gossipy, on the examples of a run in ``folder``."""
    nodes, updates = PEER
    simulator._spec(folder, nodes, updates, "logistic")
    command = [python_of("gossipy", default_cache()), HERE / "gossipy_run.py", folder / "train.npz", nodes, updates, 4]
    command = [str(part) for part in (*command, simulator.BATCH, 0.1)]
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(done.stderr.strip().splitlines()[-1])
    found = json.loads(done.stdout.splitlines()[-1])
    seconds = round(time.perf_counter() - start, 1)
    return {"engine": "gossipy 0.0.1", "nodes": nodes, "updates": updates, "seconds": seconds, **found}


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw the processor time of an update, and peak memory, over the number of nodes."""
    import matplotlib  # in the extra "figures"

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, (time_axes, memory_axes) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    for engine, colour in (("gossipy 0.0.1", "#d62728"), ("simulator", "#888888"), ("compiled", "#1f77b4")):
        own = [row for row in rows if row["engine"] == engine]
        nodes = [row["nodes"] for row in own]
        if own:
            time_axes.plot(nodes, [row["us_per_update"] for row in own], "o-", color=colour, label=engine)
        if own and "peak_gib" in own[0]:
            memory_axes.plot(nodes, [row["peak_gib"] for row in own], "o-", color=colour)
    time_axes.set_ylabel("processor time of an update, us")
    memory_axes.set_ylabel("peak memory, GiB")
    for axes in (time_axes, memory_axes):
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("nodes in the process")
        axes.grid(axis="y", color="#eeeeee", zorder=0)
        axes.spines[["top", "right"]].set_visible(False)
    time_axes.legend(frameon=False)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=100_000, help="nodes of the largest population")
    parser.add_argument("--simulated", type=int, default=1_000, help="nodes of the largest that the simulator runs too")
    parser.add_argument("--peer", action="store_true", help="gossipy beside it, in an environment of its own")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--out", type=Path, help="a file for the plot")
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run is not None:
        print(json.dumps(one_run(arguments.run)))
        return
    rows = []
    for nodes, updates in SIZES:
        if nodes > arguments.most:
            break
        with tempfile.TemporaryDirectory() as folder:
            for engine in ("compiled", *["simulator"] * (nodes <= arguments.simulated)):
                rows.append(run_of(nodes, updates, engine, Path(folder)))
                if not arguments.json:
                    print("   ".join(f"{name}: {value}" for name, value in rows[-1].items()), flush=True)
    if arguments.peer:
        with tempfile.TemporaryDirectory() as folder:
            try:
                rows.append(peer(Path(folder)))
            except Unavailable as why:
                print(f"gossipy is left out: {why}", file=sys.stderr)
            else:
                if not arguments.json:
                    print("   ".join(f"{name}: {value}" for name, value in rows[-1].items()))
    if arguments.json:
        print(json.dumps({"benchmark": "population", "rows": rows}))
    if arguments.out is not None:
        draw(rows, arguments.out)


if __name__ == "__main__":
    main()
