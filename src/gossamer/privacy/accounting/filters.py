"""Filters over runs: which plans a budget covers when each run is chosen after earlier ones were seen.

| filter | a plan enters with | admitted while |
|---|---|---|
| `gossamer.privacy.accounting.ledger.RenyiFilter` | its Renyi divergence at one order | the sum is within the level |
| `GaussianFilter` | mu and a failure probability f | sum mu^2 <= mu(epsilon, delta - D)^2 and sum f <= D |
| `EitherFilter` | both | either covers all plans so far, at half of delta each |

mu and f of a plan are those of `gaussian_fit`. D, the part of delta that all failures share, is fixed beforehand. Were
it not, whoever chooses the runs could decide after each whether what is left is better spent on failures or on mu, and
reach more than delta: docs/decisions/budgets-over-runs.md has the proofs, and a test has that adversary.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from gossamer.errors import SpecError
from gossamer.privacy.accounting.gaussian_dp import gaussian_epsilon, gaussian_mu
from gossamer.privacy.accounting.gaussian_fit import PlanCurve, full_mu, is_exact
from gossamer.privacy.accounting.ledger import RenyiFilter, check_budget
from gossamer.privacy.accounting.renyi import renyi_epsilon, widest_order
from gossamer.privacy.accounting.series import RunSeries
from gossamer.privacy.mechanisms import NeighboringRelation
from gossamer.privacy.releases import Counts, checked_counts

ASIDE = 0.6
"""D, as a share of the delta of a `GaussianFilter`."""
_MARGIN = 1e-9  # relative; as much as the level of a Renyi filter is lowered by, and for the same reasons
_FINEST = 10  # failures are D, D/2, ..., D/2^10
_BELOW = 1 - 1e-12
_NONE = 1e-300


class FilterEntry(NamedTuple):
    """Entry of a plan in a `GaussianFilter`.

    Attributes
    ----------
    mu : float
        Parameter of Gaussian differential privacy, but for a failure; infinite where nothing is proved.
    failure : float
        Probability of the failure.
    """

    mu: float
    failure: float = 0.0


NOTHING_PROVED = FilterEntry(math.inf)


class FilterTotal(NamedTuple):
    """Total of a number of entries: the sums of mu^2, and of the failures."""

    squared: float = 0.0
    failures: float = 0.0

    @classmethod
    def of(cls, entries: Iterable[tuple[float, float]]) -> FilterTotal:
        """The sums over entries."""
        listed = list(entries)
        return cls(math.fsum(mu**2 for mu, _ in listed), math.fsum(failure for _, failure in listed))

    def plus(self, entry: FilterEntry) -> FilterTotal:
        """One entry more."""
        return FilterTotal(self.squared + entry.mu**2, self.failures + entry.failure)


@dataclass(frozen=True)
class GaussianFilter:
    """Covers what fits Gaussian differential privacy, but for failures that share a part of delta fixed beforehand.

    Attributes
    ----------
    epsilon, delta : float
        The budget for everything that passes; an infinite epsilon covers all.
    relation : NeighboringRelation
        Neighbouring relation of the budget.

    Raises
    ------
    SpecError
        If epsilon is not positive, delta not inside (0, 1), or the relation is none.
    """

    epsilon: float
    delta: float
    relation: NeighboringRelation

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta, "a Gaussian filter")
        object.__setattr__(self, "relation", NeighboringRelation(self.relation))

    @property
    def failures(self) -> float:
        """D, what all failure probabilities may come to."""
        return ASIDE * self.delta

    @cached_property
    def level(self) -> float:
        """The most that all mu^2 may come to."""
        if self.epsilon == math.inf:
            return math.inf
        rest = (self.delta - self.failures) * (1 - _MARGIN)
        return gaussian_mu(self.epsilon * (1 - _MARGIN), rest) ** 2 * (1 - _MARGIN)

    def covers(self, total: FilterTotal) -> bool:
        """Whether all entries so far are within the budget."""
        return self.epsilon == math.inf or (total.squared <= self.level and total.failures <= self.failures)

    def needed(self, total: FilterTotal) -> float:
        """The least epsilon that covers all entries so far, at this delta; infinite where none does."""
        if not (total.squared < math.inf and total.failures <= self.failures):
            return math.inf
        rest = (self.delta - self.failures) * (1 - _MARGIN)
        return gaussian_epsilon(math.sqrt(total.squared) * (1 + _MARGIN), rest) * (1 + 2 * _MARGIN)

    def entry(self, plan: Counts, used: FilterTotal) -> FilterEntry:
        """Return the entry of a plan after what was ``used``.

        The failure is the one with which most plans like this one would fit into what is left: a larger one makes mu
        smaller, and uses up more of D. It depends on the plan and on earlier entries alone.

        Raises
        ------
        AccountingError
            If nothing is proved about a kind in the plan.
        """
        plan = {kind: number for kind, number in checked_counts(plan).items() if number}
        whole = FilterEntry(full_mu(plan, self.relation))
        left = (self.failures - used.failures) * _BELOW
        room = max(self.level - used.squared, 0.0)
        if not plan or is_exact(plan) or not whole.mu < math.inf or not left > 0:
            return whole
        curve = PlanCurve.of(plan, self.relation)

        def by_mu(mu: float) -> float:
            return room / mu**2 if mu else math.inf

        def fitting(entry: FilterEntry) -> tuple[float, float]:
            """Count how many such plans fit; of two that fit as often, the one with the smaller mu is better."""
            by_failures = left / entry.failure if entry.failure else math.inf
            return min(by_failures, by_mu(entry.mu)), -entry.mu

        all_left = FilterEntry(curve.mu(left), left)
        if fitting(all_left)[0] < 1:  # then it fits with no failure
            return max(whole, all_left, key=fitting)
        failures = [failure for step in range(_FINEST + 1) if (failure := self.failures / 2.0**step) <= left]
        # By falling failures, the number that fits rises as long as failures decide it, and falls from then on.
        turn = bisect_left(failures, True, key=lambda failure: left / failure >= by_mu(curve.mu(failure)))
        near = [FilterEntry(curve.mu(failure), failure) for failure in failures[max(turn - 1, 0) : turn + 1]]
        return max(whole, all_left, *near, key=fitting)


@dataclass(frozen=True)
class EitherFilter:
    """A budget, of which parts are set aside for series; the rest covers what either of two filters covers.

    These are a `RenyiFilter` and a `GaussianFilter`, each of all plans that are in no series, and at half of the rest's
    delta.

    Attributes
    ----------
    epsilon, delta : float
        The budget for everything that passes.
    relation : NeighboringRelation
        Neighbouring relation of the budget.
    order : float
        Order of the Renyi filter.
    series : tuple of RunSeries
        Runs that are fixed beforehand.

    Raises
    ------
    SpecError
        If one of them is out of its range, or more is set aside than there is.
    """

    epsilon: float
    delta: float
    relation: NeighboringRelation
    order: float
    series: tuple[RunSeries, ...] = ()

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta, "a budget")
        object.__setattr__(self, "relation", NeighboringRelation(self.relation))
        check_parts(self.epsilon, self.delta, self.series)
        for one in self.series:
            one.check(self.relation)
        _ = self.renyi, self.gaussian

    @property
    def set_aside(self) -> float:
        """The epsilon that is set aside for series."""
        return math.fsum(one.epsilon for one in self.series)

    @cached_property
    def rest(self) -> tuple[float, float]:
        """Epsilon and delta of all that is in no series."""
        # No epsilon is nearly none: what it adds to delta is far below the filters' margins.
        return max(self.epsilon - self.set_aside, _NONE), self.delta - math.fsum(one.delta for one in self.series)

    @cached_property
    def renyi(self) -> RenyiFilter:
        """The one filter, at its half of the rest's delta."""
        epsilon, delta = self.rest
        return RenyiFilter(epsilon, delta / 2, self.relation, self.order)

    @cached_property
    def gaussian(self) -> GaussianFilter:
        """The other, at its own."""
        epsilon, delta = self.rest
        return GaussianFilter(epsilon, delta / 2, self.relation)

    def covers(self, divergence: float, total: FilterTotal) -> bool:
        """Whether plans of these sums, in no series, are within the budget."""
        return divergence <= self.renyi.level or self.gaussian.covers(total)

    def shares(self, divergence: float, total: FilterTotal) -> tuple[float, float]:
        """Return the share of each filter's level that sums take, in the order Renyi, Gaussian; above 1 is too much."""
        by_renyi, by_gaussian = _share(divergence, self.renyi.level), _share(total.squared, self.gaussian.level)
        return by_renyi, by_gaussian if total.failures <= self.gaussian.failures else math.inf

    def needed(self, divergence: float, total: FilterTotal) -> float:
        """The least epsilon that covers these sums, at this delta, order and series; infinite where none does."""
        return (
            min(renyi_epsilon(self.order, divergence, self.renyi.delta), self.gaussian.needed(total)) + self.set_aside
        )

    def reading(self, divergence: float, total: FilterTotal) -> float:
        """The least epsilon of these sums, had all plans been fixed in advance; at the delta that series leave."""
        _, delta = self.rest
        left = delta - total.failures
        if not (left > 0 and total.squared < math.inf):
            return renyi_epsilon(self.order, divergence, delta)
        return min(renyi_epsilon(self.order, divergence, delta), gaussian_epsilon(math.sqrt(total.squared), left))


