"""`gossamer new`: what it writes is what was declared, and whatever it cannot do is one line, with nothing written."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from tests.end_to_end.test_first_day import NEW
from tests.end_to_end.ward_table import ward_table, write

from gossamer.cli import main

pytestmark = pytest.mark.usefixtures("called_here")

ROWS = "a,40,f,no\na,50,m,yes\nb,60,f,no\nb,61,m,yes\nb,30,f,no\na,45,m,yes\na,70,f,no\na,71,f,yes\n"
SMALL = "who,age,sex,ill\n" + 5 * ROWS
DECLARED = ["--target", "ill", "--labels", "no,yes", "--range", "age=0..100", "--categories", "sex=f,m"]
WHOLE = [*DECLARED, "--owner", "who"]


TOLD = pytest.mark.filterwarnings("always::gossamer.errors.RunWarning")
"""Warnings are printed, as to a user."""


def new(*arguments: str, data: str = "t.csv") -> int:
    return main(["new", "small", "--data", data, *arguments])


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line that a mistake gets; the folder is as it was."""
    before = {path: path.lstat().st_mtime_ns for path in Path().rglob("*")}
    capsys.readouterr()
    status = main(arguments)
    out, err = capsys.readouterr()
    assert (status, out, len(err.splitlines()), "Traceback" in err) == (2, "", 1, False), err
    assert {path: path.lstat().st_mtime_ns for path in Path().rglob("*")} == before
    return err


@pytest.fixture(autouse=True)
def _small(called_here: None) -> None:
    Path("t.csv").write_text(SMALL)


def written() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(Path("small.yaml").read_text())
    return found


def test_the_spec_has_what_was_declared_and_counts_alone(capsys: pytest.CaptureFixture[str]) -> None:
    write(Path("wards.csv"), ward_table(3, 600))
    assert main(NEW) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "predicts readmitted from 8 columns, without patient; 600 rows of 7 owners (ward)" in said
    spec = yaml.safe_load(Path("wards.yaml").read_text())
    dataset = spec["dataset"]
    assert dataset["labels"] == ["no", "yes"]
    assert dataset["columns"]["creatinine"] == {"range": [40, 180], "missing": 90}
    assert dataset["columns"]["admission"] == ["planned", "emergency", "transfer"]
    assert (dataset["columns"]["age"], dataset["columns"]["smoker"]) == ([20, 90], "boolean")
    assert list(dataset["columns"]) == [
        *("age", "sex", "admission", "smoker", "heart_rate", "creatinine", "medicines", "income")
    ]
    assert (spec["algorithm"]["nodes"], spec["budget"]) == (7, {"epsilon": 1, "delta": 1e-4})  # 10^-4 <= 1/6000
    assert main(["check", "wards.yaml"]) == 0


def test_other_rows_of_the_same_counts_make_the_same_spec() -> None:
    """Nothing is learnt from a row: another table with as many rows at each owner gives the same bytes."""
    rows = [line.split(",") for line in SMALL.splitlines()]
    assert new(*WHOLE) == 0
    first = Path("small.yaml").read_bytes()
    Path("small.yaml").unlink()
    other = [rows[0]] + [[who, str(99 - int(age)), "m", ill] for who, age, _, ill in rows[1:]]
    Path("t.csv").write_text("\n".join(map(",".join, other)))
    assert new(*WHOLE) == 0
    assert Path("small.yaml").read_bytes() == first


@TOLD
def test_a_number_without_a_range_is_scaled_privately(capsys: pytest.CaptureFixture[str]) -> None:
    enough = ("--epsilon", "50")  # for 40 rows
    assert new("--target", "ill", "--labels", "no,yes", "--categories", "sex=f,m", "--drop", "who", *enough) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "range age mostly lies: gossamer run finds that privately, gossamer up and federations need it " in (
        " ".join(out.split())
    )
    assert written()["dataset"]["columns"]["age"] == "number"
    assert written()["dataset"]["scale"] == "private"
    assert main(["check", "small.yaml"]) == 0
    capsys.readouterr()
    assert main(["up", "small.yaml"]) == 2
    assert "dataset.scale: private is for simulations, and parties of a federation agree on ranges before they " in (
        capsys.readouterr().err
    )
    assert re.search(
        r"age: number # scaled privately; better a range .* such as \[0, 100\]", Path("small.yaml").read_text()
    )


