"""A release as data: which noise law, on which sample. Accounting happens elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gossamer.errors import AccountingError, SpecError, whole_number
from gossamer.privacy.mechanisms import Mechanism
from gossamer.privacy.sampling import BatchSampling
from gossamer.protocol.snapshots import kept_whole


@kept_whole
@dataclass(frozen=True)
class ReleaseKind:
    """One kind of release. Several queries answered from one sample are one release.

    Attributes
    ----------
    mechanism : Mechanism
        The noise law; its `unit` where it is in proportion to the clip, which may then change from one release to the
        next.
    sampling : BatchSampling
        Way in which the batch was drawn.
    size : int
        Number of coordinates that get noise; it matters to the Laplace laws.

    Raises
    ------
    SpecError
        If the size is no whole number.
    """

    mechanism: Mechanism
    sampling: BatchSampling
    size: int

    def __post_init__(self) -> None:
        if whole_number(self.size) is None:
            raise SpecError(f"a release has a whole number of coordinates, 0 or more, found {self.size!r}")

    def __hash__(self) -> int:
        """Hash of the fields, computed once: ledgers look a kind up at every charge."""
        found: int | None = self.__dict__.get("_hash")
        if found is None:
            found = hash((self.mechanism, self.sampling, self.size))
            object.__setattr__(self, "_hash", found)
        return found

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields alone: strings have other hashes in other processes."""
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_")}

    def describe(self) -> dict[str, Any]:
        """The kind as plain data, for ledgers and summaries."""
        found: dict[str, Any] | None = self.__dict__.get("_described")
        if found is None:
            law = self.mechanism.describe()
            if self.mechanism.scale_free:
                del law["clip"]
            found = {**law, **self.sampling.describe(), "size": self.size}
            object.__setattr__(self, "_described", found)  # a large population has one kind, and many ledgers
        return dict(found)


Counts = Mapping[ReleaseKind, int]
"""How many releases of each kind."""


def checked_counts(counts: Counts) -> dict[ReleaseKind, int]:
    """``counts`` as integers. A count below 0 would pay for other releases.

    Raises
    ------
    AccountingError
        If one is not a number of releases.
    """
    found = {}
    for kind, count in counts.items():
        number = whole_number(count)
        if number is None:
            raise AccountingError(f"a count of releases is a whole number, 0 or more; found {count!r} of {kind}")
        found[kind] = number
    return found


def added(counts: Counts, more: Counts) -> dict[ReleaseKind, int]:
    """Counts of both together."""
    return {kind: counts.get(kind, 0) + more.get(kind, 0) for kind in {**counts, **more}}
