"""The rounds of a masked sum: what comes out, and which messages are refused on the way."""

from __future__ import annotations

import itertools
import secrets
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.reference import masking_slow as slow
from tests.reference.masking_conversation import Conversation, plain_sum, stored
from tests.reference.masking_slow import most_colluders

from gossamer.errors import CallerError, DataError, PeerError, SpecError, TooFewAgents
from gossamer.keys.identity import Identity
from gossamer.privacy.masking import FixedPoint, Group, MaskingAgent, MaskingServer, Phase, aggregate
from gossamer.privacy.masking.keys import commitment, keys_of, public_key, reproducible_secret
from gossamer.privacy.masking.messages import (
    NO_INPUTS,
    AgentRoster,
    Announcement,
    Confirmation,
    Confirmations,
    DeliveredShares,
    MaskedVector,
    Survivors,
    check_announcement,
)
from gossamer.privacy.masking.shares import combine
from gossamer.protocol.encoding import encode
from gossamer.vectors import Blank, Masked

GROUP = Group(5, 6)
SPOKEN = [step for step in Phase if step != Phase.DONE]


def at(step: Phase, group: Group = GROUP, **options: Any) -> Conversation:
    return Conversation(group, **options).until(step)


# Sums


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("size", [2, 3, 4, 5, 6, 9])
def test_the_sum_is_exact(size: int, bits: int) -> None:
    conversation = Conversation(Group(size, 7, bits))
    found = conversation.sum()
    assert found.agents == tuple(range(1, size + 1))
    assert found.values.dtype == np.dtype(f"u{bits // 8}")
    assert found.values.tolist() == plain_sum(conversation.group, conversation.vectors, found.agents)


@pytest.mark.some(25)
@pytest.mark.parametrize("step", SPOKEN)
@pytest.mark.parametrize("gone", list(itertools.combinations(range(1, 7), 2)))
def test_any_third_may_vanish_at_any_step(step: Phase, gone: tuple[int, ...]) -> None:
    """Two of six. Those that vanish after their vector was sent are in the sum."""
    conversation = Conversation(Group(6, 3))
    found = conversation.sum(dict.fromkeys(gone, step))
    expected = set(range(1, 7)) - (set(gone) if step <= Phase.MASK else set())
    assert set(found.agents) == expected
    assert found.values.tolist() == plain_sum(conversation.group, conversation.vectors, found.agents)


@pytest.mark.parametrize("step", SPOKEN)
def test_below_the_minimum_nothing_is_unmasked(step: Phase) -> None:
    """Three of six vanish: four are needed."""
    conversation = Conversation(Group(6, 3))
    needed = f"needs 4 agents and 3 are left at step {step.name.lower()} of round 0: nothing is unmasked"
    with pytest.raises(TooFewAgents, match=needed):
        conversation.sum(dict.fromkeys((1, 3, 4), step))


def test_a_server_that_was_too_early_may_wait_for_more() -> None:
    conversation = at(Phase.MASK)
    late = [conversation.answer(agent, incoming) for agent, incoming in conversation.inbox.items()]
    for message in late[:3]:
        conversation.server.receive(message)
    with pytest.raises(TooFewAgents):
        conversation.server.advance()
    assert conversation.server.missing == (4, 5)
    conversation.server.receive(late[3])
    assert set(conversation.server.advance()) == {1, 2, 3, 4}


def test_a_larger_minimum_stops_a_sum_that_the_threshold_would_allow() -> None:
    conversation = Conversation(Group(6, 3, minimum=5))
    with pytest.raises(TooFewAgents, match="needs 5 agents and 4 are left at step mask"):
        conversation.sum(dict.fromkeys((1, 2), Phase.MASK))
    # Once five vectors are in, the threshold is what it takes to remove the masks.
    conversation = Conversation(Group(6, 3, minimum=5))
    found = conversation.sum({1: Phase.MASK, 2: Phase.CONFIRM})
    assert found.agents == (2, 3, 4, 5, 6)
    assert found.values.tolist() == plain_sum(conversation.group, conversation.vectors, found.agents)


def test_fixed_point_in_and_out() -> None:
    group, fixed = Group(4, 3), FixedPoint(1.0, 4, fraction_bits=20)
    vectors = {i: np.array([0.25 * i, -1.0, 7.0]) for i in range(1, 5)}
    agents = {i: MaskingAgent(group, i, 3) for i in vectors}
    encoded = {i: fixed.encode(vector) for i, vector in vectors.items()}
    found = aggregate(MaskingServer(group, 3), agents, encoded, {2: Phase.MASK})
    assert fixed.decode_sum(found.values, len(found.agents)).tolist() == [2.0, -3.0, 3.0]


