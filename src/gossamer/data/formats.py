"""From files to examples, whatever the format: one line a format, the rest is in its module."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gossamer.data.catalogue import KNOWN
from gossamer.data.compression import COMPRESSIONS
from gossamer.data.examples import Examples, Pair
from gossamer.data.idx import read_idx_folder
from gossamer.data.images import read_images
from gossamer.data.libsvm import read_libsvm
from gossamer.data.settings import DatasetSettings, Format
from gossamer.data.tabular import read_csv, read_npz
from gossamer.data.targets import are_numbers
from gossamer.errors import DataError

_SUFFIXES: dict[str, Format] = {
    ".csv": "csv",
    ".npz": "npz",
    ".zip": "images",
    ".libsvm": "libsvm",
    ".svm": "libsvm",
    ".svmlight": "libsvm",
    ".t": "libsvm",
    "": "libsvm",
}


@dataclass(frozen=True)
class _Reader:
    """How a format is read.

    Attributes
    ----------
    read : callable
        From a path to training and test examples.
    options : frozenset of str
        The settings that only some formats understand, and this one does.
    divisor : float
        What features are divided by if the settings do not say.
    """

    read: Callable[[Path, DatasetSettings], Pair]
    options: frozenset[str] = frozenset()
    divisor: float = 1.0


def _csv(path: Path, settings: DatasetSettings) -> Pair:
    names = settings.labels is not None and not are_numbers(settings.labels)
    read = partial(read_csv, person=settings.person, names=names)
    return read(path, settings.target, settings.owner, settings.ignore, settings.columns), None


def _libsvm(path: Path, settings: DatasetSettings) -> Pair:
    known = KNOWN.get(settings.name)
    shape = settings.shape or (known.shape if known else None)
    return read_libsvm(path, None if shape is None else math.prod(shape)), None


_READERS: dict[Format, _Reader] = {
    "idx": _Reader(lambda path, settings: read_idx_folder(path), divisor=255.0),
    "images": _Reader(lambda path, settings: read_images(path), divisor=255.0),
    "npz": _Reader(lambda path, settings: read_npz(path)),
    "csv": _Reader(_csv, frozenset({"target", "owner", "person", "ignore"})),
    "libsvm": _Reader(_libsvm),
}


def infer_format(path: Path) -> Format:
    """The format that a path's name says.

    A folder is IDX if it holds files of that name, else pictures. A file goes by its suffix, left of a
    compression's; LIBSVM's own files often have none.

    Raises
    ------
    DataError
        If the suffix is none of a known format.
    """
    if path.is_dir():
        return "idx" if any(path.glob("*-ubyte*")) else "images"
    plain = path.with_suffix("") if path.suffix in COMPRESSIONS else path
    if plain.suffix not in _SUFFIXES:
        raise DataError(
            f"{path}: no format is known by the suffix {plain.suffix!r}; "
            f"say format: {', '.join(_READERS)} in the data set's settings"
        )
    return _SUFFIXES[plain.suffix]


def default_divisor(form: Format) -> float:
    """What features of this format are divided by if nobody says: 255 for pictures, else 1."""
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


def _check_options(form: Format, reader: _Reader, settings: DatasetSettings) -> None:
    if settings.columns is not None and form != "csv":
        raise DataError(
            f"data set {settings.name!r}: 'features' names columns, which csv files have, but this is {form}; "
            "give their number, or the shape"
        )
    for owner_format, other in _READERS.items():
        for option in sorted(other.options - reader.options):
            if getattr(settings, option) != type(settings).model_fields[option].default:
                raise DataError(
                    f"data set {settings.name!r}: {option!r} is for {owner_format} files, but this is {form}; "
                    "leave it out"
                )


def _check_shapes(path: Path, train: Examples, test: Examples | None) -> None:
    shape = train.features.shape[1:]
    if 0 in train.features.shape or (test and 0 in test.features.shape):
        raise DataError(f"{path}: expected at least one example with one feature, found none")
    if test and test.features.shape[1:] != shape:
        raise DataError(
            f"{path}: expected test examples of shape {list(shape)} like the training examples, "
            f"found {list(test.features.shape[1:])}"
        )


def _widen(train: Examples, test: Examples) -> None:
    """Give both as many columns as the wider one: a file ends at the largest index that occurs in it."""
    width = max(train.features.shape[1], test.features.shape[1])
    for examples in (train, test):
        examples.features.resize((examples.features.shape[0], width))
