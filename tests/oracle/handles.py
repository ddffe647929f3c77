"""Handles on Gossamer's inside: randomness that can be had again, and what the fault lab does."""

from __future__ import annotations

import hashlib
import os
import random
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import scipy.stats  # noqa: F401 (it draws numbers when it is imported, and others import it when they need it)

from gossamer.errors import RunWarning
from gossamer.experiment.preparation import prepare
from gossamer.experiment.specs.spec_file import parse_spec
from gossamer.faults.trials import Trial, small_runs
from gossamer.protocol.encoding import encode
from gossamer.runtimes.host import Host

# Noise secrets


@contextmanager
def known_secret() -> Iterator[None]:
    """Runs that draw a noise secret get the same ones again."""
    drawn = Counter[int]()

    def next_secret(size: int) -> bytes:
        drawn[size] += 1
        return hashlib.shake_256(f"secret {drawn[size]}".encode()).digest(size)

    with patch.object(prepare, "token_bytes", next_secret):
        yield


# The operating system's randomness

_URANDOM = os.urandom


class KnownRandomness:
    """In the place of the operating system's randomness: for each party a sequence of its own, always the same.

    So what a party draws does not depend on when others draw.
    """

    def __init__(self) -> None:
        self._party, self._drawn = "", Counter[str]()

    def __call__(self, size: int) -> bytes:
        if (
            sys._getframe(1).f_globals["__name__"] == "uuid"
        ):  # names of files of machine code, which may be there already
            return _URANDOM(size)
        self._drawn[self._party] += 1
        name = f"{self._party} {self._drawn[self._party]}"
        return hashlib.shake_256(name.encode()).digest(size)

    @contextmanager
    def of(self, party: str) -> Iterator[None]:
        """That of ``party``."""
        before, self._party = self._party, party
        try:
            yield
        finally:
            self._party = before


@contextmanager
def known_randomness() -> Iterator[KnownRandomness]:
    """Whoever asks the operating system for random bytes gets known ones."""
    known = KnownRandomness()
    # `secrets` asks through `random`, which has a name of its own for it.
    with patch.object(os, "urandom", known), patch.object(random, "_urandom", known):
        yield known


# The fault lab


def fault_runs(spec: dict[str, Any], seeds: Iterable[int]) -> Iterator[tuple[list[str], list[bytes]]]:
    """For each seed what happened, in lines, and every durable step of every host, encoded."""
    steps: list[bytes] = []

    class Watched(Host):
        """A host whose steps are kept."""

        def __init__(self, *given: Any, watch: Callable[[Any], None] | None = None, **more: Any) -> None:
            def both(step: Any) -> None:
                steps.append(encode(step))
                if watch is not None:
                    watch(step)

            super().__init__(*given, watch=both, **more)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RunWarning)
        runs, remarks = small_runs(parse_spec(spec))
    trial = Trial(runs, kind=Watched)
    for seed in seeds:
        steps.clear()
        schedule = trial.schedule(seed)
        story = [*remarks, *map(str, schedule.faults)]
        problem = trial.problem(schedule, story.append)
        yield [*story, f"problem: {problem}"], list(steps)
