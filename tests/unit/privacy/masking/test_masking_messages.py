"""Messages of a masked sum: what they may hold, and how they travel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.reference.masking_conversation import one_of_each

from gossamer.errors import MalformedMessage
from gossamer.privacy.masking import Group
from gossamer.privacy.masking.messages import (
    AgentRoster,
    Announcement,
    Confirmation,
    Confirmations,
    DeliveredShares,
    EncryptedShares,
    MaskedVector,
    MaskingMessage,
    RevealedShares,
    Survivors,
    packed,
    unpacked,
)
from gossamer.vectors import Public

GROUP = Group(4, 2)
MESSAGES = one_of_each(GROUP)
PACKABLE = [
    Announcement,
    AgentRoster,
    EncryptedShares,
    DeliveredShares,
    Survivors,
    Confirmation,
    Confirmations,
    RevealedShares,
]


def test_these_are_all_messages() -> None:
    assert set(MESSAGES) == {*PACKABLE, MaskedVector}


def test_a_masked_vector_is_not_packed_as_public() -> None:
    with pytest.raises(TypeError, match="a masked vector depends on data"):
        packed(MESSAGES[MaskedVector])


@pytest.mark.parametrize("kind", PACKABLE)
def test_packing_and_unpacking(kind: type[MaskingMessage]) -> None:
    message = MESSAGES[kind]
    vector = packed(message)
    assert vector.values.dtype == np.uint8
    assert unpacked(vector, kind, GROUP) == message
    other = PACKABLE[PACKABLE.index(kind) - 1]
    with pytest.raises(MalformedMessage, match=f"expected a {other.__name__}, found {kind.__name__}"):
        unpacked(vector, other, GROUP)
    with pytest.raises(MalformedMessage, match=f"expected the bytes of a {kind.__name__}"):
        unpacked(Public(vector.values.astype(np.uint32)), kind, GROUP)


def test_a_roster_of_more_agents_than_the_group_is_not_even_read() -> None:
    with pytest.raises(MalformedMessage, match="at most 30 values"):
        unpacked(packed(MESSAGES[AgentRoster]), AgentRoster, Group(3, 2))


KEYS = (bytes(32),) * 4
INPUTS = bytes(32)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Survivors(-1, (1, 2)), "expected a round from 0, found -1"),
        (lambda: Survivors(True, (1, 2)), "expected a round from 0"),
        (lambda: Survivors(0, [1, 2]), "expected a tuple of agents"),
        (lambda: Survivors(0, (0, 1)), "the numbers of agents, from 1"),
        (lambda: Survivors(0, (1, 1 << 16)), "the numbers of agents, from 1"),
        (lambda: Survivors(0, (1, 1)), "every agent once, in ascending order"),
        (lambda: Survivors(0, (2, 1)), "every agent once, in ascending order"),
        (lambda: Announcement(0, 0, *KEYS, INPUTS), "an agent's number from 1, found 0"),
        (lambda: Announcement(0, 1, bytes(31), *KEYS[:3], INPUTS), "expected mask_key to be 32 bytes"),
        (lambda: Announcement(0, 1, KEYS[0], bytes(33), *KEYS[:2], INPUTS), "expected share_key to be 32 bytes"),
        (lambda: Announcement(0, 1, *KEYS[:2], "k" * 32, KEYS[0], INPUTS), "expected signing_key to be 32 bytes"),
        (lambda: Announcement(0, 1, *KEYS[:3], b"", INPUTS), "expected commitment to be 32 bytes"),
        (lambda: Announcement(0, 1, *KEYS, bytes(31)), "expected inputs to be 32 bytes"),
        (lambda: Announcement(0, 1, *KEYS, INPUTS, bytes(63)), "expected signature to be 64 bytes"),
        (lambda: AgentRoster(0, [Announcement(0, 1, *KEYS, INPUTS)]), "a tuple of announcements"),
        (lambda: AgentRoster(0, (1,)), "announcements only"),
        (lambda: AgentRoster(0, (Announcement(1, 1, *KEYS, INPUTS),)), "announcements of one round"),
        (lambda: AgentRoster(0, (Announcement(0, 1, *KEYS, INPUTS),) * 2), "every agent once"),
        (lambda: EncryptedShares(0, 1, {2: bytes(81)}, {}), "expected shares to be 82 bytes"),
        (lambda: EncryptedShares(0, 1, {1: bytes(82)}, {}), "shares of others only"),
        (lambda: EncryptedShares(0, 1, {2: bytes(82)}, {2: bytes(64)}), "commitments to the shares of all"),
        (lambda: EncryptedShares(0, 1, {}, {1: bytes(64), 2: bytes(64)}), "commitments to the shares of all"),
        (lambda: EncryptedShares(0, 1, {2: bytes(82)}, {1: bytes(64), 2: bytes(63)}), "commitments to be 64 bytes"),
        (lambda: DeliveredShares(0, 1, {0: bytes(82)}), "shares by the numbers of agents"),
        (lambda: DeliveredShares(0, 1, [2]), "shares by the numbers of agents"),
        (lambda: MaskedVector(0, 1, Public(np.zeros(2))), "expected a Masked vector, found Public"),
        (lambda: Confirmation(0, 1, bytes(65)), "expected signature to be 64 bytes"),
        (lambda: Confirmations(0, {1: bytes(63)}), "expected signatures to be 64 bytes"),
        (lambda: RevealedShares(0, 1, {1: bytes(32)}), "expected shares to be 33 bytes"),
    ],
)
def test_malformed_messages_cannot_be_made(make: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()
