"""The ledger: what one data holder has released, charged before the noise is drawn.

A ledger only ever counts up. Whether it admits another release is decided by its *policy*:

| policy | admits | guarantee |
|---|---|---|
| `ReleasePlan` | so many releases of each kind, fixed from public information before the first | of the whole plan |
| `RenyiFilter` | what fits a divergence at one order, chosen adaptively | the filter's (epsilon, delta) |

A run that stops early for a reason that depends on data has spent its whole plan: the sum so far is a reading, not a
guarantee.

References
----------
Filters: Feldman and Zrnic, "Individual privacy accounting via a Renyi filter", NeurIPS 2021, theorem 4.3.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from gossamer.errors import SpecError, counted
from gossamer.numbers import real_number
from gossamer.privacy.accounting.accountants import renyi_divergence, renyi_level
from gossamer.privacy.mechanisms import NeighboringRelation
from gossamer.privacy.releases import Counts, ReleaseKind, checked_counts


@dataclass(frozen=True)
class ReleasePlan:
    """The most releases of each kind.

    Raises
    ------
    AccountingError
        If a number is not whole, or below 0.
    """

    most: Mapping[ReleaseKind, int]

    def __post_init__(self) -> None:
        object.__setattr__(self, "most", checked_counts(self.most))

    def refusal(self, counts: Counts, kind: ReleaseKind) -> str | None:
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
class RenyiFilter:
    """Covers what fits a Renyi divergence at one order, whatever was seen before it was chosen.

    Attributes
    ----------
    epsilon, delta : float
        The budget for everything that passes; an infinite epsilon covers all.
    relation : NeighboringRelation
        Neighbouring relation of the budget.
    order : float
        alpha > 1, fixed before the first release.

    Raises
    ------
    SpecError
        If epsilon is not positive, delta not inside (0, 1), the relation is none, or the order is not a finite number
        above 1.01.
    """

    epsilon: float
    delta: float
    relation: NeighboringRelation
    order: float = 16.0

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta, "a Renyi filter")
        if not 1.01 < real_number(self.order) < math.inf:
            raise SpecError(f"a Renyi filter needs a finite order above 1.01, found {self.order!r}")
        object.__setattr__(self, "relation", NeighboringRelation(self.relation))

    @property
    def level(self) -> float:
        """The most that all divergences may come to."""
        return math.inf if self.epsilon == math.inf else renyi_level(self.order, self.epsilon, self.delta)

    def spent(self, counts: Counts) -> float:
        """The divergence of ``counts`` at the filter's order."""
        return math.fsum(
            number * renyi_divergence(kind, self.order, self.relation)
            for kind, number in checked_counts(counts).items()
            if number
        )


def check_budget(epsilon: float, delta: float, what: str) -> None:
    """Refuse what is no budget; ``what`` is whose, for the message.

    Raises
    ------
    SpecError
        If epsilon is not above 0, or delta not inside (0, 1).
    """
    if not real_number(epsilon) > 0:
        raise SpecError(f"{what} needs an epsilon above 0 (infinite to admit everything), found {epsilon!r}")
    if not 0 < real_number(delta) < 1:
        raise SpecError(f"{what} needs a delta strictly between 0 and 1, found {delta!r}")
