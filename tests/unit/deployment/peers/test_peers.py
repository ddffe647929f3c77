"""What a party does with its peers: whom it hears, what it drops, and who is put in quarantine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.reference.linked_peers import RUN, SETTINGS, Linked, identity, member

from gossamer.deployment.channel.secure_channel import OVERHEAD, SecureChannel
from gossamer.deployment.peers.digest import Digest
from gossamer.deployment.peers.peers import (
    LARGEST_NOTE,
    Heartbeat,
    LinkCounters,
    Peers,
    PeerSettings,
    decode_content,
    encode_content,
)
from gossamer.deployment.peers.standing import REHEARSES, SparseLog, Standing
from gossamer.errors import CallerError, MalformedMessage, SpecError
from gossamer.protocol.encoding import encode
from gossamer.protocol.messages import Acknowledge, ChunkFrame, decode_frame, encode_frame
from gossamer.version import __version__

FRAME = Acknowledge(5, 6)
DATAGRAM_OVERHEAD = OVERHEAD + 1  # by how many bytes a datagram is longer than the frame in it


def joined() -> Linked:
    """Two parties with a session, who have heard each other."""
    pair = Linked("a", "b")
    pair.send("a", "b", FRAME), pair.send("b", "a", FRAME), pair.send("a", "b", FRAME)
    assert pair.arrived == {"a": [("b", FRAME)], "b": [("a", FRAME)]}
    pair.arrived = {"a": [], "b": []}
    return pair


def seal(pair: Linked, content: bytes, sender: str = "a", to: str = "b") -> list[tuple[str, bytes]]:
    """What only ``sender`` can have made."""
    channel = pair.peers[sender]._peers[to].channel
    assert channel is not None
    return [(to, datagram) for datagram in channel.seal(content)]


def offend(pair: Linked, times: int) -> None:
    for _ in range(times):
        pair.carry("a", seal(pair, b"\x00no frame"))


# Frames


def test_the_first_frame_asks_for_a_session_and_is_lost() -> None:
    pair = Linked("a", "b")
    pair.send("a", "b", FRAME)
    assert pair.arrived["b"] == []
    pair.send("a", "b", FRAME)
    pair.send("b", "a", Acknowledge(7))
    assert pair.arrived == {"a": [("b", Acknowledge(7))], "b": [("a", FRAME)]}


def test_a_session_is_a_sign_of_life_and_an_old_hello_is_none() -> None:
    pair = Linked("a", "b")
    pair.send("a", "b", FRAME)
    assert pair.arrived["b"] == []
    assert pair.state("a", "b") == pair.state("b", "a") == "up"
    hello = pair.carried[0][2]
    pair.away = {"a"}
    pair.wait(400.0)
    assert len(pair.peers["b"].open("a", hello, pair.now)[1]) == 1  # anybody can send it again
    assert pair.state("a", "b") == "gone"


def test_who_is_sent_a_frame_is_a_contact_at_once() -> None:
    pair = Linked("a", "b")
    pair.away = {"b"}
    pair.send("a", "b", FRAME)
    assert pair.peers["a"].states(0.0)["b"].contact
    pair.wait(10.0)
    assert len(pair.carried) == 3  # hellos, and no more frames


def test_sessions_are_renewed_by_the_clock() -> None:
    """Who reads a node's memory has the keys of the hour."""
    pair = joined()

    def sessions() -> set[bytes | None]:
        ends = (("a", "b"), ("b", "a"))
        return {channel.session for me, to in ends if (channel := pair.peers[me]._peers[to].channel) is not None}

    (first,) = sessions()
    pair.wait(3500.0)
    assert sessions() == {first}
    pair.wait(200.0)
    (second,) = sessions()
    assert second not in (None, first)
    pair.wait(3300.0)
    assert sessions() == {second}
    pair.send("a", "b", FRAME)
    pair.send("b", "a", FRAME)
    assert pair.arrived == {"a": [("b", FRAME)], "b": [("a", FRAME)]}
    assert pair.state("a", "b") == pair.state("b", "a") == "up"


