"""A party's state folder: one process at a time, and what others can know of it and do with it."""

from __future__ import annotations

import errno
import fcntl
import io
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gossamer.deployment.party import state_folder
from gossamer.deployment.party.health import problems
from gossamer.deployment.party.state_folder import STORE, NodeRuns, StateFolder
from gossamer.errors import CallerError, GossamerError

HOLD = """
import signal, sys, time
from pathlib import Path
from gossamer.deployment.party.state_folder import StateFolder
folder = StateFolder(Path(sys.argv[1]))
folder.take()
folder.publish({"state": "running"})
if sys.argv[2] == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("taken", flush=True)
time.sleep(60)
"""


@pytest.fixture
def folder(tmp_path: Path) -> StateFolder:
    return StateFolder(tmp_path / "state")


def hold(folder: StateFolder, how: str = "") -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLD, str(folder.path), how]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "taken\n"
    return process


@pytest.fixture
def holder(folder: StateFolder) -> Iterator[subprocess.Popen[str]]:
    with hold(folder) as process:
        yield process
        process.kill()


def test_only_one_process_has_it(folder: StateFolder, holder: subprocess.Popen[str]) -> None:
    with pytest.raises(NodeRuns, match=f"process {holder.pid} runs this node; stop it first"):
        folder.take()
    assert folder.process == holder.pid


@pytest.mark.parametrize("name", ["node.log", "private.jsonl", "status.json"])
def test_what_finds_a_full_disk_is_named(folder: StateFolder, name: str) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    folder.take()
    place = folder.path / name
    place.unlink(missing_ok=True)
    (folder.path / f".{name}.new" if name == "status.json" else place).symlink_to("/dev/full")
    writes = {
        "node.log": lambda: folder.say("begins"),
        "private.jsonl": lambda: folder.record(1.0, "loss", 2.0),
        "status.json": lambda: folder.publish({"state": "running"}),
    }
    with pytest.raises(OSError, match="No space left") as caught:
        writes[name]()
    assert caught.value.filename == str(place)
    folder.give_back()


def test_a_lock_that_cannot_be_written_leaves_no_folder(folder: StateFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.FileIO):
        def write(self, data: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(state_folder, "opened", lambda path, buffering=-1: Full(path, "a"))
    with pytest.raises(OSError, match="No space left") as caught:
        folder.take()
    assert caught.value.filename == str(folder.path / "lock")
    folder.forget()
    folder.give_back()
    assert not folder.path.exists()


def test_it_is_free_when_its_process_is_killed(folder: StateFolder, holder: subprocess.Popen[str]) -> None:
    holder.kill()
    holder.wait()
    assert folder.process is None
    assert folder.status() == {"state": "killed", "process": None}
    folder.take()
    folder.give_back()


def test_one_whose_disk_may_only_be_read_says_so(folder: StateFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """It could write down neither its end nor why."""
    folder.path.mkdir()
    (folder.path / "status.json").write_text('{"state": "running", "connected": true}')
    monkeypatch.setattr(state_folder, "is_read_only", lambda path: path == folder.path)
    status = folder.status()
    assert status["connected"] is False
    (problem,) = problems(status, 0.0)
    assert problem.text.startswith(
        "ended, since its disk may only be read; have it mounted for writing; start it again"
    )


def test_who_looks_does_not_keep_a_node_from_starting(folder: StateFolder) -> None:
    folder.path.mkdir()
    with (folder.path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        timer = threading.Timer(0.2, fcntl.flock, (lock, fcntl.LOCK_UN))
        timer.start()
        folder.take()
        folder.give_back()
        timer.join()


def test_what_the_owner_alone_is_told_is_in_no_log(folder: StateFolder, caplog: pytest.LogCaptureFixture) -> None:
    folder.take()
    folder.named("0123", "hospital-a")
    with caplog.at_level("DEBUG", "gossamer"):
        folder.say("said")
        folder.warn("warned")
        folder.tell_owner("of 17 rows")
        folder.record(1.0, "loss", 2.0)
    folder.give_back()
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "said"),
        ("WARNING", "warned"),
    ]
    assert {(vars(record)["run"], vars(record)["node"]) for record in caplog.records} == {("0123", "hospital-a")}
    lines = (folder.path / "node.log").read_text().splitlines()
    assert [line.partition(" ")[2] for line in lines] == ["said", "warned", "of 17 rows"]


def test_what_is_written_is_for_its_owner_alone(folder: StateFolder) -> None:
    folder.take()
    folder.say("a line")
    folder.record(1.0, "loss", 2.0)
    folder.publish({"state": "running"})
    folder.give_back()
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.path.iterdir() if path.name != "lock"}
    assert modes == {"node.log": 0o600, "private.jsonl": 0o600, "status.json": 0o600}
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700


def test_a_line_stays_one_line(folder: StateFolder, capsys: pytest.CaptureFixture[str]) -> None:
    folder.take()
    folder.say("two\nlines")
    folder.give_back()
    assert (folder.path / "node.log").read_text().endswith("Z two lines\n")
    assert capsys.readouterr().err == ""


