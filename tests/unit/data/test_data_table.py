"""Tables read by a declaration: columns scaled by public constants, texts, truth values, empty cells, dialects."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from gossamer.data.columns import Column
from gossamer.data.datasets import DatasetSettings, declared_form, load_dataset
from gossamer.data.table import table_of
from gossamer.data.table_files import csv_table
from gossamer.errors import DataError, SpecError

COLUMNS = {
    "age": [0, 120],
    "income": {"mean": 30000, "deviation": 12000},
    "stay": {"range": [0, 60], "missing": 5},
    "sex": ["female", "male"],
    "ward": {"categories": ["a", "b", "c"], "missing": "b"},
    "smoker": "boolean",
    "weight": "number",
}
PATIENTS = """id,weight,age,income,stay,sex,ward,smoker,ill
1,71.5,60,30000,30,female,a,yes,0
2,80,120,42000,,male,NA,FALSE,1
3,64,-3,6000,70, female ,c,1,0
4,90,30,30000,?,male,,no,1
"""
# (age - 60) / 60, clipped; (income - 30000) / 12000; (stay - 30) / 30, clipped; female, male; a, b, c; smoker; weight.
FEATURES = [
    [0, 0, 0, 1, 0, 1, 0, 0, 1, 71.5],
    [1, 1, -25 / 30, 0, 1, 0, 1, 0, 0, 80],
    [-1, -2, 1, 1, 0, 0, 0, 1, 1, 64],
    [-0.5, 0, -25 / 30, 0, 1, 0, 1, 0, 0, 90],
]
NAMES = ["age", "income", "stay", "sex=female", "sex=male", "ward=a", "ward=b", "ward=c", "smoker", "weight"]


def _settings(folder: Path, text: str = PATIENTS, columns=COLUMNS, name: str = "mine.csv", **others) -> DatasetSettings:
    path = folder / name
    path.write_bytes(text.encode(others.pop("written", "utf-8")))
    given = {"name": "mine", "path": path, "test_path": path, "target": "ill", "columns": columns}
    return DatasetSettings(**(given | others))


def test_columns_are_read_as_declared(tmp_path: Path) -> None:
    data = load_dataset(_settings(tmp_path))
    assert data.train.features.dtype == np.float32
    np.testing.assert_allclose(data.train.features, FEATURES, rtol=1e-7)
    assert data.train.targets.tolist() == [0, 1, 0, 1]
    assert data.declaration is not None
    assert list(data.declaration.features) == NAMES
    assert data.declaration.target == "ill"
    assert data.declaration.classes == (("0",), ("1",))


def test_without_a_scale_numbers_stay_as_they_are(tmp_path: Path) -> None:
    data = load_dataset(_settings(tmp_path, scale="none"))
    np.testing.assert_array_equal(data.train.features[:, 0], [60, 120, -3, 30])
    np.testing.assert_array_equal(data.train.features[:, 2], [30, 5, 70, 5])
    np.testing.assert_array_equal(data.train.features[:, 3:9], np.array(FEATURES)[:, 3:9])


def test_the_form_follows_from_the_declaration_alone() -> None:
    settings = DatasetSettings(name="mine", target="ill", labels=(0, 1), columns=COLUMNS)
    form = declared_form(settings)
    assert (form.shape, form.layout, form.labels, form.format) == ((10,), "dense", ("0", "1"), None)


def test_further_rows_are_read_as_those_before(tmp_path: Path) -> None:
    """From a file in another order, without the target, and from memory: bit for bit what was trained on."""
    data = load_dataset(_settings(tmp_path, normalise="unit_norm"))
    declaration = data.declaration
    assert declaration is not None
    again = type(declaration).model_validate_json(declaration.model_dump_json())
    assert again == declaration
    header, *rows = [line.split(",")[:-1][::-1] for line in PATIENTS.splitlines()]
    path = tmp_path / "new.csv"
    path.write_text("\n".join(",".join(row) for row in [header, *rows]))
    found = again.read(csv_table(path, again.csv))
    assert len(found.labels) == 0
    assert found.outside == {"age": 1, "stay": 1}
    assert np.array_equal(again.prepare(found.features), data.train.features)
    cells = [dict(zip(header, [None if cell in ("", "NA", "?") else cell for cell in row])) for row in rows]
    assert np.array_equal(again.prepare(again.read(table_of(cells)).features), data.train.features)
    with pytest.raises(DataError, match="no column 'ill'"):
        again.read(csv_table(path), labelled=True)


def test_values_of_private_rows_are_not_counted(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    load_dataset(_settings(tmp_path))
    assert not recwarn.list


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("42000", "", r"line 3, column 'income': the cell is empty.*dataset\.columns\.income .*missing: 30000"),
        ("42000", "much", "line 3, column 'income': expected a number, found 'much'; correct it"),
        ("42000", "inf", "line 3, column 'income': expected a finite number"),
        ("71.5", "1e39", "line 2, column 'weight': expected a finite number that fits float32, found 1e"),
        (",male,NA", ",man,NA", "line 3, column 'sex': expected one of female, male, found 'man'; correct it"),
        (",male,NA", ",,NA", "line 3, column 'sex': the cell is empty, and nothing says .*missing: female"),
        ("FALSE", "perhaps", "line 3, column 'smoker': expected true or false .*, found 'perhaps'"),
        ("FALSE", "null", "line 3, column 'smoker': the cell is empty"),
        ("smoker", "smokes", "no column 'smoker'; its columns are id, weight"),
        ("2,80,120", "2,80", "line 3: expected 9 columns, found 8"),
    ],
)
def test_a_cell_that_its_column_does_not_allow(tmp_path: Path, old: str, new: str, message: str) -> None:
    settings = _settings(tmp_path, PATIENTS.replace(old, new, 1))
    with pytest.raises(DataError, match=message) as error:
        load_dataset(settings)
    assert str(error.value).startswith(str(settings.path))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({}, "1 or more of them, found 0"),
        ({"a": [1]}, "a list of two numbers is a range, found 1"),
        ({"a": [1, 2, 3]}, "a list of two numbers is a range, found 3"),
        ({"a": [0, "1.0e4"]}, "1.0e4 is a text in YAML, whose exponents have a sign"),
        ({"a": ["-1.0e3", "1.0e4"]}, "-1.0e3 is a text in YAML"),
        ({"a": [0, "1e4"]}, "1e4 is a text in YAML"),
        ({"a": [2, 1]}, "the least being less"),
        ({"a": [1, 1]}, "the least being less"),
        ({"a": [0, float("inf")]}, "finite"),
        ({"a": {"mean": 1}}, "a mean and a deviation"),
        ({"a": {"mean": 1, "deviation": 0}}, "greater than 0"),
        ({"a": {"range": [0, 1], "mean": 1, "deviation": 1}}, "found both"),
        ({"a": [True, False]}, "yes and no without quotes are truth values"),
        ({"a": {"categories": ["x", True]}}, "categories must be texts"),
        ({"a": {"categories": ["x"]}}, "2 or more of them, found 1"),
        ({"a": ["x", "x"]}, "must all differ"),
        ({"a": {"categories": ["x", "y"], "range": [0, 1]}}, "range are for numbers"),
        ({"a": {"categories": ["x", "y"], "missing": "z"}}, "missing must be one of the categories x, y"),
        ({"a": {"kind": "boolean", "missing": 3}}, "missing must be true or false"),
        ({"a": {"range": [0, 1], "missing": 2}}, "missing must be in the range"),
        ({"a": {"range": [0, 1], "missing": "x"}}, "missing must be a number"),
        ({"a": "category"}, "a category needs its categories"),
        ({"a": {"kind": "category", "missing": True}}, "a category needs its categories"),
        ({"a": "text"}, "unknown name 'text'; expected one of boolean, category, date, number"),
        ({"a": {"rang": [0, 1]}}, "rang"),
        ({"a": "date"}, r"days need a range of dates, such as \[2015-01-01, 2024-12-31\]"),
        ({"a": {"kind": "date", "since": "b", "range": ["2015-01-01", "2016-01-01"]}}, "from the column b"),
        ({"a": {"kind": "date", "parts": ["month"], "range": [0, 9]}}, "range are for numbers"),
        ({"a": {"kind": "date", "parts": ["month"], "missing": 1}}, "an empty cell has no part"),
        ({"a": {"kind": "date", "parts": ["month", "month"]}}, "parts must all differ"),
        ({"a": {"kind": "date", "since": "2015-01-01", "missing": "x"}}, "missing must be a number of days"),
        ({"a": {"kind": "date", "since": "2015-01-01", "format": "%d.%m.%y"}}, "a year of four digits"),
        ({"a": {"kind": "date", "since": "2015-01-01", "format": "%m.%Y"}}, "a month and a day"),
        ({"a": {"range": [0, 1], "since": "2015-01-01"}}, "since is for dates, and this is a number"),
        ({"a": {"range": [0, 1], "was_empty": True}}, "was_empty goes with what an empty cell is read as"),
        ({"y": [0, 1]}, "columns has 'y', which is no feature but the target"),
        ({"a": ["x", "y"], "a=x": "number"}, "two features called 'a=x'"),
    ],
)
def test_a_wrong_declaration_is_refused(columns, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        DatasetSettings(name="mine", target="y", columns=columns)


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ({"features": 3}, "leave features out"),
        ({"ignore": ("b",)}, "leave ignore out"),
        ({"divide_by": 2.0}, "leave divide_by out"),
        ({"scale": {"range": [0, 1]}}, "constants of their own"),
        ({"target": -1}, "name the target's column"),
        ({"columns": None, "scale": "declared"}, "declare columns"),
        ({"columns": None, "scale": {"range": [0, 1]}, "divide_by": 2.0}, "leave one of them out"),
        ({"csv": {"decimal": ","}}, "say separator: ';' as well"),
        ({"csv": {"separator": ",,"}}, "one sign"),
        ({"csv": {"encoding": "latin-99"}}, "encoding must be"),
        ({"csv": {"encoding": "base64"}}, "encoding must be"),
    ],
)
def test_settings_that_contradict_each_other(others, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        DatasetSettings(**({"name": "mine", "target": "y", "columns": {"a": [0, 1]}} | others))


def test_columns_in_a_file_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "columns.yaml"
    path.write_text("age: [0, 120]\nsex: [female, male]\n")
    settings = _settings(tmp_path, columns=path)
    assert load_dataset(settings).train.features[:, 0].tolist() == [0, 1, -1, -0.5]
    with pytest.raises(SpecError, match="put its columns in the spec itself"):
        declared_form(settings)
    path.write_text("age: [0, 120]\nsex: {categorys: [female, male]}\n")
    with pytest.raises(SpecError, match=r"columns\.yaml: unknown key columns\.sex\.categorys; did you mean categories"):
        load_dataset(settings)
    path.write_text("- age")
    with pytest.raises(SpecError, match="expected columns with what they are"):
        load_dataset(settings)
    path.unlink()
    with pytest.raises(SpecError, match="cannot read"):
        load_dataset(settings)


@pytest.mark.parametrize(
    ("csv", "written", "name"),
    [
        ({"separator": ";", "decimal": ",", "encoding": "latin-1"}, "latin-1", "mine.csv"),
        ({"separator": "tab", "encoding": "utf-16"}, "utf-16", "mine.tsv"),
        ({"separator": "|", "encoding": "utf-8"}, "utf-8-sig", "mine.csv"),
    ],
)
def test_dialects(tmp_path: Path, csv, written: str, name: str) -> None:
    sign = "\t" if csv["separator"] == "tab" else csv["separator"]
    text = "Größe,Müll,y\n1.5,ja,0.5\n-2.25,nö,1.5\n".replace(",", sign)
    text = text.replace(".", csv.get("decimal", "."))
    columns = {"Größe": "number", "Müll": ["ja", "nö"]}
    others = {"csv": csv, "written": written, "name": name, "target": "y", "task": "regression"}
    data = load_dataset(_settings(tmp_path, text, columns, **others))
    assert data.train.features.tolist() == [[1.5, 1, 0], [-2.25, 0, 1]]
    assert data.train.targets.tolist() == [0.5, 1.5]


def test_a_point_is_not_taken_for_a_decimal_comma(tmp_path: Path) -> None:
    text = "a;y\n1,5;0\n1.500;1\n"
    settings = _settings(tmp_path, text, {"a": "number"}, target="y", csv={"separator": ";", "decimal": ","})
    with pytest.raises(DataError, match=r"line 3, column 'a': expected a number with a decimal comma, found '1\.500'"):
        load_dataset(settings)


@pytest.mark.parametrize("target", [2, -1, "2"])
def test_without_a_header_the_first_row_is_kept(tmp_path: Path, target: int | str) -> None:
    settings = _settings(
        tmp_path, "5,x,0\n7,y,1\n", {0: [0, 10], "1": ["x", "y"]}, target=target, csv={"header": False}
    )
    data = load_dataset(settings)
    np.testing.assert_allclose(data.train.features, [[0, 1, 0], [0.4, 0, 1]], rtol=1e-7)
    assert data.declaration is not None
    new = tmp_path / "new.csv"
    new.write_text("5,x\n")
    found = data.declaration.read(csv_table(new, data.declaration.csv))
    np.testing.assert_array_equal(found.features, data.train.features[:1])


def test_names_that_are_numbers_may_be_meant(tmp_path: Path) -> None:
    text = "2019,2020,2021\n1,2,0\n3,4,1\n"
    with pytest.raises(DataError, match=r"found numbers alone; say dataset\.csv"):
        load_dataset(_settings(tmp_path, text, None, target=-1))
    data = load_dataset(_settings(tmp_path, text, None, target=-1, csv={"header": True}))
    assert data.train.features.tolist() == [[1, 2], [3, 4]]
    data = load_dataset(_settings(tmp_path, text.replace("2019,2020,2021", "0,1,2"), None, target=-1))
    assert data.train.features.tolist() == [[1, 2], [3, 4]]


def test_one_scale_for_all_features(tmp_path: Path) -> None:
    text = "a,b,y\n0,255,0\n300,51,1\n"
    data = load_dataset(_settings(tmp_path, text, None, target="y", scale={"range": [0, 255]}))
    np.testing.assert_allclose(data.train.features, [[-1, 1], [1, -0.6]], rtol=1e-6)
    data = load_dataset(_settings(tmp_path, text, None, target="y", scale={"mean": 100, "deviation": 50}))
    np.testing.assert_allclose(data.train.features, [[-2, 3.1], [4, -0.98]], rtol=1e-6)
    assert data.declaration is not None
    rows = data.declaration.read(table_of([{"a": 0, "b": 255}]))
    assert np.array_equal(data.declaration.prepare(rows.features), data.train.features[:1])


def test_a_constant_scale_takes_the_place_of_a_known_divisor() -> None:
    """Digits have pixels from 0 to 16, which are divided by 16 unless something else is said."""
    plain, scaled = (load_dataset(DatasetSettings(name="digits", scale=s)) for s in (None, {"range": [0, 16]}))
    np.testing.assert_allclose(scaled.train.features, 2 * plain.train.features - 1, atol=1e-6)


def test_sparse_features_keep_their_zeros(tmp_path: Path) -> None:
    others = {"target": "y", "layout": "sparse", "columns": None}
    text = "a,b,y\n0,2,0\n4,0,1\n"
    train = load_dataset(_settings(tmp_path, text, scale={"range": [-4, 4]}, **others)).train
    assert train.sparse
    assert train.features.toarray().tolist() == [[0, 0.5], [1, 0]]
    with pytest.raises(DataError, match="takes zeros of sparse features for other numbers"):
        load_dataset(_settings(tmp_path, text, scale={"range": [0, 4]}, **others))


def test_a_regression_names_the_target_that_is_no_number(tmp_path: Path) -> None:
    settings = _settings(tmp_path, "a,y\n1,2\n1,NA\n", {"a": "number"}, target="y", task="regression")
    with pytest.raises(DataError, match=r"line 3, column 'y': the cell is empty.*a regression needs a number"):
        load_dataset(settings)


def test_compressed_and_damaged_files(tmp_path: Path) -> None:
    settings = _settings(tmp_path, name="mine.csv.gz")
    with pytest.raises(DataError, match=r"is damaged or not a \.gz file"):
        load_dataset(settings)
    assert settings.path is not None
    settings.path.write_bytes(gzip.compress(PATIENTS.encode()))
    np.testing.assert_allclose(load_dataset(settings).train.features, FEATURES, rtol=1e-7)


def test_what_is_no_regular_file_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "pipe.csv"
    os.mkfifo(path)
    with pytest.raises(DataError, match="it is a pipe, a socket or a device, expected a file"):
        csv_table(path)


def test_columns_of_a_test_file_in_another_order_are_noticed(tmp_path: Path) -> None:
    other = tmp_path / "test.csv"
    other.write_text("b,a,y\n1,2,0\n")
    settings = _settings(tmp_path, "a,b,y\n1,2,0\n3,4,1\n", None, target="y", test_path=other)
    with pytest.raises(DataError, match="found 'b' in the place of 'a'; reorder them, or say"):
        load_dataset(settings)


def test_categories_that_are_numbers_match_by_value(tmp_path: Path) -> None:
    """Programs write 1.0 for 1 in a column with empty cells."""
    columns = {"a": {"categories": [1, 2], "missing": 2}}
    data = load_dataset(_settings(tmp_path, "a,y\n1.0,0\n2,1\n,1\n", columns, target="y"))
    assert data.train.features.tolist() == [[1, 0], [0, 1], [0, 1]]


def test_a_category_may_be_called_as_what_is_missing(tmp_path: Path) -> None:
    data = load_dataset(_settings(tmp_path, "a,y\nNA,0\nEU,1\n", {"a": ["NA", "EU"]}, target="y"))
    assert data.train.features.tolist() == [[1, 0], [0, 1]]


WRONG_CELLS = [
    ({"a": "boolean"}, "nein", r"correct it, or declare its texts: dataset.columns.a: \[A, B\]$"),
    ({"a": [5, 9]}, "5x0", "found '5x0'; correct it, or leave a out of dataset.columns$"),
    ({"a": ["u", "v"]}, "w", "found 'w'; correct it, or add it to dataset.columns.a$"),
    ({"a": {"categories": ["u", "v"], "missing": "u"}}, "w", "found 'w'; correct it, or add it to dataset.columns.a$"),
    ({"a": [5, 9]}, "", "fill it in, or say in dataset.columns.a what it is read as, such as missing: 7$"),
    ({"a": "boolean"}, "NA", "fill it in, or say in dataset.columns.a what it is read as, such as missing: false$"),
]


@pytest.mark.parametrize(("columns", "cell", "expected"), WRONG_CELLS, ids=range(len(WRONG_CELLS)))
def test_advice_about_a_cell_can_be_followed(tmp_path: Path, columns: object, cell: str, expected: str) -> None:
    """`missing` is what an empty cell is read as, and nothing else: the middle of a range is a value it takes."""
    with pytest.raises(DataError, match=expected):
        load_dataset(_settings(tmp_path, f"a,ill\n{cell},1\n", columns))


@pytest.mark.parametrize(
    "column", [[-1e308, 1e308], [0, 1e-320], {"mean": 1e39, "deviation": 1}, {"mean": 0, "deviation": 1e-40}]
)
def test_constants_that_float32_cannot_hold_are_refused(column: object) -> None:
    with pytest.raises(ValidationError, match=r"numbers must fit float32"):
        Column.model_validate(column)


def test_a_file_in_utf_8_that_is_read_as_latin_1_is_named(tmp_path: Path) -> None:
    settings = _settings(tmp_path, "Größe,ill\n1,0\n", {"Größe": "number"}, csv={"encoding": "latin-1"})
    with pytest.raises(DataError, match=r"no column 'Größe'; .*: the file is in UTF-8.*say dataset.csv: {encoding: u"):
        load_dataset(settings)
