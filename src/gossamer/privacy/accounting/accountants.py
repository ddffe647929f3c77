"""Epsilons proved for a number of releases.

**The table of what is accounted for** (`ROWS`): mechanism, sampling scheme and neighbouring relation go together. Each
row names the multiplier that is handed over; everything else is refused. sd is the standard deviation of the noise on
the sum of clipped vectors, C the clip.

Under replace-one such a sum moves by 2C, and accountants read a multiplier differently: privacy loss distributions of a
Poisson sample (dp-accounting's, and `pairs.PoissonReplaced`) double the sensitivity themselves and take sd/C; the
profile of a batch of fixed size and dp-accounting's Renyi accountant do not, and take sd/(2C). A test for every row
compares a full batch with the analytic Gaussian mechanism.

L2-Laplace noise is accounted by its own law (`privacy.pairs`). On a Poisson sample under replace-one its pair is that
of a batch of fixed size, for which advanced joint convexity [3, theorem 2] is all that is needed. Whoever else is
sampled, the outputs follow (1-q) M + q M_1 and (1-q) M + q M_2, where M_1 and M_2 are M moved by at most C. With
exp(e') = 1 + (exp(e)-1)/q >= 1 and b = exp(e-e'), their divergence at e is q times that of M_1 to (1-b) M + b M_2 at
e', so by convexity at most ``q ((1-b) H_C(e') + b H_2C(e')) <= q H_2C(e')``, where H_S belongs to a shift of length S;
the last step is the lemma on shorter shifts of `pairs`. For e < 0 the data sets change places. This is loose where q is
small, and in a few dimensions randomized response may say more; the smaller epsilon counts.

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

**The privacy profile of whoever is exposed most**, where nodes release differently (`worst_profile`). No one node need
be the worst at every loss, so the profile is the largest of all. Nodes each of whose releases has one of its own at
another that reveals as much or more are left out: profiles grow with the rate of sampling and with the number of
releases (`privacy.pairs`). Where many are left they are covered, a few at a time, by one that releases as much as any.

**Many adaptive releases of which nothing is known but their pure epsilons** (`compositions`):

| name | epsilon at delta of k releases that are epsilon-differentially private |
|---|---|
| `simple` | k epsilon, at delta 0 |
| `advanced` | sqrt(2 k ln(1/delta)) epsilon + k epsilon (exp(epsilon) - 1): Dwork and Roth [1, theorem 3.20] |
| `optimal` | the smallest that holds for all such releases: Kairouz, Oh and Viswanath [2, theorem 3.3] |
| ``tight`` | `gossamer.privacy.accounting.accountants.epsilon`, from the mechanism's own privacy loss |

The first three do not look at the noise, the last one does. Simple is the largest, optimal never exceeds it, and tight
does not exceed optimal. Advanced never is below optimal; it exceeds simple where releases are few or revealing.

`optimal` is exact. Randomized response is the worst of all epsilon-differentially private mechanisms, and k of them are
one binomial number of lies l: its loss is (k - 2 l) epsilon, and

    delta(e) = sum_{l < (k - e/epsilon)/2} Binomial(l; k, 1/(1 + exp(epsilon))) (1 - exp(e - (k - 2 l) epsilon)).

The theorem states this at e = (k - 2 i) epsilon; in between the curve is a chord in exp(e), which the sum is too.

References
----------
[1] Dwork and Roth, "The algorithmic foundations of differential privacy", 2014.
[2] Kairouz, Oh and Viswanath, "The composition theorem for differential privacy", ICML 2015.
[3] Balle, Barthe and Gaboardi, "Privacy amplification by subsampling", NeurIPS 2018.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from gossamer.errors import AccountingError, whole_number
from gossamer.privacy import pairs
from gossamer.privacy.accounting import renyi
from gossamer.privacy.accounting.group_pairs import Coins, GroupReplaced, GroupSampled, binomial, hypergeometric
from gossamer.privacy.accounting.pld import FINE, QUICK, Composition, Precision
from gossamer.privacy.accounting.renyi import check_delta, check_epsilon, check_order
from gossamer.privacy.accounting.renyi import renyi_epsilon as renyi_epsilon
from gossamer.privacy.accounting.renyi import renyi_level as renyi_level
from gossamer.privacy.guarantees import EVERYTHING, HIGHEST_LOSS, NOTHING, PrivacyProfile
from gossamer.privacy.mechanisms import (
    BallGaussian,
    BatchSampling,
    Counts,
    FixedSize,
    Gaussian,
    L2Laplace,
    Laplace,
    Mechanism,
    NeighboringRelation,
    Poisson,
    ReleaseKind,
    checked_counts,
)

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
    full = pairs.ResponseFull(kind.mechanism.release_epsilon(REPLACE if fixed else ADD_OR_REMOVE, kind.size))
    if fixed:
        return pairs.FixedSizeSampled(full, kind.sampling.rate).largest(0.0)[0]
    # Whoever else is sampled, a release on a sample with the example is within exp(+-a) of one without it, so the two
    # data sets' densities are to it as at most 1-q + q exp(a) and at least 1-q + q exp(-a).
    ends = pairs.PoissonSampled(full, kind.sampling.rate).largest(0.0)
    return max(ends) if row.relation is ADD_OR_REMOVE else sum(ends)


@lru_cache(maxsize=4096)
def _drawn(kind: ReleaseKind, relation: NeighboringRelation, rows: int) -> tuple[pairs.Full, float]:
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


def _drawn_pair(kind: ReleaseKind, relation: NeighboringRelation, rows: int) -> pairs.Profile:
    full, some = _drawn(kind, relation, rows)
    if not some < 1:
        return pairs.FullBatch(full)
    return pairs.PoissonSampled(full, some) if relation is ADD_OR_REMOVE else pairs.FixedSizeSampled(full, some)


def _gaussian_pair(kind: ReleaseKind, relation: NeighboringRelation, rows: int) -> pairs.Profile:
    rate, mu = kind.sampling.rate, gaussian_mu(kind, ADD_OR_REMOVE)
    if rate == 1 or (rows == 1 and relation is ADD_OR_REMOVE):
        return _drawn_pair(kind, relation, rows)
    if rows == 1:
        return pairs.PoissonReplaced(mu, rate)
    return GroupSampled(mu, rate, rows) if relation is ADD_OR_REMOVE else GroupReplaced(mu, rate, rows)


def _pure_pair(kind: ReleaseKind, relation: NeighboringRelation, rows: int) -> pairs.Profile:
    return pairs.Response(rows * pure_epsilon(kind, relation))


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
    pair: Callable[[ReleaseKind, NeighboringRelation, int], pairs.Profile] = _drawn_pair
    order_divergence: Callable[[ReleaseKind, NeighboringRelation, float], float] = _pure_divergence

    def profile(self, kind: ReleaseKind, rows: int = 1, other: bool = False) -> pairs.Profile:
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


COMPOSITIONS = ("simple", "advanced", "optimal", "tight")
"""The names of `compositions`."""

_REACH = 40  # Poisson standard deviations of the number of lies, and as many lies: fewer are rarer than _NEGLECTED
_NEGLECTED = 1e-300
_ROUNDING = 1e-9  # relative, on delta: far more than the sums lose


def simple(epsilon: float, releases: int) -> float:
    """``releases`` times ``epsilon``.

    Raises
    ------
    AccountingError
        If epsilon is not a finite positive number or releases a negative one.
    """
    _check(epsilon, releases)
    return releases * epsilon


def advanced(epsilon: float, releases: int, delta: float) -> float:
    """Advanced composition of [1, theorem 3.20]; infinite where it overflows.

    Raises
    ------
    AccountingError
        If epsilon is not a finite positive number, releases a negative one or delta not inside (0, 1).
    """
    _check(epsilon, releases)
    check_delta(delta)
    growth = math.expm1(epsilon) if epsilon < 700 else math.inf
    return math.sqrt(2 * releases * math.log(1 / delta)) * epsilon + releases * epsilon * growth if releases else 0.0


def optimal(epsilon: float, releases: int, delta: float) -> float:
    """The smallest epsilon >= 0 that all compositions of epsilon-differentially private releases have at ``delta``.

    Raises
    ------
    AccountingError
        If epsilon is not a finite positive number, releases a negative one or delta not inside (0, 1).
    """
    from scipy.signal import lfilter  # both are slow to import, and seldom needed
    from scipy.stats import binom

    _check(epsilon, releases)
    check_delta(delta)
    lie = math.exp(-epsilon) / (1 + math.exp(-epsilon))
    mean = releases * lie
    fewest = max(math.floor(mean - _REACH * (math.sqrt(mean) + 1)), 0)
    most = math.ceil(min(mean + _REACH * (math.sqrt(mean) + 1), releases / 2))  # more leave no positive loss
    lies = np.arange(fewest, most)
    target = delta * (1 - _ROUNDING) - (_NEGLECTED if fewest else 0.0)
    if target <= 0:
        return releases * epsilon
    masses = binom.pmf(lies, releases, lie)
    upper = np.cumsum(masses)
    lower = lfilter([1.0], [1.0, -math.exp(-2 * epsilon)], masses)  # masses over exp(how far their losses are above)
    # What lies[j] adds matters below its loss; just above the loss of one lie more, the divergence is
    beyond = upper - math.exp(-2 * epsilon) * lower
    if not (beyond > target).any():
        return max((releases - 2 * most) * epsilon, 0.0)
    first = int(np.argmax(beyond > target))
    loss = (releases - 2 * int(lies[first])) * epsilon + math.log((upper[first] - target) / lower[first])
    return min(max(loss, 0.0), releases * epsilon)


def compositions(kind: ReleaseKind, count: int, delta: float, relation: NeighboringRelation) -> dict[str, float]:
    """Return the epsilons of ``count`` releases of one kind, by each name of `COMPOSITIONS`.

    Parameters
    ----------
    kind : ReleaseKind
        Kind with `L2Laplace` or `Laplace` noise: a release that needs no delta.
    count : int
        Number of releases.
    delta : float
        Failure probability, in (0, 1).
    relation : NeighboringRelation
        Relation of data sets that count as neighbours.

    Returns
    -------
    dict of str to float
        All are proved. ``tight`` is what `gossamer.privacy.accounting.accountants.epsilon` says, or ``optimal`` where
        its grid's part in a thousand makes that one smaller.

    Raises
    ------
    AccountingError
        If the noise is of another law, the combination is not accounted for, or a number is out of range.
    """
    single = pure_epsilon(kind, relation)
    tight = epsilon({kind: count}, delta, relation).epsilon
    best = optimal(single, count, delta)
    return {
        "simple": simple(single, count),
        "advanced": advanced(single, count, delta),
        "optimal": best,
        "tight": min(tight, best),
    }


def _check(epsilon: float, releases: int) -> None:
    check_epsilon(epsilon)
    if releases < 0:
        raise AccountingError(f"a number of releases is 0 or more, found {releases!r}")


_UP = 1 + 4e-15  # more than the rounding of a few operations
_POINTS = 257  # losses of a profile
_TAILS = (1e-16, 1e-12, 1e-8, 1e-4)
"""Deltas beyond whose epsilon a profile is not looked at; larger ones where there is no epsilon for less."""


@dataclass(frozen=True)
class Accounted:
    """Epsilon proved of a number of releases, and how.

    Attributes
    ----------
    epsilon : float
        Upper bound of the privacy loss; infinite if a release was not private.
    accountant : str
        Way in which epsilon was computed.
    """

    epsilon: float
    accountant: str


def epsilon(counts: Counts, delta: float, relation: NeighboringRelation, rows: int = 1) -> Accounted:
    """The smallest epsilon proved for releases that are fixed in advance.

    Releases may be of any kinds; each may be chosen to depend on what earlier ones revealed, as long as the counts do
    not. Epsilon is never below the exact value, and above it by at most a few parts in a thousand.

    Parameters
    ----------
    counts : mapping of ReleaseKind to int
        Number of releases of each kind.
    delta : float
        Failure probability, in (0, 1).
    relation : NeighboringRelation
        Relation of data sets that count as neighbours.
    rows : int
        Number of rows that neighbours differ in, at most: those of one person. All of them are added, removed or
        replaced.

    Raises
    ------
    AccountingError
        If a kind is not in `ROWS`, a count is not a number of releases, rows not one of rows, or delta is not inside
        (0, 1).
    """
    return joint_epsilon([(counts, rows)], delta, relation)


def joint_epsilon(parts: Iterable[tuple[Counts, int]], delta: float, relation: NeighboringRelation) -> Accounted:
    """The smallest epsilon proved for a person with rows in several shards, of which each makes releases of its own.

    Parameters
    ----------
    parts : iterable of (mapping of ReleaseKind to int, int)
        Releases of each shard, and the most of its rows that are the person's.
    delta, relation
        Arguments as for `epsilon`.

    Raises
    ------
    AccountingError
        As for `epsilon`.
    """
    check_delta(delta)
    return _epsilon(_released(parts), delta, NeighboringRelation(relation))


def delta(counts: Counts, epsilon: float, relation: NeighboringRelation, rows: int = 1) -> float:
    """The smallest delta proved for ``epsilon`` >= 0 and releases that are fixed in advance; see `epsilon`.

    Raises
    ------
    AccountingError
        If a kind is not in `ROWS`, a count is not a number of releases, rows not one of rows, or epsilon is negative.
    """
    if not 0 <= epsilon < math.inf:
        raise AccountingError(f"epsilon must be a finite number, 0 or more, found {epsilon!r}")
    return _delta(_released([(counts, rows)]), epsilon, NeighboringRelation(relation))


def profile(parts: Iterable[tuple[Counts, int]], relation: NeighboringRelation) -> PrivacyProfile:
    """The whole privacy profile proved for releases that are fixed in advance.

    Parameters
    ----------
    parts, relation
        Arguments as for `joint_epsilon`.

    Raises
    ------
    AccountingError
        As for `epsilon`.
    """
    return _profile(_released(parts), NeighboringRelation(relation))


@lru_cache(maxsize=4096)
def renyi_divergence(kind: ReleaseKind, order: float, relation: NeighboringRelation) -> float:
    """An upper bound of the Renyi divergence of one release at ``order``, in both directions, for one row.

    Raises
    ------
    AccountingError
        If the kind is not in `ROWS` or the order is not above 1.
    """
    check_order(order)
    return row_of(kind, relation).divergence(kind, order) if kind.mechanism.private else math.inf


_Counted = frozenset[tuple[ReleaseKind, int]]
_Released = tuple[tuple[_Counted, int], ...]
"""Of each shard with any release its counts, and the rows of one person."""


@lru_cache(maxsize=256)
def _epsilon(released: _Released, delta: float, relation: NeighboringRelation) -> Accounted:
    if not released:
        return Accounted(0.0, "nothing released")
    if not _private(released):
        return Accounted(math.inf, "none")
    accountant = " + ".join(sorted({row_of(kind, relation).accountant for kind, _, _ in _each(released)}))
    return Accounted(LossFigures(released, relation, FINE).epsilon(delta), accountant)


@lru_cache(maxsize=256)
def _delta(released: _Released, epsilon: float, relation: NeighboringRelation) -> float:
    if not _private(released):
        return 1.0
    return LossFigures(released, relation, FINE).delta(epsilon) if released else 0.0


@lru_cache(maxsize=256)
def _profile(released: _Released, relation: NeighboringRelation) -> PrivacyProfile:
    if not (released and _private(released)):
        return EVERYTHING if released else NOTHING
    return LossFigures(released, relation, QUICK).profile(LossFigures(released, relation, FINE).delta(0.0))


class LossFigures:
    """Figures of what private releases reveal together; made by `quick_figures`."""

    def __init__(self, released: _Released, relation: NeighboringRelation, precision: Precision) -> None:
        self._compositions = _compositions(released, relation, precision)
        self._largest = _largest(released, relation)

    def epsilon(self, delta: float) -> float:
        """An epsilon that is proved for ``delta``."""
        return min(self._largest, *(composition.epsilon(delta) for composition in self._compositions))

    def delta(self, epsilon: float) -> float:
        """A delta that is proved for ``epsilon``."""
        if epsilon >= self._largest:
            return 0.0
        # With that epsilon alone, and a delta of 0, delta is at most this.
        alone = -math.expm1(epsilon - self._largest)
        return min(alone, *(composition.delta(epsilon) for composition in self._compositions))

    def profile(self, advantage: float) -> PrivacyProfile:
        """The deltas proved for all losses that matter to an attacker; ``advantage`` is proved for the loss 0."""
        end = min(next((e for e in map(self.epsilon, _TAILS) if e < math.inf), math.inf), HIGHEST_LOSS)
        losses = np.linspace(0.0, end, _POINTS) if end > 0 else np.zeros(1)
        deltas = np.min([composition.deltas(losses) for composition in self._compositions], axis=0)
        alone = -np.expm1(np.minimum(losses - self._largest, 0.0))
        deltas[0] = min(deltas[0], advantage)
        return PrivacyProfile.of(losses, np.minimum(deltas, alone))


def quick_figures(counts: Counts, relation: NeighboringRelation) -> LossFigures:
    """Upper bounds for many questions about private releases that are fixed in advance, soon found.

    As `delta` and `epsilon`, but for deltas that may be a percent larger, and epsilons of many rates 0.25 %.

    Raises
    ------
    AccountingError
        If a kind is not in `ROWS`, or a count is not a number of releases.
    """
    return LossFigures(_released([(counts, 1)]), NeighboringRelation(relation), QUICK)


def _released(parts: Iterable[tuple[Counts, int]]) -> _Released:
    found = ((frozenset(one for one in checked_counts(counts).items() if one[1]), check_rows(n)) for counts, n in parts)
    return tuple((counted, rows) for counted, rows in found if counted)


def _each(released: _Released) -> Iterator[tuple[ReleaseKind, int, int]]:
    """Kinds, their counts, and the rows of one person."""
    return ((kind, count, rows) for counted, rows in released for kind, count in counted)


def _private(released: _Released) -> bool:
    return all(kind.mechanism.private for kind, _, _ in _each(released))


def _compositions(released: _Released, relation: NeighboringRelation, precision: Precision) -> list[Composition]:
    """The releases by the pairs of their rows, and by the other pairs where there are any. Both are proved."""
    found: list[dict[pairs.Profile, int]] = []
    for other in (False, True):
        profiles: Counter[pairs.Profile] = Counter()
        for kind, count, rows in _each(released):
            profiles[row_of(kind, relation).profile(kind, rows, other)] += count
        found.append(_fold_gaussians(profiles))
    different = found if found[0] != found[1] else found[:1]
    return [Composition(pairs.merge(profiles, precision.merging), precision) for profiles in different]


def _fold_gaussians(profiles: Counter[pairs.Profile]) -> dict[pairs.Profile, int]:
    """Full-batch Gaussian releases are exactly one: their squared sensitivities, over the variance, add up."""
    full = {
        one: one.full.mu
        for one in profiles
        if isinstance(one, pairs.FullBatch) and isinstance(one.full, pairs.GaussianFull)
    }
    folded = {profile: count for profile, count in profiles.items() if profile not in full}
    total = sum(profiles[profile] * mu**2 for profile, mu in full.items())
    return {**folded, pairs.FullBatch(pairs.GaussianFull(math.sqrt(total))): 1} if total else folded


def _largest(released: _Released, relation: NeighboringRelation) -> float:
    """The sum of pure epsilons, an epsilon that needs no delta; infinite if some noise has none."""
    if not all(has_pure_epsilon(kind) for kind, _, _ in _each(released)):
        return math.inf
    total = math.fsum(count * rows * pure_epsilon(kind, relation) for kind, count, rows in _each(released))
    return total * _UP


_MOST, _MANY = 10, 500
"""Profiles that are computed, each in about a tenth of a second, and releases that are compared in pairs."""

Parts = Sequence[tuple[Counts, int]]
"""Releases of each shard, and how many of its rows are one person's."""


