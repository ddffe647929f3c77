"""Series of runs that are fixed beforehand: admitted at what they reveal together, without a filter's price.

A series is a list of plans, with so many runs of each. All its releases are counted when it is set aside, as if all
were made; a run *fits* one of its plans if it has no more releases, none of them on a larger share of the data or with
less noise. Such a release reveals no more: every dominating pair grows with the rate (`analytic`), and a Gaussian
release with more noise is one with less to which noise was added. A sum that is clipped as a whole (`BallGaussian`)
moves no further than one of clipped vectors.

What a series and a filter reveal adds up, epsilons and deltas (docs/decisions/budgets-over-runs.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gossamer.errors import AccountingError, SpecError
from gossamer.numbers import real_number, whole_number
from gossamer.privacy.accounting.accountants import epsilon
from gossamer.privacy.accounting.ledger import check_budget
from gossamer.privacy.guarantees import rounded_up
from gossamer.privacy.mechanisms import Gaussian, NeighboringRelation
from gossamer.privacy.releases import Counts, ReleaseKind
from gossamer.privacy.sampling import BatchSampling, FixedSize, Poisson

SAMPLINGS: Mapping[str, type[BatchSampling]] = {"poisson": Poisson, "fixed_size": FixedSize}
"""How a batch is drawn, by the name in a policy."""
MOST_RELEASES = 10**9
"""In all runs of a series together: more are not accounted for."""
_EXAMPLES = 10**9  # of which a batch of fixed size is counted, as a share rounded up
_MARGIN = 1e-9  # relative; what noise on a grid may add, as for filters


@dataclass(frozen=True)
class SeriesPlan:
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

    Raises
    ------
    SpecError
        If one of them is out of its range.
    """

    runs: int
    releases: int
    sampling_rate: float
    noise_multiplier: float
    sampling: str = "poisson"

    def __post_init__(self) -> None:
        for name in ("runs", "releases"):
            if not whole_number(getattr(self, name)):
                raise SpecError(f"a series has whole numbers of {name}, 1 or more, found {getattr(self, name)!r}")
        if self.sampling not in SAMPLINGS:
            raise SpecError(f"a series has a sampling of {' or '.join(SAMPLINGS)}, found {self.sampling!r}")
        if not 0 < real_number(self.sampling_rate) <= 1:
            raise SpecError(f"a series has a sampling rate in (0, 1], found {self.sampling_rate!r}")
        _ = self.kind

    @cached_property
    def kind(self) -> ReleaseKind:
        """The kind of each release, by what it reveals at most."""
        if self.sampling == "poisson":
            sampling: BatchSampling = Poisson(self.sampling_rate)
        else:
            sampling = FixedSize(_EXAMPLES, min(math.ceil(self.sampling_rate * _EXAMPLES), _EXAMPLES))
        return ReleaseKind(Gaussian(1.0, self.noise_multiplier), sampling, 1)

    def fits(self, plan: Counts) -> bool:
        """Whether a run of ``plan`` is one of these."""
        return sum(plan.values()) <= self.releases and all(map(self._covers, plan))

    def _covers(self, kind: ReleaseKind) -> bool:
        law = kind.mechanism.normal
        return (
            law is not None
            and law.noise_multiplier >= self.noise_multiplier
            and type(kind.sampling) is SAMPLINGS[self.sampling]
            and kind.sampling.rate <= self.sampling_rate
        )


@dataclass(frozen=True)
class RunSeries:
    """Runs that are fixed beforehand, and the part of a budget that is set aside for them.

    Attributes
    ----------
    name : str
        Name that the owner gave it.
    epsilon, delta : float
        Part of the budget that is set aside.
    plans : tuple of SeriesPlan
        Plans of its runs.

    Raises
    ------
    SpecError
        If what is set aside is no budget, or there is no plan.
    """

    name: str
    epsilon: float
    delta: float
    plans: tuple[SeriesPlan, ...]

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta, f"series {self.name!r}")
        if not self.epsilon < math.inf:
            raise SpecError(f"series {self.name!r} needs a finite epsilon, found {self.epsilon!r}")
        if not self.plans:
            raise SpecError(f"series {self.name!r} has no plans; say which runs it is made of")

    @property
    def runs(self) -> int:
        """The number of runs."""
        return sum(plan.runs for plan in self.plans)

    def needed(self, relation: NeighboringRelation) -> float:
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
        counts: dict[ReleaseKind, int] = {}
        for plan in self.plans:
            counts[plan.kind] = counts.get(plan.kind, 0) + plan.runs * plan.releases
        return epsilon(counts, self.delta * (1 - _MARGIN), relation).epsilon * (1 + _MARGIN)

    def check(self, relation: NeighboringRelation) -> None:
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
        plans = [
            (plan.runs, plan.releases, float(plan.sampling_rate), float(plan.noise_multiplier), plan.sampling)
            for plan in self.plans
        ]
        return self.name, float(self.epsilon), float(self.delta), tuple(plans)

    @classmethod
    def of(cls, plain: tuple[str, float, float, tuple[tuple[Any, ...], ...]]) -> RunSeries:
        """Rebuild the series that `plain` was made of."""
        name, epsilon, delta, plans = plain
        return cls(name, epsilon, delta, tuple(SeriesPlan(*plan) for plan in plans))