def test_a_masked_vector_is_what_the_paper_says() -> None:
    """Bonawitz et al., section 4, in plain integers, from the agents' secret keys."""
    for bits in (32, 64):
        group = Group(4, 20, bits)
        conversation = at(Phase.MASK, group, round=7)
        conversation.speak()
        digest = slow.sha256(encode((group, conversation.server.roster)))
        keys = {i: keys_of(reproducible_secret(0, "test", i), group, i, 7, NO_INPUTS) for i in range(1, 5)}
        for i, sent in conversation.outbox.items():
            pairs = {}
            for j in set(keys) - {i}:
                shared = slow.x25519(keys[i].mask, slow.x25519(keys[j].mask, slow.BASE_POINT))
                info = encode(("gossamer masking", "pairwise mask", min(i, j), max(i, j)))
                pairs[j] = slow.hkdf(shared, digest, info)
            self_key = slow.hkdf(keys[i].seed, digest, encode(("gossamer masking", "self-mask")))
            vector = [int(x) for x in conversation.vectors[i]]
            assert sent.values.values.tolist() == slow.masked_vector(i, vector, self_key, pairs, bits)


def test_revealed_shares_are_of_one_secret_of_each_agent() -> None:
    """Seeds of those that survived, mask keys of those that did not: never both, and of nobody else."""
    conversation = Conversation(Group(9, 2)).until(Phase.REVEAL, {1: Phase.SHARE, 2: Phase.MASK, 3: Phase.CONFIRM})
    conversation.speak()
    answers = conversation.outbox
    assert set(answers) == {4, 5, 6, 7, 8, 9}
    announced = conversation.server.roster.by_agent
    for i in range(2, 10):
        secret = combine({giver: answer.shares[i] for giver, answer in answers.items()}, 6)
        if i == 2:
            assert public_key(secret) == announced[i].mask_key
        else:
            assert commitment(secret) == announced[i].commitment
    assert all(set(answer.shares) == set(range(2, 10)) for answer in answers.values())


def test_secrets_of_deployments_come_from_the_operating_system(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = bytes(range(32))
    monkeypatch.setattr(secrets, "token_bytes", lambda count: drawn if count == 32 else b"")
    assert MaskingAgent(GROUP, 1, 0).secret == drawn
    monkeypatch.undo()
    assert MaskingAgent(GROUP, 1, 0).secret != MaskingAgent(GROUP, 1, 0).secret


def test_states_keep_their_secrets_out_of_prints_and_forget_them_at_the_end() -> None:
    conversation = at(Phase.REVEAL)
    state = conversation.agents[1]
    assert repr(state.secret) not in repr(state)
    assert repr(state.held[2]) not in repr(state)
    conversation.speak()
    done = conversation.agents[1]
    assert (done.step, done.secret, done.held) == (Phase.DONE, b"", {})


# Parameters


def test_the_defaults_of_a_group() -> None:
    """Two thirds rounded up; a third may vanish, and less than a third may collude."""
    for size in range(2, 60):
        group = Group(size, 1)
        assert group.threshold == group.minimum == (2 * size + 2) // 3
        assert group.size - group.minimum == size // 3
        assert 2 * group.threshold > size + most_colluders(group)
        assert group.minimum - most_colluders(group) >= 2
    assert [most_colluders(Group(size, 1)) for size in (2, 3, 4, 5, 6, 9, 12, 100)] == [0, 0, 1, 2, 1, 2, 3, 33]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"size": 1}, "masks need 2 to 65535 agents to hide among, found 1"),
        ({"size": 1 << 16}, "masks need 2 to 65535"),
        ({"size": 5.0}, "whole numbers, .*size=5.0"),
        ({"threshold": 4.0}, "whole numbers, .*threshold=4.0"),
        ({"length": True}, "whole numbers, .*length=True"),
        ({"bits": 32.0}, "32 or 64 bits, .*bits=32.0"),
        ({"bits": [32]}, "32 or 64 bits, .*bits=.32."),
        ({"length": 0}, "a length of 1 or more .*length=0"),
        ({"bits": 16}, "32 or 64 bits, .*bits=16"),
        ({"size": 6, "threshold": 3}, "more than half of the 6 agents"),
        ({"size": 5, "threshold": 2}, "more than half of the 5 agents"),
        ({"threshold": 6}, "no more than all, found 6"),
        ({"threshold": -1}, "found -1"),
        ({"minimum": 3}, "between the threshold 4 and the 5 agents, found 3"),
        ({"minimum": 6}, "between the threshold 4 and the 5 agents, found 6"),
    ],
)
def test_a_group_that_cannot_be_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        Group(**{"size": 5, "length": 6, **settings})


