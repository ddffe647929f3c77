"""The contract that every algorithm keeps, as a test class to inherit from.

    class TestMyAlgorithm(AlgorithmContract):
        settings = my_algorithm.Settings(nodes=5)

Each test runs the algorithm's own nodes in the simulator, on data sides that answer with fixed pseudo-random vectors.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest

from gossamer.algorithms.context import Context
from gossamer.algorithms.interface import Algorithm, Cast
from gossamer.algorithms.table import ALGORITHMS
from gossamer.errors import BudgetSpent, PeerError
from gossamer.privacy.clipping import Clipping
from gossamer.privacy.mechanisms import NoNoise, Poisson
from gossamer.privacy.tasks import Gradient, LocalUpdate, Query, Round
from gossamer.protocol.effects import Reject, Release, Send
from gossamer.protocol.encoding import decode, encode
from gossamer.protocol.events import Completed, Received
from gossamer.protocol.messages import Message, decode_message, encode_message, encoded_size, message
from gossamer.protocol.node import Node, restore_state, state_of
from gossamer.protocol.snapshots import Kept
from gossamer.protocol.trace import TraceStep, read_steps, replay, write_step
from gossamer.randomness import stream
from gossamer.runtimes.simulator import Simulator
from gossamer.runtimes.speeds import SpeedSettings
from gossamer.runtimes.world import FaultSettings, LinkSettings, World
from gossamer.sides.machine import SideAnswer
from gossamer.sides.pool import BlankSides
from gossamer.topology.topologies import build_graph
from gossamer.vectors import LARGEST_VALUE, Blank, Confined, Public, Released, Sendable, Vector

SIZE = 11
"""Of models; no multiple of the number of nodes, so that chunks differ in size."""


@message("contract.stranger")
class Stranger(Message):
    """A message that no algorithm knows."""


class FixedAnswers(Kept):
    """Data sides whose n-th answer to a node is a fixed pseudo-random vector, up to ``most`` answers a node.

    Its entries are about ``scale``.
    """

    changing = ("asked",)

    def __init__(self, most: int = 1 << 30, scale: float = 1.0) -> None:
        self.most, self.scale = most, scale
        self.asked: dict[str, int] = {}

    def admit(self, node: str, task: Gradient | Round | LocalUpdate | Release) -> Sendable:
        if self.releases(node) >= self.most:
            raise BudgetSpent(f"{node} has made {self.most} releases")
        self.asked[node] = self.releases(node) + 1
        values = stream(7, node, number=self.asked[node]).standard_normal(task.answer_size).astype(task.dtype)
        values *= self.scale
        return task.label(values + task.base)

    def amended(self, ticket: Sendable, task: Round) -> Sendable:
        return ticket

    def compute(self, tickets: Sequence[Sendable]) -> list[SideAnswer]:
        return [SideAnswer(ticket) for ticket in tickets]

    def releases(self, node: str) -> int:
        return self.asked.get(node, 0)


LOSSY = LinkSettings(latency=0.2, jitter=0.4, loss=0.2, duplicate=0.1, retry_after=1.0, silence=8.0)
WORLDS = {
    "even": World(),
    "uneven": World(SpeedSettings(name="lognormal"), LinkSettings(latency=0.3, bandwidth=300.0)),
    "lossy": World(SpeedSettings(name="lognormal"), LOSSY, seed=3),
}


class PlainRun(NamedTuple):
    """A run that tests only look at.

    Attributes
    ----------
    simulator : Simulator
        At its end.
    steps : list of TraceStep
        All of them.
    asked : dict of str to int
        How many answers each node asked for.
    """

    simulator: Simulator
    steps: list[TraceStep]
    asked: dict[str, int]


_KEPT: list[tuple[type, World, PlainRun]] = []
"""Plain runs of the contract that is tested now."""


class AlgorithmContract:
    """Inherit, and set ``settings`` to the algorithm's settings, and ``clipping`` unless the clip is fixed."""

    settings: ClassVar[Any]
    clipping: ClassVar[Clipping] = Clipping()
    quota: ClassVar[int] = 6
    label: ClassVar[type[Vector]] = Released
    """Of models: `Confined` where nodes of a unit work at a state that is not released."""

    @property
    def algorithm(self) -> Algorithm[Any]:
        return ALGORITHMS[self.settings.name]

    def context(self, *, blank: bool = False, dtype: str = "float64", quota: int | None = None) -> Context:
        names = self.names
        joined, topology = self.cast.joined, self.cast.topology
        query = Query(Poisson(0.5), NoNoise(), 4.0)
        initial = Blank(SIZE, dtype) if blank else stream(1).standard_normal(SIZE).astype(dtype)
        return Context(
            seed=5,
            names=names,
            graph=build_graph(topology, len(joined), stream(2), joined, directed=self.cast.directed),
            initial=Public(initial),
            queries=dict.fromkeys(names, query),
            shard_sizes=dict.fromkeys(names, 8),
            quotas=dict.fromkeys(names, quota or self.quota),
            clipping=self.clipping,
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Nodes with data."""
        return tuple(f"node-{number}" for number in range(self.settings.nodes))

    def within(self, world: World) -> World:
        """``world`` with the algorithm's servers and units, and with what its nodes are told."""
        told = self.algorithm.terms(self.settings).told
        return replace(world, servers=self.servers, units=dict(self.cast.trust), told=told)

    @property
    def servers(self) -> tuple[str, ...]:
        """Nodes without data."""
        return self.cast.servers

    @property
    def cast(self) -> Cast:
        """Parties of a run."""
        return self.algorithm.cast(self.settings, self.names)

    def nodes(self, **options: Any) -> dict[str, Node]:
        return self.algorithm.build(self.settings, self.context(**options))

    def run(
        self,
        world: World,
        *,
        nodes: dict[str, Node] | None = None,
        computer: Any = None,
        look: Callable[[Simulator], None] | None = None,
        watch: Callable[[TraceStep], None] = lambda step: None,
    ) -> tuple[Simulator, list[TraceStep]]:
        """A whole run, and its steps; ``look`` is called after every event, ``watch`` with every step."""
        steps: list[TraceStep] = []

        def note(step: TraceStep) -> None:
            steps.append(step)
            watch(step)

        computer = computer or FixedAnswers()
        simulator = Simulator(nodes or self.nodes(), computer, self.within(world), watch=note)
        while simulator.next_time is not None and not simulator.settled:
            simulator.step()
            if look is not None:
                look(simulator)
            assert len(steps) < 100_000, "the run does not end"
        return simulator, steps

    def plain(self, world: World) -> PlainRun:
        """A run on `FixedAnswers`, which is made once for all tests of a class that only look at it."""
        for contract, known, plain in _KEPT:
            if contract is type(self) and known is world:
                return plain
        computer = FixedAnswers()
        made = PlainRun(*self.run(world, computer=computer), computer.asked)
        _KEPT[:] = [one for one in _KEPT if one[0] is type(self)]
        _KEPT.append((type(self), world, made))
        return made

    def steps(self, world: World) -> list[TraceStep]:
        """The steps of `plain`."""
        return self.plain(world).steps

    @pytest.fixture(params=WORLDS)
    def world(self, request: pytest.FixtureRequest) -> World:
        return WORLDS[request.param]

    def test_settings_are_frozen_and_named(self) -> None:
        assert ALGORITHMS[self.settings.name].Settings is type(self.settings), (
            f"expected {self.settings.name} in the table with the class of these settings"
        )
        with pytest.raises(ValueError, match="frozen"):
            self.settings.nodes = 3

    def test_all_start_at_the_initial_model(self) -> None:
        context, nodes = self.context(), self.nodes()
        assert tuple(nodes) == context.names + self.servers, "expected a node for each name, then the servers"
        models = [self.algorithm.model_of(node) for node in nodes.values()]
        assert all(model == context.initial for model in models), "expected every node to start at the initial model"
        np.testing.assert_allclose(self.algorithm.output(nodes).values, context.initial.values, rtol=1e-15)

    def test_everyone_finishes_with_its_quota(self, world: World) -> None:
        simulator, _, asked = self.plain(world)
        assert not (left := {*simulator.nodes} - {*simulator.finished}), f"expected all to finish, not {left}"
        assert set(asked.values()) == {self.quota}, f"expected {self.quota} releases of each, found {asked}"

    def test_the_same_seed_gives_the_same_trace(self, world: World) -> None:
        first, second = self.steps(world), self.run(world)[1]
        same = [encode(step) for step in first] == [encode(step) for step in second]
        assert same, "expected the same steps of two runs with one seed: a node has randomness of its own"

    def test_a_trace_replays_through_fresh_nodes(self, world: World) -> None:
        file = io.BytesIO()
        for step in self.steps(world):
            write_step(file, step)
        file.seek(0)
        assert (found := replay(read_steps(file), self.nodes())) is None, f"expected the trace's own effects: {found}"

    def test_all_that_changes_is_in_the_state(self) -> None:
        """Two sets of nodes side by side, and one that has its states from the middle on, do the same."""
        sets, steps = [self.nodes(), self.nodes()], self.steps(WORLDS["uneven"])
        for place, step in enumerate(steps):
            if place == len(steps) // 2:
                sets.append(self.nodes())
                for name, node in sets[-1].items():
                    restore_state(node, decode(encode(state_of(sets[0][name]))))
            effects = [encode(nodes[step.node].handle(step.event, step.now)) for nodes in sets]
            assert {*effects} == {encode([*step.effects])}, (
                f"expected effects of {step.node} on {type(step.event).__name__} that follow from its state alone: "
                "something else changes, such as an attribute of the node or its class, or a global name"
            )

    def test_the_schedule_does_not_depend_on_values(self, world: World) -> None:
        """With nothing in their vectors, the same nodes see the same kinds of events at the same times."""

        def outline(steps: list[TraceStep]) -> list[Any]:
            return [(s.now, s.node, type(s.event), [type(effect) for effect in s.effects]) for s in steps]

        blank = BlankSides()
        _, without = self.run(world, nodes=self.nodes(blank=True), computer=blank)
        _, real, asked = self.plain(world)
        assert outline(without) == outline(real), "expected times and kinds of events that depend on no values"
        counted = {name: blank.releases(name) for name in asked}
        assert counted == asked, f"expected as many releases without values, {asked}, found {counted}"

    def test_messages_carry_only_what_may_be_sent_and_travel_unchanged(self, world: World) -> None:
        sent = [effect.message for step in self.steps(world) for effect in step.effects if isinstance(effect, Send)]
        for item in sent:
            data = encode_message(item)
            assert decode_message(data) == item, f"expected a message that travels unchanged, found {item}"
            assert len(data) == encoded_size(item), f"expected {len(data)} bytes as the size of {item}"

    def test_models_have_their_label(self, world: World) -> None:
        simulator = self.plain(world).simulator
        for node in simulator.nodes.values():
            model = self.algorithm.model_of(node)
            assert type(model) is self.label, (
                f"expected a model labelled {self.label.__name__}, found {type(model).__name__}"
            )
        assert type(self.algorithm.output(simulator.nodes)) is Released, "expected an output that is Released"

    def test_state_is_plain_data(self, world: World) -> None:
        nodes, seen = self.nodes(), dict[str, bytes]()

        def look(name: str) -> None:
            data = encode(state_of(nodes[name]))
            if seen.get(name) != data:
                assert encode(decode(data)) == data, f"expected a state of plain data at {name}"
                seen[name] = data

        for name in nodes:
            look(name)
        self.run(world, nodes=nodes, watch=lambda step: look(step.node))
        # Nothing but its own steps has changed a node.
        now = {name: encode(state_of(node)) for name, node in nodes.items()}
        assert now == seen, "expected states that change by a node's own steps alone: two nodes share one object"

    def test_invariants_change_only_by_a_nodes_own_update(self, world: World) -> None:
        """Compare after every event, relative to the models' size, 1e-12 in float64."""
        nodes = self.nodes()
        steps: list[TraceStep] = []
        simulator = Simulator(nodes, FixedAnswers(), self.within(world), watch=steps.append)
        before = self.algorithm.figures.invariants(nodes, simulator.in_flight)
        while simulator.next_time is not None and not simulator.settled:
            models = {name: self.algorithm.model_of(node).values for name, node in nodes.items()}
            seen = len(steps)
            simulator.step()
            updated = {step.node for step in steps[seen:] if isinstance(step.event, Completed)}
            own = sum((self.algorithm.model_of(nodes[n]).values - models[n] for n in updated), start=0.0)
            after = self.algorithm.figures.invariants(nodes, simulator.in_flight)
            for name, value in after.items():
                scale = 1 + np.abs(value).max()
                np.testing.assert_allclose(value, before[name] + own, rtol=0, atol=1e-12 * scale)
            before = after

    def test_a_node_whose_budget_is_spent_goes_on_answering(self) -> None:
        computer = FixedAnswers(most=3)
        simulator, _ = self.run(WORLDS["uneven"], computer=computer)
        ended = {simulator.finished[name] for name in simulator.workers}
        assert ended == {"budget"}, f"expected all to end as their budget was spent, found {ended}"
        assert set(computer.asked.values()) == {3}, f"expected 3 releases of each, found {computer.asked}"
        assert not simulator.in_flight, "expected every message to be answered"

    def test_a_strangers_message_changes_nothing(self) -> None:
        simulator = self.plain(WORLDS["even"]).simulator
        for node in simulator.nodes.values():
            before = encode(state_of(node))
            with pytest.raises(PeerError):
                node.handle(Received("node-1", Stranger()), simulator.now)
            assert encode(state_of(node)) == before, (
                "expected a message that is refused to leave its receiver as it was"
            )

    def test_a_spoilt_vector_is_refused_wherever_it_comes(self) -> None:
        """Before each message of a run, the same with its vectors spoilt: it leaves its receiver as it was.

        Or the receiver goes on without it, and says so (`Reject`): then nothing of the vector is in it.
        """
        nodes = self.nodes()
        for step in self.steps(WORLDS["uneven"]):
            if isinstance(step.event, Received):
                node, event = nodes[step.node], step.event
                for bad in _BAD:
                    spoilt = _spoilt(event.message, bad)
                    if spoilt != event.message:
                        refused = _refuses(node, Received(event.sender, spoilt), step.now, bad)
                        assert refused, f"expected {step.node} to refuse {type(event.message).__name__} with {bad[:2]}"
            nodes[step.node].handle(step.event, step.now)

    def test_a_run_that_diverges_ends_and_nobody_refuses_what_another_sends(self, world: World) -> None:
        """Models stay within `LARGEST_VALUE`, so that numbers follow from them and not infinities."""

        def look(simulator: Simulator) -> None:
            assert not simulator.counters.rejected, "expected nobody to refuse what another sends"
            for node in simulator.nodes.values():
                within = self.algorithm.model_of(node).is_within(2 * LARGEST_VALUE)
                assert within, f"expected models of at most {LARGEST_VALUE:g}: clamp them where they are computed"

        simulator, _ = self.run(world, computer=FixedAnswers(scale=1e300), look=look)
        assert not (left := {*simulator.nodes} - {*simulator.finished}), f"expected all to finish, not {left}"

    def test_a_node_that_leaves_and_comes_back_makes_progress(self) -> None:
        absence = {"node": self.settings.nodes - 1, "start": 2.5, "end": 20.0}
        faults = FaultSettings.model_validate({"absences": [absence]})
        world = World(SpeedSettings(), LOSSY.model_copy(update={"silence": 4.0}), faults)
        simulator, _ = self.run(world)
        assert not (left := {*simulator.nodes} - {*simulator.finished}), f"expected all to finish, not {left}"


_BAD = (np.full(SIZE, np.nan), np.full(SIZE, 1e200), np.zeros(SIZE + 2), np.zeros(SIZE, np.float32))


def _refuses(node: Node, event: Received, now: float, bad: np.ndarray[Any, Any]) -> bool:
    """Whether a spoilt message changes nothing, or is rejected and leaves nothing behind; the node is as it was."""
    before, kept = encode(state_of(node)), node.kept()
    try:
        effects = node.handle(event, now)
    except PeerError:
        return encode(state_of(node)) == before
    clean = not bad.any() or bad.tobytes() not in encode(state_of(node))
    for name, value in kept.items():
        setattr(node.state, name, value)
    return clean and any(isinstance(effect, Reject) and effect.sender == event.sender for effect in effects)


def _spoilt(original: Message, vector: np.ndarray[Any, Any]) -> Message:
    values = {
        name: (Confined if isinstance(value, Confined) else Released)(vector)
        if isinstance(value, (Public, Released, Confined))
        else value
        for name, value in vars(original).items()
    }
    return type(original)(**values)
