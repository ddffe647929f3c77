"""The ledger of a federated unit: one stream of noise, opened for so many records, with a line for each agent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gossamer.errors import SpecError
from gossamer.numbers import whole_number
from gossamer.privacy.streams.noise_streams import CorrelatedNoise


@dataclass(frozen=True)
class StreamKind:
    """Kind of a stream's releases, as data.

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
