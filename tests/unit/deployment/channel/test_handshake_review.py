"""Properties of the handshake that its review lists (docs/assurance/handshake.md) and other tests do not show."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.reference.sealed_pairs import RUN, SEEDS, carry, channel, joined, state

from gossamer.deployment.channel import secure_channel
from gossamer.deployment.channel.secure_channel import TAG_BYTES, Ephemeral, Reason, RefusedDatagram, SecureChannel
from gossamer.keys.identity import Identity

PACKAGE = Path(secure_channel.__file__).parent
P = 2**255 - 19
LOW_ORDER = {
    "zero": 0,
    "one": 1,
    "order 8": 325606250916557431795983626356110631294008115727848805560023387167927233504,
    "order 8 too": 39382357235489614581723060781553021112529911719440698176882885853963445705823,
    "minus one": P - 1,
    "p": P,
    "p + 1": P + 1,
}
"""Abscissae of points of order 1, 2, 4 and 8 of the curve and its twist, some in another encoding."""


def refused(to: SecureChannel, datagram: bytes, reason: Reason) -> None:
    before = state(to)
    with pytest.raises(RefusedDatagram) as caught:
        to.open(datagram)
    assert caught.value.reason is reason, caught.value
    assert state(to) == before


class Signed:
    """An identity that claims one key and signs with another."""

    def __init__(self, claimed: str, signs: Identity) -> None:
        self.public_key = Identity.of_seed(SEEDS[claimed]).public_key
        self.sign = signs.sign


def test_what_changes_in_a_channel_is_seen_by_the_comparison_that_tests_use() -> None:
    """Or "nothing has changed" would be true of everything."""
    a, b = channel("a"), channel("b")
    before = state(a), state(b)
    joined(a, b)
    assert state(a) != before[0]
    assert state(b) != before[1]
    before = state(a), state(b)
    carry(a.seal(b"x"), b, a)
    assert state(a) != before[0]
    assert state(b) != before[1]


# Who is there


def test_whoever_has_my_key_cannot_be_my_peer_to_me() -> None:
    """Key compromise impersonation: the thief of a's key answers a as b, and signs with a's key, or with its own."""
    for key in (Identity.of_seed(SEEDS["a"]), Identity.of_seed(bytes(32))):
        a = channel("a")
        thief: Any = Signed("b", key)
        (confirm,) = channel("b", identity=thief).open(a.hello()[0]).answers
        refused(a, confirm, Reason.NOT_AUTHENTIC)
        refused(a, channel("b", identity=thief).hello()[0], Reason.NOT_AUTHENTIC)
        assert a.session is None


@pytest.mark.parametrize(("tags", "reason"), [("true", Reason.ANOTHER_CHANNEL), ("forged", Reason.NOT_AUTHENTIC)])
def test_a_third_member_that_relays_a_handshake_is_not_taken_for_its_end(
    monkeypatch: pytest.MonkeyPatch, tags: str, reason: Reason
) -> None:
    """Unknown key share: c hands a's words to b as its own. They sign who is to hear whom, so b takes none of them."""
    if tags == "forged":
        monkeypatch.setattr(secure_channel, "channel_tag", lambda *_: bytes(8))
    c = Identity.of_seed(bytes([9]) * 32).public_key
    (hello,) = SecureChannel(Identity.of_seed(SEEDS["a"]), c, RUN, "a", "c", largest=100).hello()
    refused(SecureChannel(Identity.of_seed(SEEDS["b"]), c, RUN, "b", "c", largest=100), hello, reason)
    refused(channel("b"), hello, reason)


