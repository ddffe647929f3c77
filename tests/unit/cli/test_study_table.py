"""The table of a study under way: how many runs of each setting are where, in how much room."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from tests.unit.cli.test_live import ESCAPES

import gossamer as gs
from gossamer.cli import live
from gossamer.cli.live import StudyTable, Terminal, counts, shown
from gossamer.studies.runs import StudyRun
from gossamer.studies.sweep import Sweep


def study(settings: int = 3, seeds: int = 4) -> Sweep:
    experiment = gs.Experiment(algorithm=gs.Gossip(nodes=3), privacy="none")
    names = [f"rate={number}" for number in range(settings) for _ in range(seeds)]
    runs = [StudyRun(name, experiment, Path(f"{name}-{number}"), number) for number, name in enumerate(names)]
    return Sweep(Path("out"), runs, {})


def drawn(found: StudyTable, height: int = 24) -> list[str]:
    paper = Terminal(file=io.StringIO(), color_system=None, width=60, height=height)
    found.console = paper
    paper.print(found.drawn())
    return [line.rstrip() for line in paper.file.getvalue().splitlines()]  # type: ignore[attr-defined]


def test_runs_are_counted_by_setting_and_state() -> None:
    """Of three settings with four runs each, five are done, of which one failed, and two are at work."""
    found = study()
    found.done = {one.folder for one in found.runs[:5]}
    found.errors = {found.runs[2].folder: "it broke"}
    table = StudyTable(found, 2, Terminal())
    table.told("5 of 12: rate=1, seed 0")
    assert [line.split() for line in drawn(table)[:5]] == [
        ["setting", "done", "failed", "at", "work", "waiting"],
        ["rate=0", "3", "1", "-", "-"],
        ["rate=1", "1", "-", "2", "1"],
        ["rate=2", "-", "-", "-", "4"],
        ["all", "4", "1", "2", "5"],
    ]
    assert drawn(table)[5] == "5 of 12: rate=1, seed 0"


def test_every_run_is_in_one_state() -> None:
    found = study()
    for done in range(13):
        found.done = {one.folder for one in found.runs[:done]}
        assert sum(sum(each.values()) for each in counts(found, 3).values()) == 12


def test_of_many_settings_those_at_work_and_with_failures_are_shown() -> None:
    found = study(settings=30, seeds=1)
    found.done = {one.folder for one in found.runs[:20]}
    found.errors = {found.runs[3].folder: "it broke"}
    lines = drawn(StudyTable(found, 2, Terminal()), height=10)
    assert len(lines) <= 10
    assert [line.split()[0] for line in lines[1:5]] == ["rate=0", "rate=3", "rate=20", "rate=21"]
    assert lines[5].split() == ["26", "more", "settings", "18", "-", "-", "8"]
    assert lines[6].split() == ["all", "19", "1", "2", "8"]


def test_time_left_is_that_of_the_speed_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten seconds for two runs, so thirty for six; runs that were there before took none of them."""
    now = [100.0]
    monkeypatch.setattr(live.time, "perf_counter", lambda: now[0])
    found = study(settings=1, seeds=12)
    found.done = {one.folder for one in found.runs[:4]}
    table = StudyTable(found, 2, Terminal())
    assert drawn(table)[-1] == ""
    found.done |= {one.folder for one in found.runs[:6]}
    now[0] = 110.0
    assert drawn(table)[-1] == "0:30 left"


def test_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with shown(study(), 1) as tell:
        tell("1 of 12: rate=0, seed 0")
    assert capsys.readouterr().err == "1 of 12: rate=0, seed 0\n"


def test_a_table_in_a_terminal_that_goes_at_the_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with shown(study(), 1) as tell:
        tell("1 of 12: rate=0, seed 0")
    said = capsys.readouterr().err
    assert "\x1b[1A\x1b[2K" in said  # lines are taken away again
    assert "1 of 12: rate=0, seed 0" in ESCAPES.sub("", said)
    assert "rate=2" in said
