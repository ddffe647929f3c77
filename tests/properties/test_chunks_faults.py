"""Messages that travel in chunks arrive exactly once and in order, whatever the links do and whoever restarts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import permutations

import numpy as np
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.reference.linked_nodes import Faults, Network, seeded_faults
from tests.sampling import examples

from gossamer.faults.schedules import NetworkPartition
from gossamer.protocol.encoding import decode, encode
from gossamer.protocol.events import Received
from gossamer.protocol.messages import (
    CHUNK_WINDOW,
    ChunkFrame,
    Message,
    ProgressFrame,
    encode_frame,
    frame_size,
    message,
)
from gossamer.protocol.session import Session, SessionSettings
from gossamer.vectors import Public


@message("test.chunks.model")
@dataclass(frozen=True)
class Model(Message):
    number: int
    values: Public


# Frames of 200 bytes carry 97 bytes of a message: 12 numbers of 8 bytes.
SETTINGS = SessionSettings(retry_after=1.0, longest_retry=4.0, silence=6.0, largest_frame=200, largest_message=20_000)
DELAY = 0.125
NAMES = ("a", "b")
MANY = settings(deadline=None, max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow])

Send = tuple[float, str, str, int]
"""When, from whom, to whom, and how many numbers."""

TIMES = st.integers(0, 160).map(lambda eighths: eighths / 8)
DELAYS = st.sampled_from([0.125, 0.25, 1.0, 3.0, 10.0])
FATES = st.lists(st.lists(DELAYS, max_size=3).map(tuple), max_size=120).map(tuple)
PARTITIONS = st.lists(
    st.builds(lambda start, length: NetworkPartition(start, start + length, frozenset("a")), TIMES, TIMES), max_size=2
).map(tuple)
FAULTS = st.builds(Faults, FATES, PARTITIONS, st.just(DELAY))
SIZES = st.sampled_from([0, 5, 40, 300, 1000])
SENDS = st.lists(
    st.builds(lambda at, pair, size: (at, *pair, size), TIMES, st.sampled_from(list(permutations(NAMES, 2))), SIZES),
    max_size=12,
)
RESTARTS = st.lists(st.tuples(TIMES, st.sampled_from(NAMES)), max_size=4)


def network(sends: list[Send], faults: Faults, session: SessionSettings = SETTINGS) -> Network:
    """A network that will carry model i as the i-th of ``sends``."""
    net = Network(NAMES, session, faults)
    for number, (at, sender, to, size) in enumerate(sends):
        model = Model(number, Public(np.arange(size) + 0.5 * number))
        net.call(at, lambda sender=sender, to=to, model=model: net.send(sender, to, model))  # type: ignore[misc]
    return net


def restart(net: Network, name: str, session: SessionSettings = SETTINGS, forget: bool = False) -> None:
    """Have ``name`` come back with the state of its session, or without what is half-way here or there."""
    state = decode(encode(net.sessions[name].links))
    if forget:
        state = {peer: replace(link, incoming=None, outgoing=None) for peer, link in state.items()}
    net.sessions[name] = Session.restore(name, session, state)


def assert_all_arrived(net: Network, sends: list[Send]) -> None:
    """Every model is at its receiver once, in order, with its values."""
    for sender, to in permutations(NAMES, 2):
        sent = [
            number
            for number, send in sorted(enumerate(sends), key=lambda item: item[1][0])
            if send[1:3] == (sender, to)
        ]
        arrived = [event.message for _, name, event in net.events if name == to and isinstance(event, Received)]
        assert [model.number for model in arrived] == sent  # type: ignore[attr-defined]
        for model in arrived:
            assert isinstance(model, Model)
            assert np.array_equal(model.values.values, np.arange(sends[model.number][3]) + 0.5 * model.number)


@MANY
@given(SENDS, FAULTS, RESTARTS, st.booleans())
@example([(0.0, "a", "b", 1000)] * 3, Faults(((),) * 100, (), DELAY), [], True)
@example([(0.0, "a", "b", 1000)], Faults((), (), 1.0), [(1.5, "b")], False)  # the receiver forgets a third of it
@example([(0.0, "a", "b", 1000)], Faults((), (), 1.0), [(2.5, "a"), (2.5, "b")], False)
def test_exactly_once_in_order_with_restarts(
    sends: list[Send], faults: Faults, restarts: list[tuple[float, str]], learns: bool
) -> None:
    session = replace(SETTINGS, learns=learns)  # or its window is always full
    net = network(sends, faults, session)
    for at, name in sorted(restarts):
        net.run(until=at)
        restart(net, name, session, forget=True)
    net.run()  # ends only when nobody waits for anything

    assert_all_arrived(net, sends)
    assert all(not link.outbox and not link.early for s in net.sessions.values() for link in s.links.values())
    assert all(frame_size(sent.frame) <= 200 for sent in net.transmissions)


@MANY
@given(SENDS, FAULTS, RESTARTS, st.booleans())
def test_state_round_trip_changes_nothing(
    sends: list[Send], faults: Faults, restarts: list[tuple[float, str]], learns: bool
) -> None:
    """A session that goes through bytes half-way through a message does what an undisturbed one does."""
    session = replace(SETTINGS, learns=learns)
    undisturbed, restarted = network(sends, faults, session), network(sends, faults, session)
    undisturbed.run()
    for at, name in sorted(restarts):
        restarted.run(until=at)
        restart(restarted, name, session)
    restarted.run()
    assert [encode_frame(sent.frame) for sent in restarted.transmissions] == [
        encode_frame(sent.frame) for sent in undisturbed.transmissions
    ]
    assert [sent.at for sent in restarted.transmissions] == [sent.at for sent in undisturbed.transmissions]
    assert [at for at, _, _ in restarted.events] == [at for at, _, _ in undisturbed.events]


@MANY
@given(SENDS, FAULTS)
def test_a_window_of_chunks_of_one_message_is_under_way(sends: list[Send], faults: Faults) -> None:
    """No chunk leaves more than a window ahead of what its receiver has ever said to have."""
    net = network(sends, faults)
    net.run()
    said: dict[tuple[str, str, int], int] = {}  # the most that each receiver had of each message
    for sent in net.transmissions:
        if isinstance(sent.frame, ProgressFrame):
            key = (sent.to, sent.sender, sent.frame.number)
            said[key] = max(said.get(key, 0), sent.frame.arrived)
        if isinstance(sent.frame, ChunkFrame):
            assert sent.frame.chunk <= said.get((sent.sender, sent.to, sent.frame.number), 0) + CHUNK_WINDOW


@MANY
@given(SENDS, FAULTS, TIMES, st.sampled_from([110, 120, 400, None]))
def test_a_peer_may_come_back_with_another_length_of_frames(
    sends: list[Send], faults: Faults, at: float, largest_frame: int | None
) -> None:
    net = network(sends, faults)
    net.run(until=at)
    restart(net, "a", SessionSettings(1.0, 4.0, 6.0, largest_frame=largest_frame, largest_message=20_000))
    net.run()
    assert_all_arrived(net, sends)


def test_large_models_both_ways_through_a_bad_link() -> None:
    """Ten models of 83 chunks each way, a fifth of the frames lost, a tenth doubled, all of them out of order."""
    sends = [(0.0, sender, to, 1000) for _ in range(10) for sender, to in permutations(NAMES, 2)]
    net = network(sends, seeded_faults(3, frames=8000, longest_delay=1.0))
    net.run()
    assert_all_arrived(net, sends)
    chunks = sum(isinstance(sent.frame, ChunkFrame) for sent in net.transmissions)
    assert chunks < 3 * 20 * 83  # a fifth is lost, and so is a fifth of the answers; nothing like a storm
