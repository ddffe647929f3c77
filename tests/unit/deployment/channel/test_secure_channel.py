"""Sealed channels: the RFCs' vectors, the page's bytes, one refusal at a time."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from tests.reference import sealed_slow as slow
from tests.reference.masking_slow import hkdf
from tests.reference.sealed_pairs import RUN, SEEDS, carry, channel, joined, state

from gossamer.deployment.channel import secure_channel
from gossamer.deployment.channel.secure_channel import (
    OVERHEAD,
    WINDOW,
    Ephemeral,
    FrameCipher,
    Reason,
    RefusedDatagram,
    SecureChannel,
    Window,
    derive,
    nonce,
)
from gossamer.errors import CallerError, PeerError
from gossamer.keys.identity import Identity
from gossamer.keys.private_files import IdentityError

PAGE = (Path(__file__).resolve().parents[4] / "docs" / "wire-format.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"<!-- sealed example: (\w+) -->\n```text\n(.*?)```", PAGE, re.DOTALL))
A = slow.Party("a", SEEDS["a"], bytes([2]) * 16, bytes([3]) * 32)
B = slow.Party("b", SEEDS["b"], bytes([5]) * 16, bytes([6]) * 32)


def printed(name: str) -> bytes:
    return bytes.fromhex("".join(re.split(r" {2,}", line)[0] for line in BLOCKS[name].splitlines()))


def fixed(party: slow.Party) -> SecureChannel:
    """A channel that draws what the page says, and then zeros."""
    draws = iter([party.instance, party.half])
    return channel(party.name, entropy=lambda count: next(draws, bytes(count)))


def pair() -> tuple[SecureChannel, SecureChannel]:
    a, b = channel("a"), channel("b")
    joined(a, b)
    return a, b


def refused(to: SecureChannel, datagram: bytes, reason: Reason) -> str:
    """Check that ``to`` refuses, with one line, and is as before; that line."""
    before = state(to)
    with pytest.raises(RefusedDatagram) as caught:
        to.open(datagram)
    assert caught.value.reason is reason, caught.value
    assert isinstance(caught.value, PeerError)
    assert "\n" not in str(caught.value)
    assert state(to) == before
    return str(caught.value)


# The primitives


def test_the_slow_reference_keeps_the_rfcs() -> None:
    """RFC 8032, section 7.1, tests 1 and 2; RFC 8439, section 2.5.2; RFC 5869, appendix A.1."""
    one = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
    two = bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
    assert slow.ed25519_public(one).hex() == "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    assert slow.ed25519_sign(two, b"\x72").hex() == (
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
    )
    key = bytes.fromhex("85d6be7857556d337f4452fe42d506a80103808afb0db2fd4abff6af4149f51b")
    tag = slow.poly1305(key, b"Cryptographic Forum Research Group")
    assert tag.hex() == "a8061dc1305136c6c22b8baf0c0127a9"
    derived = hkdf(b"\x0b" * 22, bytes(range(13)), bytes(range(0xF0, 0xFA)), 42)
    assert derived[:16].hex() == "3cb25f25faacd57a90434f64d0362f2a"


def test_halves_agree_as_in_rfc_7748() -> None:
    """Section 6.1."""
    alice = bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")
    half = Ephemeral(lambda count: alice[:count])
    assert half.public.hex() == "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
    bob = bytes.fromhex("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f")
    assert half.agree(bob).hex() == "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"


SEALED_DRAFT = """
64a0861575861af460f062c79be643bd5e805cfd345cf389f108670ac76c8cb24c6cfc18755d43eea09ee94e382d26b0bdb7b73c321b0100d4f03b7f
355894cf332f830e710b97ce98c8a84abd0b948114ad176e008d33bd60f982b1ff37c8559797a06ef4f0ef61c186324e2b3506383606907b6a7c02b0
f9f6157b53c867e4b9166c767b804d46a59b5216cde7a4e99040c5a40433225ee282a1b0a06c523eaf4534d7f83fa1155b0047718cbc546a0d072b04
b3564eea1b422273f548271a0bb2316053fa76991955ebd63159434ecebb4e466dae5a1073a6727627097a1049e617d91d361094fa68f0ff77987130
305beaba2eda04df997b714d6c6f2c29a6ad5cb4022b02709beead9d67890cbb22392336fea1851f38
"""


def test_frames_are_chacha20_poly1305() -> None:
    """RFC 8439, appendix A.5. Its nonce is four zero bytes and a number of eight, as ours are."""
    direction = FrameCipher(
        bytes.fromhex("1c9240a5eb55d38af333888604f6b5f0473917c1402b80099dca5cbc207075c0"), "run", "a", "b"
    )
    direction._about = b""
    about, counter = bytes.fromhex("f33388860000000000004e91"), 0x0807060504030201
    assert nonce(counter).hex() == "000000000102030405060708"
    sealed = bytes.fromhex(SEALED_DRAFT)
    opened = direction.open(counter, about, memoryview(sealed))
    assert opened is not None
    assert opened.startswith(b"Internet-Drafts are draft documents valid for a maximum of six months")
    assert direction.seal(counter, about, opened) == sealed


def test_keys_are_hkdf() -> None:
    pieces, other = (derive(b"secret", b"salt", first=first) for first in (True, False))
    found = (pieces.frames_out, pieces.frames_in, pieces.confirm_out, pieces.confirm_in, pieces.session)
    assert found == (other.frames_in, other.frames_out, other.confirm_in, other.confirm_out, other.session)
    assert b"".join(found) == hkdf(b"secret", b"salt", b"gossamer sealed frames", 136)
    assert [len(piece) for piece in found] == [32, 32, 32, 32, 8]


def test_every_example_on_the_page_is_what_the_slow_reference_and_a_channel_make() -> None:
    a, b = fixed(A), fixed(B)
    (hello,) = a.hello()
    (confirm,) = b.open(hello).answers
    (answer,) = a.open(confirm).answers
    assert hello == slow.hello(RUN, A, B) == printed("hello")
    assert confirm == slow.confirm(RUN, B, A) == printed("confirm")
    assert answer == slow.confirm(RUN, A, B)
    assert a.seal(b"hi") == [answer, slow.frame(RUN, A, B, 0, b"hi")]
    assert slow.frame(RUN, A, B, 0, b"hi") == printed("frame")
    assert set(BLOCKS) == {"hello", "confirm", "frame"}
    b.open(answer)
    assert b.seal(b"ho")[-1] == slow.frame(RUN, B, A, 0, b"ho")


# What works


def test_both_ways_and_any_length() -> None:
    a, b = pair()
    for text in (b"", b"x", bytes(100)):
        assert carry(a.seal(text), b, a) == [text]
        assert carry(b.seal(text), a, b) == [text]
    assert len(a.seal(b"four")[-1]) == OVERHEAD + 4


def test_hellos_that_cross_end_in_one_session() -> None:
    a, b = channel("a"), channel("b")
    (from_a,), (from_b,) = a.hello(), b.hello()
    to_b, to_a = a.open(from_b).answers, b.open(from_a).answers
    assert b.session is None
    more_to_b, more_to_a = a.open(to_a[0]).answers, b.open(to_b[0]).answers
    assert a.session == b.session is not None
    before = state(a), state(b)
    assert a.open(more_to_a[0]) == b.open(more_to_b[0]) == ([], [])
    assert (state(a), state(b)) == before


def test_without_a_session_sealing_asks_for_one() -> None:
    a, b = channel("a"), channel("b")
    assert carry(a.seal(b"lost"), b, a) == []
    assert a.session == b.session is not None
    assert carry(a.seal(b"heard"), b, a) == [b"heard"]


def test_a_lost_confirm_is_made_good_by_the_next_frame() -> None:
    a, b = channel("a"), channel("b")
    (confirm,) = b.open(a.hello()[0]).answers
    a.open(confirm)  # and a's confirm is lost
    confirm, frame = a.seal(b"one")
    refused(b, frame, Reason.UNKNOWN_SESSION)
    assert [opened for datagram in (confirm, frame) for opened in b.open(datagram).plaintexts] == [b"one"]
    carry(b.seal(b"heard"), a, b)
    assert len(a.seal(b"two")) == 1


def test_a_lost_confirm_is_made_good_by_the_next_hello() -> None:
    a, b = channel("a"), channel("b")
    a.open(b.open(a.hello()[0]).answers[0])
    session = a.session
    carry(b.hello(), a, b)
    assert a.session == b.session == session


def test_frames_arrive_in_any_order() -> None:
    a, b = pair()
    frames = [a.seal(bytes([i]))[-1] for i in range(5)]
    assert [b.open(frames[i]).plaintexts for i in (3, 0, 4, 2, 1)] == [[bytes([i])] for i in (3, 0, 4, 2, 1)]
    for frame in frames:
        refused(b, frame, Reason.REPEATED)


def test_the_window_is_that_of_a_set() -> None:
    """Against a set of all that came and a maximum, on jumps of all sizes."""
    generator = np.random.default_rng(0)
    for _ in range(20):
        window, came = Window(), set[int]()
        for step in generator.choice([1, 2, 5, WINDOW - 1, WINDOW, WINDOW + 1, 3 * WINDOW, 2**62], 40):
            for counter in {0, *(max(0, max(came, default=0) + int(sign) * int(step)) for sign in (1, -1, 0))}:
                expected = counter not in came and counter > max(came, default=-1) - WINDOW
                assert window.admits(counter) == expected
                if expected:
                    window.note(counter)
                    came.add(counter)
                assert window._came < 1 << WINDOW  # it does not grow


def test_a_restarted_node_gets_fresh_keys_and_ends_the_old_session() -> None:
    a, b = pair()
    late_from_a, late_from_b = a.seal(b"late")[-1], b.seal(b"late")[-1]
    first, a = a.session, channel("a")
    refused(a, late_from_b, Reason.UNKNOWN_SESSION)
    joined(a, b)
    assert a.session == b.session != first
    refused(b, late_from_a, Reason.OLD_SESSION)
    refused(a, late_from_b, Reason.UNKNOWN_SESSION)
    assert carry(a.seal(b"new"), b, a) == [b"new"]


def test_long_runs_get_new_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secure_channel, "RENEW_EVERY", 3)
    a, b = pair()
    first = a.session
    opened = [carry(a.seal(bytes([i])), b, a) for i in range(4)]
    assert opened == [[bytes([i])] for i in range(4)]
    assert a.session == b.session != first


def test_a_key_is_never_used_for_too_many_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secure_channel, "MOST_FRAMES", 2)
    a, b = pair()
    sealed = [a.seal(b"x")[-1] for _ in range(3)]
    assert sealed[2] == a.hello()[0]
    assert [carry([datagram], b, a) for datagram in sealed] == [[b"x"], [b"x"], []]
    assert carry(a.seal(b"again"), b, a) == [b"again"]


def test_every_channel_draws_its_own_halves_and_instance() -> None:
    hellos = {channel("a").hello()[0] for _ in range(5)}
    assert len({hello[13:29] for hello in hellos}) == len({hello[29:61] for hello in hellos}) == 5


# What is refused


def test_sizes() -> None:
    a, b = pair()
    with pytest.raises(CallerError, match="at most 100 bytes to seal, found 101; cut it"):
        a.seal(bytes(101))
    assert "found 301" in refused(b, bytes(301), Reason.SIZE)
    frame = channel_with_room(a)
    refused(b, frame, Reason.FORM)


def channel_with_room(a: SecureChannel) -> bytes:
    """A genuine frame of one byte too many."""
    a.largest = 101
    return a.seal(bytes(101))[-1]


def test_every_cut_and_every_longer_datagram() -> None:
    a, b = channel("a"), channel("b")
    (hello,) = a.hello()
    (confirm,) = channel("b").open(hello).answers
    joined(a, b)
    frame = a.seal(b"text")[-1]
    for datagram, to in ((hello, b), (confirm, a), (frame, b)):
        for length in range(len(datagram)):
            reason = Reason.NOT_AUTHENTIC if datagram is frame and length >= OVERHEAD else Reason.FORM
            refused(to, datagram[:length], reason)
    refused(b, hello + b"x", Reason.FORM)
    refused(a, confirm + b"x", Reason.FORM)
    refused(b, frame + b"x", Reason.NOT_AUTHENTIC)


def test_every_changed_byte() -> None:
    """In each datagram, wherever it is changed; what was not changed is still accepted."""
    a, b = channel("a"), channel("b")
    (hello,) = a.hello()
    (confirm,) = b.open(hello).answers
    for datagram, to in ((hello, b), (confirm, a)):
        for place, bit in product(range(len(datagram)), (1, 128)):
            with pytest.raises(RefusedDatagram):
                to.open(changed(datagram, place, bit))
    assert a.session is b.session is None
    carry(a.open(confirm).answers, b, a)
    frame = a.seal(b"text")[-1]
    for place in range(len(frame)):
        with pytest.raises(RefusedDatagram):
            b.open(changed(frame, place, 1))
    assert carry([frame], b, a) == [b"text"]


def changed(datagram: bytes, place: int, bit: int) -> bytes:
    return datagram[:place] + bytes([datagram[place] ^ bit]) + datagram[place + 1 :]


def test_another_version_says_what_to_do() -> None:
    a, b = pair()
    assert "found 1; update the older node" in refused(b, b"GSS\x01" + a.seal(b"x")[-1][4:], Reason.VERSION)


def test_an_unknown_kind() -> None:
    for kind in (0, 4, 255):
        refused(channel("a"), b"GSS\x02" + bytes([kind]) + bytes(120), Reason.FORM)


@pytest.mark.parametrize(
    ("stranger", "reason"),
    [
        (lambda: channel("a", identity=Identity.of_seed(bytes(32))), Reason.NOT_AUTHENTIC),
        (lambda: channel("a", run="1" * 32), Reason.ANOTHER_CHANNEL),
        (lambda: channel("b"), Reason.ANOTHER_CHANNEL),  # its own words come back
    ],
)
def test_hellos_of_others(stranger: Callable[[], SecureChannel], reason: Reason) -> None:
    b = channel("b")
    refused(b, stranger().hello()[0], reason)
    joined(channel("a"), b)
    refused(b, stranger().hello()[0], reason)


def test_another_run_is_bound_into_signatures_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever forges the eight bytes that name the channel gets no further."""
    monkeypatch.setattr(secure_channel, "channel_tag", lambda *_: bytes(8))
    refused(channel("b"), channel("a", run="1" * 32).hello()[0], Reason.NOT_AUTHENTIC)
    refused(channel("b"), channel("b").hello()[0], Reason.NOT_AUTHENTIC)


