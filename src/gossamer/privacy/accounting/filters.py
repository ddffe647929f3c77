"""Releases that a budget admits, charged before the noise is drawn: plans of a run, and filters over runs.

A ledger only ever counts up. Whether it admits another release is decided by its *policy*:

| policy | admits | guarantee |
|---|---|---|
| `ReleasePlan` | so many releases of each kind, fixed from public information before the first | of the whole plan |
| `RenyiFilter` | what fits a divergence at one order, chosen adaptively [1] | the filter's (epsilon, delta) |

A run that stops early for a reason that depends on data has spent its whole plan: the sum so far is a reading, not a
guarantee.

Filters over runs say which plans a budget covers when each run is chosen after earlier ones were seen.

| filter | a plan enters with | admitted while |
|---|---|---|
| `RenyiFilter` | its Renyi divergence at one order | the sum is within the level |
| `GaussianFilter` | mu and a failure probability f | sum mu^2 <= mu(epsilon, delta - D)^2 and sum f <= D |
| `EitherFilter` | both | either covers all plans so far, at half of delta each |

mu and f of a plan are those of `gaussian_dp`. D, the part of delta that all failures share, is fixed beforehand. Were
it not, whoever chooses the runs could decide after each whether what is left is better spent on failures or on mu, and
reach more than delta: docs/decisions/budgets-over-runs.md has the proofs, and a test has that adversary.

Series of runs that are fixed beforehand: admitted at what they reveal together, without a filter's price.

A series is a list of plans, with so many runs of each. All its releases are counted when it is set aside, as if all
were made; a run *fits* one of its plans if it has no more releases, none of them on a larger share of the data or with
less noise. Such a release reveals no more: every dominating pair grows with the rate (`analytic`), and a Gaussian
release with more noise is one with less to which noise was added. A sum that is clipped as a whole (`BallGaussian`)
moves no further than one of clipped vectors.

What a series and a filter reveal adds up, epsilons and deltas (docs/decisions/budgets-over-runs.md).

References
----------
[1] Feldman and Zrnic, "Individual privacy accounting via a Renyi filter", NeurIPS 2021, theorem 4.3.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, StrictInt

from gossamer.errors import AccountingError, SpecError, counted, real_number
from gossamer.privacy import mechanisms
from gossamer.privacy.accounting.accountants import epsilon as proved_epsilon
from gossamer.privacy.accounting.accountants import renyi_divergence, renyi_level
from gossamer.privacy.accounting.gaussian_dp import PlanCurve, full_mu, gaussian_epsilon, gaussian_mu, is_exact
from gossamer.privacy.accounting.renyi import renyi_epsilon, widest_order
from gossamer.privacy.guarantees import rounded_up
from gossamer.section import Section

ASIDE = 0.6
"""D, as a share of the delta of a `GaussianFilter`."""
_MARGIN = 1e-9  # relative; as much as the level of a Renyi filter is lowered by, and for the same reasons
_FINEST = 10  # failures are D, D/2, ..., D/2^10
_BELOW = 1 - 1e-12
_NONE = 1e-300
SAMPLINGS: Mapping[str, type[mechanisms.BatchSampling]] = {
    "poisson": mechanisms.Poisson,
    "fixed_size": mechanisms.FixedSize,
}
"""How a batch is drawn, by the name in a policy."""
MOST_RELEASES = 10**9
"""In all runs of a series together: more are not accounted for."""
_EXAMPLES = 10**9  # of which a batch of fixed size is counted, as a share rounded up


@dataclass(frozen=True)
class ReleasePlan:
    """The most releases of each kind.

    Raises
    ------
    AccountingError
        If a number is not whole, or below 0.
    """

    most: Mapping[mechanisms.ReleaseKind, int]

    def __post_init__(self) -> None:
        object.__setattr__(self, "most", mechanisms.checked_counts(self.most))

    def refusal(self, counts: Mapping[Any, int], kind: Any) -> str | None:
        # Nearly always it is the object that was asked about last, and need not be compared field by field.
        asked, planned = self.__dict__.get("_asked", (None, 0))
        if kind is not asked:
            planned = self.most.get(kind, 0)
            object.__setattr__(self, "_asked", (kind, planned))
        if counts.get(kind, 0) < planned:
            return None
        covered = f"the plan covers {counted(planned, 'release')} of this kind, and all are spent"
        return covered if planned else "not in the plan"


@dataclass(frozen=True)
class _Filter:
    """A budget that plans enter until it is full, by a rule of each filter.

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
    relation: mechanisms.NeighboringRelation

    def __post_init__(self) -> None:
        if not real_number(self.epsilon) > 0:
            raise SpecError(f"a budget needs an epsilon above 0 (infinite to admit everything), found {self.epsilon!r}")
        if not 0 < real_number(self.delta) < 1:
            raise SpecError(f"a budget needs a delta strictly between 0 and 1, found {self.delta!r}")
        object.__setattr__(self, "relation", mechanisms.NeighboringRelation(self.relation))


