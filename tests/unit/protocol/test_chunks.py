"""Chunks: how a message is cut, what a receiver keeps, and what it refuses."""

from __future__ import annotations

import tracemalloc
from dataclasses import dataclass, replace

import numpy as np
import pytest

from gossamer.errors import MalformedMessage, PeerError, SpecError
from gossamer.protocol.events import PeerDown, PeerUp, Received
from gossamer.protocol.messages import (
    CHUNK_OVERHEAD,
    CHUNK_WINDOW,
    Acknowledge,
    ChunkFrame,
    Incoming,
    Message,
    MessageFrame,
    Outgoing,
    ProgressFrame,
    chunk_length,
    cut,
    encode_frame,
    encode_message,
    message,
)
from gossamer.protocol.session import WINDOW, Output, Session, SessionSettings, Transmit
from gossamer.vectors import Public


@message("test.chunk")
@dataclass(frozen=True)
class Model(Message):
    values: Public


@message("test.chunk.note")
@dataclass(frozen=True)
class Note(Message):
    number: int


def model(count: int) -> Model:
    return Model(Public(np.arange(count, dtype=np.float32)))


SETTINGS = SessionSettings(1.0, 8.0, 20.0, largest_frame=CHUNK_OVERHEAD + 100, largest_message=40_000)
BIG = model(9990)  # 400 chunks: 4 x 9990 bytes and at most 40 more
SIZE = len(encode_message(BIG))
ALL = -(-SIZE // 100)


def chunks(outputs: list[Output]) -> list[ChunkFrame]:
    return [out.frame for out in outputs if isinstance(out, Transmit) and isinstance(out.frame, ChunkFrame)]


def numbers(outputs: list[Output]) -> list[int]:
    return [chunk.chunk for chunk in chunks(outputs)]


def frame(**changes: object) -> ChunkFrame:
    """The first of four chunks of message 1, which has 10 bytes: 3, 3, 3 and 1."""
    return replace(ChunkFrame(1, 0, 0, 1, 4, 10, b"abc"), **changes)  # type: ignore[arg-type]


def partial(session: Session) -> set[str]:
    """Whose messages are half-way here."""
    return {peer for peer, link in session.links.items() if link.incoming is not None}


def sessions() -> tuple[Session, Session]:
    return Session("a", SETTINGS), Session("b", SETTINGS)


def test_a_message_is_cut_into_equal_chunks_without_copies() -> None:
    a, _ = sessions()
    outputs = a.send("b", BIG, 0.0)
    first = chunks(outputs)
    assert numbers(outputs) == list(range(1, CHUNK_WINDOW + 1))
    assert {(c.number, c.chunks, c.size, len(c.content)) for c in first} == {(1, -(-SIZE // 100), SIZE, 100)}
    assert b"".join(c.content for c in first) == encode_message(BIG)[:3200]
    assert (
        bytes(first[0].content)[:4] == b"GSM\x02"
    )  # the first one is partly a header; the others are the model's memory
    start = BIG.values.values.__array_interface__["data"][0]
    for c in first[1:]:
        place = np.frombuffer(c.content, np.uint8).__array_interface__["data"][0]
        assert place - start == (c.chunk - 1) * 100 - (SIZE - BIG.values.nbytes)
    assert all(len(encode_frame(c)) == SETTINGS.largest_frame for c in first)


@pytest.mark.parametrize(
    "pieces", [["abcdefghij"], ["a", "", "bcdefghi", "j"], list("abcdefghij"), ["abc", "def", "ghij"]]
)
def test_pieces_are_cut_where_the_whole_would_be(pieces: list[str]) -> None:
    for chunks in [1, 2, 4, 5, 10]:
        encoded, length = [piece.encode() for piece in pieces], chunk_length(10, chunks)
        expected = [b"abcdefghij"[start : start + length] for start in range(0, 10, length)]
        assert [bytes(cut(encoded, chunk, chunks)) for chunk in range(1, chunks + 1)] == expected


def test_a_message_that_just_fits_is_not_cut() -> None:
    session = Session("a", replace(SETTINGS, largest_frame=200))
    fitting = [n for n in range(60) if not chunks(Session("a", session.settings).send("b", model(n), 0.0))]
    largest = Session("a", session.settings).send("b", model(fitting[-1]), 0.0)[0]
    assert fitting == list(range(fitting[-1] + 1))
    assert isinstance(largest, Transmit)
    assert 200 - 4 < len(encode_frame(largest.frame)) <= 200


def test_chunks_answer_by_answer() -> None:
    a, b = sessions()
    first = chunks(a.send("b", BIG, 0.0))
    assert b.receive("a", first[0], 0.1) == [Transmit("a", ProgressFrame(1, ALL, 1))]
    assert b.receive("a", first[2], 0.1) == [Transmit("a", ProgressFrame(1, ALL, 1, 0b10))]
    assert b.receive("a", first[2], 0.1) == [Transmit("a", ProgressFrame(1, ALL, 1, 0b10))]
    assert b.receive("a", first[1], 0.1) == [Transmit("a", ProgressFrame(1, ALL, 3))]
    assert numbers(a.receive("b", ProgressFrame(1, ALL, 1, 0b10), 0.2)) == [33]
    assert numbers(a.receive("b", ProgressFrame(1, ALL, 3), 0.2)) == [34, 35]
    assert a.receive("b", ProgressFrame(1, ALL, 1), 0.2) == []  # an old answer


def test_the_last_missing_chunk_delivers_and_acknowledges() -> None:
    a, b = sessions()
    waiting, outputs = chunks(a.send("b", BIG, 0.0)), []
    while waiting:
        outputs = b.receive("a", waiting.pop(0), 0.0)
        waiting += [c for out in outputs if isinstance(out, Transmit) for c in chunks(a.receive("b", out.frame, 0.0))]
    (delivered,) = [out for out in outputs if isinstance(out, Received)]
    assert encode_message(delivered.message) == encode_message(BIG)
    assert outputs[-1] == Transmit("a", Acknowledge(1))
    assert a.deadline() is None
    assert a.links["b"].outgoing is None
    assert partial(b) == set()
    late = chunks(Session("a", SETTINGS).send("b", BIG, 0.0))[7]
    assert b.receive("a", late, 0.0) == [Transmit("a", Acknowledge(1))]  # and nothing is begun again
    assert partial(b) == set()


def test_large_messages_take_turns_and_small_ones_do_not_pass_waiting_ones() -> None:
    a, _ = sessions()
    assert a.send("b", Note(1), 0.0) == [Transmit("b", MessageFrame(1, 0, 0, Note(1)))]
    assert a.send("b", BIG, 0.0) == []  # until 1 is acknowledged
    assert a.send("b", Note(3), 0.0) == []
    assert a.send("b", BIG, 0.0) == []
    outputs = a.receive("b", Acknowledge(1), 0.1)
    assert {c.number for c in chunks(outputs)} == {2}
    assert outputs[-1] == Transmit("b", MessageFrame(3, 1, 0, Note(3)))
    assert a.receive("b", Acknowledge(1, 0b10), 0.1) == []
    assert {c.number for c in chunks(a.receive("b", Acknowledge(3), 0.2))} == {4}


def test_a_retry_asks_with_one_chunk_and_the_answer_brings_what_is_missing() -> None:
    a, _ = sessions()
    a.send("b", BIG, 0.0)
    a.receive("b", ProgressFrame(1, ALL, 2, 0b110), 0.5)
    assert a.deadline() == 1.5  # progress ended the wait of the first transmission
    assert numbers(a.wake(1.5)) == [3]
    assert numbers(a.receive("b", ProgressFrame(1, ALL, 3, 0b11), 1.6)) == [*range(6, 3 + CHUNK_WINDOW + 1)]


def test_an_answer_starts_the_wait_anew_even_if_nothing_is_there() -> None:
    a, _ = sessions()
    a.send("b", BIG, 0.0)
    assert numbers(a.wake(1.0)) == [1]
    assert numbers(a.receive("b", ProgressFrame(1, ALL, 0), 1.5)) == list(range(1, CHUNK_WINDOW + 1))
    assert a.deadline() == 2.5


def test_answers_may_come_in_any_order() -> None:
    outgoing = Outgoing(1, 9)
    assert outgoing.settle(ProgressFrame(1, 9, 2, 0b1100))
    assert not outgoing.settle(ProgressFrame(1, 9, 2, 0b0100))
    assert not outgoing.settle(ProgressFrame(1, 9, 1, 0b1))
    assert (outgoing.arrived, outgoing.early) == (2, 0b1100)
    assert outgoing.fresh() == [3, 4, 7, 8, 9]


def test_a_peer_that_is_down_is_sent_one_chunk_after_a_restart_too() -> None:
    a, _ = sessions()
    a.send("b", BIG, 0.0)
    a.wake(1.0)
    while not a.links["b"].down:
        a.wake(a.deadline() or 0.0)
    back = Session.restore("a", SETTINGS, {"b": replace(a.links["b"], outgoing=None)})
    assert numbers(back.wake(back.deadline() or 0.0)) == [1]


def test_a_receiver_that_came_back_gets_everything_again() -> None:
    a, b = sessions()
    first = chunks(a.send("b", BIG, 0.0))
    for c in first[:5]:
        for out in b.receive("a", c, 0.1):
            assert isinstance(out, Transmit)
            a.receive("b", out.frame, 0.1)
    b = Session.restore("b", SETTINGS, {"a": replace(b.links["a"], incoming=None)})
    (asked,) = chunks(a.wake(1.2))
    assert asked.chunk == 6
    assert b.receive("a", asked, 1.3) == [Transmit("a", ProgressFrame(1, ALL, 0, 1 << 5))]
    assert numbers(a.receive("b", ProgressFrame(1, ALL, 0, 1 << 5), 1.4)) == [*range(1, 6), *range(7, 33)]


def test_progress_keeps_a_slow_peer_up_and_brings_a_lost_one_back() -> None:
    a, _ = sessions()
    a.send("b", BIG, 0.0)
    for second in range(1, 60):
        assert all(not isinstance(out, PeerUp | PeerDown) for out in a.wake(float(second)))
        a.receive("b", ProgressFrame(1, ALL, second), second + 0.5)
    outputs: list[Output] = []
    for second in range(60, 100):
        outputs += a.wake(float(second))
    assert [out for out in outputs if isinstance(out, PeerDown)] == [PeerDown("b", "no acknowledgement for 20 s")]
    assert set(numbers(outputs)) == {60, 1}  # one chunk for each retry
    assert len(numbers(outputs)) < 12
    outputs = a.receive("b", ProgressFrame(1, ALL, 59), 100.0)
    assert outputs[0] == PeerUp("b")
    assert numbers(outputs) == list(range(60, 60 + CHUNK_WINDOW))


def test_a_chunk_beyond_the_window_is_answered_and_not_kept() -> None:
    _, b = sessions()
    far = frame(chunks=100, size=100, chunk=CHUNK_WINDOW + 1, content=b"x")
    assert b.receive("a", far, 0.0) == [Transmit("a", ProgressFrame(1, 100, 0))]


@pytest.mark.parametrize(
    "wrong",
    [
        frame(size=0, content=b""),
        frame(size=-1),
        frame(size=40_001, chunks=1, content=b"x" * 40_001),
        frame(size=1 << 62),
        frame(chunk=0),
        frame(chunk=-1),
        frame(chunk=5),
        frame(chunks=0, chunk=0),
        frame(chunks=11, content=b"a"),
        frame(chunks=9, content=b"ab"),  # 2 bytes each fill 5 chunks
        frame(content=b"ab"),
        frame(content=b"abcd"),
        frame(chunk=4, content=b"abc"),
        frame(chunk=4, content=b""),
        frame(number=2),  # not the next
        frame(number=0),
        frame(settled=1),
        frame(acknowledged=1),
        ProgressFrame(1, 100, -1),
        ProgressFrame(1, 100, 0, -1),
        ProgressFrame(1, 100, 0, 1 << CHUNK_WINDOW),
        ProgressFrame(1, 4, 5),
        ProgressFrame(1, 4, 2, 0b100),
    ],
    ids=repr,
)
def test_what_no_honest_peer_sends(wrong: ChunkFrame | ProgressFrame) -> None:
    _, b = sessions()
    tracemalloc.start()
    with pytest.raises(PeerError):
        b.receive("a", wrong, 0.0)
    assert tracemalloc.get_traced_memory()[1] < 20_000 + len(getattr(wrong, "content", b""))
    tracemalloc.stop()
    assert partial(b) == set()
    assert not b.links


def test_what_was_not_sent_cannot_arrive() -> None:
    a, _ = sessions()
    a.send("b", BIG, 0.0)
    assert a.receive("b", ProgressFrame(1, 5, 3), 0.0) == []  # of one cut in another way
    a.receive("b", ProgressFrame(1, ALL, ALL), 0.0)
    with pytest.raises(PeerError, match=f"one of {ALL} chunks of message 1, found {ALL + 1}"):
        a.receive("b", ProgressFrame(1, ALL, ALL, 1), 0.0)
    assert a.receive("b", ProgressFrame(7, 5, 3), 0.0) == []  # of a message that has not been cut


def test_chunks_of_no_message_are_dropped() -> None:
    _, b = sessions()
    for number, content in enumerate((b"abc", b"def", b"ghi"), 1):
        b.receive("a", frame(chunk=number, content=content), 0.0)
    with pytest.raises(MalformedMessage):
        b.receive("a", frame(chunk=4, content=b"j"), 0.0)
    assert partial(b) == set()


def test_a_hostile_peer_can_have_one_buffer_kept() -> None:
    """However often it begins anew, and a window of early messages besides."""
    b = Session("b", replace(SETTINGS, largest_message=1 << 22))
    tracemalloc.start()
    for attempt in range(100):
        size = (1 << 22) - attempt
        b.receive("a", ChunkFrame(1, 0, 0, 2, 64, size, bytes(-(-size // 64))), 0.0)
        b.receive("a", ChunkFrame(1, 0, 0, 2, 1 << 20, 1 << 20, b"x"), 0.0)
        b.receive("a", ChunkFrame(1, 0, 0, 2, 64, size, bytes(-(-size // 64))), 0.0)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 1.1 * (1 << 22)
    assert partial(b) == {"a"}
    with pytest.raises(PeerError):
        b.receive("a", MessageFrame(WINDOW + 1, 0, 0, Note(1)), 0.0)


def test_what_a_silent_peer_began_is_dropped_when_others_send() -> None:
    _, b = sessions()
    b.receive("a", frame(), 0.0)
    b.receive("c", frame(), 19.0)
    assert partial(b) == {"a", "c"}
    b.receive("c", frame(chunk=2), 20.0)
    assert partial(b) == {"c"}
    assert b.receive("c", frame(chunk=3), 90.0) == [
        Transmit("c", ProgressFrame(1, 4, 3))
    ]  # one who is heard keeps its own


def test_too_long_a_message_is_the_callers_mistake() -> None:
    a, _ = sessions()
    with pytest.raises(SpecError, match="largest_message"):
        a.send("b", model(10_001), 0.0)
    assert not a.links


@pytest.mark.parametrize(
    "wrong",
    [
        {"largest_frame": CHUNK_OVERHEAD},
        {"largest_frame": CHUNK_OVERHEAD + 10, "largest_message": (10 << 20) + 1},  # a chunk more than there may be
    ],
    ids=repr,
)
def test_settings_that_carry_nothing(wrong: dict[str, int]) -> None:
    with pytest.raises(SpecError, match=next(iter(wrong))):
        SessionSettings(1.0, 8.0, 20.0, **wrong)  # type: ignore[arg-type]


def test_a_receiver_holds_the_message_once() -> None:
    """The buffer in which its chunks arrive is what the delivered vector lies in."""
    big, settings = model(1_000_000), SessionSettings(1.0, 8.0, 20.0, largest_frame=1 << 17)
    a, b = Session("a", settings), Session("b", settings)
    waiting = a.send("b", big, 0.0)
    tracemalloc.start()
    outputs: list[Output] = []
    while waiting:
        outputs = b.receive("a", waiting.pop(0).frame, 0.0)  # type: ignore[union-attr]
        answers = [out.frame for out in outputs if isinstance(out, Transmit)]
        waiting += [out for answer in answers for out in a.receive("b", answer, 0.0)]
    assert big.values.nbytes <= tracemalloc.get_traced_memory()[1] < big.values.nbytes + 100_000
    tracemalloc.stop()
    (delivered,) = [out.message for out in outputs if isinstance(out, Received)]
    assert delivered == big


def test_chunks_are_put_together_without_copies() -> None:
    data = encode_message(model(1_000_000))
    incoming = Incoming.begun(frame(chunks=64, size=len(data)))
    tracemalloc.start()
    for chunk in range(1, 65):
        content = cut([data], chunk, 64)
        done = incoming.accept(ChunkFrame(1, 0, 0, chunk, 64, len(data), content))
    assert done
    assert tracemalloc.get_traced_memory()[1] < 50_000
    tracemalloc.stop()
    assert incoming.buffer.tobytes() == data


def test_a_message_begun_in_chunks_may_come_in_one_frame_after_all() -> None:
    """Its sender came back with longer frames; what there was of it is dropped."""
    _, b = sessions()
    b.receive("a", frame(), 0.0)
    assert partial(b) == {"a"}
    assert b.receive("a", MessageFrame(1, 0, 0, Note(1)), 0.0) == [
        Received("a", Note(1)),
        Transmit("a", Acknowledge(1)),
    ]
    assert partial(b) == set()
