"""The largest eigenvalue of X'X, never underestimated: what smoothness constants are made of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

_ROWS = 1024  # held in float64 at once
_EXACT = 1024  # most features for which X'X is formed
_ITERATIONS = 20
_ROUNDING = 1 + 1e-9  # more than float64 sums of so many terms can lose


def largest_eigenvalue(matrix: Any, intercept: bool) -> float:
    """An upper bound of the largest eigenvalue of X'X, where X is ``matrix`` and perhaps a column of ones.

    Up to 1,024 features it is the eigenvalue itself. Beyond that, it is the least of the trace and of
    ``max_i (|X|'|X| v)_i / v_i`` for the v of a power iteration (Collatz and Wielandt): a bound for every
    v > 0, which approaches the eigenvalue where no feature is negative.

    Parameters
    ----------
    matrix : ndarray or csr_array [n, features]
        With finite entries; a sparse one stays sparse.
    intercept : bool
        Whether X has a column of ones.
    """
    bound = _exact if matrix.shape[1] <= _EXACT else _bound
    return bound(matrix, intercept) * _ROUNDING


def _exact(matrix: Any, intercept: bool) -> float:
    gram = np.zeros((matrix.shape[1] + intercept,) * 2)
    for x in _chunks(matrix, intercept):
        gram = gram + x.T @ x
    return float(np.linalg.eigvalsh(gram)[-1])


def _bound(matrix: Any, intercept: bool) -> float:
    bound = sum(float((x * x).sum()) for x in _chunks(matrix, intercept))
    v = np.ones(matrix.shape[1] + intercept)
    for _ in range(_ITERATIONS if bound > 0 else 0):
        image = np.zeros_like(v)
        for x in map(abs, _chunks(matrix, intercept)):
            image += x.T @ (x @ v)
        bound = min(bound, float((image / v).max()))
        v = np.maximum(image / image.max(), 1e-12)  # v must stay positive where a column is empty
    return bound


def _chunks(matrix: Any, intercept: bool) -> Iterator[Any]:
    """The rows of X, some at a time, in float64."""
    for start in range(0, matrix.shape[0], _ROWS):
        x = matrix[start : start + _ROWS].astype(np.float64)
        ones = np.ones((x.shape[0], int(intercept)))
        yield sp.hstack((x, ones), format="csr") if sp.issparse(x) else np.hstack((x, ones))