def widest_order_of(epsilon: float, delta: float, series: Iterable[RunSeries] = ()) -> int:
    """The order with most room for an `EitherFilter`; see `gossamer.privacy.accounting.renyi.widest_order`.

    Raises
    ------
    AccountingError
        As there.
    """
    listed = list(series)
    rest = epsilon - math.fsum(one.epsilon for one in listed)
    # Where all of epsilon is set aside the filter admits nothing, and any order will do.
    return widest_order(rest if rest > 0 else epsilon, (delta - math.fsum(one.delta for one in listed)) / 2)


def _share(part: float, level: float) -> float:
    return part / level if 0 < level < math.inf else 0.0 if not part or level else math.inf


def check_parts(epsilon: float, delta: float, series: Iterable[RunSeries]) -> None:
    """Refuse series for which more is set aside than there is, or two of one name.

    Raises
    ------
    SpecError
        If there are such.
    """
    listed = list(series)
    names, epsilons, deltas = zip(*((one.name, one.epsilon, one.delta) for one in listed)) if listed else ((), (), ())
    if len(set(names)) < len(names):
        raise SpecError(f"two series have one name, found {', '.join(names)}")
    if math.fsum(epsilons) > epsilon or math.fsum(deltas) >= delta:
        raise SpecError(
            f"series have epsilon {math.fsum(epsilons):g} and delta {math.fsum(deltas):g} set aside, of {epsilon:g} "
            f"and {delta:g}; all epsilon may be, and some delta has to be left"
        )
