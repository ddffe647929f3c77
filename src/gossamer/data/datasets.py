"""Data sets: from settings to a training and a test split."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from gossamer.arrays import IntArray
from gossamer.data.array_files import read_idx_folder, read_libsvm, read_npz
from gossamer.data.columns import Column, TargetRange
from gossamer.data.declaration import Classes, Declaration, choose_layout, classes_of
from gossamer.data.examples import (
    Features,
    Labelled,
    Labels,
    Owners,
    Pair,
    Split,
    are_numbers,
    as_float32,
    hold_out,
    warn_of_shared_persons,
)
from gossamer.data.files import KNOWN, infer_format
from gossamer.data.files import search_path as search_path
from gossamer.data.picture_files import read_cifar10, read_images
from gossamer.data.settings import GENERATED, IN_MEMORY, TABLES, ConstantScale, Format, NoScale, SyntheticSettings
from gossamer.data.settings import DatasetSettings as DatasetSettings
from gossamer.data.table import Wanted, read_rows
from gossamer.data.table_files import table_file
from gossamer.errors import DataError, SpecError
from gossamer.files import refusals
from gossamer.randomness import stream


def _wanted(settings: DatasetSettings) -> Wanted:
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
        drop_unlabelled=bool(settings.drop_unlabelled),
    )


def _table(form: Format, path: Path, settings: DatasetSettings) -> Pair:
    return read_rows(table_file(path, form, settings.csv), _wanted(settings)), None


def _libsvm(path: Path, settings: DatasetSettings) -> Pair:
    known = KNOWN.get(settings.name)
    shape = settings.shape or (known.shape if known else None)
    return read_libsvm(path, None if shape is None else math.prod(shape), settings.first_index), None


_READERS: dict[Format, Callable[[Path, DatasetSettings], Pair]] = {
    "idx": lambda path, settings: read_idx_folder(path),
    "images": lambda path, settings: read_images(path),
    "cifar10": lambda path, settings: read_cifar10(path),
    "npz": lambda path, settings: read_npz(path),
    **{form: partial(_table, form) for form in TABLES},
    "libsvm": _libsvm,
}
_OPTIONS: dict[str, tuple[Format, ...]] = {
    "columns": TABLES,
    "csv": TABLES,
    "first_index": ("libsvm",),
    **dict.fromkeys(("drop_unlabelled", "ignore", "missing_marks", "owner", "person", "target"), TABLES),
}
"""Settings that only some formats have. Parquet files have no dialect, but parties with either share a spec."""


def read_files(form: Format, train: Path, test: Path | None, settings: DatasetSettings) -> Pair:
    """Training and test examples as the files give them, agreeing in the number of features.

    Raises
    ------
    DataError
        For an option that the format does not have, a second source of test examples, and whatever the
        format's reader refuses.
    """
    read = _READERS[form]
    _check_options(form, settings)
    examples, own_test = read(train, settings)
    if test is not None:
        if own_test is not None:
            raise DataError(f"{train} has test examples of its own; leave test_path out")
        own_test = read(test, settings)[0]
        if form == "libsvm":
            _widen(examples, own_test)
    _check_shapes(test or train, examples, own_test)
    return examples, own_test


def _check_options(form: Format, settings: DatasetSettings) -> None:
    if settings.named is not None and form not in TABLES:
        raise DataError(
            f"data set {settings.name!r}: 'features' names columns, which {', '.join(TABLES)} files have, but this "
            f"is {form}; give their number, or the shape"
        )
    for option, owners in _OPTIONS.items():
        if form not in owners and getattr(settings, option) != type(settings).model_fields[option].default:
            raise DataError(
                f"data set {settings.name!r}: {option!r} is for {', '.join(owners)} files, but this is {form}; "
                "leave it out"
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


# Advice on numbers that nobody scales and labels that nobody declares, by settings alone: no value is looked at.

_RATIO = 10.0
_MOST = 5
_WHY = "private learning clips every example's gradient, so that a column of large numbers drowns the others"


def unscaled(settings: DatasetSettings, form: Format | None) -> list[str]:
    """Return what to say of features that nobody scales, at most a line; ``form`` is the format of the files."""
    scale, columns = settings.scale, settings.columns if isinstance(settings.columns, dict) else {}
    silent = settings.divide_by is None and settings.normalise == "none" and not isinstance(settings.columns, Path)
    bare = [name for name, column in columns.items() if column.is_number and not column.scaled]
    sizes = {name: size for name, column in columns.items() if (size := _size(column)) is not None}
    least, most = (find(sizes, key=sizes.__getitem__, default="") for find in (min, max))
    rules = {
        "undeclared": silent and not columns and form in TABLES and scale is None,
        "differing": silent and isinstance(scale, NoScale) and sizes and sizes[most] > _RATIO * sizes[least],
        "bare": silent and bare and (scale is None or scale.name == "declared"),
    }
    found = {"shown": ", ".join([*bare[:_MOST], *["..."] * bool(bare[_MOST:])]), "bare": bare, "why": _WHY}
    times = sizes[most] / sizes[least] if sizes else 1.0
    return [*refusals(__file__, rules, s=settings, least=least, most=most, times=times, **found)]


def _size(column: Column) -> float | None:
    """Return how large numbers of a column may be; None if it does not say."""
    if not column.is_number:
        return 1.0
    if column.range is not None:
        return max(map(abs, column.range))
    return None if column.mean is None or column.deviation is None else abs(column.mean) + column.deviation


def unlearnable(settings: DatasetSettings) -> list[str]:
    """Return what to say, in a private run, of a target that nobody scales: at most a line."""
    number = settings.task == "regression" and settings.name != GENERATED
    return [*refusals(__file__, {"targets": number and settings.target_range is None}, s=settings)]


def undeclared_labels(settings: DatasetSettings) -> list[str]:
    """Return what to say, in a private run, of labels that are found in rows, and told by a model: at most a line."""
    classes = settings.task == "classification" and settings.name not in KNOWN
    own = settings.path is not None or settings.name == IN_MEMORY
    return [*refusals(__file__, {"labels": classes and own and settings.labels is None}, s=settings)]


def declared(settings: DatasetSettings) -> DatasetSettings:
    """``settings`` with what is publicly known of the data set filled in where they are silent.

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


