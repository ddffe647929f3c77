"""Search for the noise that a budget needs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

from scipy.optimize import brentq

from gossamer.errors import AccountingError, BudgetUnreachable, round_up
from gossamer.privacy.accounting import accountants
from gossamer.privacy.accounting.renyi import check_delta, check_epsilon
from gossamer.privacy.mechanisms import (
    BatchSampling,
    Counts,
    Gaussian,
    L2Laplace,
    Mechanism,
    NeighboringRelation,
    Poisson,
    ReleaseKind,
    added,
)

Schedule = Mapping[BatchSampling, int]
"""How many releases a node makes on batches of each kind."""
Holding = Sequence[tuple[Schedule, int]]
"""Of one person: the schedules of the nodes that hold rows, and how many each of them holds."""

LEAST_MULTIPLIER = 0.05
"""Less noise than this is not searched for, however large the budget."""
MOST_MULTIPLIER = 1000.0
"""A budget that needs more noise than this is refused: a model would learn nothing."""
_PRECISION = 2.5e-4  # relative, of the root; the result is at most four of these above it
_STEP = 4.0  # from one amount of noise that is tried to the next, until the budget lies between two
NOISE_DIGITS = 6
"""Significant digits of a noise multiplier that was searched for.

What a run draws depends on all of them, and logarithms of different processors differ in their last bits: with these
digits the same spec and secret draw the same noise on all of them.
"""


def gaussian_releases(noise_multiplier: float, schedule: Schedule) -> Counts:
    """A schedule as counts of Gaussian releases; epsilon depends on neither their clip nor their size."""
    mechanism = Gaussian(1.0, noise_multiplier)
    return {ReleaseKind(mechanism, sampling, 1): count for sampling, count in schedule.items()}


@dataclass(frozen=True)
class NoiseFamily:
    """Noise laws that reveal less as their noise grows: `family(noise)` is one of them.

    Attributes
    ----------
    mechanism : callable
        The law of an amount of noise, in the range from `LEAST_MULTIPLIER` to `MOST_MULTIPLIER`.
    size : int
        Number of coordinates of the releases.
    amount : str
        Name of the amount of noise, for messages.
    """

    mechanism: Callable[[float], Mechanism]
    size: int = 1
    amount: str = "a noise multiplier"

    def __call__(self, noise: float) -> Mechanism:
        return self.mechanism(noise)


def gaussian_family(clip: float = 1.0, law: type[Gaussian] = Gaussian) -> NoiseFamily:
    """Gaussian noise of a noise multiplier, on what ``law`` says."""
    return NoiseFamily(lambda multiplier: law(clip, multiplier))


def l2_laplace_family(size: int, relation: NeighboringRelation, clip: float = 1.0) -> NoiseFamily:
    """L2-Laplace noise on ``size`` coordinates, with epsilon = sqrt(size) / noise for a full-batch release.

    The noise has a standard deviation of about ``noise`` times the sensitivity in every coordinate, and one release
    reveals about as much as Gaussian noise of that standard deviation: mu = epsilon / sqrt(size) = 1 / noise.

    Raises
    ------
    AccountingError
        If size is not at least 1.
    """
    if size < 1:
        raise AccountingError(f"L2-Laplace noise needs a size of at least 1, found {size!r}")
    root = math.sqrt(size)
    return NoiseFamily(
        lambda noise: L2Laplace(clip, root / noise, relation), size, "sqrt(size) / (epsilon of one full-batch release)"
    )


@dataclass(frozen=True)
class Calibrated:
    """A noise law that meets a budget.

    Attributes
    ----------
    mechanism : Mechanism
        The law.
    noise : float
        Amount of noise in the law's family.
    epsilon : float
        Epsilon proved for every schedule with the law; never above the budget.
    """

    mechanism: Mechanism
    noise: float
    epsilon: float

    @property
    def noise_multiplier(self) -> float:
        """The same amount of Gaussian noise: standard deviation of the noise on a sum, over the clip."""
        return self.noise


def calibrate(
    epsilon: float,
    delta: float,
    relation: NeighboringRelation,
    schedules: Iterable[Schedule],
    family: NoiseFamily,
    rows: int = 1,
    beside: Counts | None = None,
) -> Calibrated:
    """The law of a family with the least noise, to 0.1 %, with which every one of ``schedules`` meets the budget.

    Parameters
    ----------
    epsilon, delta : float
        The budget of each schedule: nodes hold data of different people.
    relation : NeighboringRelation
        Neighbouring relation of the budget.
    schedules : iterable of mappings from BatchSampling to int
        One for each node.
    family : NoiseFamily
        Law for an amount of noise, which reveals less as the noise grows.
    rows : int
        The most rows of one person in a schedule's data; see `accountants.epsilon`.
    beside : mapping of ReleaseKind to int, optional
        Releases whose noise is fixed, which every node makes beside its schedule and the budget covers too.

    Raises
    ------
    AccountingError
        If epsilon is not positive, delta not inside (0, 1), or no accountant covers a sampling scheme.
    BudgetUnreachable
        If more noise than `MOST_MULTIPLIER` is needed.
    """
    return _calibrated(epsilon, delta, relation, _undominated(schedules, rows), family, beside)


def calibrate_noise_multiplier(
    epsilon: float, delta: float, relation: NeighboringRelation, schedules: Iterable[Schedule], rows: int = 1
) -> Calibrated:
    """`calibrate` for Gaussian noise: the smallest noise multiplier."""
    return calibrate(epsilon, delta, relation, schedules, gaussian_family(), rows)


def calibrate_jointly(
    epsilon: float,
    delta: float,
    relation: NeighboringRelation,
    holdings: Iterable[Holding],
    family: NoiseFamily,
    beside: Counts | None = None,
) -> Calibrated:
    """The law of a family with the least noise, to 0.1 %, with which every person is within the budget.

    All releases of all nodes that hold rows of a person count together.

    Parameters
    ----------
    epsilon, delta : float
        The budget of each person.
    relation, family, beside
        Arguments as for `calibrate`.
    holdings : iterable of sequence of (mapping from BatchSampling to int, int)
        One for each person.

    Raises
    ------
    AccountingError, BudgetUnreachable
        As for `calibrate`.
    """
    return _calibrated(epsilon, delta, relation, [[holding] for holding in holdings], family, beside)


def _calibrated(
    epsilon: float,
    delta: float,
    relation: NeighboringRelation,
    groups: Sequence[Sequence[Holding]],
    family: NoiseFamily,
    beside: Counts | None,
) -> Calibrated:
    """The least noise with which every holding of ``groups`` is within the budget."""
    check_epsilon(epsilon)
    check_delta(delta)

    def spent(holding: Holding, noise: float) -> float:
        law = family(noise)
        parts = [
            (added({ReleaseKind(law, drawn, family.size): n for drawn, n in schedule.items()}, beside or {}), rows)
            for schedule, rows in holding
        ]
        return accountants.joint_epsilon(parts, delta, relation).epsilon

    holdings = [holding for group in groups for holding in group]
    start = float(max((rows for holding in holdings for _, rows in holding), default=1))
    worst, noise, proved = max(holdings, key=_revealed, default=None), LEAST_MULTIPLIER, 0.0
    if worst is not None:
        noise, proved = smallest_noise(partial(spent, worst), epsilon, delta, family.amount, start)
    while (other := _exceeding(groups, partial(spent, noise=noise), proved)) is not None:
        proved = spent(other, noise)
        if proved > epsilon:
            noise, proved = smallest_noise(partial(spent, other), epsilon, delta, family.amount, start)
    return Calibrated(family(noise), noise, proved)


def smallest_noise(
    spent: Callable[[float], float], budget: float, delta: float, amount: str, start: float
) -> tuple[float, float]:
    """The smallest multiplier, up to the precision, at which ``spent`` is within ``budget``; and what it spends.

    Parameters
    ----------
    spent : callable
        Epsilon at ``delta`` of an amount of noise.
    budget, delta : float
        The budget.
    amount : str
        Name of the amount of noise, for the error.
    start : float
        Noise that the search begins at: a person's grows about as the rows do.

    Raises
    ------
    BudgetUnreachable
        If more than `MOST_MULTIPLIER` is needed.
    """
    spent = cache(spent)
    low = high = min(max(start, LEAST_MULTIPLIER), MOST_MULTIPLIER)
    while spent(high) > budget:
        if high >= MOST_MULTIPLIER:
            raise BudgetUnreachable(
                f"epsilon {budget:g} at delta {delta:g} needs {amount} above {MOST_MULTIPLIER:g}, where "
                f"epsilon is still {spent(high):.4g}; plan fewer releases, smaller batches or a larger budget"
            )
        low, high = high, min(high * _STEP, MOST_MULTIPLIER)
    while spent(low) <= budget:
        if low <= LEAST_MULTIPLIER:
            return low, spent(low)
        low, high = max(low / _STEP, LEAST_MULTIPLIER), low

    def excess(log_multiplier: float) -> float:
        ratio = spent(math.exp(log_multiplier)) / budget
        return math.log(min(max(ratio, 1e-6), 1e6))

    root = math.exp(brentq(excess, math.log(low), math.log(high), xtol=_PRECISION))
    multiplier = min(round_up(root, NOISE_DIGITS), high)
    while spent(multiplier) > budget:
        multiplier = min(round_up(multiplier * (1 + _PRECISION), NOISE_DIGITS), high)
    return multiplier, spent(multiplier)


def _undominated(schedules: Iterable[Schedule], rows: int) -> list[list[Holding]]:
    """Groups of the schedules that may be the worst one.

    Of schedules with one rate, only those are kept that no other exceeds in both rate and count; in their group they
    are sorted by falling rate, so that counts rise. Other schedules are groups of their own; so are batches of fixed
    size where a person has several ``rows``, as how many of them are drawn depends on more than the rate.
    """
    single: defaultdict[type[BatchSampling], dict[BatchSampling, int]] = defaultdict(dict)
    mixed: dict[frozenset[tuple[BatchSampling, int]], Schedule] = {}
    for schedule in schedules:
        used = {sampling: count for sampling, count in schedule.items() if count}
        ordered = len(used) == 1 and (rows == 1 or all(isinstance(sampling, Poisson) for sampling in used))
        if used and not ordered:
            mixed[frozenset(used.items())] = used
        for sampling, count in used.items() if ordered else ():
            known = single[type(sampling)]
            known[sampling] = max(count, known.get(sampling, 0))
    groups = [_front(known) for known in single.values()] + [[schedule] for schedule in mixed.values()]
    return [[[(schedule, rows)] for schedule in group] for group in groups]


def _front(counts: Mapping[BatchSampling, int]) -> list[Schedule]:
    front: list[Schedule] = []
    most = 0
    for sampling, count in sorted(counts.items(), key=lambda item: (-item[0].rate, -item[1])):
        if count > most:
            front.append({sampling: count})
            most = count
    return front


def _exceeding(groups: Sequence[Sequence[Holding]], spent: Callable[[Holding], float], proved: float) -> Holding | None:
    """A holding of which more is ``spent`` than was proved, or None."""
    return next((other for group in groups if (other := _exceeding_in(group, spent, proved)) is not None), None)


def _exceeding_in(group: Sequence[Holding], spent: Callable[[Holding], float], proved: float) -> Holding | None:
    if len(group) == 1:
        return group[0] if spent(group[0]) > proved else None
    # The highest rate of a front with its highest count exceeds all of the front.
    ((highest, rows),), ((most, _),) = group[0], group[-1]
    if spent([(dict.fromkeys(highest, *most.values()), rows)]) <= proved:
        return None
    middle = len(group) // 2
    return _exceeding_in(group[:middle], spent, proved) or _exceeding_in(group[middle:], spent, proved)


def _revealed(holding: Holding) -> float:
    """Roughly how much a holding reveals: most of it decides which one is calibrated first."""
    return sum(
        rows**2 * sum(count * sampling.rate**2 for sampling, count in schedule.items()) for schedule, rows in holding
    )
