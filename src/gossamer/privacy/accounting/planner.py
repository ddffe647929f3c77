"""Search for the noise that a budget needs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TypeVar

from scipy.optimize import brentq

from gossamer.errors import AccountingError, BudgetUnreachable
from gossamer.numbers import round_up
from gossamer.privacy.accounting import accountants
from gossamer.privacy.accounting.renyi import check_delta, check_epsilon
from gossamer.privacy.mechanisms import Gaussian, L2Laplace, Mechanism, NeighboringRelation
from gossamer.privacy.releases import Counts, ReleaseKind, added
from gossamer.privacy.sampling import BatchSampling, Poisson

Schedule = Mapping[BatchSampling, int]
"""How many releases a node makes on batches of each kind."""

Spent = Callable[[Schedule, float], float]
"""The epsilon of a schedule with a noise multiplier."""

T = TypeVar("T")

LEAST_MULTIPLIER = 0.05
"""Less noise than this is not searched for, however large the budget."""

MOST_MULTIPLIER = 1000.0
"""A budget that needs more noise than this is refused: a model would learn nothing."""

_PRECISION = 2.5e-4  # relative, of the root; the result is at most four of these above it

NOISE_DIGITS = 6
"""Significant digits of a noise multiplier that was searched for.

What a run draws depends on all of them, and logarithms of different processors differ in their last bits: with these
digits the same spec and secret draw the same noise on all of them.
"""


@dataclass(frozen=True)
class Calibration:
    """Noise that meets a budget.

    Attributes
    ----------
    noise_multiplier : float
        Standard deviation of the noise on a sum, over the clip.
    epsilon : float
        Epsilon proved for every schedule with the noise; never above the budget.
    """

    noise_multiplier: float
    epsilon: float


def gaussian_releases(noise_multiplier: float, schedule: Schedule, clip: float = 1.0, size: int = 1) -> Counts:
    """A schedule as counts of Gaussian releases; epsilon depends on neither ``clip`` nor ``size``."""
    mechanism = Gaussian(clip, noise_multiplier)
    return {ReleaseKind(mechanism, sampling, size): count for sampling, count in schedule.items()}


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


def calibrate(
    epsilon: float,
    delta: float,
    relation: NeighboringRelation,
    schedules: Iterable[Schedule],
    family: Callable[[float], Mechanism],
    size: int | None = None,
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
    family : callable
        Law for an amount of noise, which reveals less as the noise grows: a `NoiseFamily`, or a plain function.
    size : int, optional
        Number of coordinates of the releases; that of the `NoiseFamily` by default. Gaussian noise does not need it.
    rows : int
        The most rows of one person in a schedule's data; see `accountants.epsilon`.
    beside : mapping of ReleaseKind to int, optional
        Releases whose noise is fixed, which every node makes beside its schedule and the budget covers too.

    Raises
    ------
    AccountingError
        If epsilon is not positive, delta not inside (0, 1), no accountant covers a sampling scheme, or the law depends
        on a size and there is none.
    BudgetUnreachable
        If more noise than `MOST_MULTIPLIER` is needed.
    """
    check_epsilon(epsilon)
    check_delta(delta)
    family = _with_size(family, size)

    def spent(schedule: Schedule, noise: float) -> float:
        return accountants.epsilon(_counts(family, schedule, noise, beside), delta, relation, rows).epsilon

    found = _least(epsilon, delta, schedules, spent, family.amount, rows)
    return Calibrated(family(found.noise_multiplier), found.noise_multiplier, found.epsilon)


def calibrate_noise_multiplier(
    epsilon: float,
    delta: float,
    relation: NeighboringRelation,
    schedules: Iterable[Schedule],
    clip: float = 1.0,
    size: int = 1,
    rows: int = 1,
) -> Calibration:
    """`calibrate` for Gaussian noise: the smallest noise multiplier. No result depends on ``clip`` or ``size``.

    Raises
    ------
    AccountingError
        If epsilon is not positive, delta not inside (0, 1), or no accountant covers a sampling scheme.
    BudgetUnreachable
        If more noise than `MOST_MULTIPLIER` is needed.
    """
    found = calibrate(epsilon, delta, relation, schedules, gaussian_family(clip), size, rows)
    return Calibration(found.noise, found.epsilon)


Holding = Sequence[tuple[Schedule, int]]
"""Of one person: the schedules of the nodes that hold rows, and how many each of them holds."""


def calibrate_jointly(
    epsilon: float,
    delta: float,
    relation: NeighboringRelation,
    holdings: Iterable[Holding],
    family: Callable[[float], Mechanism],
    size: int | None = None,
    beside: Counts | None = None,
) -> Calibrated:
    """The law of a family with the least noise, to 0.1 %, with which every person is within the budget.

    All releases of all nodes that hold rows of a person count together.

    Parameters
    ----------
    epsilon, delta : float
        The budget of each person.
    relation, family, size, beside
        Arguments as for `calibrate`.
    holdings : iterable of sequence of (mapping from BatchSampling to int, int)
        One for each person.

    Raises
    ------
    AccountingError, BudgetUnreachable
        As for `calibrate`.
    """
    check_epsilon(epsilon)
    check_delta(delta)
    family, holdings = _with_size(family, size), list(holdings)

    def spent(holding: Holding, noise: float) -> float:
        parts = [(_counts(family, schedule, noise, beside), rows) for schedule, rows in holding]
        return accountants.joint_epsilon(parts, delta, relation).epsilon

    def exceeding(found: Calibration) -> Holding | None:
        return next((other for other in holdings if spent(other, found.noise_multiplier) > found.epsilon), None)

    worst = max(holdings, key=lambda holding: sum(rows**2 * _revealed(schedule) for schedule, rows in holding))
    most = max((rows for holding in holdings for _, rows in holding), default=1)
    smallest = partial(smallest_noise, budget=epsilon, delta=delta, amount=family.amount, start=float(most))
    found = _raised(worst, exceeding, spent, epsilon, smallest)
    return Calibrated(family(found.noise_multiplier), found.noise_multiplier, found.epsilon)


