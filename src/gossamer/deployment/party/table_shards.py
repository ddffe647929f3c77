"""Shards of a table whose scale the parties find together, written as tables: features have to keep their columns.

Columns that the spec scales by constants are written scaled, and declared so that reading leaves them as they are, to
the last bit; the others are numbers that are yet to be scaled, as in the spec.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Collection
from pathlib import Path

import numpy as np

from gossamer.data.columns import Column
from gossamer.data.datasets import Dataset
from gossamer.data.examples import Owners
from gossamer.data.settings import DatasetSettings
from gossamer.data.split import Split
from gossamer.experiment.private_scale import found_by_release
from gossamer.files import write_own


def table_settings(dataset: Dataset) -> DatasetSettings:
    """The settings with which the tables of all shards of ``dataset`` are read.

    Parameters
    ----------
    dataset : Dataset
        With columns, of which some are scaled privately.
    """
    declaration = dataset.declaration
    assert declaration is not None
    open_ones = found_by_release(dataset)
    target, person = _extra(declaration.features)
    return DatasetSettings(
        name=f"{dataset.name}-shards",
        format="csv",
        task=declaration.task,
        labels=dataset.labels,
        target=target,
        person=None if dataset.persons is None else person,
        columns={name: Column() if name in open_ones else _as_it_is() for name in declaration.features},
        scale=declaration.scale,
        target_range=declaration.target_range,
    )


def write_party_table(path: Path, shard: Split, dataset: Dataset, persons: Owners | None = None) -> None:
    """Write a shard as the CSV file of one party, for its owner alone.

    Parameters
    ----------
    path : Path
        The file; one that is there is replaced.
    shard : Split
        Rows of ``dataset.train``.
    dataset : Dataset
        The data set that the shard is of.
    persons : ndarray, optional
        Which person each row of the shard is about.
    """
    assert dataset.declaration is not None
    names = dataset.declaration.features
    more = _extra(names)[: 1 if persons is None else 2]
    labels = dataset.as_written(shard)
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow([*names, *more])
    # Python writes a number of float32 as the float64 that it is, which is read as the same number again.
    others = [labels.tolist()] if persons is None else [labels.tolist(), persons.tolist()]
    writer.writerows([*row, *rest] for row, *rest in zip(np.asarray(shard.features).tolist(), *others, strict=True))
    write_own(path, text.getvalue())


def _as_it_is() -> Column:
    """A number less 0, divided by 1."""
    return Column(mean=0.0, deviation=1.0)


def _extra(taken: Collection[str]) -> tuple[str, str]:
    """Names for the target's column and that of persons, which no feature has."""
    end = ""
    while {f"target{end}", f"person{end}"} & set(taken):
        end += "_"
    return f"target{end}", f"person{end}"
