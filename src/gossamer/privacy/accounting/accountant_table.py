"""The table of what is accounted for: mechanism, sampling scheme and neighbouring relation go together.

Each row names the multiplier that is handed over; everything else is refused. sd is the standard deviation of the noise
on the sum of clipped vectors, C the clip.

Under replace-one such a sum moves by 2C, and accountants read a multiplier differently: privacy loss distributions of a
Poisson sample (dp-accounting's, and `analytic.PoissonReplaced`) double the sensitivity themselves and take sd/C; the
profile of a batch of fixed size and dp-accounting's Renyi accountant do not, and take sd/(2C). A test for every row
compares a full batch with the analytic Gaussian mechanism.

L2-Laplace noise is accounted by its own law (`l2_laplace`). On a Poisson sample under replace-one its pair is that of a
batch of fixed size, for which advanced joint convexity [1, theorem 2] is all that is needed. Whoever else is sampled,
the outputs follow (1-q) M + q M_1 and (1-q) M + q M_2, where M_1 and M_2 are M moved by at most C. With
exp(e') = 1 + (exp(e)-1)/q >= 1 and b = exp(e-e'), their divergence at e is q times that of M_1 to (1-b) M + b M_2 at
e', so by convexity at most ``q ((1-b) H_C(e') + b H_2C(e')) <= q H_2C(e')``, where H_S belongs to a shift of length S;
the last step is the lemma on shorter shifts of `l2_laplace`. For e < 0 the data sets change places. This is loose
where q is small, and in a few dimensions randomized response may say more; the smaller epsilon counts.

`BallGaussian` is on a sum that is clipped as a whole: all sums lie in one ball of diameter C, and M, M_1 and M_2 are
mixtures of normal laws around its points, any two at most C apart. With the same e' and b the divergence is at most
``q ((1-b) H_C(e') + b H_C(e')) = q H_C(e')``, on both samples: the pair of a batch of fixed size at C in place of 2C.
It is reached where the sums without the example and with its replacement are one point, and that with it is opposite.

References
----------
[1] Balle, Barthe and Gaboardi, "Privacy amplification by subsampling", NeurIPS 2018.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gossamer.errors import AccountingError
from gossamer.privacy.accounting import renyi
from gossamer.privacy.accounting.analytic import (
    FixedSizeSampled,
    FullBatch,
    PoissonReplaced,
    PoissonSampled,
    Profile,
    Response,
)
from gossamer.privacy.mechanisms import BallGaussian, Gaussian, L2Laplace, Laplace, Mechanism, NeighboringRelation
from gossamer.privacy.pairs import GaussianFull, ResponseFull
from gossamer.privacy.releases import ReleaseKind
from gossamer.privacy.sampling import BatchSampling, FixedSize, Poisson

ADD_OR_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE
REPLACE = NeighboringRelation.REPLACE_ONE

FEW = 16
"""Of more coordinates a pure epsilon says too little to be worth a look.

A bound that depended on the rate or the noise instead could make epsilon grow where they reveal less.
"""


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
    profile : callable
        The dominating pair of one release.
    divergence : callable
        Renyi divergence of the pair at an order.
    other : callable, optional
        Another dominating pair of one release, which may say more where at most `FEW` coordinates are released.
    """

    mechanism: type[Mechanism]
    sampling: type[BatchSampling]
    relation: NeighboringRelation
    accountant: str
    multiplier: str
    profile: Callable[[ReleaseKind], Profile]
    divergence: Callable[[ReleaseKind, float], float]
    other: Callable[[ReleaseKind], Profile] | None = None

    def pair(self, kind: ReleaseKind, other: bool) -> Profile:
        """The pair of a release, or the other one if it is asked for and there is one."""
        return self.other(kind) if other and self.other is not None and self.has_other(kind) else self.profile(kind)

    def has_other(self, kind: ReleaseKind) -> bool:
        """Whether the other pair may say more of a release."""
        return self.other is not None and kind.size <= FEW and has_pure_epsilon(kind)


_Combination = tuple[type[BatchSampling], NeighboringRelation]
_OfKind = Callable[[ReleaseKind], Profile]


