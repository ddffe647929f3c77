"""``gossamer simulate-faults``: small runs of any spec, and a failure that can be repeated."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.reference.planted_bugs import BUGS

from gossamer.cli.main import main
from gossamer.cli.runs import simulate_faults as command
from gossamer.experiment.specs.spec import Experiment
from gossamer.experiment.specs.spec_file import parse_spec, read_spec
from gossamer.faults.trials import Trial, small_runs

EXAMPLES = Path(__file__).parents[3] / "examples"
GOSSIP = str(EXAMPLES / "digits-gossip.yaml")


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """All trials send before they store."""
    instead, _ = BUGS["send before store"]
    command._trial.cache_clear()
    monkeypatch.setattr(Trial, "of", classmethod(lambda cls, spec: Trial(small_runs(spec)[0], **instead)))
    yield
    command._trial.cache_clear()


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_seeds_pass(jobs: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate-faults", GOSSIP, "--seeds", "3", "--jobs", jobs]) == 0
    printed = capsys.readouterr()
    assert printed.out == "gossip: 3 seeds from 0 on, and everything held\n"
    assert "gossip: small runs of 4 parameters, with nodes 3, updates_per_node 6; or nodes 4" in printed.err
    assert "seeds a second" in printed.err


def test_a_failure_comes_with_the_command_that_repeats_it(broken: None, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["simulate-faults", GOSSIP, "--set", "algorithm.learning_rate=0.1", "--seeds", "200"]
    assert main(arguments) == 1
    first = capsys.readouterr().out
    assert "shortest schedule that still fails:" in first
    again = first.splitlines()[-1].removeprefix("again: ")
    assert main(shlex.split(again)[1:]) == 1
    assert capsys.readouterr().out == first


def test_a_failure_as_data(broken: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate-faults", GOSSIP, "--seeds", "200", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["algorithm"] == "gossip"
    failure = found["failure"]
    assert 1 <= len(failure["faults"]) <= 10
    assert failure["again"].endswith(f"--seeds 1 --first {failure['seed']}")
    assert main(["simulate-faults", GOSSIP, "--seeds", "1", "--first", str(failure["seed"]), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["failure"] == failure


@pytest.mark.parametrize("option", [["--seeds", "0"], ["--jobs", "0"], ["--first", "-1"]])
def test_numbers_that_cannot_be_are_the_callers_mistake(option: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate-faults", GOSSIP, *option]) == 2
    assert f"{option[0]}: expected a whole number" in capsys.readouterr().err


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("digits-*.yaml")), ids=lambda path: path.stem)
def test_every_example_has_small_runs(path: Path) -> None:
    """With what its algorithm does left as it is."""
    experiment = read_spec(path)
    runs, remarks = small_runs(experiment)
    assert remarks
    for run in runs:
        spec = run.prepared.experiment
        assert len(run.nodes) <= 6
        assert run.prepared.objective.size <= 8
        assert spec.algorithm.name == experiment.algorithm.name
        assert spec.privacy.mechanism == experiment.privacy.mechanism
        assert spec.privacy.clip == experiment.privacy.clip


def small(algorithm: dict[str, Any], **privacy: Any) -> tuple[list[Experiment], list[str]]:
    spec = {"algorithm": algorithm, "privacy": privacy or {"noise_multiplier": 1.0}}
    runs, remarks = small_runs(parse_spec(spec))
    return [run.prepared.experiment for run in runs], remarks


def test_waits_are_shortened_and_it_is_said() -> None:
    specs, remarks = small({"name": "audp", "staleness": {"bound": 1, "on_stale": "wait", "patience": 9.0}})
    assert {spec.algorithm.staleness.patience for spec in specs} == {2.0}  # type: ignore[union-attr]
    assert {spec.algorithm.staleness.on_stale for spec in specs} == {"wait"}  # type: ignore[union-attr]
    assert "algorithm.staleness.patience: 2 s instead of 9 s" in remarks


def test_a_topology_of_many_nodes_becomes_a_ring_and_it_is_said() -> None:
    specs, remarks = small({"name": "gossip", "nodes": 64, "topology": {"name": "regular", "degree": 5}})
    assert [spec.algorithm.topology.name for spec in specs] == ["ring", "ring", "regular"]  # type: ignore[union-attr]
    assert any(remark.startswith("algorithm.topology: a ring") for remark in remarks)


def test_all_reduce_waits_for_nobody_without_end() -> None:
    specs, remarks = small({"name": "allreduce"})
    assert {spec.algorithm.timeout for spec in specs} == {3.0}  # type: ignore[union-attr]
    assert "algorithm.timeout: 3 s instead of no limit" in remarks