def test_hellos_become_rare_and_after_an_answer_frequent_again() -> None:
    pair = Linked("a", "b")
    pair.start("a", contacts=["b"])

    def hellos(seconds: float) -> int:
        before = len(pair.carried)
        pair.wait(seconds)
        return sum(sender == "a" and datagram[4] == 1 for sender, _, datagram in pair.carried[before:])

    pair.away = {"b"}
    assert hellos(100.0) == 6  # at 0, 3, 9, 21, 45 and 93 seconds
    assert hellos(600.0) == 10
    pair.away = set()
    pair.wait(60.0)
    assert pair.state("b", "a") == "up"
    pair.away = {"b"}
    assert hellos(45.0) >= 3  # once it has been silent for 30 seconds


def test_frames_without_a_session_are_few_hellos() -> None:
    """However many there are: one now, and then after 3, 6, 12 ... seconds."""
    pair = Linked("a", "b")
    pair.away = {"b"}
    said = []
    for second in range(100):
        pair.now = float(second)
        sent = [datagram for _ in range(5) for datagram in pair.peers["a"].seal("b", FRAME, pair.now)]
        said += [second] * len(sent)
    assert said == [0, 3, 9, 21, 45, 93]


def test_a_channel_is_made_when_it_is_needed() -> None:
    drawn: list[int] = []

    def entropy(count: int) -> bytes:
        drawn.append(count)
        return bytes(count)

    members = [member(f"node-{i}") for i in range(100)]
    peers = Peers(identity("node-0"), RUN, "node-0", members, SETTINGS, 0.0, entropy=entropy, contacts=["node-1"])
    assert drawn == []
    peers.wake(0.0)
    peers.seal("node-2", FRAME, 0.0)
    assert drawn == [16, 32, 16, 32]
    assert len(peers.states(0.0)) == 99


def test_a_frame_of_the_largest_size_passes_and_a_longer_one_is_the_callers_mistake() -> None:
    pair = joined()
    overhead = len(encode_frame(ChunkFrame(1, 0, 0, 1, 1, 1, b"")))
    largest = ChunkFrame(1, 0, 0, 1, 1, 1, bytes(SETTINGS.largest - overhead))
    pair.send("a", "b", largest)
    assert pair.arrived["b"] == [("a", largest)]
    assert len(pair.carried[-1][2]) == SETTINGS.largest + DATAGRAM_OVERHEAD
    with pytest.raises(CallerError, match="cut it in chunks"):
        pair.send("a", "b", ChunkFrame(1, 0, 0, 1, 1, 1, bytes(SETTINGS.largest - overhead + 1)))


def test_no_one_but_members() -> None:
    pair = joined()
    for name in ("c", "a"):
        with pytest.raises(SpecError, match=f"expected one of the peers b, found '{name}'"):
            pair.peers["a"].seal(name, FRAME, 0.0)
    with pytest.raises(SpecError, match="found 'c'"):
        pair.start("a", contacts=["c"])


# What is dropped


def stranger(pair: Linked, **options: Any) -> bytes:
    """The hello of another process that calls itself a."""
    other = Linked("a", "b").start("a", **options)
    ((_, hello),) = other.seal("b", FRAME, 0.0)
    return hello


def changed(datagram: bytes) -> bytes:
    """The same with another last byte, whichever it was."""
    return datagram[:-1] + bytes([datagram[-1] ^ 1])


