"""The base of partition schemes, and the examples that they look at."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gossamer.arrays import IndexArray
from gossamer.errors import DataError
from gossamer.section import Section


@dataclass(frozen=True)
class Population:
    """The targets, owners and persons of the training examples, [n] each, which schemes look at."""

    targets: npt.NDArray[np.generic]
    owners: npt.NDArray[np.generic] | None
    persons: npt.NDArray[np.generic] | None

    def __len__(self) -> int:
        return len(self.targets)

    def members(self, scheme: str) -> list[IndexArray]:
        """The examples of each class that occurs, in order of their numbers."""
        if self.targets.dtype.kind not in "iu":
            raise DataError(f"the {scheme} partition goes by class, but the targets are real numbers; take iid")
        order = np.argsort(self.targets, kind="stable")
        return np.split(order, np.flatnonzero(np.diff(self.targets[order])) + 1)


class Scheme(Section):
    """Base of the schemes, also of those that other distributions register in the group ``gossamer.partitions``.

    A class has a ``name: Literal["..."] = "..."``, its settings, and `assign`.
    """

    def assign(self, population: Population, nodes: int, generator: np.random.Generator) -> IndexArray:
        """The node of each example, [n]; -1 for one that no node gets."""
        raise NotImplementedError


def sizes_of(shares: npt.NDArray[np.float64], total: int) -> IndexArray:
    """Whole sizes in proportion to ``shares``: the running sum is rounded, so shares of 1 in all use all."""
    ends = np.floor(np.cumsum(shares) * total + 1e-6).astype(np.int64).clip(max=total)
    return np.diff(ends, prepend=0)
