"""The helpers that users test with: fault schedules, networks and linked nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from tests.reference.linked_nodes import Faults, LinkedNodes, Network, seeded_faults

from gossamer.faults.schedules import NetworkPartition
from gossamer.protocol.effects import CancelTimer, Compute, Effect, Finish, Record, Send, SetTimer
from gossamer.protocol.events import Completed, Elapsed, Event, PeerDown, PeerUp, Received, Started
from gossamer.protocol.messages import Message, message
from gossamer.protocol.node import Effects, Node, on
from gossamer.protocol.session import SessionSettings
from gossamer.protocol.trace import replay
from gossamer.vectors import Released

SETTINGS = SessionSettings(retry_after=1.0, longest_retry=4.0, silence=6.0)


@message("test.testing.ping")
@dataclass(frozen=True)
class Ping(Message):
    number: int


@dataclass
class Task:
    id: int


@dataclass
class State:
    pings: int = 0
    peer_down: bool = False


class Pinger(Node):
    """Pings its peer every second, three times; the peer pings back."""

    state: State

    @on(Started)
    def start(self, event: Started, now: float) -> Effects:
        yield SetTimer(9.0, "ping")
        yield SetTimer(1.0, "ping")
        yield SetTimer(2.5, "never")
        yield Compute(Task(1))

    @on(Elapsed)
    def ping(self, event: Elapsed, now: float) -> Effects:
        self.state.pings += 1
        yield Record(event.timer, now)
        yield Send("b", Ping(self.state.pings))
        yield CancelTimer("never")
        if self.state.pings < 3:
            yield SetTimer(1.0, "ping")

    @on(Completed)
    def done(self, event: Completed, now: float) -> Effects:
        yield Finish(f"task {event.id}")

    @on(PeerDown, PeerUp)
    def peer(self, event: Event, now: float) -> Effects:
        self.state.peer_down = isinstance(event, PeerDown)
        yield Record("peer", now)


class Echo(Node):
    state: State

    @on(Ping)
    def pong(self, sender: str, incoming: Ping, now: float) -> Effects:
        yield Send(sender, incoming)


class Counter(Pinger):
    @on(Ping)
    def count(self, sender: str, incoming: Ping, now: float) -> Effects:
        yield Record("pong", float(incoming.number))


def linked(faults: Faults, **options: Any) -> LinkedNodes:
    nodes = LinkedNodes([Counter("a", State()), Echo("b", State())], faults, SETTINGS, **options)
    nodes.start()
    return nodes


def records(nodes: LinkedNodes) -> list[tuple[float, str, float]]:
    """(when, name, value) of all that was recorded."""
    return [(s.now, e.name, e.value) for s in nodes.trace for e in s.effects if isinstance(e, Record)]


def test_linked_nodes_keep_time() -> None:
    """Timers at 1, 2 and 3 s; each ping is back two delays of 0.25 s later."""
    nodes = linked(Faults(delay=0.25))
    nodes.run()
    expected = [(float(t), "ping", float(t)) for t in (1, 2, 3)] + [(t + 0.5, "pong", float(t)) for t in (1, 2, 3)]
    assert records(nodes) == sorted(expected)
    assert nodes.network.now == 3.75  # when the last acknowledgement arrives


def test_run_until() -> None:
    nodes = linked(Faults(delay=0.25))
    nodes.run(until=2.0)
    assert nodes.network.now == 2.0
    assert [at for at, _, _ in records(nodes)] == [1.0, 1.5, 2.0]
    nodes.run(until=2.1)
    assert len(records(nodes)) == 3
    nodes.run()
    assert len(records(nodes)) == 6


def test_other_effects_go_to_the_answer() -> None:
    asked: list[tuple[str, Effect]] = []

    def answer(name: str, effect: Effect) -> Event | None:
        asked.append((name, effect))
        return Completed(effect.task.id, Released(np.ones(1)), 1) if isinstance(effect, Compute) else None

    nodes = linked(Faults(), answer=answer)
    nodes.run(until=0.5)
    assert asked == [("a", Compute(Task(1))), ("a", Finish("task 1"))]


def test_partition_is_reported_and_heals() -> None:
    """The first ping leaves at 1; 6 s without an acknowledgement later its peer is down. Retries are at 2, 4, then
    (longest wait 4 s) 8 and 12; the cut ends at 10, so the peer is up at 12 and two delays."""
    nodes = linked(Faults(partitions=(NetworkPartition(0.0, 10.0, frozenset("b")),), delay=0.25))
    nodes.run(until=9.0)
    assert nodes["a"].state.peer_down
    nodes.run()
    assert not nodes["a"].state.peer_down
    assert [at for at, name, _ in records(nodes) if name == "peer"] == [7.0, 12.5]
    assert [value for _, name, value in records(nodes) if name == "pong"] == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("seed", range(5))
def test_trace_of_linked_nodes_replays(seed: int) -> None:
    nodes = linked(seeded_faults(seed, frames=100))
    nodes.run()
    assert [value for _, name, value in records(nodes) if name == "pong"] == [1.0, 2.0, 3.0]
    traced = [step for step in nodes.trace if not isinstance(step.event, Started)]  # Task is not registered
    starts = [step for step in nodes.trace if isinstance(step.event, Started)]
    fresh: dict[str, Node] = {"a": Counter("a", State()), "b": Echo("b", State())}
    for step in starts:
        fresh[step.node].handle(step.event, step.now)
    assert replay(traced, fresh) is None


def test_fates_are_used_in_order() -> None:
    net = Network("ab", SETTINGS, Faults(((), (0.5, 0.25), (0.125,)), delay=0.0625))
    net.send("a", "b", Ping(1))  # lost
    net.send("a", "b", Ping(2))  # arrives twice, early
    net.send("a", "b", Ping(3))
    net.run(until=0.9)
    assert [sent.delays for sent in net.transmissions[:3]] == [(), (0.5, 0.25), (0.125,)]
    assert all(sent.delays == (0.0625,) for sent in net.transmissions[3:])
    assert [sent.at for sent in net.transmissions] == [0.0, 0.0, 0.0, 0.125, 0.25, 0.5]  # an answer to each copy
    assert net.events == []
    net.run()
    assert net.events == [(1.0625, "b", Received("a", Ping(number))) for number in (1, 2, 3)]


def test_partition_cuts_only_between_the_group_and_the_rest() -> None:
    partition = NetworkPartition(1.0, 2.0, frozenset({"a", "b"}))
    assert partition.cuts("a", "c", 1.0)
    assert partition.cuts("c", "b", 1.9)
    assert not partition.cuts("a", "b", 1.5)
    assert not partition.cuts("c", "d", 1.5)
    assert not partition.cuts("a", "c", 0.9)
    assert not partition.cuts("a", "c", 2.0)


def test_seeded_faults_follow_their_law() -> None:
    """10,000 frames: the counts of losses and duplicates lie within 4.5 standard deviations and the mean delay within
    4.5 standard errors of their expectation; were the seed free, a false alarm in fewer than 3 of 100,000 runs."""
    faults = seeded_faults(3, frames=10_000, loss=0.3, duplicate=0.2, longest_delay=4.0)
    assert faults == seeded_faults(3, frames=10_000, loss=0.3, duplicate=0.2, longest_delay=4.0)
    assert faults != seeded_faults(4, frames=10_000, loss=0.3, duplicate=0.2, longest_delay=4.0)
    copies = np.array([len(fate) for fate in faults.fates])
    for count, probability in ((0, 0.3), (1, 0.5), (2, 0.2)):
        deviation = np.sqrt(10_000 * probability * (1 - probability))
        assert abs((copies == count).sum() - 10_000 * probability) < 4.5 * deviation
    delays = np.array([delay for fate in faults.fates for delay in fate])
    assert delays.min() >= 0
    assert delays.max() < 4
    assert abs(delays.mean() - 2.0) < 4.5 * (4 / np.sqrt(12)) / np.sqrt(len(delays))
