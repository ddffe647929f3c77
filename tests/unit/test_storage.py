"""Stores: whole transactions, files that are refused, and nodes that come back as they were."""

from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.reference.durable_node import Note, Task, Writer

from gossamer.errors import CallerError, PeerError
from gossamer.protocol.effects import Compute, Release, Send
from gossamer.protocol.encoding import decode, encode
from gossamer.protocol.events import Answered, Completed, Elapsed, PeerDown, Received, Refused, Resumed, Started, Stop
from gossamer.protocol.frames import CHUNK_OVERHEAD, Acknowledge, Data
from gossamer.protocol.node import Effects, on, state_of
from gossamer.protocol.session import Session, SessionSettings, Transmit
from gossamer.runtimes.storage import FORMAT, Change, Contents, MemoryStore, SqliteStore, Store
from gossamer.runtimes.storage_file import StorageError, WrongStore
from gossamer.runtimes.storage_journal import Inputs, Journal
from gossamer.runtimes.storage_recovery import recover
from gossamer.vectors import Public, Released

SETTINGS = SessionSettings(retry_after=1.0, longest_retry=8.0, silence=20.0)
ONE = Released(np.ones(3))
FULL = "PRAGMA max_page_count=1"  # SQLite takes the number of pages that there are


@pytest.fixture(params=["memory", "sqlite"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Store]]:
    """The store, as a process that starts finds it. Who calls again has crashed in between."""
    memory = MemoryStore("run", "a")
    opened: list[SqliteStore] = []

    def again() -> Store:
        if request.param == "memory":
            memory.close()
            return memory
        if opened:
            opened.pop().close()
        opened.append(SqliteStore(tmp_path / "a.store", "run", "a"))
        return opened[0]

    yield again
    if opened:
        opened[0].close()


def fill(store: Store) -> None:
    """Let the next commit find a full disk."""
    if isinstance(store, MemoryStore):
        store.full = True
    else:
        assert isinstance(store, SqliteStore)
        store._file._connection.execute(FULL)


# Stores


def test_a_new_store_is_empty(reopen: Callable[[], Store]) -> None:
    assert reopen().contents() == Contents()


def test_a_change_is_there_once_it_is_committed(reopen: Callable[[], Store]) -> None:
    store = reopen()
    store.stage(Change((b"1", b"2"), {("task", b"x"): b"X", ("timer", b"x"): b"Y"}))
    assert store.contents() == Contents()
    store.commit()
    expected = Contents(None, 0, [b"1", b"2"], {("task", b"x"): b"X", ("timer", b"x"): b"Y"})
    assert store.contents() == expected
    store.stage(Change((b"3",)))
    assert reopen().contents() == expected  # what was only staged is lost


def test_entries_are_replaced_and_dropped_and_stay_in_the_order_of_writing(reopen: Callable[[], Store]) -> None:
    store = reopen()
    store.stage(Change(entries={("task", b"a"): b"1", ("task", b"b"): b"2", ("task", b"c"): b"3"}))
    store.stage(Change(entries={("task", b"a"): b"4", ("task", b"c"): None, ("task", b"never"): None}))
    store.commit()
    assert list(store.contents().entries.items()) == [(("task", b"b"), b"2"), (("task", b"a"), b"4")]


def test_a_snapshot_takes_the_place_of_the_journal(reopen: Callable[[], Store]) -> None:
    store = reopen()
    store.stage(Change((b"1", b"2")))
    store.stage(Change((b"3",), {}, b"after 3"))
    store.stage(Change((b"4",)))
    store.commit()
    assert store.contents() == Contents(b"after 3", 3, [b"4"])
    store = reopen()
    store.stage(Change((b"5",), {}, b"after 5"))
    store.commit()
    assert store.contents() == Contents(b"after 5", 5, [])
    store = reopen()  # numbers go on after the snapshot, where no step is left
    store.stage(Change((b"6",)))
    store.commit()
    assert reopen().contents() == Contents(b"after 5", 5, [b"6"])


def test_contents_are_a_copy(reopen: Callable[[], Store]) -> None:
    store = reopen()
    store.stage(Change((b"1",)))
    store.commit()
    found = store.contents()
    found.steps.clear()
    found.entries["task", b""] = b""
    assert store.contents() == Contents(None, 0, [b"1"])


