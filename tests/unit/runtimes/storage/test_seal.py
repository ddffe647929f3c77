"""Files that are not what was written: every byte of them, older copies, other keys, and filters that disagree."""

from __future__ import annotations

import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.sampling import examples

from gossamer.deployment.party.data_side import SideFile
from gossamer.errors import CallerError
from gossamer.privacy.accounting.filters import EitherFilter, FilterEntry
from gossamer.privacy.mechanisms import NeighboringRelation
from gossamer.privacy.streams.correlated_noise import StreamRecord
from gossamer.protocol.witnesses import Known, Seen
from gossamer.runtimes.storage.file import WrongStore
from gossamer.runtimes.storage.ledger import LedgerFile
from gossamer.runtimes.storage.seal import newest_of
from gossamer.runtimes.storage.store import SqliteStore, WitnessFile

KEY = b"the key of the one whose files they are"
BUDGET = EitherFilter(8.0, 1e-5, NeighboringRelation.REPLACE_ONE, 20.0)
COUNTERS = {*range(24, 28), *range(40, 44), *range(92, 100)}
"""Bytes of a file's header that SQLite counts its own changes in, other in each copy; nothing of ours is there."""
VERSIONS = {18, 19}
"""Whether SQLite writes a log, of which a flip may be another one of its two ways; opening the file sets it right."""


def write_ledger(path: Path) -> None:
    with closing(LedgerFile(path, KEY)) as file:
        for run in ("one/a", "two/a"):
            file.open("a", "wards", run, BUDGET, {}, 0.1, FilterEntry(0.3, 1e-9), b"")


def write_store(path: Path) -> None:
    with closing(SqliteStore(path, "run", "a", KEY)) as store:
        store.snapshot([b"a state" * 1000])
        for entry in (b"an input", b"a longer input" * 2000):
            store.append([entry])
        store.commit()


def write_witness(path: Path) -> None:
    with closing(WitnessFile(path, "run", "a", KEY)) as memory:
        memory.keep({"b": Known(Seen(3, b"\1" * 32), Seen(2, b"\2" * 32), Seen(2, b"\2" * 32))})


def write_side(path: Path) -> None:
    with closing(SideFile(path, "run", "a", KEY)) as side:
        side.reached(7)
        side.keep(StreamRecord(1, np.arange(3.0), np.ones(3)), 2)


