"""Knowledge of an observer of a long run, block by block in time, from what it does not know of the vectors there are.

Given all that an observer has seen until then, the vectors that there are at the end of a block of time are normal, and
what it does not know of them is S w: the entries of w are independent and standard normal, at most as many as there are
vectors. The next block adds its draws to w, and what is seen in it is O w. With Q the orthonormal columns that span the
rows of O, and V those that span what of the vectors at its end is not in Q, what is known of w at last is

    N = Q Q' + V N_next V',      N_next the same of the next block, its first rows and columns.

N of a block's draws is their part of the projection P of `sensitivity`. For a draw k of a block and l of a later one,
P_lk = N_l Phi e_k, where Phi multiplies the upper part of V of each block between, and has norm at most 1. All that is
products of parts of orthogonal matrices: nothing is inverted, and rounding stays where it is.

Of Phi there are as many as pairs of blocks. A party's part of P is therefore filled by halves: all pairs with one draw
before the middle and one after it go through what is unknown there, and the rest are pairs of one half.

References
----------
Kalman, "A new approach to linear filtering and prediction problems", 1960, in its square-root form; de Jong,
"Smoothing and interpolation with the state-space model", JASA 1989, for covariances of disturbances at two times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import qr
from scipy.sparse import csr_array

from gossamer.arrays import FloatArray
from gossamer.privacy.observers.sensitivity import ROUNDING, span

_APART = 1e-3
"""Part of a vector that is new, from which on rounding leaves it orthogonal to what is known."""


@dataclass(frozen=True)
class Block:
    """A stretch of time.

    Attributes
    ----------
    first : int
        Draws before it.
    base : int
        Vectors at its start.
    draws : int
        Draws in it.
    ends : csr_array [vectors, base + draws]
        Vectors at its end.
    """

    first: int
    base: int
    draws: int
    ends: csr_array

    @cached_property
    def halves(self) -> list[Any]:
        """Those at its start, and its draws, of the vectors at its end; dense where that takes as little memory."""
        return _halves(self.ends, self.base)


@dataclass(frozen=True)
class _Step:
    """V of a block, split into the rows ``old`` of what was unknown before it and ``new`` of its draws.

    Of N there are ``known``, rows of draws and columns of what was before, and ``told`` told' + ``way`` new' of draws.
    """

    old: FloatArray
    new: FloatArray
    known: FloatArray
    told: FloatArray
    way: FloatArray


def grams(
    blocks: Sequence[Block],
    seen: Sequence[csr_array],
    own: npt.NDArray[np.bool_],
    places: Mapping[str, Sequence[int]],
    all_new: bool = False,
) -> dict[str, FloatArray]:
    """Return P of each party's draws; the identity where rounding leaves unclear what is known.

    Parameters
    ----------
    blocks : sequence of Block
        Blocks, in the order of time.
    seen : sequence of csr_array [messages, base + draws]
        What is seen in each.
    own : ndarray of bool [draws]
        Whether the observer knows a draw itself.
    places : mapping of str to sequence of int
        Draws of each party.
    all_new : bool
        Whether it is unclear what is known where a vector seems to follow from those before it.
    """
    steps, clear = _steps(blocks, seen, own, all_new)
    if not clear:
        return {party: np.eye(len(of)) for party, of in places.items()}
    found: dict[str, FloatArray] = {party: np.zeros((len(of), len(of))) for party, of in places.items()}
    firsts = [*(block.first for block in blocks), len(own)]
    parties = [
        (part, np.asarray(places[party]), np.searchsorted(places[party], firsts).tolist())
        for party, part in found.items()
    ]
    _fill(steps, firsts, parties, 0, len(blocks))
    return found


def _fill(
    steps: Sequence[_Step],
    firsts: Sequence[int],
    parties: Sequence[tuple[FloatArray, npt.NDArray[np.int64], Sequence[int]]],
    low: int,
    high: int,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Fill in pairs of draws of the blocks from ``low`` to before ``high``; a party has P, draws, and those before.

    Returned are Phi of all of them, [unknown after, before]; of those after each draw, times that draw, [draws, unknown
    after]; and N of each, times Phi of those before it, [draws, unknown before]: as far as others need it.
    """
    if high - low == 1:
        step = steps[low]
        for part, numbers, until in parties:
            first, last = until[low], until[high]
            if first < last:
                at = numbers[first:last] - firsts[low]
                told, new = step.told[at], step.new[at]
                part[first:last, first:last] = told @ told.T + step.way[at] @ new.T
        return step.old.T, step.new, step.known
    middle = (low + high) // 2
    early, left, first_half = _fill(steps, firsts, parties, low, middle)
    late, second_half, right = _fill(steps, firsts, parties, middle, high)
    for part, numbers, until in parties:
        first, cut, last = until[low], until[middle], until[high]
        if first < cut < last:
            both = right[numbers[cut:last] - firsts[middle]] @ left[numbers[first:cut] - firsts[low]].T
            part[cut:last, first:cut], part[first:cut, cut:last] = both, both.T
    inner = low > 0, high < len(steps)
    return (
        late @ early if all(inner) else early,
        np.vstack([left @ late.T, second_half]) if inner[1] else left,
        np.vstack([first_half, right @ early]) if inner[0] else right,
    )


