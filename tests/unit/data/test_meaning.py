"""What names and values of columns may mean."""

from __future__ import annotations

import numpy as np
import pytest

from gossamer.data.column_hints import Codes, counts_rows, is_unnamed, is_value, names_somebody
from gossamer.data.columns import Column


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *((name, True) for name in ("id", "ID", "patient_id", "patientID", "patientId", "Individual ID", "subject")),
        *((name, True) for name in ("case no", "row", "rownames", "Name", "sample_number", "mrn", "user.id", "pid")),
        *((name, False) for name in ("uric_acid", "covid", "body_mass_index", "age_at_index", "valid", "children", "")),
        *((name, False) for name in ("age", "number", "idle", "hospital", "thyroid", "income_code", "case_fatality")),
    ],
)
def test_names_of_columns_that_name_somebody(name: str, expected: bool) -> None:
    assert names_somebody(name) == expected


def test_columns_without_names() -> None:
    assert all(map(is_unnamed, ("", "Unnamed: 0", "Unnamed: 0_level_1", "__index_level_0__", "...1")))
    assert not any(map(is_unnamed, ("0", "Unnamed", "index", "x1", "..")))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(
            (text, True)
            for text in ("39", "-1.5", "0", "1,5", "1e4", "2020-01-31", "31.1.2020", "10:30", "5%", "$12", "<=5")
        ),
        *((text, False) for text in ("age", "", "x1", "<=50K?", "2nd", "T-cells", "od280/od315", "1st", "a-b-c")),
    ],
)
def test_values_are_hardly_names(text: str, expected: bool) -> None:
    assert is_value(text) == (expected or text == "<=50K?")


def test_counts_of_rows() -> None:
    rows = np.arange(30, dtype=np.float32)
    assert counts_rows(rows)
    assert counts_rows(rows + 7)
    assert not counts_rows(rows[::-1])
    assert not counts_rows(rows * 2)
    assert not counts_rows(rows[:10])


@pytest.mark.parametrize(
    ("values", "column", "found"),
    [
        ([-9, -9, 5, 12], Column(range=(5, 20)), "-9"),
        ([-9, 5, 12], Column(range=(5, 20)), None),  # once is no mark
        ([-9, -9, 5, 12], Column(range=(-20, 20)), None),
        ([-9, -9, -6, 12], Column(range=(5, 20)), None),  # others are beyond, too
        ([-9, -9, -2, 12], Column(range=(5, 20)), "-9"),
        ([9, 9, 8, 8, 7, 3], Column(range=(0, 6)), None),
        ([-9, -9, 5, 12], Column(range=(5, 20), missing_marks=()), None),
        ([999, 999, 98, 98, 12], Column(range=(5, 90)), "999"),
        ([-1, -1, 5], Column(range=(0, 9)), "-1"),
        ([-1, -1, 1, 1], Column(), None),  # often written for two classes
        ([9, 9, 1, 5], Column(range=(1, 5)), "9"),
        ([9, 9, 1, 5], Column(), None),
        ([99, 99, 3, 4], Column(), "99"),
        ([99, 99, 100, 4], Column(), None),
        ([-9, -9, -5, 4], Column(), None),
        ([-9, -9], Column(range=(0, 1)), "-9"),
        ([1.5, 2.5, 2.5], Column(), None),
    ],
)
def test_numbers_that_stand_apart(values: list[float], column: Column, found: str | None) -> None:
    assert Codes.of(np.array(values, np.float64)).found(column) == found
