"""Ledgers in memory as they were before `sides`: one class for each kind of noise. The reference of those on disk."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gossamer.errors import BudgetSpent, SpecError, counted, whole_number
from gossamer.privacy.accounting.filters import RenyiFilter
from gossamer.privacy.mechanisms import ReleaseKind, checked_counts
from gossamer.privacy.streams.correlated_noise import StreamKind
from gossamer.privacy.streams.graph_bounds import AgentNoise


def spent(most: int) -> str:
    """What is said of one law that was released as often as was planned."""
    covered = f"the plan covers {counted(most, 'release')} of this kind, and all are spent"
    return covered if most else "not in the plan"


class Unlimited:
    """Admits everything."""

    def refusal(self, counts: Any, kind: ReleaseKind) -> str | None:
        return None


@dataclass(frozen=True)
class Within:
    """Admits what fits a filter, chosen adaptively."""

    filter: RenyiFilter

    def refusal(self, counts: Any, kind: ReleaseKind) -> str | None:
        more = {**counts, kind: counts.get(kind, 0) + 1}
        private = all(one.mechanism.private for one in more)
        return None if private and self.filter.spent(more) <= self.filter.level else "beyond the budget"


@dataclass(slots=True)
class Ledger:
    """Append-only counts of one data holder's releases.

    Attributes
    ----------
    owner : str
        Whose data.
    policy : Plan, Unlimited or Within
        What is admitted.
    counts : dict of ReleaseKind to int
        What has been charged.

    Raises
    ------
    AccountingError
        If a count is not a number of releases.
    """

    owner: str
    policy: Any
    counts: dict[ReleaseKind, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        checked_counts(self.counts)

    @property
    def releases(self) -> int:
        """How many releases have been charged, of all kinds."""
        return sum(self.counts.values())

    def charge(self, kind: ReleaseKind) -> None:
        """Charge one release. Only after this returns may its noise be drawn.

        Raises
        ------
        BudgetSpent
            If the policy does not cover it; nothing is charged.
        """
        reason = self.policy.refusal(self.counts, kind)
        if reason is not None:
            raise BudgetSpent(f"{self.owner}: release refused: {reason} ({kind.describe()})")
        self.counts[kind] = self.counts.get(kind, 0) + 1

    def lines(self) -> list[dict[str, Any]]:
        """One record a kind, for ``ledger.jsonl``."""
        return [{"node": self.owner, "releases": n, **kind.describe()} for kind, n in self.counts.items()]


@dataclass(slots=True)
class UnitLedger:
    """Append-only count of the records of a unit's stream.

    Attributes
    ----------
    owner : str
        The unit's server.
    agents : tuple of str
        Whose data each record holds.
    stream : StreamKind
        Opened for all rounds, before the first.
    releases : int
        Records charged.

    Raises
    ------
    SpecError
        If their number is none.
    """

    owner: str
    agents: tuple[str, ...]
    stream: StreamKind
    releases: int = 0

    def __post_init__(self) -> None:
        if whole_number(self.releases) is None:
            raise SpecError(f"a whole number of records was charged, 0 or more, found {self.releases!r}")

    def charge(self) -> None:
        """Charge the next record. Only after this returns may its noise be drawn.

        Raises
        ------
        BudgetSpent
            If the stream was opened for no more.
        """
        if self.releases >= self.stream.records:
            raise BudgetSpent(f"{self.owner}: release refused: {spent(self.stream.records)} ({self.stream.describe()})")
        self.releases += 1

    def lines(self) -> list[dict[str, Any]]:
        """One record an agent, for ``ledger.jsonl``."""
        kind = self.stream.describe()
        return [{"node": agent, "unit": self.owner, "releases": self.releases, **kind} for agent in self.agents]


@dataclass(slots=True)
class AgentLedger:
    """Append-only count of the masked sums that an agent adds its update and its noise to.

    Attributes
    ----------
    owner : str
        The agent.
    noise : AgentNoise
        Of each.
    most : int
        For how many it is opened.
    releases : int
        How many are charged.

    Raises
    ------
    SpecError
        If the number of sums is none.
    """

    owner: str
    noise: AgentNoise
    most: int
    releases: int = 0

    def __post_init__(self) -> None:
        for number in (self.most, self.releases):
            if whole_number(number) is None:
                raise SpecError(f"a ledger is opened for a whole number of masked sums, 0 or more, found {number!r}")

    def charge(self) -> None:
        """Charge the next one. Only after this returns may its noise be drawn.

        Raises
        ------
        BudgetSpent
            If the ledger was opened for no more.
        """
        if self.releases >= self.most:
            raise BudgetSpent(f"{self.owner}: release refused: {spent(self.most)} ({self.noise.describe()})")
        self.releases += 1

    def lines(self) -> list[dict[str, Any]]:
        """For ``ledger.jsonl``."""
        counts = {"node": self.owner, "to": "own server", "releases": self.releases, "most": self.most}
        return [counts | self.noise.describe()]
