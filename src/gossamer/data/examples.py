"""Content of a file before labels become class numbers, and the checks that every format shares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from gossamer.errors import DataError

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


Labels = npt.NDArray[Any]
"""[n] of float64 or str."""

Owners = npt.NDArray[np.str_] | npt.NDArray[np.int64]
"""[n]; sorted as text, or by number."""


@dataclass(frozen=True, eq=False)
class Places:
    """Places of examples, for errors.

    Attributes
    ----------
    source : str
        The file, or the argument.
    numbers : ndarray [n] of int64
        The line or the row of each example.
    unit : str
        Unit that is numbered: ``line`` or ``row``.
    """

    source: str
    numbers: npt.NDArray[np.int64]
    unit: str = "line"

    def at(self, example: int) -> str:
        """Place of an example, counted from 0."""
        return f"{self.source}{', ' if self.source else ''}{self.unit} {self.numbers[example]}"

    def take(self, chosen: npt.NDArray[np.bool_]) -> Places:
        """Places of those examples that are ``chosen`` [n]."""
        return Places(self.source, self.numbers[chosen], self.unit)


@dataclass(frozen=True, eq=False)
class Labelled:
    """Examples as a file gives them.

    Attributes
    ----------
    features : ndarray [n, ...] of float32, or csr_array [n, features] of float32
        One example a row.
    labels : ndarray [n] of float64 or str
        The label or the real target as it is written.
    owners : ndarray [n] of str or int64, optional
        Owner of each example, where the file says so.
    persons : ndarray [n] of str or int64, optional
        Person that each example is about, where the file says so.
    names : tuple of str
        Names of a table's features, in order.
    sources : tuple of str
        The columns that they were made of.
    target : str, optional
        The column of the labels.
    places : Places, optional
        Places where they stand, if that can be told.
    """

    features: Features
    labels: Labels
    owners: Owners | None = None
    persons: Owners | None = None
    names: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    target: str | None = None
    places: Places | None = None


Pair = tuple[Labelled, Labelled | None]
"""Training examples, and test examples where the files have some."""


def as_float32(values: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """``values`` as float32; what is too large for it becomes infinite, for `require_finite` to find."""
    with np.errstate(over="ignore"):
        return np.asarray(values).astype(np.float32)


def with_entries(features: sp.csr_array, entries: npt.NDArray[np.float32]) -> sp.csr_array:
    """CSR features with other values, [stored], in the same places."""
    return sp.csr_array((entries, features.indices, features.indptr), shape=features.shape)


def require_finite(features: Features, place: Callable[[int, int], str]) -> None:
    """Refuse NaN and infinite features.

    Parameters
    ----------
    features : ndarray [n, ...] or csr_array [n, features]
        Features to check.
    place : callable
        Names where a value came from, given its row and its column, both counted from 0.

    Raises
    ------
    DataError
        For the first value that is not finite.
    """
    values = np.ravel(features.data if isinstance(features, sp.csr_array) else features)
    finite = np.isfinite(values)
    if finite.all():
        return
    first = int(np.argmin(finite))
    if isinstance(features, sp.csr_array):
        row = int(np.searchsorted(features.indptr, first, side="right")) - 1
        column = int(features.indices[first])
    else:
        row, column = divmod(first, values.size // len(features))
    raise DataError(
        f"{place(row, column)}: expected a finite number that fits float32, found {values[first]}; "
        "correct the value or leave the example out"
    )
