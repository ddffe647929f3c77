"""Bundles carried by hand, a day late: what they hold opens once, and never if it is another's, changed or repeated."""

from __future__ import annotations

import os
import time
import tracemalloc
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fsspec", reason="needs the extra store")
pytest.importorskip("cryptography", reason="needs the extra secure")

from gossamer.deployment.channel.secure_channel import Reason
from gossamer.deployment.peers.peers import Peers, PeerSettings
from gossamer.errors import CallerError
from gossamer.keys.identity import Identity
from gossamer.keys.invitations import Member
from gossamer.protocol.messages import Acknowledge
from gossamer.protocol.transports import slowness
from gossamer.runtimes.object_store.bundle import pack, take
from gossamer.runtimes.object_store.transport import StoreTransport

DAY = 86_400.0
RUN = "run"
SLOW = slowness(f"file:///srv/run?delay={DAY:.0f}")
TIMES = PeerSettings(SLOW * 15, SLOW * 50, SLOW * 300, longest_hello=SLOW * 60)
KEYS = {name: Identity.of_seed(name.encode() * 32) for name in "abc"}
MEMBERS = [Member(name, "edge", key.public_key, None, 10) for name, key in KEYS.items()]


class Party:
    """One party with a folder of its own, whose clock goes by days."""

    def __init__(self, name: str, above: Path, run: str = RUN) -> None:
        self.name, self.run, self.folder, self.heard = name, run, above / name, list[tuple[str, object]]()
        self.folder.mkdir(parents=True)
        contacts = [member.name for member in MEMBERS if member.name in "ab" and member.name != name]
        self.peers = Peers(KEYS[name], run, name, MEMBERS, TIMES, 0.0, contacts=contacts)
        self.transport = StoreTransport(run, name, f"file://{self.folder}", poll=0.01, delay=DAY).open()

    def turn(self, now: float) -> None:
        """Take what lies in the folder, and say what is due."""
        due = self.peers.wake(now)
        while (came := self.transport.receive(0.15)) is not None:
            frames, answers = self.peers.open(came.sender, came.payload, now)
            self.heard += frames
            due += answers
        for to, datagram in due:
            self.transport.send(to, datagram)
        self.transport.flush(10.0)

    def pack(self, out: Path) -> Path:
        pack(self.folder, self.run, self.name, out)
        return out

    def take(self, bundle: Path) -> tuple[int, ...]:
        return tuple(take(self.folder, self.run, self.name, bundle).values())

    def lies(self, to: str) -> set[str]:
        return {path.name for path in (self.folder / "gossamer" / RUN / "to" / to / "from" / self.name).iterdir()}

    def dropped(self, of: str) -> dict[str, int]:
        return dict(self.peers.states(0.0)[of].dropped)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Party, Party]:
    """Two parties that have shaken hands over bundles, one a day each way."""
    a, b = Party("a", tmp_path), Party("b", tmp_path)
    for day in range(3):
        for one, other in ((a, b), (b, a)):
            one.turn(day * DAY)
            other.take(one.pack(tmp_path / f"{one.name}{day}.zip"))
    a.turn(3 * DAY)
    b.turn(3 * DAY)
    assert a.peers.states(3 * DAY)["b"].state == b.peers.states(3 * DAY)["a"].state == "up"
    return a, b


def say(one: Party, to: str, number: int, now: float) -> None:
    for name, datagram in one.peers.seal(to, Acknowledge(number, 0), now):
        one.transport.send(name, datagram)
    one.transport.flush(10.0)


def test_each_frame_comes_once_however_often_it_is_carried(pair: tuple[Party, Party], tmp_path: Path) -> None:
    a, b = pair
    say(a, "b", 7, 3 * DAY)
    bundle = a.pack(tmp_path / "first.zip")
    new, known, *rest = b.take(bundle)
    assert (new >= 1, rest) == (True, [0, 0])
    assert b.take(bundle) == (0, new + known, 0, 0)
    b.turn(4 * DAY)
    assert b.heard.count(("a", Acknowledge(7, 0))) == 1
    # The same again where it was forgotten, as by another folder: the seal refuses it, and counts.
    for path in (b.folder / "gossamer" / RUN / "to" / "b" / "from" / "a").iterdir():
        path.unlink()
    b.turn(4 * DAY)
    assert b.take(bundle)[0] == new + known
    b.turn(4 * DAY)
    assert b.heard.count(("a", Acknowledge(7, 0))) == 1
    assert b.dropped("a")[Reason.REPEATED.value] >= 1


