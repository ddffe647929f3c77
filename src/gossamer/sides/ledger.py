"""Charges of data sides, and the ledgers that they are entered in: before anything is drawn, and never taken back."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, NamedTuple

from gossamer.errors import BudgetSpent, SpecError
from gossamer.privacy.accounting.filters import ReleasePlan
from gossamer.privacy.guarantees import CLIENT, EXAMPLE, HELD_OUT, OTHER_NODES
from gossamer.privacy.mechanisms import Counts, NeighboringRelation, ReleaseKind, checked_counts
from gossamer.privacy.streams.correlated_noise import StreamKind
from gossamer.privacy.streams.graph_bounds import AgentNoise
from gossamer.protocol.snapshots import Kept

Kind = ReleaseKind | StreamKind | AgentNoise
"""A law that something is released by."""
Counted = Mapping[Hashable, int]
"""How often each law was charged; of a curator, by owner and law."""


MOST_NAMED = 10_000
"""Nodes of which each is written down for itself; of more, those that are alike are together."""


class Receipt(NamedTuple):
    """Charge of a release, before it is drawn.

    Attributes
    ----------
    kind : ReleaseKind, StreamKind or AgentNoise
        Law of the release.
    owners : tuple of str
        Parties whose data it holds, where that is not the ledger's owner alone and differs from one release to the
        next.
    clip : float or None
        Length to which vectors are clipped for it, where the law is for any clip.
    """

    kind: Kind
    owners: tuple[str, ...] = ()
    clip: float | None = None


class Account(StrEnum):
    """Kind of the durable account that charges are entered in."""

    RELEASES = "releases"
    """Of several laws, each for itself."""
    STREAM = "stream"
    """Of the records of one stream of noise, with a line for each of those whose data they hold."""
    SUMS = "sums"
    """Of masked sums that a member adds its update and its noise to, beside all that its plan reveals."""


@dataclass(frozen=True)
class Charges:
    """Releases that a ledger is opened for.

    Attributes
    ----------
    kinds : mapping of Kind to int
        Most releases of each law; of a curator, with the data of each owner.
    held : bool
        Whether the ledger holds to them. Where nothing is proved there is nothing to hold to: all is admitted.
    unit, observer : str or None
        Unit that the noise protects, and observer it is from.
    owners : tuple of str
        Parties whose data the releases hold, where that is not the ledger's owner: each has lines of its own.
    curator : str
        Server that releases it, where each owner is charged for the releases that hold its data.
    account : Account
        Kind of account that it opens.

    Raises
    ------
    AccountingError
        If a number is not one of releases.
    """

    kinds: Mapping[Any, int]
    held: bool = True
    unit: str | None = EXAMPLE
    observer: str | None = OTHER_NODES
    owners: tuple[str, ...] = ()
    curator: str = ""
    account: Account = Account.RELEASES

    def __post_init__(self) -> None:
        object.__setattr__(self, "kinds", self._plan.most)

    @cached_property
    def _plan(self) -> ReleasePlan:
        return ReleasePlan(self.kinds)

    @property
    def planned(self) -> Mapping[Any, int] | None:
        """The most releases of each law; None where nothing limits them."""
        return self.kinds if self.held else None

    @property
    def most(self) -> int | None:
        """Most releases of one owner; None where nothing limits them."""
        return sum(self.kinds.values()) if self.held else None

    @property
    def counts(self) -> Counts | None:
        """Most releases of each kind with one owner's data, held to or not; None where they are not counted by kind."""
        return self.kinds if self.account is Account.RELEASES else None

    @property
    def law(self) -> Any:
        """The one law that is charged; None where each receipt says which."""
        return None if self.account is Account.RELEASES else next(iter(self.kinds), None)

    def refusal(self, counts: Counted, receipt: Receipt) -> str | None:
        """Reason that one more release is not covered, as a clause; None if it is."""
        kind: Any = receipt.kind
        of_all: Any = counts
        for name in receipt.owners if self.curator else ("",):
            # Of a curator's counts, which are as many as its clients, only the one that is asked about is looked at.
            own = {kind: of_all.get((name, kind), 0)} if self.curator else of_all
            reason = self._plan.refusal(own, kind) if self.held else None
            if reason is not None:
                return f"{name}{': ' if name else ''}release refused: {reason} ({kind.describe()})"
        return None

    def _of(self, counts: Any, owner: str) -> Any:
        """Counts of one owner, by law."""
        return {kind: n for (name, kind), n in counts.items() if name == owner} if self.curator else counts

    def lines(self, owner: str, counts: Counted) -> list[dict[str, Any]]:
        """Records for ``ledger.jsonl``."""
        found = []
        for name in self.owners or (owner,):
            # One law is there before it was ever charged.
            own = self._of(counts, name) if self.law is None else {self.law: counts.get(self.law, 0)}
            for kind, releases in own.items():
                most = {"most": self.most} if self.account is Account.SUMS else {}
                found.append({"node": name, **self._words(owner), "releases": releases, **most, **kind.describe()})
        return found

    def _words(self, owner: str) -> dict[str, Any]:
        if self.account is Account.STREAM:
            return {"unit": owner}
        if self.account is Account.SUMS:
            return {"to": self.observer}
        curator = {"curator": self.curator} if self.curator else {}
        return {"protects": _BRIEFLY[self.unit], **curator} if self.unit in _BRIEFLY else curator

    def party(self) -> dict[str, Any]:
        """Words of receipts: the unit that noise protects, the observer it is from, and of others' data, whose."""
        owners = {"owners": list(self.owners)} if self.curator else {}
        return {"unit": self.unit, "observer": self.observer, **owners}

    def owned(self, counts: Counted, owner: str) -> int:
        """Number of the releases that hold the data of ``owner``; of a curator itself, all of them."""
        if not self.curator or owner == self.curator:
            return sum(counts.values())
        return sum(self._of(counts, owner).values())

    def stored(self, owner: str, relation: NeighboringRelation, opened: Callable[[str], Any]) -> Ledger:
        """A durable ledger of it all; one in memory where nothing can be held to a plan.

        Parameters
        ----------
        owner : str
            Name of the party.
        relation : NeighboringRelation
            Relation by which data sets count as neighbours in the accounts.
        opened : callable
            Function that opens the durable account of one of several owners, by name, or of the party itself ("").

        Raises
        ------
        SpecError
            If the accounts do not count what one example moves a whole client's update by: it may move that by twice
            the bound, and taking all away by the bound alone, so accounts of examples that come and go would count the
            releases as half of what they reveal of one example.
        """
        by_kind = self.account is Account.RELEASES
        if by_kind and self.unit == CLIENT and relation is NeighboringRelation.ADD_OR_REMOVE_ONE:
            raise SpecError(
                "updates of whole clients are charged to a budget of the relation replace_one, found "
                "add_or_remove_one: one example that comes or goes may move an update by twice its bound"
            )
        if not self.held:
            return MemoryLedger(owner, self)
        parts = self.owners if by_kind and self.owners else ("",)
        return StoredLedger(owner, {part: opened(part) for part in parts}, self)


