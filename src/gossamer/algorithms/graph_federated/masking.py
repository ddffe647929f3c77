"""A federated unit whose server learns sums of updates only: its server and its agents, in masked rounds.

A round that is refused counts as one without updates, and says so.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import Any, ClassVar

from gossamer.algorithms.graph_federated import nodes
from gossamer.algorithms.masked_round import MaskedRound, MaskingRequest, MemberState, RoundMember, SumState
from gossamer.errors import PeerError
from gossamer.privacy.masking import MaskedSum, Phase
from gossamer.protocol.effects import Send
from gossamer.protocol.node import Effects, on
from gossamer.sides.secure_unit import SecureUnit


@dataclass
class MaskingServerState(SumState, nodes.ServerState):
    """State of a server that masks.

    Attributes
    ----------
    sums_refused : int
        Number of rounds without a sum, because too few agents were left or too few shares right.
    """

    sums_refused: int = 0


class MaskingServerNode(MaskedRound, nodes.ServerNode):
    """Server p; ``unit`` says how its agents mask."""

    State: ClassVar[type[nodes.ServerState]] = MaskingServerState
    state: MaskingServerState

    def __init__(self, *arguments: Any, unit: SecureUnit, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.unit = unit

    @property
    def summing(self) -> bool:
        """Whether a sum is under way."""
        return self.state.phase == "gathering"

    @property
    def members(self) -> tuple[str, ...]:
        """The agents of the round."""
        return self.sampling.of(self.round)

    @property
    def gone(self) -> Set[str]:
        """Agents that nobody waits for."""
        return self.state.away | self.state.left

    def gather(self, agents: tuple[str, ...]) -> Effects:
        """Ask for updates; agents announce their keys when they have made them."""
        self.open_sum(self.state.m)
        yield from super().gather(agents)

    @on(nodes.Contribution, by="clients")
    def contributed(self, sender: str, contribution: nodes.Contribution, now: float) -> Effects:
        raise PeerError(f"{sender} sends an update without masks")

    def back(self, agent: str) -> Effects:
        """Ask an agent that is there again, if its round was held and the others have not masked yet."""
        if self.state.sum is not None and self.state.sum.step == Phase.ANNOUNCE:
            yield from super().back(agent)

    def unmasked(self, total: MaskedSum | None, updates: int) -> Effects:
        """Go on with the sum of so many updates."""
        yield from self.gathered(self.unit.decoded(total), updates)

    def refused_sum(self) -> Effects:
        """Nothing is unmasked: a round without updates."""
        self.state.sums_refused += 1
        yield from self.gathered(None, 0)


@dataclass
class MaskingAgentState(MemberState, nodes.AgentState):
    """State of an agent that masks."""


class MaskingAgentNode(RoundMember, nodes.AgentNode):
    """One agent k; its update goes from its data side to the server under masks, and is never in its own state."""

    State: ClassVar[type[nodes.AgentState]] = MaskingAgentState
    state: MaskingAgentState

    def __init__(self, *arguments: Any, unit: SecureUnit, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.group = unit.group

    @property
    def round(self) -> int:
        """The newest round that it was asked about."""
        return self.state.round

    @on(nodes.Assignment, by="server")
    def assigned(self, sender: str, assignment: nodes.Assignment, now: float) -> Effects:
        if assignment.round > self.state.round:
            self.enter()
        yield from super().assigned(sender, assignment, now)

    def requested(self, sender: str, request: MaskingRequest, now: float) -> Effects:
        yield from super().requested(sender, request, now)
        if self.state.finished:
            yield Send(self.server, nodes.Declined())