KINDS: dict[str, tuple[Callable[[Path], None], Callable[[Path], Any]]] = {
    "ledger": (write_ledger, lambda path: LedgerFile(path, KEY)),
    "store": (write_store, lambda path: SqliteStore(path, "run", "a", KEY)),
    "witness": (write_witness, lambda path: WitnessFile(path, "run", "a", KEY)),
    "side": (write_side, lambda path: SideFile(path, "run", "a", KEY)),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def path(kind: str, tmp_path: Path) -> Path:
    (tmp_path / "kept").mkdir()
    KINDS[kind][0](tmp_path / "kept" / kind)
    return tmp_path / "kept" / kind


def rows(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


def flipped(path: Path, place: Path, at: int, bit: int) -> Path:
    """A copy of a file, and of what lies beside it, in an empty folder, with one bit of it changed."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(path.parent, place)
    content = bytearray((place / path.name).read_bytes())
    content[at] ^= 1 << bit
    (place / path.name).write_bytes(content)
    return place


def places(path: Path) -> Iterator[tuple[int, int]]:
    """Bits of a file: of its header, and of all that comes after."""
    draw, size = random.Random(path.name), path.stat().st_size
    more = draw.sample(range(100, size), min(size - 100, examples(400)))
    yield from ((at, draw.randrange(8)) for at in [*draw.sample(range(100), examples(100)), *more])


@pytest.mark.parametrize("beside", [False, True], ids=["itself", "newest"])
def test_no_flipped_bit_is_unnoticed(kind: str, path: Path, tmp_path: Path, beside: bool) -> None:
    opened, before = KINDS[kind][1], rows(path)
    target = newest_of(path) if beside else path
    for at, bit in places(target):
        place = flipped(target, tmp_path / "flipped", at, bit)
        if not beside and at in COUNTERS | VERSIONS:
            try:
                opened(place / kind).close()
            except CallerError:
                continue
            assert rows(place / kind) == before
            continue
        with pytest.raises(CallerError) as caught:
            opened(place / kind)
        assert caught.value.exit_code == 2, (at, bit)
        assert "\n" not in str(caught.value)


def test_a_value_that_was_changed_by_hand_is_noticed_without_what_lies_beside_it(kind: str, path: Path) -> None:
    """As it is after a crash, when the file beside it has no digest of its bytes, or is lost."""
    newest_of(path).unlink()
    table, column = {"ledger": ("run", "mu"), "store": ("journal", "last"), "witness": ("peer", "told")}.get(
        kind, ("mark", "round")
    )
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"UPDATE {table} SET {column} = 0 WHERE rowid = (SELECT MAX(rowid) FROM {table})")
        connection.commit()
    with pytest.raises(
        WrongStore, match=r"is damaged \(its rows are not what was written\), so nothing goes on from it"
    ):
        KINDS[kind][1](path)


def test_a_file_of_an_older_version_is_refused_in_one_line(kind: str, path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        ((version,),) = connection.execute("PRAGMA user_version").fetchall()
        connection.execute(f"PRAGMA user_version = {version - 1}")
    line = rf"^[^\n]* was written by an older version of gossamer \(format {version - 1}, expected {version}\)[^\n]*$"
    with pytest.raises(WrongStore, match=line):
        KINDS[kind][1](path)


@pytest.mark.parametrize("lost", ["DELETE FROM seal", "UPDATE seal SET tag = x''", "DROP TABLE seal"])
def test_without_its_seal_a_file_is_refused(kind: str, path: Path, lost: str) -> None:
    newest_of(path).unlink()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(lost)
        connection.commit()
    with pytest.raises(WrongStore, match="is damaged"):
        KINDS[kind][1](path)


def test_a_file_with_another_key_is_refused(path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "KEY", b"another key")
    with pytest.raises(WrongStore, match=r"is damaged \(it is not sealed with its key\)"):
        KINDS[kind][1](path)


def test_an_older_copy_is_refused(kind: str, path: Path, tmp_path: Path) -> None:
    before = path.read_bytes()
    if kind == "ledger":
        with closing(LedgerFile(path, KEY)) as file:
            file.open("a", "wards", "three/a", BUDGET, {}, 0.1, FilterEntry(0.3, 1e-9), b"")
    elif kind == "store":
        with closing(SqliteStore(path, "run", "a", KEY)) as store:
            store.append([b"more"])
            store.commit()
    elif kind == "witness":
        with closing(WitnessFile(path, "run", "a", KEY)) as memory:
            memory.keep({"b": Known(Seen(4, bytes(32)))})
    else:
        with closing(SideFile(path, "run", "a", KEY)) as side:
            side.reached(8)
    for content in (before, b""):
        path.write_bytes(content)
        with pytest.raises(
            WrongStore, match=rf"is an older copy: it was written \d times, and .*{kind}\.newest knows of"
        ):
            KINDS[kind][1](path)
    newest_of(path).unlink()
    path.write_bytes(before)
    KINDS[kind][1](path).close()


KILLED = """
import os, sys
from pathlib import Path
from tests.unit.runtimes.storage.test_seal import BUDGET, KEY, FilterEntry, LedgerFile
file = LedgerFile(Path(sys.argv[1]), KEY)
for run in ("three/a", "four/a"):
    file.open("a", "wards", run, BUDGET, {}, 0.1, FilterEntry(0.3, 1e-9), b"")
os._exit(9)
"""


@pytest.mark.parametrize("kind", ["ledger"], indirect=True)
def test_a_copy_without_the_log_of_a_process_that_was_killed_is_refused(path: Path, tmp_path: Path) -> None:
    """It has forgotten the last runs; a copy by SQLite's own backup has them all."""
    subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert Path(f"{path}-wal").stat().st_size
    for name in (path.name, f"{path.name}.newest"):
        shutil.copy(path.parent / name, tmp_path / name)
    with pytest.raises(WrongStore, match="is an older copy"):
        LedgerFile(tmp_path / path.name, KEY)
    with closing(LedgerFile(path, KEY)) as file:
        file.back_up(tmp_path / "copy")
        spent = [run.run for run in file.runs("wards")]
    with closing(LedgerFile(tmp_path / "copy", KEY)) as copy:
        assert [run.run for run in copy.runs("wards")] == spent == ["one/a", "two/a", "three/a", "four/a"]
    shutil.copy(tmp_path / "copy", path)  # in the place of the one that it is a copy of
    LedgerFile(path, KEY).close()


@pytest.mark.parametrize("kind", ["ledger"], indirect=True)
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("UPDATE run SET mu = 0, failure = 0 WHERE name = 'two/a'", "has counted run 'two/a' and the other has not"),
    ],
)
def test_filters_that_disagree_are_refused(path: Path, change: str, said: str) -> None:
    """Whatever a process with the key wrote."""
    with closing(LedgerFile(path, KEY)) as file, file.transaction():
        file.contents.file.execute(change)
    with pytest.raises(WrongStore, match=said):
        LedgerFile(path, KEY)
