"""From labels to class numbers, and the fixed choice of test examples."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Discriminator, Tag, ValidationError, model_validator

from gossamer.data.columns import ScaleConstants
from gossamer.data.examples import Labels, Places
from gossamer.errors import DataError
from gossamer.section import said

# A clip limits how far one example moves a model, so a target of 130 would take a private run hundreds of steps to
# reach. So models learn it near -1 to 1 by public constants, and people see it in its own unit.

Floats = npt.NDArray[np.float64]


class TargetRange(ScaleConstants):
    """Constants that targets of a regression are scaled by; a list of two numbers is short for its ``range``.

    Attributes
    ----------
    range : list of float, optional
        The least and the most that targets can be: mapped to -1 and 1. Training examples outside are taken for the
        nearer one.
    mean, deviation : float, optional
        Published figures of such targets: the mean is taken off them, and they are divided by the deviation.
    """

    @model_validator(mode="before")
    @classmethod
    def _in_full(cls, given: Any) -> Any:
        if isinstance(given, list | tuple):
            return {"range": list(given)}
        if not isinstance(given, Mapping | cls):
            raise ValueError(f"expected the least and the most target, such as [80, 200], found {given!r:.40}")
        return given

    @model_validator(mode="after")
    def _some(self) -> TargetRange:
        if not self.scaled:
            raise ValueError("give the least and the most target, such as [80, 200], or a mean and a deviation")
        return self

    @property
    def unit(self) -> float:
        """The target's own units in one of the model's."""
        return self.shift_and_unit[1]

    def inside(self, targets: npt.ArrayLike, *, clipped: bool) -> npt.NDArray[np.float32]:
        """Targets [n] as a model learns them.

        Parameters
        ----------
        targets : array_like [n]
            Targets in their own unit.
        clipped : bool
            Whether those outside of the range are taken for its nearer end.

        Raises
        ------
        DataError
            If one is no finite number of float32 then.
        """
        values = np.asarray(targets, np.float64)
        if clipped and self.range is not None:
            low, high = self.range
            values = values.clip(low, high)
        found = self._scaled(values)
        if not np.isfinite(found).all():
            raise DataError(
                f"the target {values[~np.isfinite(found)][0]:g} is no finite number of float32 once it is scaled by "
                "the target's range; correct it"
            )
        return found

    def _scaled(self, values: Floats) -> npt.NDArray[np.float32]:
        shift, unit = self.shift_and_unit
        with np.errstate(over="ignore"):
            found: npt.NDArray[np.float32] = ((values - shift) / unit).astype(np.float32)
        return found

    def own(self, targets: npt.NDArray[Any]) -> Floats:
        """Targets or predictions [n] of a model in their own unit."""
        shift, unit = self.shift_and_unit
        return np.asarray(targets, np.float64) * unit + shift

    def exactly(self, targets: npt.NDArray[Any]) -> Floats:
        """Targets [n] in their own unit that are, once more scaled, just these: of all that round to them, one."""
        found = self.own(targets)
        for near in (found, np.nextafter(found, np.inf), np.nextafter(found, -np.inf)):
            found = np.where(self._scaled(near) == targets, near, found)
        return found


NoTargetRange = Literal["none"]
"""Targets are learnt as they are, and that is meant."""

# The tags have a bracket, so that errors do not show them as keys.
TargetSettings = Annotated[
    Annotated[NoTargetRange, Tag("[none]")] | Annotated[TargetRange, Tag("[range]")],
    Discriminator(lambda value: "[none]" if isinstance(value, str) and value == "none" else "[range]"),
]


def range_given(given: Any) -> TargetRange | NoTargetRange | None:
    """The range that a caller gives, if any.

    Raises
    ------
    DataError
        If it is none.
    """
    if given is None:
        return None
    if isinstance(given, str) and given == "none":
        return "none"
    try:
        return TargetRange.model_validate(given.tolist() if isinstance(given, np.ndarray) else given)
    except ValidationError as error:
        raise DataError(f"target_range: {said(error.errors()[0])}") from None


def are_numbers(labels: Iterable[int | str]) -> bool:
    """Whether all ``labels`` are numbers, so that 1 and 1.0 are the same one."""
    try:
        return all(math.isfinite(float(label)) for label in labels)
    except ValueError:
        return False


def class_labels(labels: Labels, given: tuple[int | str, ...] | None) -> Labels:
    """The label of each class number, [classes]: as given, or those found, sorted.

    Raises
    ------
    DataError
        If the labels look like real numbers, there are fewer than two, or the given ones repeat or are not of
        the kind found.
    """
    if given is None:
        return _found(labels)
    chosen = _as_labels(given, labels, "labels named")
    if len(np.unique(chosen)) < len(chosen):
        raise DataError(f"the labels named, {list(given)}, must all differ")
    return chosen


def positive_classes(classes: Labels, given: tuple[int | str, ...]) -> npt.NDArray[np.bool_]:
    """Mark the classes that the labels ``given`` name, [classes].

    Raises
    ------
    DataError
        If a label is that of no class, or no class is left.
    """
    chosen = _as_labels(given, classes, "positive labels")
    unknown = ~np.isin(chosen, classes)
    if unknown.any():
        raise DataError(
            f"'positive' names the label {written(chosen[unknown][0])}, which is none of the {len(classes)} classes "
            f"{_listed(classes)}; correct it, or name all 'labels' where the training examples lack one"
        )
    positive = np.isin(classes, chosen)
    if positive.all():
        raise DataError(f"'positive' names all {len(classes)} classes {_listed(classes)}; leave at least one out")
    return positive


def _as_labels(given: tuple[int | str, ...], like: Labels, what: str) -> Labels:
    try:
        return np.array(given, dtype=like.dtype.type)
    except ValueError:
        raise DataError(f"the {what} are {list(given)}, but the data's are numbers") from None


def _listed(classes: Labels) -> str:
    return ", ".join(map(written, classes[:20]))


def _found(labels: Labels) -> Labels:
    found: Labels = np.unique(labels)
    if found.dtype.kind == "f" and not (whole := np.isfinite(found) & (found == np.round(found))).all():
        raise DataError(
            f"classification expects whole numbers or names as labels, found {found[~whole][0]}; "
            "for real targets say task: regression"
        )
    if len(found) < 2:
        raise DataError(
            f"classification needs at least two labels, found only {written(found[0])}; "
            "where other parties hold the others, name all under 'labels'"
        )
    return found


def class_numbers(labels: Labels, classes: Labels, which: str, places: Places | None = None) -> npt.NDArray[np.int64]:
    """The class number 0..classes-1 of each label, [n].

    Parameters
    ----------
    labels : ndarray [n]
        Labels as written.
    classes : ndarray [classes]
        The label of each class number.
    which : str
        ``training`` or ``test``, for the error.
    places : Places, optional
        Places where the examples stand, for the error.

    Raises
    ------
    DataError
        For the first label that is no class.
    """
    if labels.dtype.kind != classes.dtype.kind:
        raise DataError(f"{which} labels are not of the same kind (numbers or names) as the classes'")
    order = np.argsort(classes)
    positions = np.searchsorted(classes, labels, sorter=order).clip(max=len(classes) - 1)
    numbers: npt.NDArray[np.int64] = order[positions].astype(np.int64)
    unknown = classes[numbers] != labels
    if unknown.any():
        row = int(np.argmax(unknown))
        raise DataError(
            f"{_place(row, which, places)} has the label {written(labels[row])}, which is none of the "
            f"{len(classes)} classes {_listed(classes)}; correct it, or name all classes under 'labels'"
        )
    return numbers


def _place(row: int, which: str, places: Places | None) -> str:
    return f"{which} example {row + 1}" if places is None else places.at(row)


def real_targets(labels: Labels, which: str, places: Places | None = None) -> npt.NDArray[np.float32]:
    """Targets of a regression, [n].

    Raises
    ------
    DataError
        If they are names, or not finite as float32.
    """
    if labels.dtype.kind != "f":
        raise DataError(f"regression expects numbers as targets, found {labels[0]!s} among the {which} examples")
    with np.errstate(over="ignore"):
        targets = labels.astype(np.float32)
    if not np.isfinite(targets).all():
        row = int(np.argmin(np.isfinite(targets)))
        place = _place(row, which, places)
        raise DataError(f"{place} has the target {labels[row]}; expected a finite number that fits float32")
    return targets


def written(label: np.float64 | np.str_ | float | str) -> str:
    """A label as a person writes it: whole numbers without a point."""
    return str(int(label)) if isinstance(label, float) and label.is_integer() else str(label)
