"""The command: figures on stdout, one clear line and the right exit code for every mistake."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from gossamer.cli import main

pytestmark = pytest.mark.usefixtures("called_here")

SPEC: dict[str, Any] = {
    "dataset": "digits",
    "algorithm": {"name": "gossip", "nodes": 4, "batch_size": 20, "updates_per_node": 5},
    "privacy": {"noise_multiplier": 1.0},
}


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(SPEC))
    return path


def mistake(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one line that a caller's mistake gets."""
    assert main([str(argument) for argument in arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.strip().splitlines()
    assert lines[-1].startswith("gossamer: error: ")
    assert "Traceback" not in err
    return lines[-1]


MODULES = """
from torch import nn
class WithBatchNorm(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Linear(8, 10))
class WithoutParameters(nn.Flatten):
    pass
class NotANumber(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(64, 10))
    def forward(self, x):
        return super().forward(x) * float("nan")
number = 3
"""


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (["algorithm.nodez=3"], "unknown key algorithm.nodez; did you mean nodes?"),
        (["dataset=mnst"], "mnst"),
        (["algorithm.batch_size=400"], "fewer than algorithm.batch_size 400"),
        (["algorithm.topology={name: edges, path: edges.txt}"], "connected"),
        (["privacy.noise_multiplier=null", "budget={epsilon: 1.0e-6, delta: 1.0e-9}"], "1000"),
        (["budget={epsilon: 0.5}"], "more than budget.epsilon 0.5"),
        (["objective.module=nets:WithBatchNorm"], "GroupNorm"),
        (["objective.module=nets:WithoutParameters"], "no parameter to train"),
        (["objective.module=nets:Missing"], "Missing"),
        (["objective.module=nets:number"], "number"),
        (["objective.module=nowhere:Net"], "nowhere"),
        (["objective=lenet6"], "did you mean lenet5?"),
        (["dataset={name: mine, path: broken.csv}"], "line 3"),
        (["dataset={name: mine, path: nan.csv}"], "nan.csv"),
        (["dataset={name: mine, path: broken.svm, format: libsvm}"], "line 2"),
        (["dataset={name: mine, path: missing.csv}"], "missing.csv"),
        (
            ["privacy.sampling=fixed_size", "privacy.neighboring_relation=add_or_remove_one"],
            "FixedSize with replace_one",
        ),
        (["speeds={name: file, path: times.csv}"], "line 1"),
        (["algorithm.nodes=5000"], "5,000"),
        (["faults.absences=[{node: 9, start: 1}]"], "below 4"),
        (["speeds.scenario={name: one_slow, node: 7}"], "found 7"),
        (["seed=-1"], "seed"),
        (["dataset={name: mine, path: plain.csv, divide_by: 1.0e-300}", "objective=softmax"], "not finite"),
        (["objective={name: softmax, loss: mse}"], "objective.loss is for networks"),
        (["objective.module=nets:NotANumber"], "not finite at its initial parameters"),
        (["faults.absences=" + str([{"node": n, "start": 0} for n in range(4)])], "no node makes an update"),
        (["links.partitions=[{start: 1, group: [9]}]"], "links.partitions: a node is a number below 4"),
        (
            ["dataset={name: mine, path: real.csv, task: regression}", "stop={accuracy: 0.9, updates: 5}"],
            "stop.accuracy needs classes",
        ),
    ],
)
def test_a_mistake_gets_one_line(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    spec: Path,
    settings: list[str],
    expected: str,
) -> None:
    monkeypatch.syspath_prepend(spec.parent)
    for name, content in {
        "nets.py": MODULES,
        "edges.txt": "0 1\n2 3\n",
        "broken.csv": "a,b,label\n1,2,0\n1,two,1\n",
        "nan.csv": "a,b,label\n1,2,0\n1,nan,1\n",
        "broken.svm": "1 1:0.5\n1 2:x\n",
        "times.csv": "0;1.5\n",
        "plain.csv": "a,b,y\n" + "1,2,0\n3,4,1\n" * 99,
        "real.csv": "a,b,y\n" + "1,2,0.5\n" * 99,
    }.items():
        (spec.parent / name).write_text(content)
    arguments = [part for setting in settings for part in ("--set", setting)]
    assert expected in mistake(capsys, "check", spec, *arguments)


