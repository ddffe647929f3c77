"""A client-level algorithm in a few lines, for contracts: clients train locally, and a server adds up their updates.

Updates are noised by each client itself, or raw and noised by the server, which is then a curator. It is no algorithm
of the library: it has no learning rate, waits for all clients, and ends with its last round.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gossamer.privacy.mechanisms import Gaussian, ReleaseKind
from gossamer.privacy.tasks import CuratedSum, LocalQuery, LocalUpdate, Query
from gossamer.protocol.effects import Compute, Finish, Send
from gossamer.protocol.events import Answered, Completed, Refused, Resumed, Started
from gossamer.protocol.messages import Message, message
from gossamer.protocol.node import Effects, Node, on
from gossamer.sides.plan import WHOLE, ClientUpdate, Curator, SidePlan
from gossamer.vectors import Confined, Model, Public, Released

SERVER = "server"
LOCAL = LocalQuery(2, 4, 0.5)


@message("test.client_level.ask")
@dataclass(frozen=True)
class Ask(Message):
    """A model to train, in a round."""

    round: int
    model: Public | Released


@message("test.client_level.update")
@dataclass(frozen=True)
class Update(Message):
    """What a client makes of it."""

    round: int
    update: Released | Confined


@dataclass
class ClientState:
    """The round under way, and its model."""

    round: int = -1
    model: Model | None = None
    finished: str = ""


class Client(Node):
    """Trains when it is asked."""

    state: ClientState

    def __init__(self, name: str) -> None:
        super().__init__(name, ClientState())

    @on(Ask)
    def train(self, sender: str, asked: Ask, now: float) -> Effects:
        self.state.round, self.state.model = asked.round, asked.model
        yield Compute(LocalUpdate(asked.round, asked.model, LOCAL))

    @on(Completed)
    def noised(self, done: Completed, now: float) -> Effects:
        yield from self._send(done.id, done.released)

    @on(Answered)
    def raw(self, done: Answered, now: float) -> Effects:
        assert isinstance(done.vector, Confined)
        yield from self._send(done.id, done.vector)

    def _send(self, round: int, update: Released | Confined) -> Effects:
        if round == self.state.round and self.state.model is not None:
            self.state.model = None
            yield Send(SERVER, Update(round, update))

    @on(Refused)
    def refused(self, event: Refused, now: float) -> Effects:
        self.state.finished = "budget"
        yield Finish("budget")

    @on(Resumed)
    def resume(self, event: Resumed, now: float) -> Effects:
        if self.state.model is not None:
            yield Compute(LocalUpdate(self.state.round, self.state.model, LOCAL))


@dataclass
class ServerState:
    """The model, and the updates of the round that have come."""

    model: Model
    round: int = 0
    updates: dict[str, Any] = field(default_factory=dict)
    finished: str = ""


class Server(Node):
    """Adds up all updates of a round; a curator has its data side do it."""

    state: ServerState

    def __init__(self, clients: tuple[str, ...], model: Public, rounds: int, curated: Query | None) -> None:
        super().__init__(SERVER, ServerState(model))
        self.clients, self.rounds, self.curated = clients, rounds, curated

    @on(Started)
    def start(self, event: Started, now: float) -> Effects:
        yield from self._ask()

    def _ask(self) -> Effects:
        if self.state.round == self.rounds:
            self.state.finished = "rounds"
            yield Finish("rounds")
            return
        for client in self.clients:
            yield Send(client, Ask(self.state.round, self.state.model))

    @on(Update)
    def take(self, sender: str, update: Update, now: float) -> Effects:
        if update.round == self.state.round:
            self.state.updates[sender] = update.update
            yield from self._add_up()

    def _add_up(self) -> Effects:
        s = self.state
        if len(s.updates) < len(self.clients):
            return
        if self.curated is None:
            total: Any = sum((s.updates[name] for name in self.clients[1:]), s.updates[self.clients[0]])
            yield from self._move(total / len(self.clients))
        else:
            updates = tuple((name, s.updates[name]) for name in self.clients)
            yield Compute(CuratedSum(s.round, s.model, updates, self.curated))

    @on(Completed)
    def noised(self, done: Completed, now: float) -> Effects:
        if done.id == self.state.round and self.state.updates:
            yield from self._move(done.released)

    def _move(self, step: Released) -> Effects:
        s = self.state
        s.model, s.updates, s.round = s.model + step, {}, s.round + 1
        yield from self._ask()

    @on(Refused)
    def refused(self, event: Refused, now: float) -> Effects:
        self.state.finished = "budget"
        yield Finish("budget")

    @on(Resumed)
    def resume(self, event: Resumed, now: float) -> Effects:
        yield from self._add_up()


@dataclass(frozen=True)
class ClientLevel:
    """A run of it.

    Attributes
    ----------
    clients : tuple of str
        Their names.
    size : int
        Coordinates of the model.
    rounds : int
        How many.
    law : Gaussian
        Of the noise, with the bound on updates.
    curated : bool
        Whether the server adds the noise.
    """

    clients: tuple[str, ...]
    size: int
    rounds: int
    law: Gaussian
    curated: bool

    @property
    def units(self) -> Mapping[str, str]:
        """Who may hear raw updates of whom."""
        return dict.fromkeys((*self.clients, SERVER), SERVER) if self.curated else {}

    def nodes(self) -> dict[str, Node]:
        query = Query(WHOLE, self.law, float(len(self.clients))) if self.curated else None
        server = Server(self.clients, Public(np.zeros(self.size)), self.rounds, query)
        return {**{name: Client(name) for name in self.clients}, SERVER: server}

    def plans(self, spare: int = 0) -> dict[str, SidePlan]:
        """Of all parties; with ``spare`` releases more than there are rounds, for what crashes lose."""
        most = self.rounds + spare
        scope = frozenset((SERVER, *self.clients))
        if self.curated:
            kind = ReleaseKind(self.law.unit(), WHOLE, self.size)
            curator = Curator({kind: most}, len(self.clients), self.clients, self.law.clip, SERVER)
            raw = ClientUpdate(LOCAL, self.law.clip, scope=scope, behind=curator)
            return {**dict.fromkeys(self.clients, raw), SERVER: curator}
        noised = ClientUpdate(LOCAL, self.law.clip, self.law, most, self.size)
        return dict.fromkeys(self.clients, noised)