@pytest.mark.parametrize(
    ("datagram", "reason"),
    [
        (lambda pair: b"", "form"),
        (lambda pair: b"hello", "form"),
        (lambda pair: b"GSS\x02\x01" + bytes(119), "form"),
        (lambda pair: b"GSS\x01\x01" + bytes(120), "version"),
        (lambda pair: bytes(SETTINGS.largest + LARGEST_NOTE + DATAGRAM_OVERHEAD + 1), "size"),
        (lambda pair: stranger(pair, run="1" * 32), "another channel"),
        (lambda pair: stranger(pair, identity=identity("c")), "not authentic"),
        (lambda pair: changed(seal(pair, b"\x00")[-1][1]), "not authentic"),
        (lambda pair: pair.carried[-1][2], "repeated"),
        (lambda pair: pair.carried[1][2], "another channel"),
        (lambda pair: b"GSS\x02\x03" + bytes(40), "unknown session"),
        (lambda pair: seal(pair, b"")[-1][1], "malformed content"),
        (lambda pair: seal(pair, b"\x02")[-1][1], "malformed content"),
        (lambda pair: seal(pair, b"\x02" + encode_content(Heartbeat(1.0))[1:])[-1][1], "malformed content"),
        (lambda pair: seal(pair, b"\x00" + encode_frame(FRAME)[:-1])[-1][1], "malformed content"),
        (lambda pair: seal(pair, b"\x00GSM\x01" + encode(Heartbeat(1.0)))[-1][1], "malformed content"),
        (lambda pair: seal(pair, b"\x01" + encode_frame(FRAME))[-1][1], "malformed content"),
        (lambda pair: seal(pair, b"\x01GSM\x01" + encode((1, 2)))[-1][1], "malformed content"),
        (lambda pair: seal(pair, b"\x01GSM\x01" + encode("s" * 1500))[-1][1], "malformed content"),
    ],
)
def test_what_is_dropped_is_counted_and_named_once(datagram: Any, reason: str) -> None:
    pair = joined()
    made = datagram(pair)
    before, lines = pair.dropped("a", "b"), len(pair.lines["b"])
    for _ in range(3):
        assert pair.peers["b"].open("a", made, 1.0)[0] == []
    found = pair.dropped("a", "b")
    if reason == "malformed content":
        assert found == {**before, reason: 1, "repeated": 2}
    else:
        assert found == {**before, reason: before.get(reason, 0) + 3}
    about = [line for line in pair.lines["b"][lines:] if reason in line]
    assert len(about) == 1
    assert about[0].startswith(f"dropped from a, {reason}: ")
    assert "\n" not in about[0]
    pair.send("a", "b", FRAME)
    assert pair.arrived["b"] == [("a", FRAME)]


def test_strangers_are_counted_together() -> None:
    """As many as like to come, with names of any length."""
    pair = Linked("a", "b")
    for i in range(1000):
        assert pair.peers["b"].open(f"stranger-{i}" * 50 + "\n", b"x", 0.0) == ([], [])
    assert pair.peers["b"].open("b", b"x", 0.0) == ([], [])  # nobody sends to itself
    assert pair.peers["b"].strangers == {"stranger": 1001}
    assert len(pair.lines["b"]) == 1
    assert len(pair.lines["b"][0]) < 200
    assert set(pair.peers["b"].states(0.0)) == {"a"}


def test_a_line_in_the_log_is_one_line_whatever_a_peer_sends() -> None:
    pair = joined()
    content = b"\x00GSM\x01o\xff" + (b"x\n\x1b[2J" * 51) + b"\x00\x00\x00\x00"
    pair.carry("a", seal(pair, content))
    (line,) = [line for line in pair.lines["b"] if "malformed" in line]
    assert line.isprintable()
    assert len(line) <= 300
    pair.peers["b"].rejected("a", "expected a name, found 'x\n2026-01-01 all is well \x1b[2J'", 0.0)
    line = pair.lines["b"][-1]
    assert "rejected by the node" in line
    assert line.isprintable()


def test_lines_about_one_thing_come_at_growing_intervals() -> None:
    """One at once, then a minute, two, four ... after each, up to a day."""
    lines: list[str] = []
    log = SparseLog(lines.append)
    said = []
    for second in range(0, 40 * 86_400, 10):
        log(("a", "form"), "dropped", float(second))
        said += [second] * (len(lines) - len(said))
    gaps = np.diff(said).tolist()
    assert gaps[:11] == [60 * 2**i for i in range(11)]
    assert set(gaps[11:]) == {86_400}
    assert lines[:2] == ["dropped", "dropped (5 more since the last such line)"]
    log(("a", "size"), "another", float(second))
    assert lines[-1] == "another"


# Quarantine


