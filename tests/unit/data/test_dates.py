"""Columns of dates, of what was empty, and rows without a target: what becomes of cells, and what is refused."""

from __future__ import annotations

from datetime import date, timedelta

import numpy as np
import pytest
import yaml

from gossamer.data.columns import Column
from gossamer.data.examples import Labelled
from gossamer.data.table import Wanted, read_rows, table_of
from gossamer.errors import DataError, RunWarning

_YEAR = ["2015-01-01", "2016-01-01"]


def _read(rows: list[dict], columns: dict, **wanted) -> Labelled:
    declared = {name: Column.model_validate(column) for name, column in columns.items()}
    return read_rows(table_of(rows), Wanted(columns=declared, declared=True, **wanted))


def _of_column(cells: list[str], column: object) -> np.ndarray:
    return _read([{"a": cell} for cell in cells], {"a": column}).features


def test_days_are_mapped_from_the_first_date_to_the_last() -> None:
    """31 January is day 30 of 0 to 60; half of a day counts, and what is beyond is the nearer end."""
    column = yaml.safe_load("[2015-01-01, 2015-03-02]")
    found = _of_column(["2015-01-01", "2015-01-31", "2015-03-02", "2020-01-01", "2015-01-31 12:00"], column)
    assert np.allclose(found[:, 0], [-1, 0, 1, 1, 0.5 / 30])


def test_days_are_counted_from_a_public_date() -> None:
    column = {"kind": "date", "since": date(2000, 1, 1), "mean": 366, "deviation": 10}
    found = _of_column(["2001-01-01", "2001-01-11T00:00:00+05:00", "20001222"], column)
    assert np.allclose(found[:, 0], [0, 1, -1])  # 2000 had 366 days


def test_days_are_counted_from_another_column() -> None:
    """A stay, of which neither column has to be a feature otherwise; either one may be empty."""
    columns = {"out": {"kind": "date", "since": "in", "range": [0, 10], "missing": 5, "was_empty": True}}
    rows = [
        {"in": "2024-02-28", "out": "2024-03-01"},  # 2024 had a 29 February
        {"in": "", "out": "2024-03-01"},
        {"in": "2024-02-28", "out": "NA"},
    ]
    found = _read(rows, columns)
    assert found.names == ("out", "out was empty")
    assert np.allclose(found.features, [[-0.6, 0], [0, 1], [0, 1]])


def test_months_and_weekdays_are_those_of_the_calendar() -> None:
    days = [date(1899, 12, 28) + timedelta(days=97 * number) for number in range(700)]
    column = {"kind": "date", "parts": ["weekday", "month"], "format": "%d/%m/%Y"}
    found = _of_column([day.strftime("%d/%m/%Y") for day in days], column)
    assert found[:, :7].argmax(axis=1).tolist() == [day.weekday() for day in days]
    assert found[:, 7:].argmax(axis=1).tolist() == [day.month - 1 for day in days]
    assert (found.sum(axis=1) == 2).all()


def test_an_empty_date_has_no_month() -> None:
    column = {
        "kind": "date",
        "parts": ["days", "month"],
        "range": ["2015-01-01", "2015-01-11"],
        "missing": "2015-01-06",
    }
    found = _read([{"a": ""}], {"a": column})
    assert found.names[:2] == ("a", "a=January")
    assert found.features[0].tolist() == [0] * 13


def test_a_declaration_of_dates_is_the_same_once_it_is_written() -> None:
    column = Column.model_validate({"range": _YEAR, "missing": "2015-01-02", "format": "%d.%m.%Y"})
    assert (column.kind, column.range, column.since, column.missing) == ("date", (0, 365), "2015-01-01", 1)
    assert Column.model_validate_json(column.model_dump_json()) == column


@pytest.mark.parametrize(
    ("cell", "column", "message"),
    [
        (
            "2015-02-30",
            _YEAR,
            "row 2, column 'a': expected a date such as 2024-01-31, found '2015",
        ),
        (
            "01.02.2015",
            _YEAR,
            "say how its dates are written in dataset.columns.a, such as format",
        ),
        ("2015-02-01", {"range": _YEAR, "format": "%d.%m.%Y"}, r"a date such as 31\.01\.2024"),
        ("", _YEAR, "row 2, column 'a': the cell is empty"),
    ],
)
def test_what_is_no_date_is_refused_by_its_place(cell: str, column: object, message: str) -> None:
    sound = "05.01.2015" if "format" in column else "2015-01-05"  # type: ignore[operator]
    with pytest.raises(DataError, match=message):
        _of_column([sound, cell], column)


def test_the_other_column_has_to_be_there_and_to_have_dates() -> None:
    column = {"out": {"kind": "date", "since": "in", "range": [0, 10]}}
    with pytest.raises(DataError, match="no column 'in'"):
        _read([{"out": "2024-01-01"}], column)
    with pytest.raises(DataError, match="found 'soon' in the column 'in' that its days count from"):
        _read([{"out": "2024-01-01", "in": "soon"}], column)


def test_what_was_empty_is_a_feature() -> None:
    columns = {
        "hb": {"range": [0, 10], "missing": 5, "missing_marks": [-9], "was_empty": True},
        "sex": {"categories": ["f", "m", "none"], "missing": "f", "was_empty": True},
        "smoker": {"kind": "boolean", "missing": False, "was_empty": True},
    }
    rows = [{"hb": "10", "sex": "none", "smoker": "yes"}, {"hb": "-9", "sex": "?", "smoker": None}]
    found = _read(rows, columns)
    assert found.names == (
        "hb",
        "hb was empty",
        *(f"sex={one}" for one in ("f", "m", "none")),
        "sex was empty",
        "smoker",
        "smoker was empty",
    )
    assert found.features.tolist() == [[1, 0, 0, 0, 1, 0, 1, 0], [0, 1, 1, 0, 0, 1, 0, 1]]


def test_rows_without_a_target_are_left_out_and_counted() -> None:
    rows = [{"a": "1", "y": "no"}, {"a": "x", "y": ""}, {"a": "3", "y": "yes"}, {"a": "4", "y": "."}]
    columns = {"a": {"range": [0, 4]}}
    with pytest.warns(RunWarning, match="2 rows without a target are left out"):
        found = _read(rows, columns, target="y", drop_unlabelled=True)
    assert found.labels.tolist() == ["no", "yes"]
    assert found.features.tolist() == [[-0.5], [0.5]]
    assert found.places is not None
    assert found.places.numbers.tolist() == [1, 3]
    with pytest.raises(DataError, match=r"the target is empty; fill it in, or leave such rows out \(dataset.drop_unl"):
        _read([{"a": "1", "y": ""}], columns, target="y")


def test_a_table_without_any_target_has_no_rows() -> None:
    with pytest.raises(DataError, match="expected rows, found none"):
        _read([{"a": "1", "y": ""}], {"a": {"range": [0, 4]}}, target="y", drop_unlabelled=True)
