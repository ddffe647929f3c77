"""Gossamer beside Opacus, ``vmap(grad)``, pfl-research and Flower, in one run.

    python benchmarks/peers [--quick] [--out FILE] [--data FOLDER] [--only WORD ...] [--peers NAME ...]

Prints the median ratio of each way's time to a plain loop's in the same process; less is better. Environments of the
others are made at the first call; see README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
if __name__ == "__main__":  # run as a folder, whose parent Python does not look into
    sys.path[0] = str(HERE.parent)

from peers import environments, jobs, mnist  # noqa: E402
from peers.driver import QUICK_REPEATS, REPEATS, Failed, Worker, measure, pythons, quick  # noqa: E402

PEERS = ("gossamer", "opacus", "pfl", "flower")
BUSY = 0.25
"""Load a core above which figures are disturbed."""


def commit() -> str:
    """Return the commit that is measured; ``-changed`` if files differ from it."""

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    changed = git("status", "--porcelain", "--untracked-files=no")
    return (git("rev-parse", "HEAD") or "unknown") + ("-changed" if changed else "")


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"processor": names[0] if names else platform.processor(), "cores": cores, "system": platform.system()}


def load() -> float | None:
    """Return the load of the last minute."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def unreadable(job: jobs.Job, data: Path) -> str:
    """Why the job's data cannot be read; empty if they can."""
    if job.data == "mnist":
        return mnist.missing(data / "mnist")
    there = any((data / "libsvm" / name).is_file() for name in ("a9a", "a9a.bz2"))
    return "" if there else f"a9a needs a9a or a9a.bz2 in {data / 'libsvm'}"


def printed(row: dict[str, Any]) -> str:
    """Return one row of the table."""
    difference = "-" if row["difference"] is None else f"{row['difference']:.1e}"
    low, high = row["quartiles"]
    return (
        f"{row['job']:<32}{row['way']:<17}{row['ratio']:>7.2f}  {f'{low:.2f} to {high:.2f}':<16}"
        f"{1e3 * row['base_seconds']:>9.3f}{1e3 * row['seconds']:>9.3f}{difference:>10}"
    )


def options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks/peers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="so small that figures say nothing: to see that it works")
    parser.add_argument("--out", type=Path, help="write all results there as JSON")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", help="folder with data sets")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="jobs in whose names all words are")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--repeats", type=int, help="blocks of each way, in the place of each job's own number")
    parser.add_argument("--seed", type=int, default=jobs.SEED)
    parser.add_argument("--cache", type=Path, default=environments.default_cache(), help="where environments are")
    chosen = parser.parse_args(arguments)
    if chosen.repeats is not None and chosen.repeats < 1:
        parser.error(f"argument --repeats: expected 1 or more, found {chosen.repeats}")
    chosen.jobs = [job for job in jobs.JOBS if all(word in job.name for word in chosen.only)]
    if not chosen.jobs:
        parser.error(f"argument --only: no job has {' and '.join(chosen.only)} in its name")
    return chosen


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and write."""
    chosen = options(arguments)
    left_out: list[dict[str, str]] = []

    def leave_out(what: str, why: str) -> None:
        left_out.append({"what": what, "why": why})
        print(f"peers: {what} is left out: {why}", file=sys.stderr, flush=True)

    kinds = {job.kind for job in chosen.jobs}
    wanted = [name for name in chosen.peers if any(name == env for kind in kinds for env, _ in jobs.WAYS[kind])]
    make = partial(environments.python_of, cache=chosen.cache)
    workers, versions = {}, {}
    for name, python in pythons(wanted, make, leave_out, environments.Unavailable).items():
        workers[name] = Worker(name, python, chosen.cache / "logs" / f"{name}.txt")
        try:
            versions[name] = workers[name].ask("versions")
        except Failed as problem:
            leave_out(name, str(problem))
            del workers[name]
    cores, before = machine()["cores"], load()
    if before is not None and before > BUSY * cores:
        print(f"peers: the load is {before} on {cores} cores, so figures say little", file=sys.stderr, flush=True)
    settings = {"data": str(chosen.data.resolve()), "seed": chosen.seed, "cache": str(chosen.cache)}
    rows = []
    print(f"{'job':<32}{'way':<17}{'ratio':>7}  {'quartiles':<16}{'base ms':>9}{'ms':>9}{'differs':>10}", flush=True)
    for job in chosen.jobs:
        if why := unreadable(job, chosen.data):
            leave_out(job.name, why)
        elif job.threads > cores:
            leave_out(job.name, f"it needs {job.threads} cores, found {cores}")
        else:
            repeats = chosen.repeats or (QUICK_REPEATS if chosen.quick else REPEATS[job.kind])
            told = partial(lambda name, way, why: leave_out(f"{way} ({name})", why), job.name)
            for row in measure(quick(job) if chosen.quick else job, workers, repeats, settings, told):
                rows.append(row)
                print(printed(row), flush=True)
    for worker in workers.values():
        worker.close()
    if chosen.out is not None:
        document = {
            "benchmark": "peers",
            "quick": chosen.quick,
            "commit": commit(),
            "date": datetime.now(UTC).date().isoformat(),
            "machine": {**machine(), "load_before": before, "load_after": load()},
            "seed": chosen.seed,
            "versions": versions,
            "rows": rows,
            "left_out": left_out,
        }
        chosen.out.parent.mkdir(parents=True, exist_ok=True)
        chosen.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0 if rows else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("peers: interrupted; nothing is written")
