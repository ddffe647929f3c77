"""Figures as files: a picture of each kind, and the data."""

from __future__ import annotations

import csv
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from tests.unit.report.test_page import ROWS
from tests.unit.report.test_records import folder, record

from gossamer.cli.main import main
from gossamer.errors import DataError
from gossamer.report.curves import curves
from gossamer.report.drawing import Figure
from gossamer.report.records import RunRecord


@pytest.fixture(scope="module")
def figure() -> Figure:
    made = record("r", [0, 1, 2], [3, 2, 1])
    (found,) = curves([RunRecord("r", made.path, made.summary, {**made.metrics, "consensus_distance": [3, 2, 1]})])
    return found


def test_each_figure_is_saved_in_three_ways(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there = folder(tmp_path / "run", ROWS)
    assert main(["report", str(there), "--figures"]) == 0
    assert capsys.readouterr().out.split() == [str(there / "report.html"), str(there / "report-figures")]
    names = {"mean-model-test-accuracy", "epsilon-so-far"}
    kinds = {"svg", "png", "csv"}
    found = {path.name for path in (there / "report-figures").iterdir()}
    assert found == {f"{name}.{kind}" for name in names for kind in kinds}


def test_a_picture_says_what_it_is_and_its_units(figure: Figure, tmp_path: Path) -> None:
    figure.save(tmp_path / "f.svg")
    texts = [element.text for element in ET.parse(tmp_path / "f.svg").iter() if element.tag.endswith("text")]
    assert {figure.title, "virtual seconds", "root mean square"} <= set(texts)
    figure.save(tmp_path / "f.png")
    assert (tmp_path / "f.png").read_bytes().startswith(b"\x89PNG")


def test_the_data_are_those_of_the_run(figure: Figure, tmp_path: Path) -> None:
    figure.save(tmp_path / "f.csv")
    with (tmp_path / "f.csv").open() as file:
        found = list(csv.DictReader(file))
    assert [(row["axis"], float(row["at"]), float(row["value"])) for row in found] == [
        ("virtual seconds", at, value) for at, value in ((0, 3), (1, 2), (2, 1))
    ]


def test_another_kind_is_refused(figure: Figure, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"expected a name that ends with \.svg, \.png or \.csv"):
        figure.save(tmp_path / "f.pdf")