def test_the_extremes_of_thresholds_are_accepted() -> None:
    assert Group(6, 1, threshold=4).threshold == 4
    assert most_colluders(Group(5, 1, threshold=3)) == 0
    assert Group(6, 1, threshold=6, minimum=6).minimum == 6
    assert Group(6, 1, minimum=5).minimum == 5


@pytest.mark.parametrize(("agent", "round"), [(0, 0), (6, 0), (True, 0), (1, -1), (1, 0.0)])
def test_numbers_of_agents_and_rounds(agent: int, round: int) -> None:
    with pytest.raises(DataError, match="expected an agent of 1 to 5 and a round from 0"):
        MaskingAgent(GROUP, agent, round)


def test_a_secret_has_32_bytes() -> None:
    with pytest.raises(DataError, match="a secret of 32 bytes, found 31"):
        MaskingAgent(GROUP, 1, 0, secret=bytes(31))


# What an agent refuses


def refused(conversation: Conversation, agent: int, incoming: Any, words: str) -> None:
    """The agent refuses, and goes on as if nothing had been said."""
    before = stored(conversation.agents[agent])
    with pytest.raises(PeerError, match=words):
        conversation.answer(agent, incoming)
    assert stored(conversation.agents[agent]) == before
    conversation.answer(agent, conversation.inbox[agent])


@pytest.mark.parametrize("step", SPOKEN)
def test_every_step_is_done_once_and_in_order(step: Phase) -> None:
    conversation = at(step)
    message = {
        Phase.SHARE: AgentRoster(0, ()),
        Phase.MASK: DeliveredShares(0, 1, {}),
        Phase.CONFIRM: Survivors(0, ()),
        Phase.REVEAL: Confirmations(0, {}),
    }
    for other in (*SPOKEN[: step.value], *SPOKEN[step.value + 1 :]):
        conversation.step = other
        words = f"agent 1 is at step {step.name.lower()} of round 0 and cannot {other.name.lower()}"
        with pytest.raises(PeerError, match=words):
            conversation.answer(1, message.get(other))
    conversation.step = step
    conversation.answer(1, conversation.inbox[1])
    with pytest.raises(PeerError, match="each step is done once, in order"):
        conversation.answer(1, conversation.inbox[1])


@pytest.mark.parametrize("step", SPOKEN[1:])
def test_messages_of_another_round_are_refused(step: Phase) -> None:
    conversation, other = at(step), at(step, round=1)
    refused(conversation, 2, other.inbox[2], "expected a message of round 0, found round 1")


def test_a_roster_needs_the_minimum_and_the_agent_itself() -> None:
    conversation = at(Phase.SHARE)
    announced = conversation.inbox[1].announcements
    refused(conversation, 1, AgentRoster(0, announced[:3]), "a masked sum needs 4 agents, found a list of 3")
    conversation = at(Phase.SHARE)
    refused(conversation, 1, AgentRoster(0, announced[1:]), "does not have the keys that agent 1 announced")
    conversation = at(Phase.SHARE)
    changed = replace(announced[0], share_key=public_key(bytes(32)))
    refused(conversation, 1, AgentRoster(0, (changed, *announced[1:])), "does not have the keys that agent 1 announced")


def test_a_roster_with_a_stranger_is_refused() -> None:
    conversation = at(Phase.SHARE)
    announced = conversation.inbox[1].announcements
    stranger = replace(Conversation(Group(6, 6), seed=9).agents[6].announce(), agent=6)
    refused(
        conversation, 1, AgentRoster(0, (*announced, stranger)), "expected keys of agents 1 to 5, found keys of agent 6"
    )


@pytest.mark.parametrize("key", ["mask", "share"])
def test_a_key_that_is_no_point_is_refused(key: str) -> None:
    conversation = at(Phase.SHARE)
    announced = conversation.inbox[1].announcements
    bad = replace(announced[2], **{f"{key}_key": bytes(32)})
    roster = AgentRoster(0, (*announced[:2], bad, *announced[3:]))
    refused(conversation, 1, roster, f"agent 3's {key} key is not a valid point of Curve25519")
    server = MaskingServer(GROUP, 0)
    with pytest.raises(PeerError, match=f"agent 3's {key} key is not a valid point of Curve25519"):
        server.receive(bad)
    assert server.missing == (1, 2, 3, 4, 5)


