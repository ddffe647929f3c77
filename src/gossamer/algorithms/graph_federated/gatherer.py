"""Inside a federated unit: its server samples agents, asks them for updates and sums what comes.

Nobody waits for agents that are known to be away, have declined, or are late by the timeout: their part of the sum is
zero. But where all are away it may be the server that nobody reaches: a round of which nobody has answered is held, for
the first that comes back or until the timeout, if there is one. What becomes of the sum is for
`graph_federated.server`, which this is a part of.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from gossamer.algorithms.ending import EndingNode
from gossamer.algorithms.graph_federated.coins import Sampling
from gossamer.algorithms.graph_federated.messages import Assignment, Contribution, Declined
from gossamer.algorithms.graph_federated.neighbours import Newest
from gossamer.algorithms.graph_federated.reach import Reach, shortened
from gossamer.algorithms.graph_federated.settings import Settings
from gossamer.algorithms.graph_federated.state import ServerState
from gossamer.errors import PeerError
from gossamer.protocol.effects import Send, SetTimer
from gossamer.protocol.messages import check_model
from gossamer.protocol.node import Effects, on
from gossamer.vectors import Confined, Model, Public


class GatheringNode(EndingNode):
    """Server p as its agents know it: lines 1, 2 and 5 of the box in `graph_federated`.

    Parameters
    ----------
    name : str
        Its own.
    initial : Public
        The common starting model.
    neighbours : tuple of str
        Other servers.
    sampling : Sampling
        Which agents take part when.
    settings : Settings
        With ``gradient_at`` decided.
    reach : Reach
        How long vectors are.
    """

    State: ClassVar[type[ServerState]] = ServerState
    state: ServerState

    def __init__(
        self,
        name: str,
        initial: Public,
        neighbours: tuple[str, ...],
        sampling: Sampling,
        settings: Settings,
        reach: Reach,
    ) -> None:
        self.initial = initial
        first = initial.astype(np.float64)
        start = {m: Newest(-1, first) for m in neighbours}
        super().__init__(name, self.State(0.0 * first, first, first, first, initial, start, dict(start)))
        self.sampling, self.agents, self.reach = sampling, frozenset(sampling.agents), reach
        self.timeout, self.patience = settings.timeout, settings.patience

    @property
    def round(self) -> int:
        """The round under way."""
        return self.state.round

    @property
    def w(self) -> Model | Confined:
        """psi_p, or after the combination w_p."""
        whole: Model | Confined = self.state.common + self.state.own
        return whole

    def begin(self) -> Effects:
        """Line 1: sample L agents."""
        s = self.state
        s.phase, s.total, s.answers = "gathering", None, 0
        yield from self.set_timers()
        yield from self.gather(self.sampling.of(s.round))

    def set_timers(self) -> Effects:
        """Set timers for agents that are late, and for peers that may be gone."""
        self.state.patience = self.patience
        yield SetTimer(self.patience, "probe")
        if self.timeout is not None and self.state.phase == "gathering":
            yield SetTimer(self.timeout, "agents")

    def gather(self, agents: tuple[str, ...]) -> Effects:
        """Line 2: ask ``agents`` for their updates."""
        s = self.state
        s.waiting = {agent for agent in agents if agent not in s.away and agent not in s.left}
        for agent in agents:
            if agent in s.waiting:
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

    @on(Contribution)
    def contributed(self, sender: str, contribution: Contribution, now: float) -> Effects:
        s = self.state
        self.check_member(sender)
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

    def gathered(self, total: Confined | None, answers: int) -> Effects:
        """The sum of so many updates is there; None where nobody answered."""
        raise NotImplementedError

    def ask_again(self) -> Effects:
        """Remind the agents that have not answered."""
        for agent in sorted(self.state.waiting):
            yield from self.ask_for_update(agent)

    @on(Declined)
    def declined(self, sender: str, message: Declined, now: float) -> Effects:
        self.check_member(sender)
        self.state.left.add(sender)
        yield from self.lost(sender)

    def check_member(self, sender: str) -> None:
        """Refuse what another than the unit's agents sends."""
        if sender not in self.agents:
            raise PeerError(f"{sender} is no agent of {self.name}")