def test_without_an_owner_all_rows_are_in_one_place() -> None:
    assert new(*DECLARED, "--drop", "who") == 0
    assert "partition" not in written()
    assert written()["algorithm"]["batch_size"] == 16  # half of 80 % of 40 rows


REAL = ("--target", "age", "--regression", "--categories", "sex=f,m", "ill=no,yes", "--drop", "who")


def test_a_regression_has_no_labels() -> None:
    assert new(*REAL, "--range", "age=0..100") == 0
    assert (written()["dataset"]["task"], written()["objective"]) == ("regression", "squared")
    assert written()["dataset"]["target_range"] == [0, 100]
    assert "age" not in written()["dataset"]["columns"]
    assert main(["check", "small.yaml"]) == 0


def test_a_mean_of_the_target_does_as_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert new(*REAL, "--mean", "age=50,20", "--epsilon", "50") == 0
    assert written()["dataset"]["target_range"] == {"mean": 50, "deviation": 20}
    assert capsys.readouterr().err == ""


def test_the_next_command_can_be_pasted(capsys: pytest.CaptureFixture[str]) -> None:
    assert new(*WHOLE, "--out", "a b.yaml") == 0
    assert capsys.readouterr().out.splitlines()[-1] == "Next: gossamer check 'a b.yaml'"


def test_a_wrong_cell_names_the_flags_that_help(capsys: pytest.CaptureFixture[str]) -> None:
    Path("t.csv").write_text(SMALL.replace("no", "nein").replace("50,m", "5x0,m"))
    rest = ("--target", "who", "--labels", "a,b", "--categories", "sex=f,m")
    found = refused(capsys, *T, *rest, "--boolean", "ill", "--drop", "age")
    assert "line 2, column 'ill': expected true or false (or yes, no, 1, 0), found 'nein'" in found
    assert found.endswith(
        "correct it, or say --categories ill=A,B,... with all its texts, --missing-marks ill=A,B if it says nothing, "
        "or --drop ill\n"
    )
    found = refused(capsys, *T, *rest, "--range", "age=0..100", "--categories", "ill=nein,yes")
    assert "line 3, column 'age': expected a number, found '5x0'; correct it, or say --categories age=" in found
    assert "dataset.columns" not in found


@pytest.mark.parametrize(
    ("text", "csv"),
    [
        (SMALL.replace(",", ";"), {"separator": ";"}),
        (SMALL.replace(",", "\t"), {"separator": "\t"}),
        (SMALL.replace(",", ";").replace("40;", "40,5;"), {"separator": ";", "decimal": ","}),
        (SMALL.replace("who", "wér"), {"encoding": "latin-1"}),
    ],
    ids=["semicolons", "tabs", "decimal commas", "latin-1"],
)
def test_other_ways_to_write_a_table_are_found(text: str, csv: dict[str, Any]) -> None:
    Path("t.csv").write_bytes(text.encode("latin-1"))
    owner = "wér" if "wér" in text else "who"
    assert new(*DECLARED, "--owner", owner) == 0
    assert written()["dataset"]["csv"] == csv
    assert main(["check", "small.yaml"]) == 0


def test_a_file_without_names_has_positions(capsys: pytest.CaptureFixture[str]) -> None:
    rows = np.random.default_rng(0).integers(0, 100, (40, 3))
    Path("t.csv").write_text("\n".join(f"{a},{b},{c % 2}" for a, b, c in rows))
    rest = ["--target", "2", "--labels", "0,1", "--range", "0=0..100", "1=0..100"]
    assert "say --csv header=false if it is a row" in refused(capsys, *T, *rest)
    assert new(*rest, "--csv", "header=false") == 0
    assert written()["dataset"]["csv"] == {"header": False}
    assert main(["check", "small.yaml"]) == 0