class Impostor:
    """Knows which key a peer expects, and has another."""

    public_key = Identity.of_seed(SEEDS["b"]).public_key
    sign = Identity.of_seed(bytes(32)).sign


def test_a_stranger_who_answers_a_hello() -> None:
    """It has the agreed keys, and not the peer's signature."""
    a = channel("a")
    refused(a, channel("b", identity=Impostor()).open(a.hello()[0]).answers[0], Reason.NOT_AUTHENTIC)
    assert a.session is None


def test_a_signature_of_a_hello_is_none_of_a_confirm() -> None:
    identity = Identity.of_seed(bytes(32))
    assert identity.public_key.signed(identity.sign("hello", b"text"), "hello", b"text")
    assert not identity.public_key.signed(identity.sign("hello", b"text"), "confirm", b"text")


def test_a_half_of_low_order() -> None:
    """The secret would be zero whoever takes part. The peer has signed it, so it is the peer's fault."""
    zero = slow.Party("a", SEEDS["a"], bytes(16), bytes(32))
    text = slow.encode((2, RUN, "a", "b", bytes(16), bytes(32)))
    hello = b"GSS\x02\x01" + slow.tag(RUN, zero, B) + bytes(16) + bytes(32) + zero.signature("hello", text)
    assert "no point" in refused(channel("b"), hello, Reason.NOT_AUTHENTIC)


