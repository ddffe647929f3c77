"""Tables as clinics have them, through the command: dates, cells that are empty, rows without an outcome."""

from __future__ import annotations

import random
import shlex
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

import gossamer as gs
from gossamer.cli import main

pytestmark = [
    pytest.mark.usefixtures("called_here"),
    pytest.mark.filterwarnings("always::gossamer.errors.RunWarning"),
]


@pytest.fixture
def visits() -> list[str]:
    """Write visits.csv: 280 of 300 rows have an outcome; every seventh has no creatinine."""
    draw, rows = random.Random(0), []
    for number in range(300):
        admitted = date(2015, 1, 1) + timedelta(days=draw.randint(0, 3000))
        born = admitted - timedelta(days=draw.randint(6000, 33000))
        died = "" if number % 15 == 3 else draw.choice(["no", "yes"])
        rows.append(f"w{number % 2},{admitted},{born:%d.%m.%Y},{draw.randint(50, 150) if number % 7 else ''},{died}")
    Path("visits.csv").write_text("\n".join(["ward,admitted,born,creatinine,died", *rows]) + "\n")
    return rows


WHOSE = "new t --data visits.csv --target died --labels no,yes --owner ward --range creatinine=40..180"
DATES = "--date admitted=2015-01-01..2024-12-31 born=1930-01-01..2010-12-31,%d.%m.%Y"
EMPTY = "--missing creatinine=90 --was-empty creatinine --drop-unlabelled"


def _called(line: str, capsys: pytest.CaptureFixture[str], status: int = 0) -> str:
    assert main(shlex.split(line)) == status
    return " ".join(capsys.readouterr().err.split())


def _written() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(Path("t.yaml").read_text())["dataset"]
    return found


def test_what_a_clinics_table_lacks_is_named_with_its_flags(
    visits: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    said = _called(WHOSE, capsys, 2)
    assert "died has 20 empty cells; leave such rows out (--drop-unlabelled)" in said
    assert "admitted has dates (--date admitted=FIRST..LAST, or --drop admitted)" in said
    assert "born has dates (--date born=FIRST..LAST,FORMAT, or --drop born)" in said
    assert not Path("t.yaml").exists()


def test_dates_and_gaps_go_from_the_first_spec_to_predictions(
    visits: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    _called(f"{WHOSE} {DATES} {EMPTY}", capsys)
    assert _written()["columns"] == {
        "admitted": [date(2015, 1, 1), date(2024, 12, 31)],
        "born": {"range": [date(1930, 1, 1), date(2010, 12, 31)], "format": "%d.%m.%Y"},
        "creatinine": {"range": [40, 180], "missing": 90, "was_empty": True},
    }
    said = _called("run t.yaml --set algorithm.updates_per_node=3 --out out", capsys)
    assert "visits.csv: 20 rows without a target are left out" in said
    model = gs.load_model("out")
    assert model.features == ("admitted", "born", "creatinine", "creatinine was empty")
    row = {"admitted": "2020-02-29", "born": "29.02.1960", "creatinine": ""}
    same = {**row, "admitted": "2020-02-29T00:00", "creatinine": "NA"}
    assert model.predict([row]).scores == model.predict([same]).scores
    Path("new.csv").write_text("admitted,born,creatinine\n2020-02-29,29.02.1960,\n2020-02-30,29.02.1960,\n")
    said = _called("predict out new.csv", capsys, 2)
    assert "new.csv, line 3, column 'admitted': expected a date such as 2024-01-31, found '2020-02-30'" in said
    assert "20 rows without a target are left out" in _called("evaluate out visits.csv", capsys)


def test_only_rows_with_an_outcome_count(visits: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Of 300 rows 280 have one, so that delta is a tenth of one over these, and each ward has 140."""
    _called(f"{WHOSE} {DATES} {EMPTY}", capsys)
    text = Path("t.yaml").read_text()
    assert "at most a tenth of 1 over the 280 rows" in text
    assert "batch_size: 56 # about half" in text  # of the four fifths that are trained on


def test_an_empty_date_is_read_as_a_date(visits: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    _called(f"{WHOSE} {DATES} {EMPTY} --missing admitted=2020-01-01 --was-empty admitted", capsys)
    found = {"range": [date(2015, 1, 1), date(2024, 12, 31)], "missing": "2020-01-01", "was_empty": True}
    assert _written()["columns"]["admitted"] == found


def test_flags_that_are_named_for_dates_with_other_signs_read_them(
    visits: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("visits.csv").write_text("\n".join(["ward,admitted,born,creatinine,died", *visits]).replace("-", "/") + "\n")
    assert "admitted has dates (--date admitted=FIRST..LAST,FORMAT, or" in _called(WHOSE, capsys, 2)
    said = _called(f"{WHOSE} {DATES} {EMPTY}", capsys, 2)
    assert "or say --date admitted=FIRST..LAST,FORMAT with how dates are written, such as %d.%m.%Y" in said
    _called(f"{WHOSE} {DATES.replace('12-31 ', '12-31,%Y/%m/%d ', 1)} {EMPTY}", capsys)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (f"--date admitted=2015-01-01 {EMPTY}", "expected the first and the last date, such as 2015-01-01..2024-12-31"),
        (f"--date born=1930-01-01..2010-12-31,%d {EMPTY}", "format must say a year of four digits, a month and a day"),
        (
            f"{DATES} --missing creatinine=90 --was-empty admitted --drop-unlabelled",
            "--was-empty admitted: say what an",
        ),
        (f"{DATES} --drop-unlabelled --missing creatinine=90 --person creatinine --rows-per-person 9", "no feature"),
    ],
)
def test_wrong_declarations_are_a_line(
    visits: list[str], flags: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in _called(f"{WHOSE} {flags}", capsys, 2)
    assert not Path("t.yaml").exists()


@pytest.mark.parametrize("cells", [("", ""), ("p1", "")])
def test_a_persons_column_that_is_empty_is_refused(cells: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"{cells[row % 2]},{row % 90},{row % 3 % 2}" for row in range(60)]
    Path("p.csv").write_text("\n".join(["who,age,ill", *rows]) + "\n")
    flags = "--target ill --labels 0,1 --range age=0..100 --person who --rows-per-person 30"
    said = _called(f"new t --data p.csv {flags}", capsys, 2)
    assert "column 'who': the person is empty; fill it in" in said
    spec = {
        "name": "p",
        "path": "p.csv",
        "target": "ill",
        "labels": [0, 1],
        "person": "who",
        "columns": {"age": [0, 99]},
    }
    Path("s.yaml").write_text(yaml.safe_dump({"dataset": spec, "privacy": "none"}))
    said = _called("check s.yaml", capsys, 2)
    assert "the person is empty; fill it in, or leave such rows out" in said
