"""From examples as files give them to targets and features, by settings alone: each party does just the same."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from gossamer.data.catalogue import KNOWN
from gossamer.data.columns import ScaleConstants
from gossamer.data.examples import Features, Labels, Owners, Places, with_entries
from gossamer.data.formats import default_divisor
from gossamer.data.settings import ConstantScale, DatasetSettings, Format, Layout
from gossamer.data.targets import TargetRange, class_labels, class_numbers, positive_classes, real_targets, written
from gossamer.errors import DataError, counted

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


def by_constants(features: Features, constants: ScaleConstants) -> Features:
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


def _inverse(norms: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    return np.divide(1, norms, out=np.zeros_like(norms), where=norms > 0).astype(np.float32)


def held_out(strata: npt.NDArray[np.generic], fraction: float, persons: Owners | None = None) -> npt.NDArray[np.bool_]:
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

    Notes
    -----
    Each example has a key that depends on its position alone, and the smallest keys of each stratum are held
    out; a person has the key of its first example. The keys are a hash's bytes and not a generator's, whose draws may
    change between NumPy releases.
    """
    size = len(strata)
    keys = np.frombuffer(hashlib.shake_128(b"gossamer test split").digest(8 * size), "<u8")
    if persons is not None:
        return _persons_held_out(strata, fraction, persons, keys)
    _, stratum, counts = np.unique(strata, return_inverse=True, return_counts=True)
    order = np.lexsort((keys, stratum))
    rank = np.empty(size, np.int64)
    rank[order] = np.arange(size) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.asarray(rank < _quotas(counts, fraction)[stratum])


def without_last(tested: npt.NDArray[np.bool_], owners: Owners, persons: Owners | None = None) -> npt.NDArray[np.bool_]:
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


def _quotas(counts: npt.NDArray[np.int64], fraction: float) -> npt.NDArray[np.int64]:
    # A little is added so that 0.3 of 10 is 3 although 0.3 is stored as less.
    return np.asarray(np.floor(fraction * counts + 1e-9), np.int64)


def _persons_held_out(
    strata: npt.NDArray[np.generic], fraction: float, persons: Owners, keys: npt.NDArray[np.uint64]
) -> npt.NDArray[np.bool_]:
    _, first, person, rows = np.unique(persons, return_index=True, return_inverse=True, return_counts=True)
    _, stratum = np.unique(strata[first], return_inverse=True)
    left = _quotas(np.bincount(stratum, weights=rows).astype(np.int64), fraction)
    chosen = np.zeros(len(first), np.bool_)
    for number in np.argsort(keys[first]):
        if rows[number] <= left[stratum[number]]:
            left[stratum[number]] -= rows[number]
            chosen[number] = True
    return np.asarray(chosen[person])


@dataclass(frozen=True, eq=False)
class Classes:
    """Mapping of labels to class numbers.

    Attributes
    ----------
    labels : ndarray [labels] of float64 or str
        Every label there is.
    numbers : ndarray [labels] of int64
        The class number of each.
    """

    labels: Labels
    numbers: npt.NDArray[np.int64]

    def names(self) -> tuple[str, ...]:
        """Names of the classes, by number."""
        return tuple(map(", ".join, self.members()))

    def members(self) -> tuple[tuple[str, ...], ...]:
        """The labels of each class number."""
        members = (self.labels[self.numbers == number] for number in range(self.numbers.max() + 1))
        return tuple(tuple(map(written, labels)) for labels in members)


def classes_of(labels: Labels, settings: DatasetSettings) -> Classes | None:
    """The classes of training examples with these ``labels`` [n]; None for a regression.

    Raises
    ------
    DataError
        If the labels do not fit together or to the settings.
    """
    if settings.task == "regression":
        if settings.positive is not None:
            raise DataError("'positive' makes classes of labels, but task is regression; leave one of them out")
        return None
    found = class_labels(labels, settings.labels)
    if settings.positive is None:
        return Classes(found, np.arange(len(found)))
    return Classes(found, positive_classes(found, settings.positive).astype(np.int64))


def targets_of(
    labels: Labels,
    classes: Classes | None,
    which: str,
    places: Places | None = None,
    target_range: TargetRange | None = None,
) -> npt.NDArray[np.int64] | npt.NDArray[np.float32]:
    """The class number of each label [n], or the real target as a model learns it.

    Parameters
    ----------
    labels : ndarray [n]
        Labels as written.
    classes : Classes, optional
        Classes of the labels; None for a regression.
    which : {"training", "test"}
        Purpose of the examples: those to train on are within the range.
    places : Places, optional
        Places where they stand, for the error.
    target_range : TargetRange, optional
        Range that real targets are scaled by.

    Raises
    ------
    DataError
        For a label that is of no class, or no finite number.
    """
    if classes is None:
        targets = real_targets(labels, which, places)
        return targets if target_range is None else target_range.inside(labels, clipped=which == "training")
    return classes.numbers[class_numbers(labels, classes.labels, which, places)]


@dataclass(frozen=True)
class Treatment:
    """Treatment of features.

    Attributes
    ----------
    layout : str
        ``dense`` or ``sparse``.
    shape : tuple of int, optional
        The shape of an example, where it is known beforehand; CSR rows stay flat.
    divisor : float
        Number that features are divided by.
    normalise : str
        ``unit_norm`` or ``none``.
    scale : ConstantScale, optional
        Scale of all features, in place of the divisor.
    """

    layout: Layout
    shape: tuple[int, ...] | None
    divisor: float
    normalise: str
    scale: ConstantScale | None = None

    @classmethod
    def of(cls, settings: DatasetSettings, form: Format, layout: Layout) -> Treatment:
        """Return the treatment that the settings and the catalogue name for data in this format."""
        known = KNOWN.get(settings.name)
        divisor = settings.divide_by or (known and known.divisor) or default_divisor(form)
        shape = settings.shape or (known.shape if known else None)
        if isinstance(settings.scale, ConstantScale):
            return cls(layout, shape, 1.0, settings.normalise, settings.scale)
        return cls(layout, shape, divisor, settings.normalise)

    def apply(self, features: Features, path: Path | str) -> Features:
        """The features [n, ...] as an objective gets them; ``path`` is where they are from, for the error.

        Raises
        ------
        DataError
            If examples are not of the shape known beforehand, or pictures are asked for as CSR.
        """
        shaped = divided(self._shaped(as_layout(features, self.layout), path), self.divisor)
        if self.scale is not None:
            shaped = by_constants(shaped, self.scale)
        return unit_norm(shaped) if self.normalise == "unit_norm" else shaped

    def _shaped(self, features: Features, path: Path | str) -> Features:
        found = tuple(features.shape[1:])
        if self.shape is None or found == self.shape:
            return features
        if found != (math.prod(self.shape),):
            raise DataError(
                f"{path}: expected examples of {in_words(self.shape)} as dataset.features (or the data set's name) "
                f"says, found {in_words(found)}; correct the file, or features"
            )
        return features if isinstance(features, sp.csr_array) else features.reshape(-1, *self.shape)


def in_words(shape: tuple[int, ...]) -> str:
    """Say the shape of an example."""
    return counted(shape[0], "feature") if len(shape) == 1 else f"shape {list(shape)}"
