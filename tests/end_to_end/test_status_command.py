"""``gossamer status`` as monitoring calls it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.test_start_up import CALLED, loaded

from gossamer.cli import main
from gossamer.deployment.party.state_folder import StateFolder


def state(path: Path, **said: Any) -> Path:
    folder = StateFolder(path)
    folder.take()
    folder.publish({"node": path.name, "state": "finished", "written": time.time(), "peers": {}, **said})
    folder.give_back()
    return path


def test_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    well, stopped = state(tmp_path / "a"), state(tmp_path / "b", state="stopped")
    failed = state(tmp_path / "c", state="failed", why="the disk is full")
    assert main(["status", str(well)]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "OK"
    assert main(["status", str(well), str(stopped)]) == 1
    assert capsys.readouterr().out.startswith("WARNING: b was stopped")
    assert main(["status", str(stopped), str(failed)]) == 2
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first == "CRITICAL: c failed: the disk is full"
    assert second.startswith("WARNING: b was stopped")


def test_json_has_the_level_and_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stopped = state(tmp_path / "b", state="stopped")
    assert main(["status", "--json", str(stopped)]) == 1
    (found,) = json.loads(capsys.readouterr().out).values()
    assert found["level"] == "warning"
    assert found["problems"][0]["level"] == "warning"


def test_receipts_that_contradict_each_other_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its own even when its part is over: what its ledger has forgotten counts for the next run, too."""
    peer = {
        "state": "up",
        "seconds": 1.0,
        "finished": None,
        "dropped": {"other receipts": 3},
        "receipts": "c has others",
    }
    forked = state(tmp_path / "b", forgotten=["c has countersigned receipt 5 (head 00), and it has 3"])
    beside = {"state": "stopped", "peers": {"c": peer}}
    other = state(tmp_path / "d", **beside)
    assert main(["status", str(forked)]) == 2
    first, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith(
        "CRITICAL: b this is not its newest ledger: c has countersigned receipt 5 (head 00), and it"
    )
    assert main(["status", "--json", str(forked), str(other)]) == 2
    found = json.loads(capsys.readouterr().out)
    assert found[str(forked)]["level"] == "critical"
    assert found[str(forked)]["forgotten"] == ["c has countersigned receipt 5 (head 00), and it has 3"]
    assert "takes nothing of c: c has others" in [one["text"] for one in found[str(other)]["problems"]]
    assert found[str(other)]["peers"]["c"]["receipts"] == "c has others"


def test_one_that_cannot_be_read_does_not_hide_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    well = state(tmp_path / "a")
    assert main(["status", str(well), str(tmp_path / "none")]) == 2
    out = capsys.readouterr().out
    assert "none unreadable: " in out.splitlines()[0]
    assert "a     " in out
    assert main(["status", str(tmp_path / "none")]) == 2
    assert "no node has run here" in capsys.readouterr().err


def test_a_health_check_asks_whether_the_node_lives(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Containers know two codes, so one whose node has written nothing yet is as unhealthy as one that hangs."""
    lives = StateFolder(tmp_path / "a")
    lives.take()
    said = {"node": "a", "state": "running", "connected": True, "peers": {}}
    lives.publish({**said, "written": time.time()})
    assert main(["status", "--alive", str(lives.path)]) == 0
    lives.publish({**said, "written": time.time() - 150})
    assert main(["status", "--alive", str(lives.path)]) == 1
    lives.publish({**said, "written": time.time(), "connected": False})
    assert main(["status", "--alive", str(lives.path)]) == 1
    lives.give_back()
    assert main(["status", "--alive", str(lives.path)]) == 1
    capsys.readouterr()
    assert main(["status", "--alive", str(tmp_path / "none")]) == 1
    assert "no node has run here" in capsys.readouterr().out


def test_a_health_check_sees_the_run_that_hangs_beside_one_that_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Runs that are over are nobody's concern."""
    state(tmp_path / "a" / "runs" / "2")
    lives, hangs = StateFolder(tmp_path / "a"), StateFolder(tmp_path / "a" / "runs" / "3")
    said = {"node": "a", "state": "running", "connected": True, "peers": {}}
    for folder, ago, code in ((lives, 0.0, 0), (hangs, 150.0, 1), (hangs, 0.0, 0)):
        if folder.process is None:
            folder.take()
        folder.publish({**said, "written": time.time() - ago})
        assert main(["status", "--alive", str(lives.path)]) == code
    for folder in (lives, hangs):
        folder.give_back()
    capsys.readouterr()


@pytest.mark.parametrize("option", ["--warn-days", "--warn-budget"])
@pytest.mark.parametrize("value", ["-1", "soon", "nan", "inf"])
def test_limits_that_are_none(option: str, value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", f"{option}={value}", str(state(tmp_path / "a"))]) == 2
    assert f"expected a number, 0 or more, found '{value}'" in capsys.readouterr().err


def test_nothing_heavy_is_imported(tmp_path: Path) -> None:
    """Monitoring asks every minute, of many parties."""
    assert loaded(CALLED, "status", str(state(tmp_path / "a"))) == set()