def test_a_listing_that_shows_an_object_twice(pair: tuple[Party, Party], tmp_path: Path) -> None:
    """It was gone from a listing, and comes back in the next one: it is read again, and refused and counted."""
    a, b = pair
    say(a, "b", 7, 3 * DAY)
    b.take(a.pack(tmp_path / "first.zip"))
    b.turn(4 * DAY)
    before = b.dropped("a").get(Reason.REPEATED.value, 0)
    find, listings = b.transport._store.find, 0

    def doubling(path: str, **options: Any) -> Any:
        nonlocal listings
        listings += 1
        return {} if listings == 1 else find(path, **options)

    b.transport._store.find = doubling
    end = time.monotonic() + 10
    while b.dropped("a").get(Reason.REPEATED.value, 0) == before and time.monotonic() < end:
        b.turn(4 * DAY)
    assert b.dropped("a")[Reason.REPEATED.value] > before
    assert b.heard.count(("a", Acknowledge(7, 0))) == 1


def test_a_link_is_not_carried(tmp_path: Path) -> None:
    """Whoever writes to a folder that is shared could have a party's own files carried to others."""
    name = f"{'0' * 16}-{1:012d}-{'0' * 16}-{0:012d}"
    (tmp_path / "identity.key").write_bytes(b"secret")
    (keys := tmp_path / "keys").mkdir()
    (keys / name).write_bytes(b"secret")
    for to, target in (("b/from/a/" + name, tmp_path / "identity.key"), ("c/from/a", keys)):
        (link := tmp_path / "share" / "gossamer" / RUN / "to" / to).parent.mkdir(parents=True)
        link.symlink_to(target)
    os.mkfifo(tmp_path / "share" / "gossamer" / RUN / "to" / "b" / "from" / "a" / name.replace("1", "2"))
    assert pack(tmp_path / "share", RUN, "a", tmp_path / "x.zip") == {}
    assert zipfile.ZipFile(tmp_path / "x.zip").namelist() == []


def test_what_is_deleted_meanwhile_and_clocks_before_1980(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder := tmp_path / "gossamer" / RUN / "to" / "b" / "from" / "a").mkdir(parents=True)
    gone, there = (folder / f"{'0' * 16}-{number:012d}-{'0' * 16}-{0:012d}" for number in (1, 2))
    there.write_bytes(b"x")
    os.utime(there, (0, 0))
    monkeypatch.setattr(Path, "glob", lambda path, pattern: [gone, there])
    assert pack(tmp_path, RUN, "a", tmp_path / "x.zip") == {"b": 1}


def test_what_is_small_only_by_its_word(tmp_path: Path) -> None:
    """A bundle whose entries would be large once they are unpacked takes no memory."""
    name = f"gossamer/{RUN}/to/b/from/a/{'0' * 16}-{1:012d}-{'0' * 16}-{0:012d}"
    with zipfile.ZipFile(tmp_path / "x.zip", "w", zipfile.ZIP_DEFLATED) as bundle:
        bundle.writestr(name, bytes(64 << 20))
    content = bytearray((tmp_path / "x.zip").read_bytes())
    at = content.rfind(b"PK\x01\x02") + 24
    content[at : at + 4] = (1000).to_bytes(4, "little")
    (tmp_path / "x.zip").write_bytes(content)
    (tmp_path / "b").mkdir()
    tracemalloc.start()
    try:
        with pytest.raises(CallerError):
            take(tmp_path / "b", RUN, "b", tmp_path / "x.zip")
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_what_was_read_is_carried_no_more(pair: tuple[Party, Party], tmp_path: Path) -> None:
    a, b = pair
    say(a, "b", 7, 3 * DAY)
    b.take(a.pack(tmp_path / "there.zip"))
    b.turn(4 * DAY)
    before = a.lies("b")
    say(b, "a", 8, 4 * DAY)  # in the name of which it tells what it has read
    a.take(b.pack(tmp_path / "back.zip"))
    a.turn(5 * DAY)
    end = time.monotonic() + 10
    while before & a.lies("b") and time.monotonic() < end:
        time.sleep(0.01)
    assert not before & a.lies("b")
    say(a, "b", 9, 5 * DAY)
    b.take(a.pack(tmp_path / "later.zip"))
    there = {path.name for path in (b.folder / "gossamer" / RUN / "to" / "b" / "from" / "a").iterdir()}
    assert there == a.lies("b")  # what a deleted went here, too


