"""Lengths of packed messages: they follow from how many agents these speak of, never from what they say.

For runs of a schedule alone, whose messages have sizes and no content.
"""

from __future__ import annotations

from functools import cache

from gossamer.privacy.masking.group import Step
from gossamer.privacy.masking.keys import KEY_BYTES, SIGNATURE_BYTES
from gossamer.privacy.masking.messages import (
    DIGEST_BYTES,
    NO_INPUTS,
    SEALED_BYTES,
    AgentMessage,
    Announcement,
    Confirmation,
    Confirmations,
    DeliveredShares,
    EncryptedShares,
    MaskingMessage,
    RevealedShares,
    Roster,
    Survivors,
    packed,
)
from gossamer.privacy.masking.shamir import SHARE_BYTES

REQUESTS: dict[int, type[MaskingMessage]] = {
    Step.SHARE: Roster,
    Step.MASK: DeliveredShares,
    Step.CONFIRM: Survivors,
    Step.REVEAL: Confirmations,
}
"""What a server sends so that an agent can take a step. Nothing comes before the first."""

REPLIES: dict[int, type[AgentMessage]] = {
    Step.ANNOUNCE: Announcement,
    Step.SHARE: EncryptedShares,
    Step.CONFIRM: Confirmation,
    Step.REVEAL: RevealedShares,
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
    found = {}
    for kind in (*REQUESTS.values(), *REPLIES.values()):
        none, one = (int(packed(_example(kind, count, signed)).size) for count in (0, 1))
        found[kind] = none, one - none
    return found


def _example(kind: type[MaskingMessage], count: int, signed: bool) -> MaskingMessage:
    announcement = Announcement(0, 1, *(bytes(KEY_BYTES),) * 4, NO_INPUTS, bytes(SIGNATURE_BYTES * signed))
    if kind is Announcement:
        return announcement
    if kind is Roster:
        return Roster(0, (announcement,) * count)
    if kind is Survivors:
        return Survivors(0, (1,) * count)
    if kind is Confirmation:
        return Confirmation(0, 1, bytes(SIGNATURE_BYTES))
    if kind is Confirmations:
        return Confirmations(0, dict.fromkeys(range(1, count + 1), bytes(SIGNATURE_BYTES)))
    if kind is RevealedShares:
        return RevealedShares(0, 1, dict.fromkeys(range(1, count + 1), bytes(SHARE_BYTES)))
    sealed = dict.fromkeys(range(2, count + 2), bytes(SEALED_BYTES))
    if kind is DeliveredShares:
        return DeliveredShares(0, 1, sealed)
    return EncryptedShares(0, 1, sealed, dict.fromkeys([1, *sealed], bytes(2 * DIGEST_BYTES)))
