"""Examples as the compiled loops of linear models take them: checked, and beside them the loops for their layout."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from gossamer.arrays import IndexArray
from gossamer.data.examples import Split
from gossamer.errors import DataError
from gossamer.objectives.linear import kernels as kernels
from gossamer.objectives.linear.losses import TargetArray


@dataclass(frozen=True, eq=False)
class LinearExamples:
    """A split that was found valid, as the loops take it.

    Attributes
    ----------
    matrix : ndarray or csr_array [n, features]
        The features.
    targets : ndarray [n] of float64
        Class numbers or real values.
    arrays : tuple of ndarray
        Arrays of the matrix, as the loops take them.
    intercept : bool
        Whether models have a bias.
    """

    matrix: Any
    targets: TargetArray
    arrays: tuple[npt.NDArray[Any], ...]
    intercept: bool

    @cached_property
    def of_steps(self) -> tuple[npt.NDArray[Any], ...]:
        """Arrays as the loops of single steps take them: beside dense rows their squared norms."""
        if sp.issparse(self.matrix):
            return self.arrays
        squares = np.empty(len(self.targets))
        kernels.dense_squares(self.arrays[0], self.intercept, squares)
        return (*self.arrays, frozen(squares))

    @classmethod
    def of(cls, split: Split, features: int, classes: int | None, intercept: bool) -> LinearExamples:
        """The examples of ``split``, for models of so many features, with or without an intercept.

        Raises
        ------
        DataError
            If they do not fit, or are malformed.
        """
        matrix = _matrix(split, features)
        targets = _targets(split, classes)
        arrays = (matrix.data, matrix.indices, matrix.indptr) if sp.issparse(matrix) else (matrix,)
        return cls(matrix, frozen(targets), tuple(map(frozen, arrays)), intercept)


def _matrix(split: Split, features: int) -> Any:
    """The features as an ndarray or csr_array [n, features], checked."""
    matrix: Any = split.features
    if matrix.dtype != np.float32:
        raise DataError(f"features must be float32, found {matrix.dtype}; convert with astype(numpy.float32)")
    if matrix.shape[0] != len(split) or math.prod(matrix.shape[1:]) != features:
        raise DataError(f"expected features [{len(split)}, {features}], found {list(matrix.shape)}")
    if not sp.issparse(matrix):
        return np.ascontiguousarray(matrix.reshape(len(split), features))
    matrix = sp.csr_array(matrix)
    try:
        matrix.check_format(full_check=True)
    except ValueError as problem:
        raise DataError(f"the CSR features are malformed ({problem}); build them anew") from None
    # Two entries a, b in one place would count a^2 + b^2 in the norm, less than the true (a + b)^2.
    if not matrix.has_canonical_format:
        raise DataError("CSR features must be sorted and without duplicates; call sum_duplicates() on them")
    return matrix


def _targets(split: Split, classes: int | None) -> TargetArray:
    """A copy of the targets, so that a class number stays one that the kernels may index with."""
    targets = np.array(split.targets, np.float64)
    if targets.ndim != 1:
        raise DataError(f"expected one target an example, found targets {list(targets.shape)}")
    if classes is None:
        return targets
    known = (targets >= 0) & (targets < classes) & (targets == np.floor(targets))
    if not known.all():
        raise DataError(
            f"targets must be classes 0..{classes - 1}, found {targets[~known][0]:g}; "
            "relabel the targets or change the number of classes"
        )
    return targets


def packed(batches: Sequence[IndexArray], count: int) -> tuple[IndexArray, IndexArray]:
    """Ragged batches as (starts [width + 1], packed), with every index in 0..count-1."""
    starts = np.zeros(len(batches) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, batches), np.int64, len(batches)), out=starts[1:])
    packed = np.concatenate((starts[:0], *batches), dtype=np.int64, casting="same_kind")
    if packed.size and not 0 <= packed.min() <= packed.max() < count:
        raise DataError(f"batch indices must be in 0..{count - 1}, found {packed.min()}..{packed.max()}")
    return starts, packed


def frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A read-only view: a kernel is compiled anew for each mixture of writable and read-only arguments."""
    view = array.view()
    view.setflags(write=False)
    return view


def writable(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The array, or a copy of one that is read-only: for small arrays, whose views cost more than some loops do."""
    return array if array.flags.writeable else array.copy()
