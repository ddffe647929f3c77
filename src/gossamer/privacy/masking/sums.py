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

Both sides are data. A runtime that may crash stores an agent before it sends what a step returned. One that lies
further back must never be used again, since an agent that was set back would answer twice.

The server hands on messages, counts who is left, and removes masks from the sum only.

The runtime calls `MaskingServer.take` for every packed message of an agent. When nobody is missing, or it has waited
long enough, it calls `MaskingServer.advance` and sends each agent what that returns; who was not heard by then has
vanished and is no longer listened to. After the last step `MaskingServer.unmask` gives the sum.

With too few agents left, `advance` and `unmask` say so and nothing changes: the runtime may wait for more of them, or
give up. There is no way to a sum of fewer.

References
----------
Bonawitz et al., "Practical secure aggregation for privacy-preserving machine learning", CCS 2017, figure 4.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
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


@kept_whole
@dataclass
class MaskingAgent:
    """One agent in one masked sum, and all that it keeps between two steps.

    Attributes
    ----------
    group : Group
        Parameters that all members agreed on.
    agent : int
        Number of the agent, 1 to ``group.size``.
    round : int
        Number of the sum, from 0; another one for every sum of the group.
    identities : mapping of int to PublicKey, optional
        The agents' public keys, needed if the group's announcements are signed. Only keys that are signed by them are
        used then, so that a server cannot put its own in their place; in a group that is not ``signed`` the server is
        trusted to hand on the keys it was given.
    secret : bytes
        32 bytes that nobody else can guess, that all its keys follow from; drawn from the operating system by default.
        Simulations give a `reproducible_secret`. Empty after the last step.
    inputs : bytes
        A digest [32 bytes] of everything public that the vector is computed from and that a server, or whoever else
        hands it out, could give to one agent another way: a model, the settings of a round. An agent computes it from
        what it was given itself. By default there is no such thing.
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

    Raises
    ------
    DataError
        If a number is out of range, the secret or the digest is not 32 bytes, or identities are missing, or not wanted.
    """

    group: Group
    agent: int
    round: int
    identities: messages.Identities | None = None
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    inputs: bytes = messages.NO_INPUTS
    step: int = Phase.ANNOUNCE.value
    announcement: messages.Announcement | None = None
    roster: messages.AgentRoster | None = None
    held: dict[int, bytes] = field(default_factory=dict, repr=False)
    survivors: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.group.has(self.agent) or type(self.round) is not int or self.round < 0:
            raise DataError(
                f"expected an agent of 1 to {self.group.size} and a round from 0, found {self.agent!r} and "
                f"{self.round!r}"
            )
        if len(self.secret) != 32 and self.step != Phase.DONE:
            raise DataError(f"expected a secret of 32 bytes, found {len(self.secret)}")
        if not isinstance(self.inputs, bytes) or len(self.inputs) != messages.DIGEST_BYTES:
            raise DataError(f"expected a digest of inputs, {messages.DIGEST_BYTES} bytes, found {self.inputs!r}")
        messages.check_identities(self.group, self.identities)

    def announce(self, identity: Identity | None = None) -> messages.Announcement:
        """Step 1: public keys and the digest of inputs, signed by the agent's ``identity`` if the group is ``signed``.

        Raises
        ------
        DataError
            If there is an identity and the group is not signed, or the other way round.
        """
        self._expect(Phase.ANNOUNCE)
        if self.group.signed != (identity is not None):
            raise DataError("an agent announces its keys with its identity where they are signed, and only there")
        own = self._keys()
        announcement = messages.Announcement(
            self.round,
            self.agent,
            keys.public_key(own.mask),
            keys.public_key(own.share),
            keys.signing_public_key(own.signing),
            keys.commitment(own.seed),
            self.inputs,
        )
        if identity is not None:
            signature = identity.sign(messages.PURPOSE, announcement.signed_text(self.group))
            announcement = replace(announcement, signature=signature)
        self.step, self.announcement = Phase.SHARE.value, announcement
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
        assert self.announcement is not None
        messages.check_roster(roster, self.announcement, self.group, self.identities)
        sent, own = deal(self._keys(), roster, roster.digest(self.group), self.agent, self.group.threshold)
        self.step, self.roster, self.held = Phase.MASK.value, roster, {self.agent: own}
        return sent

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
        group, agent, digest = self.group, self.agent, self._digest()
        if values.shape != (group.length,) or values.dtype != group.dtype:
            raise DataError(
                f"expected {group.length} integers of {group.dtype}, found shape {values.shape} of {values.dtype}"
            )
        others = {other: one for other, one in self._announced().items() if other in delivered.shares}
        if len(others) < len(delivered.shares):
            raise PeerError("shares come from agents that are not on the roster")
        if len(delivered.shares) + 1 < group.minimum:
            raise PeerError(f"a masked sum needs {group.minimum} agents, found {len(delivered.shares) + 1} left")
        own, held = self._keys(), dict(self.held)
        shared = keys.agree(own.share, {other: one.share_key for other, one in others.items()}, "share")
        for sender, sealed in delivered.shares.items():
            key = keys.derive(shared[sender], digest, "shares", sender, agent)
            held[sender] = keys.unseal(key, sealed, f"agent {sender}'s shares")
        publics = {other: one.mask_key for other, one in others.items()}
        pairs = keys.pairwise_mask_keys(own.mask, publics, digest, agent)
        added = [keys.self_mask_key(own.seed, digest), *(key for other, key in pairs.items() if other > agent)]
        masked = keys.with_masks(values, added, [key for other, key in pairs.items() if other < agent], group)
        self.step, self.held = Phase.CONFIRM.value, held
        return messages.MaskedVector(self.round, agent, Masked(masked))

    def confirm(self, survivors: messages.Survivors) -> messages.Confirmation:
        """Step 4: a signature under the set of survivors, the only one this agent gives.

        Raises
        ------
        PeerError
            If the set is below the group's minimum, lacks this agent, or has one that did not take part.
        """
        self._expect(Phase.CONFIRM, survivors)
        if len(survivors.agents) < self.group.minimum:
            raise PeerError(f"a masked sum needs {self.group.minimum} vectors, found {len(survivors.agents)} survivors")
        if self.agent not in survivors.agents or not set(survivors.agents) <= set(self.held):
            raise PeerError(f"expected survivors among {sorted(self.held)}, agent {self.agent} one of them")
        signature = keys.sign(self._keys().signing, self._signed_text(survivors.agents))
        self.step, self.survivors = Phase.REVEAL.value, survivors.agents
        return messages.Confirmation(self.round, self.agent, signature)

    def reveal(self, confirmations: messages.Confirmations) -> messages.RevealedShares:
        """Step 5: a share of each survivor's seed and of the mask key of each that vanished; then all is forgotten.

        Raises
        ------
        PeerError
            If fewer survivors than the threshold signed the set that this agent signed.
        """
        self._expect(Phase.REVEAL, confirmations)
        text, announced = self._signed_text(self.survivors), self._announced()
        signers = [
            agent
            for agent in self.survivors
            if keys.is_signed(announced[agent].signing_key, confirmations.signatures.get(agent, b""), text)
        ]
        if len(signers) < self.group.threshold:
            raise PeerError(
                f"{len(signers)} agents signed the survivors that agent {self.agent} was told of, expected "
                f"{self.group.threshold}: too many vanished, or the server told others otherwise"
            )
        shares = {
            agent: share_of(both, "seed" if agent in self.survivors else "mask") for agent, both in self.held.items()
        }
        self.step, self.secret, self.held = Phase.DONE.value, b"", {}
        return messages.RevealedShares(self.round, self.agent, shares)

    # Parts of the steps

    def _expect(self, step: Phase, incoming: messages.MaskingMessage | None = None) -> None:
        if self.step != step:
            raise PeerError(
                f"agent {self.agent} is at step {Phase(self.step).name.lower()} of round {self.round} and cannot "
                f"{step.name.lower()}: each step is done once, in order"
            )
        if incoming is not None and incoming.round != self.round:
            raise PeerError(f"expected a message of round {self.round}, found round {incoming.round}")
        if isinstance(incoming, messages.DeliveredShares) and incoming.agent != self.agent:
            raise PeerError(f"expected shares for agent {self.agent}, found shares for agent {incoming.agent}")

    def _keys(self) -> keys.Keys:
        return keys.keys_of(self.secret, self.group, self.agent, self.round, self.inputs)

    def _announced(self) -> dict[int, messages.Announcement]:
        assert self.roster is not None
        return self.roster.by_agent

    def _digest(self) -> bytes:
        assert self.roster is not None
        return self.roster.digest(self.group)

    def _signed_text(self, survivors: tuple[int, ...]) -> bytes:
        return messages.Confirmation.signed_text(self._digest(), sorted(self.held), survivors)


