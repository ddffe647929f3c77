"""Parquet files are read as CSV files with the same cells are."""

from __future__ import annotations

import decimal
import sys
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gossamer.data.datasets import DatasetSettings, load_dataset
from gossamer.data.table_files import parquet_table
from gossamer.deployment.owner.fingerprints import content_of, examples_at
from gossamer.errors import DataError

CELLS: dict[str, Any] = {
    "age": pa.array([60, 30, None, 120], pa.int64()),
    "income": pa.array([30000.5, 42000.0, 6000.0, 30000.0], pa.float64()),
    "cost": pa.array([decimal.Decimal("1.50"), decimal.Decimal("2.25"), None, decimal.Decimal("0.00")]),
    "sex": pa.array(["female", "male", None, "male"]).dictionary_encode(),
    "grade": pa.array([1, 2, 2, 1], pa.int8()),
    "smoker": pa.array([True, False, False, None]),
    "who": pa.array([2**60, 2**60 + 1, 2**60 + 2, 2**60 + 3], pa.int64()),
    "ill": pa.array([0, 1, 0, 1], pa.int32()),
}
COLUMNS = {
    "age": {"range": [0, 120], "missing": 60},
    "income": {"mean": 30000, "deviation": 12000},
    "cost": {"range": [0, 3], "missing": 3},
    "sex": {"categories": ["female", "male"], "missing": "male"},
    "grade": {"categories": [1, 2]},
    "smoker": {"kind": "boolean", "missing": False},
}
CSV = """age,income,cost,sex,grade,smoker,who,ill
60,30000.5,1.50,female,1,true,1152921504606846976,0
30,42000.0,2.25,male,2,false,1152921504606846977,1
,6000.0,,,2,false,1152921504606846978,0
120,30000.0,0.00,male,1,,1152921504606846979,1
"""


def settings(path: Path, **others: Any) -> DatasetSettings:
    given = {"name": "mine", "path": path, "test_path": path, "target": "ill", "person": "who", "columns": COLUMNS}
    return DatasetSettings(**(given | others))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.parquet"
    pq.write_table(pa.table(CELLS), path)
    return path


@pytest.mark.filterwarnings("ignore:.*with training and test examples:gossamer.RunWarning")
def test_the_same_cells_are_the_same_examples(file: Path, tmp_path: Path) -> None:
    """Identifiers too large for a float64 stay apart."""
    other = tmp_path / "mine.csv"
    other.write_text(CSV)
    first, second = load_dataset(settings(file)), load_dataset(settings(other))
    assert np.array_equal(first.train.features, second.train.features)
    assert np.array_equal(first.train.targets, second.train.targets)
    assert first.persons is not None
    assert first.persons.tolist() == second.persons.tolist()  # type: ignore[union-attr]
    assert len(set(first.persons)) == 4


def test_a_cell_is_named_by_its_row(file: Path) -> None:
    columns = {**COLUMNS, "age": [0, 120]}
    with pytest.raises(DataError, match=r"mine\.parquet, row 3, column 'age': the cell is empty"):
        load_dataset(settings(file, columns=columns))
    columns = {**COLUMNS, "sex": ["female", "other"]}
    with pytest.raises(DataError, match="row 2, column 'sex': expected one of female, other, found 'male'"):
        load_dataset(settings(file, columns=columns))


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.parquet"
    path.write_bytes(b"PAR1 and no more")
    with pytest.raises(DataError, match="expected a Parquet file"):
        load_dataset(settings(path))
    lists = {"a": [[1], [2]], "day": [date(2026, 1, 1), None], "ill": [0, 1]}
    pq.write_table(pa.table(lists), path)
    with pytest.raises(DataError, match="column 'a': expected numbers or texts, found arrays"):
        load_dataset(settings(path, columns={"a": "number"}, person=None))
    pq.write_table(pa.table({"day": lists["day"], "ill": [0, 1]}), path)
    with pytest.raises(DataError, match="row 1, column 'day': expected a number, found '2026-01-01'"):
        load_dataset(settings(path, columns={"day": "number"}, person=None))


def test_without_pyarrow_the_extra_is_named(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError, match=r'save the table as CSV; .* -m pip install "pyarrow>='):
        parquet_table(file)


def test_an_owner_notices_changed_rows(file: Path, tmp_path: Path) -> None:
    before = content_of(examples_at(file), bytes(32)).hashes
    other = tmp_path / "other.parquet"
    pq.write_table(pa.table({**CELLS, "age": pa.array([60, 30, None, 119], pa.int64())}), other)
    after = content_of(examples_at(other), bytes(32)).hashes
    assert len(before) == 4
    assert [a == b for a, b in zip(before, after)] == [True, True, True, False]
