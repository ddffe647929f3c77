"""A session call by call: what it transmits, delivers, reports, refuses and remembers."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from gossamer.errors import PeerError, SpecError
from gossamer.protocol.encoding import decode, encode
from gossamer.protocol.events import PeerDown, PeerUp, Received
from gossamer.protocol.messages import Acknowledge, Frame, Message, MessageFrame, ProgressFrame, message
from gossamer.protocol.session import (
    WINDOW,
    Output,
    Session,
    SessionSettings,
    Transmit,
    latest_answers,
)
from gossamer.vectors import Released


@message("test.session.note")
@dataclass(frozen=True)
class Note(Message):
    number: int


@message("test.session.model")
@dataclass(frozen=True)
class Model(Message):
    values: Released


def model(value: float) -> Model:
    return Model(Released(np.array([value], np.float32)))


SETTINGS = SessionSettings(retry_after=1.0, longest_retry=5.0, silence=10.0)


def session(settings: SessionSettings = SETTINGS) -> Session:
    return Session("a", settings)


def data(number: int, settled: int = 0, acknowledged: int = 0) -> MessageFrame:
    """The frame that carries note ``number``."""
    return MessageFrame(number, settled, acknowledged, Note(number))


def transmitted(*numbers: int, settled: int = 0, acknowledged: int = 0) -> list[Output]:
    return [Transmit("b", data(number, settled, acknowledged)) for number in numbers]


def sender(count: int, now: float = 0.0) -> Session:
    """A session that has sent notes 1 to ``count`` to b."""
    a = session()
    for number in range(1, count + 1):
        a.send("b", Note(number), now)
    return a


# Sending and acknowledging


def test_messages_are_numbered_per_peer() -> None:
    a = session()
    assert a.send("b", Note(1), 0.0) == [Transmit("b", MessageFrame(1, 0, 0, Note(1)))]
    assert a.send("b", Note(2), 0.0) == [Transmit("b", MessageFrame(2, 0, 0, Note(2)))]
    assert a.send("c", Note(3), 0.0) == [Transmit("c", MessageFrame(1, 0, 0, Note(3)))]


def test_nothing_is_due_once_all_is_acknowledged() -> None:
    a = sender(2)
    assert a.deadline() == 1.0
    assert a.receive("b", Acknowledge(1), 0.5) == []
    assert a.deadline() == 1.0
    assert a.receive("b", Acknowledge(2), 0.6) == []
    assert a.deadline() is None
    assert a.wake(100.0) == []


def test_data_acknowledges_too() -> None:
    a = sender(1)
    assert a.receive("b", data(1, acknowledged=1), 0.5) == [Received("b", Note(1)), Transmit("b", Acknowledge(1))]
    assert a.deadline() is None
    assert a.send("b", Note(2), 1.0) == transmitted(2, settled=1, acknowledged=1)


def test_what_arrived_early_is_not_retried() -> None:
    a = sender(4)
    assert a.receive("b", Acknowledge(0, early=0b1010), 0.5) == []  # 2 and 4
    assert a.wake(1.0) == transmitted(1, 3)
    assert a.receive("b", Acknowledge(2, early=0b10), 1.1) == []  # 1 arrived; still without 3
    assert a.wake(2.0) == transmitted(3, settled=2)
    assert a.receive("b", Acknowledge(4), 2.1) == []
    assert a.deadline() is None


def test_stale_and_repeated_acknowledgements_change_nothing() -> None:
    a = sender(3)
    a.receive("b", Acknowledge(2), 0.5)
    before = deepcopy(a.links)
    for old in (Acknowledge(0), Acknowledge(1), Acknowledge(2), Acknowledge(0, early=0b10)):
        assert a.receive("b", old, 0.6) == []
    assert a.links == before


def test_at_most_a_window_is_under_way() -> None:
    a = sender(WINDOW)
    assert a.send("b", Note(WINDOW + 1), 0.0) == []
    assert a.send("b", Note(WINDOW + 2), 0.0) == []
    assert a.receive("b", Acknowledge(0, early=2), 0.1) == []  # the oldest is missing, so nothing moves
    assert a.receive("b", Acknowledge(2), 0.2) == transmitted(WINDOW + 1, WINDOW + 2, settled=2)


def test_only_messages_are_sent() -> None:
    a = session()
    for wrong in (1, "note", Note(True), data(1)):
        with pytest.raises(TypeError):
            a.send("b", wrong, 0.0)  # type: ignore[arg-type]
    assert a.links == {}


# Receiving


def test_early_messages_wait_for_the_gap_to_close() -> None:
    a = session()
    assert a.receive("b", data(3), 0.0) == [Transmit("b", Acknowledge(0, early=0b100))]
    assert a.receive("b", data(2), 0.0) == [Transmit("b", Acknowledge(0, early=0b110))]
    assert a.receive("b", data(5), 0.0) == [Transmit("b", Acknowledge(0, early=0b10110))]
    assert a.receive("b", data(1), 0.0) == [
        *(Received("b", Note(number)) for number in (1, 2, 3)),
        Transmit("b", Acknowledge(3, early=0b10)),
    ]


@pytest.mark.parametrize("number", [1, 2, 4])
def test_duplicates_are_acknowledged_again_and_not_delivered(number: int) -> None:
    a = session()
    for arrived in (1, 2, 4):
        a.receive("b", data(arrived), 0.0)
    before = deepcopy(a.links)
    assert a.receive("b", data(number), 5.0) == [Transmit("b", Acknowledge(2, early=0b10))]
    assert a.links == before


def test_peers_are_independent() -> None:
    a = session()
    assert a.receive("b", data(1), 0.0)[0] == Received("b", Note(1))
    assert a.receive("c", data(1), 0.0)[0] == Received("c", Note(1))
    assert a.receive("c", data(2), 0.0) == [Received("c", Note(2)), Transmit("c", Acknowledge(2))]


# Retrying


def test_waits_grow_up_to_the_longest() -> None:
    """Waits of 1, 2, 4, 5, 5 s: transmissions at 0, 1, 3, 7, and at 10 the peer has been silent too long."""
    a = sender(1)
    times = []
    while (deadline := a.deadline()) is not None and deadline < 10.0:
        times.append(deadline)
        assert a.wake(deadline) == transmitted(1)
    assert times == [1.0, 3.0, 7.0]


def test_waking_early_does_nothing() -> None:
    a = sender(1)
    before = deepcopy(a.links)
    assert a.wake(0.99) == []
    assert a.links == before


def test_waking_late_makes_up() -> None:
    assert sender(1).wake(6.0) == transmitted(1)


def test_only_what_has_waited_is_retried() -> None:
    a = sender(1)
    a.send("b", Note(2), 0.75)
    assert a.wake(1.0) == transmitted(1)
    assert a.deadline() == 2.75  # the wait is now 2 s, for both
    assert a.wake(2.75) == transmitted(2)


def test_any_frame_ends_the_growth_of_the_wait() -> None:
    a = sender(1)
    a.wake(1.0)
    assert a.deadline() == 3.0
    a.receive("b", Acknowledge(0), 1.5)
    assert a.deadline() == 2.0


def test_deadline_is_the_earliest_of_all_peers() -> None:
    a = session()
    a.send("b", Note(1), 0.0)
    a.send("c", Note(1), 0.25)
    assert a.deadline() == 1.0
    assert a.wake(1.25) == [Transmit("b", data(1)), Transmit("c", data(1))]
    a.receive("b", Acknowledge(1), 1.5)
    assert a.deadline() == 3.25
    a.receive("c", Acknowledge(1), 1.5)
    assert a.deadline() is None


def test_deadline_moves_when_the_oldest_is_acknowledged() -> None:
    a = sender(1)
    a.send("b", Note(2), 0.5)
    a.receive("b", Acknowledge(1), 0.75)
    assert a.deadline() == 1.5


# Silence


def silent(settings: SessionSettings = SETTINGS) -> Session:
    """A session that sent notes 1 to 3 at time 0 and never heard of b again, just before its silence is up."""
    a = session(settings)
    for number in (1, 2, 3):
        a.send("b", Note(number), 0.0)
    while (deadline := a.deadline()) is not None and deadline < 10.0:
        a.wake(deadline)
    return a


def test_silence_is_reported_once_and_the_oldest_is_retried_at_the_longest_wait() -> None:
    a = silent()
    assert a.deadline() == 10.0
    assert a.wake(10.0) == [PeerDown("b", "no acknowledgement for 10 s")]
    # The last transmission was at 7 and the longest wait is 5.
    for deadline in (12.0, 17.0, 22.0):
        assert a.deadline() == deadline
        assert a.wake(deadline) == transmitted(1)


def test_a_peer_that_is_down_gets_nothing_new() -> None:
    a = silent()
    a.wake(10.0)
    assert a.send("b", Note(4), 10.5) == []
    assert a.deadline() == 12.0


def test_new_acknowledgement_reports_the_peer_up_and_sends_the_rest() -> None:
    a = silent()
    a.wake(10.0)
    a.send("b", Note(4), 10.5)
    assert a.wake(12.0) == transmitted(1)
    assert a.receive("b", Acknowledge(1), 12.25) == [PeerUp("b"), *transmitted(2, 3, 4, settled=1)]
    assert a.deadline() == 13.25
    assert a.receive("b", Acknowledge(4), 12.5) == []
    assert a.deadline() is None


def test_hearing_a_peer_that_is_down_prompts_a_retry() -> None:
    """It may be unable to hear us, so it is not up before it acknowledges something new."""
    a = silent()
    a.wake(10.0)
    assert a.receive("b", data(1), 10.25) == [
        Received("b", Note(1)),
        Transmit("b", Acknowledge(1)),
        *transmitted(1, acknowledged=1),
    ]
    assert a.receive("b", data(1), 10.5) == [Transmit("b", Acknowledge(1))]  # too soon for another retry
    assert a.receive("b", Acknowledge(3), 10.75) == [PeerUp("b")]


def test_a_peer_that_is_heard_but_acknowledges_nothing_is_reported() -> None:
    a = sender(1)
    reports: list[Output] = []
    for step in range(1, 41):
        outputs = a.receive("b", data(step), step / 2) + a.wake(step / 2)
        reports += [output for output in outputs if isinstance(output, PeerUp | PeerDown)]
    assert reports == [PeerDown("b", "no acknowledgement for 10 s")]


def test_a_peer_that_is_down_and_speaks_is_reported_again_if_it_still_acknowledges_nothing() -> None:
    """A node that took its message may wait for it, as for any other; and it may have spoken for the last time."""
    a = silent()
    a.wake(10.0)
    a.receive("b", data(1), 11.0)
    a.receive("b", data(1), 19.0)  # a broker's double says nothing
    reports = [(a.deadline(), output) for _ in range(12) for output in a.wake(a.deadline() or 0.0)]
    told = PeerDown("b", "no acknowledgement for 10 s")
    assert [output for _, output in reports if isinstance(output, PeerUp | PeerDown)] == [told]
    a.receive("b", data(2), 80.0)
    assert PeerUp("b") in a.receive("b", Acknowledge(1), 81.0)
    assert told not in a.wake(90.5)
    assert told in a.wake(91.0)


def test_silence_counts_from_the_last_progress() -> None:
    a = sender(2)
    a.receive("b", Acknowledge(1), 4.0)
    reported = None
    while reported is None:
        deadline = a.deadline()
        assert deadline is not None
        if any(isinstance(output, PeerUp | PeerDown) for output in a.wake(deadline)):
            reported = deadline
    assert reported == 14.0


def test_sending_more_does_not_put_off_the_report() -> None:
    a = session()
    outputs: list[Output] = []
    for now in range(11):
        outputs += a.send("b", Note(now), float(now)) + a.wake(float(now))
    assert [output for output in outputs if isinstance(output, PeerUp | PeerDown)] == [
        PeerDown("b", "no acknowledgement for 10 s")
    ]


def test_a_peer_that_is_down_is_retried_at_the_longest_wait_from_the_start() -> None:
    a = session(SessionSettings(retry_after=1.0, longest_retry=5.0, silence=2.0))
    a.send("b", Note(1), 0.0)
    a.wake(1.0)
    assert a.wake(2.0) == [PeerDown("b", "no acknowledgement for 2 s")]
    assert a.deadline() == 6.0


def test_idle_time_is_no_silence() -> None:
    a = sender(1)
    a.receive("b", Acknowledge(1), 0.5)
    a.send("b", Note(2), 1000.0)
    assert a.wake(1001.0) == transmitted(2, settled=1)


def test_infinite_silence_never_reports() -> None:
    a = silent(SessionSettings(retry_after=1.0, longest_retry=5.0, silence=math.inf))
    outputs = [output for now in range(10, 200) for output in a.wake(float(now))]
    assert len(outputs) > 30
    assert all(isinstance(output, Transmit) for output in outputs)


# Peers that break the protocol


@pytest.mark.parametrize(
    "frame",
    [
        Acknowledge(4),
        Acknowledge(-1),
        Acknowledge(0, early=0b1000),  # number 4
        Acknowledge(2, early=0b10),  # number 4
        Acknowledge(0, early=-1),
        Acknowledge(2**62),
        Acknowledge(0, early=2**62),
        data(3, acknowledged=4),
        data(3, acknowledged=-1),
        data(5, settled=3),  # a never acknowledged 3
        data(5, settled=-1),
        data(2, settled=2),  # settled, and yet sent
        data(0),
        data(-1),
        data(2 + WINDOW + 1),
        data(2**62),
    ],
    ids=repr,
)
def test_impossible_frames_are_refused_and_change_nothing(frame: Frame) -> None:
    a = sender(3)
    for number in (1, 2, 4):
        a.receive("b", data(number), 0.0)
    before = deepcopy(a.links)
    with pytest.raises(PeerError):
        a.receive("b", frame, 0.5)
    assert a.links == before
    assert a.deadline() == 1.0


def test_a_stranger_that_breaks_the_protocol_leaves_no_trace() -> None:
    a = session()
    for frame in (Acknowledge(1), data(WINDOW + 1)):
        with pytest.raises(PeerError):
            a.receive("stranger", frame, 0.0)
    assert a.links == {}


def test_out_of_order_buffer_is_bounded() -> None:
    a = session()
    for number in range(2, 10 * WINDOW):
        try:
            a.receive("b", data(number), 0.0)
        except PeerError:
            assert number > WINDOW
    assert len(a.links["b"].early) == WINDOW - 1


def test_what_is_queued_but_not_transmitted_cannot_be_acknowledged() -> None:
    a = sender(WINDOW + 1)
    with pytest.raises(PeerError, match=f"number {WINDOW + 1} of a, which transmitted {WINDOW}"):
        a.receive("b", Acknowledge(WINDOW + 1), 0.1)


def test_a_sender_without_its_state_is_noticed() -> None:
    """b starts afresh: what it sends looks like duplicates, and the answer tells it that something is wrong."""
    a, fresh = session(), Session("b", SETTINGS)
    for number in (1, 2, 3):
        a.receive("b", data(number), 0.0)
    [transmit] = fresh.send("a", Note(1), 0.0)
    assert isinstance(transmit, Transmit)
    [answer] = a.receive("b", transmit.frame, 0.1)
    assert isinstance(answer, Transmit)
    with pytest.raises(PeerError, match="lost its session's state"):
        fresh.receive("a", answer.frame, 0.2)


def test_a_receiver_without_its_state_is_noticed() -> None:
    """b starts afresh: it must not take the next message for an early one and wait for ever for those before."""
    a, fresh = sender(1), Session("b", SETTINGS)
    a.receive("b", Acknowledge(1), 0.1)
    [transmit] = a.send("b", Note(2), 0.2)
    assert isinstance(transmit, Transmit)
    with pytest.raises(PeerError, match="lost its session's state"):
        fresh.receive("a", transmit.frame, 0.3)


# State


def test_state_is_plain() -> None:
    a = silent()
    a.receive("c", data(2), 0.0)
    a.send("c", model(1.5), 9.0)
    assert decode(encode(a.links)) == a.links


def test_restored_session_goes_on_the_same_way() -> None:
    def rest(a: Session) -> list[Any]:
        outputs: list[Any] = [a.deadline(), a.wake(10.0), a.deadline()]
        outputs += [a.receive("b", Acknowledge(1), 12.0), a.receive("c", data(1), 12.5), a.deadline()]
        return [*outputs, a.wake(50.0), a.links]

    original = silent()
    original.receive("c", data(2), 8.0)
    original.send("c", Note(9), 8.5)
    restored = Session.restore("a", SETTINGS, decode(encode(original.links)))
    assert rest(restored) == rest(original)


# Settings


@pytest.mark.parametrize(
    "changes",
    [
        {"retry_after": 0.0},
        {"retry_after": -1.0},
        {"retry_after": math.nan},
        {"longest_retry": 0.5},
        {"longest_retry": math.inf},
    ],
)
def test_settings_are_checked(changes: dict[str, float]) -> None:
    good = {"retry_after": 1.0, "longest_retry": 5.0, "silence": 10.0}
    SessionSettings(**good)
    with pytest.raises(SpecError, match=str(next(iter(changes.values())))):
        SessionSettings(**{**good, **changes})


# Promises


def promised(session: Session, do: Callable[[Session], list[Output]]) -> int:
    before = session.promises
    do(session)
    return session.promises - before


def test_a_promise_is_a_new_number_on_the_link_or_a_message_taken_in() -> None:
    a = session()
    assert promised(a, lambda a: a.send("b", Note(1), 0.0)) == 1
    assert promised(a, lambda a: [out for n in range(2, WINDOW + 3) for out in a.send("b", Note(n), 0.0)]) == WINDOW - 1
    assert promised(a, lambda a: a.wake(1.0)) == 0  # the same again
    assert promised(a, lambda a: a.receive("b", Acknowledge(1), 1.1)) == 1  # there is room for another
    assert promised(a, lambda a: a.receive("b", Acknowledge(1), 1.2)) == 0
    for number, promises in ((3, 1), (3, 0), (1, 1), (1, 0), (2, 1), (3, 0), (4, 1)):
        assert promised(a, lambda a, number=number: a.receive("b", data(number), 1.3)) == promises  # type: ignore[misc]


def test_of_answers_to_one_peer_the_last_is_enough() -> None:
    answers = [
        Transmit("b", Acknowledge(1)),
        Transmit("b", ProgressFrame(5, 9, 1)),
        Transmit("c", Acknowledge(7)),
        Transmit("b", data(1)),
        "anything else",
        Transmit("b", Acknowledge(1, 2)),
        Transmit("b", data(1)),
        Transmit("b", ProgressFrame(6, 9, 2)),
        Transmit("b", ProgressFrame(5, 9, 4)),
    ]
    assert latest_answers(answers) == answers[2:]
    assert latest_answers([]) == []
