"""Memory of a simulation: a bound below what its nodes take, before they are made."""

from __future__ import annotations

import math
from pathlib import Path

from gossamer.errors import SpecError
from gossamer.experiment.preparation.prepare import Prepared

_PYTHON, _ARRAYS = 4 << 10, 300
"""Bytes of a node beside its vectors: fewer than an object takes (docs/benchmarks.md), and as many as its arrays do."""
_VECTORS = 4
"""Vectors of a node in arrays; an object has one at least, unless servers keep the model."""


def check_memory(prepared: Prepared, compiled: bool | None = None) -> None:
    """Refuse nodes that cannot be in this process.

    Parameters
    ----------
    prepared : Prepared
        The run, which is made in one process.
    compiled : bool, optional
        Whether the compiled loop makes it; by default nobody knows yet, and only what fits neither way is refused.

    Raises
    ------
    SpecError
        If they take more memory than is free.
    """
    nodes, objective, engine = len(prepared.names), prepared.objective, prepared.experiment.compute.engine
    vector = objective.size * objective.dtype.itemsize
    of_arrays = _VECTORS * vector + _ARRAYS
    each = of_arrays if compiled else _PYTHON + (0 if prepared.cast.servers else vector)
    if compiled is None and prepared.algorithm.population is not None and engine != "simulator":
        each = min(each, of_arrays)
    there = available()
    if nodes * each > there:
        raise SpecError(
            f"algorithm.nodes: {nodes:,} nodes and models of {objective.size:,} numbers take at least "
            f"{nodes * each / 2**30:,.1f} GiB in one process, and {there / 2**30:,.1f} GiB are free; take at most "
            f"{there // each:,.0f}, or a smaller model"
        )


def available() -> float:
    """Bytes that this machine can still give, with what it swaps; inf where it does not say."""
    try:
        found = dict(line.split()[:2] for line in Path("/proc/meminfo").read_text("ascii").splitlines())
        return 1024.0 * (int(found["MemAvailable:"]) + int(found["SwapFree:"]))
    except (OSError, ValueError, LookupError):
        return math.inf
