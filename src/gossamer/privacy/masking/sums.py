"""Both sides of one masked sum. An agent sends five messages, each of them once:

    announce()                   public keys
    share(roster)                shares of two secrets for every agent: the mask key and the seed of the self-mask
    mask(delivered, values)      the vector, under a mask for every pair and one of its own
    confirm(survivors)           a signature under who is said to have survived
    reveal(confirmations)        for each agent a share of *one* secret: its seed if it survived, else its mask key

Its announcement bears the digest of all public inputs of its vector, the model that it was asked about among them: it
goes on only with agents that announced the very same, since a sum of answers to different questions may be one
answer.

An agent goes through these steps once and never back, signs one set of survivors only, and reveals shares only after
as many agents as the threshold says have signed the very same set. It reveals nothing about a set smaller than the
group's minimum. A message that does not fit is refused with an error and changes nothing.

The state is data: a runtime that may crash stores it before it sends what a step returned. A state that lies further
back must never be used again, since an agent that was set back would answer twice.

The server hands on messages, counts who is left, and removes masks from the sum only.

The runtime calls `MaskingServer.receive` for every message of an agent. When nobody is missing, or it has waited long
enough, it calls `MaskingServer.advance` and sends each agent what that returns; who was not heard by then has vanished
and is no longer listened to. After the last step `MaskingServer.unmask` gives the sum.

With too few agents left, `advance` and `unmask` say so and nothing changes: the runtime may wait for more of them, or
give up. There is no way to a sum of fewer.

References
----------
Bonawitz et al., "Practical secure aggregation for privacy-preserving machine learning", CCS 2017, figure 4.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from gossamer.errors import CallerError, DataError, PeerError, TooFewAgents
from gossamer.keys.identity import Identity
from gossamer.privacy.masking import keys, messages
from gossamer.privacy.masking.fixed_point import Group, Phase, UintArray
from gossamer.privacy.masking.shares import deal, recover, share_of
from gossamer.protocol.encoding import register
from gossamer.protocol.snapshots import kept_whole
from gossamer.vectors import Blank, Masked, Public


@register("masking.member")
@dataclass(frozen=True)
class AgentSumState:
    """All that an agent keeps between two steps.

    Attributes
    ----------
    group : Group
    agent : int
        Number of the agent.
    round : int
    secret : bytes
        Secret that all its keys follow from; empty after the last step.
    inputs : bytes
        Digest of the public inputs of its vector.
    step : int
        Step that it takes next, a `Phase`.
    announcement : Announcement or None
        Announcement of its own.
    roster : AgentRoster or None
        Announcements whose keys it uses.
    held : dict of int to bytes
        Shares by agent, its own number too: the share of the mask key, then that of the self-mask's seed.
    survivors : tuple of int
        Survivors that it signed.
    """

    group: Group
    agent: int
    round: int
    secret: bytes = field(repr=False)
    inputs: bytes = messages.NO_INPUTS
    step: int = Phase.ANNOUNCE.value
    announcement: messages.Announcement | None = None
    roster: messages.AgentRoster | None = None
    held: dict[int, bytes] = field(default_factory=dict, repr=False)
    survivors: tuple[int, ...] = ()


@kept_whole
@dataclass(eq=False, repr=False)
class MaskingAgent:
    """One agent in one masked sum.

    Parameters
    ----------
    state : AgentSumState
        State of `start`, or as it was stored.
    identities : mapping of int to PublicKey, optional
        The agents' public keys, needed if the group's announcements are signed. Only keys that are signed by them are
        used then, so that a server cannot put its own in their place; in a group that is not ``signed`` the server is
        trusted to hand on the keys it was given.

    Raises
    ------
    DataError
        If there are identities and the group is not signed, or the other way round.
    """

    state: AgentSumState
    identities: messages.Identities | None = None

    def __post_init__(self) -> None:
        messages.check_identities(self.state.group, self.identities)

    @classmethod
    def start(
        cls,
        group: Group,
        agent: int,
        round: int,
        identities: messages.Identities | None = None,
        *,
        secret: bytes | None = None,
        inputs: bytes = messages.NO_INPUTS,
    ) -> MaskingAgent:
        """A fresh agent.

        Parameters
        ----------
        group : Group
            Parameters that all members agreed on.
        agent : int
            Number of the agent, 1 to ``group.size``.
        round : int
            Number of the sum, from 0; another one for every sum of the group.
        identities : mapping of int to PublicKey, optional
            Public keys, as above.
        secret : bytes, optional
            32 bytes that nobody else can guess; drawn from the operating system by default. Simulations give a
            `reproducible_secret`.
        inputs : bytes, optional
            A digest [32 bytes] of everything public that the vector is computed from and that a server, or whoever
            else hands it out, could give to one agent another way: a model, the settings of a round. An agent computes
            it from what it was given itself. By default there is no such thing.

        Raises
        ------
        DataError
            If a number is out of range, the secret or the digest is not 32 bytes, or identities are missing, or not
            wanted.
        """
        if not group.has(agent) or type(round) is not int or round < 0:
            raise DataError(f"expected an agent of 1 to {group.size} and a round from 0, found {agent!r} and {round!r}")
        drawn = secrets.token_bytes(32) if secret is None else secret
        if len(drawn) != 32:
            raise DataError(f"expected a secret of 32 bytes, found {len(drawn)}")
        if not isinstance(inputs, bytes) or len(inputs) != messages.DIGEST_BYTES:
            raise DataError(f"expected a digest of inputs, {messages.DIGEST_BYTES} bytes, found {inputs!r}")
        return cls(AgentSumState(group, agent, round, drawn, inputs), identities)

    def announce(self, identity: Identity | None = None) -> messages.Announcement:
        """Step 1: public keys and the digest of inputs, signed by the agent's ``identity`` if the group is ``signed``.

        Raises
        ------
        DataError
            If there is an identity and the group is not signed, or the other way round.
        """
        self._expect(Phase.ANNOUNCE)
        if self.state.group.signed != (identity is not None):
            raise DataError("an agent announces its keys with its identity where they are signed, and only there")
        state, own = self.state, self._keys()
        announcement = messages.Announcement(
            state.round,
            state.agent,
            keys.public_key(own.mask),
            keys.public_key(own.share),
            keys.signing_public_key(own.signing),
            keys.commitment(own.seed),
            state.inputs,
        )
        if identity is not None:
            signature = identity.sign(messages.PURPOSE, announcement.signed_text(state.group))
            announcement = replace(announcement, signature=signature)
        self._become(Phase.SHARE, announcement=announcement)
        return announcement

    def share(self, roster: messages.AgentRoster) -> messages.EncryptedShares:
        """Step 2: shares of this agent's two secrets, sealed for each agent on the ``roster``.

        Raises
        ------
        PeerError
            If the roster is too short, lacks this agent's keys, has a key that must not be used, or an agent with other
            inputs.
        """
        self._expect(Phase.SHARE, roster)
        state, own = self.state, self._keys()
        assert state.announcement is not None
        messages.check_roster(roster, state.announcement, state.group, self.identities)
        digest = roster.digest(state.group)
        dealt = deal(own, roster, digest, state.agent, state.group.threshold)
        self._become(Phase.MASK, roster=roster, held={state.agent: dealt.own})
        return messages.EncryptedShares(state.round, state.agent, dealt.sealed, dealt.commitments)

    def mask(self, delivered: messages.DeliveredShares, values: UintArray) -> messages.MaskedVector:
        """Step 3: ``values`` [group.length], integers of the group's dtype, under all masks.

        The agents whose shares were delivered, and this one, are the participants: a mask is added for each of them.

        Raises
        ------
        DataError
            If ``values`` has another length or dtype.
        PeerError
            If there are fewer participants than the group's minimum, or a share was not sealed for this agent by
            the one that it is said to come from.
        """
        self._expect(Phase.MASK, delivered)
        state, roster = self.state, self._roster()
        group = state.group
        if values.shape != (group.length,) or values.dtype != group.dtype:
            raise DataError(
                f"expected {group.length} integers of {group.dtype}, found shape {values.shape} of {values.dtype}"
            )
        if not set(delivered.shares) <= set(roster.agents):
            raise PeerError("shares come from agents that are not on the roster")
        if len(delivered.shares) + 1 < group.minimum:
            raise PeerError(f"a masked sum needs {group.minimum} agents, found {len(delivered.shares) + 1} left")
        digest, own = roster.digest(group), self._keys()
        others = {agent: one for agent, one in roster.by_agent.items() if agent in delivered.shares}
        shared = keys.agree(own.share, {agent: one.share_key for agent, one in others.items()}, "share")
        held = dict(state.held)
        for sender, sealed in delivered.shares.items():
            key = keys.derive(shared[sender], digest, "shares", sender, state.agent)
            held[sender] = keys.unseal(key, sealed, f"agent {sender}'s shares")
        publics = {agent: one.mask_key for agent, one in others.items()}
        pairs = keys.pairwise_mask_keys(own.mask, publics, digest, state.agent)
        added = [keys.self_mask_key(own.seed, digest), *(key for other, key in pairs.items() if other > state.agent)]
        masked = keys.with_masks(values, added, [key for other, key in pairs.items() if other < state.agent], group)
        self._become(Phase.CONFIRM, held=held)
        return messages.MaskedVector(state.round, state.agent, Masked(masked))

    def confirm(self, survivors: messages.Survivors) -> messages.Confirmation:
        """Step 4: a signature under the set of survivors, the only one this agent gives.

        Raises
        ------
        PeerError
            If the set is below the group's minimum, lacks this agent, or has one that did not take part.
        """
        self._expect(Phase.CONFIRM, survivors)
        state = self.state
        if len(survivors.agents) < state.group.minimum:
            raise PeerError(
                f"a masked sum needs {state.group.minimum} vectors, found {len(survivors.agents)} survivors"
            )
        if state.agent not in survivors.agents or not set(survivors.agents) <= set(state.held):
            raise PeerError(f"expected survivors among {sorted(state.held)}, agent {state.agent} one of them")
        signature = keys.sign(self._keys().signing, self._signed_text(survivors.agents))
        self._become(Phase.REVEAL, survivors=survivors.agents)
        return messages.Confirmation(state.round, state.agent, signature)

    def reveal(self, confirmations: messages.Confirmations) -> messages.RevealedShares:
        """Step 5: a share of each survivor's seed and of the mask key of each that vanished; then all is forgotten.

        Raises
        ------
        PeerError
            If fewer survivors than the threshold signed the set that this agent signed.
        """
        self._expect(Phase.REVEAL, confirmations)
        state, roster = self.state, self._roster()
        text, announced = self._signed_text(state.survivors), roster.by_agent
        signers = [
            agent
            for agent in state.survivors
            if keys.is_signed(announced[agent].signing_key, confirmations.signatures.get(agent, b""), text)
        ]
        if len(signers) < state.group.threshold:
            raise PeerError(
                f"{len(signers)} agents signed the survivors that agent {state.agent} was told of, expected "
                f"{state.group.threshold}: too many vanished, or the server told others otherwise"
            )
        shares = {
            agent: share_of(both, "seed" if agent in state.survivors else "mask") for agent, both in state.held.items()
        }
        self._become(Phase.DONE, secret=b"", held={})
        return messages.RevealedShares(state.round, state.agent, shares)

    # Parts of the steps

    def _expect(self, step: Phase, incoming: messages.MaskingMessage | None = None) -> None:
        state = self.state
        if state.step != step:
            raise PeerError(
                f"agent {state.agent} is at step {Phase(state.step).name.lower()} of round {state.round} and cannot "
                f"{step.name.lower()}: each step is done once, in order"
            )
        if incoming is not None and incoming.round != state.round:
            raise PeerError(f"expected a message of round {state.round}, found round {incoming.round}")
        if isinstance(incoming, messages.DeliveredShares) and incoming.agent != state.agent:
            raise PeerError(f"expected shares for agent {state.agent}, found shares for agent {incoming.agent}")

    def _become(self, step: Phase, **changes: Any) -> None:
        self.state = replace(self.state, step=step.value, **changes)

    def _keys(self) -> keys.Keys:
        state = self.state
        return keys.keys_of(state.secret, state.group, state.agent, state.round, state.inputs)

    def _roster(self) -> messages.AgentRoster:
        assert self.state.roster is not None
        return self.state.roster

    def _signed_text(self, survivors: tuple[int, ...]) -> bytes:
        digest = self._roster().digest(self.state.group)
        return messages.Confirmation.signed_text(digest, sorted(self.state.held), survivors)


_EXPECTED: dict[int, type[messages.AgentMessage]] = {**messages.REPLIES, Phase.MASK: messages.MaskedVector}


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
    roster: messages.AgentRoster | None = None
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

    def __init__(self, state: ServerSumState, identities: messages.Identities | None = None) -> None:
        self.state = state
        self.identities = identities

    @classmethod
    def start(cls, group: Group, round: int, identities: messages.Identities | None = None) -> MaskingServer:
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

    def receive(self, message: messages.AgentMessage) -> None:
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
        if isinstance(message, messages.MaskedVector):
            values = message.values.values
            total = values if state.total is None else state.total + values
            self.state = replace(state, received={**state.received, message.agent: None}, total=total)
        else:
            self.state = replace(state, received={**state.received, message.agent: message})

    def advance(self) -> dict[int, messages.MaskingMessage]:
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
        sent: dict[int, messages.MaskingMessage]
        if state.step == Phase.ANNOUNCE:
            roster = changes["roster"] = messages.AgentRoster(state.round, tuple(received.values()))
            sent = dict.fromkeys(left, roster)
        elif state.step == Phase.SHARE:
            changes |= {
                "participants": left,
                "commitments": {agent: one.commitments for agent, one in received.items()},
            }
            sent = {agent: messages.DeliveredShares(state.round, agent, _addressed(agent, received)) for agent in left}
        elif state.step == Phase.MASK:
            changes["survivors"] = left
            sent = dict.fromkeys(left, messages.Survivors(state.round, left))
        elif state.step == Phase.CONFIRM:
            signatures = {agent: confirmation.signature for agent, confirmation in received.items()}
            sent = dict.fromkeys(left, messages.Confirmations(state.round, signatures))
        else:
            raise CallerError("no step follows the last one: unmask the sum")
        self.state = replace(state, step=state.step + 1, eligible=left, received={}, **changes)
        return sent

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
        self_masks = [keys.self_mask_key(self._secret(agent), digest) for agent in state.survivors]
        publics = {one.agent: one.mask_key for one in state.roster.announcements if one.agent in state.survivors}
        added: list[bytes] = []
        subtracted: list[bytes] = []  # by the survivors, for those that vanished
        for vanished in sorted(set(state.participants) - set(state.survivors)):
            for agent, key in keys.pairwise_mask_keys(self._secret(vanished), publics, digest, vanished).items():
                (added if agent < vanished else subtracted).append(key)
        values = keys.with_masks(state.total, subtracted, [*self_masks, *added], group)
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

    def _check(self, message: messages.AgentMessage) -> None:
        """Whether a message of the right kind fits."""
        state, agent = self.state, message.agent
        if isinstance(message, messages.Announcement):
            messages.check_announcement(message, state.group, self.identities)
            taken = {key for other in state.received.values() for key in (other.mask_key, other.share_key)}
            if message.mask_key == message.share_key or taken & {message.mask_key, message.share_key}:
                raise PeerError(f"agent {agent} announced a key that was announced before: expected keys of its own")
        elif isinstance(message, messages.EncryptedShares):
            _same_agents("shares for", agent, message.shares, set(state.eligible) - {agent})
        elif isinstance(message, messages.RevealedShares):
            _same_agents("shares of", agent, message.shares, set(state.participants))
        elif isinstance(message, messages.Confirmation):
            assert state.roster is not None
            text = messages.Confirmation.signed_text(
                state.roster.digest(state.group), state.participants, state.survivors
            )
            if not keys.is_signed(state.roster.by_agent[agent].signing_key, message.signature, text):
                raise PeerError(
                    f"agent {agent} signed other survivors than {list(state.survivors)}, or with another key"
                )
        elif isinstance(message, messages.MaskedVector):
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


def _addressed(receiver: int, received: dict[int, messages.EncryptedShares]) -> dict[int, bytes]:
    return {sender: sent.shares[receiver] for sender, sent in received.items() if sender != receiver}


def _same_agents(what: str, agent: int, found: Iterable[int], expected: set[int]) -> None:
    if set(found) != expected:
        raise PeerError(f"agent {agent} sent {what} agents {sorted(found)}, expected {sorted(expected)}")


# A whole masked sum in one process, for simulation, tests and examples.

# What an agent answers at each step, from what it was sent last and its vector.
_ANSWERS: dict[Phase, Callable[[MaskingAgent, Any, UintArray], messages.AgentMessage]] = {
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
            self._server.receive(messages.MaskedVector(state.round, agent, content))
        else:
            if not isinstance(content, Public):
                raise PeerError(f"agent {agent} sent a masked vector at step {state.step}")
            message = messages.unpacked(content, messages.REPLIES[state.step], state.group)
            if message.agent != agent:
                raise PeerError(f"agent {agent} speaks as agent {message.agent}")
            self._server.receive(message)

    def advance(self) -> dict[int, Public]:
        """Close this step: what to ask each agent that is left with; TooFewAgents if they are too few."""
        return {agent: messages.packed(message) for agent, message in self._server.advance().items()}

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
        request = Public(
            Blank(messages.packed_size(messages.REQUESTS[step], about, signed=state.group.signed), np.uint8)
        )
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
    return messages.packed_size(messages.REPLIES[step], about, signed=group.signed)
