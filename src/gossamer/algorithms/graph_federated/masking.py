"""A federated unit whose server learns sums of updates only: its server and its agents, with masks.

A round's sum takes five steps (`masking_messages`). A step ends when all agents that were asked have
replied, or are known to be away, have declined, or are late by the timeout; who has not replied by then has vanished
from this sum. If too few are left, nothing is unmasked: the round counts as one without updates, and says so. The
steps' content is opaque here: agents' messages come from their data sides, which hold the keys; the server's side of
the sum is plain data in its state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

from gossamer.algorithms.graph_federated.agent import AgentNode, AgentState
from gossamer.algorithms.graph_federated.messages import Assignment, Contribution, Declined
from gossamer.algorithms.graph_federated.server import ServerNode
from gossamer.algorithms.graph_federated.settings import Settings
from gossamer.algorithms.graph_federated.state import ServerState
from gossamer.algorithms.masked_steps import UPDATE, check_reply, check_request, speakers_in, step_task
from gossamer.algorithms.masking_messages import MaskingReply, MaskingRequest, Withdrawn
from gossamer.errors import PeerError, TooFewAgents
from gossamer.privacy.masking import Step
from gossamer.privacy.masking.server import server_of, start_sum
from gossamer.privacy.masking_step import REFUSED, step_of
from gossamer.protocol.effects import Compute, Record, Send
from gossamer.protocol.events import Answered
from gossamer.protocol.messages import check_sender
from gossamer.protocol.node import Effects, on
from gossamer.sides.secure_unit import SecureUnit, secure_unit
from gossamer.vectors import Blank, Masked, Public


def unit_of(
    settings: Settings, server: str, sampled: int, size: int, clip: float, agent_noise: float = 0.0, run: str = ""
) -> SecureUnit:
    """Masking of updates of ``size`` numbers in the unit of ``server``, ``sampled`` of them a round.

    Agents sign their keys for the deployed ``run``, if it has a name.

    Raises
    ------
    SpecError
        If clip, agents and the settings of `Masking` do not fit together.
    """
    reach, terms = settings.step_size * clip, settings.masking.parameters
    return secure_unit(server, reach, sampled, size, **terms, agent_noise=agent_noise, run=run, confined=True)


def masking_nodes(unit: SecureUnit) -> tuple[Callable[..., MaskingServerNode], Callable[..., MaskingAgentNode]]:
    """Constructors of the server and the agents of ``unit``, with the arguments of `ServerNode` and `AgentNode`."""
    return partial(MaskingServerNode, unit=unit), partial(MaskingAgentNode, unit=unit)


@dataclass
class MaskingServerState(ServerState):
    """State of a server that masks.

    Attributes
    ----------
    sum : ServerState of `gossamer.privacy.masking`, or BlankState
        The sum under way.
    requests : dict of str to Public
        What each agent was asked last.
    sums_refused : int
        Rounds without a sum, because too few agents were left or too few shares right.
    """

    sum: Any = None
    requests: dict[str, Public] = field(default_factory=dict)
    sums_refused: int = 0


class MaskingServerNode(ServerNode):
    """Server p; ``unit`` says how its agents mask."""

    State: ClassVar[type[ServerState]] = MaskingServerState
    state: MaskingServerState

    def __init__(self, *arguments: Any, unit: SecureUnit, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.unit = unit

    @property
    def sums_refused(self) -> int:
        return self.state.sums_refused

    def gather(self, agents: tuple[str, ...]) -> Effects:
        """Ask for updates; agents announce their keys when they have made them."""
        s = self.state
        s.requests = {}
        s.sum = start_sum(self.unit.group, s.round, blank=isinstance(s.m.values, Blank))
        yield from super().gather(agents)

    @on(MaskingReply)
    def replied(self, sender: str, reply: MaskingReply, now: float) -> Effects:
        s = self.state
        self.only_from_agents(sender)
        check_reply(reply, self.unit.group)
        if s.phase != "gathering" or (reply.round, reply.step) < (s.round, s.sum.step) or sender not in s.waiting:
            return  # it came too late, or again
        if (reply.round, reply.step) != (s.round, s.sum.step):
            raise PeerError(f"{sender} replies to step {reply.step} of round {reply.round}, which was not asked yet")
        server = server_of(s.sum)
        server.receive(self.sampling.of(s.round).index(sender) + 1, reply.content)
        s.sum = server.state
        s.waiting.discard(sender)
        if not s.waiting:
            yield from self.heard()

    @on(Contribution)
    def contributed(self, sender: str, contribution: Contribution, now: float) -> Effects:
        raise PeerError(f"{sender} sends an update without masks")

    def lost(self, agent: str) -> Effects:
        """Wait for ``agent`` no longer."""
        s = self.state
        if s.phase == "gathering" and agent in s.waiting:
            s.waiting.discard(agent)
            s.unanswered += s.sum.step <= Step.MASK  # later its update is in the sum
            if not s.waiting:
                yield from self.heard()

    def back(self, agent: str) -> Effects:
        """Ask an agent that is there again, if its round was held and the others have not masked yet."""
        if self.state.sum is not None and self.state.sum.step == Step.ANNOUNCE:
            yield from super().back(agent)

    @on(Withdrawn)
    def withdrawn(self, sender: str, message: Withdrawn, now: float) -> Effects:
        self.only_from_agents(sender)
        if message.round == self.state.round:
            yield from self.lost(sender)

    def heard(self) -> Effects:
        """Close the step: ask for the next one, or unmask. Too few agents, or too few right shares, are no sum."""
        server = server_of(self.state.sum)
        try:
            if server.state.step < Step.REVEAL:
                requests = server.advance()
                self.state.unanswered += len(self.state.sum.received) - len(requests)  # who was asked something else
                effects = self.ask(requests)
            else:
                effects = self.gathered(self.unit.decoded(server.unmask()))
        except (TooFewAgents, PeerError):
            effects = self.refuse()
        else:
            self.state.sum = server.state
        yield from effects

    def refuse(self) -> Effects:
        """Nothing is unmasked: a round without updates."""
        s = self.state
        s.sums_refused += 1
        s.unanswered += len(s.sum.received) if s.sum.step <= Step.MASK else len(s.sum.survivors)
        yield Record("masked_sum_refused", float(server_of(s.sum).left))
        yield from self.gathered(None)

    def ask(self, requests: dict[int, Public]) -> Effects:
        """Send each agent that is left what it needs for the next step."""
        s = self.state
        members = self.sampling.of(s.round)
        s.requests = {members[number - 1]: content for number, content in requests.items()}
        s.waiting = {agent for agent in s.requests if agent not in s.away and agent not in s.left}
        if s.sum.step <= Step.MASK:
            s.unanswered += len(s.requests) - len(s.waiting)
        yield from self.set_timers()
        if s.waiting:
            yield from self.ask_again()
        else:
            yield from self.heard()

    def ask_again(self) -> Effects:
        """Send what was sent last to the agents that have not answered."""
        s = self.state
        if s.sum.step == Step.ANNOUNCE:
            yield from super().ask_again()
            return
        for agent in sorted(s.waiting):
            yield Send(agent, MaskingRequest(s.round, s.sum.step, s.requests[agent]))


@dataclass
class MaskingAgentState(AgentState):
    """State of an agent that masks.

    Attributes
    ----------
    step : int
        The newest step that it was asked to take; -1 for the update.
    request : Public
        What it was sent for that.
    speakers : int
        Of how many agents its reply speaks.
    """

    step: int = UPDATE
    request: Public = field(default_factory=lambda: REFUSED)
    speakers: int = 0


class MaskingAgentNode(AgentNode):
    """One agent k; its update goes from its data side to the server under masks, and is never in its own state."""

    State: ClassVar[type[AgentState]] = MaskingAgentState
    state: MaskingAgentState

    def __init__(self, *arguments: Any, unit: SecureUnit, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.group = unit.group

    @on(Assignment)
    def assigned(self, sender: str, assignment: Assignment, now: float) -> Effects:
        s = self.state
        if assignment.round > s.round:
            s.step, s.request = UPDATE, REFUSED
        yield from super().assigned(sender, assignment, now)

    def work(self) -> Effects:
        """Make the update, or the message of the step asked for."""
        s = self.state
        if s.step == UPDATE:
            yield from super().work()
            return
        yield Compute(step_task(self.group, s.round, s.step, s.request, s.speakers))

    @on(MaskingRequest)
    def requested(self, sender: str, request: MaskingRequest, now: float) -> Effects:
        s = self.state
        check_sender(sender, self.server)
        check_request(request, self.group)
        if s.finished:
            yield Send(self.server, Declined())
        elif request.round == s.round and request.step >= s.step:  # others have been given up
            s.step, s.request, s.busy = request.step, request.content, True
            s.speakers = speakers_in(request, self.group, s.speakers)
            yield from self.work()

    @on(Answered)
    def answered(self, done: Answered, now: float) -> Effects:
        s = self.state
        if not s.busy:
            return
        if s.step == UPDATE and done.id == s.round:  # it is there
            s.step = Step.ANNOUNCE.value
            yield from self.work()
        elif step_of(done.id) == (s.round, s.step):
            s.busy = False
            if isinstance(done.vector, Public | Masked) and done.vector.size:
                yield Send(self.server, MaskingReply(s.round, s.step, done.vector))
            else:
                yield Send(self.server, Withdrawn(s.round))