def test_what_finds_the_disk_full_is_not_written_and_the_store_takes_no_more(reopen: Callable[[], Store]) -> None:
    store = reopen()
    store.stage(Change((b"1",)))
    store.commit()
    fill(store)
    store.commit()  # nothing to write
    store.stage(Change((b"2",)))
    store.stage(Change((b"3" * 100_000,)))
    with pytest.raises(StorageError, match="disk is full; nothing was written"):
        store.commit()
    for more in (lambda: store.stage(Change((b"4",))), store.commit):
        with pytest.raises(StorageError, match="restart the node"):
            more()
    assert reopen().contents().steps == [b"1"]


def test_crash_keeps_the_first_of_the_staged_changes_and_all_that_was_committed() -> None:
    for keep in range(4):
        store = MemoryStore("run", "a")
        store.stage(Change((b"0",)))
        store.commit()
        for step in (b"1", b"2", b"3"):
            store.stage(Change((step,), {("kept", step): step}))
        assert store.staged == 3
        store.crash(keep)
        kept = [b"1", b"2", b"3"][:keep]
        assert store.contents() == Contents(None, 0, [b"0", *kept], {("kept", step): step for step in kept})
        assert store.staged == 0


@pytest.mark.parametrize("keep", [-1, 2])
def test_crash_keeps_no_more_than_was_staged(keep: int) -> None:
    store = MemoryStore("run", "a")
    store.stage(Change((b"1",)))
    with pytest.raises(ValueError, match="of the 1 staged"):
        store.crash(keep)


def test_a_store_synchronises_every_commit_and_is_its_owners_alone(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "a.store", "run", "a")
    values = [store._file.rows(f"PRAGMA {name}")[0][0] for name in ("journal_mode", "synchronous", "locking_mode")]
    assert values == ["wal", 2, "exclusive"]
    store.stage(Change((b"1",)))
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
    assert (
        refused(path, run="other") == " is the store of run 'run', expected run 'other'; name another file for this one"
    )
    assert refused(path, node="b") == " is the store of node 'a', expected node 'b'; name another file for this one"


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
    assert store.contents() == Contents()
    store.close()


