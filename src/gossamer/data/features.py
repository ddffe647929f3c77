"""Steps on features, each of which uses the example itself and public constants only."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from gossamer.data.columns import Constants
from gossamer.data.settings import Layout
from gossamer.data.split import Features
from gossamer.errors import DataError

# Below this share of non-zero entries a CSR row is cheaper to use than a dense one.
_SPARSE_BELOW = 0.1


def choose_layout(features: Features) -> Layout:
    """``sparse`` for CSR features of which fewer than one entry in ten is stored, else ``dense``."""
    if isinstance(features, sp.csr_array):
        rows, columns = features.shape
        return "sparse" if features.nnz < _SPARSE_BELOW * rows * columns else "dense"
    return "dense"


def as_layout(features: Features, layout: Layout) -> Features:
    """``features`` dense or as CSR.

    Raises
    ------
    DataError
        If pictures are asked for as CSR.
    """
    if layout == "dense":
        return features.toarray() if isinstance(features, sp.csr_array) else features
    if features.ndim != 2:
        raise DataError(f"examples of shape {list(features.shape[1:])} have no sparse layout; say layout: dense")
    return sp.csr_array(features)


def divided(features: Features, divisor: float) -> Features:
    """``features / divisor``, in float32; whether the result is finite is for the caller to check."""
    with np.errstate(all="ignore"):
        if isinstance(features, sp.csr_array):
            return with_entries(features, features.data / np.float32(divisor))
        return features if divisor == 1 else features / np.float32(divisor)


def by_constants(features: Features, constants: Constants) -> Features:
    """Features [n, ...] clipped and scaled by the same constants; whether they are finite is for the caller to check.

    Raises
    ------
    DataError
        If sparse features would lose their zeros.
    """
    shift, unit = constants.shift_and_unit

    def scaled(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        with np.errstate(all="ignore"):
            if constants.range is not None:
                low, high = map(np.float32, constants.range)
                values = values.clip(low, high)
            return (values - np.float32(shift)) / np.float32(unit)

    if not isinstance(features, sp.csr_array):
        return scaled(features)
    if shift != 0:
        raise DataError(
            "dataset.scale takes zeros of sparse features for other numbers; say divide_by, a range around 0 such as "
            "[-1, 1], or layout: dense"
        )
    return with_entries(features, scaled(features.data))


def unit_norm(features: Features) -> Features:
    """Each row divided by its L2 norm (taken in float64); zero rows stay zero."""
    if isinstance(features, sp.csr_array):
        norms = np.sqrt(np.asarray(features.astype(np.float64).power(2).sum(axis=1)).ravel())
        return with_entries(features, features.data * np.repeat(_inverse(norms), np.diff(features.indptr)))
    rows = features.reshape(len(features), -1)
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
    return features * _inverse(norms).reshape(-1, *[1] * (features.ndim - 1))


def with_entries(features: sp.csr_array, entries: npt.NDArray[np.float32]) -> sp.csr_array:
    """CSR features with other values, [stored], in the same places."""
    return sp.csr_array((entries, features.indices, features.indptr), shape=features.shape)


def _inverse(norms: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    return np.divide(1, norms, out=np.zeros_like(norms), where=norms > 0).astype(np.float32)
