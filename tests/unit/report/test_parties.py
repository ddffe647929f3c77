"""Reports of deployed parties' state folders: their own figures, and nobody else's."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from tests.unit.report.test_records import SUMMARY, folder

from gossamer.cli.main import main
from gossamer.report.page import party_figures, party_rows, read_party

STATUS: dict[str, Any] = {
    "node": "a",
    "role": "worker",
    "algorithm": "gossip",
    "state": "finished",
    "finished": "quota",
    "connected": True,
    "updates": 7,
    "releases": 7,
    "planned_releases": 10,
    "policy": {"epsilon": 2.0, "epsilon_charged": 1.0, "share_charged": 0.25},
    "peers": {"b<i>": {"state": "gone", "seconds": 40.0, "finished": None, "dropped": {}}},
}


def state(path: Path, *, ended: bool = True, **status: Any) -> Path:
    path.mkdir(parents=True)
    (path / "status.json").write_text(json.dumps({**STATUS, "written": time.time(), **status}))
    (path / "node.log").write_text("begins\nsees <script>\n")
    if ended:
        (path / "summary.json").write_text(json.dumps({**SUMMARY, "metrics": {"test_accuracy": 0.5}}))
    return path


def test_a_party_sees_its_releases_budget_peers_and_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(state(tmp_path / "a"))]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "a" / "report.html")
    text = (tmp_path / "a" / "report.html").read_text()
    for name in ("party-releases", "party-budget", "party-peers"):
        assert f'<figure id="{name}">' in text
    assert "sees &lt;script&gt;" in text
    assert "b<i>" not in text
    assert "7 of 10" in text


def test_parts_of_bars_add_up(tmp_path: Path) -> None:
    """Of 10 planned releases 7 are made; of the budget a quarter is charged."""
    party = read_party(state(tmp_path / "a"), STATUS)
    releases, budget, peers = party_figures([party])
    assert [row["value"] for row in releases.rows] == [7, 3]
    assert [row["value"] for row in budget.rows] == [0.25, 0.75]
    assert [(row["of"], row["part"], row["value"]) for row in peers.rows] == [("b<i>", "gone", 40.0)]


def test_a_public_report_of_a_party_has_none_of_its_own_figures(tmp_path: Path) -> None:
    assert main(["report", str(state(tmp_path / "a")), "--public"]) == 0
    text = (tmp_path / "a" / "report.html").read_text().split("<main>")[1].split("<script>")[0]
    for own in ("party-", "7 of 10", "25.0", "sees", "50.0"):
        assert own not in text


def test_a_party_that_has_just_begun_has_a_report(tmp_path: Path) -> None:
    """It says of no releases and no peers, and of no result."""
    path = state(tmp_path / "a", ended=False)
    (path / "status.json").write_text(json.dumps({"node": "a", "state": "starting"}))
    assert main(["report", str(path)]) == 0
    assert list(party_figures([read_party(path, {"node": "a", "state": "starting"})])) == []


def test_several_parties_stand_beside_each_other(tmp_path: Path) -> None:
    parties = [read_party(state(tmp_path / name), {**STATUS, "node": name}) for name in "ab"]
    assert [row["node"] for row in party_rows(parties)] == ["a", "b"]
    *_, peers = party_figures(parties)
    assert [row["of"] for row in peers.rows] == ["a: b<i>", "b: b<i>"]


def test_scores_of_parties_stand_beside_their_accuracy(tmp_path: Path) -> None:
    path = state(tmp_path / "a")
    (path / "summary.json").write_text(json.dumps({**SUMMARY, "metrics": {"test_accuracy": 0.5, "test_auroc": 0.75}}))
    (row,) = party_rows([read_party(path, STATUS)])
    assert (row["accuracy"].replace("\u00a0", " "), row["area under the ROC curve"]) == ("50.0 %", "0.75")
    assert "accuracy" not in party_rows([read_party(path, STATUS)], public=True)[0]


@pytest.mark.parametrize("damaged", ["[]", "{", '{"state": 3}'])
def test_a_damaged_status_is_refused(damaged: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = state(tmp_path / "a")
    (path / "status.json").write_text(damaged)
    assert main(["report", str(path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_folder_of_a_federation_is_that_of_all_its_parties_and_a_party_s_that_of_its_state(tmp_path: Path) -> None:
    """As ``gossamer up`` and ``federation new`` make them; the summary of ``up`` itself is not that of a run."""
    for name in "ab":
        state(tmp_path / "up" / name / "state", node=f"ward {name}")
    (tmp_path / "up" / "summary.json").write_text("{}")
    assert main(["report", str(tmp_path / "up")]) == 0
    both = (tmp_path / "up" / "report.html").read_text()
    assert main(["report", str(tmp_path / "up" / "a")]) == 0
    one = (tmp_path / "up" / "a" / "report.html").read_text()
    assert [name in both for name in ("ward a", "ward b")] == [True, True]
    assert [name in one for name in ("ward a", "ward b")] == [True, False]


def test_parties_and_runs_are_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(state(tmp_path / "a")), str(folder(tmp_path / "run", []))]) == 2
    assert "give folders of one kind" in capsys.readouterr().err
