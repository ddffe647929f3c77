"""Masked sums of generated groups are exact; no bytes do harm to who reads them."""

from __future__ import annotations

import contextlib
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.reference.masking_conversation import Conversation, one_of_each, plain_sum, stored, through_bytes
from tests.reference.masking_slow import nearest_step
from tests.sampling import examples

from gossamer.errors import MalformedMessage, PeerError, SpecError, TooFewAgents
from gossamer.privacy.masking import FixedPoint, Group, MaskingAgent, Phase
from gossamer.privacy.masking.messages import AgentMessage, MaskedVector, MaskingMessage, packed, unpacked
from gossamer.privacy.masking.shares import combine, split
from gossamer.protocol.encoding import decode, encode
from gossamer.vectors import Public

# A test must not depend on how busy a machine is.
MANY = settings(deadline=None, max_examples=examples(150), suppress_health_check=[HealthCheck.too_slow])
SOME = settings(deadline=None, max_examples=examples(40), suppress_health_check=[HealthCheck.too_slow])
SPOKEN = [step for step in Phase if step != Phase.DONE]


@st.composite
def groups(draw: st.DrawFn) -> Group:
    size = draw(st.integers(2, 8))
    threshold = draw(st.integers(size // 2 + 1, size))
    minimum = draw(st.integers(threshold, size))
    return Group(size, draw(st.integers(1, 4)), draw(st.sampled_from([32, 64])), threshold, minimum)


@SOME
@given(groups(), st.data())
def test_sums_are_exact_as_long_as_the_minimum_is_there(group: Group, data: st.DataObject) -> None:
    """Whoever vanishes, at any steps: the sum is that of all whose vectors were sent, or there is none."""
    vanish = data.draw(st.dictionaries(st.integers(1, group.size), st.sampled_from(SPOKEN)))
    conversation = Conversation(group, data.draw(st.integers(0, 5)), data.draw(st.integers(0, 2**32)))
    sent = tuple(i for i in range(1, group.size + 1) if vanish.get(i, Phase.DONE) > Phase.MASK)
    answered = sum(vanish.get(i, Phase.DONE) > Phase.REVEAL for i in range(1, group.size + 1))
    try:
        found = conversation.sum(vanish)
    except TooFewAgents:
        assert len(sent) < group.minimum or answered < group.threshold
    else:
        assert len(sent) >= group.minimum
        assert answered >= group.threshold
        assert found.agents == sent
        assert found.values.tolist() == plain_sum(group, conversation.vectors, sent)


@MANY
@given(
    st.floats(1e-30, 1e30),
    st.integers(1, 2000),
    st.sampled_from([32, 64]),
    st.one_of(st.none(), st.integers(-120, 160)),
    st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1, max_size=8),
)
def test_fixed_point(clip: float, group: int, bits: int, fraction_bits: int | None, values: list[float]) -> None:
    """A range is refused, or no value is: it becomes the nearest step within the range, and sums cannot overflow."""
    try:
        fixed = FixedPoint(clip, group, bits, fraction_bits)
    except SpecError:
        assert fraction_bits is not None
        largest = math.floor(Fraction(clip) * Fraction(2) ** fraction_bits)
        assert largest < 1 or group * largest > 2 ** (bits - 1) - 1
        return
    assert fixed.fraction_bits is not None
    expected = []
    for value in values:
        number = 0.0 if math.isnan(value) else max(-clip, min(clip, value))
        expected.append(nearest_step(number, clip, fixed.fraction_bits))
    encoded = fixed.encode(values)
    assert encoded.tolist() == [step % 2**bits for step in expected]
    total = (encoded.astype(object) * group % 2**bits).astype(encoded.dtype)
    scale = Fraction(2) ** fixed.fraction_bits
    assert fixed.decode_sum(total, group).tolist() == [float(step * group / scale) for step in expected]


@MANY
@given(st.binary(min_size=32, max_size=32), st.data())
def test_shares(secret: bytes, data: st.DataObject) -> None:
    indices = data.draw(st.lists(st.integers(1, 10**6), min_size=1, max_size=8, unique=True))
    threshold = data.draw(st.integers(1, len(indices)))
    shares = split(secret, threshold, indices)
    chosen = data.draw(st.permutations(indices))[: data.draw(st.integers(threshold, len(indices)))]
    assert combine({index: shares[index] for index in chosen}, threshold) == secret


GROUP = Group(4, 2)
MESSAGES = one_of_each(GROUP)
PACKABLE = [kind for kind in MESSAGES if kind is not MaskedVector]
CHANGES = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=4)


@MANY
@given(st.sampled_from(PACKABLE), CHANGES, st.integers(-3, 3))
def test_changed_bytes_are_malformed_or_a_well_formed_message(
    kind: type[MaskingMessage], changes: list[tuple[int, int]], longer: int
) -> None:
    """Whatever is accepted is a message that says just these bytes."""
    data = bytearray(packed(MESSAGES[kind]).values.tobytes())
    for place, byte in changes:
        data[place % len(data)] = byte
    data = data[: len(data) + longer] if longer < 0 else data + bytes(longer)
    with contextlib.suppress(MalformedMessage):
        found = unpacked(Public(np.frombuffer(bytes(data), np.uint8)), kind, GROUP)
        assert encode(found) == bytes(data)
        assert type(found) is kind


@MANY
@given(st.sampled_from(PACKABLE), st.binary(max_size=100))
def test_noise_is_malformed(kind: type[MaskingMessage], noise: bytes) -> None:
    start = packed(MESSAGES[kind]).values.tobytes()[:40]
    for data in (noise, start + noise):
        with contextlib.suppress(MalformedMessage):
            unpacked(Public(np.frombuffer(data, np.uint8)), kind, GROUP)


@SOME
@given(st.sampled_from(SPOKEN), st.integers(1, 4), CHANGES)
def test_changed_messages_end_in_a_refusal_or_in_the_right_sum(
    step: Phase, agent: int, changes: list[tuple[int, int]]
) -> None:
    """One message to the server is changed on its way. Its vector aside, whatever is still unmasked is exact."""
    conversation = Conversation(GROUP).until(step)
    conversation.speak()
    data = bytearray(encode(conversation.outbox[agent]))
    values_at = len(data) - GROUP.length * 4 if step == Phase.MASK else len(data)
    for place, byte in changes:
        data[place % values_at] = byte
    try:
        changed = decode(bytes(data))
        if not isinstance(changed, AgentMessage):
            return
        conversation.outbox[agent] = changed
        found = conversation.sum()
    except (PeerError, TooFewAgents):
        pass
    else:
        assert found.values.tolist() == plain_sum(GROUP, conversation.vectors, found.agents)


@pytest.mark.parametrize("step", SPOKEN)
def test_states_survive_bytes(step: Phase) -> None:
    conversation = Conversation(GROUP).until(step)
    server, agent = conversation.server, conversation.agents[1]
    assert encode(through_bytes(server)) == encode(server)
    restored = MaskingAgent(*decode(stored(agent))[:3], agent.identities, *decode(stored(agent))[3:])
    assert (stored(restored), restored) == (stored(agent), agent)