def _steps(
    blocks: Sequence[Block], seen: Sequence[csr_array], own: npt.NDArray[np.bool_], all_new: bool
) -> tuple[list[_Step], bool]:
    """Return what each block does to what is unknown, and whether rounding leaves that clear."""
    unknown, whole = np.zeros((0, 0)), np.zeros((0, 0))  # S, and what S S' was if nothing had been seen
    spans: list[tuple[FloatArray, FloatArray, int]] = []
    for block, matrix in zip(blocks, seen, strict=True):
        old = unknown.shape[1]
        noise = (~own[block.first : block.first + block.draws]).astype(np.float64)
        # Rounding is of these, and others may be far longer.
        summands = np.append(np.sqrt(np.maximum(np.diag(whole), 0.0)), noise)
        told = _written(_halves(matrix, block.base), unknown, noise)
        basis, clear = span([*told], old + block.draws, abs(matrix) @ summands, len(own))
        if not clear or (all_new and basis.shape[1] < matrix.shape[0]):
            return [], False
        before, since = block.halves
        ends, sizes = _written(block.halves, unknown, noise), (abs(block.ends) @ summands)[:, None]
        whole = before @ (before @ whole).T + since @ ends[:, old:].T
        for _ in range(2):
            ends -= (ends @ basis) @ basis.T
        scaled = np.divide(ends, sizes, out=np.zeros_like(ends), where=sizes > 0)
        across, r, _ = qr(scaled.T, mode="economic", pivoting=True, overwrite_a=True, check_finite=False)
        new = np.abs(np.diag(r))
        across = across[:, : np.count_nonzero(new > ROUNDING / 10)]
        if new[: across.shape[1]].min(initial=1.0) < _APART:
            across, _ = qr(across - basis @ (basis.T @ across), mode="economic", check_finite=False)
        unknown = ends @ across
        spans.append((basis, across, old))
    steps, later = [], np.zeros((0, 0))
    for basis, across, old in reversed(spans):
        way = across @ later
        known = basis @ basis[:old].T + way @ across[:old].T
        steps.append(_Step(across[:old], across[old:], known[old:], basis[old:], way[old:]))
        later = known[:old]
    return steps[::-1], True


def _halves(matrix: csr_array, base: int) -> list[Any]:
    parts = matrix[:, :base], matrix[:, base:]
    return [part.toarray() if 4 * part.nnz > part.shape[0] * part.shape[1] else part for part in parts]


def _written(halves: Sequence[Any], unknown: FloatArray, noise: FloatArray) -> FloatArray:
    """Return the vectors of a block in what was unknown before it, and its draws."""
    before, since = halves
    return np.hstack([before @ unknown, (since if isinstance(since, np.ndarray) else since.toarray()) * noise])