class _OfKind(NamedTuple):
    """Releases of one kind: what they have in common with others, and what may be more or less."""

    law: Hashable
    rate: float
    times: int
    rows: int
    noise: float
    kind: ReleaseKind


_Release = tuple[_OfKind, ...]
"""All that one person's or example's data are in."""


def worst_profile(many: Iterable[Parts], relation: NeighboringRelation, point: tuple[float, float]) -> PrivacyProfile:
    """The largest profile of ``many``.

    Parameters
    ----------
    many : iterable of parts
        Releases for each person or example, as for `profile`.
    relation : NeighboringRelation
        Relation of data sets that count as neighbours.
    point : (float, float)
        An epsilon and a delta that are proved of all of them: all that is said where there are too many to be covered.
    """
    front = _front({_read(parts) for parts in many})
    if len(front) <= _MOST:
        profiles = [profile(_parts(released), relation) for released in front]
    elif all(_alike(released, front[0]) for released in front):
        profiles = _covered(front, relation)
    else:
        return PrivacyProfile.of_points([point])
    return profiles[0] if len(profiles) == 1 else PrivacyProfile.worst(profiles)


def most_revealing(many: Iterable[Counts], rows: int) -> list[Counts]:
    """Those of several nodes' releases that none of the others covers; ``rows`` of one person are at each."""
    front = _front({_read([(counts, rows)]) for counts in many})
    return [{one.kind: one.times for one in released} for released in front]


