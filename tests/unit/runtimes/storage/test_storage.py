"""Stores: whole transactions, files that are refused, and hosts that come back as they were."""

from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.reference.durable_node import Note, Writer

from gossamer.errors import CallerError
from gossamer.protocol.encoding import encode
from gossamer.protocol.events import Refused
from gossamer.protocol.messages import CHUNK_OVERHEAD, Acknowledge, MessageFrame
from gossamer.protocol.node import state_of
from gossamer.protocol.session import Session, SessionSettings, Transmit
from gossamer.runtimes.host import Arrived, Begin, DataSideAnswer, End, Host, HostBroken, HostState, Input, Wake
from gossamer.runtimes.storage.file import NotWritable, StorageError, WrongStore, explained
from gossamer.runtimes.storage.store import FORMAT, SqliteStore
from gossamer.vectors import Public

SETTINGS = SessionSettings(retry_after=1.0, longest_retry=8.0, silence=20.0)
FULL = "PRAGMA max_page_count=1"  # SQLite takes the number of pages that there are


@pytest.fixture
def reopen(tmp_path: Path) -> Iterator[Callable[[], SqliteStore]]:
    """The store, as a process that starts finds it. Who calls again has crashed in between."""
    opened: list[SqliteStore] = []

    def again() -> SqliteStore:
        if opened:
            opened.pop().close()
        opened.append(SqliteStore(tmp_path / "a.store", "run", "a"))
        return opened[0]

    yield again
    if opened:
        opened[0].close()


def contents(store: SqliteStore) -> tuple[bytes | None, list[bytes]]:
    snapshot, entries = store.load()
    return snapshot, list(entries)


def fill(store: SqliteStore) -> None:
    """Let what comes next find a full disk."""
    store._file.execute(FULL)


# Stores


def test_a_new_store_is_empty(reopen: Callable[[], SqliteStore]) -> None:
    assert contents(reopen()) == (None, [])


def test_what_is_committed_is_there_and_what_is_staged_may_be_lost(reopen: Callable[[], SqliteStore]) -> None:
    store = reopen()
    store.append([b"1"])
    store.append([b"2", b"", memoryview(b"34")])
    store.append([b""])
    store.append([])
    store.commit()
    store.commit()
    store.append([b"5"])
    assert contents(reopen()) == (None, [b"1", b"234", b"", b""])


def test_a_snapshot_takes_the_place_of_the_entries_before_it(reopen: Callable[[], SqliteStore]) -> None:
    store = reopen()
    for stage, data in ((store.append, b"1"), (store.snapshot, b"after 1"), (store.append, b"2")):
        stage([data])
    store.commit()
    assert contents(store) == (b"after 1", [b"2"])
    store.append([b"3"])
    store.snapshot([b"after ", b"3"])
    store.append([b"4"])
    assert contents(reopen()) == (b"after 1", [b"2"])  # whole or not at all
    store = reopen()
    store.snapshot([b"after 2"])
    store.append([b"5"])
    store.commit()
    assert contents(reopen()) == (b"after 2", [b"5"])


