"""What a stranger may type: one line says what was expected, and nothing is a traceback or taken in silence."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import gossamer as gs
from gossamer.cli import main
from gossamer.experiment.specs.spec_file import parse_spec

pytestmark = pytest.mark.usefixtures("called_here")

NONE = "algorithm: {name: gossip, nodes: 3, batch_size: 20, updates_per_node: 3}\nprivacy: none\n"
POLICY = "data: {wards: {epsilon: 4, delta: 1e-5}}\n"


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines()), "Traceback" in err) == ("", 1, False)
    return err


@pytest.mark.some(6)
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("a: " + "[" * 6000 + "]" * 6000, "line 1: it is nested too deeply"),
        ("privacy: none\n? [a]\n: b\n", "line 2: expected a key, found a list or a mapping"),
        ("seed: " + "9" * 6000, "line 1: expected a number, found one of 6000 digits"),
        ("seed: 2020-13-40", "not YAML: month must be in 1..12"),
        (NONE + 'dataset: {name: m, path: "a\\0b.csv"}\n', "found one with a null character"),
        (NONE + "algorithm: 3\n", "'algorithm' is given twice"),
    ],
    ids=["nested", "a list for a key", "a long number", "no date", "a null character", "twice"],
)
@pytest.mark.parametrize("command", ["run", "check"])
def test_files_that_are_no_specs(capsys: pytest.CaptureFixture[str], command: str, content: str, expected: str) -> None:
    Path("spec.yaml").write_text(content)
    assert expected in refused(capsys, command, "spec.yaml")


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("algorithm.nodes=1e9", "algorithm.nodes: input should be a whole number, such as 1000, found '1e9'"),
        ("algorithm.nodes=", "algorithm.nodes: input should be a valid integer, found nothing"),
        ("budget.epsilon=null", "budget.epsilon: input should be a valid number, found nothing"),
        ("algorithm.topology=erdos_renyi", "algorithm.topology.p is missing"),
        ("algorithm..nodes=3", "expected key=value, such as algorithm.nodes=16, found 'algorithm..nodes=3'"),
        ("privacy=3", "privacy: expected keys with their values, found 3"),
        ("evaluation.every_seconds=1e-9", "every_seconds is 1e-09, more than 1000 looks in the 1 s of an update"),
        ("partition={name: sizes, sizes: [481, 1, 1]}", "node-1 holds 1 example, fewer than algorithm.batch_size 20"),
    ],
)
def test_settings_that_make_no_sense(capsys: pytest.CaptureFixture[str], setting: str, expected: str) -> None:
    Path("spec.yaml").write_text(NONE)
    assert expected in refused(capsys, "check", "spec.yaml", "--set", setting)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("data: " + "[" * 6000 + "]" * 6000, "line 1: it is nested too deeply"),
        (POLICY.replace("4", "9" * 6000), "line 1: expected a number, found one of 6000 digits"),
        (POLICY.replace("4", "2020-13-40"), "not YAML: month must be in 1..12"),
        ("data: 3\n", "line 1: data: expected keys with their values, found 3"),
    ],
    ids=["nested", "a long number", "no date", "no keys"],
)
def test_files_that_are_no_policies(capsys: pytest.CaptureFixture[str], content: str, expected: str) -> None:
    Path("policy.yaml").write_text(content)
    assert expected in refused(capsys, "data", "show", "policy.yaml")


PLAN = shlex.split(
    "plan graph_federated --epsilon 1 --delta 1e-5 --rounds 3 --step 1 --bound 1 --size 9 --agents-sampled 3 --graph"
)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["status", "file"], "file: cannot read the status (Not a directory); give a node's --store"),
        (
            ["federation", "identity", "a", "--out", "file"],
            "file: cannot make this folder (File",
        ),
        (
            ["attack", "audit", "spec.yaml", "--canaries", "0", "--guesses", "0"],
            "--canaries: expected a whole number, 1 or more",
        ),
        (
            ["simulate-faults", "spec.yaml", "--seeds", "0", "--jobs", "2"],
            "--seeds: expected a whole number, 1 or more",
        ),
        ([*PLAN, "circle", "--units", "4"], "circle: No such file or directory"),
        (
            [*PLAN, "file"],
            "file: it is no table of numbers with rows of one length",
        ),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else "",
)
def test_arguments_that_make_no_sense(capsys: pytest.CaptureFixture[str], arguments: list[str], expected: str) -> None:
    Path("spec.yaml").write_text(NONE)
    Path("file").write_text("0.5 0.5\n0.5\n")

    assert expected in refused(capsys, *arguments)


def test_results_that_were_damaged_are_not_attacked(capsys: pytest.CaptureFixture[str]) -> None:
    Path("spec.yaml").write_text(NONE)
    gs.run(gs.read_spec("spec.yaml"), "out")
    summary = json.loads(Path("out/summary.json").read_text())
    for damage in ({"guarantee": 3}, {"audits": 3}):
        Path("out/summary.json").write_text(json.dumps({**summary, "privacy": {**summary["privacy"], **damage}}))
        assert "out: expected the results folder of a run" in refused(capsys, "attack", "membership", "out")
    Path("out/summary.json").write_text(json.dumps(summary))
    model = load_file("out/model.safetensors")
    save_file({**model, "bias": np.full_like(model["bias"], np.nan)}, "out/model.safetensors")
    assert "model.safetensors: expected finite numbers, found others" in refused(capsys, "attack", "membership", "out")


@pytest.mark.parametrize("name", ["gossip", "allreduce"])
@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
def test_models_that_grow_beyond_everything_end_a_run_as_any_other(name: str) -> None:
    """Sums of three models at the largest value there is, rounded up by float32, are no fault of a peer."""
    algorithm = {"name": name, "nodes": 3, "batch_size": 20, "updates_per_node": 3, "learning_rate": 1e300}
    result = gs.run(parse_spec({"algorithm": algorithm, "privacy": "none"}))
    assert result.summary["status"] == "diverged"
    assert result.summary["rejected_messages"] == 0


BASE_60 = "found 1:30, which YAML reads in base 60; write the number without a colon, or a text in quotes"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("privacy: none\n? null\n: 3\n", "line 2: expected a key, found null; write its name"),
        ("privacy: none\n?\n: 3\n", "line 2: expected a key, found nothing before the colon; write its name"),
        (
            "algorithm:\n  name: gossip\n  ~: 3\n",
            "line 3: expected a key, found ~, which YAML reads as null; write",
        ),
        ("privacy: none\nseed: 1:30\n", f"line 2: expected a number, {BASE_60}"),
        (
            "privacy: none\nstop: {seconds: 1:30.5}\n",
            "line 2: expected a number, found 1:30.5, which YAML reads in base",
        ),
    ],
    ids=["null", "empty", "tilde", "base 60", "a fraction in base 60"],
)
def test_yaml_that_means_something_else(capsys: pytest.CaptureFixture[str], content: str, expected: str) -> None:
    Path("spec.yaml").write_text(content)
    assert expected in refused(capsys, "check", "spec.yaml")


def test_a_text_in_quotes_may_have_a_colon(capsys: pytest.CaptureFixture[str]) -> None:
    Path("spec.yaml").write_text(f'{NONE}dataset: "1:30"\n')
    assert "no data set is called '1:30'" in refused(capsys, "check", "spec.yaml")


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["run", ""], "SPEC"),
        (["check", ""], "SPEC"),
        (["run", "spec.yaml", "--out", ""], "--out"),
        (["node", "--invitation", ""], "--invitation"),
        (["status", "a", ""], "STORE"),
        (["federation", "show", ""], "FILE"),
        (["data", "show", ""], "POLICY"),
    ],
)
def test_an_empty_file_name(capsys: pytest.CaptureFixture[str], arguments: list[str], name: str) -> None:
    line = f"gossamer: error: {name}: expected the name of a file or folder, found an empty one; give one"
    assert refused(capsys, *arguments).startswith(line)


def test_an_invitation_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    """The key would be looked for beside it, so the invitation is looked for first."""
    expected = "nowhere: cannot read the invitation: No such file or directory; give the file that the organiser sent"
    assert refused(capsys, "node", "--invitation", "nowhere") == f"gossamer: error: {expected}\n"