@dataclass(frozen=True)
class RenyiFilter(_Filter):
    """Covers what fits a Renyi divergence at one order, whatever was seen before it was chosen.

    Attributes
    ----------
    order : float
        alpha > 1, fixed before the first release.

    Raises
    ------
    SpecError
        If the order is not a finite number above 1.01.
    """

    order: float = 16.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1.01 < real_number(self.order) < math.inf:
            raise SpecError(f"a Renyi filter needs a finite order above 1.01, found {self.order!r}")

    @property
    def level(self) -> float:
        """The most that all divergences may come to."""
        return math.inf if self.epsilon == math.inf else renyi_level(self.order, self.epsilon, self.delta)

    def spent(self, counts: mechanisms.Counts) -> float:
        """The divergence of ``counts`` at the filter's order."""
        return math.fsum(
            number * renyi_divergence(kind, self.order, self.relation)
            for kind, number in mechanisms.checked_counts(counts).items()
            if number
        )


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


class GaussianFilter(_Filter):
    """Covers what fits Gaussian differential privacy, but for failures that share a part of delta fixed beforehand."""

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

    def entry(self, plan: mechanisms.Counts, used: FilterTotal) -> FilterEntry:
        """Return the entry of a plan after what was ``used``.

        The failure is the one with which most plans like this one would fit into what is left: a larger one makes mu
        smaller, and uses up more of D. It depends on the plan and on earlier entries alone.

        Raises
        ------
        AccountingError
            If nothing is proved about a kind in the plan.
        """
        plan = {kind: number for kind, number in mechanisms.checked_counts(plan).items() if number}
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


_Some = Annotated[StrictInt, Field(ge=1, le=MOST_RELEASES)]


class SeriesPlan(Section):
    """The plan of some runs of a series; each of them releases no more, on no larger share, with no less noise.

    Attributes
    ----------
    runs : int
        Number of runs.
    releases : int
        Number of releases of each run.
    sampling_rate : float
        Sampling rate, in (0, 1].
    noise_multiplier : float
        Standard deviation of Gaussian noise over the clip.
    sampling : {"poisson", "fixed_size"}
        Way in which batches are drawn.
    """

    runs: _Some
    releases: _Some
    sampling_rate: Annotated[float, Field(gt=0, le=1)]
    noise_multiplier: Annotated[float, Field(ge=0.01, le=1e6)]  # as of gossamer account
    sampling: Literal["poisson", "fixed_size"] = "poisson"

    @cached_property
    def kind(self) -> mechanisms.ReleaseKind:
        """The kind of each release, by what it reveals at most."""
        if self.sampling == "poisson":
            sampling: mechanisms.BatchSampling = mechanisms.Poisson(self.sampling_rate)
        else:
            sampling = mechanisms.FixedSize(_EXAMPLES, min(math.ceil(self.sampling_rate * _EXAMPLES), _EXAMPLES))
        return mechanisms.ReleaseKind(mechanisms.Gaussian(1.0, self.noise_multiplier), sampling, 1)

    def fits(self, plan: mechanisms.Counts) -> bool:
        """Whether a run of ``plan`` is one of these."""
        return sum(plan.values()) <= self.releases and all(map(self._covers, plan))

    def _covers(self, kind: mechanisms.ReleaseKind) -> bool:
        law = kind.mechanism.normal
        return (
            law is not None
            and law.noise_multiplier >= self.noise_multiplier
            and type(kind.sampling) is SAMPLINGS[self.sampling]
            and kind.sampling.rate <= self.sampling_rate
        )


