"""Whole runs of federated units: what is written of their privacy, and who refuses what."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gossamer as gs
from gossamer.cli import main
from gossamer.errors import SpecError
from gossamer.experiment.audits.canary_audit import audit_run
from gossamer.experiment.preparation.planning import plan_run
from gossamer.experiment.preparation.prepare import prepare
from gossamer.experiment.runs.running import Run, sources_of
from gossamer.experiment.specs.spec_file import parse_spec, write_spec
from gossamer.sides.plan import StreamPlan

BASE: dict[str, Any] = {
    "name": "graph_federated",
    "units": 3,
    "agents": [2, 3, 4],
    "agents_sampled": 2,
    "rounds": 8,
    "step_size": 0.5,
    "batch_size": 5,
}
EXPECTED = {"disagreement", "last_disagreement", "centroid", "last_centroid"}


def spec(algorithm: dict[str, Any] | None = None, **sections: Any) -> gs.Experiment:
    content = {"dataset": "digits", "budget": {"epsilon": 5, "delta": 1e-5}, **sections}
    content["algorithm"] = {**BASE, **(algorithm or {})}
    return parse_spec({key: value for key, value in content.items() if value is not None})


def read(path: Path) -> Any:
    """JSON that has no word for what is not finite."""

    def refuse(word: str) -> Any:
        raise AssertionError(f"{path.name} has {word}")

    return json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)


def lines(path: Path) -> list[Any]:
    return [json.loads(line, parse_constant=lambda word: pytest.fail(word)) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("noise", ["homomorphic", "random"])
def test_what_is_written(noise: str, tmp_path: Path) -> None:
    chosen = spec({"noise": noise})
    result = gs.run(chosen, tmp_path / "out")
    privacy = read(tmp_path / "out" / "summary.json")["privacy"]
    records = 8 * (2 if noise == "random" else 1)  # three units in a ring have two neighbours each
    assert privacy["guarantee"] == privacy["guarantees"]["other_units"]
    assert privacy["guarantee"]["epsilon"] == pytest.approx(5, rel=1e-9)
    assert privacy["guarantee"]["epsilon"] <= 5
    assert {who: found["epsilon"] is None for who, found in privacy["guarantees"].items()} == {
        "other_units": False,
        "own_agents": noise == "random",
        "own_server": True,
    }
    assert privacy["mechanism"]["law"] == "gaussian"
    assert privacy["mechanism"]["noise"] == noise
    assert (privacy["mechanism"]["rounds"], privacy["mechanism"]["records"]) == (8, records)
    assert set(privacy["expected_noise"]) == EXPECTED
    assert [claim["valid"] for claim in privacy["claims"]] == [False]
    assert len(privacy["nodes"]) == 9
    for entry in privacy["nodes"].values():
        assert entry["releases"] == entry["planned_releases"] == records
        assert entry["epsilon"] == result.guarantee.epsilon
    assert result.guarantees["other_units"] == result.guarantee

    ledger = lines(tmp_path / "out" / "ledger.jsonl")
    assert [line["node"] for line in ledger] == [f"node-{number}" for number in range(9)]
    assert [line["unit"] for line in ledger] == [
        f"server-{p}" for p, count in enumerate((2, 3, 4)) for _ in range(count)
    ]
    assert {line["standard_deviation"] for line in ledger} == {privacy["mechanism"]["standard_deviation"]}
    assert {line["releases"] for line in ledger} == {records}

    readings = [row["epsilon_so_far"] for row in lines(tmp_path / "out" / "metrics.jsonl")]
    assert readings[0] == 0
    assert readings == sorted(readings)
    assert readings[-1] == result.guarantee.epsilon
    assert gs.read_spec(tmp_path / "out" / "spec.yaml") == chosen


@pytest.mark.parametrize(
    "sections",
    [{"privacy": "none", "budget": None}, {"privacy": {"clip": "none", "standard_deviation": 0.1}, "budget": None}],
    ids=["none", "unbounded"],
)
def test_nothing_proved_is_written_as_none(sections: dict[str, Any], tmp_path: Path) -> None:
    result = gs.run(spec(**sections), tmp_path / "out")
    privacy = read(tmp_path / "out" / "summary.json")["privacy"]
    for found in (privacy["guarantee"], *privacy["guarantees"].values()):
        assert (found["epsilon"], found["privacy"]) == (None, "none")
    assert {entry["epsilon"] for entry in privacy["nodes"].values()} == {None}
    assert privacy["claims"] == []
    assert ("expected_noise" in privacy) == (sections["privacy"] != "none")
    assert all(row["epsilon_so_far"] is None for row in lines(tmp_path / "out" / "metrics.jsonl"))
    assert math.isinf(result.guarantee.epsilon)
    assert (tmp_path / "out" / "spec.yaml").read_text().count("inf") == 0


def test_a_run_that_is_cut_short_is_charged_for_all_rounds() -> None:
    whole, cut = gs.run(spec()), gs.run(spec(stop={"virtual_seconds": 3}, speeds={"name": "constant"}))
    assert cut.summary["virtual_seconds"] == 3
    assert cut.summary["updates"] < whole.summary["updates"] == 24
    assert cut.guarantee == whole.guarantee
    assert 0 < cut.metrics[-1]["epsilon_so_far"] < cut.guarantee.epsilon
    entry = cut.summary["privacy"]["nodes"]["node-0"]
    assert entry["releases"] < entry["planned_releases"] == 8


def test_a_ledger_refuses_records_beyond_its_plan() -> None:
    """With streams opened for five of the eight rounds, no server releases a sixth message."""
    prepared = prepare(spec())
    plan = plan_run(prepared)
    sides = {
        name: replace(side, records=5) if isinstance(side, StreamPlan) else side for name, side in plan.sides.items()
    }
    result = Run(prepared, replace(plan, sides=sides), sources_of(prepared, plan, purpose="test")).go()
    finished = result.summary["finished"]
    assert {finished[f"server-{p}"] for p in range(3)} == {"budget"}
    assert {entry["releases"] for entry in result.summary["privacy"]["nodes"].values()} == {5}
    assert result.summary["updates"] == 15


@pytest.mark.usefixtures("called_here")
@pytest.mark.parametrize("command", ["check", "run"])
def test_the_command_says_who_is_protected_from_whom(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for where in ("released", "hidden"):
        path = tmp_path / f"{where}.yaml"
        path.write_text(write_spec(spec({"gradient_at": where})))
        assert main([command, str(path)]) == 0
        said = " ".join(capsys.readouterr().out.split())
        unit = "agent" if where == "released" else "federated unit"
        assert f"-differential privacy for each {unit}, against other units" in said
        assert "trusted: the" in said
        # In the guarantee; check also says it in plain words.
        assert said.count("against other units") == {"run": 1, "check": 2}[command]
        assert "Guarantee against own server: none." in said
        assert ("Guarantee against own agents: of the same unit: none." in said) == (where == "hidden")


@pytest.mark.usefixtures("called_here")
def test_check_prints_the_document_that_a_run_keeps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(write_spec(spec({"agents_sampled": None})))
    assert main(["check", str(path), "--json"]) == 0
    checked = json.loads(capsys.readouterr().out)
    assert main(["run", str(path), "--json", "--out", str(tmp_path / "out")]) == 0
    ran = json.loads(capsys.readouterr().out)["privacy"]
    assert {key: checked[key] for key in ("guarantee", "guarantees", "mechanism")} == {
        key: ran[key] for key in ("guarantee", "guarantees", "mechanism")
    }
    assert checked["updates"] == 24
    assert {entry["releases"] for entry in checked["plan"].values()} == {8}
    # one of two agents moves twice as much as one of four
    assert ran["nodes"]["node-0"]["epsilon"] > ran["nodes"]["node-2"]["epsilon"] > ran["nodes"]["node-8"]["epsilon"]


def test_a_trace_replays(tmp_path: Path) -> None:
    chosen = spec()
    with pytest.warns(gs.RunWarning, match="raw models"):
        gs.run(chosen, trace=tmp_path / "trace")
    assert gs.replay_run(chosen, tmp_path / "trace") is None


@pytest.mark.parametrize("drawn", ["fresh", "reproducible"])
def test_runs_with_other_noise_do_not_share_it_up_to_a_factor(drawn: str) -> None:
    """With almost nothing but noise in the model, that of two runs is uncorrelated, also if they have one secret: |r| <
    0.25 for 640 numbers holds with probability 1 - 1e-10."""
    secret = gs.NoiseSecret(bytes(16)) if drawn == "fresh" else None
    found = []
    for deviation in (1.0, 2.0, 1.0):
        chosen = spec(privacy={"clip": 1e-6, "standard_deviation": deviation, "noise_secret": drawn}, budget=None)
        found.append(gs.run(chosen, secret=secret).model["weight"].ravel())
    assert abs(np.corrcoef(found[0], found[1])[0, 1]) < 0.25
    np.testing.assert_array_equal(found[0], found[2])


def test_audits_score_by_loss() -> None:
    with pytest.raises(SpecError, match="score by loss"):
        audit_run(spec(), canaries=20, guesses=4)
    found = audit_run(spec(), canaries=20, guesses=4, score="loss").summary["privacy"]["audits"]["one_run"]
    assert not found["refuted"]


def test_agents_that_mask_have_ledgers_of_their_own(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    algorithm = {"masking": "secure", "agents": 3}
    result = gs.run(spec(algorithm, privacy={"agent_noise": 4.0}), tmp_path / "out")
    own = result.guarantees["own_server"]
    assert math.isfinite(own.epsilon)
    assert read(tmp_path / "out" / "summary.json")["privacy"]["guarantees"]["own_server"]["epsilon"] == own.epsilon
    ledger = lines(tmp_path / "out" / "ledger.jsonl")
    assert [line["node"] for line in ledger if line.get("to") == "own server"] == [f"node-{n}" for n in range(9)]
    assert sum(line["releases"] for line in ledger if line.get("to") == "own server") == 8 * 2 * 3
