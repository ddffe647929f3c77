"""``gossamer evaluate``: figures, groups, thresholds and costs, and a line for each mistake."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import gossamer as gs
from gossamer.cli.main import main


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A rare outcome of 400 persons, and the run of a model that never names it."""
    place = tmp_path_factory.mktemp("rare")
    rng = np.random.default_rng(3)
    ages = rng.integers(20, 90, 400)
    ill = rng.random(400) < (ages / 200) ** 2
    rows = [f"{age},{'ab'[i % 2]},{int(one)}" for i, (age, one) in enumerate(zip(ages, ill))]
    (place / "rows.csv").write_text("age,ward,ill\n" + "\n".join(rows) + "\n")
    dataset = {"name": "rare", "path": str(place / "rows.csv"), "target": "ill", "labels": [0, 1]}
    columns = {"columns": {"age": {"range": [0, 100]}}}
    gs.run(
        {
            "dataset": {**dataset, **columns},
            "objective": "logistic",
            "algorithm": {"name": "central", "nodes": 1, "learning_rate": 0.3},
            "privacy": "none",
            "stop": {"epochs": 3},
        },
        place / "run",
    )
    return place


def test_a_run_says_what_a_constant_has(place: Path) -> None:
    scores = json.loads((place / "run" / "summary.json").read_text())["scores"]
    assert scores["rows"] in (79, 80, 81)  # a fifth of each class
    assert scores["figures"]["auroc"]["constant"] == 0.5
    assert scores["figures"]["accuracy"]["constant"] > 0.8


@pytest.mark.filterwarnings("always::gossamer.RunWarning")
def test_groups_a_threshold_and_costs(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("warnings.showwarning", __import__("warnings").showwarning)  # the command has its own
    monkeypatch.setenv("COLUMNS", "200")
    call = ["evaluate", str(place / "run"), str(place / "rows.csv")]
    assert main([*call, "--by", "ward", "--cost", "false_negative=8"]) == 0
    printed = capsys.readouterr()
    assert "area under the ROC curve" in printed.out
    assert "costs least on these rows" in " ".join(printed.out.split())
    assert [line.split()[:2] for line in printed.out.splitlines()[-2:]] == [["a", "200"], ["b", "200"]]
    assert "choose a threshold" not in printed.err  # it was
    assert main([*call, "--threshold", "0.1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["threshold"] == 0.1
    assert np.sum(found["confusion"]) == 400
    assert main(call) == 0
    said = capsys.readouterr().err
    assert "choose a threshold of your own" in said
    assert f"warning: {place / 'rows.csv'} is the file that this run's spec names" in said
    (tmp_path / "others.csv").write_text((place / "rows.csv").read_text())
    assert main([*call[:2], str(tmp_path / "others.csv")]) == 0
    assert "this run's spec names" not in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore::gossamer.RunWarning")
@pytest.mark.parametrize("columns", [60, 120])
def test_tables_of_groups_are_no_wider_than_the_terminal(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main(["evaluate", str(place / "run"), str(place / "rows.csv"), "--by", "ward"]) == 0
    printed = capsys.readouterr().out
    lines = printed[printed.index("by ward") :].splitlines()
    assert max(map(len, lines)) <= columns
    heads = [line.split() for line in lines if line.startswith("by ward")]
    assert len(heads) > 1
    assert [word for head in heads for word in head if word not in ("by", "ward")] == (
        ["rows", "ROC", "area", "outcome", "predicted", "sensitivity", "specificity"]
    )


def test_rows_of_one_class_are_said_to_be(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "well.csv").write_text("age,ill\n" + "30,0\n" * 40)
    assert main(["evaluate", str(place / "run"), str(tmp_path / "well.csv")]) == 0
    said = " ".join(capsys.readouterr().out.split())  # however wide the terminal is
    assert said.startswith("There is one class alone in 40 rows, so the area under the ROC curve has no value.")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--threshold", "1.5"], "argument --threshold"),
        (["--by", "region"], "no column 'region'; its columns are age, ward, ill"),
        (["--cost", "false=1"], "cost: expected false_negative or false_positive, found 'false'; correct it"),
        (["--cost", "false_negative=much"], "cost: expected numbers above 0, found 'much'; correct it"),
        (["--by", "ward", "--least-rows", "401"], "by: expected at least 401 in a group, found 400 in all of 'ward'"),
        (["--by", "age"], "by: expected a column of at most 50 groups, found"),
    ],
)
@pytest.mark.filterwarnings("always::gossamer.RunWarning")
def test_mistakes_get_a_line(
    place: Path, options: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    rows = tmp_path / "rows.csv"  # of which one is outside of its range, which would be said of a right call
    head, _, *others = (place / "rows.csv").read_text().splitlines()
    rows.write_text("\n".join([head, "150,a,1", *others]))
    try:
        code = main(["evaluate", str(place / "run"), str(rows), *options])
    except SystemExit as end:
        code = end.code  # type: ignore[assignment]
    printed = capsys.readouterr()
    assert code == 2
    assert said in printed.err
    assert "warning" not in printed.err
    assert printed.out == ""
