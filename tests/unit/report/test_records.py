"""Results folders read back, and series of their figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gossamer.cli.main import main
from gossamer.errors import DataError
from gossamer.report.curves import series_of
from gossamer.report.records import RunRecord, read_records

SUMMARY = {"algorithm": "gossip", "seed": 0, "status": "finished", "privacy": {"guarantee": {"epsilon": 1.0}}}


def folder(path: Path, rows: list[dict[str, Any]], tail: str = "", **summary: Any) -> Path:
    path.mkdir(parents=True)
    (path / "summary.json").write_text(json.dumps({**SUMMARY, **summary}))
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + tail)
    return path


def record(name: str, at: list[float], values: list[float | None], seed: int = 0) -> RunRecord:
    return RunRecord(name, Path(name), {**SUMMARY, "seed": seed}, {"virtual_seconds": at, "loss": values})


def test_columns_are_as_long_as_there_are_rows_and_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    rows = [{"updates": 0, "loss": 2.5}, {"updates": 1, "loss": None, "late": 1.0}]
    (found,) = read_records([folder(tmp_path / "a", rows, '{"updates": 2, "lo', status="running")])
    assert found.metrics == {"updates": [0.0, 1.0], "loss": [2.5, None], "late": [None, 1.0]}
    assert found.interrupted


def test_names_tell_folders_of_one_name_apart(tmp_path: Path) -> None:
    found = read_records([folder(tmp_path / part / "run-seed0", []) for part in ("x", "y")])
    assert [one.name for one in found] == ["x/run-seed0", "y/run-seed0"]
    assert [one.setting for one in found] == ["x/run", "y/run"]


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "with a summary.json"), ("[]", "with a summary.json"), ('{"privacy": 3}', "with a summary.json")],
)
def test_what_is_no_result_is_refused(
    content: str | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (tmp_path / "summary.json").write_text(content)
    assert main(["report", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_it_says_which_folders_below_are_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As many as fit in a line; of a folder that is not there, that it is not."""
    for name in "edcba":
        folder(tmp_path / name, [])
    assert main(["report", str(tmp_path)]) == 2
    assert (
        f", found one in {tmp_path / 'a'}, {tmp_path / 'b'}, {tmp_path / 'c'} and 2 more; " in capsys.readouterr().err
    )
    assert main(["report", str(tmp_path / "none")]) == 2
    assert "with a summary.json, found no such folder; give one" in capsys.readouterr().err


def test_a_folder_is_not_compared_with_itself(tmp_path: Path) -> None:
    there = folder(tmp_path / "a", [])
    with pytest.raises(DataError, match="is there twice"):
        read_records([there, there / ".." / "a"])


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    there = folder(tmp_path / "a", [])
    (there / "metrics.jsonl").write_text('{"updates": 0}\n{"upd\n{"updates": 2}\n')
    with pytest.raises(DataError, match=r"metrics.jsonl:2: expected a JSON object"):
        read_records([there])


def test_a_band_holds_values_until_the_next_and_ends_with_the_first_run_that_does() -> None:
    """At 0, 1, 2, 3 the first is 9, 9, 5, 5 and the second 9, 7, 7, 7, by hand; the second ends at 3."""
    first, second = record("r-seed0", [0, 2, 4], [9, 5, 1]), record("r-seed1", [0, 1, 3], [9, 7, 7], seed=1)
    (found,) = series_of([first, second], "loss", "virtual_seconds")
    assert (found.setting, found.runs) == ("r", 2)
    assert found.at.tolist() == [0, 1, 2, 3]
    assert found.low.tolist() == [9, 7, 5, 5]
    assert found.high.tolist() == [9, 9, 7, 7]
    assert found.middle.tolist() == [9, 8, 6, 6]


def test_long_runs_are_drawn_by_few_points_with_their_ends() -> None:
    at = np.arange(10_000.0)
    (found,) = series_of([record("long", at.tolist(), (at * 2).tolist())], "loss", "virtual_seconds")
    assert found.at.size <= 240
    assert (found.at[0], found.at[-1]) == (0, 9999)
    assert np.all(np.abs(found.middle - 2 * found.at) <= 2)


def test_evaluations_without_the_figure_are_left_out() -> None:
    (found,) = series_of([record("r", [0, 1, 2], [3, None, 1])], "loss", "virtual_seconds")
    assert found.at.tolist() == [0, 2]
    assert series_of([record("r", [0, 1], [None, None])], "loss", "virtual_seconds") == []