_BRIEFLY = {CLIENT: "client", HELD_OUT: "held-out example"}
"""Units of ledgers' lines; an example of a shard is not named."""
NO_CHARGES = Charges({}, unit=None, observer=None, account=Account.SUMS)
"""Charges of a party that is charged nothing itself, such as an agent whose server is charged for it."""


@dataclass(slots=True)
class Ledger:
    """Counts of what one data side was charged, in memory (`MemoryLedger`) or on disk (`StoredLedger`).

    Attributes
    ----------
    owner : str
        Name of the party.
    charges : Charges
        Releases that it is opened for.
    counts : dict
        Number of charges of each law; of a curator, by owner and law.
    releases : int
        Number of releases that were charged, of all kinds; of a curator, for all owners together.

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
        """Charge one release, or raise `BudgetSpent`; the number of releases since, itself included.

        Only after this returns may anything be drawn for it.
        """
        raise NotImplementedError

    def lines(self) -> list[dict[str, Any]]:
        """Records for ``ledger.jsonl``."""
        return self.charges.lines(self.owner, self.counts)


def in_groups(lines: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Records of ``ledger.jsonl``, those that are alike but for the node as one with a list of nodes."""
    found: dict[str, dict[str, Any]] = {}
    for line in lines:
        key = repr([item for item in line.items() if item[0] != "node"])
        found.setdefault(key, {**line, "node": []})["node"].append(line["node"])
    return [*found.values()]


class MemoryLedger(Ledger, Kept):
    """A ledger that ends with its process."""

    changing = ("_kept",)

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
        kind, owners, _ = receipt
        for key in [(owner, kind) for owner in owners] if owners else (kind,):
            self.counts[key] = self.counts.get(key, 0) + 1
        self.releases += len(owners) or 1
        return self.releases

    @property
    def _kept(self) -> list[tuple[str, Kind | None, int]]:
        """The counts in their order: owner, law, number; None is the law that the ledger is opened for alone."""
        split = [(*(key if isinstance(key, tuple) else ("", key)), number) for key, number in self.counts.items()]
        return [(owner, kind if isinstance(kind, ReleaseKind) else None, number) for owner, kind, number in split]

    @_kept.setter
    def _kept(self, kept: list[tuple[str, Kind | None, int]]) -> None:
        counts = dict[Any, int]()
        for owner, named, number in kept:
            kind = self.charges.law if named is None else named
            counts[(owner, kind) if owner else kind] = number
        self.counts = checked_counts(counts)
        self.releases = sum(counts.values())


class StoredLedger(Ledger):
    """Durable accounts of `runtimes`, as data sides charge them.

    Parameters
    ----------
    owner : str
        Name of the party.
    accounts : mapping of str to object
        Accounts as ``charges`` opened them.
    charges : Charges
        Releases that they were opened for.
    """

    def __init__(self, owner: str, accounts: Mapping[str, Any], charges: Charges) -> None:
        found = [(name, k, n) for name, account in accounts.items() for k, n in account.counts.items()]
        # An account may be for releases of another kind, too, which another ledger counts; see `beside`.
        super().__init__(owner, charges, {(name, k) if name else k: n for name, k, n in found if k in charges.kinds})
        self._accounts = accounts

    def beside(self, owner: str, charges: Charges) -> StoredLedger:
        """Ledger of releases of other kinds, which the same accounts were opened for."""
        return StoredLedger(owner, self._accounts, charges)

    def charge(self, receipt: Receipt) -> int:
        """Charge one release; it is durable when this returns.

        Raises
        ------
        BudgetSpent
            If it is not covered. Of several owners, those before it stay charged.
        StorageError
            If it could not be written.
        """
        # One account an owner. A crash between two of them has charged some for what nobody is given: too much is safe.
        for name in receipt.owners if self.charges.curator else ("",):
            account, kind = self._accounts[name], receipt.kind
            account.charge(kind)
            self.counts[(name, kind) if name else kind] = account.counts[kind]
        self.releases = sum(self.counts.values())
        return self.releases