def test_a_parquet_file_is_as_good() -> None:
    table = pytest.importorskip("pyarrow.csv").read_csv("t.csv")
    pytest.importorskip("pyarrow.parquet").write_table(table, "t.parquet")
    assert new(*WHOLE, data="t.parquet") == 0
    assert main(["check", "small.yaml"]) == 0


def test_the_table_may_lie_elsewhere() -> None:
    Path("specs").mkdir()
    assert new(*WHOLE, "--out", "specs/one.yaml") == 0
    spec = yaml.safe_load(Path("specs/one.yaml").read_text())
    assert spec["dataset"]["path"] == os.path.join("..", "t.csv")
    assert main(["check", "specs/one.yaml"]) == 0


def test_the_spec_can_be_read_by_others() -> None:
    """It is public, so the umask decides, and nothing makes it private."""
    before = os.umask(0o022)
    try:
        assert new(*WHOLE) == 0
    finally:
        os.umask(before)
    assert Path("small.yaml").stat().st_mode & 0o777 == 0o644


# What cannot be done

T = ["new", "small", "--data", "t.csv"]
FLAGS: list[tuple[list[str], str]] = [
    (["new", "small"], "expected a table, found none; give one with --data FILE"),
    (["new", "small", "--data", "absent.csv", *WHOLE], "--data absent.csv: there is no such file"),
    (["new", "small", "--data", ".", *WHOLE], "expected a CSV or Parquet file, found a folder"),
    (["new", "small", "--data", "", *WHOLE], "--data: expected the name of a file or folder, found an empty one"),
    (["new", "a/b", "--data", "t.csv", *WHOLE], "NAME: expected a plain name such as wards, found 'a/b'"),
    (["new", "", "--data", "t.csv", *WHOLE], "NAME: expected a plain name"),
    (["new", "digits", "--data", "t.csv", *WHOLE], "NAME: digits is a data set that gossamer knows"),
    ([*T, *WHOLE, "--out", "t.csv"], "t.csv: expected a new file to write, found a file there"),
    ([*T, *WHOLE, "--out", "."], "expected a new file to write, found a folder there"),
    ([*T, *WHOLE, "--out", "no/where.yaml"], "there is no folder no; make it"),
    (T, "--target: expected the column to be predicted, found none; name one of who, age, sex, ill"),
    ([*T, "--target", "il"], "--target il: the file has no such column; did you mean ill?"),
    ([*T, *DECLARED, "--owner", "whom"], "--owner whom: the file has no such column; did you mean who?"),
    ([*T, *DECLARED, "--owner", "ill"], "--owner ill: this is the target's column"),
    ([*T, "--target", "ill"], "ill has no classes (--labels A,B, or --regression)"),
    ([*T, "--target", "ill"], "sex has texts (--categories sex=A,B,..., or --drop sex)"),
    ([*T, *WHOLE, "--labels", "no"], "--labels: expected two or more different texts with commas, found 'no'"),
    ([*T, *WHOLE, "--labels", "no,no"], "--labels: expected two or more different texts"),
    ([*T, *WHOLE, "--labels", "no,perhaps"], "yes"),
    ([*T, *WHOLE, "--regression"], "--labels: a regression has no classes"),
    ([*T, "--target", "ill", "--regression", "--categories", "sex=f,m", "--drop", "who"], "ill has texts"),
    ([*T, *WHOLE, "--range", "ages=0..1"], "--range ages: the file has no such column; did you mean age?"),
    ([*T, *WHOLE, "--range", "age"], "--range: expected a column and what is declared of it, such as age=0..120"),
    ([*T, *WHOLE, "--range", "age=0..1"], "--range age: this column was declared before"),
    ([*T, "--range", "age=0-100", "--target", "ill"], "--range age: expected the least and the most, such as 0..120"),
    (
        [*T, "--range", "age=9..1", "--target", "ill"],
        "--range age: expected the least first and then a larger number",
    ),
    ([*T, "--range", "age=0..inf", "--target", "ill"], "--range age: expected the least and the most"),
    ([*T, "--range", "age=18,5..95", "--target", "ill"], "found '18,5..95'; write decimals with a point, such as 18.5"),
    ([*T, "--mean", "age=18,5,2", "--target", "ill"], "found '18,5,2'; write decimals with a point, such as 18.5"),
    ([*T, "--range", "age=-1e308..1e308", "--target", "ill"], "--range age: numbers must fit float32"),
    ([*T, "--mean", "age=50", "--target", "ill"], "--mean age: expected a mean and a deviation, such as 80,15"),
    ([*T, "--mean", "age=50,0", "--target", "ill"], "--mean age: expected a mean and a deviation above 0, such as"),
    ([*T, *WHOLE, "--missing-marks", "aeg=-9"], "--missing-marks aeg: the file has no such column; did you mean age?"),
    ([*T, *WHOLE, "--person", "who"], "--person who: this is the owner's column; name another"),
    ([*T, *WHOLE, "--person", "ill"], "--person ill: this is the target's column; name another"),
    ([*T, *DECLARED, "--owner", "ill"], "--owner ill: this is the target's column; name another"),
    ([*T, "--categories", "sex=f", "--target", "ill"], "--categories sex: expected two or more different texts"),
    ([*T, "--categories", "sex=f,f", "--target", "ill"], "--categories sex: expected two or more different texts"),
    ([*T, "--boolean", "man", "--target", "ill"], "--boolean man: the file has no such column"),
    ([*T, *WHOLE, "--drop", "age"], "--drop age: this column was declared before"),
    ([*T, *WHOLE, "--drop", "ill"], "ill is the target's column, which is no feature"),
    ([*T, *DECLARED, "--drop", "who", "--missing", "age=old"], "--missing age: missing must be a number"),
    ([*T, *DECLARED, "--drop", "who", "--missing", "age=999"], "--missing age: missing must be in the range"),
    ([*T, *REAL], "age has no range (--range age=LOW..HIGH: from where to where targets mostly lie)"),
    (
        [*T, *REAL, "--range", "age=9..1"],
        "--range age: expected the least first and then a larger number",
    ),
    ([*T, *REAL, "--categories", "age=1,2"], "age is the target's column, a number with --regression; declare its"),
    ([*T, *REAL, "--boolean", "age"], "age is the target's column, a number with --regression; declare its range"),
    ([*T, *WHOLE, "--boolean", "ill"], "ill is the target's column, and has classes; declare nothing else of it"),
    (
        [*T, *DECLARED, "--drop", "who", "--missing", "sex=x"],
        "--missing sex: missing must be one of the categories f, m",
    ),
    ([*T, *WHOLE, "--epsilon", "-1"], "epsilon"),
    ([*T, *WHOLE, "--epsilon", "nan"], "epsilon"),
    ([*T, *WHOLE, "--delta", "0.5"], "delta must be at most 0.01"),
    ([*T, "--target", "ill", "--labels", "no,yes", "--drop", "age", "sex", "who"], "expected a feature beside ill"),
]