def test_an_altered_bundle_is_refused_and_counted(pair: tuple[Party, Party], tmp_path: Path) -> None:
    a, b = pair
    say(a, "b", 7, 3 * DAY)
    with zipfile.ZipFile(a.pack(tmp_path / "good.zip")) as good, zipfile.ZipFile(tmp_path / "bad.zip", "w") as bad:
        last = max(good.namelist())
        content = bytearray(good.read(last))
        content[-1] ^= 1
        bad.writestr(last, bytes(content))
        bad.writestr(f"gossamer/{RUN}/to/b/from/a/../../../../../escaped", b"x")
        bad.writestr(f"gossamer/{RUN}/to/b/from/a/notes.txt", b"x")
        bad.writestr(last.replace("-0", "-1", 1), bytes((1 << 20) + 1))
    assert b.take(tmp_path / "bad.zip") == (1, 0, 1, 2)
    assert not list(tmp_path.rglob("escaped"))
    b.turn(4 * DAY)
    assert ("a", Acknowledge(7, 0)) not in b.heard
    assert b.dropped("a") == {Reason.NOT_AUTHENTIC.value: 1}


def test_a_file_that_is_no_bundle_is_not_lost(tmp_path: Path) -> None:
    (key := tmp_path / "identity.key").write_bytes(b"secret")
    for place in (key, tmp_path):
        with pytest.raises(CallerError, match=rf"found {place}; give another name"):
            pack(tmp_path, RUN, "a", place)
    assert key.read_bytes() == b"secret"
    for _ in range(2):
        pack(tmp_path, RUN, "a", tmp_path / "x.zip")


def test_whatever_is_damaged_is_said_in_one_line(tmp_path: Path) -> None:
    """Lengths of names that point past the end, and names of no text."""
    name = f"gossamer/{RUN}/to/b/from/a/{'0' * 16}-{1:012d}-{'0' * 16}-{0:012d}"
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as bundle:
        bundle.writestr(zipfile.ZipInfo(name), b"x")
    good = (tmp_path / "x.zip").read_bytes()
    entry = good.index(b"PK\x01\x02")
    for at, value in ((28, b"\xff\xff"), (entry + 9, b"\x08"), (entry + 20, b"\xff"), (7, b"\x08"), (18, b"\xff")):
        for letter in (b"\xff", name[:1].encode()):
            content = bytearray(good)
            content[at : at + len(value)] = value
            content[30:31] = content[entry + 46 : entry + 47] = letter
            (tmp_path / "x.zip").write_bytes(content)
            with suppress(CallerError):
                take(tmp_path, RUN, "b", tmp_path / "x.zip")


@pytest.mark.parametrize("damage", [lambda data: data[:-30], lambda data: b"", lambda data: b"PK" + data[::-1]])
def test_what_is_no_bundle(tmp_path: Path, damage: object) -> None:
    (tmp_path / "b").mkdir()
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as file:
        file.writestr("some", b"thing")
    (tmp_path / "x.zip").write_bytes(damage((tmp_path / "x.zip").read_bytes()))  # type: ignore[operator]
    with pytest.raises(CallerError, match=r"x\.zip: cannot be taken; mend that, or carry it again: "):
        take(tmp_path / "b", RUN, "b", tmp_path / "x.zip")


def test_bundles_of_others(pair: tuple[Party, Party], tmp_path: Path) -> None:
    a, b = pair
    say(a, "b", 7, 3 * DAY)
    bundle = a.pack(tmp_path / "for-b.zip")
    for run, name in (("other", "b"), (RUN, "c"), (RUN, "a")):
        with pytest.raises(CallerError, match=rf"for-b\.zip: \d+ objects, and none is for {name} of run {run}"):
            take(tmp_path / "nowhere", run, name, bundle)
    assert not (tmp_path / "nowhere").exists()
    # Under another sender's name it is put there, and the seal refuses it.
    with zipfile.ZipFile(bundle) as good, zipfile.ZipFile(tmp_path / "forged.zip", "w") as forged:
        last = max(good.namelist())
        forged.writestr(last.replace("from/a", "from/c"), good.read(last))
    assert b.take(tmp_path / "forged.zip") == (1, 0, 0, 0)
    b.turn(4 * DAY)
    assert ("c", Acknowledge(7, 0)) not in b.heard
    assert sum(b.dropped("c").values()) == 1


def test_one_that_is_damaged_on_its_way(pair: tuple[Party, Party], tmp_path: Path) -> None:
    a, b = pair
    say(a, "b", 7, 3 * DAY)
    bundle = a.pack(tmp_path / "x.zip")
    content = bytearray(bundle.read_bytes())
    content[200] ^= 1
    bundle.write_bytes(content)
    with pytest.raises(CallerError, match=r"x\.zip: cannot be taken; mend that, or carry it again: "):
        b.take(bundle)
