"""The simulator's clock, speeds and links, one rule at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gossamer.errors import DataError, SpecError
from gossamer.privacy.mechanisms import NoNoise, Poisson
from gossamer.privacy.tasks import CuratedSum, Gradient, Query
from gossamer.protocol.effects import CancelTimer, Compute, Effect, Record, Send, SetTimer
from gossamer.protocol.events import Completed, Event, Received, Started
from gossamer.protocol.messages import Message, encoded_size, message
from gossamer.protocol.node import Node
from gossamer.runtimes.links import Links
from gossamer.runtimes.simulator import Simulator
from gossamer.runtimes.speeds import Speeds, SpeedSettings
from gossamer.runtimes.world import FaultSettings, LinkSettings, World, check_world
from gossamer.testing.contracts import FixedAnswers
from gossamer.vectors import Public, Released

TOGETHER = SpeedSettings(stagger=0)
QUERY = Query(Poisson(0.5), NoNoise(), 1.0)


@message("test.simulator.note")
@dataclass(frozen=True)
class Note(Message):
    number: int
    body: Public


@dataclass
class Seen:
    events: list[tuple[float, Event]] = field(default_factory=list)


class Scripted(Node):
    """Writes down what it sees, and answers the first event of a kind with prepared effects."""

    def __init__(self, name: str, script: dict[type, Sequence[Effect]] | None = None) -> None:
        super().__init__(name, Seen())
        self.script = dict(script or {})

    def handle(self, event: Event, now: float) -> list[Effect]:
        self.state.events.append((now, event))
        return list(self.script.pop(type(event), ()))


def note(number: int, size: int = 4) -> Note:
    return Note(number, Public(np.zeros(size)))


def run(
    nodes: dict[str, Node], world: World | None = None, computer: Any = None, until: float = 1e9, **options: Any
) -> Simulator:
    simulator = Simulator(nodes, computer or FixedAnswers(), world or World(TOGETHER), **options)
    while simulator.next_time is not None and simulator.next_time <= until:
        simulator.step()
    return simulator


def times(simulator: Simulator, name: str, kind: type) -> list[float]:
    events = simulator.nodes[name].state.events
    return [round(now - simulator.start, 9) for now, event in events if type(event) is kind]


def test_the_clock_starts_where_no_other_clock_does() -> None:
    starts = {run({"a": Scripted("a")}, World(seed=seed)).start for seed in range(5)}
    assert len(starts) == 5
    assert min(starts) >= 2**14


def test_a_message_takes_latency_and_its_turn_on_the_uplink() -> None:
    """100 bytes a second: two messages of s bytes arrive after s/100 and 2 s/100 seconds, plus the latency."""
    size = encoded_size(note(1))
    links = LinkSettings(latency=0.5, bandwidth=100.0)
    nodes = {"a": Scripted("a", {Started: [Send("b", note(1)), Send("b", note(2))]}), "b": Scripted("b")}
    simulator = run(nodes, World(TOGETHER, links))
    expected = [0.5 + size / 100, 0.5 + 2 * size / 100]
    assert times(simulator, "b", Received) == pytest.approx(expected, abs=1e-9)
    assert (simulator.messages, simulator.bytes) == (2, 2 * size)


def test_what_is_in_flight_is_known() -> None:
    nodes = {"a": Scripted("a", {Started: [Send("b", note(7))]}), "b": Scripted("b")}
    simulator = run(nodes, until=0.001)
    (item,) = simulator.in_flight
    assert (item.sender, item.to, item.message) == ("a", "b", note(7))
    while simulator.next_time is not None:
        simulator.step()
    assert simulator.in_flight == []


def test_timers_ring_once_and_can_be_cancelled_or_replaced() -> None:
    from gossamer.protocol.events import Elapsed

    nodes = {
        "plain": Scripted("plain", {Started: [SetTimer(2.0, "t")]}),
        "cancelled": Scripted("cancelled", {Started: [SetTimer(2.0, "t"), CancelTimer("t")]}),
        "replaced": Scripted("replaced", {Started: [SetTimer(2.0, "t"), SetTimer(5.0, "t")]}),
        "both": Scripted("both", {Started: [SetTimer(2.0, "t"), SetTimer(3.0, "u")]}),
    }
    simulator = run(nodes)
    rung = {name: times(simulator, name, Elapsed) for name in nodes}
    assert rung == {"plain": [2.0], "cancelled": [], "replaced": [5.0], "both": [2.0, 3.0]}


def test_records_go_to_the_private_log_and_nowhere_else() -> None:
    log: list[Any] = []
    nodes = {"a": Scripted("a", {Started: [Record("loss", 1.5)]}), "b": Scripted("b")}
    run(nodes, record=lambda *line: log.append(line))
    assert log == [(0.0, "a", "loss", 1.5)]
    assert len(nodes["b"].state.events) == 1


class Counting(FixedAnswers):
    """Remembers how many tasks were computed in each call."""

    def __init__(self) -> None:
        super().__init__()
        self.widths: list[int] = []

    def compute(self, tickets: Sequence[Released]) -> list[Released]:
        self.widths.append(len(tickets))
        return super().compute(tickets)


@pytest.mark.parametrize(("width", "calls"), [(1024, [5]), (2, [2, 2, 1]), (1, [1] * 5)])
def test_the_first_that_falls_due_has_all_pending_computed(width: int, calls: list[int]) -> None:
    task = Compute(Gradient(1, Public(np.zeros(3)), QUERY))
    names = [f"n{i}" for i in range(5)]
    computer = Counting()
    speeds = SpeedSettings(name="lognormal", stagger=0)
    run({name: Scripted(name, {Started: [task]}) for name in names}, World(speeds, width=width), computer)
    assert computer.widths == calls


def test_a_run_is_looked_at_after_each_call_of_the_data_sides() -> None:
    """Where a server counts the updates, many calls may lie between two of these, and an interrupt waits for one."""
    task = Compute(Gradient(1, Public(np.zeros(3)), QUERY))
    nodes: dict[str, Node] = {f"n{i}": Scripted(f"n{i}", {Started: [task]}) for i in range(5)}
    computer = Counting()
    world = World(SpeedSettings(name="lognormal", stagger=0), width=2)
    simulator, called = Simulator(nodes, computer, world, count=lambda servers: 0), []
    while simulator.proceed(100):
        called.append(len(computer.widths))
    assert called[:3] == [1, 2, 3]


def test_nothing_is_computed_that_never_falls_due() -> None:
    task = Compute(Gradient(1, Public(np.zeros(3)), QUERY))
    computer = Counting()
    run({"a": Scripted("a", {Started: [task]})}, computer=computer, until=0.5)
    assert computer.widths == []
    assert computer.releases("a") == 1  # charged all the same: it was begun


def test_a_server_may_ask_for_what_takes_no_time() -> None:
    """A curator's sum is answered at once, though its node has no data, and so no speed."""
    updates = (("a", Released(np.ones(4))),)
    asked = {
        "a": Compute(Gradient(1, Public(np.zeros(3)), QUERY)),
        "server": Compute(CuratedSum(1, Public(np.zeros(4)), updates, QUERY)),
    }
    nodes: dict[str, Node] = {name: Scripted(name, {Started: [task]}) for name, task in asked.items()}
    simulator = run(nodes, World(TOGETHER, servers=("server",)))
    assert times(simulator, "server", Completed) == [0.0]
    assert times(simulator, "a", Completed) == [1.0]


