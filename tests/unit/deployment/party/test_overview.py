"""What a node tells those who watch its federation, and whom it tells nothing."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.reference.linked_peers import RUN, SETTINGS, Linked, identity, member

from gossamer.deployment.overview.watch import judged
from gossamer.deployment.party import overview
from gossamer.deployment.party.health import problems
from gossamer.deployment.party.overview import OVERVIEW, TOLD, Overview, digest_of, told_of
from gossamer.deployment.peers.digest import LARGEST_DIGEST, Digest
from gossamer.deployment.peers.peers import Peers, decode_content, encode_content
from gossamer.deployment.peers.standing import PeerState
from gossamer.errors import CallerError, MalformedMessage
from gossamer.keys.invitations import WATCHER, Member

NOW = 1.7e9
WATCHING = Member(WATCHER, WATCHER, identity(WATCHER).public_key)


def status(**changed: Any) -> dict[str, Any]:
    peer = {"state": "up", "seconds": 3.0, "finished": None, "dropped": {}, "receipts": None, "version": "1"}
    return {
        **{"node": "a", "role": "edge", "version": "1", "run": RUN, "broker": "mqtt://x:1", "algorithm": "audp"},
        **{"state": "running", "since": NOW - 100, "pid": 7, "expires": {}, "needs": [], "connected": True},
        **{"broker_says": None, "peers": {"b": peer}, "forgotten": [], "written": NOW, "alone": None, "holds": False},
        **{"unacknowledged": {}, "finished": None, "seconds": 99.0, "updates": 12, "releases": 12},
        **{"planned_releases": 30, "datagrams": {"sent": 1, "received": 2}, "messages_rejected": 0, "stalled": None},
        **{"rounds": None, "policy": {"epsilon": 4.0, "epsilon_charged": 1.0, "share_charged": 0.25}},
        **changed,
    }


def invited(allowed: bool = True, *watchers: Member) -> Any:
    me = member("a")
    invitation = SimpleNamespace(run=RUN, me=me, watchers=watchers or (WATCHING,))
    return SimpleNamespace(
        identity=identity("a"), policy=SimpleNamespace(overview=allowed), agreed=SimpleNamespace(invitation=invitation)
    )


def told(said: dict[str, Any], why: str = "") -> dict[str, Any]:
    return digest_of(said, NOW, why).status()


def texts(said: dict[str, Any], why: str = "") -> list[str]:
    """What who watches says of it."""
    peer = PeerState("up", 0.0, True, "", {}, digest=digest_of(said, NOW, why))
    return [one["text"] for one in judged({"a": peer}, RUN, NOW)["a"]["problems"]]


def test_a_digest_has_the_state_the_plan_the_peers_and_the_problems() -> None:
    late = {"b": {"seconds": 21.0, "why": "not allowed"}}
    assert told(status(unacknowledged=late)) == {
        **{"version": "1", "time": NOW, "state": "running", "since": NOW - 100, "why": "", "connected": True},
        **{"updates": 12, "releases": 12, "planned_releases": 30, "peers": {"b": {"state": "up"}}},
        "unacknowledged": late,
    }


def test_why_it_had_no_broker_is_over_once_that_is_heard() -> None:
    """A digest that was made without a connection comes over the next one: the broker was only started anew."""
    assert texts(status(connected=False, broker_says="it ended: server shutting down")) == []
    (text,) = texts(status(broker_says="not acknowledged: the broker has confirmed nothing"))
    assert "lost on the way" in text


def changed_at_random(draw: random.Random, value: Any) -> Any:
    """A value that a run on other data may have had."""
    return draw.choice([None, draw.random(), draw.randrange(10**6), f"row {draw.random()}", {"loss": draw.random()}])


def test_a_digest_is_a_function_of_what_may_be_told() -> None:
    """2,000 pairs of statuses that have the same of `TOLD`, and differ in all else: the same bytes.

    No key of `TOLD` holds a figure of the data: they are states, counts, times of messages and papers.
    """
    draw = random.Random(1)
    private = [key for key in status() if key not in TOLD]
    assert {"policy", "seconds", "datagrams"} <= set(private)
    for _ in range(2000):
        same = {"updates": draw.randrange(100), "releases": draw.randrange(100), "alone": draw.choice([None, 40.0])}
        one, other = (
            status(**same, why=draw.random(), loss=draw.random())
            | {key: changed_at_random(draw, value) for key, value in status().items() if key in private}
            for _ in range(2)
        )
        assert one != other
        assert encode_content(digest_of(one, NOW)) == encode_content(digest_of(other, NOW))


def test_that_would_show_a_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    """The budget is the owner's business: with it among what is told, digests of two owners differ."""
    monkeypatch.setattr(overview, "TOLD", (*TOLD, "policy"))
    spent = {"epsilon": 4.0, "epsilon_charged": 3.9, "share_charged": 0.97}
    assert digest_of(status(policy=spent), NOW) != digest_of(status(), NOW)
    assert problems(status(policy=spent, process=1), NOW)


