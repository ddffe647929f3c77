"""The declaration of a data set: how labels and features become what an objective gets, in training and afterwards.

It is written beside a model, so it says nothing of any row: names of columns, public constants, and what the classes
are called. Each party follows it alone, since what it does to an example depends on that example and on settings.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from gossamer.arrays import Floats, IntArray
from gossamer.data.columns import Column, Columns, CsvSettings, Marks, ScaleConstants, TargetRange, feature_names
from gossamer.data.examples import Features, Labelled, Labels, Places, Split, are_numbers, with_entries, written
from gossamer.data.files import KNOWN
from gossamer.data.settings import (
    PICTURES,
    ConstantScale,
    DatasetSettings,
    Format,
    Layout,
    NoScale,
    PrivateScale,
    ScaleSettings,
)
from gossamer.data.table import NamedRows, Wanted, read_rows
from gossamer.errors import DataError, counted
from gossamer.section import Section

Classes = tuple[tuple[str, ...], ...]
"""The labels of each class number."""

_AS_SAID = (
    *("name", "task", "scale", "normalise", "csv", "owner", "person"),
    *("missing_marks", "first_index", "drop_unlabelled"),
)
"""Keys of a declaration that are those of the section ``dataset``."""

# Below this share of non-zero entries a CSR row is cheaper to use than a dense one.
_SPARSE_BELOW = 0.1


def choose_layout(features: Features) -> Layout:
    """``sparse`` for CSR features of which fewer than one entry in ten is stored, else ``dense``."""
    if isinstance(features, sp.csr_array):
        rows, columns = features.shape
        return "sparse" if features.nnz < _SPARSE_BELOW * rows * columns else "dense"
    return "dense"


def _as_layout(features: Features, layout: Layout) -> Features:
    if layout == "dense":
        return features.toarray() if isinstance(features, sp.csr_array) else features
    if features.ndim != 2:
        raise DataError(f"examples of shape {list(features.shape[1:])} have no sparse layout; say layout: dense")
    return sp.csr_array(features)


def _divided(features: Features, divisor: float) -> Features:
    with np.errstate(all="ignore"):
        if isinstance(features, sp.csr_array):
            return with_entries(features, features.data / np.float32(divisor))
        return features if divisor == 1 else features / np.float32(divisor)


def _by_constants(features: Features, constants: ScaleConstants) -> Features:
    """Features [n, ...] clipped and scaled by the same constants; refused if sparse ones would lose their zeros."""
    with np.errstate(all="ignore"):
        if not isinstance(features, sp.csr_array):
            return constants.applied(features)
        if constants.shift_and_unit[0] == 0:
            return with_entries(features, constants.applied(features.data))
    raise DataError(
        "dataset.scale takes zeros of sparse features for other numbers; say divide_by, a range around 0 such as "
        "[-1, 1], or layout: dense"
    )


def unit_norm(features: Features) -> Features:
    """Each row divided by its L2 norm (taken in float64); zero rows stay zero."""
    if isinstance(features, sp.csr_array):
        norms = np.sqrt(np.asarray(features.astype(np.float64).power(2).sum(axis=1)).ravel())
        return with_entries(features, features.data * np.repeat(_inverse(norms), np.diff(features.indptr)))
    rows = features.reshape(len(features), -1)
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
    return features * _inverse(norms).reshape(-1, *[1] * (features.ndim - 1))


def _inverse(norms: Floats) -> npt.NDArray[np.float32]:
    return np.divide(1, norms, out=np.zeros_like(norms), where=norms > 0).astype(np.float32)


def in_words(shape: tuple[int, ...]) -> str:
    """Say the shape of an example."""
    return counted(shape[0], "feature") if len(shape) == 1 else f"shape {list(shape)}"


def _named(given: tuple[int | str, ...], like: Labels, what: str) -> tuple[str, ...]:
    """The labels that settings name, as those of the data are written."""
    try:
        return tuple(map(written, np.array(given, like.dtype.type).tolist()))
    except ValueError:
        raise DataError(f"the {what} are {list(given)}, but the data's are numbers") from None


def _found(labels: Labels) -> tuple[str, ...]:
    """The labels that the data have, sorted."""
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
    return tuple(map(written, found.tolist()))


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
    names = _found(labels) if settings.labels is None else _named(settings.labels, labels, "labels named")
    if len(set(names)) < len(names):
        raise DataError(f"the labels named, {list(settings.labels or ())}, must all differ")
    if settings.positive is None:
        return tuple((name,) for name in names)
    positive = _named(settings.positive, labels, "positive labels")
    if unknown := [name for name in positive if name not in names]:
        raise DataError(
            f"'positive' names the label {unknown[0]}, which is none of the {len(names)} classes {_listed(names)}; "
            "correct it, or name all 'labels' where the training examples lack one"
        )
    classes = (tuple(name for name in names if name not in positive), tuple(name for name in names if name in positive))
    if not classes[0]:
        raise DataError(f"'positive' names all {len(names)} classes {_listed(names)}; leave at least one out")
    return classes


def _listed(names: Iterable[str]) -> str:
    return ", ".join(list(names)[:20])


def _real(labels: Labels, place: Places) -> npt.NDArray[np.float32]:
    """Targets of a regression, [n], refused if they are names, or not finite as float32."""
    if labels.dtype.kind != "f":
        raise DataError(f"expected numbers as targets of a regression, found {labels[0]!s} in {place.at(0)}")
    with np.errstate(over="ignore"):
        targets: npt.NDArray[np.float32] = labels.astype(np.float32)
    if not np.isfinite(targets).all():
        row = int(np.argmin(np.isfinite(targets)))
        raise DataError(f"{place.at(row)} has the target {labels[row]}; expected a finite number that fits float32")
    return targets


class Declaration(Section):
    """Form of examples, and how they became what an objective gets.

    Attributes
    ----------
    name : str
        Name of the data set in the spec.
    task : {"classification", "regression"}
        Kind of targets.
    format : str, optional
        Format of the files; None where each party's file says its own.
    shape : tuple of int
        Shape of an example as the objective gets it.
    layout : {"dense", "sparse"}
        Layout of its features.
    features : tuple of str
        The names of the features of a table, in order: ``age``, ``sex=female``, ``sex=male``. Empty for all else.
    columns : dict of str to Column, optional
        The columns of a table that they are made of, in order; those that nobody declared are numbers.
    declared : bool
        Whether somebody declared the columns.
    scale : section, optional
        Scale of the features, as the spec has it.
    divisor : float
        Number that features are divided by.
    normalise : str
        ``unit_norm`` or ``none``.
    csv : CsvSettings, optional
        Dialect of CSV files.
    target : str or int
        The target's column: its name where that is known.
    owner, person : str, optional
        Columns of a table that say whose a row is.
    classes : tuple of tuple of str, optional
        The labels of each class number; None for a regression.
    target_range : section, optional
        Range that targets of a regression are scaled by, and predictions back.
    missing_marks : tuple of str, optional
        Texts that say nothing in cells of any column, beside what usually does.
    first_index : int, optional
        Index of the first feature in LIBSVM files.
    drop_unlabelled : bool, optional
        Whether rows whose target is empty are left out where targets are asked for.
    """

    name: str
    task: Literal["classification", "regression"]
    format: Format | None
    shape: tuple[int, ...]
    layout: Layout
    features: tuple[str, ...] = ()
    columns: Columns | None = None
    declared: bool = False
    scale: ScaleSettings | None = None
    divisor: float = 1.0
    normalise: Literal["none", "unit_norm"] = "none"
    csv: CsvSettings | None = None
    target: str | int = -1
    owner: str | None = None
    person: str | None = None
    classes: tuple[tuple[str, ...], ...] | None = None
    target_range: TargetRange | None = None
    missing_marks: Marks = None
    first_index: Literal[0, 1] | None = None
    drop_unlabelled: bool | None = None

    @property
    def scaled_privately(self) -> dict[str, int]:
        """Columns whose scale is to be found by a release before a run, and which feature each of them is."""
        if self.columns is None or not isinstance(self.scale, PrivateScale):
            return {}
        places = {name: place for place, name in enumerate(self.features)}
        numbers = {name: one for name, one in self.columns.items() if one.is_number}
        return {name: places[name] for name, one in numbers.items() if one.range is None and one.mean is None}

    @classmethod
    def of(
        cls,
        settings: DatasetSettings,
        form: Format | None,
        shape: tuple[int, ...],
        layout: Layout,
        classes: Classes | None,
        train: Labelled | None = None,
    ) -> Declaration:
        """The declaration of data read by ``settings``; ``train`` are examples that say their columns."""
        columns = settings.columns if isinstance(settings.columns, dict) else None
        names = settings.named or (train.sources if train else ())
        made = columns or (dict.fromkeys(names, Column()) if names else None)
        known = KNOWN.get(settings.name)
        divisor = settings.divide_by or (known and known.divisor) or (255.0 if form in PICTURES else 1.0)
        return cls(
            **{key: getattr(settings, key) for key in _AS_SAID},
            format=form,
            shape=(math.prod(shape),) if layout == "sparse" else shape,
            layout=layout,
            features=feature_names(made or {}),
            columns=made,
            declared=columns is not None,
            divisor=1.0 if isinstance(settings.scale, ConstantScale) else divisor,
            target=settings.target if train is None or train.target is None else train.target,
            classes=classes,
            target_range=settings.target_scale,
        )

    @property
    def labels(self) -> tuple[str, ...] | None:
        """Names of the classes, by number; None for a regression."""
        return None if self.classes is None else tuple(map(", ".join, self.classes))

    @property
    def tabular(self) -> bool:
        """Whether further rows can be read from a table."""
        return self.columns is not None

    def read(self, table: NamedRows, *, labelled: bool = False, beside: Sequence[str] = ()) -> Labelled:
        """Further rows as those before them, but for what `prepare` does.

        Parameters
        ----------
        table : NamedRows
            Rows from a file or from memory. The table may have columns that nobody asked for, but for a second one of
            arrays where features are one.
        labelled : bool
            Whether the target has to be there; otherwise it is not looked at, so it may be missing, or empty.
        beside : sequence of str
            Further columns whose cells are wanted as they are.

        Raises
        ------
        DataError
            For a column that is not there, or a cell that its column does not allow.
        """
        if self.columns is None and not table.arrays:
            raise DataError(f"the model was trained on {self.format or 'data'} without columns, so no table fits it")
        target = self.target if labelled else None
        return read_rows(
            table,
            Wanted(
                columns=self.columns,
                target=target,
                ignore=() if self.columns else [name for name in table.names if name not in (target, *table.arrays)],
                declared=self.declared,
                scaled=not isinstance(self.scale, NoScale),
                names=self.classes is not None and not are_numbers(label for one in self.classes for label in one),
                real=self.task == "regression",
                trained=True,
                marks=self.missing_marks or (),
                classes=self.labels or (),
                drop_unlabelled=bool(self.drop_unlabelled),
                beside=beside,
            ),
        )

    def prepare(self, features: Features, source: object = "the rows", *, trained: bool = True) -> Features:
        """Features [n, ...] as they were read, as the objective gets them.

        Parameters
        ----------
        features : ndarray [n, ...] or csr_array [n, features]
            Features as they were read.
        source : object
            Place of the rows, for errors.
        trained : bool
            Whether they are for a model that was trained, so that errors name no key of a spec.

        Raises
        ------
        DataError
            If examples have another shape, are pictures of which CSR rows are asked for, or are not finite then.
        """
        features = _as_layout(features, self.layout)
        found = tuple(features.shape[1:])
        if found not in (self.shape, (math.prod(self.shape),)):
            wanted = (
                f"rows of {in_words(self.shape)}, as the model was trained on, found {in_words(found)}; correct them"
                if trained
                else f"examples of {in_words(self.shape)} as dataset.features (or the data set's name) says, found "
                f"{in_words(found)}; correct the file, or features"
            )
            raise DataError(f"{source}: expected {wanted}")
        if isinstance(features, np.ndarray):
            features = features.reshape(-1, *self.shape)
        features = _divided(features, self.divisor)
        if isinstance(self.scale, ConstantScale):
            features = _by_constants(features, self.scale)
        if self.normalise == "unit_norm":
            features = unit_norm(features)
        if not np.isfinite(features if isinstance(features, np.ndarray) else features.data).all():
            scaled = "they are scaled as the model's were" if trained else "dataset.divide_by, scale and normalise"
            raise DataError(f"{source}: features are not finite after {scaled}; correct them")
        return features

    def split(self, examples: Labelled, which: str, source: object) -> Split:
        """Examples of a party, or of all, as the objective gets them.

        Parameters
        ----------
        examples : Labelled
            Examples as a file gives them.
        which : {"training", "test"}
            Purpose of the examples: targets to train on are within their range.
        source : object
            Place of the examples, for errors.

        Raises
        ------
        DataError
            For a label that is of no class, or no finite number; or whatever `prepare` refuses.
        """
        features = self.prepare(examples.features, source, trained=False)
        return Split(features, self.targets(examples.labels, source, examples.places, which))

    def own(self, predictions: npt.NDArray[Any]) -> Floats:
        """Predictions [n] of a regression in the unit of its targets."""
        found = np.array(predictions, np.float64)
        return found if self.target_range is None else self.target_range.own(found)

    def targets(
        self, labels: Labels, source: object = "the rows", places: Places | None = None, which: str = ""
    ) -> IntArray | npt.NDArray[np.float32]:
        """The class number of each label [n], or the real target as a model learns it.

        Parameters
        ----------
        labels : ndarray [n]
            Labels as they are written.
        source : object
            Place of the rows, for errors.
        places : Places, optional
            Places of each, where they are known.
        which : {"training", "test", ""}
            Purpose of the rows; those to train on are clipped to the target's range, and none are for a trained model.

        Raises
        ------
        DataError
            For a label that is of no class, or no finite number; it names the row.
        """
        place = places or Places(str(source), np.arange(1, len(labels) + 1), f"{which} example".strip())
        if self.classes is None:
            targets = _real(labels, place)
            return (
                targets if self.target_range is None else self.target_range.inside(labels, clipped=which == "training")
            )
        known = {label: number for number, one in enumerate(self.classes) for label in one}
        kinds, kind = np.unique(labels, return_inverse=True)
        numbers = np.array([known.get(written(label), -1) for label in kinds.tolist()], np.int64)[kind]
        if (unknown := numbers < 0).any():
            row = int(unknown.argmax())
            remedy = ", or name all classes under 'labels'" if which else ""
            raise DataError(
                f"{place.at(row)} has the label {written(labels[row])}, which is none of the {len(known)} classes "
                f"{_listed(known)}; correct it{remedy}"
            )
        return numbers
