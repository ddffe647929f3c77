"""The table of what is accounted for: mechanism, sampling scheme and neighbouring relation go together.

Each row names the multiplier that is handed over; everything else is refused. sd is the standard deviation of the noise
on the sum of clipped vectors, C the clip.

Under replace-one such a sum moves by 2C, and accountants read a multiplier differently: privacy loss distributions of a
Poisson sample (dp-accounting's, and `analytic.PoissonReplaced`) double the sensitivity themselves and take sd/C; the
profile of a batch of fixed size and dp-accounting's Renyi accountant do not, and take sd/(2C). A test for every row
compares a full batch with the analytic Gaussian mechanism.

L2-Laplace noise is accounted by its own law (`pairs`). On a Poisson sample under replace-one its pair is that of a
batch of fixed size, for which advanced joint convexity [1, theorem 2] is all that is needed. Whoever else is sampled,
the outputs follow (1-q) M + q M_1 and (1-q) M + q M_2, where M_1 and M_2 are M moved by at most C. With
exp(e') = 1 + (exp(e)-1)/q >= 1 and b = exp(e-e'), their divergence at e is q times that of M_1 to (1-b) M + b M_2 at
e', so by convexity at most ``q ((1-b) H_C(e') + b H_2C(e')) <= q H_2C(e')``, where H_S belongs to a shift of length S;
the last step is the lemma on shorter shifts of `pairs`. For e < 0 the data sets change places. This is loose
where q is small, and in a few dimensions randomized response may say more; the smaller epsilon counts.

`BallGaussian` is on a sum that is clipped as a whole: all sums lie in one ball of diameter C, and M, M_1 and M_2 are
mixtures of normal laws around its points, any two at most C apart. With the same e' and b the divergence is at most
``q ((1-b) H_C(e') + b H_C(e')) = q H_C(e')``, on both samples: the pair of a batch of fixed size at C in place of 2C.
It is reached where the sums without the example and with its replacement are one point, and that with it is opposite.

For a person with several rows, K of which are drawn, the pairs are those of `group_pairs`:

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

References
----------
[1] Balle, Barthe and Gaboardi, "Privacy amplification by subsampling", NeurIPS 2018.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from gossamer.errors import AccountingError, whole_number
from gossamer.privacy.accounting import analytic, renyi
from gossamer.privacy.accounting.group_pairs import Coins, GroupReplaced, GroupSampled, binomial, hypergeometric
from gossamer.privacy.mechanisms import (
    BallGaussian,
    BatchSampling,
    FixedSize,
    Gaussian,
    L2Laplace,
    Laplace,
    Mechanism,
    NeighboringRelation,
    Poisson,
    ReleaseKind,
)
from gossamer.privacy.pairs import Full, ResponseFull

ADD_OR_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE
REPLACE = NeighboringRelation.REPLACE_ONE
FEW = 16
"""Of more coordinates a pure epsilon says too little to be worth a look.

