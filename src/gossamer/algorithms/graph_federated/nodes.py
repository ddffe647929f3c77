"""The nodes of federated units, and their messages: an agent makes updates, its server sums and noises them.

An agent makes an update whenever its server asks, and shows it to its server alone. The server sums its agents'
updates, noises what it sends, and combines with its neighbours.

It goes round through its phases: *gathering* updates of the sampled agents, *releasing* psi with noise, *combining*
with its neighbours, and at the end *averaging*, if asked for. A synchronous server combines when it has the models of
the round from all neighbours that are there; an asynchronous one at once, with the newest that it has.

Nobody waits for agents that are known to be away, have declined, or are late by the timeout: their part of the sum is
zero. But where all are away it may be the server that nobody reaches: a round of which nobody has answered is held, for
the first that comes back or until the timeout, if there is one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

import numpy as np

from gossamer.algorithms.aggregation import shortened
from gossamer.algorithms.graph_federated.neighbours import Average, Combine, Leaving, Newest, Reach, Weights
from gossamer.algorithms.graph_federated.settings import Sampling, Settings
from gossamer.algorithms.nodes import EndingNode
from gossamer.errors import PeerError
from gossamer.privacy.tasks import LocalQuery, LocalUpdate
from gossamer.protocol.effects import CancelTimer, Compute, Finish, Record, Reject, Release, Send, SetTimer
from gossamer.protocol.events import Answered, Completed, PeerDown, PeerUp, Refused, Resumed, Started
from gossamer.protocol.messages import Message, check_count, check_model, message
from gossamer.protocol.node import Effects, RoundsMade, on
from gossamer.vectors import LARGEST_VALUE, Confined, Model, Public, Released

# Inside a unit


@message("graph.assignment")
class Assignment(Message):
    """Request of the server: make an update at ``model`` for ``round``."""

    round: int
    model: Public | Released | Confined


@message("graph.contribution")
class Contribution(Message):
    """Reply of an agent: its update of ``round``, w_E - w_0."""

    round: int
    update: Confined


@message("graph.declined")
class Declined(Message):
    """Reply of an agent: there will be no update, of this round or later ones."""


REASONS = ("quota", "budget", "deadline", "diverged", "stopped")
"""Why a server makes no more rounds, as `Over` numbers them; anything else is ``stopped``."""


@message("graph.over")
class Over(Message):
    """Notice of the server: the run is over, for one of the `REASONS`; ``model`` is what it ends with."""

    reason: int
    model: Public | Released | Confined


# The agent


@dataclass
class AgentState:
    """State of an agent: the newest assignment, whether it waits for an answer, and whether the agent is there yet."""

    w: Model | Confined
    round: int = -1
    busy: bool = False
    started: bool = False
    finished: str = ""


class AgentNode(EndingNode):
    """One agent k: E_k local steps from the model that it is given."""

    State: ClassVar[type[AgentState]] = AgentState
    state: AgentState

    def __init__(self, name: str, server: str, initial: Public, query: LocalQuery) -> None:
        super().__init__(name, self.State(initial))
        self.server, self.query, self.initial, self.peers = server, query, initial, (server,)

    @on(Assignment, by="server")
    def assigned(self, sender: str, assignment: Assignment, now: float) -> Effects:
        s = self.state
        check_count(sender, "round", assignment.round)
        check_model(assignment.model, s.w)
        if s.finished:
            yield Send(self.server, Declined())
        elif assignment.round >= s.round:  # an older one has been given up
            s.round, s.w, s.busy = assignment.round, assignment.model, True
            if s.started:
                yield from self.work()

    def work(self) -> Effects:
        """Lines 3 to 5 of the box in `graph_federated`."""
        yield Compute(LocalUpdate(self.state.round, self.state.w, self.query))

    @on(Answered)
    def answered(self, done: Answered, now: float) -> Effects:
        s = self.state
        if done.id == s.round and s.busy and isinstance(done.vector, Confined):
            s.busy = False
            yield Send(self.server, Contribution(s.round, done.vector.within()))

    def refused(self, event: Refused, now: float) -> Effects:
        if not self.state.finished:
            yield Send(self.server, Declined())
            yield from self.finish("budget")

    @on(Started, Resumed)
    def resume(self, event: Started | Resumed, now: float) -> Effects:
        """Do again what was asked for before the start; what was being computed is lost."""
        self.state.started = True
        if self.state.busy and not self.state.finished:
            yield from self.work()

    @on(Over, by="server")
    def over(self, sender: str, over: Over, now: float) -> Effects:
        check_model(over.model, self.state.w)
        if not 0 <= over.reason < len(REASONS):
            raise PeerError(f"{sender} gives reason {over.reason}, expected 0 to {len(REASONS) - 1}")
        self.state.w = over.model
        yield from self.finish(REASONS[over.reason])

    def finish(self, reason: str) -> Effects:
        """No more updates."""
        self.state.busy = False
        yield from super().finish(reason)


# The server


@dataclass
class ServerState:
    """State of a server.

    Attributes
    ----------
    own : vector
        Sum of the unit's own updates: `Confined`, and the only part of its model that is raw. float64.
    common : vector
        The rest of w, or of psi, which follows from messages. float64.
    v : vector
        sum_m a_pm M_m, which follows from messages. float64.
    m : vector
        Model that it sent last; with random noise, the mean of what it sent. float64.
    start : vector
        Model that its agents start from: v, or w if it is hidden. Of the model's type, as all that is sent.
    round : int
        Rounds done; the number of the one under way.
    phase : str
        ``gathering``, ``releasing``, ``combining``, ``averaging``, or empty.
    waiting : set of str
        Agents whose updates are to come.
    total : vector or None
        The sum of updates so far.
    answers : int
        Number of updates in it.
    links : int
        Records of the round that were released.
    newest : dict of str to Newest
        Newest models of each neighbour.
    averages : dict of str to Newest
        Newest models of each neighbour, while averaging.
    averaged : int
        Rounds of averaging done.
    away, left : set of str
        Peers that are down; neighbours that make no more rounds, and agents that have declined.
    staleness_sum, staleness_most : int
        Rounds that the neighbours' models which were combined were behind.
    unanswered : int
        Updates that rounds ended without.
    probes : int
        Number of times that those who are waited for were asked whether they are there.
    ends : float or None
        The deadline.
    finished : str
        Reason why it makes no more rounds.
    held : int or None
        The newest round in which all agents that were asked were away, and that waited for the first to come back.
    empty : int
        Rounds that passed without an update: nobody answered, or there was no sum that could be used.
    """

    own: Model | Confined
    common: Model
    v: Model
    m: Model
    start: Model | Confined
    newest: dict[str, Newest]
    averages: dict[str, Newest]
    round: int = 0
    phase: str = ""
    waiting: set[str] = field(default_factory=set)
    total: Confined | None = None
    answers: int = 0
    links: int = 0
    averaged: int = 0
    away: set[str] = field(default_factory=set)
    left: set[str] = field(default_factory=set)
    staleness_sum: int = 0
    staleness_most: int = 0
    unanswered: int = 0
    probes: int = 0
    ends: float | None = None
    finished: str = ""
    held: int | None = None
    empty: int = 0


M = TypeVar("M", Model, Model | Confined)
DIVERGED = LARGEST_VALUE
"""Entries of a released model above it are called divergence."""


class ServerNode(EndingNode):
    """Server p.

    Parameters
    ----------
    initial : Public
        The common starting model.
    weights : Weights
        Row p of the combination matrix.
    sampling : Sampling
        The unit: its server, and the draw of the agents that take part in a round.
    settings : Settings
        Settings with ``gradient_at`` and ``noise`` decided.
    reach : Reach
        Lengths of vectors.
    deadline : float or None
        Seconds after the start.
    """

    State: ClassVar[type[ServerState]] = ServerState
    state: ServerState

    def __init__(
        self,
        initial: Public,
        weights: Weights,
        sampling: Sampling,
        settings: Settings,
        reach: Reach,
        deadline: float | None = None,
    ) -> None:
        self.initial, self.neighbours = initial, tuple(weights.others)
        self.peers = self.neighbours
        first = initial.astype(np.float64)
        start = {m: Newest(-1, first) for m in self.neighbours}
        super().__init__(sampling.server, self.State(0.0 * first, first, first, first, initial, start, dict(start)))
        self.sampling, self.clients, self.reach = sampling, frozenset(sampling.agents), reach
        self.timeout, self.patience = settings.timeout, settings.patience
        self.weights, self.deadline = weights, deadline
        self.hidden = settings.gradient_at == "hidden"
        self.rounds, self.consensus, self.synchronous = settings.rounds, settings.consensus, settings.synchronous
        self.robust = settings.aggregation
        # One record for all links, or with random noise one for each, and one that is sent to nobody for the own term.
        self.random = settings.random
        self.records = len(self.neighbours) + settings.noises_own_term if self.random else 1

    @property
    def rounds_made(self) -> RoundsMade:
        return RoundsMade(max(self.state.round - self.state.empty, 0), self.state.empty, self.rounds)

    def begin(self) -> Effects:
        """The next round, or what comes after the last."""
        if self.state.round < self.rounds:
            yield from self.sample()
        elif self.consensus:
            yield from self.begin_averaging()
        else:
            yield from self.end("quota")

    # Lines 1, 2 and 5: inside the unit

    @property
    def round(self) -> int:
        """The round under way."""
        return self.state.round

    @property
    def w(self) -> Model | Confined:
        """psi_p, or after the combination w_p."""
        whole: Model | Confined = self.state.common + self.state.own
        return whole

    def sample(self) -> Effects:
        """Line 1: sample L agents."""
        s = self.state
        s.phase, s.total, s.answers = "gathering", None, 0
        yield from self.set_timers()
        yield from self.gather(self.sampling.of(s.round))

    def set_timers(self) -> Effects:
        """Set timers for agents that are late, and for peers that may be gone."""
        self.state.probes = 0
        yield self.wait_for("probe")
        if self.timeout is not None and self.state.phase == "gathering":
            yield SetTimer(self.timeout, "agents")

    def gather(self, agents: tuple[str, ...]) -> Effects:
        """Line 2: ask ``agents`` for their updates."""
        s = self.state
        there = [agent for agent in agents if agent not in s.away and agent not in s.left]
        s.waiting = set(there)
        for agent in there:
            yield from self.ask_for_update(agent)
        if not s.waiting and not self.holds():
            yield from self.heard()

    def holds(self) -> bool:
        """Whether a round that waits for nobody is held for agents that may come back."""
        s = self.state
        away = s.away.intersection(self.sampling.of(s.round)) - s.left
        if self.timeout is None or s.total is not None or not away:
            return False
        s.held = s.round
        return True

    def back(self, agent: str) -> Effects:
        """Ask an agent that is there again, if its round was held."""
        s = self.state
        if s.phase != "gathering" or s.held != s.round or s.total is not None:
            return
        if agent in self.sampling.of(s.round) and agent not in s.left and agent not in s.waiting:
            s.waiting.add(agent)
            yield from self.ask_for_update(agent)

    def ask_for_update(self, agent: str) -> Effects:
        """Send ``agent`` where it starts in this round."""
        yield Send(agent, Assignment(self.state.round, self.state.start))

    def time_is_up(self) -> Effects:
        """Go on without the agents that are late."""
        s, round = self.state, self.state.round
        for agent in sorted(s.waiting):
            yield from self.lost(agent)
        if (s.phase, s.round) == ("gathering", round) and not s.waiting:
            yield from self.heard()  # it was held

    @on(Contribution, by="clients")
    def contributed(self, sender: str, contribution: Contribution, now: float) -> Effects:
        s = self.state
        check_model(contribution.update, self.initial)
        if s.phase != "gathering" or contribution.round != s.round or sender not in s.waiting:
            return  # it came too late, or again
        update = shortened(contribution.update.astype(np.float64), self.reach.update)
        s.total, s.answers = update if s.total is None else s.total + update, s.answers + 1
        s.waiting.discard(sender)
        if not s.waiting:
            yield from self.heard()

    def lost(self, agent: str) -> Effects:
        """Wait for ``agent`` no longer."""
        s = self.state
        if s.phase == "gathering" and agent in s.waiting:
            s.waiting.discard(agent)
            if not s.waiting and not self.holds():
                yield from self.heard()

    def heard(self) -> Effects:
        """Nobody is waited for."""
        yield from self.gathered(self.state.total, self.state.answers)

    def ask_again(self) -> Effects:
        """Remind the agents that have not answered."""
        for agent in sorted(self.state.waiting):
            yield from self.ask_for_update(agent)

    @on(Declined, by="clients")
    def declined(self, sender: str, message: Declined, now: float) -> Effects:
        self.state.left.add(sender)
        yield from self.lost(sender)

    # Lines 6 to 8: what leaves the unit

    def gathered(self, total: Confined | None, answers: int) -> Effects:
        """Line 6: psi. The sum is divided by L, however many have answered."""
        s, count = self.state, self.sampling.sampled
        s.answers, s.unanswered = answers, s.unanswered + count - answers
        if self.timeout is not None:
            yield CancelTimer("agents")
        if total is not None:
            s.own = s.own + shortened(total.astype(np.float64), self.reach.total) / count
        s.total, s.phase, s.links = None, "releasing", 0
        yield from self.release()

    def release(self) -> Effects:
        """Line 7: have the next record of noise drawn, for what is raw alone.

        What follows from messages is added after the noise. Whoever sends us a huge model could otherwise have the
        noise rounded away.
        """
        s = self.state
        yield Compute(Release(s.round * self.records + s.links, s.own))

    @on(Completed)
    def released(self, done: Completed, now: float) -> Effects:
        """Line 8: send it on. With random noise each neighbour gets a record of its own."""
        s = self.state
        if s.phase != "releasing" or done.id != s.round * self.records + s.links:
            return
        whole = s.common + done.released
        if self.random and s.links == len(self.neighbours):
            # The last record takes the place of psi in the own term. It is sent to nobody.
            s.common, s.own = whole, 0.0 * s.own
        else:
            yield from self.tell(self.sendable(whole))
        s.links += 1
        if not whole.is_within(DIVERGED):  # the rounds before this one are the stable ones
            yield Record("last_stable_round", float(s.round))
            yield from self.end("diverged")
        elif s.links < self.records:
            yield from self.release()
        else:
            s.phase = "combining"
            yield from self.go_on()

    def tell(self, model: Released) -> Effects:
        """Send what was released to whom it is for."""
        s = self.state
        for neighbour in (self.neighbours[s.links],) if self.random else self.neighbours:
            yield Send(neighbour, Combine(s.round, model))
        sent = model.astype(np.float64)
        s.m = sent if s.links == 0 else s.m + (sent - s.m) / (s.links + 1)

    def sendable(self, model: M) -> M:
        """``model`` as its receivers accept it."""
        return model.within().astype(self.initial.values.dtype)

    # Lines 9 and 10: combination

    @on(Combine, Average, by="neighbours")
    def take(self, sender: str, message: Combine | Average, now: float) -> Effects:
        """Keep a neighbour's model, if it is newer than what there is.

        If it cannot be used, the one before is that of this round too: whoever waited for it would stand still.
        """
        newest = self.state.newest if isinstance(message, Combine) else self.state.averages
        known = newest[sender]
        try:
            check_model(message.model, self.initial)
            model = message.model.astype(np.float64)
            self.reach.check_message(model)
        except PeerError as error:
            yield Reject(sender, str(error))
            model = known.model
        newest[sender] = known.taking(sender, message.round, model)
        yield from self.go_on()

    def go_on(self) -> Effects:
        """Combine, or average, if what is needed is there."""
        s = self.state
        if s.phase == "combining" and not self.awaited:
            yield from self.combine()
        elif s.phase == "averaging" and not self.awaited:
            yield from self.average()

    @property
    def awaited(self) -> set[str]:
        """The peers without whom this server does not go on."""
        s = self.state
        if s.phase == "gathering":
            return s.waiting
        if s.phase == "combining" and self.synchronous:
            return self.weights.missing(s.newest, s.round) - s.away - s.left
        return self.weights.missing(s.averages, s.averaged) - s.away - s.left if s.phase == "averaging" else set()

    def combine(self) -> Effects:
        """w_p = a_pp psi_p + own noise taken back + sum_m a_pm M_m."""
        s, own = self.state, self.weights.own
        whole = self.weights.combined(s.m, s.newest, s.round if self.synchronous else None, self.robust)
        s.v = shortened(whole, self.reach.model)
        if self.random:
            s.own, s.common = own * s.own, s.v + own * (s.common - s.m)
        else:
            # a_pp (psi - (1-a_pp)/a_pp g) = psi - (1-a_pp) M, and M_p is in v with weight a_pp.
            s.common = s.common + (s.v - s.m)
        s.start = self.sendable(shortened(self.w if self.hidden else s.v, self.reach.start))
        for newest in s.newest.values():
            behind = max(s.round - newest.round, 0)
            s.staleness_sum += behind
            s.staleness_most = max(s.staleness_most, behind)
        s.round, s.empty = s.round + 1, s.empty + (s.answers == 0)
        yield from self.begin()

    # Averaging at the end, of what was sent already

    def begin_averaging(self) -> Effects:
        """Start from the last message: what is averaged was released, so this costs nothing."""
        s = self.state
        s.phase, s.v = "averaging", s.m
        yield from self.set_timers()
        yield from self.tell_average()

    def tell_average(self) -> Effects:
        s = self.state
        for neighbour in self.neighbours:
            yield Send(neighbour, Average(s.averaged, self.sendable(s.v)))
        yield from self.go_on()

    def average(self) -> Effects:
        """v_p = sum_m a_pm v_m. Who is not there counts with this server's own model."""
        s, total = self.state, self.weights.own * self.state.v
        for m, weight in self.weights.others.items():
            known = s.averages[m].round >= s.averaged
            total = total + weight * (s.averages[m].at(s.averaged) if known else s.v)
        s.v, s.start = total, self.sendable(total)
        s.averaged += 1
        if s.averaged == self.consensus:
            yield from self.end("quota")
        else:
            yield from self.tell_average()

    # Who is there

    @on(PeerDown)
    def peer_down(self, event: PeerDown, now: float) -> Effects:
        self.state.away.add(event.peer)
        yield from self.lost(event.peer)
        yield from self.go_on()

    @on(PeerUp)
    def peer_up(self, event: PeerUp, now: float) -> Effects:
        self.state.away.discard(event.peer)
        yield from self.back(event.peer)

    @on(Leaving, by="neighbours")
    def leaving(self, sender: str, message: Leaving, now: float) -> Effects:
        self.state.left.add(sender)
        yield from self.go_on()

    # Timers, interruptions, the end

    def rang(self, timer: str) -> Effects:
        if timer == "agents":
            yield from self.time_is_up()
        elif timer == "probe" and not self.state.finished:
            yield from self.probe()

    def probe(self) -> Effects:
        """Have the session find out who of those that are waited for is gone; then again after twice as long."""
        yield from self.sound_out(sorted(self.awaited))
        yield self.wait_for("probe")

    def resume(self, event: Resumed, now: float) -> Effects:
        """Timers are gone, and so is an answer that was under way; what agents were told may be lost."""
        s = self.state
        if s.finished:
            return
        yield from self.reset_deadline(now)
        yield from self.set_timers()
        if s.phase == "gathering":
            yield from self.ask_again()
        elif s.phase == "releasing":
            yield from self.release()
        else:
            yield from self.go_on()

    def end(self, reason: str) -> Effects:
        """No more rounds; agents get the last model."""
        s = self.state
        if s.finished:
            return
        s.finished, s.phase, s.waiting = reason, "", set()
        if s.round < self.rounds or s.averaged < self.consensus:
            for neighbour in self.neighbours:
                yield Send(neighbour, Leaving())
        code = REASONS.index(reason if reason in REASONS else "stopped")
        for agent in self.sampling.agents:
            yield Send(agent, Over(code, s.start))
        yield Finish(reason)