def _front(different: set[_Release]) -> list[_Release]:
    """Those that are not within another; all of them where there are so many that a look at each pair takes long."""
    if len(different) > _MANY:
        return list(different)
    front: list[_Release] = []
    for released in sorted(different, key=_order):
        if not any(_within(released, other) for other in front):
            front.append(released)
    return front


def _read(parts: Parts) -> _Release:
    found = [_of_kind(kind, count, rows) for counts, rows in parts for kind, count in counts.items() if count]
    return tuple(sorted(found, key=lambda one: (str(one.law), one.rate, one.times, one.rows)))


def _of_kind(kind: ReleaseKind, count: int, rows: int) -> _OfKind:
    mechanism, sampling = kind.mechanism, kind.sampling
    law: Hashable = mechanism
    noise = 0.0
    if (normal := mechanism.normal) is not None and not mechanism.whole:  # noise on a ball is another law
        law, noise = "normal", normal.noise_multiplier
    # How many of a person's rows a sample of fixed size holds depends on all of its numbers, not on its rate alone.
    drawn = type(sampling) if rows == 1 or isinstance(sampling, Poisson) else sampling
    return _OfKind((law, drawn, rows if drawn is sampling else 0, kind.size), sampling.rate, count, rows, noise, kind)


def _order(released: _Release) -> tuple[float, list[tuple[float, float, int, int]], list[str]]:
    """Place among others: first those that may cover more. It is the same in every process, as a set's order is not."""
    details = [(one.noise, -one.rate, -one.times, -one.rows) for one in released]
    return -_amount(released), details, [str(one.law) for one in released]