def test_a_missing_dataset_names_the_file_and_where_it_was_looked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, spec: Path, tmp_path: Path
) -> None:
    monkeypatch.setenv("GOSSAMER_DATA", str(tmp_path / "elsewhere"))
    line = mistake(capsys, "check", spec, "--set", "dataset=mnist")
    assert "train-images-idx3-ubyte" in line
    assert str(tmp_path / "elsewhere") in line


def test_results_are_not_overwritten_by_accident(capsys: pytest.CaptureFixture[str], spec: Path) -> None:
    assert main(["run", str(spec), "--out", "out"]) == 0
    capsys.readouterr()
    assert "--overwrite" in mistake(capsys, "run", spec, "--out", "out")
    assert main(["run", str(spec), "--out", "out", "--overwrite"]) == 0


@pytest.mark.parametrize("command", [["check"], ["run", "--out", "x"]])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("stop.virtual_seconds=1e-9", "no node makes an update before the run ends"),
        ("budget.epsilon=1e-9", "epsilon"),
        ("algorithm.batch_size=400", ""),
        ("evaluation.every_seconds=1e-9", "evaluation.every_seconds is 1e-09, more than"),
    ],
)
def test_a_plan_that_is_refused_names_the_spec(
    capsys: pytest.CaptureFixture[str], spec: Path, command: list[str], change: str, said: str
) -> None:
    line = mistake(capsys, command[0], spec, *command[1:], "--set", change)
    assert line.startswith(f"gossamer: error: {spec}: ")
    assert line.count(str(spec)) == 1
    assert said in line


def test_a_trace_that_cannot_be_written_is_named(capsys: pytest.CaptureFixture[str], spec: Path) -> None:
    assert "nowhere/trace: cannot write" in mistake(capsys, "run", spec, "--out", "x", "--trace", "nowhere/trace")


@pytest.mark.parametrize("content", ["age,ill\n40,no\n", "a\n", "\n"])
def test_a_file_that_is_no_trace_stays_as_it_is(capsys: pytest.CaptureFixture[str], spec: Path, content: str) -> None:
    Path("rows.csv").write_text(content)
    said = mistake(capsys, "run", spec, "--out", "x", "--trace", "rows.csv")
    assert "rows.csv: expected a trace, or a file that is not there yet" in said
    assert Path("rows.csv").read_text() == content
    assert not Path("x").exists()


def test_a_run_that_cannot_be_leaves_the_earlier_results(capsys: pytest.CaptureFixture[str], spec: Path) -> None:
    assert main(["run", str(spec), "--out", "out"]) == 0
    before = {path.name: path.read_bytes() for path in Path("out").iterdir()}
    capsys.readouterr()
    for bad in (["--set", "algorithm.batch_size=400"], ["--trace", "nowhere/trace"]):
        mistake(capsys, "run", spec, "--out", "out", "--overwrite", *bad)
        assert {path.name: path.read_bytes() for path in Path("out").iterdir()} == before


def test_run_prints_the_guarantee_in_words_and_the_folder(capsys: pytest.CaptureFixture[str], spec: Path) -> None:
    assert main(["run", str(spec)]) == 0
    out, err = capsys.readouterr()
    assert "-differential privacy for each example" in out
    assert out.endswith("Results: runs/spec-seed0\nNext: gossamer report runs/spec-seed0\n")
    assert "plan: 20 updates of 4 nodes" in err


