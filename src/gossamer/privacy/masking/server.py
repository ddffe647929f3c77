"""The server's side of one masked sum: it hands on messages, counts who is left, and removes masks from the sum only.

The runtime calls `MaskingServer.receive` for every message of an agent. When nobody is missing, or it has waited long
enough, it calls `MaskingServer.advance` and sends each agent what that returns; who was not heard by then has vanished
and is no longer listened to. After the last step `MaskingServer.unmask` gives the sum.

With too few agents left, `advance` and `unmask` say so and nothing changes: the runtime may wait for more of them, or
give up. There is no way to a sum of fewer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from gossamer.errors import CallerError, PeerError, TooFewAgents
from gossamer.privacy.masking.agent import MaskingAgent
from gossamer.privacy.masking.group import Group, Phase, UintArray
from gossamer.privacy.masking.keys import is_signed, pairwise_mask_keys, self_mask_key, with_masks
from gossamer.privacy.masking.messages import (
    REPLIES,
    REQUESTS,
    AgentMessage,
    AgentRoster,
    Announcement,
    Confirmation,
    Confirmations,
    DeliveredShares,
    EncryptedShares,
    Identities,
    MaskedVector,
    MaskingMessage,
    RevealedShares,
    Survivors,
    check_announcement,
    packed,
    packed_size,
    unpacked,
)
from gossamer.privacy.masking.shares import recover
from gossamer.protocol.encoding import register
from gossamer.vectors import Blank, Masked, Public

_EXPECTED: dict[int, type[AgentMessage]] = {**REPLIES, Phase.MASK: MaskedVector}


class MaskedSum(NamedTuple):
    """Result of a masked sum.

    Attributes
    ----------
    values : ndarray of unsigned integers [group.length]
        The sum modulo 2^bits: raw data of all these agents.
    agents : tuple of int
        Agents whose vectors are in it.
    """

    values: UintArray
    agents: tuple[int, ...]


@register("masking.sum")
@dataclass(frozen=True)
class ServerSumState:
    """All that a server keeps between two messages.

    Attributes
    ----------
    group : Group
    round : int
    step : int
        Step whose messages it waits for, a `Phase`.
    eligible : tuple of int
        Agents that it waits for.
    received : dict of int to AgentMessage or None
        Messages that have come, by agent; None for a vector, which is added to ``total`` at once.
    roster : AgentRoster or None
    survivors : tuple of int
        Agents whose vectors arrived.
    participants : tuple of int
        Agents whose shares arrived.
    total : ndarray of unsigned integers or None
        The sum of the masked vectors [group.length].
    commitments : dict of int to dict of int to bytes
        Commitments of each participant to the shares of its secrets.
    """

    group: Group
    round: int
    step: int
    eligible: tuple[int, ...]
    received: dict[int, Any] = field(default_factory=dict)
    roster: AgentRoster | None = None
    participants: tuple[int, ...] = ()
    survivors: tuple[int, ...] = ()
    total: Any = None
    commitments: dict[int, dict[int, bytes]] = field(default_factory=dict)


class MaskingServer:
    """The server of one masked sum.

    Parameters
    ----------
    state : ServerSumState
        State of `start`, or as it was stored.
    identities : mapping of int to PublicKey, optional
        The agents' public keys; with them, announcements that they did not sign are refused here already. Agents
        refuse them in any case, and then there is no sum.
    """

    def __init__(self, state: ServerSumState, identities: Identities | None = None) -> None:
        self.state = state
        self.identities = identities

    @classmethod
    def start(cls, group: Group, round: int, identities: Identities | None = None) -> MaskingServer:
        """A server that waits for the announcements of ``round``."""
        return cls(ServerSumState(group, round, Phase.ANNOUNCE.value, tuple(range(1, group.size + 1))), identities)

    @property
    def missing(self) -> tuple[int, ...]:
        """The agents whose message of this step has not arrived."""
        return tuple(agent for agent in self.state.eligible if agent not in self.state.received)

    @property
    def heard(self) -> dict[int, Any]:
        """The replies that came at this step and count, by agent in order.

        Agents refuse a list with other inputs than theirs. So those whose inputs are not what most announced do not
        count: one of them would spoil the sum for all.
        """
        received = {agent: self.state.received[agent] for agent in sorted(self.state.received)}
        if self.state.step != Phase.ANNOUNCE or not received:
            return received
        ((most, _),) = Counter(one.inputs for one in received.values()).most_common(1)
        return {agent: one for agent, one in received.items() if one.inputs == most}

    def receive(self, message: AgentMessage) -> None:
        """Take an agent's message of this step.

        Raises
        ------
        PeerError
            If it is of another step, round or agent, a second one, or does not fit what was sent to the agent.
        """
        state = self.state
        expected = _EXPECTED.get(state.step)
        if type(message) is not expected or message.round != state.round:
            raise PeerError(
                f"agent {message.agent} sent a {type(message).__name__} of round {message.round}, expected "
                f"{f'a {expected.__name__} of round {state.round}' if expected else 'nothing more'}"
            )
        if message.agent not in self.missing:
            raise PeerError(f"expected messages of agents {list(self.missing)}, found one of agent {message.agent}")
        self._check(message)
        if isinstance(message, MaskedVector):
            values = message.values.values
            total = values if state.total is None else state.total + values
            self.state = replace(state, received={**state.received, message.agent: None}, total=total)
        else:
            self.state = replace(state, received={**state.received, message.agent: message})

    def advance(self) -> dict[int, MaskingMessage]:
        """Close this step: what to send to each agent that is left.

        Raises
        ------
        TooFewAgents
            If too few of them answered; nothing changes.
        """
        state, received = self.state, self.heard
        left = tuple(received)
        require(state.group, state.step, state.round, len(left))
        changes: dict[str, Any] = {}
        messages: dict[int, MaskingMessage]
        if state.step == Phase.ANNOUNCE:
            roster = changes["roster"] = AgentRoster(state.round, tuple(received.values()))
            messages = dict.fromkeys(left, roster)
        elif state.step == Phase.SHARE:
            changes |= {
                "participants": left,
                "commitments": {agent: one.commitments for agent, one in received.items()},
            }
            messages = {agent: DeliveredShares(state.round, agent, _addressed(agent, received)) for agent in left}
        elif state.step == Phase.MASK:
            changes["survivors"] = left
            messages = dict.fromkeys(left, Survivors(state.round, left))
        elif state.step == Phase.CONFIRM:
            signatures = {agent: confirmation.signature for agent, confirmation in received.items()}
            messages = dict.fromkeys(left, Confirmations(state.round, signatures))
        else:
            raise CallerError("no step follows the last one: unmask the sum")
        self.state = replace(state, step=state.step + 1, eligible=left, received={}, **changes)
        return messages

    def unmask(self) -> MaskedSum:
        """The sum of the survivors' vectors, once enough agents have revealed their shares.

        Raises
        ------
        TooFewAgents
            If fewer than the threshold did: nothing is learnt.
        CallerError
            Before the last step, or a second time.
        PeerError
            If too few of their shares are right, or an agent dealt shares of something else than it announced: nothing
            is learnt.
        """
        state, group = self.state, self.state.group
        if state.step != Phase.REVEAL:
            name = Phase(state.step).name.lower()
            raise CallerError(f"a sum is unmasked once, when shares have been revealed, not at step {name}")
        require(group, state.step, state.round, len(state.received))
        assert state.roster is not None
        digest = state.roster.digest(group)
        self_masks = [self_mask_key(self._secret(agent), digest) for agent in state.survivors]
        publics = {one.agent: one.mask_key for one in state.roster.announcements if one.agent in state.survivors}
        added: list[bytes] = []
        subtracted: list[bytes] = []  # by the survivors, for those that vanished
        for vanished in sorted(set(state.participants) - set(state.survivors)):
            for agent, key in pairwise_mask_keys(self._secret(vanished), publics, digest, vanished).items():
                (added if agent < vanished else subtracted).append(key)
        values = with_masks(state.total, subtracted, [*self_masks, *added], group)
        self.state = replace(state, step=Phase.DONE.value, eligible=(), received={}, total=None)
        return MaskedSum(values, state.survivors)

    def _secret(self, agent: int) -> bytes:
        """The secret of which shares were revealed: a survivor's seed, or a vanished agent's mask key."""
        state = self.state
        assert state.roster is not None
        return recover(
            state.roster.by_agent[agent],
            "seed" if agent in state.survivors else "mask",
            {giver: answer.shares[agent] for giver, answer in state.received.items()},
            state.commitments[agent],
            state.group.threshold,
            state.roster.digest(state.group),
        )

    def _check(self, message: AgentMessage) -> None:
        """Whether a message of the right kind fits."""
        state, agent = self.state, message.agent
        if isinstance(message, Announcement):
            check_announcement(message, state.group, self.identities)
            taken = {key for other in state.received.values() for key in (other.mask_key, other.share_key)}
            if message.mask_key == message.share_key or taken & {message.mask_key, message.share_key}:
                raise PeerError(f"agent {agent} announced a key that was announced before: expected keys of its own")
        elif isinstance(message, EncryptedShares):
            _same_agents("shares for", agent, message.shares, set(state.eligible) - {agent})
        elif isinstance(message, RevealedShares):
            _same_agents("shares of", agent, message.shares, set(state.participants))
        elif isinstance(message, Confirmation):
            assert state.roster is not None
            text = Confirmation.signed_text(state.roster.digest(state.group), state.participants, state.survivors)
            if not is_signed(state.roster.by_agent[agent].signing_key, message.signature, text):
                raise PeerError(
                    f"agent {agent} signed other survivors than {list(state.survivors)}, or with another key"
                )
        elif isinstance(message, MaskedVector):
            values = message.values.values
            if not isinstance(values, np.ndarray) or values.shape != (state.group.length,):
                raise PeerError(f"agent {agent} sent {values.size} masked values, expected {state.group.length}")
            if values.dtype != state.group.dtype:
                raise PeerError(f"agent {agent} sent masked values of {values.dtype}, expected {state.group.dtype}")


def require(group: Group, step: int, round: int, found: int) -> None:
    """Whether enough agents have answered at a step: vectors are needed for a sum, then answers for its masks.

    Raises
    ------
    TooFewAgents
        If not.
    """
    needed = group.threshold if step >= Phase.CONFIRM else group.minimum
    if found < needed:
        raise TooFewAgents(
            f"a masked sum needs {needed} agents and {found} are left at step {Phase(step).name.lower()} of round "
            f"{round}: nothing is unmasked"
        )


def _addressed(receiver: int, received: dict[int, EncryptedShares]) -> dict[int, bytes]:
    return {sender: sent.shares[receiver] for sender, sent in received.items() if sender != receiver}


def _same_agents(what: str, agent: int, found: Iterable[int], expected: set[int]) -> None:
    if set(found) != expected:
        raise PeerError(f"agent {agent} sent {what} agents {sorted(found)}, expected {sorted(expected)}")


# A whole masked sum in one process, for simulation, tests and examples.

# What an agent answers at each step, from what it was sent last and its vector.
_ANSWERS: dict[Phase, Callable[[MaskingAgent, Any, UintArray], AgentMessage]] = {
    Phase.ANNOUNCE: lambda agent, _, values: agent.announce(),
    Phase.SHARE: lambda agent, incoming, values: agent.share(incoming),
    Phase.MASK: lambda agent, incoming, values: agent.mask(incoming, values),
    Phase.CONFIRM: lambda agent, incoming, values: agent.confirm(incoming),
    Phase.REVEAL: lambda agent, incoming, values: agent.reveal(incoming),
}


def aggregate(
    server: MaskingServer,
    agents: Mapping[int, MaskingAgent],
    values: Mapping[int, UintArray],
    vanish: Mapping[int, Phase] | None = None,
) -> MaskedSum:
    """The masked sum of ``values``, all messages passed on by hand.

    Parameters
    ----------
    server : MaskingServer
        Fresh.
    agents : mapping of int to MaskingAgent
        Fresh, by number.
    values : mapping of int to ndarray of unsigned integers [group.length]
        Vectors by agent.
    vanish : mapping of int to Phase, optional
        Step from which on an agent says nothing any more.

    Raises
    ------
    TooFewAgents
        If too few agents are left at some step.
    PeerError
        If one side refuses a message of the other.
    """
    vanish = vanish or {}
    inbox: Mapping[int, Any] = dict.fromkeys(agents)
    for step, answer in _ANSWERS.items():
        for number, incoming in inbox.items():
            if step < vanish.get(number, Phase.DONE):
                server.receive(answer(agents[number], incoming, values[number]))
        if step < Phase.REVEAL:
            inbox = server.advance()
    return server.unmask()


# For the node that is the server: packed messages, and a double for runs without content.


def start_sum(group: Group, round: int, *, blank: bool) -> ServerSumState | BlankState:
    """The state of a server that waits for the announcements of ``round``."""
    return BlankState(group, round) if blank else MaskingServer.start(group, round).state


def server_of(state: ServerSumState | BlankState) -> PackedServer | BlankServer:
    """The server that goes on from ``state``."""
    return BlankServer(state) if isinstance(state, BlankState) else PackedServer(state)


class PackedServer:
    """A `MaskingServer` that is given and gives packed messages."""

    def __init__(self, state: ServerSumState) -> None:
        self._server = MaskingServer(state)

    @property
    def state(self) -> ServerSumState:
        return self._server.state

    @property
    def left(self) -> int:
        """Number of those that have replied at this step, with what the others can use."""
        return len(self._server.heard)

    def receive(self, agent: int, content: Public | Masked) -> None:
        """Take what ``agent`` replied at this step; PeerError if it does not fit."""
        state = self.state
        if state.step == Phase.MASK:
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
        """Close this step: what to ask each agent that is left with; TooFewAgents if they are too few."""
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
        Step whose messages it waits for, a `Phase`.
    received : tuple of int
        Agents whose message has come.
    speakers : int
        Number of those a reply speaks of: all that announced themselves, later the participants.
    survivors : tuple of int
        Agents whose vectors arrived.
    """

    group: Group
    round: int
    step: int = Phase.ANNOUNCE.value
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
        about = len(left) - 1 if step == Phase.MASK else len(left)
        request = Public(Blank(packed_size(REQUESTS[step], about, signed=state.group.signed), np.uint8))
        speakers = len(left) if step <= Phase.MASK else state.speakers
        survivors = tuple(left) if step == Phase.CONFIRM else state.survivors
        self.state = replace(state, step=step, received=(), speakers=speakers, survivors=survivors)
        return dict.fromkeys(left, request)

    def unmask(self) -> None:
        require(self.state.group, self.state.step, self.state.round, len(self.state.received))


def reply_bytes(group: Group, step: int, speakers: int) -> int:
    """Return the length of an agent's reply where ``speakers`` announced themselves, or at the end took part."""
    if step == Phase.MASK:
        return group.length * group.dtype.itemsize
    about = speakers - 1 if step == Phase.SHARE else speakers
    return packed_size(REPLIES[step], about, signed=group.signed)
