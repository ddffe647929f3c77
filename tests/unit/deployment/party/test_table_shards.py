"""Shards written as tables: what a party reads is its shard of the simulation, to the last bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gossamer.data.columns import Column
from gossamer.data.datasets import load_dataset
from gossamer.data.declared import blank_dataset
from gossamer.data.settings import DatasetSettings
from gossamer.data.split import Split
from gossamer.deployment.party.data import load_party_split
from gossamer.deployment.party.table_shards import table_settings, write_party_table
from gossamer.errors import DataError
from gossamer.experiment.private_scale import found_by_release

CLASSES: dict[str, dict[str, Any]] = {
    "numbers": {"labels": [0, 1]},
    "texts": {"labels": ["no, thanks", "yes"]},
    "regression": {"task": "regression"},
    "a target in a range": {"task": "regression", "target_range": [-1.5, 130]},
    "persons": {"labels": [0, 1], "person": "who"},
}


def settings(tmp_path: Path, more: dict[str, Any]) -> DatasetSettings:
    """A table with a column of each kind, of which two numbers are without constants."""
    generator = np.random.default_rng(3)
    path = tmp_path / "things.csv"
    lines = ["target,size,kind,well,age,odd name,who,good"]
    for row in range(60):
        good = f'"{more["labels"][row % 2]}"' if "labels" in more else repr(float(generator.normal()))
        cells = [
            generator.normal(),
            generator.uniform(1, 9) * 1e-30,
            "ab"[row % 2],
            "yes",
            row,
            generator.normal() * 1e30,
        ]
        lines.append(",".join([*map(str, cells), f"p{row // 2}", good]))
    path.write_text("\n".join(lines) + "\n")
    columns = {"target": {"mean": 0.1, "deviation": 3}, "size": "number", "kind": ["a", "b"], "well": "boolean"}
    columns |= {"age": [0, 70], "odd name": "number"}
    given = {"name": "things", "path": path, "target": "good", "columns": columns, "scale": "private", **more}
    return DatasetSettings.model_validate(given)


@pytest.mark.parametrize("what", CLASSES)
def test_what_is_written_is_read(tmp_path: Path, what: str) -> None:
    dataset = load_dataset(settings(tmp_path, CLASSES[what]))
    rows = np.arange(5, len(dataset.train.targets) - 2)
    own = Split(dataset.train.features[rows], dataset.train.targets[rows])
    known = table_settings(dataset)
    persons = None if dataset.persons is None else dataset.persons[rows]
    write_party_table(tmp_path / "own.csv", own, dataset, persons)
    train, test = load_party_split(known, tmp_path / "own.csv", examples=len(rows), rows_per_person=2)
    assert test is None
    np.testing.assert_array_equal(train.features, own.features)
    np.testing.assert_array_equal(train.targets, own.targets)
    assert train.features.dtype == own.features.dtype
    blank = blank_dataset(known)
    assert found_by_release(blank) == found_by_release(dataset) == {"size": 1, "odd name": 6}
    assert (blank.classes, blank.labels) == (dataset.classes, dataset.labels)
    assert blank.declaration is not None
    assert dataset.declaration is not None
    assert blank.declaration.features == dataset.declaration.features
    if persons is not None:
        with pytest.raises(DataError, match="person"):
            load_party_split(known, tmp_path / "own.csv", examples=len(rows), rows_per_person=1)


def test_a_constant_column_is_no_longer_scaled(tmp_path: Path) -> None:
    known = table_settings(load_dataset(settings(tmp_path, CLASSES["numbers"])))
    assert isinstance(known.columns, dict)
    assert known.columns["age"] == Column(mean=0.0, deviation=1.0)
    assert known.columns["size"] == Column()
    assert known.target == "target_"  # a feature has that name