def test_an_interrupt_while_entries_are_read_reaches_the_caller(
    reopen: Callable[[], SqliteStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is open between two entries: an interrupt at the end of something open would be printed and lost."""

    @contextmanager
    def interrupted(path: Path) -> Iterator[None]:
        try:
            yield
        except GeneratorExit:
            raise KeyboardInterrupt from None

    lost: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", lost.append)
    store = reopen()
    for stage in (store.snapshot, store.append, store.append):
        stage([b"1"])
    store.commit()
    monkeypatch.setattr("gossamer.runtimes.storage.file.explained", interrupted)
    snapshot, entries = store.load()
    assert (snapshot, next(entries)) == (b"1", b"1")
    del entries
    assert not lost


@pytest.mark.parametrize("length", [*range(65_535, 65_543), (1 << 20) - 1, 1 << 20, (1 << 20) + 1, (3 << 20) + 70_000])
def test_long_entries_and_snapshots_are_whole(reopen: Callable[[], SqliteStore], length: int) -> None:
    """They are written in parts of a mebibyte or less."""
    data = np.random.default_rng(length).bytes(length)
    store = reopen()
    store.snapshot([data])
    store.append([data[:5], memoryview(data)[5:]])
    store.append([b"short"])
    store.append([data[:40_000], data[40_000:]])
    store.append([data[: length - 3], data[-3:-1], data[-1:]])
    store.append([bytes([byte]) for byte in data[:200_000]])
    store.append([data[:40_000]] * 40)
    store.commit()
    rows = store._file.rows("SELECT length(part) FROM journal UNION ALL SELECT length(part) FROM snapshot")
    assert max(length for (length,) in rows) <= 1 << 20
    assert len(rows) < 80
    assert contents(reopen()) == (data, [data, b"short", data, data, data[:200_000], data[:40_000] * 40])


def test_a_long_state_is_written_without_a_copy_of_the_whole(reopen: Callable[[], SqliteStore]) -> None:
    store, values = reopen(), np.zeros(1 << 24, np.uint8)
    tracemalloc.start()
    store.snapshot([b"a state of ", values.data])
    store.commit()
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()


def test_what_is_staged_may_change_afterwards(reopen: Callable[[], SqliteStore]) -> None:
    store, buffer = reopen(), bytearray(b"before")
    store.append([memoryview(buffer)])
    buffer[:] = b"after."
    store.commit()
    assert contents(store) == (None, [b"before"])


@pytest.mark.parametrize("snapshot", [False, True])
def test_what_finds_the_disk_full_is_not_written_and_the_store_takes_no_more(
    reopen: Callable[[], SqliteStore], snapshot: bool
) -> None:
    store = reopen()
    store.append([b"1"])
    store.commit()
    fill(store)
    store.commit()  # nothing to write
    with pytest.raises(StorageError, match="disk is full; nothing was written"):
        (store.snapshot if snapshot else store.append)([b"2" * 100_000])
    for more in (lambda: store.append([b"3"]), lambda: store.snapshot([b"4"]), store.commit):
        with pytest.raises(StorageError, match="restart the node"):
            more()
    store.tidy()
    assert contents(reopen()) == (None, [b"1"])


def test_a_closed_store_takes_no_more(reopen: Callable[[], SqliteStore]) -> None:
    store = reopen()
    store.close()
    store.tidy()
    for more in (lambda: store.append([b"1"]), store.commit):
        with pytest.raises(StorageError, match="it was closed"):
            more()


def test_tidying_shortens_the_log_and_changes_nothing(
    reopen: Callable[[], SqliteStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = reopen()
    store.append([b"1"])
    store.commit()
    store.append([bytes((1 << 20) - 2)])
    store.commit()
    store.tidy()  # not yet
    store.append([b"2"])
    store.tidy()  # not in the middle of a transaction
    store.commit()
    before = (tmp_path / "a.store").stat().st_size
    store.tidy()
    assert before < 1 << 20 < (tmp_path / "a.store").stat().st_size
    monkeypatch.setattr(store._file, "rows", lambda statement: pytest.fail("the log is short"))
    store.tidy()
    store.append([b"staged"])
    store.tidy()
    assert contents(reopen()) == (None, [b"1", bytes((1 << 20) - 2), b"2"])


def test_a_store_synchronises_every_commit_and_is_its_owners_alone(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "a.store", "run", "a")
    names = ("journal_mode", "synchronous", "locking_mode", "page_size", "wal_autocheckpoint", "secure_delete")
    values = [store._file.rows(f"PRAGMA {name}")[0][0] for name in names]
    assert values == ["wal", 2, "exclusive", 1 << 14, 1 << 8, 0]
    store.append([b"1"])
    store.commit()
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}
    store.close()


# Files that are refused


def refused(path: Path, run: str = "run", node: str = "a") -> str:
    """What is said when ``path`` is opened, which must leave it as it was."""
    before = path.read_bytes()
    with pytest.raises(WrongStore) as caught:
        SqliteStore(path, run, node)
    assert path.read_bytes() == before
    assert caught.value.exit_code == 2
    assert isinstance(caught.value, CallerError)
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(str(path))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of a store of node a in run ``run``."""
    SqliteStore(tmp_path / "a.store", "run", "a").close()
    return tmp_path / "a.store"


def test_the_store_of_another_run_or_node_is_refused(path: Path) -> None:
    another = "; give another --store, if that is meant"
    assert refused(path, run="other") == f" is the store of run 'run', expected run 'other'{another}"
    assert refused(path, node="b") == f" is the store of node 'a', expected node 'b'{another}"


@pytest.mark.parametrize(("version", "age"), [(FORMAT.version + 1, "a newer"), (FORMAT.version - 1, "an older")])
def test_another_version_is_refused(path: Path, version: int, age: str) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version={version}")
    connection.close()
    assert f"written by {age} version of gossamer (format {version}, expected {FORMAT.version})" in refused(path)


def test_what_is_no_store_is_refused_and_left_alone(tmp_path: Path) -> None:
    text, other = tmp_path / "text", tmp_path / "other.sqlite"
    text.write_text("a text that is long enough to be taken for a header of a file" * 20)
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE journal (number INTEGER)")
    connection.close()
    assert "no file of gossamer's" in refused(text)
    assert "expected the store, found another SQLite file" in refused(other)


def test_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be made: No such file or directory"):
        SqliteStore(tmp_path / "nowhere" / "a.store", "run", "a")


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    """As a process leaves it that is killed right after it made the file."""
    (tmp_path / "a.store").touch()
    store = SqliteStore(tmp_path / "a.store", "run", "a")
    assert contents(store) == (None, [])
    store.close()


TRY_EACH_TIME = """
import sys
from gossamer.runtimes.storage.store import SqliteStore
for line in sys.stdin:
    try:
        SqliteStore(sys.argv[1], "run", "a").close()
        print("opened", flush=True)
    except Exception as error:
        print(type(error).__name__, error, flush=True)
"""


def test_a_store_is_one_process_s_alone(path: Path) -> None:
    """In this process or in another, nobody else gets it; when it is closed, the next one does."""
    store = SqliteStore(path, "run", "a")
    command = [sys.executable, "-c", TRY_EACH_TIME, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdin is not None
        assert other.stdout is not None

        def elsewhere() -> str:
            print("try", file=other.stdin, flush=True)
            return other.stdout.readline().strip()  # type: ignore[union-attr]

        said = f"WrongStore {path} is in use by another process; end that one first"
        assert elsewhere() == said
        with pytest.raises(WrongStore, match="is in use by another process"):
            SqliteStore(path, "run", "a")
        assert elsewhere() == said  # the refused one has not unlocked it
        store.close()
        assert elsewhere() == "opened"
        SqliteStore(path, "run", "a").close()


def test_a_damaged_file_is_one_clear_line(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4096:] = bytes(len(data) - 4096)  # all but the first page
    path.write_bytes(data)
    with (
        pytest.raises(StorageError, match=r"damaged \(.*put the newest copy of"),
        closing(SqliteStore(path, "run", "a")) as store,
    ):
        contents(store)


@pytest.mark.parametrize("kept", [100, 20_000, 70_000])
def test_a_file_that_was_cut_off_is_one_clear_line(path: Path, kept: int) -> None:
    store = SqliteStore(path, "run", "a")
    for number in range(20):
        store.append([bytes([number]) * 10_000])
    store.commit()
    store.close()
    path.write_bytes(path.read_bytes()[:kept])
    with (
        pytest.raises(
            StorageError, match=f"^{path} (is damaged \\(.*put the newest copy|is no file of gossamer's)[^\n]*$"
        ),
        closing(SqliteStore(path, "run", "a")) as found,
    ):
        contents(found)


# Hosts


def host(store: SqliteStore, settings: SessionSettings = SETTINGS, every: int = 100, size: int = 3) -> Host:
    return Host(Writer("a", size), settings, store, every=every)


@pytest.mark.parametrize("every", [1, 2, 100])
def test_a_host_comes_back_as_it_was(reopen: Callable[[], SqliteStore], every: int) -> None:
    """With messages on their way, some acknowledged, and some of the peer that came too early; after every turn."""
    note = Note(1, Public(np.ones(3)))
    inputs = [
        (Begin(), 1.0),
        *((End("b"), 2.0 + number) for number in range(40)),
        (Arrived("b", Acknowledge(2, 0b101)), 50.0),
        (Arrived("b", MessageFrame(2, 0, 3, note)), 50.0),
        (Arrived("c", MessageFrame(3, 0, 0, note)), 50.0),
        (Wake(), 60.0),
        (Arrived("b", MessageFrame(1, 0, 3, note)), 61.0),
    ]
    alive = host(reopen(), every=every)
    for what, now in inputs:
        expected = host(SqliteStore(":memory:", "run", "a"))
        expected.turn(inputs[: inputs.index((what, now)) + 1])
        alive.take(what, now)
        assert encode(alive.state()) == encode(expected.state())
        alive.journal.commit()
        alive = host(reopen(), every=every)
        assert encode(alive.state()) == encode(expected.state())
    assert alive.deadline() == expected.deadline()


def commits(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one with every transaction."""
    found: list[int] = []
    before = store._file.commit
    monkeypatch.setattr(store._file, "commit", lambda: (found.append(1), before())[1])
    return found


def test_acknowledgements_alone_cost_no_transaction(
    reopen: Callable[[], SqliteStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    alive = host(reopen())
    done = commits(alive.journal, monkeypatch)  # type: ignore[arg-type]
    alive.turn([(Begin(), 0.0), *((End("b"), 1.0) for _ in range(3))])
    assert len(done) == 1
    alive.take(Arrived("b", Acknowledge(2)), 2.0)
    assert alive.take(Wake(), 4.0)  # 3 is transmitted again
    assert len(done) == 1
    assert set(host(reopen()).session.links["b"].outbox) == {1, 2, 3}


def test_what_a_peer_would_miss_is_a_transaction(
    reopen: Callable[[], SqliteStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message that came, in its turn or early, and a number that was put on the link."""
    alive, note = host(reopen()), Note(1, Public(np.ones(3)))
    done = commits(alive.journal, monkeypatch)  # type: ignore[arg-type]
    for count, frame in enumerate(
        (MessageFrame(2, 0, 0, note), MessageFrame(3, 0, 0, note), MessageFrame(1, 0, 0, note)), 1
    ):
        alive.take(Arrived("b", frame), 1.0)
        assert len(done) == count
        alive.take(Arrived("b", frame), 1.0)  # again; answered, and that is all
        assert len(done) == count
    alive.turn([(End("b"), 2.0)] * 40)  # more than a window
    assert len(done) == 4
    alive.take(Arrived("b", Acknowledge(1)), 3.0)  # another number may go
    assert len(done) == 5


def test_what_reaches_the_node_is_a_transaction(
    reopen: Callable[[], SqliteStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though nothing is sent."""
    alive = host(reopen())
    done = commits(alive.journal, monkeypatch)  # type: ignore[arg-type]
    inputs: list[tuple[Input, float]] = [(Begin(), 0.0), (Wake(), 5.0), (DataSideAnswer(Refused(1, 0)), 6.0)]
    for count, (what, now) in enumerate(inputs, 1):
        alive.take(what, now)
        assert len(done) == count
    assert host(reopen()).finished == "budget"


def test_a_snapshot_is_a_transaction(reopen: Callable[[], SqliteStore], monkeypatch: pytest.MonkeyPatch) -> None:
    """So that what is staged cannot grow for ever, whatever a peer sends."""
    alive = host(reopen(), every=10)
    done = commits(alive.journal, monkeypatch)  # type: ignore[arg-type]
    for number in range(1, 10):
        alive.take(Arrived("b", Acknowledge(7)), float(number))
        assert len(done) == 0
    alive.take(Arrived("b", Acknowledge(7)), 10.0)
    assert len(done) == 1
    for number in range(11, 20):
        alive.take(Arrived("b", Acknowledge(7)), float(number))
    alive.rest()
    assert len(done) == 1
    alive.take(Arrived("b", MessageFrame(1, 0, 0, Note(1, Public(np.ones(3))))), 20.0)
    assert len(done) == 2


def test_a_turn_answers_each_peer_once(reopen: Callable[[], SqliteStore]) -> None:
    note = Note(1, Public(np.ones(3)))
    frames = [MessageFrame(number, 0, 0, note) for number in (1, 2, 4)]
    outcomes = host(reopen()).turn([(Arrived(peer, frame), 1.0) for frame in frames for peer in ("b", "c")])
    assert outcomes == [Transmit("b", Acknowledge(2, 0b10)), Transmit("c", Acknowledge(2, 0b10))]


def test_chunks_and_answers_to_them_cost_no_transaction(
    reopen: Callable[[], SqliteStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for the first, which says that there is a message, and the last."""
    chunks = SessionSettings(1.0, 8.0, 20.0, largest_frame=CHUNK_OVERHEAD + 100, largest_message=100_000)
    peer, alive = Session("b", chunks), host(reopen(), chunks, every=1000, size=1000)
    done = commits(alive.journal, monkeypatch)  # type: ignore[arg-type]
    frames = [out.frame for out in peer.send("a", Note(1, Public(np.ones(1000))), 0.0) if isinstance(out, Transmit)]
    received = 0
    while frames:
        received += 1
        for outcome in alive.take(Arrived("b", frames.pop(0)), 1.0):
            assert isinstance(outcome, Transmit)
            frames += [out.frame for out in peer.receive("a", outcome.frame, 1.0) if isinstance(out, Transmit)]
        assert len(done) == (not frames)
    assert received == 81
    sender = host(reopen(), chunks, every=1000, size=1000)
    done = commits(sender.journal, monkeypatch)  # type: ignore[arg-type]
    waiting = sender.stop("b", 2.0)
    assert len(done) == 1
    answered = 0
    while waiting:
        outcome = waiting.pop(0)
        assert isinstance(outcome, Transmit)
        for out in peer.receive("a", outcome.frame, 2.0):
            if isinstance(out, Transmit):
                answered += 1
                waiting += sender.take(Arrived("b", out.frame), 2.0)
    assert answered == 81
    assert len(done) == 1
    assert not sender.session.links["b"].outbox


def test_large_states_bring_fewer_snapshots(reopen: Callable[[], SqliteStore]) -> None:
    """One when the journal has grown to two states, and at rest to one; entries are counted over restarts too.

    Notes of 256 KiB come in, each of which counts 4 KiB more; the state is a vector of 256 KiB and a little more.
    """
    lengths = []
    for number in range(1, 20):
        if number in (1, 3, 10):
            alive = host(reopen(), every=2, size=1 << 15)
        alive.take(Arrived("b", MessageFrame(number, number - 1, 0, Note(number, Public(np.zeros(1 << 15))))), 0.0)
        if number >= 17:
            alive.rest()
        lengths.append(len(contents(alive.journal)[1]))  # type: ignore[arg-type]
    assert lengths == [1, 0] * 8 + [0, 0, 0]
    alive.take(Arrived("b", MessageFrame(20, 19, 0, Note(20, Public(np.zeros(1 << 15))))), 0.0)
    assert len(contents(alive.journal)[1]) == 1  # type: ignore[arg-type]
    alive.rest()
    state, entries = contents(reopen())
    assert state == encode(alive.state())
    assert not entries


def test_a_host_at_rest_has_its_store_tidied(reopen: Callable[[], SqliteStore], tmp_path: Path) -> None:
    alive = host(reopen(), size=1 << 18)
    alive.take(Arrived("b", MessageFrame(1, 0, 0, Note(1, Public(np.zeros(1 << 18))))), 0.0)
    before = (tmp_path / "a.store").stat().st_size
    alive.rest()
    assert before < 1 << 21 < (tmp_path / "a.store").stat().st_size


def test_what_arrives_in_chunks_is_kept_in_a_snapshot_as_it_was_then(reopen: Callable[[], SqliteStore]) -> None:
    """More of the message comes before the snapshot is committed."""
    chunks = SessionSettings(1.0, 8.0, 20.0, largest_frame=CHUNK_OVERHEAD + 100, largest_message=100_000)
    frames = [out.frame for out in Session("b", chunks).send("a", Note(1, Public(np.ones(1000))), 0.0)]  # type: ignore[union-attr]
    alive = host(reopen(), chunks, every=3, size=1)
    alive.turn([(Arrived("b", frame), 1.0) for frame in frames[:30]])
    expected = encode(alive.state())
    assert contents(alive.journal)[0] is not None  # type: ignore[arg-type]
    alive.journal.commit()
    assert encode(host(reopen(), chunks, size=1).state()) == expected


def test_small_states_are_kept_every_so_many_inputs(reopen: Callable[[], SqliteStore]) -> None:
    alive, lengths = host(reopen(), every=20), []
    for number in range(60):
        if number % 7 == 0:
            alive = host(reopen(), every=20)
        alive.stop("b", float(number))
        alive.take(Arrived("b", Acknowledge(number + 1)), float(number))
        alive.journal.commit()
        lengths.append(len(contents(alive.journal)[1]))  # type: ignore[arg-type]
    assert max(lengths) in (18, 19)  # each counts for 4 KiB and its own bytes
    assert lengths.count(0) + lengths.count(1) >= 6


def test_a_checkpoint_leaves_nothing_to_handle_again(reopen: Callable[[], SqliteStore]) -> None:
    alive = host(reopen())
    alive.turn([(Begin(), 0.0), (End("b"), 1.0)])
    alive.checkpoint()
    assert alive._since == 0  # the journal counts anew
    state, entries = contents(reopen())
    assert state == encode(alive.state())
    assert entries == []
    alive = host(reopen())
    fill(alive.journal)  # type: ignore[arg-type]
    with pytest.raises(HostBroken, match="disk is full"):
        alive.stop("b" * 100_000, 2.0)
    with pytest.raises(HostBroken, match="start again from the store"):
        alive.checkpoint()


def test_a_full_disk_breaks_the_host(reopen: Callable[[], SqliteStore]) -> None:
    alive = host(reopen(), size=100_000)
    alive.turn([(Begin(), 0.0), (End("b"), 1.0)])
    before = encode(alive.state())
    fill(alive.journal)  # type: ignore[arg-type]
    with pytest.raises(HostBroken, match=r"a\.store could not grow: the disk is full; nothing was written") as caught:
        alive.take(Arrived("b", MessageFrame(1, 0, 0, Note(1, Public(np.ones(100_000))))), 2.0)
    assert caught.value.exit_code == 2  # as of any command that finds no room
    assert encode(host(reopen(), size=100_000).state()) == before


@pytest.mark.parametrize(
    ("snapshot", "entry"),
    [
        (None, b"\xff"),
        (None, encode(1)),
        (None, encode((1.0, 2.0, 3.0))),
        (None, encode((1.0, 2.0))),
        (None, encode((1.0, Arrived("b", "frame")))),  # type: ignore[arg-type]
        (encode({"w": 1}), None),
        (encode(HostState({"another": 1}, {})), None),
        (encode(HostState(state_of(Writer("a")), {"b": 5})), None),  # type: ignore[dict-item]
    ],
)
def test_what_no_host_writes_is_one_clear_line(
    reopen: Callable[[], SqliteStore], snapshot: bytes | None, entry: bytes | None
) -> None:
    store = reopen()
    if snapshot is not None:
        store.snapshot([snapshot])
    if entry is not None:
        store.append([entry])
    store.commit()
    line = r"^a: its journal holds what this version of gossamer cannot read \([^\n]*\); use the version that wrote it$"
    with pytest.raises(HostBroken, match=line):
        host(reopen())


def test_the_log_of_a_store_is_bounded(path: Path) -> None:
    """By 4 MiB, its pages' headers and one transaction more; an entry that is larger makes it no larger for long."""
    store = SqliteStore(path, "run", "a")
    log, most = path.with_name(f"{path.name}-wal"), 0
    store.append([bytes(12 << 20)])
    store.commit()
    store.snapshot([b"state"])
    store.commit()
    for number in range(600):
        store.append([number.to_bytes(4) * 4096])
        store.commit()
        most = max(most, log.stat().st_size) if number > 300 else 0
    store.close()
    assert 0 < most <= 5 << 20


def test_the_first_megabytes_of_a_long_message_are_durable_before_its_last(
    reopen: Callable[[], SqliteStore],
) -> None:
    """A journal may keep the first few entries, none or all; a disk that begins at the end holds up a model."""
    store, entries = reopen(), [bytes([number]) * (1 << 20) for number in range(10)]
    for entry in entries:
        store.append([entry])
    assert contents(reopen()) == (None, entries[:8])


def test_the_log_of_a_store_of_models_is_bounded_by_their_size(tmp_path: Path) -> None:
    """By four models, and one transaction more."""
    store = SqliteStore(tmp_path / "a.store", "run", "a", model=1 << 20)
    for number in range(12):
        store.append([bytes([number]) * (1 << 20)])
        store.commit()
    size = (tmp_path / "a.store-wal").stat().st_size
    store.close()
    assert size < 5.1 * (1 << 20)


@pytest.mark.parametrize("code", [sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN])
def test_a_disk_that_may_only_be_read_is_called_that(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite says that a disk reports an error, or that a file may not be written: as it looks from an open file."""
    monkeypatch.setattr("gossamer.runtimes.storage.file.is_read_only", lambda path: path == tmp_path)
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = code
    line = "its disk may only be read; have it mounted for writing"
    with pytest.raises(NotWritable, match=line) as caught, explained(tmp_path / "store.sqlite"):
        raise error
    assert caught.value.exit_code == 2