def test_when_it_got_on_last_is_told_to_the_minute() -> None:
    """A pause begins when a computation ends."""
    found = set()
    for since in (NOW - 621.3, NOW - 635.0, NOW - 655.9):
        stalled = {"since": since, "seconds": NOW - since, "waits_for": ["b"]}
        found |= set(texts(status(stalled=stalled)))
    assert len(found) == 1
    assert "waits for b" in found.pop()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (CallerError("row 7 has 3.25 where a number from 0 to 1 is"), "its own log says why"),
        (CallerError("/srv/mary/state/store.sqlite could not grow: the disk is full; nothing"), "the disk is full"),
        (OSError(28, "No space left on device", "/srv/mary/state"), "No space left on device"),
    ],
)
def test_an_error_is_told_in_a_few_phrases_alone(error: Exception, words: str) -> None:
    assert told_of(error) == words
    assert texts(status(state="failed"), told_of(error)) == [f"failed: {words}"]


@pytest.mark.parametrize(
    "packed",
    [
        *(b"", b"no digest", zlib.compress(b"{}"), zlib.compress(b"[1]"), zlib.compress(b'{"state": 1}')),
        *(zlib.compress(b"[" * 9999), zlib.compress(b'{"state": "up", "since": NaN}')),
        zlib.compress(b'{"state": "' + bytes(1 << 20)),
    ],
)
def test_a_digest_that_is_none_is_refused(packed: bytes) -> None:
    with pytest.raises(ValueError, match=r"expect|Expecting|Unterminated|control"):
        Digest(packed).status()


def test_a_digest_has_a_limit_and_directs_no_terminal() -> None:
    with pytest.raises(MalformedMessage, match="at most 3072 bytes"):
        decode_content(
            encode_content(Digest(b"x")).replace(b"\x01\x00\x00\x00x", b"\x01\x0c\x00\x00" + bytes(3073)), 5000
        )
    assert Digest.of({"state": "up\x1b[2J", "peers": {"\n": {"state": "\x07"}}, "new": 1}).status() == {
        "state": "up?[2J",
        "peers": {"?": {"state": "?"}},
    }
    long = Digest.of({"state": "x" * 10**4, "needs": ["b"] * 10**4}).status()
    assert (len(long["state"]), len(long["needs"])) == (300, 64)


def test_of_a_status_that_is_too_long_the_state_the_version_and_numbers_are_told() -> None:
    """Who watches takes that for what it is: a node with many peers is not one of another version."""
    draw = random.Random(2)
    peers = {f"{draw.random()}": status()["peers"]["b"] for _ in range(1000)}
    digest = digest_of(status(peers=peers), NOW)
    assert len(digest.packed) <= LARGEST_DIGEST
    said = digest.status()
    assert (said["state"], said["version"], said["updates"], said.get("peers")) == ("running", "1", 12, None)
    found = judged({"a": PeerState("up", 0.0, True, "", {}, digest=digest)}, RUN, NOW)["a"]
    assert (found["level"], found["updates"]) == ("ok", 12)


class Watched(Linked):
    """Node ``a`` and who watches it."""

    def __init__(self, key: str = WATCHER, *, allowed: bool = True, of: Callable[[], Any] = status) -> None:
        super().__init__("a")
        self.overview = Overview(invited(allowed), of, 0.0, lambda line: None)
        members = [member("a")]
        self.watch = Peers(identity(key), RUN, WATCHER, members, OVERVIEW, 0.0, contacts=["a"])
        self.bytes = {"a": 0, WATCHER: 0}

    def pass_time(self, seconds: float) -> None:
        for _ in range(round(seconds)):
            self.now += 1.0
            self.deliver_all(WATCHER, self.watch.wake(self.now))
            self.deliver_all("a", self.overview.wake(self.now))

    def deliver_all(self, sender: str, datagrams: Any) -> None:
        for _, datagram in datagrams:
            self.bytes[sender] += len(datagram)
            self.carried.append((sender, "", datagram))
            there: Any = self.overview if sender == WATCHER else self.watch
            _, answers = there.open(sender, datagram, self.now)
            self.deliver_all("a" if sender == WATCHER else WATCHER, answers)

    @property
    def digest(self) -> dict[str, Any] | None:
        digest = self.watch.states(self.now)["a"].digest
        return None if digest is None else digest.status()


