"""Tables as they come from elsewhere: nothing is taken for what it is not, and each remedy that is named helps."""

from __future__ import annotations

import random
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import gossamer as gs
from gossamer.cli import main

pytestmark = pytest.mark.usefixtures("called_here")


def table(name: str, header: str, rows: list[str]) -> None:
    Path(name).write_text("\n".join([header, *rows]) + "\n" if header else "\n".join(rows) + "\n")


@pytest.fixture
def new(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What `gossamer new` says of a table: its error, or nothing once it has written the spec."""

    def call(name: str, flags: str) -> str:
        Path("t.yaml").unlink(missing_ok=True)
        status = main(["new", "t", "--data", name, *shlex.split(flags)])
        err = " ".join(capsys.readouterr().err.split())
        assert status == (0 if Path("t.yaml").exists() else 2), err
        return "" if status == 0 else err

    return call


def spec() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(Path("t.yaml").read_text())
    return found


def checked() -> None:
    assert main(["check", "t.yaml"]) == 0


# Numbers of rows


def counted_rows(first: str) -> None:
    draw = random.Random(0)
    rows = sorted((draw.randint(0, 1), round(draw.random(), 6)) for _ in range(200))
    table("t.csv", f"{first},noise,ill", [f"{row},{x},{y}" for row, (y, x) in enumerate(rows)])


@pytest.mark.parametrize("name", ["", "Unnamed: 0", "__index_level_0__", "...1"])
def test_a_column_without_a_name_is_left_out(new: Callable[..., str], name: str) -> None:
    counted_rows(name)
    assert new("t.csv", "--target ill --labels 0,1 --range noise=0..1") == ""
    assert list(spec()["dataset"]["columns"]) == ["noise"]
    assert new("t.csv", f"--target ill --labels 0,1 --range noise=0..1 {shlex.quote(name + '=0..200')}") == ""
    assert list(spec()["dataset"]["columns"]) == [name, "noise"]


def test_row_numbers_of_any_name_are_asked_about(new: Callable[..., str]) -> None:
    counted_rows("nr")
    said = new("t.csv", "--target ill --labels 0,1 --range noise=0..1")
    assert "nr may name rows or persons" in said
    for remedy in ("--drop nr", "--number nr", "--range nr=0..200"):
        assert remedy.split("=")[0] in said
        assert new("t.csv", f"--target ill --labels 0,1 --range noise=0..1 {remedy.replace('--range', '')}") == "" or (
            remedy.startswith("--range")
        )


def loaded(spec: dict[str, Any]) -> gs.Dataset:
    return gs.load_dataset(gs.DatasetSettings.model_validate(spec["dataset"]))


@pytest.mark.parametrize(("name", "what"), [("", "has no name"), ("id", "counts the rows")])
@pytest.mark.filterwarnings("ignore::gossamer.errors.RunWarning")
def test_a_spec_that_declares_nothing_is_refused_row_numbers(name: str, what: str) -> None:
    counted_rows(name)
    dataset: dict[str, Any] = {"name": "t", "path": "t.csv", "labels": [0, 1]}
    with pytest.raises(gs.DataError, match=what):
        loaded({"dataset": dataset})
    loaded({"dataset": {**dataset, "ignore": [name]}})
    loaded({"dataset": {**dataset, "target": "ill", "columns": {name: "number", "noise": [0, 1]}}})


# The first row


CENSUS = ["39, State-gov, 13, <=50K"] + [
    f"{20 + row % 60}, {('State-gov', 'Private')[row % 2]}, {9 + row % 5}, {('<=50K', '>50K')[row % 3 == 0]}"
    for row in range(100)
]


def test_a_person_does_not_become_names(new: Callable[..., str]) -> None:
    table("t.csv", "", CENSUS)
    said = new("t.csv", "--target 3 --labels '<=50K,>50K'")
    assert "found '39', hardly a name; say --csv header=false if it is a row" in said
    flags = "--target 3 --labels '<=50K,>50K' --range 0=17..90 2=1..16 --categories 1=State-gov,Private"
    assert new("t.csv", f"{flags} --csv header=false") == ""
    assert not any(text in Path("t.yaml").read_text() for text in ("39", "13 "))
    checked()


def test_a_first_row_of_texts_is_found_by_those_below(new: Callable[..., str]) -> None:
    table(
        "t.csv",
        "",
        ["Ann,F,yes"] + [f"{'Bob' if row % 2 else 'Ann'},{'FM'[row % 2]},{'yn'[row % 2]}" for row in range(40)],
    )
    assert "stands in the rows of that column, too; say --csv header=false" in new("t.csv", "--target 2 --labels y,n")


def test_names_that_look_like_numbers_can_be_said_to_be_names(new: Callable[..., str]) -> None:
    table("t.csv", "2019,2020,ill", [f"{row % 7}.5,{row % 5}.5,{row % 2}" for row in range(60)])
    flags = "--target ill --labels 0,1 --range 2019=0..10 2020=0..10"
    assert "found '2019', hardly a name" in new("t.csv", flags)
    assert new("t.csv", f"{flags} --csv header=true") == ""
    checked()
    table("t.csv", ",0,1,ill", [f"{row},{row % 7}.5,{row % 5}.5,{row % 2}" for row in range(60)])
    assert new("t.csv", "--target ill --labels 0,1 --range 0=0..10 1=0..10") == ""  # positions, as pandas writes them


# What says nothing


def measured(mark: str) -> None:
    draw = random.Random(4)
    rows = [(draw.randint(20, 90), round(draw.gauss(13, 2), 1), draw.random() < 0.2) for _ in range(200)]
    table("t.csv", "age,hb,site,dead", [f"{a},{mark if m else h},{'AB'[a % 2]},{int(h < 12)}" for a, h, m in rows])


HB = "--target dead --labels 0,1 --owner site --range age=0..100 hb=5..20"


@pytest.mark.parametrize("mark", [".", "#N/A", "<NA>", "-", "NA", "?", ""])
def test_usual_marks_are_empty_cells(new: Callable[..., str], mark: str) -> None:
    measured(mark)
    assert "hb has empty cells (--missing hb=VALUE, or --drop hb)" in new("t.csv", HB)
    assert new("t.csv", f"{HB} --missing hb=13") == ""
    checked()


@pytest.mark.parametrize("mark", ["-9", "-9.0", "999", "99"])
def test_numbers_that_mean_not_measured_are_asked_about(new: Callable[..., str], mark: str) -> None:
    measured(mark)
    said = new("t.csv", f"{HB} --missing hb=13")
    code = f"{float(mark):g}"
    assert f"hb: {code} stands apart from all else in it" in said
    assert f"say --missing-marks hb={code} --missing hb=VALUE if it is one, and --missing-marks hb= if not" in said
    assert new("t.csv", f"{HB} --missing-marks hb={code} --missing hb=13") == ""
    assert spec()["dataset"]["columns"]["hb"] == {"range": [5, 20], "missing": 13, "missing_marks": [code]}
    marked = gs.load_dataset(gs.read_spec("t.yaml").dataset).train.features[:, 1]
    assert new("t.csv", f"{HB} --missing hb=13 --missing-marks=-9,999,99") == ""
    assert spec()["dataset"]["missing_marks"] == ["-9", "999", "99"]
    assert (gs.load_dataset(gs.read_spec("t.yaml").dataset).train.features[:, 1] == marked).all()
    assert np.isclose(marked, (13 - 12.5) / 7.5).sum() > 20
    assert new("t.csv", f"{HB} --missing-marks hb=") == ""
    assert spec()["dataset"]["columns"]["hb"] == {"range": [5, 20], "missing_marks": []}
    checked()


def test_a_run_warns_of_them_and_its_remedy_ends_the_warning() -> None:
    measured("-9")
    columns: dict[str, Any] = {"age": [0, 100], "hb": [5, 20]}
    dataset = {"name": "t", "path": "t.csv", "target": "dead", "labels": [0, 1]}
    with pytest.warns(
        gs.RunWarning, match=r"column 'hb': -9 stands apart .*; say missing_marks: \[-9\] and missing: in"
    ):
        loaded({"dataset": {**dataset, "columns": columns}})
    for hb in (
        {"range": [5, 20], "missing_marks": -9, "missing": 13},
        [-9, 20],
        {"range": [5, 20], "missing_marks": []},
    ):
        loaded({"dataset": {**dataset, "columns": {**columns, "hb": hb}}})


def test_words_among_numbers_can_say_nothing(new: Callable[..., str]) -> None:
    measured("not done")
    said = new("t.csv", HB.replace("hb=5..20", ""))
    assert (
        "hb has texts among its numbers (--missing-marks 'hb=not done' if they say nothing, --categories hb=A,B,..."
        in said
    )
    assert new("t.csv", f"{HB} --missing-marks 'hb=not done' --missing hb=13") == ""
    checked()


def test_a_target_that_says_nothing_is_no_class(new: Callable[..., str]) -> None:
    table("t.csv", "age,ill", [f"{20 + row % 60}.5,{('yes', 'no', 'NA')[row % 3]}" for row in range(90)])
    assert "ill has 30 empty cells (NA); leave such rows out" in new(
        "t.csv", "--target ill --labels no,yes --range age=0..100"
    )
    with pytest.raises(
        gs.DataError, match=r"the target is empty \('NA' says nothing\); say dataset.labels if it is one"
    ):
        gs.load_dataset(gs.DatasetSettings(name="t", path=Path("t.csv")))
    assert new("t.csv", "--target ill --labels no,yes,NA --range age=0..100") == ""
    assert spec()["dataset"]["labels"] == ["no", "yes", "NA"]


def test_a_category_may_be_called_none(new: Callable[..., str]) -> None:
    table("t.csv", "pain,ill", [f"{('none', 'mild', 'severe')[row % 3]},{row % 2}" for row in range(60)])
    assert new("t.csv", "--target ill --labels 0,1 --categories pain=none,mild,severe") == ""
    assert spec()["dataset"]["columns"] == {"pain": ["none", "mild", "severe"]}


# Persons and owners


def visits() -> None:
    draw = random.Random(2)
    rows = [(s, p, draw.randint(5, 100), draw.randint(18, 42)) for s in range(59) for p in range(1, 5)]
    table("t.csv", "subject,period,base,age,seizures", [f"{s},{p},{b},{a},{b // 4}" for s, p, b, a in rows])


VISITS = "--target seizures --regression --range seizures=0..40 base=0..100 age=15..50 period=1..4"


def test_persons_with_several_rows_are_asked_about(new: Callable[..., str]) -> None:
    visits()
    said = new("t.csv", f"{VISITS} --drop subject")
    assert "say --person subject --rows-per-person M, or --rows-per-person 1 if nobody has two" in said
    assert "say the most rows" in new("t.csv", f"{VISITS} --person subject")
    assert "persons with more, up to 4; raise it" in new("t.csv", f"{VISITS} --person subject --rows-per-person 3")
    assert "persons with more, up to 4; raise it" in new("t.csv", f"{VISITS} --person subject --rows-per-person 1")
    assert new("t.csv", f"{VISITS} --person subject --rows-per-person 4") == ""
    assert (spec()["dataset"]["person"], spec()["budget"]["rows_per_person"]) == ("subject", 4)
    assert "may tell of all rows of a person" in Path("t.yaml").read_text()
    checked()
    assert new("t.csv", f"{VISITS} --drop subject --rows-per-person 1") == ""
    assert "rows_per_person" not in spec()["budget"]


@pytest.mark.parametrize("place", [0, 8, 20, 40])
def test_no_owner_loses_its_only_row_to_testing(
    new: Callable[..., str], capsys: pytest.CaptureFixture[str], place: int
) -> None:
    rows = [f"big,{20 + row % 60}.5,{row % 2}" for row in range(40)]
    rows.insert(place, "tiny,50,1")
    table("t.csv", "owner,age,ill", rows)
    assert (
        main(
            ["new", "t", "--data", "t.csv", *shlex.split("--target ill --labels 0,1 --owner owner --range age=0..100")]
        )
        == 0
    )
    assert "1 owner (tiny) with only 1 row" in " ".join(capsys.readouterr().err.split())
    found = gs.load_dataset(gs.read_spec("t.yaml").dataset)
    assert found.owners is not None
    assert sorted(set(found.owners.tolist())) == ["big", "tiny"]
    assert len(found.test.targets) >= 7
    checked()


# Codes


def test_codes_are_asked_about(new: Callable[..., str]) -> None:
    draw = random.Random(1)
    table(
        "t.csv",
        "race,smoker,died",
        [f"{draw.randint(1, 3)},{draw.randint(0, 1)},{draw.randint(0, 1)}" for _ in range(200)],
    )
    said = new("t.csv", "--target died --labels 0,1")
    assert "race has few whole numbers (--categories race=A,B,... if they are codes, --range race=LOW..HIGH" in said
    assert "smoker has 0 and 1 (--boolean smoker, or --drop smoker)" in said
    for remedy in ("--categories race=1,2,3", "--range race=1..3", "--number race", "--drop race"):
        assert new("t.csv", f"--target died --labels 0,1 --boolean smoker {remedy}") == ""
        checked()


# Ways to write a table

ROWS = [(20 + row % 60 + 0.5, 10 + row % 6 + 0.5, int(row % 3 == 0)) for row in range(100)]
WRITTEN: dict[str, tuple[str, Callable[..., str]]] = {
    "excel": ("sep=;\nage;hb;dead", lambda row, a, h, d: f"{a};{h};{d}"),
    "spaces": ("age hb dead", lambda row, a, h, d: f"{a}  {h} {d}"),
    "rows": ('"age","hb","dead"', lambda row, a, h, d: f'"{row + 1}",{a},{h},{d}'),
    "last": ("age,hb,dead,", lambda row, a, h, d: f"{a},{h},{d},"),
    "blank": ("age,hb,dead,,", lambda row, a, h, d: f"{a},{h},{d},," if row != 50 else f"{a},{h},{d},,\n,,,,"),
    "points": ("age;hb;dead", lambda row, a, h, d: f"{a};{h};{d}".replace(".", ",")),
}


@pytest.mark.parametrize("how", WRITTEN)
def test_other_programs_tables_are_read(new: Callable[..., str], how: str) -> None:
    head, line = WRITTEN[how]
    table("t.csv", head, [line(row, *cells) for row, cells in enumerate(ROWS)])
    assert new("t.csv", "--target dead --labels 0,1 --range age=0..100 hb=0..20") == ""
    found = gs.load_dataset(gs.read_spec("t.yaml").dataset)
    told = np.concatenate([found.train.features, found.test.features])
    assert sorted(told[:, 0].tolist()) == sorted(np.float32((a - 50) / 50) for a, _, _ in ROWS)
    checked()


def test_a_spec_without_the_key_for_them_names_it() -> None:
    for how, key in (("excel", r"separator: ';'"), ("spaces", r"separator: ' '"), ("rows", "row_names: true")):
        head, line = WRITTEN[how]
        table("t.csv", head, [line(row, *cells) for row, cells in enumerate(ROWS)])
        with pytest.raises(gs.DataError, match=key) as error:
            gs.load_dataset(gs.DatasetSettings(name="t", path=Path("t.csv"), target="dead"))
        said = str(error.value).partition("dataset.csv: ")[2]
        csv = yaml.safe_load(said)
        assert len(gs.load_dataset(gs.DatasetSettings(name="t", path=Path("t.csv"), target="dead", csv=csv)).train) > 70


def test_flags_that_are_printed_can_be_pasted(new: Callable[..., str]) -> None:
    table("t.csv", "age,Body Mass (g),dead", [f"{a},{'' if row == 5 else h},{d}" for row, (a, h, d) in enumerate(ROWS)])
    said = new("t.csv", "--target dead --labels 0,1 --range age=0..100")
    assert "(--missing 'Body Mass (g)=VALUE', or --drop 'Body Mass (g)')" in said
    for remedy in ("--missing 'Body Mass (g)=12'", "--drop 'Body Mass (g)'"):
        assert new("t.csv", f"--target dead --labels 0,1 --range age=0..100 {remedy}") == ""


def test_any_other_key_of_a_spec_can_be_set(new: Callable[..., str]) -> None:
    table("t.csv", "age,hb,dead", [",".join(map(str, row)) for row in ROWS])
    sets = [
        "dataset.test_fraction=0.3",
        "budget.delta=1.0e-6",
        "objective={name: logistic, l2: 0.1}",
        "dataset.layout=dense",
    ]
    sets += ["seed=5", "dataset.normalise=unit_norm"]
    flags = shlex.join(["--target", "dead", "--labels", "0,1", "--range", "age=0..100", "hb=0..20", "--set", *sets])
    assert new("t.csv", flags) == ""
    assert (spec()["dataset"]["test_fraction"], spec()["objective"], spec()["seed"]) == (
        0.3,
        {"name": "logistic", "l2": 0.1},
        5,
    )
    assert (spec()["budget"]["epsilon"], spec()["budget"]["delta"]) == (1, 1e-6)
    checked()


def test_a_file_of_another_name_is_a_table_if_one_says_so(new: Callable[..., str]) -> None:
    table("t.data", "age,hb,dead", [",".join(map(str, row)) for row in ROWS])
    flags = "--target dead --labels 0,1 --range age=0..100 hb=0..20"
    assert "or say --set dataset.format=csv if it is one under another name" in new("t.data", flags)
    assert new("t.data", f"{flags} --set dataset.format=csv") == ""
    checked()


# LIBSVM


def test_indices_from_0_and_comments() -> None:
    rows = "".join(f"{row % 2} 0:{row}.5 2:2 # row {row}\n" for row in range(20))
    Path("t.svm").write_text(f"# written by a script\n#\n{rows}")
    settings = gs.DatasetSettings(name="t", path=Path("t.svm"), labels=(0, 1), layout="dense")
    with pytest.raises(gs.DataError, match=r"line 3: .* say dataset.first_index: 0"):
        gs.load_dataset(settings)
    found = gs.load_dataset(settings.model_copy(update={"first_index": 0}))
    assert found.train.features.shape == (16, 3)
    assert set(found.train.features[:, 2].tolist()) == {2.0}


# Data frames

FRAMES = {"algorithm": {"name": "gossip", "nodes": 2, "batch_size": 30, "updates_per_node": 20}}


class Frame:
    """As much of a data frame with columns of several kinds as is used."""

    def __init__(self, **columns: Any) -> None:
        self.columns = list(columns)
        self._cells = np.array([list(map(_boxed, column)) for column in columns.values()], object).T

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self._cells

    def to_dict(self, orient: str) -> list[dict[str, Any]]:
        return [dict(zip(self.columns, row)) for row in self._cells]


def _boxed(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def test_truth_values_and_whole_numbers_are_numbers() -> None:
    draw = np.random.default_rng(0)
    hb, male = draw.normal(0, 1, 300), draw.integers(0, 2, 300)
    y = np.where(hb > 0, "ill", "well")
    plain = gs.Data(np.stack([hb, male], 1), y, labels=["well", "ill"]).train.features
    spec = {**FRAMES, "budget": {"epsilon": 5, "delta": 1e-4}}
    for kind in (male == 1, male.tolist()):
        frame = Frame(hb=hb, male=kind)
        data = gs.Data(frame, y, labels=["well", "ill"])
        assert (data.train.features == plain).all()
        assert len(gs.run(spec, data=data).model.predict(frame)) == 300
    with pytest.raises(gs.DataError, match=r"^x, column 'sex': expected numbers, found str; encode"):
        gs.Data(Frame(hb=hb, sex=["f", "m"] * 150), y)
    with pytest.raises(gs.DataError, match=r"^x, column 'hb': expected a value everywhere, found 1 row without"):
        gs.Data(Frame(hb=[None, *hb[1:]], male=male), y)


def test_columns_of_frames_are_looked_at() -> None:
    draw = np.random.default_rng(0)
    hb = draw.normal(13, 2, 100)
    for name in ("Unnamed: 0", "nr"):
        frame = Frame(**{name: range(100), "hb": hb})
        with pytest.raises(gs.DataError, match=rf"^x: column '{name}' .*; leave it out, such as with x.drop"):
            gs.Data(frame, hb > 13)
        assert gs.Data(frame, hb > 13, feature_names=["nr", "hb"]).train.features.shape == (100, 2)
    with pytest.warns(gs.RunWarning, match="^x: -9 in column 'hb' stands apart"):
        gs.Data(Frame(hb=np.where(hb < 11, -9, hb)), hb > 13)


# In a terminal


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """What `gossamer new` asks when it gets these answers, each used once."""

    def call(*answers: str) -> list[str]:
        rest, asked = list(answers), list[str]()

        def answer(question: str) -> str:
            if question.endswith(("(Enter: not said) ", "(Enter: not known) ")):
                return ""  # these have tests of their own
            asked.append(question)
            return rest.pop(0)

        monkeypatch.setattr("builtins.input", answer)
        monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
        monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
        Path("t.yaml").unlink(missing_ok=True)
        assert main(["new", "t", "--data", "t.csv"]) == 0
        assert not rest
        return asked

    return call


def columns() -> Any:
    return spec()["dataset"]["columns"]


def test_codes_can_be_answered(answered: Callable[..., list[str]]) -> None:
    draw = random.Random(1)
    rows = [
        f"{draw.randint(1, 3)},{draw.randint(0, 1)},{draw.gauss(80, 15):.1f},{draw.randint(0, 1)}" for _ in range(200)
    ]
    table("t.csv", "race,smoker,weight,died", rows)
    for race, said in (("1,2,3", ["1", "2", "3"]), ("same", ["1", "2", "3"]), ("1..3", [1, 3]), ("", "number")):
        asked = answered("died", "", "", "0,1", race, "", "mean 80,15")
        assert "if they are codes, these, with commas, or same" in asked[4]
        assert columns() == {"race": said, "smoker": "boolean", "weight": {"mean": 80, "deviation": 15}}


def test_persons_marks_and_a_missing_header_can_be_answered(answered: Callable[..., list[str]]) -> None:
    visits()
    asked = answered("seizures", "", "subject", "four", "4", "", "0..40", "1..4", "0..100", "15..50")
    assert asked[2].endswith("(Enter: none, each row is another person; subject may) ")
    assert (spec()["dataset"]["person"], spec()["budget"]["rows_per_person"]) == ("subject", 4)
    measured("-9")
    asked = answered("dead", "site", "", "0,1", "0..100", "5..20", "perhaps", "yes", "13")
    assert asked[-2:] == [
        "hb: -9 stands apart from all else in it. Does it say that nothing is known? (yes, no) ",
        "  read an empty cell of hb as which number, such as a usual one? ",
    ]
    assert columns()["hb"] == {"range": [5, 20], "missing": 13, "missing_marks": ["-9"]}
    answered("dead", "site", "", "0,1", "0..100", "5..20", "no")
    assert columns()["hb"] == {"range": [5, 20], "missing_marks": []}
    measured("not done")
    answered("dead", "site", "", "0,1", "0..100", "marks not done", "5..20", "13")
    assert columns()["hb"] == {"range": [5, 20], "missing": 13, "missing_marks": ["not done"]}
    checked()
    table("t.csv", "", CENSUS)
    asked = answered("no", "3", "", "", "<=50K,>50K", "17..90", "same", "1..16")
    assert asked[0] == "Are the cells of the first row names of columns, and no example? (yes, no) "
    assert (spec()["dataset"]["csv"], list(columns())) == ({"header": False}, ["0", "1", "2"])


def test_same_never_declares_what_one_row_alone_says(
    answered: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    table("t.csv", "called,sex,ill", [f"Person {row},{'fm'[row % 2]},{row % 2}" for row in range(40)])
    answered("ill", "", "0,1", "same", "-", "same")
    assert "some are those of a single row, which may say who it is" in " ".join(capsys.readouterr().err.split())
    assert "Person" not in Path("t.yaml").read_text()


# Numbers that are none


def with_column(name: str, cells: list[str]) -> None:
    draw = random.Random(3)
    table("t.csv", f"{name},age,ill", [f"{cell},{draw.randint(18, 90)},{draw.randint(0, 1)}" for cell in cells])


@pytest.mark.parametrize(
    ("cells", "what"),
    [
        (("02139", "94110", "60601"), "codes"),
        (("1E5", "2E3", "7E4"), "codes"),
        (("20240101", "20240215", "20231231"), "dates"),
    ],
)
def test_codes_and_dates_are_asked_about(new: Callable[..., str], cells: tuple[str, ...], what: str) -> None:
    with_column("x", [cells[row % 3] for row in range(90)])
    said = new("t.csv", "--target ill --labels 0,1")
    assert f"x has numbers that are written as {what} are (--categories x=A,B,... if they are codes" in said
    assert new("t.csv", f"--target ill --labels 0,1 --categories x={','.join(cells)}") == ""
    assert spec()["dataset"]["columns"]["x"] == list(cells)
    checked()
    assert new("t.csv", "--target ill --labels 0,1 --number x") == ""


def test_digits_around_an_underscore_are_no_number(new: Callable[..., str]) -> None:
    with_column("slot", [("1_2", "3_4", "12_1")[row % 3] for row in range(90)])
    assert "slot has texts (--categories slot=A,B,..." in new("t.csv", "--target ill --labels 0,1")
    dataset: dict[str, Any] = {"name": "t", "path": "t.csv", "target": "ill", "labels": [0, 1]}
    dataset["columns"] = {"slot": [0, 200]}
    with pytest.raises(gs.DataError, match="expected a number, found '1_2'"):
        loaded({"dataset": dataset})
    dataset["columns"] = {"slot": ["12", "34", "121"]}
    with pytest.raises(gs.DataError, match="expected one of 12, 34, 121, found '1_2'"):
        loaded({"dataset": dataset})
    with_column("2019_2020", [f"{row % 7}.5" for row in range(60)])
    assert new("t.csv", "--target ill --labels 0,1") == ""


@pytest.mark.parametrize("cell", ['"2,815"', '"1,234.50"', "98%", "$12", '"1.234,5 €"'])
def test_amounts_are_no_categories(new: Callable[..., str], cell: str) -> None:
    with_column("cost", [cell if row % 3 else f"{row}.5" for row in range(90)])
    assert "cost has signs in its numbers, as of thousands or percent (write them plainly in the file" in new(
        "t.csv", "--target ill --labels 0,1"
    )


def test_marks_that_are_printed_can_be_pasted(new: Callable[..., str]) -> None:
    with_column("hb", ['"lost, perhaps"' if row % 9 == 0 else f"{row % 8 + 9}.5" for row in range(90)])
    flag = "--missing-marks 'hb=\"lost, perhaps\"'"
    assert flag in new("t.csv", "--target ill --labels 0,1")
    assert new("t.csv", f"--target ill --labels 0,1 {flag} --missing hb=13") == ""
    checked()
    with_column("hb", ["inf" if row % 9 == 0 else f"{row % 8 + 9}.5" for row in range(90)])
    assert "--missing-marks hb=A,B if it says nothing" in new("t.csv", "--target ill --labels 0,1")
    assert new("t.csv", "--target ill --labels 0,1 --missing-marks hb=inf --missing hb=13") == ""
    checked()


@pytest.mark.parametrize("first", ["4000000017", "13"])
def test_persons_of_a_panel_are_asked_about_whatever_their_column_is_called(
    new: Callable[..., str], first: str
) -> None:
    with_column("nr", [f"{int(first) + row // 3 * 17}" for row in range(90)])
    assert "nr: it repeats, as the names of persons do who have several rows" in new(
        "t.csv", "--target ill --labels 0,1"
    )
    assert new("t.csv", "--target ill --labels 0,1 --person nr --rows-per-person 3") == ""
    checked()


@pytest.mark.parametrize("form", ["2024-05-{:02}", "202405{:02}"])
def test_dates_that_are_left_out_are_no_persons(new: Callable[..., str], form: str) -> None:
    with_column("admitted", [form.format(1 + row % 28) for row in range(90)])
    assert new("t.csv", "--target ill --labels 0,1 --drop admitted") == ""
