"""Records of correlated noise as a server keeps them, so that later ones can go on from them; see `streams.records`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from gossamer.arrays import FloatArray


@dataclass(frozen=True)
class Record:
    """Record of an answer: as private as the unit's data, of which it holds the state.

    Attributes
    ----------
    number : int
        From 0.
    state : ndarray [size] of float64
        s, raw.
    answer : ndarray [size] of float64
        M.
    """

    number: int
    state: FloatArray
    answer: FloatArray


class Records(Protocol):
    """Place that the newest records are kept in."""

    def kept(self) -> Sequence[Record]:
        """All that are kept, the oldest first."""
        ...

    def keep(self, record: Record, most: int) -> None:
        """Keep ``record``, and no more than the newest ``most``; it is durable when this returns."""
        ...


class Moves(Protocol):
    """Bound of how far one change of the data moves a unit's state in a round, such as `graph_bounds.UpdateBound`."""

    @property
    def moved(self) -> float | None:
        """D, in L2 norm; None where nothing is proved."""
        ...

    @property
    def agents_sampled(self) -> int:
        """L, agents whose updates are in a round."""
        ...
