"""What runs write down of each node, against what they say as a whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gossamer.experiment.results import records
from gossamer.experiment.results.records import Result
from gossamer.experiment.runs.running import run
from gossamer.experiment.specs.spec_file import parse_spec

COMMON = {
    "privacy": "none",
    "speeds": {"name": "lognormal"},
    "stop": {"updates": 40},
    "evaluation": {"every_updates": 40},
}
NOISE = {"privacy": {"noise_multiplier": 2}}
AWAY = {"faults": {"absences": [{"node": 1, "start": 2.5, "end": 4.0}]}, "links": {"silence": 1}}


def ran(folder: Path, algorithm: dict[str, Any], **more: Any) -> tuple[Result, dict[str, Any]]:
    result = run(parse_spec({"algorithm": algorithm, **COMMON, **more}), folder)
    found: dict[str, Any] = json.loads((folder / "nodes.json").read_text())
    return result, found


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, dict[str, Any]]:
    return ran(tmp_path_factory.mktemp("nodes") / "audp", {"name": "audp", "nodes": 4}, **AWAY, **NOISE)


def test_nodes_add_up_to_what_the_run_says(served: tuple[Result, dict[str, Any]]) -> None:
    result, found = served
    for key in ("messages", "bytes"):
        assert found["totals"][key] == sum(node[key] for node in found["nodes"]) == result.summary[key]
    for node in found["nodes"]:
        spent = node["computing_seconds"] + node["away_seconds"] + node["idle_seconds"]
        assert spent == pytest.approx(found["virtual_seconds"], abs=1e-6)
    assert [node["away_seconds"] for node in found["nodes"]] == [0, 1.5, 0, 0, 0]
    released = result.summary["privacy"]["nodes"]
    assert all(released[node["name"]]["releases"] == node["releases"] for node in found["nodes"][:4])
    mean = np.mean([node["test_accuracy"] for node in found["nodes"] if "test_accuracy" in node])
    assert mean == pytest.approx(result.metrics[-1]["test_accuracy"])


def test_staleness_by_node_is_that_of_the_server(tmp_path: Path) -> None:
    """Nobody is away: then each update that comes is applied, and as old as the server says."""
    result, found = ran(tmp_path / "run", {"name": "audp", "nodes": 4})
    counts, own = found["staleness"]["counts"], result.summary["audp"]
    mean = sum(age * count for age, count in enumerate(counts)) / sum(counts)
    assert (mean, len(counts) - 1) == (pytest.approx(own["staleness_mean"]), own["staleness_max"])
    assert sum(counts) == own["updates_applied"]


def test_edges_are_those_that_messages_go_over(served: tuple[Result, dict[str, Any]], tmp_path: Path) -> None:
    assert served[1]["edges"] == [[0, 4], [1, 4], [2, 4], [3, 4]]
    assert [node["neighbours"] for node in served[1]["nodes"]] == [1, 1, 1, 1, 4]
    ring = ran(tmp_path / "ring", {"name": "gossip", "nodes": 4})[1]
    assert ring["edges"] == [[0, 1], [0, 3], [1, 2], [2, 3]]
    assert "clip" not in ring["nodes"][0]  # it is fixed
    assert ring["clips"] == []


def test_clips_that_move_are_followed(tmp_path: Path) -> None:
    clip = {"privacy": {"mechanism": "none", "clip": {"policy": "quantile", "initial": 0.25}}}
    found = ran(tmp_path / "run", {"name": "gossip", "nodes": 3}, **clip)[1]
    first, last = found["clips"][0], found["clips"][-1]
    assert (first["least"], first["most"]) == pytest.approx((0.25, 0.25))
    bounds = [node["clip"] for node in found["nodes"]]
    assert (last["least"], last["median"], last["most"]) == (min(bounds), np.median(bounds), max(bounds))
    assert last["median"] != first["median"]


def test_of_very_many_nodes_there_are_totals_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MOST_NAMED", 3)
    result, found = ran(tmp_path / "run", {"name": "gossip", "nodes": 4})
    assert (found["nodes"], found["edges"]) == ([], [])
    assert found["totals"]["bytes"] == result.summary["bytes"]
    assert found["totals"]["edges"] == 4
    with np.load(tmp_path / "run" / "nodes.npz") as arrays:
        assert arrays["name"].tolist() == ["node-0", "node-1", "node-2", "node-3"]
        assert arrays["bytes"].sum() == result.summary["bytes"]
        assert arrays["neighbours"].tolist() == [2, 2, 2, 2]
