"""From examples as files give them to targets and features, by settings alone: each party does just the same."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from gossamer.data.catalogue import KNOWN
from gossamer.data.examples import Labels, Places
from gossamer.data.features import as_layout, by_constants, divided, unit_norm
from gossamer.data.formats import default_divisor
from gossamer.data.scaling import ConstantScale
from gossamer.data.settings import DatasetSettings, Format, Layout
from gossamer.data.split import Features
from gossamer.data.target_range import TargetRange
from gossamer.data.targets import class_labels, class_numbers, positive_classes, real_targets, written
from gossamer.errors import DataError, counted


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
        As written.
    classes : Classes, optional
        None for a regression.
    which : {"training", "test"}
        What the examples are for: those to train on are within the range.
    places : Places, optional
        Where they stand, for the error.
    target_range : TargetRange, optional
        What real targets are scaled by.

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
        What features are divided by.
    normalise : str
        ``unit_norm`` or ``none``.
    scale : ConstantScale, optional
        By what all features are scaled instead of divided.
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