@pytest.mark.parametrize("tags", ["as they are", "forged"])
def test_nobody_talks_to_itself(monkeypatch: pytest.MonkeyPatch, tags: str) -> None:
    """Reflection: all that a says comes back to it. A frame has the right session, and the other direction's key."""
    if tags == "forged":
        monkeypatch.setattr(secure_channel, "channel_tag", lambda *_: bytes(8))
    a, b = channel("a"), channel("b")
    (hello,) = a.hello()
    refused(a, hello, Reason.ANOTHER_CHANNEL if tags == "as they are" else Reason.NOT_AUTHENTIC)
    (confirm,) = b.open(hello).answers
    refused(b, confirm, Reason.ANOTHER_CHANNEL if tags == "as they are" else Reason.STALE)
    carry(a.open(confirm).answers, b, a)
    for one, text in ((a, b"from a"), (b, b"from b")):
        frame = one.seal(text)[-1]
        refused(one, frame, Reason.NOT_AUTHENTIC)


# What the keys depend on


@pytest.mark.parametrize("part", ["run", "name", "identity", "instance", "half", "version"])
def test_keys_depend_on_all_that_was_said(part: str) -> None:
    """The transcript is the salt of all keys: two ends that differ in one part of it have no key in common."""
    key = Identity.of_seed(SEEDS["b"]).public_key
    one = "a", Identity.of_seed(SEEDS["a"]).public_key.raw, bytes(16), bytes(32)
    parts: dict[str, Any] = {"run": RUN, "name": "b", "identity": key, "instance": bytes(16), "half": bytes(32)}
    other = {
        "run": "1" * 32,
        "name": "c",
        "identity": Identity.of_seed(bytes(32)).public_key,
        "instance": bytes([1]) * 16,
        "half": bytes([1]) * 32,
    }

    def pieces(version: int, run: str, name: str, identity: Any, instance: bytes, half: bytes) -> list[bytes]:
        end = name, identity.raw, instance, half
        salt = secure_channel.transcript(version, run, one, end)
        return list(vars(secure_channel.derive(bytes(32), salt, first=True)).values())

    changed = {**parts, part: other[part]} if part in other else parts
    first, second = pieces(1, **parts), pieces(2 if part == "version" else 1, **changed)
    assert len({*first, *second}) == 10
    assert first == pieces(1, **parts)


