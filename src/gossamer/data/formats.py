"""From files to examples, whatever the format: one line a format, the rest is in its module."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gossamer.data.array_files import read_idx_folder, read_libsvm, read_npz
from gossamer.data.catalogue import KNOWN
from gossamer.data.columns import Column
from gossamer.data.compression import COMPRESSIONS, variant
from gossamer.data.examples import Labelled, Pair, are_numbers
from gossamer.data.picture_files import BINARY, PYTHON, read_cifar10, read_images
from gossamer.data.settings import TABLES, DatasetSettings, Format, NoScale
from gossamer.data.table import Wanted, read_rows
from gossamer.data.table_files import table_file
from gossamer.errors import DataError, SpecError

_SUFFIXES: dict[str, Format] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".npz": "npz",
    ".zip": "images",
    ".tar": "cifar10",
    ".libsvm": "libsvm",
    ".svm": "libsvm",
    ".svmlight": "libsvm",
    ".t": "libsvm",
    "": "libsvm",
}


@dataclass(frozen=True)
class _FormatReader:
    """Reader of a format.

    Attributes
    ----------
    read : callable
        Function from a path to training and test examples.
    options : frozenset of str
        The settings that only some formats understand, and this one does.
    divisor : float
        Number that features are divided by if the settings do not say.
    """

    read: Callable[[Path, DatasetSettings], Pair]
    options: frozenset[str] = frozenset()
    divisor: float = 1.0


def wanted_of(settings: DatasetSettings) -> Wanted:
    """Return what is read of a table to train on, by the settings of a data set.

    Raises
    ------
    SpecError
        If its columns are still in a file of their own.
    """
    columns = settings.columns
    if isinstance(columns, Path):
        raise SpecError(f"dataset.columns: {columns} has not been read; put its columns in the spec itself")
    return Wanted(
        columns=dict.fromkeys(settings.named, Column()) if settings.named else columns,
        target=settings.target,
        owner=settings.owner,
        person=settings.person,
        ignore=settings.ignore,
        declared=columns is not None,
        scaled=not isinstance(settings.scale, NoScale),
        names=settings.labels is not None and not are_numbers(settings.labels),
        real=settings.task == "regression",
        marks=settings.missing_marks or (),
        classes=tuple(map(str, settings.labels or ())),
        target_range=Column(range=settings.target_scale.range) if settings.target_scale else Column(),
    )


def _table(form: Format) -> Callable[[Path, DatasetSettings], Pair]:
    def read(path: Path, settings: DatasetSettings) -> Pair:
        return read_rows(table_file(path, form, settings.csv), wanted_of(settings)), None

    return read


def _libsvm(path: Path, settings: DatasetSettings) -> Pair:
    known = KNOWN.get(settings.name)
    shape = settings.shape or (known.shape if known else None)
    return read_libsvm(path, None if shape is None else math.prod(shape), settings.first_index), None


_OF_TABLES = frozenset({"target", "owner", "person", "ignore", "columns", "csv", "missing_marks"})
"""Parquet files have no dialect, but parties with files of either format share a spec."""

_READERS: dict[Format, _FormatReader] = {
    "idx": _FormatReader(lambda path, settings: read_idx_folder(path), divisor=255.0),
    "images": _FormatReader(lambda path, settings: read_images(path), divisor=255.0),
    "cifar10": _FormatReader(lambda path, settings: read_cifar10(path), divisor=255.0),
    "npz": _FormatReader(lambda path, settings: read_npz(path)),
    "csv": _FormatReader(_table("csv"), _OF_TABLES),
    "parquet": _FormatReader(_table("parquet"), _OF_TABLES),
    "libsvm": _FormatReader(_libsvm, frozenset({"first_index"})),
}


def infer_format(path: Path) -> Format:
    """The format that a path's name says.

    A folder is IDX or CIFAR-10 if it holds files of such names, else pictures. A file goes by its suffix, left of a
    compression's; LIBSVM's own files often have none.

    Raises
    ------
    DataError
        If the suffix is none of a known format.
    """
    if path.is_dir():
        if any(variant(path, name) for name in PYTHON + BINARY):
            return "cifar10"
        return "idx" if any(path.glob("*-ubyte*")) else "images"
    plain = path.with_suffix("") if path.suffix in COMPRESSIONS else path
    if plain.suffix not in _SUFFIXES:
        raise DataError(
            f"{path}: no format is known by the suffix {plain.suffix!r}; give a file that ends in "
            f"{', '.join(filter(None, _SUFFIXES))}, or say in a spec what it is, dataset.format: {', '.join(_READERS)}"
        )
    return _SUFFIXES[plain.suffix]


def default_divisor(form: Format) -> float:
    """Return the divisor of this format's features if nobody says one: 255 for pictures, else 1."""
    return _READERS[form].divisor


def read_files(form: Format, train: Path, test: Path | None, settings: DatasetSettings) -> Pair:
    """Training and test examples as the files give them, agreeing in the number of features.

    Raises
    ------
    DataError
        For an option that the format does not have, a second source of test examples, and whatever the
        format's reader refuses.
    """
    reader = _READERS[form]
    _check_options(form, reader, settings)
    examples, own_test = reader.read(train, settings)
    if test is not None:
        if own_test is not None:
            raise DataError(f"{train} has test examples of its own; leave test_path out")
        own_test = reader.read(test, settings)[0]
        if form == "libsvm":
            _widen(examples, own_test)
    _check_shapes(test or train, examples, own_test)
    return examples, own_test


def _check_options(form: Format, reader: _FormatReader, settings: DatasetSettings) -> None:
    if settings.named is not None and form not in TABLES:
        raise DataError(
            f"data set {settings.name!r}: 'features' names columns, which {' and '.join(TABLES)} files have, but this "
            f"is {form}; give their number, or the shape"
        )
    others = sorted({option for other in _READERS.values() for option in other.options} - reader.options)
    for option in others:
        if getattr(settings, option) != type(settings).model_fields[option].default:
            owners = " and ".join(name for name, other in _READERS.items() if option in other.options)
            raise DataError(
                f"data set {settings.name!r}: {option!r} is for {owners} files, but this is {form}; leave it out"
            )


def _check_shapes(path: Path, train: Labelled, test: Labelled | None) -> None:
    shape = train.features.shape[1:]
    if 0 in train.features.shape or (test and 0 in test.features.shape):
        raise DataError(f"{path}: expected at least one example with one feature, found none")
    if test and test.features.shape[1:] != shape:
        raise DataError(
            f"{path}: expected test examples of shape {list(shape)} like the training examples, "
            f"found {list(test.features.shape[1:])}"
        )
    if test and test.names != train.names:
        ours, others = next(pair for pair in zip(train.names, test.names) if pair[0] != pair[1])
        raise DataError(
            f"{path}: expected the columns of the training examples in the same order, found {others!r} in the place "
            f"of {ours!r}; reorder them, or say dataset.columns"
        )


def _widen(train: Labelled, test: Labelled) -> None:
    """Give both as many columns as the wider one: a file ends at the largest index that occurs in it."""
    width = max(train.features.shape[1], test.features.shape[1])
    for examples in (train, test):
        examples.features.resize((examples.features.shape[0], width))
