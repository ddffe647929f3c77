"""An agent of a federated unit, and the messages inside units and between servers.

An agent makes an update whenever its server asks, and shows it to its server alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gossamer.algorithms.nodes import EndingNode, Probe
from gossamer.errors import PeerError
from gossamer.privacy.unit_tasks import LocalQuery, LocalUpdate
from gossamer.protocol.effects import Compute, Send
from gossamer.protocol.events import Answered, Refused, Resumed, Started, Stop
from gossamer.protocol.messages import Message, check_count, check_model, check_sender, message
from gossamer.protocol.node import Effects, on
from gossamer.vectors import Confined, Model, Public, Released

# Inside a unit


@message("graph.assignment")
@dataclass(frozen=True)
class Assignment(Message):
    """Request of the server: make an update at ``model`` for ``round``."""

    round: int
    model: Public | Released | Confined


@message("graph.contribution")
@dataclass(frozen=True)
class Contribution(Message):
    """Reply of an agent: its update of ``round``, w_E - w_0."""

    round: int
    update: Confined


@message("graph.declined")
@dataclass(frozen=True)
class Declined(Message):
    """Reply of an agent: there will be no update, of this round or later ones."""


REASONS = ("quota", "budget", "deadline", "diverged", "stopped")
"""Why a server makes no more rounds, as `Over` numbers them; anything else is ``stopped``."""


@message("graph.over")
@dataclass(frozen=True)
class Over(Message):
    """Notice of the server: the run is over, for one of the `REASONS`; ``model`` is what it ends with."""

    reason: int
    model: Public | Released | Confined


# Between servers


@message("graph.combine")
@dataclass(frozen=True)
class Combine(Message):
    """M: the sender's model of ``round``, with noise."""

    round: int
    model: Released


@message("graph.average")
@dataclass(frozen=True)
class Average(Message):
    """Model that the sender has in round ``round`` of averaging at the end."""

    round: int
    model: Public | Released


@message("graph.leaving")
@dataclass(frozen=True)
class Leaving(Message):
    """The sender makes no more rounds; its newest model is its last."""


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
        self.server, self.query, self.initial = server, query, initial

    @on(Assignment)
    def assigned(self, sender: str, assignment: Assignment, now: float) -> Effects:
        s = self.state
        check_sender(sender, self.server)
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

    @on(Refused)
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

    @on(Over)
    def over(self, sender: str, over: Over, now: float) -> Effects:
        check_sender(sender, self.server)
        check_model(over.model, self.state.w)
        if not 0 <= over.reason < len(REASONS):
            raise PeerError(f"{sender} gives reason {over.reason}, expected 0 to {len(REASONS) - 1}")
        self.state.w = over.model
        yield from self.finish(REASONS[over.reason])

    @on(Probe)
    def probed(self, sender: str, message: Probe, now: float) -> Effects:
        check_sender(sender, self.server)
        yield from ()

    @on(Stop)
    def stop(self, event: Stop, now: float) -> Effects:
        yield from self.finish(event.reason)

    def finish(self, reason: str) -> Effects:
        """No more updates."""
        self.state.busy = False
        yield from super().finish(reason)