def test_what_does_not_authenticate_silences_nobody() -> None:
    """Ten thousand datagrams under a's name; a's own still open, and the attacker gets no work done."""
    pair = joined()
    generator = np.random.default_rng(1)
    hello, frame = stranger(pair, identity=identity("c")), seal(pair, b"\x00" + encode_frame(FRAME))[-1][1]
    assert pair.peers["b"].open("a", frame, 0.0)[0] == [("a", FRAME)]
    for i in range(10_000):
        junk = [generator.bytes(50), hello, frame, frame[:21] + generator.bytes(40), pair.carried[1][2]][i % 5]
        pair.peers["b"].open("a", junk, pair.now)
        pair.now += 0.001
    assert pair.peers["b"].states(pair.now)["a"].state == "up"
    pair.send("a", "b", FRAME)
    assert pair.arrived["b"] == [("a", FRAME)]
    assert sum(pair.dropped("a", "b").values()) == 10_000
    assert len(pair.lines["b"]) < 10


def test_handshakes_are_limited_before_they_cost_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    """20 at once and 5 a second; what is refused for another reason does not count."""
    pair = Linked("a", "b")
    checked = []
    answer = SecureChannel._agree
    monkeypatch.setattr(SecureChannel, "_agree", lambda *arguments: checked.append(1) or answer(*arguments))
    ((_, hello),) = pair.peers["a"].seal("b", FRAME, 0.0)
    for i in range(1000):
        pair.peers["b"].open("a", stranger(pair, run="1" * 32) if i < 50 else hello, 0.01 * i)
    assert len(checked) == 20 + round(5 * 9.49)
    assert pair.dropped("a", "b") == {"another channel": 50, "too many handshakes": 950 - len(checked)}
    pair.now = 100.0
    pair.send("a", "b", FRAME)
    pair.send("a", "b", FRAME)
    assert pair.arrived["b"] == [("a", FRAME)]


def test_confirms_that_answer_our_own_hello_are_limited_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """An attacker who has seen the hello can name its half, and has us agree on keys for nothing."""
    pair = Linked("a", "b")
    ((_, hello),) = pair.peers["b"].seal("a", FRAME, 0.0)
    ((_, confirm),) = pair.peers["a"].open("b", hello, 0.0)[1]
    checked = []
    agree = SecureChannel._agree
    monkeypatch.setattr(SecureChannel, "_agree", lambda *arguments: checked.append(1) or agree(*arguments))
    for _ in range(100):
        pair.peers["b"].open("a", confirm[:-80] + bytes(80), 0.0)
    assert len(checked) == 20
    assert pair.dropped("a", "b") == {"not authentic": 20, "too many handshakes": 80}
    assert pair.peers["b"].open("a", confirm, 1.0)[1] != []
    assert pair.state("a", "b") == "up"


def test_a_flood_of_handshakes_leaves_the_session_alone() -> None:
    pair = joined()
    hello = stranger(pair, identity=identity("c"))
    for _ in range(1000):
        pair.peers["b"].open("a", hello, 0.0)
        pair.send("a", "b", FRAME)
    assert pair.arrived["b"] == [("a", FRAME)] * 1000


def test_who_goes_on_offending_is_not_looked_at_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = joined()
    offend(pair, 19)
    pair.send("a", "b", FRAME)
    assert len(pair.arrived["b"]) == 1
    offend(pair, 1)
    assert pair.state("a", "b") == "quarantined, 60 s left"
    assert any("a is in quarantine for 60 s: " in line for line in pair.lines["b"])
    with monkeypatch.context() as patched:
        patched.setattr(SecureChannel, "open", None)
        pair.send("a", "b", FRAME)
        offend(pair, 100)
    assert pair.dropped("a", "b") == {"malformed content": 20, "quarantined": 101}
    assert len(pair.arrived["b"]) == 1
    assert pair.peers["b"].seal("a", FRAME, pair.now) == []
    assert pair.peers["b"].deadline() == 60.0
    for pair.now in (20.0, 59.0):
        assert pair.peers["b"].wake(pair.now) == []
    pair.now = 60.0
    pair.send("a", "b", FRAME)
    assert len(pair.arrived["b"]) == 2