TRY_EACH_TIME = """
import sys
from gossamer.runtimes.storage import SqliteStore
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
        pytest.raises(StorageError, match="damaged; bring back a copy"),
        closing(SqliteStore(path, "run", "a")) as store,
    ):
        store.contents()


# Journals


def journal(store: Store, every: int = 100) -> Journal:
    return Journal(Writer("a"), store, every)


def test_a_journal_says_what_is_open(reopen: Callable[[], Store]) -> None:
    """Timers by when they are due, tasks by id; ended by the events that end them."""
    first = journal(reopen())
    assert first.recovered.events == 0
    assert first.handle(Started(), 10.0)[-1] == Compute(Task(1, Public(np.zeros(3))))
    first.commit({}, 10.0)

    second = journal(reopen())
    assert (second.recovered.events, second.recovered.now) == (1, 10.0)
    assert second.recovered.timers == {"beat": 15.0, "probe": 12.0}
    assert list(second.recovered.tasks) == [1]
    second.handle(Completed(1, ONE, 1), 11.0)  # asks anew and cancels a timer
    second.handle(Elapsed("beat"), 15.0)  # sets it again
    second.commit({}, 16.0)

    third = journal(reopen())
    assert (third.recovered.events, third.recovered.now) == (3, 16.0)
    assert third.recovered.timers == {"beat": 20.0}
    assert third.recovered.tasks == {2: Compute(Task(2, Public(np.zeros(3))))}
    assert third.recovered.finished is None
    third.handle(Answered(2, Public(np.ones(3))), 17.0)
    third.handle(Refused(3, 2), 18.0)
    third.commit({}, 18.0)

    fourth = journal(reopen())
    assert fourth.recovered.tasks == {}
    assert fourth.recovered.finished == "budget"


def test_a_timer_that_ran_out_is_gone() -> None:
    store = MemoryStore("run", "a")
    writer = journal(store)
    writer.handle(Started(), 0.0)
    writer.handle(Elapsed("probe"), 2.0)
    writer.commit({}, 2.0)
    assert journal(store).recovered.timers == {"beat": 5.0}


def test_a_node_that_resumes_has_no_tasks_and_timers_but_its_new_ones(reopen: Callable[[], Store]) -> None:
    first = journal(reopen())
    first.handle(Started(), 0.0)
    first.handle(Elapsed("b"), 1.0)
    first.commit({}, 1.0)
    second = journal(reopen())
    second.handle(Resumed(4.0), 5.0)
    second.commit({}, 5.0)
    found = journal(reopen()).recovered
    assert found.timers == {"beat": 10.0, "probe": 7.0}
    assert list(found.tasks) == [2]


@pytest.mark.parametrize("every", [1, 2, 3, 100])
def test_the_node_comes_back_as_it_was(reopen: Callable[[], Store], every: int) -> None:
    events = [
        Started(),
        Elapsed("b"),
        Received("b", Note(1, ONE)),
        PeerDown("c", "silence"),
        Completed(1, ONE, 1),
        Stop("done"),
    ]
    node = Writer("a")
    for number, event in enumerate(events):
        node.handle(event, float(number))
        life = journal(reopen(), every)
        life.handle(event, float(number))
        life.commit({}, float(number))
    found = Writer("a")
    recovered = recover(found, reopen())
    assert found.state == node.state
    assert type(found.state.down) is set
    assert encode(state_of(found)) == encode(state_of(node))
    assert (recovered.events, recovered.finished) == (6, "done")
    assert len(reopen().contents().steps) == 6 % every


def test_large_events_bring_snapshots_sooner() -> None:
    """When the journal has grown to a mebibyte and to four snapshots; bytes are counted over restarts.

    Events and snapshots are 256 KiB and a little more, snapshots most: 4 events make a mebibyte, 5 make 4 snapshots.
    """
    store = MemoryStore("run", "a")
    lengths = []
    for number in range(1, 15):
        if number in (1, 3, 12):
            writer = Journal(Writer("a", size=1 << 15), store, every=100)
        writer.handle(Received("b", Note(number, Public(np.zeros(1 << 15)))), 0.0)
        writer.commit({}, 0.0)
        lengths.append(len(store.contents().steps))
    assert lengths == [1, 2, 3, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0]


def test_events_since_the_snapshot_are_counted_over_restarts() -> None:
    store = MemoryStore("run", "a")
    for number in range(5):
        writer = journal(store, every=3)
        writer.handle(Elapsed("b"), float(number))
        writer.commit({}, float(number))
    assert (store.contents().before, len(store.contents().steps)) == (3, 2)


def test_a_refused_message_leaves_no_step() -> None:
    class Stranger(Writer):
        @on(Note)
        def hear(self, sender: str, note: Note, now: float) -> Effects:
            raise PeerError(f"{self.name} wants no notes")

    store = MemoryStore("run", "a")
    writer = Journal(Stranger("a"), store)
    with pytest.raises(PeerError):
        writer.handle(Received("b", Note(1, ONE)), 0.0)
    writer.commit({}, 0.0)
    assert store.contents() == Contents()


def test_a_node_that_answers_otherwise_is_refused(reopen: Callable[[], Store]) -> None:
    """By the least bit of a vector in its effects, though its state has the same shape."""
    writer = journal(reopen())
    for now in (1.0, 2.0):
        writer.handle(Elapsed("b"), now)
    writer.commit({}, 2.0)
    other = Writer("a", factor=0.5 + 2**-40)
    with pytest.raises(StorageError, match="a answers event 2 of its journal otherwise than it did; restart it with"):
        recover(other, reopen())
    writer = journal(reopen(), every=3)
    writer.handle(Elapsed("b"), 3.0)
    writer.commit({}, 3.0)
    writer.handle(Elapsed("b"), 4.0)
    writer.commit({}, 4.0)
    with pytest.raises(StorageError, match="answers event 4 of"):  # the first after the snapshot
        recover(other, reopen())
    recover(Writer("a"), reopen())


@pytest.mark.parametrize(
    "change",
    [
        Change((b"\xff",)),
        Change((encode((1.0, Started())),)),
        Change((encode(1),)),
        Change(snapshot=encode({"w": 1})),
        Change(snapshot=encode(5)),
        Change(entries={("what", encode("x")): encode(1)}),
        Change(entries={("what", encode(None)): encode(1)}),
        Change(entries={("outbox", encode(("b", 1))): encode(1)}),
    ],
)
def test_what_no_journal_writes_is_one_clear_line(change: Change) -> None:
    store = MemoryStore("run", "a")
    store.stage(change)
    store.commit()
    with pytest.raises(StorageError, match="the store of a in run holds what this version of gossamer cannot read"):
        recover(Writer("a"), store)


def test_what_a_runtime_keeps_comes_back(reopen: Callable[[], Store]) -> None:
    writer = journal(reopen())
    writer.keep("record", (6, ONE))
    writer.keep("other", 1)
    writer.keep("other", 2)
    writer.keep("record", (7, ONE))
    writer.commit({}, 3.0)
    kept = journal(reopen()).recovered.kept
    assert list(kept.items()) == [("other", 2), ("record", (7, ONE))]  # as they were kept last


def test_a_release_is_an_open_task() -> None:
    class Server(Writer):
        def compute(self) -> Any:
            yield Release(0, self.state.w)

    store = MemoryStore("run", "a")
    writer = Journal(Server("a"), store)
    writer.handle(Started(), 0.0)
    writer.commit({}, 0.0)
    assert Journal(Server("a"), store).recovered.tasks == {0: Release(0, Public(np.zeros(3)))}


# Sessions


class Party:
    """A session beside a journal, turn by turn."""

    def __init__(self, store: Store) -> None:
        self.journal = journal(store)
        self.session = Session.restore("a", SETTINGS, self.journal.recovered.links)

    def send(self, to: str, now: float) -> None:
        (effect,) = self.journal.handle(Elapsed(to), now)
        assert isinstance(effect, Send)
        self.session.send(effect.to, effect.message, now)

    def commit(self, now: float) -> None:
        self.journal.commit(self.session.state(), now)


def test_a_session_comes_back_as_it_was(reopen: Callable[[], Store]) -> None:
    """With 40 messages on their way, some acknowledged, and some of the peer that came too early."""
    party = Party(reopen())
    for number in range(40):
        party.send("b", float(number))
        party.commit(float(number))
    party.session.receive("b", Acknowledge(2, 0b101), 40.0)
    party.session.receive("b", Data(2, 0, 3, Note(2, ONE)), 41.0)
    party.session.receive("c", Data(3, 0, 0, Note(3, ONE)), 42.0)
    party.send("c", 43.0)
    party.commit(43.0)
    expected = party.session.state()
    assert set(expected["b"].outbox) == {4, *range(6, 41)}
    found = Party(reopen())
    assert found.session.state() == expected
    assert list(found.session.state()["b"].outbox) == sorted(expected["b"].outbox)
    # Turn by turn it goes on from there.
    found.session.receive("b", Acknowledge(20), 44.0)
    found.session.receive("b", Data(1, 0, 20, Note(1, ONE)), 44.0)
    found.commit(44.0)
    assert Party(reopen()).session.state() == found.session.state()


def test_acknowledgements_alone_cost_no_transaction() -> None:
    store = MemoryStore("run", "a")
    party = Party(store)
    for number in range(3):
        party.send("b", float(number))
    party.commit(2.0)
    before = store.contents()
    party.session.receive("b", Acknowledge(2), 3.0)
    party.commit(3.0)
    assert store.contents() == before
    party.send("b", 4.0)  # the next transaction has it
    party.commit(4.0)
    assert Party(store).session.state() == party.session.state()
    assert [decode(key) for kind, key in store.contents().entries if kind == "outbox"] == [("b", 3), ("b", 4)]


def test_what_is_half_way_in_chunks_is_not_stored() -> None:
    """A chunk costs no transaction, and an entry of a link stays small."""
    chunks = replace(SETTINGS, largest_frame=CHUNK_OVERHEAD + 12, largest_message=1000)
    sender = Session("b", chunks)
    frames = [output.frame for output in sender.send("a", Note(1, ONE), 0.0) if isinstance(output, Transmit)]
    assert len(frames) > 3
    store = MemoryStore("run", "a")
    party = Party(store)
    party.session = Session("a", chunks)
    party.send("b", 1.0)
    party.session.receive("b", frames[0], 1.0)
    party.commit(1.0)
    before = store.contents()
    for frame in frames[1:-1]:
        party.session.receive("b", frame, 1.5)
        party.commit(1.5)
    link = party.session.state()["b"]
    assert link.incoming is not None
    assert link.outgoing is not None
    assert store.contents() == before
    assert Party(store).journal.recovered.links["b"] == replace(link, incoming=None, outgoing=None)
    party.session.receive("b", frames[-1], 3.0)  # the message is there
    party.commit(3.0)
    assert Party(store).journal.recovered.links["b"].delivered == 1


def test_whatever_a_peer_would_miss_is_a_transaction() -> None:
    """A message that came, in its turn or early, and a number that was put on the link."""
    store = MemoryStore("run", "a")
    party = Party(store)
    for frame in (Data(2, 0, 0, Note(2, ONE)), Data(3, 0, 0, Note(3, ONE)), Data(1, 0, 0, Note(1, ONE))):
        party.session.receive("b", frame, 1.0)
        party.commit(1.0)
        assert Party(store).session.state() == party.session.state()
    for _ in range(40):  # more than a window
        party.send("b", 2.0)
    party.commit(2.0)
    party.session.receive("b", Acknowledge(1), 3.0)  # another number may go
    party.commit(3.0)
    assert Party(store).session.state()["b"].transmitted == 33 == party.session.state()["b"].transmitted


def test_links_that_did_not_change_are_not_written_again() -> None:
    store = MemoryStore("run", "a")
    party = Party(store)
    party.send("b", 1.0)
    party.send("c", 1.0)
    party.commit(1.0)
    party.send("b", 2.0)
    party.journal.stage(party.session.state(), 2.0)
    (change,) = store._staged
    assert {(kind, decode(key)) for kind, key in change.entries} == {
        ("clock", None),
        ("link", "b"),
        ("outbox", ("b", 2)),
    }
    store.commit()
    for number in (1, 2):  # what is gone, is gone once
        party.session.receive("b", Acknowledge(number), 3.0)
        party.send("b", 3.0)
        party.journal.stage(party.session.state(), 3.0)
        (change,) = store._staged
        assert [decode(key) for (_, key), value in change.entries.items() if value is None] == [("b", number)]
        store.commit()


def test_an_answer_to_what_was_asked_in_the_same_turn_leaves_nothing_open() -> None:
    store = MemoryStore("run", "a")
    writer = journal(store)
    writer.handle(Started(), 0.0)
    writer.handle(Refused(1, 0), 0.0)
    writer.commit({}, 0.0)
    assert journal(store).recovered.tasks == {}


def test_a_bare_journal_of_inputs(reopen: Callable[[], Store]) -> None:
    inputs = Inputs(reopen())
    assert inputs.load() == (None, [])
    inputs.append(b"1")
    inputs.append(b"2")
    inputs.commit()
    assert Inputs(reopen()).load() == (None, [b"1", b"2"])
    inputs = Inputs(reopen())
    inputs.append(b"lost")
    inputs = Inputs(reopen())
    inputs.snapshot(b"both")
    inputs.commit()
    inputs = Inputs(reopen())
    inputs.append(b"3")
    inputs.commit()
    assert Inputs(reopen()).load() == (b"both", [b"3"])
    inputs = Inputs(reopen())
    fill(inputs.store)
    inputs.append(b"4" * 100_000)
    with pytest.raises(StorageError, match="disk is full"):
        inputs.commit()
    assert Inputs(reopen()).load() == (b"both", [b"3"])


def test_a_link_that_is_left_out_stays_as_it_was() -> None:
    store = MemoryStore("run", "a")
    party = Party(store)
    party.send("b", 1.0)
    party.send("c", 1.0)
    links = party.session.state()
    party.journal.commit({"b": links["b"]}, 1.0)
    assert set(Party(store).session.state()) == {"b"}
    party.journal.commit({"c": links["c"]}, 1.0)
    assert Party(store).session.state() == links
