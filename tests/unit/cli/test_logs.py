"""Logs of long commands: a JSON object a line, files of bounded size, and nothing of the data in any of them."""

from __future__ import annotations

import argparse
import json
import logging
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gossamer.cli import main
from gossamer.cli.logs import KEPT, LOG, logged
from gossamer.cli.main import parser
from gossamer.errors import BudgetSpent, CallerError, DataError

SPEC = """
dataset: digits
algorithm: {name: gossip, topology: complete, nodes: 3, batch_size: 20, updates_per_node: 10}
budget: {epsilon: 3, delta: 1.0e-5}
"""


@pytest.fixture
def called_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def options(*arguments: str) -> argparse.Namespace:
    return parser().parse_args(["node", "--invitation", "a.yaml", *arguments])


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize(("name", "form"), [("a.jsonl", []), ("a.json", []), ("a.log", ["--log-format", "json"])])
def test_a_line_of_json_has_time_level_event_run_and_node(tmp_path: Path, name: str, form: list[str]) -> None:
    file = tmp_path / name
    before = datetime.now(UTC)
    with logged(options("--log-file", str(file), *form), "r"):
        LOG.warning("two\nlines, and \x1b[31m")
        logging.getLogger("gossamer.node").info("own", extra={"run": "0123", "node": "a"})
    LOG.error("the log is over")
    first, second = lines(file)
    assert {**first, "time": ""} == {
        "time": "",
        "level": "warning",
        "event": "two lines, and ?[31m",
        "run": "r",
        "node": None,
    }
    assert (second["run"], second["node"]) == ("0123", "a")
    when = datetime.fromisoformat(first["time"])
    assert first["time"].endswith("Z")
    assert abs((when - before).total_seconds()) < 3600  # in UTC, whatever the machine's zone is


def test_a_line_of_text_is_for_people(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    with logged(options("--log-file", str(file)), "r"):
        LOG.info("event")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z info    r: event\n", file.read_text())


@pytest.mark.parametrize(
    ("level", "kept"),
    [("debug", 4), (None, 3), ("info", 3), ("warning", 2), ("error", 1)],
)
def test_levels(tmp_path: Path, level: str | None, kept: int) -> None:
    file = tmp_path / "a.log"
    chosen = [] if level is None else ["--log-level", level]
    with logged(options("--log-file", str(file), *chosen)):
        for name in ("debug", "info", "warning", "error"):
            getattr(LOG, name)(name)
    assert len(file.read_text().splitlines()) == kept


def test_files_stay_within_their_size_and_number(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    with logged(options("--log-file", str(file), "--log-size", "0.001", "--log-format", "json")):
        for number in range(200):
            LOG.info("event %d", number)
    found = sorted(tmp_path.iterdir())
    assert [path.name for path in found] == ["a.log", *(f"a.log.{number}" for number in range(1, KEPT + 1))]
    assert all(path.stat().st_size <= 1000 for path in found)
    assert lines(file)[-1]["event"] == "event 199"


@pytest.mark.parametrize(
    ("error", "said", "unsaid"),
    [
        (DataError("wards.csv, line 3: expected a number, found 'Smith'"), "the data cannot be used", "Smith"),
        (BudgetSpent("the ledger covers no more"), "the ledger covers no more", "Smith"),
        (KeyboardInterrupt(), "interrupted", "Smith"),
    ],
)
def test_errors_are_logged_without_what_they_quote_of_data(
    tmp_path: Path, error: BaseException, said: str, unsaid: str
) -> None:
    file = tmp_path / "a.log"
    with pytest.raises(type(error)), logged(options("--log-file", str(file))):
        raise error
    assert said in file.read_text()
    assert unsaid not in file.read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--log-file", "no/a.log"], "no/a.log: cannot write the log: No such file or directory; give another"),
        (["--log-file", "."], ".: cannot be a log, since it is no file; give another --log-file\n"),
        (["--log-file", "spec.yaml"], "spec.yaml: expected a log, or a file that is not there yet, found a file with"),
        (["--log-file", "a", "--trace", "./a"], "a: found as --log-file and as --trace, expected a file for each"),
        (["--log-file", "a", "--trace", "a.1"], "a.1: found as --log-file and as --trace, expected a file for each"),
        (["--log-file", ""], "--log-file: expected the name of a file or folder, found an empty one"),
    ],
)
@pytest.mark.usefixtures("called_here")
def test_a_log_that_cannot_be_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str], said: str
) -> None:
    Path("spec.yaml").write_text(SPEC)
    assert main(["run", "spec.yaml", *arguments]) == 2
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert said in err
    assert not Path("runs").exists()


@pytest.mark.parametrize("how", [["--log-level", "debug"], ["--log-format", "json"], ["--log-size", "1"]])
def test_options_of_a_log_that_there_is_not_are_refused(how: list[str]) -> None:
    said = f"^{how[0]} is about the log, and there is none; give --log-file FILE as well"
    with pytest.raises(CallerError, match=said), logged(options(*how)):
        pass


@pytest.mark.parametrize("of", ["table.csv", "table.csv.1", "table.csv.5"])
@pytest.mark.parametrize("content", ["age,ill\n40,no\n", "\n", '{"time": 3}\n', "2026-01-01,3\n"])
def test_a_file_that_is_no_log_stays_as_it_is(tmp_path: Path, of: str, content: str) -> None:
    """Nor may it become one of the older files."""
    (tmp_path / of).write_text(content)
    with (
        pytest.raises(CallerError, match=rf"{of}: expected a log"),
        logged(options("--log-file", f"{tmp_path}/table.csv")),
    ):
        LOG.info("event")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(of, content)]


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
def test_a_log_is_written_after_what_is_there(tmp_path: Path, form: str, level: str) -> None:
    file = tmp_path / "a.log"
    file.touch()
    for _ in range(2):
        with logged(options("--log-file", str(file), "--log-format", form, "--log-level", "debug")):
            getattr(LOG, level)("event")
    assert file.read_text().count("event") >= 2
    assert len(file.read_text().splitlines()) == 2


@pytest.mark.usefixtures("called_here")
def test_a_full_disk_ends_no_run(capsys: pytest.CaptureFixture[str]) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    Path("spec.yaml").write_text(SPEC)
    assert main(["run", "spec.yaml", "--log-file", "/dev/full"]) == 0
    err = capsys.readouterr().err
    assert err.count("/dev/full: cannot write the log") == 1
    assert "Traceback" not in err


@pytest.mark.usefixtures("called_here")
def test_a_run_is_logged_without_what_its_models_score(capsys: pytest.CaptureFixture[str]) -> None:
    Path("spec.yaml").write_text(SPEC)
    assert main(["run", "spec.yaml", "--log-file", "a.jsonl"]) == 0
    found = lines(Path("a.jsonl"))
    assert {line["run"] for line in found} == {"spec-seed0"}
    events = [line["event"] for line in found]
    assert events[0].startswith("plan: 30 updates of 3 nodes")
    assert events[-1].startswith("ended (finished): 30 updates in ")
    assert sum("epsilon spent" in event for event in events) > 5
    scores = {f"{value:.3f}" for row in metrics() for name, value in row.items() if "accuracy" in name}
    assert scores
    assert not any(score in event for event in events for score in scores)
    assert not any(word in event for event in events for word in ("accuracy", "loss"))


def metrics() -> list[dict[str, Any]]:
    return lines(Path("runs", "spec-seed0", "metrics.jsonl"))