def test_quarantines_double_and_good_behaviour_is_forgotten_and_forgiven() -> None:
    standing = Standing()
    now, found = 0.0, []
    for _ in range(60):
        seconds = standing.offend(now)
        if seconds is not None:
            found.append(seconds)
            now += seconds
    assert found[:4] == [60.0, 120.0, 240.0, 480.0]
    assert found[-2:] == [86_400.0, 86_400.0]
    assert len(found) == 60 - 19  # on probation, every one counts
    assert [standing.offend(now + 19 * 60.0) for _ in range(20)] == [None] * 19 + [60.0]


def test_offences_now_and_then_are_forgiven() -> None:
    standing = Standing()
    assert {standing.offend(60.0 * i) for i in range(1000)} == {None}


def test_offences_of_one_turn_begin_one_quarantine() -> None:
    """What was opened before the quarantine is refused by the node after it has begun."""
    pair = joined()
    for _ in range(500):
        pair.peers["b"].rejected("a", "a model of wrong shape", pair.now)
    assert pair.state("a", "b") == "quarantined, 60 s left"
    assert pair.dropped("a", "b")["rejected by the node"] == 500
    assert sum("a model of wrong shape" in line for line in pair.lines["b"]) == 2


def test_the_node_may_blame_nobody_or_itself() -> None:
    pair = joined()
    for name in ("b", "nobody"):
        pair.peers["b"].rejected(name, "reason", 0.0)
    assert pair.dropped("a", "b") == {}


def test_a_quarantine_leaves_the_others_alone() -> None:
    three = Linked("a", "b", "c")
    for _ in range(2):
        three.send("a", "b", FRAME), three.send("c", "b", FRAME)
    offend(three, 20)
    assert three.state("a", "b").startswith("quarantined")
    three.send("c", "b", FRAME)
    assert three.arrived["b"][-1] == ("c", FRAME)
    three.wait(200.0)
    assert three.state("a", "b") == three.state("c", "b") == three.state("b", "c") == "up"


def test_what_happens_between_honest_nodes_never_leads_to_quarantine() -> None:
    """Repetition, old handshakes, frames of sessions that are over: a thousand times each."""
    pair = joined()
    for _ in range(3):  # restarts of either side, and everything carried once more
        record = [(to, datagram) for sender, to, datagram in pair.carried if sender == "a"]
        pair.start("a")
        pair.send("a", "b", FRAME), pair.send("a", "b", FRAME)
        for _ in range(300):
            for to, datagram in record:
                pair.now += 0.2
                pair.peers[to].open("a", datagram, pair.now)
    pair.send("a", "b", FRAME)
    for _ in range(1000):
        pair.peers["b"].open("a", pair.carried[-1][2], pair.now)
    assert pair.state("a", "b") == "up"
    assert pair.dropped("a", "b") == {"stale handshake": 2700, "old session": 1800, "repeated": 1000}


# Who is there


def test_states_go_by_what_was_heard() -> None:
    pair = Linked("a", "b")
    pair.start("b", contacts=["a"])
    assert pair.state("a", "b") == "never heard"
    pair.away = {"a"}
    pair.wait(500.0)
    assert pair.state("a", "b") == "never heard"
    pair.away = set()
    pair.wait(60.0)  # hellos have become rare
    assert pair.state("a", "b") == pair.state("b", "a") == "up"
    pair.wait(1000.0)
    assert pair.state("a", "b") == pair.state("b", "a") == "up"
    pair.away = {"a"}
    pair.wait(19.0)
    assert pair.state("a", "b") == "up"
    pair.wait(22.0)
    assert "silent for " in pair.state("a", "b")
    pair.wait(300.0)
    assert pair.state("a", "b") == "gone"
    pair.away = set()
    pair.wait(60.0)
    assert pair.state("a", "b") == "up"
    assert [line.split(" for")[0] for line in pair.lines["b"] if line.startswith("a:")] == [
        "a: up",
        "a: silent",
        "a: gone",
        "a: up",
    ]


def test_states_that_change_all_the_time_are_told_once_a_minute() -> None:
    pair = joined()
    for second in range(0, 1800, 5):
        pair.away = {"a"} if second // 50 % 2 else set()
        pair.wait(5.0)
    assert 10 < len([line for line in pair.lines["b"] if line.startswith("a: ")]) <= 30