@pytest.mark.parametrize(
    ("whose", "key", "taken"),
    [
        *((1, *both) for both in itertools.product(["mask_key", "share_key"], repeat=2)),
        (2, "mask_key", "share_key"),
        (2, "share_key", "mask_key"),
    ],
)
def test_a_key_announced_twice_is_refused(whose: int, key: str, taken: str) -> None:
    conversation = at(Phase.SHARE)
    announced = conversation.inbox[1].announcements
    copied = replace(announced[1], **{key: getattr(announced[whose - 1], taken)})
    refused(conversation, 1, AgentRoster(0, (announced[0], copied, *announced[2:])), "two agents announce the same key")
    server = MaskingServer(GROUP, 0)
    server.receive(announced[0])
    with pytest.raises(PeerError, match="agent 2 announced a key that was announced before"):
        server.receive(copied)


def test_shares_for_another_or_from_another_are_refused() -> None:
    conversation = at(Phase.MASK)
    refused(conversation, 1, conversation.inbox[2], "expected shares for agent 1, found shares for agent 2")
    conversation = at(Phase.MASK)
    shares = conversation.inbox[1].shares
    swapped = {**shares, 2: shares[3], 3: shares[2]}
    refused(conversation, 1, DeliveredShares(0, 1, swapped), "agent 2's shares do not open")
    conversation = at(Phase.MASK, Group(6, 6), round=0)
    gone = Conversation(Group(6, 6)).until(Phase.MASK, {6: Phase.ANNOUNCE})
    extra = {**gone.inbox[1].shares, 6: bytes(82)}
    refused(gone, 1, DeliveredShares(0, 1, extra), "shares come from agents that are not on the roster")


def test_shares_of_too_few_are_refused() -> None:
    conversation = at(Phase.MASK)
    shares = dict(list(conversation.inbox[1].shares.items())[:2])
    refused(conversation, 1, DeliveredShares(0, 1, shares), "a masked sum needs 4 agents, found 3 left")
    conversation = at(Phase.MASK)
    enough = dict(list(conversation.inbox[1].shares.items())[:3])
    assert isinstance(conversation.answer(1, DeliveredShares(0, 1, enough)), MaskedVector)


@pytest.mark.parametrize(
    "values", [np.zeros(5, np.uint32), np.zeros((6, 1), np.uint32), np.zeros(6, np.uint64), np.zeros(6, np.int32)]
)
def test_a_vector_that_is_not_the_groups_is_the_callers_mistake(values: np.ndarray) -> None:
    conversation = at(Phase.MASK)
    conversation.vectors[1] = values
    with pytest.raises(DataError, match="expected 6 integers of uint32, found shape"):
        conversation.answer(1, conversation.inbox[1])
    assert conversation.agents[1].step == Phase.MASK


def test_the_callers_vector_is_left_alone() -> None:
    conversation = at(Phase.MASK)
    before = conversation.vectors[1].copy()
    conversation.speak()
    assert (conversation.vectors[1] == before).all()


@pytest.mark.parametrize(
    ("survivors", "words"),
    [
        ((1, 2, 3), "a masked sum needs 4 vectors, found 3 survivors"),
        ((2, 3, 4, 5), r"expected survivors among \[1, 2, 3, 4, 5\], agent 1 one of them"),
        ((1, 2, 3, 4, 6), r"expected survivors among \[1, 2, 3, 4, 5\]"),
    ],
)
def test_survivors_that_cannot_be_are_refused(survivors: tuple[int, ...], words: str) -> None:
    refused(at(Phase.CONFIRM), 1, Survivors(0, survivors), words)


def test_shares_are_revealed_only_when_enough_signed() -> None:
    conversation = at(Phase.REVEAL)
    signatures = conversation.inbox[1].signatures
    three = {i: signatures[i] for i in (1, 2, 3)}
    swapped = {**three, 4: signatures[5]}
    for few in ({}, three, swapped, {**three, 6: signatures[4]}):
        refused(
            at(Phase.REVEAL), 1, Confirmations(0, few), r"agents signed the survivors .* expected 4: too many vanished"
        )
    conversation.answer(1, Confirmations(0, {**three, 4: signatures[4]}))


# What the server refuses


