"""An agent's side of one masked sum: five messages, each of them once.

    announce()                   public keys
    share(roster)                shares of two secrets for every agent: the mask key and the seed of the self-mask
    mask(delivered, values)      the vector, under a mask for every pair and one of its own
    confirm(survivors)           a signature under who is said to have survived
    reveal(confirmations)        for each agent a share of *one* secret: its seed if it survived, else its mask key

Its announcement bears the digest of all public inputs of its vector, the model that it was asked about among them: it
goes on only with agents that announced the very same, since a sum of answers to different questions may be one answer.

An agent goes through these steps once and never back, signs one set of survivors only, and reveals shares only after
as many agents as the threshold says have signed the very same set. It reveals nothing about a set smaller than the
group's minimum. A message that does not fit is refused with an error and changes nothing.

The state is data: a runtime that may crash stores it before it sends what a step returned. A state that lies further
back must never be used again, since an agent that was set back would answer twice.

References
----------
Bonawitz et al., "Practical secure aggregation for privacy-preserving machine learning", CCS 2017, figure 4.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field, replace
from typing import Any

from gossamer.errors import DataError, PeerError
from gossamer.keys.identity import Identity
from gossamer.privacy.masking.group import Group, Phase, UintArray
from gossamer.privacy.masking.keys import (
    Keys,
    agree,
    commitment,
    derive,
    is_signed,
    keys_of,
    pairwise_mask_keys,
    public_key,
    self_mask_key,
    sign,
    signing_public_key,
    unseal,
    with_masks,
)
from gossamer.privacy.masking.messages import (
    DIGEST_BYTES,
    NO_INPUTS,
    PURPOSE,
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
    check_identities,
    check_roster,
)
from gossamer.privacy.masking.shares import deal, share_of
from gossamer.protocol.encoding import register
from gossamer.vectors import Masked

# State that an agent of a masked sum keeps between two steps.


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
    inputs: bytes = NO_INPUTS
    step: int = Phase.ANNOUNCE.value
    announcement: Announcement | None = None
    roster: AgentRoster | None = None
    held: dict[int, bytes] = field(default_factory=dict, repr=False)
    survivors: tuple[int, ...] = ()


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

    def __init__(self, state: AgentSumState, identities: Identities | None = None) -> None:
        check_identities(state.group, identities)
        self.state = state
        self.identities = identities

    @classmethod
    def start(
        cls,
        group: Group,
        agent: int,
        round: int,
        identities: Identities | None = None,
        *,
        secret: bytes | None = None,
        inputs: bytes = NO_INPUTS,
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
        if not isinstance(inputs, bytes) or len(inputs) != DIGEST_BYTES:
            raise DataError(f"expected a digest of inputs, {DIGEST_BYTES} bytes, found {inputs!r}")
        return cls(AgentSumState(group, agent, round, drawn, inputs), identities)

    def announce(self, identity: Identity | None = None) -> Announcement:
        """Step 1: public keys and the digest of inputs, signed by the agent's ``identity`` if the group is ``signed``.

        Raises
        ------
        DataError
            If there is an identity and the group is not signed, or the other way round.
        """
        self._expect(Phase.ANNOUNCE)
        if self.state.group.signed != (identity is not None):
            raise DataError("an agent announces its keys with its identity where they are signed, and only there")
        state, keys = self.state, self._keys()
        announcement = Announcement(
            state.round,
            state.agent,
            public_key(keys.mask),
            public_key(keys.share),
            signing_public_key(keys.signing),
            commitment(keys.seed),
            state.inputs,
        )
        if identity is not None:
            signature = identity.sign(PURPOSE, announcement.signed_text(state.group))
            announcement = replace(announcement, signature=signature)
        self._become(Phase.SHARE, announcement=announcement)
        return announcement

    def share(self, roster: AgentRoster) -> EncryptedShares:
        """Step 2: shares of this agent's two secrets, sealed for each agent on the ``roster``.

        Raises
        ------
        PeerError
            If the roster is too short, lacks this agent's keys, has a key that must not be used, or an agent with other
            inputs.
        """
        self._expect(Phase.SHARE, roster)
        state, keys = self.state, self._keys()
        assert state.announcement is not None
        check_roster(roster, state.announcement, state.group, self.identities)
        digest = roster.digest(state.group)
        dealt = deal(keys, roster, digest, state.agent, state.group.threshold)
        self._become(Phase.MASK, roster=roster, held={state.agent: dealt.own})
        return EncryptedShares(state.round, state.agent, dealt.sealed, dealt.commitments)

    def mask(self, delivered: DeliveredShares, values: UintArray) -> MaskedVector:
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
        digest, keys = roster.digest(group), self._keys()
        others = {agent: one for agent, one in roster.by_agent.items() if agent in delivered.shares}
        shared = agree(keys.share, {agent: one.share_key for agent, one in others.items()}, "share")
        held = dict(state.held)
        for sender, sealed in delivered.shares.items():
            key = derive(shared[sender], digest, "shares", sender, state.agent)
            held[sender] = unseal(key, sealed, f"agent {sender}'s shares")
        publics = {agent: one.mask_key for agent, one in others.items()}
        pairs = pairwise_mask_keys(keys.mask, publics, digest, state.agent)
        added = [self_mask_key(keys.seed, digest), *(key for other, key in pairs.items() if other > state.agent)]
        masked = with_masks(values, added, [key for other, key in pairs.items() if other < state.agent], group)
        self._become(Phase.CONFIRM, held=held)
        return MaskedVector(state.round, state.agent, Masked(masked))

    def confirm(self, survivors: Survivors) -> Confirmation:
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
        signature = sign(self._keys().signing, self._signed_text(survivors.agents))
        self._become(Phase.REVEAL, survivors=survivors.agents)
        return Confirmation(state.round, state.agent, signature)

    def reveal(self, confirmations: Confirmations) -> RevealedShares:
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
            if is_signed(announced[agent].signing_key, confirmations.signatures.get(agent, b""), text)
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
        return RevealedShares(state.round, state.agent, shares)

    # Parts of the steps

    def _expect(self, step: Phase, incoming: MaskingMessage | None = None) -> None:
        state = self.state
        if state.step != step:
            raise PeerError(
                f"agent {state.agent} is at step {Phase(state.step).name.lower()} of round {state.round} and cannot "
                f"{step.name.lower()}: each step is done once, in order"
            )
        if incoming is not None and incoming.round != state.round:
            raise PeerError(f"expected a message of round {state.round}, found round {incoming.round}")
        if isinstance(incoming, DeliveredShares) and incoming.agent != state.agent:
            raise PeerError(f"expected shares for agent {state.agent}, found shares for agent {incoming.agent}")

    def _become(self, step: Phase, **changes: Any) -> None:
        self.state = replace(self.state, step=step.value, **changes)

    def _keys(self) -> Keys:
        state = self.state
        return keys_of(state.secret, state.group, state.agent, state.round, state.inputs)

    def _roster(self) -> AgentRoster:
        assert self.state.roster is not None
        return self.state.roster

    def _signed_text(self, survivors: tuple[int, ...]) -> bytes:
        digest = self._roster().digest(self.state.group)
        return Confirmation.signed_text(digest, sorted(self.state.held), survivors)