def gaussian_mu(kind: ReleaseKind, relation: NeighboringRelation) -> float:
    """Sensitivity over standard deviation, both in units of the clip."""
    normal = kind.mechanism.normal
    assert normal is not None, "only normal noise has a mu"
    return normal.mu(relation)


def _pure(kind: ReleaseKind, relation: NeighboringRelation) -> float:
    """Epsilon of one full-batch release of a mechanism that needs no delta."""
    return kind.mechanism.release_epsilon(relation, kind.size)


def has_pure_epsilon(kind: ReleaseKind) -> bool:
    """Whether releases of a kind have an epsilon without a delta."""
    return _pure(kind, REPLACE) < math.inf


def pure_epsilon(kind: ReleaseKind, relation: NeighboringRelation) -> float:
    """Epsilon that one release of ``kind`` has without a delta, its sampling counted.

    Raises
    ------
    AccountingError
        If there is none, or the combination is not in `ROWS`.
    """
    row_of(kind, relation)
    if not has_pure_epsilon(kind):
        raise AccountingError(
            f"only L2Laplace and Laplace noise have an epsilon without a delta, found {type(kind.mechanism).__name__}; "
            f"use accountants.epsilon"
        )
    return max(_PURE[type(kind.sampling), NeighboringRelation(relation)](kind).largest(0.0))


def _poisson_gaussian_replaced(kind: ReleaseKind) -> Profile:
    if kind.sampling.rate < 1:
        return PoissonReplaced(gaussian_mu(kind, ADD_OR_REMOVE), kind.sampling.rate)
    return FullBatch(GaussianFull(gaussian_mu(kind, REPLACE)))


def _poisson_pure(kind: ReleaseKind) -> Profile:
    return PoissonSampled(ResponseFull(_pure(kind, ADD_OR_REMOVE)), kind.sampling.rate)


def _poisson_pure_replaced(kind: ReleaseKind) -> Profile:
    # Whoever else is sampled, a release on a sample with the example is within exp(+-a) of one without it, so the two
    # data sets' densities are to it as at most 1-q + q exp(a) and at least 1-q + q exp(-a).
    single = _pure(kind, ADD_OR_REMOVE)
    profile = PoissonSampled(ResponseFull(single), kind.sampling.rate)
    return Response(sum(profile.largest(0.0)))


def _fixed_size_pure(kind: ReleaseKind) -> Profile:
    return FixedSizeSampled(ResponseFull(_pure(kind, REPLACE)), kind.sampling.rate)


_PURE: dict[_Combination, _OfKind] = {
    (Poisson, ADD_OR_REMOVE): _poisson_pure,
    (Poisson, REPLACE): _poisson_pure_replaced,
    (FixedSize, REPLACE): _fixed_size_pure,
}


def _poisson(kind: ReleaseKind) -> Profile:
    full = kind.mechanism.full(ADD_OR_REMOVE, 1, kind.size)
    return PoissonSampled(full, kind.sampling.rate) if kind.sampling.rate < 1 else FullBatch(full)


def _replaced(kind: ReleaseKind) -> Profile:
    full = kind.mechanism.full(REPLACE, 1, kind.size)
    return FixedSizeSampled(full, kind.sampling.rate) if kind.sampling.rate < 1 else FullBatch(full)


def _poisson_divergence(kind: ReleaseKind, order: float) -> float:
    return renyi.poisson_gaussian(1 / gaussian_mu(kind, ADD_OR_REMOVE), kind.sampling.rate, order)


def _fixed_size_divergence(kind: ReleaseKind, order: float) -> float:
    return renyi.fixed_size_gaussian(gaussian_mu(kind, REPLACE), kind.sampling.rate, order)


def _without_delta(
    mechanism: type[Mechanism], law: str, pairs: Mapping[_Combination, tuple[str, _OfKind]]
) -> list[AccountantRow]:
    """Rows of other noise; as Renyi divergences they have those of randomized response, if it needs no delta."""

    def divergence(pure: _OfKind) -> Callable[[ReleaseKind, float], float]:
        def found(kind: ReleaseKind, order: float) -> float:
            return renyi.response(max(pure(kind).largest(0.0)), order) if has_pure_epsilon(kind) else math.inf

        return found

    return [
        AccountantRow(
            mechanism,
            *combination,
            f"PLD of {law}",
            given,
            profile,
            divergence(_PURE[combination]),
            _PURE[combination] if profile is not _PURE[combination] and combination == (Poisson, REPLACE) else None,
        )
        for combination, (given, profile) in pairs.items()
    ]