@pytest.mark.parametrize("step", SPOKEN)
def test_the_server_refuses_other_steps_rounds_and_second_messages(step: Phase) -> None:
    conversation, other = at(step), at(step, round=1)
    conversation.speak()
    other.speak()
    server, message = conversation.server, conversation.outbox[2]
    with pytest.raises(PeerError, match=f"expected a {type(message).__name__} of round 0"):
        server.receive(other.outbox[2])
    wrong_step = at(Phase((step + 1) % 5))
    wrong_step.speak()
    with pytest.raises(PeerError, match=f"agent 2 sent a .* expected a {type(message).__name__}"):
        server.receive(wrong_step.outbox[2])
    assert server.missing == (1, 2, 3, 4, 5)
    server.receive(message)
    assert server.missing == (1, 3, 4, 5)
    with pytest.raises(PeerError, match=r"expected messages of agents \[1, 3, 4, 5\], found one of agent 2"):
        server.receive(message)


@pytest.mark.parametrize("step", SPOKEN[1:])
def test_who_vanished_is_no_longer_listened_to(step: Phase) -> None:
    late = at(step)
    late.speak()
    conversation = Conversation(GROUP).until(step, {5: Phase(step - 1)})
    with pytest.raises(PeerError, match=r"expected messages of agents \[1, 2, 3, 4\], found one of agent 5"):
        conversation.server.receive(late.outbox[5])


def test_the_server_refuses_shares_for_other_agents() -> None:
    conversation = at(Phase.SHARE)
    conversation.speak()
    sent = conversation.outbox[1]
    for shares in ({i: sent.shares[i] for i in (2, 3, 4)}, {**sent.shares, 6: sent.shares[2]}):
        commitments = dict.fromkeys([1, *shares], sent.commitments[2])
        with pytest.raises(PeerError, match=r"agent 1 sent shares for agents .*, expected \[2, 3, 4, 5\]"):
            conversation.server.receive(replace(sent, shares=shares, commitments=commitments))


@pytest.mark.parametrize("values", [np.zeros(5, np.uint32), np.zeros(6, np.uint64), np.zeros(6), Blank(6, np.uint32)])
def test_the_server_refuses_vectors_of_another_kind(values: Any) -> None:
    server = at(Phase.MASK).server
    with pytest.raises(PeerError, match=r"agent 1 sent .*masked values"):
        server.receive(MaskedVector(0, 1, Masked(values)))
    assert server.total is None


def test_the_server_refuses_signatures_of_other_survivors() -> None:
    conversation = at(Phase.CONFIRM)
    signed = conversation.answer(1, Survivors(0, (1, 2, 3, 4)))
    with pytest.raises(PeerError, match=r"agent 1 signed other survivors than \[1, 2, 3, 4, 5\]"):
        conversation.server.receive(signed)
    with pytest.raises(PeerError, match="agent 2 signed other survivors"):
        conversation.server.receive(Confirmation(0, 2, bytes(64)))


def test_the_server_refuses_shares_of_other_agents() -> None:
    conversation = at(Phase.REVEAL)
    conversation.speak()
    answer = conversation.outbox[1]
    with pytest.raises(PeerError, match=r"agent 1 sent shares of agents \[1, 2\], expected \[1, 2, 3, 4, 5\]"):
        conversation.server.receive(replace(answer, shares={i: answer.shares[i] for i in (1, 2)}))


def test_a_share_of_the_other_secret_is_noticed() -> None:
    """An agent that reveals a survivor's mask key instead of its seed does not help a server that takes it for one."""
    conversation = at(Phase.REVEAL)
    held = {i: agent.held[3][:33] for i, agent in conversation.agents.items()}
    assert public_key(combine(held, 4)) == conversation.server.roster.by_agent[3].mask_key
    conversation.speak()
    for i, answer in conversation.outbox.items():
        conversation.outbox[i] = replace(answer, shares={**answer.shares, 3: held[i]})
    conversation.deliver()
    with pytest.raises(PeerError, match="agent 3's self-mask do not give what it announced"):
        conversation.server.unmask()


def test_a_sum_is_unmasked_once_and_at_the_end() -> None:
    conversation = Conversation(GROUP)
    for step in SPOKEN[:-1]:
        with pytest.raises(
            CallerError, match=f"unmasked once, when shares have been revealed, not at step {step.name.lower()}"
        ):
            conversation.server.unmask()
        conversation.speak()
        conversation.deliver()
    with pytest.raises(TooFewAgents, match="needs 4 agents and 0 are left at step reveal"):
        conversation.server.unmask()
    conversation.speak()
    with pytest.raises(TooFewAgents):
        conversation.server.unmask()
    conversation.deliver()
    with pytest.raises(CallerError, match="no step follows the last one"):
        conversation.server.advance()
    conversation.server.unmask()
    with pytest.raises(CallerError, match="not at step done"):
        conversation.server.unmask()
    with pytest.raises(PeerError, match="expected nothing more"):
        conversation.server.receive(conversation.outbox[1])


