"""The server of FedAvg: rounds, each of a cohort that it waits for, or of the first of one to answer."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field

from gossamer.algorithms.clients.messages import Leave, Push
from gossamer.algorithms.clients.rounds import RoundSettings, public_cohorts, weights_of
from gossamer.algorithms.clients.server import ClientServer, ServerState, sum_query
from gossamer.algorithms.clients.settings import PATIENCE
from gossamer.algorithms.context import Context
from gossamer.privacy.unit_tasks import Cohort, CuratedSum
from gossamer.protocol.effects import CancelTimer, Compute, Record, Send
from gossamer.protocol.events import Answered, Completed, Elapsed, PeerDown, PeerUp, Resumed, Started
from gossamer.protocol.node import Effects, Rounds, on
from gossamer.vectors import Blank, Confined, Released

ROUND = "round"
"""Name of the timer."""


@dataclass(kw_only=True)
class RoundState(ServerState):
    """State of the server.

    Attributes
    ----------
    task : int
        Newest question to the data side of a server that adds the noise.
    cohort : tuple of str or None
        The clients of the round under way; None while they are drawn, and between its end and the next one.
    drawn : int
        The task that drew them in secret.
    updates : dict of str to vector
        Those that have come.
    waiting : dict of str to int
        Request of each client that waits for a model.
    late : dict of str to bool, or None
        Clients that a round ended without, or that are lost where there is no timeout, and whether they were heard of
        since; None where rounds wait for these too.
    """

    task: int = 0
    cohort: tuple[str, ...] | None = None
    drawn: int = 0
    updates: dict[str, Released | Confined] = field(default_factory=dict)
    waiting: dict[str, int] = field(default_factory=dict)
    late: dict[str, bool] | None = None


class RoundServer(ClientServer):
    """The server: the model, and the round under way."""

    state: RoundState
    settings: RoundSettings

    def __init__(self, context: Context, settings: RoundSettings) -> None:
        self.asks = settings.timeout is None and not settings.secret
        late: dict[str, bool] | None = {} if settings.late == "skipped" or self.asks else None
        super().__init__(RoundState(x=context.initial, late=late), context, settings)
        self.names, self.public = context.names, public_cohorts(settings, context.seed, context.names)
        self.weights = weights_of(context.shard_sizes, settings.weights == "declared")
        # As many as are expected of the sum of weights: m, where all are 1.
        mean_weight = 1.0 if self.weights is None else sum(self.weights.values()) / len(self.weights)
        self.query = sum_query(context, settings.drawn * mean_weight, settings.sampling)

    @property
    def awaited(self) -> Set[str]:
        s = self.state
        if s.finished or s.cohort is None or self.settings.secret:  # whom it waits for would show who was drawn
            return frozenset()
        return set(s.cohort) - s.left - s.updates.keys() - self.skipped

    @property
    def skipped(self) -> Set[str]:
        """Late clients whom nobody waits for. All of them late, and nobody heard, may be a server that is cut off."""
        s = self.state
        heard = s.updates or (self.asks and self.clients - s.left - (s.late or {}).keys())
        return s.late.keys() if s.late and heard else frozenset()

    @property
    def rounds_made(self) -> Rounds:
        return Rounds(self.state.t - self.state.empty, self.state.empty, self.settings.rounds)

    @on(Started)
    def start(self, event: Started, now: float) -> Effects:
        yield from super().start(event, now)
        yield from self.draw()
        yield from self.close_if_whole()

    @on(Resumed)
    def resume(self, event: Resumed, now: float) -> Effects:
        """Timers are gone, and so is what the data side was asked for: it is asked again, and charged again."""
        s = self.state
        yield from super().resume(event, now)
        if s.finished:
            return
        if s.cohort is None or self.settings.secret:  # the data side has forgotten who was drawn
            yield from self.draw()
        else:
            yield from self.set_timer()
        yield from self.close_if_whole()

    def draw(self) -> Effects:
        """Line 1."""
        s = self.state
        s.cohort, s.updates = None, {}
        if not self.settings.secret:
            yield from self.open(self.public(s.t))
            return
        s.task += 1
        s.drawn = s.task
        yield Compute(Cohort(s.task, s.x, len(self.names), self.at_clip(self.query)))

    @on(Answered)
    def was_drawn(self, done: Answered, now: float) -> Effects:
        s = self.state
        if done.id != s.task or s.finished:
            return
        chosen = done.vector.values
        if isinstance(chosen, Blank):  # a run without data: as many as are expected
            yield from self.open(self.names[: self.settings.drawn])
        else:
            yield from self.open(tuple(name for name, is_in in zip(self.names, chosen, strict=True) if is_in > 0.5))
        yield from self.close_if_whole()

    def open(self, cohort: tuple[str, ...]) -> Effects:
        """Line 2, for those of the cohort who are there."""
        s = self.state
        s.cohort = cohort
        if s.late is not None:
            s.late = {client: False for client, heard in s.late.items() if not heard}
        for client in cohort:
            if client in s.waiting:
                yield self.give(client)
        yield from self.set_timer()

    def give(self, client: str) -> Send:
        return Send(client, self.newest(self.state.waiting.pop(client)))

    def set_timer(self) -> Effects:
        self.state.probes = 0
        if self.asks or self.settings.timeout is not None:
            yield from self.wait(self.settings.timeout, self.settings.patience or PATIENCE, ROUND)

    def answer(self, client: str, request: int) -> Effects:
        """Give a model to whoever is in the round and has not answered; all others wait for a round of theirs."""
        s = self.state
        if s.finished:
            yield from super().answer(client, request)
            return
        s.waiting[client] = request
        self.hear(client)
        if s.cohort is not None and client in s.cohort and client not in s.updates and not self.joins_later(client):
            yield self.give(client)

    def hear(self, client: str) -> None:
        """Note that a late client is there again, and waits for a model: it joins with the next round at the latest."""
        late = self.state.late
        if late and client in late and client in self.state.waiting:
            late[client] = True

    def joins_later(self, client: str) -> bool:
        """Whether a client was late, and others are at work: asked now, it would hold up a second round."""
        s = self.state
        if s.late is None or client not in s.late:
            return False
        if self.at_work:
            return True
        del s.late[client]
        return False

    @property
    def at_work(self) -> Set[str]:
        """Clients of the round that were not late and have not answered."""
        s = self.state
        return set(s.cohort or ()) - s.left - (s.late or {}).keys() - s.updates.keys()

    def ask_joining(self) -> Effects:
        """Ask late clients that were to join later, once nobody else is at work: they are waited for in this round.

        They stay late, as they may be lost again: the round goes on with the first that answers.
        """
        if not self.at_work:
            for client in sorted(self.awaited & self.state.waiting.keys()):
                yield self.give(client)

    @on(Push)
    def pushed(self, sender: str, push: Push, now: float) -> Effects:
        """Line 3; what comes after its round is left out."""
        s = self.state
        stale = self.checked(sender, push)
        if s.finished:
            return  # it has been told
        if stale == 0 and s.cohort is not None and sender in s.cohort and sender not in s.updates:
            s.updates[sender] = push.update
        yield from self.answer(sender, push.request)
        yield from self.close_if_whole()

    @on(Leave)
    def leaves(self, sender: str, leave: Leave, now: float) -> Effects:
        self.state.waiting.pop(sender, None)
        yield from super().leaves(sender, leave, now)
        yield from self.close_if_whole()
        yield from self.ask_joining()

    def close_if_whole(self) -> Effects:
        """End the round if nothing is left to wait for, and so with each round that begins by that."""
        while self.is_whole():
            yield from self.close()

    def is_whole(self) -> bool:
        """Whether as many have answered as are wanted, or nobody is left to wait for."""
        s = self.state
        if s.cohort is None or s.finished:
            return False
        # Of a secret cohort all are waited for: who is cut off would show who was drawn before.
        enough = not self.settings.secret and len(s.updates) >= self.settings.drawn
        return enough or s.left.union(s.updates, self.skipped).issuperset(s.cohort)

    @on(PeerDown)
    def peer_down(self, event: PeerDown, now: float) -> Effects:
        """Wait no longer for a client that the session has lost, unless a timeout decides."""
        s = self.state
        if self.asks and s.late is not None and not s.finished:
            s.late[event.peer] = False  # also where it waits for a model: that it asked for before it was lost
            yield Record("client_lost", 1.0)
            yield from self.close_if_whole()
            yield from self.ask_joining()

    @on(PeerUp)
    def peer_up(self, event: PeerUp, now: float) -> Effects:
        self.hear(event.peer)
        yield from ()

    @on(Elapsed)
    def elapsed(self, event: Elapsed, now: float) -> Effects:
        if event.timer != ROUND:
            yield from self.halt("deadline")
        elif self.asks and not self.state.finished:
            yield from self.probe()
            yield from self.wait(None, self.settings.patience or PATIENCE, ROUND)
        elif self.state.cohort is not None and not self.state.finished:
            if self.state.late is not None:
                unheard = set(self.state.cohort) - self.state.updates.keys() - self.state.waiting.keys()
                self.state.late |= dict.fromkeys(unheard, False)
            yield from self.close()
            yield from self.close_if_whole()

    def close(self) -> Effects:
        """Lines 4 and 5: of those who have answered."""
        s = self.state
        if self.asks or self.settings.timeout is not None:
            yield CancelTimer(ROUND)
        updates, s.updates, s.cohort = tuple(sorted(s.updates.items())), {}, None
        divisor = float(len(updates))
        if self.weights is not None:
            divisor = sum(self.weights[name] for name, _ in updates)
            updates = tuple((name, self.weights[name] * update) for name, update in updates)
        if self.settings.curated and (updates or self.settings.secret):
            s.task += 1
            query, drawn = self.at_clip(self.query), s.drawn if self.settings.secret else None
            yield Compute(CuratedSum(s.task, s.x, updates, query, drawn))
            return
        s.empty += not updates
        s.taken += len(updates)
        total = 0.0 * s.x
        for _, update in updates:
            total = total + update
        yield from self.advance(total / (divisor or 1.0))

    @on(Completed)
    def summed(self, done: Completed, now: float) -> Effects:
        if done.id == self.state.task and not self.state.finished:
            self.state.taken += 1
            yield from self.advance(done.released)
            yield from self.close_if_whole()

    def advance(self, mean: Released) -> Effects:
        """Line 5, and on to the next round."""
        self.move(mean.within())
        if self.state.t == self.settings.rounds:
            yield from self.halt("rounds")
        elif self.last is not None and self.state.taken >= self.last:
            yield from self.halt("updates")
        else:
            yield from self.draw()
