"""One or two nodes go for good: whoever can go on does, and a run that cannot says so, whom it waits for, and ends
with another code than 0."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import gossamer as gs
from gossamer.cli import main

pytestmark = [
    pytest.mark.usefixtures("called_here"),
    pytest.mark.filterwarnings("default::gossamer.RunWarning"),
]

TRUSTED = {"noise_by": "server", "trusted": "server"}
CLIENTS: dict[str, Any] = {"nodes": 6, "local_steps": 2, "batch_size": 16}
LOST = [{"node": 3, "start": 1.5}]
"""Each client is at its first update then, and has answered nothing."""
BASE: dict[str, Any] = {
    "dataset": "digits",
    "privacy": {"clip": 1.0},
    "budget": {"epsilon": 50, "delta": 1e-4},
    "evaluation": "off",
}


def spec(algorithm: dict[str, Any], gone: list[dict[str, Any]] = LOST, **more: Any) -> dict[str, Any]:
    return {**BASE, "algorithm": algorithm, "faults": {"absences": gone}, **more}


@pytest.mark.parametrize(
    "algorithm",
    [
        {"name": "fedavg", "rounds": 3, **CLIENTS},
        {"name": "fedavg", "rounds": 3, **CLIENTS, **TRUSTED},
        {"name": "fedavg", "rounds": 3, **CLIENTS, "masking": "secure"},
        {"name": "fedbuff", "buffer": 4, "updates_per_node": 3, **CLIENTS, "masking": "secure"},
        {"name": "fedbuff", "buffer": 3, "updates_per_node": 3, **CLIENTS},
        {"name": "gossip", "nodes": 6, "updates_per_node": 3, "batch_size": 16},
        {"name": "allreduce", "nodes": 6, "updates_per_node": 3, "batch_size": 16},
        {"name": "d_psgd", "nodes": 6, "updates_per_node": 3, "batch_size": 16},
        {"name": "audp", "nodes": 6, "updates_per_node": 3, "batch_size": 16},
        {"name": "increasing", "nodes": 6, "rounds": 3},
    ],
    ids=lambda algorithm: "-".join([algorithm["name"], *(key for key in ("noise_by", "masking") if key in algorithm)]),
)
def test_one_lost_node_stops_no_run(algorithm: dict[str, Any]) -> None:
    summary = gs.run(spec(algorithm)).summary
    assert summary["gone"] == ["node-3"]
    assert "shortfall" not in summary
    assert summary["updates"] > 0
    there = {f"node-{number}" for number in range(6)} - {"node-3"}
    assert there <= summary["finished"].keys()


def test_a_client_that_is_lost_in_the_first_round_costs_its_silence_and_names_the_timeout(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With a timeout of 5 seconds the ten rounds took 93; without, the first waited 30 and then the silence of 30."""
    algorithm = {"name": "fedavg", "nodes": 8, "rounds": 10, "batch_size": 16, "local_steps": 3}
    Path("spec.yaml").write_text(yaml.safe_dump(spec(algorithm, [{"node": 3, "start": 2}])))
    assert main(["check", "spec.yaml"]) == 0
    seen = capsys.readouterr()
    line = "a round waited for node-3 until links.silence was over, and the run went on without; algorithm.timeout"
    assert line in seen.err
    assert "The spec is sound." not in seen.out
    assert main(["run", "spec.yaml", "--out", "out"]) == 0
    assert line in capsys.readouterr().err
    summary = json.loads(Path("out/summary.json").read_text())
    assert summary["fedavg"]["steps"] == 10
    assert summary["updates"] == 70


@pytest.mark.parametrize(
    ("algorithm", "gone", "words"),
    [
        (
            {"name": "fedavg", "rounds": 3, **CLIENTS, "masking": {"name": "secure", "threshold": 5}},
            [{"node": 3, "start": 1.5}, {"node": 4, "start": 1.5}],
            ["the run made 0 of 3 rounds", "it waits for node-3, node-4", "algorithm.timeout bounds such waits"],
        ),
        (
            {
                "name": "fedbuff",
                "buffer": 6,
                "updates_per_node": 3,
                **CLIENTS,
                "noise_by": "server",
                "trusted": "server",
            },
            LOST,
            ["the run made 0 of 3 rounds", "it waits for node-3"],
        ),
        (
            {"name": "fedavg", "rounds": 3, **CLIENTS},
            [{"node": 6, "start": 1.5}],
            ["the run stopped", "it waits for server"],
        ),
    ],
    ids=["below the threshold", "all in a buffer", "no server"],
)
def test_a_run_that_cannot_go_on_says_whom_it_waits_for(
    algorithm: dict[str, Any], gone: list[dict[str, Any]], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("spec.yaml").write_text(yaml.safe_dump(spec(algorithm, gone)))
    assert main(["check", "spec.yaml"]) == 0
    seen = capsys.readouterr()
    assert all(word in seen.err for word in [*words, "more time changes nothing"])
    assert "The spec is sound." not in seen.out
    assert main(["run", "spec.yaml", "--out", "out"]) == 4
    seen = capsys.readouterr()
    assert all(word in seen.err for word in words)
    assert seen.err.splitlines()[-1].startswith("gossamer: stalled: the run ")
    assert "give its nodes and rounds more time" not in seen.err
    summary = json.loads(Path("out/summary.json").read_text())
    assert summary["status"] == "stalled"
    assert set(summary["shortfall"]["waits_for"]) <= set(summary["gone"])


def test_rounds_without_a_sum_are_no_end_as_planned(capsys: pytest.CaptureFixture[str]) -> None:
    """Two of six are away from the first round to the third, and five are needed: the later rounds have sums."""
    algorithm = {
        "name": "fedavg",
        "rounds": 4,
        **CLIENTS,
        "masking": {"name": "secure", "threshold": 5},
        "timeout": 10.0,
    }
    gone = [{"node": node, "start": 1.0, "end": 25.0} for node in (3, 4)]
    Path("spec.yaml").write_text(yaml.safe_dump(spec(algorithm, gone)))
    assert main(["run", "spec.yaml", "--out", "out"]) == 4
    seen = capsys.readouterr()
    assert "the run made 2 of 4 rounds: in 2 rounds nobody answered, or there was no sum that could be used" in seen.err
    summary = json.loads(Path("out/summary.json").read_text())
    assert (summary["status"], summary["fedavg"]["masked_sums_refused"]) == ("incomplete", 2)
    assert summary["shortfall"] == {"rounds": 2, "planned": 4, "empty": 2}
