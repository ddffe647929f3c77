"""Data sets: from settings to a training and a test split."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gossamer.data.catalogue import KNOWN, KnownDataset
from gossamer.data.declaration import Declaration
from gossamer.data.examples import Examples, Owners
from gossamer.data.features import choose_layout
from gossamer.data.formats import infer_format, read_files
from gossamer.data.holding_out import held_out, without_last
from gossamer.data.persons import warn_of_shared_persons
from gossamer.data.preparing import Treatment, classes_of, targets_of
from gossamer.data.search import search_path as search_path
from gossamer.data.settings import GENERATED, IN_MEMORY, Format, SyntheticSettings
from gossamer.data.settings import DatasetSettings as DatasetSettings
from gossamer.data.split import Split
from gossamer.data.synthetic import graph_regression
from gossamer.data.target_range import TargetRange
from gossamer.data.targets import real_targets
from gossamer.errors import DataError, counted


@dataclass(frozen=True, eq=False)
class Dataset:
    """Examples to train on and to test on.

    Attributes
    ----------
    name : str
        What the settings call it.
    train, test : Split
        With features of one layout and one number of columns.
    classes : int, optional
        Number of classes; None for a regression.
    labels : tuple of str, optional
        What the data call each class number, with commas between labels that ``positive`` made one class; None
        for a regression.
    owners : ndarray [training examples] of str or int64, optional
        Whose example each one is, where the data say so.
    source : str
        Where it came from and how the test examples were chosen.
    persons : ndarray [training examples] of str or int64, optional
        Which person each one is about, where the data say so.
    declaration : Declaration, optional
        What was said of the data, and followed: enough to read further rows alike. It says nothing of any row.
    """

    name: str
    train: Split
    test: Split
    classes: int | None
    labels: tuple[str, ...] | None
    owners: Owners | None
    source: str
    persons: Owners | None = None
    declaration: Declaration | None = None

    @property
    def target_range(self) -> TargetRange | None:
        """Constants that real targets were scaled by, if there are any."""
        return None if self.declaration is None else self.declaration.target_range

    def as_written(self, split: Split) -> npt.NDArray[Any]:
        """Labels of examples of this data set, or real targets in their own unit, which are read as just these."""
        if self.labels is not None:
            return np.array(self.labels)[split.targets]
        return split.targets if self.target_range is None else self.target_range.exactly(split.targets)


@dataclass(frozen=True)
class DatasetRecord:
    """A line of ``gossamer datasets``.

    ``path`` is None where the files were not found; the sizes, where settings say them; ``files`` is empty where there
    is nothing to look for.
    """

    name: str
    description: str
    homepage: str
    train_examples: int | None
    test_examples: int | None
    features: int | None
    classes: int | None
    files: tuple[str, ...]
    path: Path | None


@dataclass(frozen=True)
class _Origin:
    """Files to read and their format, once names are resolved."""

    train: Path
    test: Path | None
    format: Format
    known: KnownDataset | None


def known_datasets() -> list[DatasetRecord]:
    """Every data set known by name, and where its files are."""
    return [
        DatasetRecord(
            known.name,
            known.description,
            known.homepage,
            known.train_examples,
            known.test_examples,
            known.features,
            known.classes,
            known.files,
            _path_or_none(known),
        )
        for known in (each.found(search_path()) for each in KNOWN.values())
    ] + [DatasetRecord(GENERATED, "drawn: a regression of many owners", "", None, None, None, None, (), None)]


def _path_or_none(known: KnownDataset) -> Path | None:
    try:
        return known.locate()[0]
    except DataError:
        return None


def load_dataset(settings: DatasetSettings) -> Dataset:
    """Read a data set.

    Parameters
    ----------
    settings : DatasetSettings
        Which one, and how.

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
    if settings.synthetic is not None:
        return _drawn(settings)
    settings = settings.complete()
    origin = _resolve(settings)
    train, own_test = read_files(origin.format, origin.train, origin.test, settings)
    return _dataset(settings, origin.format, train, own_test, origin.train, _described(origin))


def dataset_of(settings: DatasetSettings, train: Examples, test: Examples | None, where: Path, source: str) -> Dataset:
    """Make a data set of examples that are in memory; ``where`` they are, for errors.

    Raises
    ------
    DataError
        If labels do not fit together, examples are not as ``features`` says, or nothing is left to test on.
    """
    return _dataset(settings, None, train, test, where, source)


