"""Examples: as a file gives them, as an objective gets them, whose they are, and which are kept for testing."""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from gossamer.arrays import BoolArray, IntArray
from gossamer.errors import DataError, RunWarning, counted

Features: TypeAlias = npt.NDArray[np.float32] | sp.csr_array
"""[n, ...] float32: dense rows (of any shape), or a CSR array [n, features]."""


@dataclass(frozen=True, eq=False)
class Split:
    """Examples and targets, row for row.

    Attributes
    ----------
    features : ndarray [n, ...] of float32, or csr_array [n, features] of float32
        One example a row. Images keep their shape, [n, channels, height, width].
    targets : ndarray [n], or [n, ...] of several targets an example
        Class numbers 0..classes-1 (int64) or real values (float32).
    """

    features: Features
    targets: IntArray | npt.NDArray[np.float32]

    def __len__(self) -> int:
        return int(self.targets.shape[0])

    @property
    def sparse(self) -> bool:
        """Whether the features are held in CSR form."""
        return bool(sp.issparse(self.features))

    @property
    def arrays(self) -> list[npt.NDArray[Any]]:
        """All that it is held in."""
        held: Any = self.features
        return [*((held.data, held.indices, held.indptr) if self.sparse else (held,)), self.targets]


Labels = npt.NDArray[Any]
"""[n] of float64 or str."""

