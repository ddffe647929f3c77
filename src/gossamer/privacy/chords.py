"""A divergence as a function of the loss, by chords between points where it is known.

``H(P||Q)(e)`` is convex in exp(e), so chords in exp(e) lie above it: whatever the points are, the figure is never too
small. `table` chooses them. Chords that are a relative t above the divergence everywhere raise log E exp(z L) of the
loss, for every z > 0, by at most a relative t, and so epsilons of compositions by about as much.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gossamer.arrays import FloatArray

_CLOSE = 1e-5  # relative, on divergences: what chords may add, times 1 + log(1 / divergence)
_DEEP = 90.0  # of log(1 / divergence): far less than counts, where they may add more
_PASSES, _MOST_PARTS, _MOST_POINTS = 6, 16, 12_000


class Chords(NamedTuple):
    """A piecewise linear function of exp(loss).

    Attributes
    ----------
    losses : ndarray [points]
        Increasing.
    divergences : ndarray [points]
        Falling.
    """

    losses: FloatArray
    divergences: FloatArray

    def at(self, losses: FloatArray) -> FloatArray:
        """Its values at ``losses``; that of the last point beyond it."""
        cell = np.clip(np.searchsorted(self.losses, losses, side="right") - 1, 0, self.losses.size - 2)
        start, end = self.losses[cell], self.losses[cell + 1]
        inside = np.minimum(losses, end)
        with np.errstate(under="ignore"):
            whole = np.expm1(start - end)
            last = np.exp(inside - end) * np.expm1(start - inside) / whole
            first = np.expm1(inside - end) / whole
            value: FloatArray = first * self.divergences[cell] + last * self.divergences[cell + 1]
        return value


def table(known: Callable[[FloatArray], tuple[FloatArray, FloatArray]], points: FloatArray) -> Chords:
    """Chords between points where a divergence is known, as many as they take to be close to it.

    Parameters
    ----------
    known : callable
        Function from increasing numbers to losses, which increase with them, and to the divergences there.
    points : ndarray
        The numbers to begin with, at least two.
    """
    losses, divergences = known(points)
    for _ in range(_PASSES):
        chords = _chords(losses, divergences)
        middles = (points[:-1] + points[1:]) / 2
        between, exact = known(middles)
        parts = _parts(chords.at(between) - exact, exact)
        points, losses, divergences = (
            _merged(whole, more) for whole, more in ((points, middles), (losses, between), (divergences, exact))
        )
        # Each half of a cell that was not close enough is cut as finely as its whole would have to be.
        inner = _inner(points, np.repeat(np.ceil(parts / 2).astype(np.int64), 2))
        if not inner.size or points.size + inner.size > _MOST_POINTS:
            break
        order = np.argsort(np.append(points, inner), kind="stable")
        points, losses, divergences = (
            np.append(whole, more)[order] for whole, more in zip((points, losses, divergences), (inner, *known(inner)))
        )
    return _chords(losses, divergences)


def _chords(losses: FloatArray, divergences: FloatArray) -> Chords:
    """The same with increasing losses. Of points that rounding leaves at one loss, the largest divergence is kept."""
    own, first = np.unique(np.maximum.accumulate(losses), return_index=True)
    most = np.maximum.reduceat(divergences, first)
    if own.size == 1:
        own, most = np.append(own, own[0] + 1.0), np.append(most, most[0])
    return Chords(own, most)


def _parts(excess: FloatArray, exact: FloatArray) -> FloatArray:
    """Into how many parts each cell is to be cut, for chords that exceed its divergence by ``excess`` in its middle."""
    known = exact > 0
    depth = -np.log(np.where(known, np.minimum(exact, 1.0), 1.0))
    allowed = _CLOSE * (1 + depth) * (1 + (depth / _DEEP) ** 2) * exact
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        parts = np.ceil(np.sqrt(np.maximum(excess, 0.0) / allowed))
    return np.where(known, np.clip(parts, 1, _MOST_PARTS), 1.0)


def _merged(whole: FloatArray, between: FloatArray) -> FloatArray:
    found = np.empty(whole.size + between.size)
    found[::2], found[1::2] = whole, between
    return found


def _inner(points: FloatArray, parts: npt.NDArray[np.int64]) -> FloatArray:
    """Points that cut the cells between ``points`` into so many parts each."""
    cell = np.repeat(np.arange(parts.size), parts - 1)
    within = np.arange(cell.size) - np.repeat(np.cumsum(parts - 1) - (parts - 1), parts - 1) + 1
    inner: FloatArray = points[cell] + np.diff(points)[cell] * (within / parts[cell])
    return inner
