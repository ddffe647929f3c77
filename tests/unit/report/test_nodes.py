"""Figures and tables of nodes: from what a run wrote, and from what nobody would write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.report.test_records import folder

from gossamer.cli.main import main
from gossamer.report.drawing import Shown
from gossamer.report.nodes import ROWS, places, section_of_nodes
from gossamer.report.page import write_report
from gossamer.report.records import RunRecord, read_record

EVIL = "</script><script>alert(1)</script>"


def node(number: int, **more: Any) -> dict[str, Any]:
    figures = {"updates": 5, "messages": 7, "bytes": 70, "computing_seconds": 5.0, "away_seconds": 0.0}
    return {"name": f"node-{number}", **figures, "idle_seconds": 5.0, **more}


def document(nodes: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    count = len(nodes)
    edges = more.get("edges", [[n, (n + 1) % count] for n in range(count)])
    return {
        "virtual_seconds": 10.0,
        "totals": {"nodes": count, "edges": len(edges)},
        "staleness": {"measured": "arrival", "width": 1, "counts": [3, 4, 1]},
        "clips": [],
        "edges": edges,
        "timeline": {
            "nodes": [one["name"] for one in nodes[:2]],
            "merged_within": 0.0,
            "spans": [[0, "computing", 0.0, 2.5, 1], [0, "sending", 2.5, 0.0, 1], [1, "away", 0.0, 10.0, 1]],
        },
        "nodes": nodes,
        **more,
    }


def record(there: Path, written: Any, **summary: Any) -> RunRecord:
    path = folder(there, [], **summary)
    (path / "nodes.json").write_text(written if isinstance(written, str) else json.dumps(written))
    return read_record(path)


def accurate(count: int) -> list[dict[str, Any]]:
    return [node(n, test_accuracy=(7 * n % count) / count, epsilon_planned=1.0) for n in range(count)]


def test_figures_say_what_happened(tmp_path: Path) -> None:
    found = section_of_nodes([record(tmp_path / "r", document(accurate(4)))], False)
    assert found is not None
    words = {figure.name: figure.description for figure in found.figures}
    assert list(words) == ["timeline", "staleness", "topology"]
    assert "the 2 of 4 nodes that are drawn, evenly chosen, computed 12 % of the time" in words["timeline"]
    assert "waited 38 % and were away 50 %; they sent 1 messages." in words["timeline"]
    assert "Of 8 updates 38 % had a staleness of 0, half had at most 1, and none more than 2." in words["staleness"]
    assert "4 nodes and 4 edges" in words["topology"]
    assert "Correct test examples: 0.0\u00a0% (node-0) to 75.0\u00a0% (node-1)" in words["topology"]


def test_large_numbers_are_written_out(tmp_path: Path) -> None:
    nodes = [node(n, bytes=1_608_000 + 1000 * n, computing_seconds=30_000.25) for n in range(3)]
    found = section_of_nodes([record(tmp_path / "r", document(nodes))], False)
    assert found is not None
    (topology,) = (figure for figure in found.figures if figure.name == "topology")
    assert "Bytes sent: 1,608,000 (node-0) to 1,610,000 (node-2)" in topology.description
    assert found.values["tables"][0]["rows"][0]["computing, s"] == "30,000"


def test_the_table_shows_the_worst_first(tmp_path: Path) -> None:
    found = section_of_nodes([record(tmp_path / "r", document(accurate(60)))], False)
    assert found is not None
    (table,) = found.values["tables"]
    assert len(table["rows"]) == ROWS
    shares = [float(row["accuracy"].rstrip("%")) for row in table["rows"]]
    assert shares == sorted(shares)
    assert shares[0] == 0.0
    assert "50 of 60" in table["words"]
    assert "away, s" not in table["rows"][0]  # nobody was
    assert "all in nodes.json" in table["words"]


def test_a_public_report_tells_no_score_of_a_node(tmp_path: Path) -> None:
    runs = [record(tmp_path / "r", document(accurate(4)))]
    found, whole = section_of_nodes(runs, True), section_of_nodes(runs, False)
    assert found is not None
    assert whole is not None
    assert {figure.name for figure in found.figures} == {figure.name for figure in whole.figures}
    assert {figure.shown for figure in found.figures} == {Shown.PUBLIC}
    assert {figure.name for figure in whole.figures if figure.shown is Shown.PRIVATE} == {"topology"}
    assert "accuracy" not in json.dumps([[figure.spec, figure.rows] for figure in found.figures], default=dict)
    assert "accuracy" not in found.values["tables"][0]["rows"][0]


def test_names_end_no_script(tmp_path: Path) -> None:
    nodes = [node(0, name=EVIL), node(1)]
    text = write_report([record(tmp_path / "r", document(nodes), owners={"node-1": EVIL})], tmp_path).read_text()
    assert EVIL not in text
    assert "node-1 (&lt;/script" in text
    assert "&lt;/script&gt;&lt;script&gt;alert(1)" in text


def test_what_is_left_out_is_said(tmp_path: Path) -> None:
    many = {**document(accurate(2)), "totals": {"nodes": 20_000, "edges": 40_000}, "nodes": [], "edges": []}
    apart = document(accurate(3), edges=[])
    wide = document([node(n) for n in range(301)])
    dense = {**apart, "totals": {"nodes": 3, "edges": 6_000}}  # of so many edges a run writes their number alone
    runs = [record(tmp_path / name, one) for name, one in zip("abcde", (many, apart, wide, dense, apart))]
    found = section_of_nodes(runs[:2] + runs[3:], False)
    assert found is not None
    said = "\n".join(found.values["notes"])
    for words in ("a has 20,000 nodes", "joined to anybody in b", "d has 3 nodes and 6,000 edges", "first 3 of 4 runs"):
        assert words in said
    found = section_of_nodes(runs[2:3], False)
    assert found is not None
    assert "c has 301 nodes" in "\n".join(found.values["notes"])
    assert [figure.name for figure in found.figures if figure.name.startswith("topology")] == []


def test_folders_that_tell_nothing_of_nodes_have_no_section(tmp_path: Path) -> None:
    assert section_of_nodes([read_record(folder(tmp_path / "r", []))], False) is None


@pytest.mark.parametrize(
    "written",
    [
        "[]",
        "{",
        document([{"name": "a"}]),
        document(accurate(2), edges=[[0, 9]]),
        document(accurate(2), timeline={"nodes": ["a"], "merged_within": 0, "spans": [[0, "sleeping", 0, 1, 1]]}),
        document(accurate(2), virtual_seconds="1e9"),
    ],
)
def test_what_no_run_wrote_is_one_line(written: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = record(tmp_path / "r", written)
    assert main(["report", str(run.path)]) == 2
    said = capsys.readouterr().err
    assert "expected what gossamer run writes of nodes" in said
    assert said.count("\n") == 1


# Places of nodes


def test_a_ring_is_drawn_as_a_circle_in_order() -> None:
    at = places(12, [(n, (n + 1) % 12) for n in range(12)])
    assert np.linalg.norm(at, axis=1) == pytest.approx(np.ones(12), abs=1e-3)
    steps = np.linalg.norm(at - np.roll(at, 1, axis=0), axis=1)
    assert steps == pytest.approx(np.full(12, steps[0]), abs=1e-3)


def test_a_server_stands_in_the_middle_of_its_clients() -> None:
    at = places(9, [(n, 8) for n in range(8)])
    assert at[8] == pytest.approx(np.zeros(2), abs=1e-3)
    assert np.linalg.norm(at[:8], axis=1) == pytest.approx(np.ones(8), abs=1e-2)


def test_neighbours_of_a_tree_are_closer_than_others() -> None:
    edges = [(n, (n - 1) // 2) for n in range(1, 15)]
    at = places(15, edges)
    joined = [float(np.linalg.norm(at[one] - at[other])) for one, other in edges]
    apart = np.linalg.norm(at[:, None] - at[None], axis=2)[np.triu_indices(15, 1)]
    assert max(joined) < np.median(apart)


@pytest.mark.parametrize("nodes", [1, 2, 3, 150])
def test_nodes_stay_in_the_drawing(nodes: int) -> None:
    at = places(nodes, [(n, n + 1) for n in range(nodes - 1)])
    assert at.shape == (nodes, 2)
    assert np.isfinite(at).all()
    assert np.linalg.norm(at, axis=1).max() <= 1 + 1e-9
