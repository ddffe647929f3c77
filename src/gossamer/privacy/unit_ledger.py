"""The ledger of a federated unit: one stream of noise, opened for so many records, with a line for each agent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from gossamer.errors import BudgetSpent, SpecError
from gossamer.numbers import whole_number
from gossamer.privacy.noise_streams import CorrelatedNoise


@dataclass(frozen=True)
class StreamKind:
    """What a stream releases, as data.

    Attributes
    ----------
    noise : CorrelatedNoise or None
        Of all records together; None adds nothing, and nothing is guaranteed.
    records : int
        For how many it is opened.
    size : int
        Coordinates of a record.

    Raises
    ------
    SpecError
        If the number of records is none.
    """

    noise: CorrelatedNoise | None
    records: int
    size: int

    def __post_init__(self) -> None:
        if whole_number(self.records) is None:
            raise SpecError(f"a stream is opened for a whole number of records, 0 or more, found {self.records!r}")
        if whole_number(self.size) is None:
            raise SpecError(f"a stream is on a whole number of coordinates, found {self.size!r}")

    def describe(self) -> dict[str, Any]:
        """The kind as plain data, for ledgers and summaries."""
        law = {"mechanism": "none"} if self.noise is None else {"mechanism": "stream", **self.noise.describe()}
        return {**law, "records": self.records, "size": self.size}


class AnyUnitLedger(Protocol):
    """Count of the records of a unit's stream, in memory (`UnitLedger`) or on disk."""

    @property
    def owner(self) -> str:
        """The unit's server."""
        ...

    @property
    def agents(self) -> tuple[str, ...]:
        """Whose data each record holds."""
        ...

    @property
    def stream(self) -> StreamKind:
        """Opened for all rounds, before the first."""
        ...

    @property
    def releases(self) -> int:
        """Records charged."""
        ...

    def charge(self) -> None:
        """Charge the next record, or raise `BudgetSpent`. Only after this returns may its noise be drawn."""
        ...

    def lines(self) -> list[dict[str, Any]]:
        """One record an agent, for ``ledger.jsonl``."""
        ...


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
            raise BudgetSpent(f"{self.owner}: release refused: the stream was opened for {self.stream.records} records")
        self.releases += 1

    def lines(self) -> list[dict[str, Any]]:
        """One record an agent, for ``ledger.jsonl``."""
        kind = self.stream.describe()
        return [{"node": agent, "unit": self.owner, "releases": self.releases, **kind} for agent in self.agents]
