"""A split of a dataset: examples as rows, with their targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

Features: TypeAlias = npt.NDArray[np.float32] | sp.csr_array
"""[n, ...] float32: dense rows (of any shape), or a CSR array [n, features]."""


@dataclass(frozen=True, eq=False)
class Split:
    """Examples and targets, row for row.

    Attributes
    ----------
    features : ndarray [n, ...] of float32, or csr_array [n, features] of float32
        One example a row. Images keep their shape, [n, channels, height, width].
    targets : ndarray [n]
        Class numbers 0..classes-1 (int64) or real values (float32).
    """

    features: Features
    targets: npt.NDArray[np.int64] | npt.NDArray[np.float32]

    def __len__(self) -> int:
        return int(self.targets.shape[0])

    @property
    def sparse(self) -> bool:
        """Whether the features are held in CSR form."""
        return bool(sp.issparse(self.features))
