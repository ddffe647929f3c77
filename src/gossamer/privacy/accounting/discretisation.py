"""Privacy losses of single releases, discretised from above on any losses one likes.

A release's dominating pair (see `analytic`) is replaced by a discrete pair whose hockey-stick curve joins points of the
exact curve by chords, in exp(loss): it is never below the exact one [1]. Products of such pairs dominate the
composition, so every epsilon and delta computed from them is an upper bound.

A loss l between neighbouring atoms a and b goes to both of them, in such shares that the means of 1 and of exp(-loss)
stay, which adds about (l - a)(b - l) to the variance. Releases are many, so this is what discretising costs; `refined`
places a number of atoms where they add least.

References
----------
[1] Doroshenko, Ghazi, Kamath, Kumar and Manurangsi, "Connect the dots: tighter discrete approximations of privacy
    loss distributions", PoPETs 2022, algorithm 1 and theorem 3.1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gossamer.arrays import FloatArray
from gossamer.privacy.accounting.analytic import Profile
from gossamer.privacy.accounting.composition import Laws

# Relative, on divergences: far more than their formulas lose, and than is lost when chords' masses are added up. With
# the larger one ahead, Q has a mass of at most 1 for certain: of more, losses would be too small by its logarithm.
_MARGIN_AHEAD, _MARGIN_BACK = 2e-10, 1e-10
_LONE = (1e-6, 1e-14)  # shares, tilted and plain, of the other end's density: next to nothing
_SAME = 1e-12  # relative, on losses
_RATIO = 1.25  # of neighbouring losses of the first, coarse grid


class LossGrid(NamedTuple):
    """Losses at which curves are evaluated: increasing, from 0.

    Attributes
    ----------
    ahead, back : ndarray
        Losses for the divergence of P from Q, and of Q from P.
    """

    ahead: FloatArray
    back: FloatArray


class AtomWeights(NamedTuple):
    """Weights of the atoms of laws on a grid: how much each matters.

    Attributes
    ----------
    losses, tilted, plain : ndarray [size]
        The atoms; the probability that counts; the probability itself.
    own : LossGrid
        Losses at which the exact laws have atoms of their own.
    """

    losses: FloatArray
    tilted: FloatArray
    plain: FloatArray
    own: LossGrid = LossGrid(np.empty(0), np.empty(0))


def coarse(least: float, ahead: float, back: float, atoms: Sequence[tuple[float, float]]) -> LossGrid:
    """Losses in geometric progression from ``least`` to ``ahead`` and to ``back``, and those of ``atoms``."""

    def side(top: float, extra: Sequence[float]) -> FloatArray:
        least_here = min(least, top / 2)
        steps = int(np.ceil(np.log(top / least_here) / np.log(_RATIO)))
        return _ordered(np.geomspace(least_here, top, max(steps, 1) + 1), top, extra)

    return LossGrid(side(ahead, [pair[0] for pair in atoms]), side(back, [pair[1] for pair in atoms]))


def refined(grid: LossGrid, weights: AtomWeights, atoms: int) -> LossGrid:
    """A grid with about ``atoms`` more losses, where they lower `roughness` most; all losses of ``grid`` are kept."""
    sides = []
    measures = [np.cbrt(heights) * np.diff(side) for side, heights in zip(grid, _heights(grid, weights))]
    total = sum(float(measure.sum()) for measure in measures)
    for side, measure in zip(grid, measures):
        parts = np.minimum(np.ceil(measure * (atoms / total) if total > 0 else measure + 1), atoms).astype(np.int64)
        parts = np.maximum(parts, 1)
        cell = np.repeat(np.arange(parts.size), parts)
        within = np.arange(cell.size) - np.repeat(np.cumsum(parts) - parts, parts)
        inner = side[cell] + np.diff(side)[cell] * (within / parts[cell])
        sides.append(_ordered(inner, float(side[-1]), [float(side[-1])]))
    return LossGrid(*sides)


def roughness(grid: LossGrid, weights: AtomWeights) -> tuple[float, float]:
    """Variance that chords add to the losses', weighted; and c where n atoms, placed by `refined`, add c / n^2."""
    added = best = 0.0
    for side, heights in zip(grid, _heights(grid, weights)):
        gaps = np.diff(side)
        added += float(np.sum(heights * gaps**3)) / 6
        best += float(np.sum(np.cbrt(heights) * gaps))
    return added, best**3 / 6