def test_a_node_that_is_away_loses_its_computation_and_keeps_its_messages() -> None:
    from gossamer.protocol.events import Completed, Resumed

    task = Compute(Gradient(1, Public(np.zeros(3)), QUERY))
    nodes = {"a": Scripted("a", {Started: [task]}), "b": Scripted("b", {Started: [Send("a", note(1))]})}
    faults = FaultSettings.model_validate({"absences": [{"node": 0, "start": 0.005, "end": 30.0}]})
    simulator = run(nodes, World(TOGETHER, faults=faults), until=60)
    assert times(simulator, "a", Completed) == []
    assert times(simulator, "a", Resumed) == [30.0]
    (received,) = times(simulator, "a", Received)
    assert received >= 30.0


def test_a_node_that_is_away_from_the_start_starts_when_it_comes() -> None:
    from gossamer.protocol.events import Resumed

    faults = FaultSettings.model_validate({"absences": [{"node": 0, "start": 0, "end": 30.0}]})
    simulator = run({"a": Scripted("a"), "b": Scripted("b")}, World(faults=faults))
    assert times(simulator, "a", Started) == [30.0]
    assert times(simulator, "a", Resumed) == []


def test_a_node_that_is_gone_for_ever_does_not_count_as_present() -> None:
    faults = FaultSettings.model_validate({"absences": [{"node": 0, "start": 1}, {"node": 1, "start": 1, "end": 2}]})
    simulator = run({name: Scripted(name) for name in "abc"}, World(faults=faults))
    assert list(simulator.present) == ["b", "c"]


