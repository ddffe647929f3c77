"""Staleness of updates that shards make: how many others were made while each was computed, in the order of all."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gossamer.arrays import IndexArray
from gossamer.runtimes.activity import Counts, Histogram
from gossamer.runtimes.turns import BEGUN


class Ages:
    """Staleness of the updates of all nodes.

    Parameters
    ----------
    nodes : int
        How many there are.
    histogram : Histogram
        Where each age is counted.
    """

    def __init__(self, nodes: int, histogram: Histogram) -> None:
        self._histogram = histogram
        # Of each node: the updates of all before its computation, and the sum and number of its updates' staleness.
        self._before, self._sums, self._made = (np.zeros(nodes, np.int64) for _ in range(3))

    def add(self, nodes: IndexArray, flags: npt.NDArray[np.int8], ended: npt.NDArray[np.bool_], updates: int) -> None:
        """Count the ages of a window's updates.

        Parameters
        ----------
        nodes, flags, ended : ndarray [events]
            Of its events in the order of all: the node's number, `turns.Happened.flags`, and whether a computation was
            completed.
        updates : int
            Made before the window.
        """
        made = updates + np.cumsum(ended)
        place = np.flatnonzero(flags)
        place = place[np.argsort(nodes[place], kind="stable")]  # of each node one after the other
        whose, begun, done = nodes[place], flags[place] & BEGUN > 0, ended[place]
        follows = np.zeros(len(place), np.bool_)
        follows[1:] = whose[1:] == whose[:-1]
        before = np.empty(len(place), np.int64)  # of the computation that is completed
        before[1:] = made[place[:-1]]
        before[~follows] = self._before[whose[~follows]]
        ages = (made[place] - 1 - before)[done]
        np.add.at(self._sums, whose[done], ages)
        np.add.at(self._made, whose[done], 1)
        for age in ages.tolist():
            self._histogram.add(age)
        self._before[whose[begun]] = made[place[begun]]

    def tell(self, number: int, counts: Counts) -> None:
        """Write what is known of a node's updates into its counts."""
        counts.ages, counts.aged = int(self._sums[number]), int(self._made[number])

    def snapshot(self) -> tuple[Any, ...]:
        """Return all that changes, beside the histogram, as data that `protocol.snapshots` encodes."""
        return self._before, self._sums, self._made

    def restore(self, snapshot: tuple[Any, ...]) -> None:
        """Be as the ages were whose `snapshot` this is."""
        self._before, self._sums, self._made = snapshot