def test_who_exchanged_nothing_is_no_contact() -> None:
    three = Linked("a", "b", "c")
    three.send("a", "b", FRAME)
    three.wait(100.0)
    assert [three.peers["b"].states(three.now)[name].contact for name in "ac"] == [True, False]
    assert {(sender, to) for sender, to, _ in three.carried} == {("a", "b"), ("b", "a")}
    assert three.peers["c"].deadline() is None
    assert three.peers["c"].wake(three.now) == []


def test_who_rehearsed_and_does_not_begin_is_missed() -> None:
    """While it rehearses nobody waits for it; that over it has done no part, and a probe that it answered is old."""
    pair = joined()
    pair.peers["a"].finished(REHEARSES)
    pair.peers["b"]._peers["a"].passed = True
    pair.wait(3.0)
    assert (pair.state("a", "b"), pair.peers["b"].states(pair.now)["a"].passed) == (f"up, finished ({REHEARSES})", True)
    pair.away = {"a"}
    pair.wait(100.0)
    after = pair.peers["b"].states(pair.now)["a"]
    assert (after.finished, after.passed) == ("", False)
    assert after.state in ("silent", "gone")


def test_contacts_are_told_at_once_that_a_node_has_finished_and_why() -> None:
    pair = joined()
    pair.wait(3.0)
    pair.peers["a"].finished("quota")
    pair.carry("a", pair.peers["a"].wake(pair.now))
    assert pair.state("a", "b") == "up, finished (quota)"
    assert pair.peers["b"].states(pair.now)["a"].finished == "quota"
    pair.start("b", contacts=["a"])  # one that comes back is told again
    pair.wait(15.0)
    assert pair.state("a", "b") == "up, finished (quota)"
    pair.start("a", contacts=["b"])
    pair.wait(15.0)
    assert pair.state("a", "b") == "up"


def test_who_is_still_to_be_sent_something_is_told_later() -> None:
    pair = joined()
    pair.peers["a"].finished("quota", but={"b"})
    pair.wait(20.0)
    assert pair.state("a", "b") == "up"
    pair.peers["a"].finished("quota")
    pair.wait(0.0)
    assert pair.state("a", "b") == "up, finished (quota)"


def test_who_is_answered_after_the_end_is_wanted_until_it_has_the_answer() -> None:
    """It has ended too and would leave; the answer, or that it arrived, may be lost, and then be waited for in vain."""
    pair = joined()
    pair.peers["a"].finished("quota")
    pair.wait(0.0)
    assert pair.state("a", "b") == "up, finished (quota)"
    pair.peers["a"].finished("quota", but={"b"})
    pair.peers["b"].finished("quota")
    pair.wait(0.0)
    assert pair.state("a", "b") == "up"
    pair.peers["a"].finished("quota")
    pair.wait(0.0)
    assert pair.state("a", "b") == "up, finished (quota)"
    assert pair.peers["b"].states(pair.now)["a"].knows


def test_a_node_hears_at_once_that_its_end_is_known() -> None:
    pair = joined()
    pair.peers["a"].finished("quota")
    pair.wait(0.0)
    assert pair.peers["a"].states(pair.now)["b"].knows
    assert not pair.peers["b"].states(pair.now)["a"].knows
    pair.peers["b"].finished("quota")
    pair.wait(0.0)
    assert pair.peers["b"].states(pair.now)["a"].knows


def test_who_says_that_it_does_not_know_is_told_at_once() -> None:
    """It has just begun, or lost what it was told."""
    pair = joined()
    pair.peers["a"].finished("quota")
    pair.wait(1.0)
    pair.start("b", contacts=["a"])
    pair.wait(0.0)
    pair.wait(0.0)
    assert pair.peers["a"].states(pair.now)["b"].knows


def test_two_that_know_of_each_other_fall_silent() -> None:
    """Each answers the other's news, and no answer is news."""
    pair = joined()
    for name in "ab":
        pair.peers[name].finished("quota")
    pair.wait(1.0)
    before = len(pair.carried)
    pair.wait(SETTINGS.heartbeat - 2.0)
    assert len(pair.carried) == before


