"""Declared form of data: all parties must know the shape and the classes of examples that only their owner sees."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from gossamer.data.catalogue import KNOWN
from gossamer.data.datasets import Dataset
from gossamer.data.declaration import Declaration
from gossamer.data.examples import Labels
from gossamer.data.formats import infer_format
from gossamer.data.preparing import Classes, classes_of
from gossamer.data.scaling import ConstantScale
from gossamer.data.settings import TABLES, DatasetSettings, Format, Layout
from gossamer.data.split import Features, Split
from gossamer.data.targets import are_numbers
from gossamer.errors import DataError, SpecError


@dataclass(frozen=True)
class Form:
    """Form of examples, by their declaration alone.

    Attributes
    ----------
    shape : tuple of int
        Of an example's features: [features], or [channels, height, width].
    classes : int, optional
        Number of classes; None for a regression.
    labels : tuple of str, optional
        What the data call each class number; None for a regression.
    layout : str
        ``dense`` or ``sparse`` features.
    format : str, optional
        How files are read; None where each party's file says it by its name.
    """

    shape: tuple[int, ...]
    classes: int | None
    labels: tuple[str, ...] | None
    layout: Layout
    format: Format | None


def declared(settings: DatasetSettings) -> DatasetSettings:
    """``settings`` with what the catalogue knows of the data set filled in where they are silent.

    A format that the settings leave out is that of ``path``, if its name says one: no file is looked at.
    """
    known = KNOWN.get(settings.name)
    form = settings.format or (known.format if known else _by_suffix(settings))
    filled: dict[str, object] = {"format": form}
    if known is not None:
        filled |= {
            "features": settings.features or known.shape,
            "labels": settings.labels or known.labels,
            "layout": settings.layout or known.layout,
            "divide_by": settings.divide_by or (None if _scaled(settings) else known.divisor),
        }
    tabular = settings.columns is not None or form not in (None, "libsvm")
    if settings.layout is None and known is None and tabular:
        filled["layout"] = "dense"
    return settings.model_copy(update=filled)


def _by_suffix(settings: DatasetSettings) -> Format | None:
    # What has no suffix may be a folder, which says its format to those alone who see it.
    if settings.path is None or not settings.path.suffix:
        return None
    try:
        return infer_format(settings.path)
    except DataError:
        return None


def declared_form(settings: DatasetSettings) -> Form:
    """Return the form of examples without reading any.

    Raises
    ------
    SpecError
        If the settings leave something to the data; it names the keys.
    DataError
        If labels and positive labels contradict each other.
    """
    if settings.synthetic is not None:
        return Form((settings.synthetic.features,), None, None, "dense", None)
    if isinstance(settings.columns, Path):
        raise SpecError(f"dataset.columns: parties do not have {settings.columns}; put its columns in the spec itself")
    settings = declared(settings)
    shape, layout = settings.shape, settings.layout
    missing = [key for key, absent in _absent(settings).items() if absent]
    if missing or shape is None or layout is None:
        raise SpecError(
            f"dataset: parties do not see each other's data, so {settings.name!r} must declare what they look like; "
            f"missing: {', '.join(missing)}"
        )
    classes = _classes(settings)
    names = None if classes is None else classes.names()
    flat = (math.prod(shape),) if layout == "sparse" else shape
    return Form(flat, None if names is None else len(names), names, layout, settings.format)


def _scaled(settings: DatasetSettings) -> bool:
    """Whether features are scaled otherwise than by what their format, or their name, says."""
    return settings.columns is not None or isinstance(settings.scale, ConstantScale)


def _absent(settings: DatasetSettings) -> dict[str, bool]:
    """Keys, and whether each is left to the data."""
    # Without a format each file says its own; then the two that would follow from it must be given.
    scaled = settings.divide_by is not None or _scaled(settings)
    open_format = settings.format is None and not (settings.layout and scaled)
    return {
        "features": settings.shape is None,
        "labels": settings.task == "classification" and settings.labels is None,
        "format (or layout and divide_by)": open_format,
        "layout": settings.layout is None and not open_format,
    }


def _classes(settings: DatasetSettings) -> Classes | None:
    """The classes of the declared labels, which are numbers where files of text would be read so."""
    given = settings.labels or ()
    tabular = settings.columns is not None or settings.format in TABLES
    numbers = (tabular or settings.format in ("libsvm", "idx")) and are_numbers(given)
    labels: Labels = np.array(given, np.float64 if numbers else np.str_)
    return classes_of(labels, settings)


def blank_dataset(settings: DatasetSettings) -> Dataset:
    """A data set of no examples in the declared form, for a server, which has no data but the same objective.

    Raises
    ------
    SpecError
        If the settings leave something to the data; it names the keys.
    """
    form = declared_form(settings)
    blank = Split(_no_rows(form), np.zeros(0, np.float32) if form.classes is None else np.zeros(0, np.int64))
    known = declared(settings)
    classes = _classes(known)
    members = None if classes is None else classes.members()
    declaration = Declaration.of(known, form.format, form.shape, form.layout, members)
    return Dataset(
        settings.name,
        blank,
        blank,
        form.classes,
        form.labels,
        None,
        "declared, without examples",
        declaration=declaration,
    )


def _no_rows(form: Form) -> Features:
    if form.layout == "sparse":
        return sp.csr_array((0, *form.shape), dtype=np.float32)
    return np.zeros((0, *form.shape), np.float32)