# Identities


SIGNED = replace(GROUP, signed=True)
PRIVATE = {i: Identity.of_seed(bytes([i]) * 32) for i in range(1, 6)}
IDENTITIES = {i: private.public_key for i, private in PRIVATE.items()}


def agent_of(i: int, seed: int = 0, round: int = 0, group: Group = SIGNED) -> MaskingAgent:
    return MaskingAgent(group, i, round, IDENTITIES, secret=reproducible_secret(seed, "test", i))


def signed(seed: int = 0) -> dict[int, Announcement]:
    return {i: agent_of(i, seed).announce(private) for i, private in PRIVATE.items()}


def test_with_identities_signed_keys_are_accepted() -> None:
    agents = {i: agent_of(i) for i in PRIVATE}
    server = MaskingServer(SIGNED, 0)
    for i, agent in agents.items():
        server.receive(agent.announce(PRIVATE[i]))
    shares = [agents[i].share(roster) for i, roster in server.advance().items()]
    assert len(shares) == 5


@pytest.mark.parametrize(
    "forge",
    [
        pytest.param(lambda true, own: replace(own, agent=2), id="another's signature"),
        pytest.param(lambda true, own: replace(true, mask_key=own.mask_key), id="another mask key"),
        pytest.param(lambda true, own: replace(true, share_key=own.share_key), id="another share key"),
        pytest.param(lambda true, own: replace(true, signing_key=own.signing_key), id="another signing key"),
        pytest.param(lambda true, own: replace(true, commitment=own.commitment), id="another commitment"),
    ],
)
def test_with_identities_forged_keys_are_refused(forge: Any) -> None:
    """What a server that puts its own keys in the place of agent 2's would send."""
    true, servers = signed(), signed(seed=1)
    forged = forge(true[2], servers[3])
    roster = AgentRoster(0, tuple(forged if i == 2 else one for i, one in true.items()))
    agent = agent_of(1)
    agent.announce(PRIVATE[1])
    with pytest.raises(PeerError, match="agent 2's keys are not signed by its identity"):
        agent.share(roster)


def test_keys_are_signed_where_the_group_says_so_and_nowhere_else() -> None:
    """Sizes of messages follow from that, so a server without identities refuses the others too."""
    true = signed()
    plain = {i: MaskingAgent(GROUP, i, 0).announce() for i in PRIVATE}
    for group, expected, wrong in ((SIGNED, "signed by its identity", plain), (GROUP, "without a signature", true)):
        with pytest.raises(PeerError, match=f"agent 2's keys are not as its group says: expected keys {expected}"):
            MaskingServer(group, 0).receive(wrong[2])
    agent = agent_of(1)
    agent.announce(PRIVATE[1])
    with pytest.raises(PeerError, match="agent 2's keys are not as its group says"):
        agent.share(AgentRoster(0, tuple(plain[2] if i == 2 else one for i, one in true.items())))
    with pytest.raises(DataError, match="expected the agents' identities, found none"):
        MaskingAgent(SIGNED, 1, 0)
    with pytest.raises(DataError, match="identities are for one with signed=True"):
        MaskingAgent(GROUP, 1, 0, IDENTITIES)
    with pytest.raises(DataError, match="with its identity where they are signed"):
        agent_of(1).announce()
    with pytest.raises(DataError, match="with its identity where they are signed"):
        MaskingAgent(GROUP, 1, 0).announce(PRIVATE[1])


def test_with_identities_a_signature_is_for_one_round_and_group() -> None:
    """An old announcement, of another round or group, is not signed for this one; nor is that of an unknown agent."""
    for old in (
        replace(agent_of(2, round=1).announce(PRIVATE[2]), round=0),
        agent_of(2, group=replace(SIGNED, context=b"other")).announce(PRIVATE[2]),
    ):
        with pytest.raises(PeerError, match="agent 2's keys are not signed"):
            check_announcement(old, SIGNED, IDENTITIES)
    known = {i: key for i, key in IDENTITIES.items() if i != 2}
    with pytest.raises(PeerError, match="agent 2's keys are not signed"):
        check_announcement(signed()[2], SIGNED, known)