def test_a_version_is_signed_and_not_only_written_in_front(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that rewrites the version of a newer node's hello does not make it one of this version."""
    (older,) = channel("a").hello()
    monkeypatch.setattr(secure_channel, "VERSION", secure_channel.VERSION + 1)
    (newer,) = channel("a").hello()
    monkeypatch.undo()
    newer = newer[:3] + older[3:4] + newer[4:]
    assert newer[:5] == older[:5]
    refused(channel("b"), newer, Reason.NOT_AUTHENTIC)


def test_the_two_directions_share_no_key_stream() -> None:
    """Both have counters from 0. Under one key the same text would be the same ciphertext."""
    a, b = channel("a"), channel("b")
    joined(a, b)
    text = bytes(64)
    frames = [one.seal(text)[-1] for one in (a, b)]
    header = len(frames[0]) - len(text) - TAG_BYTES
    assert frames[0][:header] == frames[1][:header]  # the same session and counter
    assert frames[0][header:-TAG_BYTES] != frames[1][header:-TAG_BYTES]


@pytest.mark.parametrize("point", LOW_ORDER)
def test_halves_of_low_order_agree_with_nobody(point: str) -> None:
    """The secret would be zero, known to all. X25519 ignores the highest bit, so it is tried in both states."""
    for high in (0, 1 << 255):
        half = (LOW_ORDER[point] | high).to_bytes(32, "little")
        with pytest.raises(ValueError):
            Ephemeral(lambda count: bytes(range(count))).agree(half)


def test_no_half_serves_two_sessions() -> None:
    """Forward secrecy: a half is forgotten when its session begins, at both ends."""
    a, b = channel("a"), channel("b")
    halves = {end: one._ephemeral.public for end, one in (("a", a), ("b", b))}
    joined(a, b)
    assert a._ephemeral.public != halves["a"]
    assert b._ephemeral.public != halves["b"]
    assert all(
        not isinstance(value, Ephemeral) for session in (a._session, b._session) for value in vars(session).values()
    )


def test_what_was_recorded_is_not_read_with_the_identities() -> None:
    """Forward secrecy: new ends with both private identities, and all datagrams, open no frame of the old session."""
    a, b = channel("a"), channel("b")
    record = a.hello()
    record += b.open(record[-1]).answers
    record += a.open(record[-1]).answers
    b.open(record[-1])
    record.append(a.seal(b"secret")[-1])
    for me in ("a", "b"):
        thief = channel(me)
        for datagram in record:
            try:
                assert not thief.open(datagram).plaintexts
            except RefusedDatagram:
                continue
    assert carry([record[-1]], b, a) == [b"secret"]


# Comparisons


REVIEWED = {
    "secure_channel.py": {
        "me == peer",
        "identity.public_key == peer_public_key",
        "len(plaintext) > self.largest",
        "session is None",
        "session.sealed >= MOST_FRAMES",
        "session.forged >= MOST_FORGED",
        "session.window.newest < 0",
        "session.sealed % RENEW_EVERY == 0",
        "frame.session != session.name",
        "plaintext is None",
        "self._session is not None",
        "hello.ephemeral == self._session.theirs",
        "datagram == self._session.accepted",
        "confirm.answered != self._ephemeral.public",
        "signature is None",
        "self.me < self.peer",
        "sender == self.me",
        "found != self._tag_in",
        "instance != self._session.instance",
        "instance == former",
        "name == former",
        "behind < 0",
        "behind < WINDOW",
        "ahead > 0",
        "ahead < WINDOW",
        "len(datagram) > max(largest + OVERHEAD, 256)",
        "datagram[:len(WORDS)] != WORDS",
        "len(datagram) < _PREFIX",
        "version != VERSION",
        "kind == _FRAME",
        "OVERHEAD <= len(datagram) <= largest + OVERHEAD",
        "kind not in _FIXED",
        "len(datagram) != _PREFIX + _FIXED[kind][1].size",
    },
}
"""Comparisons of the channel, all of public bytes, lengths and counters. OpenSSL checks tags and signatures."""


def comparisons(source: str) -> Iterator[str]:
    return (ast.unparse(node) for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Compare))


@pytest.mark.parametrize("file", REVIEWED)
def test_no_secret_is_compared_in_python(file: str) -> None:
    """A new comparison has to be looked at, and listed: one of secret bytes would take a time that tells of them."""
    assert set(comparisons((PACKAGE / file).read_text(encoding="utf-8"))) == REVIEWED[file]
    assert set(REVIEWED) == {path.name for path in PACKAGE.glob("*.py")} - {"__init__.py"}


# How long a key is used


def test_a_key_ends_after_so_many_forged_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """RFC 9147, section 4.5.3: each forgery is a guess. A session that was guessed at too often is given up.

    Frames that came, or come again, are no guesses, and do not count.
    """
    monkeypatch.setattr(secure_channel, "MOST_FORGED", 3)
    a, b = channel("a"), channel("b")
    joined(a, b)
    first = a.session
    frame = a.seal(b"text")[-1]
    for number in range(2):
        with pytest.raises(RefusedDatagram):
            b.open(frame[:-1] + bytes([frame[-1] ^ (1 + number)]))
    assert carry([frame], b, a) == [b"text"]
    with pytest.raises(RefusedDatagram) as caught:
        b.open(frame)
    assert caught.value.reason is Reason.REPEATED
    assert b.session == first
    another = a.seal(b"more")[-1]
    with pytest.raises(RefusedDatagram):
        b.open(another[:-1] + bytes([another[-1] ^ 1]))
    assert b.session is None
    with pytest.raises(RefusedDatagram) as caught:
        b.open(another)
    assert caught.value.reason is Reason.OLD_SESSION
    carry(b.seal(b""), a, b)  # a hello
    assert a.session == b.session != first
    assert carry(a.seal(b"again"), b, a) == [b"again"]
