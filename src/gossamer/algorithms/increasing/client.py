"""A client: sequential local SGD, round after round, on the newest global model at every moment.

What a client knows of the global model is v, of which it knows which of its own rounds are in it. Its *base* is v less
its own updates that v lacks: the model that its next round starts from. In the middle of round i its local model is
base - eta_i U, and U exists at its data side only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from gossamer.algorithms.context import Context
from gossamer.algorithms.increasing.server import MOST_AHEAD, GlobalModel, Halt, Join, Leave, RoundUpdate, holds
from gossamer.algorithms.increasing.settings import MOST_ROUNDS, PublicRounds
from gossamer.algorithms.nodes import EndingNode
from gossamer.errors import PeerError
from gossamer.privacy.tasks import Query, Round, Swap
from gossamer.protocol.effects import Compute, Interrupt, Record, Send, Update
from gossamer.protocol.events import Completed, PeerDown, Refused, Resumed, Stop
from gossamer.protocol.messages import check_model
from gossamer.protocol.node import Effects, on
from gossamer.vectors import Model, Released, spread


@dataclass
class ClientState:
    """State of a client.

    Attributes
    ----------
    v : Public or Released
        The newest global model, of round ``k``.
    own : dict of int to Released
        eta_j U_j of the client's own rounds j that v lacks.
    i : int
        The round at work, or the next one.
    first : int
        The first round that the server was told nothing of.
    task : int
        Number of rounds that were begun.
    running : bool
        Whether one is at work.
    steps : int
        Gradients of the rounds that were sent.
    leaving, finished : str
        Reason for it.
    """

    v: Model
    k: int = 0
    own: dict[int, Released] = field(default_factory=dict)
    i: int = 0
    first: int = 0
    task: int = 0
    running: bool = False
    steps: int = 0
    leaving: str = ""
    finished: str = ""


class ClientNode(EndingNode):
    """Client c, below ``parent``: the server, or an aggregator."""

    state: ClientState

    def __init__(
        self, name: str, parent: str, context: Context, rounds: PublicRounds, query: Callable[[str, int], Query]
    ) -> None:
        super().__init__(name, ClientState(context.initial))
        self.parent, self.rounds, self.query, self.peers = parent, rounds, query, (parent,)
        self.quota = context.quota(name)

    @property
    def base(self) -> Model:
        """v less the client's own updates that v lacks."""
        model: Model = self.state.v
        for step in self.state.own.values():
            model = model - step
        return model.within()

    def resume(self, event: Resumed, now: float) -> Effects:
        """Join again: what was under way is lost, and so may be what others sent."""
        s = self.state
        s.running = False
        if not s.finished:
            yield Send(self.parent, Join())
            yield from self.begin()

    def begin(self) -> Effects:
        """Begin round i, unless the wait rule holds it back: then the next broadcast tries again."""
        s = self.state
        if s.running or s.finished:
            return
        if self.quota is not None and s.i >= self.quota:
            yield from self.end("quota")
            return
        allowed = self.allowed()
        if allowed == 0:
            return
        s.task += 1
        s.running = True
        rounds, name, i = self.rounds, self.name, s.i
        yield Compute(
            Round(
                id=s.task,
                swaps=(Swap(0, self.base),),
                query=self.query(name, i),
                steps=rounds.of(name, i),
                until=allowed,
                step_sizes=rounds.step_sizes(name, i),
                update=rounds.update,
                where=rounds.where(name, i),
            )
        )

    def allowed(self) -> int:
        s = self.state
        return self.rounds.allowed(self.name, s.i, min(s.k, s.i)) if s.i - s.k <= MOST_AHEAD else 0

    @on(GlobalModel, by="parent")
    def receive(self, sender: str, newer: GlobalModel, now: float) -> Effects:
        """The paper's ISRReceive, w^ = v - eta_i U; by default v less one's own earlier updates that it lacks."""
        s = self.state
        check_model(newer.model, s.v)
        self.check_round(newer.k)
        if newer.k > s.k:
            s.v, s.k = newer.model, newer.k
            kept = s.own if self.rounds.keeps_own else {}
            s.own = {j: step for j, step in kept.items() if not holds(newer.held, newer.ahead, j)}
            if s.running:
                yield Update(s.task, self.base, self.allowed())
            elif s.i < s.k:
                s.i = s.k  # others went on without this client
        yield from self.begin()

    def check_round(self, k: int) -> None:
        """Refuse a broadcast of more rounds than there can be."""
        # What comes late to an aggregator is handed on as a round after the last one.
        last = MOST_ROUNDS if self.quota is None else self.quota + MOST_AHEAD
        made = k if self.quota is None else min(k, self.quota)
        if not 0 <= k <= last or (made > self.state.i and not self.rounds.possible(self.name, made - 1)):
            raise PeerError(f"{self.parent} says that {k} rounds are complete, more than this run can have")

    @on(Completed)
    def send(self, done: Completed, now: float) -> Effects:
        """Send (i, c, U); the round's noise is in U, and so in the local model as well."""
        s = self.state
        if done.id != s.task or not s.running:
            return
        s.running = False
        if s.finished:
            return
        if done.steps:
            step = (self.rounds.step_sizes(self.name, s.i).first * done.released).within()
            s.own[s.i] = spread(step, self.rounds.where(self.name, s.i), s.v.size)
            yield Send(self.parent, RoundUpdate(s.first, s.i, 1, step))
            s.first = s.i + 1
            s.steps += done.steps
        s.i = max(s.i + 1, s.k)
        if s.leaving:
            yield from self.end(s.leaving)
        yield from self.begin()

    @on(Halt, by="parent")
    def halt(self, sender: str, halt: Halt, now: float) -> Effects:
        s = self.state
        check_model(halt.model, s.v)
        s.v, s.k, s.own = halt.model, max(halt.k, s.k), {}
        if s.running:
            yield Interrupt(s.task)
        yield from self.finish("halt")

    def refused(self, event: Refused, now: float) -> Effects:
        self.state.running = False
        yield from self.end("budget")

    def stop(self, event: Stop, now: float) -> Effects:
        """Hand in what is done of the round under way, and leave."""
        s = self.state
        if s.running:
            s.leaving = event.reason
            yield Interrupt(s.task)
        else:
            yield from self.end(event.reason)

    @on(PeerDown)
    def peer_down(self, event: PeerDown, now: float) -> Effects:
        """Nothing to be done but say so: what was sent is sent again once the parent is back."""
        yield Record("server_lost", 1.0)

    def end(self, reason: str) -> Effects:
        if not self.state.finished:
            yield Send(self.parent, Leave(self.state.first))
            yield from self.finish(reason)
