"""The ledger of a data side: a charge is entered before anything is drawn for it, and never taken back."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from gossamer.errors import BudgetSpent
from gossamer.privacy.releases import checked_counts
from gossamer.sides.charges import Charges, Receipt


class Ledger(Protocol):
    """Counts of what one data side was charged, in memory (`MemoryLedger`) or on disk (`StoredLedger`)."""

    @property
    def owner(self) -> str:
        """The party."""
        ...

    @property
    def releases(self) -> int:
        """How many releases were charged."""
        ...

    def charge(self, receipt: Receipt) -> int:
        """Charge one release, or raise `BudgetSpent`; the number of releases since, itself included.

        Only after this returns may anything be drawn for it.
        """
        ...

    def lines(self) -> list[dict[str, Any]]:
        """Records for ``ledger.jsonl``."""
        ...


@dataclass(slots=True)
class MemoryLedger:
    """A ledger that ends with its process.

    Attributes
    ----------
    owner : str
        The party.
    charges : Charges
        What it is opened for.
    counts : dict
        How often each law was charged; of a curator, by owner and law.
    releases : int
        How many releases were charged, of all kinds; of a curator, for all owners together.

    Raises
    ------
    AccountingError
        If a count is not a number of releases.
    """

    owner: str
    charges: Charges
    counts: dict[Any, int] = field(default_factory=dict)
    releases: int = field(init=False)

    def __post_init__(self) -> None:
        self.releases = sum(checked_counts(self.counts).values())

    def charge(self, receipt: Receipt) -> int:
        """Charge one release.

        Raises
        ------
        BudgetSpent
            If it is not covered; nothing is charged.
        """
        reason = self.charges.refusal(self.counts, receipt)
        if reason is not None:
            raise BudgetSpent(f"{self.owner}: {reason}")
        keys: list[Hashable] = [(owner, receipt.kind) for owner in receipt.owners] or [receipt.kind]
        for key in keys:
            self.counts[key] = self.counts.get(key, 0) + 1
        self.releases += len(keys)
        return self.releases

    def lines(self) -> list[dict[str, Any]]:
        """Records for ``ledger.jsonl``."""
        return self.charges.lines(self.owner, self.counts)


class StoredLedger:
    """A durable ledger of `runtimes`, as data sides charge it.

    Parameters
    ----------
    ledger : ledger
        `gossamer.runtimes.storage_ledger.DurableLedger` or one of its kin.
    charges : Charges
        What it was opened for.
    """

    def __init__(self, ledger: Any, charges: Charges) -> None:
        self._ledger, self._charges = ledger, charges

    @property
    def owner(self) -> str:
        """The party."""
        return str(self._ledger.owner)

    @property
    def releases(self) -> int:
        """How many releases were charged."""
        return int(self._ledger.releases)

    def charge(self, receipt: Receipt) -> int:
        """Charge one release; it is durable when this returns.

        Raises
        ------
        BudgetSpent
            If it is not covered.
        StorageError
            If it could not be written.
        """
        self._charges.enter(self._ledger, receipt)
        return self.releases

    def lines(self) -> list[dict[str, Any]]:
        """Records for ``ledger.jsonl``."""
        return self._charges.lines(self.owner, self._charges.counted(self._ledger))


class StoredAccounts:
    """The durable ledgers of a curator's owners, one each.

    Parameters
    ----------
    curator : str
        Who releases.
    ledgers : mapping of str to ledger
        By owner, opened for the whole plan.
    charges : Charges
        What they were opened for.
    """

    def __init__(self, curator: str, ledgers: Mapping[str, Any], charges: Charges) -> None:
        self.owner, self._ledgers, self._charges = curator, ledgers, charges

    @property
    def releases(self) -> int:
        """How many releases were charged, for all owners together."""
        return sum(int(ledger.releases) for ledger in self._ledgers.values())

    def charge(self, receipt: Receipt) -> int:
        """Charge one release to each of its owners; it is durable when this returns.

        Raises
        ------
        BudgetSpent
            If an owner's line does not cover it. Those before it stay charged.
        """
        self._charges.enter(self._ledgers, receipt)
        return self.releases

    def lines(self) -> list[dict[str, Any]]:
        """Records for ``ledger.jsonl``."""
        return self._charges.lines(self.owner, self._charges.counted(self._ledgers))
