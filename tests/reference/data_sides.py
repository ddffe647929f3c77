"""The data sides that `gossamer.sides` was measured against: references for its bytes, and nothing else."""

from __future__ import annotations

import numpy as np

from gossamer.objectives.objective import IndexArray
from gossamer.privacy.data_side import Admitted, AdmittedRound, DataSide
from gossamer.privacy.ledger import Ledger
from gossamer.privacy.round_answers import Turns


class BlankingSide(DataSide):
    """A data side some of whose slots are blank: they count in the shard's size and are sampled, and hold nothing.

    Parameters
    ----------
    blank : ndarray of int64
        Rows of the training split.
    ledger, shard, seed
        As for `DataSide`.
    """

    __slots__ = ("_blank",)

    def __init__(self, blank: IndexArray, ledger: Ledger, shard: IndexArray, seed: int) -> None:
        super().__init__(ledger, shard, seed)
        self._blank = blank

    def batch(self, admitted: Admitted) -> IndexArray:
        rows = super().batch(admitted)
        return rows[~np.isin(rows, self._blank)]

    def turns(self, admitted: AdmittedRound) -> Turns:
        rows, slots = super().turns(admitted)
        held = ~np.isin(rows, self._blank)
        return Turns(rows[held], slots[held])
