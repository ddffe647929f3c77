"""Gossip's mixing, over that of gossip that always exchanges halves and so gives nodes negative weights.

    python benchmarks/gossip_mixing.py [--json] [--seeds N] [--nodes K] [--updates U] [--topologies ...]

An update takes a node about 1 second. For each topology and latency, on links that lose nothing and on links that lose
a fifth of all frames, where offers time out: completed exchanges an update, and the root mean square over seeds of the
consensus distance after U updates of all nodes, both as ratios. *Apart*: nodes minimise squares with different
optima, in noise. *Noise*: updates are noise alone. Exits with 1 if a ratio misses what is required.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from gossamer.algorithms.context import Context
from gossamer.algorithms.gossip import box as gossip
from gossamer.algorithms.gossip.box import Answer, GossipNode, Offer
from gossamer.algorithms.gossip.exchange import Promise
from gossamer.privacy.mechanisms import NoNoise, Poisson
from gossamer.privacy.tasks import Query
from gossamer.protocol.effects import Send
from gossamer.protocol.events import Completed, PeerDown
from gossamer.protocol.node import Effects, Node, on
from gossamer.randomness import stream
from gossamer.runtimes.simulator import Simulator
from gossamer.runtimes.speeds import SpeedSettings
from gossamer.runtimes.world import LinkSettings, World
from gossamer.sides import machine as data_side
from gossamer.topology.topologies import build_graph, parse_topology
from gossamer.vectors import Public, Released

SIZE = 60
SPEEDS = {
    "lognormal": SpeedSettings(name="lognormal"),
    "constant": SpeedSettings(),
    "one_slow": SpeedSettings.model_validate({"scenario": "one_slow"}),
}
FEWEST_EXCHANGES, MOST_DISTANCE = 0.5, 1.2


class Halves(GossipNode):
    """A node that always exchanges half of its model, promised or not, as before this was changed."""

    @on(Offer)
    def answer(self, sender: str, offer: Offer, now: float) -> Effects:
        s = self.state
        yield Send(sender, Answer(offer.exchange, s.w))
        s.w = s.w + (offer.model - s.w) / 2

    @on(Answer)
    def average(self, sender: str, answer: Answer, now: float) -> Effects:
        s = self.state
        s.w = (s.w + (answer.model - s.open.pop(sender).offered) / 2).within()
        yield from ()

    @on(Completed)
    def update(self, done: Completed, now: float) -> Effects:
        s = self.state
        s.w = s.w - self.rate.at(0.0) * done.released
        s.updates += 1
        yield from self.begin()

    @property
    def promises(self) -> tuple[Promise, ...]:
        return ()

    @on(PeerDown)
    def peer_down(self, event: PeerDown, now: float) -> Effects:
        self.state.away.add(event.peer)
        yield from ()


class Gradients:
    """Data sides of squares: each node's gradient at w is (w - its optimum) and noise, or noise alone."""

    def __init__(self, names: Sequence[str], seed: int, apart: bool) -> None:
        self.seed, self.apart = seed, apart
        self.optima = {name: stream(seed, name, "optimum").standard_normal(SIZE) for name in names}
        self.given = dict.fromkeys(names, 0)

    def admit(self, node: str, task: Any) -> Released:
        self.given[node] += 1
        noise = stream(self.seed, node, number=self.given[node]).standard_normal(SIZE)
        return Released(noise + self.apart * (task.model.values - self.optima[node]))

    def amended(self, ticket: Released, task: Any) -> Released:
        return ticket

    def compute(self, tickets: Sequence[Released]) -> list[data_side.SideAnswer]:
        return [data_side.SideAnswer(ticket) for ticket in tickets]

    def releases(self, node: str) -> int:
        return self.given[node]


def one(kind: type[GossipNode], topology: Any, links: LinkSettings, seed: int, apart: bool, options: Any) -> Any:
    """Mean squared distance from the mean model after so many updates, and completed exchanges an update."""
    names = tuple(f"node-{number:02d}" for number in range(options.nodes))
    context = Context(
        seed=seed,
        names=names,
        graph=build_graph(parse_topology(topology), len(names), stream(seed, "graph")),
        initial=Public(np.zeros(SIZE)),
        queries=dict.fromkeys(names, Query(Poisson(0.5), NoNoise(), 4.0)),
        shard_sizes=dict.fromkeys(names, 8),
    )
    settings = gossip.Settings(nodes=len(names), topology=topology, learning_rate=0.1)
    nodes: dict[str, Node] = gossip.build(settings, context)
    for node in nodes.values():
        node.__class__ = kind
    world = World(SPEEDS[options.speeds], links, seed=seed)
    simulator = Simulator(nodes, Gradients(names, seed, apart), world)
    while simulator.counters.updates < options.updates:
        simulator.step()
    models = np.stack([node.state.w.values for node in nodes.values()])
    distance = float(np.square(models - models.mean(axis=0)).sum(axis=1).mean())
    return distance, gossip.report(nodes)["exchanges"] / simulator.counters.updates


def compare(topology: Any, latency: float, lost: bool, apart: bool, options: Any) -> dict[str, Any]:
    """Both kinds of nodes, over all seeds."""
    links = LinkSettings(latency=latency)
    if lost:
        retry = max(1.0, 2.2 * latency)
        links = LinkSettings(latency=latency, loss=0.2, retry_after=retry, silence=options.silence * retry)
    found = {
        kind: np.mean([one(kind, topology, links, seed, apart, options) for seed in range(options.seeds)], axis=0)
        for kind in (GossipNode, Halves)
    }
    distance, exchanges = found[GossipNode] / found[Halves]
    return {
        "topology": topology,
        "latency": latency,
        "links": "lossy" if lost else "reliable",
        "updates": "apart" if apart else "noise",
        "exchanges": round(float(exchanges), 3),
        "distance": round(float(np.sqrt(distance)), 3),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--updates", type=int, default=200, help="of all nodes")
    parser.add_argument("--speeds", choices=SPEEDS, default="lognormal")
    parser.add_argument("--silence", type=float, default=3.0, help="on lossy links, in retry intervals")
    parser.add_argument("--topologies", nargs="+", default=["ring", "star", "complete"])
    parser.add_argument("--latencies", nargs="+", type=float, default=[0.01, 1.0, 2.0])
    options = parser.parse_args()
    rows = [
        compare(topology, latency, lost, apart, options)
        for topology in options.topologies
        for latency in options.latencies
        for lost in (False, True)
        for apart in (True, False)
    ]
    missed = [row for row in rows if row["exchanges"] < FEWEST_EXCHANGES or row["distance"] > MOST_DISTANCE]
    if options.json:
        print(json.dumps({"benchmark": "gossip_mixing", "rows": rows, "missed": len(missed)}))
        return 1 if missed else 0
    print("".join(f"{name:>12}" for name in rows[0]))
    for row in rows:
        print("".join(f"{value!s:>12}" for value in row.values()))
    print(f"required: exchanges {FEWEST_EXCHANGES} or more, distance {MOST_DISTANCE} or less; {len(missed)} rows miss")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
