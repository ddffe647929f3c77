"""Distance that a party's gradients move what an observer sees, in deviations of the noise: mu, with a certificate.

What an observer sees, once all is taken off that it knows, is R (G + Z): G [draws, d] are the gradients that parties
released, in units of their noise, and the entries of Z are independent standard normal. Let P be the orthogonal
projection on the rows of R. If a party's gradients differ by D in two worlds, and nobody else's do, the two views are
normal with one covariance, and as hard to tell apart as N(0, 1) and N(|P D|, 1). So, with the rows of D at most c long,

    mu^2 = max { <P_S, D D'> : |d_t| <= c_t },      P_S the rows and columns of the party's draws S.

That is a maximum over positive semidefinite X = D D' with a bounded diagonal, a semidefinite program, whose value any
model of |S| numbers or more attains. Two bounds certify it:

- **below**, by a D: each row in turn is turned to where it gains most [1];
- **above**, by weak duality: sum_t lambda_t c_t^2 for any lambda with diag(lambda) >= P_S. Taken are lambda_t =
  |(P_S D)_t| / c_t, raised by what the least eigenvalue lacks, and the row sums of |P_S|, where they are less.

Whoever takes part in some of the draws only has fewer rows in D. For a feasible lambda the sum over any allowed set of
draws is an upper bound as well, and so are sums of the entries of |P_S| over it.

Rounding decides no rank. What a message has that those before it have not is either nothing but rounding, or far more,
as a draw of its own is; where it lies between, as after many averages without a draw, P is taken to be all there is
(and mu infinite, where noise and gradients are apart).

References
----------
[1] Bellet, Cyffers, Frey, Gaudel, Lereverend and Taiani, "Unified privacy guarantees for decentralized learning via
    matrix factorization", arXiv 2510.17480, for the view as a factorisation. Burer and Monteiro, "A nonlinear
    programming algorithm for solving semidefinite programs via low-rank factorization", Math. Program. 2003.
[2] Higham, "Accuracy and stability of numerical algorithms", 2002, theorem 10.3, for Cholesky factors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.linalg import qr, svd

from gossamer.arrays import FloatArray
from gossamer.errors import require_counts

_LOOKS, _ROUNDS = 400, 25
_MANY = 100
"""Sets of draws of which each has its own search."""
_BLOCK = 64
ROUNDING = 1e-13
"""Relative error of a sum of products, a summand."""
_CLEAR = 1e-6
"""Part of a message from which on rounding leaves its direction as it is."""
_TURNED = 1e-10
"""Angle by which rounding may turn such a direction."""


@dataclass(frozen=True)
class Mu:
    """Bounds of mu.

    Attributes
    ----------
    least, most : float
        mu lies between them; ``most`` is what is proved.
    """

    least: float
    most: float

    def beside(self, other: float) -> Mu:
        """Return bounds of what is learnt from this and from something of ``other`` mu, with noise of its own."""
        return Mu(math.hypot(self.least, other), math.hypot(self.most, other))


@dataclass(frozen=True)
class Participation:
    """Draws of a party that one example may be in.

    Attributes
    ----------
    most : int or None
        Most of them; None where it may be in all.
    apart : int
        Least number of draws from one of them to the next.
    """

    most: int | None = None
    apart: int = 1

    def __post_init__(self) -> None:
        require_counts(apart=self.apart, most=1 if self.most is None else self.most)


EVERY = Participation()


@dataclass(frozen=True)
class Draw:
    """One noisy gradient.

    Attributes
    ----------
    owner : str
        Party whose gradient it is, and who knows its noise.
    moved : float
        Length by which one change of the party's data moves it, in deviations of its noise.
    noisy : bool
        Whether it has noise.
    also : str
        Another party that knows its noise, of a draw that two share.
    """

    owner: str
    moved: float
    noisy: bool = True
    also: str = ""


def shifts(rows: Sequence[FloatArray], draws: Sequence[Draw]) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
    """Return how who sees ``rows`` sees a gradient of each draw move, where some draws have no noise.

    Parameters
    ----------
    rows : sequence of ndarray [at most draws]
        Coefficients, in the order of time.
    draws : sequence of Draw
        Noisy gradients.

    Returns
    -------
    moves : ndarray [draws, coordinates]
        How far a gradient that is a unit long moves what is seen, in coordinates in which its noise is independent and
        of variance 1.
    escapes : ndarray [draws] of bool
        Whether it also moves what has no noise, or rounding leaves that unclear.
    """
    noisy = np.array([draw.noisy for draw in draws], bool)
    basis, clear = span(rows, len(draws))
    u, s, _ = svd(basis.T[:, noisy], full_matrices=False, check_finite=False)
    kept = s > ROUNDING * len(draws) * s.max(initial=0.0)
    unclear = not clear or (s[kept] < _CLEAR * s.max(initial=0.0)).any()
    u, s = u[:, kept], s[kept]
    left = np.linalg.norm(basis - (basis @ u) @ u.T, axis=1)
    escapes = left > ROUNDING * len(draws) * np.abs(basis).max(initial=0.0)
    return basis @ u / s, escapes | unclear


def span(
    rows: Sequence[FloatArray], draws: int, sizes: FloatArray | None = None, terms: int | None = None
) -> tuple[FloatArray, bool]:
    """Return orthonormal columns [draws, rank] that span ``rows``, each [at most draws], and whether that is clear.

    Rows come in the order of time, so that early ones are short. A block of them is made orthogonal to all before,
    twice, and then in itself. Where something was taken off the rows before, ``sizes`` are their lengths with it, or
    what their summands have together, and ``terms`` counts these.
    """
    sizes = np.array([np.linalg.norm(row) for row in rows]) if sizes is None else sizes
    basis, rank, clear = np.zeros((draws, len(rows)), order="F"), 0, True
    for first in range(0, len(rows), _BLOCK):
        block = rows[first : first + _BLOCK]
        long = max(map(len, block))
        columns = np.zeros((long, len(block)), order="F")
        for number, row in enumerate(block):
            if (length := sizes[first + number]) > 0:
                columns[: len(row), number] = row / length
        before = basis[:long, :rank]
        for _ in range(2):
            columns -= before @ (before.T @ columns)
        own, r, _ = qr(columns, mode="economic", pivoting=True, overwrite_a=True, check_finite=False)
        lengths = np.abs(np.diag(r))
        new = int(np.count_nonzero(lengths > ROUNDING * (terms or draws) ** 0.5))
        clear &= not new or bool(lengths[new - 1] > _CLEAR)
        own = own[:, :new] - before @ (before.T @ own[:, :new])
        basis[:long, rank : rank + new] = own / np.linalg.norm(own, axis=0)
        rank += new
    return basis[:, :rank], clear


def mu_of(part: FloatArray, lengths: FloatArray, participation: Participation, loose: float) -> Mu:
    """Return bounds of the mu of a party whose draws have ``part`` [stretches, draws, draws] of P, ``lengths`` [draws].

    A message of which as little as `_CLEAR` is new has its rounding enlarged by as much in its direction, so rounding
    moves what an observer sees of a change by up to a ten-billionth of its length, however little that is.
    """
    found = mu(part * lengths * lengths[:, None], participation, loose)
    return Mu(found.least, found.most + _TURNED * float(np.linalg.norm(lengths)))


def mu(gram: FloatArray, participation: Participation, loose: float) -> Mu:
    """Return bounds of the Gaussian differential privacy of a party's gradients.

    Parameters
    ----------
    gram : ndarray [stretches, draws, draws]
        P_S of each stretch of entries, with c_t c_s in it; positive semidefinite, in the order of time.
    participation : Participation
        Draws that one change may be in.
    loose : float
        Share of mu^2 that a bound without a search may be too large by.
    """
    rows, count = np.abs(gram).max(axis=0), gram.shape[1]
    if participation == EVERY:
        whole = float(np.abs(gram).sum(axis=2).max(axis=0).sum())
        signs = np.sign(gram.sum(axis=2, keepdims=True) + 1e-300)
        least = float((signs * (gram @ signs)).sum(axis=(1, 2)).max(initial=0.0))
        if whole - least <= loose * whole:  # as where no entry is negative
            return _bounds(least, whole, count)
        least, prices = _relaxed(gram, loose)
        return _bounds(least, min(whole, float(prices.sum())), count)
    if (sets := _sets(count, participation)) is not None:
        each = [_relaxed(gram[:, one][:, :, one], loose) for one in sets]
        return _bounds(max(least for least, _ in each), max(float(prices.sum()) for _, prices in each), count)
    prices = _relaxed(gram, loose)[1]
    most, places = _chosen(prices[None], participation)
    pairs, _ = _chosen(rows, participation)
    other, others = _chosen(pairs[None], participation)
    found = [_relaxed(gram[:, of[0]][:, :, of[0]], loose)[0] for of in (places, others)]
    return _bounds(max(found), min(float(most[0]), float(other[0])), count)


def _sets(count: int, participation: Participation) -> list[list[int]] | None:
    """List the sets of draws that are allowed and in no other, or None if there are many."""
    found: list[list[int]] = [[]]
    for draw in range(count):
        free = (one for one in found if not one or draw - one[-1] >= participation.apart)
        found += [[*one, draw] for one in free if len(one) < (participation.most or count)]
        if len(found) > _MANY:
            return None
    kept = [frozenset(one) for one in found]
    return [sorted(one) for one in kept if not any(one < other for other in kept)]


def _bounds(least: float, most: float, count: int) -> Mu:
    return Mu(math.sqrt(max(least, 0.0)), math.sqrt(max(most, 0.0) * (1 + count * ROUNDING)))


def _relaxed(gram: FloatArray, loose: float) -> tuple[float, FloatArray]:
    """Return the value of a D, and prices lambda_t c_t^2 [draws] whose sum bounds that of any.

    Each stretch of entries has its part of D. The rows are turned to where (P - s Q) D has them, again and again, Q the
    diagonal of P and s the least eigenvalue of P with ones there, Q^-1/2 P Q^-1/2. That gains each time, as
    <P - s Q, D D'> is convex in D. That prices are feasible shows in a Cholesky factor of diag(prices) - P.
    """
    count = gram.shape[1]
    rank = math.isqrt(2 * count) + 1  # enough for the best of all [1, Barvinok and Pataki]
    start = np.full((count, rank), 1e-2) * np.cos(np.arange(count * rank).reshape(count, rank) ** 1.5)
    start[:, 0] += 1.0
    changes = np.stack([start] * len(gram)) / (_lengths(start[None]) * len(gram) ** 0.5)[:, None]
    rounded = count * ROUNDING * float(np.abs(gram).max(initial=0.0))
    cheapest = np.full(count, math.inf)
    own = np.diagonal(gram, axis1=1, axis2=2)
    there = own > rounded  # others, as those that nobody is sent, would leave s at 0
    each = np.sqrt(np.where(there, own, math.inf))
    alike = gram / (each[:, None] * each[:, :, None])
    alike[:, range(count), range(count)] = 1.0
    shift = max(float(np.linalg.eigvalsh(alike).min()), 0.0)
    turning = gram - shift * np.where(there, own, 0.0)[:, None] * np.eye(count)
    for _ in range(_LOOKS):
        for _ in range(_ROUNDS):
            moved = turning @ changes
            pulls = _lengths(moved)[:, None]
            changes = np.divide(moved, pulls, out=changes, where=pulls > 0)
        moved = gram @ changes
        prices = _lengths(moved)
        least = float((moved * changes).sum())
        # A factor is exact of a matrix that is off by at most (n + 1) eps times the trace [2].
        spare = rounded + 2.0 * count * float(np.finfo(np.float64).eps) * (float(prices.sum()) + loose * least)
        raised = prices + (0.9 * loose * least / count + spare)
        try:
            np.linalg.cholesky(np.diag(raised - spare) - gram)
        except np.linalg.LinAlgError:
            continue
        cheapest = raised
        if raised.sum() - least <= loose * least:
            break
    else:
        lacking = -float(np.linalg.eigvalsh(np.diag(prices) - gram).min())
        cheapest = min(cheapest, prices + max(lacking + spare, 0.0), key=np.sum)
    return least, cheapest


def _lengths(changes: FloatArray) -> FloatArray:
    """Lengths of rows that are in stretches, [stretches, draws, any]."""
    return np.asarray(np.sqrt(np.einsum("ptr,ptr->t", changes, changes)))


def _chosen(values: FloatArray, participation: Participation) -> tuple[FloatArray, list[list[int]]]:
    """Return for each row of ``values`` [rows, draws], none negative, the largest sum over allowed draws, and these."""
    rows, count = values.shape
    most = min(participation.most or count, -(-count // participation.apart))
    best = np.zeros((count + 1, most + 1, rows))
    for draw in range(count):
        with_it = best[max(draw + 1 - participation.apart, 0), :-1] + values[:, draw]
        best[draw + 1] = best[draw]
        best[draw + 1, 1:] = np.maximum(best[draw, 1:], with_it)
    places = []
    for row in range(rows):
        draw, left, found = count, most, []
        while draw and left:
            if best[draw, left, row] > best[draw - 1, left, row]:
                found.append(draw - 1)
                draw, left = max(draw - participation.apart, 0), left - 1
            else:
                draw -= 1
        places.append(found[::-1])
    return best[count, most], places