Owners = npt.NDArray[np.str_] | IntArray
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
    numbers: IntArray
    unit: str = "line"

    def at(self, example: int) -> str:
        """Place of an example, counted from 0."""
        return f"{self.source}{', ' if self.source else ''}{self.unit} {self.numbers[example]}"

    def take(self, chosen: BoolArray | slice) -> Places:
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
        The label or the real target as it is written; empty where nobody asked for it.
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
    outside : dict of str to int
        Number of values of each column that are outside of its range, where they were counted.
    beside : dict of str to ndarray [n] of str
        Cells of further columns, where somebody asked for them.
    """

    features: Features
    labels: Labels
    owners: Owners | None = None
    persons: Owners | None = None
    names: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    target: str | None = None
    places: Places | None = None
    outside: Mapping[str, int] = field(default_factory=dict)
    beside: Mapping[str, npt.NDArray[np.str_]] = field(default_factory=dict)

    def take(self, chosen: BoolArray | slice) -> Labelled:
        """Those of the examples that are ``chosen`` [n]."""
        owners, persons = (None if who is None else who[chosen] for who in (self.owners, self.persons))
        features, labels = self.features[chosen], self.labels[chosen]
        places = None if self.places is None else self.places.take(chosen)
        return replace(self, features=features, labels=labels, owners=owners, persons=persons, places=places)


def are_numbers(labels: Iterable[int | str]) -> bool:
    """Whether all ``labels`` are numbers, so that 1 and 1.0 are the same one."""
    try:
        return all(math.isfinite(float(label)) for label in labels)
    except ValueError:
        return False


def written(label: np.float64 | np.str_ | float | str) -> str:
    """A label as a person writes it: whole numbers without a point."""
    return str(int(label)) if isinstance(label, float) and label.is_integer() else str(label)


Pair = tuple[Labelled, Labelled | None]
"""Training examples, and test examples where the files have some."""


def as_float32(values: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """``values`` as float32, copied only if they are not; what is too large is infinite, for `require_finite`."""
    with np.errstate(over="ignore"):
        return np.asarray(values).astype(np.float32, copy=False)


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


def hold_out(
    name: str, examples: Labelled, fraction: float, *, by_class: bool, by_owner: bool = False
) -> tuple[Labelled, Labelled]:
    """Examples to train on and to test on.

    Parameters
    ----------
    name : str
        Name of the data set, for the error.
    examples : Labelled
        All of them.
    fraction : float
        Share that is held out for testing, in (0, 1); see `held_out`.
    by_class : bool
        Whether each class has that share held out.
    by_owner : bool
        Whether each owner has, whatever its classes, and one example at least.

    Raises
    ------
    DataError
        If there are too few of them, or nobody knows their owners.
    """
    labels, owners = examples.labels, examples.owners
    strata: npt.NDArray[Any] = labels if by_class else np.zeros(len(labels))
    if by_owner:
        if owners is None:
            raise DataError(f"data set {name!r}: dataset.test_by: owner needs to know whose rows are; give an owner")
        strata = owners
    tested = held_out(strata, fraction, examples.persons, each=by_owner)
    if owners is not None:
        tested = without_last(tested, owners, examples.persons)
        if by_owner and (bare := np.setdiff1d(owners, owners[tested])).size:
            raise DataError(
                f"data set {name!r}: dataset.test_by: owner expects two rows or more of each owner, of two persons "
                f"where persons are known, found too few of {bare[0]}; leave these out, or test_by"
            )
    if not tested.any():
        whole = "" if examples.persons is None else ", with all examples of a person,"
        raise DataError(
            f"data set {name!r}: {counted(len(labels), 'example is', 'examples are')} too few to hold out "
            f"{fraction:g} of each class{whole} for testing; raise test_fraction or give test_path"
        )
    return examples.take(~tested), examples.take(tested)


def held_out(
    strata: npt.NDArray[np.generic], fraction: float, persons: Owners | None = None, *, each: bool = False
) -> BoolArray:
    """Whether each example is kept for testing, [n]: ``floor(fraction * size)`` of each stratum, always the same.

    Parameters
    ----------
    strata : ndarray [n]
        The class of each example, or a constant.
    fraction : float
        Share that is held out, in (0, 1), so that no stratum loses its last example.
    persons : ndarray [n], optional
        Person that each example is about. All of a person's examples are then held out or none, and a person belongs to
        the stratum of its first example; of each stratum as many are held out as fit.
    each : bool
        Whether one is held out of each stratum at least, where it has another one, or another person.

    Notes
    -----
    Each example has a key that depends on its position alone, and the smallest keys of each stratum are held
    out; a person has the key of its first example. The keys are a hash's bytes and not a generator's, whose draws may
    change between NumPy releases.
    """
    size = len(strata)
    keys = np.frombuffer(hashlib.shake_128(b"gossamer test split").digest(8 * size), "<u8")
    if persons is not None:
        return _persons_held_out(strata, fraction, persons, keys, each)
    _, stratum, counts = np.unique(strata, return_inverse=True, return_counts=True)
    order = np.lexsort((keys, stratum))
    rank = np.empty(size, np.int64)
    rank[order] = np.arange(size) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.asarray(rank < np.maximum(_quotas(counts, fraction), each & (counts > 1))[stratum])


def without_last(tested: BoolArray, owners: Owners, persons: Owners | None = None) -> BoolArray:
    """The choice ``tested`` [n] without the first row of each of ``owners`` [n] that would have none to train on.

    Where ``persons`` [n] are known, all rows of that row's person are trained on.
    """
    _, first, owner = np.unique(owners, return_index=True, return_inverse=True)
    left = np.bincount(owner, weights=~tested, minlength=len(first))
    back = np.zeros(len(tested), np.bool_)
    back[first[left == 0]] = True
    if persons is not None and back.any():
        back = np.isin(persons, persons[back])
    return tested & ~back


def _quotas(counts: IntArray, fraction: float) -> IntArray:
    # A little is added so that 0.3 of 10 is 3 although 0.3 is stored as less.
    return np.asarray(np.floor(fraction * counts + 1e-9), np.int64)


def _persons_held_out(
    strata: npt.NDArray[np.generic], fraction: float, persons: Owners, keys: npt.NDArray[np.uint64], each: bool
) -> BoolArray:
    _, first, person, rows = np.unique(persons, return_index=True, return_inverse=True, return_counts=True)
    _, stratum = np.unique(strata[first], return_inverse=True)
    left = _quotas(np.bincount(stratum, weights=rows).astype(np.int64), fraction)
    chosen = np.zeros(len(first), np.bool_)
    for number in np.argsort(keys[first]):
        if rows[number] <= left[stratum[number]]:
            left[stratum[number]] -= rows[number]
            chosen[number] = True
    bare = each & (np.bincount(stratum) > 1) & (np.bincount(stratum, weights=chosen) == 0)
    for number in np.argsort(keys[first]):
        chosen[number] |= bare[stratum[number]]
        bare[stratum[number]] = False
    return np.asarray(chosen[person])


def warn_of_shared_persons(name: str, train: Owners | None, test: Owners | None) -> None:
    """Warn where persons of the data set ``name`` have examples to train on and to test on: tests then flatter.

    A split that the data come with is the reader's own, so it is taken as it is.
    """
    if train is None or test is None:
        return
    shared = len(np.intersect1d(train.astype(np.str_), test.astype(np.str_)))
    if shared:
        warnings.warn(
            f"{name}: {counted(shared, 'person')} with training and test examples; test figures will look "
            "better than they are, and no guarantee covers test examples",
            RunWarning,
            stacklevel=3,
        )


def check_persons(persons: Owners, rows: int, where: str) -> None:
    """Refuse examples of ``persons`` [n] of which one has more than ``rows``; ``where`` they are, for the error.

    Raises
    ------
    DataError
        If there is such a person; it says how many, and not who.
    """
    _, counts = np.unique(persons, return_counts=True)
    over = int(np.sum(counts > rows))
    if over:
        raise DataError(
            f"{where}: expected at most {counted(rows, 'training example')} of one person, as "
            f"budget.rows_per_person says, found {counted(over, 'person')} with more, up to {counts.max()}; "
            "raise it, or leave examples out"
        )


def check_held_out_persons(train: Owners | None, test: Owners | None, rows: int, where: str) -> None:
    """Refuse persons with examples on both sides, or who may have, or with more than ``rows`` that are held out.

    Raises
    ------
    DataError
        If there is such a person, or nobody knows; of one example each, that is an assumption where none are named.
    """
    if rows == 1 and train is None:
        return
    if train is None or test is None:
        raise DataError(
            f"{where}: evaluation.release: private with budget.rows_per_person needs to know whose examples are held "
            "out; name dataset.person, so that nobody's are on both sides"
        )
    both = len(np.intersect1d(train.astype(np.str_), test.astype(np.str_)))
    many = int(np.unique(test, return_counts=True)[1].max())
    if both or many > rows:
        on_both = f"{counted(both, 'person')} with examples to train on and held out"
        raise DataError(
            f"{where}: evaluation.release: private expects at most {counted(rows, 'held-out example')} of one person, "
            f"and none to train on, found {on_both if both else f'a person with {many} of them'}; leave examples out, "
            "or raise budget.rows_per_person"
        )