@pytest.mark.parametrize("command", ["run", "check"])
def test_json_is_one_document_on_stdout(capsys: pytest.CaptureFixture[str], spec: Path, command: str) -> None:
    assert main([command, str(spec), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["nodes"] == 4


def test_datasets_lists_names_and_folders(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GOSSAMER_DATA", str(tmp_path))
    assert main(["datasets"]) == 0
    out = capsys.readouterr().out
    assert "digits" in out
    assert str(tmp_path) in out
    assert main(["datasets", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {"digits", "mnist", "a9a"} <= {entry["name"] for entry in document["datasets"]}
    assert str(tmp_path) in document["search_path"]


ACCOUNTED = {
    *("epsilon", "delta", "mu", "best_guess"),
    *("neighboring_relation", "accountant", "rows_per_person", "releases"),
}


def test_account_and_calibrate_are_inverse(capsys: pytest.CaptureFixture[str]) -> None:
    common = ["--sampling-rate", "0.02", "--steps", "500", "--delta", "1e-5", "--json"]
    assert main(["calibrate", "--epsilon", "2", *common]) == 0
    calibrated = json.loads(capsys.readouterr().out)
    assert {"noise_multiplier", "epsilon", "delta"} <= set(calibrated)
    noise = str(calibrated["noise_multiplier"])
    assert main(["account", "--mechanism", "gaussian", "--noise-multiplier", noise, *common]) == 0
    accounted = json.loads(capsys.readouterr().out)
    assert set(accounted) == ACCOUNTED
    assert accounted["epsilon"] == pytest.approx(calibrated["epsilon"], rel=1e-9)
    assert 0.99 * 2 < accounted["epsilon"] <= 2
    assert accounted["releases"] == 500


def test_account_takes_rates_from_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    Path("rates.csv").write_text("# rate,count\n0.02,300\n0.02,200\n")
    noise = ["--noise-multiplier", "1.5", "--delta", "1e-5", "--json"]
    assert main(["account", *noise, "--rates", "rates.csv"]) == 0
    from_file = json.loads(capsys.readouterr().out)
    assert main(["account", *noise, "--sampling-rate", "0.02", "--steps", "500"]) == 0
    assert from_file == json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--steps", "5"], "needs --sampling-rate"),
        (["--sampling-rate", "0.1"], "--steps: expected a number of releases, found none"),
        (
            ["--sampling-rate", "1.5", "--steps", "5"],
            "--sampling-rate: expected a number, above 0 and at most 1, found '1.5'",
        ),
        (["--sampling-rate", "0.1", "--steps", "-5"], "--steps: expected a whole number, 0 to 1e9, found '-5'"),
        (["--sampling", "fixed_size", "--steps", "5"], "needs --dataset-size"),
        (
            ["--sampling", "fixed_size", "--steps", "5", "--dataset-size", "10", "--batch-size", "20"],
            "--batch-size must be at most --dataset-size 10, found 20",
        ),
        (["--rates", "rates.csv"], "rates.csv, line 2: expected rate,count"),
        (["--rates", "rates.csv", "--steps", "5"], "leave out --steps"),
        (
            ["--rates", "rates.csv", "--sampling", "fixed_size", "--batch-size", "3"],
            "leave out --sampling and --batch-",
        ),
        (["--rates", "rates.csv", "--sampling", "fixed_size"], "--rates holds rates of poisson sampling"),
        (["--rates", "empty.csv"], "found none"),
        (["--sampling-rate", "0.1", "--steps", "5", "--batch-size", "5"], "--batch-size is for --sampling fixed_size"),
        (["--rates", "nowhere.csv"], "nowhere.csv: cannot read"),
        (["--sampling-rate", "0.1", "--steps", "5", "--delta", "2"], "delta"),
        (
            ["--sampling-rate", "0.1", "--steps", "5", "--noise-multiplier", "0"],
            "--noise-multiplier: expected a number, 0.01 to 1e6",
        ),
        (
            ["--sampling-rate", "0.1", "--steps", "5", "--group", "0"],
            "--group: expected a whole number, 1 to 10000, found '0'",
        ),
    ],
)
def test_account_refuses(capsys: pytest.CaptureFixture[str], arguments: list[str], expected: str) -> None:
    Path("rates.csv").write_text("0.1,5\n0.1;5\n")
    Path("empty.csv").write_text("# nothing\n0.1,0\n")
    noise = [] if "--noise-multiplier" in arguments else ["--noise-multiplier", "1"]
    delta = [] if "--delta" in arguments else ["--delta", "1e-5"]
    assert expected in mistake(capsys, "account", *noise, *delta, *arguments)


L2 = ["--mechanism", "l2_laplace"]


def test_account_and_calibrate_of_l2_laplace_noise_are_inverse(capsys: pytest.CaptureFixture[str]) -> None:
    common = [*L2, "--size", "650", "--sampling-rate", "0.02", "--steps", "500", "--delta", "1e-5", "--json"]
    assert main(["calibrate", "--epsilon", "2", *common]) == 0
    calibrated = json.loads(capsys.readouterr().out)
    assert set(calibrated) == {
        "release_epsilon",
        "epsilon",
        "delta",
        "neighboring_relation",
        "rows_per_person",
        "releases",
    }
    assert main(["account", "--epsilon", str(calibrated["release_epsilon"]), *common]) == 0
    accounted = json.loads(capsys.readouterr().out)
    assert set(accounted) == ACCOUNTED
    assert accounted["epsilon"] == pytest.approx(calibrated["epsilon"], rel=1e-9)
    assert 0.99 * 2 < accounted["epsilon"] <= 2


def test_account_composes_in_four_ways(capsys: pytest.CaptureFixture[str]) -> None:
    common = [
        "account",
        *L2,
        "--epsilon",
        "0.1",
        "--size",
        "50",
        "--sampling-rate",
        "1",
        "--steps",
        "9",
        "--delta",
        "0.01",
    ]
    assert main([*common, "--composition", "all", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    found = document["compositions"]
    assert list(found) == ["simple", "advanced", "optimal", "tight"]
    assert found["simple"] == pytest.approx(0.9)
    assert document["epsilon"] == found["tight"] < found["optimal"] < found["simple"]
    for name in found:
        assert main([*common, "--composition", name, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["epsilon"] == found[name]
    assert main([*common, "--composition", "all"]) == 0
    *lines, guess = capsys.readouterr().out.splitlines()
    assert [line.split("(")[-1] for line in lines] == [f"{name} composition)" for name in found]
    assert guess.startswith("The best guess is right ")


def test_account_prints_the_whole_profile(capsys: pytest.CaptureFixture[str]) -> None:
    """Each line is a point: the delta that `account` would compute for that epsilon, at most some percent more."""
    releases = ["--noise-multiplier", "1.5", "--sampling-rate", "0.02", "--steps", "500"]
    assert main(["account", *releases, "--delta", "1e-5", "--profile", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    points = document["profile"]
    assert points["epsilon"][0] == 0
    assert document["best_guess"] == (1 + points["delta"][0]) / 2
    assert main(["account", *releases, "--delta", "1e-5", "--profile"]) == 0
    lines = capsys.readouterr().out.splitlines()
    shown = [tuple(map(float, line.split())) for line in lines[4:]]
    assert len(shown) == 11
    for at, probability in shown[4:9]:
        assert main(["account", *releases, "--delta", str(probability), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["epsilon"] == pytest.approx(at, rel=0.02)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([*L2, "--epsilon", "1"], "l2_laplace needs --size"),
        ([*L2, "--size", "5"], "l2_laplace needs --epsilon"),
        ([*L2, "--size", "0", "--epsilon", "1"], "--size: expected a whole number, 1 to 1e12, found '0'"),
        ([*L2, "--size", "4", "--epsilon", "0"], "--epsilon must lie between 2e-06 and 200 at this --size, found 0.0"),
        ([*L2, "--size", "4", "--epsilon", "-1"], "found -1.0"),
        ([*L2, "--size", "4", "--epsilon", "nan"], "found nan"),
        ([*L2, "--size", "4", "--epsilon", "1", "--noise-multiplier", "1"], "--noise-multiplier is for"),
        (["--epsilon", "1"], "--epsilon is for --mechanism l2_laplace"),
        (["--noise-multiplier", "1", "--size", "3"], "--size is for --mechanism l2_laplace"),
        (["--noise-multiplier", "1", "--composition", "all"], "--composition is for --mechanism l2_laplace"),
        ([], "gaussian needs --noise-multiplier"),
    ],
)
def test_account_refuses_settings_of_the_other_noise(
    capsys: pytest.CaptureFixture[str], arguments: list[str], expected: str
) -> None:
    rest = ["--sampling-rate", "0.1", "--steps", "5", "--delta", "1e-5"]
    assert expected in mistake(capsys, "account", *arguments, *rest)


def test_only_tight_composition_is_for_many_rates(capsys: pytest.CaptureFixture[str]) -> None:
    Path("rates.csv").write_text("0.1,5\n0.2,5\n")
    arguments = [*L2, "--size", "4", "--epsilon", "1", "--rates", "rates.csv", "--delta", "1e-5"]
    assert main(["account", *arguments]) == 0
    capsys.readouterr()
    assert "use --composition tight" in mistake(capsys, "account", *arguments, "--composition", "optimal")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([*L2, "--epsilon", "2"], "l2_laplace needs --size"),
        (["--size", "5", "--epsilon", "2"], "--size is for --mechanism l2_laplace"),
        ([*L2, "--size", "5", "--epsilon", "0"], "--epsilon: expected a number, above 0"),
        (
            [*L2, "--size", "5", "--epsilon", "1e-9"],
            "needs sqrt(size) / (epsilon of one full-batch release) above 1000",
        ),
    ],
)
def test_calibrate_refuses(capsys: pytest.CaptureFixture[str], arguments: list[str], expected: str) -> None:
    rest = ["--sampling-rate", "1", "--steps", "5", "--delta", "1e-9"]
    assert expected in mistake(capsys, "calibrate", *arguments, *rest)


def _start(tmp_path: Path) -> subprocess.Popen[bytes]:
    """A long run, once it has looked at its models twice."""
    path = tmp_path / "long.yaml"
    path.write_text(yaml.safe_dump({**SPEC, "evaluation": {"every_updates": 20}}))
    settings = ["--set", "algorithm.updates_per_node=100000", "--set", "privacy.noise_multiplier=100"]
    process = subprocess.Popen(
        [sys.executable, "-m", "gossamer", "run", path, "--out", tmp_path / "out", *settings],
        stderr=subprocess.DEVNULL,
        env=os.environ,
        # A shell's background jobs ignore SIGINT, and so would what the tests start there.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    metrics = tmp_path / "out" / "metrics.jsonl"
    for _ in range(600):
        if metrics.exists() and metrics.read_text().count("\n") > 2:
            return process
        time.sleep(0.1)
    process.kill()
    raise AssertionError("the run did not start")


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("how", "status", "code"),
    [
        (signal.SIGINT, "interrupted", 130),
        (signal.SIGTERM, "interrupted", 130),
        (signal.SIGKILL, "running", -signal.SIGKILL),
    ],
)
def test_an_interrupted_run_leaves_a_valid_folder(tmp_path: Path, how: signal.Signals, status: str, code: int) -> None:
    process = _start(tmp_path)
    process.send_signal(how)
    assert process.wait(timeout=60) == code
    out = tmp_path / "out"
    summary = json.loads((out / "summary.json").read_text())
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert summary["status"] == status
    assert summary["metrics"]["test_accuracy"] in [row["test_accuracy"] for row in rows[-2:]]
    assert summary["privacy"]["guarantee"]["epsilon"] > 0
    ledger = [json.loads(line) for line in (out / "ledger.jsonl").read_text().splitlines()]
    assert sum(line["releases"] for line in ledger) >= rows[-2]["updates"]


def test_a_reader_that_goes_away_is_no_error(spec: Path) -> None:
    command = f"{sys.executable} -m gossamer check {spec} --json | head -c 10"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=120, check=False)
    assert "Traceback" not in done.stderr