ROWS: tuple[AccountantRow, ...] = (
    AccountantRow(Gaussian, Poisson, ADD_OR_REMOVE, "PLD", "sd/C", _poisson, _poisson_divergence),
    AccountantRow(
        Gaussian,
        Poisson,
        REPLACE,
        "PLD",
        "sd/C (the pair itself moves both ways)",
        _poisson_gaussian_replaced,
        lambda kind, order: renyi.poisson_replaced_gaussian(
            gaussian_mu(kind, ADD_OR_REMOVE), kind.sampling.rate, order
        ),
    ),
    AccountantRow(
        Gaussian,
        FixedSize,
        REPLACE,
        "PLD of the Zhu-Dong-Wang profile",
        "sd/(2C)",
        _replaced,
        _fixed_size_divergence,
    ),
    AccountantRow(BallGaussian, Poisson, ADD_OR_REMOVE, "PLD", "sd/C", _poisson, _poisson_divergence),
    AccountantRow(
        BallGaussian,
        Poisson,
        REPLACE,
        "PLD of the Zhu-Dong-Wang profile",
        "sd/C (the pair of FixedSize)",
        _replaced,
        _fixed_size_divergence,
    ),
    AccountantRow(
        BallGaussian,
        FixedSize,
        REPLACE,
        "PLD of the Zhu-Dong-Wang profile",
        "sd/C",
        _replaced,
        _fixed_size_divergence,
    ),
    *_without_delta(
        L2Laplace,
        "the L2-Laplace law",
        {
            (Poisson, ADD_OR_REMOVE): ("epsilon at sensitivity C, size", _poisson),
            (Poisson, REPLACE): ("epsilon at sensitivity 2C, size (the pair of FixedSize)", _replaced),
            (FixedSize, REPLACE): ("epsilon at sensitivity 2C, size", _replaced),
        },
    ),
    *_without_delta(
        Laplace,
        "randomized response",
        {
            (Poisson, ADD_OR_REMOVE): ("epsilon at sensitivity C", _poisson_pure),
            (Poisson, REPLACE): ("epsilon at sensitivity C, once to remove and once to add", _poisson_pure_replaced),
            (FixedSize, REPLACE): ("epsilon at sensitivity 2C", _fixed_size_pure),
        },
    ),
)


def _others(law: type[Mechanism]) -> list[AccountantRow]:
    """Rows of a law that another distribution has."""
    pairs = {(Poisson, ADD_OR_REMOVE): _poisson, (Poisson, REPLACE): _replaced, (FixedSize, REPLACE): _replaced}
    given: dict[_Combination, tuple[str, _OfKind]] = {at: ("its own pair", pair) for at, pair in pairs.items()}
    return _without_delta(law, law.__name__, given)


_ROWS = {(row.mechanism, row.sampling, row.relation): row for row in ROWS}


def row_of(kind: ReleaseKind, relation: NeighboringRelation) -> AccountantRow:
    """The row that accounts for releases of ``kind`` under ``relation``.

    Raises
    ------
    AccountingError
        If there is none.
    """
    key = type(kind.mechanism), type(kind.sampling), NeighboringRelation(relation)
    if key in _ROWS:
        return _ROWS[key]
    if {"full", "release_epsilon"} & vars(key[0]).keys() and kind.mechanism.private and key[1:] in _PURE:
        # A law of another distribution, which says itself what it proves; a subclass that says nothing is refused. Its
        # pair of the whole data is all that the proofs of rows like those of L2-Laplace noise need.
        return next(row for row in _others(key[0]) if (row.sampling, row.relation) == key[1:])
    known = [f"{row.sampling.__name__} with {row.relation}" for row in ROWS if row.mechanism is key[0]]
    advice = f"use {' or '.join(known)}" if known else f"use {', '.join(sorted({m.__name__ for m, _, _ in _ROWS}))}"
    raise AccountingError(
        f"no accountant here is proved for {key[0].__name__} on {key[1].__name__} batches under {key[2]}; {advice}"
    )