class SeriesRule(Section):
    """Runs that are fixed beforehand, and the part of a budget that is set aside for them.

    Attributes
    ----------
    epsilon, delta : float
        Part that is set aside for all of them together. It is enough if their accountant says so, without a filter's
        price.
    plans : tuple of SeriesPlan
        Plans of the runs.
    """

    epsilon: Annotated[float, Field(gt=0)]
    delta: Annotated[float, Field(gt=0, lt=1)]
    plans: Annotated[tuple[SeriesPlan, ...], Field(min_length=1)]


class RunSeries(SeriesRule):
    """A series under the name that the owner gave it."""

    name: str

    @property
    def runs(self) -> int:
        """The number of runs."""
        return sum(plan.runs for plan in self.plans)

    def needed(self, relation: mechanisms.NeighboringRelation) -> float:
        """The epsilon that all runs together have at the series' delta.

        Raises
        ------
        AccountingError
            If nothing is proved about such releases under ``relation``, or there are more than `MOST_RELEASES`.
        """
        if (releases := sum(plan.runs * plan.releases for plan in self.plans)) > MOST_RELEASES:
            raise AccountingError(
                f"series {self.name!r}: expected at most 10^9 releases in all runs, found {releases}; plan less"
            )
        counts: dict[mechanisms.ReleaseKind, int] = {}
        for plan in self.plans:
            counts[plan.kind] = counts.get(plan.kind, 0) + plan.runs * plan.releases
        return proved_epsilon(counts, self.delta * (1 - _MARGIN), relation).epsilon * (1 + _MARGIN)

    def check(self, relation: mechanisms.NeighboringRelation) -> None:
        """Refuse a series that reveals more than is set aside.

        Raises
        ------
        SpecError
            If it does.
        AccountingError
            As `needed`.
        """
        needed = self.needed(relation)
        if needed > self.epsilon:
            raise SpecError(
                f"series {self.name!r}: its {self.runs} runs come to epsilon {rounded_up(needed)} at delta "
                f"{self.delta:g}, and {self.epsilon:g} is set aside; plan less, or set more aside"
            )

    def plain(self) -> tuple[object, ...]:
        """The same as plain values, for files."""
        plans = tuple(tuple(plan.model_dump().values()) for plan in self.plans)
        return self.name, self.epsilon, self.delta, plans

    @classmethod
    def of(cls, plain: tuple[str, float, float, tuple[tuple[Any, ...], ...]]) -> RunSeries:
        """Rebuild the series that `plain` was made of."""
        name, epsilon, delta, plans = plain
        found = tuple(SeriesPlan(**dict(zip(SeriesPlan.model_fields, plan, strict=True))) for plan in plans)
        return cls(name=name, epsilon=epsilon, delta=delta, plans=found)


@dataclass(frozen=True)
class EitherFilter(_Filter):
    """A budget, of which parts are set aside for series; the rest covers what either of two filters covers.

    These are a `RenyiFilter` and a `GaussianFilter`, each of all plans that are in no series, and at half of the rest's
    delta.

    Attributes
    ----------
    order : float
        Order of the Renyi filter.
    series : tuple of RunSeries
        Runs that are fixed beforehand.

    Raises
    ------
    SpecError
        If one of them is out of its range, or more is set aside than there is.
    """

    order: float
    series: tuple[RunSeries, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
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
