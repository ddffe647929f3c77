"""What the times of a deployed node's releases tell about its samples, and what a deadline costs.

    python benchmarks/release_times.py [--releases 10000] [--examples 12] [--rate 0.33] [--model network]
                                       [--strategy auto] [--ways at_once deadline filled] [--pings] [--json]

A node's own data side, ledger and worker thread answer one task after the other, Gaussian noise and Poisson samples as
deployed, and each release is timed from the request to the moment at which the node's loop has the answer. Printed are
the correlations of these times with the sizes of the samples, over all releases, none left out:

* *at_once*: answers go when they are computed, ``deployment.release_deadline: "off"``;
* *deadline*: they go at multiples of a deadline, and nothing is computed in the time that is left;
* *filled*: so they do, and every answer is computed on as many examples: what a deployment does.

Of independent pairs a coefficient is beyond 4/sqrt(releases), so 0.04 of 10,000, once in 16,000 times. With
``--pings`` the node's loop is asked something every half a millisecond, and it is the sum of the delays of its answers
that is compared with the sizes: what a peer sees that never stops asking. *cost* is the median of the times over that
of the first way.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
from scipy import stats
from threadpoolctl import threadpool_limits
from torch import nn

from gossamer.arrays import IndexArray
from gossamer.data.examples import Split
from gossamer.deployment.party.loop import Tasks, Worker
from gossamer.deployment.party.release_deadline import Paced
from gossamer.objectives.linear.model import LinearModel
from gossamer.objectives.models import build_model
from gossamer.objectives.networks.module import TorchModule
from gossamer.objectives.objective import Objective
from gossamer.privacy.mechanisms import Gaussian, Poisson
from gossamer.privacy.tasks import Gradient, Query
from gossamer.protocol.effects import Compute
from gossamer.sides.deployed import Deployed
from gossamer.sides.ledger import MemoryLedger
from gossamer.sides.machine import Computer, Ticket
from gossamer.sides.plan import Samples
from gossamer.sides.pool import open_pool
from gossamer.sides.samples import ShardRows
from gossamer.sides.sums import Filled, InPieces
from gossamer.vectors import Public

FEATURES, CLASSES, IMAGE = 20, 2, (1, 28, 28)
PING = 5e-4


class Noted(Poisson):
    """Poisson samples, whose sizes are noted."""

    sizes: ClassVar[list[int]] = []

    def draw(self, generator: np.random.Generator, count: int) -> IndexArray:
        found = super().draw(generator, count)
        self.sizes.append(len(found))
        return found


class Idle(Filled):
    """Measured as one that is filled, and not filled."""

    _rehearsing = False

    def of_nobody(self, ticket: Ticket, count: int) -> Any:
        self._rehearsing = True
        found = super().of_nobody(ticket, count)
        self._rehearsing = False
        return found

    def fill(self, ticket: Ticket, count: int) -> None:
        if self._rehearsing:
            super().fill(ticket, count)


@dataclass(frozen=True)
class Row:
    """One way of answering; times in milliseconds."""

    way: str
    releases: int
    pearson: float
    spearman: float
    least_ms: float
    median_ms: float
    cost: float


def side_of(way: str, arguments: argparse.Namespace) -> tuple[Computer, Objective]:
    """A fresh data side that answers in one of the ways."""
    generator, count = np.random.default_rng(0), arguments.examples
    shape = IMAGE if arguments.model == "cnn_mapa" else (FEATURES,)
    features = generator.standard_normal((count, *shape), dtype=np.float32)
    data = Split(features, generator.integers(0, CLASSES, count))
    objective: Objective = LinearModel("softmax", FEATURES, CLASSES)
    if arguments.model == "cnn_mapa":
        objective = TorchModule(build_model("cnn_mapa", IMAGE, 10), strategy=arguments.strategy)
    elif arguments.model == "network":
        layers = nn.Linear(FEATURES, 16), nn.ReLU(), nn.Linear(16, CLASSES)
        objective = TorchModule(nn.Sequential(*layers), strategy=arguments.strategy)
    plan = Samples({}, enforced=False)
    ledger, shards = MemoryLedger("node", plan.charges()), {"node": ShardRows(np.arange(count))}
    filled = (Filled if way == "filled" else Idle)(objective, data, count)
    home = Deployed(lambda name, plan: ledger, sums=InPieces if way == "at_once" else lambda objective, data: filled)
    pool = open_pool({"node": plan}, shards, objective, data, home)
    return pool if way == "at_once" else Paced(pool, say=print), objective


def answer(worker: Worker, awake: threading.Event, task: Any, pings: bool) -> tuple[float, float]:
    """Seconds until the loop has the answer, and the sum of its delays meanwhile."""
    awake.clear()
    delays, begun = 0.0, time.perf_counter()
    worker.ask(Compute(task))
    while True:
        asked = time.perf_counter()
        done = awake.wait(PING if pings else None)
        now = time.perf_counter()
        if done and worker.done():
            return now - begun, delays
        delays += max(0.0, now - asked - PING)


def measure(way: str, arguments: argparse.Namespace, usual: float) -> Row:
    """Time all releases; ``usual`` is the median of the first way, if this is not the first."""
    side, objective = side_of(way, arguments)
    awake = threading.Event()
    worker = Worker(Tasks("node", side), awake.set)
    model = Public(objective.initial(np.random.default_rng(1)).astype(objective.dtype))
    query = Query(Noted(arguments.rate), Gaussian(1.0, 1.1), arguments.rate * arguments.examples)
    times, delays = [], []
    Noted.sizes.clear()
    for number in range(arguments.releases + 2):
        taken, late = answer(worker, awake, Gradient(number, model, query), arguments.pings)
        times.append(taken)
        delays.append(late)
    worker.stop()
    sizes, seconds = np.array(Noted.sizes[2:]), np.array(times[2:])  # the first two prepare
    seen = np.array(delays[2:]) if arguments.pings else seconds
    median = 1e3 * float(np.median(seconds))
    return Row(
        way,
        len(sizes),
        float(abs(stats.pearsonr(sizes, seen).statistic)),
        float(abs(stats.spearmanr(sizes, seen).statistic)),
        1e3 * float(seconds.min()),
        median,
        median / (usual or median),
    )


def main() -> None:
    """Measure each way and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--releases", type=int, default=10_000)
    parser.add_argument("--examples", type=int, default=12)
    parser.add_argument("--rate", type=float, default=0.33)
    parser.add_argument("--model", choices=("network", "cnn_mapa", "linear"), default="network")
    parser.add_argument("--strategy", default="auto", help="of the network: auto (compiled), layers, threads")
    parser.add_argument("--ways", nargs="+", choices=("at_once", "deadline", "filled"), default=["at_once", "filled"])
    parser.add_argument("--pings", action="store_true", help="compare the delays of the node's other answers")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    arguments = parser.parse_args()
    rows: list[Row] = []
    with threadpool_limits(1):
        for way in arguments.ways:
            rows.append(measure(way, arguments, rows[0].median_ms if rows else 0.0))
    if arguments.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
        return
    print(f"{'way':8} {'releases':>8} {'|Pearson|':>9} {'|Spearman|':>10} {'least ms':>8} {'median ms':>9} {'cost':>5}")
    for row in rows:
        figures = f"{row.pearson:9.4f} {row.spearman:10.4f} {row.least_ms:8.2f} {row.median_ms:9.2f} {row.cost:5.2f}"
        print(f"{row.way:8} {row.releases:8} {figures}")


if __name__ == "__main__":
    main()