def declared_form(settings: DatasetSettings) -> Declaration:
    """Return the declaration of examples without reading any; its format is None where each party's file says it.

    Raises
    ------
    SpecError
        If the settings leave something to the data; it names the keys.
    DataError
        If labels and positive labels contradict each other.
    """
    if settings.synthetic is not None:
        return Declaration.of(settings, None, (settings.synthetic.features,), "dense", None)
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
    return Declaration.of(settings, settings.format, shape, layout, _classes(settings))


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
    empty = sp.csr_array if form.layout == "sparse" else np.zeros
    features: Features = empty((0, *form.shape), dtype=np.float32)
    blank = Split(features, np.zeros(0, np.float32) if form.classes is None else np.zeros(0, np.int64))
    return Dataset(form, blank, blank, "declared, without examples")


def graph_regression(settings: SyntheticSettings) -> tuple[Labelled, Labelled]:
    """Examples of ``d = u'w + v`` of many owners: one w, but features and noise of laws of their own.

    Owner k has features u ~ N(0, R_k), where R_k has axes turned at random and variances along them uniform in
    ``feature_variance``, and noise v ~ N(0, s_k^2), where s_k^2 is uniform in ``noise_variance``. w ~ N(0, I).

    Parameters
    ----------
    settings : SyntheticSettings
        Numbers of owners, features and examples, and their law.

    Returns
    -------
    train : Labelled
        ``owners * examples`` of them, owner by owner, whose numbers are 0, 1, ... as int64.
    test : Labelled
        Of owners that are evenly spaced, without owners.

    Notes
    -----
    The regression is that of Rizk and Sayed, "A graph federated architecture with privacy preserving learning", section
    V-A, equation (53), which says that covariances and noise are random and differ, not how they are drawn. The same
    settings give the same examples with the same release of NumPy.
    """
    owners, features = settings.owners, settings.features
    weights = stream(settings.seed, "graph regression", "weights").normal(size=features)
    laws = stream(settings.seed, "graph regression", "owners")
    # Axes of a normal matrix are turned uniformly, up to signs, which a covariance does not have.
    axes = np.linalg.qr(laws.normal(size=(owners, features, features))).Q
    low, high = settings.feature_variance
    scales = np.sqrt(laws.uniform(low, high, size=(owners, features)))
    # Row vectors z ~ N(0, I) become z @ roots[k] ~ N(0, R_k).
    roots = np.swapaxes(axes * scales[:, None, :], 1, 2)
    low, high = settings.noise_variance
    spreads = np.sqrt(laws.uniform(low, high, size=owners))

    def drawn(part: str, owner: IntArray, each: int) -> Labelled:
        generator = stream(settings.seed, "graph regression", part)
        u = as_float32(generator.normal(size=(len(owner), each, features)) @ roots[owner]).reshape(-1, features)
        noise = generator.normal(size=(len(owner), each)) * spreads[owner, None]
        return Labelled(u, u @ weights + noise.ravel(), np.repeat(owner, each))

    train = drawn("training", np.arange(owners), settings.examples)
    test = drawn("test", np.arange(settings.test_examples) * owners // settings.test_examples, 1)
    return train, Labelled(test.features, test.labels)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Examples to train on and to test on.

    Attributes
    ----------
    declaration : Declaration
        Declaration of the data, as it was followed: enough to read further rows alike. It says nothing of any row.
    train, test : Split
        Examples to train on and to test on, with features of one layout and one number of columns.
    source : str
        Words on where it came from and how the test examples were chosen.
    owners, test_owners : ndarray [examples] of str or int64, optional
        Owner of each example, where the data say so.
    persons, test_persons : ndarray [examples] of str or int64, optional
        Person that each example is about, where the data say so.
    """

    declaration: Declaration
    train: Split
    test: Split
    source: str
    owners: Owners | None = None
    persons: Owners | None = None
    test_owners: Owners | None = None
    test_persons: Owners | None = None

    @property
    def name(self) -> str:
        """Name in the settings."""
        return self.declaration.name

    @property
    def labels(self) -> tuple[str, ...] | None:
        """Names that the data give the class numbers, as the declaration has them; None for a regression."""
        return self.declaration.labels

    @property
    def classes(self) -> int | None:
        """Number of classes; None for a regression."""
        return None if self.labels is None else len(self.labels)

    @property
    def target_range(self) -> TargetRange | None:
        """Constants that real targets were scaled by, if there are any."""
        return self.declaration.target_range

    def as_written(self, split: Split) -> npt.NDArray[Any]:
        """Labels of examples of this data set, or real targets in their own unit, which are read as just these."""
        if self.labels is not None:
            return np.array(self.labels)[split.targets]
        return split.targets if self.target_range is None else self.target_range.exactly(split.targets)


class DatasetRecord(NamedTuple):
    """A line of ``gossamer datasets``; ``path`` is None where the files were not found, or there are none."""

    name: str
    description: str
    files: tuple[str, ...]
    path: Path | None


def known_datasets() -> list[DatasetRecord]:
    """Every data set known by name, and where its files are."""
    folders = search_path()
    known = [each.found(folders) for each in KNOWN.values()]
    return [
        *(DatasetRecord(each.name, each.description, each.files, each.place(folders)) for each in known),
        DatasetRecord(GENERATED, "drawn: a regression of many owners", (), None),
    ]


def load_dataset(settings: DatasetSettings | str) -> Dataset:
    """Read a data set.

    Parameters
    ----------
    settings : DatasetSettings or str
        Settings that name it, and say how to read it; or its name alone.

    Returns
    -------
    Dataset
        The same for the same files and settings, whatever a run's seed.

    Raises
    ------
    DataError
        If files are missing or malformed, a feature is not finite, examples are not as ``features`` says, labels
        do not fit together, or nothing is left to test on.
    """
    if isinstance(settings, str):
        settings = DatasetSettings(name=settings)
    if settings.synthetic is not None:
        source = f"drawn with seed {settings.synthetic.seed}"
        return dataset_of(settings, *graph_regression(settings.synthetic), Path(settings.name), source)
    settings = settings.complete()
    path, test_path, form = _files(settings)
    known = KNOWN.get(settings.name)
    train, own_test = read_files(form, path, test_path, settings)
    source = str(path) if known is None or known.files else "bundled"
    source += f"; test examples from {test_path}" if test_path else ""
    return dataset_of(settings, train, own_test, path, source, form)


def dataset_of(
    settings: DatasetSettings,
    train: Labelled,
    own_test: Labelled | None,
    where: Path,
    source: str,
    form: Format | None = None,
) -> Dataset:
    """Make a data set of examples.

    Parameters
    ----------
    settings : DatasetSettings
        Settings that say what is done to them.
    train, own_test : Labelled
        Examples to train on and to test on; without the latter some of the former are held out.
    where : Path
        Place of the examples, for errors.
    source : str
        Words on where they are from.
    form : str, optional
        Format of their files; None for arrays.

    Raises
    ------
    DataError
        If labels do not fit together, examples are not as ``features`` says, or nothing is left to test on.
    """
    classes, known = classes_of(train.labels, settings), KNOWN.get(settings.name)
    if own_test is None:
        by_class = settings.task == "classification"
        by_owner = settings.test_by == "owner"
        train, test = hold_out(settings.name, train, settings.test_fraction, by_class=by_class, by_owner=by_owner)
    elif settings.test_by is not None:
        raise DataError(
            f"data set {settings.name!r}: dataset.test_by says how test examples are chosen, and there are such "
            f"already ({settings.test_path or 'in its files'}); leave it out"
        )
    else:
        test = own_test
    warn_of_shared_persons(settings.name, train.persons, test.persons)
    shape = settings.shape or (known.shape if known else tuple(train.features.shape[1:]))
    layout = settings.layout or choose_layout(train.features)
    declaration = Declaration.of(settings, form, shape, layout, classes, train)
    held = f"; {settings.test_fraction:g} of the examples held out for testing" if own_test is None else ""
    splits = declaration.split(train, "training", where), declaration.split(test, "test", where)
    whose = train.owners, train.persons, test.owners, test.persons
    return Dataset(declaration, *splits, source + held, *whose)


def _files(settings: DatasetSettings) -> tuple[Path, Path | None, Format]:
    """The training file, that of test examples if it is another one, and their format."""
    known, path = KNOWN.get(settings.name), settings.path
    if path is not None:
        path = path.expanduser()
        if not path.exists():
            raise DataError(f"data set {settings.name!r}: there is no file or folder {path}; correct its path")
        if known is not None:
            known = known.found([path]) if path.is_dir() else known.of_file(path)
        train, test = known.locate([path]) if known and path.is_dir() else (path, None)
    elif settings.name == IN_MEMORY:
        raise DataError(
            "dataset: these examples were given from memory, or are a Flower app's own, and no file has them; make the "
            "run as it was made: gs.run(spec, data=gs.Data(...)), or gossamer flower APP --spec SPEC"
        )
    elif known is None:
        raise DataError(
            f"no data set is called {settings.name!r}; known are {', '.join([*KNOWN, GENERATED])}; "
            "for your own files give their path"
        )
    else:
        known = known.found(search_path())
        train, test = known.locate()
    test = settings.test_path.expanduser() if settings.test_path else test
    return train, test, settings.format or (known.format if known else infer_format(train))