def _counts(family: NoiseFamily, schedule: Schedule, noise: float, beside: Counts | None) -> Counts:
    """The releases of a schedule with an amount of noise, and those ``beside`` it."""
    law = family(noise)
    made = {ReleaseKind(law, sampling, family.size): count for sampling, count in schedule.items()}
    return added(made, beside or {})


def _with_size(family: Callable[[float], Mechanism], size: int | None) -> NoiseFamily:
    given = family if isinstance(family, NoiseFamily) else None
    amount = given.amount if given else "an amount of noise"
    law = family(MOST_MULTIPLIER)
    if size is None and given is None and law.normal is None:
        raise AccountingError(
            f"what {type(law).__name__} noise reveals depends on the number of coordinates; give it as size"
        )
    return NoiseFamily(family, size if size is not None else given.size if given else 1, amount)


def _least(
    epsilon: float, delta: float, schedules: Iterable[Schedule], spent: Spent, amount: str, rows: int
) -> Calibration:
    """The least noise with which every one of ``schedules`` is within ``epsilon``."""
    groups = _undominated(schedules, rows)
    if not groups:
        return Calibration(LEAST_MULTIPLIER, 0.0)
    worst = max((schedule for group in groups for schedule in group), key=_revealed)
    smallest = partial(smallest_noise, budget=epsilon, delta=delta, amount=amount, start=float(rows))
    return _raised(worst, lambda found: _exceeding(groups, found, spent), spent, epsilon, smallest)


def _raised(
    worst: T,
    exceeding: Callable[[Calibration], T | None],
    spent: Callable[[T, float], float],
    epsilon: float,
    smallest: Callable[[Callable[[float], float]], Calibration],
) -> Calibration:
    """The least noise for ``worst``, raised for whatever exceeds it."""
    found = smallest(partial(spent, worst))
    while (other := exceeding(found)) is not None:
        more = spent(other, found.noise_multiplier)
        found = Calibration(found.noise_multiplier, more) if more <= epsilon else smallest(partial(spent, other))
    return found


def smallest_noise(
    spent: Callable[[float], float], budget: float, delta: float, amount: str, start: float, step: float = 4.0
) -> Calibration:
    """The smallest multiplier, up to the precision, at which ``spent`` is within ``budget``.

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
    step : float
        Factor of the first step from there; the next ones are larger, up to two, or to this.

    Raises
    ------
    BudgetUnreachable
        If more than `MOST_MULTIPLIER` is needed.
    """
    spent, longest = cache(spent), max(step, 2.0)
    low = high = min(max(start, LEAST_MULTIPLIER), MOST_MULTIPLIER)
    while spent(high) > budget:
        if high >= MOST_MULTIPLIER:
            raise BudgetUnreachable(
                f"epsilon {budget:g} at delta {delta:g} needs {amount} above {MOST_MULTIPLIER:g}, where "
                f"epsilon is still {spent(high):.4g}; plan fewer releases, smaller batches or a larger budget"
            )
        low, high, step = high, min(high * step, MOST_MULTIPLIER), min(step**2, longest)
    while spent(low) <= budget:
        if low <= LEAST_MULTIPLIER:
            return Calibration(low, spent(low))
        low, high, step = max(low / step, LEAST_MULTIPLIER), low, min(step**2, longest)

    def excess(log_multiplier: float) -> float:
        ratio = spent(math.exp(log_multiplier)) / budget
        return math.log(min(max(ratio, 1e-6), 1e6))

    root = math.exp(brentq(excess, math.log(low), math.log(high), xtol=_PRECISION))
    multiplier = min(round_up(root, NOISE_DIGITS), high)
    while spent(multiplier) > budget:
        multiplier = min(round_up(multiplier * (1 + _PRECISION), NOISE_DIGITS), high)
    return Calibration(multiplier, spent(multiplier))


def _undominated(schedules: Iterable[Schedule], rows: int) -> list[list[Schedule]]:
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
    return [_front(known) for known in single.values()] + [[schedule] for schedule in mixed.values()]


def _front(counts: Mapping[BatchSampling, int]) -> list[Schedule]:
    front: list[Schedule] = []
    most = 0
    for sampling, count in sorted(counts.items(), key=lambda item: (-item[0].rate, -item[1])):
        if count > most:
            front.append({sampling: count})
            most = count
    return front


def _exceeding(groups: Sequence[Sequence[Schedule]], found: Calibration, spent: Spent) -> Schedule | None:
    """A schedule that spends more than was found, or None."""
    return next((other for group in groups if (other := _exceeding_in(group, found, spent)) is not None), None)


def _exceeding_in(group: Sequence[Schedule], found: Calibration, spent: Spent) -> Schedule | None:
    # The highest rate of a front with its highest count exceeds all of the front.
    bound = group[0] if len(group) == 1 else dict.fromkeys(group[0], *group[-1].values())
    if spent(bound, found.noise_multiplier) <= found.epsilon:
        return None
    if len(group) == 1:
        return group[0]
    middle = len(group) // 2
    return _exceeding_in(group[:middle], found, spent) or _exceeding_in(group[middle:], found, spent)


def _revealed(schedule: Schedule) -> float:
    """Roughly how much a schedule reveals: most of it decides which one is calibrated first."""
    return sum(count * sampling.rate**2 for sampling, count in schedule.items())
