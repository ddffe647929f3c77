"""Stored files by the commands that read them: bytes that changed, copies by command, and copies made in other ways."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("cryptography", reason="needs the extra secure")

from tests.sampling import examples

from gossamer.cli import main
from gossamer.deployment.owner.owned_data import OwnedData
from gossamer.deployment.owner.policy import read_policy
from gossamer.deployment.party.data_side import SideFile
from gossamer.privacy.mechanisms import Gaussian, Poisson, ReleaseKind
from gossamer.privacy.streams.correlated_noise import StreamRecord
from gossamer.protocol.witnesses import Known, Seen
from gossamer.runtimes.storage.ledger import LedgerFile
from gossamer.runtimes.storage.store import SqliteStore, WitnessFile

pytestmark = pytest.mark.usefixtures("called_here")

KEY = b"the secret of the node"
KIND = ReleaseKind(Gaussian(1.0, 4.0), Poisson(0.1), 10)
POLICY = "data:\n  wards: {epsilon: 4, delta: 1.0e-5, path: wards.csv}\n"
IN_HEADER = {*range(18, 20), *range(24, 28), *range(40, 44), *range(92, 100)}
"""Bytes that SQLite counts its changes in, or sets right itself: `tests/unit/runtimes/storage/test_seal.py`."""
ROOT = Path(__file__).parents[2]


@pytest.fixture
def owner(tmp_path: Path) -> Path:
    """The folder of an owner whose data have been in a run."""
    place = tmp_path / "owner"
    place.mkdir()
    (place / "policy.yaml").write_text(POLICY)
    (place / "wards.csv").write_text("age,label\n" + "".join(f"{n},{n % 2}\n" for n in range(20)))
    spend(place, "one")
    return place


def spend(place: Path, run: str) -> None:
    with closing(OwnedData.open(read_policy(place / "policy.yaml"))) as data:
        data.check()
        data.ledger(run, "a", {KIND: 3}).charge(KIND)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """The state folder of a node."""
    place = tmp_path / "state"
    place.mkdir()
    with closing(SqliteStore(place / "store.sqlite", "run", "a", KEY)) as store:
        store.snapshot([b"a state" * 500])
        store.append([b"an input" * 300])
        store.commit()
    with closing(WitnessFile(place / "witness.sqlite", "run", "a", KEY)) as memory:
        memory.keep({"b": Known(Seen(3, b"\1" * 32), Seen(2, b"\2" * 32), Seen(2, b"\2" * 32))})
    with closing(SideFile(place / "side.sqlite", "run", "a", KEY)) as side:
        side.keep(StreamRecord(1, np.arange(3.0), np.ones(3)), 2)
    LedgerFile(place / "unit.ledger", KEY).close()
    (place / "summary.json").write_text("{}")
    return place


def said(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 2) -> str:
    """What a command ends with: one line, where it is refused."""
    assert main([str(argument) for argument in arguments]) == code
    found = capsys.readouterr()
    if code:
        assert found.out == ""
        assert found.err.count("\n") == 1
        assert found.err.startswith("gossamer: error: ")
    return found.out + found.err


def flips(path: Path, most: int) -> list[tuple[int, int]]:
    draw, places = random.Random(path.name), [at for at in range(path.stat().st_size) if at not in IN_HEADER]
    return [(at, draw.randrange(8)) for at in draw.sample(places, min(len(places), most))]


@pytest.mark.parametrize("name", ["policy.ledger", "policy.ledger.key", "policy.ledger.newest"])
def test_a_flipped_bit_of_what_an_owner_keeps_is_refused(
    owner: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """By each command that reads it; a run is not admitted, and what is there stays."""
    policy, kept = owner / "policy.yaml", {path.name: path.read_bytes() for path in owner.iterdir()}
    for at, bit in flips(owner / name, examples(60)):
        content = bytearray(kept[name])
        content[at] ^= 1 << bit
        if name.endswith(".key") and content.strip().lower() == kept[name].strip():
            continue  # another way to write the same digits
        for path in owner.iterdir():
            path.unlink()
        for other, bytes_ in (kept | {name: bytes(content)}).items():
            (owner / other).write_bytes(bytes_)
            (owner / other).chmod(0o600)
        said(capsys, "data", "show", policy)
        said(capsys, "data", "update", policy)
        said(capsys, "data", "backup", policy, owner / "copy")
        with pytest.raises(Exception, match=r"policy\.ledger"):
            spend(owner, "two")
        assert not (owner / "copy").exists()
        assert (owner / name).read_bytes() == content


@pytest.mark.parametrize("name", ["store.sqlite", "witness.sqlite", "side.sqlite", "unit.ledger"])
def test_a_flipped_bit_of_a_node_s_state_is_refused(
    state: Path, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for at, bit in flips(state / name, examples(40)):
        place = tmp_path / "flipped"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(state, place)
        content = bytearray((state / name).read_bytes())
        content[at] ^= 1 << bit
        (place / name).write_bytes(content)
        assert name in said(capsys, "node", "backup", place, tmp_path / "copy")
        assert not (tmp_path / "copy").exists()


def test_the_case_of_the_budget_that_was_given_back(owner: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One bit of the exponent of mu, changed with a tool that writes the file as SQLite would."""
    with closing(sqlite3.connect(owner / "policy.ledger")) as file:
        file.execute("UPDATE run SET mu = 7.7e-155")
        file.commit()
    line = said(capsys, "data", "show", owner / "policy.yaml")
    assert "policy.ledger is damaged" in line
    assert "put the newest copy of it and of its key back" in line
    assert "lower the policy's epsilon" in line


