"""The pairs of the table in `rows` for a person with several rows; proofs are in `group_pairs`.

| mechanism | add or remove, Poisson | replace, Poisson | replace, fixed size |
|---|---|---|---|
| `Gaussian` | `GroupSampled` | `GroupReplaced` | `FixedSizeSampled` of `Coins` |
| `BallGaussian` | `PoissonSampled` | `FixedSizeSampled` | `FixedSizeSampled` |
| `L2Laplace` | `PoissonSampled` of `Coins` | as of fixed size, K binomial | `FixedSizeSampled` of `Coins` |
| `Laplace` | `PoissonSampled` of `Coins` | `Response`, m times one row's epsilon | `FixedSizeSampled` of `Coins` |

The g_k of `Coins` are those of noise that is moved by k sensitivities. A sum that is clipped as a whole moves by the
diameter of its ball, however many rows of a person are in it: only whether there are any counts. What is
epsilon-differentially private for one row, its sampling counted, is so with m epsilon for m rows, which change one by
one.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from gossamer.errors import AccountingError
from gossamer.privacy.accounting.accountant_table import (
    ADD_OR_REMOVE,
    REPLACE,
    gaussian_mu,
    pure_epsilon,
    row_of,
)
from gossamer.privacy.accounting.analytic import FixedSizeSampled, FullBatch, PoissonSampled, Profile, Response
from gossamer.privacy.accounting.group_pairs import Coins, GroupReplaced, GroupSampled
from gossamer.privacy.accounting.group_sides import EVERY, RowNumbers, binomial, hypergeometric
from gossamer.privacy.mechanisms import BallGaussian, Gaussian, Laplace, NeighboringRelation
from gossamer.privacy.pairs import Full, GaussianFull
from gossamer.privacy.releases import ReleaseKind
from gossamer.privacy.sampling import FixedSize, Poisson

MOST_ROWS = 10_000
"""More rows of one person than these are not accounted for."""


def check_rows(rows: int) -> int:
    """``rows`` of one person, if it is such a number.

    Raises
    ------
    AccountingError
        If it is not.
    """
    try:
        number = operator.index(rows)
    except TypeError:
        number = 0
    if not 1 <= number <= MOST_ROWS:
        raise AccountingError(f"a person has a whole number of rows, 1 to {MOST_ROWS}, found {rows!r}")
    return number


def group_pair(kind: ReleaseKind, relation: NeighboringRelation, rows: int, other: bool = False) -> Profile:
    """The dominating pair of one release for a person with at most ``rows`` rows, or the other one; see `rows.Row`.

    Raises
    ------
    AccountingError
        If the combination is not in `rows.ROWS`, or there are more rows than `MOST_ROWS`.
    """
    row = row_of(kind, relation)
    if check_rows(rows) == 1:
        return row.pair(kind, other)
    if other and row.has_other(kind):
        return Response(rows * pure_epsilon(kind, relation))
    own = _sampled if row.relation is ADD_OR_REMOVE else _replaced
    return _PAIRS.get((row.mechanism, row.sampling, row.relation), own)(kind, rows)


def group_pure_epsilon(kind: ReleaseKind, relation: NeighboringRelation, rows: int) -> float:
    """Epsilon without a delta of one release; see `rows.pure_epsilon`."""
    return rows * pure_epsilon(kind, relation)


def _moved(kind: ReleaseKind, relation: NeighboringRelation, rows: int) -> Full:
    """A release on the whole data that differ in so many rows."""
    return kind.mechanism.full(relation, rows, kind.size)


def _drawn(kind: ReleaseKind, rows: int, most: int = EVERY) -> RowNumbers:
    """Law of the number of ``rows`` rows that are in a batch, from above."""
    sampling = kind.sampling
    if isinstance(sampling, FixedSize):
        return hypergeometric(rows, sampling.dataset_size, sampling.batch_size, most)
    return binomial(rows, sampling.rate, most)


@lru_cache(maxsize=4096)
def _coins(kind: ReleaseKind, relation: NeighboringRelation, rows: int) -> tuple[Full, float]:
    """Pair of laws that a batch with some of the rows reveals at most, and the probability of such a batch."""
    numbers = _drawn(kind, rows, kind.mechanism.numbers)
    fulls = tuple(_moved(kind, relation, int(k)) for k in numbers.values)
    weights = tuple((np.exp(numbers.logs) / numbers.some).tolist())
    return (fulls[0] if len(fulls) == 1 else Coins(fulls, weights)), numbers.some


def _sampled(kind: ReleaseKind, rows: int) -> Profile:
    if kind.sampling.rate == 1:
        return FullBatch(_moved(kind, ADD_OR_REMOVE, rows))
    full, some = _coins(kind, ADD_OR_REMOVE, rows)
    return PoissonSampled(full, some) if some < 1 else FullBatch(full)


def _replaced(kind: ReleaseKind, rows: int) -> Profile:
    if kind.sampling.rate == 1:
        size = kind.sampling.dataset_size if isinstance(kind.sampling, FixedSize) else rows
        return FullBatch(_moved(kind, REPLACE, min(rows, size)))
    full, some = _coins(kind, REPLACE, rows)
    return FixedSizeSampled(full, some) if some < 1 else FullBatch(full)


def _gaussian_sampled(kind: ReleaseKind, rows: int) -> Profile:
    if kind.sampling.rate == 1:
        return _sampled(kind, rows)
    return GroupSampled(gaussian_mu(kind, ADD_OR_REMOVE), kind.sampling.rate, rows)


def _gaussian_replaced(kind: ReleaseKind, rows: int) -> Profile:
    if kind.sampling.rate == 1:
        return _replaced(kind, rows)
    return GroupReplaced(gaussian_mu(kind, ADD_OR_REMOVE), kind.sampling.rate, rows)


def _ball_sampled(kind: ReleaseKind, rows: int) -> Profile:
    full = GaussianFull(gaussian_mu(kind, ADD_OR_REMOVE))
    return PoissonSampled(full, _drawn(kind, rows).some) if kind.sampling.rate < 1 else FullBatch(full)


def _ball_replaced(kind: ReleaseKind, rows: int) -> Profile:
    full = GaussianFull(gaussian_mu(kind, REPLACE))
    return FixedSizeSampled(full, _drawn(kind, rows).some) if kind.sampling.rate < 1 else FullBatch(full)


def _pure_replaced(kind: ReleaseKind, rows: int) -> Profile:
    return Response(rows * pure_epsilon(kind, REPLACE))


# Of all others the pair of `Coins`.
_PAIRS: dict[tuple[type, type, NeighboringRelation], Callable[[ReleaseKind, int], Profile]] = {
    (Gaussian, Poisson, ADD_OR_REMOVE): _gaussian_sampled,
    (Gaussian, Poisson, REPLACE): _gaussian_replaced,
    (BallGaussian, Poisson, ADD_OR_REMOVE): _ball_sampled,
    (BallGaussian, Poisson, REPLACE): _ball_replaced,
    (BallGaussian, FixedSize, REPLACE): _ball_replaced,
    (Laplace, Poisson, REPLACE): _pure_replaced,
}
