"""Charges as data: what a ledger is opened for, what it refuses, and the lines that it writes."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from gossamer.errors import BudgetSpent, SpecError
from gossamer.numbers import whole_number
from gossamer.privacy.agent_noise import AgentNoise
from gossamer.privacy.ledger import Plan, Policy
from gossamer.privacy.releases import ReleaseKind
from gossamer.privacy.unit_ledger import StreamKind

Kind = ReleaseKind | StreamKind | AgentNoise
"""A law that something is released by."""


class Receipt(NamedTuple):
    """What is charged, before it is drawn.

    Attributes
    ----------
    kind : ReleaseKind, StreamKind or AgentNoise
        The law.
    owners : tuple of str
        Whose data it holds, where that is not the ledger's owner alone and differs from one release to the next.
    """

    kind: Kind
    owners: tuple[str, ...] = ()


Counted = Mapping[Hashable, int]
"""How often each law was charged."""


class Charges(Protocol):
    """What a ledger is opened for."""

    @property
    def most(self) -> int | None:
        """Most releases; None where nothing limits them."""
        ...

    def refusal(self, counts: Counted, receipt: Receipt) -> str | None:
        """Why one more release is not covered, as a clause; None if it is."""
        ...

    def lines(self, owner: str, counts: Counted) -> list[dict[str, Any]]:
        """Records for ``ledger.jsonl``."""
        ...

    def enter(self, ledger: Any, receipt: Receipt) -> None:
        """Charge a durable ledger, which knows itself what it was opened for."""
        ...

    def counted(self, ledger: Any) -> Counted:
        """What a durable ledger was charged."""
        ...


@dataclass(frozen=True)
class ReleaseCharges:
    """Releases of several kinds, each for itself.

    Attributes
    ----------
    policy : Policy
        What is covered.
    protects : str
        What the kinds' noise hides: one example, or a client with all that it has.
    curator : str
        Who releases it, where that is not the ledger's owner.
    """

    policy: Policy
    protects: str = "example"
    curator: str = ""

    @property
    def most(self) -> int | None:
        return sum(self.policy.most.values()) if isinstance(self.policy, Plan) else None

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

    def enter(self, ledger: Any, receipt: Receipt) -> None:
        ledger.charge(receipt.kind)

    def counted(self, ledger: Any) -> Counted:
        found: Counted = ledger.counts
        return found


@dataclass(frozen=True)
class StreamCharges:
    """The records of one stream of noise, with a line for each of those whose data they hold."""

    stream: StreamKind
    owners: tuple[str, ...]

    @property
    def most(self) -> int | None:
        return self.stream.records

    def refusal(self, counts: Counted, receipt: Receipt) -> str | None:
        if receipt.kind != self.stream:
            return f"release refused: not in the plan ({receipt.kind.describe()})"
        if counts.get(self.stream, 0) < self.stream.records:
            return None
        return f"release refused: the stream was opened for {self.stream.records} records"

    def lines(self, owner: str, counts: Counted) -> list[dict[str, Any]]:
        releases, kind = counts.get(self.stream, 0), self.stream.describe()
        return [{"node": agent, "unit": owner, "releases": releases, **kind} for agent in self.owners]

    def enter(self, ledger: Any, receipt: Receipt) -> None:
        _check_law(self, self.stream, ledger, receipt)
        ledger.charge()

    def counted(self, ledger: Any) -> Counted:
        return {self.stream: ledger.releases}


@dataclass(frozen=True)
class SumCharges:
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

    def refusal(self, counts: Counted, receipt: Receipt) -> str | None:
        if receipt.kind != self.noise:
            return f"masked sum refused: not in the plan ({receipt.kind.describe()})"
        if counts.get(self.noise, 0) < self.sums:
            return None
        return f"masked sum refused: the ledger was opened for {self.sums}"

    def lines(self, owner: str, counts: Counted) -> list[dict[str, Any]]:
        found = {"node": owner, "to": "own server", "releases": counts.get(self.noise, 0), "most": self.sums}
        return [found | self.noise.describe()]

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

    @property
    def each(self) -> ReleaseCharges:
        """What the line of one owner is opened for."""
        return ReleaseCharges(self.policy, "client", self.curator)

    @property
    def most(self) -> int | None:
        return self.each.most

    def refusal(self, counts: Counted, receipt: Receipt) -> str | None:
        owned: Any = counts
        for owner in receipt.owners:
            own = {kind: count for (name, kind), count in owned.items() if name == owner}
            if (reason := self.each.refusal(own, receipt)) is not None:
                return f"{owner}: {reason}"
        return None

    def lines(self, owner: str, counts: Counted) -> list[dict[str, Any]]:
        owned: Any = counts
        return [
            line
            for name in self.owners
            for line in self.each.lines(name, {kind: n for (of, kind), n in owned.items() if of == name})
        ]

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
class NoCharges:
    """Of a party that is charged nothing itself, such as an agent whose server is charged for it."""

    @property
    def most(self) -> int:
        return 0

    def refusal(self, counts: Counted, receipt: Receipt) -> str:
        return "release refused: nothing is planned"

    def lines(self, owner: str, counts: Counted) -> list[dict[str, Any]]:
        return []

    def enter(self, ledger: Any, receipt: Receipt) -> None:
        raise AssertionError("nothing is ever charged here")

    def counted(self, ledger: Any) -> Counted:
        return {}


NO_CHARGES = NoCharges()
"""Of all such parties."""
