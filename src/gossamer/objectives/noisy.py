"""Sums that get their noise where they are computed, such as on a graphics card: for simulations only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from gossamer.arrays import FloatArray, IndexArray
from gossamer.data.split import Split
from gossamer.objectives.asked import Gradients


class Normals(NamedTuple):
    """Normal noise for each row of a sum, as `gossamer.normals` makes it.

    Attributes
    ----------
    keys : ndarray [width, 2] of uint64
        Key and label of the numbers of each row.
    deviations : ndarray [width] of float64
        Standard deviation of each row's noise; 0 for a row without.
    """

    keys: npt.NDArray[np.uint64]
    deviations: npt.NDArray[np.float64]


@runtime_checkable
class NoisyObjective(Protocol):
    """An objective that adds normal noise to its sums itself."""

    def noisy_gradients(
        self,
        models: FloatArray,
        data: Split,
        batches: Sequence[IndexArray],
        clips: npt.NDArray[np.floating],
        noise: Normals,
    ) -> Gradients:
        """`Objective.clipped_gradients` with the ``noise`` of each row on its sum."""
        ...
