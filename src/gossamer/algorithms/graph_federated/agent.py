"""An agent of a federated unit: it makes an update whenever its server asks, and shows it to its server alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gossamer.algorithms.graph_federated.messages import REASONS, Assignment, Contribution, Declined, Over
from gossamer.algorithms.nodes import EndingNode, Probe
from gossamer.errors import PeerError
from gossamer.privacy.unit_tasks import LocalQuery, LocalUpdate
from gossamer.protocol.effects import Compute, Send
from gossamer.protocol.events import Answered, Refused, Resumed, Started, Stop
from gossamer.protocol.messages import check_count, check_model, check_sender
from gossamer.protocol.node import Effects, on
from gossamer.vectors import Confined, Model, Public


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
        s = self.state
        yield Compute(LocalUpdate(s.round, s.w, self.query))

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
