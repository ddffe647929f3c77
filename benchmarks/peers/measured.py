"""What a way has to offer: blocks, each with the base's time and its own, taken in turn."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from peers.jobs import Job

WARM_BLOCKS = 2


class Times(NamedTuple):
    """Seconds of a block for each step or update, of both."""

    base: float
    way: float


@dataclass(frozen=True)
class Asked:
    """A job and what it is done with.

    Attributes
    ----------
    job : Job
        What.
    data : Path
        Folder with data sets.
    seed : int
        Of batches, models and noise.
    cache : Path
        Where a library may write.
    """

    job: Job
    data: Path
    seed: int
    cache: Path


@dataclass(frozen=True)
class Measured:
    """A job prepared in a way.

    Attributes
    ----------
    block : callable
        (number) -> Times.
    difference : float or None
        Relative L2 distance of its gradients (updates, models) from the reference; None where it shows none.
    """

    block: Callable[[int], Times]
    difference: float | None = None


def in_turn(prepare: Callable[[int], int], base: Callable[[], object], way: Callable[[], object]) -> Measured:
    """Blocks of ``base`` and then ``way``; ``prepare`` makes a block's inputs and says how many steps it has."""

    def block(number: int) -> Times:
        steps = prepare(number)
        seconds = []
        for side in (base, way):
            start = time.perf_counter()
            side()
            seconds.append((time.perf_counter() - start) / steps)
        return Times(*seconds)

    for number in range(WARM_BLOCKS):
        block(number)
    return Measured(block)


def relative(found: np.ndarray, reference: np.ndarray) -> float:
    """|found - reference| / |reference|."""
    reference = np.asarray(reference, np.float64)
    return float(np.linalg.norm(np.asarray(found, np.float64) - reference) / np.linalg.norm(reference))