@pytest.mark.parametrize(("arguments", "expected"), FLAGS, ids=range(len(FLAGS)))
def test_mistakes_in_the_call(capsys: pytest.CaptureFixture[str], arguments: list[str], expected: str) -> None:
    assert expected in refused(capsys, *arguments)


FILES: list[tuple[bytes, str]] = [
    (b"", "expected a table with a header and rows, found an empty file"),
    (b"\n\n", "found an empty file"),
    (b"who,age,sex,ill\n", "expected rows below the header, found none"),
    (bytes(range(256)) * 4, "found bytes that are no text"),
    (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "found bytes that are no text"),
    (b"words\nmore\n", "expected a header of two or more different names"),
    (b"a,a\n1,2\n", "expected a header of two or more different names"),
    (SMALL.replace("yes", "no").encode(), "expected two classes or more in ill, found only 'no'"),
    (SMALL.replace("40,f,no", "40,f,").encode(), "ill has 5 empty cells"),
    (SMALL.replace("40,f", ",f").encode(), "age has empty cells (--missing age=VALUE, or --drop age)"),
    (SMALL.replace("40,f", "40,x").encode(), "column 'sex': expected one of f, m, found 'x'"),
    (SMALL.replace("b,30,f,no", "b,30,f,no,9").encode(), "line 6: expected 4 columns, found 5"),
    (SMALL.replace("40,f", '40,"f').encode(), "not a CSV row"),
    (SMALL.replace("a,", ",").encode(), "line 2, column 'who': the owner is empty; fill it in, or leave such rows out"),
    (b"who,age,sex,ill\na,40,f,no\nb,50,m,yes\n", "2 examples are too few to hold out 0.2"),
]