STEPS: Sequence[Callable[..., messages.AgentMessage]] = (
    MaskingAgent.announce,
    MaskingAgent.share,
    MaskingAgent.mask,
    MaskingAgent.confirm,
    MaskingAgent.reveal,
)
"""What an agent does at each `Phase`, with what it was sent."""
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
@dataclass
class MaskingServer:
    """The server of one masked sum, and all that it keeps between two messages.

    Attributes
    ----------
    group : Group
        Parameters that all members agreed on.
    round : int
        Number of the sum.
    step : int
        Step whose messages it waits for, a `Phase`.
    eligible : tuple of int
        Agents that it waits for; by default all.
    received : dict of int to AgentMessage or None
        Messages that have come, by agent; None for a vector, which is added to ``total`` at once, and for a blank.
    roster : AgentRoster or None
        Announcements of those who take part.
    participants : tuple of int
        Agents whose shares arrived.
    survivors : tuple of int
        Agents whose vectors arrived.
    total : ndarray of unsigned integers, Blank or None
        The sum of the masked vectors [group.length]. A `Blank` from the beginning where messages have sizes and no
        content: then the same steps are taken with messages of the same sizes, and no sum is found.
    commitments : dict of int to dict of int to bytes
        Commitments of each participant to the shares of its secrets.
    """

    group: Group
    round: int
    step: int = Phase.ANNOUNCE.value
    eligible: tuple[int, ...] | None = None
    received: dict[int, Any] = field(default_factory=dict)
    roster: messages.AgentRoster | None = None
    participants: tuple[int, ...] = ()
    survivors: tuple[int, ...] = ()
    total: Any = None
    commitments: dict[int, dict[int, bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.eligible is None:
            self.eligible = tuple(range(1, self.group.size + 1))

    @property
    def missing(self) -> tuple[int, ...]:
        """The agents whose message of this step has not arrived."""
        return tuple(agent for agent in self.eligible or () if agent not in self.received)

    @property
    def heard(self) -> dict[int, Any]:
        """The replies that came at this step and count, by agent in order.

        Agents refuse a list with other inputs than theirs. So those whose inputs are not what most announced do not
        count: one of them would spoil the sum for all.
        """
        received = {agent: self.received[agent] for agent in sorted(self.received)}
        if self.step != Phase.ANNOUNCE or not received or self._is_blank:
            return received
        ((most, _),) = Counter(one.inputs for one in received.values()).most_common(1)
        return {agent: one for agent, one in received.items() if one.inputs == most}

    @property
    def _is_blank(self) -> bool:
        return isinstance(self.total, Blank)

    def take(self, agent: int, content: Public | Masked) -> None:
        """Take what ``agent`` replied at this step, packed, or its masked vector.

        Raises
        ------
        PeerError
            As of `receive`; or if it is no message of this step, or another agent's.
        """
        if self._is_blank:
            # An agent's shares are for those on the roster, and what it reveals is about all participants.
            speakers = len(self.participants or self.eligible or ())
            if content.values.nbytes != reply_bytes(self.group, self.step, speakers):
                raise PeerError(f"agent {agent} sent {content.values.nbytes} bytes at step {self.step}")
            self.received = {**self.received, agent: None}
        elif self.step == Phase.MASK:
            if not isinstance(content, Masked):
                raise PeerError(f"agent {agent} sent a vector that is not masked")
            self.receive(messages.MaskedVector(self.round, agent, content))
        else:
            if not isinstance(content, Public):
                raise PeerError(f"agent {agent} sent a masked vector at step {self.step}")
            message = messages.unpacked(content, messages.REPLIES[self.step], self.group)
            if message.agent != agent:
                raise PeerError(f"agent {agent} speaks as agent {message.agent}")
            self.receive(message)

    def receive(self, message: messages.AgentMessage) -> None:
        """Take an agent's message of this step.

        Raises
        ------
        PeerError
            If it is of another step, round or agent, a second one, or does not fit what was sent to the agent.
        """
        expected = _EXPECTED.get(self.step)
        if type(message) is not expected or message.round != self.round:
            raise PeerError(
                f"agent {message.agent} sent a {type(message).__name__} of round {message.round}, expected "
                f"{f'a {expected.__name__} of round {self.round}' if expected else 'nothing more'}"
            )
        if message.agent not in self.missing:
            raise PeerError(f"expected messages of agents {list(self.missing)}, found one of agent {message.agent}")
        self._check(message)
        kept: messages.AgentMessage | None = message
        if isinstance(message, messages.MaskedVector):
            values, kept = message.values.values, None
            self.total = values if self.total is None else self.total + values
        self.received = {**self.received, message.agent: kept}

    def advance(self) -> dict[int, messages.MaskingMessage | Blank]:
        """Close this step: what to send to each agent that is left, or a blank in the place of its bytes.

        Raises
        ------
        TooFewAgents
            If too few of them answered; nothing changes.
        """
        received = self.heard
        left = tuple(received)
        self._require(len(left))
        if self.step >= Phase.REVEAL:
            raise CallerError("no step follows the last one: unmask the sum")
        sent: dict[int, Any]
        if self._is_blank:
            about = len(left) - 1 if self.step == Phase.SHARE else len(left)
            size = messages.packed_size(messages.REQUESTS[self.step + 1], about, signed=self.group.signed)
            sent = dict.fromkeys(left, Blank(size, np.uint8))
        elif self.step == Phase.ANNOUNCE:
            self.roster = messages.AgentRoster(self.round, tuple(received.values()))
            sent = dict.fromkeys(left, self.roster)
        elif self.step == Phase.SHARE:
            self.commitments = {agent: one.commitments for agent, one in received.items()}
            sent = {agent: messages.DeliveredShares(self.round, agent, _addressed(agent, received)) for agent in left}
        elif self.step == Phase.MASK:
            sent = dict.fromkeys(left, messages.Survivors(self.round, left))
        else:
            signatures = {agent: confirmation.signature for agent, confirmation in received.items()}
            sent = dict.fromkeys(left, messages.Confirmations(self.round, signatures))
        if self.step == Phase.SHARE:
            self.participants = left
        elif self.step == Phase.MASK:
            self.survivors = left
        self.step, self.eligible, self.received = self.step + 1, left, {}
        return sent

    def unmask(self) -> MaskedSum | None:
        """The sum of the survivors' vectors, once enough agents have revealed their shares; None of blanks.

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
        if self.step != Phase.REVEAL:
            name = Phase(self.step).name.lower()
            raise CallerError(f"a sum is unmasked once, when shares have been revealed, not at step {name}")
        self._require(len(self.received))
        if self._is_blank:
            return None
        assert self.roster is not None
        digest = self.roster.digest(self.group)
        self_masks = [keys.self_mask_key(self._secret(agent), digest) for agent in self.survivors]
        publics = {one.agent: one.mask_key for one in self.roster.announcements if one.agent in self.survivors}
        added: list[bytes] = []
        subtracted: list[bytes] = []  # by the survivors, for those that vanished
        for vanished in sorted(set(self.participants) - set(self.survivors)):
            for agent, key in keys.pairwise_mask_keys(self._secret(vanished), publics, digest, vanished).items():
                (added if agent < vanished else subtracted).append(key)
        values = keys.with_masks(self.total, subtracted, [*self_masks, *added], self.group)
        self.step, self.eligible, self.received, self.total = Phase.DONE.value, (), {}, None
        return MaskedSum(values, self.survivors)

    def _require(self, found: int) -> None:
        """Refuse to go on with fewer agents than it takes: vectors for a sum, then answers for its masks."""
        needed = self.group.threshold if self.step >= Phase.CONFIRM else self.group.minimum
        if found < needed:
            raise TooFewAgents(
                f"a masked sum needs {needed} agents and {found} are left at step {Phase(self.step).name.lower()} of "
                f"round {self.round}: nothing is unmasked"
            )

    def _secret(self, agent: int) -> bytes:
        """The secret of which shares were revealed: a survivor's seed, or a vanished agent's mask key."""
        assert self.roster is not None
        return recover(
            self.roster.by_agent[agent],
            "seed" if agent in self.survivors else "mask",
            {giver: answer.shares[agent] for giver, answer in self.received.items()},
            self.commitments[agent],
            self.group.threshold,
            self.roster.digest(self.group),
        )

    def _check(self, message: messages.AgentMessage) -> None:
        """Whether a message of the right kind fits."""
        agent = message.agent
        if isinstance(message, messages.Announcement):
            messages.check_announcement(message, self.group, None)
            taken = {key for other in self.received.values() for key in (other.mask_key, other.share_key)}
            if message.mask_key == message.share_key or taken & {message.mask_key, message.share_key}:
                raise PeerError(f"agent {agent} announced a key that was announced before: expected keys of its own")
        elif isinstance(message, messages.EncryptedShares):
            _same_agents("shares for", agent, message.shares, set(self.eligible or ()) - {agent})
        elif isinstance(message, messages.RevealedShares):
            _same_agents("shares of", agent, message.shares, set(self.participants))
        elif isinstance(message, messages.Confirmation):
            assert self.roster is not None
            text = messages.Confirmation.signed_text(self.roster.digest(self.group), self.participants, self.survivors)
            if not keys.is_signed(self.roster.by_agent[agent].signing_key, message.signature, text):
                raise PeerError(
                    f"agent {agent} signed other survivors than {list(self.survivors)}, or with another key"
                )
        elif isinstance(message, messages.MaskedVector):
            values = message.values.values
            if not isinstance(values, np.ndarray) or values.shape != (self.group.length,):
                raise PeerError(f"agent {agent} sent {values.size} masked values, expected {self.group.length}")
            if values.dtype != self.group.dtype:
                raise PeerError(f"agent {agent} sent masked values of {values.dtype}, expected {self.group.dtype}")


def _addressed(receiver: int, received: dict[int, messages.EncryptedShares]) -> dict[int, bytes]:
    return {sender: sent.shares[receiver] for sender, sent in received.items() if sender != receiver}


def _same_agents(what: str, agent: int, found: Iterable[int], expected: set[int]) -> None:
    if set(found) != expected:
        raise PeerError(f"agent {agent} sent {what} agents {sorted(found)}, expected {sorted(expected)}")


def aggregate(
    server: MaskingServer,
    agents: Mapping[int, MaskingAgent],
    values: Mapping[int, UintArray],
    vanish: Mapping[int, Phase] | None = None,
) -> MaskedSum:
    """The masked sum of ``values`` in one process, all messages passed on by hand: for tests and examples.

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
    for step, answer in zip(Phase, STEPS):
        for number, incoming in inbox.items():
            given = {Phase.ANNOUNCE: (), Phase.MASK: (incoming, values[number])}.get(step, (incoming,))
            if step < vanish.get(number, Phase.DONE):
                server.receive(answer(agents[number], *given))
        if step < Phase.REVEAL:
            inbox = server.advance()
    total = server.unmask()
    assert total is not None, "messages have content here"
    return total


def reply_bytes(group: Group, step: int, speakers: int) -> int:
    """Return the length of an agent's reply where ``speakers`` announced themselves, or at the end took part."""
    if step == Phase.MASK:
        return group.length * group.dtype.itemsize
    about = speakers - 1 if step == Phase.SHARE else speakers
    return messages.packed_size(messages.REPLIES[step], about, signed=group.signed)
