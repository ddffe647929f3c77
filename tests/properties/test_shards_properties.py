"""Shards: whatever nodes do, and however many things happen at one time, the order is that of one process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reference.local_crew import Inline
from tests.sampling import examples

from gossamer.data.memory import Data
from gossamer.experiment.preparation.secrets import NoiseSecret
from gossamer.experiment.runs.running import run
from gossamer.privacy.mechanisms import NoNoise, Poisson
from gossamer.privacy.tasks import Gradient, Query
from gossamer.protocol.effects import CancelTimer, Compute, Effect, Record, Send, SetTimer
from gossamer.protocol.events import Answered, Event
from gossamer.protocol.messages import Message, message
from gossamer.protocol.node import Node
from gossamer.randomness import stream
from gossamer.runtimes.shard import ShardSimulator
from gossamer.runtimes.shards import Shards
from gossamer.runtimes.simulator import Simulator
from gossamer.runtimes.speeds import SpeedSettings
from gossamer.runtimes.world import LinkSettings, World
from gossamer.sides.pool import BlankSides
from gossamer.vectors import Blank, Public

QUERY = Query(Poisson(0.5), NoNoise(), 1.0)
DELAYS = (0.0, 0.0, 0.25, 0.5, 0.5, 1.0)
"""Few, and sums of each other, so that much happens at one time; some things at the very time of their cause."""


@message("test.shards.word")
@dataclass(frozen=True)
class Word(Message):
    number: int


@dataclass
class Busy:
    events: int = 0
    tasks: int = 0
    computing: bool = False


class Restless(Node):
    """Writes down that something happened, and at its first events does anything at all about it."""

    def __init__(self, name: str, others: Sequence[str], seed: int) -> None:
        super().__init__(name, Busy())
        self._others, self._seed = others, seed

    def handle(self, event: Event, now: float) -> list[Effect]:
        s = self.state
        s.events += 1
        s.computing &= not isinstance(event, Answered)
        drawn = stream(self._seed, self.name, number=s.events)
        return [Record(type(event).__name__, float(s.events)), *(self._effects(drawn) if s.events < 12 else ())]

    def _effects(self, drawn: np.random.Generator) -> Iterator[Effect]:
        s = self.state
        for kind in drawn.integers(5, size=drawn.integers(4)):
            match kind:
                case 0 | 1:
                    yield Send(self._others[int(drawn.integers(len(self._others)))], Word(s.events))
                case 2:
                    yield SetTimer(DELAYS[int(drawn.integers(len(DELAYS)))], f"{drawn.integers(3)}")
                case 3:
                    yield CancelTimer(f"{drawn.integers(3)}")
        if not s.computing and s.tasks < s.events // 2:
            s.tasks, s.computing = s.tasks + 1, True
            yield Compute(Gradient(s.tasks, Public(Blank(2)), QUERY))


@dataclass(frozen=True)
class Toys:
    """Makes such nodes, and shards of them."""

    nodes: int
    world: World
    homes: tuple[int, ...]

    def all(self) -> dict[str, Node]:
        names = [f"n{number}" for number in range(self.nodes)]
        return {name: Restless(name, [other for other in names if other != name], self.world.seed) for name in names}

    def __call__(self, seed: int, number: int) -> ShardSimulator:
        computer: Any = BlankSides()
        return ShardSimulator(self.all(), computer, self.world, self.homes, number)


@given(
    st.integers(2, 5),
    st.integers(1, 4),
    st.integers(0, 2**20),
    st.sampled_from([0.25, 0.5, 1.0, 3.0]),
    st.sampled_from([0.0, 1.0]),
    st.lists(st.sampled_from([1, 2, 3]), max_size=3),
)
@settings(max_examples=examples(200), deadline=None)
def test_all_is_written_down_in_the_order_of_one_process(
    nodes: int, shards: int, seed: int, latency: float, stagger: float, looks: list[int]
) -> None:
    """Also where somebody looks after some numbers of updates, in the midst of all that happens at one time."""
    shards = min(shards, nodes)
    world = World(SpeedSettings(seconds=0.5, stagger=stagger), LinkSettings(latency=latency), seed=seed)
    toys = Toys(nodes, world, tuple(number * shards // nodes for number in range(nodes)))
    alone, together = list[Any](), list[Any]()
    simulator = Simulator(
        toys.all(), BlankSides(), world, record=lambda *note: alone.append(note), staleness="computing"
    )
    computer: Any = BlankSides()
    record = lambda *note: together.append(note)  # noqa: E731
    crew = Inline(shards)
    crew.start(toys, 0)
    with closing(Shards(toys.all(), computer, world, crew, record, "computing")) as sharded:
        target = 0
        for more in [*looks, None]:
            target = None if more is None else target + more
            while sharded.goes_on and (target is None or sharded.counters.updates < target):
                sharded.advance(updates=target)
            while simulator.goes_on and (target is None or simulator.counters.updates < target):
                simulator.step()
            assert together == alone
            assert sharded.now == simulator.now
            assert sharded.counters.events == simulator.counters.events
            assert (sharded.messages, sharded.bytes) == (simulator.messages, simulator.bytes)
            assert sharded.activity.staleness() == simulator.activity.staleness()
            assert sharded.activity.timeline.as_dict() == simulator.activity.timeline.as_dict()


def made_up() -> Data:
    """Examples, some of them so large that their gradients are not finite, which nodes write down."""
    drawn = stream(3)
    x, y = drawn.random((100, 4)), drawn.integers(0, 2, 100)
    x[::4] = 3.4e38
    return Data(x[:80], y[:80], x_test=x[80:], y_test=y[80:], labels=[0, 1])


ALGORITHMS = st.sampled_from(["gossip", "d_psgd", "muffliato", "allreduce", "local"])
SPEEDS = st.sampled_from(
    [
        "lognormal",
        "cyclic",
        {"name": "constant", "stagger": 0.0},
        {"name": "constant", "stagger": 0.0, "scenario": "one_slow"},
        {"name": "lognormal", "scenario": "random_slow"},
    ]
)
LOOKS = st.sampled_from([{"name": "off"}, {"every_updates": 1}, {"every_updates": 4}, {"every_seconds": 0.5}])
STOPS = st.sampled_from([{}, {"updates": 11}, {"virtual_seconds": 3.0}, {"virtual_seconds": 2.7, "updates": 9}])


class Remade(Inline):
    """Shards that are all made anew before some window, from their snapshots, which have no seed of noise."""

    def __init__(self, shards: int, after: int) -> None:
        super().__init__(shards)
        self._left = after

    def ask(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        if method == "deliver":
            self._left -= 1
            if not self._left:
                snapshots = super().ask("kept", [()] * self.shards)
                forms = [self._seed.to_bytes(16, "little"), self._seed.to_bytes(16, "big"), str(self._seed).encode()]
                assert not any(form in snapshot for snapshot in snapshots for form in forms)
                self.own = [self._maker(self._seed, number) for number in range(self.shards)]
                super().ask("set_back", [(snapshot,) for snapshot in snapshots])
        return super().ask(method, arguments)


@given(
    ALGORITHMS,
    st.integers(2, 6),
    st.integers(1, 4),
    SPEEDS,
    LOOKS,
    STOPS,
    st.sampled_from([0.01, 0.25, 1 / 3, 1.0, 2.5]),
    st.integers(0, 99),
    st.integers(1, 30),
)
@settings(max_examples=examples(80), deadline=None)
def test_small_runs_have_the_same_bytes(
    name: str, nodes: int, shards: int, speeds: Any, looks: Any, stop: Any, latency: float, seed: int, remade: int
) -> None:
    """Also where all shards are made anew on the way."""
    spec = {
        "objective": "logistic",
        "seed": seed,
        "algorithm": {"name": name, "nodes": nodes, "batch_size": 2, "updates_per_node": 5},
        "privacy": {"clip": 1.0, "noise_multiplier": 1.0},
        "speeds": speeds,
        "links": {"latency": latency},
        "evaluation": looks,
        "stop": stop,
    }
    found = []
    with TemporaryDirectory() as folder:
        for engine in (None, Remade(min(shards, nodes), remade)):
            out = Path(folder) / str(engine)
            run(spec, out, data=made_up(), secret=NoiseSecret(bytes(16)), engine=engine)
            found.append({path.name: path.read_bytes() for path in out.iterdir() if path.name != "timing.json"})
    assert found[0] == found[1]