def _amount(released: _Release) -> float:
    return math.fsum(one.times * one.rows**2 * one.rate**2 for one in released)


def _alike(released: _Release, other: _Release) -> bool:
    return [one.law for one in released] == [one.law for one in other]


def _within(released: _Release, other: _Release) -> bool:
    """Whether each part of ``released`` has one of its own in ``other``, which releases at least as much."""
    rest = iter(other)
    return all(any(_covers(more, one) for more in rest) for one in released)


def _covers(more: _OfKind, one: _OfKind) -> bool:
    amounts = one.rate <= more.rate and one.times <= more.times and one.rows <= more.rows
    return amounts and one.noise >= more.noise and one.law == more.law


def _covered(front: list[_Release], relation: NeighboringRelation) -> list[PrivacyProfile]:
    """Profiles of a few that release as much as any of ``front``: those of close rates are covered together.

    Whichever cover is exposed most is taken apart, where its members' rates differ most, until there are enough.
    """
    chunks = [sorted(front, key=lambda released: ([one.rate for one in released], _order(released)))]
    found = [profile(_parts(_most(chunks[0])), relation)]
    for _ in range(_MOST):
        place = max(range(len(found)), key=lambda number: found[number].mu)
        if len(chunks[place]) == 1:
            break
        halves = _halves(chunks[place])
        chunks[place : place + 1] = halves
        found[place : place + 1] = [profile(_parts(_most(half)), relation) for half in halves]
    return found


def _halves(chunk: list[_Release]) -> list[list[_Release]]:
    """Those of lower and of higher rates, by the middle of the range; one at least in each."""
    rates = [released[0].rate for released in chunk]
    middle = math.sqrt(rates[0] * rates[-1])
    cut = min(max(sum(rate <= middle for rate in rates), 1), len(chunk) - 1)
    return [chunk[:cut], chunk[cut:]]


def _most(chunk: list[_Release]) -> _Release:
    return tuple(_more_than(same) for same in zip(*chunk, strict=True))


def _more_than(same: Sequence[_OfKind]) -> _OfKind:
    """The largest rate, number of releases and of rows, and the least noise."""
    top, noise = max(same, key=lambda one: one.rate), min(one.noise for one in same)
    mechanism = top.kind.mechanism
    if (normal := mechanism.normal) is not None and not mechanism.whole:
        mechanism = replace(normal, noise_multiplier=noise)
    return _of_kind(
        replace(top.kind, mechanism=mechanism), max(one.times for one in same), max(one.rows for one in same)
    )


def _parts(released: _Release) -> Parts:
    return [({one.kind: one.times}, one.rows) for one in released]
