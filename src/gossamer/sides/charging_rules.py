"""Rules of charging: releases, a stream, masked sums, sums over many clients, nothing."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from gossamer.errors import BudgetSpent, SpecError
from gossamer.numbers import whole_number
from gossamer.privacy.accounting.ledger import Plan, Policy
from gossamer.privacy.guarantees import CLIENT, EXAMPLE, OTHER_NODES
from gossamer.privacy.mechanisms import NeighboringRelation
from gossamer.privacy.streams.agent_noise import AgentNoise
from gossamer.privacy.streams.noise_streams import StreamKind
from gossamer.sides.charges import Accounts, Charges, Counted, Kind, Receipt


class _OfOne:
    """Charges to one party alone."""

    @property
    def law(self) -> Kind | None:
        return None

    def owned(self, counts: Counted, owner: str) -> int:
        return sum(counts.values())

    def charged(self, ledger: Any) -> int:
        return int(ledger.releases)


@dataclass(frozen=True)
class ReleaseCharges(_OfOne):
    """Releases of several kinds, each for itself.

    Attributes
    ----------
    policy : Policy
        What is covered.
    protects : str
        What the kinds' noise hides: one example, or a client with all that it has.
    curator : str
        Who releases it, where that is not the ledger's owner.
    observer : str
        From whom it hides that.
    """

    policy: Policy
    protects: str = "example"
    curator: str = ""
    observer: str = OTHER_NODES

    @property
    def most(self) -> int | None:
        return sum(self.policy.most.values()) if isinstance(self.policy, Plan) else None

    def check(self, relation: NeighboringRelation) -> None:
        """Refuse releases of whole clients' updates in accounts of examples that come and go.

        One of a client's examples may move its update by twice the bound, and taking all away by the bound alone: such
        accounts would count the releases as half of what they reveal of one example.
        """
        if self.protects == "client" and relation is NeighboringRelation.ADD_OR_REMOVE_ONE:
            raise SpecError(
                "updates of whole clients are charged to a budget of the relation replace_one, found "
                "add_or_remove_one: one example that comes or goes may move an update by twice its bound"
            )

    def opened(self, owner: str, accounts: Accounts, part: str = "") -> Any:
        self.check(accounts.relation)
        return accounts.releases(owner, self.policy.most, part) if isinstance(self.policy, Plan) else None

    def refusal(self, counts: Counted, receipt: Receipt) -> str | None:
        kind: Any = receipt.kind
        known: Any = counts
        reason = self.policy.refusal(known, kind)
        return None if reason is None else f"release refused: {reason} ({kind.describe()})"

    def lines(self, owner: str, counts: Counted) -> list[dict[str, Any]]:
        kinds: Any = counts
        more = ({"protects": self.protects} if self.protects != "example" else {}) | (
            {"curator": self.curator} if self.curator else {}
        )
        return [{"node": owner, **more, "releases": n, **kind.describe()} for kind, n in kinds.items()]

    def planned(self) -> Mapping[Any, int] | None:
        return self.policy.most if isinstance(self.policy, Plan) else None

    def party(self) -> dict[str, Any]:
        return {"unit": CLIENT if self.protects == "client" else EXAMPLE, "observer": self.observer}

    def enter(self, ledger: Any, receipt: Receipt) -> None:
        ledger.charge(receipt.kind)

    def counted(self, ledger: Any) -> Counted:
        found: Counted = ledger.counts
        return found


@dataclass(frozen=True)
class StreamCharges(_OfOne):
    """The records of one stream of noise, with a line for each of those whose data they hold."""

    stream: StreamKind
    owners: tuple[str, ...]
    unit: str = ""
    observer: str = ""

    @property
    def most(self) -> int | None:
        return self.stream.records

    @property
    def law(self) -> StreamKind:
        return self.stream

    def refusal(self, counts: Counted, receipt: Receipt) -> str | None:
        if receipt.kind != self.stream:
            return f"release refused: not in the plan ({receipt.kind.describe()})"
        if counts.get(self.stream, 0) < self.stream.records:
            return None
        return f"release refused: the stream was opened for {self.stream.records} records"

    def lines(self, owner: str, counts: Counted) -> list[dict[str, Any]]:
        releases, kind = counts.get(self.stream, 0), self.stream.describe()
        return [{"node": agent, "unit": owner, "releases": releases, **kind} for agent in self.owners]

    def planned(self) -> Mapping[Any, int]:
        return {self.stream: self.stream.records}

    def party(self) -> dict[str, Any]:
        return {"unit": self.unit, "observer": self.observer}

    def opened(self, owner: str, accounts: Accounts) -> Any:
        return accounts.stream(owner, self.stream)

    def enter(self, ledger: Any, receipt: Receipt) -> None:
        _check_law(self, self.stream, ledger, receipt)
        ledger.charge()

    def counted(self, ledger: Any) -> Counted:
        return {self.stream: ledger.releases}


@dataclass(frozen=True)
class SumCharges(_OfOne):
    """Masked sums that a member adds its update and its noise to.

    Raises
    ------
    SpecError
        If the number of sums is none.
    """

    noise: AgentNoise
    sums: int

    def __post_init__(self) -> None:
        if whole_number(self.sums) is None:
            raise SpecError(f"a ledger is opened for a whole number of masked sums, 0 or more, found {self.sums!r}")

    @property
    def most(self) -> int | None:
        return self.sums

    @property
    def law(self) -> AgentNoise:
        return self.noise

    def refusal(self, counts: Counted, receipt: Receipt) -> str | None:
        if receipt.kind != self.noise:
            return f"masked sum refused: not in the plan ({receipt.kind.describe()})"
        if counts.get(self.noise, 0) < self.sums:
            return None
        return f"masked sum refused: the ledger was opened for {self.sums}"

    def lines(self, owner: str, counts: Counted) -> list[dict[str, Any]]:
        found = {"node": owner, "to": "own server", "releases": counts.get(self.noise, 0), "most": self.sums}
        return [found | self.noise.describe()]

    def planned(self) -> Mapping[Any, int]:
        return {self.noise: self.sums}

    def party(self) -> dict[str, Any]:
        return {"unit": None, "observer": "own server"}

    def opened(self, owner: str, accounts: Accounts) -> Any:
        return accounts.sums(owner, self.noise, self.sums)

    def enter(self, ledger: Any, receipt: Receipt) -> None:
        _check_law(self, self.noise, ledger, receipt)
        ledger.charge()

    def counted(self, ledger: Any) -> Counted:
        return {self.noise: ledger.releases}


@dataclass(frozen=True)
class CuratorCharges:
    """Sums over many clients: each owner has a line of its own, opened for so many releases of each kind."""

    curator: str
    owners: tuple[str, ...]
    policy: Policy
    observer: str = ""

    @property
    def each(self) -> ReleaseCharges:
        """Charges that the line of one owner is opened for."""
        return ReleaseCharges(self.policy, "client", self.curator, self.observer)

    @property
    def most(self) -> int | None:
        return self.each.most

    @property
    def law(self) -> None:
        return None

    def refusal(self, counts: Counted, receipt: Receipt) -> str | None:
        owned: dict[str, dict[Hashable, int]] = {owner: {} for owner in receipt.owners}
        keys: Any = counts
        for owner, kind in keys:
            if owner in owned:
                owned[owner][kind] = keys[owner, kind]
        each = self.each
        reasons = ((owner, each.refusal(own, receipt)) for owner, own in owned.items())
        return next((f"{owner}: {reason}" for owner, reason in reasons if reason is not None), None)

    def lines(self, owner: str, counts: Counted) -> list[dict[str, Any]]:
        owned: Any = counts
        return [
            line
            for name in self.owners
            for line in self.each.lines(name, {kind: n for (of, kind), n in owned.items() if of == name})
        ]

    def planned(self) -> Mapping[Any, int] | None:
        return self.each.planned()

    def party(self) -> dict[str, Any]:
        return {**self.each.party(), "owners": list(self.owners)}

    def owned(self, counts: Counted, owner: str) -> int:
        keys: Any = counts
        # Of the curator itself, all of them.
        return sum(counts[name, kind] for name, kind in keys if owner in (name, self.curator))

    def opened(self, owner: str, accounts: Accounts) -> Any:
        ledgers = {name: self.each.opened(name, accounts, name) for name in self.owners}
        return None if None in ledgers.values() else ledgers

    def charged(self, ledger: Any) -> int:
        return sum(int(own.releases) for own in ledger.values())

    def enter(self, ledger: Any, receipt: Receipt) -> None:
        # One account an owner. A crash between two of them has charged some for what nobody is given: too much is safe.
        for owner in receipt.owners:
            ledger[owner].charge(receipt.kind)

    def counted(self, ledger: Any) -> Counted:
        return {(name, kind): n for name, own in ledger.items() for kind, n in own.counts.items()}


def _check_law(charges: Charges, law: Kind, ledger: Any, receipt: Receipt) -> None:
    """Refuse another law than the one that a durable ledger of one law is opened for: it is not told which it charges.

    Raises
    ------
    BudgetSpent
        If the receipt is of another law; nothing is charged.
    """
    if receipt.kind != law:
        raise BudgetSpent(f"{ledger.owner}: {charges.refusal({}, receipt)}")


@dataclass(frozen=True)
class NoCharges(_OfOne):
    """Charges to a party that is charged nothing itself, such as an agent whose server is charged for it."""

    @property
    def most(self) -> int:
        return 0

    def refusal(self, counts: Counted, receipt: Receipt) -> str:
        return "release refused: nothing is planned"

    def lines(self, owner: str, counts: Counted) -> list[dict[str, Any]]:
        return []

    def planned(self) -> Mapping[Any, int]:
        return {}

    def party(self) -> dict[str, Any]:
        return {"unit": None, "observer": None}

    def opened(self, owner: str, accounts: Accounts) -> Any:
        return accounts.sums(owner, None, 0)

    def enter(self, ledger: Any, receipt: Receipt) -> None:
        raise AssertionError("nothing is ever charged here")

    def counted(self, ledger: Any) -> Counted:
        return {}


NO_CHARGES = NoCharges()
"""Of all such parties."""
