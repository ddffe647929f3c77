"""What an agent sends is uniform, whatever its vector is; nearby wrong masks are rejected by the same tests.

Every test uses fixed secrets, so it passes or fails for good. The level of each p-value is 1e-6, the chance that right
masks would have failed when the secrets were chosen; there are fewer than 60, so 6e-5 in all.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from tests.reference.masking_conversation import Conversation

from gossamer.privacy.masking import FixedPoint, Group, Phase

LEVEL = 1e-6
LENGTH = 100_000


def p_values(values: np.ndarray) -> list[float]:
    """Chi-squared, of the values of each byte of the integers and of pairs of neighbouring top bytes' halves."""
    columns = values.astype(values.dtype.newbyteorder("<")).view(np.uint8).reshape(len(values), -1)
    counts = [np.bincount(column, minlength=256) for column in columns.T]
    top = columns[:, -1] >> 4
    counts.append(np.bincount(top[:-1:2].astype(int) * 16 + top[1::2], minlength=256))
    return [float(stats.chisquare(count).pvalue) for count in counts]


def sent(group: Group, round: int, vectors: dict[int, np.ndarray]) -> dict[int, np.ndarray]:
    conversation = Conversation(group, round, vectors=vectors).until(Phase.MASK)
    conversation.speak()
    return {i: message.values.values for i, message in conversation.outbox.items()}


def constant(group: Group) -> dict[int, np.ndarray]:
    """The vector that is easiest to see through a mask: the same small number everywhere."""
    values = FixedPoint(1.0, group.size, group.bits).encode(np.full(group.length, 0.001))
    return {i: values for i in range(1, group.size + 1)}


@pytest.mark.parametrize("bits", [32, 64])
def test_each_message_alone_is_uniform(bits: int) -> None:
    group = Group(3, LENGTH, bits)
    messages = sent(group, 0, constant(group))
    for values in messages.values():
        assert min(p_values(values)) > LEVEL


def test_any_two_of_three_messages_together_are_uniform() -> None:
    """Their sum too: the masks with the third, and both self-masks, are left in it."""
    group = Group(3, LENGTH)
    messages = sent(group, 0, constant(group))
    for i, j in ((1, 2), (1, 3), (2, 3)):
        assert min(p_values(messages[i] + messages[j])) > LEVEL
        assert min(p_values(messages[i] - messages[j])) > LEVEL
    assert min(p_values(messages[1] + messages[2] + messages[3])) > LEVEL  # self-masks


def test_masks_differ_between_rounds() -> None:
    """The same secrets and vectors in another round: the difference of the messages is uniform, not zero."""
    group = Group(3, LENGTH)
    vectors = constant(group)
    first, second = sent(group, 0, vectors), sent(group, 1, vectors)
    for i in vectors:
        assert min(p_values(first[i] - second[i])) > LEVEL
    assert all((first[i] == again).all() for i, again in sent(group, 0, vectors).items())


@pytest.mark.parametrize("bits", [32, 64])
def test_wrong_masks_are_noticed(bits: int) -> None:
    """No mask; one that covers half of the ring; one short of its top value; floats of finite variance."""
    group = Group(3, LENGTH, bits)
    values = constant(group)[1]
    generator = np.random.default_rng(0)
    half = generator.integers(0, 2 ** (bits - 1), LENGTH, group.dtype)
    low_bits_only = generator.integers(0, 2**16, LENGTH, group.dtype)
    noisy = FixedPoint(1.0, 3, bits).encode(generator.normal(0.001, 0.3, LENGTH))
    # Values whose lowest byte is 255 a twentieth less often.
    rare = generator.integers(0, 2**bits, LENGTH, group.dtype, endpoint=False)
    rare = np.where((rare & 255 == 255) & (generator.random(LENGTH) < 0.5), 0, rare).astype(group.dtype)
    for wrong in (values, values + half, values + low_bits_only, noisy, rare):
        assert min(p_values(wrong)) < LEVEL
