"""The ledger of a data side: a charge is entered before anything is drawn for it, and never taken back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from gossamer.errors import BudgetSpent
from gossamer.privacy.releases import ReleaseKind, checked_counts
from gossamer.sides.charges import Charges, Receipt


class Ledger(Protocol):
    """Counts of what one data side was charged, in memory (`MemoryLedger`) or on disk (`StoredLedger`)."""

    @property
    def owner(self) -> str:
        """The party."""
        ...

    @property
    def releases(self) -> int:
        """Number of releases that were charged."""
        ...

    def releases_of(self, owner: str) -> int:
        """Number of them that hold the data of ``owner``."""
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

    def releases_of(self, owner: str) -> int:
        """Number of them that hold the data of ``owner``."""
        return self.charges.owned(self.counts, owner)

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
        owners, kind, counts = receipt.owners, receipt.kind, self.counts
        for key in [(owner, kind) for owner in owners] if owners else (kind,):
            counts[key] = counts.get(key, 0) + 1
        self.releases += len(owners) or 1
        return self.releases

    def lines(self) -> list[dict[str, Any]]:
        """Records for ``ledger.jsonl``."""
        return self.charges.lines(self.owner, self.counts)

    def snapshot(self) -> list[tuple[Any, ...]]:
        """Return the counts in their order, as data that `protocol.snapshots` encodes: owner, law, number."""
        return [(*_owner_and_law(key), number) for key, number in self.counts.items()]

    def restore(self, snapshot: list[tuple[Any, ...]]) -> None:
        """Be as the ledger was whose `snapshot` this is."""
        law = self.charges.law
        counts: dict[Any, int] = {}
        for owner, parts, number in snapshot:
            kind = ReleaseKind(*parts) if parts else law
            counts[(owner, kind) if owner else kind] = number
        self.counts = checked_counts(counts)
        self.releases = sum(self.counts.values())


def _owner_and_law(key: Any) -> tuple[str, tuple[Any, ...]]:
    """Parts of a key of counts; of the one law that a ledger is opened for, no parts."""
    owner, kind = key if isinstance(key, tuple) else ("", key)
    return owner, (kind.mechanism, kind.sampling, kind.size) if isinstance(kind, ReleaseKind) else ()


class StoredLedger:
    """Durable ledgers of `runtimes`, as data sides charge them.

    Parameters
    ----------
    owner : str
        The party.
    ledger : object
        As ``charges`` opened it.
    charges : Charges
        What it was opened for.
    """

    def __init__(self, owner: str, ledger: Any, charges: Charges) -> None:
        self.owner, self._ledger, self._charges = owner, ledger, charges

    @property
    def releases(self) -> int:
        """Number of releases that were charged; of a curator, for all owners together."""
        return self._charges.charged(self._ledger)

    def releases_of(self, owner: str) -> int:
        """Number of them that hold the data of ``owner``."""
        return self._charges.owned(self._charges.counted(self._ledger), owner)

    def charge(self, receipt: Receipt) -> int:
        """Charge one release; it is durable when this returns.

        Raises
        ------
        BudgetSpent
            If it is not covered. Of several owners, those before it stay charged.
        StorageError
            If it could not be written.
        """
        self._charges.enter(self._ledger, receipt)
        return self.releases

    def lines(self) -> list[dict[str, Any]]:
        """Records for ``ledger.jsonl``."""
        return self._charges.lines(self.owner, self._charges.counted(self._ledger))
