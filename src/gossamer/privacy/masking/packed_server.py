"""The server's side of a masked sum whose messages are packed, and its double for runs without content."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from gossamer.errors import PeerError
from gossamer.privacy.masking.group import Group, Step
from gossamer.privacy.masking.messages import MaskedVector, packed, unpacked
from gossamer.privacy.masking.server import MaskedSum, MaskingServer, ServerState, require
from gossamer.privacy.masking.sizes import REPLIES, REQUESTS, packed_size
from gossamer.protocol.encoding import register
from gossamer.vectors import Blank, Masked, Public


class SumServer(Protocol):
    """Interface of a masked sum for the node that is its server."""

    @property
    def state(self) -> ServerState | BlankState:
        """Plain data, and all that there is."""
        ...

    @property
    def left(self) -> int:
        """Count those that have replied at this step, with what the others can use."""
        ...

    def receive(self, agent: int, content: Public | Masked) -> None:
        """Take what ``agent`` replied at this step; PeerError if it does not fit."""
        ...

    def advance(self) -> dict[int, Public]:
        """Close this step: what to ask each agent that is left with; TooFewAgents if they are too few."""
        ...

    def unmask(self) -> MaskedSum | None:
        """The sum, once enough have revealed their shares; None where there is no content."""
        ...


def start_sum(group: Group, round: int, *, blank: bool) -> ServerState | BlankState:
    """The state of a server that waits for the announcements of ``round``."""
    return BlankState(group, round) if blank else MaskingServer.start(group, round).state


def server_of(state: ServerState | BlankState) -> SumServer:
    """The server that goes on from ``state``."""
    return BlankServer(state) if isinstance(state, BlankState) else PackedServer(state)


class PackedServer:
    """A `MaskingServer` that is given and gives packed messages."""

    def __init__(self, state: ServerState) -> None:
        self._server = MaskingServer(state)

    @property
    def state(self) -> ServerState:
        return self._server.state

    @property
    def left(self) -> int:
        return len(self._server.heard)

    def receive(self, agent: int, content: Public | Masked) -> None:
        state = self.state
        if state.step == Step.MASK:
            if not isinstance(content, Masked):
                raise PeerError(f"agent {agent} sent a vector that is not masked")
            self._server.receive(MaskedVector(state.round, agent, content))
        else:
            if not isinstance(content, Public):
                raise PeerError(f"agent {agent} sent a masked vector at step {state.step}")
            message = unpacked(content, REPLIES[state.step], state.group)
            if message.agent != agent:
                raise PeerError(f"agent {agent} speaks as agent {message.agent}")
            self._server.receive(message)

    def advance(self) -> dict[int, Public]:
        return {agent: packed(message) for agent, message in self._server.advance().items()}

    def unmask(self) -> MaskedSum:
        return self._server.unmask()


@register("masking.blank")
@dataclass(frozen=True)
class BlankState:
    """Counts of a server where messages have no content.

    Attributes
    ----------
    group : Group
    round : int
    step : int
        Which message it waits for, a `Step`.
    received : tuple of int
        From whom it has come.
    speakers : int
        Whom a reply speaks of: all that announced themselves, later the participants.
    survivors : tuple of int
        Whose vectors arrived.
    """

    group: Group
    round: int
    step: int = Step.ANNOUNCE.value
    received: tuple[int, ...] = ()
    speakers: int = 0
    survivors: tuple[int, ...] = ()


class BlankServer:
    """Keeps to the schedule of a `PackedServer`, with messages of the same sizes."""

    def __init__(self, state: BlankState) -> None:
        self.state = state

    @property
    def left(self) -> int:
        return len(self.state.received)

    def receive(self, agent: int, content: Public | Masked) -> None:
        state = self.state
        if content.values.nbytes != reply_bytes(state.group, state.step, state.speakers):
            raise PeerError(f"agent {agent} sent {content.values.nbytes} bytes at step {state.step}")
        self.state = replace(state, received=(*state.received, agent))

    def advance(self) -> dict[int, Public]:
        state, left = self.state, sorted(self.state.received)
        require(state.group, state.step, state.round, len(left))
        step = state.step + 1
        about = len(left) - 1 if step == Step.MASK else len(left)
        request = Public(Blank(packed_size(REQUESTS[step], about, signed=state.group.signed), np.uint8))
        speakers = len(left) if step <= Step.MASK else state.speakers
        survivors = tuple(left) if step == Step.CONFIRM else state.survivors
        self.state = replace(state, step=step, received=(), speakers=speakers, survivors=survivors)
        return dict.fromkeys(left, request)

    def unmask(self) -> None:
        require(self.state.group, self.state.step, self.state.round, len(self.state.received))


def reply_bytes(group: Group, step: int, speakers: int) -> int:
    """Return the length of an agent's reply where ``speakers`` announced themselves, or at the end took part."""
    if step == Step.MASK:
        return group.length * group.dtype.itemsize
    about = speakers - 1 if step == Step.SHARE else speakers
    return packed_size(REPLIES[step], about, signed=group.signed)
