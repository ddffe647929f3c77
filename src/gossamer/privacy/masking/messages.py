"""Messages between agents and the server of a masked sum.

| step | an agent says | the server says |
|---|---|---|
| announce | `Announcement` | `AgentRoster`: all announcements |
| share | `EncryptedShares`, one for each other agent | `DeliveredShares`, those for this agent |
| mask | `MaskedVector` | `Survivors`: whose vectors arrived |
| confirm | `Confirmation`, a signature of these | `Confirmations`: all signatures |
| reveal | `RevealedShares`, one for each agent | the sum is found |

Only `MaskedVector` depends on an agent's data. The others are made of keys, of who was heard and of the digest of what
all were asked, so they may travel as `Public` bytes: `packed` and `unpacked`. Where the model itself is confined to the
unit, its digest is for the unit too: whoever reads it can check a guess of the model. Every field is checked when a
message is made, by whoever makes it, so what decodes is well formed; whether it fits the round is for its receiver to
check.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Any, ClassVar, TypeVar

import numpy as np

from gossamer.errors import DataError, MalformedMessage, PeerError
from gossamer.keys.identity import PublicKey
from gossamer.privacy.masking.fixed_point import MOST_AGENTS, Group, Phase
from gossamer.privacy.masking.keys import KEY_BYTES, SHARE_BYTES, SIGNATURE_BYTES, TAG_BYTES, check_point
from gossamer.protocol import encoding
from gossamer.protocol.encoding import encode, frozen
from gossamer.vectors import Blank, Masked, Public

SEALED_BYTES = 2 * SHARE_BYTES + TAG_BYTES
"""Two shares, of the mask key and of the self-mask's seed, encrypted."""
DIGEST_BYTES = 32
NO_INPUTS = bytes(DIGEST_BYTES)
"""The digest of public inputs where there are none that a server could give to one agent another way."""


@dataclass(frozen=True)
class MaskingMessage:
    """Base of what is said in one masked sum, the one of ``round``."""

    sizes: ClassVar[Mapping[str, int]] = {}
    """Number of bytes of each field that is bytes."""
    tables: ClassVar[Mapping[str, int]] = {}
    """Number of bytes of each value of a field that has bytes by agent."""

    round: int

    def __post_init__(self) -> None:
        _require(type(self.round) is int and self.round >= 0, f"expected a round from 0, found {self.round!r}")
        for name, length in self.sizes.items():
            _check_bytes(name, getattr(self, name), length)
        for name, length in self.tables.items():
            table = getattr(self, name)
            _require(
                type(table) is dict and all(map(_is_agent, table)), f"expected {name} by the numbers of agents, from 1"
            )
            for value in table.values():
                _check_bytes(name, value, length)


@dataclass(frozen=True)
class AgentMessage(MaskingMessage):
    """Base of what ``agent`` says, or is told alone; its runtime checks that a message comes from that agent."""

    agent: int

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(_is_agent(self.agent), f"expected an agent's number from 1, found {self.agent!r}")


