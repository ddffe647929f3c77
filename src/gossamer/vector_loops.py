"""Arithmetic of small vectors in one loop each, rounded as numpy's, with what says that no entry is too large.

Each loop writes to its last argument and gives the sum of squares of what it wrote, or -1 if sizes differ. They are
compiled for arrays of one type alone, and refuse others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import float32, float64, njit, types


def _compiled(vectors: int) -> Any:
    """Decorator of a loop over so many vectors, which nobody may write to, and a number."""
    signatures = [
        float64(*vectors * (types.Array(kind, 1, "C", readonly=True),), float64, kind[::1])
        for kind in (float32, float64)
    ]
    return njit(signatures, cache=True, nogil=True, error_model="numpy")


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc"})
def _square(values):  # type: ignore[no-untyped-def]
    """The sum of squares, in any order: it is held against a bound that is far away."""
    total = values.dtype.type(0)
    for j in range(values.size):
        total += values[j] * values[j]
    return np.float64(total)


@_compiled(3)
def shifted(model, start, end, share, found):  # type: ignore[no-untyped-def]
    """Write ``model`` + (``end`` - ``start``) * ``share``."""
    if not model.size == start.size == end.size:
        return -1.0
    factor = found.dtype.type(share)
    for j in range(found.size):
        found[j] = model[j] + (end[j] - start[j]) * factor
    return _square(found)


@_compiled(2)
def stepped(model, move, rate, found):  # type: ignore[no-untyped-def]
    """Write ``model`` + ``move`` * ``rate``."""
    if model.size != move.size:
        return -1.0
    factor = found.dtype.type(rate)
    for j in range(found.size):
        found[j] = model[j] + move[j] * factor
    return _square(found)