def _heights(grid: LossGrid, weights: AtomWeights) -> list[FloatArray]:
    """Weight per unit of loss in each cell of the two sides of a grid.

    What lies inside a cell is at both of its ends: where one of them is an atom of the laws' own, and the other one has
    next to nothing, there is nothing inside.
    """
    found = []
    for side, own_atoms, sign in zip(grid, weights.own, (1, -1)):
        own, plain = (
            values[weights.losses > 0] if sign > 0 else values[weights.losses < 0][::-1]
            for values in (weights.tilted, weights.plain)
        )
        gaps = np.diff(side)
        widths = (gaps + np.append(gaps[1:], gaps[-1])) / 2  # of the atoms side[1], side[2], ...
        ends = [np.stack([np.append(values[0], values[:-1]), values]) / widths for values in (own, plain)]
        lone = np.logical_and(
            *(np.min(each, axis=0) < share * np.max(each, axis=0) for each, share in zip(ends, _LONE))
        )
        atom = _among(side, own_atoms)
        lone &= np.where(ends[1][0] > ends[1][1], atom[:-1], atom[1:])
        found.append(np.where(lone, 0.0, np.mean(ends[0], axis=0)))
    return found


def _among(losses: FloatArray, atoms: FloatArray) -> npt.NDArray[np.bool_]:
    """Mark those of ``losses`` that are ``atoms``, but for rounding."""
    if not atoms.size:
        return np.zeros(losses.size, dtype=bool)
    ordered = np.sort(atoms)
    after = np.minimum(np.searchsorted(ordered, losses), ordered.size - 1)
    nearest = np.minimum(np.abs(ordered[after] - losses), np.abs(ordered[np.maximum(after - 1, 0)] - losses))
    result: npt.NDArray[np.bool_] = nearest <= _SAME * losses
    return result


def discretise(profiles: Sequence[Profile], grid: LossGrid) -> Laws:
    """The loss log(P/Q) under P of discrete pairs that dominate the profiles'.

    Only divergences at losses >= 0 are used, where they are small and hence exact: the mass that P has at a negative
    loss -e is exp(-e) times the mass that Q has at the loss e of the reverse.
    """
    ahead = [_masses(profile.forward, grid.ahead, _MARGIN_AHEAD) for profile in profiles]
    with np.errstate(under="ignore"):
        back = np.array([_masses(profile.backward, grid.back, _MARGIN_BACK)[0] for profile in profiles])
        below = back * np.exp(-grid.back[1:])
    probabilities = np.concatenate([below[:, ::-1], np.array([masses for masses, _ in ahead])], axis=1)
    losses = np.concatenate([-grid.back[:0:-1], grid.ahead[1:]])
    return Laws(losses, probabilities, np.array([infinite for _, infinite in ahead]))


def _masses(
    divergence: Callable[[FloatArray], FloatArray], side: FloatArray, margin: float
) -> tuple[FloatArray, float]:
    """Masses at all losses of ``side`` but the first, which is 0, of the chords of a curve; and what is infinite."""
    curve = np.minimum(np.minimum.accumulate(divergence(side)) * (1 + margin), 1.0)
    kept = np.arange(side.size)
    while True:
        masses = chord_masses(side[kept], curve[kept])
        # Rounding may leave a dent between a curve's points: a longer chord goes over it.
        dents = np.flatnonzero(masses < 0) + 1
        dents = dents[dents < kept.size - 1]
        if not dents.size:
            break
        kept = np.delete(kept, dents)
    result = np.zeros(side.size - 1)
    result[kept[1:] - 1] = masses
    return result, float(curve[-1])


def chord_masses(losses: FloatArray, curve: FloatArray) -> FloatArray:
    """P's masses at all but the first of ``losses``: exp(loss) times the change of the chords' slopes in exp(loss)."""
    drops, gaps = -np.diff(curve), np.diff(losses)
    shares = drops / -np.expm1(-gaps)
    with np.errstate(under="ignore"):
        masses: FloatArray = shares - np.append((shares * np.exp(-gaps))[1:], 0.0)
    return masses


def _ordered(losses: FloatArray, top: float, extra: Sequence[float]) -> FloatArray:
    """0, ``losses`` and ``extra``, those below ``top``, and ``top``, in order; no two that are all but equal."""
    found = np.unique(np.concatenate([losses, [loss for loss in extra if 0 < loss < top], [top]]))
    found = found[(found > 0) & (found <= top)]
    apart = np.append(np.diff(found) > 1e-13 * found[:-1], True)
    return np.concatenate([[0.0], found[apart]])