def test_an_old_handshake_begins_nothing() -> None:
    """A broker sends again all that it has recorded."""
    a, b = channel("a"), channel("b")
    record: list[bytes] = a.hello()
    record += b.open(record[0]).answers
    record += a.open(record[1]).answers
    record += b.open(record[2]).answers
    joined(channel("a"), b)  # a restarts; the session of the record is over
    before = state(b)
    (answer,) = b.open(record[0]).answers
    refused(b, record[2], Reason.STALE)
    assert state(b) == before
    a = channel("a")
    refused(a, answer, Reason.STALE)
    refused(a, record[1], Reason.STALE)


def test_used_halves_are_never_used_again() -> None:
    """The session of two halves would come with its counters at zero."""
    a, b = channel("a"), channel("b")
    (hello,) = a.hello()
    (confirm,) = b.open(hello).answers
    carry(a.open(confirm).answers, b, a)
    first = a.session
    joined(b, a)
    assert a.session != first
    refused(a, confirm, Reason.STALE)


def test_two_nodes_with_one_identity_are_noticed() -> None:
    """Whoever was replaced and goes on signing new halves is alive; its replacement keeps the session."""
    b, one, two = channel("b"), channel("a"), channel("a")
    joined(one, b)
    joined(two, b)
    session = b.session
    (confirm,) = b.open(one.hello()[0]).answers
    (answer,) = one.open(confirm).answers
    line = refused(b, answer, Reason.TWO_NODES)
    assert Identity.of_seed(SEEDS["a"]).public_key.fingerprint in line
    assert b.session == session == two.session


def test_restarts_are_not_two_nodes() -> None:
    b = channel("b")
    for _ in range(3):
        a = channel("a")
        for _ in range(3):
            joined(a, b)
            joined(b, a)
        assert a.session == b.session


# What is never stored


def test_channels_are_not_copied_or_stored() -> None:
    a, _ = pair()
    assert a._session is not None
    for secret in (a, a._session, a._session.outgoing, a._session.window, a._ephemeral):
        for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="cannot be copied or stored"):
                attempt(secret)


def test_two_ends_are_two() -> None:
    one, other = Identity.of_seed(bytes(32)), Identity.of_seed(bytes([1]) * 32)
    with pytest.raises(IdentityError, match="a name and a key each"):
        SecureChannel(one, other.public_key, RUN, "a", "a")
    with pytest.raises(IdentityError, match="a name and a key each"):
        SecureChannel(one, one.public_key, RUN, "a", "b")