@pytest.mark.parametrize(("content", "expected"), FILES, ids=range(len(FILES)))
def test_files_that_are_no_tables(capsys: pytest.CaptureFixture[str], content: bytes, expected: str) -> None:
    Path("t.csv").write_bytes(content)
    assert expected in refused(capsys, *T, *WHOLE)


def test_a_name_that_says_another_format(capsys: pytest.CaptureFixture[str]) -> None:
    Path("t.npz").write_bytes(b"PK")
    Path("t.xlsx").write_bytes(b"PK")
    Path("t.yaml").write_text("dataset: digits")
    for name, advice in {
        "t.npz": "write its spec by hand, beginning with dataset: {name: NAME, path: t.npz} (docs/how-to/data.md)",
        "t.xlsx": "save the table as one of them, or say --set dataset.format=csv if it is one under another name",
        "t.yaml": "as specs do; if it is one, say gossamer check t.yaml",
    }.items():
        found = refused(capsys, "new", "s", "--data", name, *WHOLE)
        assert f"{name}: expected a CSV or Parquet file, found a name that ends in .{name[2:]}" in found
        assert found.endswith(f"{advice}\n")


# Questions in a terminal


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Answers to questions, and the questions."""

    def answers(*given: str) -> list[str]:
        asked: list[str] = []
        rest: Iterator[str] = iter(given)

        def answer(question: str) -> str:
            if question.endswith(("(Enter: not said) ", "(Enter: not known) ")):
                return ""  # these have tests of their own
            asked.append(question)
            try:
                return next(rest)
            except StopIteration:
                raise EOFError from None

        monkeypatch.setattr("builtins.input", answer)
        monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
        monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
        return asked

    return answers


def test_questions_lead_to_the_same_spec_as_flags(terminal: Callable[..., list[str]]) -> None:
    assert new(*WHOLE) == 0
    by_flags = Path("small.yaml").read_bytes()
    Path("small.yaml").unlink()
    asked = terminal("ill", "who", "", "no,yes", "0..100", "f,m")
    assert new() == 0
    assert len(asked) == 6
    assert Path("small.yaml").read_bytes() == by_flags


@TOLD
def test_a_wrong_answer_is_asked_again(terminal: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    terminal("illness", "ill", "ill", "", "", "", "no", "same", "-", "a..b", "", "f", "same")
    assert new() == 0
    err = capsys.readouterr().err
    assert "illness: the file has no such column; did you mean ill?" in err
    assert "ill: this is the target's column already; name another" in err
    assert "  expected texts with commas between them, found no answer; say all classes\n" in err
    assert "rows have 'yes' too, and what is not declared is refused; say all classes\n" in err
    assert "expected the least and the most" in err
    assert "rows have 'm' too, and what is not declared is refused; say all, or leave the column out with -" in (
        " ".join(err.split())
    )
    assert written()["dataset"]["columns"] == {"age": "number", "sex": ["f", "m"]}


def test_empty_cells_of_texts_are_a_category_of_their_own_by_default(
    terminal: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("t.csv").write_text(SMALL.replace("40,f", ",f").replace("50,m", "50,"))
    asked = terminal("ill", "who", "no,yes", "0..100", "oops", "", "50", "f,m", "")
    assert new() == 0
    assert asked[-5:] == [
        *["  read an empty cell of age as which number, such as a usual one? "] * 3,
        "  categories, with commas, or same, or - to leave it out: ",
        "  read an empty cell of sex as which category (Enter: unknown, one of its own)? ",
    ]
    err = " ".join(capsys.readouterr().err.split())
    assert "expected a value that stands for an empty cell, found no answer; say a usual one" in err
    assert (
        "A cell counts as empty if nothing is in it, or one of #n/a, #na, -, ., <na>, ?, n/a, na, nan, none, null."
        in err
    )
    assert written()["dataset"]["columns"] == {
        "age": {"range": [0, 100], "missing": 50},
        "sex": {"categories": ["f", "m", "unknown"], "missing": "unknown"},
    }
    assert main(["check", "small.yaml"]) == 0


@TOLD
def test_a_feature_that_says_that_a_cell_was_empty_can_be_answered(
    terminal: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("t.csv").write_text(SMALL.replace("40,f", ",f").replace("50,m", "50,"))
    terminal("ill", "who", "no,yes", "0..100", "flag ", "flag 50", "f,m", "flag f")
    assert new() == 0
    err = " ".join(capsys.readouterr().err.split())
    assert "'flag 90' reads such a cell as 90, and has a further feature say that it was empty." in err
    assert written()["dataset"]["columns"] == {
        "age": {"range": [0, 100], "missing": 50, "was_empty": True},
        "sex": {"categories": ["f", "m"], "missing": "f", "was_empty": True},
    }


def test_texts_with_a_comma_are_shown_as_they_can_be_answered(
    terminal: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("t.csv").write_text(SMALL.replace(",f,", ',"f, at birth",'))
    terminal("ill", "who", "", "no,yes", "0..100", '"f, at birth",m')
    assert new() == 0
    err = capsys.readouterr().err
    assert 'sex: "f, at birth", m' in err
    assert "counts as empty" not in err
    assert written()["dataset"]["columns"]["sex"] == ["f, at birth", "m"]


def test_the_range_of_a_target_is_asked_for(
    terminal: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f"{place % 3},{100 + place / 7:.2f},{'fm'[place % 2]}" for place in range(60)]
    Path("t.csv").write_text("\n".join(["who,pressure,sex", *rows]))
    asked = terminal("pressure", "who", "", "", "80..200", "same")
    assert new() == 0
    assert asked[3] == asked[4] == "  range in which most such values lie, such as 80..200: "
    assert "expected the least and the most" in capsys.readouterr().err
    assert written()["dataset"]["target_range"] == [80, 200]


@TOLD
def test_numbers_of_rows_are_never_offered(
    terminal: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """The least and the most of a column are somebody's own: neither is shown, nor taken."""
    Path("t.csv").write_text(SMALL.replace("71", "98").replace("30", "17"))
    asked = terminal("ill", "who", "", "same", "", "same")
    assert new() == 0
    told = "\n".join(asked) + capsys.readouterr().err
    assert "98" not in told
    assert "17" not in told


def test_the_end_of_answers_is_a_line(terminal: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    terminal("ill", "who")
    assert new() == 2
    assert "found the end of the input; start again" in capsys.readouterr().err.splitlines()[-1]
    assert not Path("small.yaml").exists()


def test_a_wrong_column_lists_the_columns_once(
    terminal: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    terminal("xyz", "ill", "who", "", "no,yes", "0..100", "f,m")
    assert new() == 0
    assert capsys.readouterr().err.count("expected one of") == 1


def test_a_target_of_few_numbers_may_be_a_regression(terminal: Callable[..., list[str]]) -> None:
    Path("t.csv").write_text("sex,score\n" + "".join(f"{'fm'[row % 2]},{row % 5}\n" for row in range(60)))
    asked = terminal("score", "", "", "0..4", "same")
    assert new() == 0
    assert asked[2] == "  classes, with commas, or same (Enter: none, it is a number): "
    assert (written()["dataset"]["task"], written()["dataset"]["target_range"]) == ("regression", [0, 4])
