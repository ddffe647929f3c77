"""A party's own examples, read as the spec declares them, and shards written as files of parties.

A party trains on every example that it has and holds none out. What is done to labels and features depends on the
example itself and on the settings, so each row is, bit for bit, what `load_dataset` makes of it in a file of all.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gossamer.data.datasets import Dataset, declared, declared_form, read_files
from gossamer.data.declaration import Declaration, classes_of
from gossamer.data.examples import Labelled, Owners, Split, check_held_out_persons, check_persons
from gossamer.data.files import infer_format
from gossamer.data.settings import DatasetSettings
from gossamer.errors import DataError, counted
from gossamer.files import replaced


def load_party_split(
    settings: DatasetSettings,
    path: Path,
    test_path: Path | None = None,
    *,
    examples: int | None = None,
    rows_per_person: int | None = None,
    evaluated: bool = False,
    say: Callable[[str], object] = lambda line: None,
) -> tuple[Split, Split | None]:
    """Read a party's own file or folder.

    Parameters
    ----------
    settings : DatasetSettings
        The data set of the run's spec, which declares what examples look like. Its own ``path``, ``test_path``
        and ``test_fraction`` are not those of the party and are ignored.
    path : Path
        The party's training examples: all of them.
    test_path : Path, optional
        Examples to test on, where the party has some in a file of their own.
    examples : int, optional
        Number of training examples the party has declared. Those that came after them are left out.
    rows_per_person : int, optional
        The most training examples of one person that the run's budget covers. It is checked where the settings, or an
        archive itself, say which person an example is about.
    evaluated : bool
        Whether test examples are released, with noise, so that nobody may be on both sides.
    say : callable, optional
        Takes a line on what was left out.

    Returns
    -------
    tuple of Split and (Split or None)
        Training examples, and test examples where the party has some.

    Raises
    ------
    SpecError
        If the settings leave to the data what they must declare; it names the keys.
    DataError
        If a file is missing or malformed, is not as declared, has a label that is not among those declared, has
        features that are not finite, has fewer examples than declared, or more of one person than the budget covers; or
        if persons may have examples on both sides where none may.
    """
    form = declared_form(settings)
    if settings.synthetic is not None:
        raise DataError(f"{path}: {settings.name} is drawn, not read, so no party has a file of it; see its settings")
    known = declared(settings)
    file_format = form.format or infer_format(path)
    if file_format == "npz" and settings.name.endswith(_SHARDS):  # features are made of the columns already
        known = known.model_copy(update=dict.fromkeys(_OF_TABLES) | {"target": -1})
    # With columns named, nothing is left for the owner's column to say: all rows are the party's.
    unused = {"owner": None} | ({"person": None} if rows_per_person is None else {})
    own = known.model_copy(update=unused) if known.chosen else known
    train, test = read_files(file_format, path, test_path, own)
    if examples is not None:
        train = _declared_ones(train, examples, path, say)
    if rows_per_person is not None and train.persons is not None:
        check_persons(train.persons, rows_per_person, str(path))
    if rows_per_person is not None and evaluated and test is not None:
        check_held_out_persons(train.persons, test.persons, rows_per_person, str(test_path or path))
    declaration = Declaration.of(known, file_format, form.shape, form.layout, classes_of(train.labels, known))
    return declaration.split(train, "training", path), (
        None if test is None else declaration.split(test, "test", test_path or path)
    )


def _declared_ones(train: Labelled, number: int, path: Path, say: Callable[[str], object]) -> Labelled:
    """The examples that a party has declared, without those that came later."""
    found = len(train.labels)
    if found == number:
        return train
    if found < number:
        raise DataError(
            f"{path}: expected {number:,} training examples, as this party has declared, found {found:,}; correct the "
            "file, or have a new invitation made with the right number"
        )
    which = f"number {found:,}" if found == number + 1 else f"numbers {number + 1:,} to {found:,}"
    say(
        f"{path}: leaves out {counted(found - number, 'training example', form=',')} ({which}), since this party has "
        f"declared {number:,}; a run whose invitation says {found:,} uses them"
    )
    return train.take(slice(number))


def write_party_file(
    path: Path,
    shard: Split,
    dataset: Dataset,
    test: Split | None = None,
    persons: Owners | None = None,
    test_persons: Owners | None = None,
) -> DatasetSettings:
    """Write a shard as the NPZ file of one party, for its owner alone.

    Parameters
    ----------
    path : Path
        The file, with the suffix ``.npz``; one that is there is replaced.
    shard : Split
        Rows of ``dataset.train``.
    dataset : Dataset
        The data set that the shard is of: its labels and shape are those of all parties.
    test : Split, optional
        Examples to test on, kept in the same file.
    persons, test_persons : ndarray, optional
        Person that each row of the shard, and of ``test``, is about.

    Returns
    -------
    DatasetSettings
        With these `load_party_split` gives ``shard`` and ``test`` back, bit for bit. They are the same for every
        shard of the data set.
    """
    arrays = _arrays("train_", shard, dataset) | ({} if test is None else _arrays("test_", test, dataset))
    about = {"train_persons": persons, "test_persons": test_persons}
    arrays |= {name: np.asarray(who, np.str_) for name, who in about.items() if who is not None}
    with replaced(path) as file:
        np.savez_compressed(file, **arrays)
    return shard_settings(dataset)


_SHARDS, _OF_TABLES = "-shards", ("columns", "scale", "csv", "missing_marks", "drop_unlabelled", "owner", "person")


def shard_settings(dataset: Dataset) -> DatasetSettings:
    """The settings with which the files of all shards of ``dataset`` are read.

    Declared columns stay, for groups that go by them and for models that are to read tables. Rows of unit norm would
    not stay the same bits, so theirs go.
    """
    made, form = dataset.declaration, dict[str, Any]()
    if made is not None and made.declared and made.normalise == "none":
        form = {"target": made.target, **{key: getattr(made, key) for key in _OF_TABLES}}
    else:
        form = {"format": "npz", "features": tuple(dataset.train.features.shape[1:]), "divide_by": 1.0}
    return DatasetSettings(
        # A name of its own, so that nothing that is known of the original is done a second time.
        name=f"{dataset.name}{_SHARDS}",
        task="regression" if dataset.classes is None else "classification",
        labels=dataset.labels,
        layout="sparse" if dataset.train.sparse else "dense",
        normalise="none",
        target_range=dataset.target_range,
        **form,
    )


def _arrays(prefix: str, split: Split, dataset: Dataset) -> dict[str, Any]:
    arrays: dict[str, Any] = {f"{prefix}targets": dataset.as_written(split)}
    name = f"{prefix}features"
    if isinstance(split.features, np.ndarray):
        return arrays | {name: split.features}
    parts = {part: getattr(split.features, part) for part in ("data", "indices", "indptr")}
    return (
        arrays
        | {f"{name}_{part}": array for part, array in parts.items()}
        | {f"{name}_shape": np.array(split.features.shape)}
    )
