"""Units on a graph: what the box says, noise that cancels, and runs that end whatever becomes of messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.reference import graph_federated as reference
from tests.sampling import examples

from gossamer.algorithms.context import Context
from gossamer.algorithms.graph_federated import box as graph_federated
from gossamer.algorithms.graph_federated.nodes import ServerNode
from gossamer.algorithms.graph_federated.settings import Settings, combination, drawn, servers, units_of
from gossamer.algorithms.plan import StopSettings
from gossamer.data.examples import Split
from gossamer.errors import TopologyError
from gossamer.experiment.preparation.ending import Observer, drive
from gossamer.objectives.linear.model import LinearModel
from gossamer.privacy.mechanisms import NoNoise, Poisson
from gossamer.privacy.streams.correlated_noise import CorrelatedNoise, Factorisation, NoiseState, NoiseStream
from gossamer.privacy.tasks import Query
from gossamer.randomness import Stream, stream
from gossamer.runtimes.simulator import Simulator
from gossamer.runtimes.speeds import SpeedSettings
from gossamer.runtimes.world import FaultSettings, LinkSettings, World
from gossamer.sides.home import Simulated
from gossamer.sides.plan import ClientUpdate, SidePlan
from gossamer.sides.plan import StreamPlan as SideStream
from gossamer.sides.pool import Pool, open_pool
from gossamer.sides.samples import ShardRows
from gossamer.topology.graphs import Graph
from gossamer.topology.topologies import build_graph
from gossamer.vectors import Public

FEATURES, SHARD, SEED = 3, 12, 11


@dataclass
class Setup:
    """A small regression, its units, and their data sides with noise of standard deviation 1."""

    settings: Settings
    seed: int = 0
    clip: float = 2.0

    def __post_init__(self) -> None:
        chosen = self.settings
        self.names = tuple(f"node-{number}" for number in range(chosen.nodes))
        self.servers = servers(chosen)
        self.units = {unit.server: unit.agents for unit in units_of(chosen, self.names)}
        generator = stream(self.seed, "data")
        features = generator.standard_normal((SHARD * chosen.nodes, FEATURES))
        targets = features @ np.arange(1.0, FEATURES + 1) + generator.standard_normal(len(features))
        self.data = Split(features.astype(np.float32), targets.astype(np.float32))
        self.shards = dict(zip(self.names, np.split(np.arange(len(features)), chosen.nodes), strict=True))
        self.objective = LinearModel("squared", FEATURES, None, intercept=False, l2=0.1, dtype=np.float64)
        self.graph: Graph = build_graph(chosen.topology, chosen.units, stream(self.seed, "graph"), self.servers)
        self.matrix = combination(chosen, self.graph)

    @property
    def context(self) -> Context:
        query = Query(Poisson(0.5), NoNoise(self.clip), 4.0)
        return Context(
            seed=self.seed,
            names=self.names,
            graph=self.graph,
            initial=Public(np.zeros(FEATURES)),
            queries=dict.fromkeys(self.names, query),
            shard_sizes=dict.fromkeys(self.names, SHARD),
        )

    def records(self, server: str) -> int:
        """Records of a round."""
        if self.settings.noise != "random":
            return 1
        row = self.matrix[self.servers.index(server)]
        return int(np.count_nonzero(row)) - 1

    def stream(self, server: str) -> CorrelatedNoise | None:
        if self.settings.noise == "none":
            return None
        count = self.settings.rounds * self.records(server)
        temporal = self.settings.temporal or "independent"
        return CorrelatedNoise(Factorisation(temporal, count, self.settings.bands), 1.0)

    def sides(self) -> Pool:
        plans: dict[str, SidePlan] = dict.fromkeys(self.shards, ClientUpdate())
        for server in self.servers:
            records = self.settings.rounds * self.records(server)
            plans[server] = SideStream(
                self.stream(server), records, FEATURES, None, 1, np.inf, tuple(self.units[server])
            )
        shards = {name: ShardRows(rows) for name, rows in self.shards.items()}
        return open_pool(plans, shards, self.objective, self.data, Simulated(SEED))

    def noise(self) -> dict[tuple[str, int], np.ndarray]:
        """Every record of every server, drawn once more."""
        drawn_ones = {}
        for server in self.servers:
            noise = self.stream(server)
            for number in range(self.settings.rounds * self.records(server)):
                drawn_ones[server, number] = np.zeros(FEATURES)
            if noise is not None:
                opened, state, family = NoiseStream(noise, FEATURES), NoiseState(), Stream(SEED, server, "noise")
                for number in range(noise.factorisation.rounds):
                    drawn_ones[server, number], state = opened.draw(state, family.at(number))
        return drawn_ones

    def simulator(self, world: World) -> Simulator:
        """The units in ``world``."""
        world = World(
            world.speeds,
            world.links,
            world.faults,
            self.seed,
            servers=self.servers,
            units=graph_federated.cast(self.settings, self.names).trust,
        )
        nodes = graph_federated.build(self.settings, self.context)
        return Simulator(nodes, self.sides(), world, count=graph_federated.count)

    def run(self, world: World | None = None) -> tuple[Simulator, list[dict[str, np.ndarray]]]:
        """A whole run; and w, v, psi of all servers after each of their rounds."""
        world = world or World(speeds=SpeedSettings(name="lognormal"), links=LinkSettings(latency=0.3, jitter=0.4))
        simulator = self.simulator(world)
        nodes = simulator.nodes
        seen: dict[tuple[int, str], tuple[np.ndarray, ...]] = {}
        psi: dict[str, np.ndarray] = {}
        done = dict.fromkeys(self.servers, 0)
        while simulator.next_time is not None and not simulator.settled:
            simulator.step()
            for server in self.servers:
                node = nodes[server]
                assert isinstance(node, ServerNode)
                state = node.state
                if state.round > done[server]:
                    assert state.round == done[server] + 1
                    seen[done[server], server] = (node.w.values, state.v.values, psi[server])
                    done[server] = state.round
                if state.phase in ("releasing", "combining"):
                    psi[server] = node.w.values
        history = []
        for i in range(min(done.values())):
            columns = zip(*(seen[i, server] for server in self.servers), strict=True)
            history.append(dict(zip(("w", "v", "psi"), map(np.stack, columns), strict=True)))
        return simulator, history


TOPOLOGIES = st.sampled_from(["ring", "line", "star", "complete", {"name": "erdos_renyi", "p": 0.6}])


@st.composite
def setups(draw: Any, **fixed: Any) -> Setup:
    """Graphs, unit sizes, L, E, batch sizes and seeds."""
    units = draw(st.integers(2, 5))
    agents = tuple(draw(st.lists(st.integers(1, 4), min_size=units, max_size=units)))
    values = {
        "units": units,
        "agents": agents,
        "agents_sampled": draw(st.none() | st.integers(1, min(agents))),
        "local_steps": draw(st.integers(1, 3) | st.just((1, 4))),
        "batch_size": draw(st.just((2, 5))),
        "step_size": draw(st.floats(0.01, 0.8)),
        "rounds": draw(st.integers(1, 5)),
        "topology": draw(TOPOLOGIES),
        **fixed,
    }
    return Setup(Settings.model_validate(values).decided(private=True), seed=draw(st.integers(0, 1000)))


SCHEMES = [("none", "released"), ("random", "hidden"), ("homomorphic", "hidden"), ("homomorphic", "released")]


@pytest.mark.parametrize(("noise", "where"), SCHEMES)
@given(data=st.data())
@settings(max_examples=examples(20), deadline=None, suppress_health_check=list(HealthCheck))
def test_a_run_is_the_box(noise: str, where: str, data: st.DataObject) -> None:
    """Against a plain loop with the same coins, batches and noise: 1e-9, in float64."""
    setup = data.draw(setups(noise=noise, gradient_at=where))
    chosen, records = setup.settings, setup.noise()
    _, found = setup.run()
    steps = dict(zip(setup.names, drawn(chosen.local_steps, setup.seed, "local_steps", chosen.nodes), strict=True))
    sizes = dict(zip(setup.names, drawn(chosen.batch_size, setup.seed, "batch_size", chosen.nodes), strict=True))
    nodes = graph_federated.build(chosen, setup.context)

    def gradient(w: np.ndarray, rows: np.ndarray) -> np.ndarray:
        u, d = setup.data.features[rows].astype(np.float64), setup.data.targets[rows].astype(np.float64)
        return u.T @ (u @ w - d) / len(rows) + 0.1 * w

    def update(agent: str, i: int, start: np.ndarray) -> np.ndarray:
        coins = Stream(SEED, agent, "sampling").at(i)
        rows = setup.shards[agent][coins.integers(SHARD, size=(steps[agent], sizes[agent]))]
        return reference.local_update(gradient, start, rows, chosen.step_size, setup.clip)

    def sampled(p: int, i: int) -> tuple[str, ...]:
        server = nodes[setup.servers[p]]
        assert isinstance(server, ServerNode)
        return server.sampling.of(i)

    def noise_on(p: int, i: int, neighbour: int) -> np.ndarray:
        server = setup.servers[p]
        if chosen.noise != "random":
            return records[server, i]
        if p == neighbour:
            return np.zeros(FEATURES)
        links = [m for m in np.flatnonzero(setup.matrix[p]).tolist() if m != p]
        return records[server, i * len(links) + links.index(neighbour)]

    expected = reference.run(
        setup.matrix,
        np.zeros(FEATURES),
        chosen.rounds,
        sampled,
        chosen.sampled,
        update,
        noise_on,
        scheme=noise,
        hidden=where == "hidden",
    )
    assert len(found) == chosen.rounds
    for ours, theirs in zip(found, expected, strict=True):
        for name in ("w", "psi") if noise == "random" else ("w", "v", "psi"):
            np.testing.assert_allclose(ours[name], theirs[name], rtol=0, atol=1e-9 * (1 + np.abs(theirs[name]).max()))


@given(setup=setups(noise="homomorphic"), where=st.sampled_from(["hidden", "released"]))
@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
def test_homomorphic_noise_cancels_in_every_combination(setup: Setup, where: str) -> None:
    setup.settings = setup.settings.model_copy(update={"gradient_at": where})
    _, found = setup.run()
    for models in found:
        moved = models["w"].mean(axis=0) - models["psi"].mean(axis=0)
        assert np.abs(moved).max() <= 1e-13 * (1 + np.abs(models["w"]).max())


def test_random_noise_does_not_cancel() -> None:
    """So that the test above can fail."""
    setup = Setup(Settings(units=3, agents=2, noise="random", rounds=3).decided(private=True))
    _, found = setup.run()
    assert np.abs(found[0]["w"].mean(axis=0) - found[0]["psi"].mean(axis=0)).max() > 1e-3


def test_a_matrix_that_would_not_cancel_is_refused_at_the_start() -> None:
    rows = ((0.6, 0.4, 0.0), (0.2, 0.6, 0.2), (0.0, 0.4, 0.6))
    with pytest.raises(TopologyError, match=r"must be symmetric, found 0\.4 in row 0, column 1 and 0\.2"):
        Setup(Settings(units=3, agents=1, combination=rows))


@st.composite
def hard_worlds(draw: Any, nodes: int) -> World:
    """Links that lose, reorder and repeat, and nodes that are away for a while, servers too."""
    links = LinkSettings(
        latency=0.2,
        jitter=draw(st.sampled_from([0.0, 0.5, 3.0])),
        loss=draw(st.sampled_from([0.0, 0.2])),
        duplicate=draw(st.sampled_from([0.0, 0.2])),
        retry_after=1.0,
        silence=draw(st.sampled_from([3.0, 8.0])),
    )
    away = draw(st.lists(st.integers(0, nodes - 1), max_size=4, unique=True))
    absences = [{"node": n, "start": draw(st.floats(0.0, 12.0)), "end": draw(st.floats(13.0, 60.0))} for n in away]
    faults = FaultSettings.model_validate({"absences": absences})
    return World(SpeedSettings(name="lognormal"), links, faults)


@pytest.mark.parametrize("synchronous", [True, False])
@given(data=st.data())
@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
def test_every_run_ends_with_all_rounds_made_and_each_record_drawn_once(synchronous: bool, data: st.DataObject) -> None:
    noise, where = data.draw(st.sampled_from(SCHEMES))
    consensus = data.draw(st.integers(0, 3)) if noise != "random" else 0
    timeout = data.draw(st.sampled_from([None, 2.0]))
    extra = {"synchronous": synchronous, "consensus": consensus, "timeout": timeout}
    setup = data.draw(setups(noise=noise, gradient_at=where, **extra))
    world = data.draw(hard_worlds(setup.settings.nodes + setup.settings.units))
    simulator, _ = setup.run(world)
    computer = simulator.computer
    assert isinstance(computer, Pool)
    assert set(simulator.finished.values()) == {"quota"}
    assert set(simulator.finished) == set(simulator.nodes)
    for server in setup.servers:
        node = simulator.nodes[server]
        assert node.state.round == setup.settings.rounds
        assert computer.releases(server) == setup.settings.rounds * setup.records(server)
        assert np.isfinite(node.state.v.values).all()
    assert simulator.counters.rejected == 0


def test_a_server_that_is_gone_is_not_waited_for() -> None:
    """Its own agents go on hoping, so the run as a whole ends as stalled."""
    setup = Setup(Settings(units=3, agents=2, rounds=4, topology="line").decided(private=True))
    faults = FaultSettings.model_validate({"absences": [{"node": setup.settings.nodes + 1, "start": 1.5}]})
    links = LinkSettings(latency=0.1, retry_after=1.0, silence=4.0)
    simulator = setup.simulator(World(links=links, faults=faults))
    assert drive(simulator, StopSettings(), Observer()) == "stalled"
    outer = ("server-0", "server-2", "node-0", "node-1", "node-4", "node-5")
    assert {name: simulator.finished[name] for name in outer} == dict.fromkeys(outer, "quota")
    assert [simulator.nodes[name].state.round for name in ("server-0", "server-2")] == [4, 4]


def test_an_agent_that_is_asked_before_it_starts_answers_when_it_does() -> None:
    """Also if it is away when it should start."""
    setup = Setup(Settings(units=2, agents=(1, 2), rounds=1, noise="none").decided(private=False))
    absences = [{"node": n, "start": 0.5 * (n == 2), "end": 13.0} for n in range(3)]
    world = World(
        links=LinkSettings(latency=0.2, silence=3.0), faults=FaultSettings.model_validate({"absences": absences})
    )
    simulator, _ = setup.run(world)
    assert simulator.finished == dict.fromkeys(simulator.nodes, "quota")
