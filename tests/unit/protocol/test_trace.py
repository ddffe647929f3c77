"""A trace is written, read and replayed, and the least difference is found."""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
import pytest

from gossamer.errors import CallerError, MalformedMessage
from gossamer.protocol.effects import Record, Send, SetTimer
from gossamer.protocol.encoding import encode
from gossamer.protocol.events import Elapsed, Event, Received, Started
from gossamer.protocol.messages import Message, message
from gossamer.protocol.node import Effects, Node, on
from gossamer.protocol.trace import TraceStep, read_steps, replay, whole_steps, write_step
from gossamer.vectors import Public, Released


@message("test.trace.offer")
@dataclass(frozen=True)
class Offer(Message):
    model: Public | Released


@dataclass
class State:
    model: Public | Released
    peer: str


class Averager(Node):
    state: State

    @on(Started)
    def start(self, event: Started, now: float) -> Effects:
        yield SetTimer(0.5, "offer")

    @on(Elapsed)
    def offer(self, event: Elapsed, now: float) -> Effects:
        yield Send(self.state.peer, Offer(self.state.model))

    @on(Offer)
    def average(self, sender: str, incoming: Offer, now: float) -> Effects:
        self.state.model = (self.state.model + incoming.model) / 2
        yield Record("offers", 1.0)
        yield Send(sender, Offer(self.state.model))


def nodes() -> dict[str, Averager]:
    start = Public(np.zeros(3, np.float32))
    return {name: Averager(name, State(start, peer)) for name, peer in [("a", "b"), ("b", "a")]}


def recorded() -> list[TraceStep]:
    running = nodes()
    third = Released(np.full(3, 1 / 3, np.float32))
    events: list[tuple[float, str, Event]] = [
        (0.0, "a", Started()),
        (0.0, "b", Started()),
        (0.5, "a", Elapsed("offer")),
        (0.7, "b", Received("a", Offer(third))),
        (0.9, "a", Received("b", Offer(third))),
        (1.0, "b", Elapsed("offer")),
    ]
    return [TraceStep(now, name, event, running[name].handle(event, now)) for now, name, event in events]


def written(steps: list[TraceStep]) -> bytes:
    file = io.BytesIO()
    for step in steps:
        write_step(file, step)
    return file.getvalue()


def test_reads_what_was_written() -> None:
    steps = recorded()
    assert list(read_steps(io.BytesIO(written(steps)))) == steps
    assert list(read_steps(io.BytesIO(b""))) == []


def test_golden_step() -> None:
    step = TraceStep(0.5, "a", Started(), [SetTimer(1.0, "t")])
    # Written by hand from the page on the wire format.
    body = bytes.fromhex(
        "6f 0a 74726163652e73746570 04000000"  # trace.step, 4 fields
        "66 000000000000e03f"  # 0.5
        "73 01000000 61"  # "a"
        "6f 0d 6576656e742e73746172746564 00000000"  # event.started
        "6c 01000000"  # a list of one
        "6f 10 6566666563742e7365745f74696d6572 02000000 66 000000000000f03f 73 01000000 74"  # effect.set_timer
    )
    assert written([step]) == bytes([len(body), 0, 0, 0]) + body


def test_replay_agrees() -> None:
    assert replay(recorded(), nodes()) is None
    assert replay(read_steps(io.BytesIO(written(recorded()))), nodes()) is None


@pytest.mark.parametrize("place", [3, 4])
def test_replay_finds_a_flipped_bit_of_a_received_vector(place: int) -> None:
    """The last bit of one float32 changes what the node answers, and only from there on."""
    steps = recorded()
    event = steps[place].event
    assert isinstance(event, Received)
    assert isinstance(event.message, Offer)
    values = event.message.model.values.copy()
    values.view(np.uint32)[1] ^= 1
    flipped = Received(event.sender, Offer(Released(values)))
    steps[place] = TraceStep(steps[place].now, steps[place].node, flipped, steps[place].effects)
    difference = replay(steps, nodes())
    assert difference is not None
    assert difference.index == place
    assert difference.step == steps[place]
    assert difference.effects != steps[place].effects


def test_replay_finds_a_flipped_bit_of_a_sent_vector_in_the_file() -> None:
    steps = recorded()
    data = bytearray(written(steps))
    sent = encode(steps[3].effects[1])
    data[data.index(sent) + len(sent) - 4] ^= 1  # the last float32's lowest bit
    difference = replay(read_steps(io.BytesIO(bytes(data))), nodes())
    assert difference is not None
    assert difference.index == 3


def test_replay_finds_missing_reordered_and_extra_effects() -> None:
    steps = recorded()
    old = steps[3]
    for effects in (old.effects[:1], old.effects[::-1], [*old.effects, old.effects[0]]):
        changed = [*steps[:3], TraceStep(old.now, old.node, old.event, effects), *steps[4:]]
        difference = replay(changed, nodes())
        assert difference is not None
        assert (difference.index, difference.effects) == (3, old.effects)


def test_replay_finds_a_lost_step() -> None:
    steps = recorded()
    difference = replay(steps[:3] + steps[4:], nodes())  # b's model is another one when it makes its offer
    assert difference is not None
    assert difference.index == 4


def test_replay_needs_the_traces_nodes() -> None:
    with pytest.raises(CallerError, match=r"node 'b', found only a"):
        replay(recorded(), {"a": nodes()["a"]})


def test_every_truncation_is_noticed() -> None:
    steps = recorded()[:2]
    data = written(steps)
    first = len(written(steps[:1]))
    for length in range(1, len(data)):
        if length == first:
            continue
        with pytest.raises(MalformedMessage, match="ends inside a step"):
            list(read_steps(io.BytesIO(data[:length])))


@pytest.mark.parametrize("end", [b"\x00", b"\x00\x00\x00"])
def test_a_cut_length_is_no_length(end: bytes) -> None:
    with pytest.raises(MalformedMessage, match="ends inside a step"):
        list(read_steps(io.BytesIO(written(recorded()) + end)))


def test_steps_before_a_truncation_are_read() -> None:
    steps = recorded()
    reader = read_steps(io.BytesIO(written(steps)[:-1]))
    assert [next(reader) for _ in steps[:-1]] == steps[:-1]
    with pytest.raises(MalformedMessage):
        next(reader)


@pytest.mark.parametrize("value", [1, Started(), [1]])
def test_other_values_are_no_trace(value: object) -> None:
    data = encode(value)
    with pytest.raises(MalformedMessage, match="expected a step"):
        list(read_steps(io.BytesIO(len(data).to_bytes(4, "little") + data)))


@pytest.mark.parametrize("cut", [0, 1, 3, 4, 20])
def test_half_a_step_at_the_end_is_told_from_whole_ones(cut: int) -> None:
    """As a process leaves it that was killed while it wrote; the next one goes on after the whole steps."""
    file = io.BytesIO()
    write_step(file, recorded()[0])
    end = file.tell()
    write_step(file, recorded()[1])
    file.truncate(end + cut)
    assert whole_steps(file) == end
    file.seek(0)
    file.truncate(end)
    assert len(list(read_steps(file))) == 1
