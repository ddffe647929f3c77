"""CSV and NPZ: what is read, and what is refused with the place named."""

from __future__ import annotations

import io
import pickle
from pathlib import Path

import numpy as np
import pytest

from gossamer.data.array_files import read_npz
from gossamer.data.columns import Column
from gossamer.data.examples import Labelled
from gossamer.data.table import Wanted, read_rows
from gossamer.data.table_files import csv_table
from gossamer.errors import DataError

PATIENTS = """id,age,site,dose,outcome
p1,61,north,0.5,well
p2,47,south,1e-1,"not, well"

p3,50,north,-2,well
"""


def _csv(folder: Path, text: str, name: str = "data.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def read_csv(path: Path, target: str | int = -1, **options) -> Labelled:
    return read_rows(csv_table(path), Wanted(target=target, **options))


def test_columns_become_features_target_and_owner(tmp_path: Path) -> None:
    examples = read_csv(_csv(tmp_path, PATIENTS), "outcome", owner="site", ignore=["id"])
    assert examples.features.dtype == np.float32
    assert np.array_equal(examples.features, np.array([[61, 0.5], [47, 0.1], [50, -2]], np.float32))
    assert examples.labels.tolist() == ["well", "not, well", "well"]
    assert examples.owners is not None
    assert examples.owners.tolist() == ["north", "south", "north"]


@pytest.mark.parametrize("target", [0, -3, "y"])
def test_target_by_position_or_name(tmp_path: Path, target: int | str) -> None:
    examples = read_csv(_csv(tmp_path, "y,a,b\n1,2,3\n0,5,6\n"), target)
    assert examples.labels.tolist() == [1.0, 0.0]
    assert examples.features.tolist() == [[2, 3], [5, 6]]
    assert examples.owners is None


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path: Path) -> None:
    assert read_csv(_csv(tmp_path, "\ufeffy,a\n1,2\n"), "y").labels.tolist() == [1.0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a header"),
        ("a\n1\n", "expected a header of two or more"),
        ("a;y\n1;2\n", "expected a header of two or more different names with commas, .*separator: ';'"),
        ("a\ty\n1\t2\n", "for another separator say dataset.csv: {separator: tab}"),
        ("1.5,7\n1,2\n", "expected the columns' names in the first row, found numbers alone; say dataset.csv"),
        ("a,a\n1,2\n", "different names"),
        ("a,y\n", "found none"),
        ("a,y\n1,0\n1,0,3\n", "line 3: expected 2 columns, found 3"),
        ("a,y\n1,0\n\nred,0\n", "line 4, column 'a': expected a number, found 'red'; declare what its cells are"),
        ("a,y\n1,0\n,0\n", "line 3, column 'a': the cell is empty, and nothing says what it is read as; declare"),
        ("a,y\n1,0\nnan,0\n", "line 3, column 'a': the cell is empty, and nothing says"),
        ("a,y\n-inf,0\n", "line 2, column 'a'.* found -inf"),
        ("a,y\n1,0\n1,\n", "line 3, column 'y': the target is empty"),
        ('a,y\n1,"0\n', "line 2: not a CSV row"),
    ],
)
def test_a_wrong_table_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = _csv(tmp_path, text)
    with pytest.raises(DataError, match=message) as error:
        read_csv(path)
    assert str(error.value).startswith(str(path))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "z"}, "no column 'z'; its columns are a, b, y"),
        ({"target": 3}, "no column 3; it has 3"),
        ({"owner": "z"}, "no column 'z'"),
        ({"ignore": ["z"]}, "no column 'z'"),
        ({"ignore": ["a", "b"]}, "expected a feature in a column of its own, found none beside y, a, b"),
        ({"ignore": ["y"]}, "ignore names 'y', which is the target's column; name another column, or another target"),
        ({"owner": "y"}, "owner names 'y', which is the target's column"),
        ({"person": "y"}, r"person names 'y', which is the target's column; .*its columns are a, b, y"),
        ({"person": "y", "target": "y"}, "person names 'y', which is the target's column"),
        (
            {"person": "a", "columns": {"a": Column(), "b": Column()}},
            "features names 'a', which says whose an example is",
        ),
    ],
)
def test_a_wrong_column_is_named(tmp_path: Path, options, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_csv(_csv(tmp_path, "a,b,y\n1,2,3\n"), **options)


def test_an_owner_may_not_be_empty(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="line 3, column 'o': the owner is empty"):
        read_csv(_csv(tmp_path, "a,o,y\n1,u,3\n1,,3\n"), owner="o")


def test_text_must_be_utf8(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_bytes(b"a,y\n\xff,1\n")
    with pytest.raises(DataError, match=r"line 2: expected text in UTF-8, .*encoding: latin-1"):
        read_csv(path)


def _npz(folder: Path, **arrays) -> Path:
    path = folder / "data.npz"
    np.savez(path, **arrays)
    return path


def test_an_archive_with_a_test_split(tmp_path: Path) -> None:
    train, test = read_npz(
        _npz(
            tmp_path,
            train_features=np.arange(12, dtype=np.uint8).reshape(3, 1, 2, 2),
            train_targets=np.array([2, 0, 1]),
            train_owners=np.array([7, 7, 8]),
            test_features=np.zeros((1, 1, 2, 2)),
            test_targets=np.array([1]),
        )
    )
    assert train.features.dtype == np.float32
    assert train.features[2].ravel().tolist() == [8, 9, 10, 11]
    assert train.labels.tolist() == [2, 0, 1]
    assert train.owners is not None
    assert train.owners.tolist() == ["7", "7", "8"]
    assert test is not None
    assert test.labels.tolist() == [1]


def test_an_archive_without_a_test_split(tmp_path: Path) -> None:
    train, test = read_npz(_npz(tmp_path, features=np.eye(2), targets=np.array(["a", "b"])))
    assert test is None
    assert train.labels.tolist() == ["a", "b"]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.eye(2)}, "expected arrays train_features .* found x"),
        ({"features": np.eye(2)}, "expected arrays"),
        ({"train_features": np.eye(2), "targets": np.zeros(2)}, "expected arrays"),
        ({"features": np.eye(2), "targets": np.zeros(3)}, r"found \[2, 2\] and \[3\]"),
        ({"features": np.eye(2), "targets": np.zeros(())}, r"found \[2, 2\] and \[\]"),
        ({"features": np.zeros(2), "targets": np.zeros(2)}, r"found \[2\] and \[2\]"),
        ({"features": np.eye(2) * 1j, "targets": np.zeros(2)}, "expected numbers in features, found complex128"),
        ({"features": [[0, 1], [2, np.nan]], "targets": np.zeros(2)}, "features, row 2, column 2.* found nan"),
        ({"features": [[0, 1], [1e39, 0]], "targets": np.zeros(2)}, "features, row 2, column 1.* found inf"),
    ],
)
def test_a_wrong_archive_is_named(tmp_path: Path, arrays, message: str) -> None:
    path = _npz(tmp_path, **arrays)
    with pytest.raises(DataError, match=message) as error:
        read_npz(path)
    assert str(error.value).startswith(str(path))


class _Trap:
    def __reduce__(self):
        return (pytest.fail, ("an archive was unpickled",))


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    objects = np.array([_Trap()], dtype=object)
    with pytest.raises(DataError, match="plain arrays"):
        read_npz(_npz(tmp_path, features=objects, targets=np.zeros(1)))
    (tmp_path / "bare.npz").write_bytes(pickle.dumps(_Trap()))
    with pytest.raises(DataError, match="plain arrays"):
        read_npz(tmp_path / "bare.npz")


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    buffer = io.BytesIO()
    np.save(buffer, np.eye(2))
    for content in (b"", b"PK\3\4 no zip", buffer.getvalue()):
        path.write_bytes(content)
        with pytest.raises(DataError, match="expected an NPZ archive"):
            read_npz(path)


def test_a_missing_archive_is_named_once(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"^cannot read .*absent\.npz: No such file"):
        read_npz(tmp_path / "absent.npz")
