"""Federated runs in processes of their own, in which rounds take turns with rounds of the plain loop.

A run's program reads its job from the environment variable ``PEERS_JOB`` and prints one line of JSON that begins with
``{"rounds"``: pairs of seconds, of the plain round and of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from peers import jobs
from peers.jobs import Job
from peers.measured import Asked, Measured, Times
from peers.plain import PlainFederation

_JOB = "PEERS_JOB"
_MOST_SECONDS = 1800.0


def federated(asked: Asked, command: Sequence[str], environment: Mapping[str, str]) -> Measured:
    """A run of ``command`` a block; no gradient of it is to be seen."""

    def block(number: int) -> Times:
        said = {"job": asdict(asked.job), "data": str(asked.data), "seed": asked.seed + number, "cache": "."}
        given = {**os.environ, **environment, "OMP_NUM_THREADS": "1", _JOB: json.dumps(said)}
        done = subprocess.run(
            command, env=given, capture_output=True, text=True, timeout=_MOST_SECONDS, stdin=subprocess.DEVNULL
        )
        lines = [line for line in done.stdout.splitlines() if line.startswith('{"rounds"')]
        if not lines:
            raise RuntimeError(f"it ended with {done.returncode}: {_last_line(done.stderr)}")
        pairs = json.loads(lines[0])["rounds"]
        return Times(*(sum(seconds) / len(pairs) / jobs.COHORT for seconds in zip(*pairs, strict=True)))

    return Measured(block)


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "nothing said"


def asked_for() -> Asked:
    """The job of this process, where it is such a program."""
    said = json.loads(os.environ[_JOB])
    return Asked(Job(**said["job"]), Path(said["data"]), said["seed"], Path(said["cache"]))


class Turns:
    """Rounds of the plain loop and of a library, in turn."""

    def __init__(self, asked: Asked) -> None:
        self._plain = PlainFederation(asked)
        self._started = 0.0
        self._plain_seconds = 0.0
        self._model: list[np.ndarray] = []
        self.pairs: list[tuple[float, float]] = []

    def between(self, number: int, model: Sequence[np.ndarray]) -> None:
        """Count the library's round ``number`` (0: it is about to begin), and run a round of the plain loop.

        Raises
        ------
        RuntimeError
            If the round left the model as it was, as where all clients failed.
        """
        seconds = time.perf_counter() - self._started
        if number > 0 and all(map(np.array_equal, model, self._model)):
            raise RuntimeError(f"round {number} changed nothing: no client's update came in")
        if number > jobs.WARM_ROUNDS:
            self.pairs.append((self._plain_seconds, seconds))
        self._model = [np.array(each) for each in model]
        start = time.perf_counter()
        self._plain.round()
        self._started = time.perf_counter()
        self._plain_seconds = self._started - start

    def report(self) -> None:
        """Print what was measured."""
        print(json.dumps({"rounds": self.pairs}), flush=True)