def _dataset(
    settings: DatasetSettings, form: Format | None, train: Examples, own_test: Examples | None, where: Path, source: str
) -> Dataset:
    found = classes_of(train.labels, settings)
    train, test = _hold_out(train, settings) if own_test is None else (train, own_test)
    warn_of_shared_persons(settings.name, train.persons, test.persons)
    treatment = Treatment.of(settings, form or "npz", settings.layout or choose_layout(train.features))

    def split(examples: Examples, which: str) -> Split:
        features = treatment.apply(examples.features, where)
        return Split(features, targets_of(examples.labels, found, which, examples.places, settings.target_scale))

    splits = split(train, "training"), split(test, "test")
    for each in splits:
        if not np.isfinite(each.features.data if each.sparse else each.features).all():
            raise DataError(f"{settings.name}: features are not finite after dataset.divide_by, scale and normalise")
    shape, layout = tuple(splits[0].features.shape[1:]), treatment.layout
    members = None if found is None else found.members()
    held = f"; {settings.test_fraction:g} of the examples held out for testing" if own_test is None else ""
    return Dataset(
        settings.name,
        *splits,
        classes=None if members is None else len(members),
        labels=None if found is None else found.names(),
        owners=train.owners,
        source=source + held,
        persons=train.persons,
        declaration=Declaration.of(settings, form, shape, layout, members, (train.sources, train.target)),
    )


def _drawn(dataset: DatasetSettings) -> Dataset:
    settings = dataset.synthetic or SyntheticSettings()
    train, test = graph_regression(settings)
    return Dataset(
        name=dataset.name,
        train=Split(train.features, real_targets(train.labels, "training")),
        test=Split(test.features, real_targets(test.labels, "test")),
        classes=None,
        labels=None,
        owners=train.owners,
        source=f"drawn with seed {settings.seed}",
        declaration=Declaration.of(dataset, None, (settings.features,), "dense", None),
    )


def _resolve(settings: DatasetSettings) -> _Origin:
    known = KNOWN.get(settings.name)
    if settings.path is None:
        if settings.name == IN_MEMORY:
            raise DataError(
                "dataset: these examples were given from memory, and no file has them; run it from Python with the "
                "same arrays: gs.run(spec, data=gs.Data(...))"
            )
        if known is None:
            raise DataError(
                f"no data set is called {settings.name!r}; known are {', '.join([*KNOWN, GENERATED])}; "
                "for your own files give their path"
            )
        known = known.found(search_path())
        train, test = known.locate()
    else:
        path = settings.path.expanduser()
        if known is not None and known.others:
            known = known.found([path]) if path.is_dir() else known.of_file(path)
        train, test = _at(path, settings.name, known)
    test = settings.test_path.expanduser() if settings.test_path else test
    form = settings.format or (known.format if known else infer_format(train))
    return _Origin(train, test, form, known)


def _at(path: Path, name: str, known: KnownDataset | None) -> tuple[Path, Path | None]:
    if not path.exists():
        raise DataError(f"data set {name!r}: there is no file or folder {path}; correct its path")
    return known.locate([path]) if known and path.is_dir() else (path, None)


def _hold_out(examples: Examples, settings: DatasetSettings) -> tuple[Examples, Examples]:
    labels = examples.labels
    strata = labels if settings.task == "classification" else np.zeros(len(labels))
    tested = held_out(strata, settings.test_fraction, examples.persons)
    if examples.owners is not None:
        tested = without_last(tested, examples.owners, examples.persons)
    if not tested.any():
        whole = "" if examples.persons is None else ", with all examples of a person,"
        raise DataError(
            f"data set {settings.name!r}: {counted(len(labels), 'example is', 'examples are')} too few to hold out "
            f"{settings.test_fraction:g} of each class{whole} for testing; raise test_fraction or give test_path"
        )
    return _take(examples, ~tested), _take(examples, tested)


def _take(examples: Examples, chosen: npt.NDArray[np.bool_]) -> Examples:
    owners, persons = (None if who is None else who[chosen] for who in (examples.owners, examples.persons))
    features, labels = examples.features[chosen], examples.labels[chosen]
    places = None if examples.places is None else examples.places.take(chosen)
    return replace(examples, features=features, labels=labels, owners=owners, persons=persons, places=places)


def _described(origin: _Origin) -> str:
    place = str(origin.train) if origin.known is None or origin.known.files else "bundled"
    return f"{place}; test examples from {origin.test}" if origin.test else place
