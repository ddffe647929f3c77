"""What epsilon is proved for a number of releases.

`gossamer.privacy.rows` has the table of what is accounted for, and how; this module has the entry points.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

from gossamer.errors import AccountingError
from gossamer.privacy.analytic import FullBatch, GaussianFull, Profile
from gossamer.privacy.mechanisms import NeighboringRelation
from gossamer.privacy.mixtures import merge
from gossamer.privacy.pld import Composition
from gossamer.privacy.releases import Counts, ReleaseKind
from gossamer.privacy.renyi import check_delta, check_order
from gossamer.privacy.renyi import renyi_epsilon as renyi_epsilon
from gossamer.privacy.renyi import renyi_level as renyi_level
from gossamer.privacy.rows import PURE, pure_epsilon
from gossamer.privacy.rows import ROWS as ROWS
from gossamer.privacy.rows import Row as Row
from gossamer.privacy.rows import row_of as row_of


@dataclass(frozen=True)
class Accounted:
    """What is proved about a number of releases.

    Attributes
    ----------
    epsilon : float
        Upper bound of the privacy loss; infinite if a release was not private.
    accountant : str
        How it was computed.
    """

    epsilon: float
    accountant: str


def epsilon(counts: Counts, delta: float, relation: NeighboringRelation) -> Accounted:
    """The smallest epsilon proved for releases that are fixed in advance.

    Releases may be of any kinds; each may be chosen to depend on what earlier ones revealed, as long as the counts do
    not. Epsilon is never below the exact value, and above it by at most a few parts in a thousand.

    Parameters
    ----------
    counts : mapping of ReleaseKind to int
        How many releases of each kind.
    delta : float
        In (0, 1).
    relation : NeighboringRelation
        Which data sets count as neighbours.

    Raises
    ------
    AccountingError
        If a kind is not in `ROWS`, a count is not a number of releases, or delta is not inside (0, 1).
    """
    check_delta(delta)
    return _epsilon(_released(counts), delta, NeighboringRelation(relation))


def delta(counts: Counts, epsilon: float, relation: NeighboringRelation) -> float:
    """The smallest delta proved for ``epsilon`` >= 0 and releases that are fixed in advance; see `epsilon`.

    Raises
    ------
    AccountingError
        If a kind is not in `ROWS`, a count is not a number of releases, or epsilon is negative.
    """
    if not 0 <= epsilon < math.inf:
        raise AccountingError(f"epsilon must be a finite number, 0 or more, found {epsilon!r}")
    return _delta(_released(counts), epsilon, NeighboringRelation(relation))


@lru_cache(maxsize=4096)
def renyi_divergence(kind: ReleaseKind, order: float, relation: NeighboringRelation) -> float:
    """An upper bound of the Renyi divergence of one release at ``order``, in both directions.

    Raises
    ------
    AccountingError
        If the kind is not in `ROWS` or the order is not above 1.
    """
    check_order(order)
    return row_of(kind, relation).divergence(kind, order) if kind.mechanism.private else math.inf


_Released = frozenset[tuple[ReleaseKind, int]]


@lru_cache(maxsize=256)
def _epsilon(released: _Released, delta: float, relation: NeighboringRelation) -> Accounted:
    if not released:
        return Accounted(0.0, "nothing released")
    if not _private(released):
        return Accounted(math.inf, "none")
    value = min(composition.epsilon(delta) for composition in _compositions(released, relation))
    accountant = " + ".join(sorted({row_of(kind, relation).accountant for kind, _ in released}))
    return Accounted(min(value, _largest(released, relation)), accountant)


@lru_cache(maxsize=256)
def _delta(released: _Released, epsilon: float, relation: NeighboringRelation) -> float:
    if not released or not _private(released):
        return 0.0 if not released else 1.0
    if epsilon >= _largest(released, relation):
        return 0.0
    return min(composition.delta(epsilon) for composition in _compositions(released, relation))


def _released(counts: Counts) -> _Released:
    for kind, count in counts.items():
        try:
            number = operator.index(count)
        except TypeError:
            number = -1
        if number < 0:
            raise AccountingError(f"a count of releases is a whole number, 0 or more; found {count!r} of {kind}")
    return frozenset((kind, operator.index(count)) for kind, count in counts.items() if count)


def _private(released: _Released) -> bool:
    return all(kind.mechanism.private for kind, _ in released)


def _compositions(released: _Released, relation: NeighboringRelation) -> list[Composition]:
    """The releases by the pairs of their rows, and by the other pairs where there are any. Both are proved."""
    found: list[dict[Profile, int]] = []
    for other in (False, True):
        profiles: Counter[Profile] = Counter()
        for kind, count in released:
            profiles[row_of(kind, relation).pair(kind, other)] += count
        found.append(_fold_gaussians(profiles))
    return [Composition(merge(profiles)) for profiles in (found if found[0] != found[1] else found[:1])]


def _fold_gaussians(profiles: Counter[Profile]) -> dict[Profile, int]:
    """Full-batch Gaussian releases are exactly one: their squared sensitivities, over the variance, add up."""
    folded = {profile: count for profile, count in profiles.items() if not _is_full_gaussian(profile)}
    total = sum(
        count * profile.full.mu**2
        for profile, count in profiles.items()
        if isinstance(profile, FullBatch) and isinstance(profile.full, GaussianFull)
    )
    return {**folded, FullBatch(GaussianFull(math.sqrt(total))): 1} if total else folded


def _is_full_gaussian(profile: Profile) -> bool:
    return isinstance(profile, FullBatch) and isinstance(profile.full, GaussianFull)


def _largest(released: _Released, relation: NeighboringRelation) -> float:
    """The sum of pure epsilons, an epsilon that needs no delta; infinite if some noise has none."""
    if not all(isinstance(kind.mechanism, PURE) for kind, _ in released):
        return math.inf
    return math.fsum(count * pure_epsilon(kind, relation) for kind, count in released)