@frozen("masking.keys")
class Announcement(AgentMessage):
    """The public keys of an agent for one sum, and what its vector will be computed from.

    Attributes
    ----------
    mask_key, share_key : bytes
        X25519 keys [32 bytes], for masks and for the encryption of shares.
    signing_key : bytes
        Ed25519 key [32 bytes], for confirmations.
    commitment : bytes
        Commitment to the seed of the self-mask [32 bytes].
    inputs : bytes
        Digest of all public inputs of its vector [32 bytes]: agents with different ones are in no sum together.
    signature : bytes
        Signature of all this by the agent's identity [64 bytes], or empty.
    """

    mask_key: bytes
    share_key: bytes
    signing_key: bytes
    commitment: bytes
    inputs: bytes
    signature: bytes = b""

    sizes: ClassVar[Mapping[str, int]] = {
        **dict.fromkeys(("mask_key", "share_key", "signing_key", "commitment"), KEY_BYTES),
        "inputs": DIGEST_BYTES,
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.signature != b"":
            _check_bytes("signature", self.signature, SIGNATURE_BYTES)

    def signed_text(self, group: Group) -> bytes:
        """Return the bytes that the identity signs."""
        return encode(("gossamer masking announcement", group, replace(self, signature=b"")))


@frozen("masking.roster")
class AgentRoster(MaskingMessage):
    """The announcements of all agents that take part, in the order of their numbers."""

    announcements: tuple[Announcement, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(type(self.announcements) is tuple, "expected a tuple of announcements")
        _require(all(type(one) is Announcement for one in self.announcements), "expected announcements only")
        _require(all(one.round == self.round for one in self.announcements), "expected announcements of one round")
        _check_ascending(self.agents)

    @property
    def agents(self) -> tuple[int, ...]:
        """Their numbers."""
        return tuple(one.agent for one in self.announcements)

    @property
    def by_agent(self) -> dict[int, Announcement]:
        """The announcements by number."""
        return {one.agent: one for one in self.announcements}

    def digest(self, group: Group) -> bytes:
        """32 bytes that name this sum: all keys and signatures depend on it."""
        return hashlib.sha256(encode((group, self))).digest()


@dataclass(frozen=True)
class _Sealed(AgentMessage):
    shares: dict[int, bytes]
    tables: ClassVar[Mapping[str, int]] = {"shares": SEALED_BYTES}

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(self.agent not in self.shares, "expected shares of others only")


@frozen("masking.committed_shares")
class EncryptedShares(_Sealed):
    """Shares of the secrets of ``agent``, encrypted for each receiver: ``shares`` by receiver.

    Attributes
    ----------
    commitments : dict of int to bytes
        Commitments to the two shares of each agent, the sender too [64 bytes]: by these the server tells wrong shares
        from right ones.
    """

    commitments: dict[int, bytes]
    tables: ClassVar[Mapping[str, int]] = {**_Sealed.tables, "commitments": 2 * DIGEST_BYTES}

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(set(self.commitments) == {self.agent, *self.shares}, "expected commitments to the shares of all")


@frozen("masking.delivered_shares")
class DeliveredShares(_Sealed):
    """Shares for ``agent``, by the agent whose secrets they are of."""


@frozen("masking.vector")
class MaskedVector(AgentMessage):
    """The vector of ``agent`` under its masks: integers [group.length] of the group's dtype."""

    values: Masked

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(type(self.values) is Masked, f"expected a Masked vector, found {type(self.values).__name__}")


@frozen("masking.survivors")
class Survivors(MaskingMessage):
    """Agents whose vectors the server says have arrived."""

    agents: tuple[int, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(type(self.agents) is tuple, "expected a tuple of agents")
        _check_ascending(self.agents)


@frozen("masking.confirmation")
class Confirmation(AgentMessage):
    """The signature of ``agent`` under who took part and who survived, as it was told."""

    signature: bytes
    sizes: ClassVar[Mapping[str, int]] = {"signature": SIGNATURE_BYTES}

    @staticmethod
    def signed_text(digest: bytes, participants: Iterable[int], survivors: Iterable[int]) -> bytes:
        """Return the bytes that an agent signs."""
        return encode(("gossamer masking survivors", digest, tuple(participants), tuple(survivors)))


@frozen("masking.confirmations")
class Confirmations(MaskingMessage):
    """The signatures of those that confirmed, by agent."""

    signatures: dict[int, bytes]
    tables: ClassVar[Mapping[str, int]] = {"signatures": SIGNATURE_BYTES}


@frozen("masking.revealed_shares")
class RevealedShares(AgentMessage):
    """One share for each participant, by its number: of a survivor's seed, or of a vanished agent's mask key."""

    shares: dict[int, bytes]
    tables: ClassVar[Mapping[str, int]] = {"shares": SHARE_BYTES}


M = TypeVar("M", bound=MaskingMessage)


def packed(outgoing: MaskingMessage | Blank) -> Public:
    """The bytes of a message that does not depend on data, as numbers of type u1; of a blank as many of nothing.

    Raises
    ------
    TypeError
        For a `MaskedVector`, which travels under a label of its own.
    """
    if isinstance(outgoing, MaskedVector):
        raise TypeError("a masked vector depends on data: send its values as Masked")
    return Public(outgoing if isinstance(outgoing, Blank) else np.frombuffer(encode(outgoing), np.uint8))


def unpacked(incoming: Public, kind: type[M], group: Group) -> M:
    """The message of type ``kind`` that a peer packed.

    Raises
    ------
    MalformedMessage
        If ``incoming`` is anything else.
    """
    if not isinstance(incoming.values, np.ndarray) or incoming.values.dtype != np.uint8:
        raise MalformedMessage(f"expected the bytes of a {kind.__name__}, found {incoming!r}")
    # A roster is the message of most values: itself, its round, its tuple, and a tag and eight fields an agent.
    decoded: Any = encoding.decode(incoming.values.tobytes(), most_values=3 + 9 * group.size)
    if type(decoded) is not kind:
        raise MalformedMessage(f"expected a {kind.__name__}, found {type(decoded).__name__}")
    return decoded


def _require(holds: bool, expectation: str) -> None:
    if not holds:
        raise ValueError(expectation)


def _is_agent(number: Any) -> bool:
    return type(number) is int and 1 <= number < MOST_AGENTS


def _check_bytes(name: str, value: Any, length: int) -> None:
    _require(type(value) is bytes and len(value) == length, f"expected {name} to be {length} bytes")


def _check_ascending(agents: tuple[Any, ...]) -> None:
    _require(all(map(_is_agent, agents)), "expected the numbers of agents, from 1")
    _require(all(a < b for a, b in pairwise(agents)), "expected every agent once, in ascending order")


# Whether the keys that were announced can be used: points, identities, and no key twice.

Identities = Mapping[int, PublicKey]
"""Whose signature each agent's announcement has to bear, known from elsewhere."""
PURPOSE = "keys of a masked sum"
"""What an identity signs announcements for."""


def check_identities(group: Group, identities: Identities | None) -> None:
    """Raise DataError unless identities are given where, and only where, a group's announcements are signed."""
    if group.signed != (identities is not None):
        raise DataError(
            "the keys of this group are signed: expected the agents' identities, found none"
            if group.signed
            else "the keys of this group are not signed: identities are for one with signed=True"
        )


def check_announcement(announcement: Announcement, group: Group, identities: Identities | None) -> None:
    """Refuse keys that nobody should use.

    Raises
    ------
    PeerError
        If they are of no agent of the group, a key is not a valid point, they are signed or not, other than the group
        says, or, where identities are given, the signature is not the agent's.
    """
    agent = announcement.agent
    if not group.has(agent):
        raise PeerError(f"expected keys of agents 1 to {group.size}, found keys of agent {agent}")
    check_point(announcement.mask_key, agent, "mask")
    check_point(announcement.share_key, agent, "share")
    check_point(announcement.signing_key, agent, "signing")
    if bool(announcement.signature) != group.signed:
        expected = "signed by its identity" if group.signed else "without a signature"
        raise PeerError(f"agent {agent}'s keys are not as its group says: expected keys {expected}")
    if identities is not None:
        identity, text = identities.get(agent), announcement.signed_text(group)
        if identity is None or not identity.signed(announcement.signature, PURPOSE, text):
            raise PeerError(f"agent {agent}'s keys are not signed by its identity: expected a signature of this round")


def check_roster(roster: AgentRoster, own: Announcement, group: Group, identities: Identities | None) -> None:
    """Refuse a list of announcements that ``own`` announcer should not join.

    Raises
    ------
    PeerError
        If there are fewer than the group's minimum, ``own`` is missing or another, an announcement is bad, an agent's
        vector is to be computed from other inputs than the ``own``, or two agents announce the same key.
    """
    if len(roster.announcements) < group.minimum:
        raise PeerError(f"a masked sum needs {group.minimum} agents, found a list of {len(roster.announcements)}")
    if own not in roster.announcements:
        raise PeerError(f"the list of agents does not have the keys that agent {own.agent} announced")
    for announcement in roster.announcements:
        check_announcement(announcement, group, identities)
    others = [one.agent for one in roster.announcements if one.inputs != own.inputs]
    if others:
        raise PeerError(
            f"agents {others} were not asked what agent {own.agent} was: expected the same model and settings for all, "
            "since a sum of answers to different questions may give one of them away"
        )
    keys = [key for one in roster.announcements for key in (one.mask_key, one.share_key)]
    if len(set(keys)) < len(keys):
        raise PeerError("two agents announce the same key: expected a key of its own for every agent and use")


# Lengths of packed messages: they follow from how many agents these speak of, never from what they say.
#
# For runs of a schedule alone, whose messages have sizes and no content.

REQUESTS: dict[int, type[MaskingMessage]] = {
    Phase.SHARE: AgentRoster,
    Phase.MASK: DeliveredShares,
    Phase.CONFIRM: Survivors,
    Phase.REVEAL: Confirmations,
}
"""What a server sends so that an agent can take a step. Nothing comes before the first."""

REPLIES: dict[int, type[AgentMessage]] = {
    Phase.ANNOUNCE: Announcement,
    Phase.SHARE: EncryptedShares,
    Phase.CONFIRM: Confirmation,
    Phase.REVEAL: RevealedShares,
}
"""What an agent answers; at the step left out, its vector."""


def packed_size(kind: type[MaskingMessage], agents: int, *, signed: bool = False) -> int:
    """The bytes of a packed message that speaks of so many agents, in a group that is signed or not."""
    base, each = _sizes(signed)[kind]
    return base + each * agents


def agents_in(kind: type[MaskingMessage], size: int, *, signed: bool = False) -> int:
    """Count the agents that a packed message of so many bytes speaks of, in a group that is signed or not."""
    base, each = _sizes(signed)[kind]
    return (size - base) // each if each else 0


@cache
def _sizes(signed: bool) -> dict[type[MaskingMessage], tuple[int, int]]:
    """Bytes of a message of none, and of each more."""
    none, one = ([int(packed(each).size) for each in _examples(count, signed)] for count in (0, 1))
    kinds = map(type, _examples(0, signed))
    return {kind: (base, more - base) for kind, base, more in zip(kinds, none, one, strict=True)}


def _examples(count: int, signed: bool) -> list[MaskingMessage]:
    """A message of each kind that speaks of so many agents."""
    announcement = Announcement(0, 1, *(bytes(KEY_BYTES),) * 4, NO_INPUTS, bytes(SIGNATURE_BYTES * signed))
    agents, sealed = range(1, count + 1), dict.fromkeys(range(2, count + 2), bytes(SEALED_BYTES))
    return [
        announcement,
        AgentRoster(0, (announcement,) * count),
        EncryptedShares(0, 1, sealed, dict.fromkeys([1, *sealed], bytes(2 * DIGEST_BYTES))),
        DeliveredShares(0, 1, sealed),
        Survivors(0, (1,) * count),
        Confirmation(0, 1, bytes(SIGNATURE_BYTES)),
        Confirmations(0, dict.fromkeys(agents, bytes(SIGNATURE_BYTES))),
        RevealedShares(0, 1, dict.fromkeys(agents, bytes(SHARE_BYTES))),
    ]
