"""Waiting that is learnt from a peer's times: the formulas of RFC 6298, and sessions that go by them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import count

import numpy as np
import pytest

from gossamer.errors import PeerError
from gossamer.protocol.encoding import decode, encode
from gossamer.protocol.events import PeerDown, Received
from gossamer.protocol.messages import Acknowledge, ChunkFrame, Frame, Message, frame_size, message
from gossamer.protocol.session import Link, Output, RoundTrips, Session, SessionSettings, Transmit
from gossamer.vectors import Public


@message("test.round_trips.note")
@dataclass(frozen=True)
class Note(Message):
    number: int


FIXED = SessionSettings(retry_after=1.0, longest_retry=8.0, silence=30.0)
LEARNS = replace(FIXED, learns=True)


def rfc(times: list[float]) -> float:
    """RTO before any bound: RFC 6298, (2.2) and (2.3), with K = 4, alpha = 1/8 and beta = 1/4."""
    srtt, rttvar = times[0], times[0] / 2
    for r in times[1:]:
        rttvar = 3 * rttvar / 4 + abs(srtt - r) / 4  # with the SRTT of before, as (2.3) says
        srtt = 7 * srtt / 8 + r / 8
    return srtt + 4 * rttvar


@pytest.mark.parametrize(
    "times", [[0.5], [0.5, 0.5, 0.5], [1.0, 3.0], [0.1, 0.2, 4.0, 0.1], [40.0] * 30], ids=lambda times: str(len(times))
)
def test_the_formulas_of_rfc_6298(times: list[float]) -> None:
    learnt = RoundTrips()
    for seconds in times:
        learnt = learnt.after(seconds)
    assert learnt.wait(0.0, math.inf) == pytest.approx(rfc(times), rel=1e-12)


def test_by_hand() -> None:
    """1 s and then 3 s: deviation 3/4 * 1/2 + 1/4 * 2 = 7/8, mean 7/8 + 3/8 = 5/4, and 5/4 + 4 * 7/8 = 19/4."""
    learnt = RoundTrips().after(1.0)
    assert learnt == RoundTrips(1.0, 0.5)
    assert learnt.wait(0.0, math.inf) == 3.0
    assert learnt.after(3.0).wait(0.0, math.inf) == 4.75


def test_a_wait_keeps_its_bounds() -> None:
    assert RoundTrips().wait(1.0, 8.0) == 1.0
    assert RoundTrips().after(0.01).wait(1.0, 8.0) == 1.0
    assert RoundTrips().after(100.0).wait(1.0, 8.0) == 8.0


def conversation(settings: SessionSettings, seconds: float, messages: int) -> tuple[int, int, Session]:
    """Send messages to a peer that acknowledges each after ``seconds``; frames transmitted, times it was given up."""
    a, now, frames, given_up = Session("a", settings), 0.0, 0, 0
    for number in range(1, messages + 1):
        outputs, answered = a.send("b", Note(number), now), now + seconds
        while (due := a.deadline()) is not None and due < answered:
            outputs += a.wake(due)
        outputs += a.receive("b", Acknowledge(number), answered)
        frames += sum(isinstance(output, Transmit) for output in outputs)
        given_up += sum(isinstance(output, PeerDown) for output in outputs)
        now = answered + 1.0
    return frames, given_up, a


def test_a_slow_peer_is_not_given_up_while_it_answers_regularly() -> None:
    """It takes 40 s, and 30 s are silence: it is given up once, until its pace is known; with fixed times always."""
    assert conversation(FIXED, 40.0, 20)[1] == 20
    assert conversation(LEARNS, 40.0, 20)[1] == 1


def test_what_a_slow_peer_answers_is_not_sent_several_times() -> None:
    """It takes 3 s: with fixed times each message goes at 0 s and at 1 s; else the wait grows until one went once."""
    fixed, learnt = conversation(FIXED, 2.9, 20)[0], conversation(LEARNS, 2.9, 20)[0]
    assert fixed == 40
    assert learnt <= 22


def test_what_was_sent_twice_tells_no_round_trip() -> None:
    """Karn: the answer may be to either. The wait that grew stays."""
    a = Session("a", LEARNS)
    a.send("b", Note(1), 0.0)
    assert a.wake(1.0) != []
    a.receive("b", Acknowledge(1), 1.5)
    link = a.links["b"]
    assert link.trips == RoundTrips()
    assert link.answers == RoundTrips(1.5, 0.75)
    assert link.wait == 2.0
    a.send("b", Note(2), 10.0)
    a.receive("b", Acknowledge(2), 10.25)
    assert a.links["b"].wait == 1.0, "0.25 + 4 * 0.125 s, and no less than retry_after"


def test_a_quick_peer_that_is_gone_is_given_up_as_soon_as_with_fixed_times() -> None:
    _, _, a = conversation(LEARNS, 0.1, 20)
    a.send("b", Note(21), 1000.0)
    reports = []
    while not reports and (due := a.deadline()) is not None:
        reports = [output for output in a.wake(due) if isinstance(output, PeerDown)]
    assert due == 1030.0
    assert reports == [PeerDown("b", "no acknowledgement for 30 s")]


def test_an_outage_is_no_pace() -> None:
    """What took over twice the time after which a peer is given up is not learnt."""
    _, _, a = conversation(LEARNS, 0.1, 5)
    link = a.links["b"]
    before = link.answers
    a.send("b", Note(6), 1000.0)
    while (due := a.deadline()) is not None and due < 1360.0:
        a.wake(due)
    a.receive("b", Acknowledge(6), 1360.0)
    after = a.links["b"]
    assert after.answers == before


def test_nobody_is_waited_for_without_end() -> None:
    """Ten silences at most, however slowly a peer has answered."""
    link = Link(1.0)
    link.answers = RoundTrips(1e9, 0.0)
    assert link.silence(30.0) == 300.0
    assert Link(1.0).silence(30.0) == 30.0


def test_what_was_learnt_is_kept() -> None:
    _, _, a = conversation(LEARNS, 2.0, 5)
    a.send("b", Note(6), 100.0)
    again = Session.restore("a", LEARNS, decode(encode(a.links)))
    assert encode(again.links) == encode(a.links)
    for one in (a, again):
        one.receive("b", Acknowledge(6), 103.0)
    assert encode(again.links) == encode(a.links)
    assert again.links["b"].wait == a.links["b"].wait > 1.0


def test_a_refused_frame_teaches_nothing() -> None:
    a = Session("a", LEARNS)
    a.send("b", Note(1), 0.0)
    before = encode(a.links)
    with pytest.raises(PeerError):
        a.receive("b", Acknowledge(7), 0.5)
    assert encode(a.links) == before


LARGE = replace(LEARNS, largest_frame=1 << 16, largest_message=1 << 24)


@message("test.round_trips.model")
@dataclass(frozen=True)
class Model(Message):
    values: Public


def over_a_line(
    rate: float, models: int, settings: SessionSettings = LARGE, way: float = 0.01
) -> tuple[float, float, int]:
    """Send models of 4 MB, one after the other, over a line of ``rate`` bytes a second, and so many seconds each way.

    Its time, the longest that anything small would have waited behind chunks on the line, and the number of chunks.
    """
    a, b = Session("a", settings), Session("b", settings)
    line, worst, chunks, arrived = 0.0, 0.0, 0, 0
    due: list[tuple[float, int, str, Frame]] = []
    order = count()

    def carry(outputs: list[Output], now: float) -> None:
        nonlocal line, worst, chunks
        for output in outputs:
            if isinstance(output, Transmit):
                at = now
                if output.to == "b":
                    line = at = max(line, now) + frame_size(output.frame) / rate
                    chunks += isinstance(output.frame, ChunkFrame)
                due.append((at + way, next(order), output.to, output.frame))
        worst = max(worst, line - now)

    now = 0.0
    for number in range(models):
        carry(a.send("b", Model(Public(np.zeros(1_000_000, np.float32))), now), now)
        while arrived == number:
            due.sort(key=lambda one: one[:2])
            if (deadline := a.deadline()) is not None and deadline <= due[0][0]:
                now = deadline
                carry(a.wake(now), now)
                continue
            now, _, to, frame = due.pop(0)
            outputs = (a if to == "a" else b).receive("b" if to == "a" else "a", frame, now)
            arrived += sum(isinstance(output, Received) for output in outputs)
            carry(outputs, now)
    return now, worst, chunks


def test_chunks_on_a_slow_line_leave_room_for_what_is_small() -> None:
    """80 kB a second: a chunk of 64 KiB takes 0.8 s, and the window of 32 of them that was under way 26 s.

    A window may take a second. So there are one or two chunks, in turns, and they take 1.6 s.
    """
    seconds, worst, chunks = over_a_line(8e4, 2)
    before = over_a_line(8e4, 2, replace(LARGE, learns=False))
    assert worst < 1.7 < 25 < before[1]
    assert seconds < 1.02 * before[0]
    assert chunks == before[2]  # nothing travels twice


def test_a_fast_line_is_filled_all_the_same() -> None:
    """100 MB a second, where the way there and back takes as long as 2 MB: of four models the first begins slowly."""
    seconds, _, _ = over_a_line(100e6, 4)
    assert seconds < 1.5 * over_a_line(100e6, 4, replace(LARGE, learns=False))[0]


def test_a_long_way_is_no_slow_line() -> None:
    """10 MB a second, and three seconds there and back, which are more than a retry's time.

    A model has 62 chunks of 64 KiB, so it takes two windows of 32. Before that, the first one has windows of 2 chunks
    (twice, since those that may have been sent twice tell no time), and of 1, 2, 4, 8 and 16. A window takes three
    seconds, and 0.2 at most on the line.
    """
    seconds, _, _ = over_a_line(10e6, 4, way=1.5)
    assert seconds < 3.2 * (7 + 4 * 2)
