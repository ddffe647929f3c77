"""Datagrams over a folder and over a store in memory: once each, late, half, foreign; and what is deleted when."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("fsspec", reason="needs the extra store")

import fsspec

from gossamer.deployment.party.agreement import PartyOptions
from gossamer.deployment.party.party import connected
from gossamer.errors import SpecError
from gossamer.protocol.transports import BrokerUnreachable, TransportSettings, kind_of, slowness, times_of, with_times
from gossamer.runtimes.object_store.transport import StoreTransport, connection

SOON = 10.0
QUICK = {"poll": 0.02}
WRITES = ("pipe_file", "makedirs")  # what a bucket is asked to do for an object, and a folder
NOBODY = "0" * 16


@pytest.fixture(params=["folder", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "folder":
        yield f"file://{tmp_path}"
        return
    store = fsspec.filesystem("memory")
    store.store.clear()
    yield "memory://share"
    store.store.clear()


def until(condition: Callable[[], Any]) -> Any:
    """What a condition gives once it holds."""
    end = time.monotonic() + SOON
    while not (found := condition()) and time.monotonic() < end:
        time.sleep(0.005)
    assert found
    return found


def came(transport: StoreTransport, count: int) -> list[tuple[str, bytes]]:
    found = [transport.receive(SOON) for _ in range(count)]
    return [(one.sender, one.payload) for one in found if one is not None]


def objects(folder: Path, to: str, sender: str) -> list[str]:
    return sorted(path.name for path in (folder / "gossamer" / "run" / "to" / to / "from" / sender).glob("*"))


def test_each_comes_once_and_in_order(place: str) -> None:
    with StoreTransport("run", "a", place, **QUICK) as a, StoreTransport("run", "b", place, **QUICK) as b:
        for number in range(20):
            assert a.send("b", bytes([number]))
        b.send("a", b"from b")
        assert came(b, 20) == [("a", bytes([number])) for number in range(20)]
        assert came(a, 1) == [("b", b"from b")]
        assert b.receive(0.1) is None
        assert (a.counts["sent"], b.counts["received"], a.connected, a.refusal("c")) == (20, 20, True, "")


def test_runs_and_nodes_are_apart(place: str) -> None:
    with StoreTransport("other", "a", place, **QUICK) as a, StoreTransport("run", "b", place, **QUICK) as b:
        a.send("b", b"of another run")
        a.flush(SOON)
        assert b.receive(0.2) is None
        assert sum(b.counts[kind] for kind in b.counts if kind.startswith("dropped")) == 0


def test_what_was_read_is_deleted_by_its_writer_alone(tmp_path: Path) -> None:
    place = f"file://{tmp_path}"
    with StoreTransport("run", "a", place, **QUICK) as a, StoreTransport("run", "b", place, **QUICK) as b:
        a.send("b", b"1")
        a.send("b", b"2")
        came(b, 2)
        assert len(objects(tmp_path, "b", "a")) == 2  # b deletes nothing of a's
        assert "has not read 2 of what lies" in a.refusal("b")
        b.send("a", b"tells that it has read")
        came(a, 1)
        until(lambda: not objects(tmp_path, "b", "a"))
        assert a.refusal("b") == ""
        assert len(objects(tmp_path, "a", "b")) == 1


def test_what_nobody_reads_is_deleted_in_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with StoreTransport("run", "a", f"file://{tmp_path}", **QUICK) as a:
        a.send("b", b"1")
        until(lambda: objects(tmp_path, "b", "a"))
    with StoreTransport("run", "a", f"file://{tmp_path}", **QUICK) as a:  # another process finds it there
        a.send("b", b"2")
        until(lambda: len(objects(tmp_path, "b", "a")) == 2)
        a._kept = 0.0
        until(lambda: not objects(tmp_path, "b", "a"))


def test_foreign_objects_are_counted_and_left(tmp_path: Path) -> None:
    folder = tmp_path / "gossamer" / "run" / "to" / "b" / "from"
    name = f"{'0' * 16}-{1:012d}-{'0' * 16}-{0:012d}"
    for path in (folder / "a" / "notes.txt", folder / "a" / "deep" / name, folder / "-x" / name, folder / "loose"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    (folder / "c").mkdir()
    (folder / "c" / name).symlink_to("/dev/zero")
    os.mkfifo(folder / "c" / name.replace("1", "2"))
    (folder / "d").mkdir()
    (folder / "d" / name).write_bytes(bytes(101))
    (folder / "d" / f".{name}").write_bytes(b"half")
    limits = TransportSettings(largest_datagram=100)
    with StoreTransport("run", "b", f"file://{tmp_path}", limits, **QUICK) as b:
        assert until(lambda: b.counts["dropped_too_large"]) == 1
        assert b.receive(0.1) is None
        assert b.counts["dropped_stranger"] == 6
        (folder / "a" / name).write_bytes(b"and goes on")
        assert came(b, 1) == [("a", b"and goes on")]
        assert (b.counts["dropped_stranger"], b.counts["dropped_too_large"]) == (6, 1)  # each once


def test_one_that_writes_much_does_not_keep_others_waiting(tmp_path: Path) -> None:
    folder = tmp_path / "gossamer" / "run" / "to" / "b" / "from"
    for sender, count in (("a", 50), ("c", 1)):
        (folder / sender).mkdir(parents=True)
        for number in range(count):
            (folder / sender / f"{'0' * 16}-{number:012d}-{'0' * 16}-{0:012d}").write_bytes(bytes(10))
    # room for three at a time: what else there is stays in the store until it is wanted
    with StoreTransport("run", "b", f"file://{tmp_path}", TransportSettings(most_incoming=3 * 522), **QUICK) as b:
        until(lambda: len(b._inbox._items) == 3)
        assert "c" in [sender for sender, _ in came(b, 3)]
        assert len(came(b, 48)) == 48
        assert b.receive(0.1) is None


def name_of(number: int, process: str = NOBODY) -> str:
    return f"{process}-{number:012d}-{NOBODY}-{0:012d}"


def linked(share: Path, place: str, target: Path) -> None:
    """A link that somebody else has put into the share, to what is none of its business."""
    target.mkdir()
    (target / "precious").write_text("kept")
    (link := share / "gossamer" / "run" / "to" / place).parent.mkdir(parents=True)
    link.symlink_to(target)


def test_nothing_is_written_or_deleted_through_a_link(tmp_path: Path) -> None:
    (share := tmp_path / "share").mkdir()
    linked(share, "b/from/a", tmp_path / "home")
    with StoreTransport("run", "a", f"file://{share}", **QUICK) as a:
        a._kept = 0.0
        a.send("b", b"1")
        until(lambda: not a.connected)
        assert f"a link in {share}/gossamer/run/to/b/from/a leads to {tmp_path}/home; delete the link" in a.reason
        time.sleep(0.1)
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["precious"]


def test_no_link_is_listed(tmp_path: Path) -> None:
    (share := tmp_path / "share").mkdir()
    linked(share, "b/from", tmp_path / "home")
    with pytest.raises(BrokerUnreachable, match=r"a link in .*/to/b/from/b leads to .*/home/b; delete the link$"):
        StoreTransport("run", "b", f"file://{share}", **QUICK).open()
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["precious"]


def test_a_store_that_is_reached_by_a_link(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "share").symlink_to(tmp_path / "there")
    place = f"file://{tmp_path}/share"
    with StoreTransport("run", "a", place, **QUICK) as a, StoreTransport("run", "b", place, **QUICK) as b:
        a.send("b", b"1")
        assert came(b, 1) == [("a", b"1")]


def test_files_that_are_no_objects_are_not_deleted(tmp_path: Path) -> None:
    folder = tmp_path / "gossamer" / "run" / "to" / "b" / "from" / "a"
    folder.mkdir(parents=True)
    for name in ("notes.txt", name_of(1), f".{name_of(2)}.new"):
        (folder / name).write_bytes(b"x")
    with StoreTransport("run", "a", f"file://{tmp_path}", **QUICK) as a:
        a._kept = 0.0
        a.send("b", b"1")
        until(lambda: objects(tmp_path, "b", "a") == ["notes.txt"] and not list(folder.glob(".*")))


def test_a_full_disk_is_not_filled_further(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gossamer.runtimes.object_store.transport._AGAIN", 0.01)
    with StoreTransport("run", "a", f"file://{tmp_path}", **QUICK) as a:
        with monkeypatch.context() as full:

            def no_room(*_: object) -> None:
                raise OSError(28, "No space left on device")

            full.setattr(os, "replace", no_room)
            full.setattr(os, "rename", no_room)
            a.send("b", b"1")
            until(lambda: a._number >= 5)
        until(lambda: a.counts["sent"])
        assert len(objects(tmp_path, "b", "a")) == 1


def test_a_flood_does_not_keep_a_node_from_writing(tmp_path: Path) -> None:
    """What one party writes, were it much more than can be read in a poll, delays nothing by more than that."""
    place, count = f"file://{tmp_path}", 500
    folder = tmp_path / "gossamer" / "run" / "to" / "b" / "from" / "a"
    folder.mkdir(parents=True)
    for number in range(count):
        (folder / name_of(number)).write_bytes(b"x")
    b = StoreTransport("run", "b", place, **QUICK)
    slow, read = Flawed(b._store), list[str]()

    def cat_file(path: str, **options: Any) -> Any:
        read.append(path)
        time.sleep(0.0 if path.endswith("here") else 0.01)
        return fsspec.filesystem("file").cat_file(path, **options)

    slow.cat_file = cat_file  # type: ignore[attr-defined]
    b._store = slow
    b.send("c", b"1")
    with b:
        until(lambda: b.counts["sent"])
        assert len(read) < count / 4


class Flawed:
    """A store that fails as it is told, and lists late and less."""

    def __init__(self, store: Any) -> None:
        self._store, self.fails, self.hides = store, {}, []

    def __getattr__(self, name: str) -> Any:
        if name in self.fails:
            raise self.fails[name]
        return getattr(self._store, name)

    def find(self, path: str, **options: Any) -> Any:
        found = self._store.find(path, **options)
        hidden = self.hides.pop(0) if self.hides and found else ()
        rank = dict(enumerate(sorted(found)))
        return {path: found[path] for at, path in rank.items() if at not in hidden} if options else found


def test_listings_that_lose_and_come_late(place: str) -> None:
    a, b = StoreTransport("run", "a", place, **QUICK), StoreTransport("run", "b", place, **QUICK)
    flawed = b._store = Flawed(b._store)
    with a:
        for number in range(5):
            a.send("b", bytes([number]))
        a.flush(SOON)
        flawed.hides = [(0, 1, 2, 3, 4), (1, 3), (0, 2), (0, 1, 2, 3, 4)]
        with b:
            found = [payload[0] for _, payload in came(b, 5)]
            assert sorted(set(found)) == [0, 1, 2, 3, 4]


def test_what_is_listed_again_comes_again(place: str) -> None:
    """An object that no listing had for a while is new to a transport; the seal refuses it (`test_bundle`)."""
    a, b = StoreTransport("run", "a", place, **QUICK), StoreTransport("run", "b", place, **QUICK)
    flawed = b._store = Flawed(b._store)
    with a, b:
        a.send("b", b"1")
        assert came(b, 1) == [("a", b"1")]
        assert b.receive(0.1) is None  # however often it is listed
        flawed.hides = [(0,)]
        assert came(b, 1) == [("a", b"1")]
        assert b.receive(0.1) is None


def test_a_full_store_loses_nothing(place: str) -> None:
    a = StoreTransport("run", "a", place, **QUICK)
    flawed = a._store = Flawed(a._store)
    with a, StoreTransport("run", "b", place, **QUICK) as b:
        flawed.fails = dict.fromkeys(WRITES, OSError(28, "No space left on device"))
        a.send("b", b"waits")
        until(lambda: not a.connected)
        assert "No space left on device" in a.reason
        assert "does not do what it is asked" in a.refusal("b")
        b.send("a", b"is read all the same")
        assert came(a, 1) == [("b", b"is read all the same")]
        flawed.fails = {}
        assert came(b, 1) == [("a", b"waits")]
        until(lambda: a.connected)
        assert a.counts["disconnected"] == 1


def test_what_there_is_no_room_for_is_dropped_and_counted(tmp_path: Path) -> None:
    a = StoreTransport("run", "a", f"file://{tmp_path}", TransportSettings(most_outgoing=1100, largest_datagram=40))
    assert [a.send("b", bytes(30)) for _ in range(3)] == [True, True, False]
    assert a.counts["dropped_outgoing"] == 1
    with pytest.raises(SpecError, match="at most 40 bytes, found 41"):
        a.send("b", bytes(41))


def test_a_share_that_is_not_there(tmp_path: Path) -> None:
    """It is not made: where nothing is mounted, that would hide it."""
    with pytest.raises(BrokerUnreachable, match=r"a cannot use the store .*there is no folder .*is the share mounted"):
        StoreTransport("run", "a", f"file://{tmp_path}/share").open()
    assert not (tmp_path / "share").exists()


def test_a_store_without_permission(place: str) -> None:
    for error in (PermissionError(13, "Permission denied", "x"), OSError(30, "Read-only file system", "x")):
        a = StoreTransport("run", "a", place)
        a._store = flawed = Flawed(a._store)
        flawed.fails = dict.fromkeys(WRITES, error)
        wanted = rf"{error.strerror}.*may a read there, and make folders and write below .*/to/\*/from/a/\?"
        with pytest.raises(BrokerUnreachable, match=wanted):
            a.open()


def test_a_store_that_does_not_answer_in_time(place: str) -> None:
    said: list[str] = []
    a = StoreTransport("run", "a", place, TransportSettings(connect_timeout=0.3), said.append)
    a._store = flawed = Flawed(a._store)
    flawed.fails = dict.fromkeys(WRITES, OSError("it is slow today"))
    with pytest.raises(BrokerUnreachable, match="it is slow today"):
        a.open()
    assert said == [f"the store {place} does not answer yet (it is slow today); goes on trying"]


@pytest.mark.parametrize(
    "address", ["file:///mnt/share", "file:///mnt/a b?poll=0.5&delay=86400", "s3://bucket", "s3://bucket/of/us?poll=30"]
)
def test_addresses(address: str) -> None:
    assert kind_of(address).module.endswith("object_store.transport")


@pytest.mark.parametrize(
    "address",
    [
        "file://mnt/share",
        "file:///",
        "/mnt/share",
        "file:///a?often=1",
        "file:///a?poll=x",
        "s3://B",
        "s3://key@bucket/x",
    ],
)
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(SpecError, match="expected a broker such as mqtts://"):
        kind_of(address)


def test_times_of_addresses() -> None:
    found = {"mqtts://b:1": (0, 0), "file:///a": (1, 0), "s3://bucket": (5, 0), "file:///a?poll=30&delay=60": (30, 60)}
    assert {address: times_of(address) for address in found} == found
    assert [slowness(address) for address in found] == [1.0, 1.0, 1.0, 12.0]


@pytest.mark.parametrize(
    ("own", "found"),
    [
        ("file:///here", "file:///here?poll=30&delay=86400"),
        ("file:///here?poll=2", "file:///here?poll=2&delay=86400"),
        ("s3://ours/run?delay=7", "s3://ours/run?poll=30&delay=7"),
        ("mqtts://b:1", "mqtts://b:1"),
    ],
)
def test_a_partys_own_place_has_the_times_that_were_agreed(own: str, found: str) -> None:
    """Or else its objects would be deleted after a day, on their way to the others."""
    assert with_times(own, "file:///srv/run?poll=30&delay=86400") == found
    assert with_times("file:///here", "mqtt://b:1") == "file:///here"


def test_a_node_elsewhere_waits_as_was_agreed(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    options: Any = PartyOptions(tmp_path / "x", broker=f"file://{tmp_path}/here")
    invitation: Any = SimpleNamespace(broker="file:///there?delay=86400", run="run", me=SimpleNamespace(name="a"))
    folder: Any = SimpleNamespace(warn=print, say=print)
    reporter: Any = SimpleNamespace(connects=lambda *_: None)
    made: Any = connected(options, invitation, folder, reporter)
    made.close()
    assert (made.place, made._kept) == (f"file://{tmp_path}/here", 86_400 * 11)


def test_connections_are_made_by_address(tmp_path: Path) -> None:
    made = connection(f"file://{tmp_path}?poll=7", "run", "a", tmp_path, tmp_path, TransportSettings(), print)
    assert (made.poll, made.place) == (7.0, f"file://{tmp_path}")
