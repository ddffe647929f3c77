"""Whatever the links do, everything arrives exactly once, in order, and soon after they are well again."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise, permutations

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.reference.linked_nodes import Faults, Network, seeded_faults
from tests.sampling import examples

from gossamer.faults.schedules import NetworkPartition
from gossamer.protocol.encoding import decode, encode
from gossamer.protocol.events import PeerDown, PeerUp, Received
from gossamer.protocol.messages import Message, message
from gossamer.protocol.session import Session, SessionSettings


@message("test.faults.note")
@dataclass(frozen=True)
class Note(Message):
    number: int


SETTINGS = SessionSettings(retry_after=1.0, longest_retry=4.0, silence=6.0)
DELAY = 0.125
NAMES = ("a", "b", "c")
# A test must not depend on how busy a machine is.
MANY = settings(deadline=None, max_examples=examples(100), suppress_health_check=[HealthCheck.too_slow])

Send = tuple[float, str, str]
"""When, from whom, to whom."""

TIMES = st.integers(0, 160).map(lambda eighths: eighths / 8)
DELAYS = st.sampled_from([0.125, 0.25, 1.0, 3.0, 10.0])
FATES = st.lists(st.lists(DELAYS, max_size=3).map(tuple), max_size=60).map(tuple)
PARTITIONS = st.lists(
    st.builds(
        lambda start, length, group: NetworkPartition(start, start + length, frozenset(group)),
        TIMES,
        TIMES,
        st.sets(st.sampled_from(NAMES), min_size=1, max_size=2),
    ),
    max_size=3,
).map(tuple)
FAULTS = st.builds(Faults, FATES, PARTITIONS, st.just(DELAY))
PAIRS = st.sampled_from(list(permutations(NAMES, 2)))
SENDS = st.lists(st.builds(lambda at, pair: (at, *pair), TIMES, PAIRS), max_size=30)


def network(sends: list[Send], faults: Faults) -> Network:
    """A network that will carry note i as the i-th of ``sends``."""
    net = Network(NAMES, SETTINGS, faults)
    for number, (at, sender, to) in enumerate(sends):
        net.call(at, lambda sender=sender, to=to, number=number: net.send(sender, to, Note(number)))  # type: ignore[misc]
    return net


def last_fault(net: Network) -> float:
    """When the last frame was put on a link that did not simply take it across."""
    faults = [sent.at for sent in net.transmissions if sent.delays != (DELAY,)]
    return max([*faults, *(partition.end for partition in net.faults.partitions)], default=0.0)


@MANY
@given(SENDS, FAULTS)
@example([(0.0, "a", "b")] * 30, Faults(((),) * 60, (), DELAY))
@example([(0.0, "a", "b"), (0.0, "b", "a")], Faults((), (NetworkPartition(0.0, 15.0, frozenset("a")),), DELAY))
def test_exactly_once_in_order_and_soon(sends: list[Send], faults: Faults) -> None:
    net = network(sends, faults)
    net.run()  # ends only when nobody waits for anything

    for sender, to in permutations(NAMES, 2):
        sent = [
            number for number, send in sorted(enumerate(sends), key=lambda item: item[1][0]) if send[1:] == (sender, to)
        ]
        arrived = [
            event.message.number  # type: ignore[attr-defined]
            for _, name, event in net.events
            if name == to and isinstance(event, Received) and event.sender == sender
        ]
        assert arrived == sent

    # After the last fault and the last send, at time T, the oldest message is retried by T + longest_retry and its
    # acknowledgement is back 2 delays later; by then the others are overdue or become so within retry_after, and
    # arrive after another delay. (At most 30 messages are sent, less than a window.)
    bound = max(last_fault(net), *(at for at, _, _ in sends), 0.0) if sends else 0.0
    bound += SETTINGS.longest_retry + SETTINGS.retry_after + 3 * DELAY
    assert all(at <= bound for at, _, event in net.events if isinstance(event, Received))
    assert all(not link.outbox and not link.early for s in net.sessions.values() for link in s.links.values())


@MANY
@given(SENDS, FAULTS)
def test_reports_alternate_and_end_with_up(sends: list[Send], faults: Faults) -> None:
    net = network(sends, faults)
    net.run()
    for name, peer in permutations(NAMES, 2):
        reports = [
            (at, type(event))
            for at, where, event in net.events
            if where == name and isinstance(event, (PeerDown, PeerUp)) and event.peer == peer
        ]
        kinds = [kind for _, kind in reports]
        assert kinds == [PeerDown, PeerUp] * (len(kinds) // 2)
        assert all(late >= early for (early, _), (late, _) in pairwise(reports))


@MANY
@given(SENDS, FAULTS, st.lists(st.tuples(TIMES, st.sampled_from(NAMES)), min_size=1, max_size=5))
def test_state_round_trip_changes_nothing(sends: list[Send], faults: Faults, restarts: list[tuple[float, str]]) -> None:
    """Sessions that go through bytes at arbitrary times do exactly what undisturbed ones do."""
    undisturbed, restarted = network(sends, faults), network(sends, faults)
    undisturbed.run()
    for at, name in sorted(restarts):
        restarted.run(until=at)
        state = decode(encode(restarted.sessions[name].links))
        restarted.sessions[name] = Session.restore(name, SETTINGS, state)
    restarted.run()
    assert restarted.events == undisturbed.events
    assert restarted.transmissions == undisturbed.transmissions


@MANY
@given(SENDS, FAULTS)
def test_retries_are_paced(sends: list[Send], faults: Faults) -> None:
    """A message is never put on the link again within ``retry_after`` of the last time."""
    net = network(sends, faults)
    net.run()
    last: dict[tuple[str, str, int], float] = {}
    for sent in net.transmissions:
        if hasattr(sent.frame, "number"):
            key = (sent.sender, sent.to, sent.frame.number)
            assert sent.at - last.get(key, -1.0) >= SETTINGS.retry_after
            last[key] = sent.at


def test_more_than_a_window_gets_through_a_bad_link() -> None:
    """200 messages each way, a third of the frames lost, a fifth duplicated, all reordered."""
    sends = [(0.0, sender, to) for _ in range(200) for sender, to in (("a", "b"), ("b", "a"))]
    net = network(sends, seeded_faults(1, frames=3000, loss=1 / 3, duplicate=0.2, longest_delay=3.0))
    net.run()
    for to in ("a", "b"):
        arrived = [event.message.number for _, name, event in net.events if name == to and isinstance(event, Received)]  # type: ignore[attr-defined]
        assert arrived == list(range(0 if to == "b" else 1, 400, 2))