# Speeds


def test_one_slow() -> None:
    speeds = Speeds(SpeedSettings.model_validate({"seconds": 2, "scenario": {"name": "one_slow", "node": 1}}), 3, 0)
    assert [speeds.seconds(node, 5) for node in range(3)] == [2, 20, 2]


def test_some_slow() -> None:
    speeds = Speeds(SpeedSettings.model_validate({"scenario": {"name": "some_slow", "share": 0.3}}), 7, 0)
    assert [speeds.seconds(node, 5) for node in range(7)] == [1, 1, 1, 1, 1, 10, 10]  # 2.1 of 7
    with pytest.raises(SpecError, match=r"speeds.scenario.share: 0.1 of 4 nodes is nobody; raise it, or take one_slow"):
        Speeds(SpeedSettings.model_validate({"scenario": "some_slow"}), 4, 0)


def test_random_slow_slows_one_node_in_each_iteration() -> None:
    """Exactly one of 4 nodes an iteration; over 2,000 iterations each about 500 times. A binomial(2000, 1/4) leaves
    500 +- 120 with probability 5e-10, so the false-alarm rate over four nodes is 2e-9."""
    speeds = Speeds(SpeedSettings.model_validate({"scenario": "random_slow"}), 4, 0)
    table = np.array([[speeds.seconds(node, number) for node in range(4)] for number in range(1, 2001)])
    assert np.all(np.sort(table, axis=1) == [1, 1, 1, 2])
    assert np.all(np.abs((table == 2).sum(axis=0) - 500) < 120)


def test_lognormal_has_the_mean_it_says() -> None:
    """Mean of 20,000 draws; the standard error is 2 * sqrt(e^0.25 - 1) / sqrt(20000) = 0.0075, 6 of them 0.045."""
    speeds = Speeds(SpeedSettings(name="lognormal", seconds=2.0, spread=0.5), 1, 0)
    draws = [speeds.seconds(0, number) for number in range(1, 20_001)]
    assert abs(np.mean(draws) - 2.0) < 0.045
    assert speeds.seconds(0, 17) == draws[16]