KILLED = """
import os, sys
from pathlib import Path
from tests.end_to_end.test_stored_files import KIND, OwnedData, read_policy
data = OwnedData.open(read_policy(Path(sys.argv[1]) / "policy.yaml"))
data.check()
data.ledger("two", "a", {KIND: 3}).charge(KIND)
os.kill(os.getpid(), 9)
"""


def test_a_copy_of_a_ledger_whose_node_was_killed(
    owner: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A copy of the file alone has forgotten the last run, and is refused; one by the command has all of it."""
    done = subprocess.run([sys.executable, "-c", KILLED, str(owner)], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    shutil.copytree(owner, tmp_path / "plain", ignore=shutil.ignore_patterns("*-wal", "*-shm"))
    assert "is an older copy" in said(capsys, "data", "show", tmp_path / "plain" / "policy.yaml")

    (place := tmp_path / "restored").mkdir()
    out = said(capsys, "data", "backup", owner / "policy.yaml", place / "policy.ledger", code=0)
    assert f"{place / 'policy.ledger.key'}" in out
    assert {path.name: os.stat(path).st_mode & 0o777 for path in place.glob("*.key")} == {"policy.ledger.key": 0o600}
    for name in ("policy.yaml", "wards.csv"):
        shutil.copy(owner / name, place)
    shown = said(capsys, "data", "show", owner / "policy.yaml", code=0)
    assert "two/a" in shown
    assert said(capsys, "data", "show", place / "policy.yaml", code=0) == shown
    spend(place, "three")  # as one goes on from it
    assert "exists already" in said(capsys, "data", "backup", owner / "policy.yaml", place / "policy.ledger")


def test_a_copy_is_made_while_a_run_charges(owner: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(OwnedData.open(read_policy(owner / "policy.yaml"))) as data:
        data.check()
        ledger = data.ledger("two", "a", {KIND: 3})
        ledger.charge(KIND)
        said(capsys, "data", "backup", owner / "policy.yaml", tmp_path / "copy", code=0)
        ledger.charge(KIND)
    with closing(LedgerFile(tmp_path / "copy")) as copy:
        assert [(run.run, run.releases) for run in copy.runs("wards")] == [("one/a", 1), ("two/a", 1)]


def test_what_the_error_says_of_an_older_ledger_works(owner: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An owner whose newest ledger is lost lowers epsilon, and deletes the file that knows of a newer one."""
    before = (owner / "policy.ledger").read_bytes()
    spend(owner, "two")
    (owner / "policy.ledger").write_bytes(before)
    line = said(capsys, "data", "show", owner / "policy.yaml")
    assert "put the newest one back; if that is lost, lower the policy's epsilon" in line
    assert "delete the file that knows of it" in line
    (owner / "policy.ledger.newest").unlink()
    (owner / "policy.yaml").write_text(POLICY.replace("epsilon: 4", "epsilon: 3"))
    assert "one/a" in said(capsys, "data", "show", owner / "policy.yaml", code=0)


def test_a_copy_of_a_state_goes_on(state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "delete one of the two" in said(capsys, "node", "backup", state, tmp_path / "copy", code=0)
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o700
    with closing(SqliteStore(tmp_path / "copy" / "store.sqlite", "run", "a", KEY)) as store:
        snapshot, entries = store.load()
        assert (snapshot, list(entries)) == (b"a state" * 500, [b"an input" * 300])
        store.append([b"more"])
        store.commit()
    for name in ("witness.sqlite", "side.sqlite", "unit.ledger", "summary.json"):
        assert (tmp_path / "copy" / name).exists()
    assert "exists already" in said(capsys, "node", "backup", state, tmp_path / "copy")
    assert "no node has begun here" in said(capsys, "node", "backup", tmp_path / "owner", tmp_path / "other")
    with closing(SqliteStore(state / "store.sqlite", "run", "a", KEY)):
        assert "is in use by another process" in said(capsys, "node", "backup", state, tmp_path / "other")
    assert not (tmp_path / "other").exists()
