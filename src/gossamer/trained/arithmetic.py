"""From the numbers of a row to what a model gets, as arrays: for programs that have no Gossamer.

The inputs of a row are, in order, what the declared columns say: a number as it is in the table, 1 or 0 for a truth
value, and for a category a number for each of its texts, 1 for the one that the cell has and 0 for the others. Of data
without columns they are the features as they are in the file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gossamer.data.columns import Column
from gossamer.data.declaration import Declaration

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Arithmetic:
    """Steps from inputs to features, in this order; each array is [inputs], or [1] where all are alike.

    Attributes
    ----------
    filling : ndarray
        Read in the place of NaN; NaN itself where nothing is.
    low, high : ndarray
        What lower and higher inputs are taken for.
    shift, unit : ndarray
        What is taken off an input, and what the rest is divided by.
    unit_norm : bool
        Whether each row is then divided by its L2 norm, unless that is zero.
    shape : tuple of int
        Of an example; inputs have it, too.
    columns : bool
        Whether inputs come from a table: float64, since such numbers may be large and close to each other. Others are
        float32, as in their files.
    """

    filling: Floats
    low: Floats
    high: Floats
    shift: Floats
    unit: Floats
    unit_norm: bool
    shape: tuple[int, ...]
    columns: bool

    @classmethod
    def of(cls, data: Declaration) -> Arithmetic:
        """Steps that a declaration asks for."""
        if data.columns is not None:
            scaled = data.scale is None or data.scale.name != "none"
            each = [step for column in data.columns.values() for step in _of_column(column, scaled)]
        else:
            each = [(math.nan, -math.inf, math.inf, 0.0, 1.0)]
        filling, low, high, shift, unit = np.array(each, np.float64).T
        constant = data.scale if data.scale is not None and data.scale.name == "constant" else None
        if constant is not None:
            of_all = Column(range=constant.range, mean=constant.mean, deviation=constant.deviation)
            ((_, least, most, off, by),) = _of_column(of_all, True)
            low, high = np.full_like(low, least), np.full_like(high, most)
            shift, unit = np.full_like(shift, off), np.full_like(unit, by)
        elif data.divisor != 1:
            unit = unit * data.divisor
        norm = data.normalise == "unit_norm"
        return cls(filling, low, high, shift, unit, norm, data.shape, data.columns is not None)

    @property
    def clips(self) -> bool:
        """Whether some input is bounded."""
        return bool(np.isfinite([self.low, self.high]).any())

    @property
    def fills(self) -> bool:
        """Whether NaN is read as something else somewhere."""
        return bool((~np.isnan(self.filling)).any())

    @property
    def scales(self) -> bool:
        """Whether inputs are moved or divided."""
        return bool((self.shift != 0).any() or (self.unit != 1).any())


def _of_column(column: Column, scaled: bool) -> Iterator[tuple[float, float, float, float, float]]:
    """Filling, least, most, shift and unit of each input of a column."""
    if column.categories is not None:
        yield from [(math.nan, -math.inf, math.inf, 0.0, 1.0)] * len(column.categories)
        return
    filling = math.nan if column.missing is None else float(column.missing)
    low, high = column.range if scaled and column.range is not None else (-math.inf, math.inf)
    shift, unit = column.shift_and_unit if scaled else (0.0, 1.0)
    yield filling, low, high, shift, unit
