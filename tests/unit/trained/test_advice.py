"""Advice about rows to predict for: there is a model, and no spec that could be changed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gossamer.data.columns import CsvSettings
from gossamer.data.declaration import Declaration
from gossamer.errors import DataError
from gossamer.trained.model import read

COLUMNS = {"Größe": [100, 200], "Raucher": "boolean"}
HEAD = "Größe;Raucher\n"
SO = "this model reads files with ';' between cells and a decimal comma, in latin-1; save it so"
FILES = [
    (
        (HEAD + "150;nein\n").encode("latin-1"),
        "line 2, column 'Raucher': .* found 'nein'; correct it, or leave the row",
    ),
    (
        (HEAD + "150;\n").encode("latin-1"),
        "line 2, column 'Raucher': the cell is empty.*; fill it in, or leave the row",
    ),
    (HEAD.replace(";", ",").encode("latin-1") + b"150,yes\n", SO),
    ((HEAD + "150;yes\n").encode(), f"no column 'Größe'; .*: the file is in UTF-8, and {SO}"),
    (("\ufeffRaucher;x\nyes;1\n").encode(), f"no column '.*; {SO}|no column 'Größe'"),
    (b"", "found an empty file"),
    (b"1;2\n3;4\n", "found numbers alone; save it with their names"),
]


def _model(**others: object) -> Declaration:
    given = {"name": "x", "task": "classification", "format": "csv", "shape": (2,), "layout": "dense"}
    dialect = CsvSettings(separator=";", decimal=",", encoding="latin-1")
    given |= {"columns": COLUMNS, "declared": True, "csv": dialect, "classes": (("a",), ("b",))}
    return Declaration.model_validate(given | others)


@pytest.mark.parametrize(("content", "expected"), FILES, ids=range(len(FILES)))
def test_no_key_of_a_spec_is_named(tmp_path: Path, content: bytes, expected: str) -> None:
    path = tmp_path / "new.csv"
    path.write_bytes(content)
    with pytest.raises(DataError, match=expected) as error:
        read(_model(), path)
    assert "dataset." not in str(error.value)


def test_letters_that_are_none_of_the_model(tmp_path: Path) -> None:
    path = tmp_path / "new.csv"
    path.write_bytes((HEAD + "150;yes\n").encode("latin-1"))
    with pytest.raises(
        DataError, match=r"UTF-8.*; this model reads files with ';' between cells.*; save it so"
    ) as error:
        read(_model(csv=CsvSettings(separator=";")), path)
    assert "dataset." not in str(error.value)


def test_arrays_of_another_size() -> None:
    with pytest.raises(DataError, match=r"expected rows of 2 features, as the model was trained on, found 3 features"):
        read(_model(columns=None, declared=False, format="npz"), np.zeros((4, 3)))


ARRAYS = _model(columns=None, declared=False, format="libsvm", csv=None)


def test_a_file_is_read_as_the_models_own_were_where_its_name_says_nothing(tmp_path: Path) -> None:
    """As a spec with `format: libsvm` reads it."""
    path = tmp_path / "rows.txt"
    path.write_text("1 1:0.5 2:0.25\n")
    found = read(ARRAYS, path).features
    np.testing.assert_array_equal(np.asarray(found), [[0.5, 0.25]])
    path.write_bytes((HEAD + "200;yes\n").encode("latin-1"))
    np.testing.assert_array_equal(np.asarray(read(_model(), path).features), [[1, 1]])


@pytest.mark.parametrize(
    ("model", "name", "expected"),
    [
        (ARRAYS, "new.csv", r"new\.csv: this model reads rows of 2 features without names .*, found a table; save"),
        (_model(), "new.npz", r"with the columns Größe, Raucher, found npz, which has no columns with names; save"),
        (_model(), "new.svm", "found libsvm, which has no columns"),
        (ARRAYS.model_copy(update={"format": None}), "new.odd", "found a name that ends in .odd; rename it so"),
    ],
)
def test_a_file_of_another_kind_is_named(tmp_path: Path, model: Declaration, name: str, expected: str) -> None:
    (tmp_path / name).write_text("1 1:2\n")
    with pytest.raises(DataError, match=expected) as error:
        read(model, tmp_path / name)
    assert not {"dataset.", "settings", "format:"} & set(str(error.value).split())


def test_a_model_of_drawn_data_reads_files(tmp_path: Path) -> None:
    """Its data set has no files, and a name that no other may have."""
    np.savez(tmp_path / "a.npz", features=[[0.5, 2.0]])
    drawn = ARRAYS.model_copy(
        update={"name": "graph_regression", "format": None, "task": "regression", "classes": None}
    )
    np.testing.assert_array_equal(np.asarray(read(drawn, tmp_path / "a.npz").features), [[0.5, 2.0]])
    np.savez(tmp_path / "b.npz", features=[[0.5, 2.0]], targets=[3.0])
    found = read(drawn, tmp_path / "b.npz", labelled=True)
    assert found.labels.tolist() == [3.0]
