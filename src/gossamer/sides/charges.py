"""Charges as data: a receipt of one, and what every rule of charging answers."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple, Protocol

from gossamer.privacy.mechanisms import NeighboringRelation
from gossamer.privacy.releases import Counts, ReleaseKind
from gossamer.privacy.streams.agent_noise import AgentNoise
from gossamer.privacy.streams.noise_streams import StreamKind

Kind = ReleaseKind | StreamKind | AgentNoise
"""A law that something is released by."""


class Receipt(NamedTuple):
    """Charge of a release, before it is drawn.

    Attributes
    ----------
    kind : ReleaseKind, StreamKind or AgentNoise
        The law.
    owners : tuple of str
        Whose data it holds, where that is not the ledger's owner alone and differs from one release to the next.
    clip : float or None
        To which length vectors are clipped for it, where the law is for any clip.
    """

    kind: Kind
    owners: tuple[str, ...] = ()
    clip: float | None = None


Counted = Mapping[Hashable, int]
"""How often each law was charged."""


class Accounts(Protocol):
    """Durable accounts that one run is given, as what it is charged opens them."""

    @property
    def relation(self) -> NeighboringRelation:
        """Relation by which data sets count as neighbours."""
        ...

    def releases(self, owner: str, most: Counts, part: str = "") -> Any:
        """An account of so many releases of each kind; of a ``part`` of the data set, if it is named."""
        ...

    def stream(self, owner: str, stream: StreamKind) -> Any:
        """An account of the records of a stream."""
        ...

    def sums(self, owner: str, noise: AgentNoise | None, most: int) -> Any:
        """An account of all that a plan reveals, and of so many sums that the owner adds noise to itself."""
        ...


class Charges(Protocol):
    """Rules of charging that a ledger is opened for."""

    @property
    def most(self) -> int | None:
        """Most releases; None where nothing limits them."""
        ...

    @property
    def law(self) -> Kind | None:
        """The one law that is charged; None where each receipt says which."""
        return None

    def refusal(self, counts: Counted, receipt: Receipt) -> str | None:
        """Reason that one more release is not covered, as a clause; None if it is."""
        ...

    def lines(self, owner: str, counts: Counted) -> list[dict[str, Any]]:
        """Records for ``ledger.jsonl``."""
        ...

    def planned(self) -> Mapping[Any, int] | None:
        """The most releases of each law; None where nothing limits them."""
        ...

    def party(self) -> dict[str, Any]:
        """Words of receipts: the unit that noise protects, the observer it is from, and of others' data, whose."""
        ...

    def owned(self, counts: Counted, owner: str) -> int:
        """Number of the releases that hold the data of ``owner``."""
        ...

    def opened(self, owner: str, accounts: Accounts) -> Any:
        """The durable ledger of it all; None where nothing is proved, and so nothing can be held to a plan.

        Raises
        ------
        SpecError
            If the accounts do not count what one example moves a whole client's update by.
        """
        ...

    def enter(self, ledger: Any, receipt: Receipt) -> None:
        """Charge a durable ledger, which knows itself what it was opened for."""
        ...

    def counted(self, ledger: Any) -> Counted:
        """Return what a durable ledger was charged, by kind."""
        ...

    def charged(self, ledger: Any) -> int:
        """Number of releases that a durable ledger was charged."""
        ...