def test_lines_are_printed_where_somebody_looks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = StateFolder(tmp_path, echo=True)
    folder.take()
    folder.say("hello")
    folder.give_back()
    assert capsys.readouterr().err.endswith("hello\n")


def test_the_status_of_no_node(folder: StateFolder) -> None:
    with pytest.raises(CallerError, match="no node has run here"):
        folder.status()


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"state": 1}'])
def test_a_status_that_is_damaged(folder: StateFolder, content: str) -> None:
    folder.take()
    folder.write("status.json", content)
    folder.give_back()
    with pytest.raises(CallerError, match="cannot read the status"):
        folder.status()


@pytest.mark.parametrize("state", ["finished", "stopped", "failed"])
def test_a_node_that_ended_was_not_killed(folder: StateFolder, state: str) -> None:
    folder.take()
    folder.publish({"state": state})
    folder.give_back()
    assert folder.status()["state"] == state


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CallerError, match="cannot be a state folder"):
        StateFolder(tmp_path / "file" / "state").take()


def test_a_folder_has_a_name_that_another_or_an_emptied_one_has_not(tmp_path: Path) -> None:
    folder, other = StateFolder(tmp_path / "a"), StateFolder(tmp_path / "b")
    for one in (folder, other):
        one.path.mkdir()
    name = folder.instance
    assert len(name) == 32
    assert name == StateFolder(folder.path).instance != other.instance
    (folder.path / "instance").unlink()
    assert folder.instance != name


class TestStopping:
    def test_it_ends_the_process(self, folder: StateFolder, holder: subprocess.Popen[str]) -> None:
        folder.stop(leave=False, patience=20.0)
        assert holder.wait(5) == -signal.SIGTERM
        assert not folder.leaving

    def test_leaving_is_asked_for_before_the_signal(self, folder: StateFolder, holder: subprocess.Popen[str]) -> None:
        folder.stop(leave=True, patience=20.0)
        assert folder.leaving

    def test_nobody_is_there(self, folder: StateFolder) -> None:
        with pytest.raises(CallerError, match="no process runs this node"):
            folder.stop(leave=False, patience=1.0)

    def test_a_process_that_does_not_end(self, folder: StateFolder) -> None:
        with hold(folder, "stubborn") as process:
            with pytest.raises(GossamerError, match=f"process {process.pid} has not ended within 0.2 s"):
                folder.stop(leave=False, patience=0.2)
            process.kill()


def test_a_status_is_replaced_whole(folder: StateFolder) -> None:
    """Whoever reads while it is written sees one status or the other."""
    folder.take()
    process = os.fork()
    if process == 0:
        while True:
            folder.publish({"state": "running", "much": "x" * 100_000})
    try:
        until = time.monotonic() + 0.5
        while time.monotonic() < until:
            if (folder.path / "status.json").exists():
                json.loads((folder.path / "status.json").read_text())
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        folder.give_back()


# A start that fails


def test_a_start_that_fails_leaves_nothing(folder: StateFolder) -> None:
    folder.take()
    folder.publish({"state": "connecting"})
    folder.say("connects")
    folder.forget()
    folder.give_back()
    assert not folder.path.exists()


def test_an_order_that_the_node_has_said_it_knows_stays(folder: StateFolder) -> None:
    """A start that is stopped, or rehearses, leaves nothing else; the next one takes nothing of who was removed."""
    folder.take()
    folder.publish({"state": "waiting"})
    folder.write("orders", b"signed")
    folder.keeps.add("orders")
    folder.forget()
    folder.give_back()
    assert [file.name for file in folder.path.iterdir()] == ["orders"]


def test_it_leaves_what_others_put_there(folder: StateFolder) -> None:
    """Such as a service manager, which makes the folder, or a file that was there before."""
    folder.path.mkdir()
    (folder.path / "notes").write_text("mine")
    folder.take()
    folder.publish({"state": "connecting"})
    folder.forget()
    folder.give_back()
    assert [file.name for file in folder.path.iterdir()] == ["notes"]


def test_it_leaves_the_states_of_further_runs_below_it(folder: StateFolder) -> None:
    """Made since by their own processes, in whatever order the names come."""
    folder.take()
    for name in ("1", "runs", "2"):
        (folder.path / name).mkdir()
    folder.publish({"state": "connecting"})
    folder.forget()
    folder.give_back()
    assert {file.name for file in folder.path.iterdir()} == {"1", "runs", "2"}


@pytest.mark.parametrize("begins", [True, False])
def test_what_a_node_goes_on_from_stays(folder: StateFolder, begins: bool) -> None:
    if not begins:
        folder.path.mkdir()
        (folder.path / STORE).write_bytes(b"from before")
    folder.take()
    if begins:
        folder.kept = True
    folder.publish({"state": "failed"})
    folder.forget()
    folder.give_back()
    assert (folder.path / "status.json").exists()
