"""How a batch is drawn from a shard. Each scheme is paired with its accounting in `accountants`.

Schemes that no accountant here is proved for (shuffled passes, with replacement) do not exist.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gossamer.errors import SpecError

IndexArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Sampling:
    """Base of the sampling schemes."""

    @property
    def rate(self) -> float:
        """Probability that a given example is in the batch."""
        raise NotImplementedError

    def draw(self, generator: np.random.Generator, count: int) -> IndexArray:
        """Positions in a shard of ``count`` examples, [batch], sorted."""
        raise NotImplementedError

    def describe(self) -> dict[str, Any]:
        """The scheme as plain data, for ledgers and summaries."""
        return {"sampling": type(self).__name__, **asdict(self)}


@dataclass(frozen=True)
class Poisson(Sampling):
    """Every example is in the batch with probability ``probability``, independently; the batch may be empty."""

    probability: float

    def __post_init__(self) -> None:
        if not 0 < self.probability <= 1:
            raise SpecError(f"a Poisson sampling rate lies in (0, 1], found {self.probability!r}")

    @property
    def rate(self) -> float:
        return self.probability

    def draw(self, generator: np.random.Generator, count: int) -> IndexArray:
        # A binomial number of examples, chosen uniformly, has the same law as one coin per example.
        size = int(generator.binomial(count, self.probability))
        return np.sort(generator.choice(count, size, replace=False, shuffle=False)).astype(np.int64)


@dataclass(frozen=True)
class FixedSize(Sampling):
    """``batch_size`` distinct examples of ``dataset_size``, uniformly."""

    dataset_size: int
    batch_size: int

    def __post_init__(self) -> None:
        if not 0 < self.batch_size <= self.dataset_size:
            raise SpecError(
                f"a fixed-size batch needs 1 <= batch_size <= dataset_size, "
                f"found batch_size {self.batch_size} of {self.dataset_size}"
            )

    @property
    def rate(self) -> float:
        return self.batch_size / self.dataset_size

    def draw(self, generator: np.random.Generator, count: int) -> IndexArray:
        if count != self.dataset_size:
            raise SpecError(f"the shard holds {count} examples, but its sampling says {self.dataset_size}")
        return np.sort(generator.choice(count, self.batch_size, replace=False, shuffle=False)).astype(np.int64)