A bound that depended on the rate or the noise instead could make epsilon grow where they reveal less.
"""
MOST_ROWS = 10_000
"""More rows of one person than these are not accounted for."""


def check_rows(rows: int) -> int:
    """``rows`` of one person, if it is such a number.

    Raises
    ------
    AccountingError
        If it is not.
    """
    if not 1 <= (number := whole_number(rows) or 0) <= MOST_ROWS:
        raise AccountingError(f"a person has a whole number of rows, 1 to {MOST_ROWS}, found {rows!r}")
    return number


def gaussian_mu(kind: ReleaseKind, relation: NeighboringRelation) -> float:
    """Sensitivity over standard deviation, both in units of the clip."""
    normal = kind.mechanism.normal
    assert normal is not None, "only normal noise has a mu"
    return normal.mu(relation)


def has_pure_epsilon(kind: ReleaseKind) -> bool:
    """Whether releases of a kind have an epsilon without a delta."""
    return kind.mechanism.release_epsilon(REPLACE, kind.size) < math.inf


def pure_epsilon(kind: ReleaseKind, relation: NeighboringRelation) -> float:
    """Epsilon that one release of ``kind`` has without a delta, its sampling counted.

    Raises
    ------
    AccountingError
        If there is none, or the combination is not in `ROWS`.
    """
    row = row_of(kind, relation)
    if not has_pure_epsilon(kind):
        raise AccountingError(
            f"only L2Laplace and Laplace noise have an epsilon without a delta, found {type(kind.mechanism).__name__}; "
            f"use accountants.epsilon"
        )
    fixed = row.sampling is FixedSize
    full = ResponseFull(kind.mechanism.release_epsilon(REPLACE if fixed else ADD_OR_REMOVE, kind.size))
    if fixed:
        return analytic.FixedSizeSampled(full, kind.sampling.rate).largest(0.0)[0]
    # Whoever else is sampled, a release on a sample with the example is within exp(+-a) of one without it, so the two
    # data sets' densities are to it as at most 1-q + q exp(a) and at least 1-q + q exp(-a).
    ends = analytic.PoissonSampled(full, kind.sampling.rate).largest(0.0)
    return max(ends) if row.relation is ADD_OR_REMOVE else sum(ends)


@lru_cache(maxsize=4096)
def _drawn(kind: ReleaseKind, relation: NeighboringRelation, rows: int) -> tuple[Full, float]:
    """Pair of laws that a batch with some of the rows reveals at most, and the probability of such a batch."""
    law, sampling, size = kind.mechanism, kind.sampling, kind.size
    if sampling.rate == 1 or rows == 1:
        return law.full(relation, min(rows, getattr(sampling, "dataset_size", rows)), size), sampling.rate
    if isinstance(sampling, FixedSize):
        numbers = hypergeometric(rows, sampling.dataset_size, sampling.batch_size, law.numbers)
    else:
        numbers = binomial(rows, sampling.rate, law.numbers)
    fulls = tuple(law.full(relation, int(k), size) for k in numbers.values)
    weights = tuple((np.exp(numbers.logs) / numbers.some).tolist())
    return (fulls[0] if len(set(fulls)) == 1 else Coins(fulls, weights)), numbers.some


def _drawn_pair(kind: ReleaseKind, relation: NeighboringRelation, rows: int) -> analytic.Profile:
    full, some = _drawn(kind, relation, rows)
    if not some < 1:
        return analytic.FullBatch(full)
    return analytic.PoissonSampled(full, some) if relation is ADD_OR_REMOVE else analytic.FixedSizeSampled(full, some)


def _gaussian_pair(kind: ReleaseKind, relation: NeighboringRelation, rows: int) -> analytic.Profile:
    rate, mu = kind.sampling.rate, gaussian_mu(kind, ADD_OR_REMOVE)
    if rate == 1 or (rows == 1 and relation is ADD_OR_REMOVE):
        return _drawn_pair(kind, relation, rows)
    if rows == 1:
        return analytic.PoissonReplaced(mu, rate)
    return GroupSampled(mu, rate, rows) if relation is ADD_OR_REMOVE else GroupReplaced(mu, rate, rows)


def _pure_pair(kind: ReleaseKind, relation: NeighboringRelation, rows: int) -> analytic.Profile:
    return analytic.Response(rows * pure_epsilon(kind, relation))


def _poisson_divergence(kind: ReleaseKind, relation: NeighboringRelation, order: float) -> float:
    mu, rate = gaussian_mu(kind, ADD_OR_REMOVE), kind.sampling.rate
    if relation is REPLACE:
        return renyi.poisson_replaced_gaussian(mu, rate, order)
    return renyi.poisson_gaussian(1 / mu, rate, order)


def _fixed_size_divergence(kind: ReleaseKind, relation: NeighboringRelation, order: float) -> float:
    return renyi.fixed_size_gaussian(gaussian_mu(kind, relation), kind.sampling.rate, order)


def _pure_divergence(kind: ReleaseKind, relation: NeighboringRelation, order: float) -> float:
    """Pair of randomized response, if the noise needs no delta."""
    return renyi.response(pure_epsilon(kind, relation), order) if has_pure_epsilon(kind) else math.inf


@dataclass(frozen=True)
class AccountantRow:
    """One combination that is accounted for.

    Attributes
    ----------
    mechanism, sampling, relation
        The combination.
    accountant : str
        Way in which epsilon is computed.
    multiplier : str
        Argument that the accountant gets for the noise.
    pair : callable
        The dominating pair of one release, for a person with so many rows.
    order_divergence : callable
        Renyi divergence of the pair of one row at an order.
    """

    mechanism: type[Mechanism]
    sampling: type[BatchSampling]
    relation: NeighboringRelation
    accountant: str
    multiplier: str
    pair: Callable[[ReleaseKind, NeighboringRelation, int], analytic.Profile] = _drawn_pair
    order_divergence: Callable[[ReleaseKind, NeighboringRelation, float], float] = _pure_divergence

    def profile(self, kind: ReleaseKind, rows: int = 1, other: bool = False) -> analytic.Profile:
        """The dominating pair of one release for a person with at most ``rows`` rows.

        Or the ``other`` one, if it may say more: that of what has a pure epsilon, on at most `FEW` coordinates, where
        the pair is one of batches of fixed size.
        """
        borrowed = self.pair is _drawn_pair and (self.sampling, self.relation) == _SWAPPED
        pure = other and borrowed and kind.size <= FEW and has_pure_epsilon(kind)
        return (_pure_pair if pure else self.pair)(kind, self.relation, rows)

    def divergence(self, kind: ReleaseKind, order: float) -> float:
        """Renyi divergence of the pair of one row at ``order``."""
        return self.order_divergence(kind, self.relation, order)


_ADDED, _SWAPPED, _FIXED = (Poisson, ADD_OR_REMOVE), (Poisson, REPLACE), (FixedSize, REPLACE)
_FIXED_PLD, _LAPLACE, _RESPONSE = (
    "PLD of the Zhu-Dong-Wang profile",
    "PLD of the L2-Laplace law",
    "PLD of randomized response",
)
_ONCE_EACH = "epsilon at sensitivity C, once to remove and once to add"
_BORROWED = "epsilon at sensitivity 2C, size (the pair of FixedSize)"

ROWS: tuple[AccountantRow, ...] = (
    AccountantRow(Gaussian, *_ADDED, "PLD", "sd/C", _gaussian_pair, _poisson_divergence),
    AccountantRow(
        Gaussian, *_SWAPPED, "PLD", "sd/C (the pair itself moves both ways)", _gaussian_pair, _poisson_divergence
    ),
    AccountantRow(Gaussian, *_FIXED, _FIXED_PLD, "sd/(2C)", _drawn_pair, _fixed_size_divergence),
    AccountantRow(BallGaussian, *_ADDED, "PLD", "sd/C", _drawn_pair, _poisson_divergence),
    AccountantRow(
        BallGaussian, *_SWAPPED, _FIXED_PLD, "sd/C (the pair of FixedSize)", _drawn_pair, _fixed_size_divergence
    ),
    AccountantRow(BallGaussian, *_FIXED, _FIXED_PLD, "sd/C", _drawn_pair, _fixed_size_divergence),
    AccountantRow(L2Laplace, *_ADDED, _LAPLACE, "epsilon at sensitivity C, size"),
    AccountantRow(L2Laplace, *_SWAPPED, _LAPLACE, _BORROWED),
    AccountantRow(L2Laplace, *_FIXED, _LAPLACE, "epsilon at sensitivity 2C, size"),
    AccountantRow(Laplace, *_ADDED, _RESPONSE, "epsilon at sensitivity C"),
    AccountantRow(Laplace, *_SWAPPED, _RESPONSE, _ONCE_EACH, _pure_pair),
    AccountantRow(Laplace, *_FIXED, _RESPONSE, "epsilon at sensitivity 2C"),
)
_ROWS = {(row.mechanism, row.sampling, row.relation): row for row in ROWS}


def row_of(kind: ReleaseKind, relation: NeighboringRelation) -> AccountantRow:
    """The row that accounts for releases of ``kind`` under ``relation``.

    Raises
    ------
    AccountingError
        If there is none.
    """
    key = law, drawn, told = type(kind.mechanism), type(kind.sampling), NeighboringRelation(relation)
    if key in _ROWS:
        return _ROWS[key]
    says_itself = {"full", "release_epsilon"} & vars(law).keys()
    if says_itself and kind.mechanism.private and (drawn, told) in (_ADDED, _SWAPPED, _FIXED):
        # A law of another distribution, which says itself what it proves; a subclass that says nothing is refused. Its
        # pair of the whole data is all that the proofs of rows like those of L2-Laplace noise need.
        return AccountantRow(law, drawn, told, f"PLD of {law.__name__}", "its own pair")
    known = [f"{row.sampling.__name__} with {row.relation}" for row in ROWS if row.mechanism is law]
    advice = f"use {' or '.join(known)}" if known else f"use {', '.join(sorted({m.__name__ for m, _, _ in _ROWS}))}"
    raise AccountingError(
        f"no accountant here is proved for {law.__name__} on {drawn.__name__} batches under {told}; {advice}"
    )
