"""``gossamer predict``, ``evaluate`` and ``export`` as a user has them."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.reference import wards

from gossamer.cli import main
from gossamer.trained import model as exporting

TABLE = wards.rows(150)
pytestmark = pytest.mark.filterwarnings("always:values outside")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with tables, and the results of a run in which the training file is gone."""
    home = tmp_path_factory.mktemp("use")
    wards.write(home / "wards.csv", TABLE)
    wards.write(home / "new.csv", TABLE[:20], without=("ill", "cost"))
    spec = {
        "dataset": {**wards.dataset(Path("gone.csv")), "path": "gone.csv"},
        "objective": "logistic",
        "algorithm": {"name": "gossip", "nodes": 3, "batch_size": 8, "learning_rate": 0.5},
        "privacy": "none",
        "stop": {"updates": 60},
    }
    (home / "spec.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
    shutil.copy(home / "wards.csv", home / "gone.csv")
    assert main(["run", str(home / "spec.yaml"), "--out", str(home / "out")]) == 0
    os.unlink(home / "gone.csv")
    return home


@pytest.fixture(autouse=True)
def _here(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(home, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)


def said(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> tuple[str, str]:
    capsys.readouterr()
    assert main(arguments) == code
    found = capsys.readouterr()
    return found.out, found.err


def test_a_line_for_every_row(capsys: pytest.CaptureFixture[str]) -> None:
    out, err = said(capsys, "predict", "out", "new.csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["row"] for row in rows] == [str(number) for number in range(1, 21)]
    assert {row["prediction"] for row in rows} == {"no", "yes"}
    assert {row["prediction"] == "yes" for row in rows if float(row["probability of yes"]) > 0.5} == {True}
    assert {row["prediction"] == "no" for row in rows if float(row["probability of yes"]) < 0.5} == {True}
    assert err.count("\n") == 1
    assert err.startswith("gossamer: warning: values outside of their column's range")
    document = json.loads(said(capsys, "predict", "out", "new.csv", "--json")[0])
    assert [item["prediction"] for item in document["predictions"]] == [row["prediction"] for row in rows]
    assert document["classes"] == ["no", "yes"]
    for item, row in zip(document["predictions"], rows):
        assert set(item["probabilities"]) == {"no", "yes"}
        assert item["probabilities"]["yes"] == pytest.approx(float(row["probability of yes"]), rel=1e-5)


def test_a_file_for_its_owner_alone(capsys: pytest.CaptureFixture[str]) -> None:
    printed = said(capsys, "predict", "out", "new.csv")[0]
    out, err = said(capsys, "predict", "out", "new.csv", "--out", "said.csv")
    assert out == ""
    assert "20 predictions in said.csv" in err
    assert Path("said.csv").read_text() == printed
    assert Path("said.csv").stat().st_mode & 0o077 == 0
    assert "replace it with --overwrite" in said(capsys, "predict", "out", "new.csv", "--out", "said.csv", code=2)[1]
    said(capsys, "predict", "out/model.safetensors", "new.csv", "--json", "--out", "said.csv", "--overwrite")
    assert json.loads(Path("said.csv").read_text())["rows"] == 20


def test_a_test_says_what_the_predictions_say(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(said(capsys, "evaluate", "out", "wards.csv", "--json")[0])
    predicted = json.loads(said(capsys, "predict", "out", "wards.csv", "--json")[0])["predictions"]
    right = sum(item["prediction"] == row["ill"] for item, row in zip(predicted, TABLE))
    accuracy = found["figures"]["accuracy"]["value"]
    assert accuracy == pytest.approx(right / len(TABLE))
    out, _ = said(capsys, "evaluate", "out", "wards.csv")
    assert out.startswith("loss 0.")
    assert "of 150 rows" in out
    assert re.search(rf"^accuracy +{accuracy:.3f} ", out, re.MULTILINE)


@pytest.mark.some(2)
@pytest.mark.parametrize("to", exporting.TARGETS)
def test_an_export_is_beside_the_model(to: str, capsys: pytest.CaptureFixture[str]) -> None:
    out, err = said(capsys, "export", "out", "--to", to)
    place = Path(out.strip())
    assert place == Path("out", exporting.TARGETS[to].file)
    assert place.stat().st_size > 500
    assert err == ""
    assert "exists; choose another name" in said(capsys, "export", "out", "--to", to, code=2)[1]
    assert Path(said(capsys, "export", "out", "--to", to, "--out", "mine")[0].strip()).stat().st_size > 500


@pytest.mark.parametrize(
    "command",
    [
        ("export", "out", "--to", "sklearn", "--out", "out/model.safetensors"),
        ("export", "out/model.safetensors", "--to", "sklearn", "--out", "out/spec.yaml"),
        ("export", "out/model.safetensors", "--to", "sklearn", "--out", "out/../out/model.safetensors"),
        ("predict", "out", "new.csv", "--out", "new.csv"),
        ("predict", "out", "new.csv", "--out", "out/summary.json"),
    ],
)
def test_what_is_read_is_not_replaced(command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    place = Path(command[-1])
    before = place.read_bytes()
    assert "choose another name" in said(capsys, *command, "--overwrite", code=2)[1]
    assert place.read_bytes() == before


def changed(**changes: str) -> str:
    """A table with its first row changed."""
    wards.write(Path("bad.csv"), [{**TABLE[0], **changes}, *TABLE[1:3]])
    return "bad.csv"


def without(name: str) -> str:
    wards.write(Path("bad.csv"), TABLE[:3], without=(name,))
    return "bad.csv"


def newer() -> str:
    card = json.loads(Path("out/model.json").read_text())
    Path("out/model.json").write_text(json.dumps({**card, "format": 7}))
    return "out"


def foreign() -> str:
    from safetensors.numpy import load_file, save_file

    save_file(load_file("out/model.safetensors"), "foreign.safetensors")
    return "foreign.safetensors"


def text(name: str, content: str) -> str:
    Path(name).write_text(content)
    return name


BAD: dict[str, tuple[Any, str]] = {
    "no column": (lambda: ("predict", "out", without("income")), "bad.csv: no column 'income'; its columns are"),
    "a category": (
        lambda: ("predict", "out", changed(sex="x")),
        "line 2, column 'sex': expected one of female",
    ),
    "no number": (
        lambda: ("predict", "out", changed(age="12 y")),
        "column 'age': expected a number, found '12 y'",
    ),
    "an empty cell": (lambda: ("predict", "out", changed(age="")), "line 2, column 'age': the cell is empty"),
    "no target": (lambda: ("evaluate", "out", "new.csv"), "new.csv: no column 'ill'"),
    "another label": (
        lambda: ("evaluate", "out", changed(ill="maybe")),
        "the label maybe, which is none of the 2 classes no, yes",
    ),
    "a newer model": (lambda: ("predict", newer(), "new.csv"), "expected a model of format 2, found format 7"),
    "no results": (lambda: ("predict", "nowhere", "new.csv"), "nowhere: expected the folder of a run"),
    "no model": (lambda: ("export", ".", "--to", "onnx"), "expected the folder of a run, with model.safetensors"),
    "no file": (lambda: ("predict", "out", "none.csv"), "there is no file none.csv"),
    "a folder of rows": (
        lambda: ("predict", "out", "out"),
        "found a folder that `datasets` did not save; save the rows",
    ),
    "a header alone": (lambda: ("predict", "out", text("h.csv", "age,sex\n")), "no column 'income'"),
    "an empty file": (
        lambda: ("predict", "out", text("e.csv", "")),
        "commas, found an empty file; correct the path",
    ),
    "rows as the model": (lambda: ("predict", "new.csv", "new.csv"), "new.csv: expected a run's results"),
    "no model of ours": (
        lambda: ("predict", foreign(), "new.csv"),
        "foreign.safetensors: expected a model with its card, which says how rows are read, found arrays without one",
    ),
    "bytes": (lambda: ("predict", "out", text("b.parquet", "no")), "expected a Parquet file"),
    "another program": (
        lambda: ("export", "out", "--to", "tensorflow"),
        "--to: invalid choice: 'tensorflow' (choose from 'torch', 'onnx', 'sklearn')",
    ),
    "no folder": (lambda: ("export", "out", "--to", "torch", "--out", "a/b"), "there is no folder a"),
    "no out": (lambda: ("predict", "out", "new.csv", "--out", "a/b"), "there is no folder a"),
    "out is a folder": (lambda: ("predict", "out", "new.csv", "--out", "out"), "out is a folder"),
    "an empty name": (lambda: ("predict", "out", ""), "found an empty one"),
}


@pytest.mark.parametrize("kind", BAD)
def test_mistakes_get_a_line(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, words = BAD[kind]
    out, err = said(capsys, *arguments(), code=2)
    assert out == ""
    (line,) = err.strip().splitlines()
    assert line.startswith("gossamer: error: ")
    assert words in line
    assert not list(Path().glob(".*.new"))


def test_an_extra_that_is_not_installed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "onnx", None)  # and importing it fails
    assert '-m pip install "torch>=2.8" "onnx>=' in said(capsys, "export", "out", "--to", "onnx", code=2)[1]