def test_update_times_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "times.csv"
    path.write_text("# node,seconds\n0,1.5\n1,2\n0,2.5\n\n")
    speeds = Speeds(SpeedSettings(name="file", path=path), 2, 0)
    assert [speeds.seconds(0, number) for number in (1, 2, 3)] == [1.5, 2.5, 1.5]
    assert speeds.seconds(1, 9) == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("0,1\n1;2\n", "line 2: expected node,seconds"),
        ("0,1\n5,2\n", "line 2: expected a node from 0 to 1"),
        ("0,1\n1,-2\n", "line 2: expected a node from 0 to 1 and seconds > 0"),
        ("0,1\n1,inf\n", "line 2"),
        ("0,1\n", "node 1 has no update time"),
    ],
)
def test_broken_files_of_update_times(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "times.csv"
    path.write_text(content)
    with pytest.raises(DataError, match=message):
        Speeds(SpeedSettings(name="file", path=path), 2, 0)


def test_a_world_that_names_nodes_that_do_not_exist() -> None:
    faults = FaultSettings.model_validate({"absences": [{"node": 4, "start": 1}]})
    with pytest.raises(SpecError, match="a number below 4, found 4"):
        check_world(SpeedSettings(), faults, 4, 0)
    links = LinkSettings.model_validate({"partitions": [{"start": 1, "group": [0, 4]}]})
    with pytest.raises(SpecError, match=r"links.partitions: a node is a number below 4, found 4"):
        check_world(SpeedSettings(), FaultSettings(), 4, 0, links)
    links = LinkSettings.model_validate({"exceptions": [{"edge": [1, 5], "latency": 1}]})
    check_world(SpeedSettings(), FaultSettings(), 4, 0, links, servers=2)
    with pytest.raises(SpecError, match=r"links.exceptions: a node is a number below 5, found 5"):
        check_world(SpeedSettings(), FaultSettings(), 4, 0, links, servers=1)
    slow = SpeedSettings.model_validate({"scenario": {"name": "one_slow", "node": 4}})
    with pytest.raises(SpecError, match="from 0 to 3, found 4"):
        check_world(slow, FaultSettings(), 4, 0)


def test_nodes_do_not_start_in_step() -> None:
    starts = Speeds(SpeedSettings(seconds=3.0, stagger=0.5), 200, 0).starts
    assert len(set(starts)) == 200
    assert 0 <= starts.min() < 0.1
    assert 1.4 < starts.max() < 1.5


@pytest.mark.parametrize("nodes", [1, 3, 8])
def test_cyclic_nodes_finish_in_turn(nodes: int) -> None:
    """So K - 1 other updates end while any one of K nodes computes, starts of other nodes aside."""
    speeds = Speeds(SpeedSettings(name="cyclic", seconds=2.0, stagger=0.7), nodes, 0)
    assert speeds.starts.tolist() == pytest.approx([2.0 * k / nodes for k in range(nodes)])
    assert Speeds(SpeedSettings(name="cyclic", seconds=2.0), nodes, 1).starts.tolist() == speeds.starts.tolist()
    assert {speeds.seconds(node, number) for node in range(nodes) for number in (1, 2)} == {2.0}
    ends = [(speeds.starts[node] + 2.0 * number, node) for number in range(1, 6) for node in range(nodes)]
    assert [node for _, node in sorted(ends)] == list(range(nodes)) * 5


@pytest.mark.parametrize("scenario", ["one_slow", "random_slow"])
def test_no_cyclic_node_is_slower(scenario: str) -> None:
    with pytest.raises(ValueError, match=f"cyclic nodes are all equally fast, found the scenario '{scenario}'"):
        SpeedSettings.model_validate({"name": "cyclic", "scenario": scenario})


# Links


def arrivals(frames: int = 4000, **settings: Any) -> list[tuple[float, ...]]:
    links = Links(LinkSettings(latency=1.0, **settings), ("a", "b"), 0, 0.0)
    return [links.transmit("a", "b", 100, 0.0) for _ in range(frames)]


def test_loss_and_duplication_happen_as_often_as_they_should() -> None:
    """4,000 frames; sd of a binomial at most 32, so 6 sd = 190 (false alarms 2e-9 each)."""
    assert abs(sum(not copies for copies in arrivals(loss=0.3)) - 1200) < 190
    assert abs(sum(len(copies) == 2 for copies in arrivals(duplicate=0.3)) - 1200) < 190


def test_jitter_reorders_within_its_bound() -> None:
    found = [copies[0] for copies in arrivals(jitter=0.5)]
    assert 1.0 <= min(found) < 1.01
    assert 1.49 < max(found) <= 1.5
    assert sorted(found) != found


def test_a_partition_cuts_one_group_from_the_rest_for_its_time() -> None:
    settings = LinkSettings.model_validate({"partitions": [{"start": 5, "end": 10, "group": [0]}]})
    links = Links(settings, ("a", "b", "c"), 0, 100.0)

    def passes(sender: str, to: str, time: float) -> bool:
        return bool(links.transmit(sender, to, 1, 100.0 + time))

    assert [passes("a", "b", time) for time in (4.9, 5, 9.9, 10)] == [True, False, False, True]
    assert not passes("b", "a", 7)
    assert passes("b", "c", 7)
