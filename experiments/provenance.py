"""Where a record comes from: enough to make it again, and to see in seconds whether it would come out the same.

Bytes are promised on one kind of machine with one set of packages. There the digest of a run's first updates has to be
equal; elsewhere the size of its model then, to `TOLERANCE`.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tests.oracle import machine

from gossamer.experiment.runs.trackers import RunProgress, Watched

ROOT = Path(__file__).resolve().parents[1]
CODE = (
    "src",
    "tests/oracle/machine.py",
    "tests/reference/gfl_slow.py",
    "experiments/*.py",
    "experiments/**/*.py",
    "experiments/**/sweep.yaml",
)
"""What decides a record."""
FIRST = 20
"""Updates that are digested."""
TOLERANCE = 1e-3
"""Relative difference of a model's size after them, on another kind of machine."""


@dataclass(frozen=True)
class Origin:
    """The code and the machine that records are made with.

    Attributes
    ----------
    commit : str
        Twelve digits; with ``+`` where the code was changed since.
    facts : dict of str to str
        All that the last bit of a number depends on.
    """

    commit: str
    facts: dict[str, str]

    @classmethod
    def here(cls) -> Origin:
        """Those of this process."""
        commit = _git("rev-parse", "--short=12", "HEAD")
        return cls(f"{commit}+" if commit and _git("status", "--porcelain", "--", *CODE) else commit, machine.facts())

    @property
    def is_whole(self) -> bool:
        """Whether the commit is known, and nothing was changed since."""
        return bool(self.commit) and not self.commit.endswith("+")

    @property
    def machine(self) -> str:
        """Name of the facts, which follows from them."""
        return f"{self.facts['processor, to compilers']} {_digest(self.facts)[:8]}"


def spec_hash(content: Mapping[str, Any]) -> str:
    """Twelve digits of a spec as it is written, without the defaults of a version."""
    return _digest(content)[:12]


@dataclass(frozen=True)
class First:
    """A run after its first updates.

    Attributes
    ----------
    digest : str
        Of the updates, the virtual time and the run's model.
    size : float
        The model's Euclidean norm.
    """

    digest: str
    size: float

    @classmethod
    def of(cls, run: Watched) -> First:
        """A run as it is now."""
        simulator = run.simulator
        model = np.ascontiguousarray(run.prepared.algorithm.output(simulator.present).values)
        state = f"{simulator.counters.updates} {simulator.elapsed!r} {model.dtype} ".encode()
        digest = hashlib.sha256(state + model.tobytes()).hexdigest()[:16]
        return cls(digest, float(f"{np.linalg.norm(model.astype(np.float64)):.8g}"))


class EnoughError(Exception):
    """Ends a run of which the first updates alone are wanted."""


class FirstUpdates(RunProgress):
    """Keeps a run's `First`.

    Parameters
    ----------
    alone : bool
        Whether the run ends there, by `EnoughError`; what is no run, and long, may raise it before it begins.
    """

    def __init__(self, alone: bool = False) -> None:
        self.alone = alone
        self._run: Watched | None = None
        self._found: First | None = None

    def began(self, run: Watched) -> None:
        self._run = run

    def updated(self, updates: int) -> None:
        if updates >= FIRST and self._found is None and self._run is not None:
            self._found = First.of(self._run)
            if self.alone:
                raise EnoughError

    @property
    def found(self) -> First | None:
        """After the first updates, or after all where there are fewer; None of what is no run."""
        if self._found is None and self._run is not None:
            self._found = First.of(self._run)
        return self._found


def made(origin: Origin, spec: str, seed: int, first: First | None, seconds: float) -> dict[str, Any]:
    """The part of a record that says where it comes from."""
    begins = {} if first is None else {"first": first.digest, "size": first.size}
    return {
        "commit": origin.commit,
        "machine": origin.machine,
        "spec": spec,
        "seed": seed,
        **begins,
        "seconds": float(f"{seconds:.2g}"),
    }


def begins_alike(recorded: Mapping[str, Any], found: First | None, origin: Origin) -> bool:
    """Whether a run begins as its record says: exactly on the same kind of machine, to `TOLERANCE` elsewhere."""
    if found is None or "first" not in recorded:
        return found is None and "first" not in recorded
    if recorded["machine"] == origin.machine:
        return bool(found.digest == recorded["first"])
    return bool(abs(found.size - recorded["size"]) <= TOLERANCE * max(1e-9, recorded["size"]))


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _git(*arguments: str) -> str:
    """What git says here; nothing where there is no repository."""
    try:
        found = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return found.stdout.strip()
