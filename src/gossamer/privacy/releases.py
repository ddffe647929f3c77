"""A release as data: which noise law, on which sample. Accounting happens elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gossamer.privacy.mechanisms import Mechanism
from gossamer.privacy.sampling import Sampling


@dataclass(frozen=True)
class ReleaseKind:
    """One kind of release. Several queries answered from one sample are one release.

    Attributes
    ----------
    mechanism : Mechanism
        The noise law; its `unit` where it is in proportion to the clip, which may then change from one release to the
        next.
    sampling : Sampling
        How the batch was drawn.
    size : int
        Number of coordinates that get noise; it matters to the Laplace laws.
    """

    mechanism: Mechanism
    sampling: Sampling
    size: int

    def describe(self) -> dict[str, Any]:
        """The kind as plain data, for ledgers and summaries."""
        law = self.mechanism.describe()
        if self.mechanism.scale_free:
            del law["clip"]
        return {**law, **self.sampling.describe(), "size": self.size}


Counts = Mapping[ReleaseKind, int]
"""How many releases of each kind."""
