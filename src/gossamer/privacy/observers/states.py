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
before the middle and one after it go through what is unknown there, and the rest are pairs of one half. Halves end at
stretches of several blocks, whose Q and V follow from those of the blocks.

Where nodes wait for each other, round after round is the same, and S soon is too: the filter is steady. Such a block is
looked at once, as is what is known of it at last. S is told from its rotations by the signs of V.

References
----------
Kalman, "A new approach to linear filtering and prediction problems", 1960, in its square-root form; de Jong,
"Smoothing and interpolation with the state-space model", JASA 1989, for covariances of disturbances at two times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import accumulate, groupby
from typing import Any

import numpy as np
from scipy.linalg import qr
from scipy.sparse import csr_array

from gossamer.arrays import BoolArray, FloatArray, IndexArray
from gossamer.privacy.observers.sensitivity import ROUNDING, span

_APART = 1e-3
"""Part of a vector that is new, from which on rounding leaves it orthogonal to what is known."""
_PARTS = "indptr", "indices", "data"
_TOGETHER = 1024
"""Draws that are looked at at a time, about: fewer take longer to start than to multiply; what more tell is large."""
_Party = tuple[FloatArray, IndexArray, Sequence[int]]
_Matrices = tuple[FloatArray, FloatArray, FloatArray]
_Span = tuple[FloatArray, FloatArray, int]
"""Q and V of a stretch of time, and how many of their rows are what was unknown before it."""


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
    own: BoolArray,
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
    if (spans := _spans(blocks, seen, own, all_new)) is None:
        return {party: np.eye(len(of)) for party, of in places.items()}
    found: dict[str, FloatArray] = {party: np.zeros((len(of), len(of))) for party, of in places.items()}
    steps, firsts = _steps(spans, _TOGETHER)
    del spans  # which take as much memory again
    parties = [
        (part, np.asarray(places[party]), np.searchsorted(places[party], firsts).tolist())
        for party, part in found.items()
    ]
    _fill(steps, firsts, parties, 0, len(steps))
    return found


def _fill(steps: Sequence[_Step], firsts: Sequence[int], parties: Sequence[_Party], low: int, high: int) -> _Matrices:
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


def _spans(blocks: Sequence[Block], seen: Sequence[csr_array], own: BoolArray, all_new: bool) -> list[_Span] | None:
    """Return Q and V of each block, or None where rounding leaves them unclear."""
    unknown, whole = np.zeros((0, 0)), np.zeros((0, 0))  # S, and what S S' was if nothing had been seen
    spans: list[_Span] = []
    looked: Any = ()
    for block, matrix in zip(blocks, seen, strict=True):
        noise = (~own[block.first : block.first + block.draws]).astype(np.float64)
        # Rounding is of these, and others may be far longer.
        summands = np.append(np.sqrt(np.maximum(np.diag(whole), 0.0)), noise)
        given = unknown, summands, noise, *(getattr(one, part) for one in (block.ends, matrix) for part in _PARTS)
        if not looked or not _repeats(given, looked):
            looked, old = given, unknown.shape[1]
            told = _written(_halves(matrix, block.base), unknown, noise)
            basis, clear = span([*told], old + block.draws, abs(matrix) @ summands, len(own))
            if not clear or (all_new and basis.shape[1] < matrix.shape[0]):
                return None
            before, since = block.halves
            ends, sizes = _written(block.halves, unknown, noise), (abs(block.ends) @ summands)[:, None]
            added = since @ ends[:, old:].T
            for _ in range(2):
                ends -= (ends @ basis) @ basis.T
            scaled = np.divide(ends, sizes, out=np.zeros_like(ends), where=sizes > 0)
            across, r, _ = qr(scaled.T, mode="economic", pivoting=True, overwrite_a=True, check_finite=False)
            new = np.diag(r)[: np.count_nonzero(np.abs(np.diag(r)) > ROUNDING / 10)]
            across = across[:, : len(new)] * np.sign(new)  # else S may be another each time, where all else is alike
            if np.abs(new).min(initial=1.0) < _APART:
                across, _ = qr(across - basis @ (basis.T @ across), mode="economic", check_finite=False)
            unknown, latest = ends @ across, (basis, across, old)
        spans.append(latest)
        whole = before @ (before @ whole).T + added
    return spans


def _repeats(given: Sequence[Any], looked: Sequence[Any]) -> bool:
    """Whether a block is given what one was that was looked at, but for rounding of the same order."""
    (unknown, summands, *rest), (other, others, *of_other) = given, looked
    same = unknown.shape == other.shape and all(map(np.array_equal, rest, of_other))
    near = same and (np.abs(unknown - other) <= np.finfo(float).eps * summands[: len(unknown), None]).all()
    return bool(near and (summands <= 2.0 * others).all() and (others <= 2.0 * summands).all())


def _steps(spans: Sequence[_Span], together: int) -> tuple[list[_Step], list[int]]:
    """Return what stretches of ``together`` draws, about, do to what is unknown, and how many draws are before each."""
    before = accumulate((len(basis) - old for basis, _, old in spans), initial=0)
    stretches = groupby(zip(spans, before), lambda one: one[1] // together)
    made: dict[tuple[int, ...], _Span] = {}
    joined = []
    for of in ([one for one, _ in found] for _, found in stretches):
        joined.append(made.get(key := tuple(map(id, of))) or made.setdefault(key, reduce(_joined, of)))
    steps: list[_Step] = []
    later, looked = np.zeros((0, 0)), (joined[0], np.zeros((1, 0)))
    for one in reversed(joined):
        basis, across, old = one
        # What repeats, repeats backwards, too, once what is known afterwards does: to the bit, as it only ever grows.
        if one is not looked[0] or not np.array_equal(later, looked[1]):
            looked, way = (one, later), across @ later
            known = basis @ basis[:old].T + way @ across[:old].T
            step, later = _Step(across[:old], across[old:], known[old:], basis[old:], way[old:]), known[:old]
        steps.append(step)
    return steps[::-1], np.cumsum([0, *(len(basis) - old for basis, _, old in joined)]).tolist()


def _joined(early: _Span, late: _Span) -> _Span:
    (first, way, before), (basis, across, old) = early, late
    told = np.block([[first, way @ basis[:old]], [np.zeros((len(basis) - old, first.shape[1])), basis[old:]]])
    return told, np.vstack([way @ across[:old], across[old:]]), before


def _halves(matrix: csr_array, base: int) -> list[Any]:
    parts = matrix[:, :base], matrix[:, base:]
    return [part.toarray() if 4 * part.nnz > part.shape[0] * part.shape[1] else part for part in parts]


def _written(halves: Sequence[Any], unknown: FloatArray, noise: FloatArray) -> FloatArray:
    """Return the vectors of a block in what was unknown before it, and its draws."""
    before, since = halves
    return np.hstack([before @ unknown, (since if isinstance(since, np.ndarray) else since.toarray()) * noise])
