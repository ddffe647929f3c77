"""Types of arrays by their entries, for annotations."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.floating]
Floats = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
IndexArray = IntArray
"""Places of rows, examples or nodes, from 0."""
BoolArray = npt.NDArray[np.bool_]
