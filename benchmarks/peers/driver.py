"""Jobs handed to workers in turn, and what came out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from peers.jobs import GOSSAMER, WAYS, Job
from peers.measured import Times

REPEATS = {"step": 30, "clients": 7, "workers": 30, "rounds": 30}
QUICK_REPEATS, QUICK_STEPS = 2, 2
FOLDER = Path(__file__).resolve().parents[1]


class Failed(Exception):
    """What a worker could not do, in one line."""


class Worker:
    """A process in the environment of one library."""

    def __init__(self, environment: str, python: Path, log: Path) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        given = {**os.environ, "PYTHONPATH": str(FOLDER)}
        with log.open("w", encoding="utf-8") as errors:
            self._process = subprocess.Popen(
                [str(python), "-m", "peers.worker", environment],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=given,
                cwd=FOLDER,
            )
        self._log = log

    def ask(self, what: str, **arguments: Any) -> Any:
        """Return what the worker answers.

        Raises
        ------
        Failed
            If it could not, or is gone.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"ask": what, **arguments}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except OSError:
            line = ""
        if not line:
            raise Failed(f"its process ended with {self._process.wait()}; see {self._log}")
        answer = json.loads(line)
        if "problem" in answer:
            raise Failed(f"{answer['problem']}; see {self._log}")
        return answer["answer"]

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def quick(job: Job) -> Job:
    """The same, so small that its figures say nothing."""
    return replace(job, steps=QUICK_STEPS)


def row_of(job: Job, way: str, times: Sequence[Times], difference: float | None) -> dict[str, Any]:
    """Medians over blocks; of ratios also the quartiles."""
    base, own = np.array(times).T
    low, middle, high = np.quantile(own / base, (0.25, 0.5, 0.75))
    return {
        "job": job.name,
        **asdict(job),
        "way": way,
        "ratio": float(middle),
        "quartiles": [float(low), float(high)],
        "base_seconds": float(np.median(base)),
        "seconds": float(np.median(own)),
        "repeats": len(times),
        "difference": difference,
    }


def measure(
    job: Job, workers: dict[str, Worker], repeats: int, settings: dict[str, Any], leave_out: Callable[[str, str], None]
) -> Iterator[dict[str, Any]]:
    """Rows of one job: a block of each way after the other, again and again.

    Parameters
    ----------
    job : Job
        What.
    workers : dict
        By environment; ways of others are passed over.
    repeats : int
        Blocks of each way.
    settings : dict
        ``data``, ``seed`` and ``cache`` for workers.
    leave_out : callable
        Is told (way, why) of each that failed.
    """
    ways = {way: workers[environment] for environment, way in WAYS[job.kind] if environment in workers}
    differences: dict[str, float | None] = {}
    times: dict[str, list[Times]] = {way: [] for way in ways}

    def attempt(way: str, what: str, **arguments: Any) -> Any:
        try:
            return ways[way].ask(what, way=way, **arguments)
        except Failed as problem:
            leave_out(way, str(problem))
            del ways[way]
            return None

    for way in list(ways):
        if (answer := attempt(way, "prepare", job=asdict(job), **settings)) is not None:
            differences[way] = answer["difference"]
    for number in range(repeats):
        for way in list(ways):
            if (answer := attempt(way, "block", number=number)) is not None:
                times[way].append(Times(*answer))
    for way, worker in ways.items():
        worker.ask("finish")
        yield row_of(job, way, times[way], differences[way])


def pythons(
    wanted: Sequence[str], make: Callable[[str], Path], leave_out: Callable[[str, str], None], problem: type[Exception]
) -> dict[str, Path]:
    """Interpreters of the environments that can be made; Gossamer's own is this one."""
    found = {GOSSAMER: Path(sys.executable)} if GOSSAMER in wanted else {}
    for name in wanted:
        if name == GOSSAMER:
            continue
        try:
            found[name] = make(name)
        except problem as why:
            leave_out(name, str(why))
    return found