def test_a_reason_of_any_length_is_told_as_far_as_it_goes() -> None:
    pair = joined()
    pair.peers["a"].finished("x\n" * 100)
    pair.wait(10.0)
    told = ("x?" * 100)[:77] + "..."
    assert pair.peers["b"].states(pair.now)["a"].finished == told
    pair.wait(100.0)
    assert [line for line in pair.lines["b"] if "updates" in line] == [f"a makes no more updates: {told}"]


def test_who_gives_another_reason_all_the_time_fills_no_log() -> None:
    pair = joined()
    for number in range(1000):
        pair.carry("a", seal(pair, encode_content(Heartbeat(1.0, finished=f"reason {number}"))))
    assert pair.peers["b"].states(pair.now)["a"].finished == "reason 999"
    assert [line for line in pair.lines["b"] if "updates" in line] == ["a makes no more updates: reason 0"]


def test_heartbeats_come_at_their_interval() -> None:
    pair = joined()
    pair.wait(0.0)
    before = len(pair.carried)
    pair.wait(100.0)
    assert len(pair.carried) - before == 2 * 10


@pytest.mark.parametrize("ahead", [1e9, -1e9])
def test_clocks_may_differ_by_decades(ahead: float) -> None:
    pair = Linked("a", "b", ahead={"a": ahead})
    pair.start("a", contacts=["b"])
    pair.wait(300.0)
    assert pair.state("a", "b") == pair.state("b", "a") == "up"
    pair.away = {"a"}
    pair.wait(100.0)
    assert pair.state("a", "b").startswith("silent")
    assert pair.state("b", "a").startswith("silent")


def test_a_restarted_party_is_heard_again_without_doing_anything() -> None:
    """It knows of no contact; a frame for the session that it lost makes it say hello, once in 3 seconds."""
    pair = joined()
    pair.start("b")
    for _ in range(100):
        pair.send("a", "b", FRAME)
    assert len(pair.arrived["b"]) == 99
    assert pair.dropped("a", "b") == {"unknown session": 1}


def test_a_copy_that_ends_leaves_its_place_to_the_node_whose_copy_it_was() -> None:
    """Of two processes with one key the newer is the peer while it is heard, and no longer."""
    pair = joined()
    original = pair.peers["a"]
    pair.start("a")
    pair.send("a", "b", FRAME), pair.send("a", "b", FRAME)
    assert pair.arrived["b"] == [("a", FRAME)]
    pair.peers["a"] = original  # the copy ended without a word
    pair.wait(SETTINGS.silence - 1.0)
    pair.send("a", "b", FRAME)
    assert pair.dropped("a", "b")["two nodes with one identity"] > 0
    assert pair.arrived["b"] == [("a", FRAME)]
    pair.wait(SETTINGS.silence)
    pair.send("a", "b", FRAME)
    assert pair.arrived["b"] == [("a", FRAME)] * 2
    assert pair.state("a", "b") == pair.state("b", "a") == "up"


def test_who_gives_an_order_beside_a_watch_leaves_it_the_session_at_once() -> None:
    """Both have the key of who watches, and the broker has one of them at a time: no node is said to be there twice."""
    pair = Linked("a", "b")
    pair.start("b", contacts=["a"], digest=lambda: Digest.of({"state": "running"}))
    watch = pair.start("a", contacts=["b"])
    pair.wait(1.0)
    pair.start("a", contacts=["b"])
    pair.wait(5.0)
    pair.peers["a"] = watch  # the order was given
    pair.wait(SETTINGS.heartbeat + 1.0)
    assert watch.states(pair.now)["b"].seconds < SETTINGS.heartbeat
    assert pair.dropped("a", "b") == {}
    assert not any("dropped" in line for line in pair.lines["b"])


def test_who_only_rehearses_is_said_to_do_so() -> None:
    pair = joined()
    pair.peers["a"].finished(REHEARSES)
    pair.wait(1.0)
    assert [line for line in pair.lines["b"] if "rehearses" in line][:1] == ["a only rehearses"]


