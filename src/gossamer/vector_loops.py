"""Arithmetic of small vectors in one loop each, rounded as numpy's, with what says that no entry is too large.

Each loop writes to its last argument and gives the sum of squares of what it wrote, or -1 if sizes differ. They are
compiled for arrays of one type alone, and refuse others.
"""

from __future__ import annotations

import numpy as np
from numba import float32, float64, types

from gossamer.machine_code import compiled

_VECTORS = [(types.Array(kind, 1, "C", readonly=True), kind) for kind in (float32, float64)]
"""Types of a vector that nobody may write to, and of its entries."""
_OF_TWO = [float64(vector, vector, float64, kind[::1]) for vector, kind in _VECTORS]
_OF_PARTS = [float64(vector, vector, float64, float64, kind[::1]) for vector, kind in _VECTORS]
_OF_THREE = [float64(vector, vector, vector, float64, kind[::1]) for vector, kind in _VECTORS]


@compiled(fastmath={"reassoc"})
def _square(values):  # type: ignore[no-untyped-def]
    """The sum of squares, in any order: it is held against a bound that is far away."""
    total = values.dtype.type(0)
    for j in range(values.size):
        total += values[j] * values[j]
    return np.float64(total)


@compiled(*_OF_THREE)
def shifted(model, start, end, share, found):  # type: ignore[no-untyped-def]
    """Write ``model`` + (``end`` - ``start``) * ``share``."""
    if not model.size == start.size == end.size:
        return -1.0
    factor = found.dtype.type(share)
    for j in range(found.size):
        found[j] = model[j] + (end[j] - start[j]) * factor
    return _square(found)


@compiled(*_OF_TWO)
def stepped(model, move, rate, found):  # type: ignore[no-untyped-def]
    """Write ``model`` + ``move`` * ``rate``."""
    if model.size != move.size:
        return -1.0
    factor = found.dtype.type(rate)
    for j in range(found.size):
        found[j] = model[j] + move[j] * factor
    return _square(found)


@compiled(*_OF_PARTS)
def parted(model, part, kept, given, found):  # type: ignore[no-untyped-def]
    """Write ``model`` * ``kept`` - ``part`` * ``given``."""
    if model.size != part.size:
        return -1.0
    more, less = found.dtype.type(kept), found.dtype.type(given)
    for j in range(found.size):
        found[j] = model[j] * more - part[j] * less
    return _square(found)
