"""From labels to class numbers, and the fixed choice of test examples."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from gossamer.data.examples import Labels, Places
from gossamer.errors import DataError


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
        As written.
    classes : ndarray [classes]
        The label of each class number.
    which : str
        ``training`` or ``test``, for the error.
    places : Places, optional
        Where the examples stand, for the error.

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