def test_versions_of_parties_are_known() -> None:
    pair = joined()
    pair.wait(30.0)
    assert pair.peers["b"].states(pair.now)["a"].version == __version__
    pair.carry("a", seal(pair, encode_content(Heartbeat(31.0, version="0.0.9\n"))))
    assert pair.peers["b"].states(pair.now)["a"].version == "0.0.9?"


def test_frames_of_unknown_sessions_are_answered_once_in_a_while() -> None:
    pair = Linked("a", "b")
    pair.away = {"a"}
    answers = [
        len(pair.peers["b"].open("a", b"GSS\x02\x03" + i.to_bytes(4, "big") * 10, 0.01 * i)[1]) for i in range(3000)
    ]
    assert sum(answers) == 10


def test_nothing_grows_with_what_is_sent() -> None:
    """LinkCounters by reason, and one line for each: as many after a thousand datagrams as after ten thousand."""

    def kept(peers: Peers) -> int:
        counts = sum(len(state.dropped) for state in peers.states(0.0).values())
        return counts + len(peers._log._topics) + len(peers.strangers)

    pair = joined()
    generator = np.random.default_rng(2)
    sizes = []
    for i in range(10_000):
        start = [b"", b"GSS\x02\x01", b"GSS\x02\x02", b"GSS\x02\x03"][i % 4]
        size = int(generator.choice([10, 120, 168, 3000]))
        pair.peers["b"].open("a" if i % 3 else generator.bytes(5).hex(), start + generator.bytes(size), 0.1 * i)
        if i in (1000, 9999):
            sizes.append(kept(pair.peers["b"]))
    assert sizes[0] == sizes[1]


# Words


@pytest.mark.parametrize(
    "content",
    [Heartbeat(1.5, "quota", True, "1.2.3"), Heartbeat(0.0), LinkCounters(0, 0, 0), LinkCounters(3, 2, 1 << 40), FRAME],
)
def test_contents_come_back(content: Any) -> None:
    assert decode_content(encode_content(content), 100) == (content, None)


def test_a_word_is_no_frame_and_a_frame_no_word() -> None:
    with pytest.raises(MalformedMessage, match="is no frame"):
        decode_frame(encode_content(Heartbeat(1.0))[1:])
    with pytest.raises(MalformedMessage, match="expected a word, found Acknowledge"):
        decode_content(b"\x01" + encode_frame(FRAME), 100)
    with pytest.raises(MalformedMessage, match="at most 20 bytes"):
        decode_content(encode_content(FRAME), 20)
    with pytest.raises(MalformedMessage, match="at most 4096 bytes, found 4196"):
        decode_content(b"\x01GSM\x01" + bytes(4192), 5000)


@pytest.mark.parametrize(
    "fields",
    [
        *[(seconds, "", False) for seconds in (-1.0, float("inf"), float("nan"), 1)],
        *[(1.0, finished, False) for finished in ("x" * 81, 2, None)],
        *[(1.0, "", knows) for knows in (1, "", None)],
    ],
)
def test_words_of_wrong_content(fields: Any) -> None:
    made = Heartbeat(1.0)
    for name, value in zip(("seconds", "finished", "knows"), fields):
        object.__setattr__(made, name, value)
    with pytest.raises(MalformedMessage):
        decode_content(encode_content(made), 100)


@pytest.mark.parametrize(
    "settings",
    [
        {"heartbeat": 0.0},
        {"heartbeat": 45.0},
        {"silence": 600.0},
        {"gone_after": 10.0},
    ],
)
def test_settings_that_contradict_each_other(settings: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="peers need"):
        PeerSettings(**settings)


@pytest.mark.parametrize("fields", [(-1, 0, 0), (0, -1, 0), (0, 0, -1), (True, 0, 0), (0, 1.0, 0), (0, 0, None)])
def test_counters_of_wrong_content(fields: Any) -> None:
    made = LinkCounters(0, 0, 0)
    for name, value in zip(("sent", "acknowledged", "received"), fields):
        object.__setattr__(made, name, value)
    with pytest.raises(MalformedMessage):
        decode_content(encode_content(made), 100)
