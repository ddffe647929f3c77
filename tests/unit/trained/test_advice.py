"""Advice about rows to predict for: there is a model, and no spec that could be changed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gossamer.data.declaration import Declaration
from gossamer.data.dialect import CsvSettings
from gossamer.errors import DataError
from gossamer.trained.rows import read

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