def test_who_watches_hears_a_digest_at_once_and_what_is_news() -> None:
    said = status()
    there = Watched(of=lambda: said)
    there.pass_time(2)
    assert there.digest is not None
    assert there.digest["state"] == "running"
    said = status(state="lingering")
    there.pass_time(2)
    assert there.digest["state"] == "lingering"
    there.deliver_all("a", there.overview.ends("failed", "the disk is full", there.now))
    assert (there.digest["state"], there.digest["why"]) == ("failed", "the disk is full")


def test_the_next_who_watches_hears_it_at_once_too() -> None:
    there = Watched()
    there.pass_time(10)
    there.watch = Peers(identity(WATCHER), RUN, WATCHER, [member("a")], OVERVIEW, there.now, contacts=["a"])
    there.pass_time(2)
    assert there.digest is not None


def test_a_node_that_comes_back_calls_who_watches() -> None:
    """So that it has somebody to tell if it fails at once."""
    there = Watched()
    there.pass_time(5)
    there.overview = Overview(invited(), lambda: status(updates=99), there.now, lambda line: None)
    assert not there.overview.is_heard(there.now)
    there.deliver_all("a", there.overview.wake(there.now))
    assert there.overview.is_heard(there.now)
    there.deliver_all("a", there.overview.ends("failed", "not the newest state", there.now))
    assert there.digest is not None
    assert (there.digest["state"], there.digest["why"]) == ("failed", "not the newest state")


def test_who_asks_often_is_told_the_same_for_ten_seconds() -> None:
    """Or the second in which an update comes would show."""
    said = status()
    there = Watched(of=lambda: said)
    heard = []
    for updates in range(60):
        said = status(updates=updates)
        there.watch = Peers(identity(WATCHER), RUN, WATCHER, [member("a")], OVERVIEW, there.now, contacts=["a"])
        there.pass_time(1)
        heard += [] if there.digest is None else [there.digest.get("updates", 0)]
    assert len(heard) > 20
    assert len(set(heard)) <= 7


def test_digests_leave_by_the_clock_whenever_the_node_wakes() -> None:
    """A node wakes when a computation ends, and whoever watches must not see that."""
    there = Watched()
    for woken in (0.3, 0.9):
        there.overview._next_look = there.now
        there.overview.wake(there.now + woken)
        assert there.overview.deadline() <= there.now + 1.0
        assert there.overview._next_look == there.now + 1.0


def test_nobody_else_hears_anything() -> None:
    """A member without the key, and whoever calls a node whose owner forbids it."""
    for there in (Watched(key="b"), Watched(allowed=False)):
        there.pass_time(60)
        assert there.digest is None
        assert there.watch.states(there.now)["a"].state == "never heard"
    assert [sender for sender, *_ in there.carried if sender == "a"] == []


def test_forged_and_replayed_digests_are_counted_and_ignored() -> None:
    said = status()
    there = Watched(of=lambda: said)
    there.pass_time(3)
    old = [datagram for sender, _, datagram in there.carried if sender == "a"]
    said = status(state="stopped", updates=40)
    there.pass_time(2)
    assert there.digest is not None
    for datagram in old:
        there.deliver_all("a", [(WATCHER, datagram)])
    forged = bytearray(old[-1])
    forged[13] = 200  # a later counter
    there.deliver_all("a", [(WATCHER, bytes(forged))])
    assert (there.digest["state"], there.digest["updates"]) == ("stopped", 40)
    dropped = there.watch.states(there.now)["a"].dropped
    assert dropped["not authentic"] == 1
    assert dropped["repeated"] >= 1
    assert there.watch.states(there.now)["a"].state == "up"


def test_a_node_falls_silent_when_nobody_listens_any_longer() -> None:
    there = Watched()
    there.pass_time(5)
    before = there.bytes["a"]
    there.watch = Peers(identity("nobody"), RUN, WATCHER, [member("a")], SETTINGS, 0.0)
    there.pass_time(200)
    said = there.bytes["a"]
    assert said > before
    there.pass_time(600)
    assert there.bytes["a"] == said


def test_thirty_two_parties_take_less_than_a_kilobyte_a_second() -> None:
    """By what is published, both ways, after the handshakes: the bytes of one party in an hour, 32 times."""
    there = Watched()
    there.pass_time(10)
    there.bytes = {"a": 0, WATCHER: 0}
    there.pass_time(3000)
    assert 32 * sum(there.bytes.values()) / 3000 < 1000


def test_a_node_that_comes_late_is_heard_within_ten_seconds() -> None:
    there = Watched()
    for _ in range(600):  # calls that nobody answers
        there.now += 1.0
        there.watch.wake(there.now)
    there.pass_time(11)
    assert there.digest is not None
