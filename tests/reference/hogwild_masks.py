"""The masks of Hogwild!'s general recursion, as in C.1 of the paper on increasing sample sizes: obvious, and slow."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]


def masks(support: npt.NDArray[np.int64], size: int, d: int) -> list[Vector]:
    """The diagonals of S_u: ``support`` split into at most ``d`` pieces that are not empty and of nearly one size."""
    pieces = np.array_split(support, min(d, len(support)))
    diagonals = []
    for piece in pieces:
        diagonal = np.zeros(size)
        diagonal[piece] = 1
        diagonals.append(diagonal)
    return diagonals


def step(model: Vector, x: Vector, y: float, eta: float, d: int, rng: np.random.Generator) -> Vector:
    """w - eta d_xi S_u grad f(w; xi) for logistic regression, with labels -1 and 1 and no intercept."""
    gradient = -y * x / (1 + np.exp(y * (x @ model)))
    pieces = masks(np.flatnonzero(x), x.size, d)
    return model - eta * len(pieces) * pieces[rng.integers(len(pieces))] * gradient
