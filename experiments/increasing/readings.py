"""Algorithm A in a plain loop, without the library's nodes and messages: as it is printed, and as it may be read.

Each reading changes one thing that the paper does not say, or says otherwise. Clients draw with replacement, one is at
most one round ahead, a message takes 5 steps of a client, and gradients are the library's.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from gossamer.experiment.preparation.prepare import Prepared
from gossamer.objectives.networks.module import TorchModule
from gossamer.objectives.objective import LocalRound

Array = npt.NDArray[Any]
LATENCY, AHEAD = 5.0, 1


@dataclass(frozen=True)
class Reading:
    """What is read otherwise.

    Attributes
    ----------
    mean : bool
        Whether the server takes the mean of clients' updates, instead of their sum.
    each : bool
        Whether it sends its model after each update, instead of after each complete round.
    turns : bool
        Whether clients work one after another, each from the newest model.
    spread : float
        Spread of the lognormal time that a round takes.
    glorot : bool
        Whether weights begin as Glorot and Bengio have them, and biases at 0.
    """

    mean: bool = False
    each: bool = False
    turns: bool = False
    spread: float = 0.2
    glorot: bool = False


READINGS: Mapping[str, Reading] = {
    "Algorithm A": Reading(),
    "the mean of updates": Reading(mean=True),
    "clients in turn": Reading(turns=True),
    **{f"each update, spread {spread}": Reading(each=True, spread=spread) for spread in (0.2, 0.05, 0.02)},
    "Glorot's weights": Reading(glorot=True),
}
"""Readings that are no setting of the library's, and the printed algorithm beside them."""


@dataclass
class Client:
    """A client: its model, this round's U, and the updates that no model it received holds."""

    model: Array
    examples: Iterator[int]
    total: Array
    sent: dict[int, Array] = field(default_factory=dict)
    round: int = 0
    steps: int = 0
    began: float = 0.0
    pace: float = 1.0
    known: int = 0
    waits: bool = False


@dataclass(frozen=True)
class Trained:
    """The server's model at the end, and that of the first client after its last step."""

    server: Array
    client: Array


def trained_by(reading: Reading, prepared: Prepared) -> Trained:
    """Return the models after the rounds of the spec."""
    spec, generator = prepared.experiment, np.random.default_rng(prepared.experiment.seed)
    settings, size = spec.algorithm, round(spec.algorithm.sizes.size / spec.algorithm.nodes)
    rounds, eta = -(-settings.gradients // (size * settings.nodes)), settings.learning_rate.initial
    share = 1 / settings.nodes if reading.mean else 1.0
    model = _glorot(prepared.objective, generator) if reading.glorot else prepared.objective.initial(generator)
    clients = [Client(model, _examples(rows, int(generator.integers(2**63))), 0 * model) for rows in prepared.shards]

    def walk(client: Client, steps: int) -> None:
        rows = np.fromiter(itertools.islice(client.examples, steps), np.int64)
        given = LocalRound(client.model[None], np.zeros(1, np.int64), rows, np.full(steps, eta), eta, math.inf)
        moved = eta * prepared.objective.local_steps(given, prepared.dataset.train).total
        client.model, client.total, client.steps = client.model - moved, client.total + moved, client.steps + steps

    if reading.turns:
        for client in clients * rounds:
            client.model = model
            walk(client, size)
            model = client.model
        return Trained(model, clients[0].model)

    events: list[tuple[float, int, str, int, Any]] = []
    number = itertools.count()

    def later(moment: float, what: str, c: int, news: Any = None) -> None:
        heapq.heappush(events, (moment, next(number), what, c, news))

    def begin(c: int, now: float) -> None:
        client = clients[c]
        client.waits = client.round > client.known + AHEAD
        if client.round < rounds and not client.waits:
            client.began, client.pace = now, math.exp(reading.spread * generator.standard_normal())
            later(now + client.pace * size, "end", c)

    own = model
    held = [0] * len(clients)  # rounds of each client that the server's model holds
    for c in range(len(clients)):
        begin(c, 0.0)
    while events:
        now, _, what, c, news = heapq.heappop(events)
        client = clients[c]
        if what == "end":
            walk(client, size - client.steps)
            own = client.model if c == 0 else own
            client.sent[client.round] = client.total
            later(now + LATENCY, "update", c, client.total)
            client.total, client.steps, client.round = 0 * model, 0, client.round + 1
            begin(c, now)
        elif what == "update":
            complete, held[c] = min(held), held[c] + 1
            model = model - share * news
            if reading.each or min(held) > complete:
                for other in range(len(clients)):
                    later(now + LATENCY, "model", other, (model, min(held), held[other]))
        else:
            if not client.waits and client.round < rounds:
                walk(client, min(size, int((now - client.began) / client.pace)) - client.steps)
            newest, client.known, mine = news
            client.sent = {i: update for i, update in client.sent.items() if i >= mine}
            client.model = newest - client.total - sum(client.sent.values())
            if client.waits:
                begin(c, now)
    return Trained(model, own)


def _examples(rows: Array, seed: int) -> Iterator[int]:
    own = np.random.default_rng(seed)
    while True:
        yield from own.choice(rows, len(rows))


def _glorot(objective: TorchModule, generator: np.random.Generator) -> Array:
    """Weights uniform within sqrt(6/(inputs + outputs)); biases 0."""
    found = []
    for part in objective.parts:
        shape = part.shape
        fans = math.prod(shape[1:]) + shape[0] * math.prod(shape[2:])
        bound = math.sqrt(6 / fans) if len(shape) > 1 else 0.0
        found.append(generator.uniform(-bound, bound, math.prod(shape)))
    return np.concatenate(found).astype(np.float32)
