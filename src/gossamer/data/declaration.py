"""The declaration of a data set, and what followed: enough to read further rows like those of a training.

It is written beside a model, so it says nothing of any row: names of columns, public constants, and what the classes
are called.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from gossamer.data.columns import Column, Columns, CsvSettings, Marks, feature_names
from gossamer.data.examples import Features, Labels, Places
from gossamer.data.preparing import Treatment, in_words
from gossamer.data.settings import DatasetSettings, Format, Layout, NoScale, ScaleSettings
from gossamer.data.table import NamedRows, Rows, Wanted, read_rows
from gossamer.data.targets import TargetRange, are_numbers, written
from gossamer.errors import DataError
from gossamer.section import Section


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

    @classmethod
    def of(
        cls,
        settings: DatasetSettings,
        form: Format | None,
        shape: tuple[int, ...],
        layout: Layout,
        classes: tuple[tuple[str, ...], ...] | None,
        found: tuple[tuple[str, ...], str | None] = ((), None),
    ) -> Declaration:
        """The declaration of data read by ``settings``; ``found`` are a table's columns, and the target's name."""
        sources, target = found
        columns = settings.columns if isinstance(settings.columns, dict) else None
        names = settings.named or sources
        made = columns or (dict.fromkeys(names, Column()) if names else None)
        treatment = Treatment.of(settings, form or "npz", layout)
        return cls(
            name=settings.name,
            task=settings.task,
            format=form,
            shape=shape,
            layout=layout,
            features=feature_names(made or {}),
            columns=made,
            declared=columns is not None,
            scale=settings.scale,
            divisor=treatment.divisor,
            normalise=settings.normalise,
            csv=settings.csv,
            target=settings.target if target is None else target,
            owner=settings.owner,
            person=settings.person,
            classes=classes,
            target_range=settings.target_scale,
            missing_marks=settings.missing_marks,
            first_index=settings.first_index,
        )

    @property
    def labels(self) -> tuple[str, ...] | None:
        """Names of the classes, by number; None for a regression."""
        return None if self.classes is None else tuple(", ".join(members) for members in self.classes)

    @property
    def tabular(self) -> bool:
        """Whether further rows can be read from a table."""
        return self.columns is not None

    def read(self, table: NamedRows, *, labelled: bool = False) -> Rows:
        """Further rows as those before them, but for what `prepare` does.

        Parameters
        ----------
        table : NamedRows
            Rows from a file or from memory. The table may have columns that nobody asked for.
        labelled : bool
            Whether the target has to be there; otherwise it is not looked at, so it may be missing, or empty.

        Raises
        ------
        DataError
            For a column that is not there, or a cell that its column does not allow.
        """
        if self.columns is None:
            raise DataError(f"the model was trained on {self.format or 'data'} without columns, so no table fits it")
        return read_rows(
            table,
            Wanted(
                columns=self.columns,
                target=self.target if labelled else None,
                declared=self.declared,
                scaled=not isinstance(self.scale, NoScale),
                names=self.classes is not None and not are_numbers(label for one in self.classes for label in one),
                real=self.task == "regression",
                labelled=labelled,
                counted=True,
                trained=True,
                marks=self.missing_marks or (),
                classes=self.labels or (),
            ),
        )

    def prepare(self, features: Features, source: str = "the rows") -> Features:
        """Features [n, ...] as they were read, as the objective gets them.

        Raises
        ------
        DataError
            If examples have another shape, or are not finite then.
        """
        scale = self.scale if self.scale is not None and self.scale.name == "constant" else None
        found_shape = tuple(features.shape[1:])
        if found_shape not in (self.shape, (math.prod(self.shape),)):
            raise DataError(
                f"{source}: expected rows of {in_words(self.shape)}, as the model was trained on, found "
                f"{in_words(found_shape)}; correct them"
            )
        treatment = Treatment(self.layout, self.shape, self.divisor, self.normalise, scale)
        found = treatment.apply(features, source)
        if not np.isfinite(found if isinstance(found, np.ndarray) else found.data).all():
            raise DataError(f"{source}: features are not finite once they are scaled as the model's were; correct them")
        return found

    def own(self, predictions: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Predictions [n] of a regression in the unit of its targets."""
        found = np.array(predictions, np.float64)
        return found if self.target_range is None else self.target_range.own(found)

    def targets(self, labels: Labels, source: str = "the rows", places: Places | None = None) -> Labels:
        """The class number of each label [n], or the real target as the model learnt it, but not clipped.

        Raises
        ------
        DataError
            For a label that is of no class; it names the row.
        """
        if self.classes is None:
            scale = self.target_range
            return labels.astype(np.float32) if scale is None else scale.inside(labels, clipped=False)
        numbers: Mapping[str, int] = {label: number for number, one in enumerate(self.classes) for label in one}
        texts = [written(label) for label in labels.tolist()]
        unknown = next((row for row, text in enumerate(texts) if text not in numbers), None)
        if unknown is not None:
            known = ", ".join(list(numbers)[:20])
            place = f"{source}: example {unknown + 1}" if places is None else places.at(unknown)
            raise DataError(f"{place} has the label {texts[unknown]}, which is none of {known}; correct it")
        return np.array([numbers[text] for text in texts], np.int64)
