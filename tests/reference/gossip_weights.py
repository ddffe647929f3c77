"""Weights of everything in everything: gossip nodes whose models are what they hold of each initial model and update.

Node i starts at the i-th unit vector and its learning rate is 1. The n-th update of all adds a unit vector of its own.
A node's model then *is* its row of the realised mixing matrix: entry j is the weight of the j-th initial model, and
after these come the weights of the updates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from gossamer.algorithms.context import Context
from gossamer.algorithms.gossip import box as gossip
from gossamer.privacy.mechanisms import NoNoise, Poisson
from gossamer.privacy.tasks import Query
from gossamer.protocol.node import Node
from gossamer.randomness import stream
from gossamer.runtimes.simulator import Simulator
from gossamer.runtimes.world import World
from gossamer.sides.machine import SideAnswer
from gossamer.topology.topologies import build_graph, parse_topology
from gossamer.vectors import Public, Released

Weights = npt.NDArray[np.float64]


@dataclass
class Units:
    """Data sides that answer with unit vectors, each with one that nobody else was given."""

    first: int
    size: int
    given: dict[str, int] = field(default_factory=dict)

    def admit(self, node: str, task: Any) -> Released:
        self.given[node] = self.given.get(node, 0) + 1
        unit = np.zeros(self.size)
        unit[self.first + sum(self.given.values()) - 1] = -1.0  # a step against the gradient
        return Released(unit)

    def amended(self, ticket: Released, task: Any) -> Released:
        return ticket

    def compute(self, tickets: Any) -> list[SideAnswer]:
        return [SideAnswer(ticket) for ticket in tickets]

    def releases(self, node: str) -> int:
        return self.given.get(node, 0)


class WeighedRun:
    """A run of gossip, an event at a time, of which all weights are known."""

    def __init__(self, world: World, topology: Any, nodes: int, updates: int, exchange: str = "any") -> None:
        names = tuple(f"node-{number}" for number in range(nodes))
        # A computation that is lost with its node is asked for again, with a vector of its own.
        size = nodes * (1 + 4 * updates)
        context = Context(
            seed=world.seed,
            names=names,
            graph=build_graph(parse_topology(topology), nodes, stream(world.seed, "graph")),
            initial=Public(np.zeros(size)),
            queries=dict.fromkeys(names, Query(Poisson(0.5), NoNoise(), 4.0)),
            shard_sizes=dict.fromkeys(names, 8),
            quotas=dict.fromkeys(names, updates),
        )
        settings = gossip.Settings(nodes=nodes, topology=topology, learning_rate=1.0, exchange=exchange)
        self.nodes: Mapping[str, Node] = gossip.build(settings, context)
        for number, node in enumerate(self.nodes.values()):
            node.state.w = Released(np.eye(size)[number])
        self.simulator = Simulator(self.nodes, Units(nodes, size), world)

    def __iter__(self) -> WeighedRun:
        return self

    def __next__(self) -> Weights:
        """The nodes' models [node, initial models and then updates] after the next event."""
        if self.simulator.next_time is None or self.simulator.settled:
            raise StopIteration
        self.simulator.step()
        return np.stack([node.state.w.values for node in self.nodes.values()])

    @property
    def holdings(self) -> Weights:
        """The realised matrix: each node's model, what it has promised, and what it is being answered.

        [node, initial models and then updates]
        """
        found = []
        for name, node in self.nodes.items():
            mine = [item for item in self.simulator.in_flight if item.to == name]
            found.append(gossip.invariants({name: node}, mine)["mass"])
        return np.stack(found)
